//! Verifying a store without writing to it.
//!
//! Every record of every data file is read and its checksums compared, every
//! piece of the index that counts is read, and each slot is held against the
//! log: it must point at the newest entry of its key. After a crash, what
//! recovery would drop is a note; what it would miss is damage.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{CheckReport, Finding, FindingKind, OptionValues, Progress, ProgressSink};
use cambium_base::{Error, Result};
use cambium_io::{Environment, LockMode};
use cambium_storage::superblock;

use crate::core::{Core, lock};
use crate::data_file::DataFile;
use crate::format::FORMAT_VERSION;
use crate::open::{LOCK_NAME, attach, read_marker};
use crate::options::{Keys, Tuning};
use crate::rebuild::read_content;
use crate::strings::Bucket;
use crate::table::Table;

/// Positions that recovery may give a key, beside the one in the log proper.
type TailPositions = HashMap<u64, Vec<u64>>;

/// Verifies a store that nobody has open for writing.
pub(crate) fn check(
    environment: &Environment,
    path: &Path,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let file_system = &*environment.file_system;
    let marker = read_marker(file_system, path)?;
    let held = file_system.lock(&path.join(LOCK_NAME), LockMode::Shared)?;
    let mut report = CheckReport::default();
    let tuning = Tuning::take(OptionValues::default().set("cache_bytes", "0"))?;
    let content = superblock::read(file_system, path, &marker.store, FORMAT_VERSION);
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
            check.file(&file, file.log.written_end())?;
        }
    }
    check.report.entries = 0;
    let mut failure = None;
    core.for_each_key(0, None, |key| {
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
        let clean = lock(&self.core.maintenance).catalog.clean;
        let tail = if clean {
            TailPositions::new()
        } else {
            self.tails(progress)?
        };
        let numbers = self.core.table_numbers();
        for (done, &number) in numbers.iter().enumerate() {
            report_progress(progress, done, numbers.len());
            match self.core.table(number) {
                Ok(Some(table)) => self.table(&table, &tail)?,
                Ok(None) => {}
                Err(error) => self.report.take(error)?,
            }
        }
        let catalog_keys = lock(&self.core.maintenance).catalog.string_keys;
        let strings = self.core.shape.keys == Keys::String;
        if strings {
            self.report.entries = self.string_keys;
        }
        if strings && clean && self.report.is_sound() && self.string_keys != catalog_keys {
            let what = format!(
                "the buckets hold {} keys, and the superblock says {catalog_keys}",
                self.string_keys
            );
            self.report.take(Error::corruption(
                superblock::copy_path(&self.core.path, 0),
                0,
                what,
            ))?;
        }
        Ok(())
    }

    /// What recovery would find behind the replay offsets.
    fn tails(&mut self, progress: &dyn ProgressSink) -> Result<TailPositions> {
        let tails = match self.core.read_tails(progress) {
            Ok(tails) => tails,
            Err(error) => {
                self.report.take(error)?;
                return Ok(TailPositions::new());
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
            self.report
                .take(Error::corruption(&self.core.path, 0, what))?;
        }
        Ok(accepted.positions())
    }

    fn table(&mut self, table: &Table, tail: &TailPositions) -> Result<()> {
        let sound = self.pieces(table)?;
        for file in table.current_files() {
            let live = self.file(&file, file.log.end())?;
            if sound {
                self.slots(table, &file, live, tail)?;
            }
        }
        Ok(())
    }

    /// Reads every piece that counts; true if all are sound.
    fn pieces(&mut self, table: &Table) -> Result<bool> {
        let before = self.report.findings.len();
        for piece in 0..table.piece_count() {
            let on_disk = table.piece(piece).on_disk;
            if on_disk != 0 {
                self.report.bytes += u64::from(self.core.shape.piece_bytes);
                if let Err(error) = table.read_piece(piece, on_disk) {
                    self.report.take(error)?;
                }
            }
        }
        self.report.files += 1;
        Ok(self.report.findings.len() == before)
    }

    /// Reads every record of a data file; answers keys and positions of its
    /// live entries.
    fn file(&mut self, file: &DataFile, until: u64) -> Result<HashMap<u64, u64>> {
        let content = match read_content(file, until) {
            Ok(content) => content,
            Err(error) => {
                self.report.take(error)?;
                return Ok(HashMap::new());
            }
        };
        for (offset, what) in &content.faults {
            self.report
                .take(Error::corruption(file.log.path(), *offset, what.clone()))?;
        }
        self.report.files += 1;
        self.report.bytes += content.end;
        self.report.entries += content.live.len() as u64;
        Ok(content
            .live
            .into_iter()
            .map(|(key, position, _)| (key, position))
            .collect())
    }

    /// Holds the slots of one data file against its entries.
    fn slots(
        &mut self,
        table: &Table,
        file: &DataFile,
        mut live: HashMap<u64, u64>,
        tail: &TailPositions,
    ) -> Result<()> {
        for piece in 0..table.piece_count() {
            table.load_piece(piece)?;
            for (key, position) in table.live_in_piece(piece, file.place as usize) {
                let expected = live.remove(&key);
                let in_tail = tail
                    .get(&key)
                    .is_some_and(|known| known.contains(&position));
                if expected != Some(position) && !in_tail {
                    let what = format!(
                        "the index points key {key} here; its newest entry is {}",
                        expected.map_or("nowhere".to_string(), |offset| format!("at {offset}"))
                    );
                    self.report
                        .take(Error::corruption(file.log.path(), position, what))?;
                } else if self.core.shape.keys == Keys::String {
                    self.bucket(file, key, position)?;
                }
            }
        }
        // What the index does not know of, unless recovery will bring it.
        for (key, position) in live {
            if !tail.contains_key(&key) {
                let what = format!("the index has no slot for the entry of key {key}");
                self.report
                    .take(Error::corruption(file.log.path(), position, what))?;
            }
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
            return self
                .report
                .take(Error::corruption(file.log.path(), position, what));
        };
        self.string_keys += bucket.pairs.len() as u64;
        Ok(())
    }
}
