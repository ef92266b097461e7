//! Background steps, back-pressure, and the close of a store.

use std::sync::Arc;
use std::time::Duration;

use cambium_base::{Error, Result};
use cambium_io::StepOutcome;
use cambium_io::sync::atomic::Ordering;
use cambium_lsm::WritePressure;

use crate::core::{Core, lock};
use crate::format::segment_path;
use crate::reserve::Part;
use crate::seeded_bug::SeededBug;
use crate::value_log::{Writer, segment_item};

/// Bytes a step of a writer that waits for room may move.
const WAITING_STEP_BYTES: u64 = 4 << 20;
/// Most that writers are slowed where background work falls behind: to about 64
/// MB/s of log, which it should be able to keep up with.
const LONGEST_SLOWDOWN: Duration = Duration::from_millis(4);
const BYTES_BETWEEN_PAUSES: u64 = 256 << 10;
/// Bytes of full segments that no sync covers, at which background work syncs them.
const UNSYNCED_BYTES: u64 = 16 << 20;
/// How long a writer that was stopped waits before it looks again.
const PATIENCE: Duration = Duration::from_millis(1);

impl Core {
    /// Seals the write buffer where it, or the log since the last flush, is full. A failure
    /// is met again by the next write, or has stopped all. True if it was sealed.
    pub fn seal_where_due(&self, writer: &mut Writer) -> bool {
        self.look_at_samples(writer);
        let is_due = self.tree.seal_due() || writer.logged >= writer.pace.seal_at;
        // A close has flushed everything, and no file may come to be after it.
        is_due && !self.health.is_closed() && self.seal(writer).is_ok()
    }

    /// Notifies those who flush after a seal. Called without the writer lock.
    pub fn after_seal(&self, sealed: bool) {
        self.keep_reserve_where_due();
        if sealed {
            self.notify_background();
        }
    }

    /// Slows a writer, or makes it wait, where background work falls behind: the
    /// tree's, or garbage collection's.
    pub fn hold_back(self: &Arc<Self>) -> Result<()> {
        match self.tree.write_pressure() {
            WritePressure::Free => {}
            WritePressure::Slow(share) => self.slow_down(share.clamp(0.0, 1.0)),
            WritePressure::Stop => self.wait_for_tree()?,
        }
        self.wait_for_space()
    }

