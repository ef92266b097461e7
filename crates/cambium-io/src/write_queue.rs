//! Several writes under way at once.
//!
//! A [`WriteQueue`] takes writes one by one and starts each at once; the caller goes
//! on preparing the next, and waits for all of them before it syncs. Several files,
//! as of a store that is kept twice, are written, and synced, at the same time.
//!
//! Promises of every implementation: each write gets one answer, in the order in
//! which they were taken; a short write is continued; a buffer is kept until its
//! answer, also when the queue is dropped, which waits for what is under way.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use cambium_base::Result;

use crate::batch::ReadBackend;
use crate::buffer::AlignedBuffer;
use crate::file_system::{File, write_buffers};

/// One write. It shares its buffers, which nobody can change meanwhile.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// Where to.
    pub file: Arc<dyn File>,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// All of them are written, each right behind the one before it.
    pub buffers: Vec<Arc<AlignedBuffer>>,
}

impl WriteRequest {
    /// A write of one buffer.
    pub fn of(file: Arc<dyn File>, offset: u64, bytes: Arc<AlignedBuffer>) -> Self {
        WriteRequest {
            file,
            offset,
            buffers: vec![bytes],
        }
    }

    /// Bytes of all buffers.
    pub fn byte_count(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.len()).sum()
    }

    /// Bytes of the file that are written.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.byte_count() as u64)
    }

    /// Writes all of it by a plain call.
    ///
    /// # Errors
    /// Of [`File::write_vectored_at`].
    pub fn write(&self) -> Result<()> {
        self.write_rest(0)
    }

    /// Writes what lies behind the first `done` bytes by a plain call.
    pub(crate) fn write_rest(&self, done: usize) -> Result<()> {
        let offset = self.offset.saturating_add(done as u64);
        write_buffers(&*self.file, &self.rest(done), offset)
    }

    /// Writes all of it, durably, by a plain call.
    ///
    /// # Errors
    /// Those of [`File::write_synced_at`].
    pub fn write_synced(&self) -> Result<()> {
        self.file.write_synced_at(&self.rest(0), self.offset)
    }

    /// The buffers without the first `done` bytes.
    fn rest(&self, mut done: usize) -> Vec<&[u8]> {
        let mut rest = Vec::with_capacity(self.buffers.len());
        for buffer in &self.buffers {
            let skipped = done.min(buffer.len());
            done -= skipped;
            if skipped < buffer.len() {
                rest.push(&buffer[skipped..]);
            }
        }
        rest
    }
}

/// Keeps writes under way. Used by one thread at a time.
pub trait WriteQueue: Send + fmt::Debug {
    /// The back end that serves, after any fallback.
    fn backend(&self) -> ReadBackend;

    /// Takes a write and starts it. Waits only where as many are under way as the
    /// queue is deep.
    fn submit(&mut self, request: WriteRequest);

    /// Waits for all writes taken since the last call; an answer for each, in order.
    fn wait_all(&mut self) -> Vec<Result<()>>;

    /// Makes files durable, all at the same time; an answer for each, as
    /// [`File::sync_data`] gives it. Covers writes that were waited for.
    fn sync_all(&mut self, files: &[Arc<dyn File>]) -> Vec<Result<()>>;

    /// Does writes, all files at the same time, and makes them durable; an answer for
    /// each. Writes to one file stand together. Covers these bytes, and nothing that was
    /// written before and not synced. Where an answer is an error, a sync may have failed.
    fn write_synced(&mut self, requests: Vec<WriteRequest>) -> Vec<Result<()>>;
}

/// Writes, then a sync of each file, by plain calls.
pub(crate) fn write_and_sync(requests: &[WriteRequest]) -> Vec<Result<()>> {
    let mut answers = Vec::with_capacity(requests.len());
    for of_file in requests.chunk_by(|one, next| Arc::ptr_eq(&one.file, &next.file)) {
        let written: Vec<_> = of_file.iter().map(WriteRequest::write).collect();
        let ranges: Vec<_> = of_file.iter().map(WriteRequest::range).collect();
        let synced = match written.iter().all(Result::is_ok) {
            true => of_file[0].file.sync_ranges(&ranges),
            false => Ok(()),
        };
        answers.extend(written.into_iter().map(|answer| answer.and(synced.clone())));
    }
    answers
}

/// One write after the other, each done when it is taken.
///
/// ```
/// use cambium_io::{AlignedBuffer, Environment, OpenOptions, WriteQueue, WriteRequest};
/// # fn main() -> cambium_base::Result<()> {
/// let environment = Environment::memory();
/// let file = environment.file_system.open("/a".as_ref(), OpenOptions::CREATE)?;
/// let mut queue = environment.file_system.write_queue(Default::default())?;
/// for block in 0..4 {
///     let bytes = std::sync::Arc::new(AlignedBuffer::new(512, 512));
///     queue.submit(WriteRequest::of(file.clone(), block * 512, bytes));
/// }
/// assert!(queue.wait_all().iter().all(Result::is_ok));
/// assert_eq!(file.length()?, 2048);
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct SyncWriteQueue {
    answers: Vec<Result<()>>,
}

impl WriteQueue for SyncWriteQueue {
    fn backend(&self) -> ReadBackend {
        ReadBackend::Sync
    }

    fn submit(&mut self, request: WriteRequest) {
        self.answers.push(request.write());
    }

    fn wait_all(&mut self) -> Vec<Result<()>> {
        std::mem::take(&mut self.answers)
    }

    fn sync_all(&mut self, files: &[Arc<dyn File>]) -> Vec<Result<()>> {
        files.iter().map(|file| file.sync_data()).collect()
    }

    fn write_synced(&mut self, requests: Vec<WriteRequest>) -> Vec<Result<()>> {
        write_and_sync(&requests)
    }
}
