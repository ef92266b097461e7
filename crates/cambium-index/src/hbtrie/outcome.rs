//! What is left of a tree when the changes that lead to it are done.
//!
//! | what the changes leave | what becomes of the tree |
//! |---|---|
//! | nothing different | it stays, nothing is written |
//! | no entry | its nodes are retired, the parent's entry goes |
//! | one entry, a document | its nodes are retired, the document hangs in the parent |
//! | one entry, a sub-tree | its nodes are retired, the sub-tree takes its place with a longer skipped prefix |
//! | several entries | one pass of its B+-tree |
//! | a leaf tree that has grown | it is extended or truncated if its rule says so |
//! | keys that leave its skipped prefix | a new tree above it, for it and those keys (figure 6c) |
//!
//! Trees are settled from the end of the plan, so each finds the outcomes of its
//! children; nothing here recurses.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use cambium_base::Result;

use crate::btree;
use crate::node_store::{NodeAddress, NodeWriter};

use super::apply::puts;
use super::delta::Delta;
use super::documents::Documents;
use super::extension::{self, Due};
use super::grow::{Grower, Item, Target};
use super::head::{Kind, OwnedHead};
use super::link::{Link, encode_document};
use super::options::TrieOptions;
use super::piece::View;
use super::plan::{KeyChange, Plan, Visit};
use super::trees::{self, TreeCursor, Update};
use super::truncation::{Truncation, apart_from};

/// Documents whose keys are asked for together when a leaf tree is extended.
const ASK_TOGETHER: usize = 4096;

/// Memory for the entries of a leaf tree that is extended or truncated, in nodes: 64 MiB
/// with nodes of 4 KiB. Both hold the whole tree in memory. A tree that comes to it with
/// more stays as it is: it is as good as a prefix B+-tree, and its rule would have spoken
/// long before if its keys had been of one kind.
const MOST_TAKEN_APART: u64 = 16 << 10;

/// Memory for an entry beside its key.
const ENTRY_OVERHEAD: u64 = 128;

fn most_taken_apart(node_bytes: usize) -> u64 {
    MOST_TAKEN_APART * node_bytes as u64
}

/// True if a tree's entries may be in memory together.
fn fits(head: &OwnedHead, node_bytes: usize) -> bool {
    let overhead = head.entries.saturating_mul(ENTRY_OVERHEAD);
    head.key_bytes.saturating_add(overhead) <= most_taken_apart(node_bytes)
}

/// What a settled tree leaves to its parent.
#[derive(Debug)]
pub(super) enum Outcome<'c> {
    Unchanged,
    Empty,
    /// A document or a tree, to hang where the tree hung.
    One(Item<'c>),
}

/// Carries out a plan.
pub(super) struct Settler<'s, 'c, W> {
    pub writer: &'s mut W,
    pub documents: &'s dyn Documents,
    pub options: &'s TrieOptions,
    pub changes: &'c [KeyChange<'c>],
    pub replaced: &'s mut dyn FnMut(u64),
}

