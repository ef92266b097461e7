//! Records that a walk meets side by side in the file.
//!
//! Documents that are too long for packed blocks lie in key order after a compaction, as
//! records. A walk reads those that lie together at once, from cached blocks or the file, and
//! makes each where the walk comes to it: verified in the bytes that all of them share. An
//! entry that the caller keeps has a copy of its own, unless it is most of these bytes.

use std::sync::Arc;

use cambium_api::Entry;
use cambium_base::{Result, Value};
use cambium_io::cache::Block;
use cambium_io::spans::Span;

use crate::core::Core;
use crate::database::{Database, Document, DocumentBytes};
use crate::document::DocumentAddress;
use crate::read::{spans_of, widen};
use crate::seeded_bug::SeededBug;

/// Bytes of the file, from an offset on.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    start: u64,
    bytes: Block,
}

impl Bytes {
    /// A record that begins in them, verified.
    #[inline]
    fn show(&self, database: &Database, record: DocumentAddress) -> Result<DocumentBytes<'_>> {
        let at = (record.offset() - self.start) as usize;
        database.document_in(record, self.bytes.get(at..).unwrap_or_default())
    }
}

/// Records of a walk that lie in the same bytes.
#[derive(Debug)]
pub(crate) struct RecordRun {
    within: Bytes,
    records: Vec<DocumentAddress>,
    /// Records that the walk has passed.
    passed: usize,
}

impl RecordRun {
    pub fn new(within: Bytes, first: DocumentAddress) -> Self {
        RecordRun {
            within,
            records: vec![first],
            passed: 0,
        }
    }

    /// True if the next record of the walk lies in the same bytes.
    pub fn lies_in(&self, within: &Bytes) -> bool {
        Arc::ptr_eq(&self.within.bytes, &within.bytes)
    }

    /// Adds the next record of the walk, which lies in the same bytes.
    pub fn push(&mut self, record: DocumentAddress) {
        self.records.push(record);
    }

    /// Goes past the next record; `None` after the last.
    #[inline]
    pub fn pass(&mut self) -> Option<&Self> {
        if self.passed == self.records.len() {
            return None;
        }
        self.passed += 1;
        Some(self)
    }

    /// Goes back before the last record that was passed.
    pub fn step_back(&mut self) {
        self.passed = self.passed.saturating_sub(1);
    }

    /// The last record that was passed, where it lies.
    #[inline]
    pub fn show(&self, database: &Database) -> Result<DocumentBytes<'_>> {
        let record = self.records[self.passed.saturating_sub(1)];
        self.within.show(database, record)
    }

    /// The same, to be kept.
    pub fn document(&self, database: &Database) -> Result<Document> {
        let found = self.show(database)?;
        Ok(Document {
            namespace: found.namespace,
            sequence: found.sequence,
            key: self.part(found.key),
            value: self.part(found.value),
        })
    }

    /// The same, its key and value alone.
    pub fn entry(&self, database: &Database) -> Result<Entry> {
        let DocumentBytes { key, value, .. } = self.show(database)?;
        Ok(Entry {
            key: self.part(key),
            value: self.part(value),
        })
    }

    fn part(&self, of: &[u8]) -> Value {
        let bytes = &self.within.bytes;
        if of.len() < bytes.len() / 2 {
            return Value::copy_of(of);
        }
        let at = of.as_ptr().addr() - bytes.as_ptr().addr();
        Value::part_of(bytes, at..at + of.len())
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.within.bytes.len()
    }
}

impl Core {
    /// For each record of a walk, the bytes that it shares with others; `None` of one that lies
    /// alone, or is not in the file yet. What is read is kept in the cache where the operating
    /// system keeps none of it, if at all: a record is verified each time, so that a block of the
    /// cache saves no more than a system call for many of them.
    pub fn shared_bytes(
        &self,
        database: &Database,
        records: &[DocumentAddress],
        keep: bool,
    ) -> Result<Vec<Option<Bytes>>> {
        let mut shared = vec![None; records.len()];
        if records.len() < 2 || self.has_bug(SeededBug::NoChecksum) {
            return Ok(shared);
        }
        let written_end = database.log.written_end();
        let is_written = |record: &DocumentAddress| {
            record.offset() + database.most_to_read(*record) <= written_end
        };
        let mut order: Vec<usize> = (0..records.len()).collect();
        order.retain(|&place| is_written(&records[place]));
        order.sort_unstable_by_key(|&place| records[place].offset());
        let mut spans = spans_of(database, records, &order);
        spans.retain(|span| span.members.len() > 1);
        let is_cached = !database.documents.is_off();
        if is_cached {
            spans.iter_mut().for_each(|span| widen(span, written_end));
        }
        let cached = spans.iter().map(|span| {
            let (start, length) = span.place();
            let bytes = database.gathered(start, length)?;
            let bytes = Bytes { start, bytes };
            // A record that is unsound in the cache may be sound in the file.
            let mut members = order[span.members.clone()].iter();
            let are_sound = members.all(|&place| bytes.show(database, records[place]).is_ok());
            are_sound.then_some(bytes)
        });
        let mut found: Vec<Option<Bytes>> = cached.collect();
        let missing: Vec<usize> = (0..spans.len()).filter(|&at| found[at].is_none()).collect();
        let places: Vec<(u64, usize)> = missing.iter().map(|&at| spans[at].place()).collect();
        let read = self.read_places(database, &database.documents, &places)?;
        for ((at, (start, _)), bytes) in missing.into_iter().zip(&places).zip(read) {
            let start = *start;
            if keep && is_cached && database.is_direct() {
                database.offer_blocks(start, &bytes, written_end);
            }
            found[at] = Some(Bytes { start, bytes });
        }
        self.count_document_reads(places.len());
        for (Span { members, .. }, bytes) in spans.into_iter().zip(found) {
            order[members]
                .iter()
                .for_each(|&place| shared[place] = bytes.clone());
        }
        Ok(shared)
    }
}
