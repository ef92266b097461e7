//! Background work as steps.
//!
//! Flush, checkpoint, compaction and collection are state machines that do a
//! bounded piece of work a step. In a real store a thread takes the steps; in
//! a simulation the test does, so that every interleaving can be had again
//! from a seed.

use std::fmt;

/// What a step says about the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// There is more to do now.
    Again,
    /// Reads or writes are under way; ask again soon.
    WaitIo,
    /// Nothing to do until something changes.
    Idle,
    /// Nothing will ever be left to do: the store is closed.
    Done,
}

/// A piece of background work, called until it answers [`StepOutcome::Done`].
pub type Task = Box<dyn FnMut() -> StepOutcome + Send>;

/// Runs tasks beside their store.
pub trait Executor: Send + Sync + fmt::Debug {
    /// Takes a task. It is called again and again while it answers `Again`,
    /// and after each [`BackgroundTask::notify`] (or a short while) when it
    /// answered `Idle`. An executor that runs nothing (a simulation's) drops it.
    fn spawn(&self, name: &str, task: Task) -> Box<dyn BackgroundTask>;

    /// True if tasks are really run; otherwise stores do their own steps when
    /// a bound is reached, and tests call `step` themselves.
    fn runs_tasks(&self) -> bool;
}

/// A running task. Dropping it waits for the step that is under way and takes
/// no further ones.
pub trait BackgroundTask: Send + Sync + fmt::Debug {
    /// There may be something to do.
    fn notify(&self);

    /// Why the task ended by itself, if it did: a panic inside it, or no
    /// thread to run it on. It takes no further steps then.
    fn failure(&self) -> Option<String> {
        None
    }
}
