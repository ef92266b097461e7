//! The end of writing a tree: its right edge, and its root.
//!
//! Nothing follows, so the open runs become the last nodes of their levels.
//! The first level that is all in one node is the root. A tree may have become
//! lower: where a level has an only child, that child takes the root's place.

use cambium_base::Result;

use crate::node_store::{NodeAddress, NodeWriter};

use super::encode::{Gauge, encode, room};
use super::levels::{Fit, Levels};
use super::node::{NodeView, read_node, view};

/// How the last runs are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RightEdge {
    /// Entries were appended: full nodes are left behind.
    Appended,
    /// Anything else.
    Mixed,
}

impl Levels {
    /// Nothing follows: writes the open runs, and the root with its metadata.
    /// `None` if there is no entry.
    pub(super) fn finish<W: NodeWriter + ?Sized>(
        mut self,
        writer: &mut W,
        metadata: &[u8],
        edge: RightEdge,
    ) -> Result<Option<NodeAddress>> {
        if let Some(root) = self.finish_placed(writer, metadata)? {
            return Ok(Some(root));
        }
        let mut level = 0;
        while level < self.levels.len() {
            if self.levels[level].run.is_empty() {
                level += 1;
                continue;
            }
            if self.can_join_left(level) && self.wants_left(level, edge) {
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

    /// A leaf that was placed last: the root, if there is nothing else and its
    /// metadata is what it shall be; else the last leaf, or entries again.
    fn finish_placed<W: NodeWriter + ?Sized>(
        &mut self,
        writer: &mut W,
        metadata: &[u8],
    ) -> Result<Option<NodeAddress>> {
        if self.levels.iter().any(|level| !level.run.is_empty()) {
            self.append_placed(writer)?;
            return Ok(None);
        }
        let Some((low, content)) = self.placed.take() else {
            return Ok(None);
        };
        let leaf = NodeView::parse(&content).map_err(|what| writer.corrupt(self.source, what))?;
        if leaf.metadata() == metadata {
            return writer.append(content).map(Some);
        }
        self.begin_leaf(self.source, &low);
        self.push_entries(writer, &leaf, 0, leaf.keys())?;
        Ok(None)
    }

    /// Whether the last run of a level shall join the old node before it.
    fn wants_left(&self, level: usize, edge: RightEdge) -> bool {
        match self.fit(level) {
            Fit::Small => true,
            // What is appended fills the last node; the old one is full.
            Fit::TwoHalves => edge == RightEdge::Mixed,
            Fit::One | Fit::Many => false,
        }
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
