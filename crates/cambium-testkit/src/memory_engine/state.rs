//! The map, and how batches change it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use cambium_api::{KeyRange, Operation, SequenceNumber, Value};

/// A value and the write that gave it.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) value: Value,
    pub(super) sequence: SequenceNumber,
}

/// Keys and what they have.
pub(super) type Map = BTreeMap<Vec<u8>, Slot>;

/// One moment of the store; a clone shares the map until either changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Moment {
    pub(super) map: Arc<Map>,
    pub(super) sequence: SequenceNumber,
}

/// A change of one key, as the log holds it.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) key: Vec<u8>,
    /// `None` takes the key away.
    pub(super) value: Option<Value>,
}

/// Where a range begins and ends.
pub(super) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The bounds of a range as the standard map wants them; `None` where the
/// range is empty, which that map would panic at.
pub(super) fn bounds(range: &KeyRange) -> Option<Bounds<'_>> {
    let from = range.from.as_deref().unwrap_or_default();
    match range.to.as_deref() {
        Some(to) if to <= from => None,
        Some(to) => Some((Bound::Included(from), Bound::Excluded(to))),
        None => Some((Bound::Included(from), Bound::Unbounded)),
    }
}

impl Moment {
    /// Applies one change under the next sequence number.
    pub(super) fn apply(&mut self, change: &Change) {
        self.sequence = self.sequence.next();
        let map = Arc::make_mut(&mut self.map);
        match &change.value {
            Some(value) => {
                let slot = Slot {
                    value: value.clone(),
                    sequence: self.sequence,
                };
                map.insert(change.key.clone(), slot);
            }
            None => {
                map.remove(&change.key);
            }
        }
    }

    /// The changes of single keys that an operation stands for.
    pub(super) fn resolve(&self, operation: Operation, into: &mut Vec<Change>) {
        match operation {
            Operation::Put { key, value } => into.push(Change {
                key,
                value: Some(Value::from(value)),
            }),
            Operation::Delete { key } => into.push(Change { key, value: None }),
            Operation::DeleteRange { range } => {
                let Some(bounds) = bounds(&range) else { return };
                let mut keys: Vec<Vec<u8>> = self
                    .map
                    .range::<[u8], _>(bounds)
                    .map(|(key, _)| key.clone())
                    .collect();
                // Earlier operations of the same batch come first.
                let earlier = into.iter().filter(|change| range.contains(&change.key));
                keys.extend(earlier.map(|change| change.key.clone()));
                keys.sort_unstable();
                keys.dedup();
                into.extend(keys.into_iter().map(|key| Change { key, value: None }));
            }
        }
    }
}
