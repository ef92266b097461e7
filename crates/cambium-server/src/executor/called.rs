//! Answers of Thrift calls that wait for the end of their round, or for its sync.

use cambium::Error;
use tokio::sync::oneshot;

use super::server::Server;
use crate::keyspace::Footprint;
use crate::messages::Waiter;
use crate::thrift::Answer;
use crate::thrift::calls::{self, Call};

/// An answer and who waits for it.
#[derive(Debug)]
pub struct Called {
    answer: Answer,
    sender: oneshot::Sender<Answer>,
    /// It holds only if the round is written.
    is_pending: bool,
    /// The last round whose sync it waits for.
    pub waits_for: u64,
    /// In a cluster: the batch of a partition that has to be committed first.
    pub needs: Option<(u8, u64)>,
}

impl Server {
    /// Runs a call in the round, or after a fetch of what it reads.
    pub fn call_or_fetch(&mut self, call: Call, sender: oneshot::Sender<Answer>) {
        if !self.may_fetch {
            return self.call(call, sender);
        }
        self.keyspace.footprint = Footprint::default();
        let hits = self.keyspace.hits;
        self.keyspace.begin_undoable();
        let answer = calls::run(self, &call);
        match self.keyspace.end_undoable() {
            None => self.end_call(answer, sender, None),
            Some(missing) => {
                self.keyspace.hits = hits;
                self.keyspace.notices.take();
                self.fetches.push((Waiter::Call(call, sender), missing));
            }
        }
    }

    /// Runs a call in the round.
    pub fn call(&mut self, mut call: Call, sender: oneshot::Sender<Answer>) {
        self.keyspace.footprint = Footprint::default();
        let answer = match calls::route(self, &mut call) {
            Ok(()) => calls::run(self, &call),
            Err(refused) => refused,
        };
        let needs = self.need(call.database);
        self.end_call(answer, sender, needs);
    }

    fn end_call(
        &mut self,
        answer: Answer,
        sender: oneshot::Sender<Answer>,
        needs: Option<(u8, u64)>,
    ) {
        self.statistics.commands += 1;
        let footprint = self.keyspace.footprint;
        self.deliver_expired();
        self.called.push(Called {
            answer,
            sender,
            is_pending: footprint.is_pending,
            waits_for: match footprint.is_pending {
                true => self.round,
                false => footprint.waits_for,
            },
            needs,
        });
    }
}

impl Called {
    /// The round is written, or is not.
    pub fn settle(&mut self, outcome: &Result<(), Error>) {
        if let (true, Err(error)) = (self.is_pending, outcome) {
            self.answer = calls::failure(error);
            self.needs = None;
        }
        self.is_pending = false;
    }

    /// The node has ceased to serve its keys.
    pub fn give_up(mut self) {
        self.answer = calls::ceased();
        self.send(&Ok(()));
    }

    /// Sends the answer; after a sync that failed, its error.
    pub fn send(self, outcome: &Result<(), Error>) {
        let answer = match outcome {
            Ok(()) => self.answer,
            Err(error) => calls::failure(error),
        };
        // The client may have gone.
        _ = self.sender.send(answer);
    }
}
