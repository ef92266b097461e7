//! Reading a whole damaged log: every sound write, every fault, and what the
//! newest headers say.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use cambium_api::{FindingKind, Progress, ProgressSink};
use cambium_base::Result;
use cambium_storage::record::RecordHeader;
use cambium_storage::scan::{LogScanner, ScanFault, Scanned, SessionRule};

use super::runs::{Met, Sorter};
use super::{Repair, Trusted, header_at};
use crate::agreement::whole_before;
use crate::buffer::DeletedRange;
use crate::database::Database;
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress};
use crate::format::{
    DatabaseHeader, FLAG_KEPT, FLAG_MOVED, FileRef, Root, kind, namespace_and_key,
};
use crate::packed_block::PackedBlock;

/// A write that may count: where it is, or that it removed the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub sequence: u64,
    /// Where its record lies.
    pub offset: u64,
    pub document: Option<DocumentAddress>,
}

impl Version {
    pub fn of(met: &Met) -> Self {
        let document = (met.document > 0).then_some(DocumentAddress(met.document));
        Version {
            sequence: met.sequence,
            offset: met.offset,
            document,
        }
    }
}

/// The place of a write.
struct Place {
    sequence: u64,
    offset: u64,
    document: Option<DocumentAddress>,
}

/// What a log comes to.
pub(super) struct Salvaged {
    pub database: Database,
    pub names: BTreeMap<u16, String>,
    pub highest_sequence: u64,
    pub highest_session: u32,
    /// The header that the superblock names, or its spare.
    pub trusted: Option<Trusted>,
    /// Where the superblock says the newest header is.
    pub newest_header: Option<u64>,
    /// Nothing follows the newest header.
    pub was_closed: bool,
    /// Where the batch of the last write begins, as long as its end was not met.
    open_batch: Option<u64>,
    /// Where the last sound record lies.
    pub last_record: u64,
    pub faults: Vec<ScanFault>,
    /// Writes that count although the index does not follow them, by their places.
    pub overlooked: HashSet<u64>,
    /// The last write met in each namespace, its own beginning included.
    newest_in: BTreeMap<u16, u64>,
    /// Deleted ranges, and where their records lie.
    ranges: Vec<(u64, DeletedRange)>,
    /// Namespaces whose end was met.
    dropped: BTreeSet<u16>,
    /// The documents that a compaction has kept for named snapshots alone.
    kept: Range<u64>,
    /// Where headers of rollbacks lie, and the last write that each kept.
    rollbacks: Vec<(u64, u64)>,
    /// Where runs of nodes lie, in the order of the file.
    extents: Vec<(u64, u64)>,
    /// Named snapshots of the newest header met, and where it lies.
    snapshots: (u64, Vec<String>),
}

impl Salvaged {
    /// True for a place within a run of nodes.
    pub fn is_node(&self, offset: u64) -> bool {
        let next = self.extents.partition_point(|&(start, _)| start <= offset);
        next > 0 && offset < self.extents[next - 1].1
    }

    /// A number that no namespace had.
    pub fn next_namespace(&self) -> u32 {
        let known = self.names.keys().chain(&self.dropped).max();
        let next = known.map_or(1, |&last| u32::from(last) + 1);
        let trusted = self.trusted.as_ref();
        next.max(trusted.map_or(0, |trusted| trusted.header.next_namespace))
    }

    /// Namespaces that only named snapshots have.
    pub fn dropped_names(&self) -> Vec<(u16, String)> {
        let Some(trusted) = &self.trusted else {
            return Vec::new();
        };
        let there = trusted.header.namespaces.iter();
        let there = there.map(|(number, name, _)| (*number, name.clone()));
        let all = there.chain(trusted.header.dropped.iter().cloned());
        all.filter(|(number, _)| !self.names.contains_key(number))
            .collect()
    }

    /// True if a later rollback in the log undid a write.
    fn is_undone(&self, version: &Version) -> bool {
        let mut later = self.rollbacks.iter().filter(|(at, _)| *at > version.offset);
        later.any(|(_, kept)| version.sequence > *kept)
    }

