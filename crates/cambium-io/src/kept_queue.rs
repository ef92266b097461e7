//! A read queue that each thread keeps from one batch to the next.
//!
//! Making a queue costs tens of microseconds and system calls (a ring is mapped,
//! a context is set up), which is more than a few cached reads take. So the queue
//! that a thread used last is kept, and used again where file system, back end and
//! depth are the same.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use cambium_base::Result;

use crate::batch::{BatchOptions, ReadCompletion, ReadQueue, ReadRequest, read_all};
use crate::file_system::FileSystem;

struct Kept {
    queue: Box<dyn ReadQueue>,
    options: BatchOptions,
    file_system: Weak<dyn FileSystem>,
}

thread_local! {
    static QUEUE: RefCell<Option<Kept>> = const { RefCell::new(None) };
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
    let weak = Arc::downgrade(file_system);
    let kept = QUEUE
        .with_borrow_mut(Option::take)
        .filter(|kept| kept.options == options && Weak::ptr_eq(&kept.file_system, &weak));
    let mut kept = match kept {
        Some(kept) => kept,
        None => Kept {
            queue: file_system.read_queue(options)?,
            options,
            file_system: weak,
        },
    };
    // After an error nothing is kept: what is pending there is another's.
    read_all(&mut *kept.queue, requests, take)?;
    QUEUE.with_borrow_mut(|place| *place = Some(kept));
    Ok(())
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
}
