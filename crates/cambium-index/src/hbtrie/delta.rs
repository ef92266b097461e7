//! The entries of a tree that a batch changes.
//!
//! | where the changes of a group lead | what becomes of the entry |
//! |---|---|
//! | nothing hangs there | a new one, for a document or a new sub-tree |
//! | a document whose key the piece holds | its value is replaced, or it goes |
//! | a document whose key goes on | its key is asked for: replaced, or both in a sub-tree |
//! | the same, in a truncated leaf tree | or both as entries with longer pieces |
//! | a sub-tree | what that has become |

use cambium_base::Result;

use crate::node_store::NodeWriter;

use super::apply::{Change, puts};
use super::grow::{Item, Target};
use super::head::Kind;
use super::link::{Link, encode_document};
use super::outcome::{Outcome, Settler};
use super::plan::{Found, Group, KeyChange, Plan, Visit};
use super::trees::Update;
use super::truncation::{Truncation, apart_from};

/// The entries of a tree that change, in order, and what they add up to.
#[derive(Default)]
pub(super) struct Delta {
    pub updates: Vec<Update>,
    pub added: u64,
    pub added_bytes: u64,
    pub removed: u64,
    pub removed_bytes: u64,
}

impl Delta {
    fn push(&mut self, piece: Vec<u8>, was_there: bool, value: Option<u64>) {
        let bytes = piece.len() as u64;
        match (was_there, value.is_some()) {
            (false, true) => {
                self.added += 1;
                self.added_bytes += bytes;
            }
            (true, false) => {
                self.removed += 1;
                self.removed_bytes += bytes;
            }
            _ => {}
        }
        self.updates.push((piece, value));
    }
}

