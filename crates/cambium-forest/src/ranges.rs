//! Deleting ranges: which keys a batch with ranges takes away.
//!
//! The log knows tombstones of single keys, so a range becomes one for each key
//! that is in it at the moment of the write. Looking for them may take long, so
//! the caller does not wait for it:
//!
//! ```text
//! watch ─▶ gather, no lock held ─▶ queue ─▶ leader: gathered + noted ─▶ tombstones
//!            puts into the ranges are noted ───────────▲
//! ```
//!
//! A watch is there before the moment at which keys are gathered, and puts are
//! noted after they have become visible: so every key is gathered or noted, or
//! both. One that was deleted in between gets a tombstone that hides nothing.
//! A rollback in between may bring any key back: then the leader looks itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Weak};

use cambium_api::{Cursor, Direction, KeyRange, Operation};
use cambium_base::Result;
use cambium_io::sync::Mutex;

use crate::core::{Core, lock};
use crate::cursor::EntryCursor;
use crate::planned::{Action, Planned};

/// Ranges of keys, joined where they meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// The first key of each and the key after its last; `None` is after all keys.
    ranges: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl RangeSet {
    /// Adds a range.
    pub fn insert(&mut self, range: &KeyRange) {
        let mut start = range.from.clone().unwrap_or_default();
        let mut end = range.to.clone();
        if end.as_ref().is_some_and(|end| *end <= start) {
            return;
        }
        let before = self.ranges.range(..=start.clone()).next_back();
        if let Some((first, behind)) = before {
            if behind.as_ref().is_none_or(|behind| *behind >= start) {
                start.clone_from(first);
            }
        }
        while let Some((first, behind)) = self.ranges.range(start.clone()..).next() {
            if end.as_ref().is_some_and(|end| first > end) {
                break;
            }
            end = match (end, behind) {
                (Some(end), Some(behind)) => Some(end.max(behind.clone())),
                _ => None,
            };
            let first = first.clone();
            self.ranges.remove(&first);
        }
        self.ranges.insert(start, end);
    }

    /// True if a key is in one of them.
    pub fn contains(&self, key: &[u8]) -> bool {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let nearest = self.ranges.range::<[u8], _>(up_to).next_back();
        nearest.is_some_and(|(_, behind)| behind.as_deref().is_none_or(|behind| key < behind))
    }

    fn iter(&self) -> impl Iterator<Item = KeyRange> + '_ {
        self.ranges.iter().map(|(first, behind)| KeyRange {
            from: Some(first.clone()),
            to: behind.clone(),
        })
    }
}

/// Ranges by namespace.
type Ranges = BTreeMap<u16, RangeSet>;

/// All ranges that operations delete.
fn ranges_of(operations: &[(u16, Operation)]) -> Ranges {
    let mut ranges = Ranges::new();
    for (namespace, operation) in operations {
        if let Operation::DeleteRange { range } = operation {
            ranges.entry(*namespace).or_default().insert(range);
        }
    }
    ranges
}

/// Whether operations delete ranges.
pub(crate) fn has_ranges(operations: &[(u16, Operation)]) -> bool {
    let is_range = |operation: &Operation| matches!(operation, Operation::DeleteRange { .. });
    operations.iter().any(|(_, operation)| is_range(operation))
}

/// What is noted while keys are gathered.
#[derive(Debug)]
pub(crate) struct Watch {
    ranges: Ranges,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    keys: BTreeSet<(u16, Vec<u8>)>,
    /// A rollback came: what was gathered may be too little.
    rolled_back: bool,
}

/// The keys of some ranges at a moment, and what came into them since.
#[derive(Debug)]
pub(crate) struct Gathered {
    keys: BTreeMap<u16, Vec<Vec<u8>>>,
    watch: Arc<Watch>,
}

impl Core {
    /// Looks for the keys that operations' ranges take away. Called with no lock
    /// held; memory for the keys alone.
    pub fn gather(self: &Arc<Self>, operations: &[(u16, Operation)]) -> Result<Gathered> {
        let watch = Arc::new(Watch {
            ranges: ranges_of(operations),
            noted: Mutex::default(),
        });
        {
            let mut watches = lock(&self.watches);
            watches.retain(|other| other.strong_count() > 0);
            watches.push(Arc::downgrade(&watch));
        }
        let keys = self.keys_in(&watch.ranges)?;
        Ok(Gathered { keys, watch })
    }

    /// The keys that have a value now, in order.
    fn keys_in(self: &Arc<Self>, ranges: &Ranges) -> Result<BTreeMap<u16, Vec<Vec<u8>>>> {
        let mut found = BTreeMap::new();
        let pin = self.pin()?;
        for (&namespace, ranges) in ranges {
            let mut keys: Vec<Vec<u8>> = Vec::new();
            for range in ranges.iter() {
                let pin = pin.again()?;
                let mut cursor = EntryCursor::new(pin, namespace, range, Direction::Forward);
                while let Some(key) = Cursor::next_key(&mut cursor)? {
                    keys.push(key.to_vec());
                }
            }
            found.insert(namespace, keys);
        }
        Ok(found)
    }

