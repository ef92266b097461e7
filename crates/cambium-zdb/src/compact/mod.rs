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
//! 4. *Checkpoint.* The index points into the new file, which the superblock names in
//!    the old one's place. The old file is removed, unless consumers of the change feed
//!    need it. Snapshots and readers that have it open keep reading it.
//!
//! Up to 4, a crash leaves the old file in charge; entries written to the new
//! one after the switch are brought back from its tail.

mod copy;
mod switch;

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_api::{CompactOptions, CompactReport, Progress, ProgressSink};
use cambium_base::{Error, Result};
use cambium_io::sync::atomic::Ordering;
use cambium_io::{ReadBackend, StepOutcome};

use crate::core::{Core, lock};
use crate::data_file::DataFile;
use crate::options::ENGINE;
use crate::table::Table;

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
    moved: BTreeMap<u64, (u64, u64)>,
    /// Records in the new file.
    copied: u64,
    report: CompactReport,
}

/// Bytes that a compaction on request reads before it looks whether it may go on.
const CALL_STEP_BYTES: u64 = 4 << 20;

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
        let places = 0..self.shape.data_files as usize;
        let numbers = self.table_numbers().into_iter();
        let mut left: Vec<(u64, usize)> = numbers
            .flat_map(|number| places.clone().map(move |place| (number, place)))
            .collect();
        let total = left.len() as u64;
        while !left.is_empty() {
            let before = left.len();
            let mut refused = None;
            // The files that are compacted in one turn make room for others in the next.
            let mut turn = std::mem::take(&mut left).into_iter();
            while let Some((number, place)) = turn.next() {
                progress.report(Progress {
                    phase: "compact",
                    done: total - (turn.len() + left.len() + 1) as u64,
                    total: Some(total),
                });
                match self.compact_one(number, place) {
                    Ok(report) => add(&mut all, &report),
                    Err(full) if full.is_no_space() && self.health.failure().is_none() => {
                        left.push((number, place));
                        refused = Some(full);
                    }
                    Err(error) => return Err(error),
                }
            }
            if let Some(full) = refused.filter(|_| left.len() == before) {
                return Err(full);
            }
        }
        all.total_seconds = (self.environment.clock.monotonic() - started).as_secs_f64();
        Ok(all)
    }

    /// Compacts one data file on request, if anything in it is stale.
    fn compact_one(&self, number: u64, place: usize) -> Result<CompactReport> {
        let Some(table) = self.table(number)? else {
            return Ok(CompactReport::default());
        };
        if table.current_file(place).stale_percent() == 0 && !self.has_stale(&table, place) {
            return Ok(CompactReport::default());
        }
        let mut current = lock(&self.compaction);
        self.health.check_open()?;
        let compaction = match current.take() {
            // The background began this very file: go on with it.
            Some(begun) if begun.is_of(number, place) => begun,
            Some(other) => {
                self.abandon(other);
                self.begin_compaction(number, place)?
            }
            None => self.begin_compaction(number, place)?,
        };
        self.run_compaction(compaction)
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
            self.environment
                .wait_for_background(&|| self.cancelled.load(Ordering::Acquire));
            match self.advance_compaction(&mut compaction, CALL_STEP_BYTES) {
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
        self.health.check_open()?;
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

    /// Compacts a data file now; false where that gives nothing back, as where readers or
    /// consumers of changes keep the file that it replaced.
    pub fn give_space_back(&self) -> bool {
        let compactions = || self.counters.compactions.load(Ordering::Relaxed);
        let free = || {
            let space = self.environment.file_system.space(&self.path);
            space.map_or(0, |space| space.available)
        };
        let before = (compactions(), free());
        loop {
            match self.compaction_step(CALL_STEP_BYTES) {
                Ok(StepOutcome::Again) if compactions() == before.0 => {}
                Ok(StepOutcome::Again) => return free() > before.1,
                _ => return false,
            }
        }
    }

    /// The data file that most deserves a compaction, if any passes the
    /// threshold.
    fn most_stale_file(&self) -> Result<Option<(u64, usize)>> {
        let (threshold, room) = self.compaction_bounds();
        if threshold >= 100 || self.health.failure().is_some() {
            return Ok(None);
        }
        let best = self
            .open_tables()
            .iter()
            .flat_map(|table| table.current_files())
            .filter(|file| file.log.end() >= self.tuning.compaction_least_bytes)
            .filter(|file| file.live_bytes() <= room)
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
        let expected = old.live_bytes();
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
            moved: BTreeMap::new(),
            copied: 0,
            report: CompactReport::default(),
            new: Arc::new(new),
            old,
            place,
            table,
        })
    }

    /// Lets a compaction go: its file is removed, nothing else has changed.
    pub(crate) fn abandon(&self, compaction: Compaction) {
        _ = self
            .environment
            .file_system
            .remove(compaction.new.log.path());
    }
}

impl Compaction {
    /// Bytes read and written.
    fn moved_bytes(&self) -> u64 {
        self.report.bytes_read + self.report.bytes_written
    }

    fn is_of(&self, table: u64, place: usize) -> bool {
        self.table.number == table && self.place == place
    }
}

fn refuse_unsupported(options: &CompactOptions) -> Result<()> {
    let asynchronous = options
        .backend
        .is_some_and(|backend| backend != ReadBackend::Sync);
    if !asynchronous && !options.direct && options.batch.is_none_or(|batch| batch == 1) {
        return options
            .settings
            .clone()
            .finish("zdb (of a compaction)", &[]);
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
