//! Sorted runs of a memtable: what iterators and flushes read.
//!
//! A memtable's entries lie in the order of their arrival ([`crate::memtable`]).
//! A run is a copy of some of them with their sorted order beside it: made once,
//! never changed, shared by every iterator. Runs are merged by their orders
//! alone; the copies are shared.
//!
//! The order is found by sorting numbers: the sixteen bytes behind what all keys
//! have in common. Keys are compared whole only where those are equal.

use std::cmp::Ordering;
use std::sync::Arc;

use cambium_base::Result;
use cambium_base::coding::common_prefix;

use crate::entry::{EntryRef, Moment, Source, compare};
use crate::memtable::{ENTRY_ALIGNMENT, entry_bytes_at, parse_entry};

/// Where an entry lies in a run's pieces.
#[derive(Clone, Copy, Debug)]
struct Location {
    piece: u32,
    offset: u32,
}

/// Entries in order.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Copies of parts of the arena, in the order in which they were written
    /// as far as one key is concerned.
    pieces: Vec<Arc<[u8]>>,
    order: Vec<Location>,
    /// What all keys begin with.
    common: Vec<u8>,
    /// Eight bytes of each key behind that, as numbers, in order: most of a search
    /// looks at nothing else.
    prefixes: Vec<u64>,
}

struct Sortable {
    prefix: u128,
    location: Location,
}

/// Sixteen bytes of a key as a number that sorts as they do.
fn prefix_of(key: &[u8], skipped: usize) -> u128 {
    let mut bytes = [0; 16];
    let rest = key.get(skipped..).unwrap_or(&[]);
    let count = rest.len().min(16);
    bytes[..count].copy_from_slice(&rest[..count]);
    u128::from_be_bytes(bytes)
}

impl Run {
    /// Sorts what lies in pieces of an arena.
    pub fn sorted(pieces: Vec<Arc<[u8]>>) -> Self {
        let mut run = Run {
            pieces,
            ..Run::default()
        };
        run.common = run.common_prefix();
        let skipped = run.common.len();
        let mut sortable = Vec::new();
        for (number, piece) in run.pieces.iter().enumerate() {
            let mut offset = 0;
            while offset < piece.len() {
                let entry = parse_entry(piece, offset);
                let location = Location {
                    piece: number as u32,
                    offset: (offset / ENTRY_ALIGNMENT) as u32,
                };
                sortable.push(Sortable {
                    prefix: prefix_of(entry.key, skipped),
                    location,
                });
                offset += entry_bytes_at(piece, offset);
            }
        }
        sortable.sort_unstable_by(|one, other| {
            one.prefix
                .cmp(&other.prefix)
                .then_with(|| run.compare_locations(one.location, other.location))
        });
        run.order = sortable.iter().map(|entry| entry.location).collect();
        let prefixes = sortable.iter().map(|entry| (entry.prefix >> 64) as u64);
        run.prefixes = prefixes.collect();
        run
    }

    /// What all keys begin with.
    fn common_prefix(&self) -> Vec<u8> {
        let mut first: Option<&[u8]> = None;
        let mut common = 0;
        for piece in &self.pieces {
            let mut offset = 0;
            while offset < piece.len() {
                let key = parse_entry(piece, offset).key;
                match first {
                    None => {
                        first = Some(key);
                        common = key.len();
                    }
                    Some(first) => common = common_prefix(&first[..common], key),
                }
                offset += entry_bytes_at(piece, offset);
            }
        }
        first.map_or_else(Vec::new, |first| first[..common].to_vec())
    }

    fn at(&self, location: Location) -> EntryRef<'_> {
        let piece = &self.pieces[location.piece as usize];
        parse_entry(piece, location.offset as usize * ENTRY_ALIGNMENT)
    }

    /// Of the same entry written twice, the later one comes first.
    fn compare_locations(&self, one: Location, other: Location) -> Ordering {
        compare(self.at(one).place(), self.at(other).place())
            .then_with(|| (other.piece, other.offset).cmp(&(one.piece, one.offset)))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// One run of two; entries of `newer` come first where both are equal.
    pub fn merged(older: &Run, newer: &Run) -> Run {
        let mut pieces = older.pieces.clone();
        let shift = pieces.len() as u32;
        pieces.extend(newer.pieces.iter().cloned());
        let mut order = Vec::with_capacity(older.len() + newer.len());
        let mut prefixes = Vec::with_capacity(older.len() + newer.len());
        let (mut left, mut right) = (0, 0);
        while left < older.len() || right < newer.len() {
            let is_older = match (older.get(left), newer.get(right)) {
                (Some(one), Some(other)) => compare(one.place(), other.place()) == Ordering::Less,
                (one, _) => one.is_some(),
            };
            if is_older {
                order.push(older.order[left]);
                prefixes.push(older.prefixes[left]);
                left += 1;
            } else {
                order.push(shifted(newer.order[right], shift));
                prefixes.push(newer.prefixes[right]);
                right += 1;
            }
        }
        let mut run = Run {
            pieces,
            order,
            common: older.common.clone(),
            prefixes,
        };
        if older.common != newer.common {
            run.set_common(common_prefix(&older.common, &newer.common));
        }
        run
    }

    /// Keys begin alike with so many bytes of what those of one run did.
    fn set_common(&mut self, bytes: usize) {
        self.common.truncate(bytes);
        let keys = self.order.iter().map(|&location| self.at(location).key);
        let prefixes = keys.map(|key| (prefix_of(key, bytes) >> 64) as u64);
        self.prefixes = prefixes.collect();
    }

    /// Counts the entries in `[from, to)`.
    pub fn count_between(&self, from: &[u8], to: &[u8]) -> usize {
        let behind = self.before(to, Moment::MAX);
        behind.saturating_sub(self.before(from, Moment::MAX))
    }

    fn get(&self, position: usize) -> Option<EntryRef<'_>> {
        Some(self.at(*self.order.get(position)?))
    }

    /// How many entries lie before the place.
    fn before(&self, key: &[u8], sequence: u64) -> usize {
        let rest = match key.strip_prefix(self.common.as_slice()) {
            Some(rest) => rest,
            None if key < self.common.as_slice() => return 0,
            None => return self.len(),
        };
        let prefix = (prefix_of(rest, 0) >> 64) as u64;
        let first = self.prefixes.partition_point(|&other| other < prefix);
        let alike = self.prefixes[first..].partition_point(|&other| other == prefix);
        let undecided = self.order[first..first + alike].partition_point(|&location| {
            compare(self.at(location).place(), (key, sequence)) == Ordering::Less
        });
        first + undecided
    }
}

fn shifted(location: Location, shift: u32) -> Location {
    Location {
        piece: location.piece + shift,
        ..location
    }
}

/// Reads a run.
#[derive(Debug)]
pub(crate) struct RunSource {
    run: Arc<Run>,
    position: Option<usize>,
}

impl RunSource {
    /// Outside the run.
    pub fn new(run: Arc<Run>) -> Self {
        RunSource {
            run,
            position: None,
        }
    }
}

impl Source for RunSource {
    fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.position = Some(self.run.before(key, sequence));
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.position = self.run.before(key, sequence).checked_sub(1);
        Ok(())
    }

    fn seek_first(&mut self) -> Result<()> {
        self.position = Some(0);
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.position = self.run.len().checked_sub(1);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.position = self.position.map(|position| position + 1);
        Ok(())
    }

    fn previous(&mut self) -> Result<()> {
        self.position = self.position.and_then(|position| position.checked_sub(1));
        Ok(())
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.run.get(self.position?)
    }
}
