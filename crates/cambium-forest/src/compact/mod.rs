//! Compaction: what is live goes into a new file, in key order, and the old file
//! goes away. Readers and writers go on; writers wait for the switch alone.
//!
//! ```text
//! old index ─▶ plan ─▶ fetch ─▶ copy ─▶ new file, index built from its leaves up
//!              search   read     write          │
//!              sort    (many                    ▼
//!                       at once)   verify ─▶ catch up ─▶ switch
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | options, and how memory is divided |
//! | `begin` | flush, room on the disk, the new file |
//! | `deal` | brings scattered documents of a window together, in a scratch file |
//! | `pass` | has the old file read for it |
//! | `scratch` | that file: buckets that are filled at the same time |
//! | `plan` | a window of documents: searched, sorted, put into reads |
//! | `fetch` | reads a window, many reads under way at once |
//! | `behind` | writes one buffer while the next is filled |
//! | `past_cache` | how the new file is written without the page cache |
//! | `copy` | the order of it all: windows that are searched, read and written |
//! | `place` | appends a window's documents and takes them into the new index |
//! | `endings` | a tree's index, where it is a named snapshot's, and its proof |
//! | `proof` | that the new index has what the old one had |
//! | `catch_up` | what writers appended to the old log meanwhile |
//! | `meanwhile` | named snapshots that are made meanwhile |
//! | `switch` | makes the new file the store's |
//! | `policy` | when it begins by itself |
//! | `survey` | what named snapshots keep, which is not stale |
//! | `pace` | how fast it goes, and what slows writers |
//!
//! 1. **Begin.** The write buffer is flushed; the roots then hold every write up
//!    to a number, and the log after a place holds the rest.
//! 2. **Copy.** Tree by tree, window by window. While a window is written the
//!    next one is read, and the one after it searched for. Each tree's old and
//!    new index are compared when it is done. Then the same for named snapshots,
//!    whose documents are shared with what was copied before.
//! 3. **Catch up.** What writers appended to the old log meanwhile is read from
//!    there and goes the same way, in rounds, each of what came during the one
//!    before it, until little is left.
//! 4. **Switch.** Under the writer lock the rest follows. The new file gets a
//!    header and is synced; both copies of the superblock point to it; readers
//!    get a view of it. Then the old file's name is removed; a reader that
//!    has it open can still read it.
//!
//! A crash before the superblock is written leaves a file that no superblock
//! names, which the next open removes. A step does a bounded piece of this, so
//! that a test can do anything in between.

mod begin;
mod behind;
mod catch_up;
mod copy;
mod deal;
mod endings;
mod fetch;
mod meanwhile;
mod pace;
mod pass;
mod past_cache;
mod place;
mod plan;
mod policy;
mod proof;
mod scratch;
pub mod settings;
mod survey;
mod switch;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, TryLockError};

use cambium_api::{CompactOptions, CompactReport, Progress, ProgressSink};
use cambium_base::{Error, Result};
use cambium_index::hbtrie::Relocated;
use cambium_io::sync::atomic::Ordering;
use cambium_io::{BackgroundTurn, StepOutcome};

use crate::addresses::Known;
use crate::core::{Core, lock};
use crate::counters::of;
use crate::database::Database;
use crate::format::{NamedSnapshot, NamespaceRoot};
use crate::nodes::OpenRun;
use crate::seeded_bug::SeededBug;
use crate::view::Pin;
use catch_up::{Pending, Round};
use copy::Copying;
pub(crate) use meanwhile::Meanwhile;
use meanwhile::Passed;
pub(crate) use pace::Pressure;
use past_cache::PastCache;
use policy::Due;
use settings::Settings;
pub(crate) use survey::Kept;

/// A compaction that is going on.
#[derive(Debug)]
pub(crate) struct Compaction {
    settings: Settings,
    /// Keeps the roots that are copied.
    source: Pin,
    database: Arc<Database>,
    /// Where the new file is written past the page cache.
    past_cache: Option<Arc<PastCache>>,
    roots: BTreeMap<u16, NamespaceRoot>,
    /// What is left of the last run of nodes: small trees share one.
    open_run: OpenRun,
    /// Where the newest documents lie in the new file.
    known: Known,
    snapshots: Vec<NamedSnapshot>,
    /// Those that were made meanwhile, as far as it has caught up.
    passed: Vec<Passed>,
    /// `None` when everything is copied.
    copying: Option<Copying>,
    /// Bytes of documents and nodes that only named snapshots reach.
    kept: u64,
    /// Where documents went, if named snapshots share them.
    moved: Option<HashMap<u64, u64>>,
    /// Where sub-trees of their indexes went.
    relocated: Relocated,
    /// The old log up to here is in the new file.
    caught_up: u64,
    /// The last write that is in the new file.
    caught_up_sequence: u64,
    /// The scan met a write after those that the roots hold.
    met_writes: bool,
    round: Round,
    pending: Pending,
    session: u32,
    report: CompactReport,
    /// Documents of all trees.
    total_documents: u64,
    pace: pace::Pace,
    /// Written since the kernel was told to bring it to the device.
    unhurried: u64,
    /// Among the stores that share an environment; a call of `compact` asks for
    /// none.
    turn: Option<BackgroundTurn>,
    /// A copy of the superblock may name the new file: it must stay.
    named: bool,
}

