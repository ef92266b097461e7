//! Threads that read for queues: parallel reads where a kernel has no better.
//!
//! WiscKey (section 3.3.1) fetches the values of a range query by a pool of
//! threads. A [`ReadPool`] is that pool; a queue of it ([`ReadPool::queue`]) is a
//! [`ReadQueue`] like those of the operating system, so that whoever reads ahead
//! need not know which one serves.
//!
//! ```text
//!  submit ──▶ jobs ──▶ a thread of the pool ──▶ inbox of the queue ──▶ wait
//!               └───── whoever waits takes jobs of its own ─────▲
//! ```
//!
//! Whoever waits does not sleep while a job of its own has not begun. So a pool
//! without threads (a simulation's, or one that the system gave none) answers as
//! well, in the order of submission.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use cambium_base::{Error, Result};

use crate::batch::{
    BatchOptions, ReadBackend, ReadCompletion, ReadQueue, ReadQueueStatistics, ReadRequest,
};
use crate::buffer::AlignedBuffer;
use crate::step::{BackgroundTask, Executor, StepOutcome};
use crate::sync::{Condvar, Mutex, MutexGuard, lock};

/// Threads that read, for any number of queues.
#[derive(Debug)]
pub struct ReadPool {
    shared: Arc<Shared>,
    tasks: Vec<Box<dyn BackgroundTask>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that found nothing to do, each once.
    idle: Vec<usize>,
}

/// A read that no thread has begun, or that one is at.
#[derive(Debug)]
struct Job {
    /// `None` once it was answered.
    request: Option<ReadRequest>,
    inbox: Arc<Inbox>,
}

/// Where the answers of a queue arrive.
#[derive(Debug, Default)]
struct Inbox {
    finished: Mutex<Vec<ReadCompletion>>,
    arrived: Condvar,
}

impl Job {
    fn run(mut self) {
        // It stays here meanwhile: should the read panic, the drop answers.
        let read = |request: &mut ReadRequest| {
            let ReadRequest { file, buffer, .. } = request;
            file.read_at(buffer, request.offset)
        };
        let Some(result) = self.request.as_mut().map(read) else {
            return;
        };
        if let Some(ReadRequest {
            buffer, tag, file, ..
        }) = self.request.take()
        {
            drop(file);
            self.inbox.deliver(ReadCompletion {
                tag,
                buffer,
                result,
            });
        }
    }

    /// Nobody wants the answer any more.
    fn forget(mut self) {
        self.request = None;
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Every request gets its answer, also one that nobody could begin.
        if let Some(request) = self.request.take() {
            self.inbox.deliver(ReadCompletion {
                tag: request.tag,
                buffer: AlignedBuffer::new(0, 1),
                result: Err(Error::Closed),
            });
        }
    }
}

impl Inbox {
    fn deliver(&self, completion: ReadCompletion) {
        lock(&self.finished).push(completion);
        self.arrived.notify_all();
    }
}

impl Shared {
    fn next_job(&self, thread: usize) -> Option<Job> {
        let mut state = lock(&self.state);
        let job = state.jobs.pop_front();
        if job.is_none() && !state.idle.contains(&thread) {
            state.idle.push(thread);
        }
        job
    }

    /// Takes a queue's oldest job that has not begun.
    fn own_job(&self, inbox: &Arc<Inbox>) -> Option<Job> {
        let mut state = lock(&self.state);
        let own = |job: &Job| Arc::ptr_eq(&job.inbox, inbox);
        let place = state.jobs.iter().position(own)?;
        state.jobs.remove(place)
    }
}

impl ReadPool {
    /// A pool of so many threads, if the executor runs any.
    pub fn new(executor: &dyn Executor, threads: usize) -> Arc<ReadPool> {
        let shared = Arc::new(Shared::default());
        let threads = if executor.runs_tasks() { threads } else { 0 };
        let spawn = |thread: usize| {
            let shared = shared.clone();
            let step = move || match shared.next_job(thread) {
                Some(job) => {
                    job.run();
                    StepOutcome::Again
                }
                None => StepOutcome::Idle,
            };
            executor.spawn("read", Box::new(step))
        };
        let tasks = (0..threads).map(spawn).collect();
        Arc::new(ReadPool { shared, tasks })
    }

    /// A queue of up to `depth` reads under way.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a depth that no queue has.
    pub fn queue(self: &Arc<Self>, depth: usize) -> Result<Box<dyn ReadQueue>> {
        let backend = ReadBackend::Sync;
        BatchOptions { backend, depth }.validate()?;
        Ok(Box::new(PooledReadQueue {
            pool: self.clone(),
            inbox: Arc::default(),
            depth,
            pending: 0,
            statistics: ReadQueueStatistics::default(),
        }))
    }

    fn add(&self, job: Job) {
        let idle = {
            let mut state = lock(&self.shared.state);
            state.jobs.push_back(job);
            state.idle.pop()
        };
        // Without an idle one, the next that is done takes it.
        if let Some(task) = idle.and_then(|thread| self.tasks.get(thread)) {
            task.notify();
        }
    }
}

/// Has a pool read.
#[derive(Debug)]
struct PooledReadQueue {
    pool: Arc<ReadPool>,
    inbox: Arc<Inbox>,
    depth: usize,
    /// Submitted and not handed out.
    pending: usize,
    statistics: ReadQueueStatistics,
}

