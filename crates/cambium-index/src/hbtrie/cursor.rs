//! Walking the documents in key order, both ways.
//!
//! A cursor is a stack of cursors of B+-trees, one a tree on the way to where it
//! stands. It owns the nodes it stands in and borrows nothing, so it can be kept while
//! its store goes on; its root is what it walks, however much is written meanwhile.
//!
//! Walking needs no document: the trie's order is the order of keys. Seeking a key does
//! where a piece alone cannot decide: when a document hangs at the sought key's piece and
//! both go on after it, and where a skipped prefix is too long for a root node.

use std::cmp::Ordering;

use cambium_base::Result;

use crate::node_store::{NodeAddress, NodeReader};

use super::documents::Documents;
use super::head::{Kind, compare_with_path};
use super::link::{self, Link};
use super::options::TrieOptions;
use super::piece::View;
use super::trees::{self, TreeCursor};

/// A place in a trie.
#[derive(Clone, Debug)]
pub struct Cursor {
    root: Option<NodeAddress>,
    chunk_bytes: usize,
    way: Vec<Station>,
    place: Place,
}

/// A tree on the way, with a cursor at the entry that the way goes through.
#[derive(Clone, Debug)]
struct Station {
    tree: TreeCursor,
    root: NodeAddress,
    view: View,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    BeforeFirst,
    At { document: u64, has_key: bool },
    BehindLast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl Cursor {
    /// Before the first document of the trie under `root`; `None` is the empty trie.
    pub fn new(options: &TrieOptions, root: Option<NodeAddress>) -> Self {
        Cursor {
            root,
            chunk_bytes: options.chunk_bytes,
            way: Vec::new(),
            place: Place::BeforeFirst,
        }
    }

    /// The document that the cursor stands at.
    pub fn document(&self) -> Option<u64> {
        match self.place {
            Place::At { document, .. } => Some(document),
            Place::BeforeFirst | Place::BehindLast => None,
        }
    }

    /// The nodes of all trees on the way to the document that the cursor stands at, from
    /// the root on.
    pub fn nodes_on_way(&self) -> impl Iterator<Item = NodeAddress> {
        let stations = self.way.iter();
        stations.flat_map(|station| station.tree.nodes_on_way())
    }

    /// About which share of the documents lies before the place, from 0 to 1. It grows with
    /// the key that was sought. The documents below a node are taken to be spread evenly
    /// over its entries; a sub-tree counts as many as it has entries. Reads the roots of the
    /// sub-trees beside the way.
    ///
    /// # Errors
    /// Errors of the reader; `Corruption`.
    pub fn share_before(&self, reader: &dyn NodeReader) -> Result<f64> {
        if self.place == Place::BehindLast {
            return Ok(1.0);
        }
        let (mut before, mut share) = (0.0, 1.0);
        for station in &self.way {
            for (node, position) in station.tree.way(reader)? {
                let weight = |at| match node.level() {
                    0 => trees::entries_at(reader, station.root, node.value(at)),
                    _ => Ok(1.0),
                };
                let weights: Vec<f64> = (0..node.values()).map(weight).collect::<Result<_>>()?;
                let all = weights.iter().sum::<f64>().max(1.0);
                before += share * weights.iter().take(position).sum::<f64>() / all;
                share *= weights.get(position).copied().unwrap_or_default() / all;
            }
        }
        Ok(before)
    }

    /// Goes to the first document; false if there is none.
    ///
    /// # Errors
    /// What the reader answers; `Corruption`. The cursor then stands nowhere.
    pub fn seek_first(&mut self, reader: &dyn NodeReader) -> Result<bool> {
        self.go_to_end(reader, Direction::Forward)
    }

    /// Goes to the last document; false if there is none.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`].
    pub fn seek_last(&mut self, reader: &dyn NodeReader) -> Result<bool> {
        self.go_to_end(reader, Direction::Backward)
    }

    /// Goes to the next document. False if there is none: the cursor then stands behind
    /// the last.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`].
    pub fn next(&mut self, reader: &dyn NodeReader) -> Result<bool> {
        match self.place {
            Place::BeforeFirst => self.seek_first(reader),
            Place::At { .. } => self.step(reader, Direction::Forward),
            Place::BehindLast => Ok(false),
        }
    }

    /// Goes to the document before. False if there is none: the cursor then stands
    /// before the first.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`].
    pub fn previous(&mut self, reader: &dyn NodeReader) -> Result<bool> {
        match self.place {
            Place::BeforeFirst => Ok(false),
            Place::At { .. } => self.step(reader, Direction::Backward),
            Place::BehindLast => self.seek_last(reader),
        }
    }

    /// Goes on over documents that lie in the same leaf, forward or back, as long as `take`
    /// accepts them, and stands at the last of them. What comes behind them is left to
    /// [`Cursor::next`] and [`Cursor::previous`].
    ///
    /// # Errors
    /// `Corruption`. The cursor then stands nowhere.
    pub fn go_on_in_leaf(
        &mut self,
        reader: &dyn NodeReader,
        forward: bool,
        mut take: impl FnMut(u64) -> bool,
    ) -> Result<()> {
        let mut last = None;
        let (Some(station), Place::At { .. }) = (self.way.last_mut(), self.place) else {
            return Ok(());
        };
        let gone = station
            .tree
            .go_on_in_leaf(reader, forward, |bits| match Link::decode(bits) {
                Some(Link::Document(document)) if take(document) => {
                    last = Some(document);
                    true
                }
                _ => false,
            });
        if let Some(document) = last {
            let has_key = false;
            self.place = Place::At { document, has_key };
        }
        self.settled(gone.map(|()| true)).map(|_| ())
    }

    /// Goes to the first document whose key is at or after `key`; false if there is
    /// none. Reads at most a few documents' keys, mostly none.
    ///
    /// # Errors
    /// As [`Cursor::seek_first`], and what `documents` answers.
    pub fn seek(
        &mut self,
        reader: &dyn NodeReader,
        documents: &dyn Documents,
        key: &[u8],
    ) -> Result<bool> {
        self.leave(Place::BehindLast);
        let sought = self.seek_down(reader, documents, key);
        self.settled(sought)
    }

    /// Goes to the last document whose key is at or before `key`; false if there is
    /// none: the cursor then stands before the first.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub fn seek_at_or_before(
        &mut self,
        reader: &dyn NodeReader,
        documents: &dyn Documents,
        key: &[u8],
    ) -> Result<bool> {
        self.seek(reader, documents, key)?;
        match self.place {
            Place::At { has_key: true, .. } => Ok(true),
            _ => self.previous(reader),
        }
    }

