//! Addresses of documents by their keys, in memory: a lookup that finds its key here
//! reads no node.
//!
//! The trie stays the truth. What is here are *guesses* at what the trie would say:
//! 8 bytes each, a [`DocumentAddress`] with the 12 bits of its fingerprint, and the key
//! nowhere. So a table of all keys is a third to a half of the trie's leaves, and each
//! guess is one line of memory away. A lookup that takes one reads the document, as always,
//! and compares its namespace and key; what is another's is no more than a miss.
//!
//! ```text
//! hash of namespace and key ─▶ set │ address │ address │ … 8 in a line of memory
//!                                    bit 63: asked for since it came
//! ```
//!
//! # Promises
//! 1. *A guess whose key is the right one is the newest document that a flush has carried
//!    into the trie, or a newer one.* A flush and a compaction put or remove every key
//!    that they change, before readers get the new roots. A key that they change is in a
//!    buffer of every view with the roots before, so no reader of those comes here.
//! 2. *It is never put back.* A reader offers what it found in the trie
//!    ([`Known::learn`]) for the roots that it looked into; from the moment that a flush
//!    begins, which ends the *era*, offers for the roots before are refused.
//!
//! A document that is younger than a reader's moment is none for it: a snapshot that looks
//! here takes older ones alone, and asks the trie for the others.
//!
//! A table belongs to a database file and to the writes that its roots hold: the switch of
//! a compaction brings a new one with all keys in it, a rollback an empty one. Its bytes
//! are the block cache's, three eighths of it at most.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use cambium_io::cache::{BlockCache, Reservation};
use cambium_io::sync::Mutex;
use cambium_io::sync::atomic::{AtomicU64, Ordering};
use foldhash::fast::FixedState;

use crate::core::lock;
use crate::document::DocumentAddress;

/// Addresses of a set: a line of memory.
const WAYS: usize = 8;
const SET_BYTES: u64 = 8 * WAYS as u64;
/// The address was asked for since it came: others go first.
const USED: u64 = 1 << 63;
/// No address: offset 0 is the file's header.
const FREE: u64 = 0;
/// Locks of those who change sets.
const LOCKS: usize = 64;
/// A table has room for a quarter more than there are documents, so that few sets
/// overflow.
const ROOM: (u64, u64) = (5, 4);
/// Keys whose sets are looked at together.
const TOGETHER: usize = 16;
/// Of a cache's bytes, at most.
const SHARE: (u64, u64) = (3, 8);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

/// The addresses.
#[derive(Debug)]
struct Table {
    hasher: FixedState,
    sets: Box<[Set]>,
    locks: [Mutex<()>; LOCKS],
    /// Changed under no lock, by one flush at a time.
    era: AtomicU64,
    _reservation: Option<Reservation>,
}

/// A table, and the era of roots.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    table: Arc<Table>,
    era: u64,
}

impl Known {
    /// One that knows nothing, and learns nothing.
    pub fn nothing() -> Self {
        Self::with_sets(0, 0, None)
    }

    /// An empty one for so many documents, as far as the cache has room for it. The seed
    /// is the store's own: who makes up keys does not know their sets.
    pub fn for_documents(documents: u64, cache: &Arc<BlockCache>, seed: u64) -> Self {
        let mut bytes = wanted_bytes(documents, cache);
        while bytes >= SET_BYTES {
            if let Some(reservation) = cache.reserve(bytes) {
                return Self::with_sets(bytes / SET_BYTES, seed, Some(reservation));
            }
            bytes /= 2;
        }
        Self::nothing()
    }

    fn with_sets(sets: u64, seed: u64, reservation: Option<Reservation>) -> Self {
        let table = Table {
            hasher: FixedState::with_seed(seed),
            sets: (0..sets).map(|_| Set::default()).collect(),
            locks: std::array::from_fn(|_| Mutex::new(())),
            era: AtomicU64::new(0),
            _reservation: reservation,
        };
        Known {
            table: Arc::new(table),
            era: 0,
        }
    }

    /// A larger one, empty, where there are many more documents than this was made for.
    pub fn outgrown_by(&self, documents: u64, cache: &Arc<BlockCache>, seed: u64) -> Option<Self> {
        let larger = wanted_bytes(documents, cache) > 2 * self.bytes();
        let larger = larger.then(|| Self::for_documents(2 * documents, cache, seed));
        larger.filter(|larger| larger.bytes() > self.bytes())
    }

