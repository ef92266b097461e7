//! Whether index and log agree, in both directions.
//!
//! [`crate::check`] sees that each address in the index is a document that its key leads
//! to. This module goes the other way: the newest write of each key, as the file tells it,
//! must be what the index holds. The file tells it from an old header on:
//!
//! - The **base** is the oldest header that the newest one leads back to and whose trees are
//!   whole. The way ends at a rollback, which puts other trees in the place of all before it,
//!   at a cleaning, which gives back what earlier trees reach, and where flushes write over
//!   nodes of earlier trees. The check walks the base's trees beside those of today.
//! - The log from the base's replay point to the newest header's holds each write since.
//!
//! A put is settled if the index leads to it, or to a document after it. A removal is
//! settled if the index has no document of the key, or one after it. Any other write stays
//! *unsettled* until the scan meets a newer write of the same key. A write that is
//! unsettled in the end is a finding. An address after a write is taken for a newer
//! document of the same key if its fingerprint matches: of 4,096 lost entries whose lookups
//! end at a newer document of another key, one is overlooked.
//!
//! Writes are numbered one by one. A number that the log lacks may have been the newest write
//! of any key, so a finding about an older one says so.
//!
//! Memory is bounded: with too many unsettled writes, a pass goes on with the lower half of
//! the hashes of keys, and later passes take the rest.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use cambium_api::{CheckReport, Finding, FindingKind, Progress, ProgressSink};
use cambium_base::hash::sip13;
use cambium_base::{Error, Result, Value};
use cambium_index::NodeAddress;
use cambium_storage::scan::{LogScanner, Scanned, ScannedRecord};

use crate::buffer::DeletedRange;
use crate::core::Core;
use crate::database::Database;
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress};
use crate::format::{DatabaseHeader, FLAG_MOVED, FLAG_RECOVERED, kind, namespace_and_key};
use crate::index::IndexCursor;
use crate::nodes::Nodes;
use crate::ranges::{CoveredKeys, RangeSet};
use crate::recovery::header_at;
use crate::view::View;

/// Begins the text of each finding.
pub(crate) const DISAGREES: &str = "index and log disagree";
/// And ends it where a newer write of the key may have been in the log.
pub(crate) const LACKS_LATER: &str = "and the log lacks a write behind it";
/// Unsettled writes of one pass, about 40 bytes each.
const MOST_UNSETTLED: usize = 1 << 20;

