//! Where tree nodes come from and go to.
//!
//! The trees of this crate are append-only: a node is never changed, a changed
//! node is appended again under a new address, and with it every node above it
//! (copy on write; ForestDB 2016, section 2.3 and figure 3). They know no file:
//! they ask a [`NodeReader`] for nodes and hand new ones to a [`NodeWriter`].
//!
//! A node is one fixed-size block of [`NodeReader::node_bytes`] bytes. Its
//! checksum and its own address are the node store's business: the last
//! [`NODE_TRAILER_BYTES`] of every block belong to it, and a node that comes
//! out of [`NodeReader::read`] has been verified. What a *verified* node says is
//! still not believed blindly: a decoder answers `Error::Corruption` for what
//! cannot be, and a descent is bounded, so that a node that points at its
//! ancestor ends in an error and not in a loop.

use std::sync::Arc;

use cambium_base::{Error, Result};

/// Bytes at the end of every node that the node store keeps for its checksum
/// and for the node's own identity.
pub const NODE_TRAILER_BYTES: usize = 16;

/// Where a node lies, in units of the node store's choosing (block numbers in
/// a file). Never 0; at most 2^56 - 1, so that an index may keep a byte of its
/// own beside it in 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAddress(pub u64);

impl NodeAddress {
    /// The largest address.
    pub const MAX: NodeAddress = NodeAddress((1 << 56) - 1);
}

/// A verified node, shared with the cache that holds it.
pub type Node = Arc<[u8]>;

/// Reads nodes.
pub trait NodeReader: Send + Sync {
    /// Bytes of every node, a power of two from 512 to 65,536, trailer included.
    fn node_bytes(&self) -> usize;

    /// A node, from a cache or by one read, verified.
    ///
    /// # Errors
    /// `Corruption` if the block is not the node of that address; `Io`.
    fn read(&self, address: NodeAddress) -> Result<Node>;

    /// Looks into a node where it lies, without a reference of its own: what a
    /// descent does with each. `look` is called once if the answer is `Ok`, and
    /// must not read.
    ///
    /// # Errors
    /// As [`NodeReader::read`].
    fn visit(&self, address: NodeAddress, look: &mut dyn FnMut(&Node)) -> Result<()> {
        look(&self.read(address)?);
        Ok(())
    }

    /// Several nodes; those that are not cached go to the device together.
    fn read_many(&self, addresses: &[NodeAddress]) -> Result<Vec<Node>> {
        addresses
            .iter()
            .map(|&address| self.read(address))
            .collect()
    }

    /// The error for a verified node that says what cannot be.
    fn corrupt(&self, address: NodeAddress, what: String) -> Error;
}

/// Appends nodes, and learns which ones a new root no longer reaches.
pub trait NodeWriter: NodeReader {
    /// Appends a node; `content` is [`NodeReader::node_bytes`] long, its last
    /// [`NODE_TRAILER_BYTES`] free. It can be read at once under the answer.
    fn append(&mut self, content: Vec<u8>) -> Result<NodeAddress>;

    /// The node is not part of the tree any more that this writer is making.
    /// Older roots may still reach it: nothing is freed, only counted.
    fn retire(&mut self, address: NodeAddress);
}

/// Nodes in memory: for tests, examples and measurements of shape.
#[derive(Debug)]
pub struct MemoryNodes {
    node_bytes: usize,
    nodes: Vec<Node>,
    live: u64,
}

impl MemoryNodes {
    /// No nodes yet.
    pub fn new(node_bytes: usize) -> Self {
        MemoryNodes {
            node_bytes,
            nodes: Vec::new(),
            live: 0,
        }
    }

    /// Nodes appended so far.
    pub fn appended(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// Nodes appended and not retired since.
    pub fn live(&self) -> u64 {
        self.live
    }
}

impl NodeReader for MemoryNodes {
    fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    fn read(&self, address: NodeAddress) -> Result<Node> {
        let index = usize::try_from(address.0).unwrap_or(usize::MAX);
        let node = index.checked_sub(1).and_then(|at| self.nodes.get(at));
        node.cloned()
            .ok_or_else(|| self.corrupt(address, "there is no such node".to_string()))
    }

    fn corrupt(&self, address: NodeAddress, what: String) -> Error {
        Error::Corruption {
            file: "nodes in memory".into(),
            offset: address.0.saturating_mul(self.node_bytes as u64),
            what,
        }
    }
}

impl NodeWriter for MemoryNodes {
    fn append(&mut self, content: Vec<u8>) -> Result<NodeAddress> {
        assert_eq!(content.len(), self.node_bytes, "a node fills its block");
        self.nodes.push(content.into());
        self.live += 1;
        Ok(NodeAddress(self.nodes.len() as u64))
    }

    fn retire(&mut self, _: NodeAddress) {
        self.live -= 1;
    }
}
