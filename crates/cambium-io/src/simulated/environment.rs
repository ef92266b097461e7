//! Clock, randomness and executor of a simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::disk::SimulatedDisk;
use super::random::SeededRandomness;
use crate::cache::{BlockCache, DEFAULT_CACHE_BYTES};
use crate::environment::{Clock, Environment, MemoryBudget};
use crate::step::{BackgroundTask, Executor, Task};
use crate::sync::{scheduled_time, thread};

/// Where simulated wall clocks begin: 1 January 2020, in nanoseconds.
const FIRST_WALL_NANOSECONDS: u64 = 1_577_836_800_000_000_000;

/// A clock that advances only when a thread sleeps or calls [`SteppedClock::advance`];
/// on scheduled threads it adds the scheduler's time. [`SteppedClock::set_back`] sets its wall
/// clock back, as an administrator may.
#[derive(Debug, Default)]
pub struct SteppedClock {
    nanoseconds: AtomicU64,
    /// By which the wall clock was set back.
    set_back: AtomicU64,
}

impl SteppedClock {
    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Sets the wall clock back; monotonic time goes on.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use cambium_io::environment::Clock;
    /// use cambium_io::simulated::SteppedClock;
    ///
    /// let clock = SteppedClock::default();
    /// let (wall, monotonic) = (clock.wall_nanoseconds(), clock.monotonic());
    /// clock.set_back(Duration::from_nanos(7));
    /// assert_eq!(clock.wall_nanoseconds(), wall - 7);
    /// assert_eq!(clock.monotonic(), monotonic);
    /// ```
    pub fn set_back(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.set_back.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

impl Clock for SteppedClock {
    fn monotonic(&self) -> Duration {
        let scheduled = scheduled_time().unwrap_or_default();
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)) + scheduled
    }

    fn wall_nanoseconds(&self) -> u64 {
        let set_back = self.set_back.load(Ordering::Relaxed);
        FIRST_WALL_NANOSECONDS + self.monotonic().as_nanos() as u64 - set_back
    }

    fn sleep(&self, time: Duration) {
        match scheduled_time() {
            Some(_) => thread::sleep(time),
            None => self.advance(time),
        }
    }
}

/// Runs nothing: stores do their own steps, or tests call `step`.
#[derive(Clone, Copy, Debug)]
pub struct IdleExecutor;

#[derive(Debug)]
struct NoTask;

impl BackgroundTask for NoTask {
    fn notify(&self) {}
}

impl Executor for IdleExecutor {
    fn spawn(&self, _name: &str, _task: Task) -> Box<dyn BackgroundTask> {
        Box::new(NoTask)
    }

    fn runs_tasks(&self) -> bool {
        false
    }
}

impl Environment {
    /// A new in-memory file system, a clock that only sleeping advances,
    /// random numbers from a fixed seed, and no background threads (stores do
    /// their own steps): what examples and quick tests want.
    pub fn memory() -> Environment {
        Environment::simulated(&SimulatedDisk::memory(), 0)
    }

    /// A world in which everything follows from `disk` and `seed`.
    pub fn simulated(disk: &SimulatedDisk, seed: u64) -> Environment {
        Environment {
            file_system: Arc::new(disk.clone()),
            clock: Arc::new(SteppedClock::default()),
            randomness: Arc::new(SeededRandomness::new(seed)),
            executor: Arc::new(IdleExecutor),
            memory: MemoryBudget::unlimited(),
            background: Arc::default(),
            cache: BlockCache::new(DEFAULT_CACHE_BYTES),
        }
    }
}
