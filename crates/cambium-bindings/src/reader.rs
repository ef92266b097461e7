//! A thread that reads ahead of a long walk, while the program is at what was read.
//!
//! ```text
//! program:  [run 1]......[run 2]......[run 3]......
//! reader:        [reads 2][reads 3][reads 4] full: sleeps until one is taken
//! ```
//!
//! What a program does with an entry, and be it that Python makes an object of it,
//! takes about as long as the engine does to find one; so the two go on side by
//! side. There is one such thread for each database, made for the first walk that
//! is long, and it is at one walk at a time: while it is at another, a walk
//! reads by itself, as does one whose next run was not begun. So a walk waits for
//! this thread only where that is reading for it.
//!
//! A walk takes its [`Walker`] back before it goes elsewhere or is dropped, so the
//! thread never holds a store open by itself. In a process that was forked off there is
//! no such thread: a walker that it had is made anew.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, PoisonError};

use cambium::{Direction, Error};
use cambium_io::step::{BackgroundTask, Executor, StepOutcome};
use cambium_io::sync::{Condvar, Mutex, MutexGuard, OnceLock, lock};

use crate::walker::Walker;

/// Entries that are read at a time, at most.
pub const MAX_RUN_ENTRIES: usize = 1024;
/// Bytes of keys and values after which no more are read at a time.
pub const MAX_RUN_BYTES: usize = 256 << 10;
/// Runs that wait for the program, at most.
const MOST_RUNS: usize = 2;

/// Neighbours, side by side in memory.
#[derive(Debug, Default)]
pub(crate) struct Run {
    bytes: Vec<u8>,
    /// Where each key ends, and the value behind it.
    ends: Vec<(usize, usize)>,
    /// Nothing lies behind it.
    pub ended: bool,
    /// What reading behind it answered.
    pub failed: Option<Error>,
}

impl Run {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// Key and value of the entry at a place.
    pub fn entry(&self, at: usize) -> Option<(&[u8], &[u8])> {
        let &(key_end, end) = self.ends.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before].1);
        Some((&self.bytes[start..key_end], &self.bytes[key_end..end]))
    }

    pub fn clear(&mut self) {
        // One long value is not kept as a place for short ones.
        match self.bytes.capacity() > 2 * MAX_RUN_BYTES {
            true => self.bytes = Vec::new(),
            false => self.bytes.clear(),
        }
        self.ends.clear();
        self.ended = false;
        self.failed = None;
    }

    /// Reads a run that begins where a walker stands.
    pub fn read(&mut self, walker: &mut Walker, direction: Direction, most_entries: usize) {
        let read = walker.take_run(direction, most_entries, MAX_RUN_BYTES, self);
        self.ended = read.is_ok() && walker.entry().is_none();
        self.failed = read.err();
    }

    /// Reads a run of full length behind the entry where a walker stands.
    fn read_behind(walker: &mut Walker, direction: Direction) -> Run {
        let mut run = Run::default();
        match walker.step(direction) {
            Ok(()) => run.read(walker, direction, MAX_RUN_ENTRIES),
            Err(error) => run.failed = Some(error),
        }
        run
    }
}

/// A walk that is read ahead.
#[derive(Debug)]
pub(crate) struct Ahead {
    state: Mutex<State>,
    changed: Condvar,
    direction: Direction,
    process: u32,
}

#[derive(Debug)]
struct State {
    /// At the last entry of the last run; none while somebody reads with it.
    walker: Option<Walker>,
    runs: VecDeque<Run>,
    /// Nothing can be read behind the last run, or shall be.
    is_over: bool,
    /// The walker went down with a panic.
    is_lost: bool,
}

/// Tells whoever waits that a read is over, also by a panic.
struct Reading<'a>(&'a Ahead);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(&self.0.state).is_lost = true;
        }
        self.0.changed.notify_all();
    }
}

impl Ahead {
    /// A walk in a direction that goes on behind where a walker stands.
    pub fn new(walker: Walker, direction: Direction) -> Arc<Self> {
        let state = State {
            walker: Some(walker),
            runs: VecDeque::new(),
            is_over: false,
            is_lost: false,
        };
        Arc::new(Ahead {
            state: Mutex::new(state),
            changed: Condvar::new(),
            direction,
            process: std::process::id(),
        })
    }

    /// Reads the next run, if there is room for it and nobody else does.
    fn read_ahead(&self) -> bool {
        let mut state = lock(&self.state);
        if state.is_over || state.runs.len() >= MOST_RUNS {
            return false;
        }
        let Some(mut walker) = state.walker.take() else {
            return false;
        };
        drop(state);
        let reading = Reading(self);
        let run = Run::read_behind(&mut walker, self.direction);
        let mut state = lock(&self.state);
        state.is_over |= run.ended || run.failed.is_some();
        state.runs.push_back(run);
        state.walker = Some(walker);
        drop(state);
        drop(reading);
        true
    }

    /// Waits for the next run, or reads it. `None`: the walker is lost.
    pub fn next_run(&self) -> Option<Run> {
        let mut state = lock(&self.state);
        loop {
            if let Some(run) = state.runs.pop_front() {
                return Some(run);
            }
            if let Some(mut walker) = state.walker.take() {
                drop(state);
                let _reading = Reading(self);
                let run = Run::read_behind(&mut walker, self.direction);
                let mut state = lock(&self.state);
                state.is_over |= run.ended || run.failed.is_some();
                state.walker = Some(walker);
                return Some(run);
            }
            state = self.wait(state)?;
        }
    }

    /// Takes the walker back, which stands anywhere. `None`: it is lost.
    pub fn recall(&self) -> Option<Walker> {
        let mut state = lock(&self.state);
        state.is_over = true;
        loop {
            if let Some(walker) = state.walker.take() {
                state.runs.clear();
                return Some(walker);
            }
            state = self.wait(state)?;
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> Option<MutexGuard<'a, State>> {
        if state.is_lost || self.process != std::process::id() {
            return None;
        }
        let woken = self.changed.wait(state);
        Some(woken.unwrap_or_else(PoisonError::into_inner))
    }
}

/// The thread of a database that reads ahead.
pub(crate) struct Reader {
    executor: Arc<dyn Executor>,
    /// The walk that it is at.
    walk: Arc<Mutex<Option<Arc<Ahead>>>>,
    task: OnceLock<Box<dyn BackgroundTask>>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

impl Reader {
    /// No thread yet.
    pub fn new(executor: &Arc<dyn Executor>) -> Arc<Self> {
        Arc::new(Reader {
            executor: executor.clone(),
            walk: Arc::default(),
            task: OnceLock::new(),
        })
    }

    /// False in a simulation: walks read by themselves.
    pub fn can_read(&self) -> bool {
        self.executor.runs_tasks()
    }

    /// Has a walk read ahead, unless the thread is at one.
    pub fn read_for(&self, ahead: &Arc<Ahead>) {
        {
            let mut walk = lock(&self.walk);
            if walk.is_some() {
                return;
            }
            *walk = Some(ahead.clone());
        }
        let make = || {
            let walk = self.walk.clone();
            let step = move || {
                let Some(ahead) = lock(&walk).clone() else {
                    return StepOutcome::Asleep;
                };
                if !ahead.read_ahead() {
                    *lock(&walk) = None;
                }
                StepOutcome::Again
            };
            self.executor.spawn("cambium-ahead", Box::new(step))
        };
        self.task.get_or_init(make).notify();
    }
}
