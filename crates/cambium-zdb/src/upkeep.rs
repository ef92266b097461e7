//! Background steps, bounds of the tables, the size of ranges, and the close of a store.

use cambium_base::{Error, Result};
use cambium_io::StepOutcome;
use cambium_io::sync::atomic::Ordering;

use crate::core::{Core, lock};
use crate::table::Table;

impl Core {
    /// Does a bounded piece of background work; none where a close came before.
    pub fn step(&self, budget: u64) -> Result<StepOutcome> {
        match self.step_while_open(budget) {
            Err(Error::Closed) => Ok(StepOutcome::Done),
            other => other,
        }
    }

    fn step_while_open(&self, budget: u64) -> Result<StepOutcome> {
        if self.health.is_closed() {
            return Ok(StepOutcome::Done);
        }
        if self.health.check_sound().is_err() {
            return Ok(StepOutcome::Idle);
        }
        if self.environment.is_background_ahead() {
            return Ok(StepOutcome::WaitIo);
        }
        if self.checkpoint_if_due()? {
            self.close_tables_beyond_limit();
            return Ok(StepOutcome::Again);
        }
        self.compaction_step(budget)
    }

    /// Some bound was passed: wakes the background, or does the work here
    /// where there is none.
    pub fn on_checkpoint_due(&self) {
        if self.environment.executor.runs_tasks() {
            let written = lock(&self.writer).bytes_since_checkpoint;
            // Backpressure: a writer far ahead of the background does the checkpoint
            // itself. Tables that were changed stay open until then, with their files.
            if written <= self.tuning.checkpoint_bytes.saturating_mul(4)
                && self.excess_tables() <= self.tuning.open_tables / 4
            {
                self.notify_background();
                return;
            }
        }
        self.environment
            .wait_for_background(&|| self.health.is_closed());
        // What fails here has poisoned the store or will be tried again; the
        // write itself has succeeded.
        if self.checkpoint_if_due().is_ok() {
            self.close_tables_beyond_limit();
        }
    }

    /// Refuses keys that would make a store of nearly empty tables.
    pub fn check_density(&self, key: u64) -> Result<()> {
        let tables = self.table_numbers().len();
        if tables >= self.tuning.max_tables {
            return Err(Error::LimitExceeded(format!(
                "key {key} needs one more flat table, and the store has {tables}, the most allowed; raise the option max_tables, or keys_per_table of a new store"
            )));
        }
        if tables < self.tuning.sparse_tables {
            return Ok(());
        }
        let sparse = self
            .open_tables()
            .iter()
            .filter(|table| {
                let live: u64 = table
                    .current_files()
                    .iter()
                    .map(|file| file.live.load(Ordering::Relaxed))
                    .sum();
                live < table.slot_count() / 100 + 1
            })
            .count();
        if sparse < self.tuning.sparse_tables {
            return Ok(());
        }
        Err(Error::LimitExceeded(format!(
            "key {key} is far from the others: it needs flat table {} of {} slots ({} bytes of index), and {sparse} of {tables} tables are nearly empty; zdb suits dense integer keys. For random 64-bit keys create a store with keys=string, or raise the option sparse_tables if the tables will fill",
            self.table_number(key),
            self.shape.keys_per_table,
            self.shape.keys_per_table * self.shape.slots.bytes() as u64,
        )))
    }

    /// About how many bytes the entries of a range take.
    pub fn approximate_bytes(&self, bounds: Option<(u64, u64)>) -> Result<u64> {
        let Some((first, last)) = bounds else {
            return Ok(0);
        };
        let mut bytes = 0.0;
        for number in self.table_numbers() {
            let Some(table) = self.table(number)? else {
                continue;
            };
            let table_last = table.first_key.saturating_add(table.slot_count() - 1);
            if table.first_key > last || table_last < first {
                continue;
            }
            let share = match first <= table.first_key && table_last <= last {
                true => 1.0,
                false => self.share_of_entries(&table, (first, last))?,
            };
            for file in table.current_files() {
                let entries = file.entries.load(Ordering::Relaxed).max(1) as f64;
                let live = file.live.load(Ordering::Relaxed) as f64;
                let used = file.log.end() - file.log.geometry().first_offset;
                bytes += used as f64 * live / entries * share;
            }
        }
        Ok(bytes as u64)
    }

    /// The share of a table's entries that lies in a range of keys. Reads their slots alone.
    fn share_of_entries(&self, table: &Table, (first, last): (u64, u64)) -> Result<f64> {
        let mut inside = 0;
        for (piece, slots) in table.pieces_within(first, last) {
            if table.piece(piece).may_have_entries() {
                table.load_piece(piece)?;
                inside += table.piece(piece).live(slots, 1).count();
            }
        }
        let files = table.current_files();
        let live = files.iter().map(|file| file.live.load(Ordering::Relaxed));
        Ok((inside as f64 / live.sum::<u64>().max(1) as f64).min(1.0))
    }

    /// Closes the store: the last checkpoint and the clean mark, where it was opened to be
    /// written, and the lock.
    pub fn close(&self) -> Result<()> {
        let Some(_closing) = self.health.close() else {
            return Ok(());
        };
        self.cancelled.store(true, Ordering::Release);
        self.notify_background();
        // Held until the lock is given back: a step that has begun comes to its end before,
        // and none writes to what may be somebody else's afterwards.
        let mut compaction = lock(&self.compaction);
        if let Some(begun) = compaction.take() {
            self.abandon(begun);
        }
        let result = {
            let mut maintenance = lock(&self.maintenance);
            match self.health.failure() {
                // Write no clean mark: the state of the device is unknown. Wait for the
                // group that is being written.
                Some(original) => {
                    drop(lock(&self.writer));
                    Err(Error::poisoned_by(original))
                }
                None if self.health.is_of_reader() => Ok(()),
                None => self.checkpoint_locked(&mut maintenance, true),
            }
        };
        if let Some(plan) = self.memory.get() {
            plan.give_back();
        }
        lock(&self.lock).take();
        drop(compaction);
        result
    }
}