impl PooledReadQueue {
    /// Waits for so many answers, reading where no thread does.
    fn wait_for(&self, count: usize) -> MutexGuard<'_, Vec<ReadCompletion>> {
        loop {
            let finished = lock(&self.inbox.finished);
            if finished.len() >= count {
                return finished;
            }
            drop(finished);
            match self.pool.shared.own_job(&self.inbox) {
                Some(job) => job.run(),
                None => break,
            }
        }
        // All that is left was begun by a thread, which answers.
        let finished = lock(&self.inbox.finished);
        let enough = |finished: &mut Vec<ReadCompletion>| finished.len() < count;
        let waited = self.inbox.arrived.wait_while(finished, enough);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadQueue for PooledReadQueue {
    fn backend(&self) -> ReadBackend {
        ReadBackend::Sync
    }

    fn fallback_note(&self) -> Option<&str> {
        None
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn pending(&self) -> usize {
        self.pending
    }

    fn submit(&mut self, request: ReadRequest) {
        assert!(self.pending < self.depth, "the queue is full");
        self.pending += 1;
        self.pool.add(Job {
            request: Some(request),
            inbox: self.inbox.clone(),
        });
    }

    fn wait(&mut self, at_least: usize, completions: &mut Vec<ReadCompletion>) -> Result<()> {
        let finished = std::mem::take(&mut *self.wait_for(at_least.min(self.pending)));
        self.pending -= finished.len();
        let bytes = |completion: &ReadCompletion| completion.result.as_ref().map_or(0, |&n| n);
        self.statistics.reads += finished.len() as u64;
        self.statistics.system_calls += finished.len() as u64;
        self.statistics.bytes += finished.iter().map(bytes).sum::<usize>() as u64;
        completions.extend(finished);
        Ok(())
    }

    fn statistics(&self) -> ReadQueueStatistics {
        self.statistics
    }
}

impl Drop for PooledReadQueue {
    fn drop(&mut self) {
        while let Some(job) = self.pool.shared.own_job(&self.inbox) {
            job.forget();
            self.pending -= 1;
        }
        drop(self.wait_for(self.pending));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::read_all;
    use crate::environment::Environment;
    use crate::file_system::{File, OpenOptions};

    fn file(environment: &Environment) -> Arc<dyn File> {
        let file_system = &environment.file_system;
        let path = "values".as_ref();
        let file = file_system.open(path, OpenOptions::CREATE).unwrap();
        let bytes: Vec<u8> = (0..=255).collect();
        file.write_at(&bytes, 0).unwrap();
        file
    }

    fn requests(file: &Arc<dyn File>, count: u64) -> impl Iterator<Item = ReadRequest> {
        (0..count).map(|tag| ReadRequest {
            file: file.clone(),
            offset: tag % 200,
            buffer: AlignedBuffer::new(2, 8),
            tag,
        })
    }

    fn reads_all(executor: &dyn Executor, queues: usize) {
        let file = file(&Environment::memory());
        let pool = ReadPool::new(executor, 3);
        std::thread::scope(|scope| {
            for _ in 0..queues {
                let (pool, file) = (pool.clone(), &file);
                scope.spawn(move || {
                    let mut queue = pool.queue(5).unwrap();
                    let mut answered = [false; 500];
                    let requests = requests(file, answered.len() as u64);
                    let all = read_all(&mut *queue, requests, |completion| {
                        assert_eq!(completion.result?, 2);
                        assert_eq!(u64::from(completion.buffer[0]), completion.tag % 200);
                        let seen = &mut answered[completion.tag as usize];
                        assert!(!std::mem::replace(seen, true));
                        Ok(())
                    });
                    all.unwrap();
                    assert!(answered.iter().all(|&seen| seen));
                    assert_eq!((queue.pending(), queue.statistics().reads), (0, 500));
                });
            }
        });
    }

    #[test]
    fn several_queues_share_the_threads_and_get_each_answer_once() {
        reads_all(&crate::ThreadExecutor, 4);
    }

    #[test]
    fn without_threads_whoever_waits_reads() {
        reads_all(&*Environment::memory().executor, 2);
    }

    #[test]
    fn without_threads_answers_come_in_the_order_of_submission_as_many_as_are_asked_for() {
        let environment = Environment::memory();
        let file = file(&environment);
        let mut queue = ReadPool::new(&*environment.executor, 3).queue(8).unwrap();
        requests(&file, 8).for_each(|request| queue.submit(request));
        let mut completions = Vec::new();
        queue.wait(0, &mut completions).unwrap();
        assert!(completions.is_empty(), "a look does not read");
        queue.wait(3, &mut completions).unwrap();
        let tags = |all: &[ReadCompletion]| all.iter().map(|one| one.tag).collect::<Vec<_>>();
        assert_eq!(tags(&completions), [0, 1, 2]);
        queue.wait(8, &mut completions).unwrap();
        assert_eq!(tags(&completions), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_queue_that_is_dropped_leaves_nothing_behind() {
        let file = file(&Environment::memory());
        let pool = ReadPool::new(&crate::ThreadExecutor, 2);
        for _ in 0..50 {
            let mut queue = pool.queue(16).unwrap();
            requests(&file, 16).for_each(|request| queue.submit(request));
            drop(queue);
            assert!(lock(&pool.shared.state).jobs.is_empty());
            assert_eq!(Arc::strong_count(&file), 1, "no read is under way");
        }
    }

    #[test]
    fn a_depth_that_no_queue_has_is_refused() {
        let pool = ReadPool::new(&crate::ThreadExecutor, 1);
        assert!(matches!(pool.queue(0), Err(Error::InvalidArgument(_))));
    }
}