    /// Memory of the table.
    pub fn bytes(&self) -> u64 {
        self.table.sets.len() as u64 * SET_BYTES
    }

    /// Where the newest document of a key may lie.
    pub fn find(&self, namespace: u16, key: &[u8]) -> Option<DocumentAddress> {
        let (set, _) = self.table.set_of(namespace, key)?;
        set.0.iter().find_map(|way| {
            // What is found leads to bytes of a file that are verified; nothing else is
            // read by the order of these.
            let bits = way.load(Ordering::Acquire);
            let address = DocumentAddress(bits & !USED);
            if address.0 == FREE || !address.may_match(key) {
                return None;
            }
            if bits & USED == 0 {
                // Lost where somebody changes it right now.
                _ = way.compare_exchange(bits, bits | USED, Ordering::Relaxed, Ordering::Relaxed);
            }
            Some(address)
        })
    }

    /// Offers what the trie says of a key, under roots of this era.
    pub fn learn(&self, namespace: u16, key: &[u8], address: DocumentAddress) {
        let Some((set, guard)) = self.table.set_of(namespace, key) else {
            return;
        };
        let _guard = lock(guard);
        if self.table.era.load(Ordering::Acquire) == self.era {
            set.put(key, address);
        }
    }

    /// A flush begins: nothing is learnt until its roots are there, which this is for.
    pub fn next_era(&self) -> Self {
        let era = self.table.era.fetch_add(1, Ordering::AcqRel) + 1;
        Known {
            table: self.table.clone(),
            era,
        }
    }

    /// The newest document of a key has this address now, or there is none: what a flush
    /// or a compaction changes.
    pub fn change(&self, namespace: u16, key: &[u8], address: Option<DocumentAddress>) {
        let Some((set, guard)) = self.table.set_of(namespace, key) else {
            return;
        };
        let _guard = lock(guard);
        match address {
            Some(address) => set.put(key, address),
            None => set.remove(key),
        }
    }

    /// The same of several keys. Their sets are looked at a few at a time before they are
    /// changed, so that the processor waits for several lines of memory at once.
    pub fn change_all<'k>(
        &self,
        namespace: u16,
        changes: impl Iterator<Item = (&'k [u8], Option<DocumentAddress>)>,
    ) {
        let mut changes = changes.peekable();
        let mut few = Vec::with_capacity(TOGETHER);
        while changes.peek().is_some() {
            few.extend(changes.by_ref().take(TOGETHER));
            for (key, _) in &few {
                let set = self.table.set_of(namespace, key);
                let way = set.map(|(set, _)| set.0[0].load(Ordering::Relaxed));
                std::hint::black_box(way);
            }
            for (key, address) in few.drain(..) {
                self.change(namespace, key, address);
            }
        }
    }
}

impl Table {
    fn set_of(&self, namespace: u16, key: &[u8]) -> Option<(&Set, &Mutex<()>)> {
        if self.sets.is_empty() {
            return None;
        }
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u16(namespace);
        hasher.write(key);
        let hash = u128::from(hasher.finish());
        let place = ((hash * self.sets.len() as u128) >> 64) as usize;
        Some((&self.sets[place], &self.locks[place % LOCKS]))
    }
}

/// Changed under the set's lock.
impl Set {
    /// Puts an address in the place of what may be the same key's.
    fn put(&self, key: &[u8], address: DocumentAddress) {
        let bits = |way: usize| self.0[way].load(Ordering::Relaxed);
        let same = (0..WAYS).find(|&way| holds(bits(way), key));
        let way = same
            .or_else(|| (0..WAYS).find(|&way| bits(way) == FREE))
            .or_else(|| (0..WAYS).find(|&way| bits(way) & USED == 0));
        let way = way.unwrap_or_else(|| {
            for way in &self.0 {
                way.fetch_and(!USED, Ordering::Relaxed);
            }
            // Any of them: they have all been asked for.
            (address.offset() >> 3) as usize % WAYS
        });
        self.0[way].store(address.0, Ordering::Release);
    }

    fn remove(&self, key: &[u8]) {
        for way in &self.0 {
            if holds(way.load(Ordering::Relaxed), key) {
                way.store(FREE, Ordering::Release);
            }
        }
    }
}

