//! Looking at all of a tree: every invariant, and its statistics.
//!
//! What must hold:
//!
//! 1. Every node parses, and its rests are used up exactly.
//! 2. Levels fall by one from parent to child; so no node is its own ancestor.
//! 3. Keys and separators ascend strictly within a node, and lie within the
//!    bounds that the separators above set; so each leaf entry is found by
//!    search, and entries ascend over the whole tree.
//! 4. In a tree of fixed-length keys, every key has that length.
//! 5. Only the root has metadata.
//!
//! Fill is statistics and not an invariant: a node next to one with which it
//! shares no prefix may have to stay small.

use cambium_base::{Error, Result};

use crate::node_store::{NodeAddress, NodeReader};

use super::encode::room;
use super::node::{NodeView, read_node, view};
use super::options::{KeyLayout, TreeOptions};

/// Something that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The node that says so.
    pub node: NodeAddress,
    /// What was found and what was expected.
    pub what: String,
}

/// The shape of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Nodes by level, leaves first; its length is the tree's height.
    pub nodes_by_level: Vec<u64>,
    /// Bytes in use in them, by level, headers included and trailers not.
    pub used_bytes_by_level: Vec<u64>,
    /// Nodes below the merge threshold that are neither the root nor the last
    /// of their level.
    pub small_nodes: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes of every node.
    pub node_bytes: u64,
}

impl Statistics {
    /// Levels from the root to the leaves, both counted; 0 without entries.
    pub fn height(&self) -> usize {
        self.nodes_by_level.len()
    }

    /// All nodes.
    pub fn nodes(&self) -> u64 {
        self.nodes_by_level.iter().sum()
    }

    /// Bytes of all nodes on the device.
    pub fn bytes(&self) -> u64 {
        self.nodes() * self.node_bytes
    }

    /// Bytes in use in all nodes.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes_by_level.iter().sum()
    }

    /// Share of the nodes' room that is in use, 0 to 1.
    pub fn occupancy(&self) -> f64 {
        let room = room(self.node_bytes as usize) as f64 * self.nodes() as f64;
        if room == 0.0 {
            return 0.0;
        }
        self.used_bytes() as f64 / room
    }
}

/// What [`check`] saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What cannot be; empty for a sound tree.
    pub findings: Vec<Finding>,
    /// The shape of what could be read.
    pub statistics: Statistics,
}

/// Reads every node of the tree under `root`, hands its entries to `visit` in
/// key order, and reports what does not hold. Damage is a finding, and what
/// lies under a damaged node is left out.
///
/// # Errors
/// What the reader answers but `Corruption`, and what `visit` answers.
pub fn check<R: NodeReader + ?Sized>(
    reader: &R,
    options: &TreeOptions,
    root: Option<NodeAddress>,
    visit: &mut dyn FnMut(&[u8], u64) -> Result<()>,
) -> Result<Report> {
    let mut check = Check {
        reader,
        options,
        visit,
        report: Report::default(),
        last_key: None,
    };
    check.report.statistics.node_bytes = reader.node_bytes() as u64;
    if let Some(root) = root {
        let bounds = Bounds {
            low: &[],
            high: None,
        };
        check.node(root, None, bounds)?;
    }
    Ok(check.report)
}

/// The keys that may lie under a node: at or above, and below.
#[derive(Clone, Copy)]
struct Bounds<'a> {
    low: &'a [u8],
    high: Option<&'a [u8]>,
}

struct Check<'c, R: ?Sized> {
    reader: &'c R,
    options: &'c TreeOptions,
    visit: &'c mut dyn FnMut(&[u8], u64) -> Result<()>,
    report: Report,
    /// The entry before: a damaged tree may reach a leaf twice.
    last_key: Option<Vec<u8>>,
}

