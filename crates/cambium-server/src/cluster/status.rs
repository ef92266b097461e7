//! How a node stands in its cluster, in numbers.

use std::collections::VecDeque;
use std::time::Duration;

use cambium_cluster::replica::Replica;
use cambium_cluster::topology::{Progress, State};

use super::chains::Chains;
use crate::keyspace::partitions::Partitions;

/// A node in its cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChainStatus {
    /// It has a fresh view, and may serve.
    pub is_fresh: bool,
    /// etcd's revision that the view is of.
    pub revision: u64,
    /// Chains of the cluster, those with a head, and those with every copy.
    pub chains: (usize, usize, usize),
    /// Chains that this node is the head of.
    pub heads: usize,
    /// Chains that it serves behind another head.
    pub behind: usize,
    /// Chains in which it is being brought up, or waits for it.
    pub catching_up: usize,
    /// Chains that it has left, with a copy that is still to be removed.
    pub left: usize,
    /// Changes of its chains that it has learned of.
    pub reconfigurations: u64,
    /// Batches of former heads that the chains went on without, and copies have replaced.
    pub discarded: u64,
    /// The highest epoch of any chain.
    pub epoch: u64,
    /// The chains that this node is a member of.
    pub own: Vec<OwnChain>,
}

/// A chain as a member of it sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnChain {
    /// The partition.
    pub partition: u8,
    /// The epoch.
    pub epoch: u64,
    /// The node's role there: `head`, or the state of its member.
    pub role: String,
    /// The member that it hands batches to.
    pub successor: Option<Lag>,
}

/// The batches that a successor lacks.
#[derive(Clone, Debug, PartialEq)]
pub struct Lag {
    /// Its node.
    pub node: String,
    /// Batches that it has not acknowledged.
    pub batches: u64,
    /// Their bytes, as far as they are in memory.
    pub bytes: u64,
    /// How long ago the first of them was made.
    pub age: Duration,
    /// How far it is, if it is being brought up.
    pub progress: Option<Progress>,
}

impl ChainStatus {
    /// The batches that successors lack.
    pub fn lags(&self) -> impl Iterator<Item = &Lag> {
        self.own.iter().filter_map(|chain| chain.successor.as_ref())
    }

    /// The most batches that one successor lacks.
    pub fn most_batches(&self) -> u64 {
        self.lags().map(|lag| lag.batches).max().unwrap_or(0)
    }

    /// The longest time that a batch waits for a successor.
    pub fn longest(&self) -> Duration {
        self.lags().map(|lag| lag.age).max().unwrap_or_default()
    }
}

/// Time between two batches of a partition that are noted.
const NOTED: Duration = Duration::from_millis(50);
/// Notes of a partition that are kept.
const MOST_NOTES: usize = 1024;

/// When batches were made: some of each partition.
#[derive(Debug, Default)]
pub struct Ages(Vec<VecDeque<(u64, Duration)>>);

impl Ages {
    /// For so many partitions.
    pub fn new(partitions: usize) -> Ages {
        Ages(vec![VecDeque::new(); partitions])
    }

    /// A batch is there.
    pub fn note(&mut self, partition: u8, number: u64, now: Duration) {
        let notes = &mut self.0[usize::from(partition)];
        // A copy begins anew.
        notes.retain(|(noted, _)| *noted < number);
        if notes.back().is_none_or(|(_, at)| now >= *at + NOTED) {
            if notes.len() >= MOST_NOTES {
                // The first says how old the oldest is, however few are left behind it.
                notes.remove(1);
            }
            notes.push_back((number, now));
        }
    }

    /// The batches up to a number are acknowledged.
    pub fn acknowledge(&mut self, partition: u8, acked: u64) {
        let notes = &mut self.0[usize::from(partition)];
        while notes.get(1).is_some_and(|(number, _)| *number <= acked + 1) {
            notes.pop_front();
        }
    }

    /// How long ago the first batch that is not acknowledged was made, or one noted before it.
    fn oldest(&self, partition: u8, now: Duration) -> Duration {
        let oldest = self.0[usize::from(partition)].front();
        oldest.map_or(Duration::ZERO, |(_, at)| now.saturating_sub(*at))
    }
}

impl Chains {
    /// How this node stands now.
    pub fn status(&self, partitions: &Partitions) -> ChainStatus {
        let chains = &self.view.chains;
        let replicas = self.view.replicas();
        let whole = chains.iter().filter(|chain| chain.is_whole(replicas));
        let mut status = ChainStatus {
            is_fresh: partitions.now < self.fresh_until,
            revision: self.view.revision,
            chains: (
                chains.len(),
                chains.iter().filter(|chain| chain.head().is_some()).count(),
                whole.count(),
            ),
            reconfigurations: self.reconfigurations,
            discarded: self.discarded,
            epoch: chains.iter().map(|chain| chain.epoch).max().unwrap_or(0),
            ..ChainStatus::default()
        };
        for (partition, replica) in (0..).zip(&partitions.replicas) {
            let chain = replica.chain();
            let Some(place) = chain.place(self.me()) else {
                status.left += usize::from(replica.has_copy());
                continue;
            };
            status.heads += usize::from(replica.is_head());
            status.behind += usize::from(replica.serves() && !replica.is_head());
            status.catching_up += usize::from(!replica.serves());
            status.own.push(OwnChain {
                partition,
                epoch: chain.epoch,
                role: match replica.is_head() {
                    true => "head".to_string(),
                    false => chain.members[place].state.to_string(),
                },
                successor: self.lag(partition, replica, partitions.now),
            });
        }
        status
    }

    fn lag(&self, partition: u8, replica: &Replica, now: Duration) -> Option<Lag> {
        let successor = replica.successor()?;
        let (number, acked) = (replica.position().number, replica.acked_number());
        let batches = number.saturating_sub(acked);
        Some(Lag {
            node: successor.node.clone(),
            batches,
            bytes: self.bytes_behind(partition, acked),
            age: match batches {
                0 => Duration::ZERO,
                _ => self.ages.oldest(partition, now),
            },
            progress: self.progress_of(partition, replica),
        })
    }

    /// How far the successor of a partition is brought up.
    pub(super) fn progress_of(&self, partition: u8, replica: &Replica) -> Option<Progress> {
        let successor = replica.successor()?;
        let copying = self.copying[usize::from(partition)];
        let copying = copying.filter(|(since, _)| *since == successor.since);
        let (done, of) = copying.map_or_else(
            || (replica.acked_number(), replica.position().number),
            |(_, entries)| entries,
        );
        (successor.state == State::Syncing).then(|| Progress {
            to: successor.node.clone(),
            is_copy: copying.is_some(),
            done,
            of,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_batch_that_is_not_acknowledged_tells_the_lag() {
        let second = Duration::from_secs;
        let mut ages = Ages::new(1);
        for number in 1..=5_000 {
            ages.note(0, number, second(number));
        }
        assert_eq!(ages.oldest(0, second(6_000)), second(5_999));
        ages.acknowledge(0, 4_999);
        assert_eq!(ages.oldest(0, second(6_000)), second(1_000));
        // Batches between two notes count as the first of them.
        ages.note(0, 5_001, second(5_000));
        ages.acknowledge(0, 5_000);
        assert_eq!(ages.oldest(0, second(6_000)), second(1_000));
        // A copy has begun anew.
        ages.note(0, 3, second(7_000));
        assert_eq!(ages.oldest(0, second(7_001)), second(1));
    }
}