/// Holds the log of a pinned view's file against the view's roots. `header` is the header
/// that the roots belong to.
pub(crate) fn check_agreement(
    core: &Core,
    view: &View,
    header: &DatabaseHeader,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<()> {
    in_passes(core, (view, header), MOST_UNSETTLED, report, progress)
}

fn in_passes(
    core: &Core,
    (view, header): (&View, &DatabaseHeader),
    most_unsettled: usize,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<()> {
    let mut trees_from = header.trees_from;
    if core.home.writable && trees_from > 0 {
        // Flushes go on beside the check.
        trees_from = u64::MAX;
    }
    let older = whole_before(&view.database, header, trees_from)?;
    let base = older.last().unwrap_or(header).clone();
    let mut passes = vec![0..=u64::MAX];
    while let Some(hashes) = passes.pop() {
        let mut pass = Pass {
            core,
            view,
            most_unsettled,
            hashes,
            later: Vec::new(),
            unsettled: HashMap::new(),
            ranges: Vec::new(),
            newest: 0,
            last_number: None,
            last_fault: None,
            last_gap: None,
        };
        pass.walk_base(&base, report)?;
        pass.scan((&base, header), progress)?;
        pass.conclude(report)?;
        passes.append(&mut pass.later);
    }
    Ok(())
}

/// The headers from an offset on that a header leads back to, newest first, down to the last
/// rollback's or cleaning's: the trees of headers before a cleaning reach what it gave back. A
/// damaged header ends the way: nothing depends on it.
pub(crate) fn whole_before(
    database: &Database,
    header: &DatabaseHeader,
    from: u64,
) -> Result<Vec<DatabaseHeader>> {
    let from = from.max(1);
    let mut headers: Vec<DatabaseHeader> = Vec::new();
    let mut before = u64::MAX;
    loop {
        let newer = headers.last().unwrap_or(header);
        if newer.rolled_back_to.is_some() || !(from..before).contains(&newer.previous) {
            return Ok(headers);
        }
        before = newer.previous;
        match header_at(database, before)? {
            Some((.., older))
                if older.replay_from <= newer.replay_from && older.begin == newer.begin =>
            {
                headers.push(older);
            }
            _ => return Ok(headers),
        }
    }
}

/// A write that the index does not show, and that no newer one has explained so far.
#[derive(Clone, Copy, Debug)]
struct Unsettled {
    offset: u64,
    sequence: u64,
    /// One that the base's trees have.
    document: Option<DocumentAddress>,
}

/// One pass over the file, for keys with some hashes.
struct Pass<'a> {
    core: &'a Core,
    view: &'a View,
    most_unsettled: usize,
    hashes: RangeInclusive<u64>,
    /// Hashes that this pass has left to later ones.
    later: Vec<RangeInclusive<u64>>,
    unsettled: HashMap<u64, Unsettled>,
    /// Deleted ranges that were scanned, and where their records lie.
    ranges: Vec<(u64, DeletedRange)>,
    /// Sequence number of the last write that was scanned.
    newest: u64,
    /// Number of the last write in the log, judged or not.
    last_number: Option<u64>,
    /// The last place of the log that could not be read: a newer write may have been there.
    last_fault: Option<u64>,
    /// The last record before which a number is missing.
    last_gap: Option<u64>,
}

impl Pass<'_> {
    fn nodes(&self) -> Nodes<'_> {
        self.core.nodes(&self.view.database)
    }

    fn hash(&self, namespace: u16, key: &[u8]) -> u64 {
        sip13(key, [self.core.hash_seed, u64::from(namespace)])
    }

    /// The only document that the index can have of a key, judged by its fingerprint.
    fn indexed(&self, namespace: u16, key: &[u8]) -> Result<Option<DocumentAddress>> {
        let Some(root) = self.view.root(namespace).root else {
            return Ok(None);
        };
        let found = self.core.index.find(&self.nodes(), root, key)?;
        Ok(found.filter(|address| address.may_match(key)))
    }

    /// Remembers a write until a newer one of its key comes.
    fn unsettle(&mut self, hash: u64, write: Unsettled) {
        self.unsettled.insert(hash, write);
        if self.unsettled.len() > self.most_unsettled {
            let (start, end) = self.hashes.clone().into_inner();
            let middle = start + (end - start) / 2;
            self.later.push(middle + 1..=end);
            self.hashes = start..=middle;
            self.unsettled.retain(|hash, _| *hash <= middle);
        }
    }

    /// Walks the base's trees beside those of today: a document that today's lack must have
    /// been replaced or removed by the log after the base.
    fn walk_base(&mut self, base: &DatabaseHeader, report: &mut CheckReport) -> Result<()> {
        for (namespace, _, root) in &base.namespaces {
            let today = self.view.root(*namespace).root;
            if !self.view.names.has(*namespace) || root.root == today {
                continue;
            }
            match self.walk_tree(*namespace, root.root, today) {
                // The check has read today's tree already, and nothing else reads the old one.
                Err(Error::Corruption { file, offset, what }) => report.findings.push(Finding {
                    kind: FindingKind::Note,
                    file,
                    offset,
                    what: format!("{what}; nothing depends on this part of an old index"),
                }),
                walked => walked?,
            }
        }
        Ok(())
    }

    fn walk_tree(
        &mut self,
        namespace: u16,
        old: Option<NodeAddress>,
        today: Option<NodeAddress>,
    ) -> Result<()> {
        let mut old = Walk::begin(self, old)?;
        let mut today = Walk::begin(self, today)?;
        while let Some(address) = old.document {
            if today.document == Some(address) {
                old.advance(self)?;
                today.advance(self)?;
                continue;
            }
            let key = old.key(self)?.to_vec();
            let other = match today.document {
                Some(_) => Some(today.key(self)?.to_vec()),
                None => None,
            };
            match other {
                Some(other) if other < key => today.advance(self)?,
                Some(other) if other == key => {
                    old.advance(self)?;
                    today.advance(self)?;
                }
                _ => {
                    let hash = self.hash(namespace, &key);
                    if self.hashes.contains(&hash) {
                        let unsettled = Unsettled {
                            offset: address.offset(),
                            sequence: 0,
                            document: Some(address),
                        };
                        self.unsettle(hash, unsettled);
                    }
                    old.advance(self)?;
                }
            }
        }
        Ok(())
    }

    /// Scans the log. Its writes are judged from the base on; what lies before is read, so
    /// that a place which cannot be read is met.
    fn scan(
        &mut self,
        (base, header): (&DatabaseHeader, &DatabaseHeader),
        progress: &dyn ProgressSink,
    ) -> Result<()> {
        let database = self.view.database.clone();
        let until = header.replay_from;
        let mut scanner = database
            .log
            .scan(database.log.begin(), database.log.end())?;
        let mut count = 0u64;
        while let Some(scanned) = scanner.next()? {
            let record = match scanned {
                Scanned::Record(record) => record,
                Scanned::Fault(fault) if fault.offset < until => {
                    self.last_fault = Some(fault.offset);
                    continue;
                }
                Scanned::Fault(_) => break,
            };
            let is_header = record.header.kind == kind::HEADER;
            if record.offset >= until && !is_header {
                // The header does not know of later writes.
                self.skip_nodes(&mut scanner, &record);
                continue;
            }
            count += 1;
            if count % 4096 == 0 {
                progress.report(Progress {
                    phase: "check: log",
                    done: record.offset,
                    total: Some(until),
                });
            }
            // A compaction and a repair write documents in no order of their numbers.
            let is_numbered = record.offset >= header.start;
            if is_numbered && self.lacks_before(&record)? {
                self.last_gap = Some(record.offset);
            }
            if record.offset >= until {
                // The header, or one behind it.
                break;
            }
            self.skip_nodes(&mut scanner, &record);
            match record.header.kind {
                _ if record.header.flags & FLAG_MOVED != 0 => {}
                kind::PUT | kind::DELETE | kind::RANGE_DELETED
                    if record.offset >= base.replay_from =>
                {
                    self.take_write(&mut scanner, &record)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Steps over the blocks behind a record that announces some.
    fn skip_nodes(&self, scanner: &mut LogScanner<'_>, record: &ScannedRecord) {
        if let kind @ (kind::NODES | kind::MOVED) = record.header.kind {
            let end = record.offset + record.header.total_bytes(DOCUMENT_ALIGNMENT);
            let blocks = self
                .view
                .database
                .blocks_behind(kind, end, record.header.auxiliary);
            scanner.skip_to(blocks.1);
        }
    }

    /// True if the number of a record is not the next one, and nothing explains that.
    fn lacks_before(&mut self, record: &ScannedRecord) -> Result<bool> {
        let header = &record.header;
        let sequence = header.sequence.0;
        let is_write = match header.kind {
            kind::PUT
            | kind::DELETE
            | kind::RANGE_DELETED
            | kind::NAMESPACE
            | kind::NAMESPACE_DROPPED => header.flags & FLAG_MOVED == 0,
            kind::HEADER => false,
            _ => return Ok(false),
        };
        let last = self.last_number;
        if is_write {
            // Lower, if the writer took back what did not fit.
            self.last_number = Some(sequence);
            return Ok(last.is_some_and(|last| last + 1 < sequence));
        }
        self.last_number = last.max(Some(sequence));
        let Some(next) = last.map(|last| last + 1).filter(|&next| next <= sequence) else {
            return Ok(false);
        };
        // A recovery leaves numbers out, and a rollback has one.
        let header = header_at(&self.view.database, record.offset)?;
        let explains = |header: &DatabaseHeader| match header.rolled_back_to {
            Some(_) => next == sequence,
            None => record.header.flags & FLAG_RECOVERED != 0,
        };
        Ok(header.is_some_and(|(.., header)| !explains(&header)))
    }

    fn take_write(&mut self, scanner: &mut LogScanner<'_>, record: &ScannedRecord) -> Result<()> {
        let sequence = record.header.sequence.0;
        if sequence <= self.newest {
            // For lack of space the writer took back what it had written from here on.
            self.unsettled.retain(|_, write| write.sequence < sequence);
            self.ranges.retain(|(_, range)| range.sequence < sequence);
        }
        self.newest = sequence;
        let Some((namespace, key_bytes)) = namespace_and_key(&record.header) else {
            return Ok(());
        };
        if !self.view.names.has(namespace) {
            return Ok(());
        }
        if record.header.kind == kind::RANGE_DELETED {
            let payload = scanner.payload(record)?;
            let (from, to) = payload.split_at(key_bytes);
            let range = DeletedRange::of(namespace, sequence, from, to);
            self.ranges.push((record.offset, range));
            return Ok(());
        }
        let mut key = match record.prefix().get(..key_bytes) {
            Some(key) => key.to_vec(),
            None => scanner.payload(record)?,
        };
        key.truncate(key_bytes);
        let hash = self.hash(namespace, &key);
        if !self.hashes.contains(&hash) {
            return Ok(());
        }
        let offset = record.offset;
        let found = self.indexed(namespace, &key)?.map(DocumentAddress::offset);
        let is_settled = match record.header.kind {
            kind::PUT => found.is_some_and(|found| found >= offset),
            _ => found.is_none_or(|found| found > offset),
        };
        match is_settled {
            true => _ = self.unsettled.remove(&hash),
            false => {
                let document = None;
                let unsettled = Unsettled {
                    offset,
                    sequence,
                    document,
                };
                self.unsettle(hash, unsettled);
            }
        }
        Ok(())
    }

    /// Reads the writes that are left, and names those that the index does not follow.
    fn conclude(&mut self, report: &mut CheckReport) -> Result<()> {
        // The first pass has seen all of them.
        let is_first = *self.hashes.start() == 0;
        for (offset, deleted) in self.ranges.iter().filter(|_| is_first) {
            if let Some(key) = self.left_in(*offset, deleted)? {
                let what = format!(
                    "{DISAGREES}: the write here deleted a range, and the index has an older document of its key {key}"
                );
                report.take(self.view.database.damage(*offset, what))?;
            }
        }
        let hidden = |write: &Unsettled| self.last_fault.is_some_and(|at| at > write.offset);
        let left = self.unsettled.values().filter(|write| !hidden(write));
        let mut left: Vec<Unsettled> = left.copied().collect();
        left.sort_unstable_by_key(|write| write.offset);
        for write in left {
            match self.finding(&write) {
                Ok(Some(what)) => report.take(self.view.database.damage(write.offset, what))?,
                // A stale write that can no longer be read tells nothing.
                Ok(None) | Err(Error::Corruption { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A key of a deleted range whose document lies before the range's record.
    fn left_in(&self, offset: u64, deleted: &DeletedRange) -> Result<Option<String>> {
        let ranges = RangeSet::from(&deleted.range);
        let Some(root) = self.view.root(deleted.namespace).root else {
            return Ok(None);
        };
        let cursor = self.core.index.cursor(root);
        let mut covered = CoveredKeys::new(self.core, &self.view.database, cursor, &ranges);
        while covered.peek()?.is_some() {
            if let Some((key, _)) = covered.take().filter(|(_, at)| at.offset() < offset) {
                return Ok(Some(cambium_base::hexdump::readable(
                    &key[..key.len().min(32)],
                )));
            }
        }
        Ok(None)
    }

    /// Namespace and key of a write, and whether it removed the key.
    fn key_of(&self, write: &Unsettled) -> Result<Option<(u16, Value, bool)>> {
        let database = &self.view.database;
        if let Some(address) = write.document {
            let read = database.read_document(address)?;
            return Ok(Some((read.namespace, read.key, false)));
        }
        let record = database.log.read(write.offset, 4096)?;
        let removes = record.header.kind == kind::DELETE;
        let parts = namespace_and_key(&record.header);
        Ok(parts
            .map(|(namespace, key_bytes)| (namespace, record.payload.slice(0..key_bytes), removes)))
    }

    fn finding(&self, write: &Unsettled) -> Result<Option<String>> {
        let database = &self.view.database;
        let Some((namespace, key, removes)) = self.key_of(write)? else {
            return Ok(None);
        };
        let is_deleted = |range: &DeletedRange| {
            range.sequence > write.sequence
                && range.namespace == namespace
                && range.range.contains(&key)
        };
        if !removes && self.ranges.iter().any(|(_, range)| is_deleted(range)) {
            return Ok(None);
        }
        let found = match self.indexed(namespace, &key)? {
            // Another key may have the same fingerprint.
            Some(found) if *database.read_document(found)?.key == *key => Some(found.offset()),
            _ => None,
        };
        let shown = cambium_base::hexdump::readable(&key[..key.len().min(32)]);
        let what = match (removes, found) {
            (true, Some(found)) => {
                format!("the write here removed key {shown}, and the index has it at {found}")
            }
            (true, None) => return Ok(None),
            (_, Some(found)) => {
                format!("key {shown} was written here, and the index has an older value at {found}")
            }
            (_, None) => format!("key {shown} was written here, and the index lacks it"),
        };
        let lacks = match self.last_gap.is_some_and(|at| at > write.offset) {
            true => format!("; {LACKS_LATER}"),
            false => String::new(),
        };
        Ok(Some(format!("{DISAGREES}: {what}{lacks}")))
    }
}

/// A walk through a tree, with the key of the document that it stands at once that was
/// wanted.
struct Walk {
    cursor: Option<IndexCursor>,
    document: Option<DocumentAddress>,
    key: Option<Vec<u8>>,
}

impl Walk {
    fn begin(pass: &Pass<'_>, root: Option<NodeAddress>) -> Result<Walk> {
        let mut walk = Walk {
            cursor: root.map(|root| pass.core.index.cursor(root)),
            document: None,
            key: None,
        };
        if let Some(cursor) = &mut walk.cursor {
            cursor.begin(&pass.nodes(), true)?;
        }
        walk.advance(pass)?;
        Ok(walk)
    }

    fn advance(&mut self, pass: &Pass<'_>) -> Result<()> {
        self.key = None;
        self.document = match &mut self.cursor {
            Some(cursor) => cursor.advance(&pass.nodes(), true)?,
            None => None,
        };
        Ok(())
    }

    fn key(&mut self, pass: &Pass<'_>) -> Result<&[u8]> {
        if let (None, Some(document)) = (&self.key, self.document) {
            let read = pass.view.database.read_document(document)?;
            self.key = Some(read.key.to_vec());
        }
        Ok(self.key.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot go on has failed

    use std::path::Path;

    use cambium_api::{Durability, EngineKind, OptionValues};
    use cambium_io::Environment;
    use cambium_storage::store_lock::lock_for_reading;

    use super::*;

    #[test]
    fn many_passes_find_what_one_finds() {
        let environment = Environment::memory();
        let options = OptionValues::from([("seeded_bug", "flush_loses_entry")]);
        let store = crate::Forest
            .create(&environment, Path::new("/store"), &options)
            .unwrap();
        let key = |number: u32| number.to_be_bytes();
        for number in 0..300 {
            let value = [7; 20];
            store
                .put(&key(number), &value, Durability::Written)
                .unwrap();
        }
        for number in (0..300).filter(|number| number % 7 > 0) {
            store.delete(&key(number), Durability::Written).unwrap();
        }
        store.close().unwrap();
        let marker = crate::open::read_marker(&*environment.file_system, Path::new("/store"));
        let held = lock_for_reading(&*environment.file_system, Path::new("/store"));
        let tuning = crate::options::Tuning::take(&mut OptionValues::default()).unwrap();
        let core = crate::open::attach(
            &environment,
            Path::new("/store"),
            marker.unwrap().store,
            tuning,
            (held.unwrap(), false),
        )
        .unwrap();
        let (pin, header) = core.pin_with_header().unwrap();
        let findings = [1 << 20, 16].map(|most| {
            let mut report = CheckReport::default();
            in_passes(&core, (&pin.view, &header), most, &mut report, &()).unwrap();
            report.sort();
            report
                .findings
                .into_iter()
                .map(|found| found.what)
                .collect::<Vec<_>>()
        });
        assert!(!findings[0].is_empty());
        assert_eq!(findings[0], findings[1]);
    }
}
