//! Replaying a log: which of the writes behind a place count (steps 1 to 3 of
//! [`crate::recovery`]). A recovery replays, a check, and a reader; nothing here writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_api::{Progress, ProgressSink};
use cambium_base::Result;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::record::RecordHeader;
use cambium_storage::scan::{LogScanner, ScanFault, Scanned, ScannedRecord};

use crate::buffer::{DeletedRange, Insert, KeptMoments, Version};
use crate::core::{Core, Maintenance};
use crate::database::Database;
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress};
use crate::format::{FLAG_MOVED, FLAG_RECOVERED, kind, namespace_and_key};
use crate::seeded_bug::SeededBug;
use crate::view::{Names, Roots, View};

/// A write found in the log.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub header: RecordHeader,
    pub namespace: u16,
    pub key: Vec<u8>,
    /// The key after the last of a deleted range; empty for one without end.
    pub to: Vec<u8>,
    /// Where the record lies.
    pub offset: u64,
    /// Where the next one may.
    pub end: u64,
}

impl Found {
    pub fn sequence(&self) -> u64 {
        self.header.sequence.0
    }

    /// The range that it deletes.
    pub fn deleted_range(&self) -> Option<DeletedRange> {
        let is_range = self.header.kind == kind::RANGE_DELETED;
        is_range.then(|| DeletedRange::of(self.namespace, self.sequence(), &self.key, &self.to))
    }

    /// The entry of a buffer for it; a namespace and a range have none.
    pub fn insert(&self) -> Option<Insert<'_>> {
        let bytes = self.end - self.offset;
        let document = match self.header.kind {
            kind::PUT => Some(DocumentAddress::new(self.offset, bytes, &self.key)),
            kind::DELETE => None,
            _ => return None,
        };
        Some(Insert {
            namespace: self.namespace,
            key: &self.key,
            version: Version {
                sequence: self.sequence(),
                document,
            },
        })
    }
}

/// What a log holds from an offset on.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Writes, in the order of the log, in parts that recoveries ended.
    parts: Vec<Part>,
    /// Where runs of nodes lie.
    pub extents: Vec<(u64, u64)>,
    pub faults: Vec<ScanFault>,
    synced_through: u64,
}

/// The writes up to a recovery, or to the end.
#[derive(Debug, Default)]
struct Part {
    found: Vec<Found>,
    /// Where a recovery cut, and where numbering went on.
    ended: Option<(u64, u64)>,
    /// Where the part ends at least: after the recovery's header.
    end: u64,
}

/// Where a log is replayed from, and what is known at that place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayStart {
    pub offset: u64,
    /// Records of lower sessions do not count.
    pub session: u32,
    /// The last write before it.
    pub sequence: u64,
    /// The log goes on after this at least.
    pub end: u64,
    /// Writes up to here are durable.
    pub synced_through: u64,
    pub reader: Option<ReaderRule>,
}

/// Where the replay of a reader ends that another process writes beside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReaderRule {
    /// At a rollback whose header lies behind this one, which the superblock named: writes
    /// after the rollback belong to other roots.
    pub newest_header: u64,
    /// At the first block of zeros: the log has no torn tail.
    pub until_zeros: bool,
}

impl Maintenance {
    /// Replays what follows the newest header.
    pub fn replay_start(&self) -> ReplayStart {
        let header = &self.header;
        ReplayStart {
            offset: header.replay_from,
            session: header.replay_session,
            sequence: header.sequence,
            end: header.replay_from.max(self.header_end),
            synced_through: header.sequence.max(self.root.synced_through),
            reader: None,
        }
    }
}

/// What the tail comes to.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    pub found: Vec<Found>,
    /// The last accepted sequence number.
    pub cut: u64,
    /// The largest number that was promised durable.
    pub promised: u64,
    /// The log goes on after this.
    pub end: u64,
    /// Where the first write lies that does not count because the rest of its batch is missing.
    pub unfinished: Option<u64>,
    /// The last recovery that was met: its cut, and where numbering went on.
    pub recovered: Option<(u64, u64)>,
}

impl Core {
    /// What the log holds from a place on, and which writes of it count. Writes nothing.
    ///
    /// # Errors
    /// `Corruption` where something is missing that was promised.
    pub fn replay(
        &self,
        database: &Database,
        start: &ReplayStart,
        progress: &dyn ProgressSink,
    ) -> Result<(Tail, Accepted)> {
        let mut tail = self.read_tail(database, start, progress)?;
        let accepted = self.accept(database, start, &mut tail)?;
        match missing(&tail, &accepted) {
            None => Ok((tail, accepted)),
            Some((offset, what)) => Err(database.damage(offset, what)),
        }
    }

