//! Building a tree anew, for a repair.
//!
//! ```text
//!  damaged tree: entries of its sound blocks ─┐
//!                                             ├─▶ new tree, in the other folder ─▶ check ─▶ superblock
//!  value log: records of keys that are lost ──┘
//! ```
//!
//! Nothing of the store changes until the superblock names the new folder, which is the
//! last step. A repair that is killed before leaves the damaged store as it was, and the
//! next repair begins again; one that is killed later leaves the mended store.
//!
//! Where the manifest is readable, its tables give all entries but those of damaged blocks,
//! and the log is read for the keys of damaged blocks alone: for any other key the tree
//! says what counts, and the log may hold values whose delete is gone. Where the manifest
//! is not readable, all keys are taken from the log.
//!
//! Entries go into the new tree in any order, so lookups in it would be wrong until it is
//! compacted: the merge orders them by their sequence numbers and keeps the newest of each
//! key. Memory is bounded by one write buffer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{CheckReport, Finding, FindingKind, OptionValues, Progress, ProgressSink};
use cambium_base::{Result, StoreId};
use cambium_io::Environment;
use cambium_lsm::{DumpItem, EntryKind, EntryRef, Owner, Salvaged, Tree};
use cambium_storage::scan::Scanned;
use cambium_storage::superblock::{self, Superblock};

use crate::core::Core;
use crate::format::{self, FORMAT_VERSION, Root, SegmentKind, Stored, ValuePointer, kind};
use crate::ledger::{Ledger, LedgerState};
use crate::note::{self, Head, NoteItem, SegmentNote};
use crate::open::{decode_root, remove_files};
use crate::options::{Shape, Tuning};
use crate::segment::{Home, Segment};

/// Keys whose entries may be lost: from the first to the last, or without an end.
type LostKeys = (Vec<u8>, Option<Vec<u8>>);

/// A tree that is being built beside the one that counts.
struct NewTree {
    tree: Arc<Tree>,
}

/// The content of the finished tree.
#[derive(Default)]
struct Contents {
    entries: u64,
    /// Bytes of records that it points to, by segment.
    live: BTreeMap<u32, u64>,
    /// Numbers of namespaces that have keys.
    namespaces: Vec<u16>,
}

impl NewTree {
    fn begin(
        environment: &Environment,
        (folder, store): (PathBuf, StoreId),
        shape: &Shape,
        tuning: &Tuning,
    ) -> Result<Self> {
        // An earlier repair may have been killed.
        remove_files(&*environment.file_system, &folder)?;
        let rule = tuning.hole_rule(shape);
        let ledger = Ledger::new(folder.clone(), LedgerState::default(), rule);
        let options = tuning.tree_options(environment);
        let tree = Tree::create(environment, &folder, store, &options, ledger.clone())?;
        // A repair keeps only the newest entry of each key.
        ledger.repairing(u64::MAX);
        Ok(NewTree { tree })
    }

    /// `stored`: `None` for a delete.
    fn put(&self, key: &[u8], sequence: u64, stored: Option<&[u8]>) -> Result<()> {
        let writer = self.tree.writer();
        match stored {
            Some(stored) => writer.put(sequence, key, stored),
            None => writer.delete(sequence, key),
        }
        drop(writer);
        self.flush_where_due()
    }

    fn delete_range(&self, from: &[u8], to: Option<&[u8]>, sequence: u64) -> Result<()> {
        self.tree.writer().delete_range(sequence, from, to);
        self.flush_where_due()
    }

    fn flush_where_due(&self) -> Result<()> {
        if !self.tree.seal_due() {
            return Ok(());
        }
        self.tree.seal(Vec::new());
        self.tree.flush()
    }

    /// Brings the entries into order, and answers what is there then.
    fn settle(&self) -> Result<Contents> {
        self.tree.seal(Vec::new());
        self.tree.compact(&|| false)?;
        let mut contents = Contents::default();
        self.tree.dump(&mut |item| {
            let DumpItem::Entry(EntryRef { key, value, .. }) = item else {
                return Ok(());
            };
            contents.entries += 1;
            if let Some(Stored::Pointer(pointer)) = Stored::decode(value) {
                let bytes = contents.live.entry(pointer.segment).or_insert(0);
                *bytes += pointer.record_bytes(key.len());
            }
            let number = format::namespace_of(key);
            if contents.namespaces.last() != Some(&number) {
                contents.namespaces.push(number);
            }
            Ok(())
        })?;
        Ok(contents)
    }

    /// Commits the accounts of the log, and proves the tree sound.
    fn conclude(self, items: &[NoteItem]) -> Result<()> {
        self.tree.seal(note::encode(items));
        self.tree.flush()?;
        let mut damage = None;
        self.tree.check(&mut |finding| {
            damage.get_or_insert(finding);
        })?;
        if let Some(damage) = damage {
            return Err(damage);
        }
        self.tree.close()
    }
}

