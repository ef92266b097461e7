//! The changes that a flush applies to a trie: sorted, in pieces of bounded memory.

use std::cmp::Ordering;
use std::collections::VecDeque;

use cambium_base::Result;

use crate::buffer::{Buffer, CHANGE_BYTES};
use crate::cleaning::Moves;
use crate::document::DocumentAddress;
use crate::index::{Change, Keys};
use crate::ranges::{CoveredKeys, RangeSet};
use crate::sorted_run::{RunEntry, SortedRun};

/// A key and its newest document, or `None` where it was removed.
pub(crate) type KeyChange = (Vec<u8>, Option<DocumentAddress>);

/// Where changes come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'s> {
    Buffer(&'s Buffer),
    Run(&'s SortedRun),
}

impl<'s> Source<'s> {
    /// True for a run.
    pub fn is_run(self) -> bool {
        matches!(self, Source::Run(_))
    }

    /// Bytes of the log that its writes took.
    pub fn logged(self) -> u64 {
        match self {
            Source::Buffer(buffer) => buffer.logged(),
            Source::Run(run) => run.made_of.logged,
        }
    }

    /// The ranges of a namespace that it deletes.
    pub fn deleted(self, namespace: u16) -> RangeSet {
        let mut deleted = RangeSet::default();
        if let Source::Buffer(buffer) = self {
            buffer.add_deleted(&mut deleted, namespace, u64::MAX);
        }
        deleted
    }

    /// True if it deletes everything in a namespace.
    pub fn empties_any(self) -> bool {
        let namespaces = match self {
            Source::Buffer(buffer) if buffer.deleted_ranges() > 0 => buffer.namespaces(),
            _ => Vec::new(),
        };
        namespaces
            .into_iter()
            .any(|namespace| self.deleted(namespace).is_everything())
    }

    /// How many keys it has.
    pub fn keys(self) -> u64 {
        match self {
            Source::Buffer(buffer) => buffer.keys() as u64,
            Source::Run(run) => run.entries(),
        }
    }

    /// Namespaces that it has changes of.
    pub fn namespaces(self) -> Vec<u16> {
        match self {
            Source::Buffer(buffer) => buffer.namespaces(),
            Source::Run(run) => run.namespaces().collect(),
        }
    }

    /// The changes of a namespace, each piece of so many bytes of memory at most, or of
    /// one change.
    pub fn pieces(self, namespace: u16, most_bytes: u64) -> Pieces<'s> {
        Pieces {
            covered: None,
            changes: VecDeque::new(),
            way: match self {
                Source::Buffer(buffer) => Way::Buffer {
                    buffer,
                    namespace,
                    last: None,
                },
                Source::Run(run) => {
                    let entries: Entries<'s> = Box::new(run.walk(namespace));
                    Way::Run(entries.peekable())
                }
            },
            most_bytes,
        }
    }
}

type Entries<'s> = Box<dyn Iterator<Item = RunEntry> + Send + 's>;

/// Changes of a namespace that are still to come.
pub(crate) struct Pieces<'s> {
    way: Way<'s>,
    most_bytes: u64,
    /// Keys of the trie that deleted ranges remove.
    covered: Option<CoveredKeys<'s>>,
    /// The rest of a piece, where keys of the trie come in between.
    changes: VecDeque<KeyChange>,
}

enum Way<'s> {
    Buffer {
        buffer: &'s Buffer,
        namespace: u16,
        last: Option<Vec<u8>>,
    },
    Run(std::iter::Peekable<Entries<'s>>),
}

impl<'s> Pieces<'s> {
    /// The same, with the removal of keys that the trie has in deleted ranges.
    pub fn removing(self, covered: Option<CoveredKeys<'s>>) -> Self {
        Pieces { covered, ..self }
    }

