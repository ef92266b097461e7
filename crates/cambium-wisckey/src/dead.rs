//! Which records are known to be dead, so that a collection need not ask the tree
//! about them.
//!
//! A flush or compaction drops the only entry that leads to a record; from the edit
//! that makes its tables count on, no lookup finds it any more. The ledger counts such
//! bytes for good; here their places are kept, in memory and since the opening only.
//! Where most of a segment is garbage, most of what a collection would look up is
//! known to be dead. What is not known is asked.

//!
//! Where they come to all the garbage that the ledger counts in a segment, the rest of it
//! is in the tree: then a collection need not look for it there ([`DeadPlaces::is_all`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::format::ALIGNMENT;

/// Most records that are remembered: 8 bytes each. A small memory budget allows fewer.
pub(crate) const MOST_KNOWN: usize = 2 << 20;
/// A job tells this part of them at most.
const TOLD_SHARE: usize = 2;

/// A dead record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// In units of the log's alignment, as its bytes.
    offset: u32,
    bytes: u32,
}

impl Place {
    fn of(offset: u64, bytes: u64) -> Self {
        Place {
            offset: (offset / ALIGNMENT) as u32,
            bytes: (bytes / ALIGNMENT) as u32,
        }
    }
}

/// Dead records of a job that is not committed yet.
#[derive(Debug, Default)]
pub(crate) struct Told {
    places: Vec<(u32, Place)>,
    /// It takes so many at most.
    most: usize,
    /// Segments of which not all was told.
    lossy: BTreeSet<u32>,
}

impl Told {
    /// A record is dead once the job is committed.
    pub fn add(&mut self, segment: u32, offset: u64, bytes: u64) {
        match self.places.len() < self.most {
            true => self.places.push((segment, Place::of(offset, bytes))),
            false => {
                self.lossy.insert(segment);
            }
        }
    }
}

/// All that is known.
#[derive(Debug)]
pub(crate) struct DeadIndex {
    of: BTreeMap<u32, Vec<Place>>,
    known: usize,
    /// It remembers so many at most.
    most: usize,
    /// Segments of which something was forgotten.
    lossy: BTreeSet<u32>,
    /// Of the edit that is being made.
    told: Told,
}

impl Default for DeadIndex {
    fn default() -> Self {
        DeadIndex {
            of: BTreeMap::new(),
            known: 0,
            most: MOST_KNOWN,
            lossy: BTreeSet::new(),
            told: Told::default(),
        }
    }
}

impl DeadIndex {
    /// Remembers so many at most from now on.
    pub fn remember(&mut self, most: usize) {
        self.most = most;
    }

    /// For what a job tells.
    pub fn nothing_told(&self) -> Told {
        Told {
            most: self.most / TOLD_SHARE,
            ..Told::default()
        }
    }

    /// An edit is about to be made.
    pub fn tell(&mut self, told: Told) {
        self.told = told;
    }

    /// The edit was made. Of segments that are not known any more nothing is kept.
    pub fn confirm(&mut self, is_known: impl Fn(u32) -> bool) {
        let told = std::mem::take(&mut self.told);
        for (segment, place) in told.places {
            if !is_known(segment) {
                continue;
            }
            if self.known < self.most {
                self.add(segment, place);
            } else {
                self.lossy.insert(segment);
            }
        }
        self.lossy
            .extend(told.lossy.into_iter().filter(|&lossy| is_known(lossy)));
    }

    fn add(&mut self, segment: u32, place: Place) {
        self.known += 1;
        self.of.entry(segment).or_default().push(place);
    }

    /// A record that no entry ever led to, whatever is remembered otherwise.
    pub fn never_lived(&mut self, segment: u32, offset: u64, bytes: u64) {
        self.add(segment, Place::of(offset, bytes));
    }

    /// The edit was not made: the old tables go on.
    pub fn refuse(&mut self) {
        self.told = Told::default();
    }

    /// Forgets a segment that was dropped.
    pub fn forget(&mut self, segment: u32) {
        self.take(segment);
        self.lossy.remove(&segment);
    }

    /// Forgets everything.
    pub fn forget_all(&mut self) {
        *self = DeadIndex {
            most: self.most,
            ..DeadIndex::default()
        };
    }

    /// Takes what is known of a segment, since it was taken last.
    pub fn take(&mut self, segment: u32) -> DeadPlaces {
        let mut places = self.of.remove(&segment).unwrap_or_default();
        self.known -= places.len();
        places.sort_unstable();
        DeadPlaces {
            places,
            at: 0,
            is_lossy: self.lossy.contains(&segment),
        }
    }
}

/// Dead records of one segment.
#[derive(Debug, Default)]
pub(crate) struct DeadPlaces {
    places: Vec<Place>,
    at: usize,
    is_lossy: bool,
}

impl DeadPlaces {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if these are all dead records of a segment in which the ledger counts so many
    /// bytes of garbage.
    pub fn is_all(&self, garbage: u64) -> bool {
        let bytes = self.places.iter().map(|place| u64::from(place.bytes));
        !self.is_lossy && bytes.sum::<u64>() * ALIGNMENT == garbage
    }

    /// True if some of those told lately were forgotten.
    pub fn is_lossy(&self) -> bool {
        self.is_lossy
    }

    /// Adds those that were told later.
    pub fn add(&mut self, later: &DeadPlaces) {
        if later.len() > 0 {
            self.places.extend_from_slice(&later.places);
            self.places.sort_unstable();
            self.at = 0;
        }
        self.is_lossy |= later.is_lossy;
    }

    /// True if the record at `offset` is dead; asked with ascending offsets.
    pub fn contains(&mut self, offset: u64) -> bool {
        let place = (offset / ALIGNMENT) as u32;
        while self.places.get(self.at).is_some_and(|at| at.offset < place) {
            self.at += 1;
        }
        let at = self.places.get(self.at);
        at.is_some_and(|at| at.offset == place)
    }

    /// True if the record at `offset` is dead; asked in any order.
    pub fn has(&self, offset: u64) -> bool {
        let place = (offset / ALIGNMENT) as u32;
        let found = self.places.binary_search_by_key(&place, |at| at.offset);
        found.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(records: &[(u32, u64)]) -> Told {
        let mut told = DeadIndex::default().nothing_told();
        for &(segment, place) in records {
            told.add(segment, place * ALIGNMENT, 2 * ALIGNMENT);
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

    #[test]
    fn all_is_known_where_the_ledger_counts_no_more() {
        let mut index = DeadIndex::default();
        index.tell(told(&[(1, 9), (1, 4)]));
        index.confirm(|_| true);
        assert!(index.take(2).is_all(0));
        let mut places = index.take(1);
        assert!(places.is_all(4 * ALIGNMENT));
        assert!(!places.is_all(5 * ALIGNMENT));
        index.never_lived(1, 20 * ALIGNMENT, ALIGNMENT);
        let later = index.take(1);
        assert!(later.has(20 * ALIGNMENT) && !later.has(9 * ALIGNMENT));
        places.add(&later);
        assert!(places.is_all(5 * ALIGNMENT));
        assert!(places.has(4 * ALIGNMENT) && places.contains(9 * ALIGNMENT));
        index.tell(Told {
            lossy: BTreeSet::from([1]),
            ..Told::default()
        });
        index.confirm(|_| true);
        assert!(index.take(1).is_lossy());
        assert!(!index.take(1).is_all(0));
        index.forget(1);
        assert!(index.take(1).is_all(0));
    }
}
