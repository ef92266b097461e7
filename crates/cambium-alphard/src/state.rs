//! What readers see: the index, and what has changed since open snapshots began.
//!
//! While a snapshot or cursor is open, each change of a key leaves a note of what
//! was there before, and extents that it sees are not given back. What a snapshot
//! sees of a key is what the first change after its moment replaced; of a key
//! without such a change, what the index holds. Nothing is kept while none is open.

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_base::hash::sip13;
use cambium_index::CuckooIndex;
use cambium_index::cuckoo::SlotKey;

use crate::change_log::ChangeLog;
use crate::format::Superblock;
use crate::place::Place;

/// The state under the lock that readers share.
#[derive(Debug)]
pub(crate) struct State {
    pub index: CuckooIndex,
    secret: [u64; 2],
    /// The last write that readers see.
    pub visible: u64,
    /// Of all entries in the index.
    pub live_digest: u64,
    /// Moments that are held, and how often.
    pins: BTreeMap<u64, usize>,
    /// Cleaning holds one of them.
    pub is_cleaned: bool,
    history: BTreeMap<(u64, Arc<[u8]>), Vec<Change>>,
    changes: u64,
    /// Of a store that was made with `history=on`: every write that readers see and that is not
    /// lost.
    pub log: Option<ChangeLog>,
}

/// One change of a key.
#[derive(Clone, Copy, Debug)]
struct Change {
    sequence: u64,
    before: Option<Place>,
    after: Option<Place>,
}

impl Superblock {
    /// Says that everything up to a write is durable, and what is live then.
    pub(crate) fn describe(&mut self, sequence: u64, state: &State) {
        self.sequence = sequence;
        self.synced_through = sequence;
        self.live_digest = state.live_digest;
        self.live_entries = state.index.len() as u64;
    }
}

/// What a key is called in the index and in entry headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyName {
    pub slot: SlotKey,
    pub check: u64,
}

/// The second hash of a key, under a secret that follows from the first one's.
pub(crate) fn name_of(index: &CuckooIndex, secret: [u64; 2], key: &[u8]) -> KeyName {
    KeyName {
        slot: index.key(key),
        check: sip13(key, [!secret[1], secret[0].rotate_left(17)]),
    }
}

/// A page of a walk: places of entries, in the order of their keys' hashes.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub entries: Vec<(u64, SlotKey, Place)>,
    /// The hash to go on from.
    pub next: Option<u64>,
}

impl State {
    pub fn new(secret: [u64; 2], visible: u64) -> Self {
        State {
            index: CuckooIndex::new(secret),
            secret,
            visible,
            live_digest: 0,
            pins: BTreeMap::new(),
            is_cleaned: false,
            history: BTreeMap::new(),
            changes: 0,
            log: None,
        }
    }

    /// What hashes of keys are made under.
    pub fn secret(&self) -> [u64; 2] {
        self.secret
    }

    /// What a key is called.
    pub fn name(&self, key: &[u8]) -> KeyName {
        name_of(&self.index, self.secret, key)
    }

