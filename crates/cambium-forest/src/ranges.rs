//! Ranges that are deleted and still hide something of an older layer.
//!
//! A write that deletes a range is one record of the log, whatever the range holds, and one
//! entry of the write buffer. It hides what is older: versions in the same buffer and in the
//! sealed one, the sorted run, the trie. The flush that carries the buffer into the tries
//! removes the keys there ([`CoveredKeys`]); then nothing is left for the range to hide.
//!
//! ```text
//! active buffer  │ versions │ ranges ──┐ hide what has lower sequence numbers
//! sealed buffer  │ versions │ ranges ──┤
//! sorted run     │ entries            ◀┤ never a range: a buffer with one is not packed
//! trie           │ documents          ◀┘
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use cambium_api::KeyRange;
use cambium_base::Result;

use crate::core::Core;
use crate::database::Database;
use crate::document::DocumentAddress;
use crate::format::NamespaceRoot;
use crate::index::IndexCursor;
use crate::seeded_bug::SeededBug;

/// Ranges of keys, joined where they meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// The first key of each and the key after its last; `None` is after all keys.
    ranges: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl RangeSet {
    /// Adds a range.
    pub fn insert(&mut self, range: &KeyRange) {
        let mut start = range.from.clone().unwrap_or_default();
        let mut end = range.to.clone();
        if end.as_ref().is_some_and(|end| *end <= start) {
            return;
        }
        let before = self.ranges.range(..=start.clone()).next_back();
        if let Some((first, behind)) = before {
            if behind.as_ref().is_none_or(|behind| *behind >= start) {
                start.clone_from(first);
            }
        }
        while let Some((first, behind)) = self.ranges.range(start.clone()..).next() {
            if end.as_ref().is_some_and(|end| first > end) {
                break;
            }
            end = match (end, behind) {
                (Some(end), Some(behind)) => Some(end.max(behind.clone())),
                _ => None,
            };
            let first = first.clone();
            self.ranges.remove(&first);
        }
        self.ranges.insert(start, end);
    }

    /// True if a key is in one of them.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.over(key).is_some()
    }

    /// True if it holds every key: then a flush takes the whole trie away, and walks nothing.
    pub fn is_everything(&self) -> bool {
        self.ranges.get(&b""[..]).is_some_and(Option::is_none)
    }

    /// True if it holds no key.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The range that a key is in: its first key, and the key after its last.
    pub fn over(&self, key: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let (first, behind) = self.ranges.range::<[u8], _>(up_to).next_back()?;
        let behind = behind.as_deref();
        let is_in = behind.is_none_or(|behind| key < behind);
        is_in.then_some((first, behind))
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = KeyRange> + '_ {
        self.ranges.iter().map(|(first, behind)| KeyRange {
            from: Some(first.clone()),
            to: behind.clone(),
        })
    }
}

impl From<&KeyRange> for RangeSet {
    fn from(range: &KeyRange) -> Self {
        let mut set = RangeSet::default();
        set.insert(range);
        set
    }
}

/// Keys of a trie whose documents are read together, at most.
const MOST_READ_TOGETHER: usize = 4 << 10;

/// Walks the keys that a trie has in some ranges, in order. Reads their documents.
pub(crate) struct CoveredKeys<'a> {
    core: &'a Core,
    database: &'a Database,
    cursor: IndexCursor,
    ranges: VecDeque<KeyRange>,
    /// The cursor stands in the first range.
    is_placed: bool,
    /// Keys that come next, and where their documents lie.
    found: VecDeque<(Vec<u8>, DocumentAddress)>,
    /// How many documents the next read brings.
    together: usize,
}

impl<'a> CoveredKeys<'a> {
    /// Before the first key.
    pub fn new(
        core: &'a Core,
        database: &'a Database,
        cursor: IndexCursor,
        ranges: &RangeSet,
    ) -> Self {
        CoveredKeys {
            core,
            database,
            cursor,
            ranges: ranges.iter().collect(),
            is_placed: false,
            found: VecDeque::new(),
            together: 1,
        }
    }

    /// The next key; `None` after the last.
    pub fn peek(&mut self) -> Result<Option<&[u8]>> {
        while self.found.is_empty() && !self.ranges.is_empty() {
            self.read_some()?;
        }
        Ok(self.found.front().map(|(key, _)| key.as_slice()))
    }

    /// Takes the key that was peeked at.
    pub fn take(&mut self) -> Option<(Vec<u8>, DocumentAddress)> {
        self.found.pop_front()
    }

    fn read_some(&mut self) -> Result<()> {
        let nodes = self.core.nodes_in_passing(self.database);
        let keys = self.core.keys(self.database);
        let Some(range) = self.ranges.front() else {
            return Ok(());
        };
        if !self.is_placed {
            let from = range.from.as_deref().unwrap_or_default();
            self.cursor.seek(&nodes, &keys, from, true)?;
            self.is_placed = true;
            self.together = 1;
        }
        let mut addresses: Vec<DocumentAddress> = Vec::with_capacity(self.together);
        while addresses.len() < self.together {
            match self.cursor.advance(&nodes, true)? {
                Some(address) => addresses.push(address),
                None => break,
            }
        }
        let mut is_over = addresses.len() < self.together;
        for (key, address) in keys.of(&addresses)?.into_iter().zip(addresses) {
            if !range.contains(&key) {
                is_over = true;
                break;
            }
            self.found.push_back((key, address));
        }
        if is_over {
            self.ranges.pop_front();
            self.is_placed = false;
        }
        self.together = (self.together * 4).min(MOST_READ_TOGETHER);
        Ok(())
    }
}

impl Core {
    /// The keys that a trie has in ranges.
    pub fn covered_keys<'c>(
        &'c self,
        database: &'c Database,
        root: &NamespaceRoot,
        deleted: &RangeSet,
    ) -> Option<CoveredKeys<'c>> {
        if deleted.is_empty() || self.has_bug(SeededBug::FlushForgetsRanges) {
            return None;
        }
        let cursor = self.index.cursor(root.root?);
        Some(CoveredKeys::new(self, database, cursor, deleted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small numbers in a row that looks like none.
    fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        }
    }

    #[test]
    fn a_set_of_ranges_holds_what_each_of_them_holds_and_stays_joined() {
        let mut next = numbers(1);
        for _ in 0..500 {
            let (mut set, mut all) = (RangeSet::default(), Vec::new());
            for _ in 0..next(8) {
                let mut bound = || {
                    let key = vec![next(12) as u8; next(2) as usize];
                    (next(6) > 0).then_some(key)
                };
                let range = KeyRange {
                    from: bound(),
                    to: bound(),
                };
                set.insert(&range);
                all.push(range);
            }
            for key in (0..13u8).flat_map(|byte| [vec![], vec![byte], vec![byte, 0]]) {
                let held = all.iter().any(|range| range.contains(&key));
                assert_eq!(set.contains(&key), held, "{key:?} in {all:?}");
            }
            let ranges: Vec<KeyRange> = set.iter().collect();
            for pair in ranges.windows(2) {
                assert!(pair[0].to < pair[1].from, "{ranges:?}");
                assert!(pair[0].to.is_some(), "{ranges:?}");
            }
        }
    }
}
