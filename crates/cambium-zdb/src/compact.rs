//! Compaction: a data file's live entries go to a new file, in the order of
//! the old one, while reads and writes go on.
//!
//! 1. *Copy.* The old file is read from its first record to its end, in steps.
//!    An entry is live if its slot points at it. Writers go on appending to
//!    the old file, so the copy catches up in rounds, each shorter.
//! 2. *Announce.* The new file is synced and the superblock names it as the
//!    old one's successor: from now on recovery looks at its tail too.
//! 3. *Switch.* Under the writer lock the last entries are copied, every live
//!    slot is checked to have been copied (compaction proves that it lost
//!    nothing), and the slots are moved, piece by piece. New entries go to the
//!    new file.
//! 4. *Checkpoint.* Index and superblock name the new file alone; then the old
//!    one is removed. Snapshots and readers that have it open keep reading it.
//!
//! Up to 4, a crash leaves the old file in charge; entries written to the new
//! one after the switch are brought back from its tail.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cambium_api::{CompactOptions, CompactReport, Progress, ProgressSink};
use cambium_base::{Error, Result};
use cambium_io::{Environment, ReadBackend, StepOutcome};
use cambium_storage::record::RecordHeader;
use cambium_storage::scan::{LogScanner, Scanned, ScannedRecord, SessionRule};

use crate::core::{Core, Switched, lock};
use crate::data_file::DataFile;
use crate::format::{entry_key, kind};
use crate::options::ENGINE;
use crate::seeded_bug::SeededBug;
use crate::table::Table;

/// Less than this behind the writers is near enough to stop them for the rest.
const NEAR_BYTES: u64 = 256 << 10;
/// Rounds of catching up before writers are stopped in any case.
const MOST_ROUNDS: u32 = 8;
/// The new file's buffer is handed over when it holds this much.
const FLUSH_BYTES: usize = 1 << 20;

/// A compaction of one data file.
#[derive(Debug)]
pub(crate) struct Compaction {
    table: Arc<Table>,
    place: usize,
    old: Arc<DataFile>,
    new: Arc<DataFile>,
    /// The old file has been read up to here.
    position: u64,
    highest_session: u32,
    rounds: u32,
    round_end: u64,
    /// For each copied key, where its entry lay and lies.
    moved: HashMap<u64, (u64, u64)>,
    /// Records in the new file.
    copied: u64,
    report: CompactReport,
}

impl Core {
    /// Compacts every data file with stale entries.
    pub fn compact_all(
        &self,
        options: &CompactOptions,
        progress: &dyn ProgressSink,
    ) -> Result<CompactReport> {
        self.check_writable()?;
        refuse_unsupported(options)?;
        self.cancelled.store(false, Ordering::Release);
        let started = self.environment.clock.monotonic();
        let mut all = CompactReport {
            backend: ReadBackend::Sync,
            batch: 1,
            ..CompactReport::default()
        };
        let numbers = self.table_numbers();
        let total = Some(numbers.len() as u64 * u64::from(self.shape.data_files));
        for (done, number) in numbers.into_iter().enumerate() {
            for place in 0..self.shape.data_files as usize {
                progress.report(Progress {
                    phase: "compact",
                    done: done as u64 * u64::from(self.shape.data_files) + place as u64,
                    total,
                });
                let Some(table) = self.table(number)? else {
                    continue;
                };
                if table.current_file(place).stale_percent() == 0 && !self.has_stale(&table, place)
                {
                    continue;
                }
                let mut current = lock(&self.compaction);
                let compaction = match current.take() {
                    // The background began this very file: go on with it.
                    Some(begun) if begun.is_of(number, place) => begun,
                    Some(other) => {
                        self.abandon(other);
                        self.begin_compaction(number, place)?
                    }
                    None => self.begin_compaction(number, place)?,
                };
                add(&mut all, &self.run_compaction(compaction)?);
            }
        }
        all.total_seconds = (self.environment.clock.monotonic() - started).as_secs_f64();
        Ok(all)
    }

    fn has_stale(&self, table: &Table, place: usize) -> bool {
        let file = table.current_file(place);
        file.entries.load(Ordering::Relaxed) > file.live.load(Ordering::Relaxed)
    }

    fn run_compaction(&self, mut compaction: Compaction) -> Result<CompactReport> {
        loop {
            if self.cancelled.load(Ordering::Acquire) {
                self.abandon(compaction);
                return Err(Error::Cancelled);
            }
            match self.advance_compaction(&mut compaction, u64::MAX) {
                Ok(true) => return self.finish_compaction(compaction),
                Ok(false) => {}
                Err(error) => {
                    self.abandon(compaction);
                    return Err(error);
                }
            }
        }
    }

