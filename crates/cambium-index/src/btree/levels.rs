//! Writing a tree from left to right: one open run a level.
//!
//! Batches and bulk loads both feed this, in key order, with two things:
//! single entries, and whole subtrees that stay as they are. Entries gather in
//! the run of the leaf level; when a subtree follows, the run is cut into
//! nodes, and each node becomes a child in the run of the level above; so up
//! to the root. No node is written before what follows it is known, so each
//! is written once:
//!
//! ```text
//!  level 2                 [ run: A' B  ]            children, kept or new
//!  level 1       [ run: c  d' ]                 <- subtree E (kept, level 1)
//!  level 0   [ run: entries ]              <- kept leaf, or entries
//! ```
//!
//! A run that is too small for a node when a subtree follows does not become
//! one: the subtree is opened (its node retired) and its beginning joins the
//! run, or the node to the left does, where that costs less. Only the
//! rightmost node of a level may stay small: appends fill it.
//!
//! Memory: a few nodes a level; a run that grows past that is written but for
//! its end.

use cambium_base::{Error, Result};

use crate::node_store::{NodeAddress, NodeWriter};

use super::cut::{Cutter, Separators};
use super::encode::{Gauge, NodeForm, encode, room};
use super::layout::MOST_LEVELS;
use super::node::{NodeView, read_node, view};
use super::options::{KeyLayout, TreeOptions};
use super::run::Run;

/// Nodes at the end of a long run that are not written yet, so that what
/// follows can still be shared out among them.
const NODES_HELD_BACK: usize = 3;

/// A run longer than this many nodes is looked at, and mostly written.
const LONG_RUN_NODES: usize = 12;

/// How the last runs are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RightEdge {
    /// Entries were appended: full nodes are left behind.
    Appended,
    /// Anything else.
    Mixed,
}

#[derive(Debug, Default)]
struct Level {
    /// Leaves: entries. Above: children under their lower bounds.
    run: Run,
    /// Leaves: the lower bound of the run. Above, it is the run's first key.
    low: Vec<u8>,
    /// Whether the run's last child is an old node, which may be opened.
    last_is_kept: bool,
    /// Raw bytes of the run from which on it is looked at as a long one.
    long_from: usize,
}

/// The open levels of a tree that is being written.
#[derive(Debug)]
pub(super) struct Levels {
    levels: Vec<Level>,
    node_bytes: usize,
    compressed: bool,
    separators: Separators,
    merge_below: usize,
    /// The old node that was pushed or opened last: where damage is reported.
    source: NodeAddress,
}

impl Levels {
    pub(super) fn new(options: &TreeOptions, node_bytes: usize) -> Self {
        Levels {
            levels: Vec::new(),
            node_bytes,
            compressed: options.prefix_compression,
            separators: Separators {
                shortest: options.prefix_compression,
                padded_to: match options.keys {
                    KeyLayout::Fixed(bytes) => Some(bytes),
                    KeyLayout::Variable => None,
                },
            },
            merge_below: options.merge_below(node_bytes),
            source: NodeAddress(0),
        }
    }

    fn form(&self, level: usize) -> NodeForm {
        NodeForm {
            level: level as u8,
            compressed: self.compressed,
        }
    }

    fn at(&mut self, level: usize) -> &mut Level {
        while self.levels.len() <= level {
            self.levels.push(Level {
                long_from: LONG_RUN_NODES * self.node_bytes,
                ..Level::default()
            });
        }
        &mut self.levels[level]
    }

    /// The entries that follow come out of an old leaf whose keys are all at or
    /// above `low`.
    pub(super) fn begin_leaf(&mut self, address: NodeAddress, low: &[u8]) {
        self.source = address;
        let leaves = self.at(0);
        if leaves.run.is_empty() {
            leaves.low.clear();
            leaves.low.extend_from_slice(low);
        }
    }

    /// An entry.
    pub(super) fn push_entry<W: NodeWriter + ?Sized>(
        &mut self,
        writer: &mut W,
        key: &[u8],
        value: u64,
    ) -> Result<()> {
        self.at(0).run.push(key, value);
        self.check_order(writer, 0)?;
        self.write_if_long(writer, 0)
    }

    /// Entries `start..end` of an old leaf.
    pub(super) fn push_entries<W: NodeWriter + ?Sized>(
        &mut self,
        writer: &mut W,
        leaf: &NodeView<'_>,
        start: usize,
        end: usize,
    ) -> Result<()> {
        for position in start..end {
            let run = &mut self.at(0).run;
            run.push_from(leaf, position, leaf.value(position));
            self.check_order(writer, 0)?;
        }
        self.write_if_long(writer, 0)
    }

    /// What damaged nodes hold out of order is never encoded again.
    fn check_order<W: NodeWriter + ?Sized>(&self, writer: &W, level: usize) -> Result<()> {
        if self.levels[level].run.ends_in_order() {
            return Ok(());
        }
        let what = format!("keys at or before this node are out of order on level {level}");
        Err(writer.corrupt(self.source, what))
    }

