//! Which entries a job keeps: the rule that nothing comes back from the dead,
//! and nothing that somebody may still see goes.
//!
//! Moments cut the sequence numbers into spans: each span ends with a protected
//! moment, and what is above the last moment is a span of its own for every
//! entry. Of one key, only the newest entry of each span can be seen by anyone.
//!
//! | entry | goes if |
//! |---|---|
//! | any | the same (key, number) came before it: it was relocated |
//! | any | a newer entry of its key is in its span |
//! | any | a range tombstone of its span, newer than it, covers it |
//! | tombstone of the first span | no table below can hold the key |
//! | range tombstone | a newer one over the same keys is in its span |
//! | range tombstone of the first span | no table below can hold any key of it |
//!
//! A tombstone that goes takes every older entry of its key with it: they are in
//! its span, and the job reads all sources that hold older ones above the
//! output level.

use crate::entry::{EntryKind, EntryRef, Moment};
use crate::seeded_bug::SeededBug;
use crate::tombstones::RangeTombstones;
use crate::version::{KeyRange, UpperBound};

/// Judges the entries of a job, in order.
#[derive(Debug)]
pub(crate) struct Retainer {
    /// Ascending.
    moments: Vec<Moment>,
    /// Of all inputs.
    tombstones: RangeTombstones,
    key: Vec<u8>,
    /// The number of the entry of the same key before this one.
    newer: Option<u64>,
    bug: Option<SeededBug>,
}

impl Retainer {
    /// For a job that reads these tombstones.
    pub fn new(moments: Vec<Moment>, tombstones: RangeTombstones) -> Self {
        Retainer {
            moments,
            tombstones,
            key: Vec::new(),
            newer: None,
            bug: None,
        }
    }

    /// The same with a defect, in tests.
    pub fn with_bug(mut self, bug: Option<SeededBug>) -> Self {
        if bug == Some(SeededBug::SnapshotForgotten) {
            self.moments.drain(..self.moments.len().saturating_sub(1));
        }
        self.bug = bug;
        self
    }

    /// Sets the tombstones of the inputs, before the first entry is judged.
    pub fn set_tombstones(&mut self, tombstones: RangeTombstones) {
        self.tombstones = tombstones;
    }

    /// The span of a number: spans of numbers above the last moment are told
    /// apart by the number.
    fn span(&self, sequence: u64) -> (usize, u64) {
        let span = self.moments.partition_point(|&moment| moment < sequence);
        let above = if span == self.moments.len() {
            sequence
        } else {
            0
        };
        (span, above)
    }

    /// True if the number is in the span that every moment sees whole.
    fn in_first_span(&self, sequence: u64) -> bool {
        self.moments.first().is_some_and(|&first| sequence <= first)
    }

    /// True if the next entry goes into the table. `nothing_below` says that no table below
    /// the output can hold the key.
    pub fn keeps(
        &mut self,
        entry: &EntryRef<'_>,
        nothing_below: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        if self.newer.is_none() || self.key != entry.key {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            self.newer = None;
        }
        let newer = self.newer.replace(entry.sequence);
        // The same number, of an entry that was relocated, is in the same span.
        let is_hidden = newer.is_some_and(|newer| self.span(newer) == self.span(entry.sequence));
        if is_hidden || self.covered(entry) {
            return false;
        }
        let unneeded = entry.kind == EntryKind::Delete
            && self.in_first_span(entry.sequence)
            && (nothing_below(entry.key) || self.bug == Some(SeededBug::TombstoneDroppedEarly));
        !unneeded
    }

    /// True if a range tombstone hides the entry from every moment.
    fn covered(&self, entry: &EntryRef<'_>) -> bool {
        if self.tombstones.is_empty() {
            return false;
        }
        let Some(fragment) = self.tombstones.fragment_of(entry.key) else {
            return false;
        };
        let newer = fragment
            .sequences
            .partition_point(|&sequence| sequence > entry.sequence);
        // The oldest of those that hide it is in its span if any is.
        newer.checked_sub(1).is_some_and(|oldest| {
            self.span(fragment.sequences[oldest]) == self.span(entry.sequence)
        })
    }

