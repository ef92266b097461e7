//! Background work as steps.
//!
//! Flush, checkpoint, compaction and collection are state machines that do a
//! bounded piece of work a step. In a real store a thread takes the steps; in
//! a simulation the test does, so that every interleaving can be had again
//! from a seed.

use std::fmt;
use std::sync::{Arc, PoisonError};

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Mutex, MutexGuard, RwLock};

/// What a step says about the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// There is more to do now.
    Again,
    /// Reads or writes are under way; ask again soon.
    WaitIo,
    /// Nothing to do until something changes, which nobody may say.
    Idle,
    /// Nothing to do until a [`BackgroundTask::notify`]: whoever makes work says
    /// so.
    Asleep,
    /// Nothing will ever be left to do: the store is closed.
    Done,
}

/// A piece of background work, called until it answers [`StepOutcome::Done`].
pub type Task = Box<dyn FnMut() -> StepOutcome + Send>;

/// Runs tasks beside their store.
pub trait Executor: Send + Sync + fmt::Debug {
    /// Takes a task. It is called again and again while it answers `Again`,
    /// and after each [`BackgroundTask::notify`] when it answered `Asleep` (or
    /// a short while, when `Idle`). An executor that runs nothing (a simulation's) drops it.
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

/// A user's hold on a store with background tasks.
///
/// Tasks know their store weakly, and hold it for the length of a step. So the
/// last user's drop alone would return while a step still has the store open, and
/// whoever opens it again would find it in use. The last `Owner` waits for the
/// steps that are under way, and lets the store go where the user does.
///
/// ```
/// use cambium_io::step::{Owner, StepOutcome};
/// let owner = Owner::new(std::sync::Arc::new("store"));
/// let mut task = owner.task(|store| {
///     assert_eq!(**store, "store");
///     StepOutcome::Idle
/// });
/// assert_eq!(task(), StepOutcome::Idle);
/// drop(owner);
/// assert_eq!(task(), StepOutcome::Done);
/// ```
pub struct Owner<T> {
    /// `None` only while it is dropped.
    store: Option<Arc<T>>,
    gate: Arc<Gate>,
    let_go: fn(&T),
}

/// Steps go through it, and the last owner closes it.
#[derive(Debug, Default)]
struct Gate {
    owners: AtomicUsize,
    steps: RwLock<()>,
    /// Threads that are in a step now.
    stepping: Mutex<Vec<ThreadId>>,
}

impl Gate {
    fn stepping(&self) -> MutexGuard<'_, Vec<ThreadId>> {
        self.stepping.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Owner<T> {
    /// The first owner of a store.
    pub fn new(store: Arc<T>) -> Self {
        Owner::letting_go(store, |_| ())
    }

    /// The same for a store whose unfinished work holds the store itself: the last
    /// owner calls `let_go`, which ends that, when no step is under way.
    pub fn letting_go(store: Arc<T>, let_go: fn(&T)) -> Self {
        let gate = Arc::new(Gate::default());
        gate.owners.store(1, Ordering::Relaxed);
        Owner {
            store: Some(store),
            gate,
            let_go,
        }
    }

    /// A task that takes steps of the store while there is one.
    pub fn task(&self, step: impl Fn(&Arc<T>) -> StepOutcome + Send + 'static) -> Task
    where
        T: Send + Sync + 'static,
    {
        let gate = self.gate.clone();
        let weak = Arc::downgrade(self);
        Box::new(move || {
            // Closed: the last owner is on its way out, and may wait for us.
            let Ok(_open) = gate.steps.try_read() else {
                return StepOutcome::WaitIo;
            };
            let here = thread::current().id();
            gate.stepping().push(here);
            let outcome = weak
                .upgrade()
                .map_or(StepOutcome::Done, |store| step(&store));
            gate.stepping().retain(|&thread| thread != here);
            outcome
        })
    }
}

impl<T> Clone for Owner<T> {
    fn clone(&self) -> Self {
        self.gate.owners.fetch_add(1, Ordering::Relaxed);
        Owner {
            store: self.store.clone(),
            gate: self.gate.clone(),
            let_go: self.let_go,
        }
    }
}

impl<T> std::ops::Deref for Owner<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        self.store.as_ref().expect("it is there until the drop")
    }
}

impl<T: fmt::Debug> fmt::Debug for Owner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl<T> Drop for Owner<T> {
    fn drop(&mut self) {
        if self.gate.owners.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        if self.gate.stepping().contains(&thread::current().id()) {
            // A step has let go of the last owner: it cannot wait for itself.
            return;
        }
        let gate = self.gate.clone();
        let _closed = gate.steps.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = self.store.take() {
            (self.let_go)(&store);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Says when it is gone.
    struct Store(mpsc::Sender<()>);

    impl Drop for Store {
        fn drop(&mut self) {
            _ = self.0.send(());
        }
    }

    #[test]
    fn the_last_owner_waits_for_a_step_and_the_store_is_gone_after_it() {
        let (gone, is_gone) = mpsc::channel();
        let owner = Owner::new(Arc::new(Store(gone)));
        let other = owner.clone();
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = std::sync::Mutex::new(may_go_on);
        let task = owner.task(move |_| {
            _ = begun.send(());
            _ = may_go_on.lock().map(|wait| wait.recv());
            StepOutcome::Idle
        });
        std::thread::scope(|scope| {
            let step = scope.spawn(task);
            assert_eq!(has_begun.recv(), Ok(()));
            drop(other);
            let dropped = scope.spawn(move || {
                drop(owner);
                is_gone.try_recv()
            });
            std::thread::yield_now();
            assert_eq!(go_on.send(()), Ok(()));
            assert_eq!(step.join().ok(), Some(StepOutcome::Idle));
            assert_eq!(dropped.join().ok(), Some(Ok(())), "gone when drop returned");
        });
    }

    #[test]
    fn a_step_may_drop_the_last_owner() {
        let (gone, is_gone) = mpsc::channel();
        let owner = Owner::new(Arc::new(Store(gone)));
        let held = std::sync::Mutex::new(Some(owner.clone()));
        let mut task = owner.task(move |_| {
            _ = held.lock().map(|mut held| held.take());
            StepOutcome::Idle
        });
        drop(owner);
        assert_eq!(task(), StepOutcome::Idle);
        assert_eq!(is_gone.try_recv(), Ok(()));
        assert_eq!(task(), StepOutcome::Done);
    }
}
