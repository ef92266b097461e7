//! Bringing a damaged store back to what can be read.
//!
//! Where the tree is sound, it says what there should be: entries whose values
//! cannot be read are deleted, one finding each, and the rest stays. Where the tree
//! itself is damaged, it is built anew from the value log, which holds keys beside
//! values for this (section 3.3.2). Then two things may be lost or come back, since
//! garbage collection has dropped segments with their small values and deletes in
//! them: the report says so.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    CheckReport, Direction, Finding, FindingKind, KeyRange, OptionValues, Progress, ProgressSink,
};
use cambium_base::{Durability, Error, Result, StoreId};
use cambium_io::{Environment, FileKind, FileLock, FileSystem, LockMode};
use cambium_lsm::Tree;
use cambium_storage::marker::{self, FilesOfEngine, Marker};
use cambium_storage::scan::{LogScanner, Scanned, SessionRule};
use cambium_storage::superblock::{self, Superblock};

use crate::core::{Core, lock};
use crate::cursor::EntryCursor;
use crate::format::{self, FORMAT_VERSION, KEYS_FOLDER, Root, ValuePointer, kind, namespace_end};
use crate::ledger::{Ledger, LedgerState};
use crate::note::{self, Head, NoteItem, SegmentNote};
use crate::open::{LOCK_NAME, decode_root, open_damaged};
use crate::options::{ENGINE, Shape, Tuning};
use crate::segment::{Home, Segment};
use crate::write::WriteRequest;

/// Mends a store that nobody has open.
pub(crate) fn repair(
    environment: &Environment,
    path: &Path,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let file_system = &*environment.file_system;
    let magics = [
        ("", format::MAGIC),
        (KEYS_FOLDER, cambium_lsm::MANIFEST_MAGIC),
    ];
    let files = FilesOfEngine {
        magics: &magics,
        has_name: crate::open::is_ours,
    };
    let known = || marker::known_marker(file_system, path, ENGINE, FORMAT_VERSION, files);
    let (marker, damage, held) = marker::mend_and_lock(file_system, path, known)?;
    let mut report = repair_contents(environment, path, &marker, held, progress)?;
    if let Some(damage) = damage {
        report.note_mended(damage, "it is made anew")?;
    }
    Ok(report)
}

/// The same where the marker is sound.
fn repair_contents(
    environment: &Environment,
    path: &Path,
    marker: &Marker,
    held: Box<dyn FileLock>,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let file_system = &*environment.file_system;
    let mut report = CheckReport::default();
    let mut lost = Vec::new();
    let opened = open_damaged(environment, path, marker.store, held, &mut lost, progress);
    let tree_damage = match opened {
        Ok(core) => match mend(&core, lost, &mut report, progress)? {
            None => return Ok(report),
            Some(damage) => {
                // Nothing of this opening may be written any more.
                _ = core.tree.close();
                core.lock
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .take();
                damage
            }
        },
        Err(error) => error,
    };
    report = CheckReport::default();
    report.take(tree_damage)?;
    let held = file_system.lock(&path.join(LOCK_NAME), LockMode::Exclusive)?;
    rebuild(environment, path, marker.store, held, &mut report, progress)?;
    Ok(report)
}