    /// Reads the log from a place on. Writes nothing.
    pub fn read_tail(
        &self,
        database: &Database,
        start: &ReplayStart,
        progress: &dyn ProgressSink,
    ) -> Result<Tail> {
        let mut tail = Tail::default();
        let mut part = Part::default();
        let mut scanner = database.log.scan(start.offset, u64::MAX)?;
        if start.reader.is_some_and(|rule| rule.until_zeros) {
            scanner = scanner.until_zeros();
        }
        scanner.resume_sessions(start.session);
        let mut count = 0u64;
        while let Some(scanned) = scanner.next()? {
            let record = match scanned {
                Scanned::Fault(fault) => {
                    tail.faults.push(fault);
                    continue;
                }
                Scanned::Record(record) => record,
            };
            count += 1;
            if count % 4096 == 0 {
                progress.report(Progress {
                    phase: "recover",
                    done: count,
                    total: None,
                });
            }
            let end = record.offset + record.header.total_bytes(DOCUMENT_ALIGNMENT);
            tail.synced_through = tail.synced_through.max(record.header.synced_through.0);
            match record.header.kind {
                kind @ (kind::NODES | kind::MOVED) => {
                    let extent = database.blocks_behind(kind, end, record.header.auxiliary);
                    scanner.skip_to(extent.1);
                    tail.extents.push(extent);
                }
                kind::HEADER => {
                    if start.ends_at(&record) && is_rollback(&mut scanner, &record)? {
                        break;
                    }
                    if record.header.flags & FLAG_RECOVERED != 0 {
                        let cut = record.header.synced_through.0;
                        part.ended = Some((cut, record.header.sequence.0));
                        part.end = end;
                        tail.parts.push(std::mem::take(&mut part));
                    }
                }
                // Its `synced_through` is all that it says.
                kind::SYNCED => {}
                // A crash has lost the record before the blocks that a cleaning wrote.
                _ if record.header.flags & FLAG_MOVED != 0 => {}
                _ => part
                    .found
                    .push(read_write(&mut scanner, database, &record, end)?),
            }
        }
        tail.parts.push(part);
        Ok(tail)
    }

    /// Decides which of the found writes count, and takes them out of the tail.
    pub fn accept(
        &self,
        database: &Database,
        start: &ReplayStart,
        tail: &mut Tail,
    ) -> Result<Accepted> {
        let mut accepted = Accepted {
            cut: start.sequence,
            promised: tail.synced_through.max(start.synced_through),
            end: start.end,
            ..Accepted::default()
        };
        for part in std::mem::take(&mut tail.parts) {
            let is_bare = part.found.is_empty();
            let (counted, unfinished) = self.accept_part(part.found, accepted.cut);
            accepted.unfinished = unfinished;
            if let Some(last) = counted.last() {
                accepted.cut = last.sequence();
                accepted.end = accepted.end.max(last.end);
            }
            match accepted.found.is_empty() {
                true => accepted.found = counted,
                false => accepted.found.extend(counted),
            }
            accepted.end = accepted.end.max(part.end);
            let Some((cut, base)) = part.ended else {
                continue;
            };
            // The other copy of that header. A reader may have come to its end between the two.
            if is_bare && accepted.cut == base {
                continue;
            }
            accepted.recovered = part.ended;
            // That recovery made everything up to its cut durable.
            if accepted.cut != cut && !self.has_bug(SeededBug::TornTailKept) {
                return Err(database.damage(
                    part.end,
                    format!(
                        "an earlier recovery found writes up to {cut}, and now there are those up to {}",
                        accepted.cut
                    ),
                ));
            }
            accepted.cut = base;
        }
        Ok(accepted)
    }

    /// The writes of a part that count, and where the first lies that does not.
    fn accept_part(&self, mut kept: Vec<Found>, after: u64) -> (Vec<Found>, Option<u64>) {
        let begun = attempts_begin(&kept);
        kept.retain(|found| {
            let mut later = begun.range(found.header.attempt.saturating_add(1)..);
            found.header.attempt == u16::MAX || !later.any(|(_, &first)| first <= found.sequence())
        });
        if !self.has_bug(SeededBug::TornTailKept) {
            let count = whole_batches(&kept, after, self.has_bug(SeededBug::BatchSplit));
            let unfinished = kept.get(count).map(|found| found.offset);
            kept.truncate(count);
            return (kept, unfinished);
        }
        (kept, None)
    }