    fn watching(&self) -> Vec<Arc<Watch>> {
        let watches = lock(&self.watches);
        watches.iter().filter_map(Weak::upgrade).collect()
    }

    /// Tells who gathers keys of puts that have become visible. Called under the
    /// writer lock.
    pub fn note_puts(&self, entries: &[Planned]) {
        for watch in self.watching() {
            let mut noted = lock(&watch.noted);
            for entry in entries {
                let Action::Put(_) = entry.action else {
                    continue;
                };
                let ranges = watch.ranges.get(&entry.namespace);
                if ranges.is_some_and(|ranges| ranges.contains(&entry.key)) {
                    noted.keys.insert((entry.namespace, entry.key.clone()));
                }
            }
        }
    }

    /// Tells who gathers keys that older ones may be back. Called under the
    /// writer lock.
    pub fn note_rollback(&self) {
        for watch in self.watching() {
            lock(&watch.noted).rolled_back = true;
        }
    }

    /// Replaces ranges by the keys that are in them now. Called under the writer
    /// lock; of one key the last operation counts.
    pub fn resolve_ranges(
        self: &Arc<Self>,
        operations: Vec<(u16, Operation)>,
        gathered: Gathered,
    ) -> Result<Vec<Planned>> {
        let Gathered { mut keys, watch } = gathered;
        let noted = std::mem::take(&mut *lock(&watch.noted));
        if noted.rolled_back {
            keys = self.keys_in(&watch.ranges)?;
        }
        Ok(resolve(operations, keys, noted.keys))
    }
}