impl<'c, W: NodeWriter> Settler<'_, 'c, W> {
    /// The entries that change.
    pub(super) fn delta(
        &mut self,
        plan: &Plan,
        visit: &Visit,
        outcomes: &mut [Outcome<'c>],
    ) -> Result<Delta> {
        let mut delta = Delta::default();
        for group in &visit.groups {
            match group.found {
                Found::Nothing => self.place_new(visit, group, &mut delta)?,
                Found::Document { document, goes_on } => {
                    self.meet(plan, visit, group, (document, goes_on), &mut delta)?;
                }
                Found::Visit(number) => {
                    let outcome = std::mem::replace(&mut outcomes[number], Outcome::Unchanged);
                    if let Some(value) = self.inherit(visit, outcome)? {
                        delta.push(self.longest_piece(visit, group), true, value);
                    }
                }
            }
        }
        Ok(delta)
    }

    /// The longest piece of the keys of a group.
    fn longest_piece(&self, visit: &Visit, group: &Group) -> Vec<u8> {
        let key = self.changes[group.changes.start].key;
        visit.view.piece(key).as_bytes().to_vec()
    }

    /// The piece of what a group found.
    fn found_piece(&self, visit: &Visit, group: &Group) -> Vec<u8> {
        let mut piece = self.longest_piece(visit, group);
        if visit.view.kind == Kind::Truncated {
            piece.truncate(group.bytes);
        }
        piece
    }

    /// A new entry where nothing hung.
    fn place_new(&mut self, visit: &Visit, group: &Group, delta: &mut Delta) -> Result<()> {
        let items = puts(&self.changes[group.changes.clone()]);
        let [item] = items.as_slice() else {
            if !items.is_empty() {
                let link = self.grow(&items, visit.view.end(), false, None)?;
                let piece = self.longest_piece(visit, group);
                delta.push(piece, false, Some(link.encode()));
            }
            return Ok(());
        };
        let Target::Document(document) = item.target else {
            return Ok(());
        };
        if visit.view.kind != Kind::Truncated {
            delta.push(self.longest_piece(visit, group), false, Some(document));
            return Ok(());
        }
        let inside = |at: usize| visit.inside.contains(&at).then(|| self.changes[at].key);
        let before = group.changes.start.checked_sub(1).and_then(inside);
        let apart = apart_from(visit.view, &item.known, [before, inside(group.changes.end)]);
        let truncation = Truncation::new(self.options);
        let (piece, goes_on) =
            truncation.piece(visit.view, &item.known, false, apart.max(group.bytes));
        let value = encode_document(document, goes_on);
        delta.push(piece.into_owned(), false, Some(value));
        Ok(())
    }

    /// What becomes of an entry where a document hangs.
    fn meet(
        &mut self,
        plan: &Plan,
        visit: &Visit,
        group: &Group,
        (document, goes_on): (u64, bool),
        delta: &mut Delta,
    ) -> Result<()> {
        let changes = &self.changes[group.changes.clone()];
        let piece = self.found_piece(visit, group);
        let is_moved = match changes {
            [one] => matches!(one.change, Change::Move { from, .. } if from == document),
            _ => false,
        };
        if is_moved || !goes_on {
            // The change or the piece says which key it is.
            if changes[0].change.keeps(document) {
                return Ok(());
            }
            let is_cut = goes_on && visit.view.kind == Kind::Truncated;
            let value = changes[0].change.document();
            (self.replaced)(document);
            delta.push(piece, true, value.map(|new| encode_document(new, is_cut)));
            return Ok(());
        }
        let Some(old) = plan.keys.get(&document) else {
            return Ok(());
        };
        let seen = match visit.view.kind {
            Kind::Truncated => visit.view.position + group.bytes.min(visit.view.width),
            Kind::Trie | Kind::Leaf => visit.view.end(),
        };
        self.check_old_key(visit, changes[0].key, old, seen)?;
        let items = self.beside(changes, old, document);
        if matches!(items.as_slice(), [item] if matches!(item.target, Target::Document(same) if same == document))
        {
            return Ok(());
        }
        if visit.view.kind == Kind::Truncated {
            return self.place_beside(visit, &items, piece, delta);
        }
        let value = match items.as_slice() {
            [] => None,
            items => Some(self.grow(items, visit.view.end(), false, None)?.encode()),
        };
        delta.push(piece, true, value);
        Ok(())
    }

    /// An old document's key must have led to where it hangs.
    fn check_old_key(&self, visit: &Visit, new: &[u8], old: &[u8], end: usize) -> Result<()> {
        if old.len() > end && old.get(..end) == new.get(..end) {
            return Ok(());
        }
        let what = format!(
            "a document whose key of {} bytes does not begin as its place in the trie says",
            old.len()
        );
        Err(self.writer.corrupt(visit.root, what))
    }

    /// The puts among changes and an old document, unless one of them replaces it.
    fn beside<'k>(
        &mut self,
        changes: &[KeyChange<'k>],
        old: &'k [u8],
        document: u64,
    ) -> Vec<Item<'k>> {
        let same = changes.binary_search_by(|change| change.key.cmp(old));
        let mut items = puts(changes);
        match same {
            Ok(at) if changes[at].change.keeps(document) => {}
            Ok(_) => (self.replaced)(document),
            Err(_) => {
                let at = items.partition_point(|item| item.known.as_ref() < old);
                items.insert(at, Item::document(old, document));
            }
        }
        items
    }

    /// Documents whose keys begin with a truncated piece take the place of the one that
    /// had it. One alone keeps the piece; several get longer ones, or a sub-tree where
    /// they share all that the tree sees.
    fn place_beside(
        &mut self,
        visit: &Visit,
        items: &[Item<'_>],
        old_piece: Vec<u8>,
        delta: &mut Delta,
    ) -> Result<()> {
        let view = visit.view;
        let mut placed: Vec<(Vec<u8>, u64)> = Vec::with_capacity(items.len());
        if let [item] = items {
            let goes_on = item.known.len() > view.position + old_piece.len().min(view.width);
            if let Target::Document(document) = item.target {
                placed.push((old_piece.clone(), encode_document(document, goes_on)));
            }
        } else {
            let truncation = Truncation::new(self.options);
            let mut at = 0;
            while at < items.len() {
                let run = view.run_length(items.len() - at, |i| {
                    (items[at + i].known.as_ref(), !items[at + i].complete)
                });
                let known = items[at].known.as_ref();
                let near = |at: usize| items.get(at).map(|item| item.known.as_ref());
                let neighbours = [at.checked_sub(1).and_then(near), near(at + run)];
                let apart = apart_from(view, known, neighbours).max(old_piece.len());
                match &items[at].target {
                    Target::Document(document) if run == 1 => {
                        let (piece, goes_on) = truncation.piece(view, known, false, apart);
                        placed.push((piece.into_owned(), encode_document(*document, goes_on)));
                    }
                    _ => {
                        let link = self.grow(&items[at..at + run], view.end(), false, None)?;
                        placed.push((view.piece(known).as_bytes().to_vec(), link.encode()));
                    }
                }
                at += run;
            }
        }
        if placed.first().is_none_or(|(first, _)| *first != old_piece) {
            delta.push(old_piece.clone(), true, None);
        }
        for (piece, value) in placed {
            let was_there = piece == old_piece;
            delta.push(piece, was_there, Some(value));
        }
        Ok(())
    }

    /// The new value of an entry where a sub-tree hung; outer `None` for no change.
    fn inherit(&mut self, visit: &Visit, outcome: Outcome<'c>) -> Result<Option<Option<u64>>> {
        match outcome {
            Outcome::Unchanged => Ok(None),
            Outcome::Empty => Ok(Some(None)),
            Outcome::One(item) => {
                let link = self.grow(&[item], visit.view.end(), false, None)?;
                Ok(Some(Some(match link {
                    Link::Document(document) => {
                        encode_document(document, visit.view.kind == Kind::Truncated)
                    }
                    Link::Tree(_) => link.encode(),
                })))
            }
        }
    }
}
