//! Which version of each key the store should hold: 32 bits a loaded key.
//!
//! ```text
//!  bit 31      it is there (or will be, when what is under way ends)
//!  bit 30      it was there before what is under way began
//!  bits 16..30 writes of it under way: more than one, where a batch names it
//!              more than once
//!  bits 0..16  version: how often it was written, modulo 65,536
//! ```
//!
//! One thread alone writes a key (the stream of operations sees to that), so
//! the order of a key's versions is known exactly. Any thread may read it: it
//! looks here before and after its read. If nothing happened in between, one
//! answer alone is right; otherwise any version from the one that had been
//! written before to the one that was under way after.
//!
//! Versions go round after 65,536 writes of one key. A value that is older by
//! just a multiple of that would pass for the right one: nothing that goes
//! wrong in stores has such steps.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::values::Values;

const THERE: u32 = 1 << 31;
const WAS_THERE: u32 = 1 << 30;
const ONE_UNDER_WAY: u32 = 1 << 16;
const UNDER_WAY: u32 = WAS_THERE - ONE_UNDER_WAY;
const VERSION: u32 = ONE_UNDER_WAY - 1;

#[derive(Debug)]
pub struct Versions {
    states: Vec<AtomicU32>,
}

/// What was known of a key at some moment; by default, before it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    state: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// "It is not there" is right.
    pub absent: bool,
    pub present: bool,
    newest: u32,
    count: u32,
}

