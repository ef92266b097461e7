//! Helper threads for commands that take long: the executor goes on with other clients.

use std::sync::Arc;

use cambium_io::sync::{Condvar, Mutex, MutexGuard, thread};

use crate::commands::Outcome;
use crate::mailbox::Mailbox;
use crate::messages::{Event, Handle};
use crate::resp::reply::Reply;

/// Writes the answer of a command.
pub type Job = Box<dyn FnOnce(&mut Reply) -> Outcome + Send>;

/// Which threads do a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Those for reads.
    Read,
    /// Those for what may take minutes.
    Upkeep,
}

const READERS: usize = 4;
const UPKEEPERS: usize = 2;

/// A job, for whom, and whether the client speaks RESP3.
struct Task {
    handle: Handle,
    is_resp3: bool,
    job: Job,
}

/// Jobs that wait for a thread.
#[derive(Default)]
struct Waiting {
    tasks: std::collections::VecDeque<Task>,
    is_over: bool,
}

#[derive(Default)]
struct Crew {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// The helper threads.
pub struct Jobs {
    readers: Arc<Crew>,
    upkeepers: Arc<Crew>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Jobs {
    /// Starts the threads; answers go to `inbox`.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(inbox: &Arc<Mailbox<Event>>) -> std::io::Result<Jobs> {
        let mut jobs = Jobs {
            readers: Arc::default(),
            upkeepers: Arc::default(),
            threads: Vec::new(),
        };
        let readers = std::iter::repeat_n((&jobs.readers, "reader"), READERS);
        let upkeepers = std::iter::repeat_n((&jobs.upkeepers, "upkeep"), UPKEEPERS);
        for (crew, name) in readers.chain(upkeepers) {
            let (crew, inbox) = (crew.clone(), inbox.clone());
            let thread = thread::Builder::new().name(name.to_string());
            jobs.threads.push(thread.spawn(move || crew.work(&inbox))?);
        }
        Ok(jobs)
    }

    /// Hands a job to a thread; [`Event::Finished`] brings its answer.
    pub fn give(&self, handle: Handle, is_resp3: bool, work: Work, job: Job) {
        let crew = match work {
            Work::Read => &self.readers,
            Work::Upkeep => &self.upkeepers,
        };
        let task = Task {
            handle,
            is_resp3,
            job,
        };
        crew.lock().tasks.push_back(task);
        crew.changed.notify_one();
    }

    /// Ends the threads behind the jobs that they do now; jobs that wait are dropped.
    pub fn stop(&mut self) {
        for crew in [&self.readers, &self.upkeepers] {
            crew.lock().is_over = true;
            crew.changed.notify_all();
        }
        for thread in self.threads.drain(..) {
            // One that panicked has reported it, and holds nothing up.
            _ = thread.join();
        }
    }
}

impl Crew {
    /// A task is pushed and taken in one step each: a panic leaves the list whole.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn next(&self) -> Option<Task> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_over {
                return None;
            }
            if let Some(task) = waiting.tasks.pop_front() {
                return Some(task);
            }
            waiting = self
                .changed
                .wait(waiting)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn work(&self, inbox: &Mailbox<Event>) {
        while let Some(task) = self.next() {
            let bytes = answer(task.job, task.is_resp3);
            inbox.send([Event::Finished(task.handle, bytes)]);
        }
    }
}

/// The answer of a job, which may be an error.
pub fn answer(job: Job, is_resp3: bool) -> Vec<u8> {
    let mut reply = Reply {
        bytes: Vec::new(),
        is_resp3,
    };
    if let Err(failure) = job(&mut reply) {
        reply.bytes.clear();
        reply.error(&failure.text());
    }
    reply.bytes
}