/// Builds the tree of an open store anew, from its sound blocks and the log.
pub(crate) fn rebuild_damaged_blocks(core: &Core, report: &mut CheckReport) -> Result<()> {
    // A full disk may have kept recovery from flushing: only tables are salvaged.
    core.tree.flush()?;
    let root = crate::core::lock(&core.maintenance).root;
    let folder = core.path.join(root.other_tree().tree_folder());
    let place = (folder, core.home.store);
    let new = NewTree::begin(&core.environment, place, &core.shape, &core.tuning)?;
    let mut lost: Vec<LostKeys> = Vec::new();
    let names = core.names.load_full();
    core.tree.salvage(&mut |found| match found {
        Salvaged::Entry(entry) if names.has(format::namespace_of(entry.key)) => {
            let stored = (entry.kind == EntryKind::Value).then_some(entry.value);
            new.put(entry.key, entry.sequence, stored)
        }
        // Of a namespace that was dropped.
        Salvaged::Entry(_) => Ok(()),
        Salvaged::RangeTombstone { from, to, sequence } => new.delete_range(from, to, sequence),
        Salvaged::Lost { from, to, error } => {
            lost.push((from.to_vec(), to.map(<[u8]>::to_vec)));
            report.take(error)
        }
    })?;
    let is_lost = |key: &[u8]| {
        let within = |(from, to): &LostKeys| {
            from.as_slice() <= key && to.as_ref().is_none_or(|to| key <= to.as_slice())
        };
        lost.iter().any(within)
    };
    let state = core.ledger.state().clone();
    for segment in core.segments.load().values() {
        let holes = core.ledger.holes_of(segment.number);
        // Damage of the log is found, and reported, when the new tree's values are read.
        let mut damage = CheckReport::default();
        let inline_bytes = core.tuning.inline_bytes;
        read_records(
            segment,
            holes,
            inline_bytes,
            &mut damage,
            |record| match record {
                _ if state.is_undone(record.sequence()) => Ok(()),
                Record::Value(key, sequence, stored)
                    if is_lost(key) && names.has(format::namespace_of(key)) =>
                {
                    new.put(key, sequence, stored)
                }
                Record::Range(from, to, sequence)
                | Record::DroppedNamespace(from, to, sequence) => {
                    new.delete_range(from, Some(to), sequence)
                }
                _ => Ok(()),
            },
        )?;
    }
    let contents = new.settle()?;
    let mut dropped = Vec::new();
    let items = note::decode(&core.ledger.full_note()).unwrap_or_default();
    let items = items.into_iter().filter_map(|item| match item {
        NoteItem::Segment(segment) => Some(NoteItem::Segment(SegmentNote {
            value_bytes: contents.live.get(&segment.number).copied().unwrap_or(0),
            ..segment
        })),
        NoteItem::Garbage { .. } => None,
        // Their tables are those of the old tree.
        NoteItem::Kept(name, _) => {
            dropped.push(name);
            None
        }
        other => Some(other),
    });
    // The new tree may differ from what the log's changes add up to.
    let items = items.chain([NoteItem::HistoryLost(core.ledger.visible())]);
    let items: Vec<NoteItem> = items.collect();
    new.conclude(&items)?;
    core.environment.file_system.sync_directory(&core.path)?;
    report
        .findings
        .extend(dropped.into_iter().map(|name| Finding {
            kind: FindingKind::Damage,
            file: core.tree.folder().to_path_buf(),
            offset: 0,
            what: format!("named snapshot {name:?} is lost with the old tree"),
        }));
    report.findings.push(Finding {
        kind: FindingKind::Damage,
        file: core.tree.folder().to_path_buf(),
        offset: 0,
        what: "the tree was built anew from its sound blocks; keys of damaged ones were taken from the value log: of those, values of up to inline_bytes whose segment was collected are lost, and deleted keys may be back".to_string(),
    });
    switch(core, root)
}

/// Has the superblock name the new tree, then removes the old one.
fn switch(core: &Core, before: Root) -> Result<()> {
    let mut maintenance = crate::core::lock(&core.maintenance);
    maintenance.root = Root {
        clean: true,
        ..before.other_tree()
    };
    let payload = core.root_payload(&maintenance.root);
    maintenance.superblock.write_both(&payload)?;
    _ = core.tree.close();
    remove_files(&*core.environment.file_system, core.tree.folder())
}

/// Facts that the repair gathers from the value log beside its records.
#[derive(Debug, Default)]
struct Gathered {
    namespaces: BTreeMap<u16, String>,
    dropped_namespaces: BTreeSet<u16>,
    segments: Vec<SegmentNote>,
    last_sequence: u64,
    last_session: u32,
}