    /// The next piece; empty after the last. Keys that a run has cut are read of their
    /// documents, together.
    pub fn next(&mut self, keys: &Keys<'_>) -> Result<Vec<KeyChange>> {
        let Some(mut covered) = self.covered.take() else {
            return self.next_changes(keys);
        };
        let mut piece: Vec<KeyChange> = Vec::new();
        let mut bytes = 0;
        while bytes < self.most_bytes {
            if self.changes.is_empty() {
                self.changes = self.next_changes(keys)?.into();
            }
            let change = self.changes.front().map(|(key, _)| key.as_slice());
            let order = match (change, covered.peek()?) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(change), Some(key)) => change.cmp(key),
            };
            let key = match order {
                Ordering::Less => None,
                Ordering::Equal | Ordering::Greater => covered.take(),
            };
            // The buffer's change of the key is newer than the range, or a removal as well.
            let next = match order {
                Ordering::Greater => key.map(|(key, _)| (key, None)),
                Ordering::Less | Ordering::Equal => self.changes.pop_front(),
            };
            bytes += next.as_ref().map_or(0, |(key, _)| key.len() as u64) + CHANGE_BYTES;
            piece.extend(next);
        }
        self.covered = Some(covered);
        Ok(piece)
    }

    fn next_changes(&mut self, keys: &Keys<'_>) -> Result<Vec<KeyChange>> {
        match &mut self.way {
            Way::Buffer {
                buffer,
                namespace,
                last,
            } => {
                let piece = buffer.newest_behind(*namespace, last.as_deref(), self.most_bytes);
                if let Some((key, _)) = piece.last() {
                    *last = Some(key.clone());
                }
                let change =
                    |(key, version): (Vec<u8>, crate::buffer::Version)| (key, version.document);
                Ok(piece.into_iter().map(change).collect())
            }
            Way::Run(entries) => {
                let mut piece = Vec::new();
                let mut bytes = 0;
                while let Some(entry) = entries.peek() {
                    bytes += memory_of(entry);
                    if bytes > self.most_bytes && !piece.is_empty() {
                        break;
                    }
                    piece.extend(entries.next());
                }
                whole(piece, keys)
            }
        }
    }
}

/// Changes of a namespace, and moves of documents that none of them changes.
pub(crate) struct MergedChanges<'s> {
    pieces: Pieces<'s>,
    moves: Option<Moves<'s>>,
    /// The rest of a piece.
    changes: VecDeque<KeyChange>,
}

impl<'s> MergedChanges<'s> {
    pub fn new(pieces: Pieces<'s>, moves: Option<Moves<'s>>) -> Self {
        MergedChanges {
            pieces,
            moves,
            changes: VecDeque::new(),
        }
    }

    /// The next piece, in the order of keys; empty after the last.
    pub fn next(&mut self, keys: &Keys<'_>) -> Result<Vec<(Vec<u8>, Change)>> {
        let Some(moves) = &mut self.moves else {
            let piece = self.pieces.next(keys)?;
            let changed = |(key, document): KeyChange| (key, Change::from(document));
            return Ok(piece.into_iter().map(changed).collect());
        };
        let mut piece = Vec::new();
        let mut bytes = 0;
        while bytes < self.pieces.most_bytes && !moves.is_parcel_full() {
            if self.changes.is_empty() {
                self.changes.extend(self.pieces.next(keys)?);
            }
            let change = self.changes.front().map(|(key, _)| key.as_slice());
            let order = match (change, moves.peek()?) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(change), Some(moved)) => change.cmp(moved),
            };
            let next = match order {
                Ordering::Less => self.changes.pop_front(),
                Ordering::Equal => {
                    moves.leave();
                    self.changes.pop_front()
                }
                // Where it goes is known when the parcel is closed.
                Ordering::Greater => moves.take().map(|key| (key, None)),
            };
            let is_move = order == Ordering::Greater;
            bytes += next.as_ref().map_or(0, |(key, _)| key.len() as u64) + CHANGE_BYTES;
            piece.extend(next.map(|(key, document)| (key, document, is_move)));
        }
        let mut places = moves.append()?.into_iter();
        let placed = |(key, document, is_move): (Vec<u8>, Option<DocumentAddress>, bool)| {
            let change = match is_move {
                true => places.next().map(|(from, to)| Change::Move { from, to }),
                false => Some(Change::from(document)),
            };
            change.map(|change| (key, change))
        };
        Ok(piece.into_iter().filter_map(placed).collect())
    }

    /// Bytes that moved documents take.
    pub fn moved_bytes(&self) -> u64 {
        self.moves.as_ref().map_or(0, |moves| moves.bytes)
    }
}

/// What a change takes once its key is whole; of one that is cut no more is known than
/// what its document has.
fn memory_of(entry: &RunEntry) -> u64 {
    let key_bytes = match (entry.is_whole, entry.document) {
        (false, Some(address)) => address.most_bytes().min(u64::from(u16::MAX)),
        _ => entry.known.len() as u64,
    };
    key_bytes + CHANGE_BYTES
}

/// Changes of entries, their keys whole.
fn whole(entries: Vec<RunEntry>, keys: &Keys<'_>) -> Result<Vec<KeyChange>> {
    let cut = entries.iter().filter(|entry| !entry.is_whole);
    let documents: Vec<DocumentAddress> = cut.filter_map(|entry| entry.document).collect();
    let mut read = keys.of(&documents)?.into_iter();
    let change = |entry: RunEntry| {
        let key = match entry.is_whole {
            true => entry.known,
            false => read.next().unwrap_or(entry.known),
        };
        (key, entry.document)
    };
    Ok(entries.into_iter().map(change).collect())
}