    /// Slows writers by a share of the most: a short pause after each so many
    /// bytes of log of all writers, so that not each small write has to wait.
    pub fn slow_down(&self, share: f64) {
        let logged = self.counters.log_bytes.load(Ordering::Relaxed);
        let paused_at = self.counters.paused_at_bytes.load(Ordering::Relaxed);
        if logged - paused_at.min(logged) < BYTES_BETWEEN_PAUSES {
            return;
        }
        let won = self.counters.paused_at_bytes.compare_exchange(
            paused_at,
            logged,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if won.is_ok() {
            self.notify_background();
            self.pause(LONGEST_SLOWDOWN.mul_f64(share * share));
        }
    }

    /// Lets time pass, where somebody else works meanwhile.
    pub fn pause(&self, time: Duration) {
        if self.environment.executor.runs_tasks() {
            self.counters
                .waited_nanoseconds
                .fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
            self.environment.clock.sleep(time);
        }
    }

    fn wait_for_tree(self: &Arc<Self>) -> Result<()> {
        cambium_io::events::stalled("wisckey", &self.path);
        while matches!(self.tree.write_pressure(), WritePressure::Stop) {
            self.check_writable()?;
            if self.environment.executor.runs_tasks() {
                if let Some(error) = lock(&self.stuck).clone() {
                    return Err(error);
                }
                self.notify_background();
                self.pause(PATIENCE);
                continue;
            }
            self.environment
                .wait_for_background(&|| self.health.is_closed());
            if self.tree_step(WAITING_STEP_BYTES)? != StepOutcome::Again {
                break;
            }
        }
        Ok(())
    }

    /// Does a bounded piece of background work of any kind.
    pub fn step(self: &Arc<Self>, budget: u64) -> Result<StepOutcome> {
        match self.tree_or_log_step(budget)? {
            StepOutcome::Again => Ok(StepOutcome::Again),
            StepOutcome::Done => Ok(StepOutcome::Done),
            _ => self.collection_step(budget),
        }
    }

    /// A step of background work; none where a close came before.
    pub fn step_while_open(
        self: &Arc<Self>,
        step: impl FnOnce(&Arc<Self>) -> Result<StepOutcome>,
    ) -> Result<StepOutcome> {
        let _under_way = self.stepping.read();
        match self.health.is_closed() {
            true => Ok(StepOutcome::Done),
            false if self.environment.is_background_ahead() => Ok(StepOutcome::WaitIo),
            false => step(self),
        }
    }

    /// A piece of the tree's work, or else a sync of full segments.
    pub fn tree_or_log_step(&self, budget: u64) -> Result<StepOutcome> {
        match self.tree_step(budget)? {
            StepOutcome::Idle if self.close_one_gone() => Ok(StepOutcome::Again),
            StepOutcome::Idle => self.log_step(),
            other => Ok(other),
        }
    }

    /// Closes the file of a segment that is gone: its space goes back then, which
    /// takes the system a while. Not by who collects, who is waited for.
    pub fn close_one_gone(&self) -> bool {
        let gone = lock(&self.gone).pop();
        gone.is_some()
    }

    /// Syncs full segments, where they are many bytes. Nobody waits for it, and a flush
    /// would do it later; but what was synced a recovery need not write again.
    fn log_step(&self) -> Result<StepOutcome> {
        if self.check_sound().is_err() {
            return Ok(StepOutcome::Idle);
        }
        let unsynced: u64 = {
            let writer = lock(&self.writer);
            let full = writer.unsynced.iter();
            full.map(|segment| segment.log.end()).sum()
        };
        if unsynced < UNSYNCED_BYTES.min(self.tuning.segment_bytes / 2) {
            return Ok(StepOutcome::Idle);
        }
        self.sync_sealed_log()?;
        Ok(StepOutcome::Again)
    }

    /// A piece of the tree's work: flush or compaction.
    pub fn tree_step(&self, budget: u64) -> Result<StepOutcome> {
        if self.health.is_closed() {
            return Ok(StepOutcome::Done);
        }
        if self.check_sound().is_err() {
            return Ok(StepOutcome::Idle);
        }
        if self.tree.step_due() {
            // From the first edit on the store is not as it was closed.
            self.begin_session()?;
        }
        let outcome = match self.reserve.is_shared_out() {
            true => self.tree.step(budget),
            false => self.step_with_reserve(budget),
        };
        self.note_outcome(outcome.as_ref().err());
        let may_go_on = !matches!(self.tree.write_pressure(), WritePressure::Stop);
        if may_go_on && self.collection_waits.swap(false, Ordering::SeqCst) {
            self.notify_background();
        }
        outcome
    }

    /// A piece of collection, unless a compaction on request shares out the last room.
    pub fn background_collection(self: &Arc<Self>, budget: u64) -> Result<StepOutcome> {
        match self.reserve.is_broken() && self.reserve.is_shared_out() {
            // The room of segments that went is what the compaction waits for.
            true => Ok(match self.close_one_gone() {
                true => StepOutcome::Again,
                false => StepOutcome::Idle,
            }),
            false => self.collection_step(budget),
        }
    }

    fn step_with_reserve(&self, budget: u64) -> Result<StepOutcome> {
        let mut found_full = match self.tree.step(budget) {
            Err(full) if full.is_no_space() && !self.is_known_too_little() => Some(full),
            other => return other,
        };
        let stepped = self.with_reserve(Part::All, || {
            if let Some(full) = found_full.take() {
                return Err(full);
            }
            // To the end of what there is: a step leaves its job half done, and what it had
            // of the reserve would be held again.
            loop {
                match self.tree.step(u64::MAX)? {
                    StepOutcome::Again => {}
                    other => return Ok(other),
                }
            }
        });
        self.note_background_room(stepped.as_ref().is_err_and(Error::is_no_space));
        stepped
    }

    /// Remembers why background work does not get on.
    pub fn note_outcome(&self, error: Option<&Error>) {
        let mut stuck = lock(&self.stuck);
        if stuck.is_some() || error.is_some() {
            *stuck = error.cloned();
        }
    }

    /// Removes the files of segments that the manifest no longer knows, and lets
    /// go of those that no reader can be led to any more.
    pub fn remove_dropped(&self) -> Result<()> {
        let _sharing = lock(&self.sharing);
        let dropped = std::mem::take(&mut self.ledger.state().dropped);
        let visible = self.ledger.visible();
        for (place, &number) in dropped.iter().enumerate() {
            let path = segment_path(&self.path, number);
            let file_system = &self.environment.file_system;
            let removed = match file_system.metadata(&path) {
                // Who was led to it before reads it without its name.
                Ok(Some(_)) => self
                    .segment(number)
                    .map_or(Ok(()), |segment| segment.file.keep())
                    .and_then(|()| file_system.remove(&path)),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = removed {
                let left = dropped[place..].iter();
                self.ledger.state().dropped.extend(left);
                return Err(error);
            }
            lock(&self.writer).retired.push((number, visible));
        }
        if self.tree.has_past() {
            self.tree.forget_past(|| self.ledger.oldest_pin());
        }
        self.let_go_of_retired();
        Ok(())
    }

    fn let_go_of_retired(&self) {
        let mut writer = lock(&self.writer);
        if writer.retired.is_empty() {
            return;
        }
        let oldest = self.ledger.oldest_pin();
        let (free, held): (Vec<_>, Vec<_>) = writer
            .retired
            .drain(..)
            .partition(|&(_, moment)| oldest.is_none_or(|oldest| oldest > moment));
        writer.retired = held;
        if !free.is_empty() {
            let mut gone = Vec::new();
            self.change_segments(|segments| {
                gone.extend(
                    free.iter()
                        .filter_map(|(number, _)| segments.remove(number)),
                );
            });
            drop(writer);
            if self.environment.executor.runs_tasks() {
                lock(&self.gone).append(&mut gone);
                self.notify_background();
            }
        }
    }

    /// Closes the store: the last flush and the clean mark, where it was opened to be
    /// written, and the lock.
    pub fn close(self: &Arc<Self>) -> Result<()> {
        let Some(_closing) = self.health.close() else {
            return Ok(());
        };
        self.notify_background();
        // Steps, compactions and writers that have begun come to their ends, and none begins.
        // Once the lock is given back, another process may own the store's files.
        if !self.has_bug(SeededBug::CloseOutrun) {
            drop(self.stepping.write());
        }
        if let Some(plan) = self.memory.get() {
            plan.give_back();
        }
        if self.health.is_of_reader() {
            lock(&self.lock).take();
            return Ok(());
        }
        self.abandon_collection();
        drop(lock(&self.writer));
        let mut maintenance = lock(&self.maintenance);
        let result = match self.check_sound() {
            // The content of the device is unknown, so the close writes no clean mark.
            Err(poisoned) => Err(poisoned),
            Ok(()) if !self.session_begun.load(Ordering::Acquire) => Ok(()),
            Ok(()) => self.flush_all(),
        };
        let closed = self.tree.close();
        let result = result.and(closed).and_then(|()| {
            if !self.session_begun.load(Ordering::Acquire) {
                return Ok(());
            }
            maintenance.root.clean = true;
            let payload = self.root_payload(&maintenance.root);
            // Both copies: an older one would call for a replay.
            maintenance
                .superblock
                .write_both(&payload)
                .map_err(|error| self.health.unless_full(error))
        });
        drop(maintenance);
        lock(&self.lock).take();
        result
    }

    /// Brings everything into tables; the log goes on where it ends.
    fn flush_all(&self) -> Result<()> {
        let note = {
            let mut writer = lock(&self.writer);
            self.sync_all(&mut writer)?;
            match writer.active.clone() {
                // This opening has appended nothing, and recovery has flushed everything. But
                // collection may have moved values, and the manifest must name their segment
                // before tables point into it.
                None => self.note_without_head(&mut writer),
                Some(active) => {
                    if writer.active_unsynced {
                        // The next opening goes on behind its header.
                        let synced = active.log.sync();
                        synced.map_err(|error| self.health.poison(error))?;
                        writer.active_unsynced = false;
                    }
                    let end = active.log.end();
                    let last = writer.next_sequence - 1;
                    active.last_sequence.store(last, Ordering::Release);
                    writer.pending.push(segment_item(&active));
                    self.note_up_to(&mut writer, active.number, end)
                }
            }
        };
        self.tree.seal(note);
        self.with_reserve(Part::All, || self.tree.flush())?;
        self.remove_dropped()?;
        while self.punch_holes() {}
        Ok(())
    }
}
