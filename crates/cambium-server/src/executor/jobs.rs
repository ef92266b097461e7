//! Helper threads for commands that take long: the executor goes on with other clients.

use std::sync::{Arc, PoisonError};

use cambium_io::sync::{Condvar, Mutex, lock, thread};

use crate::commands::Outcome;
use crate::mailbox::Mailbox;
use crate::messages::Event;
use crate::resp::reply::Reply;

/// Writes the answer of a command.
pub type Job = Box<dyn FnOnce(&mut Reply) -> Outcome + Send>;

/// Which threads do a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Those for single values.
    Fetch,
    /// Those for walks over many keys.
    Walk,
    /// Those for what may take minutes.
    Upkeep,
}

/// The threads of each kind, with their names.
const THREADS: [(Work, &str, usize); 3] = [
    (Work::Fetch, "fetcher", 4),
    (Work::Walk, "walker", 4),
    (Work::Upkeep, "upkeep", 2),
];

/// Work for a thread; the executor hears what comes of it.
pub type Task = Box<dyn FnOnce() -> Event + Send>;

/// Jobs that wait for a thread.
#[derive(Default)]
struct Waiting {
    tasks: std::collections::VecDeque<Task>,
    is_over: bool,
}

#[derive(Default)]
struct Crew {
    /// A task is pushed and taken in one step each: a panic leaves the list whole.
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// The helper threads.
pub struct Jobs {
    crews: [Arc<Crew>; THREADS.len()],
    threads: Vec<thread::JoinHandle<()>>,
}

impl Jobs {
    /// Starts the threads; answers go to `inbox`.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(inbox: &Arc<Mailbox<Event>>) -> std::io::Result<Jobs> {
        let mut jobs = Jobs {
            crews: Default::default(),
            threads: Vec::new(),
        };
        for (work, name, count) in THREADS {
            for _ in 0..count {
                let (crew, inbox) = (jobs.crews[work as usize].clone(), inbox.clone());
                let thread = thread::Builder::new().name(name.to_string());
                jobs.threads.push(thread.spawn(move || crew.work(&inbox))?);
            }
        }
        Ok(jobs)
    }

    /// Hands a task to a thread.
    pub fn give(&self, work: Work, task: Task) {
        let crew = &self.crews[work as usize];
        lock(&crew.waiting).tasks.push_back(task);
        crew.changed.notify_one();
    }

    /// Ends the threads behind the jobs that they do now; jobs that wait are dropped.
    pub fn stop(&mut self) {
        for crew in &self.crews {
            lock(&crew.waiting).is_over = true;
            crew.changed.notify_all();
        }
        for thread in self.threads.drain(..) {
            // One that panicked has reported it, and holds nothing up.
            _ = thread.join();
        }
    }
}

impl Crew {
    fn next(&self) -> Option<Task> {
        let mut waiting = lock(&self.waiting);
        loop {
            if waiting.is_over {
                return None;
            }
            if let Some(task) = waiting.tasks.pop_front() {
                return Some(task);
            }
            let woken = self.changed.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self, inbox: &Mailbox<Event>) {
        while let Some(task) = self.next() {
            inbox.send([task()]);
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
