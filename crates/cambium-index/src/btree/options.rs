//! What a tree is told when it is written, and the limits that follow.
//!
//! Nodes describe themselves: nothing here is needed to read a tree.

use cambium_base::{Error, Result};

use super::encode::room;

/// What keys a tree takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLayout {
    /// All keys have this many bytes.
    Fixed(usize),
    /// Keys of any length up to [`max_key_bytes`], the empty one included.
    Variable,
}

/// How a tree is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeOptions {
    /// What keys the tree takes.
    pub keys: KeyLayout,
    /// On: the prefix B+-tree (Bayer and Unterauer 1977; ForestDB 2016,
    /// section 2.1): leaves leave out what their keys share, index nodes hold
    /// the shortest separators, values are as narrow as they can be. Off: the
    /// plain B+-tree: whole keys everywhere, pointers of 8 bytes.
    pub prefix_compression: bool,
    /// A node that a batch leaves with less than this share of its room,
    /// in percent, is merged with a neighbour. 0 to 50; more merges keep the
    /// tree smaller and cost nodes read and written while keys are deleted.
    pub merge_below_percent: u8,
}

impl TreeOptions {
    /// A prefix B+-tree that merges nodes below a third.
    pub fn new(keys: KeyLayout) -> Self {
        TreeOptions {
            keys,
            prefix_compression: true,
            merge_below_percent: 33,
        }
    }

    /// The paper's plain B+-tree.
    pub fn plain(keys: KeyLayout) -> Self {
        TreeOptions {
            prefix_compression: false,
            ..TreeOptions::new(keys)
        }
    }

    /// Sees that a tree can be made of nodes of `node_bytes`.
    pub(super) fn validate(&self, node_bytes: usize, metadata: &[u8]) -> Result<()> {
        if !node_bytes.is_power_of_two() || !(512..=65_536).contains(&node_bytes) {
            return Err(Error::InvalidArgument(format!(
                "nodes of {node_bytes} bytes: expected a power of two from 512 to 65,536"
            )));
        }
        if self.merge_below_percent > 50 {
            return Err(Error::InvalidArgument(format!(
                "merge_below_percent={}: expected 0 to 50",
                self.merge_below_percent
            )));
        }
        let most = max_metadata_bytes(node_bytes);
        if metadata.len() > most {
            return Err(Error::LimitExceeded(format!(
                "metadata of {} bytes; a tree of nodes of {node_bytes} bytes keeps up to {most}",
                metadata.len()
            )));
        }
        match self.keys {
            KeyLayout::Fixed(bytes) => check_limit(bytes, node_bytes),
            KeyLayout::Variable => Ok(()),
        }
    }

    /// Bytes in use below which a node is small.
    pub(super) fn merge_below(&self, node_bytes: usize) -> usize {
        room(node_bytes) * usize::from(self.merge_below_percent) / 100
    }

    /// Sees that the tree can take a key.
    pub(super) fn check_key(&self, key: &[u8], node_bytes: usize) -> Result<()> {
        match self.keys {
            KeyLayout::Fixed(bytes) if key.len() != bytes => Err(Error::InvalidArgument(format!(
                "a key of {} bytes for a tree whose keys have {bytes}",
                key.len()
            ))),
            KeyLayout::Fixed(_) => Ok(()),
            KeyLayout::Variable => check_limit(key.len(), node_bytes),
        }
    }
}

fn check_limit(key_bytes: usize, node_bytes: usize) -> Result<()> {
    let most = max_key_bytes(node_bytes);
    if key_bytes > most {
        return Err(Error::LimitExceeded(format!(
            "a tree key of {key_bytes} bytes; nodes of {node_bytes} bytes hold keys up to {most}"
        )));
    }
    Ok(())
}

/// The longest key of a tree with nodes of `node_bytes`: a quarter of a node,
/// so that every index node has at least three children.
///
/// ```
/// assert_eq!(cambium_index::btree::max_key_bytes(4096), 1024);
/// ```
pub fn max_key_bytes(node_bytes: usize) -> usize {
    node_bytes / 4
}

/// The longest metadata of a tree with nodes of `node_bytes`.
pub fn max_metadata_bytes(node_bytes: usize) -> usize {
    node_bytes / 4
}
