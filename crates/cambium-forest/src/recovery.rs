//! Recovery: what a store that was not closed holds (section 3.3).
//!
//! The superblock names the newest header; its roots hold every write up to *r*.
//! From the header's replay offset the log is read to its end, stepping over runs
//! of nodes. Let *s* be the largest `synced_through` found.
//!
//! 1. Records of an attempt that was taken back for lack of space are left out.
//! 2. Whole batches that follow *r* without a gap are accepted; the first gap or
//!    part of a batch ends them at the *cut*. A header that an earlier recovery
//!    wrote says where that one cut, and where numbering went on.
//! 3. If the cut lies below *s*, something that was promised is missing: that is
//!    damage, and the open fails, naming the place.
//! 4. A new session is made durable in the superblock.
//! 5. What was accepted is written over itself and synced: a process that died,
//!    or whose sync failed, may have left it in the operating system's cache alone.
//!    The rest of its last block is wiped.
//! 6. A header that says *recovered* is appended after it, in the new session,
//!    and synced; both copies of the superblock point to it. Records of older
//!    sessions after it never count again, and numbering goes on far above what
//!    may have been lost.
//!
//! The accepted writes fill the write buffer again; nothing of the tries is
//! written. A crash in 4 to 6 leaves the old header; the next recovery reads the
//! same log and comes to the same cut.
//!
//! A header that is damaged does not cost anything: the superblock names another
//! that leads to the same state. For a flush that is the header before it, from
//! which more is replayed; a header that says what no replay brings back (a
//! rollback, named snapshots, a compaction's first, the mark of a recovery) has a
//! copy of its own.

use std::collections::BTreeMap;

use cambium_api::{Progress, ProgressSink};
use cambium_base::{Error, Result};
use cambium_io::sync::atomic::Ordering;
use cambium_storage::record::RecordHeader;
use cambium_storage::replay::write_again;
use cambium_storage::scan::{LogScanner, ScanFault, Scanned, ScannedRecord, SessionRule};

use crate::buffer::{Insert, KeptMoments, Version};
use crate::core::{Core, Maintenance, lock};
use crate::database::Database;
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress};
use crate::flush::Copies;
use crate::format::{FLAG_RECOVERED, header_record, kind, namespace_and_key};
use crate::seeded_bug::SeededBug;

/// Sequence numbers go on at the next multiple of this after a crash: more
/// than can have been given out and lost, so none is given twice.
const SEQUENCE_EPOCH: u64 = 1 << 32;

/// A write found in the log.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub header: RecordHeader,
    pub namespace: u16,
    pub key: Vec<u8>,
    /// Where the record lies.
    pub offset: u64,
    /// Where the next one may.
    pub end: u64,
}

impl Found {
    fn sequence(&self) -> u64 {
        self.header.sequence.0
    }

    /// What a buffer keeps of it; nothing of a namespace.
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
    extents: Vec<(u64, u64)>,
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
    /// The last recovery that was met: its cut, and where numbering went on.
    recovered: Option<(u64, u64)>,
}

impl Core {
    /// Recovers the store. Called by `open`, before anyone else has it.
    pub fn recover(&self, progress: &dyn ProgressSink) -> Result<()> {
        let mut maintenance = lock(&self.maintenance);
        let view = self.view.load_full();
        let mut tail = self.read_tail(&maintenance, &view.database, progress)?;
        let mut accepted = self.accept(&maintenance, &view.database, &mut tail)?;
        self.refuse_missing(&view.database, &tail, &accepted)?;
        self.take_session(&mut maintenance)?;
        self.settle(&maintenance, &view.database, &tail, &accepted)?;
        self.refill(std::mem::take(&mut accepted.found));
        self.finish_recovery(&mut maintenance, &view.database, &accepted)?;
        cambium_io::events::recovered("forest", &self.path, accepted.cut);
        Ok(())
    }

