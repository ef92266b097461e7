//! Verifying a store without writing to it.
//!
//! Every record of every data file is read and its checksums compared, every
//! piece of the index that counts is read, and each slot is held against the
//! log: it must point at the newest entry of its key. After a crash, what
//! recovery would drop is a note; what it would miss is damage.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use cambium_api::{CheckReport, Finding, FindingKind, OptionValues, Progress, ProgressSink};
use cambium_base::{Error, Result};
use cambium_index::BucketMap;
use cambium_io::{Environment, LockMode};
use cambium_storage::store_lock::lock_store;
use cambium_storage::superblock;

use crate::bucket::Bucket;
use crate::catalog::{TableEntry, UNCOUNTED};
use crate::changes::past::KeptFile;
use crate::core::{Core, lock};
use crate::data_file::DataFile;
use crate::format::{FORMAT_VERSION, kind};
use crate::open::{FORMAT, attach};
use crate::options::{Keys, Tuning};
use crate::rebuild::{FileContent, read_content};
use crate::table::Table;
use crate::tails::Found;

/// The entries that the next opening replays.
#[derive(Default)]
struct Tail {
    /// For each key that they change whether it has an entry afterwards.
    keys: BTreeMap<u64, bool>,
    /// How many string keys come, less those that go.
    string_keys: i64,
}

/// Verifies a store that no process has open for writing.
pub(crate) fn check(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let (mut tuning, _) = Tuning::of_opening(options)?;
    // Each block is read once.
    tuning.cache_bytes = 0;
    let file_system = &*environment.file_system;
    let (marker, held) = lock_store(file_system, path, FORMAT, LockMode::Shared)?;
    let mut report = CheckReport::default();
    let content = superblock::read_either(file_system, path, &marker.store, FORMAT_VERSION);
    let core = match content.and_then(|content| {
        report.note_other_copy(content.other_copy.as_ref());
        attach(environment, path, marker.store, tuning, (held, false))
    }) {
        Ok(core) => core,
        Err(error) => {
            report.take(error)?;
            return Ok(report);
        }
    };
    let mut check = StoreCheck {
        core: &core,
        report,
        string_keys: 0,
    };
    check.run(progress)?;
    check.report.sort();
    Ok(check.report)
}

/// Verifies what an open store holds: its pieces and data files as they are
/// on the device, and each live entry.
pub(crate) fn check_open_store(
    core: &Arc<Core>,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    core.check_open()?;
    let mut check = StoreCheck {
        core,
        report: CheckReport::default(),
        string_keys: 0,
    };
    let numbers = core.table_numbers();
    for (done, &number) in numbers.iter().enumerate() {
        report_progress(progress, done, numbers.len());
        let Some(table) = core.table(number)? else {
            continue;
        };
        check.pieces(&table)?;
        for file in table.current_files() {
            check.file(&file, checked_end(core, &file))?;
        }
    }
    check.report.entries = 0;
    let mut failure = None;
    core.for_each_key(|key| {
        match core.read_latest(key) {
            Ok(_) => check.report.entries += 1,
            Err(error) => {
                if let Err(error) = check.report.take(error) {
                    failure = failure.take().or(Some(error));
                }
            }
        };
    })?;
    if core.shape.keys == Keys::String {
        check.report.entries = core.buckets.keys();
    }
    failure.map_or(Ok(check.report), Err)
}

/// How far an open store's data file is read. What a crash left in it after the last
/// checkpoint, a reader has verified up to the cut, and does not wipe after it.
fn checked_end(core: &Core, file: &DataFile) -> u64 {
    if !core.health.is_of_reader() {
        return file.log.written_end();
    }
    let maintenance = lock(&core.maintenance);
    let table = maintenance.catalog.tables.get(&file.table);
    let entry = table.and_then(|table| table.files.get(file.place as usize));
    entry.map_or(0, |entry| entry.replay_from)
}

fn report_progress(progress: &dyn ProgressSink, done: usize, total: usize) {
    progress.report(Progress {
        phase: "check",
        done: done as u64,
        total: Some(total as u64),
    });
}

struct StoreCheck<'a> {
    core: &'a Core,
    report: CheckReport,
    string_keys: u64,
}

