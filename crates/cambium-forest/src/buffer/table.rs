//! Keys and their versions in a hash table: what a writer inserts into and a
//! lookup of one key asks.
//!
//! ```text
//! slots   │ tag, key number │ free │ tag, key number │ …      open addressing
//!              │
//! entries │ namespace, key, newest version, older │ …         by key number
//!              │                             │
//! keys    │ bytes of all keys, one after the other │
//! older   │ version, older │ …                                chains, newest first
//! ```
//!
//! A key keeps its number as long as the table lives, and numbers count up in
//! the order of arrival; so ordering keys needs to look only at those
//! that have come since ([`super::order`]). What it costs: one slot, one entry
//! and one key a lookup, each a place in memory, however many keys there are.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

use super::segments::{KeyBytes, KeyPlace, Segments};
use super::version::{KeptMoments, Version};
use crate::document::DocumentAddress;

/// Slots of the smallest table.
const LEAST_SLOTS: usize = 16;
/// No document: offset 0 is the file's header.
const REMOVED: u64 = 0;
/// The end of a chain.
const NONE: u32 = u32::MAX;

/// A version, and the one before it.
#[derive(Clone, Copy, Debug)]
struct Link {
    sequence: u64,
    document: u64,
    older: u32,
}

impl Link {
    fn new(version: Version, older: u32) -> Self {
        Link {
            sequence: version.sequence,
            document: version.document.map_or(REMOVED, |address| address.0),
            older,
        }
    }

    fn version(&self) -> Version {
        let document = (self.document != REMOVED).then_some(DocumentAddress(self.document));
        Version {
            sequence: self.sequence,
            document,
        }
    }
}

#[derive(Debug)]
struct Entry {
    newest: Link,
    key: KeyPlace,
    namespace: u16,
}

/// What an insertion has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inserted {
    pub is_new_key: bool,
    /// Old versions that no reader can ask for any more.
    pub dropped: u64,
}

/// The keys of a buffer.
#[derive(Debug)]
pub(super) struct Table {
    hasher: FixedState,
    /// The upper half of the hash, which also says where to begin looking, and
    /// the key's number and one; 0 is free. Their count is a power of two, or 0.
    slots: Vec<u64>,
    entries: Segments<Entry>,
    keys: KeyBytes,
    older: Segments<Link>,
    /// Places in `older` that are free.
    free: Vec<u32>,
}

impl Table {
    /// An empty one with room for some keys.
    pub fn new(seed: u64, expected: usize) -> Self {
        let slots = match expected {
            0 => 0,
            _ => (expected + expected / 3)
                .next_power_of_two()
                .max(LEAST_SLOTS),
        };
        Table {
            hasher: FixedState::with_seed(seed),
            slots: vec![0; slots],
            entries: Segments::default(),
            keys: KeyBytes::default(),
            older: Segments::default(),
            free: Vec::new(),
        }
    }

    /// How many keys there are; they are numbered from 0.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The namespace and the bytes of a key.
    pub fn key(&self, number: u32) -> (u16, &[u8]) {
        let entry = self.entries.get(number);
        (entry.namespace, self.keys.get(entry.key))
    }

    /// A key's newest version.
    pub fn newest(&self, number: u32) -> Version {
        self.entries.get(number).newest.version()
    }

    /// What a key was at a moment.
    pub fn at(&self, number: u32, sequence: u64) -> Option<Version> {
        let mut link = &self.entries.get(number).newest;
        loop {
            if link.sequence <= sequence {
                return Some(link.version());
            }
            if link.older == NONE {
                return None;
            }
            link = self.older.get(link.older);
        }
    }

    /// The number of a key.
    pub fn number_of(&self, namespace: u16, key: &[u8]) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        self.find(self.hash(namespace, key), namespace, key).ok()
    }

    fn hash(&self, namespace: u16, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u16(namespace);
        hasher.write(key);
        hasher.finish()
    }

    /// A key's number, or the free slot where it would be.
    fn find(&self, hash: u64, namespace: u16, key: &[u8]) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let mut place = (hash >> 32) as usize & mask;
        loop {
            let slot = self.slots[place];
            if slot == 0 {
                return Err(place);
            }
            if slot >> 32 == hash >> 32 {
                let number = slot as u32 - 1;
                let entry = self.entries.get(number);
                if entry.namespace == namespace && self.keys.get(entry.key) == key {
                    return Ok(number);
                }
            }
            place = (place + 1) & mask;
        }
    }

    /// Adds a version, younger than all others of the key.
    pub fn insert(
        &mut self,
        namespace: u16,
        key: &[u8],
        version: Version,
        kept: &KeptMoments,
    ) -> Inserted {
        // At least a quarter of the slots stays free.
        if (self.len() + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let hash = self.hash(namespace, key);
        match self.find(hash, namespace, key) {
            Ok(number) => Inserted {
                is_new_key: false,
                dropped: self.push_version(number, version, kept),
            },
            Err(place) => {
                let number = self.entries.push(Entry {
                    newest: Link::new(version, NONE),
                    key: self.keys.push(key),
                    namespace,
                });
                self.slots[place] = (hash & TAG) | u64::from(number + 1);
                Inserted {
                    is_new_key: true,
                    dropped: 0,
                }
            }
        }
    }

    fn grow(&mut self) {
        let mut slots = vec![0u64; (self.slots.len() * 2).max(LEAST_SLOTS)];
        let mask = slots.len() - 1;
        for &slot in self.slots.iter().filter(|&&slot| slot != 0) {
            let mut place = (slot >> 32) as usize & mask;
            while slots[place] != 0 {
                place = (place + 1) & mask;
            }
            slots[place] = slot;
        }
        self.slots = slots;
    }

    /// Puts a version before a key's others, and drops those that no reader can
    /// ask for; answers how many.
    fn push_version(&mut self, number: u32, version: Version, kept: &KeptMoments) -> u64 {
        let before = self.entries.get(number).newest;
        let mut younger = version.sequence;
        let mut dropped = 0;
        let mut chain: Vec<Link> = Vec::new();
        let mut next = before.older;
        if kept.any_within(before.sequence, younger) {
            younger = before.sequence;
            chain.push(before);
        } else {
            dropped += 1;
        }
        while next != NONE {
            let link = *self.older.get(next);
            self.free.push(next);
            if kept.any_within(link.sequence, younger) {
                younger = link.sequence;
                chain.push(link);
            } else {
                dropped += 1;
            }
            next = link.older;
        }
        let mut older = NONE;
        for link in chain.into_iter().rev() {
            older = self.keep(Link { older, ..link });
        }
        self.entries.get_mut(number).newest = Link::new(version, older);
        dropped
    }

    fn keep(&mut self, link: Link) -> u32 {
        match self.free.pop() {
            Some(place) => {
                *self.older.get_mut(place) = link;
                place
            }
            None => self.older.push(link),
        }
    }
}

/// The part of a slot that is of the hash.
const TAG: u64 = !(u32::MAX as u64);