    fn push_child<W: NodeWriter + ?Sized>(
        &mut self,
        writer: &mut W,
        level: usize,
        low: &[u8],
        address: NodeAddress,
        kept: bool,
    ) -> Result<()> {
        if level > usize::from(MOST_LEVELS) {
            let what = format!("a tree of more than {MOST_LEVELS} levels");
            return Err(Error::LimitExceeded(what));
        }
        let parents = self.at(level);
        parents.run.push(low, address.0);
        parents.last_is_kept = kept;
        self.check_order(writer, level)?;
        self.write_if_long(writer, level)
    }

    /// A subtree that stays as it is: the node at `address` of `level`, whose
    /// keys are all at or above `low`.
    pub(super) fn push_subtree<W: NodeWriter + ?Sized>(
        &mut self,
        writer: &mut W,
        level: usize,
        low: &[u8],
        address: NodeAddress,
    ) -> Result<()> {
        self.source = address;
        for below in 0..=level {
            // Closing a run may begin the next one.
            if self.at(below).run.is_empty() {
                continue;
            }
            if self.is_small(below) {
                if below == level || !self.can_join_left(below) {
                    return self.open(writer, level, low, address);
                }
                self.join_left(writer, below)?;
            }
            self.close(writer, below)?;
        }
        self.push_child(writer, level + 1, low, address, true)
    }

    /// Whether the run of a level is too small for a node.
    fn is_small(&self, level: usize) -> bool {
        let run = &self.levels[level].run;
        // Compression aside, an entry has at least a byte of key or value.
        if run.len() > self.merge_below {
            return false;
        }
        let mut gauge = Gauge::new(self.form(level));
        (0..run.len()).all(|position| {
            gauge.push(run.key(position), run.value(position));
            gauge.bytes() < self.merge_below
        })
    }

    /// Takes an old node apart: its entries join the run of its level, or its
    /// children are pushed one by one.
    fn open<W: NodeWriter + ?Sized>(
        &mut self,
        writer: &mut W,
        level: usize,
        low: &[u8],
        address: NodeAddress,
    ) -> Result<()> {
        let node = read_node(writer, address, Some(level as u8))?;
        let node = view(writer, address, &node)?;
        writer.retire(address);
        if level == 0 {
            self.begin_leaf(address, low);
            return self.push_entries(writer, &node, 0, node.keys());
        }
        for position in 0..node.values() {
            let own_low = child_low(&node, position, low);
            self.push_subtree(writer, level - 1, &own_low, node.child(position))?;
        }
        Ok(())
    }

    fn can_join_left(&self, level: usize) -> bool {
        let parents = self.levels.get(level + 1);
        parents.is_some_and(|parents| parents.last_is_kept && !parents.run.is_empty())
    }

    /// Takes the old node to the left of a run apart and puts it before it.
    fn join_left<W: NodeWriter + ?Sized>(&mut self, writer: &mut W, level: usize) -> Result<()> {
        let parents = self.at(level + 1);
        parents.last_is_kept = false;
        let Some((low, address)) = parents.run.pop() else {
            return Ok(());
        };
        let address = NodeAddress(address);
        self.source = address;
        let node = read_node(writer, address, Some(level as u8))?;
        let node = view(writer, address, &node)?;
        writer.retire(address);
        let behind = std::mem::take(&mut self.at(level).run);
        for position in 0..node.values() {
            let run = &mut self.at(level).run;
            if level == 0 {
                run.push_from(&node, position, node.value(position));
            } else {
                run.push(&child_low(&node, position, &low), node.value(position));
            }
            self.check_order(writer, level)?;
        }
        // The order where the two meet is seen with the first of the second.
        let meet = self.at(level).run.len();
        self.at(level).run.append(&behind);
        let run = &self.levels[level].run;
        if meet < run.len() && run.key(meet - 1) >= run.key(meet) {
            let what = "keys of neighbouring nodes overlap".to_string();
            return Err(writer.corrupt(address, what));
        }
        self.at(level).low = low;
        Ok(())
    }

    /// Cuts the run of a level into nodes about equally full.
    fn close<W: NodeWriter + ?Sized>(&mut self, writer: &mut W, level: usize) -> Result<()> {
        let ends = self.cutter(level, 0).even(&self.levels[level].run);
        self.write(writer, level, &ends)
    }

    fn cutter(&self, level: usize, metadata_bytes: usize) -> Cutter {
        Cutter {
            form: self.form(level),
            capacity: room(self.node_bytes) - metadata_bytes,
        }
    }

