//! What a write's operations become: the entries of the log and of the write buffer.

use std::ops::Range;

use cambium_api::Operation;
use cambium_base::SequenceNumber;
use cambium_storage::record::RecordHeader;

use crate::buffer::{Insert, Version};
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress};
use crate::format::{document_auxiliary, kind};

/// What an entry does.
#[derive(Debug)]
pub(crate) enum Action {
    Put(Vec<u8>),
    Delete,
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
            place: 0..0,
        }
    }

    /// The kind of its record.
    pub fn kind(&self) -> u8 {
        match self.action {
            Action::Put(_) => kind::PUT,
            Action::Delete => kind::DELETE,
            Action::Namespace => kind::NAMESPACE,
            Action::DropNamespace => kind::NAMESPACE_DROPPED,
        }
    }

    /// True if it removes something that the log has.
    pub fn removes(&self) -> bool {
        matches!(self.action, Action::Delete | Action::DropNamespace)
    }

    /// The value it puts, or nothing.
    pub fn value(&self) -> &[u8] {
        match &self.action {
            Action::Put(value) => value,
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
            Action::Namespace | Action::DropNamespace => return None,
        };
        Some(Insert {
            namespace: self.namespace,
            key: &self.key,
            version: Version { sequence, document },
        })
    }
}

/// The entry of an operation; none for a range, which has been resolved.
pub(crate) fn planned((namespace, operation): (u16, Operation)) -> Option<Planned> {
    let (key, action) = match operation {
        Operation::Put { key, value } => (key, Action::Put(value)),
        Operation::Delete { key } => (key, Action::Delete),
        Operation::DeleteRange { .. } => return None,
    };
    Some(Planned::new(namespace, key, action))
}
