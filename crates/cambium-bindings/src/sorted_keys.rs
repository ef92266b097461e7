//! All keys of a database, sorted by a comparator, as of one moment.
//!
//! ```text
//! spine ──▶ [ chunk ── chunk ── chunk ]        shared with the moments before
//!              │                 └──▶ [oak, pine, yew]
//!              └──▶ [ash, elm]                 up to 512 keys, then it is halved
//! ```
//!
//! A clone is one more count on the spine. What changes afterwards copies the spine
//! (8 bytes for each chunk) and the chunk it changes (40 bytes for each key), once
//! for each clone; so an iterator or snapshot between two writes costs the second
//! one some microseconds for each million keys, and the other chunks stay shared.
//! Keys up to 24 bytes take 40 bytes in a chunk, longer ones about 16 more and
//! their own length; chunks are between half full and full.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use cambium::Value;

use crate::order::{Comparator, OrderedKey, compare};

/// Keys of a chunk, at most.
const CHUNK_KEYS: usize = 512;

type Chunk = Arc<Vec<Value>>;

/// All keys of a database at one moment.
#[derive(Clone)]
pub struct SortedKeys {
    /// No chunk is empty.
    spine: Arc<Vec<Chunk>>,
    count: usize,
    order: Arc<dyn Comparator>,
}

impl fmt::Debug for SortedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys by {:?}", self.count, self.order.name())
    }
}

impl SortedKeys {
    /// No keys yet.
    pub fn new(order: Arc<dyn Comparator>) -> Self {
        SortedKeys {
            spine: Arc::default(),
            count: 0,
            order,
        }
    }

    /// The comparator.
    pub fn order(&self) -> &Arc<dyn Comparator> {
        &self.order
    }