/// Bytes that a call of `compact` moves before it looks around.
const CALL_STEP_BYTES: u64 = 4 << 20;

/// Rounds through the log of a call that cleans in place.
const MOST_ROUNDS: u32 = 4;

impl Core {
    /// Goes on with a compaction, or begins one if enough is stale.
    pub fn compaction_step(self: &Arc<Self>, budget: u64) -> Result<StepOutcome> {
        // A call of `compact` holds this until it ends, and needs the background
        // for flushes in that time; or another thread takes a step.
        let mut running = match self.compaction.try_lock() {
            Ok(running) => running,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(StepOutcome::WaitIo),
        };
        self.health.check_open()?;
        if running.is_none() {
            self.give_tail_back();
            match self.is_compaction_due() {
                Due::No => {
                    self.kept.let_survey_go();
                    return Ok(match self.owes_hole() {
                        true => StepOutcome::Idle,
                        false => StepOutcome::Asleep,
                    });
                }
                Due::Later => return Ok(StepOutcome::Idle),
                Due::AfterFlush if self.flush_put_off.lasts(&*self.environment.clock) => {
                    return Ok(StepOutcome::Idle);
                }
                Due::AfterFlush => {
                    drop(running);
                    self.flush()?;
                    return Ok(StepOutcome::Again);
                }
                Due::Cleaning => {
                    drop(running);
                    let mut maintenance = lock(&self.maintenance);
                    self.health.check_open()?;
                    return Ok(match self.clean_apart(&mut maintenance)? {
                        true => StepOutcome::Again,
                        false => StepOutcome::Idle,
                    });
                }
                Due::Now => {}
            }
            // With what it finds out it is asked again, before anything can change it.
            if self.survey_kept()? || self.is_compaction_due() != Due::Now {
                return Ok(StepOutcome::Again);
            }
            let Some(turn) = self.environment.background.begin() else {
                // Others compact: how long is not in this store's hands.
                self.hold_nobody();
                return Ok(StepOutcome::Idle);
            };
            let settings = Settings::of_background(&self.tuning);
            let begun = self.begin_compaction(settings);
            let mut compaction = begun.inspect_err(|error| self.put_compaction_off(error))?;
            compaction.turn = Some(turn);
            *running = Some(compaction);
        }
        if running.as_ref().is_some_and(|one| self.is_ahead(one)) {
            return Ok(StepOutcome::WaitIo);
        }
        match self.advance(&mut running, budget) {
            Ok(_) => Ok(StepOutcome::Again),
            Err(error) => {
                self.abandon(running.take());
                self.put_compaction_off(&error);
                Err(error)
            }
        }
    }

    /// Compacts now.
    pub fn compact(
        self: &Arc<Self>,
        options: &CompactOptions,
        progress: &dyn ProgressSink,
    ) -> Result<CompactReport> {
        self.check_writable()?;
        let settings = Settings::of_call(&self.tuning, options)?;
        let mut cancellations = self.cancellations.load(Ordering::Acquire);
        if self.has_bug(SeededBug::CancellationCleared) {
            self.cancellations.store(0, Ordering::Release);
            cancellations = 0;
        }
        let mut running = lock(&self.compaction);
        self.health.check_open()?;
        self.kept.let_survey_go();
        // One begun in the background began with other options.
        self.abandon(running.take());
        let is_cancelled = || self.cancellations.load(Ordering::Acquire) != cancellations;
        let outcome = self.compact_whole(&mut running, settings, progress, &is_cancelled);
        if outcome.is_err() {
            self.abandon(running.take());
        }
        outcome
    }

