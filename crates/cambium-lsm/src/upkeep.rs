//! Background work as steps, and the same work on demand.

use std::sync::Arc;
use std::time::Duration;

use cambium_base::{Error, Result};
use cambium_io::StepOutcome;
use cambium_io::sync::atomic::Ordering;

use crate::compact::{CompactionJob, Plan};
use crate::flush::FlushJob;
use crate::format::{LEVELS, table_name};
use crate::job::Slot;
use crate::manifest::Edit;
use crate::pick::{admitted, plan};
use crate::table_writer::TableWriter;
use crate::tombstones::RangeTombstones;
use crate::tree::{Tree, lock};
use crate::version::{TableFile, TableMetadata};

/// How long work on demand waits for another thread's step before it looks
/// again.
const PATIENCE: Duration = Duration::from_millis(1);
/// A step of work on demand, in bytes of entries.
const DEMAND_BUDGET: u64 = 4 << 20;

impl Tree {
    /// Does a bounded piece of background work: of a removal, a flush or a
    /// compaction, in this order of urgency. `budget` is in bytes of entries, about. Any
    /// number of threads may call this at once; each takes a job of its own.
    ///
    /// # Errors
    /// `NoSpace`: the job was given up, nothing is lost, a later step tries
    /// again. Any other error poisons the tree, and steps are idle from then on.
    pub fn step(&self, budget: u64) -> Result<StepOutcome> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(StepOutcome::Done);
        }
        if self.poison.get().is_some() {
            return Ok(StepOutcome::Idle);
        }
        if !self.context.graveyard.is_empty() {
            self.remove_obsolete()?;
            return Ok(StepOutcome::Again);
        }
        if let Some(job) = self.take_flush() {
            self.step_flush(job, budget)?;
            return Ok(StepOutcome::Again);
        }
        self.step_compaction(budget)
    }

    /// True if [`Tree::step`] would find something to do. Jobs that other threads
    /// have in hand are not counted.
    pub fn step_due(&self) -> bool {
        if self.closed.load(Ordering::Acquire) || self.poison.get().is_some() {
            return false;
        }
        if !self.context.graveyard.is_empty() {
            return true;
        }
        let jobs = lock(&self.jobs);
        if jobs.held {
            return false;
        }
        let flush = match jobs.flush {
            Slot::Taken => false,
            Slot::Parked(_) => true,
            Slot::Empty => !self.view.load().sealed.is_empty(),
        };
        let parked = |slot: &Slot<CompactionJob>| matches!(slot, Slot::Parked(_));
        let room = jobs.compactions.len() < self.context.options.compaction_jobs;
        flush
            || jobs.compactions.iter().any(|running| parked(&running.slot))
            || room && self.pick(&jobs).is_some()
    }

    /// Removes the tables that nobody reads any more now, in place of a later step.
    ///
    /// # Errors
    /// As [`Tree::step`].
    pub fn remove_unread_tables(&self) -> Result<()> {
        while !self.context.graveyard.is_empty() {
            self.remove_obsolete()?;
        }
        Ok(())
    }

    /// Removes tables that nobody reads any more. The superblock first says how
    /// many edits there are, so that none of those that let them go can be lost
    /// unnoticed.
    fn remove_obsolete(&self) -> Result<()> {
        let numbers = self.context.graveyard.take();
        let confirmed = lock(&self.manifest).confirm();
        if let Err(error) = confirmed {
            self.context.graveyard.put(numbers);
            return Err(self.unless_full(error));
        }
        self.remove_tables(numbers);
        Ok(())
    }

    fn take_flush(&self) -> Option<Box<FlushJob>> {
        let mut jobs = lock(&self.jobs);
        if jobs.held {
            return None;
        }
        match std::mem::replace(&mut jobs.flush, Slot::Taken) {
            Slot::Taken => None,
            Slot::Parked(job) => Some(job),
            Slot::Empty => {
                let job = FlushJob::begin(self).map(Box::new);
                if job.is_none() {
                    jobs.flush = Slot::Empty;
                }
                job
            }
        }
    }

    fn step_flush(&self, mut job: Box<FlushJob>, budget: u64) -> Result<()> {
        let result = match job.write(self, budget) {
            Ok(false) => {
                let mut jobs = lock(&self.jobs);
                if self.closed.load(Ordering::Acquire) {
                    jobs.flush = Slot::Empty;
                    drop(jobs);
                    job.abandon();
                } else {
                    jobs.flush = Slot::Parked(job);
                }
                return Ok(());
            }
            Ok(true) => job.finish(self),
            Err(error) => {
                job.abandon();
                Err(error)
            }
        };
        // Before the slot is free: whoever takes it next must see the poison.
        let result = result.map_err(|error| self.unless_full(error));
        lock(&self.jobs).flush = Slot::Empty;
        if result.is_ok() {
            cambium_io::events::flushed("wisckey", &self.context.folder);
        }
        result
    }

    fn step_compaction(&self, budget: u64) -> Result<StepOutcome> {
        let taken = lock(&self.jobs).take_parked();
        if let Some((id, job)) = taken {
            self.continue_compaction(id, job, budget)?;
            return Ok(StepOutcome::Again);
        }
        let picked = {
            let mut jobs = lock(&self.jobs);
            if jobs.compactions.len() >= self.context.options.compaction_jobs {
                return Ok(StepOutcome::Idle);
            }
            self.pick(&jobs).map(|(plan, claim)| {
                jobs.turns[plan.level].clone_from(&plan.range.smallest);
                (jobs.start(claim), plan)
            })
        };
        let Some((id, plan)) = picked else {
            return Ok(StepOutcome::Idle);
        };
        self.begin_compaction(id, plan, budget)?;
        Ok(StepOutcome::Again)
    }

    fn begin_compaction(&self, id: u64, plan: Plan, budget: u64) -> Result<()> {
        if plan.is_trivial_move(self.context.options.table_bytes) {
            let result = self.commit(plan.move_edit(), 0, Vec::new);
            lock(&self.jobs).end(id);
            return result.map_err(|error| self.unless_full(error));
        }
        let job = Box::new(CompactionJob::begin(self, plan));
        self.continue_compaction(id, job, budget)
    }

    fn continue_compaction(&self, id: u64, mut job: Box<CompactionJob>, budget: u64) -> Result<()> {
        let result = match job.write(self, budget) {
            Ok(false) => {
                lock(&self.jobs).park(id, job);
                return Ok(());
            }
            Ok(true) => job.finish(self),
            Err(error) => {
                self.remove_tables(job.finished_outputs());
                job.abandon();
                Err(error)
            }
        };
        let result = result.map_err(|error| self.unless_full(error));
        lock(&self.jobs).end(id);
        result
    }

    /// Finishes a table; after a failure nothing of it is left.
    pub(crate) fn finish_table(
        &self,
        writer: TableWriter,
        tombstones: &RangeTombstones,
    ) -> Result<TableMetadata> {
        let number = writer.number();
        writer.finish(tombstones).inspect_err(|_| {
            self.remove_tables([number]);
        })
    }

    /// Commits an edit with new tables. If the disk is full they go again; after
    /// any other failure nobody knows whether the edit counts, and they stay.
    pub(crate) fn commit_tables(
        &self,
        edit: Edit,
        flushed: usize,
        note: impl FnOnce() -> Vec<u8>,
    ) -> Result<()> {
        let numbers: Vec<u64> = edit.added.iter().map(|(_, table)| table.number).collect();
        self.commit(edit, flushed, note).inspect_err(|_| {
            if self.poison.get().is_none() {
                self.remove_tables(numbers);
            }
        })
    }

    /// Removes tables. What cannot be removed is unknown to the manifest, and removed with
    /// other such files.
    pub(crate) fn remove_tables(&self, numbers: impl IntoIterator<Item = u64>) {
        let file_system = &self.context.environment.file_system;
        for number in numbers {
            _ = file_system.remove(&self.context.folder.join(table_name(number)));
        }
    }

    /// Flushes the memtables that are sealed now, on this thread. Those that are sealed
    /// meanwhile it leaves: whoever seals again and again would keep it for ever.
    ///
    /// # Errors
    /// As [`Tree::step`].
    pub fn flush(&self) -> Result<()> {
        // The oldest goes first, so all of them are gone when the newest is.
        let newest = self.view.load().sealed.first().cloned();
        let is_flushed = || {
            let view = self.view.load();
            let mut sealed = view.sealed.iter();
            newest
                .as_ref()
                .is_none_or(|newest| !sealed.any(|other| Arc::ptr_eq(other, newest)))
        };
        loop {
            self.check_writable()?;
            if is_flushed() {
                return Ok(());
            }
            match self.take_flush() {
                Some(job) => self.step_flush(job, DEMAND_BUDGET)?,
                None => self.context.environment.clock.sleep(PATIENCE),
            }
        }
    }

    /// Brings everything that was flushed into the lowest level that has
    /// tables, on this thread; tombstones that no moment needs go on the way.
    /// `cancelled` is asked between tables.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; otherwise as [`Tree::step`].
    pub fn compact(&self, cancelled: &dyn Fn() -> bool) -> Result<()> {
        self.flush()?;
        let deepest = |tree: &Tree| {
            let version = tree.view.load().version.clone();
            (1..LEVELS)
                .rev()
                .find(|&level| !version.levels[level].is_empty())
        };
        let bottom = deepest(self).unwrap_or(1);
        self.compact_some(0, 1, cancelled, |_| true)?;
        for level in 1..bottom {
            self.compact_some(level, level + 1, cancelled, |_| true)?;
        }
        let bottom = deepest(self).unwrap_or(1);
        // What lay there already was merged with nothing.
        self.compact_some(bottom, bottom, cancelled, |file| Self::may_hide(file))?;
        self.remove_unread_tables()
    }

    /// True if a compaction of the table alone may drop something: tombstones, or versions
    /// of a key that a reader saw when the table was written.
    fn may_hide(file: &TableFile) -> bool {
        let known = &file.metadata;
        known.deletes + known.range_tombstones > 0 || known.has_versions
    }

    /// Compacts the tables of a level that are there now and are wanted: those
    /// of level 0 together, others one by one.
    fn compact_some(
        &self,
        level: usize,
        output_level: usize,
        cancelled: &dyn Fn() -> bool,
        wanted: impl Fn(&Arc<TableFile>) -> bool,
    ) -> Result<()> {
        let mut left: Vec<u64> = self.view.load().version.levels[level]
            .iter()
            .filter(|file| wanted(file))
            .map(|file| file.metadata.number)
            .collect();
        while !left.is_empty() {
            self.context.environment.wait_for_background(cancelled);
            if cancelled() {
                return Err(Error::Cancelled);
            }
            self.check_writable()?;
            let claimed = {
                let mut jobs = lock(&self.jobs);
                let version = self.view.load().version.clone();
                let mut files: Vec<Arc<TableFile>> = version.levels[level].clone();
                files.retain(|file| left.contains(&file.metadata.number));
                if level > 0 {
                    files.truncate(1);
                }
                match plan(&version, level, output_level, files, true) {
                    // Others have compacted what was left.
                    None => return Ok(()),
                    Some(plan) => {
                        admitted(plan, &jobs).map(|(plan, claim)| (jobs.start(claim), plan))
                    }
                }
            };
            match claimed {
                Some((id, plan)) => {
                    let numbers: Vec<u64> =
                        plan.upper.iter().map(|file| file.metadata.number).collect();
                    let job = Box::new(CompactionJob::begin(self, plan));
                    match self.continue_compaction(id, job, u64::MAX) {
                        // Tables that were merged take their space until they are removed.
                        Err(full) if full.is_no_space() && !self.context.graveyard.is_empty() => {
                            self.remove_unread_tables()?;
                            continue;
                        }
                        compacted => compacted?,
                    }
                    left.retain(|number| !numbers.contains(number));
                }
                // A job that is parked may stand in the way.
                None => {
                    if self.step_compaction(DEMAND_BUDGET)? == StepOutcome::Idle {
                        self.context.environment.clock.sleep(PATIENCE);
                    }
                }
            }
        }
        Ok(())
    }
}
