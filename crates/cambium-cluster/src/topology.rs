//! The cluster's keys in etcd, one JSON value each:
//!
//! ```text
//! /cambium/NAME/meta          Meta: made by `cambium cluster init`, never changed
//! /cambium/NAME/nodes/NODE    Node: under the node's lease
//! /cambium/NAME/retired/NODE  empty: it was drained or removed, and gets no copy until `add`
//! /cambium/NAME/controller    the name of the node that decides: under its lease
//! /cambium/NAME/chains/00017  Chain: of a partition, changed by the controller and by commands
//! /cambium/NAME/progress/NODE Progress of each successor that the node brings up, by partition
//! /cambium/NAME/reports/00017 Report: of a member about its successor, or as a head that goes
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

/// The version of these values. Nodes refuse a cluster of another one.
pub const VERSION: u32 = 1;
/// Most members of a chain.
pub const MOST_MEMBERS: usize = 5;
/// Most partitions: each is a numbered database of a node's store.
pub const MOST_PARTITIONS: u16 = 128;

/// When a write is answered.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Acknowledgement {
    /// When the head's operating system has it; what other members lack is bounded.
    Async,
    /// When it is as safe on the head as the head's `--durability` says.
    Local,
    /// When it is so on every member that serves.
    #[default]
    Strong,
}

/// The settings of a cluster, which never change.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Meta {
    /// See [`VERSION`].
    pub version: u32,
    /// Tells this cluster from all others.
    pub id: String,
    /// How many partitions there are.
    pub partitions: u16,
    /// Members that each chain should have.
    pub replicas: u16,
    /// Nodes that have to be there before the controller makes the chains.
    pub nodes: u16,
    /// The acknowledgement of new chains.
    pub acknowledgement: Acknowledgement,
    /// Seconds for which a node counts as alive that is not heard of.
    pub lease_seconds: u64,
    /// The seed of SCAN's order: every copy of a partition has the same order.
    pub seed: u64,
}

/// A node that is there.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Drawn at each start.
    pub incarnation: u64,
    /// The address for clients and other nodes: `HOST:PORT`.
    pub address: String,
    /// The address for clients of Thrift, if it serves them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thrift: Option<String>,
    /// The version of its program.
    pub version: String,
    /// The engine of its store.
    pub engine: String,
    /// Drawn when its store joined the cluster: it tells a node that has lost its disk.
    pub store: String,
}

/// The state of a member, which says what it may do.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has every committed write, and takes part in committing the next.
    Serving,
    /// It is being brought to where its predecessor is.
    Syncing,
    /// It is alive, and waits until it can be brought up.
    Waiting,
    /// It is not alive, and served last: it alone can make the chain go on.
    Last,
    /// It is not alive.
    Offline,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Serving => "serving",
            State::Syncing => "syncing",
            State::Waiting => "waiting",
            State::Last => "last",
            State::Offline => "offline",
        })
    }
}

/// A member of a chain.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Member {
    /// The name of its node.
    pub node: String,
    /// Its state.
    pub state: State,
    /// The start of the node that the state is about. A node that has started again since has
    /// none of the rights of a member.
    pub incarnation: u64,
    /// The store that the state is about.
    pub store: String,
    /// The epoch since which it has had its place behind the same member, or at the head. A
    /// batch carries it: so changes elsewhere in the chain leave a connection as it is.
    #[serde(default)]
    pub since: u64,
    /// It goes when the others serve.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

/// The chain of a partition: those that serve first, from head to tail.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Chain {
    /// Raised by every change.
    pub epoch: u64,
    /// When a write is answered.
    pub acknowledgement: Acknowledgement,
    /// In order.
    pub members: Vec<Member>,
    /// The member that becomes the head. Until then the head serves nothing, and reports when
    /// every other member has its batches: a planned change of the head loses none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_head: Option<String>,
    /// The last epoch that took the right to serve from a node that may live and not know of
    /// it yet: members that learn of it wait for half a lease.
    #[serde(default)]
    pub fence: u64,
}

