//! A read queue that reads while the caller waits, by [`File::read_at`](crate::File::read_at).
//!
//! It serves every implementation of [`File`](crate::File): memory, where there is nothing to
//! overlap, and systems without a queue of their own. In a simulation a generator picks how
//! many reads complete and in which order, so that code which relies on an order fails.

use std::collections::VecDeque;

use cambium_base::Result;

use crate::batch::{
    BatchOptions, ReadBackend, ReadCompletion, ReadQueue, ReadQueueStatistics, ReadRequest,
};
use crate::simulated::Generator;

/// Serves reads one after the other.
#[derive(Debug)]
pub(crate) struct InlineReadQueue {
    options: BatchOptions,
    note: Option<String>,
    generator: Option<Generator>,
    requests: VecDeque<ReadRequest>,
    statistics: ReadQueueStatistics,
}

impl InlineReadQueue {
    /// A queue that answers in the order of submission, or, with a generator,
    /// in a random one.
    pub(crate) fn new(options: BatchOptions, generator: Option<Generator>) -> Result<Self> {
        options.validate()?;
        Ok(InlineReadQueue {
            options,
            note: None,
            generator,
            requests: VecDeque::new(),
            statistics: ReadQueueStatistics::default(),
        })
    }

    /// The back end [`ReadBackend::Sync`]; the note says why another one does not serve.
    pub(crate) fn sync(mut options: BatchOptions, note: Option<String>) -> Result<Self> {
        options.backend = ReadBackend::Sync;
        let queue = InlineReadQueue::new(options, None)?;
        Ok(InlineReadQueue { note, ..queue })
    }

    fn complete(&mut self, mut request: ReadRequest) -> ReadCompletion {
        let result = request.file.read_at(&mut request.buffer, request.offset);
        self.statistics.system_calls += 1;
        self.statistics.reads += 1;
        self.statistics.bytes += *result.as_ref().unwrap_or(&0) as u64;
        ReadCompletion {
            tag: request.tag,
            buffer: request.buffer,
            result,
        }
    }
}

impl ReadQueue for InlineReadQueue {
    fn backend(&self) -> ReadBackend {
        self.options.backend
    }

    fn fallback_note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    fn depth(&self) -> usize {
        self.options.depth
    }

    fn pending(&self) -> usize {
        self.requests.len()
    }

    fn submit(&mut self, request: ReadRequest) {
        assert!(
            self.requests.len() < self.options.depth,
            "collect completions before submitting to a full queue"
        );
        self.requests.push_back(request);
    }

    fn wait(&mut self, at_least: usize, completions: &mut Vec<ReadCompletion>) -> Result<()> {
        let pending = self.requests.len();
        let least = at_least.min(pending);
        let count = match &mut self.generator {
            Some(generator) => least + generator.below((pending - least + 1) as u64) as usize,
            // A caller that only looks (`at_least` 0) must come to its end too.
            None => at_least.max(1),
        };
        for _ in 0..count {
            let next = match &mut self.generator {
                Some(generator) => generator.below(self.requests.len() as u64) as usize,
                None => 0,
            };
            let Some(request) = self.requests.remove(next) else {
                break;
            };
            let completion = self.complete(request);
            completions.push(completion);
        }
        Ok(())
    }

    fn statistics(&self) -> ReadQueueStatistics {
        self.statistics
    }
}
