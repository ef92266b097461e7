//! What is counted while a store is open.

use cambium_api::CompactReport;
use cambium_io::sync::Mutex;
use cambium_io::sync::atomic::{AtomicU64, Ordering};

use crate::core::lock;
use crate::format::Traffic;

/// Counted since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// What earlier openings wrote, as far as a header says.
    pub before: Traffic,
    pub user_bytes: AtomicU64,
    pub log_bytes: AtomicU64,
    pub node_bytes: AtomicU64,
    pub header_bytes: AtomicU64,
    pub compaction_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub gets: AtomicU64,
    /// Lookups of keys whose addresses were known.
    pub by_address: cambium_io::counter::StripedCounter,
    pub syncs: AtomicU64,
    pub flushes: AtomicU64,
    /// Attempts that failed, and why the last did.
    pub failed_flushes: AtomicU64,
    pub last_failed_flush: Mutex<Option<String>>,
    /// Buffers that went into the sorted run.
    pub packs: AtomicU64,
    pub compactions: AtomicU64,
    pub cleanings: AtomicU64,
    /// Those that the background began or wanted to, and that failed; and why the last did.
    pub failed_compactions: AtomicU64,
    pub last_failure: Mutex<Option<String>>,
    /// Writes that were held back for a compaction, and for how long in all.
    pub delays: AtomicU64,
    pub delayed_nanoseconds: AtomicU64,
    /// Of the last compaction.
    pub last_compaction: Mutex<Option<CompactReport>>,
    pub stalls: AtomicU64,
    pub node_reads: AtomicU64,
    pub document_reads: AtomicU64,
    /// Writes that recovery found in the log.
    pub replayed: AtomicU64,
}

impl Counters {
    /// Bytes written since the store was made.
    pub fn traffic(&self) -> Traffic {
        self.before.plus(&Traffic {
            user: of(&self.user_bytes),
            log: of(&self.log_bytes),
            nodes: of(&self.node_bytes),
            headers: of(&self.header_bytes),
            compaction: of(&self.compaction_bytes),
        })
    }

    /// A compaction is done.
    pub fn note_compaction(&self, report: &CompactReport) {
        *lock(&self.last_compaction) = Some(report.clone());
    }
}

pub(crate) fn of(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
