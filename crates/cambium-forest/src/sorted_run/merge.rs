//! How a sorted run is made: of the run before it and changes, both in key order.

use std::collections::HashMap;

use cambium_base::Result;
use cambium_base::coding::common_prefix;
use cambium_io::sync::OnceLock;

use super::{BLOCK_ENTRIES, BLOCK_OVERHEAD, LEAST_CUT, MadeOf, Part, RunEntry, SortedRun, block};
use crate::document::DocumentAddress;

/// A run under way.
#[derive(Debug)]
pub(crate) struct Merge<'r> {
    before: &'r SortedRun,
    made: SortedRun,
}

/// The part of a namespace under way. Changes come in ascending order of their keys.
pub(crate) struct PartMerge<'r> {
    namespace: u16,
    before: &'r SortedRun,
    old: std::iter::Peekable<Box<dyn Iterator<Item = RunEntry> + 'r>>,
    packing: Packing,
}

impl<'r> Merge<'r> {
    /// One of a run and of what buffers held besides.
    pub fn new(before: &'r SortedRun, besides: MadeOf) -> Self {
        let made_of = MadeOf {
            writes: before.made_of.writes + besides.writes,
            bytes: before.made_of.bytes + besides.bytes,
            logged: before.made_of.logged + besides.logged,
        };
        Merge {
            before,
            made: SortedRun {
                made_of,
                ..SortedRun::default()
            },
        }
    }

    /// The next namespace, in ascending order.
    pub fn part(&self, namespace: u16) -> PartMerge<'r> {
        let old: Box<dyn Iterator<Item = RunEntry> + 'r> = Box::new(self.before.walk(namespace));
        PartMerge {
            namespace,
            before: self.before,
            old: old.peekable(),
            packing: Packing::default(),
        }
    }

    /// Takes a part that has all its changes.
    pub fn take(&mut self, mut part: PartMerge<'r>) {
        for entry in part.old {
            part.packing.push(entry);
        }
        let (blocks, entries) = part.packing.finish();
        if blocks.is_empty() {
            return;
        }
        let bytes: usize = blocks.iter().map(|block| block.len()).sum();
        self.made.bytes += bytes as u64 + blocks.len() as u64 * BLOCK_OVERHEAD;
        self.made.entries += entries;
        self.made.parts.push(Part {
            namespace: part.namespace,
            blocks,
            added: OnceLock::new(),
        });
    }

    /// The run.
    pub fn finish(self) -> SortedRun {
        self.made
    }
}

impl PartMerge<'_> {
    /// Adds changes. Where an old entry may have the key of a change, or lie on either
    /// side of it, its document says: `keys_of` is asked for the keys of such documents.
    pub fn apply(
        &mut self,
        changes: Vec<(Vec<u8>, Option<DocumentAddress>)>,
        keys_of: impl FnOnce(&[DocumentAddress]) -> Result<Vec<Vec<u8>>>,
    ) -> Result<()> {
        let mut unclear: Vec<DocumentAddress> = Vec::new();
        for (key, _) in &changes {
            let hit = self.before.candidate(self.namespace, key);
            let cut = hit.filter(|hit| !hit.is_whole);
            let document = cut.and_then(|hit| hit.document);
            unclear.extend(document.filter(|address| unclear.last() != Some(address)));
        }
        let keys = keys_of(&unclear)?;
        let mut cleared: HashMap<DocumentAddress, Vec<u8>> =
            unclear.into_iter().zip(keys).collect();
        for (key, document) in changes {
            while let Some(old) = self.old.peek_mut() {
                if !old.is_whole {
                    let whole = old.document.and_then(|address| cleared.remove(&address));
                    if let Some(whole) = whole {
                        *old = RunEntry::whole(whole, old.document);
                    }
                }
                if old.known > key {
                    break;
                }
                match self.old.next_if(|old| old.known < key) {
                    Some(old) => self.packing.push(old),
                    None => {
                        // The change takes its place.
                        self.old.next();
                        break;
                    }
                }
            }
            self.packing.push(RunEntry::whole(key, document));
        }
        Ok(())
    }
}

/// Packs entries that come in order.
#[derive(Debug, Default)]
struct Packing {
    blocks: Vec<Box<[u8]>>,
    block: Vec<u8>,
    in_block: usize,
    entries: u64,
    /// The last entry that was packed, as far as it was kept.
    last: Vec<u8>,
    /// The entry after `last`, which waits for the next entry to know how many bytes it
    /// needs, and how many bytes it shares with `last`.
    waiting: Option<RunEntry>,
    shared_before: Option<usize>,
}

impl Packing {
    fn push(&mut self, entry: RunEntry) {
        if let Some(waiting) = self.waiting.replace(entry) {
            let next = self.waiting.as_ref().map_or(&[][..], |entry| &entry.known);
            let shared = common_prefix(&waiting.known, next);
            self.pack(waiting, Some(shared));
            self.shared_before = Some(shared);
        }
    }

    /// Packs an entry that shares `shared_behind` bytes with the next one.
    fn pack(&mut self, mut entry: RunEntry, shared_behind: Option<usize>) {
        // One byte more tells it from both, and one byte is kept at least.
        let shared = self.shared_before.max(shared_behind).unwrap_or(0);
        let needed = shared + 1;
        let is_cut =
            !entry.is_whole || entry.document.is_some() && entry.known.len() >= needed + LEAST_CUT;
        if is_cut {
            entry.known.truncate(needed);
            entry.is_whole = false;
        }
        if self.in_block == BLOCK_ENTRIES {
            self.end_block();
        }
        block::append(&mut self.block, &self.last, &entry);
        self.in_block += 1;
        self.entries += 1;
        self.last = entry.known;
    }

    fn end_block(&mut self) {
        if !self.block.is_empty() {
            self.blocks.push(self.block.as_slice().into());
        }
        self.block.clear();
        self.in_block = 0;
    }

    /// The blocks, and how many entries they have.
    fn finish(mut self) -> (Vec<Box<[u8]>>, u64) {
        if let Some(last) = self.waiting.take() {
            self.pack(last, None);
        }
        self.end_block();
        (self.blocks, self.entries)
    }
}
