//! Reads one after the other, by [`File::read_at`](crate::File::read_at).
//!
//! The measure that the other back ends are held against, and a queue for any
//! implementation of [`File`](crate::File), since it asks nothing else of it.

use std::collections::VecDeque;

use cambium_base::Result;

use crate::batch::{ReadBackend, ReadCompletion, ReadQueue, ReadQueueStatistics, ReadRequest};

/// A queue that reads while the caller waits. Works with every [`File`](crate::File).
#[derive(Debug)]
pub struct SyncReadQueue {
    depth: usize,
    note: Option<String>,
    taken: VecDeque<ReadRequest>,
    statistics: ReadQueueStatistics,
}

impl SyncReadQueue {
    /// A queue that takes up to `depth` requests before it wants a wait.
    pub fn new(depth: usize) -> Self {
        SyncReadQueue::with_note(depth, None)
    }

    pub(super) fn with_note(depth: usize, note: Option<String>) -> Self {
        SyncReadQueue {
            depth,
            note,
            taken: VecDeque::with_capacity(depth),
            statistics: ReadQueueStatistics::default(),
        }
    }
}

impl ReadQueue for SyncReadQueue {
    fn backend(&self) -> ReadBackend {
        ReadBackend::Sync
    }

    fn fallback_note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn pending(&self) -> usize {
        self.taken.len()
    }

    fn submit(&mut self, request: ReadRequest) {
        assert!(self.taken.len() < self.depth, "the queue is full");
        self.taken.push_back(request);
    }

    fn wait(&mut self, at_least: usize, completions: &mut Vec<ReadCompletion>) -> Result<()> {
        // A caller that only looks (`at_least` 0) must come to its end too.
        for _ in 0..at_least.max(1) {
            let Some(mut request) = self.taken.pop_front() else {
                break;
            };
            let result = request.file.read_at(&mut request.buffer, request.offset);
            self.statistics.system_calls += 1;
            self.statistics.reads += 1;
            self.statistics.bytes += result.as_ref().map_or(0, |&count| count as u64);
            completions.push(ReadCompletion {
                tag: request.tag,
                buffer: request.buffer,
                result,
            });
        }
        Ok(())
    }

    fn statistics(&self) -> ReadQueueStatistics {
        self.statistics
    }
}
