//! Finding the one document that can have a key.
//!
//! A descent takes, in each tree, the piece of the key that the tree sees. It never
//! asks for a document's key: at most one document can have the key, and whoever reads
//! it compares. Skipped prefixes are compared as far as root nodes keep them.
//!
//! [`Lookup`] is the descent as a state machine, so that many lookups can send their
//! reads to the device together: feed it the node it asks for.

use cambium_base::Result;

use crate::node_store::{Node, NodeAddress, NodeReader};

use super::head::Kind;
use super::link::Link;
use super::options::TrieOptions;
use super::piece::View;
use super::trees::{self, Descent, Step};
use super::truncation;

/// Where a lookup is after a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It needs this node next.
    Node(NodeAddress),
    /// The only document that can have the key: read it, and compare its key.
    Document(u64),
    /// No document has the key.
    Missing,
}

/// One lookup under way.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    chunk_bytes: usize,
    address: NodeAddress,
    /// Where the tree that is entered next must begin at the earliest.
    start: usize,
    view: Option<View>,
    descent: Descent,
}

impl Lookup {
    /// Begins at the root of a trie.
    pub fn new(options: &TrieOptions, root: NodeAddress) -> Self {
        Lookup {
            chunk_bytes: options.chunk_bytes,
            address: root,
            start: 0,
            view: None,
            descent: Descent::default(),
        }
    }

    /// The node it needs.
    pub fn address(&self) -> NodeAddress {
        self.address
    }

    /// Looks for `key`, the same in every call, in the node that was asked for. Reads
    /// nothing; `reader` words the errors. Allocates only for suffixes that leaf trees
    /// cut.
    ///
    /// # Errors
    /// `Corruption` for a node that cannot be.
    pub fn feed<R: NodeReader + ?Sized>(
        &mut self,
        reader: &R,
        node: &Node,
        key: &[u8],
    ) -> Result<Progress> {
        let view = match self.view {
            Some(view) => view,
            None => {
                let head = trees::head_below(reader, self.address, node, self.start)?;
                if head.excludes(key, self.start) {
                    return Ok(Progress::Missing);
                }
                let view = trees::view(head, self.chunk_bytes, reader.node_bytes());
                *self.view.insert(view)
            }
        };
        let piece = view.piece(key);
        let step = if view.kind == Kind::Truncated {
            truncation::step(&mut self.descent, node, &piece)
        } else {
            self.descent.step(node, piece.as_bytes())
        };
        match step.map_err(|what| reader.corrupt(self.address, what))? {
            Step::Missing => Ok(Progress::Missing),
            Step::Child(address) => {
                self.address = address;
                Ok(Progress::Node(address))
            }
            Step::Found(bits) => match trees::link(reader, self.address, bits)? {
                Link::Document(document) => Ok(Progress::Document(document)),
                Link::Tree(root) => {
                    self.address = root;
                    self.start = view.end();
                    self.view = None;
                    self.descent = Descent::default();
                    Ok(Progress::Node(root))
                }
            },
        }
    }
}

/// The only document that can have a key, if any: at most one. The caller reads it and
/// compares the key.
///
/// # Errors
/// What the reader answers; `Corruption` for nodes that cannot be.
pub fn find<R: NodeReader + ?Sized>(
    reader: &R,
    options: &TrieOptions,
    root: NodeAddress,
    key: &[u8],
) -> Result<Option<u64>> {
    let mut lookup = Lookup::new(options, root);
    loop {
        let mut progress = Ok(Progress::Missing);
        reader.visit(lookup.address(), &mut |node| {
            progress = lookup.feed(reader, node, key);
        })?;
        match progress? {
            Progress::Node(_) => {}
            Progress::Document(document) => return Ok(Some(document)),
            Progress::Missing => return Ok(None),
        }
    }
}
