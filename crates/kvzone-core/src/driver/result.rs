//! What the driver measured of one phase.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::Error;
use crate::record::{LatencySummary, Phase, TimelinePoint};

/// One phase: its part of a [`crate::record::Run`]. What a process costs is
/// not here; the caller counts it (see [`crate::driver::Observer`]).
#[derive(Clone, Debug, Default)]
pub struct PhaseResult {
    /// Which part of the job.
    pub phase: Phase,
    /// Operations done: an entry of a batch, or one that `read-sequential`
    /// visits, is one; a scan of YCSB and a read-modify-write are one each.
    pub operations: u64,
    /// From the first start to the last end of an operation.
    pub seconds: f64,
    /// Bytes of keys and values that were put, and of keys deleted.
    pub user_bytes_written: u64,
    /// Bytes of keys asked for and of values (and scanned keys) returned.
    pub user_bytes_read: u64,
    /// Bytes of keys and values that the store should hold at the end.
    pub live_user_bytes: u64,
    /// Entries that the store should hold at the end.
    pub live_keys: u64,
    /// A sample a call (a batch is one call): from the intended start in an
    /// open loop, else from the call. None where nothing was called.
    pub latency: Option<LatencySummary>,
    /// A sample a call, from the call.
    pub native_latency: Option<LatencySummary>,
    /// Over what reads returned, as 16 hexadecimal digits; see
    /// [`crate::driver`] for when there is one.
    pub result_hash: Option<String>,
    /// A point a second.
    pub timeline: Vec<TimelinePoint>,
    /// Further figures: `batch`, `popularity`, `access` (how `read-sequential`
    /// reads: `scan` or `get`), `reads_verified`, `operations_overdue` (of an
    /// open loop: due, and not issued when time was up), calls and latencies of
    /// each kind of operation, `sync_seconds` and `settle_seconds` (the debt),
    /// `open_seconds`, `close_seconds` (of the last phase before a reopen, known
    /// after [`crate::driver::Observer::phase_ended`]), and the store's own
    /// counters.
    pub extra: BTreeMap<String, Value>,
    /// Operations of each thread that counts.
    pub issued: Vec<u64>,
    /// Why the phase, and the job with it, ended early; the figures above are
    /// of what was done before.
    pub failure: Option<Error>,
}

impl PhaseResult {
    /// Of a phase in which nothing was done.
    pub fn empty(phase: Phase) -> Self {
        PhaseResult {
            phase,
            ..PhaseResult::default()
        }
    }

    /// Foreground operations a second; 0 where nothing was done.
    pub fn operations_per_second(&self) -> f64 {
        if self.seconds > 0.0 {
            self.operations as f64 / self.seconds
        } else {
            0.0
        }
    }
}
