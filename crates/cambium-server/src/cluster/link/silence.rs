//! Successors that cannot be reached, or take nothing.

use std::time::Duration;

use cambium_cluster::topology::Report;
use cambium_io::sync::lock;

use super::Link;
use crate::cluster::agent;

/// Longest time, in leases, between two reports of a successor that is being brought up.
const MOST_LEASES: u32 = 8;

/// When the controller hears of a successor that is being brought up: the time between two
/// reports doubles. A member that cannot be reached leaves the chain and is brought up anew each
/// time, so that each report changes the chain twice.
#[derive(Debug, Default)]
pub struct Accusations {
    /// The last report, and the least time until the next one.
    last: Option<(Duration, Duration)>,
}

impl Accusations {
    /// True if a report is due. After a quiet time the first one is due at once.
    fn are_due(&mut self, now: Duration, lease: Duration) -> bool {
        let pause = match self.last {
            Some((at, pause)) if now < at + pause => return false,
            Some((at, pause)) if now < at + 3 * pause => (2 * pause).min(MOST_LEASES * lease),
            _ => lease / 2,
        };
        self.last = Some((now, pause));
        true
    }
}

impl Link {
    /// There is no connection. The log has a reason once.
    pub(super) fn fail(&mut self, why: String) {
        self.failing.get_or_insert(self.now());
        if self.failure != why {
            tracing::warn!(to = self.to, error = why, "no connection to the successor");
            self.failure = why;
        }
    }

    /// Reports to the controller that the successor of a partition lacks batches or cannot be
    /// reached.
    pub(super) fn accuse(&self, partition: u8, epoch: u64) {
        let report = Report {
            epoch,
            node: self.shared.me.clone(),
            is_unreachable: true,
            ..Report::default()
        };
        let word = agent::Word::Report(u16::from(partition), report);
        self.shared.agent.send([word]);
    }

    pub(super) fn is_long_ago(&self, moment: Duration) -> bool {
        self.now().saturating_sub(moment) > self.shared.lease / 2
    }

    fn is_due(&self, now: Duration) -> bool {
        let mut accusations = lock(&self.shared.accusations);
        let own = accusations.entry(self.to.clone()).or_default();
        own.are_due(now, self.shared.lease)
    }

    /// The controller hears of a successor that cannot be reached, or takes nothing, for half a
    /// lease; each half lease of one that serves, since writes wait for it.
    pub(super) fn report_silence(&mut self) {
        let is_silent = self.failing.is_some_and(|since| self.is_long_ago(since));
        let refuses = self
            .refusing
            .is_some_and(|(since, last)| self.is_long_ago(since) && !self.is_long_ago(last));
        if !is_silent && !refuses {
            return;
        }
        let now = self.now();
        let brings_up = self.ways.values().any(|way| !way.of.is_serving);
        let is_due = brings_up && self.is_due(now);
        for (partition, way) in &self.ways {
            if way.of.is_serving || is_due {
                self.accuse(*partition, way.of.epoch);
            }
        }
        self.failing = self.failing.map(|_| now);
        self.refusing = self.refusing.map(|(_, last)| (now, last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_that_cannot_be_reached_is_reported_less_and_less() {
        let lease = Duration::from_secs(2);
        let mut accusations = Accusations::default();
        let mut due = |seconds: u64| accusations.are_due(Duration::from_secs(seconds), lease);
        let reported: Vec<u64> = (10..80).filter(|seconds| due(*seconds)).collect();
        assert_eq!(reported, [10, 11, 13, 17, 25, 41, 57, 73]);
        // It was there for a while.
        let again: Vec<u64> = (150..155).filter(|seconds| due(*seconds)).collect();
        assert_eq!(again, [150, 151, 153]);
    }
}
