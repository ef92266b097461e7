//! Asynchronous requests (*KVZone and Alphard*, section 3.2.3).
//!
//! A request goes to one of several queues, by the hash of its key, and is answered
//! by a completion. A worker drains its queue: writes that stand together are
//! committed as one group, gets that stand together are read together. While it
//! works, the next ones gather. Of a large group it waits only until the writes have begun
//! ([`crate::replies`]).
//!
//! - *Order* holds per key: its requests are in one queue, and are done in turn.
//! - *Barriers*: a sync, and a batch, whose keys may be in several queues, stand in
//!   all queues. A worker that comes to one stops there; the last worker does it, and lets
//!   all go on. No thread waits for another.
//! - *Exactly once*: completions come after an error and after a close too; what is
//!   left when a store is dropped is answered `Closed`. A completion that panics stops all
//!   further writes, and the requests after it are answered.
//! - *Back-pressure*: who submits to a queue of [`QUEUE_LIMIT`] requests, or where
//!   requests of [`QUEUED_BYTES`] wait in all queues, batches among them, waits until
//!   workers have taken some, unless it is in a completion itself.
//!
//! Where the executor runs nothing (a simulation), the caller does its request itself.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use cambium_api::{Completion, Operation, Request, Response, WriteBatch};
use cambium_base::hash::sip13;
use cambium_base::{Durability, Error, Result};
use cambium_io::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use cambium_io::sync::thread::ThreadId;
use cambium_io::sync::{Condvar, Mutex};

use crate::core::{Core, lock};
use crate::replies::{Reply, call};
use crate::write::WriteRequest;

/// Requests that a queue takes before it makes callers wait.
const QUEUE_LIMIT: usize = 1024;
/// Bytes of keys and values that wait in all queues, unless one request alone has more.
/// A small memory budget allows fewer.
pub(crate) const QUEUED_BYTES: u64 = 64 << 20;
/// Most requests that a worker takes at once.
const MOST_TOGETHER: usize = 256;
/// Of the bytes that may wait, the part that workers take at once, all together.
const SHARE_TOGETHER: u64 = 4;

/// All queues of a store.
#[derive(Debug)]
pub(crate) struct Submissions {
    queues: Vec<Queue>,
    /// Spreads keys over them.
    secret: [u64; 2],
    /// Held while a barrier is put into all queues: they stand in one order
    /// everywhere.
    gate: Mutex<()>,
    /// No more are taken: the store is being closed.
    closing: AtomicBool,
    /// The thread that does the request that all queues wait for.
    serving: Mutex<Option<ThreadId>>,
    /// Most bytes that wait.
    most_bytes: u64,
    /// Bytes of the requests that no worker has taken.
    queued_bytes: Mutex<u64>,
    /// Some of them were taken.
    made_room: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    /// Somebody took requests out, or finished with them.
    taken: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<Waiting>,
    /// Who is at work on requests of this queue.
    worker: Option<ThreadId>,
    /// A barrier is reached, and not done yet.
    blocked: bool,
}

enum Waiting {
    One(Request, Completion),
    All(Arc<Barrier>),
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Waiting::One(request, _) => write!(f, "{request:?}"),
            Waiting::All(barrier) => write!(f, "{barrier:?}"),
        }
    }
}

/// A request that all queues must have come to.
struct Barrier {
    /// Queues that have not.
    missing: AtomicUsize,
    work: Mutex<Option<(Request, Completion)>>,
}

impl std::fmt::Debug for Barrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "barrier, {} missing",
            self.missing.load(Ordering::Relaxed)
        )
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        if let Some((_, completion)) = lock(&self.work).take() {
            _ = call(completion, Err(Error::Closed));
        }
    }
}

/// What a worker took out of its queue.
enum Taken {
    Requests(Vec<(Request, Completion)>),
    Barrier(Arc<Barrier>),
    Nothing,
}

