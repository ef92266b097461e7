//! A read queue that each thread keeps from one batch to the next.
//!
//! Making a queue costs tens of microseconds and system calls (a ring is mapped,
//! a context is set up), which is more than a few cached reads take. So the queue
//! that a thread used last is kept, and used again where file system, back end and
//! depth are the same.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use cambium_base::Result;

use crate::batch::{BatchOptions, ReadBackend, ReadCompletion, ReadQueue, ReadRequest, read_all};
use crate::file_system::FileSystem;

struct Kept {
    queue: Box<dyn ReadQueue>,
    options: BatchOptions,
    file_system: Weak<dyn FileSystem>,
}

thread_local! {
    static QUEUE: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

/// This thread's queue, for as long as reads are under way in it. Dropping it
/// waits for them, and leaves the queue to whoever asks next on the thread of the
/// drop.
///
/// Two at a time are two queues; the last one dropped is kept.
pub struct KeptQueue {
    /// `None` only while it is dropped.
    kept: Option<Kept>,
}

impl KeptQueue {
    /// Takes the kept queue, or makes one.
    ///
    /// # Errors
    /// Of [`FileSystem::read_queue`].
    pub fn take(file_system: &Arc<dyn FileSystem>, options: BatchOptions) -> Result<KeptQueue> {
        let file_system = file_system.below().unwrap_or(file_system);
        let weak = Arc::downgrade(file_system);
        let kept = QUEUE
            .try_with(RefCell::take)
            .unwrap_or_default()
            .filter(|kept| kept.options == options && Weak::ptr_eq(&kept.file_system, &weak));
        let kept = match kept {
            Some(kept) => kept,
            None => Kept {
                queue: file_system.read_queue(options)?,
                options,
                file_system: weak,
            },
        };
        Ok(KeptQueue { kept: Some(kept) })
    }

    /// Waits for what is under way, and forgets it.
    fn finish(kept: &mut Kept) -> Result<()> {
        let mut unwanted = Vec::new();
        while kept.queue.pending() > 0 {
            kept.queue.wait(kept.queue.pending(), &mut unwanted)?;
            unwanted.clear();
        }
        Ok(())
    }
}

impl Deref for KeptQueue {
    type Target = dyn ReadQueue;

    fn deref(&self) -> &Self::Target {
        let kept = self.kept.as_ref().expect("it is there until the drop");
        &*kept.queue
    }
}

impl DerefMut for KeptQueue {
    fn deref_mut(&mut self) -> &mut Self::Target {
        let kept = self.kept.as_mut().expect("it is there until the drop");
        &mut *kept.queue
    }
}

impl fmt::Debug for KeptQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Drop for KeptQueue {
    fn drop(&mut self) {
        let Some(mut kept) = self.kept.take() else {
            return;
        };
        // One that only reads while it is waited for has nothing under way.
        let idle = kept.queue.pending() == 0;
        if !idle && kept.queue.backend() == ReadBackend::Sync {
            return;
        }
        if idle || KeptQueue::finish(&mut kept).is_ok() {
            // At the end of a thread there is no place left.
            _ = QUEUE.try_with(|place| place.replace(Some(kept)));
        }
    }
}

/// Runs all requests through this thread's queue, as [`read_all`] does.
///
/// # Errors
/// Of the queue, of making one, and the first that `take` answers. A failed read
/// is in its completion.
pub fn read_all_kept(
    file_system: &Arc<dyn FileSystem>,
    options: BatchOptions,
    requests: impl IntoIterator<Item = ReadRequest>,
    take: impl FnMut(ReadCompletion) -> Result<()>,
) -> Result<()> {
    read_all(&mut *KeptQueue::take(file_system, options)?, requests, take)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::AlignedBuffer;
    use crate::environment::Environment;
    use crate::file_system::OpenOptions;

    #[test]
    fn a_kept_queue_serves_batch_after_batch_and_other_options() {
        let environment = Environment::memory();
        let file_system = &environment.file_system;
        let file = file_system
            .open("values".as_ref(), OpenOptions::CREATE)
            .unwrap();
        file.write_at(b"0123456789", 0).unwrap();
        for depth in [2, 2, 3] {
            let options = BatchOptions {
                depth,
                ..BatchOptions::default()
            };
            let requests = (0..10).map(|place| ReadRequest {
                file: file.clone(),
                offset: place,
                buffer: AlignedBuffer::new(1, 8),
                tag: place,
            });
            let mut found = [0; 10];
            read_all_kept(file_system, options, requests, |completion| {
                found[completion.tag as usize] = completion.buffer[0];
                completion.result.map(|_| ())
            })
            .unwrap();
            assert_eq!(&found, b"0123456789");
        }
    }

    #[test]
    fn what_is_under_way_when_a_queue_is_given_back_is_no_others() {
        let environment = Environment::memory();
        let file_system = &environment.file_system;
        let path = "values".as_ref();
        let file = file_system.open(path, OpenOptions::CREATE).unwrap();
        file.write_at(b"01", 0).unwrap();
        let request = |tag| ReadRequest {
            file: file.clone(),
            offset: tag,
            buffer: AlignedBuffer::new(1, 8),
            tag,
        };
        let options = BatchOptions::default();
        let mut queue = KeptQueue::take(file_system, options).unwrap();
        queue.submit(request(0));
        drop(queue);
        let mut queue = KeptQueue::take(file_system, options).unwrap();
        assert_eq!(queue.pending(), 0);
        assert_eq!(queue.statistics().reads, 1, "the same queue");
        queue.submit(request(1));
        let mut completions = Vec::new();
        queue.wait(1, &mut completions).unwrap();
        assert_eq!((completions.len(), completions[0].tag), (1, 1));
    }
}