    /// Goes to the last document whose key is before `key`; false if there is none.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub fn seek_before(
        &mut self,
        reader: &dyn NodeReader,
        documents: &dyn Documents,
        key: &[u8],
    ) -> Result<bool> {
        self.seek(reader, documents, key)?;
        self.previous(reader)
    }

    fn leave(&mut self, place: Place) {
        self.way.clear();
        self.place = place;
    }

    /// After an error the cursor stands nowhere.
    fn settled(&mut self, outcome: Result<bool>) -> Result<bool> {
        if outcome.is_err() {
            self.leave(Place::BehindLast);
        }
        outcome
    }

    fn go_to_end(&mut self, reader: &dyn NodeReader, direction: Direction) -> Result<bool> {
        self.leave(match direction {
            Direction::Forward => Place::BehindLast,
            Direction::Backward => Place::BeforeFirst,
        });
        let Some(root) = self.root else {
            return Ok(false);
        };
        let there = self
            .enter(reader, root, 0, direction)
            .and_then(|()| self.come_down(reader, direction));
        self.settled(there)
    }

    fn step(&mut self, reader: &dyn NodeReader, direction: Direction) -> Result<bool> {
        let there = self
            .move_on(reader, direction)
            .and_then(|()| self.come_down(reader, direction));
        self.settled(there)
    }

    /// Pushes a tree, at its first or last entry.
    fn enter(
        &mut self,
        reader: &dyn NodeReader,
        root: NodeAddress,
        start: usize,
        direction: Direction,
    ) -> Result<()> {
        let node = reader.read(root)?;
        let head = trees::head_below(reader, root, &node, start)?;
        let view = trees::view(head, self.chunk_bytes, reader.node_bytes());
        let mut tree = TreeCursor::new(Some(root));
        match direction {
            Direction::Forward => tree.seek_first(reader)?,
            Direction::Backward => tree.seek_last(reader)?,
        };
        self.way.push(Station { tree, root, view });
        Ok(())
    }

    /// Moves the last station that has a further entry to it; those behind end.
    fn move_on(&mut self, reader: &dyn NodeReader, direction: Direction) -> Result<()> {
        while let Some(station) = self.way.last_mut() {
            let moved = match direction {
                Direction::Forward => station.tree.next(reader)?,
                Direction::Backward => station.tree.previous(reader)?,
            };
            if moved {
                return Ok(());
            }
            self.way.pop();
        }
        Ok(())
    }

    /// From the entry of the last station down to a document.
    fn come_down(&mut self, reader: &dyn NodeReader, direction: Direction) -> Result<bool> {
        loop {
            let Some(station) = self.way.last() else {
                self.place = match direction {
                    Direction::Forward => Place::BehindLast,
                    Direction::Backward => Place::BeforeFirst,
                };
                return Ok(false);
            };
            let Some((_, bits)) = station.tree.entry() else {
                self.way.pop();
                self.move_on(reader, direction)?;
                continue;
            };
            match trees::link(reader, station.root, bits)? {
                Link::Document(document) => {
                    self.place = Place::At {
                        document,
                        has_key: false,
                    };
                    return Ok(true);
                }
                Link::Tree(root) => {
                    let start = station.view.end();
                    self.enter(reader, root, start, direction)?;
                }
            }
        }
    }

    fn seek_down(
        &mut self,
        reader: &dyn NodeReader,
        documents: &dyn Documents,
        key: &[u8],
    ) -> Result<bool> {
        let (Some(mut root), mut start) = (self.root, 0) else {
            return Ok(false);
        };
        loop {
            match side(reader, documents, root, start, key)? {
                Ordering::Less => {
                    self.enter(reader, root, start, Direction::Forward)?;
                    return self.come_down(reader, Direction::Forward);
                }
                Ordering::Greater => break,
                Ordering::Equal => {}
            }
            let node = reader.read(root)?;
            let head = trees::head_below(reader, root, &node, start)?;
            let view = trees::view(head, self.chunk_bytes, reader.node_bytes());
            let mut tree = TreeCursor::new(Some(root));
            let met = meet(reader, &mut tree, view, key)?;
            let link = match met {
                Met::End => break,
                Met::Behind => None,
                Met::Entry { .. } => match tree.value() {
                    Some(bits) => Some(trees::link(reader, root, bits)?),
                    None => None,
                },
            };
            self.way.push(Station { tree, root, view });
            match (link, met) {
                (Some(Link::Tree(below)), _) => (root, start) = (below, view.end()),
                (Some(Link::Document(document)), Met::Entry { goes_on }) => {
                    return self.decide(reader, documents, key, document, goes_on);
                }
                _ => return self.come_down(reader, Direction::Forward),
            }
        }
        self.move_on(reader, Direction::Forward)?;
        self.come_down(reader, Direction::Forward)
    }

    /// The cursor stands at a document with the sought key's piece: is it at or after
    /// the key?
    fn decide(
        &mut self,
        reader: &dyn NodeReader,
        documents: &dyn Documents,
        key: &[u8],
        document: u64,
        goes_on: bool,
    ) -> Result<bool> {
        let order = if goes_on {
            documents.key(document)?.as_slice().cmp(key)
        } else {
            Ordering::Equal
        };
        self.place = Place::At {
            document,
            has_key: order == Ordering::Equal,
        };
        if order == Ordering::Less {
            return self.step(reader, Direction::Forward);
        }
        Ok(true)
    }
}