fn holds(bits: u64, key: &[u8]) -> bool {
    bits != FREE && DocumentAddress(bits & !USED).may_match(key)
}

/// Bytes of a table for so many documents.
fn wanted_bytes(documents: u64, cache: &BlockCache) -> u64 {
    let most = cache.capacity() / SHARE.1 * SHARE.0;
    let wanted = documents.saturating_mul(8 * ROOM.0) / ROOM.1;
    wanted.next_multiple_of(SET_BYTES).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u64, key: &[u8]) -> DocumentAddress {
        DocumentAddress::new((number + 1) * 64, 64, key)
    }

    fn key(number: u64) -> Vec<u8> {
        format!("key {number}").into_bytes()
    }

    fn for_documents(documents: u64) -> (Known, Arc<BlockCache>) {
        let cache = BlockCache::new(1 << 20);
        (Known::for_documents(documents, &cache, 7), cache)
    }

    #[test]
    fn most_of_as_many_keys_as_it_is_made_for_are_known() {
        let (known, cache) = for_documents(10_000);
        assert_eq!(cache.bytes(), known.bytes());
        for number in 0..10_000 {
            let key = key(number);
            known.change(0, &key, Some(address(number, &key)));
        }
        let is_known = |&number: &u64| {
            let key = key(number);
            known.find(0, &key) == Some(address(number, &key))
        };
        let found = (0..10_000).filter(is_known).count();
        assert!(found > 9_000, "{found} of 10,000");
        let strangers = (10_000..20_000).filter(|&number| known.find(0, &key(number)).is_some());
        assert!(strangers.count() < 100);
    }

    #[test]
    fn a_change_takes_the_place_of_what_was_known() {
        let (known, _) = for_documents(100);
        let key = key(1);
        known.change(0, &key, Some(address(1, &key)));
        known.change(0, &key, Some(address(2, &key)));
        assert_eq!(known.find(0, &key), Some(address(2, &key)));
        known.change(0, &key, None);
        assert_eq!(known.find(0, &key), None);
    }

    #[test]
    fn what_was_found_under_roots_before_a_flush_is_refused() {
        let (before, _) = for_documents(100);
        let key = key(1);
        let after = before.next_era();
        before.learn(0, &key, address(1, &key));
        assert_eq!(after.find(0, &key), None);
        after.learn(0, &key, address(2, &key));
        assert_eq!(before.find(0, &key), Some(address(2, &key)));
    }

    #[test]
    fn what_is_asked_for_outlasts_what_only_comes() {
        let (known, _) = for_documents(800);
        for number in 0..200 {
            let key = key(number);
            known.change(0, &key, Some(address(number, &key)));
        }
        let asked = (0..200).filter(|&number| known.find(0, &key(number)).is_some());
        let asked = asked.count();
        for number in 200..2_000 {
            let key = key(number);
            known.change(0, &key, Some(address(number, &key)));
        }
        let left = (0..200).filter(|&number| known.find(0, &key(number)).is_some());
        let left = left.count();
        assert!(left * 2 > asked, "{left} of {asked}");
    }

    #[test]
    fn a_table_has_no_more_than_its_share_of_a_cache_and_gives_it_back() {
        let (known, cache) = for_documents(1 << 30);
        assert_eq!(known.bytes(), (1 << 20) / 8 * 3);
        let second = Known::for_documents(1 << 30, &cache, 7);
        assert_eq!(second.bytes(), known.bytes());
        assert_eq!(Known::for_documents(1 << 30, &cache, 7).bytes(), 0);
        drop((known, second));
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn it_grows_with_the_documents_and_not_a_little_at_a_time() {
        let (known, cache) = for_documents(100);
        assert!(known.outgrown_by(150, &cache, 7).is_none());
        let larger = known.outgrown_by(1_000, &cache, 7);
        let larger = larger.expect("ten times as many");
        assert!(larger.bytes() > 10 * known.bytes());
        assert!(larger.outgrown_by(1_500, &cache, 7).is_none());
        assert!(Known::nothing().outgrown_by(0, &cache, 7).is_none());
    }

    #[test]
    fn nothing_is_known_without_a_cache() {
        let known = Known::for_documents(100, &BlockCache::new(0), 7);
        let key = key(1);
        known.change(0, &key, Some(address(1, &key)));
        known.learn(0, &key, address(1, &key));
        assert_eq!((known.find(0, &key), known.bytes()), (None, 0));
    }
}