    /// The places of entries under a slot.
    pub fn find(&self, slot: SlotKey) -> impl Iterator<Item = Place> + '_ {
        self.index.find(slot).map(Place::of_slot)
    }

    /// Entries that are live, from a hash on: those of one segment, and where the next begins.
    pub fn live_page(&self, from: u64) -> (Vec<(u64, SlotKey, Place)>, Option<u64>) {
        let mut slots = Vec::new();
        let next = self.index.page(from, &mut slots);
        let entries = slots.into_iter();
        let placed = entries.map(|(hash, slot, at)| (hash, slot, Place::of_slot(at)));
        (placed.collect(), next)
    }

    /// Changes kept for open snapshots.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Snapshots and cursors open.
    pub fn pins(&self) -> usize {
        self.pins.values().sum::<usize>() - usize::from(self.is_cleaned)
    }

    /// The oldest moment that is held.
    pub fn oldest_pin(&self) -> Option<u64> {
        self.pins.keys().next().copied()
    }

    /// Holds the moment now.
    pub fn pin(&mut self) -> u64 {
        *self.pins.entry(self.visible).or_default() += 1;
        self.visible
    }

    /// Lets a moment go; answers places that no reader sees any more, with the
    /// write that made each obsolete.
    pub fn unpin(&mut self, moment: u64) -> Vec<(u64, Place)> {
        let before = self.pins.keys().next().copied();
        if let Some(count) = self.pins.get_mut(&moment) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(&moment);
            }
        }
        let oldest = self.pins.keys().next().copied();
        if oldest == before {
            // What the oldest keeps, all keep.
            return Vec::new();
        }
        self.let_go(oldest.unwrap_or(u64::MAX))
    }

    /// Lets all moments go, as [`State::unpin`] does one.
    pub fn unpin_all(&mut self) -> Vec<(u64, Place)> {
        self.pins.clear();
        self.let_go(u64::MAX)
    }

    /// Forgets the changes that no moment from `oldest` on needs.
    fn let_go(&mut self, oldest: u64) -> Vec<(u64, Place)> {
        let mut freed = Vec::new();
        self.history.retain(|_, changes| {
            changes.retain(|change| {
                let seen = change.sequence > oldest;
                if !seen {
                    freed.extend(change.before.map(|place| (change.sequence, place)));
                }
                seen
            });
            !changes.is_empty()
        });
        self.changes = self
            .history
            .values()
            .map(|changes| changes.len() as u64)
            .sum();
        freed
    }

    /// Does a change of a key; answers a place that no reader sees any more.
    pub fn change(
        &mut self,
        key: &[u8],
        name: SlotKey,
        (before, after): (Option<Place>, Option<Place>),
        sequence: u64,
    ) -> Option<Place> {
        let is_there = match (before, after) {
            (Some(old), Some(new)) => self.index.replace(name, old.slot(), new.slot()),
            (Some(old), None) => self.index.remove(name, old.slot()),
            (None, Some(new)) => {
                self.index.insert(name, new.slot());
                true
            }
            (None, None) => true,
        };
        debug_assert!(is_there, "the entry that is replaced is in the index");
        for place in [before, after].into_iter().flatten() {
            self.live_digest ^= crate::format::digest_of(name, place);
        }
        self.visible = sequence;
        if self.pins.is_empty() {
            return before;
        }
        let place = (self.index.hash(name), Arc::from(key));
        self.changes += 1;
        self.history.entry(place).or_default().push(Change {
            sequence,
            before,
            after,
        });
        None
    }

    /// What a moment sees of a key: `Err` with the candidates in the index where
    /// the key has not changed since.
    pub fn at(&self, key: &[u8], name: SlotKey, moment: u64) -> Result<Option<Place>, Vec<Place>> {
        let place = (self.index.hash(name), Arc::from(key));
        let changes = self.history.get(&place).map_or(&[][..], Vec::as_slice);
        match changes.iter().find(|change| change.sequence > moment) {
            Some(change) => Ok(change.before),
            None => Err(self.find(name).collect()),
        }
    }

    /// True if a moment that is held sees a key's entry at a place.
    pub fn sees(&self, key: &[u8], name: SlotKey, place: Place, moment: u64) -> bool {
        match self.at(key, name, moment) {
            Ok(seen) => seen == Some(place),
            Err(candidates) => candidates.contains(&place),
        }
    }

    /// Entries that a moment sees, from a hash on: those of one segment.
    pub fn page(&self, from: u64, moment: u64) -> Page {
        let (mut entries, next) = self.live_page(from);
        let start: (u64, Arc<[u8]>) = (from, Arc::from(&[][..]));
        let changed = match next {
            Some(end) => self.history.range(start..(end, Arc::from(&[][..]))),
            None => self.history.range(start..),
        };
        for ((hash, key), changes) in changed {
            let Some(first) = changes.iter().find(|change| change.sequence > moment) else {
                continue;
            };
            let name = self.index.key(key);
            let now = changes.last().and_then(|change| change.after);
            entries.retain(|(_, slot, place)| *slot != name || Some(*place) != now);
            entries.extend(first.before.map(|place| (*hash, name, place)));
        }
        entries.sort_unstable();
        Page { entries, next }
    }
}
