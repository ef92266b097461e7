//! Jobs of one kind, done by threads and by whoever waits for them.
//!
//! A [`Crew`] takes jobs and answers what came of each, in any order. Whoever asks
//! for an outcome while none is there does a job that nobody has begun. So nothing
//! depends on the threads: without them (a simulation, or a system that gave none)
//! every job is done by the one who asks, in the order in which it came.
//!
//! ```text
//!  add ──▶ jobs ──▶ a thread of the crew ──▶ outcomes ──▶ next
//!            └───── whoever asks takes a job ─────▲
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cambium_base::{Error, Result};

use crate::step::{BackgroundTask, Executor, StepOutcome};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// How often the one who waits looks whether the threads are alive.
const LOOK: Duration = Duration::from_millis(200);

/// Threads that do jobs `J`, each with an outcome `R`.
///
/// ```
/// use cambium_io::{Crew, ThreadExecutor};
/// let crew = Crew::new(&ThreadExecutor, "squares", 2, |number: u64| number * number);
/// (1..=4).for_each(|number| crew.add(number));
/// let mut sum = 0;
/// while let Some(square) = crew.next()? {
///     sum += square;
/// }
/// assert_eq!(sum, 1 + 4 + 9 + 16);
/// # Ok::<(), cambium_base::Error>(())
/// ```
pub struct Crew<J, R> {
    shared: Arc<Shared<J, R>>,
    tasks: Vec<Box<dyn BackgroundTask>>,
}

struct Shared<J, R> {
    work: Box<dyn Fn(J) -> R + Send + Sync>,
    state: Mutex<State<J, R>>,
    finished: Condvar,
}

struct State<J, R> {
    jobs: VecDeque<J>,
    outcomes: VecDeque<R>,
    /// Jobs that threads are at.
    under_way: usize,
}

impl<J: Send + 'static, R: Send + 'static> Crew<J, R> {
    /// A crew of so many threads, named for people who look at them; none where the
    /// executor runs no tasks.
    pub fn new(
        executor: &dyn Executor,
        name: &str,
        threads: usize,
        work: impl Fn(J) -> R + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            work: Box::new(work),
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                outcomes: VecDeque::new(),
                under_way: 0,
            }),
            finished: Condvar::new(),
        });
        let threads = if executor.runs_tasks() { threads } else { 0 };
        let tasks = (0..threads).map(|_| {
            let shared = shared.clone();
            executor.spawn(name, Box::new(move || shared.do_one()))
        });
        Crew {
            tasks: tasks.collect(),
            shared,
        }
    }

    /// Adds a job.
    pub fn add(&self, job: J) {
        let mut state = self.shared.state();
        state.jobs.push_back(job);
        let (waiting, busy) = (state.jobs.len(), state.under_way);
        drop(state);
        // One more thread than are at work, if there is one.
        if let Some(task) = self
            .tasks
            .get((busy + waiting - 1) % self.tasks.len().max(1))
        {
            task.notify();
        }
    }

    /// Jobs added whose outcomes were not taken yet.
    pub fn pending(&self) -> usize {
        let state = self.shared.state();
        state.jobs.len() + state.under_way + state.outcomes.len()
    }

    /// An outcome that is there now.
    pub fn ready(&self) -> Option<R> {
        self.shared.state().outcomes.pop_front()
    }

    /// The next outcome; `None` if there is none for any job added.
    ///
    /// # Errors
    /// If a thread ended within a job.
    pub fn next(&self) -> Result<Option<R>> {
        let mut state = self.shared.state();
        loop {
            if let Some(outcome) = state.outcomes.pop_front() {
                return Ok(Some(outcome));
            }
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                return Ok(Some((self.shared.work)(job)));
            }
            if state.under_way == 0 {
                return Ok(None);
            }
            if let Some(what) = self.tasks.iter().find_map(|task| task.failure()) {
                return Err(Error::io("work", "a thread", std::io::Error::other(what)));
            }
            let waited = self.shared.finished.wait_timeout(state, LOOK);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<J, R> Drop for Crew<J, R> {
    fn drop(&mut self) {
        // Nothing more is begun; what is under way is waited for.
        self.shared.state().jobs.clear();
        self.tasks.clear();
    }
}

impl<J, R> Shared<J, R> {
    /// No work is done under this lock, so a poisoned one holds no half change.
    fn state(&self) -> MutexGuard<'_, State<J, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a thread does, again and again.
    fn do_one(&self) -> StepOutcome {
        let mut state = self.state();
        let Some(job) = state.jobs.pop_front() else {
            return StepOutcome::Asleep;
        };
        state.under_way += 1;
        drop(state);
        let outcome = (self.work)(job);
        let mut state = self.state();
        state.under_way -= 1;
        state.outcomes.push_back(outcome);
        drop(state);
        self.finished.notify_one();
        StepOutcome::Again
    }
}

impl<J, R> fmt::Debug for Crew<J, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew")
            .field("tasks", &self.tasks)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::real::ThreadExecutor;

    #[test]
    fn every_job_has_one_outcome_with_threads_and_without() {
        let memory = Environment::memory();
        let executors: [(&dyn Executor, usize); 3] = [
            (&ThreadExecutor, 3),
            (&ThreadExecutor, 0),
            (&*memory.executor, 3),
        ];
        for (executor, threads) in executors {
            let crew = Crew::new(executor, "test", threads, |number: u64| number + 1);
            assert!(crew.next().unwrap().is_none());
            let mut found = Vec::new();
            for number in 0..1000 {
                crew.add(number);
                if number % 3 == 0 {
                    found.extend(crew.next().unwrap());
                }
                found.extend(crew.ready());
            }
            while let Some(outcome) = crew.next().unwrap() {
                found.push(outcome);
            }
            assert_eq!(crew.pending(), 0);
            found.sort_unstable();
            assert_eq!(found, (1..=1000).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_thread_that_panics_is_an_error_and_no_endless_wait() {
        let crew = Crew::new(&ThreadExecutor, "test", 1, |job: Option<u64>| job.unwrap());
        crew.add(None);
        // Taken by the thread, not by the one who asks.
        while !crew.shared.state().jobs.is_empty() {
            crate::sync::thread::yield_now();
        }
        let text = crew.next().unwrap_err().to_string();
        assert!(text.contains("panicked"), "{text}");
    }

    #[test]
    fn a_crew_that_is_dropped_begins_nothing_more() {
        let begun = Arc::new(crate::sync::atomic::AtomicUsize::new(0));
        let counted = begun.clone();
        let crew = Crew::new(
            &*Environment::memory().executor,
            "test",
            1,
            move |_: u64| counted.fetch_add(1, crate::sync::atomic::Ordering::Relaxed),
        );
        (0..5).for_each(|job| crew.add(job));
        crew.next().unwrap();
        drop(crew);
        assert_eq!(begun.load(crate::sync::atomic::Ordering::Relaxed), 1);
    }
}