impl Submissions {
    pub fn new(queues: usize, secret: [u64; 2], most_bytes: u64) -> Self {
        Submissions {
            queues: (0..queues).map(|_| Queue::default()).collect(),
            secret,
            gate: Mutex::new(()),
            closing: AtomicBool::new(false),
            serving: Mutex::default(),
            most_bytes,
            queued_bytes: Mutex::default(),
            made_room: Condvar::default(),
        }
    }

    /// Counts bytes that will wait in a queue; waits for room, if it may.
    fn take_room(&self, bytes: u64, may_wait: bool) {
        let is_full = |queued: u64| queued > 0 && queued.saturating_add(bytes) > self.most_bytes;
        if is_full(*lock(&self.queued_bytes)) && may_wait && !self.is_worker_here() {
            let mut queued = lock(&self.queued_bytes);
            while is_full(*queued) {
                let woken = self.made_room.wait(queued);
                queued = woken.unwrap_or_else(PoisonError::into_inner);
            }
        }
        *lock(&self.queued_bytes) += bytes;
    }

    /// Bytes wait in no queue any more.
    fn give_room(&self, bytes: u64) {
        if bytes > 0 {
            *lock(&self.queued_bytes) -= bytes;
            self.made_room.notify_all();
        }
    }

    /// True within a completion that a worker calls: it must not wait for itself.
    fn is_worker_here(&self) -> bool {
        let here = Some(cambium_io::sync::thread::current().id());
        let mut queues = self.queues.iter();
        *lock(&self.serving) == here || queues.any(|queue| lock(&queue.state).worker == here)
    }

    /// How many queues there are.
    pub fn count(&self) -> usize {
        self.queues.len()
    }

    /// Requests that wait in all queues; a barrier counts in each.
    pub fn waiting(&self) -> usize {
        let lengths = self
            .queues
            .iter()
            .map(|queue| lock(&queue.state).waiting.len());
        lengths.sum()
    }
}

impl Drop for Submissions {
    fn drop(&mut self) {
        for queue in &self.queues {
            let left = std::mem::take(&mut lock(&queue.state).waiting);
            for waiting in left {
                // Barriers answer when the last queue lets them go.
                if let Waiting::One(_, completion) = waiting {
                    _ = call(completion, Err(Error::Closed));
                }
            }
        }
    }
}

impl Queue {
    /// Adds a request; waits while the queue is full, unless this thread is the one
    /// to empty it, or must not wait.
    fn push(&self, waiting: Waiting, may_wait: bool) {
        let mut state = lock(&self.state);
        let here = cambium_io::sync::thread::current().id();
        let full = |state: &QueueState| may_wait && state.waiting.len() >= QUEUE_LIMIT;
        while full(&state) && state.worker.is_some_and(|at| at != here) {
            let woken = self.taken.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting.push_back(waiting);
    }

    /// Takes the next requests, if no leader is at work on earlier ones.
    fn take(&self, most_together: u64) -> Taken {
        let mut state = lock(&self.state);
        if state.worker.is_some() || state.blocked {
            return Taken::Nothing;
        }
        let here = Some(cambium_io::sync::thread::current().id());
        if let Some(Waiting::All(_)) = state.waiting.front() {
            if let Some(Waiting::All(barrier)) = state.waiting.pop_front() {
                state.blocked = true;
                return Taken::Barrier(barrier);
            }
        }
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < MOST_TOGETHER && bytes < most_together {
            match state.waiting.pop_front() {
                Some(Waiting::One(request, completion)) => {
                    bytes += bytes_of(&request);
                    taken.push((request, completion));
                }
                Some(barrier) => {
                    state.waiting.push_front(barrier);
                    break;
                }
                None => break,
            }
        }
        if taken.is_empty() {
            return Taken::Nothing;
        }
        state.worker = here;
        self.taken.notify_all();
        Taken::Requests(taken)
    }
}

/// A worker at work; says so when it is done, whatever a completion does.
struct AtWork<'a>(&'a Queue);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).worker = None;
        self.0.taken.notify_all();
    }
}

