//! Which records are known to be dead, so that a collection need not ask the tree
//! about them.
//!
//! A flush or compaction drops the only entry that leads to a record; from the edit
//! that makes its tables count on, nobody finds it any more. The ledger counts such
//! bytes for good; here their places are kept, in memory and since the opening only.
//! Where most of a segment is garbage, most of what a collection would look up is
//! known to be dead. What is not known is asked.

use std::collections::BTreeMap;

use crate::format::ALIGNMENT;

/// Most records that are remembered: 4 bytes each.
const MOST_KNOWN: usize = 4 << 20;
/// Most that one job tells.
const MOST_TOLD: usize = 1 << 20;

/// Dead records of a job that is not committed yet.
#[derive(Debug, Default)]
pub(crate) struct Told(Vec<(u32, u32)>);

impl Told {
    /// A record is dead once the job is committed.
    pub fn add(&mut self, segment: u32, offset: u64) {
        if self.0.len() < MOST_TOLD {
            self.0.push((segment, (offset / ALIGNMENT) as u32));
        }
    }
}

/// All that is known.
#[derive(Debug, Default)]
pub(crate) struct DeadIndex {
    of: BTreeMap<u32, Vec<u32>>,
    known: usize,
    /// Of the edit that is being made.
    told: Told,
}

impl DeadIndex {
    /// An edit is about to be made.
    pub fn tell(&mut self, told: Told) {
        self.told = told;
    }

    /// The edit was made. Of segments that are not known any more nothing is kept.
    pub fn confirm(&mut self, is_known: impl Fn(u32) -> bool) {
        for (segment, place) in std::mem::take(&mut self.told).0 {
            if self.known < MOST_KNOWN && is_known(segment) {
                self.known += 1;
                self.of.entry(segment).or_default().push(place);
            }
        }
    }

    /// The edit was not made: the old tables go on.
    pub fn refuse(&mut self) {
        self.told = Told::default();
    }

    /// A segment was dropped: nobody will collect it.
    pub fn forget(&mut self, segment: u32) {
        self.take(segment);
    }

    /// Takes what is known of a segment.
    pub fn take(&mut self, segment: u32) -> DeadPlaces {
        let mut places = self.of.remove(&segment).unwrap_or_default();
        self.known -= places.len();
        places.sort_unstable();
        DeadPlaces { places, at: 0 }
    }
}

/// Dead records of one segment.
#[derive(Debug, Default)]
pub(crate) struct DeadPlaces {
    places: Vec<u32>,
    at: usize,
}

impl DeadPlaces {
    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if the record at `offset` is dead; asked with ascending offsets.
    pub fn contains(&mut self, offset: u64) -> bool {
        let place = (offset / ALIGNMENT) as u32;
        while self.places.get(self.at).is_some_and(|&at| at < place) {
            self.at += 1;
        }
        self.places.get(self.at) == Some(&place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(records: &[(u32, u64)]) -> Told {
        let mut told = Told::default();
        for &(segment, place) in records {
            told.add(segment, place * ALIGNMENT);
        }
        told
    }

    fn known(index: &mut DeadIndex, segment: u32) -> Vec<u64> {
        let mut places = index.take(segment);
        (0..20)
            .filter(|place| places.contains(place * ALIGNMENT))
            .collect()
    }

    #[test]
    fn only_what_was_committed_is_known() {
        let mut index = DeadIndex::default();
        index.tell(told(&[(1, 9), (2, 4), (1, 3)]));
        index.confirm(|_| true);
        index.tell(told(&[(1, 5)]));
        index.refuse();
        index.confirm(|_| true);
        index.tell(told(&[(1, 7)]));
        assert_eq!(known(&mut index, 1), [3, 9]);
        assert_eq!(known(&mut index, 1), [0; 0]);
        assert_eq!(known(&mut index, 2), [4]);
        assert_eq!(index.known, 0);
    }
    #[test]
    fn nothing_is_kept_of_a_segment_that_was_dropped() {
        let mut index = DeadIndex::default();
        index.tell(told(&[(1, 9), (2, 4), (3, 5)]));
        index.confirm(|segment| segment != 3);
        index.forget(1);
        index.forget(7);
        assert_eq!(index.known, 1);
        assert_eq!(known(&mut index, 1), [0; 0]);
        assert_eq!(known(&mut index, 3), [0; 0]);
        assert_eq!(known(&mut index, 2), [4]);
    }
}
