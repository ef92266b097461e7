//! Batched reads, and several writes at once, through the operating system.
//!
//! | back end | system calls | asynchronous for |
//! |---|---|---|
//! | `io_uring` | one `io_uring_enter` submits a batch and waits | every file |
//! | `aio` | `io_submit` a batch, `io_getevents` to wait | direct files; buffered reads happen inside `io_submit` |
//! | `sync` | one `pread` a read | none |
//!
//! What the kernel refuses falls back: io_uring, else aio, else sync, and the
//! queue's note says why. Some container profiles block io_uring.
//!
//! Promises of all three: every request gets one completion; a short read is
//! continued until the file ends; `EINTR` and `EAGAIN` never come through; a
//! request owns its buffer until its completion, also when the queue is
//! dropped, which waits for what is under way.

mod aio;
mod choice;
mod slots;
mod uring;
mod uring_writes;
mod ways;

use cambium_base::Result;

use crate::batch::{BatchOptions, ReadBackend, ReadQueue};
use crate::inline_queue::InlineReadQueue;
use crate::write_queue::{SyncWriteQueue, WriteQueue};

/// Most bytes asked for in one system call; longer reads are continued. Keeps
/// lengths within what the kernel takes (2 GiB less a page).
const LONGEST_READ: usize = 1 << 30;

/// Most reads handed over in one system call. A whole queue in one call lets
/// the device wait for the first read until the last is prepared, and the
/// answers then come back in one burst too; in pieces of an eighth the device
/// starts at once. It measured better beside `fio` (`docs/device.md`). Four
/// reads share a call at any depth.
fn piece_of(depth: usize) -> usize {
    (depth / 8).max(4)
}

/// Opens the back end that was asked for, or the next that works.
pub(super) fn open(options: BatchOptions) -> Result<Box<dyn ReadQueue>> {
    options.validate()?;
    let mut refused = Vec::new();
    if options.backend == ReadBackend::IoUring {
        match uring::UringReadQueue::new(options.depth) {
            Ok(queue) => return Ok(Box::new(queue)),
            Err(error) => refused.push(format!("io_uring refused: {error}")),
        }
    }
    if options.backend != ReadBackend::Sync {
        match aio::AioReadQueue::new(options.depth, note(&refused, ReadBackend::Aio)) {
            Ok(queue) => return Ok(Box::new(queue)),
            Err(error) => refused.push(format!("aio refused: {error}")),
        }
    }
    let note = note(&refused, ReadBackend::Sync);
    Ok(Box::new(InlineReadQueue::sync(options, note)?))
}

/// Opens a queue of writes: io_uring where it was asked for and the kernel has it,
/// else one write after the other.
pub(super) fn open_writes(options: BatchOptions) -> Result<Box<dyn WriteQueue>> {
    options.validate()?;
    if options.backend == ReadBackend::IoUring {
        if let Ok(queue) = uring_writes::UringWriteQueue::new(options.depth) {
            return Ok(Box::new(queue));
        }
    }
    Ok(Box::new(SyncWriteQueue::default()))
}

fn note(refused: &[String], serving: ReadBackend) -> Option<String> {
    (!refused.is_empty()).then(|| format!("{}; {serving} serves", refused.join("; ")))
}