    /// True for a document that named snapshots alone have, unless a rollback brought it back.
    fn is_kept(&self, version: &Version) -> bool {
        let mut later = self.rollbacks.iter().filter(|(at, _)| *at > version.offset);
        version.document.is_some() && self.kept.contains(&version.offset) && later.next().is_none()
    }

    fn note_kept(&mut self, offset: u64, end: u64) {
        if self.kept.is_empty() {
            self.kept.start = offset;
        }
        self.kept.end = end;
    }

    /// The versions of a key, deleted ranges among them. Writes that a rollback undid are left
    /// out, those of a batch whose end the log lacks, and those that named snapshots alone have.
    pub fn versions_of(&self, met: &[Met]) -> Vec<Version> {
        let mut versions: Vec<Version> = met.iter().map(Version::of).collect();
        if let Some(first) = met.first() {
            let ranges = self.ranges.iter().filter(|(_, deleted)| {
                deleted.namespace == first.namespace && deleted.range.contains(&first.key)
            });
            versions.extend(
                ranges.map(|&(offset, DeletedRange { sequence, .. })| Version {
                    sequence,
                    offset,
                    document: None,
                }),
            );
        }
        let torn_from = self.open_batch.unwrap_or(u64::MAX);
        versions.retain(|version| {
            version.offset < torn_from && !self.is_undone(version) && !self.is_kept(version)
        });
        versions
    }

    /// Takes a write that is no header's; a namespace's by name, others for the
    /// sorter.
    fn take_write(
        &mut self,
        header: &RecordHeader,
        namespace: u16,
        key: Vec<u8>,
        place: Place,
    ) -> Option<Met> {
        let sequence = place.sequence;
        if header.kind == kind::NAMESPACE {
            let name = String::from_utf8_lossy(&key).into_owned();
            self.names.insert(namespace, name);
            self.note_in(namespace, sequence);
            return None;
        }
        if header.kind == kind::NAMESPACE_DROPPED {
            self.names.remove(&namespace);
            self.dropped.insert(namespace);
            return None;
        }
        if self.dropped.contains(&namespace) {
            return None;
        }
        self.names
            .entry(namespace)
            .or_insert_with(|| format!("lost-{namespace}"));
        self.note_in(namespace, sequence);
        Some(Met {
            namespace,
            key,
            sequence,
            offset: place.offset,
            document: place.document.map_or(0, |address| address.0),
        })
    }

    /// Takes the documents of a packed block.
    fn take_block(
        &mut self,
        header: &RecordHeader,
        start: u64,
        payload: &[u8],
        sorter: &mut Sorter,
    ) -> Result<()> {
        let Some(block) = PackedBlock::of(payload) else {
            return Ok(());
        };
        for slot in 0..block.count() {
            let Some((found, _)) = block.document(slot) else {
                continue;
            };
            self.highest_sequence = self.highest_sequence.max(found.sequence);
            let bytes = (found.key.len() + found.value.len()) as u64;
            let address = DocumentAddress::packed(start, slot, bytes, found.key);
            let place = Place {
                sequence: found.sequence,
                offset: address.offset(),
                document: Some(address),
            };
            let met = self.take_write(header, found.namespace, found.key.to_vec(), place);
            if let Some(met) = met {
                sorter.take(met)?;
            }
        }
        Ok(())
    }

    /// Notes where the batch of a write begins, until its last write is met.
    fn note_batch(&mut self, header: &RecordHeader, offset: u64) {
        let is_last = header.batch_remaining == 0 || header.flags & FLAG_MOVED != 0;
        let begin = match (header.batch_index, self.open_batch) {
            (1.., Some(begin)) => begin,
            _ => offset,
        };
        self.open_batch = (!is_last).then_some(begin);
    }

    fn note_in(&mut self, namespace: u16, sequence: u64) {
        let newest = self.newest_in.entry(namespace).or_default();
        *newest = sequence.max(*newest);
    }