    /// How two keys stand to each other.
    pub fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        compare(&self.order, left, right)
    }

    /// A key in this order.
    pub fn ordered(&self, key: &[u8]) -> OrderedKey {
        OrderedKey::new(Value::copy_of(key), &self.order)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The key that is there and equal to this one.
    pub fn find(&self, key: &[u8]) -> Option<&Value> {
        let found = self.first(Bound::Included(key))?;
        self.compare(found, key).is_eq().then_some(found)
    }

    /// Puts a key in the place of one that is equal to it.
    pub fn insert(&mut self, key: &[u8]) {
        let (mut chunk, mut at) = self.place(|there| self.compare(there, key).is_lt());
        let there = self.key_at(chunk, at);
        let is_there = there.is_some_and(|there| self.compare(there, key).is_eq());
        let spine = Arc::make_mut(&mut self.spine);
        if chunk == spine.len() {
            // Behind the last key: into the last chunk.
            match chunk.checked_sub(1) {
                Some(last) => (chunk, at) = (last, spine[last].len()),
                None => spine.push(Chunk::default()),
            }
        }
        let keys = Arc::make_mut(&mut spine[chunk]);
        if is_there {
            keys[at] = Value::copy_of(key);
            return;
        }
        keys.insert(at, Value::copy_of(key));
        self.count += 1;
        if keys.len() > CHUNK_KEYS {
            let upper = keys.split_off(CHUNK_KEYS / 2);
            spine.insert(chunk + 1, Arc::new(upper));
        }
    }

    /// Takes the key away that is equal to this one.
    pub fn remove(&mut self, key: &[u8]) {
        let (chunk, at) = self.place(|there| self.compare(there, key).is_lt());
        let there = self.key_at(chunk, at);
        if there.is_none_or(|there| self.compare(there, key).is_ne()) {
            return;
        }
        let spine = Arc::make_mut(&mut self.spine);
        let keys = Arc::make_mut(&mut spine[chunk]);
        keys.remove(at);
        self.count -= 1;
        if keys.is_empty() {
            spine.remove(chunk);
        }
    }

    /// The first key behind a bound.
    pub fn first(&self, from: Bound<&[u8]>) -> Option<&Value> {
        let (chunk, at) = match from {
            Bound::Unbounded => (0, 0),
            Bound::Included(from) => self.place(|there| self.compare(there, from).is_lt()),
            Bound::Excluded(from) => self.place(|there| self.compare(there, from).is_le()),
        };
        self.key_at(chunk, at)
    }

    /// The last key before a bound.
    pub fn last(&self, to: Bound<&[u8]>) -> Option<&Value> {
        let (chunk, at) = match to {
            Bound::Unbounded => (self.spine.len(), 0),
            Bound::Included(to) => self.place(|there| self.compare(there, to).is_le()),
            Bound::Excluded(to) => self.place(|there| self.compare(there, to).is_lt()),
        };
        match at.checked_sub(1) {
            Some(before) => self.key_at(chunk, before),
            None => self.spine.get(chunk.checked_sub(1)?)?.last(),
        }
    }

    fn key_at(&self, chunk: usize, at: usize) -> Option<&Value> {
        self.spine.get(chunk)?.get(at)
    }

    /// The chunk, and the place in it, of the first key that is not before; the place
    /// behind the last chunk where all are.
    fn place(&self, is_before: impl Fn(&Value) -> bool) -> (usize, usize) {
        let ends_before = |chunk: &Chunk| chunk.last().is_some_and(&is_before);
        let chunk = self.spine.partition_point(ends_before);
        let keys = self.spine.get(chunk);
        (
            chunk,
            keys.map_or(0, |keys| keys.partition_point(&is_before)),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    struct Backwards;

    impl Comparator for Backwards {
        fn name(&self) -> &str {
            "backwards"
        }

        fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
            right.cmp(left)
        }
    }

    fn key(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    /// What is there is what the model has, seen from each key and beside it.
    fn expect_as(keys: &SortedKeys, model: &BTreeSet<u32>) {
        assert_eq!(keys.len(), model.len());
        let number = |found: Option<&Value>| {
            found.map(|key| u32::from_be_bytes(<[u8; 4]>::try_from(&key[..]).unwrap()))
        };
        let last = model.first().copied();
        assert_eq!(number(keys.last(Bound::Unbounded)), last);
        let first = model.last().copied();
        assert_eq!(number(keys.first(Bound::Unbounded)), first);
        for at in (0..4_000).step_by(7) {
            let wanted = model.get(&at).copied();
            assert_eq!(number(keys.find(&key(at))), wanted);
            let wanted = model.range(..=at).next_back().copied();
            assert_eq!(number(keys.first(Bound::Included(&key(at)))), wanted);
            let wanted = model.range(..at).next_back().copied();
            assert_eq!(number(keys.first(Bound::Excluded(&key(at)))), wanted);
            let wanted = model.range(at..).next().copied();
            assert_eq!(number(keys.last(Bound::Included(&key(at)))), wanted);
            let wanted = model.range(at + 1..).next().copied();
            assert_eq!(number(keys.last(Bound::Excluded(&key(at)))), wanted);
        }
    }

    #[test]
    fn keys_are_as_in_a_sorted_set_and_clones_stay_as_they_are() {
        let mut keys = SortedKeys::new(Arc::new(Backwards));
        let mut model = BTreeSet::new();
        let mut number = 1_u32;
        let mut kept = Vec::new();
        for round in 0..20_000_u32 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = (number >> 8) % 4_000;
            // It grows at first, and shrinks to nothing at the end.
            if number >> 28 < 10 - (round / 2_000).min(9) {
                keys.insert(&key(at));
                model.insert(at);
            } else {
                keys.remove(&key(at));
                model.remove(&at);
            }
            if round % 5_000 == 0 {
                kept.push((keys.clone(), model.clone()));
            }
        }
        assert!(kept[1].0.spine.len() > 2);
        expect_as(&keys, &model);
        for at in 0..4_000 {
            keys.remove(&key(at));
        }
        expect_as(&keys, &BTreeSet::new());
        assert!(keys.spine.is_empty());
        for (keys, model) in &kept {
            expect_as(keys, model);
        }
    }
}