impl<R: NodeReader + ?Sized> Check<'_, R> {
    fn find(&mut self, node: NodeAddress, what: String) {
        self.report.findings.push(Finding { node, what });
    }

    /// Depth is bounded by [`MOST_LEVELS`](super::layout::MOST_LEVELS): levels
    /// fall with every call.
    fn node(&mut self, address: NodeAddress, level: Option<u8>, bounds: Bounds<'_>) -> Result<()> {
        let node = match read_node(self.reader, address, level) {
            Err(Error::Corruption { what, .. }) => {
                self.find(address, what);
                return Ok(());
            }
            node => node?,
        };
        let node = view(self.reader, address, &node)?;
        self.count(&node, level.is_none() || bounds.high.is_none());
        if !node.metadata().is_empty() && level.is_some() {
            self.find(address, "metadata in a node that is no root".to_string());
        }
        if !node.ends_are_sound() {
            let what = "the ends of its keys' rests do not ascend to their sum".to_string();
            self.find(address, what);
            return Ok(());
        }
        let keys: Vec<Vec<u8>> = (0..node.keys())
            .map(|position| node.key(position))
            .collect();
        let findings = self.report.findings.len();
        self.keys(address, &keys, bounds);
        if self.report.findings.len() > findings {
            return Ok(());
        }
        if node.level() > 0 {
            self.children(&node, &keys, bounds)
        } else {
            self.entries(address, &node, keys)
        }
    }

    fn count(&mut self, node: &NodeView<'_>, may_be_small: bool) {
        let statistics = &mut self.report.statistics;
        let level = usize::from(node.level());
        if statistics.nodes_by_level.len() <= level {
            statistics.nodes_by_level.resize(level + 1, 0);
            statistics.used_bytes_by_level.resize(level + 1, 0);
        }
        statistics.nodes_by_level[level] += 1;
        statistics.used_bytes_by_level[level] += node.used_bytes() as u64;
        let least = self.options.merge_below(self.reader.node_bytes());
        if !may_be_small && node.used_bytes() < least {
            statistics.small_nodes += 1;
        }
    }

    fn keys(&mut self, address: NodeAddress, keys: &[Vec<u8>], bounds: Bounds<'_>) {
        let pairs = keys.iter().zip(keys.iter().skip(1));
        if let Some((before, behind)) = pairs.clone().find(|(before, behind)| before >= behind) {
            let what = format!("key {before:02x?} stands before {behind:02x?}");
            self.find(address, what);
        }
        let outside = |key: &&Vec<u8>| {
            key.as_slice() < bounds.low || bounds.high.is_some_and(|high| key.as_slice() >= high)
        };
        if let Some(key) = keys.iter().find(outside) {
            let what = format!(
                "key {key:02x?} lies outside the bounds {:02x?} to {:02x?}",
                bounds.low, bounds.high
            );
            self.find(address, what);
        }
        if let KeyLayout::Fixed(bytes) = self.options.keys {
            if let Some(key) = keys.iter().find(|key| key.len() != bytes) {
                let what = format!("a key of {} bytes, expected {bytes}", key.len());
                self.find(address, what);
            }
        }
    }

    fn children(
        &mut self,
        node: &NodeView<'_>,
        keys: &[Vec<u8>],
        bounds: Bounds<'_>,
    ) -> Result<()> {
        for position in 0..node.values() {
            let low = position
                .checked_sub(1)
                .map(|before| keys[before].as_slice());
            let own = Bounds {
                low: low.unwrap_or(bounds.low),
                high: keys.get(position).map(Vec::as_slice).or(bounds.high),
            };
            self.node(node.child(position), Some(node.level() - 1), own)?;
        }
        Ok(())
    }

    fn entries(
        &mut self,
        address: NodeAddress,
        node: &NodeView<'_>,
        keys: Vec<Vec<u8>>,
    ) -> Result<()> {
        if self.last_key.as_ref() >= keys.first() {
            let what = "its first key is not behind the last one of the leaf before".to_string();
            self.find(address, what);
            return Ok(());
        }
        for (position, key) in keys.iter().enumerate() {
            (self.visit)(key, node.value(position))?;
        }
        self.report.statistics.entries += keys.len() as u64;
        self.last_key = keys.into_iter().next_back();
        Ok(())
    }
}
