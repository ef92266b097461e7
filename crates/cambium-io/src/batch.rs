//! Batched reads as a first-class operation.
//!
//! A [`ReadQueue`] keeps up to `depth` reads under way. Callers submit
//! requests, each owning its buffer until it completes, and collect
//! completions in whatever order the device answers; the queue is kept full
//! rather than drained batch by batch. `P-Fetch` (section III) is the source.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use cambium_base::{Error, Result};

use crate::buffer::AlignedBuffer;
use crate::file_system::File;

/// How reads reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ReadBackend {
    /// One `pread` after the other.
    Sync,
    /// Linux AIO; asynchronous for direct files only.
    Aio,
    /// io_uring.
    #[default]
    IoUring,
}

impl FromStr for ReadBackend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "sync" => Ok(ReadBackend::Sync),
            "aio" => Ok(ReadBackend::Aio),
            "io_uring" => Ok(ReadBackend::IoUring),
            other => Err(Error::InvalidArgument(format!(
                "I/O back end {other:?}: expected sync, aio or io_uring"
            ))),
        }
    }
}

impl fmt::Display for ReadBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReadBackend::Sync => "sync",
            ReadBackend::Aio => "aio",
            ReadBackend::IoUring => "io_uring",
        })
    }
}

/// What a queue is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// The back end to try first.
    pub backend: ReadBackend,
    /// Most reads under way at once, and the most submitted in one system
    /// call: 1 to 1,024.
    pub depth: usize,
}

impl BatchOptions {
    /// Largest depth.
    pub const MAX_DEPTH: usize = 1024;

    /// Checks the depth.
    pub fn validate(&self) -> Result<()> {
        if (1..=Self::MAX_DEPTH).contains(&self.depth) {
            return Ok(());
        }
        Err(Error::InvalidArgument(format!(
            "submission batch {}: expected 1 to {}",
            self.depth,
            Self::MAX_DEPTH
        )))
    }
}

impl Default for BatchOptions {
    fn default() -> Self {
        BatchOptions {
            backend: ReadBackend::default(),
            depth: 128,
        }
    }
}

/// One read. The request owns its buffer until it completes, so that no
/// memory is freed while the kernel may write to it.
#[derive(Debug)]
pub struct ReadRequest {
    /// Where from.
    pub file: Arc<dyn File>,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Where to; its length is how much is read.
    pub buffer: AlignedBuffer,
    /// The caller's own mark, handed back with the completion.
    pub tag: u64,
}

impl ReadRequest {
    /// The same read of the file below that has all of its bytes; where several have them,
    /// its answer, which is read at once.
    fn located(mut self) -> std::result::Result<ReadRequest, ReadCompletion> {
        match self.file.part_at(self.offset) {
            None => Ok(self),
            Some(part) if self.buffer.len() as u64 <= part.length => Ok(ReadRequest {
                file: part.file,
                offset: part.offset,
                ..self
            }),
            Some(_) => Err(ReadCompletion {
                tag: self.tag,
                result: self.file.read_at(&mut self.buffer, self.offset),
                buffer: self.buffer,
            }),
        }
    }
}

/// One answer; every request gets exactly one.
#[derive(Debug)]
pub struct ReadCompletion {
    /// The request's mark.
    pub tag: u64,
    /// The request's buffer.
    pub buffer: AlignedBuffer,
    /// How many bytes were read; short only at the end of the file.
    pub result: Result<usize>,
}

/// What a queue has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadQueueStatistics {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// System calls made for submitting and waiting.
    pub system_calls: u64,
}

/// Keeps reads under way. Used by one thread at a time; dropping it waits for
/// the reads that are under way.
pub trait ReadQueue: Send + fmt::Debug {
    /// The back end that serves, after any fallback.
    fn backend(&self) -> ReadBackend;

    /// Why the back end differs from the one asked for, if it does.
    fn fallback_note(&self) -> Option<&str>;

    /// Most reads under way.
    fn depth(&self) -> usize;

    /// Reads submitted and not yet handed back by [`ReadQueue::wait`].
    fn pending(&self) -> usize;

    /// Takes a request; it may start now or with the next `wait`.
    ///
    /// # Panics
    /// If `pending() == depth()`: collect completions first.
    fn submit(&mut self, request: ReadRequest);

    /// Starts what was taken, then waits until `at_least` reads (no more than
    /// are pending) are complete, and appends all completions there are.
    /// An error is one of the queue itself; a failed read is in its completion.
    fn wait(&mut self, at_least: usize, completions: &mut Vec<ReadCompletion>) -> Result<()>;

    /// Counters since the queue was made.
    fn statistics(&self) -> ReadQueueStatistics;
}

/// Runs all requests through a queue, keeping it full, and hands each
/// completion to `take` in the order of completion. Stops at the first error
/// of `take` or of the queue, after waiting for what is under way.
pub fn read_all(
    queue: &mut dyn ReadQueue,
    requests: impl IntoIterator<Item = ReadRequest>,
    mut take: impl FnMut(ReadCompletion) -> Result<()>,
) -> Result<()> {
    let mut requests = requests.into_iter().fuse();
    let mut completions = Vec::new();
    let mut failure = None;
    loop {
        while failure.is_none() && queue.pending() < queue.depth() {
            match requests.next().map(ReadRequest::located) {
                Some(Ok(request)) => queue.submit(request),
                Some(Err(completion)) => failure = take(completion).err(),
                None => break,
            }
        }
        if queue.pending() == 0 {
            return failure.map_or(Ok(()), Err);
        }
        queue.wait(1, &mut completions)?;
        for completion in completions.drain(..) {
            if failure.is_none() {
                failure = take(completion).err();
            }
        }
    }
}
