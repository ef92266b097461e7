//! Threads that the scheduler knows.
//!
//! A thread that a scheduled thread starts is scheduled too. It is a thread of the
//! operating system, which waits for its turn.

use std::sync::Arc;
use std::time::Duration;

pub use std::thread::{ThreadId, available_parallelism, panicking};

use super::scheduler::{self, Scheduler, Waiting};

/// A thread that can be unparked.
#[derive(Clone, Debug)]
pub struct Thread {
    real: std::thread::Thread,
    task: Option<(Arc<Scheduler>, usize)>,
}

impl Thread {
    /// See [`std::thread::Thread::unpark`].
    pub fn unpark(&self) {
        match &self.task {
            Some((scheduler, task)) => scheduler.unpark(*task),
            None => self.real.unpark(),
        }
    }

    /// See [`std::thread::Thread::id`].
    pub fn id(&self) -> ThreadId {
        self.real.id()
    }

    /// See [`std::thread::Thread::name`].
    pub fn name(&self) -> Option<&str> {
        self.real.name()
    }
}

/// The calling thread.
pub fn current() -> Thread {
    Thread {
        real: std::thread::current(),
        task: scheduler::current(),
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
pub struct JoinHandle<T> {
    real: std::thread::JoinHandle<T>,
    task: Option<(Arc<Scheduler>, usize)>,
}

impl<T> JoinHandle<T> {
    /// See [`std::thread::JoinHandle::join`].
    ///
    /// # Errors
    /// What the thread panicked with.
    pub fn join(self) -> std::thread::Result<T> {
        if let Some((scheduler, task)) = &self.task {
            scheduler.wait_for_end(*task);
        }
        self.real.join()
    }

    /// See [`std::thread::JoinHandle::thread`].
    pub fn thread(&self) -> Thread {
        Thread {
            real: self.real.thread().clone(),
            task: self.task.clone(),
        }
    }

    /// See [`std::thread::JoinHandle::is_finished`].
    pub fn is_finished(&self) -> bool {
        match &self.task {
            Some((scheduler, task)) => scheduler.has_ended(*task),
            None => self.real.is_finished(),
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
            let real = self.real.spawn(run)?;
            return Ok(JoinHandle { real, task: None });
        };
        let task = scheduler.add_task(&self.name);
        let for_thread = scheduler.clone();
        let real = self.real.spawn(move || for_thread.take_part(task, run))?;
        scheduler.has_thread(task, real.thread().clone());
        scheduler::point();
        Ok(JoinHandle {
            real,
            task: Some((scheduler, task)),
        })
    }
}

/// See [`std::thread::spawn`].
///
/// # Panics
/// If the operating system gives no thread.
pub fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().spawn(run).expect("a thread")
}
