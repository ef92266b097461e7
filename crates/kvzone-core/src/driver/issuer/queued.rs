//! A thread's loop where requests are submitted, and several are in flight.
//!
//! ```text
//!  draw ─▶ submit ─▶ │ in flight: up to N │ ─▶ completion, on a thread of the store or a
//!                                              worker: the clock, and a word into the mailbox
//!        look, record ◀── in the order in which they were submitted ◀──┘
//! ```
//!
//! A request's latency ends when its completion comes. Answers are looked at in the
//! order of the requests, whatever the order of the completions: so the hash of what was
//! read is the same as where each call is waited for. A write of a key that is being
//! written waits for the one before, as a key's versions have an order; a read does
//! not, as a store's queue keeps the order of a key's requests.
//!
//! In an open loop a request that finds N in flight waits, and that is queueing as any
//! other wait between its due moment and its submission. So is the time in a worker's queue;
//! what the store's own queue takes is the store's.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::{Issuer, Operation};
use crate::adapter::{Done, Queue, Request};
use crate::driver::witness::Asked;
use crate::error::Result;
use crate::workload::OperationKind;

/// Requests that have been answered and wait for one before them, for each that may be
/// in flight.
const WAITING: usize = 4;

/// Where completions leave word.
#[derive(Debug, Default)]
struct Mailbox {
    answers: Mutex<Vec<Answer>>,
    came: Condvar,
}

#[derive(Debug)]
struct Answer {
    /// Among all requests of the thread.
    number: u64,
    ended: u64,
    /// Nanoseconds of the store's call, where they are known apart.
    took: Option<u64>,
    outcome: Result<Option<Vec<u8>>>,
}

impl Mailbox {
    fn put(&self, answer: Answer) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push(answer);
        self.came.notify_one();
    }

    /// What came; where it is waited for, something.
    fn take(&self, waits: bool) -> Vec<Answer> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        while waits && answers.is_empty() {
            let came = self.came.wait(answers);
            answers = came.unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut *answers)
    }
}

/// A request that was submitted, and not looked at.
#[derive(Debug)]
struct Submitted {
    operation: Operation,
    key: Vec<u8>,
    value_bytes: usize,
    due: u64,
    start: u64,
    asked: Asked,
    answer: Option<Answer>,
}

/// All of a thread's requests that were not looked at, in their order.
#[derive(Debug, Default)]
struct Flight {
    depth: usize,
    mailbox: Arc<Mailbox>,
    requests: VecDeque<Submitted>,
    /// The number of the first of them.
    first: u64,
    /// Of them, those without an answer.
    unanswered: usize,
    /// Keys that are being written.
    written: HashSet<u64>,
}

impl Flight {
    fn is_full(&self) -> bool {
        self.unanswered == self.depth || self.requests.len() >= WAITING * self.depth
    }

    fn must_wait(&self, operation: &Operation) -> bool {
        self.is_full() || operation.kind.writes() && self.written.contains(&operation.number)
    }

    fn receive(&mut self, waits: bool) {
        for answer in self.mailbox.take(waits) {
            self.unanswered -= 1;
            let place = (answer.number - self.first) as usize;
            if let Some(request) = self.requests.get_mut(place) {
                request.answer = Some(answer);
            }
        }
    }

    /// The first request, if it was answered.
    fn next_answered(&mut self) -> Option<(Submitted, Answer)> {
        self.requests.front()?.answer.as_ref()?;
        let mut request = self.requests.pop_front()?;
        self.first += 1;
        if request.operation.kind.writes() {
            self.written.remove(&request.operation.number);
        }
        let answer = request.answer.take()?;
        Some((request, answer))
    }
}

impl Issuer<'_> {
    /// Keeps up to `depth` requests in flight, in a closed or an open loop.
    pub(super) fn run_queued(&mut self, queue: &mut dyn Queue, depth: usize) -> Result<()> {
        let mut flight = Flight {
            depth,
            ..Flight::default()
        };
        let mut outcome = self.submit_all(queue, &mut flight);
        // Whatever happened, nothing comes any more when the thread has ended.
        while flight.unanswered > 0 {
            flight.receive(true);
        }
        let landed = self.land(&mut flight);
        outcome = outcome.and(landed);
        outcome
    }

    fn submit_all(&mut self, queue: &mut dyn Queue, flight: &mut Flight) -> Result<()> {
        let schedule = self.issue.schedule;
        while self.next_block()? {
            for at in 0..self.block.operations.len() {
                let operation = self.block.operations[at];
                let due = schedule.map(|schedule| self.arrivals.due(schedule, self.begun));
                if due.is_some_and(|due| !self.wait_for(due)) {
                    return Ok(());
                }
                flight.receive(false);
                self.land(flight)?;
                while flight.must_wait(&operation) {
                    flight.receive(true);
                    self.land(flight)?;
                }
                let start = self.clock.now();
                let due = due.unwrap_or(start);
                self.submit(queue, flight, operation, (due, start));
                self.begun += 1;
                let gives_up = self.gives_up(start - due);
                if gives_up || start >= self.issue.deadline || self.is_stopped() {
                    let overdue = |schedule| self.overdue_at(schedule, start);
                    self.issued.overdue = schedule.map_or(0, overdue);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn submit(
        &mut self,
        queue: &mut dyn Queue,
        flight: &mut Flight,
        operation: Operation,
        (due, start): (u64, u64),
    ) {
        let key = self.block.key(&operation);
        let number = operation.number;
        let mut asked = Asked::default();
        let mut value_bytes = 0;
        let request = match operation.kind {
            OperationKind::Insert | OperationKind::Update => {
                let version = self.begin(&operation);
                let value = self.lender.lend(number, version);
                value_bytes = value.len();
                Request::Put { key, value }
            }
            OperationKind::Delete => {
                self.begin(&operation);
                Request::Delete { key }
            }
            _ => {
                asked = self.witness.ask(number);
                Request::Get { key }
            }
        };
        if operation.kind.writes() {
            flight.written.insert(number);
        }
        let of_request = flight.first + flight.requests.len() as u64;
        flight.requests.push_back(Submitted {
            operation,
            key: key.to_vec(),
            value_bytes,
            due,
            start,
            asked,
            answer: None,
        });
        flight.unanswered += 1;
        let (mailbox, clock) = (flight.mailbox.clone(), self.clock);
        let done: Done = Box::new(move |outcome, took| {
            mailbox.put(Answer {
                number: of_request,
                ended: clock.now(),
                took,
                outcome: outcome.map(|value| value.map(<[u8]>::to_vec)),
            });
        });
        queue.submit(request, done);
    }

    /// Looks at what was answered, as far as there is no gap.
    fn land(&mut self, flight: &mut Flight) -> Result<()> {
        while let Some((request, answer)) = flight.next_answered() {
            let Submitted {
                operation,
                key,
                value_bytes,
                due,
                start,
                asked,
                ..
            } = request;
            let value = answer.outcome?;
            let ended = answer.ended;
            let native = answer.took.unwrap_or(ended - start);
            let recorder = &mut self.issued.recorder;
            recorder.record(operation.kind, ended - due, ended, 1);
            recorder.record_parts((ended - due).saturating_sub(native), native);
            self.issued.ended = self.issued.ended.max(ended);
            if operation.kind.reads() {
                let number = operation.number;
                self.witness.answer(asked, number, value.as_deref());
                self.witness.look(&operation, &key)?;
            } else {
                self.wrote(&operation, key.len(), value_bytes);
            }
            let operations = self.issued.recorder.operations();
            let progress = self.issue.progress;
            progress.store(operations, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(())
    }
}