impl Core {
    /// Takes a request; its completion comes once, on any thread.
    pub fn submit(self: &Arc<Self>, request: Request, completion: Completion) {
        if self.submissions.closing.load(Ordering::Acquire) {
            _ = call(completion, Err(Error::Closed));
            return;
        }
        // Workers may wait for what a completion holds up.
        let may_wait = !self.replies.is_here();
        self.submissions.take_room(bytes_of(&request), may_wait);
        let queues = &self.submissions.queues;
        let key = match &request {
            Request::Get { key } | Request::Put { key, .. } | Request::Delete { key, .. } => key,
            Request::Write { .. } | Request::Sync => {
                return self.submit_barrier(request, completion);
            }
        };
        // Without a look at the index, whose lock a writer may hold.
        let at = sip13(key, self.submissions.secret) as usize % queues.len();
        queues[at].push(Waiting::One(request, completion), may_wait);
        self.see_to(at);
    }

    fn submit_barrier(self: &Arc<Self>, request: Request, completion: Completion) {
        let barrier = Arc::new(Barrier {
            missing: AtomicUsize::new(self.submissions.count()),
            work: Mutex::new(Some((request, completion))),
        });
        {
            let _in_one_order = lock(&self.submissions.gate);
            for queue in &self.submissions.queues {
                // Not held up by a full queue: the gate is held.
                let waiting = Waiting::All(barrier.clone());
                lock(&queue.state).waiting.push_back(waiting);
            }
        }
        for at in 0..self.submissions.count() {
            self.see_to(at);
        }
    }

    /// Lets a worker look at a queue, or does so itself where there is none.
    fn see_to(self: &Arc<Self>, at: usize) {
        match self.workers.get().and_then(|workers| workers.get(at)) {
            Some(worker) => worker.notify(),
            None => self.drain(at),
        }
    }

    /// Does what waits in a queue, up to a barrier that others have not come to.
    pub fn drain(self: &Arc<Self>, at: usize) {
        let queue = &self.submissions.queues[at];
        let workers = self.submissions.count() as u64;
        let most_together = self.tuning.submitted_bytes / SHARE_TOGETHER / workers.max(1);
        loop {
            match queue.take(most_together) {
                Taken::Nothing => return,
                Taken::Barrier(barrier) => {
                    if barrier.missing.fetch_sub(1, Ordering::AcqRel) > 1 {
                        return;
                    }
                    let work = lock(&barrier.work).take();
                    *lock(&self.submissions.serving) =
                        Some(cambium_io::sync::thread::current().id());
                    if let Some((request, completion)) = work {
                        self.submissions.give_room(bytes_of(&request));
                        self.answer(self.serve(request), completion);
                    }
                    *lock(&self.submissions.serving) = None;
                    for other in &self.submissions.queues {
                        lock(&other.state).blocked = false;
                    }
                    for other in (0..self.submissions.count()).filter(|&other| other != at) {
                        self.see_to(other);
                    }
                }
                Taken::Requests(requests) => {
                    let _at_work = AtWork(queue);
                    let bytes = requests.iter().map(|(request, _)| bytes_of(request)).sum();
                    self.submissions.give_room(bytes);
                    self.do_together(requests);
                }
            }
        }
    }

    /// A batch or a sync, alone.
    fn serve(self: &Arc<Self>, request: Request) -> Result<Response> {
        let (batch, durability, syncs) = match request {
            Request::Write { batch, durability } => (batch, durability, false),
            _ => (WriteBatch::new(), Durability::Synced, true),
        };
        let written = self.write_request(WriteRequest::new(batch, durability)?)?;
        Ok(match syncs {
            true => Response::Synced,
            false => Response::Written(written),
        })
    }

