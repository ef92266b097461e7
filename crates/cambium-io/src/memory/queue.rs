//! A read queue that does its reads itself, when they are waited for.
//!
//! Over memory there is nothing to overlap. What a simulation needs of a queue
//! is that completions come in any order and not all at once: with a generator
//! the queue picks both at random, so that code that leans on an order fails.

use cambium_base::Result;

use crate::batch::{
    BatchOptions, ReadBackend, ReadCompletion, ReadQueue, ReadQueueStatistics, ReadRequest,
};
use crate::simulated::Generator;

/// Serves reads through [`crate::File::read_at`].
#[derive(Debug)]
pub(crate) struct InlineReadQueue {
    options: BatchOptions,
    generator: Option<Generator>,
    requests: Vec<ReadRequest>,
    statistics: ReadQueueStatistics,
}

impl InlineReadQueue {
    /// A queue that answers in the order of submission, or, with a generator,
    /// in a random one.
    pub(crate) fn new(options: BatchOptions, generator: Option<Generator>) -> Result<Self> {
        options.validate()?;
        Ok(InlineReadQueue {
            options,
            generator,
            requests: Vec::new(),
            statistics: ReadQueueStatistics::default(),
        })
    }

    fn complete(&mut self, mut request: ReadRequest) -> ReadCompletion {
        let result = request.file.read_at(&mut request.buffer, request.offset);
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
        None
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
        self.requests.push(request);
    }

    fn wait(&mut self, at_least: usize, completions: &mut Vec<ReadCompletion>) -> Result<()> {
        self.statistics.system_calls += 1;
        let pending = self.requests.len();
        let least = at_least.min(pending);
        let count = match &mut self.generator {
            Some(generator) => least + generator.below((pending - least + 1) as u64) as usize,
            None => pending,
        };
        for _ in 0..count {
            let next = match &mut self.generator {
                Some(generator) => generator.below(self.requests.len() as u64) as usize,
                None => 0,
            };
            let request = self.requests.remove(next);
            let completion = self.complete(request);
            completions.push(completion);
        }
        Ok(())
    }

    fn statistics(&self) -> ReadQueueStatistics {
        self.statistics
    }
}
