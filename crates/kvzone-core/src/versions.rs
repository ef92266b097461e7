//! Which version of each key the store should hold: 16 bits a loaded key.
//!
//! ```text
//!  bit 15      a write of it is under way
//!  bit 14      it is there (or will be, when the write ends)
//!  bits 0..14  version: how often it was written, modulo 16,384
//! ```
//!
//! One thread alone writes a key (the stream of operations sees to that), so
//! the order of a key's versions is known exactly. Any thread may read it: it
//! looks here before and after its read. If nothing happened in between, one
//! answer alone is right; otherwise any version from the one that had been
//! written before to the one that was under way after.
//!
//! Versions go round after 16,384 writes of one key. A value that is older by
//! just a multiple of that would pass for the right one: nothing that goes
//! wrong in stores has such steps.

use std::sync::atomic::{AtomicU16, Ordering};

const UNDER_WAY: u16 = 1 << 15;
const THERE: u16 = 1 << 14;
const VERSION: u16 = THERE - 1;

/// The versions of all loaded keys; none is there at first.
#[derive(Debug)]
pub struct Versions {
    states: Vec<AtomicU16>,
}

/// What was known of a key at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    state: u16,
}

/// What a read may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// "It is not there" is right.
    pub absent: bool,
    /// Some version is right.
    pub present: bool,
    newest: u16,
    count: u16,
}

impl Versions {
    /// For so many keys.
    pub fn new(keys: u64) -> Self {
        Versions {
            states: (0..keys).map(|_| AtomicU16::new(0)).collect(),
        }
    }

    /// Keys it knows.
    pub fn count(&self) -> u64 {
        self.states.len() as u64
    }

    // A state is published before the store is called and after it returned.
    // The store's own locks order its data; acquire and release here keep the
    // state from being older than the data that a reader of it sees.

    /// A put begins: the version that it writes.
    #[inline]
    pub fn begin_put(&self, number: u64) -> u64 {
        self.begin(number, UNDER_WAY | THERE)
    }

    /// A deletion begins.
    #[inline]
    pub fn begin_delete(&self, number: u64) -> u64 {
        self.begin(number, UNDER_WAY)
    }

    #[inline]
    fn begin(&self, number: u64, bits: u16) -> u64 {
        let state = &self.states[number as usize];
        let version = (state.load(Ordering::Relaxed) + 1) & VERSION;
        state.store(version | bits, Ordering::Release);
        u64::from(version)
    }

    /// The write that began last has ended.
    #[inline]
    pub fn end(&self, number: u64) {
        let state = &self.states[number as usize];
        let ended = state.load(Ordering::Relaxed) & !UNDER_WAY;
        state.store(ended, Ordering::Release);
    }

    /// Brings what is known into the processor's cache: many of these, one
    /// after another, wait for memory together.
    #[inline]
    pub fn touch(&self, number: u64) {
        std::hint::black_box(self.states[number as usize].load(Ordering::Relaxed));
    }

    /// What is known now.
    #[inline]
    pub fn known(&self, number: u64) -> Known {
        Known {
            state: self.states[number as usize].load(Ordering::Acquire),
        }
    }

    /// What a read that lay between two moments may have answered.
    pub fn allowed(before: Known, after: Known) -> Allowed {
        let newest = after.state & VERSION;
        let unfinished = u16::from(before.state & UNDER_WAY != 0);
        let newer = newest.wrapping_sub(before.state & VERSION) & VERSION;
        let still = before == after && unfinished == 0;
        let there = |known: Known| known.state & THERE != 0;
        if still {
            return Allowed {
                absent: !there(after),
                present: there(after),
                newest,
                count: 1,
            };
        }
        Allowed {
            // Version 1 is the first: before it, there was none.
            absent: !there(before) || !there(after) || before.state & VERSION <= unfinished,
            present: true,
            newest,
            count: newer + unfinished + 1,
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

impl Allowed {
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
