//! Blocks of a database file whose nodes no trie reaches any more, and which later flushes
//! write again.
//!
//! Where writers replace keys at random, each flush writes most leaves anew. Were all of them
//! appended, the log would grow by more nodes than documents, and cleaning
//! ([`crate::cleaning`]) would meet the same live documents again and again.
//!
//! # Promises
//! A block is written again only when nobody can read the node in it:
//! 1. *No view*: all views from before the flush that retired the node are gone ([`Era`]).
//! 2. *No recovery, and no check*: a later header than that flush's is durable, so both copies
//!    of the superblock name headers that do not reach the node, and so does the header before
//!    the newest, whose trees a check walks ([`DatabaseHeader::trees_from`]).
//! 3. *No named snapshot* was there when the flush retired it. (One that came later does not
//!    reach it.)
//! 4. *No other process* was reading the file then. (One that comes later begins at a header
//!    that does not reach the node.)
//!
//! The list is in memory alone. After an opening it is empty, and blocks that nothing reaches
//! come back with the log's tail.

use std::sync::Weak;

use cambium_index::NodeAddress;
use cambium_io::sync::Mutex;

use crate::core::lock;
use crate::database::RunExtent;
#[cfg(doc)]
use crate::format::DatabaseHeader;
use crate::view::Era;

/// Nodes that wait, at most; a snapshot that is held for long keeps no more in the list.
const MOST_WAITING: usize = 1 << 20;

/// The blocks of one file.
#[derive(Debug, Default)]
pub(crate) struct NodeSpace(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    /// May be written again, the one that is taken next last.
    free: Vec<RunExtent>,
    waiting: Vec<Retired>,
}

/// Nodes that one flush has retired.
#[derive(Debug)]
struct Retired {
    nodes: Vec<NodeAddress>,
    /// Views from before the flush.
    readers: Weak<Era>,
    /// A later header than the flush's is durable.
    is_behind: bool,
}

impl Retired {
    fn is_unread(&self) -> bool {
        self.is_behind && self.readers.strong_count() == 0
    }
}

impl NodeSpace {
    /// Takes up to so many blocks that lie together.
    pub fn take(&self, most: u32) -> Option<RunExtent> {
        let mut lists = lock(&self.0);
        let last = lists.free.last_mut()?;
        let taken = RunExtent {
            first: last.first,
            count: last.count.min(most),
        };
        last.first.0 += u64::from(taken.count);
        last.count -= taken.count;
        if last.count == 0 {
            lists.free.pop();
        }
        Some(taken)
    }

    /// Gives blocks that no header has ever named, or will.
    pub fn give(&self, runs: &[RunExtent]) {
        let runs = runs.iter().filter(|run| run.count > 0);
        lock(&self.0).free.extend(runs);
    }

    /// Takes nodes that a flush has retired, once its header is durable.
    pub fn retire(&self, nodes: Vec<NodeAddress>, readers: Weak<Era>) {
        let mut lists = lock(&self.0);
        let waiting: usize = lists.waiting.iter().map(|one| one.nodes.len()).sum();
        if waiting + nodes.len() <= MOST_WAITING {
            lists.waiting.push(Retired {
                nodes,
                readers,
                is_behind: false,
            });
        }
    }

    /// True if the next flush cannot write over any node.
    pub fn is_empty(&self) -> bool {
        let lists = lock(&self.0);
        lists.free.is_empty() && lists.waiting.is_empty()
    }

    /// Blocks that the next flush may write again.
    pub fn blocks(&self) -> u64 {
        let lists = lock(&self.0);
        let free = lists.free.iter().map(|run| u64::from(run.count));
        let unread = lists.waiting.iter().filter(|one| one.is_unread());
        free.chain(unread.map(|one| one.nodes.len() as u64)).sum()
    }

    /// The superblock names one more header.
    pub fn header_named(&self) {
        for retired in &mut lock(&self.0).waiting {
            retired.is_behind = true;
        }
    }

    /// Frees what nobody can read any more, and forgets blocks before `begin`, which
    /// are given back to the file system, and those that may not be written again.
    pub fn free_unread(
        &self,
        begin: NodeAddress,
        is_read_elsewhere: impl FnOnce() -> bool,
        may_overwrite: impl Fn(NodeAddress) -> bool,
    ) {
        let mut lists = lock(&self.0);
        let Lists { free, waiting } = &mut *lists;
        if waiting.iter().any(Retired::is_unread) && !is_read_elsewhere() {
            let (unread, read) = std::mem::take(waiting)
                .into_iter()
                .partition(Retired::is_unread);
            *waiting = read;
            free.extend(extents_of(unread));
        }
        let is_ours = |run: &RunExtent| {
            let last = NodeAddress(run.first.0 + u64::from(run.count) - 1);
            may_overwrite(run.first) && may_overwrite(last)
        };
        free.retain(|run| run.first >= begin && is_ours(run));
        // The later a block lies, the later cleaning reaches it.
        free.sort_unstable_by_key(|run| run.first);
        free.dedup_by(|next, run| {
            let end = run.first.0 + u64::from(run.count);
            debug_assert!(end <= next.first.0, "a block was retired twice");
            let is_next = end == next.first.0;
            run.count += if is_next { next.count } else { 0 };
            is_next
        });
    }
}

fn extents_of(retired: Vec<Retired>) -> Vec<RunExtent> {
    let nodes = retired.into_iter().flat_map(|one| one.nodes);
    nodes.map(|first| RunExtent { first, count: 1 }).collect()
}