    /// Writes the nodes of a run that end at `ends`, and keeps what follows.
    fn write<W: NodeWriter + ?Sized>(
        &mut self,
        writer: &mut W,
        level: usize,
        ends: &[usize],
    ) -> Result<()> {
        let mut run = std::mem::take(&mut self.at(level).run);
        let mut low = if level == 0 {
            std::mem::take(&mut self.at(0).low)
        } else {
            run.key(0).to_vec()
        };
        let mut start = 0;
        for &end in ends {
            let form = self.form(level);
            let node = encode(form, &run, (start, end), &[], self.node_bytes)?;
            let address = writer.append(node)?;
            self.push_child(writer, level + 1, &low, address, false)?;
            if end < run.len() {
                low = if level == 0 {
                    self.separators.between(run.key(end - 1), run.key(end))
                } else {
                    run.key(end).to_vec()
                };
            }
            start = end;
        }
        if start == run.len() {
            run.clear();
        } else {
            run.drop_front(start);
        }
        let own = self.at(level);
        own.run = run;
        own.low = low;
        own.last_is_kept &= !own.run.is_empty();
        Ok(())
    }

    /// Keeps runs short: all but the last nodes of a long one are written.
    fn write_if_long<W: NodeWriter + ?Sized>(
        &mut self,
        writer: &mut W,
        level: usize,
    ) -> Result<()> {
        if self.levels[level].run.raw_bytes() < self.levels[level].long_from {
            return Ok(());
        }
        let ends = self.cutter(level, 0).full(&self.levels[level].run);
        let written = ends.len().saturating_sub(NODES_HELD_BACK);
        if written > 0 {
            self.write(writer, level, &ends[..written])?;
        }
        // What keys share may let many more into a node than raw bytes say.
        let rest = self.levels[level].run.raw_bytes();
        self.levels[level].long_from = (4 * rest).max(LONG_RUN_NODES * self.node_bytes);
        Ok(())
    }

    /// Nothing follows: writes the open runs, and the root with its metadata.
    /// `None` if there is no entry.
    pub(super) fn finish<W: NodeWriter + ?Sized>(
        mut self,
        writer: &mut W,
        metadata: &[u8],
        edge: RightEdge,
    ) -> Result<Option<NodeAddress>> {
        let mut level = 0;
        while level < self.levels.len() {
            if self.levels[level].run.is_empty() {
                level += 1;
                continue;
            }
            if self.is_small(level) && self.can_join_left(level) {
                self.join_left(writer, level)?;
            }
            let above = &self.levels[level + 1..];
            let is_top = above.iter().all(|above| above.run.is_empty());
            if !is_top {
                self.close_right(writer, level, 0, edge)?;
                level += 1;
                continue;
            }
            if level > 0 && self.levels[level].run.len() == 1 {
                // A tree that shrank: the only child takes the root's place.
                level -= 1;
                if let Some(root) = self.adopt(writer, level, metadata)? {
                    return Ok(Some(root));
                }
                continue;
            }
            if let Some(root) = self.write_root(writer, level, metadata)? {
                return Ok(Some(root));
            }
            self.close_right(writer, level, metadata.len(), edge)?;
            level += 1;
        }
        Ok(None)
    }

    fn close_right<W: NodeWriter + ?Sized>(
        &mut self,
        writer: &mut W,
        level: usize,
        metadata_bytes: usize,
        edge: RightEdge,
    ) -> Result<()> {
        let cutter = self.cutter(level, metadata_bytes);
        let run = &self.levels[level].run;
        let ends = match edge {
            RightEdge::Appended => cutter.full(run),
            RightEdge::Mixed => cutter.even(run),
        };
        self.write(writer, level, &ends)
    }

    /// The only child of a level above `level`: the root, if its metadata is
    /// what it shall be, else opened.
    fn adopt<W: NodeWriter + ?Sized>(
        &mut self,
        writer: &mut W,
        level: usize,
        metadata: &[u8],
    ) -> Result<Option<NodeAddress>> {
        let address = NodeAddress(self.levels[level + 1].run.value(0));
        let node = read_node(writer, address, Some(level as u8))?;
        if view(writer, address, &node)?.metadata() == metadata {
            return Ok(Some(address));
        }
        self.join_left(writer, level)?;
        Ok(None)
    }

    /// The run of the top level as one node, if it fits beside the metadata.
    fn write_root<W: NodeWriter + ?Sized>(
        &self,
        writer: &mut W,
        level: usize,
        metadata: &[u8],
    ) -> Result<Option<NodeAddress>> {
        let run = &self.levels[level].run;
        let capacity = room(self.node_bytes) - metadata.len();
        let mut gauge = Gauge::new(self.form(level));
        for position in 0..run.len() {
            gauge.push(run.key(position), run.value(position));
            if gauge.bytes() > capacity {
                return Ok(None);
            }
        }
        let whole = (0, run.len());
        let node = encode(self.form(level), run, whole, metadata, self.node_bytes)?;
        writer.append(node).map(Some)
    }
}

/// The lower bound of child `position` of an index node whose own is `low`.
pub(super) fn child_low(node: &NodeView<'_>, position: usize, low: &[u8]) -> Vec<u8> {
    match position.checked_sub(1) {
        Some(separator) => node.key(separator),
        None => low.to_vec(),
    }
}
