//! Answers to submitted requests that wait for a flight ([`crate::flights`]).
//!
//! A worker whose group is on a flight takes the next requests at once. What it would have
//! answered waits here, and everything that is answered after it, too: completions stay in
//! the order of their requests. One task takes all that has gathered, waits until it is on
//! the device, makes it durable by one sync, and calls the completions; meanwhile the next
//! ones gather. Where nothing waits, a worker answers itself.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use cambium_api::{Completion, Response};
use cambium_base::{Error, Result};
use cambium_io::sync::thread::ThreadId;
use cambium_io::sync::{Condvar, Mutex, MutexGuard};

use crate::core::{Core, lock};
use crate::flights::Departed;
use crate::write::Answers;

/// So many that wait make workers wait.
const MOST_WAITING: usize = 1024;

/// Completions of requests, with their answers.
pub(crate) enum Reply {
    /// These count when the flight has been finished.
    Written(Arc<Departed>, Answers, Vec<Completion>),
    /// A known answer that comes after such.
    Known(Result<Response>, Completion),
}

impl Reply {
    /// Answers that the store is gone.
    fn refuse(self) {
        match self {
            Reply::Written(_, _, completions) => {
                for completion in completions {
                    _ = call(completion, Err(Error::Closed));
                }
            }
            Reply::Known(_, completion) => _ = call(completion, Err(Error::Closed)),
        }
    }
}

/// What is to be answered.
#[derive(Default)]
pub(crate) struct Replies {
    state: Mutex<RepliesState>,
    /// The thread that answers has taken some, or has ended.
    done: Condvar,
}

#[derive(Default)]
struct RepliesState {
    waiting: VecDeque<Reply>,
    /// Who answers.
    answering: Option<ThreadId>,
    /// No thread waits any more: a close from within a completion waits for workers.
    closing: bool,
}

impl std::fmt::Debug for Replies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = lock(&self.state).waiting.len();
        write!(f, "{waiting} replies")
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        let left = std::mem::take(&mut lock(&self.state).waiting);
        left.into_iter().for_each(Reply::refuse);
    }
}

impl Replies {
    /// True within a completion that this calls.
    pub fn is_here(&self) -> bool {
        lock(&self.state).answering == Some(cambium_io::sync::thread::current().id())
    }

    /// No more requests are taken.
    pub fn begin_close(&self) {
        lock(&self.state).closing = true;
        self.done.notify_all();
    }

    /// The thread that answers has ended.
    fn end(&self, state: &mut RepliesState) {
        if state.answering == Some(cambium_io::sync::thread::current().id()) {
            state.answering = None;
            self.done.notify_all();
        }
    }

    /// Waits while many wait to be answered, unless it is this thread that has to, or the
    /// store is being closed.
    fn wait_for_room(&self) -> MutexGuard<'_, RepliesState> {
        let here = cambium_io::sync::thread::current().id();
        let mut state = lock(&self.state);
        while state.waiting.len() >= MOST_WAITING
            && state.answering.is_some_and(|at| at != here)
            && !state.closing
        {
            let woken = self.done.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

/// Somebody answers; says so when it is done, whatever a completion does.
struct Answering<'a>(&'a Replies);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.end(&mut lock(&self.0.state));
    }
}

/// Calls a completion, and answers whether it panicked. The panic stops here: other requests
/// wait for the thread that calls completions, and each of them gets its answer.
pub(crate) fn call(completion: Completion, answer: Result<Response>) -> Result<()> {
    // The completion is gone afterwards, and it has borrowed nothing of the store.
    catch_unwind(AssertUnwindSafe(|| completion(answer))).map_err(|_| {
        let source = std::io::Error::other("the completion of a submitted request panicked");
        Error::io("answer", "the store", source)
    })
}

impl Core {
    /// Calls a completion. One that panics stops all further writes: the program cannot have
    /// taken note of its answer.
    fn complete(&self, completion: Completion, answer: Result<Response>) {
        if let Err(error) = call(completion, answer) {
            _ = self.health.poison(error);
        }
    }

    /// Calls a completion, after all that wait.
    pub fn answer(&self, answer: Result<Response>, completion: Completion) {
        let mut state = self.replies.wait_for_room();
        if !state.waiting.is_empty() || state.answering.is_some() {
            return state.waiting.push_back(Reply::Known(answer, completion));
        }
        drop(state);
        self.complete(completion, answer);
    }

    /// Calls completions when their flight is durable.
    pub fn answer_later(&self, reply: Reply) {
        self.replies.wait_for_room().waiting.push_back(reply);
        match self.replier.get() {
            Some(task) => task.notify(),
            None => self.answer_all(),
        }
    }

    /// Answers all that waits, unless somebody is at it.
    pub fn answer_all(&self) {
        let mut state = lock(&self.replies.state);
        if state.answering.is_some() || state.waiting.is_empty() {
            return;
        }
        state.answering = Some(cambium_io::sync::thread::current().id());
        let answering = Answering(&self.replies);
        loop {
            let taken = std::mem::take(&mut state.waiting);
            drop(state);
            self.replies.done.notify_all();
            self.answer_together(taken);
            state = lock(&self.replies.state);
            if state.waiting.is_empty() {
                // In one piece with the look: what comes later is somebody else's to answer.
                self.replies.end(&mut state);
                drop(state);
                return drop(answering);
            }
        }
    }

    fn answer_together(&self, replies: VecDeque<Reply>) {
        let mut flights = replies.iter().filter_map(|reply| match reply {
            Reply::Written(flight, ..) => Some(flight),
            Reply::Known(..) => None,
        });
        if let Some(last) = flights.next_back() {
            // All of them land, so that one sync serves all. How each one fared is asked below.
            _ = self.land(last);
        }
        for reply in replies {
            match reply {
                Reply::Known(answer, completion) => self.complete(completion, answer),
                Reply::Written(flight, answers, completions) => {
                    let answers = self.finish(answers, Some(&*flight));
                    drop(flight);
                    for (answer, completion) in answers.into_iter().zip(completions) {
                        self.complete(completion, answer.map(Response::Written));
                    }
                }
            }
        }
    }

    /// Waits until nothing is left to be answered; returns at once from within a completion.
    pub fn answer_rest(&self) {
        let here = Some(cambium_io::sync::thread::current().id());
        loop {
            self.answer_all();
            let state = lock(&self.replies.state);
            if state.answering == here {
                return;
            }
            if state.answering.is_none() && state.waiting.is_empty() {
                return;
            }
            if state.answering.is_some() {
                let woken = self.replies.done.wait(state);
                drop(woken.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}
