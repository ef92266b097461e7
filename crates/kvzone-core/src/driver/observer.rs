//! What the driver tells, and asks, of whoever called it.
//!
//! The driver knows operations and their times. What a process costs (its CPU
//! time, its device bytes, its memory, the space of its files) is counted by
//! the caller, at the moments that an [`Observer`] is called:
//!
//! ```text
//!  open ─▶ phase_starts(load) ─ operations ─▶ work_ended ─ sync, settle ─▶ phase_ended
//!       ─▶ (phase_starts(compact) ─ compaction ─▶ work_ended ─ settle ─▶ phase_ended)
//!       ─▶ (close ─▶ store_closed ─▶ open, where the job is cold)
//!       ─▶ phase_starts(run)  ─ operations ─▶ work_ended ─ sync, settle ─▶ phase_ended
//!       ─▶ close ─▶ (store_closed where the job is cold ─▶ phase_starts(reopen) ─▶ open
//!       ─▶ work_ended ─▶ phase_ended ─▶ close)
//!  or, where it is opened after a kill, in place of the last close
//!       ─▶ last_writes ─ operations ─▶ kill, and in another process
//!       ─▶ phase_starts(reopen) ─▶ open ─▶ work_ended ─ reads ─▶ phase_ended ─▶ close
//! ```

use std::sync::Arc;

use crate::adapter::OpenStore;
use crate::driver::PhaseResult;
use crate::error::Result;
use crate::record::Phase;

/// Called between the parts of a job. Every method may be left as it is. An
/// error ends the job.
pub trait Observer: Sync {
    /// The store is open, nothing of the phase was issued: mark counters here.
    /// (Of a reopen: the store is closed, and is opened next.)
    fn phase_starts(&self, phase: Phase) -> Result<()> {
        let _ = phase;
        Ok(())
    }

    /// A store was opened; the job uses what is answered.
    fn opened(&self, store: Arc<dyn OpenStore>) -> Arc<dyn OpenStore> {
        store
    }

    /// Operations that ended so far in this phase: about ten times a second
    /// while operations are issued, from the thread that called the driver.
    fn progress(&self, phase: Phase, operations: u64) {
        let _ = (phase, operations);
    }

    /// Operations have ended; work that the store put off has not been waited
    /// for: take counters of the foreground here.
    fn work_ended(&self, phase: Phase) -> Result<()> {
        let _ = phase;
        Ok(())
    }

    /// The store is still open, synced and settled: take counters with the
    /// background's debt, and space, here. Also called of a phase that failed.
    fn phase_ended(&self, result: &PhaseResult) -> Result<()> {
        let _ = result;
        Ok(())
    }

    /// The store is written to from here on until [`Observer::kill`].
    fn last_writes(&self) -> Result<()> {
        Ok(())
    }

    /// The moment to end this process, while it writes. One that returns has the
    /// writes ended and the store dropped in its place.
    fn kill(&self) {}

    /// The store is closed, before a cold phase: drop caches here.
    fn store_closed(&self) -> Result<()> {
        Ok(())
    }
}

impl Observer for () {}
