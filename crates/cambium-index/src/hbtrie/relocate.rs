//! A trie in another place: the same keys, documents with other numbers.
//!
//! A trie does not hold whole keys, so one that is made anew of its documents needs them
//! read. Where only their numbers change, as when a compaction has brought them into
//! another file, that is not so: each B+-tree is made anew of the entries that it has,
//! with other values, sub-trees first. No document is read. What several tries share
//! they share in the new place too.

use std::collections::HashMap;

use cambium_base::{Error, Result};

use crate::btree::Building;
use crate::node_store::{Node, NodeAddress, NodeReader, NodeWriter};

use super::head::OwnedHead;
use super::link::{Link, encode_document, is_marked};
use super::options::TrieOptions;
use super::trees::{self, TreeCursor};

/// Tries and sub-trees that were relocated, and where to.
#[derive(Debug, Default)]
pub struct Relocated(HashMap<NodeAddress, NewPlace>);

/// Where a trie is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPlace {
    /// Its root.
    pub root: NodeAddress,
    /// Its nodes, those that it shares with others included.
    pub nodes: u64,
}

/// A trie on its way, some entries at a time.
#[derive(Debug)]
pub struct Relocation {
    options: TrieOptions,
    /// Trees that are begun, each below the one before it.
    open: Vec<Tree>,
    root: NodeAddress,
}

#[derive(Debug)]
struct Tree {
    root: NodeAddress,
    /// What trees below it see begins here at the earliest.
    below: usize,
    cursor: TreeCursor,
    made: Building,
    /// Nodes that it has by now, those of sub-trees included.
    nodes: u64,
}

/// Counts what is appended.
struct Counting<'w, W: ?Sized> {
    writer: &'w mut W,
    appended: u64,
}

impl<W: NodeWriter + ?Sized> NodeReader for Counting<'_, W> {
    fn node_bytes(&self) -> usize {
        self.writer.node_bytes()
    }

    fn read(&self, address: NodeAddress) -> Result<Node> {
        self.writer.read(address)
    }

    fn corrupt(&self, address: NodeAddress, what: String) -> Error {
        self.writer.corrupt(address, what)
    }
}

impl<W: NodeWriter + ?Sized> NodeWriter for Counting<'_, W> {
    fn append(&mut self, content: Vec<u8>) -> Result<NodeAddress> {
        self.appended += 1;
        self.writer.append(content)
    }

    fn retire(&mut self, address: NodeAddress) {
        self.writer.retire(address);
    }
}

impl Relocation {
    /// Of the trie under `root`.
    pub fn new(options: &TrieOptions, root: NodeAddress) -> Self {
        Relocation {
            options: *options,
            open: Vec::new(),
            root,
        }
    }

    /// Takes about so many entries over; answers the new place when all are. `reader` has
    /// the old nodes, `writer` appends the new ones, `document` answers the new number of
    /// a document.
    ///
    /// # Errors
    /// `Corruption` of the old nodes; what reader, writer and `document` answer.
    pub fn step<R: NodeReader + ?Sized, W: NodeWriter + ?Sized>(
        &mut self,
        reader: &R,
        writer: &mut W,
        relocated: &mut Relocated,
        document: &mut dyn FnMut(u64) -> Result<u64>,
        entries: usize,
    ) -> Result<Option<NewPlace>> {
        if let Some(&to) = relocated.0.get(&self.root) {
            return Ok(Some(to));
        }
        if self.open.is_empty() {
            self.open(reader, self.root, 0)?;
        }
        let mut writer = Counting {
            writer,
            appended: 0,
        };
        for _ in 0..entries {
            let Some(tree) = self.open.last_mut() else {
                break;
            };
            let Some((key, bits)) = tree.cursor.entry() else {
                self.close(reader, &mut writer, relocated)?;
                continue;
            };
            let value = match trees::link(reader, tree.root, bits)? {
                Link::Document(old) => encode_document(document(old)?, is_marked(bits)),
                Link::Tree(old) => match relocated.0.get(&old) {
                    Some(to) => {
                        tree.nodes += to.nodes;
                        Link::Tree(to.root).encode()
                    }
                    None => {
                        let below = tree.below;
                        self.open(reader, old, below)?;
                        continue;
                    }
                },
            };
            tree.made.push(&mut writer, key, value)?;
            tree.nodes += std::mem::take(&mut writer.appended);
            tree.cursor.next(reader)?;
        }
        Ok(relocated.0.get(&self.root).copied())
    }

    /// Begins with a tree that hangs where the one above it sees no further.
    fn open<R: NodeReader + ?Sized>(
        &mut self,
        reader: &R,
        root: NodeAddress,
        start: usize,
    ) -> Result<()> {
        let node = reader.read(root)?;
        let head: OwnedHead = trees::head_below(reader, root, &node, start)?.to_owned();
        let options = trees::tree_options(&self.options, head.kind);
        let mut cursor = TreeCursor::new(Some(root));
        cursor.seek_first(reader)?;
        self.open.push(Tree {
            root,
            // Whatever a damaged node says, it leads to no circle.
            below: head.position + 1,
            cursor,
            made: Building::new(&options, &head.encode(), reader.node_bytes())?,
            nodes: 0,
        });
        Ok(())
    }

    /// The last tree has no more entries.
    fn close<R: NodeReader + ?Sized, W: NodeWriter + ?Sized>(
        &mut self,
        reader: &R,
        writer: &mut Counting<'_, W>,
        relocated: &mut Relocated,
    ) -> Result<()> {
        if let Some(tree) = self.open.pop() {
            let made = tree.made.finish(writer)?;
            let root = made
                .ok_or_else(|| reader.corrupt(tree.root, "a tree without entries".to_string()))?;
            let nodes = tree.nodes + std::mem::take(&mut writer.appended);
            relocated.0.insert(tree.root, NewPlace { root, nodes });
        }
        Ok(())
    }
}