    /// The newest header lacks namespaces that were dropped before it.
    fn take_drops(&mut self, header: &DatabaseHeader) {
        let there = |number| header.namespaces.iter().any(|(other, ..)| *other == number);
        let newest = &self.newest_in;
        let later = |number: u16| {
            newest
                .get(&number)
                .is_some_and(|&met| met > header.sequence)
        };
        self.names
            .retain(|number, _| there(*number) || later(*number));
    }

    fn take_header(&mut self, offset: u64, header: &DatabaseHeader) {
        for (number, name, _) in &header.namespaces {
            if !self.dropped.contains(number) {
                self.names.insert(*number, name.clone());
            }
        }
        if let Some(kept) = header.rolled_back_to {
            // What was dropped is back.
            self.dropped
                .retain(|number| header.namespaces.iter().all(|(other, ..)| other != number));
            self.rollbacks.push((offset, kept));
            for (number, name, _) in &header.namespaces {
                self.names.insert(*number, name.clone());
            }
        }
        let names = header.snapshots.iter().map(|kept| kept.name.clone());
        self.snapshots = (offset, names.collect());
    }
}

impl Repair<'_> {
    /// Scans the whole log of a file.
    pub(super) fn salvage(
        &mut self,
        file: FileRef,
        root: Option<Root>,
        progress: &dyn ProgressSink,
    ) -> Result<(Salvaged, Sorter)> {
        let tuning = self.tuning;
        let shape = root.and_then(|root| root.shape);
        let database = Database::open(&self.home, file, &tuning, None, shape)?;
        let path = database.path().to_path_buf();
        let trusted = match root {
            Some(root) => self.trusted(&database, &root)?,
            None => None,
        };
        if let Some(trusted) = &trusted {
            let begin = trusted.header.begin;
            database.log.begin_at(begin);
        }
        let mut salvaged = Salvaged {
            names: BTreeMap::from([(0, String::new())]),
            highest_sequence: 0,
            highest_session: 0,
            trusted,
            newest_header: root.map(|root| root.header),
            was_closed: root.is_some_and(|root| root.clean),
            open_batch: None,
            last_record: 0,
            faults: Vec::new(),
            overlooked: HashSet::new(),
            extents: Vec::new(),
            newest_in: BTreeMap::new(),
            ranges: Vec::new(),
            dropped: BTreeSet::new(),
            kept: 0..0,
            rollbacks: Vec::new(),
            snapshots: (0, Vec::new()),
            database,
        };
        let file_system = self.environment.file_system.clone();
        let mut sorter = Sorter::new(file_system, &self.home.folder);
        self.scan(&mut salvaged, &mut sorter, progress)?;
        // The newest there is, whatever the scan met after it.
        if let Some(trusted) = salvaged.trusted.take() {
            salvaged.take_header(trusted.offset, &trusted.header);
            salvaged.take_drops(&trusted.header);
            salvaged.trusted = Some(trusted);
        }
        // Without an index that can be trusted their content is unknown.
        let (offset, names) = std::mem::take(&mut salvaged.snapshots);
        for name in names.iter().filter(|_| salvaged.trusted.is_none()) {
            let what = format!("snapshot {name:?} is lost: no header that names it can be trusted");
            self.lose(&path, offset, what);
        }
        Ok((salvaged, sorter))
    }

    /// The header that the superblock names or its spare; with neither sound
    /// it is unknown what else there was.
    fn trusted(&mut self, database: &Database, root: &Root) -> Result<Option<Trusted>> {
        for place in [root.header, root.spare_header] {
            if place == 0 {
                continue;
            }
            if let Some((offset, _, header)) = header_at(database, place)? {
                // A flush behind a header that is lost may have written over older trees.
                let from = match offset != root.header || root.may_be_older {
                    true => u64::MAX,
                    false => header.trees_from,
                };
                let older = whole_before(database, &header, from)?;
                return Ok(Some(Trusted {
                    offset,
                    header,
                    older,
                }));
            }
        }
        let what = "the newest database header and its spare cannot be read: named snapshots, rollbacks and writes that only they knew of are lost";
        self.lose(database.path(), root.header, what);
        Ok(None)
    }

    fn scan(
        &mut self,
        salvaged: &mut Salvaged,
        sorter: &mut Sorter,
        progress: &dyn ProgressSink,
    ) -> Result<()> {
        let handle = salvaged.database.log.file().clone();
        let mut scanner = LogScanner::new(
            &*handle,
            *salvaged.database.log.seed(),
            *salvaged.database.log.geometry(),
            SessionRule::NeverLower,
            salvaged.database.log.begin(),
            u64::MAX,
        )?
        .thorough();
        let mut count = 0u64;
        while let Some(scanned) = scanner.next()? {
            let record = match scanned {
                Scanned::Fault(fault) => {
                    salvaged.faults.push(fault);
                    continue;
                }
                Scanned::Record(record) => record,
            };
            count += 1;
            if count % 4096 == 0 {
                progress.report(Progress {
                    phase: "repair: read",
                    done: count,
                    total: None,
                });
            }
            salvaged.last_record = record.offset;
            let header = record.header;
            let end = record.offset + header.total_bytes(DOCUMENT_ALIGNMENT);
            salvaged.highest_sequence = salvaged.highest_sequence.max(header.sequence.0);
            if header.flags & FLAG_KEPT != 0 {
                salvaged.note_kept(record.offset, end);
            }
            match header.kind {
                kind::NODES => {
                    let extent =
                        salvaged
                            .database
                            .blocks_behind(kind::NODES, end, header.auxiliary);
                    scanner.skip_to(extent.1);
                    salvaged.extents.push(extent);
                }
                kind::HEADER => {
                    if let Some(decoded) = DatabaseHeader::decode(&scanner.payload(&record)?) {
                        salvaged.take_header(record.offset, &decoded);
                    }
                }
                kind::PUT | kind::DELETE | kind::NAMESPACE | kind::NAMESPACE_DROPPED => {
                    salvaged.note_batch(&header, record.offset);
                    let Some((namespace, key_bytes)) = namespace_and_key(&header) else {
                        continue;
                    };
                    let mut key = scanner.payload(&record)?;
                    key.truncate(key_bytes);
                    let bytes = end - record.offset;
                    let place = Place {
                        sequence: header.sequence.0,
                        offset: record.offset,
                        document: (header.kind == kind::PUT)
                            .then(|| DocumentAddress::new(record.offset, bytes, &key)),
                    };
                    if let Some(met) = salvaged.take_write(&header, namespace, key, place) {
                        sorter.take(met)?;
                    }
                }
                kind::RANGE_DELETED => {
                    salvaged.note_batch(&header, record.offset);
                    let Some((namespace, from_bytes)) = namespace_and_key(&header) else {
                        continue;
                    };
                    let payload = scanner.payload(&record)?;
                    let (from, to) = payload.split_at(from_bytes);
                    let deleted = DeletedRange::of(namespace, header.sequence.0, from, to);
                    salvaged.ranges.push((record.offset, deleted));
                }
                kind::PACKED => {
                    let payload = scanner.payload(&record)?;
                    salvaged.take_block(&header, record.offset, &payload, sorter)?;
                }
                _ => {}
            }
        }
        salvaged.highest_session = scanner.highest_session();
        Ok(())
    }

    /// Says where the log could not be read. With an index that told of every
    /// key, that is no loss by itself where only the index was asked.
    pub(super) fn take_faults(&mut self, salvaged: &Salvaged, exact: bool) {
        let path = salvaged.database.path().to_path_buf();
        let judged = salvaged.trusted.as_ref().filter(|_| exact);
        for fault in &salvaged.faults {
            let known = judged.is_some_and(|trusted| fault.offset < trusted.header.replay_from);
            let header = salvaged.trusted.is_some() && salvaged.newest_header == Some(fault.offset);
            let (kind, what) = match known || header {
                true => (
                    FindingKind::Note,
                    format!(
                        "{}; nothing here was needed, but for what is named",
                        fault.reason
                    ),
                ),
                false => (FindingKind::Damage, fault.reason.to_string()),
            };
            self.say(kind, &path, fault.offset, what);
        }
    }
}
