//! One thread per task.
//!
//! ```text
//!            Again: at once
//!          ┌────────────────┐
//!          ▼                │
//!   ┌── take a step ────────┤ WaitIo: after WAIT_IO, or a notify
//!   │      ▲                │
//!   │      └────────────────┘ Idle:   after a notify, or IDLE
//!   │                         Asleep: after a notify
//!   └─▶ end: Done, a panic, or the handle was dropped
//! ```
//!
//! A notify that comes while a step runs is not lost: it is kept until the
//! next wait, which it ends at once. A task that panics ends alone: the panic
//! hook has printed it with the thread's name, and
//! [`BackgroundTask::failure`] says so from then on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::step::{BackgroundTask, Executor, StepOutcome, Task};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Between steps while reads or writes are under way.
const WAIT_IO: Duration = Duration::from_micros(500);

/// Between steps of a task that has nothing to do.
const IDLE: Duration = Duration::from_millis(200);

/// Between steps of a task that wants to be told: about never.
const ASLEEP: Duration = Duration::from_secs(1 << 20);

/// Runs every task on a thread of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadExecutor;

impl Executor for ThreadExecutor {
    fn spawn(&self, name: &str, task: Task) -> Box<dyn BackgroundTask> {
        let shared = Arc::new(Shared::default());
        let for_thread = shared.clone();
        let started = thread::Builder::new()
            .name(name.to_string())
            .spawn(move || run(&for_thread, task));
        let thread = match started {
            Ok(handle) => Some(handle),
            Err(error) => {
                shared.state().failure = Some(format!("task {name} has no thread: {error}"));
                None
            }
        };
        Box::new(ThreadTask { shared, thread })
    }

    fn runs_tasks(&self) -> bool {
        true
    }
}

#[derive(Debug, Default)]
struct State {
    notified: bool,
    stop: bool,
    failure: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    /// No step runs under this lock, so a poisoned one holds no half change.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a notify, but no longer than `limit`.
    fn wait(&self, limit: Duration) {
        let waited = self
            .changed
            .wait_timeout_while(self.state(), limit, |s| !s.notified && !s.stop);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.notified = false;
    }
}

fn run(shared: &Shared, mut task: Task) {
    while !shared.state().stop {
        // The task is never called again after a panic, so no broken state of
        // its own is seen; what it shares has its own poisoned locks.
        match catch_unwind(AssertUnwindSafe(&mut task)) {
            Ok(StepOutcome::Again) => {}
            Ok(StepOutcome::WaitIo) => shared.wait(WAIT_IO),
            Ok(StepOutcome::Idle) => shared.wait(IDLE),
            Ok(StepOutcome::Asleep) => shared.wait(ASLEEP),
            Ok(StepOutcome::Done) => return,
            Err(panic) => {
                let name = thread::current().name().unwrap_or("?").to_string();
                let failure = format!("task {name} panicked: {}", panic_text(&*panic));
                shared.state().failure = Some(failure);
                return;
            }
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[derive(Debug)]
struct ThreadTask {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundTask for ThreadTask {
    fn notify(&self) {
        self.shared.state().notified = true;
        self.shared.changed.notify_one();
    }

    fn failure(&self) -> Option<String> {
        self.shared.state().failure.clone()
    }
}

impl Drop for ThreadTask {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_one();
        let Some(thread) = self.thread.take() else {
            return;
        };
        // A task may hold the last reference to its own store, and drop this
        // handle from inside a step: it cannot wait for itself.
        if thread.thread().id() != thread::current().id() {
            // `run` catches the task's panics; there is nothing to pass on.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_task_is_stepped_until_it_is_done() {
        let steps = Arc::new(AtomicUsize::new(0));
        let (ended, end) = mpsc::channel();
        let counted = steps.clone();
        let task = ThreadExecutor.spawn(
            "counter",
            Box::new(move || match counted.fetch_add(1, Ordering::SeqCst) {
                0..9 => StepOutcome::Again,
                9 => StepOutcome::WaitIo,
                _ => {
                    ended.send(()).unwrap();
                    StepOutcome::Done
                }
            }),
        );
        end.recv_timeout(Duration::from_secs(10)).unwrap();
        drop(task);
        assert_eq!(steps.load(Ordering::SeqCst), 11);
    }

    #[test]
    fn a_notify_ends_an_idle_wait() {
        let (stepped, step) = mpsc::channel();
        let task = ThreadExecutor.spawn(
            "idler",
            Box::new(move || {
                stepped.send(Instant::now()).unwrap();
                StepOutcome::Idle
            }),
        );
        let limit = Duration::from_secs(10);
        let mut quickest = IDLE;
        for _ in 0..5 {
            let before = step.recv_timeout(limit).unwrap();
            task.notify();
            quickest = quickest.min(step.recv_timeout(limit).unwrap() - before);
        }
        assert!(
            quickest < IDLE / 2,
            "the quickest of five took {quickest:?}"
        );
    }

    #[test]
    fn a_task_that_is_asleep_is_woken_by_a_notify_and_by_the_end() {
        let (stepped, step) = mpsc::channel();
        let task = ThreadExecutor.spawn(
            "sleeper",
            Box::new(move || {
                stepped.send(()).unwrap();
                StepOutcome::Asleep
            }),
        );
        let limit = Duration::from_secs(60);
        step.recv_timeout(limit).unwrap();
        task.notify();
        step.recv_timeout(limit).unwrap();
        drop(task);
        assert!(step.recv_timeout(limit).is_err(), "no further step");
    }

    #[test]
    fn dropping_the_handle_waits_for_the_step_under_way_and_takes_no_more() {
        let inside = Arc::new(AtomicBool::new(false));
        let seen = inside.clone();
        let (started, start) = mpsc::channel();
        let task = ThreadExecutor.spawn(
            "slow",
            Box::new(move || {
                seen.store(true, Ordering::SeqCst);
                let _ = started.send(());
                std::thread::sleep(Duration::from_millis(20));
                seen.store(false, Ordering::SeqCst);
                StepOutcome::Again
            }),
        );
        start.recv_timeout(Duration::from_secs(10)).unwrap();
        drop(task);
        assert!(!inside.load(Ordering::SeqCst));
    }

    #[test]
    fn a_panic_ends_the_task_and_is_reported() {
        let task = ThreadExecutor.spawn("broken", Box::new(|| panic!("a step went wrong")));
        let deadline = Instant::now() + Duration::from_secs(10);
        while task.failure().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let failure = task.failure().unwrap();
        assert_eq!(failure, "task broken panicked: a step went wrong");
    }

    #[test]
    fn a_task_may_drop_its_own_handle() {
        let slot: Arc<Mutex<Option<Box<dyn BackgroundTask>>>> = Arc::default();
        let inner = slot.clone();
        let (ended, end) = mpsc::channel();
        let task = ThreadExecutor.spawn(
            "owner",
            Box::new(move || match inner.lock().unwrap().take() {
                Some(own) => {
                    drop(own);
                    ended.send(()).unwrap();
                    StepOutcome::Again
                }
                None => StepOutcome::Again,
            }),
        );
        *slot.lock().unwrap() = Some(task);
        end.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}
