//! Background steps, and the close of a store.

use std::sync::Arc;
use std::time::Duration;

use cambium_base::{Error, Result};
use cambium_io::StepOutcome;
use cambium_io::environment::Clock;
use cambium_io::sync::atomic::{AtomicU64, Ordering};

use crate::core::{Core, Maintenance, lock};
use crate::database::Database;
use crate::flush::Copies;
use crate::format::DatabaseHeader;

/// How long background work that failed is put off.
const PUT_OFF: Duration = Duration::from_secs(5);

/// Until when background work that failed is put off.
#[derive(Debug, Default)]
pub(crate) struct PutOff(AtomicU64);

impl PutOff {
    /// The work has failed just now.
    pub fn begin(&self, clock: &dyn Clock) {
        let until = (clock.monotonic() + PUT_OFF).as_nanos() as u64;
        self.0.store(until, Ordering::Relaxed);
    }

    /// True while the background does not try again.
    pub fn lasts(&self, clock: &dyn Clock) -> bool {
        self.0.load(Ordering::Relaxed) > clock.monotonic().as_nanos() as u64
    }
}

impl Core {
    /// Does a bounded piece of background work, for who takes steps by himself.
    pub fn step(self: &Arc<Self>, budget: u64) -> Result<StepOutcome> {
        Ok(match self.background_step(budget)? {
            StepOutcome::Asleep => StepOutcome::Idle,
            outcome => outcome,
        })
    }

    /// The same for a task that is notified: asleep where work is announced; none where a
    /// close came before.
    pub fn background_step(self: &Arc<Self>, budget: u64) -> Result<StepOutcome> {
        match self.step_while_open(budget) {
            Err(Error::Closed) => Ok(StepOutcome::Done),
            other => other,
        }
    }

    fn step_while_open(self: &Arc<Self>, budget: u64) -> Result<StepOutcome> {
        if self.health.is_closed() {
            return Ok(StepOutcome::Done);
        }
        if self.check_sound().is_err() {
            return Ok(StepOutcome::Idle);
        }
        let clock = &*self.environment.clock;
        if self.flush_due.load(Ordering::Acquire) && !self.flush_put_off.lasts(clock) {
            if self.environment.is_background_ahead() {
                return Ok(StepOutcome::WaitIo);
            }
            let mut maintenance = lock(&self.maintenance);
            self.health.check_open()?;
            self.relieve(&mut maintenance)?;
            return Ok(StepOutcome::Again);
        }
        if self.history.is_due(clock) {
            // A close waits for it: afterwards the files may be somebody else's.
            let _maintenance = lock(&self.maintenance);
            self.health.check_open()?;
            self.give_history_back()?;
            return Ok(StepOutcome::Again);
        }
        self.compaction_step(budget)
    }

    /// Closes the store: the last flush and header, the clean mark, the lock.
    pub fn close(&self) -> Result<()> {
        let Some(_closing) = self.health.close() else {
            return Ok(());
        };
        self.cancellations.fetch_add(1, Ordering::AcqRel);
        self.notify_background();
        // Held until the lock is given back: a step that has begun comes to its end before,
        // and none writes to what may be somebody else's afterwards.
        let mut running = lock(&self.compaction);
        self.abandon(running.take());
        self.kept.forget();
        let result = {
            let mut maintenance = lock(&self.maintenance);
            match self.health.failure() {
                // The content of the device is unknown, so the close writes no clean mark.
                Some(original) => Err(Error::poisoned_by(original)),
                None if !self.session_begun.load(Ordering::Acquire) => Ok(()),
                None => self.close_cleanly(&mut maintenance),
            }
        };
        // A consumer that is being moved is in the folder before another process is.
        drop(lock(&self.history.consumers));
        if let Some(plan) = self.memory.get() {
            plan.give_back();
        }
        lock(&self.lock).take();
        drop(running);
        result
    }

    /// Where the next opening goes on: over the mark of the last sync, which is not
    /// synced itself. Were it lost, what is written after it would lie after a
    /// hole, and a recovery would not find it.
    fn synced_end(&self, database: &Database) -> u64 {
        let end = database.log.end();
        match lock(&self.writer).mark {
            Some(mark) if mark.file == database.file.number && mark.end == end => mark.start,
            _ => end,
        }
    }

    fn close_cleanly(&self, maintenance: &mut Maintenance) -> Result<()> {
        // Twice: the first may have been a flush that had failed before.
        for _ in 0..2 {
            self.flush_locked(maintenance)?;
        }
        let view = self.view.load_full();
        let (sequence, session) = {
            let writer = lock(&self.writer);
            (writer.next_sequence - 1, writer.session)
        };
        self.flush_log(&view.database.log)?;
        if maintenance.header.sequence != sequence {
            let header = DatabaseHeader {
                sequence,
                replay_from: view.database.log.end(),
                replay_session: session,
                ..maintenance.header.clone()
            };
            self.sync_through(&view.database, sequence)?;
            let (database, roots) = (&view.database, &view.roots);
            self.publish(maintenance, database, header, roots, Copies::One)?;
        }
        if self.cleaning.unfinished.load(Ordering::Relaxed) {
            self.sync_log(&view.database)?;
        }
        let before = maintenance.root;
        maintenance.root.clean = true;
        maintenance.root.end = self.synced_end(&view.database);
        // The clean mark goes to both copies: an older one would be replayed
        // from an offset that the next session has passed.
        maintenance.write_root_twice().map_err(|error| {
            maintenance.root = before;
            self.health.unless_full(error)
        })
    }
}
