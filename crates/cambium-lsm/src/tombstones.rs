//! Range tombstones: one record hides every older entry of a range.
//!
//! Ranges overlap, so they are kept as *fragments*: disjoint ranges, each with
//! the sequence numbers of all tombstones that cover it, newest first. Whether
//! an entry is hidden is then one search. Adding a tombstone splits at most two
//! fragments and touches those it covers.
//!
//! A tombstone with number `t` hides entries with a lower number, to readers
//! whose moment is `t` or later.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::entry::{EntryRef, Moment};

/// Up to where a fragment reaches, and what covers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// Exclusive end; `None` for no end.
    pub to: Option<Vec<u8>>,
    /// Sequence numbers, descending, each once.
    pub sequences: Vec<u64>,
}

impl Fragment {
    /// The newest tombstone that a reader at `moment` sees.
    fn newest_at(&self, moment: Moment) -> Option<u64> {
        let younger = self.sequences.partition_point(|&one| one > moment);
        self.sequences.get(younger).copied()
    }
}

/// A range in which every entry with a number below `deleted_by` is deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch<'a> {
    pub from: &'a [u8],
    /// Exclusive; `None` for no end.
    pub to: Option<&'a [u8]>,
    pub deleted_by: u64,
}

/// Fragments by their start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeTombstones {
    fragments: BTreeMap<Vec<u8>, Fragment>,
}

impl RangeTombstones {
    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// How many fragments there are.
    pub fn len(&self) -> usize {
        self.fragments.len()
    }

    /// The fragments in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &Fragment)> {
        self.fragments
            .iter()
            .map(|(from, fragment)| (from.as_slice(), fragment))
    }

    /// Adds a tombstone over `[from, to)`; nothing if that is empty.
    pub fn add(&mut self, from: &[u8], to: Option<&[u8]>, sequence: u64) {
        if to.is_some_and(|to| to <= from) {
            return;
        }
        self.split_at(from);
        if let Some(to) = to {
            self.split_at(to);
        }
        let mut gaps = Vec::new();
        let mut covered_to = Some(from.to_vec());
        let upper = to.map_or(Bound::Unbounded, |to| Bound::Excluded(to.to_vec()));
        let range = (Bound::Included(from.to_vec()), upper);
        for (start, fragment) in self.fragments.range_mut(range) {
            if let Some(end) = covered_to.as_ref().filter(|end| *end < start) {
                gaps.push((end.clone(), Some(start.clone())));
            }
            insert_sequence(&mut fragment.sequences, sequence);
            covered_to.clone_from(&fragment.to);
        }
        if let Some(end) = covered_to.filter(|end| to.is_none_or(|to| end.as_slice() < to)) {
            gaps.push((end, to.map(<[u8]>::to_vec)));
        }
        for (start, to) in gaps {
            let sequences = vec![sequence];
            self.fragments.insert(start, Fragment { to, sequences });
        }
    }

    /// Makes sure that no fragment reaches across `point`.
    fn split_at(&mut self, point: &[u8]) {
        let Some((start, fragment)) = self.before_mut(point) else {
            return;
        };
        let inside = start.as_slice() < point && fragment.to.as_deref().is_none_or(|to| to > point);
        if inside {
            let upper = fragment.clone();
            fragment.to = Some(point.to_vec());
            self.fragments.insert(point.to_vec(), upper);
        }
    }

    fn before_mut(&mut self, key: &[u8]) -> Option<(&Vec<u8>, &mut Fragment)> {
        let upper = (Bound::Unbounded, Bound::Included(key));
        self.fragments.range_mut::<[u8], _>(upper).next_back()
    }

    /// The fragment that a key lies in.
    pub fn fragment_of(&self, key: &[u8]) -> Option<&Fragment> {
        self.placed_fragment_of(key).map(|(_, fragment)| fragment)
    }

    /// The same, with its start.
    fn placed_fragment_of(&self, key: &[u8]) -> Option<(&[u8], &Fragment)> {
        let upper = (Bound::Unbounded, Bound::Included(key));
        let (from, fragment) = self.fragments.range::<[u8], _>(upper).next_back()?;
        let inside = fragment.to.as_deref().is_none_or(|to| key < to);
        inside.then_some((from, fragment))
    }

    /// The newest tombstone over a key that a reader at `moment` sees, or 0.
    pub fn newest_over(&self, key: &[u8], moment: Moment) -> u64 {
        self.fragment_of(key)
            .and_then(|fragment| fragment.newest_at(moment))
            .unwrap_or(0)
    }

    /// The range around an entry that a reader at `moment` sees as deleted, if there is one.
    pub fn stretch_over(&self, entry: &EntryRef<'_>, moment: Moment) -> Option<Stretch<'_>> {
        let (from, fragment) = self.placed_fragment_of(entry.key)?;
        let deleted_by = fragment.newest_at(moment)?;
        (entry.sequence < deleted_by).then_some(Stretch {
            from,
            to: fragment.to.as_deref(),
            deleted_by,
        })
    }

    /// Adds all tombstones of others.
    pub fn add_all(&mut self, others: &RangeTombstones) {
        if self.is_empty() {
            self.clone_from(others);
            return;
        }
        for (from, fragment) in others.iter() {
            for &sequence in &fragment.sequences {
                self.add(from, fragment.to.as_deref(), sequence);
            }
        }
    }

    /// The part over `[from, to)`; `None` for no bound.
    pub fn clipped(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> RangeTombstones {
        let mut part = RangeTombstones::default();
        for (start, fragment) in self.iter() {
            let start = from.map_or(start, |from| from.max(start));
            let end = match (fragment.to.as_deref(), to) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            if end.is_none_or(|end| start < end) {
                let fragment = Fragment {
                    to: end.map(<[u8]>::to_vec),
                    sequences: fragment.sequences.clone(),
                };
                part.fragments.insert(start.to_vec(), fragment);
            }
        }
        part
    }

    /// Lets `choose` thin out the numbers of each fragment; empty ones go.
    pub fn retain(&mut self, mut choose: impl FnMut(&[u8], Option<&[u8]>, &mut Vec<u64>)) {
        self.fragments.retain(|from, fragment| {
            choose(from, fragment.to.as_deref(), &mut fragment.sequences);
            !fragment.sequences.is_empty()
        });
    }

    /// Memory, about, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let of = |(from, fragment): (&[u8], &Fragment)| {
            let to = fragment.to.as_ref().map_or(0, Vec::len);
            (from.len() + to + fragment.sequences.len() * 8 + 96) as u64
        };
        self.iter().map(of).sum()
    }
}