impl<'c, W: NodeWriter> Settler<'_, 'c, W> {
    /// The new root.
    pub fn settle_all(&mut self, root: NodeAddress, plan: Plan) -> Result<Option<NodeAddress>> {
        let mut outcomes: Vec<Outcome<'c>> = Vec::new();
        outcomes.resize_with(plan.visits.len(), || Outcome::Unchanged);
        for number in (0..plan.visits.len()).rev() {
            outcomes[number] = self.settle(&plan, number, &mut outcomes)?;
        }
        match outcomes.into_iter().next() {
            Some(Outcome::Empty) => Ok(None),
            Some(Outcome::One(item)) => match self.grow(&[item], 0, true, None)? {
                Link::Tree(root) => Ok(Some(root)),
                Link::Document(_) => Ok(None),
            },
            Some(Outcome::Unchanged) | None => Ok(Some(root)),
        }
    }

    pub(super) fn grow(
        &mut self,
        items: &[Item<'_>],
        start: usize,
        is_root: bool,
        top: Option<Kind>,
    ) -> Result<Link> {
        Grower {
            writer: self.writer,
            options: self.options,
            items,
        }
        .grow_as(start, is_root, top)
    }

    fn settle(
        &mut self,
        plan: &Plan,
        number: usize,
        outcomes: &mut [Outcome<'c>],
    ) -> Result<Outcome<'c>> {
        let visit = &plan.visits[number];
        let is_root = number == 0;
        let delta = self.delta(plan, visit, outcomes)?;
        let below = puts(&self.changes[visit.changes.start..visit.inside.start]);
        let above = puts(&self.changes[visit.inside.end..visit.changes.end]);
        let alone = below.is_empty() && above.is_empty();
        let own = if delta.updates.is_empty() {
            if alone {
                return Ok(Outcome::Unchanged);
            }
            Some(self.untouched(visit))
        } else {
            self.own(visit, delta, is_root && alone)?
        };
        if alone {
            return Ok(own.map_or(Outcome::Empty, Outcome::One));
        }
        let mut items = below;
        items.extend(own);
        items.extend(above);
        let link = self.grow(&items, visit.start, is_root, None)?;
        let some_key = items
            .into_iter()
            .find(|item| matches!(item.target, Target::Document(_)) && item.complete);
        let known = some_key.map(|item| item.known).unwrap_or_default();
        Ok(Outcome::One(self.grown(link, known)?))
    }

    /// The item for what was grown, in which `known` is a whole key.
    fn grown(&self, link: Link, known: Cow<'c, [u8]>) -> Result<Item<'c>> {
        match link {
            Link::Document(document) => Ok(Item {
                known,
                complete: true,
                target: Target::Document(document),
            }),
            Link::Tree(root) => {
                let head = self.head(root)?;
                let known = match known {
                    Cow::Borrowed(key) => Cow::Borrowed(&key[..head.position.min(key.len())]),
                    Cow::Owned(mut key) => {
                        key.truncate(head.position);
                        Cow::Owned(key)
                    }
                };
                Ok(Item {
                    known,
                    complete: false,
                    target: Target::Tree(root, head),
                })
            }
        }
    }

    fn head(&self, root: NodeAddress) -> Result<OwnedHead> {
        let node = self.writer.read(root)?;
        Ok(trees::head(self.writer, root, &node)?.to_owned())
    }

    /// What all keys of a visited tree begin with.
    fn path(&self, visit: &Visit) -> Cow<'c, [u8]> {
        let position = visit.head.position;
        if !visit.inside.is_empty() {
            return Cow::Borrowed(&self.changes[visit.inside.start].key[..position]);
        }
        if let Some(key) = &visit.representative {
            return Cow::Owned(key[..position].to_vec());
        }
        let mut path = self.changes[visit.changes.start].key[..visit.start].to_vec();
        let passed = visit.start - visit.head.skip_from.min(visit.start);
        path.extend_from_slice(visit.head.skip.get(passed..).unwrap_or_default());
        Cow::Owned(path)
    }

    fn untouched(&self, visit: &Visit) -> Item<'c> {
        Item {
            known: self.path(visit),
            complete: false,
            target: Target::Tree(visit.root, visit.head.clone()),
        }
    }

    /// What is left of the tree itself, of which some entries change.
    fn own(&mut self, visit: &Visit, delta: Delta, stays: bool) -> Result<Option<Item<'c>>> {
        let mut head = visit.head.clone();
        let after = |before: u64, added, removed| before.checked_add(added)?.checked_sub(removed);
        let (Some(entries), Some(key_bytes)) = (
            after(head.entries, delta.added, delta.removed),
            after(head.key_bytes, delta.added_bytes, delta.removed_bytes),
        ) else {
            let what = format!(
                "{} entries are added to {}, and {} removed",
                delta.added, head.entries, delta.removed
            );
            return Err(self.writer.corrupt(visit.root, what));
        };
        (head.entries, head.key_bytes) = (entries, key_bytes);
        let path = self.path(visit);
        if entries == 0 {
            btree::retire_all(self.writer, visit.root)?;
            return Ok(None);
        }
        if entries == 1 {
            let (piece, bits) = self.only_entry(visit, &delta.updates)?;
            let is_tree = matches!(Link::decode(bits), Some(Link::Tree(_)));
            if is_tree || !stays {
                btree::retire_all(self.writer, visit.root)?;
                return self.item_at(visit, &path, &piece, bits).map(Some);
            }
        }
        head.set_skip(&path, visit.start, self.writer.node_bytes());
        let grew = delta.added > delta.removed;
        let before = extension::size(self.writer, visit.root)?;
        let made = trees::update(self.writer, self.options, visit.root, &head, delta.updates)?;
        let Some(root) = made else {
            let what = format!("no entry is left where {entries} were counted");
            return Err(self.writer.corrupt(visit.root, what));
        };
        let due = if grew && fits(&head, self.writer.node_bytes()) {
            extension::is_due(self.writer, self.options, before, root)?
        } else {
            Due::Nothing
        };
        let root = match due {
            Due::Extension => match self.extend(visit, root, &path, stays)? {
                Some(item) => return Ok(Some(item)),
                None => root,
            },
            Due::Truncation => self.truncate(visit, root, &mut head)?,
            Due::Nothing => root,
        };
        Ok(Some(Item {
            known: path,
            complete: false,
            target: Target::Tree(root, head),
        }))
    }

    /// The entry of a tree that the updates leave.
    fn only_entry(&self, visit: &Visit, updates: &[Update]) -> Result<(Vec<u8>, u64)> {
        for (piece, value) in updates {
            if let Some(bits) = value {
                return Ok((piece.clone(), *bits));
            }
        }
        let mut cursor = TreeCursor::new(Some(visit.root));
        cursor.seek_first(self.writer)?;
        for (removed, _) in updates {
            match cursor.entry() {
                Some((piece, _)) if piece == removed.as_slice() => cursor.next(self.writer)?,
                _ => break,
            };
        }
        match cursor.entry() {
            Some((piece, bits)) => Ok((piece.to_vec(), bits)),
            None => {
                let what = "no entry is left where 1 was counted".to_string();
                Err(self.writer.corrupt(visit.root, what))
            }
        }
    }

    /// The item for an entry of a visited tree.
    fn item_at(&self, visit: &Visit, path: &[u8], piece: &[u8], bits: u64) -> Result<Item<'c>> {
        let Some((real, goes_on)) = visit.view.real(piece, bits) else {
            let what = "an entry whose key is no piece of a key".to_string();
            return Err(self.writer.corrupt(visit.root, what));
        };
        let mut known = [path, real].concat();
        let target = match trees::link(self.writer, visit.root, bits)? {
            Link::Document(document) => Target::Document(document),
            Link::Tree(root) => {
                let head = self.head(root)?;
                let end = visit.view.end();
                if head.position < end {
                    let what = format!("a sub-tree at position {} below {end}", head.position);
                    return Err(self.writer.corrupt(root, what));
                }
                if let Some(passed) = end.checked_sub(head.skip_from) {
                    known.extend_from_slice(head.skip.get(passed..).unwrap_or_default());
                }
                Target::Tree(root, head)
            }
        };
        Ok(Item {
            known: Cow::Owned(known),
            complete: !goes_on,
            target,
        })
    }

    /// Makes a trie tree, with leaf trees below, out of a leaf tree. `None` if its whole
    /// keys take too much memory: then it stays as it is.
    fn extend(
        &mut self,
        visit: &Visit,
        root: NodeAddress,
        path: &Cow<'c, [u8]>,
        is_root: bool,
    ) -> Result<Option<Item<'c>>> {
        let mut items = Vec::new();
        let mut cursor = TreeCursor::new(Some(root));
        cursor.seek_first(self.writer)?;
        while let Some((piece, bits)) = cursor.entry() {
            items.push(self.item_at(visit, path, piece, bits)?);
            cursor.next(self.writer)?;
        }
        if !self.complete(visit, &mut items)? {
            return Ok(None);
        }
        btree::retire_all(self.writer, root)?;
        let link = self.grow(&items, visit.start, is_root, Some(Kind::Trie))?;
        let known = Cow::Owned(items.swap_remove(0).known.into_owned());
        self.grown(link, known).map(Some)
    }

    /// Makes a truncated leaf tree out of a leaf tree.
    fn truncate(
        &mut self,
        visit: &Visit,
        root: NodeAddress,
        head: &mut OwnedHead,
    ) -> Result<NodeAddress> {
        let view = View {
            position: 0,
            kind: Kind::Truncated,
            ..visit.view
        };
        let truncation = Truncation::new(self.options);
        let mut entries = Vec::new();
        let mut before: Option<Vec<u8>> = None;
        let mut cursor = TreeCursor::new(Some(root));
        cursor.seek_first(self.writer)?;
        while let Some((piece, bits)) = cursor.entry() {
            let (piece, link) = (piece.to_vec(), trees::link(self.writer, root, bits)?);
            cursor.next(self.writer)?;
            let Some((real, goes_on)) = visit.view.real(&piece, bits) else {
                let what = "an entry whose key is no piece of a key".to_string();
                return Err(self.writer.corrupt(root, what));
            };
            entries.push(match link {
                Link::Tree(_) => (piece.clone(), bits),
                Link::Document(document) => {
                    let apart = apart_from(view, &piece, [before.as_deref(), cursor.key()]);
                    let (kept, goes_on) = truncation.piece(view, real, goes_on, apart);
                    (kept.into_owned(), encode_document(document, goes_on))
                }
            });
            before = Some(piece);
        }
        btree::retire_all(self.writer, root)?;
        head.kind = Kind::Truncated;
        head.key_bytes = entries.iter().map(|(piece, _)| piece.len() as u64).sum();
        let mut entries = entries.into_iter().map(Ok);
        let made = trees::make(self.writer, self.options, head, &mut entries)?;
        made.ok_or_else(|| {
            self.writer
                .corrupt(root, "a tree without entries".to_string())
        })
    }

    /// Learns the whole keys of documents whose suffixes were cut; false if they take too
    /// much memory.
    fn complete(&self, visit: &Visit, items: &mut [Item<'c>]) -> Result<bool> {
        let most = most_taken_apart(self.writer.node_bytes());
        let mut taken = 0;
        let cut = |item: &Item<'_>| match item.target {
            Target::Document(document) if !item.complete => Some(document),
            _ => None,
        };
        let places: Vec<usize> = (0..items.len())
            .filter(|&at| cut(&items[at]).is_some())
            .collect();
        if places.is_empty() {
            return Ok(true);
        }
        let new = self.new_keys(&visit.inside);
        for some in places.chunks(ASK_TOGETHER) {
            let documents: Vec<u64> = some.iter().filter_map(|&at| cut(&items[at])).collect();
            let (known, unknown): (Vec<u64>, Vec<u64>) = documents
                .iter()
                .partition(|document| new.contains_key(document));
            let asked: BTreeMap<u64, Vec<u8>> = unknown
                .iter()
                .copied()
                .zip(self.documents.keys(&unknown)?)
                .collect();
            debug_assert_eq!(known.len() + unknown.len(), some.len());
            for (&at, document) in some.iter().zip(&documents) {
                let key = match new.get(document) {
                    Some(key) => Cow::Borrowed(*key),
                    None => Cow::Owned(asked.get(document).cloned().unwrap_or_default()),
                };
                if key.len() <= items[at].known.len() || !key.starts_with(&items[at].known) {
                    let what = "a document whose key does not begin as its place says".to_string();
                    return Err(self.writer.corrupt(visit.root, what));
                }
                taken += key.len() as u64;
                items[at].known = key;
                items[at].complete = true;
            }
            if taken > most {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The keys of the documents that a range of changes puts.
    fn new_keys(&self, range: &Range<usize>) -> BTreeMap<u64, &'c [u8]> {
        let changes: &'c [KeyChange<'c>] = &self.changes[range.clone()];
        changes
            .iter()
            .filter_map(|change| change.change.document().map(|new| (new, change.key)))
            .collect()
    }
}
