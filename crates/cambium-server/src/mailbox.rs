//! Queues between threads: whoever takes gets all that waits, in order.

use std::time::Duration;

use cambium_io::sync::{Condvar, Mutex, MutexGuard};

/// A queue of messages to one thread.
#[derive(Debug)]
pub struct Mailbox<T> {
    queue: Mutex<Vec<T>>,
    filled: Condvar,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Mailbox {
            queue: Mutex::new(Vec::new()),
            filled: Condvar::new(),
        }
    }
}

impl<T> Mailbox<T> {
    /// Adds messages; true if the queue was empty.
    pub fn send(&self, messages: impl IntoIterator<Item = T>) -> bool {
        let mut queue = self.lock();
        let was_empty = queue.is_empty();
        queue.extend(messages);
        let is_filled = was_empty && !queue.is_empty();
        drop(queue);
        if is_filled {
            self.filled.notify_one();
        }
        is_filled
    }

    /// Takes all messages, waiting for the first if there is none: as long as it takes, or
    /// at most `patience`. `into` is empty and lends its memory.
    pub fn receive(&self, into: &mut Vec<T>, patience: Option<Duration>) {
        let mut queue = self.lock();
        if queue.is_empty() {
            queue = match patience {
                None => {
                    let waited = self.filled.wait_while(queue, |queue| queue.is_empty());
                    waited.unwrap_or_else(|poisoned| poisoned.into_inner())
                }
                Some(patience) => {
                    let is_empty = |queue: &mut Vec<T>| queue.is_empty();
                    let waited = self.filled.wait_timeout_while(queue, patience, is_empty);
                    waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0
                }
            };
        }
        std::mem::swap(&mut *queue, into);
    }

    /// Takes all messages that are there.
    pub fn take(&self, into: &mut Vec<T>) {
        std::mem::swap(&mut *self.lock(), into);
    }

    /// A thread that panicked left whole messages: they are moved in one step.
    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.queue
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