fn insert_sequence(sequences: &mut Vec<u64>, sequence: u64) {
    let at = sequences.partition_point(|&one| one > sequence);
    if sequences.get(at) != Some(&sequence) {
        sequences.insert(at, sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overlapping_ranges_are_told_apart_at_every_point() {
        let mut all = RangeTombstones::default();
        all.add(b"b", Some(b"f"), 5);
        all.add(b"d", None, 3);
        all.add(b"x", Some(b"c"), 9);
        let over = |key: &[u8], moment| all.newest_over(key, moment);
        assert_eq!((over(b"a", 9), over(b"b", 9), over(b"e", 9)), (0, 5, 5));
        assert_eq!((over(b"e", 4), over(b"f", 9), over(b"zz", 2)), (3, 3, 0));
        assert_eq!(all.len(), 3);
    }

    type Ranges = Vec<(u8, Option<u8>, u64)>;

    fn built(ranges: &Ranges) -> RangeTombstones {
        let mut all = RangeTombstones::default();
        for &(from, to, sequence) in ranges {
            all.add(
                &[from],
                to.map(|to| [to]).as_ref().map(|to| &to[..]),
                sequence,
            );
        }
        all
    }

    /// By definition.
    fn newest_over(ranges: &Ranges, key: u8, moment: u64) -> u64 {
        let over = |range: &&(u8, Option<u8>, u64)| {
            range.0 <= key && range.1.is_none_or(|to| key < to) && range.2 <= moment
        };
        let numbers = ranges.iter().filter(over).map(|range| range.2);
        numbers.max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn fragments_say_what_the_ranges_say(
            ranges in prop::collection::vec((0u8..20, prop::option::of(0u8..20), 1u64..30), 0..12),
            from in 0u8..20, to in 0u8..20,
        ) {
            let all = built(&ranges);
            let mut twice = built(&ranges);
            twice.add_all(&all);
            prop_assert_eq!(&twice, &all);
            let part = all.clipped(Some(&[from]), Some(&[to]));
            for key in 0..22 {
                for moment in 0..31 {
                    let expected = newest_over(&ranges, key, moment);
                    prop_assert_eq!(all.newest_over(&[key], moment), expected);
                    let inside = if (from..to).contains(&key) { expected } else { 0 };
                    prop_assert_eq!(part.newest_over(&[key], moment), inside);
                }
            }
        }
    }
}
