//! Queues between threads: whoever takes gets all that waits, in order.

use std::time::Duration;

use cambium_io::sync::{Condvar, Mutex, lock};

/// A queue of messages to one thread.
#[derive(Debug)]
pub struct Mailbox<T> {
    /// A thread that panicked left whole messages: they are moved in one step.
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
        let mut queue = lock(&self.queue);
        let was_empty = queue.is_empty();
        queue.extend(messages);
        let is_filled = was_empty && !queue.is_empty();
        drop(queue);
        if is_filled {
            self.filled.notify_one();
        }
        is_filled
    }

    /// Adds a message unless so many wait; then false.
    pub fn send_below(&self, most: usize, message: T) -> bool {
        let mut queue = lock(&self.queue);
        let has_room = queue.len() < most;
        if has_room {
            queue.push(message);
            self.filled.notify_one();
        }
        has_room
    }

    /// Adds messages for the caller itself, who takes them next: no thread wakes up.
    pub fn put(&self, messages: impl IntoIterator<Item = T>) {
        lock(&self.queue).extend(messages);
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.queue).is_empty()
    }

    /// Waits for a message, as long as it takes or at most `patience`.
    pub fn wait(&self, patience: Option<Duration>) {
        let queue = lock(&self.queue);
        let is_empty = |queue: &mut Vec<T>| queue.is_empty();
        // The caller looks at the queue itself, as after a panic of another thread.
        match patience {
            None => drop(self.filled.wait_while(queue, is_empty)),
            Some(patience) => drop(self.filled.wait_timeout_while(queue, patience, is_empty)),
        }
    }

    /// Takes all messages that are there. `into` is empty and lends its memory.
    pub fn take(&self, into: &mut Vec<T>) {
        std::mem::swap(&mut *lock(&self.queue), into);
    }
}
