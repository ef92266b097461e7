//! Answers of Thrift calls that wait for the end of their round, or for its sync.

use cambium::Error;
use tokio::sync::oneshot;

use super::server::Server;
use crate::keyspace::Footprint;
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
}

impl Called {
    /// Runs a call in the round.
    pub fn run(server: &mut Server, call: &Call, sender: oneshot::Sender<Answer>) -> Called {
        server.statistics.commands += 1;
        server.keyspace.footprint = Footprint::default();
        let answer = calls::run(server, call);
        let footprint = server.keyspace.footprint;
        server.deliver_expired();
        Called {
            answer,
            sender,
            is_pending: footprint.is_pending,
            waits_for: match footprint.is_pending {
                true => server.round,
                false => footprint.waits_for,
            },
        }
    }

    /// The round is written, or is not.
    pub fn settle(&mut self, outcome: &Result<(), Error>) {
        if let (true, Err(error)) = (self.is_pending, outcome) {
            self.answer = calls::failure(error);
        }
        self.is_pending = false;
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