    /// Does a piece of background compaction.
    pub fn compaction_step(&self, budget: u64) -> Result<StepOutcome> {
        let mut current = lock(&self.compaction);
        let mut compaction = match current.take() {
            Some(compaction) => compaction,
            None => match self.most_stale_file()? {
                Some((table, place)) => self.begin_compaction(table, place)?,
                None => return Ok(StepOutcome::Idle),
            },
        };
        match self.advance_compaction(&mut compaction, budget) {
            Ok(true) => self
                .finish_compaction(compaction)
                .map(|_| StepOutcome::Again),
            Ok(false) => {
                *current = Some(compaction);
                Ok(StepOutcome::Again)
            }
            Err(error) => {
                self.abandon(compaction);
                Err(error)
            }
        }
    }

    /// The data file that most deserves a compaction, if any passes the
    /// threshold.
    fn most_stale_file(&self) -> Result<Option<(u64, usize)>> {
        let threshold = self.tuning.compaction_threshold;
        if threshold >= 100 || self.poison.get().is_some() {
            return Ok(None);
        }
        let best = self
            .open_tables()
            .iter()
            .flat_map(|table| table.current_files())
            .filter(|file| file.log.end() >= self.tuning.compaction_least_bytes)
            .map(|file| (file.stale_percent(), file.table, file.place as usize))
            .filter(|&(stale, ..)| stale > 0 && stale >= threshold)
            .max();
        Ok(best.map(|(_, table, place)| (table, place)))
    }

    fn begin_compaction(&self, number: u64, place: usize) -> Result<Compaction> {
        self.begin_session()?;
        let Some(table) = self.table(number)? else {
            return Err(Error::InvalidArgument(format!(
                "there is no table {number}"
            )));
        };
        let old = table.current_file(place);
        let live = old.live.load(Ordering::Relaxed);
        let entries = old.entries.load(Ordering::Relaxed).max(1);
        let expected = (old.log.end() as f64 * live as f64 / entries as f64) as u64;
        let space = self.environment.file_system.space(&self.path)?;
        if space.available < expected {
            return Err(Error::NoSpace {
                path: old.log.path().to_path_buf(),
                what: format!(
                    "compaction needs about {expected} bytes for what is live, and {} are free",
                    space.available
                ),
            });
        }
        let file = {
            let mut maintenance = lock(&self.maintenance);
            maintenance
                .catalog
                .new_file(self.environment.randomness.next_u64())
        };
        let new = DataFile::create(&self.home, file, (number, place as u32))?;
        Ok(Compaction {
            position: old.log.geometry().first_offset,
            highest_session: 0,
            rounds: 0,
            round_end: old.log.end(),
            moved: HashMap::new(),
            copied: 0,
            report: CompactReport::default(),
            new: Arc::new(new),
            old,
            place,
            table,
        })
    }

    /// Copies up to `budget` bytes; true when near enough to the old file's end.
    fn advance_compaction(&self, compaction: &mut Compaction, budget: u64) -> Result<bool> {
        let until = compaction
            .round_end
            .min(compaction.position.saturating_add(budget));
        self.flush_old(compaction)?;
        let session = lock(&self.writer).session;
        self.copy_live(compaction, until, session)?;
        if compaction.position < compaction.round_end {
            return Ok(false);
        }
        compaction.rounds += 1;
        compaction.round_end = compaction.old.log.end();
        let behind = compaction.round_end - compaction.position.min(compaction.round_end);
        Ok(behind <= NEAR_BYTES || compaction.rounds >= MOST_ROUNDS)
    }

    /// Buffered entries must be in the file to be read from it.
    fn flush_old(&self, compaction: &Compaction) -> Result<()> {
        if compaction.old.log.buffered_bytes() == 0 {
            return Ok(());
        }
        let _writer = lock(&self.writer);
        compaction
            .old
            .log
            .flush()
            .map_err(|error| self.poisoned(error))
    }