impl StoreCheck<'_> {
    fn run(&mut self, progress: &dyn ProgressSink) -> Result<()> {
        let catalog = lock(&self.core.maintenance).catalog.clone();
        let tail = match catalog.clean {
            true => Tail::default(),
            false => self.tail(progress)?,
        };
        for (done, (&number, entry)) in catalog.tables.iter().enumerate() {
            report_progress(progress, done, catalog.tables.len());
            match self.core.table(number) {
                Ok(Some(table)) => self.table(&table, entry)?,
                Ok(None) => {}
                Err(error) => self.report.take(error)?,
            }
        }
        for kept in &catalog.past.kept {
            self.kept_file(kept)?;
        }
        if self.core.shape.keys == Keys::String {
            let found = self.string_keys;
            let superblock = superblock::copy_path(&self.core.path, 0);
            if catalog.string_keys == UNCOUNTED {
                self.report.findings.push(Finding {
                    kind: FindingKind::Note,
                    file: superblock,
                    offset: 0,
                    what: "a repair has not come to its end; the next open counts the keys".into(),
                });
            } else if self.report.is_sound() && found != catalog.string_keys {
                let what = format!(
                    "the buckets hold {found} keys, and the superblock says {}; `cambium repair` counts them",
                    catalog.string_keys
                );
                self.damage(&superblock, 0, what)?;
            }
            self.report.entries = found.saturating_add_signed(tail.string_keys);
        } else {
            self.report.entries = self.entries_with(&tail)?;
        }
        Ok(())
    }

    fn damage(&mut self, file: &Path, offset: u64, what: String) -> Result<()> {
        self.report.take(Error::corruption(file, offset, what))
    }

    /// Entries of integer keys, with what the next open replays.
    fn entries_with(&self, tail: &Tail) -> Result<u64> {
        let mut entries = self.report.entries;
        for (&key, &is_put) in &tail.keys {
            let table = self.core.table(self.core.table_number(key));
            let before = match table {
                Ok(Some(table)) => matches!(table.locate(key), Ok(Some(_))),
                _ => false,
            };
            match (before, is_put) {
                (false, true) => entries += 1,
                (true, false) => entries -= 1,
                _ => {}
            }
        }
        Ok(entries)
    }

    /// What recovery would find after the replay offsets.
    fn tail(&mut self, progress: &dyn ProgressSink) -> Result<Tail> {
        let tails = match self.core.read_tails(progress, false) {
            Ok(tails) => tails,
            Err(error) => {
                self.report.take(error)?;
                return Ok(Tail::default());
            }
        };
        let accepted = self.core.accept(&tails)?;
        let lost = accepted.cut < accepted.promised;
        self.report.bytes += accepted.bytes();
        if accepted.len() > 0 {
            self.report.findings.push(Finding {
                kind: FindingKind::Note,
                file: self.core.path.clone(),
                offset: 0,
                what: format!(
                    "the store was not closed; the next open replays {} sound entries behind the last checkpoint",
                    accepted.len()
                ),
            });
        }
        for fault in &tails.faults {
            self.report.findings.push(Finding {
                kind: if lost {
                    FindingKind::Damage
                } else {
                    FindingKind::Note
                },
                file: fault.file.clone(),
                offset: fault.fault.offset,
                what: match lost {
                    true => fault.fault.reason.to_string(),
                    false => format!(
                        "{}; a torn tail, which the next open drops",
                        fault.fault.reason
                    ),
                },
            });
        }
        if lost {
            let what = format!(
                "entry {} is missing, and entries up to {} were synced",
                accepted.cut + 1,
                accepted.promised
            );
            self.damage(&self.core.path.clone(), 0, what)?;
        }
        let string_keys = accepted.string_keys();
        let keys = match self.core.shape.keys {
            Keys::Integer => self.changed_keys(&accepted.entries)?,
            Keys::String => BTreeMap::new(),
        };
        Ok(Tail { keys, string_keys })
    }

    /// For each key that entries change whether it has an entry afterwards.
    fn changed_keys(&mut self, entries: &[Found]) -> Result<BTreeMap<u64, bool>> {
        let mut keys = BTreeMap::new();
        for found in entries {
            if found.kind != kind::DELETE_RANGE {
                keys.insert(found.key, found.kind == kind::PUT);
                continue;
            }
            let Ok(Some(table)) = self.core.table(self.core.table_number(found.key)) else {
                continue;
            };
            if let Err(error) = table.load_within(found.key, found.last) {
                self.report.take(error)?;
                continue;
            }
            let place = table.place_of(found.key);
            let range = (found.key, found.last);
            for (key, is_live) in keys.range_mut(found.key..=found.last) {
                *is_live &=
                    self.core.table_number(*key) != table.number || table.place_of(*key) != place;
            }
            let live = table.live_within(range, Some(place));
            keys.extend(live.map(|key| (key, false)));
        }
        Ok(keys)
    }

    /// Holds the index of a table against its data files, both ways, and the
    /// catalog's counts against both: a checkpoint makes all of them agree.
    fn table(&mut self, table: &Table, entry: &TableEntry) -> Result<()> {
        let sound = self.pieces(table)?;
        for (file, data) in table.current_files().iter().zip(&entry.files) {
            let before = self.report.findings.len();
            let content = self.file(file, data.replay_from)?;
            if self.report.findings.len() > before {
                continue;
            }
            let live = content.live.len() as u64;
            if (content.entries, live) != (data.entries, data.live) {
                let what = format!(
                    "the file holds {} entries, {live} of them live, and the superblock says {} and {}",
                    content.entries, data.entries, data.live
                );
                self.damage(file.log.path(), content.end, what)?;
            }
            if sound {
                self.slots(table, file, &content)?;
            }
        }
        Ok(())
    }

    /// Reads every piece that counts; true if all are sound.
    fn pieces(&mut self, table: &Table) -> Result<bool> {
        let before = self.report.findings.len();
        for piece in 0..table.piece_count() {
            if table.piece(piece).on_disk != 0 {
                self.report.bytes += u64::from(self.core.shape.piece_bytes);
                if let Err(error) = table.verify_piece(piece) {
                    self.report.take(error)?;
                }
            }
        }
        self.report.files += 1;
        Ok(self.report.findings.len() == before)
    }

    /// Reads every record of a data file.
    fn file(&mut self, file: &DataFile, until: u64) -> Result<FileContent> {
        let content = match read_content(file, until) {
            Ok(content) => content,
            Err(error) => {
                self.report.take(error)?;
                return Ok(FileContent::default());
            }
        };
        for (offset, what) in &content.faults {
            self.damage(file.log.path(), *offset, what.clone())?;
        }
        self.report.files += 1;
        self.report.bytes += content.end;
        self.report.entries += content.live.len() as u64;
        Ok(content)
    }

    /// Reads every record of a file that is kept for consumers.
    fn kept_file(&mut self, kept: &KeptFile) -> Result<()> {
        let place = (kept.table, kept.place);
        let file = match DataFile::open(&self.core.home, &kept.as_entry(), place) {
            Ok(file) => file,
            Err(error) => return self.report.take(error),
        };
        let live_entries = self.report.entries;
        self.file(&file, kept.end)?;
        self.report.entries = live_entries;
        Ok(())
    }

    /// Holds the slots of one data file against its entries.
    fn slots(&mut self, table: &Table, file: &DataFile, content: &FileContent) -> Result<()> {
        let entries = content.live.iter();
        let mut live: HashMap<u64, u64> =
            entries.map(|&(key, position, _)| (key, position)).collect();
        for piece in 0..table.piece_count() {
            table.load_piece(piece)?;
            for (key, position) in table.live_in_piece(piece, file.place as usize) {
                let expected = live.remove(&key);
                if expected != Some(position) {
                    let what = format!(
                        "the index points key {key} here; its newest entry is {}",
                        expected.map_or("nowhere".to_string(), |offset| format!("at {offset}"))
                    );
                    self.damage(file.log.path(), position, what)?;
                } else if self.core.shape.keys == Keys::String {
                    self.bucket(file, key, position)?;
                }
            }
        }
        for (key, position) in live {
            let what = format!("the index has no slot for the entry of key {key}");
            self.damage(file.log.path(), position, what)?;
        }
        Ok(())
    }

    fn bucket(&mut self, file: &DataFile, number: u64, position: u64) -> Result<()> {
        let entry = match file.read_entry(position, number, 4096) {
            Ok(entry) => entry,
            Err(error) => return self.report.take(error),
        };
        let Some(bucket) = Bucket::decode(&entry.value) else {
            let what = format!("the value of bucket {number} is no list of keys and values");
            return self.damage(file.log.path(), position, what);
        };
        self.string_keys += bucket.pairs.len() as u64;
        let buckets = &self.core.buckets;
        let map = BucketMap::new(buckets.count());
        let is_stray = |key: &[u8]| map.bucket(buckets.hash(key)) != number;
        if let Some((key, _)) = bucket.pairs.iter().find(|(key, _)| is_stray(key)) {
            let what = format!(
                "bucket {number} holds the key {:?}, which belongs to another one",
                String::from_utf8_lossy(key)
            );
            return self.damage(file.log.path(), position, what);
        }
        Ok(())
    }
}
