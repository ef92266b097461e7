//! How cleaning slows writers, so that the file does not outgrow what it is held to.
//!
//! A flush with a cleaning takes some time, in which it gives back some bytes and writers
//! add others: documents, and the nodes of later flushes. Writers are slowed once the file
//! is larger than `compaction_threshold` allows: then they may add as much as cleaning
//! gives back, and less the larger the file is.

use std::time::Duration;

use cambium_io::sync::Mutex;

use crate::core::{Core, lock};
use crate::format::DatabaseHeader;
use crate::view::View;

/// Writers may add as much as cleaning gives back while the file has the size that the
/// threshold allows. The share changes by so much for each part by which the file is larger or
/// smaller, and is never below the least one.
const STEEPNESS: f64 = 2.0;
const LEAST_SHARE: f64 = 0.25;
/// Writers that may add so much more are not slowed.
const FREE_SHARE: f64 = 1.5;
/// Rates are those of about so many flushes.
const FLUSHES: f64 = 4.0;

/// Sums over recent flushes; each flush reduces the older ones by a part.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<Recent>);

#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    seconds: f64,
    /// Bytes of the log that were given back and not written anew.
    reclaimed: f64,
    /// Bytes that writers had added.
    logged: f64,
    /// Bytes of nodes.
    nodes: f64,
}

impl Recent {
    /// Bytes a second that writers may add where all of it is to be given back.
    fn sustained(&self) -> f64 {
        let of_log = self.logged / (self.logged + self.nodes).max(1.0);
        self.reclaimed / self.seconds.max(1e-3) * of_log
    }
}

/// The work of one flush: its duration, the bytes that writers had logged, and those of nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flushed {
    pub time: Duration,
    pub logged: u64,
    pub nodes: u64,
}

impl Rates {
    fn note(&self, flushed: &Flushed, reclaimed: u64) -> Recent {
        let mut recent = lock(&self.0);
        let rest = 1.0 - 1.0 / FLUSHES;
        *recent = Recent {
            seconds: recent.seconds * rest + flushed.time.as_secs_f64(),
            reclaimed: recent.reclaimed * rest + reclaimed as f64,
            logged: recent.logged * rest + flushed.logged as f64,
            nodes: recent.nodes * rest + flushed.nodes as f64,
        };
        *recent
    }
}

impl Core {
    /// Slows writers as far as the file has outgrown what it may have, or lets them go.
    pub(super) fn pace_cleaning(
        &self,
        header: &DatabaseHeader,
        view: &View,
        (flushed, reclaimed): (&Flushed, u64),
    ) {
        let recent = self.cleaning.rates.note(flushed, reclaimed);
        if !self.environment.executor.runs_tasks() || !self.cleans(header) {
            return;
        }
        let tuning = &self.tuning.compaction;
        let used = view.database.log.used_bytes();
        let allowed = self.live_bytes(view) / (100 - tuning.threshold).max(1) * 100;
        let share = 1.0 + STEEPNESS * (1.0 - used as f64 / allowed.max(1) as f64);
        if share > FREE_SHARE || used < 2 * tuning.least_bytes || recent.reclaimed < 1.0 {
            return self.release_writers();
        }
        let share = share.max(LEAST_SHARE);
        self.hold_writers_at((recent.sustained() * share) as u64);
    }
}