    /// Copies what is live between the position and `until`. Reading stops
    /// behind the record that passes `until`.
    fn copy_live(&self, compaction: &mut Compaction, until: u64, session: u32) -> Result<()> {
        let old = compaction.old.clone();
        let log = &old.log;
        let written_end = log.written_end();
        let started = self.environment.clock.monotonic();
        let mut scanner = LogScanner::new(
            &**log.file(),
            *log.seed(),
            *log.geometry(),
            SessionRule::NeverLower,
            compaction.position,
            written_end,
        )?;
        let mut reached = 0;
        scanner.resume_sessions(compaction.highest_session);
        while scanner.position() < until {
            let record = match scanner.next()? {
                Some(Scanned::Record(record)) => record,
                // What recoveries cut off; a live entry among it is noticed
                // before the switch.
                Some(Scanned::Fault(_)) => continue,
                None => {
                    // The file may end before the log: padding is not written.
                    reached = written_end;
                    break;
                }
            };
            let Some(key) = entry_key(record.prefix()) else {
                continue;
            };
            if !self.is_wanted(compaction, &record, key)? {
                continue;
            }
            let payload = scanner.payload(&record)?;
            compaction.append(self.shape.alignment, &record, key, &payload, session)?;
            if compaction.new.log.buffered_bytes() > FLUSH_BYTES {
                compaction.flush_new(&self.environment)?;
            }
        }
        compaction.report.read_operations += 1;
        reached = reached.max(scanner.position().min(written_end));
        compaction.report.bytes_read += reached.saturating_sub(compaction.position);
        compaction.highest_session = scanner.highest_session();
        compaction.position = reached.max(compaction.position);
        let busy = self.environment.clock.monotonic() - started;
        compaction.report.phases.read += busy.as_secs_f64();
        Ok(())
    }

    /// An entry is wanted if its slot points at it; a removal if the new file
    /// has an entry of the key already, which a rebuild would bring back.
    fn is_wanted(&self, compaction: &Compaction, record: &ScannedRecord, key: u64) -> Result<bool> {
        let points_at = |offset| {
            let location = compaction.table.locate(key)?;
            Ok(location.is_some_and(|location| {
                location.position == offset && Arc::ptr_eq(&location.file, &compaction.old)
            }))
        };
        match (record.header.kind, compaction.moved.get(&key)) {
            (kind::PUT, _) => points_at(record.offset),
            // A removal that a recovery has cut off still lies in the file;
            // it is none, for the slot points at the entry it would remove.
            (kind::DELETE, Some(&(copied, _))) => Ok(!points_at(copied)?),
            _ => Ok(false),
        }
    }

    /// Announces the new file, switches to it and makes that durable.
    fn finish_compaction(&self, mut compaction: Compaction) -> Result<CompactReport> {
        let started = self.environment.clock.monotonic();
        let mut maintenance = lock(&self.maintenance);
        let table = compaction.table.clone();
        let (number, place) = (table.number, compaction.place);
        let same = self
            .table(number)?
            .is_some_and(|open| Arc::ptr_eq(&open, &table));
        if !same {
            // Closed and opened again since: what was copied may be outdated.
            drop(maintenance);
            self.abandon(compaction);
            return Ok(CompactReport::default());
        }
        let announced = self.announce(&mut maintenance, &compaction);
        if let Err(error) = announced {
            drop(maintenance);
            self.abandon(compaction);
            return Err(error);
        }
        if let Err(error) = self.switch(&mut compaction) {
            // Still the old file: withdraw the announcement.
            if let Some(entry) = maintenance.catalog.tables.get_mut(&number) {
                entry.files[place].successor = None;
            }
            let payload = maintenance.catalog.encode();
            _ = maintenance.superblock.write(&payload);
            drop(maintenance);
            self.abandon(compaction);
            return Err(error);
        }
        maintenance.switched.push(Switched {
            table: number,
            place: place as u32,
            new: compaction.new.file,
            old_path: compaction.old.log.path().to_path_buf(),
        });
        self.checkpoint_locked(&mut maintenance, false)?;
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        let copied = compaction.report.bytes_written;
        self.counters
            .compaction_bytes
            .fetch_add(copied, Ordering::Relaxed);
        let busy = self.environment.clock.monotonic() - started;
        compaction.report.phases.flush_and_commit += busy.as_secs_f64();
        Ok(compaction.report)
    }

    /// Makes the new file durable and names it in the superblock as successor.
    fn announce(
        &self,
        maintenance: &mut crate::core::Maintenance,
        compaction: &Compaction,
    ) -> Result<()> {
        let new = &compaction.new;
        new.log.pad_to_block();
        new.log.flush()?;
        new.log.sync().map_err(|error| self.poisoned(error))?;
        self.environment
            .file_system
            .sync_directory(&self.path)
            .map_err(|error| self.poisoned(error))?;
        let Some(entry) = maintenance.catalog.tables.get_mut(&compaction.table.number) else {
            return Err(Error::Closed);
        };
        entry.files[compaction.place].successor = Some((new.file, new.log.end()));
        let payload = maintenance.catalog.encode();
        maintenance.superblock.write(&payload).map_err(|error| {
            if let Some(entry) = maintenance.catalog.tables.get_mut(&compaction.table.number) {
                entry.files[compaction.place].successor = None;
            }
            self.after_superblock_failure(error)
        })?;
        for piece in 0..compaction.table.piece_count() {
            let state = compaction.table.piece(piece);
            let needed = state.slots.is_none() && state.on_disk != 0;
            drop(state);
            if needed {
                compaction.table.load_piece(piece)?;
            }
        }
        Ok(())
    }

