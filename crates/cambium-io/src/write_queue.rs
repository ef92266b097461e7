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
use std::sync::Arc;

use cambium_base::Result;

use crate::batch::ReadBackend;
use crate::buffer::AlignedBuffer;
use crate::file_system::File;

/// One write. It shares its buffer, which nobody can change meanwhile.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// Where to.
    pub file: Arc<dyn File>,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// All of it is written.
    pub bytes: Arc<AlignedBuffer>,
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
        let write = |request: &WriteRequest| request.file.write_at(&request.bytes, request.offset);
        let written: Vec<_> = of_file.iter().map(write).collect();
        let range = |request: &WriteRequest| {
            request.offset..request.offset.saturating_add(request.bytes.len() as u64)
        };
        let ranges: Vec<_> = of_file.iter().map(range).collect();
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
///     queue.submit(WriteRequest { file: file.clone(), offset: block * 512, bytes });
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
        let answer = request.file.write_at(&request.bytes, request.offset);
        self.answers.push(answer);
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
