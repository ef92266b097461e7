//! A node that has left a chain asks the head which is the last batch that both have.
//!
//! Its copy may have batches that the chain went on without, which clients of an `async` or
//! `local` chain were told are written: their number is reported before the copy is removed.

use std::collections::BTreeMap;
use std::time::Duration;

use cambium_cluster::position::Position;

use super::Link;

/// A copy of a partition that this node has left.
#[derive(Clone, Debug)]
pub struct Left {
    /// The epoch in which this node knows that it is no member. A head that knows of none as
    /// new cannot tell.
    pub epoch: u64,
    /// How far the copy has come.
    pub position: Position,
    /// The head is asked from this moment on.
    pub ask_from: Duration,
}

impl Link {
    pub(super) fn take_left(&mut self, mut left: BTreeMap<u8, Left>) {
        for (partition, of) in &mut left {
            if let Some(before) = self.left.get(partition) {
                of.ask_from = before.ask_from;
            }
        }
        self.left = left;
    }

    /// Asks once a lease until there is an answer, which the executor gets.
    pub(super) fn ask_of_left(&mut self, now: Duration) {
        let again = now + self.shared.lease;
        let mut requests = Vec::new();
        for (partition, left) in &mut self.left {
            if left.ask_from <= now {
                left.ask_from = again;
                let mut position = Vec::new();
                left.position.encode(&mut position);
                requests.push((*partition, left.epoch, position));
            }
        }
        for (partition, epoch, position) in requests {
            self.request(b"LEFT", partition, epoch, &[&position]);
        }
    }
}
