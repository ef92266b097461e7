//! Places in the log where a tail may end, in steps of about a MiB: where groups of writes
//! begin, in memory alone.
//!
//! A flush moves documents whose tombstones writers append meanwhile. A tail must not end
//! between the two: without the tombstone, a repair that has the log alone would take the moved
//! document for a live one. So a tail may end at a place if no tombstone lies between it and
//! the beginning of the last flush before it.

use std::collections::VecDeque;

use cambium_io::sync::Mutex;
use cambium_io::sync::atomic::{AtomicU64, Ordering};

use crate::core::lock;

/// Places that are remembered, the newest of a long log.
const MOST_PLACES: usize = 1 << 16;

/// A place where a group of writes begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub offset: u64,
    /// The last write before it.
    pub sequence: u64,
    /// How many tombstones the log has had before it, in this opening.
    pub tombstones: u64,
}

/// The places of one file, in ascending order. Changed under the writer lock.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// The log's end from which on a place is worth a mark.
    due_at: AtomicU64,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    places: VecDeque<(Place, bool)>,
    /// Tombstones before the last flush that began before the first place; `None`: not known.
    before: Option<u64>,
}

impl Marks {
    /// True if a group that begins at the log's end is to be noted.
    pub fn is_due(&self, end: u64) -> bool {
        end >= self.due_at.load(Ordering::Relaxed)
    }

    /// Notes where a group begins; the next is not due until `apart` bytes later.
    pub fn note(&self, place: Place, apart: u64) {
        self.due_at.store(place.offset + apart, Ordering::Relaxed);
        self.push(place, false);
    }

    /// Notes where writes go on that a flush, which begins now, does not carry.
    pub fn note_flush(&self, place: Place) {
        self.push(place, true);
    }

    fn push(&self, place: Place, is_flush: bool) {
        let mut list = lock(&self.list);
        // The log was cut back where a write failed.
        while list.places.back().is_some_and(|(last, is_flush)| {
            last.offset > place.offset || last.offset == place.offset && !is_flush
        }) {
            list.places.pop_back();
        }
        list.places.push_back((place, is_flush));
        if list.places.len() > MOST_PLACES {
            list.forget_first();
        }
    }

    /// The first place from `wanted` to `most` where a tail may end.
    pub fn find(&self, wanted: u64, most: u64) -> Option<Place> {
        let list = lock(&self.list);
        let mut before = list.before;
        for &(place, is_flush) in &list.places {
            if is_flush {
                before = Some(place.tombstones);
            }
            let may_end = before == Some(place.tombstones);
            if place.offset > most {
                return None;
            }
            if place.offset >= wanted && may_end {
                return Some(place);
            }
        }
        None
    }

    /// Forgets places before the log's beginning.
    pub fn forget_before(&self, begin: u64) {
        let mut list = lock(&self.list);
        while list
            .places
            .front()
            .is_some_and(|(place, _)| place.offset < begin)
        {
            list.forget_first();
        }
    }
}

impl List {
    fn forget_first(&mut self) {
        if let Some((place, true)) = self.places.pop_front() {
            self.before = Some(place.tombstones);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u64, tombstones: u64) -> Place {
        Place {
            offset,
            sequence: offset / 10,
            tombstones,
        }
    }

    fn found(marks: &Marks, wanted: u64) -> Option<u64> {
        marks.find(wanted, 10_000).map(|place| place.offset)
    }

    #[test]
    fn a_tail_ends_at_no_place_that_tombstones_lie_before_since_a_flush_began() {
        let marks = Marks::default();
        marks.note(place(1000, 0), 500);
        assert_eq!(found(&marks, 0), None, "what lies before is not known");
        marks.note_flush(place(2000, 0));
        marks.note(place(3000, 0), 500);
        marks.note(place(4000, 2), 500);
        marks.note_flush(place(5000, 2));
        marks.note(place(6000, 2), 500);
        assert_eq!(found(&marks, 0), Some(2000));
        assert_eq!(found(&marks, 2500), Some(3000));
        assert_eq!(found(&marks, 3500), Some(5000));
        assert_eq!(found(&marks, 5500), Some(6000));
        assert_eq!(marks.find(5500, 5900).map(|place| place.offset), None);
        marks.forget_before(5500);
        assert_eq!(found(&marks, 0), Some(6000), "its flush is remembered");
    }

    #[test]
    fn places_that_a_failed_write_gave_up_are_forgotten() {
        let marks = Marks::default();
        marks.note_flush(place(1000, 0));
        marks.note(place(3000, 0), 500);
        assert!(!marks.is_due(3400));
        assert!(marks.is_due(3500));
        marks.note(place(2000, 0), 500);
        assert_eq!(found(&marks, 1500), Some(2000));
        assert_eq!(found(&marks, 2500), None);
    }
}