    /// Reads the log after the newest header's replay offset. Writes nothing.
    pub fn read_tail(
        &self,
        maintenance: &Maintenance,
        database: &Database,
        progress: &dyn ProgressSink,
    ) -> Result<Tail> {
        let header = &maintenance.header;
        let mut tail = Tail::default();
        let mut part = Part::default();
        let mut scanner = LogScanner::new(
            &**database.log.file(),
            *database.log.seed(),
            *database.log.geometry(),
            SessionRule::NeverLower,
            header.replay_from,
            u64::MAX,
        )?;
        scanner.resume_sessions(header.replay_session);
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
                kind::NODES => {
                    let extent = database.run_extent(end, record.header.auxiliary);
                    scanner.skip_to(extent.1);
                    tail.extents.push(extent);
                }
                kind::HEADER => {
                    if record.header.flags & FLAG_RECOVERED != 0 {
                        let cut = record.header.synced_through.0;
                        part.ended = Some((cut, record.header.sequence.0));
                        part.end = end;
                        tail.parts.push(std::mem::take(&mut part));
                    }
                }
                // Its `synced_through` is all that it says.
                kind::SYNCED => {}
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
        maintenance: &Maintenance,
        database: &Database,
        tail: &mut Tail,
    ) -> Result<Accepted> {
        let header = &maintenance.header;
        let mut accepted = Accepted {
            cut: header.sequence,
            promised: tail
                .synced_through
                .max(header.sequence)
                .max(maintenance.root.synced_through),
            end: header.replay_from.max(maintenance.header_end),
            ..Accepted::default()
        };
        for part in std::mem::take(&mut tail.parts) {
            let is_bare = part.found.is_empty();
            let counted = self.accept_part(part.found, accepted.cut);
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
            // The other copy of that header.
            if is_bare && accepted.recovered == part.ended {
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

    fn accept_part(&self, mut kept: Vec<Found>, after: u64) -> Vec<Found> {
        let begun = attempts_begin(&kept);
        kept.retain(|found| {
            let mut later = begun.range(found.header.attempt.saturating_add(1)..);
            found.header.attempt == u16::MAX || !later.any(|(_, &first)| first <= found.sequence())
        });
        if !self.has_bug(SeededBug::TornTailKept) {
            let count = whole_batches(&kept, after, self.has_bug(SeededBug::BatchSplit));
            kept.truncate(count);
        }
        kept
    }

    /// Fails if something is missing that was promised.
    fn refuse_missing(&self, database: &Database, tail: &Tail, accepted: &Accepted) -> Result<()> {
        match missing(tail, accepted) {
            None => Ok(()),
            Some((offset, what)) => Err(database.damage(offset, what)),
        }
    }

    /// Takes a session number that no crashed recovery has used.
    fn take_session(&self, maintenance: &mut Maintenance) -> Result<()> {
        if !self.has_bug(SeededBug::EpochReused) {
            maintenance.root.session += 1;
        }
        maintenance.root.clean = false;
        maintenance.root.end = 0;
        let payload = maintenance.root.encode();
        maintenance
            .superblock
            .write(&payload)
            .map_err(|error| self.unless_full(error))?;
        lock(&self.writer).session = maintenance.root.session;
        Ok(())
    }

    /// Writes what was accepted over itself, wipes what was cut off up to the
    /// next block, and syncs: a record there could pass for one, and hide what
    /// is written over its end.
    fn settle(
        &self,
        maintenance: &Maintenance,
        database: &Database,
        tail: &Tail,
        accepted: &Accepted,
    ) -> Result<()> {
        let file = database.log.file();
        // Nodes that count were synced before the header that points to them.
        let mut position = maintenance.header.replay_from.min(maintenance.root.header);
        for &(start, end) in tail.extents.iter().filter(|(_, end)| *end <= accepted.end) {
            write_again(&**file, position, start)?;
            position = end;
        }
        write_again(&**file, position, accepted.end)?;
        let block = database.log.geometry().block;
        let next = accepted.end.next_multiple_of(block);
        let wiped = next.min(file.length()?).saturating_sub(accepted.end);
        file.write_at(&vec![0; wiped as usize], accepted.end)?;
        file.sync_data()?;
        database.log.resume_at(accepted.end);
        Ok(())
    }

    /// Fills buffer and namespaces with what was accepted. What is filled in goes out of
    /// memory, so that keys are there once.
    pub fn refill(&self, accepted: Vec<Found>) {
        let mut writer = lock(&self.writer);
        for found in &accepted {
            match found.header.kind {
                kind::NAMESPACE => {
                    self.add_namespace(&mut writer, found.namespace, found.key.clone());
                }
                kind::NAMESPACE_DROPPED if self.has_bug(SeededBug::DropForgotten) => {}
                kind::NAMESPACE_DROPPED => self.forget_namespace(&writer, found.namespace),
                _ => {}
            }
        }
        let names = self.view.load().names.clone();
        let mixed = self.has_bug(SeededBug::NamespacesMixed);
        let active = self.view.load().active.clone();
        let count = accepted.len() as u64;
        for found in accepted {
            active.note_logged(found.end - found.offset);
            let insert = found.insert().filter(|insert| names.has(insert.namespace));
            let insert = insert.map(|insert| Insert {
                namespace: if mixed { 0 } else { insert.namespace },
                ..insert
            });
            active.insert(insert.into_iter(), &KeptMoments::default());
        }
        if self.is_full(&active) {
            self.flush_due.store(true, Ordering::Release);
        }
        self.counters.replayed.fetch_add(count, Ordering::Relaxed);
    }

    /// Marks the cut in the log, and begins the new session.
    fn finish_recovery(
        &self,
        maintenance: &mut Maintenance,
        database: &Database,
        accepted: &Accepted,
    ) -> Result<()> {
        let base = match self.has_bug(SeededBug::EpochReused) {
            true => accepted.cut,
            false => (accepted.cut / SEQUENCE_EPOCH + 1) * SEQUENCE_EPOCH,
        };
        let (header, appended) = {
            let mut writer = lock(&self.writer);
            let mut header = maintenance.header.clone();
            header.previous = maintenance.root.header;
            header.rolled_back_to = None;
            let record = header_record(base, accepted.cut, writer.session, true);
            let appended = self.append_header(database, &header, &record, Copies::Two)?;
            writer.next_sequence = base + 1;
            self.synced_through.store(base, Ordering::Release);
            (header, appended)
        };
        self.sync_header(database)?;
        maintenance.root.name(&appended, database);
        maintenance.header = header;
        let payload = maintenance.root.encode();
        maintenance
            .superblock
            .write_both(&payload)
            .map_err(|error| self.unless_full(error))?;
        self.visible.store(base, Ordering::Release);
        self.session_begun.store(true, Ordering::Release);
        Ok(())
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
        kind::PUT | kind::DELETE | kind::NAMESPACE | kind::NAMESPACE_DROPPED
    );
    let (namespace, key_bytes) = namespace_and_key(&record.header)
        .filter(|_| known)
        .ok_or_else(strange)?;
    let key = match record.prefix().get(..key_bytes) {
        Some(key) => key.to_vec(),
        None => {
            let mut payload = scanner.payload(record)?;
            payload.truncate(key_bytes);
            payload
        }
    };
    Ok(Found {
        header: record.header,
        namespace,
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

/// A header that was found and what it says.
pub(crate) type FoundHeader = (u64, RecordHeader, crate::format::DatabaseHeader);

/// The sound header at an offset, if there is one.
pub(crate) fn header_at(database: &Database, offset: u64) -> Result<Option<FoundHeader>> {
    match database.log.read(offset, 4096) {
        Ok(record) if record.header.kind == kind::HEADER => {
            let decoded = crate::format::DatabaseHeader::decode(&record.payload);
            Ok(decoded.map(|header| (offset, record.header, header)))
        }
        Ok(_) | Err(Error::Corruption { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The last sound header before an offset, looked for block by block from
/// there to the file's start: for repair, which does not know what it said.
pub(crate) fn header_before(database: &Database, offset: u64) -> Result<Option<FoundHeader>> {
    let geometry = database.log.geometry();
    let mut block = offset / geometry.block * geometry.block;
    while block > geometry.first_offset {
        block -= geometry.block;
        if block < geometry.first_offset {
            break;
        }
        if let Some(found) = header_at(database, block)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