    /// Does requests of one queue in turn: neighbours of a kind at once.
    fn do_together(self: &Arc<Self>, requests: Vec<(Request, Completion)>) {
        let mut reads: Vec<(Vec<u8>, Completion)> = Vec::new();
        let mut writes: Vec<(WriteRequest, Completion)> = Vec::new();
        for (request, completion) in requests {
            match as_write(request) {
                Ok(Ok(write)) => {
                    self.read_together(std::mem::take(&mut reads));
                    writes.push((write, completion));
                }
                Ok(Err(key)) => {
                    self.write_together(std::mem::take(&mut writes));
                    reads.push((key, completion));
                }
                Err(error) => self.answer(Err(error), completion),
            }
        }
        self.write_together(writes);
        self.read_together(reads);
    }

    fn write_together(self: &Arc<Self>, writes: Vec<(WriteRequest, Completion)>) {
        if writes.is_empty() {
            return;
        }
        let (requests, completions): (Vec<_>, Vec<_>) = writes.into_iter().unzip();
        match self.begin_requests(requests) {
            Ok((answers, Some(flight))) => {
                self.answer_later(Reply::Written(flight, answers, completions));
            }
            Ok((answers, None)) => {
                for (answer, completion) in answers.into_iter().zip(completions) {
                    self.answer(answer.map(Response::Written), completion);
                }
            }
            Err(error) => {
                for completion in completions {
                    self.answer(Err(error.clone()), completion);
                }
            }
        }
    }

    fn read_together(self: &Arc<Self>, reads: Vec<(Vec<u8>, Completion)>) {
        let keys: Vec<&[u8]> = reads.iter().map(|(key, _)| key.as_slice()).collect();
        let together = match keys.len() {
            0 | 1 => None,
            _ => self
                .pin()
                .and_then(|pin| self.multi_get_at(&keys, pin.moment))
                .ok(),
        };
        match together {
            Some(values) => {
                for ((_, completion), value) in reads.into_iter().zip(values) {
                    self.answer(Ok(Response::Value(value)), completion);
                }
            }
            // Alone, or one of them cannot be read: each gets its own answer.
            None => {
                for (key, completion) in reads {
                    self.answer(self.get(&key).map(Response::Value), completion);
                }
            }
        }
    }

    /// Takes no more requests, and does all that were submitted, before a close. A
    /// close from within a completion leaves them to be answered `Closed`.
    pub fn drain_all(self: &Arc<Self>) {
        self.submissions.closing.store(true, Ordering::Release);
        self.replies.begin_close();
        let here = Some(cambium_io::sync::thread::current().id());
        loop {
            let mut idle = true;
            for (at, queue) in self.submissions.queues.iter().enumerate() {
                self.drain(at);
                let state = lock(&queue.state);
                if state.worker == here {
                    return;
                }
                idle &= state.waiting.is_empty() && !state.blocked;
                if state.worker.is_some() {
                    idle = false;
                    let woken = queue.taken.wait(state);
                    drop(woken.unwrap_or_else(PoisonError::into_inner));
                }
            }
            if idle {
                return self.answer_rest();
            }
            cambium_io::sync::thread::yield_now();
        }
    }
}

/// Bytes of keys and values that a request holds.
fn bytes_of(request: &Request) -> u64 {
    match request {
        Request::Put { key, value, .. } => (key.len() + value.len()) as u64,
        Request::Get { key } | Request::Delete { key, .. } => key.len() as u64,
        Request::Write { batch, .. } => batch.bytes(),
        Request::Sync => 0,
    }
}

/// A write, or the key of a get.
fn as_write(request: Request) -> Result<Result<WriteRequest, Vec<u8>>> {
    let (operation, durability) = match request {
        Request::Put {
            key,
            value,
            durability,
        } => (Operation::Put { key, value }, durability),
        Request::Delete { key, durability } => (Operation::Delete { key }, durability),
        Request::Get { key } => {
            cambium_api::limits::check_key(&key)?;
            return Ok(Err(key));
        }
        // Barriers, which come alone.
        Request::Write { .. } | Request::Sync => return Err(Error::Closed),
    };
    let mut batch = WriteBatch::new();
    batch.push(None, operation);
    WriteRequest::new(batch, durability).map(Ok)
}