/// What a sought key meets in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    /// Nothing in the tree is at or after it.
    End,
    /// The cursor stands at the first entry behind it.
    Behind,
    /// The cursor stands at the entry that can be the key's own. Of a document's key,
    /// the piece may be the beginning only.
    Entry { goes_on: bool },
}

/// Seeks a key in a tree in whose view it is.
fn meet(reader: &dyn NodeReader, tree: &mut TreeCursor, view: View, key: &[u8]) -> Result<Met> {
    let piece = view.piece(key);
    let piece = piece.as_bytes();
    let is_there = tree.seek(reader, piece)?;
    if let Some((_, bits)) = tree.entry().filter(|(at, _)| *at == piece) {
        let goes_on = match view.kind {
            Kind::Truncated => link::is_marked(bits),
            Kind::Trie | Kind::Leaf => key.len() > view.end(),
        };
        return Ok(Met::Entry { goes_on });
    }
    if view.kind == Kind::Truncated {
        // Of the entry before, the piece may be a beginning of the key.
        let is_beginning =
            |(at, bits): (&[u8], u64)| link::is_marked(bits) && piece.starts_with(at);
        if tree.previous(reader)? && tree.entry().is_some_and(is_beginning) {
            return Ok(Met::Entry { goes_on: true });
        }
        tree.next(reader)?;
    }
    Ok(if is_there { Met::Behind } else { Met::End })
}

/// Where a key stands to all keys of a tree with which it agrees before `start`.
fn side(
    reader: &dyn NodeReader,
    documents: &dyn Documents,
    root: NodeAddress,
    start: usize,
    key: &[u8],
) -> Result<Ordering> {
    let node = reader.read(root)?;
    let head = trees::head_below(reader, root, &node, start)?;
    if let Some(order) = head.compare(key, start) {
        return Ok(order);
    }
    let below = documents.key(trees::last_document(reader, root)?)?;
    let path = below.get(..head.position).ok_or_else(|| {
        let what = "a document below has a key that ends before the tree's position";
        reader.corrupt(root, what.to_string())
    })?;
    Ok(compare_with_path(key, path))
}
