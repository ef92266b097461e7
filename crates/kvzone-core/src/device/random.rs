//! Random reads of one block through a queue that is kept full.
//!
//! The order is a permutation of the blocks, so that a buffered read never
//! finds a block that this measurement has read before. Buffers go round: a
//! completed one serves the next request, and nothing is allocated a read.

use std::sync::Arc;
use std::time::Duration;

use cambium_base::Error;
use cambium_io::environment::Clock;
use cambium_io::{
    Advice, AlignedBuffer, BatchOptions, Environment, File, ReadBackend, ReadCompletion, ReadQueue,
    ReadRequest,
};
use hdrhistogram::Histogram;

use super::report::RandomReads;
use super::test_file::{BLOCK_BYTES, TestFile, check_stamp};
use crate::error::Result;
use crate::latency::{histogram, summary};
use crate::permutation::Permutation;

#[derive(Clone, Copy, Debug)]
pub struct RandomPoint {
    /// How reads reach the kernel.
    pub backend: ReadBackend,
    /// Reads kept under way.
    pub depth: usize,
    /// Past the operating system's cache.
    pub direct: bool,
}

/// Measures one point for `limit`, from an empty cache; buffered reads end
/// earlier when every block was read once. Also says why another back end
/// served, if one did.
pub fn measure(
    environment: &Environment,
    test_file: &TestFile,
    point: RandomPoint,
    limit: Duration,
) -> Result<(RandomReads, Option<String>)> {
    let file = test_file.handle(point.direct)?;
    test_file.drop_cache()?;
    file.advise(0, test_file.bytes, Advice::Random);
    let mut queue = environment.file_system.read_queue(BatchOptions {
        backend: point.backend,
        depth: point.depth,
    })?;
    let block = test_file.block;
    let blocks = test_file.bytes / block as u64;
    let most = if point.direct { u64::MAX } else { blocks };
    let clock = &*environment.clock;
    let mut run = Run::new(clock, file, (block, blocks), point.depth)?;
    let start = clock.monotonic();
    let mut now = start;
    while now - start < limit && run.submitted < most {
        run.fill(&mut *queue, most, now);
        now = run.collect(&mut *queue, 1)?;
    }
    // Reads under way at the end are waited for and counted, with their time.
    while queue.pending() > 0 {
        now = run.collect(&mut *queue, 1)?;
    }
    let seconds = (now - start).as_secs_f64();
    let reads = run.samples.len();
    let found = RandomReads {
        backend: point.backend.to_string(),
        served_by: queue.backend().to_string(),
        direct: point.direct,
        depth: point.depth,
        block_bytes: block,
        reads,
        seconds,
        reads_per_second: reads as f64 / seconds.max(1e-9),
        system_calls: queue.statistics().system_calls,
        latency_ns: summary(&run.samples),
    };
    Ok((found, queue.fallback_note().map(str::to_string)))
}

struct Run<'a> {
    clock: &'a dyn Clock,
    file: &'a Arc<dyn File>,
    block: usize,
    order: Walk,
    submitted: u64,
    /// For each tag, where it reads and since when.
    under_way: Vec<(u64, Duration)>,
    /// Tags that are free, with their buffers.
    free: Vec<(u64, AlignedBuffer)>,
    completions: Vec<ReadCompletion>,
    samples: Histogram<u64>,
}

impl<'a> Run<'a> {
    fn new(
        clock: &'a dyn Clock,
        file: &'a Arc<dyn File>,
        (block, blocks): (usize, u64),
        depth: usize,
    ) -> Result<Self> {
        let alignment = file.alignment().memory.max(BLOCK_BYTES);
        Ok(Run {
            clock,
            file,
            block,
            order: Walk::new(blocks),
            submitted: 0,
            under_way: vec![(0, Duration::ZERO); depth],
            free: (0..depth as u64)
                .map(|tag| (tag, AlignedBuffer::new(block, alignment)))
                .collect(),
            completions: Vec::with_capacity(depth),
            samples: histogram()?,
        })
    }

    fn fill(&mut self, queue: &mut dyn ReadQueue, most: u64, now: Duration) {
        while queue.pending() < queue.depth() && self.submitted < most {
            let Some((tag, buffer)) = self.free.pop() else {
                break;
            };
            let offset = self.order.next() * self.block as u64;
            self.under_way[tag as usize] = (offset, now);
            self.submitted += 1;
            queue.submit(ReadRequest {
                file: self.file.clone(),
                offset,
                buffer,
                tag,
            });
        }
    }

    /// Waits, checks what came, and says when that was.
    fn collect(&mut self, queue: &mut dyn ReadQueue, at_least: usize) -> Result<Duration> {
        queue.wait(at_least, &mut self.completions)?;
        let now = self.clock.monotonic();
        for completion in self.completions.drain(..) {
            let (offset, since) = self.under_way[completion.tag as usize];
            let count = completion.result?;
            if count != self.block {
                let what = format!(
                    "a read inside the file gave {count} of {} bytes",
                    self.block
                );
                return Err(Error::corruption(self.file.path(), offset, what).into());
            }
            check_stamp(self.file.path(), &completion.buffer, offset)?;
            self.samples
                .saturating_record((now - since).as_nanos() as u64);
            self.free.push((completion.tag, completion.buffer));
        }
        Ok(now)
    }
}

/// Walks `0..count` in an order that looks random and repeats nothing, again
/// and again.
struct Walk {
    order: Permutation,
    position: u64,
}

impl Walk {
    fn new(count: u64) -> Self {
        Walk {
            order: Permutation::new(count, 0),
            position: 0,
        }
    }

    fn next(&mut self) -> u64 {
        let number = self.order.apply(self.position);
        self.position = (self.position + 1) % self.order.count();
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_meets_every_block_once_before_any_twice() {
        for count in [1, 2, 3, 7, 256, 1000, 4097] {
            let mut order = Walk::new(count);
            for round in 0..2 {
                let mut seen = vec![false; count as usize];
                for _ in 0..count {
                    let number = order.next() as usize;
                    assert!(!seen[number], "{number} of {count} twice in round {round}");
                    seen[number] = true;
                }
            }
        }
    }

    #[test]
    fn the_order_is_not_sequential() {
        let mut order = Walk::new(1 << 19);
        let numbers: Vec<u64> = (0..1000).map(|_| order.next()).collect();
        let neighbours = numbers
            .windows(2)
            .filter(|pair| pair[0].abs_diff(pair[1]) < 64)
            .count();
        assert!(neighbours < 20, "{neighbours} of 999 steps are short");
    }
}
