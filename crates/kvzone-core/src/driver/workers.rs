//! Queues of requests, and the threads that call a store for them: an asynchronous interface
//! for stores that have none.
//!
//! ```text
//!  issuer ─┐ by the key's hash  ┌─ queue ─▶ worker ─▶ Session
//!          ├────────────────────┤                                ─▶ completion
//!  issuer ─┘                    └─ queue ─▶ worker ─▶ Session
//! ```
//!
//! All requests of a key go to one queue, and each queue has one worker, so a key's requests
//! are served in the order in which they were submitted. A completion reports how long the
//! store's call took: the rest of a request's latency is queueing (KVZone paper, section 2.2).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use xxhash_rust::xxh3::xxh3_64;

use super::clock::Clock;
use crate::adapter::{Done, OpenStore, Queue, Request, Session};
use crate::error::{Error, Result};

/// Workers of a run that does not name a number.
pub(super) const WORKERS: u32 = 4;

/// A request in a queue, with its own copy of the key and the value.
struct Call {
    key: Vec<u8>,
    act: Act,
    done: Done,
}

enum Act {
    Get,
    Put(Vec<u8>),
    Delete,
}

/// The workers of a phase, each with a session and the queue that it serves.
pub(super) struct Workers {
    name: &'static str,
    queues: Vec<Sender<Call>>,
    served: Vec<(Box<dyn Session>, Receiver<Call>)>,
}

impl Workers {
    /// So many, each with a session of its own; they begin with [`Workers::begin`].
    pub(super) fn new(store: &Arc<dyn OpenStore>, name: &'static str, count: u32) -> Result<Self> {
        let mut workers = Workers {
            name,
            queues: Vec::new(),
            served: Vec::new(),
        };
        for _ in 0..count {
            let (queue, calls) = channel();
            workers.queues.push(queue);
            workers.served.push((store.clone().session()?, calls));
        }
        Ok(workers)
    }

    pub(super) fn count(&self) -> usize {
        self.queues.len()
    }

    /// The queue through which one thread submits requests.
    pub(super) fn queue(&self) -> Box<dyn Queue> {
        Box::new(Queues(self.queues.clone()))
    }

    /// Serves the queues in threads of a scope, until the last of them is dropped.
    pub(super) fn begin<'scope>(self, scope: &'scope Scope<'scope, '_>) {
        for (session, calls) in self.served {
            scope.spawn(move || serve(self.name, session, &calls));
        }
    }
}

struct Queues(Vec<Sender<Call>>);

impl Queue for Queues {
    fn submit(&mut self, request: Request<'_>, done: Done) {
        let (key, act) = match request {
            Request::Get { key } => (key, Act::Get),
            Request::Put { key, value } => (key, Act::Put(value.to_vec())),
            Request::Delete { key } => (key, Act::Delete),
        };
        let place = xxh3_64(key) % self.0.len() as u64;
        let key = key.to_vec();
        // A worker takes requests for as long as there is a queue to it.
        let _ = self.0[place as usize].send(Call { key, act, done });
    }
}

/// Answers requests until no one can submit another.
fn serve(name: &'static str, mut session: Box<dyn Session>, calls: &Receiver<Call>) {
    let mut value = Vec::new();
    for Call { key, act, done } in calls {
        let clock = Clock::start();
        let call = || match &act {
            Act::Get => session.get(&key, &mut value),
            Act::Put(value) => session.put(&key, value).map(|()| false),
            Act::Delete => session.delete(&key).map(|()| false),
        };
        let panicked = |_| Err(Error::store(name, "call", "it panicked"));
        let found = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(panicked);
        let took = clock.now();
        let value = found.map(|is_there| is_there.then_some(value.as_slice()));
        done(value, Some(took));
    }
}
