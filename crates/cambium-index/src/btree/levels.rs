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
//! run, or the node to the left does, where that costs less. So does a run that
//! is a little too large for one node. Only the
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

/// How a run fits into nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Too little for a node.
    Small,
    /// One node.
    One,
    /// Little more than one node: cut, it would make two that are half empty.
    /// With an old neighbour it makes two or three that are not (the B*-tree:
    /// Knuth, volume 3, section 6.2.4), so that nodes stay about three quarters
    /// full under random insertions.
    TwoHalves,
    /// More.
    Many,
}

impl Fit {
    /// Whether the run shall be joined with a neighbour before it is cut.
    fn wants_company(self) -> bool {
        matches!(self, Fit::Small | Fit::TwoHalves)
    }
}

#[derive(Debug, Default)]
pub(super) struct Level {
    /// Leaves: entries. Above: children under their lower bounds.
    pub(super) run: Run,
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
    pub(super) levels: Vec<Level>,
    pub(super) node_bytes: usize,
    compressed: bool,
    separators: Separators,
    merge_below: usize,
    /// A leaf that stands before what follows, under its lower bound, not
    /// appended yet: if nothing follows, it has to become the root. While there
    /// is one, the run of the leaves is empty.
    pub(super) placed: Option<(Vec<u8>, Vec<u8>)>,
    /// The old node that was pushed or opened last: where damage is reported.
    pub(super) source: NodeAddress,
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
            placed: None,
            source: NodeAddress(0),
        }
    }

    pub(super) fn form(&self, level: usize) -> NodeForm {
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
        self.append_placed(writer)?;
        let run = &mut self.at(0).run;
        run.push(key, value);
        let last = run.len() - 1;
        self.check_order(writer, 0, last)?;
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
        if start >= end {
            return Ok(());
        }
        self.append_placed(writer)?;
        let run = &mut self.at(0).run;
        let meet = run.len();
        run.extend_from_leaf(leaf, start, end);
        self.check_order(writer, 0, meet)?;
        self.write_if_long(writer, 0)
    }

    /// Nodes of a damaged tree may overlap, or be reached twice: seen where
    /// what they hold meets, at key `position` of a run.
    fn check_order<W: NodeWriter + ?Sized>(
        &self,
        writer: &W,
        level: usize,
        position: usize,
    ) -> Result<()> {
        if self.levels[level].run.is_in_order_at(position) {
            return Ok(());
        }
        let what = format!("keys at or before this node are out of order on level {level}");
        Err(writer.corrupt(self.source, what))
    }

    /// Whether a whole leaf may follow: no entries are pending that are too few
    /// for a node.
    pub(super) fn takes_leaf(&mut self) -> bool {
        self.at(0).run.is_empty() || !self.fit(0).wants_company()
    }

    /// A new leaf whose content is ready, where [`Levels::takes_leaf`].
    pub(super) fn place_leaf<W: NodeWriter + ?Sized>(
        &mut self,
        writer: &mut W,
        low: &[u8],
        content: Vec<u8>,
    ) -> Result<()> {
        self.append_placed(writer)?;
        if !self.at(0).run.is_empty() {
            self.close(writer, 0, Fit::Many)?;
        }
        self.placed = Some((low.to_vec(), content));
        Ok(())
    }

    /// Something follows a leaf that was placed, so it is not the root.
    pub(super) fn append_placed<W: NodeWriter + ?Sized>(&mut self, writer: &mut W) -> Result<()> {
        let Some((low, content)) = self.placed.take() else {
            return Ok(());
        };
        let address = writer.append(content)?;
        self.push_child(writer, 1, &low, address, false)
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
        let last = parents.run.len() - 1;
        self.check_order(writer, level, last)?;
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
        self.append_placed(writer)?;
        for below in 0..=level {
            // Closing a run may begin the next one.
            if self.at(below).run.is_empty() {
                continue;
            }
            let mut fit = self.fit(below);
            let joins_right = below == level || (fit == Fit::Small && !self.can_join_left(below));
            if fit.wants_company() && joins_right {
                return self.open(writer, level, low, address);
            }
            if fit.wants_company() && self.can_join_left(below) {
                self.join_left(writer, below)?;
                fit = Fit::Many;
            }
            self.close(writer, below, fit)?;
        }
        self.push_child(writer, level + 1, low, address, true)
    }

    /// How the run of a level fits into nodes.
    pub(super) fn fit(&self, level: usize) -> Fit {
        let run = &self.levels[level].run;
        let room = room(self.node_bytes);
        let mut gauge = Gauge::new(self.form(level));
        for position in 0..run.len() {
            gauge.push(run.key(position), run.value(position));
            if gauge.bytes() > room + room / 5 {
                return Fit::Many;
            }
        }
        match gauge.bytes() {
            bytes if bytes > room => Fit::TwoHalves,
            bytes if bytes < self.merge_below => Fit::Small,
            _ => Fit::One,
        }
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

    pub(super) fn can_join_left(&self, level: usize) -> bool {
        let parents = self.levels.get(level + 1);
        parents.is_some_and(|parents| parents.last_is_kept && !parents.run.is_empty())
    }

    /// Takes the old node to the left of a run apart and puts it before it.
    pub(super) fn join_left<W: NodeWriter + ?Sized>(
        &mut self,
        writer: &mut W,
        level: usize,
    ) -> Result<()> {
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
        let run = &mut self.at(level).run;
        if level == 0 {
            run.extend_from_leaf(&node, 0, node.keys());
        } else {
            for position in 0..node.values() {
                run.push(&child_low(&node, position, &low), node.value(position));
            }
        }
        let meet = run.len();
        run.append(&behind);
        self.check_order(writer, level, meet)?;
        self.at(level).low = low;
        Ok(())
    }

    /// Cuts the run of a level into nodes about equally full.
    fn close<W: NodeWriter + ?Sized>(
        &mut self,
        writer: &mut W,
        level: usize,
        fit: Fit,
    ) -> Result<()> {
        let run = &self.levels[level].run;
        let ends = match fit {
            Fit::Small | Fit::One => vec![run.len()],
            Fit::TwoHalves | Fit::Many => self.cutter(level, 0).even(run),
        };
        self.write(writer, level, &ends)
    }

    pub(super) fn cutter(&self, level: usize, metadata_bytes: usize) -> Cutter {
        Cutter {
            form: self.form(level),
            capacity: room(self.node_bytes) - metadata_bytes,
        }
    }

    /// Writes the nodes of a run that end at `ends`, and keeps what follows.
    pub(super) fn write<W: NodeWriter + ?Sized>(
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
}

/// The lower bound of child `position` of an index node whose own is `low`.
pub(super) fn child_low(node: &NodeView<'_>, position: usize, low: &[u8]) -> Vec<u8> {
    match position.checked_sub(1) {
        Some(separator) => node.key(separator),
        None => low.to_vec(),
    }
}
