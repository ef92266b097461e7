//! How a node stands in its cluster, in numbers.

use cambium_cluster::topology::State;

use super::chains::Chains;
use crate::keyspace::partitions::Partitions;

/// A node in its cluster at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainStatus {
    /// It has a fresh view, and may serve.
    pub is_fresh: bool,
    /// Chains of the cluster, those with a head, and those whose members all serve.
    pub chains: (usize, usize, usize),
    /// Chains that this node is the head of.
    pub heads: usize,
    /// Chains that it serves behind another head.
    pub behind: usize,
    /// Chains in which it is being brought up, or waits for it.
    pub catching_up: usize,
    /// Changes of its chains that it has learned of.
    pub reconfigurations: u64,
    /// Batches of former heads that the chains went on without, and copies have replaced.
    pub discarded: u64,
    /// The most batches that one successor lacks, and all that they lack together.
    pub lag: (u64, u64),
    /// The highest epoch of any chain.
    pub epoch: u64,
}

impl Chains {
    /// How this node stands now.
    pub fn status(&self, partitions: &Partitions) -> ChainStatus {
        let chains = &self.view.chains;
        let is_whole = |members: &[cambium_cluster::topology::Member]| {
            members.iter().all(|member| member.state == State::Serving)
        };
        let mut status = ChainStatus {
            is_fresh: partitions.now < self.fresh_until,
            chains: (
                chains.len(),
                chains.iter().filter(|chain| chain.head().is_some()).count(),
                chains
                    .iter()
                    .filter(|chain| chain.epoch > 0 && is_whole(&chain.members))
                    .count(),
            ),
            reconfigurations: self.reconfigurations,
            discarded: self.discarded,
            epoch: chains.iter().map(|chain| chain.epoch).max().unwrap_or(0),
            ..ChainStatus::default()
        };
        for replica in &partitions.replicas {
            let is_member = replica.chain().place(self.me()).is_some();
            status.heads += usize::from(replica.is_head());
            status.behind += usize::from(replica.serves() && !replica.is_head());
            status.catching_up += usize::from(is_member && !replica.serves());
            if replica.successor().is_some() {
                let number = replica.position().number;
                let lag = number.saturating_sub(replica.acked_number());
                status.lag = (status.lag.0.max(lag), status.lag.1 + lag);
            }
        }
        status
    }
}