    /// The range tombstones that the job writes; `nothing_below` says that no
    /// table below the output can hold any key of a range.
    pub fn kept_tombstones(&self, nothing_below: impl Fn(&KeyRange) -> bool) -> RangeTombstones {
        if self.bug == Some(SeededBug::RangeForgotten) {
            return RangeTombstones::default();
        }
        let mut kept = self.tombstones.clone();
        kept.retain(|from, to, sequences| {
            sequences.dedup_by(|older, newer| self.span(*older) == self.span(*newer));
            let range = KeyRange {
                smallest: from.to_vec(),
                upper: to.map_or(UpperBound::None, |to| UpperBound::Exclusive(to.to_vec())),
            };
            if nothing_below(&range) {
                sequences.retain(|&sequence| !self.in_first_span(sequence));
            }
        });
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &[u8], sequence: u64, kind: EntryKind) -> EntryRef<'_> {
        EntryRef {
            key,
            sequence,
            kind,
            value: b"",
        }
    }

    fn kept_of(
        moments: &[u64],
        entries: &[(u64, EntryKind)],
        ranges: &[u64],
        bottom: bool,
    ) -> Vec<bool> {
        let mut tombstones = RangeTombstones::default();
        for &sequence in ranges {
            tombstones.add(b"a", None, sequence);
        }
        let mut retainer = Retainer::new(moments.to_vec(), tombstones);
        let judge = |&(sequence, kind): &(u64, EntryKind)| {
            retainer.keeps(&entry(b"k", sequence, kind), |_| bottom)
        };
        entries.iter().map(judge).collect()
    }

    const VALUE: EntryKind = EntryKind::Value;
    const DELETE: EntryKind = EntryKind::Delete;
    const KEPT: bool = true;
    const DROPPED: bool = false;

    #[test]
    fn each_moment_keeps_the_newest_entry_that_it_sees() {
        let entries = [(9, VALUE), (7, VALUE), (5, VALUE), (3, VALUE), (2, VALUE)];
        assert_eq!(
            kept_of(&[3, 5, 8], &entries, &[], true),
            [KEPT, KEPT, KEPT, KEPT, DROPPED]
        );
        assert_eq!(
            kept_of(&[20], &entries, &[], true),
            [KEPT, DROPPED, DROPPED, DROPPED, DROPPED]
        );
    }

    #[test]
    fn nothing_above_the_visible_moment_goes() {
        let entries = [(9, VALUE), (8, VALUE), (7, DELETE), (6, VALUE)];
        let kept = [KEPT; 4];
        assert_eq!(kept_of(&[5], &entries, &[], true), kept);
        assert_eq!(kept_of(&[5], &entries, &[10], true), kept);
    }

    #[test]
    fn a_tombstone_stays_while_a_moment_or_a_table_below_needs_it() {
        let entries = [(4, DELETE), (2, VALUE)];
        assert_eq!(kept_of(&[9], &entries, &[], true), [DROPPED, DROPPED]);
        assert_eq!(kept_of(&[9], &entries, &[], false), [KEPT, DROPPED]);
        // A reader at 3 sees the value: both stay.
        assert_eq!(kept_of(&[3, 9], &entries, &[], true), [KEPT; 2]);
    }

    #[test]
    fn a_range_tombstone_drops_only_what_no_moment_sees() {
        let entries = [(6, VALUE), (4, VALUE), (2, VALUE)];
        assert_eq!(
            kept_of(&[4, 9], &entries, &[5, 3], true),
            [KEPT, KEPT, DROPPED]
        );
        assert_eq!(
            kept_of(&[2, 9], &entries, &[8], true),
            [DROPPED, DROPPED, KEPT]
        );
    }

    #[test]
    fn the_same_entry_a_second_time_was_relocated() {
        let entries = [(4, VALUE), (4, VALUE)];
        assert_eq!(kept_of(&[1], &entries, &[], true), [KEPT, DROPPED]);
    }

    #[test]
    fn range_tombstones_thin_out_by_spans() {
        let mut tombstones = RangeTombstones::default();
        for sequence in [2, 4, 6, 8, 11, 12] {
            tombstones.add(b"a", Some(b"c"), sequence);
        }
        let retainer = Retainer::new(vec![5, 10], tombstones);
        let numbers = |nothing_below| {
            let kept = retainer.kept_tombstones(|_| nothing_below);
            kept.iter()
                .next()
                .map(|(_, fragment)| fragment.sequences.clone())
        };
        assert_eq!(numbers(false), Some(vec![12, 11, 8, 4]));
        // Nothing below: those of the first span are not needed.
        assert_eq!(numbers(true), Some(vec![12, 11, 8]));
    }
}
