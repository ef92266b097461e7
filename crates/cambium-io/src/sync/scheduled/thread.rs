//! Threads under a scheduler.
//!
//! A thread that a scheduled thread starts is scheduled too.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use std::thread::{available_parallelism, panicking};

use super::scheduler::{self, Scheduler, Waiting};

/// A thread that can be unparked.
#[derive(Clone, Debug)]
pub enum Thread {
    /// A thread of the operating system.
    Real(std::thread::Thread),
    /// A scheduler and the number of its task.
    Scheduled(Arc<Scheduler>, usize),
}

/// Tells a thread from the others of its process or run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadId {
    /// A thread of the operating system.
    Real(std::thread::ThreadId),
    /// The number of a scheduler's task.
    Scheduled(usize),
}

impl Thread {
    /// See [`std::thread::Thread::unpark`].
    pub fn unpark(&self) {
        match self {
            Thread::Real(thread) => thread.unpark(),
            Thread::Scheduled(scheduler, task) => scheduler.unpark(*task),
        }
    }

    /// See [`std::thread::Thread::id`].
    pub fn id(&self) -> ThreadId {
        match self {
            Thread::Real(thread) => ThreadId::Real(thread.id()),
            Thread::Scheduled(_, task) => ThreadId::Scheduled(*task),
        }
    }

    /// See [`std::thread::Thread::name`].
    pub fn name(&self) -> Option<&str> {
        match self {
            Thread::Real(thread) => thread.name(),
            Thread::Scheduled(..) => None,
        }
    }
}

/// The calling thread.
pub fn current() -> Thread {
    match scheduler::current() {
        Some((scheduler, task)) => Thread::Scheduled(scheduler, task),
        None => Thread::Real(std::thread::current()),
    }
}

/// See [`std::thread::park`].
pub fn park() {
    if !scheduler::park(None) {
        std::thread::park();
    }
}

/// See [`std::thread::park_timeout`].
pub fn park_timeout(limit: Duration) {
    if !scheduler::park(Some(limit)) {
        std::thread::park_timeout(limit);
    }
}

/// See [`std::thread::yield_now`].
pub fn yield_now() {
    if !scheduler::yield_now() {
        std::thread::yield_now();
    }
}

/// See [`std::thread::sleep`].
pub fn sleep(time: Duration) {
    if scheduler::is_scheduled() {
        scheduler::block(Waiting::new("a sleep", 0).at_most(Some(time)));
    } else {
        std::thread::sleep(time);
    }
}

/// A thread to be waited for.
#[derive(Debug)]
pub enum JoinHandle<T> {
    /// A thread of the operating system.
    Real(std::thread::JoinHandle<T>),
    /// A scheduler, the number of its task, and the place of the task's answer.
    Scheduled(Arc<Scheduler>, usize, Arc<Mutex<Option<T>>>),
}

impl<T> JoinHandle<T> {
    /// See [`std::thread::JoinHandle::join`].
    ///
    /// # Errors
    /// Returns the payload of the thread's panic.
    pub fn join(self) -> std::thread::Result<T> {
        match self {
            JoinHandle::Real(thread) => thread.join(),
            JoinHandle::Scheduled(scheduler, task, place) => {
                scheduler.wait_for_end(task);
                let answer = place.lock().unwrap_or_else(PoisonError::into_inner).take();
                answer.ok_or_else(|| Box::new("a panic, which ends the run") as _)
            }
        }
    }

    /// See [`std::thread::JoinHandle::thread`].
    pub fn thread(&self) -> Thread {
        match self {
            JoinHandle::Real(thread) => Thread::Real(thread.thread().clone()),
            JoinHandle::Scheduled(scheduler, task, _) => {
                Thread::Scheduled(scheduler.clone(), *task)
            }
        }
    }
}

/// See [`std::thread::Builder`].
#[derive(Debug)]
pub struct Builder {
    real: std::thread::Builder,
    name: String,
}

impl Default for Builder {
    fn default() -> Self {
        Builder::new()
    }
}

impl Builder {
    /// A thread without a name.
    pub fn new() -> Self {
        Builder {
            real: std::thread::Builder::new(),
            name: String::from("?"),
        }
    }

    /// Names the thread.
    #[must_use]
    pub fn name(self, name: String) -> Self {
        Builder {
            real: self.real.name(name.clone()),
            name,
        }
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// If the operating system gives none.
    pub fn spawn<T: Send + 'static>(
        self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<JoinHandle<T>> {
        let Some((scheduler, _)) = scheduler::current() else {
            return self.real.spawn(run).map(JoinHandle::Real);
        };
        let place = Arc::new(Mutex::new(None));
        let answer = place.clone();
        let task = scheduler.add_task(&self.name, move || {
            let value = run();
            *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        });
        scheduler::point();
        Ok(JoinHandle::Scheduled(scheduler, task, place))
    }
}

/// See [`std::thread::spawn`].
///
/// # Panics
/// If the operating system gives no thread.
pub fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().spawn(run).expect("a thread")
}
