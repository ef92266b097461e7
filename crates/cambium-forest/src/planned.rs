//! What a write's operations become: the entries of the log and of the write buffer.

use std::collections::BTreeMap;
use std::ops::Range;

use cambium_api::{KeyRange, Operation};
use cambium_base::SequenceNumber;
use cambium_storage::record::RecordHeader;

use crate::buffer::{DeletedRange, Insert, Version};
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress};
use crate::format::{document_auxiliary, kind};
use crate::ranges::RangeSet;

/// What an entry does.
#[derive(Debug)]
pub(crate) enum Action {
    Put(Vec<u8>),
    Delete,
    /// The key is the range's first; the value is the key after its last, or empty where the
    /// range has no end.
    DeleteRange(Vec<u8>),
    /// The key is the namespace's name.
    Namespace,
    /// The same.
    DropNamespace,
}

/// An entry on its way.
#[derive(Debug)]
pub(crate) struct Planned {
    pub namespace: u16,
    pub key: Vec<u8>,
    pub action: Action,
    /// Its place in its batch, from 0.
    pub batch_index: u32,
    /// Entries of its batch that follow it.
    pub batch_remaining: u32,
    /// Its batch gives space back, and so may take what puts leave free.
    pub makes_room: bool,
    /// Where its record lies, once appended.
    pub place: Range<u64>,
}

impl Planned {
    pub fn new(namespace: u16, key: Vec<u8>, action: Action) -> Self {
        Planned {
            namespace,
            key,
            action,
            batch_index: 0,
            batch_remaining: 0,
            makes_room: false,
            place: 0..0,
        }
    }

    /// The kind of its record.
    pub fn kind(&self) -> u8 {
        match self.action {
            Action::Put(_) => kind::PUT,
            Action::Delete => kind::DELETE,
            Action::DeleteRange(_) => kind::RANGE_DELETED,
            Action::Namespace => kind::NAMESPACE,
            Action::DropNamespace => kind::NAMESPACE_DROPPED,
        }
    }

    /// True if it removes something that the log has.
    pub fn removes(&self) -> bool {
        matches!(
            self.action,
            Action::Delete | Action::DeleteRange(_) | Action::DropNamespace
        )
    }

    /// The value it puts, or nothing.
    pub fn value(&self) -> &[u8] {
        match &self.action {
            Action::Put(value) | Action::DeleteRange(value) => value,
            _ => &[],
        }
    }

    /// The header of its record: a template gives the part that all records share.
    pub fn header(&self, template: &RecordHeader, sequence: u64) -> RecordHeader {
        RecordHeader {
            kind: self.kind(),
            sequence: SequenceNumber(sequence),
            batch_index: self.batch_index,
            batch_remaining: self.batch_remaining,
            auxiliary: document_auxiliary(self.namespace, self.key.len()),
            ..*template
        }
    }

    /// Bytes that its record will take in the log.
    pub fn will_take(&self, template: &RecordHeader, sequence: u64) -> u64 {
        let payload = self.key.len() + self.value().len();
        let header = self.header(template, sequence);
        header.record_bytes(payload as u64, DOCUMENT_ALIGNMENT)
    }

    /// Bytes that its record takes in the log, once appended.
    pub fn record_bytes(&self) -> u64 {
        self.place.end - self.place.start
    }

    /// What the write buffer takes of it; nothing of a namespace.
    pub fn insert(&self, sequence: u64) -> Option<Insert<'_>> {
        let document = match self.action {
            Action::Put(_) => {
                let bytes = self.record_bytes();
                Some(DocumentAddress::new(self.place.start, bytes, &self.key))
            }
            Action::Delete => None,
            Action::DeleteRange(_) | Action::Namespace | Action::DropNamespace => return None,
        };
        Some(Insert {
            namespace: self.namespace,
            key: &self.key,
            version: Version { sequence, document },
        })
    }

    /// The range that it deletes.
    pub fn deleted_range(&self, sequence: u64) -> Option<DeletedRange> {
        match &self.action {
            Action::DeleteRange(to) => {
                Some(DeletedRange::of(self.namespace, sequence, &self.key, to))
            }
            _ => None,
        }
    }
}

/// The range of a record: its first key, and the key after its last or nothing.
pub(crate) fn range_of(from: &[u8], to: &[u8]) -> KeyRange {
    KeyRange {
        from: (!from.is_empty()).then(|| from.to_vec()),
        to: (!to.is_empty()).then(|| to.to_vec()),
    }
}

/// The entries of a batch. Writes that a later range of the batch deletes are left out: no reader
/// ever sees them, and a repair that lacks the range must not bring them back.
pub(crate) fn planned_batch(mut operations: Vec<(u16, Operation)>) -> Vec<Planned> {
    let is_range = |operation: &Operation| matches!(operation, Operation::DeleteRange { .. });
    if operations.iter().any(|(_, operation)| is_range(operation)) {
        let mut later: BTreeMap<u16, RangeSet> = BTreeMap::new();
        operations.reverse();
        operations.retain(|(namespace, operation)| match operation {
            Operation::Put { key, .. } | Operation::Delete { key } => {
                let later = later.get(namespace);
                later.is_none_or(|later| !later.contains(key))
            }
            Operation::DeleteRange { range } => {
                later.entry(*namespace).or_default().insert(range);
                true
            }
        });
        operations.reverse();
    }
    operations.into_iter().filter_map(planned).collect()
}

/// The entry of an operation; none for a range without keys.
fn planned((namespace, operation): (u16, Operation)) -> Option<Planned> {
    let (key, action) = match operation {
        Operation::Put { key, value } => (key, Action::Put(value)),
        Operation::Delete { key } => (key, Action::Delete),
        Operation::DeleteRange { range } => {
            if !may_have_keys(&range) {
                return None;
            }
            let to = range.to.unwrap_or_default();
            (range.from.unwrap_or_default(), Action::DeleteRange(to))
        }
    };
    Some(Planned::new(namespace, key, action))
}

fn may_have_keys(range: &KeyRange) -> bool {
    let from = range.from.as_deref().unwrap_or_default();
    range.to.as_deref().is_none_or(|to| from < to)
}