impl Versions {
    pub fn new(keys: u64) -> Self {
        Versions {
            states: (0..keys).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    pub fn count(&self) -> u64 {
        self.states.len() as u64
    }

    // A state is published before the store is called and after it returned.
    // The store's own locks order its data; acquire and release here keep the
    // state from being older than the data that a reader of it sees.

    /// A put begins: the version that it writes.
    #[inline]
    pub fn begin_put(&self, number: u64) -> u64 {
        self.begin(number, THERE)
    }

    #[inline]
    pub fn begin_delete(&self, number: u64) -> u64 {
        self.begin(number, 0)
    }

    #[inline]
    fn begin(&self, number: u64, there: u32) -> u64 {
        let state = &self.states[number as usize];
        let before = state.load(Ordering::Relaxed);
        let under_way = before & UNDER_WAY;
        let was_there = match under_way {
            0 => (before & THERE) >> 1,
            _ => before & WAS_THERE,
        };
        let under_way = (under_way + ONE_UNDER_WAY).min(UNDER_WAY);
        let version = (before + 1) & VERSION;
        state.store(there | was_there | under_way | version, Ordering::Release);
        u64::from(version)
    }

    /// All writes of it that are under way have ended: the one call, or the
    /// batch, that held them has returned.
    #[inline]
    pub fn end(&self, number: u64) {
        let state = &self.states[number as usize];
        let ended = state.load(Ordering::Relaxed) & !(UNDER_WAY | WAS_THERE);
        state.store(ended, Ordering::Release);
    }

    /// Brings what is known into the processor's cache: many of these, one
    /// after another, wait for memory together.
    #[inline]
    pub fn touch(&self, number: u64) {
        std::hint::black_box(self.states[number as usize].load(Ordering::Relaxed));
    }

    #[inline]
    pub fn known(&self, number: u64) -> Known {
        Known {
            state: self.states[number as usize].load(Ordering::Acquire),
        }
    }

    /// Takes over what is known from elsewhere.
    pub fn set(&self, number: u64, known: Known) {
        self.states[number as usize].store(known.state, Ordering::Release);
    }

    /// What is known of a key that was put once, and perhaps deleted after that.
    pub fn once(is_there: bool) -> Known {
        Known {
            state: if is_there { THERE | 1 } else { 2 },
        }
    }

    /// What a read that lay between two moments may have answered.
    pub fn allowed(before: Known, after: Known) -> Allowed {
        let newest = after.state & VERSION;
        let there = after.state & THERE != 0;
        if before == after && before.unfinished() == 0 {
            return Allowed {
                absent: !there,
                present: there,
                newest,
                count: 1,
            };
        }
        let newer = newest.wrapping_sub(before.state & VERSION) & VERSION;
        Allowed {
            absent: !before.was_there() || before.state & THERE == 0 || !there,
            present: true,
            newest,
            count: newer + before.unfinished() + 1,
        }
    }

    /// Keys that are there, with their versions.
    pub fn live(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.states
            .iter()
            .enumerate()
            .filter_map(|(number, state)| {
                let state = state.load(Ordering::Acquire);
                (state & THERE != 0).then_some((number as u64, u64::from(state & VERSION)))
            })
    }
}

impl Known {
    pub fn bits(self) -> u32 {
        self.state
    }

    /// The answers that a read may give while no one writes.
    pub fn allowed(self) -> Allowed {
        Versions::allowed(self, self)
    }

    pub fn of_bits(state: u32) -> Known {
        Known { state }
    }

    /// Whether a write of it has begun.
    pub fn was_written(self) -> bool {
        self.state != 0
    }

    /// Whether a write of it has begun, and not ended.
    pub fn is_under_way(self) -> bool {
        self.unfinished() > 0
    }

    /// The last version whose write has ended; 0 if there is none.
    pub fn answered(self) -> u64 {
        u64::from((self.state & VERSION).wrapping_sub(self.unfinished()) & VERSION)
    }

    fn unfinished(self) -> u32 {
        (self.state & UNDER_WAY) / ONE_UNDER_WAY
    }

    /// Whether it is there for one who sees nothing of what is under way.
    fn was_there(self) -> bool {
        let bit = match self.unfinished() {
            0 => THERE,
            _ => WAS_THERE,
        };
        self.state & bit != 0
    }
}

impl Allowed {
    /// True of a key's value, or of its absence, that may be answered.
    pub fn is_right(self, values: &Values, number: u64, value: Option<&[u8]>) -> bool {
        value.map_or(self.absent, |value| {
            let mut versions = self.versions();
            versions.any(|version| values.matches(value, number, version))
        })
    }

    /// The versions that are right, the newest first.
    pub fn versions(self) -> impl Iterator<Item = u64> {
        let count = if self.present { self.count } else { 0 };
        (0..count).map(move |older| u64::from(self.newest.wrapping_sub(older) & VERSION))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(versions: &Versions, before: Known) -> (bool, Vec<u64>) {
        let allowed = Versions::allowed(before, versions.known(0));
        (allowed.absent, allowed.versions().collect())
    }

    #[test]
    fn between_writes_one_answer_is_right() {
        let versions = Versions::new(1);
        assert_eq!(allowed(&versions, versions.known(0)), (true, vec![]));
        assert_eq!(versions.begin_put(0), 1);
        versions.end(0);
        assert_eq!(allowed(&versions, versions.known(0)), (false, vec![1]));
        assert_eq!(versions.begin_put(0), 2);
        versions.end(0);
        assert_eq!(allowed(&versions, versions.known(0)), (false, vec![2]));
        versions.begin_delete(0);
        versions.end(0);
        assert_eq!(allowed(&versions, versions.known(0)), (true, vec![]));
    }

    #[test]
    fn beside_a_write_old_and_new_are_right() {
        let versions = Versions::new(1);
        for _ in 0..3 {
            versions.begin_put(0);
            versions.end(0);
        }
        let before = versions.known(0);
        versions.begin_put(0);
        assert_eq!(allowed(&versions, before), (false, vec![4, 3]));
        let during = versions.known(0);
        assert_eq!(allowed(&versions, during), (false, vec![4, 3]));
        versions.end(0);
        assert_eq!(allowed(&versions, before), (false, vec![4, 3]));
        versions.begin_put(0);
        versions.end(0);
        assert_eq!(allowed(&versions, during), (false, vec![5, 4, 3]));
    }

    #[test]
    fn beside_the_first_write_and_beside_a_deletion_absence_is_right() {
        let versions = Versions::new(1);
        let before = versions.known(0);
        versions.begin_put(0);
        assert!(allowed(&versions, before).0);
        assert!(allowed(&versions, versions.known(0)).0);
        versions.end(0);
        let before = versions.known(0);
        versions.begin_delete(0);
        assert!(allowed(&versions, before).0);
        assert!(allowed(&versions, before).1.contains(&1));
    }

    #[test]
    fn a_batch_that_writes_a_key_twice_may_not_be_there_yet() {
        let versions = Versions::new(1);
        for _ in 0..3 {
            versions.begin_put(0);
            versions.end(0);
        }
        versions.begin_put(0);
        versions.begin_put(0);
        let during = versions.known(0);
        assert_eq!(allowed(&versions, during), (false, vec![5, 4, 3]));
        // It ends once, whether its end is told for each of its operations or not.
        versions.end(0);
        versions.end(0);
        assert_eq!(allowed(&versions, during), (false, vec![5, 4, 3]));
        assert_eq!(allowed(&versions, versions.known(0)), (false, vec![5]));
    }

    #[test]
    fn a_key_that_comes_back_may_not_be_there_yet() {
        let versions = Versions::new(1);
        versions.begin_put(0);
        versions.end(0);
        versions.begin_delete(0);
        versions.end(0);
        versions.begin_put(0);
        let during = versions.known(0);
        assert!(allowed(&versions, during).0);
        versions.end(0);
        assert!(allowed(&versions, during).0, "the read may have come first");
        let there = versions.known(0);
        assert_eq!(allowed(&versions, there), (false, vec![3]));
        // A batch that deletes and writes again leaves it there all along.
        versions.begin_delete(0);
        let deleted = versions.known(0);
        versions.begin_put(0);
        assert!(!allowed(&versions, versions.known(0)).0);
        assert!(!allowed(&versions, there).0);
        assert!(allowed(&versions, deleted).0, "not every store has batches");
    }

    #[test]
    fn versions_go_round() {
        let versions = Versions::new(1);
        for _ in 0..u64::from(VERSION) {
            versions.begin_put(0);
            versions.end(0);
        }
        let before = versions.known(0);
        assert_eq!(versions.begin_put(0), 0);
        assert_eq!(
            allowed(&versions, before),
            (false, vec![0, u64::from(VERSION)])
        );
    }

    #[test]
    fn the_live_are_counted() {
        let versions = Versions::new(3);
        versions.begin_put(0);
        versions.begin_put(2);
        versions.begin_put(2);
        versions.begin_put(1);
        versions.begin_delete(1);
        assert_eq!(versions.live().collect::<Vec<_>>(), [(0, 1), (2, 2)]);
    }
}
