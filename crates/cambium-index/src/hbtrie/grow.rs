//! New trees from documents whose keys are known.
//!
//! Wherever several documents, or documents and a sub-tree, come to hang at one piece,
//! a tree is made for them. All of them are given sorted, so the whole new part of the
//! trie is laid out from the top (which kind, which position, which items share a
//! piece), then written from the bottom, without recursion.

use std::borrow::Cow;
use std::ops::Range;

use cambium_base::Result;
use cambium_base::coding::common_prefix;

use crate::node_store::{NodeAddress, NodeWriter};

use super::extension;
use super::head::{Kind, OwnedHead};
use super::link::{Link, encode_document};
use super::options::TrieOptions;
use super::piece::View;
use super::trees;
use super::truncation::{Truncation, apart_from};

/// A document or sub-tree that gets a place.
#[derive(Clone, Debug)]
pub(super) struct Item<'k> {
    /// The key, or its beginning.
    pub known: Cow<'k, [u8]>,
    /// Whether `known` is the whole key. What is not whole is longer than `known`, and
    /// its difference to all other items lies within `known`.
    pub complete: bool,
    pub target: Target,
}

/// What gets a place.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Document(u64),
    /// A sub-tree that exists; all its keys begin with the item's known bytes.
    Tree(NodeAddress, OwnedHead),
}

impl<'k> Item<'k> {
    /// A document with its key.
    pub fn document(key: &'k [u8], document: u64) -> Self {
        Item {
            known: Cow::Borrowed(key),
            complete: true,
            target: Target::Document(document),
        }
    }
}

/// A tree that is to be made.
struct Task {
    items: Range<usize>,
    start: usize,
    view: View,
    entries: Vec<Entry>,
}

/// An entry of a tree to be made.
struct Entry {
    /// The first item with the entry's piece.
    item: usize,
    value: Value,
}

enum Value {
    Link(u64),
    Task(usize),
}

/// Makes trees.
pub(super) struct Grower<'g, 'k, W: ?Sized> {
    pub writer: &'g mut W,
    pub options: &'g TrieOptions,
    pub items: &'g [Item<'k>],
}

impl<W: NodeWriter + ?Sized> Grower<'_, '_, W> {
    /// The link for items that agree in all bytes before `start`; at least one. A
    /// single item needs no tree, unless it is to be the root.
    pub fn grow(&mut self, start: usize, is_root: bool) -> Result<Link> {
        self.grow_as(start, is_root, None)
    }

    /// The same, with the topmost tree's kind prescribed.
    pub fn grow_as(&mut self, start: usize, is_root: bool, top: Option<Kind>) -> Result<Link> {
        if let [item] = self.items {
            let is_tree = matches!(item.target, Target::Tree(..));
            if !is_root || is_tree {
                return self.place(0, start);
            }
        }
        let mut tasks = vec![self.task(0..self.items.len(), start, is_root, top)];
        let mut at = 0;
        while at < tasks.len() {
            self.expand(&mut tasks, at)?;
            at += 1;
        }
        let mut roots = vec![None; tasks.len()];
        for number in (0..tasks.len()).rev() {
            roots[number] = Some(self.write(&tasks[number], &roots)?);
        }
        roots[0]
            .map(Link::Tree)
            .ok_or_else(|| self.broken("a new tree without entries"))
    }

    fn broken(&self, what: &str) -> cambium_base::Error {
        self.writer.corrupt(NodeAddress(0), what.to_string())
    }

    /// Decides what tree is made for several items.
    fn task(&self, items: Range<usize>, start: usize, is_root: bool, top: Option<Kind>) -> Task {
        let some = &self.items[items.clone()];
        let chunk = self.options.chunk_bytes;
        let node_bytes = self.writer.node_bytes();
        let shared = some.first().zip(some.last()).map_or(0, |(first, last)| {
            let shared = common_prefix(&first.known, &last.known);
            // A key that ends where all others go on needs a byte to be told by.
            let ends = first.complete && first.known.len() == shared && shared > start;
            shared - usize::from(ends && some.len() > 1)
        });
        let skipping = shared - shared % chunk;
        let kind = top.unwrap_or_else(|| {
            if some.iter().all(|item| item.complete) {
                extension::kind_for(self.options, node_bytes, some, start, skipping, is_root)
            } else {
                Kind::Trie
            }
        });
        let width = match kind {
            Kind::Trie => chunk,
            Kind::Leaf | Kind::Truncated => trees::leaf_bytes(node_bytes, chunk),
        };
        let skips =
            some.len() > 1 && (kind == Kind::Trie || self.leaf_skips(skipping - start, width));
        let position = if skips { skipping } else { start };
        Task {
            items,
            start,
            view: View {
                kind,
                position,
                width,
            },
            entries: Vec::new(),
        }
    }