/// Deletes what cannot be read. Answers the damage of the tree itself, if there
/// is some; then nothing was changed.
fn mend(
    core: &Arc<Core>,
    lost: Vec<Error>,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<Option<Error>> {
    let mut tree_damage = None;
    core.tree.check(&mut |finding| {
        tree_damage.get_or_insert(finding.error);
    })?;
    if tree_damage.is_some() {
        return Ok(tree_damage);
    }
    for error in lost {
        report.take(error)?;
    }
    for (_, namespace) in core.namespaces() {
        let pin = core.pin()?;
        let mut cursor = EntryCursor::new(pin, namespace, &KeyRange::all(), Direction::Forward);
        loop {
            match cursor.next_verified() {
                Ok(Some(bytes)) => {
                    report.entries += 1;
                    report.bytes += bytes;
                }
                Ok(None) => break,
                Err(error) if cursor.is_stuck() => return Ok(Some(error)),
                Err(error) => {
                    report.take(error)?;
                    let key = cursor.visited().to_vec();
                    let delete = cambium_api::Operation::Delete { key };
                    let request = WriteRequest::new([(namespace, delete)], Durability::Written);
                    core.write_request(request)?;
                }
            }
            if report.entries % 4096 == 0 {
                progress.report(Progress {
                    phase: "repair",
                    done: report.entries,
                    total: None,
                });
            }
        }
    }
    drop_lost_segments(core)?;
    core.close()?;
    Ok(None)
}

/// Nothing is wanted any more of segments that could not be opened.
fn drop_lost_segments(core: &Arc<Core>) -> Result<()> {
    let known: Vec<u32> = core.ledger.state().segments.keys().copied().collect();
    let lost = known
        .into_iter()
        .filter(|&number| core.segment(number).is_none());
    let items: Vec<NoteItem> = lost.map(NoteItem::Dropped).collect();
    if items.is_empty() {
        return Ok(());
    }
    core.begin_session()?;
    core.seal(&mut lock(&core.writer))?;
    core.tree.flush()?;
    core.tree.commit_note(&note::encode(&items))
}

/// The newest that is known of a key.
#[derive(Debug)]
struct Newest {
    sequence: u64,
    /// What the tree will hold; `None` for a delete.
    stored: Option<Vec<u8>>,
    /// Bytes of the record it points to, and where.
    record: Option<(u32, u64)>,
}

/// What the value log holds.
#[derive(Debug, Default)]
struct Gathered {
    keys: BTreeMap<Vec<u8>, Newest>,
    ranges: Vec<(u64, Vec<u8>, Vec<u8>)>,
    namespaces: BTreeMap<u16, String>,
    segments: Vec<SegmentNote>,
    last_sequence: u64,
    last_session: u32,
}

/// Builds the tree anew from the value log.
fn rebuild(
    environment: &Environment,
    path: &Path,
    store: StoreId,
    held: Box<dyn FileLock>,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<()> {
    let tuning = Tuning::take(&mut OptionValues::default())?;
    let (file_system, cache) = (&environment.file_system, &environment.cache);
    let home = Home::new(file_system, path, store, &tuning, cache);
    let root = superblock::read(&*environment.file_system, path, &store, FORMAT_VERSION);
    let known = root.ok().and_then(|content| decode_root(&content.payload));
    let (shape, root) = match known {
        Some(known) => known,
        None => (shape_of_segments(&home)?, Root::default()),
    };
    let mut gathered = gather(&home, &shape, &tuning, report, progress)?;
    gathered.last_session = gathered.last_session.max(root.session);
    report.findings.push(Finding {
        kind: FindingKind::Damage,
        file: path.join(KEYS_FOLDER),
        offset: 0,
        what: "the tree was built anew from the value log: values of up to inline_bytes whose segment was collected are lost, and keys whose delete was collected may be back".to_string(),
    });
    write_tree(environment, &home, &shape, &tuning, gathered, report)?;
    drop(held);
    Ok(())
}

/// The shape in the header of any segment.
fn shape_of_segments(home: &Home) -> Result<Shape> {
    for block_bytes in (9..=16).map(|bits| 1u32 << bits) {
        let shape = Shape { block_bytes };
        let tuning = Tuning::take(&mut OptionValues::default())?;
        for number in numbers(home)? {
            if Segment::open(home, number, &shape, &tuning, None).is_ok() {
                return Ok(shape);
            }
        }
    }
    // No segment can be read: any shape will do.
    Shape::take(&mut OptionValues::default())
}

fn numbers(home: &Home) -> Result<Vec<u32>> {
    let entries = home.file_system.list(&home.folder)?;
    let numbers = entries
        .iter()
        .filter_map(|entry| format::segment_number(&entry.name.to_string_lossy()));
    Ok(numbers.collect())
}

/// Reads all that can be read of all segments.
fn gather(
    home: &Home,
    shape: &Shape,
    tuning: &Tuning,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<Gathered> {
    let mut gathered = Gathered::default();
    let numbers = numbers(home)?;
    for (done, &number) in numbers.iter().enumerate() {
        progress.report(Progress {
            phase: "repair",
            done: done as u64,
            total: Some(numbers.len() as u64),
        });
        match Segment::open(home, number, shape, tuning, None) {
            Ok(segment) => gather_segment(&segment, tuning, &mut gathered, report)?,
            Err(error) => report.take(error)?,
        }
    }
    Ok(gathered)
}

fn gather_segment(
    segment: &Segment,
    tuning: &Tuning,
    gathered: &mut Gathered,
    report: &mut CheckReport,
) -> Result<()> {
    let mut scanner = LogScanner::new(
        &**segment.log.file(),
        *segment.log.seed(),
        *segment.log.geometry(),
        SessionRule::NeverLower,
        segment.log.geometry().first_offset,
        u64::MAX,
    )?
    .thorough();
    report.files += 1;
    while let Some(scanned) = scanner.next()? {
        let record = match scanned {
            Scanned::Fault(fault) => {
                let is_hole = beside_zeros(segment, fault.offset)?;
                report.findings.push(Finding {
                    kind: match is_hole {
                        true => FindingKind::Note,
                        false => FindingKind::Damage,
                    },
                    file: segment.path().to_path_buf(),
                    offset: fault.offset,
                    what: match is_hole {
                        true => "no record, beside a block of zeros: what is left around a hole"
                            .to_string(),
                        false => fault.reason.to_string(),
                    },
                });
                continue;
            }
            Scanned::Record(record) => record,
        };
        let header = record.header;
        let payload = scanner.payload(&record)?;
        report.bytes += payload.len() as u64;
        let sequence = header.sequence.0;
        gathered.last_sequence = gathered.last_sequence.max(sequence);
        let first_bytes = (header.auxiliary as usize).min(payload.len());
        let (first, second) = payload.split_at(first_bytes);
        match header.kind {
            kind::PUT if second.len() <= tuning.inline_bytes => {
                let mut stored = Vec::new();
                format::encode_inline(second, &mut stored);
                gathered.learn(first, sequence, Some(stored), None);
            }
            kind::PUT => {
                let pointer = ValuePointer {
                    segment: segment.number,
                    offset: record.offset,
                    value_bytes: second.len() as u32,
                };
                let bytes = pointer.record_bytes(first.len());
                let stored = pointer.encode().to_vec();
                gathered.learn(first, sequence, Some(stored), Some((segment.number, bytes)));
            }
            kind::DELETE => gathered.learn(&payload, sequence, None, None),
            kind::DELETE_RANGE => {
                let range = (sequence, first.to_vec(), second.to_vec());
                gathered.ranges.push(range);
            }
            kind::NAMESPACE => {
                let name = String::from_utf8_lossy(&payload).into_owned();
                gathered.namespaces.insert(header.auxiliary as u16, name);
            }
            _ => {}
        }
    }
    // What a process that died left in the cache must not be less durable than
    // the tables that will point to it.
    segment.log.file().sync_data()?;
    gathered.last_session = gathered.last_session.max(scanner.highest_session());
    gathered.segments.push(SegmentNote {
        number: segment.number,
        kind: segment.kind,
        value_bytes: 0,
        end: scanner.position(),
    });
    Ok(())
}

/// True if the block before or behind the one of an offset is all zeros: the tree
/// that knew the holes is lost.
fn beside_zeros(segment: &Segment, offset: u64) -> Result<bool> {
    let block = segment.log.geometry().block;
    let here = offset / block * block;
    let mut bytes = vec![0; block as usize];
    for start in [here.checked_sub(block), here.checked_add(block)] {
        let Some(start) = start.filter(|&start| start >= segment.log.geometry().first_offset)
        else {
            continue;
        };
        let count = segment.log.file().read_at(&mut bytes, start)?;
        if count == bytes.len() && bytes.iter().all(|&byte| byte == 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Gathered {
    /// A later write of a key wins; so does a later copy of the same one.
    fn learn(
        &mut self,
        key: &[u8],
        sequence: u64,
        stored: Option<Vec<u8>>,
        record: Option<(u32, u64)>,
    ) {
        let newest = Newest {
            sequence,
            stored,
            record,
        };
        match self.keys.get_mut(key) {
            Some(known) if known.sequence > sequence => {}
            Some(known) => *known = newest,
            None => {
                self.keys.insert(key.to_vec(), newest);
            }
        }
    }

    /// Forgets keys that a later range delete covers, and names namespaces whose
    /// names are lost.
    fn settle(&mut self) {
        for (sequence, from, to) in std::mem::take(&mut self.ranges) {
            let covered = self.keys.range_mut(from..to);
            covered
                .filter(|(_, newest)| newest.sequence < sequence)
                .for_each(|(_, newest)| newest.stored = None);
        }
        self.keys.retain(|_, newest| newest.stored.is_some());
        self.namespaces.insert(0, String::new());
        let mut from = Vec::new();
        while let Some((key, _)) = self.keys.range(from.clone()..).next() {
            let Some(&[high, low]) = key.get(..2) else {
                break;
            };
            let number = u16::from_be_bytes([high, low]);
            self.namespaces
                .entry(number)
                .or_insert_with(|| format!("lost+found {number}"));
            from = namespace_end(number);
        }
    }
}

/// Removes the files of the damaged tree.
fn remove_tree(file_system: &dyn FileSystem, keys: &Path) -> Result<()> {
    if file_system.metadata(keys)?.is_none() {
        return Ok(());
    }
    for entry in file_system.list(keys)? {
        if entry.kind == FileKind::File {
            file_system.remove(&keys.join(&entry.name))?;
        }
    }
    Ok(())
}

/// Writes a new tree, its ledger, and a superblock that says the store is closed.
fn write_tree(
    environment: &Environment,
    home: &Home,
    shape: &Shape,
    tuning: &Tuning,
    mut gathered: Gathered,
    report: &mut CheckReport,
) -> Result<()> {
    gathered.settle();
    let keys = home.folder.join(KEYS_FOLDER);
    remove_tree(&*home.file_system, &keys)?;
    let rule = tuning.hole_rule(shape);
    let ledger = Ledger::new(keys.clone(), LedgerState::default(), rule);
    let options = tuning.tree_options(environment);
    let tree = Tree::create(environment, &keys, home.store, &options, ledger.clone())?;
    let mut live: BTreeMap<u32, u64> = BTreeMap::new();
    let writer = tree.writer();
    for (key, newest) in &gathered.keys {
        if let Some(stored) = &newest.stored {
            writer.put(newest.sequence, key, stored);
            report.entries += 1;
        }
        if let Some((segment, bytes)) = newest.record {
            *live.entry(segment).or_insert(0) += bytes;
        }
    }
    drop(writer);
    let next_file = gathered.segments.iter().map(|segment| segment.number + 1);
    let next_file = next_file.max().unwrap_or(1);
    let session = gathered.last_session + 1;
    let mut items = vec![
        NoteItem::Head(Head {
            sequence: gathered.last_sequence,
            segment: next_file,
            offset: 0,
            session,
        }),
        NoteItem::NextFile(next_file),
    ];
    items.extend(gathered.segments.iter().map(|segment| {
        NoteItem::Segment(SegmentNote {
            value_bytes: live.get(&segment.number).copied().unwrap_or(0),
            ..*segment
        })
    }));
    let names = gathered.namespaces.into_iter();
    items.extend(names.map(|(number, name)| NoteItem::Namespace { number, name }));
    let note = note::encode(&items);
    ledger.repairing(gathered.last_sequence);
    tree.seal(note);
    tree.flush()?;
    tree.close()?;
    home.file_system.sync_directory(&home.folder)?;
    let root = Root {
        session,
        clean: true,
        block_bytes: shape.block_bytes,
    };
    Superblock::create(
        &home.file_system,
        &home.folder,
        home.store,
        FORMAT_VERSION,
        &root.encode(),
    )?;
    home.file_system.sync_directory(&home.folder)
}