/// Entries of operations, by key. Looks at the operations from the last to the
/// first: what a key becomes is known when it is met first.
fn resolve(
    operations: Vec<(u16, Operation)>,
    gathered: BTreeMap<u16, Vec<Vec<u8>>>,
    noted: BTreeSet<(u16, Vec<u8>)>,
) -> Vec<Planned> {
    let mut later = Ranges::new();
    let mut known: BTreeMap<(u16, Vec<u8>), Action> = BTreeMap::new();
    for (namespace, operation) in operations.into_iter().rev() {
        let (key, action) = match operation {
            Operation::Put { key, value } => (key, Action::Put(value)),
            Operation::Delete { key } => (key, Action::Delete),
            Operation::DeleteRange { range } => {
                later.entry(namespace).or_default().insert(&range);
                continue;
            }
        };
        let gone = later.get(&namespace).is_some_and(|set| set.contains(&key));
        let action = if gone { Action::Delete } else { action };
        known.entry((namespace, key)).or_insert(action);
    }
    for key in noted {
        known.entry(key).or_insert(Action::Delete);
    }
    let count = gathered.values().map(Vec::len).sum::<usize>() + known.len();
    let mut entries = Vec::with_capacity(count);
    for (namespace, keys) in gathered {
        for key in keys {
            // Most batches delete one range, and nothing else is known.
            let place = (namespace, key);
            if known.is_empty() || !known.contains_key(&place) {
                entries.push(Planned::new(namespace, place.1, Action::Delete));
            }
        }
    }
    let known = known.into_iter();
    entries.extend(known.map(|((namespace, key), action)| Planned::new(namespace, key, action)));
    entries.sort_by(|one, other| (one.namespace, &one.key).cmp(&(other.namespace, &other.key)));
    entries
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot go on has failed

    use super::*;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    use cambium_api::OptionValues;
    use cambium_base::Durability;
    use cambium_io::Environment;
    use cambium_storage::creation::Making;

    use crate::write::WriteRequest;

    fn range(from: &[u8], to: &[u8]) -> (u16, Operation) {
        let range = KeyRange::between(from, to);
        (0, Operation::DeleteRange { range })
    }

    fn put(key: &[u8]) -> (u16, Operation) {
        let (key, value) = (key.to_vec(), b"value".to_vec());
        (0, Operation::Put { key, value })
    }

    /// Small numbers in a row that looks like none.
    fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        }
    }

    #[test]
    fn a_set_of_ranges_holds_what_each_of_them_holds_and_stays_joined() {
        let mut next = numbers(1);
        for _ in 0..500 {
            let (mut set, mut all) = (RangeSet::default(), Vec::new());
            for _ in 0..next(8) {
                let mut bound = || {
                    let key = vec![next(12) as u8; next(2) as usize];
                    (next(6) > 0).then_some(key)
                };
                let range = KeyRange {
                    from: bound(),
                    to: bound(),
                };
                set.insert(&range);
                all.push(range);
            }
            for key in (0..13u8).flat_map(|byte| [vec![], vec![byte], vec![byte, 0]]) {
                let held = all.iter().any(|range| range.contains(&key));
                assert_eq!(set.contains(&key), held, "{key:?} in {all:?}");
            }
            let ranges: Vec<KeyRange> = set.iter().collect();
            for pair in ranges.windows(2) {
                assert!(pair[0].to < pair[1].from, "{ranges:?}");
                assert!(pair[0].to.is_some(), "{ranges:?}");
            }
        }
    }

    /// What operations leave of some keys, one by one and in order.
    fn one_by_one(operations: &[(u16, Operation)], there: &[Vec<u8>]) -> BTreeSet<Vec<u8>> {
        let mut keys: BTreeSet<Vec<u8>> = there.iter().cloned().collect();
        for (_, operation) in operations {
            match operation {
                Operation::Put { key, .. } => _ = keys.insert(key.clone()),
                Operation::Delete { key } => _ = keys.remove(key),
                Operation::DeleteRange { range } => keys.retain(|key| !range.contains(key)),
            }
        }
        keys
    }

    #[test]
    fn entries_of_a_batch_do_what_its_operations_do_in_order() {
        let mut next = numbers(2);
        for _ in 0..500 {
            let key = |next: &mut dyn FnMut(u64) -> u64| vec![next(20) as u8];
            let there: BTreeSet<Vec<u8>> = (0..next(12)).map(|_| key(&mut next)).collect();
            let there: Vec<Vec<u8>> = there.into_iter().collect();
            let operations: Vec<(u16, Operation)> = (0..next(10))
                .map(|_| match next(3) {
                    0 => put(&key(&mut next)),
                    1 => (
                        0,
                        Operation::Delete {
                            key: key(&mut next),
                        },
                    ),
                    _ => range(&key(&mut next), &key(&mut next)),
                })
                .collect();
            let ranges = ranges_of(&operations);
            let set = ranges.get(&0).cloned().unwrap_or_default();
            let gathered = there.iter().filter(|key| set.contains(key)).cloned();
            let gathered = BTreeMap::from([(0, gathered.collect())]);
            let entries = resolve(operations.clone(), gathered, BTreeSet::new());
            let mut left: BTreeSet<Vec<u8>> = there.iter().cloned().collect();
            for entry in &entries {
                match entry.action {
                    Action::Put(_) => _ = left.insert(entry.key.clone()),
                    _ => _ = left.remove(&entry.key),
                }
            }
            assert_eq!(left, one_by_one(&operations, &there), "{operations:?}");
            let keys: BTreeSet<&Vec<u8>> = entries.iter().map(|entry| &entry.key).collect();
            assert_eq!(keys.len(), entries.len(), "a key twice: {operations:?}");
        }
    }

    fn store() -> Arc<Core> {
        let options = OptionValues::from([
            ("write_buffer_entries", "16"),
            ("preallocate_bytes", "4096"),
        ]);
        let making = crate::open::make(&Environment::memory(), Path::new("/s"), &options);
        making.and_then(Making::conclude).unwrap()
    }

    fn write(core: &Arc<Core>, operations: Vec<(u16, Operation)>) {
        let request = WriteRequest::new(operations, Durability::Written);
        core.write_request(request).unwrap();
    }

    fn keys(core: &Arc<Core>) -> Vec<Vec<u8>> {
        let range = RangeSet {
            ranges: BTreeMap::from([(Vec::new(), None)]),
        };
        let found = core.keys_in(&BTreeMap::from([(0, range)])).unwrap();
        found[&0].clone()
    }

    #[test]
    fn others_write_while_a_range_is_gathered_and_what_they_write_goes_too() {
        let core = store();
        for number in 0..40u8 {
            write(&core, vec![put(&[number])]);
        }
        let operations = vec![range(&[10], &[30])];
        let mut request = WriteRequest::new(operations, Durability::Written);
        request.gathered = Some(core.gather(&request.operations).unwrap());
        // Writers go on: none of these waits for the range.
        write(&core, vec![put(&[15, 1])]);
        write(&core, vec![put(&[30, 1])]);
        write(&core, vec![(0, Operation::Delete { key: vec![16] })]);
        for number in 100..180u8 {
            write(&core, vec![put(&[number])]);
        }
        let reads = core.counters.document_reads.load(Ordering::Relaxed);
        let before = core.visible.load(Ordering::Acquire);
        let last = core.submit(request).unwrap();
        // One number for each key, one after the other.
        assert_eq!(last.0 - before, 21);
        // Under the lock nothing is looked for.
        let reads_now = core.counters.document_reads.load(Ordering::Relaxed);
        assert_eq!(reads_now, reads);
        let left = keys(&core);
        assert!(left.contains(&vec![30, 1]) && left.contains(&vec![30]));
        assert!(left.iter().all(|key| *key < vec![10] || *key >= vec![30]));
        assert_eq!(left.len(), 40 - 20 + 1 + 80);
        assert!(core.watching().is_empty());
    }

    #[test]
    fn a_rollback_while_a_range_is_gathered_brings_nothing_of_it_back() {
        let core = store();
        for number in 0..8u8 {
            write(&core, vec![put(&[number])]);
        }
        core.create_named_snapshot("full").unwrap();
        write(&core, vec![range(&[0], &[9])]);
        assert!(keys(&core).is_empty());
        let operations = vec![range(&[2], &[5])];
        let mut request = WriteRequest::new(operations, Durability::Written);
        request.gathered = Some(core.gather(&request.operations).unwrap());
        core.rollback("full").unwrap();
        core.submit(request).unwrap();
        assert_eq!(keys(&core), [[0], [1], [5], [6], [7]]);
    }
}