    /// A view with what was accepted: in its buffer, and in its names. What is filled in
    /// goes out of memory, so that keys are there once.
    pub fn refill(&self, view: View, accepted: Vec<Found>, kept: &KeptMoments) -> View {
        let mut names = Names::clone(&view.names);
        let mut roots = Roots::clone(&view.roots);
        for found in &accepted {
            match found.header.kind {
                kind::NAMESPACE => {
                    let name = String::from_utf8_lossy(&found.key).into_owned();
                    names.insert(name, found.namespace);
                }
                kind::NAMESPACE_DROPPED if self.has_bug(SeededBug::DropForgotten) => {}
                kind::NAMESPACE_DROPPED => {
                    names.remove(found.namespace);
                    roots.namespaces.remove(&found.namespace);
                }
                _ => {}
            }
        }
        let mixed = self.has_bug(SeededBug::NamespacesMixed);
        let active = &view.active;
        let count = accepted.len() as u64;
        for found in accepted {
            active.note_logged(found.end - found.offset);
            let insert = found.insert().filter(|insert| names.has(insert.namespace));
            let insert = insert.map(|insert| Insert {
                namespace: if mixed { 0 } else { insert.namespace },
                ..insert
            });
            active.insert(insert.into_iter(), kept);
            let range = found.deleted_range();
            if let Some(range) = range.filter(|range| names.has(range.namespace)) {
                active.delete_range(range);
            }
        }
        if self.is_full(active) {
            self.flush_due.store(true, Ordering::Release);
        }
        self.counters.replayed.fetch_add(count, Ordering::Relaxed);
        View {
            names: Arc::new(names),
            roots: Arc::new(roots),
            ..view
        }
    }
}

/// Ends the text of a finding of [`missing`].
pub(crate) const WERE_SYNCED: &str = "were synced";

/// Where something promised is missing, and what; `None` if nothing is.
pub(crate) fn missing(tail: &Tail, accepted: &Accepted) -> Option<(u64, String)> {
    if accepted.cut >= accepted.promised {
        return None;
    }
    let what = format!(
        "write {} is missing, and writes up to {} {WERE_SYNCED}",
        accepted.cut + 1,
        accepted.promised
    );
    Some(match tail.faults.first() {
        Some(fault) => (fault.offset, format!("{}; {what}", fault.reason)),
        None => (accepted.end, what),
    })
}

impl ReplayStart {
    /// True for a header behind the newest one that a reader knows.
    fn ends_at(&self, record: &ScannedRecord) -> bool {
        self.reader
            .is_some_and(|rule| record.offset > rule.newest_header)
    }
}

fn is_rollback(scanner: &mut LogScanner<'_>, record: &ScannedRecord) -> Result<bool> {
    let header = crate::format::DatabaseHeader::decode(&scanner.payload(record)?);
    Ok(header.is_some_and(|header| header.rolled_back_to.is_some()))
}

/// The number for a namespace after those that were made.
pub(crate) fn next_namespace(found: &[Found]) -> u32 {
    let made = found
        .iter()
        .filter(|found| found.header.kind == kind::NAMESPACE);
    made.map(|found| u32::from(found.namespace) + 1)
        .max()
        .unwrap_or(0)
}

fn read_write(
    scanner: &mut LogScanner<'_>,
    database: &Database,
    record: &ScannedRecord,
    end: u64,
) -> Result<Found> {
    let strange = || {
        database.damage(
            record.offset,
            "a record whose checksums match is nothing of this format",
        )
    };
    let known = matches!(
        record.header.kind,
        kind::PUT | kind::DELETE | kind::RANGE_DELETED | kind::NAMESPACE | kind::NAMESPACE_DROPPED
    );
    let (namespace, key_bytes) = namespace_and_key(&record.header)
        .filter(|_| known)
        .ok_or_else(strange)?;
    let needs_all = record.header.kind == kind::RANGE_DELETED;
    let mut key = match record.prefix().get(..key_bytes) {
        Some(key) if !needs_all => key.to_vec(),
        _ => scanner.payload(record)?,
    };
    let to = key.split_off(key_bytes);
    Ok(Found {
        header: record.header,
        namespace,
        to: if needs_all { to } else { Vec::new() },
        key,
        offset: record.offset,
        end,
    })
}

/// For each attempt above the first, where it began: what earlier attempts
/// wrote from there on was taken back.
fn attempts_begin(found: &[Found]) -> BTreeMap<u16, u64> {
    let mut begun = BTreeMap::new();
    for found in found.iter().filter(|found| found.header.attempt > 0) {
        let first = found.header.batch_first().0;
        let known = begun.entry(found.header.attempt).or_insert(first);
        *known = first.min(*known);
    }
    begun
}

/// How many of the writes form whole batches without a gap.
fn whole_batches(found: &[Found], after: u64, split_allowed: bool) -> usize {
    let mut accepted = 0;
    let mut expected = after + 1;
    while let Some(first) = found.get(accepted) {
        let size = first.header.batch_remaining as usize + 1;
        let whole = found
            .get(accepted..accepted.saturating_add(size))
            .is_some_and(|batch| {
                batch.iter().enumerate().all(|(index, found)| {
                    found.sequence() == expected + index as u64
                        && found.header.batch_index as usize == index
                        && found.header.batch_remaining as usize == size - 1 - index
                })
            });
        if whole {
            accepted += size;
            expected += size as u64;
        } else if split_allowed && first.sequence() == expected {
            accepted += 1;
            expected += 1;
        } else {
            break;
        }
    }
    accepted
}