    fn compact_whole(
        self: &Arc<Self>,
        running: &mut Option<Compaction>,
        settings: Settings,
        progress: &dyn ProgressSink,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<CompactReport> {
        let clock = &self.environment.clock;
        let started = clock.monotonic();
        loop {
            if is_cancelled() {
                return Err(Error::Cancelled);
            }
            if running.is_none() {
                match self.begin_compaction(settings) {
                    Err(full) if full.is_no_space() => {
                        let is_called = &self.cleaning.is_called;
                        is_called.store(true, Ordering::Relaxed);
                        let cleaned = self.clean_in_place(full, settings, is_cancelled);
                        is_called.store(false, Ordering::Relaxed);
                        let mut report = cleaned?;
                        report.total_seconds = (clock.monotonic() - started).as_secs_f64();
                        return Ok(report);
                    }
                    begun => *running = Some(begun?),
                }
            }
            if let Some(compaction) = &running {
                progress.report(compaction.progress());
                while self.is_ahead(compaction) && !is_cancelled() {
                    clock.sleep(pace::PAUSE);
                }
            }
            if let Some(mut report) = self.advance(running, CALL_STEP_BYTES)? {
                report.total_seconds = (clock.monotonic() - started).as_secs_f64();
                return Ok(report);
            }
        }
    }

    /// Gives back what cleaning can, where there is no room for a new file.
    ///
    /// # Errors
    /// `full` where that is nothing.
    fn clean_in_place(
        &self,
        full: Error,
        settings: Settings,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<CompactReport> {
        let written = || of(&self.counters.compaction_bytes);
        let before = (of(&self.counters.cleanings), written());
        // A call goes through the log a few times at most, whatever is written meanwhile. More
        // than once, since nodes that a round makes stale lie among the documents that it moved.
        let mut until = self.view.load_full().database.log.end();
        let mut rounds = 0;
        loop {
            if is_cancelled() {
                return Err(Error::Cancelled);
            }
            let mut maintenance = lock(&self.maintenance);
            let view = self.view.load_full();
            let log = &view.database.log;
            let behind = log.end().saturating_sub(maintenance.header.replay_from);
            if log.begin() >= until {
                (rounds, until) = (rounds + 1, log.end());
                if rounds == MOST_ROUNDS {
                    break;
                }
            }
            if view.is_buffered() && !self.flush_may_make_room(&view, behind) {
                break;
            }
            self.flush_locked(&mut maintenance)?;
            if !self.clean_apart(&mut maintenance)? {
                break;
            }
        }
        if of(&self.counters.cleanings) == before.0 {
            return Err(full);
        }
        Ok(CompactReport {
            bytes_written: written() - before.1,
            backend: settings.reading.backend,
            batch: settings.reading.depth,
            ..CompactReport::default()
        })
    }

    /// Does a piece of work; answers the report when all is done.
    fn advance(
        self: &Arc<Self>,
        running: &mut Option<Compaction>,
        budget: u64,
    ) -> Result<Option<CompactReport>> {
        self.check_sound()?;
        let Some(compaction) = running else {
            return Ok(None);
        };
        let began = self.environment.clock.monotonic();
        let before = compaction.carried_bytes();
        let moved = compaction.moved_bytes();
        let ready = if compaction.copying.is_some() {
            self.copy(compaction, budget)?;
            false
        } else {
            self.catch_up(compaction, budget)?
        };
        if !ready {
            let spent = self.environment.clock.monotonic() - began;
            let done = compaction.carried_bytes() - before;
            let moved = compaction.moved_bytes() - moved;
            self.environment.pay_for_background(moved);
            compaction.pace.spent(spent, done);
            self.hold_writers_to(compaction);
            return Ok(None);
        }
        let Some(report) = self.switch(compaction)? else {
            // There is more to catch up with first.
            return Ok(None);
        };
        *running = None;
        cambium_io::events::compacted("forest", &self.path, report.bytes_written);
        Ok(Some(report))
    }

    /// Abandons the compaction of a store that the caller has dropped: it has pinned a
    /// moment, and so holds the store open. The next opening removes its file, as after
    /// a crash.
    pub fn forget_compaction(&self) {
        let running = lock(&self.compaction).take();
        drop(running);
        self.kept.forget();
    }

    /// Lets a compaction go that is not done.
    pub fn abandon(&self, running: Option<Compaction>) {
        self.note_ended();
        self.history.keep_all();
        let Some(mut compaction) = running else {
            return;
        };
        // Waits for what is being read.
        if let Some(copying) = compaction.copying.take() {
            copying.end();
        }
        if !compaction.named {
            // If it cannot be removed now, the next open does.
            _ = self
                .environment
                .file_system
                .remove(compaction.database.path());
        }
    }
}

impl Compaction {
    /// The root of a tree in the new file.
    fn root(&mut self, snapshot: Option<usize>, namespace: u16) -> &mut NamespaceRoot {
        let Some(place) = snapshot else {
            return self.roots.entry(namespace).or_default();
        };
        let namespaces = &mut self.snapshots[place].namespaces;
        let known = namespaces
            .iter()
            .position(|(number, _)| *number == namespace);
        let at = known.unwrap_or_else(|| {
            namespaces.push((namespace, NamespaceRoot::default()));
            namespaces.len() - 1
        });
        &mut namespaces[at].1
    }

    /// Bytes that went into the new file: copied, or read of the old log.
    fn carried_bytes(&self) -> u64 {
        self.pace.copied_bytes() + self.caught_up
    }

    /// Bytes that were read and written, with what lay between documents, nodes, and
    /// documents that were dealt out; but for the old log's end, which catching up reads.
    fn moved_bytes(&self) -> u64 {
        self.report.bytes_read + self.database.log.end() + self.pace.dealt_bytes()
    }

    fn progress(&self) -> Progress {
        let phase = match &self.copying {
            Some(copying) if copying.is_dealing() => "sorting",
            Some(_) => "copying",
            None => "catching up",
        };
        Progress {
            phase,
            done: self.report.documents.min(self.total_documents),
            total: Some(self.total_documents),
        }
    }
}