impl Chain {
    /// Members that serve, head first.
    pub fn serving(&self) -> impl Iterator<Item = &Member> {
        self.members
            .iter()
            .filter(|member| member.state == State::Serving)
    }

    /// The member that takes writes.
    pub fn head(&self) -> Option<&Member> {
        self.serving().next()
    }

    /// Members that it lacks of so many.
    pub fn missing(&self, replicas: u16) -> usize {
        missing(&self.members, replicas)
    }

    /// So many members are there to stay, and all of them serve.
    pub fn is_whole(&self, replicas: u16) -> bool {
        let stays = |member: &Member| member.state == State::Serving && !member.leaving;
        let is_full = self.epoch > 0 && self.missing(replicas) == 0;
        is_full && self.next_head.is_none() && self.members.iter().all(stays)
    }

    /// The place of a node.
    pub fn place(&self, node: &str) -> Option<usize> {
        self.members.iter().position(|member| member.node == node)
    }

    /// The member behind one that serves: it serves too, or is syncing.
    pub fn successor(&self, node: &str) -> Option<&Member> {
        let place = self.place(node)?;
        if self.members[place].state != State::Serving {
            return None;
        }
        let next = self.members.get(place + 1)?;
        matches!(next.state, State::Serving | State::Syncing).then_some(next)
    }

    /// The member before a node.
    pub fn predecessor(&self, node: &str) -> Option<&Member> {
        let place = self.place(node)?.checked_sub(1)?;
        let before = &self.members[place];
        (self.successor(&before.node)?.node == node).then_some(before)
    }
}

/// Members that are lacking of so many: those that leave do not count.
pub(crate) fn missing(members: &[Member], replicas: u16) -> usize {
    let stay = members.iter().filter(|member| !member.leaving).count();
    usize::from(replicas).saturating_sub(stay)
}

/// A member's report about its successor, or as a head that goes. It counts in one epoch alone.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The epoch.
    pub epoch: u64,
    /// The member that reports.
    pub node: String,
    /// The successor, which is syncing, has everything, and each further write waits for it.
    #[serde(default)]
    pub has_joined: bool,
    /// The successor cannot be reached.
    #[serde(default)]
    pub is_unreachable: bool,
    /// The member is the head, makes place for another one, and all others have its batches.
    #[serde(default)]
    pub is_drained: bool,
}

/// How far a member has brought its successor up. For people: no decision depends on it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The successor.
    pub to: String,
    /// It gets a copy: the numbers are entries, and of batches otherwise.
    pub is_copy: bool,
    /// Batches, or entries of a copy, that the member has.
    pub done: u64,
    /// Batches that it is to have, or about so many entries.
    pub of: u64,
}

impl Progress {
    /// The share that is done.
    pub fn ratio(&self) -> f64 {
        (self.done as f64 / self.of.max(1) as f64).min(1.0)
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_copy {
            true => write!(f, "{} of about {} entries", self.done, self.of),
            false => write!(f, "{} of {} batches", self.done, self.of),
        }
    }
}

/// All of it at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// etcd's revision.
    pub revision: u64,
    /// The cluster's settings.
    pub meta: Option<Meta>,
    /// Nodes that are there, by name.
    pub nodes: BTreeMap<String, Node>,
    /// Nodes that were drained or removed, and have not been added since: the controller gives
    /// them no copies.
    pub retired: BTreeSet<String>,
    /// Chains, by partition; one that is not made yet has epoch 0.
    pub chains: Vec<Chain>,
    /// Reports, by partition.
    pub reports: BTreeMap<u16, Report>,
}

impl View {
    /// Members that each chain should have.
    pub fn replicas(&self) -> u16 {
        self.meta.as_ref().map_or(0, |meta| meta.replicas)
    }
}

impl Chain {
    /// A chain that is not made yet.
    pub fn unmade() -> Chain {
        Chain {
            epoch: 0,
            acknowledgement: Acknowledgement::default(),
            members: Vec::new(),
            next_head: None,
            fence: 0,
        }
    }
}
