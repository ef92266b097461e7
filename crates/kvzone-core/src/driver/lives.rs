//! Which of a thread's keys are there, and which goes next, where keys have
//! lifetimes.
//!
//! A key is named by its position: those loaded in the order in which they go,
//! then those inserted. A lifetime counts inserts of the thread, not seconds, so
//! that every store sees the same operations. A delete takes the inserted key
//! that has been due for longest; where none is due, a loaded key; where those
//! are gone, the inserted key that is due first. So deletes in step with inserts
//! keep keys for as long as they should live, and the store neither fills nor
//! empties (KVZone, section 2.1).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::job::SizeChoice;

#[derive(Clone, Debug)]
pub struct Lives {
    lifetime: SizeChoice,
    /// Loaded keys that are gone, and all of them.
    gone: u64,
    loaded: u64,
    /// When each inserted key is due, in inserts, and its position.
    inserted: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Lives {
    /// With so many loaded keys.
    pub fn new(lifetime: SizeChoice, loaded: u64) -> Self {
        Lives {
            lifetime,
            gone: 0,
            loaded,
            inserted: BinaryHeap::new(),
        }
    }

    /// True if lifetimes differ.
    pub fn is_random(&self) -> bool {
        self.lifetime.smallest() != self.lifetime.largest()
    }

    /// A key is inserted, after so many others.
    pub fn begin(&mut self, position: u64, inserts: u64, random: u64) {
        let due = inserts.saturating_add(self.lifetime.pick(random));
        self.inserted.push(Reverse((due, position)));
    }

    /// The key that goes next, after so many inserts; the caller knows that there
    /// is one.
    pub fn end(&mut self, inserts: u64) -> u64 {
        let due = self.inserted.peek().map(|Reverse((due, _))| *due);
        let is_due = due.is_some_and(|due| due <= inserts);
        if is_due || self.gone == self.loaded {
            if let Some(Reverse((_, position))) = self.inserted.pop() {
                return position;
            }
        }
        self.gone += 1;
        self.gone - 1
    }

    /// The position of one of the keys that are there, by a number below how
    /// many there are.
    pub fn at(&self, choice: u64) -> u64 {
        let loaded = self.loaded - self.gone;
        match choice.checked_sub(loaded) {
            None => self.gone + choice,
            Some(later) => {
                let found = self.inserted.as_slice().get(later as usize);
                found.map_or(self.gone, |Reverse((_, position))| *position)
            }
        }
    }
}