/// Builds the tree anew from the value log alone, of a store that cannot be opened.
pub(crate) fn rebuild_from_log(
    environment: &Environment,
    path: &Path,
    (store, tuning): (StoreId, &Tuning),
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<()> {
    let file_system = &environment.file_system;
    let home = Home::new(file_system, path, store, tuning, &environment.cache, true);
    let content = superblock::read(&**file_system, path, &store, FORMAT_VERSION).ok();
    let known = content
        .as_ref()
        .and_then(|content| decode_root(&content.payload));
    let (shape, before) = match known {
        Some(known) => known,
        None => (shape_of_segments(&home, tuning)?, Root::default()),
    };
    let root = before.other_tree();
    let place = (path.join(root.tree_folder()), store);
    let new = NewTree::begin(environment, place, &shape, tuning)?;
    let mut gathered = gather(&home, &shape, tuning, &new, (report, progress))?;
    gathered.last_session = gathered.last_session.max(root.session) + 1;
    let contents = new.settle()?;
    report.entries = contents.entries;
    report.findings.push(Finding {
        kind: FindingKind::Damage,
        file: path.join(before.tree_folder()),
        offset: 0,
        what: "the tree was built anew from the value log: values of up to inline_bytes whose segment was collected are lost, and keys whose delete was collected, or writes that a rollback undid, may be back".to_string(),
    });
    let session = gathered.last_session;
    new.conclude(&notes_of(gathered, &contents))?;
    file_system.sync_directory(path)?;
    let root = Root {
        session,
        clean: true,
        block_bytes: shape.block_bytes,
        ..root
    };
    match content {
        Some(content) => {
            Superblock::resume(file_system, path, store, FORMAT_VERSION, &content)
                .write_both(&root.encode())?;
        }
        None => {
            Superblock::create(file_system, path, store, FORMAT_VERSION, &root.encode())?;
        }
    }
    file_system.sync_directory(path)?;
    remove_files(&**file_system, &path.join(before.tree_folder()))
}

/// The accounts of a log whose manifest is lost.
fn notes_of(gathered: Gathered, contents: &Contents) -> Vec<NoteItem> {
    let next_file = gathered.segments.iter().map(|segment| segment.number + 1);
    let next_file = next_file.max().unwrap_or(1);
    let mut namespaces = gathered.namespaces;
    namespaces.insert(0, String::new());
    let known = namespaces.keys().chain(&gathered.dropped_namespaces);
    let next_namespace = known.chain(&contents.namespaces).max();
    let next_namespace = next_namespace.map_or(1, |&number| u32::from(number) + 1);
    namespaces.retain(|number, _| !gathered.dropped_namespaces.contains(number));
    for &number in &contents.namespaces {
        let name = || format!("lost+found {number}");
        namespaces.entry(number).or_insert_with(name);
    }
    let mut items = vec![
        NoteItem::Head(Head {
            sequence: gathered.last_sequence,
            segment: next_file,
            offset: 0,
            session: gathered.last_session,
        }),
        NoteItem::NextFile(next_file),
        NoteItem::NextNamespace(next_namespace),
        NoteItem::HistoryLost(gathered.last_sequence),
    ];
    items.extend(gathered.segments.into_iter().map(|segment| {
        NoteItem::Segment(SegmentNote {
            value_bytes: contents.live.get(&segment.number).copied().unwrap_or(0),
            ..segment
        })
    }));
    let names = namespaces.into_iter();
    items.extend(names.map(|(number, name)| NoteItem::Namespace { number, name }));
    items
}

/// The shape in the header of any segment.
fn shape_of_segments(home: &Home, tuning: &Tuning) -> Result<Shape> {
    for block_bytes in (9..=16).map(|bits| 1u32 << bits) {
        let shape = Shape { block_bytes };
        for number in home.segment_numbers()? {
            if Segment::open(home, number, &shape, tuning, None).is_ok() {
                return Ok(shape);
            }
        }
    }
    // No segment can be read: any shape will do.
    Shape::take(&mut OptionValues::default())
}

/// Puts all that can be read of all segments into a tree.
fn gather(
    home: &Home,
    shape: &Shape,
    tuning: &Tuning,
    new: &NewTree,
    (report, progress): (&mut CheckReport, &dyn ProgressSink),
) -> Result<Gathered> {
    let mut gathered = Gathered::default();
    let numbers = home.segment_numbers()?;
    for (done, &number) in numbers.iter().enumerate() {
        progress.report(Progress {
            phase: "repair",
            done: done as u64,
            total: Some(numbers.len() as u64),
        });
        let segment = match Segment::open_if_written(home, number, shape, tuning, None) {
            Ok(Some(segment)) => segment,
            Ok(None) => continue,
            Err(error) => {
                report.take(error)?;
                continue;
            }
        };
        report.files += 1;
        let namespaces = &mut gathered.namespaces;
        let dropped = &mut gathered.dropped_namespaces;
        let take = |record: Record<'_>| match record {
            Record::Value(key, sequence, stored) => new.put(key, sequence, stored),
            Record::Range(from, to, sequence) => new.delete_range(from, Some(to), sequence),
            Record::Namespace(number, name) => {
                namespaces.insert(number, name);
                Ok(())
            }
            Record::DroppedNamespace(from, to, sequence) => {
                dropped.insert(format::namespace_of(from));
                new.delete_range(from, Some(to), sequence)
            }
        };
        let end = read_records(&segment, Vec::new(), tuning.inline_bytes, report, take)?;
        gathered.last_sequence = gathered.last_sequence.max(end.sequence);
        gathered.last_session = gathered.last_session.max(end.session);
        // A process that died may have left records in the page cache only. They must be
        // durable before the tables that will point to them.
        segment.log.file().sync_data()?;
        gathered.segments.push(SegmentNote {
            number,
            kind: segment.kind,
            value_bytes: 0,
            end: end.offset,
            last: match segment.kind {
                SegmentKind::Written => end.sequence,
                SegmentKind::Moved => 0,
            },
        });
    }
    Ok(gathered)
}