    /// Whether a leaf tree is spared a common prefix. Prefix compression handles short
    /// ones, and later keys without the prefix then need no tree above.
    fn leaf_skips(&self, skipped: usize, width: usize) -> bool {
        match self.options.leaf_rule() {
            Some(_) => skipped >= width / 4,
            None => skipped >= width,
        }
    }

    /// Finds the entries of a tree, and the tasks for those that several items share.
    fn expand(&mut self, tasks: &mut Vec<Task>, number: usize) -> Result<()> {
        let view = tasks[number].view;
        let items = tasks[number].items.clone();
        let mut entries = Vec::new();
        let mut at = items.start;
        while at < items.end {
            let run = view.run_length(items.end - at, |i| {
                let item = &self.items[at + i];
                (item.known.as_ref(), !item.complete)
            });
            let value = if run == 1 {
                Value::Link(self.place(at, view.end())?.encode())
            } else {
                tasks.push(self.task(at..at + run, view.end(), false, None));
                Value::Task(tasks.len() - 1)
            };
            entries.push(Entry { item: at, value });
            at += run;
        }
        if entries.len() == 1 && items.len() > 1 {
            return Err(self.broken("documents that no piece of their keys tells apart"));
        }
        tasks[number].entries = entries;
        Ok(())
    }

    /// The link of a single item that hangs where its parent sees no more from `start`.
    fn place(&mut self, item: usize, start: usize) -> Result<Link> {
        let item = &self.items[item];
        match &item.target {
            Target::Document(document) => Ok(Link::Document(*document)),
            Target::Tree(root, head) => {
                let reaches = head.position == start || start >= head.skip_from;
                if reaches {
                    return Ok(Link::Tree(*root));
                }
                let mut head = head.clone();
                head.set_skip(&item.known, start, self.writer.node_bytes());
                trees::set_head(self.writer, self.options, *root, &head).map(Link::Tree)
            }
        }
    }

    /// The pieces and values of a tree's entries; those that are tasks have no value yet.
    fn pieces(&self, task: &Task) -> Vec<(Vec<u8>, u64)> {
        let view = task.view;
        let truncation = Truncation::new(self.options);
        let known = |item: usize| self.items[item].known.as_ref();
        let mut pieces = Vec::with_capacity(task.entries.len());
        for (at, entry) in task.entries.iter().enumerate() {
            let item = &self.items[entry.item];
            let (piece, bits) = match entry.value {
                Value::Link(bits) if view.kind == Kind::Truncated => {
                    let next = task.entries.get(at + 1).map(|next| known(next.item));
                    let before = (entry.item > task.items.start).then(|| known(entry.item - 1));
                    let apart = apart_from(view, &item.known, [before, next]);
                    let complete = item.complete;
                    let (piece, goes_on) = truncation.piece(view, &item.known, !complete, apart);
                    (piece.into_owned(), encode_document(bits, goes_on))
                }
                Value::Link(bits) => (longest(view, item), bits),
                Value::Task(_) => (longest(view, item), 0),
            };
            pieces.push((piece, bits));
        }
        pieces
    }

    fn write(&mut self, task: &Task, roots: &[Option<NodeAddress>]) -> Result<NodeAddress> {
        let view = task.view;
        let pieces = self.pieces(task);
        let key_bytes = pieces.iter().map(|(piece, _)| piece.len() as u64).sum();
        let mut head = OwnedHead {
            kind: view.kind,
            position: view.position,
            entries: task.entries.len() as u64,
            key_bytes,
            skip_from: 0,
            skip: Vec::new(),
        };
        let first = &self.items[task.items.start].known;
        head.set_skip(first, task.start, self.writer.node_bytes());
        let mut entries = pieces.into_iter().zip(&task.entries).map(|(made, entry)| {
            let (piece, bits) = made;
            Ok(match entry.value {
                Value::Link(_) => (piece, bits),
                Value::Task(number) => {
                    let root = roots[number].map(Link::Tree);
                    (piece, root.map_or(0, Link::encode))
                }
            })
        });
        let made = trees::make(self.writer, self.options, &head, &mut entries)?;
        made.ok_or_else(|| self.broken("a new tree without entries"))
    }
}

/// The longest piece that an item can have.
fn longest(view: View, item: &Item<'_>) -> Vec<u8> {
    view.piece_of(&item.known, !item.complete)
        .as_bytes()
        .to_vec()
}