    /// Stops writers, copies the rest, proves that nothing is missing, and
    /// moves the slots.
    fn switch(&self, compaction: &mut Compaction) -> Result<()> {
        let careless = self.has_bug(SeededBug::CompactionWithoutCatchUp);
        // Without writers for the last bytes only.
        if !careless {
            self.flush_old(compaction)?;
            let session = lock(&self.writer).session;
            self.copy_live(compaction, compaction.old.log.end(), session)?;
        }
        let mut writer = lock(&self.writer);
        compaction
            .old
            .log
            .flush()
            .map_err(|error| self.poisoned(error))?;
        if !careless {
            self.copy_live(compaction, compaction.old.log.end(), writer.session)?;
        }
        let (table, place) = (&compaction.table, compaction.place);
        if !careless {
            prove_complete(compaction)?;
        }
        compaction
            .new
            .log
            .flush()
            .map_err(|error| self.poisoned(error))?;
        table.begin_switch(place, compaction.new.clone());
        for piece in 0..table.piece_count() {
            table.switch_piece(piece, place, |key, old| {
                let &(from, to) = compaction.moved.get(&key)?;
                (from == old).then_some(to)
            });
        }
        table.end_switch(place);
        let new = &compaction.new;
        new.entries.store(compaction.copied, Ordering::Relaxed);
        new.live.store(
            compaction.old.live.load(Ordering::Relaxed),
            Ordering::Relaxed,
        );
        new.unlogged.store(true, Ordering::Release);
        if !new.dirty.swap(true, Ordering::AcqRel) {
            writer.dirty.push(new.clone());
        }
        Ok(())
    }

    /// Lets a compaction go: its file is removed, nothing else has changed.
    fn abandon(&self, compaction: Compaction) {
        _ = self
            .environment
            .file_system
            .remove(compaction.new.log.path());
    }

    /// Abandons the compaction that is going on, before a close.
    pub fn abandon_compaction(&self) {
        if let Some(compaction) = lock(&self.compaction).take() {
            self.abandon(compaction);
        }
    }
}

impl Compaction {
    fn is_of(&self, table: u64, place: usize) -> bool {
        self.table.number == table && self.place == place
    }

    /// Appends a copy of a record to the new file.
    fn append(
        &mut self,
        alignment: u64,
        record: &ScannedRecord,
        key: u64,
        payload: &[u8],
        session: u32,
    ) -> Result<()> {
        let header = RecordHeader {
            session,
            ..record.header
        };
        let total = header.total_bytes(alignment);
        self.new.log.reserve(total)?;
        let position = self.new.log.append(&header, &[payload]);
        if header.kind == kind::PUT {
            self.moved.insert(key, (record.offset, position));
            self.report.documents += 1;
        } else {
            self.moved.remove(&key);
        }
        self.copied += 1;
        self.report.bytes_written += total;
        Ok(())
    }

    fn flush_new(&mut self, environment: &Environment) -> Result<()> {
        let started = environment.clock.monotonic();
        self.new.log.flush()?;
        let busy = environment.clock.monotonic() - started;
        self.report.phases.write += busy.as_secs_f64();
        Ok(())
    }
}

/// Every live slot of the place was copied from where it points now.
fn prove_complete(compaction: &Compaction) -> Result<()> {
    for piece in 0..compaction.table.piece_count() {
        for (key, position) in compaction.table.live_in_piece(piece, compaction.place) {
            let copied = compaction.moved.get(&key);
            if copied.is_none_or(|&(from, _)| from != position) {
                return Err(Error::corruption(
                    compaction.old.log.path(),
                    position,
                    format!(
                        "the entry of key {key} cannot be read, so the file cannot be compacted; `cambium check` lists the damage"
                    ),
                ));
            }
        }
    }
    Ok(())
}

fn refuse_unsupported(options: &CompactOptions) -> Result<()> {
    let asynchronous = options
        .backend
        .is_some_and(|backend| backend != ReadBackend::Sync);
    if !asynchronous && !options.direct && options.batch.is_none_or(|batch| batch == 1) {
        return options.settings.clone().finish(ENGINE, &[]);
    }
    Err(Error::Unsupported {
        engine: ENGINE,
        what: "batched or direct reads in compaction: it reads each data file once, from start to end",
        instead: "leave --io, --batch and --direct away",
    })
}

fn add(all: &mut CompactReport, one: &CompactReport) {
    all.phases.read += one.phases.read;
    all.phases.write += one.phases.write;
    all.phases.flush_and_commit += one.phases.flush_and_commit;
    all.read_operations += one.read_operations;
    all.bytes_read += one.bytes_read;
    all.bytes_written += one.bytes_written;
    all.documents += one.documents;
}