/// A record of the log, as the tree holds it.
enum Record<'r> {
    /// Key, number, and what the tree holds; `None` for a delete.
    Value(&'r [u8], u64, Option<&'r [u8]>),
    /// First key, the key after the last, number.
    Range(&'r [u8], &'r [u8], u64),
    Namespace(u16, String),
    /// As a range.
    DroppedNamespace(&'r [u8], &'r [u8], u64),
}

impl Record<'_> {
    /// The number of its write.
    fn sequence(&self) -> u64 {
        match self {
            Record::Value(_, sequence, _)
            | Record::Range(_, _, sequence)
            | Record::DroppedNamespace(_, _, sequence) => *sequence,
            Record::Namespace(..) => 0,
        }
    }
}

/// Where the records of a segment end, and the highest numbers in them.
struct SegmentEnd {
    offset: u64,
    sequence: u64,
    session: u32,
}

/// Reads all sound records of a segment; what is damaged goes into the report.
fn read_records(
    segment: &Segment,
    holes: Vec<(u64, u64)>,
    inline_bytes: usize,
    report: &mut CheckReport,
    mut take: impl FnMut(Record<'_>) -> Result<()>,
) -> Result<SegmentEnd> {
    let mut scanner = segment.scan(0, u64::MAX)?.thorough();
    scanner.step_over(holes);
    let mut last = 0;
    while let Some(scanned) = scanner.next()? {
        let record = match scanned {
            Scanned::Fault(fault) => {
                note_fault(segment, fault.offset, fault.reason.to_string(), report)?;
                continue;
            }
            Scanned::Record(record) => record,
        };
        let header = record.header;
        let payload = scanner.payload(&record)?;
        report.bytes += payload.len() as u64;
        let sequence = header.sequence.0;
        last = last.max(sequence);
        let first_bytes = (header.auxiliary as usize).min(payload.len());
        let (first, second) = payload.split_at(first_bytes);
        match header.kind {
            kind::PUT if second.len() <= inline_bytes => {
                let mut stored = Vec::new();
                format::encode_inline(second, &mut stored);
                take(Record::Value(first, sequence, Some(&stored)))?;
            }
            kind::PUT => {
                let pointer = ValuePointer {
                    segment: segment.number,
                    offset: record.offset,
                    value_bytes: second.len() as u32,
                    header_bytes: header.header_bytes,
                };
                take(Record::Value(first, sequence, Some(&pointer.encode())))?;
            }
            kind::DELETE => take(Record::Value(&payload, sequence, None))?,
            kind::DELETE_RANGE => take(Record::Range(first, second, sequence))?,
            kind::NAMESPACE_DROPPED => take(Record::DroppedNamespace(first, second, sequence))?,
            kind::NAMESPACE => {
                let name = String::from_utf8_lossy(&payload).into_owned();
                take(Record::Namespace(header.auxiliary as u16, name))?;
            }
            _ => {}
        }
    }
    Ok(SegmentEnd {
        offset: scanner.position(),
        sequence: last,
        session: scanner.highest_session(),
    })
}

fn note_fault(
    segment: &Segment,
    offset: u64,
    reason: String,
    report: &mut CheckReport,
) -> Result<()> {
    let (kind, what) = match beside_zeros(segment, offset)? {
        true => {
            let what = "no record, beside a block of zeros: what is left around a hole";
            (FindingKind::Note, what.to_string())
        }
        false => (FindingKind::Damage, reason),
    };
    report.findings.push(Finding {
        kind,
        file: segment.path().to_path_buf(),
        offset,
        what,
    });
    Ok(())
}

/// True if the block before or after the one of an offset is all zeros: the tree
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
