//! A server as one of many: chains of replicas, kept in etcd.
//!
//! ```text
//!            ┌ agent ┐ view, freshness  ┌ executor ┐ frames ┌ window ┐ ┌ link ┐
//!  etcd ◀───▶│       │─────────────────▶│ chains   │───────▶│        │▶│      │─▶ successor
//!            └───────┘◀──── reports ────└──────────┘        └────────┘ └──────┘
//!                 chains, if it controls     ▲                 acknowledgements │
//!                                            └───────────────────────◀──────────┘
//! ```
//!
//! The agent thread keeps the node's lease, and brings the executor a fresh view of the
//! cluster. The executor decides by it what the node serves. What it writes to a partition
//! becomes a frame; a link, two threads for each node behind this one, brings frames to the
//! successor. A link that finds its successor behind the window reads the store's change
//! feed, and where that does not reach back, copies a snapshot.
//!
//! | module | what it holds |
//! |---|---|
//! | [`join`] | what a store says of its cluster, and registering at the start |
//! | [`membership`] | starting all of it |
//! | [`agent`] | the thread that talks to etcd, and controls the cluster if it is elected |
//! | [`chains`] | what the executor knows of chains: answers that wait, links, feeds |
//! | [`window`] | the latest frames |
//! | [`link`] | the threads that bring frames to a successor |
//! | [`status`] | how the node stands, in numbers |
//! | [`catch_up`] | frames from the change feed, and copies |

pub mod agent;
pub mod catch_up;
pub mod chains;
pub mod join;
pub mod link;
pub mod membership;
pub mod status;
pub mod window;

use std::sync::Arc;
use std::time::Duration;

use cambium_cluster::topology::View;

use crate::keyspace::partitions::Frame;

/// A message about the cluster to the executor.
#[derive(Debug)]
pub enum ChainEvent {
    /// How the cluster is, and until when this node may serve by it, by the monotonic clock.
    View(Arc<View>, Duration),
    /// The successor of a partition has everything up to a number.
    Acked {
        /// The partition.
        partition: u8,
        /// Since when it is the successor.
        since: u64,
        /// The number.
        number: u64,
    },
    /// The successor of a partition gets a copy: the entries that it was sent, and about how
    /// many there are. `None` at the end of the copy.
    Copying {
        /// The partition.
        partition: u8,
        /// Since when it is the successor.
        since: u64,
        /// Entries.
        entries: Option<(u64, u64)>,
    },
    /// The head of a chain that this node has left answers.
    Left {
        /// The partition.
        partition: u8,
        /// The last batch that both have; `None` if their epochs do not tell.
        common: Option<u64>,
    },
    /// A former head has so many batches that the chain went on without: a copy replaces them.
    Discarded(u64),
    /// The successor of a partition gets frames as they are made.
    CaughtUp {
        /// The partition.
        partition: u8,
        /// Since when it is the successor.
        since: u64,
    },
}

/// A round's frames, which wait for its sync.
#[derive(Debug)]
pub struct Unstable {
    /// The round.
    pub round: u64,
    /// The frames that it wrote.
    pub frames: Vec<Frame>,
}
