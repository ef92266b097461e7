//! What the driver measured of one phase.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::issuer::Issued;
use super::recorder::{Merged, merge};
use crate::error::{Error, Result};
use crate::random::mix_two;
use crate::record::{LatencySummary, Phase, TimelinePoint};

/// One phase: its part of a [`crate::record::Run`]. What a process costs is
/// not here; the caller counts it (see [`crate::driver::Observer`]).
#[derive(Clone, Debug, Default)]
pub struct PhaseResult {
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
    pub fn empty(phase: Phase) -> Self {
        PhaseResult {
            phase,
            ..PhaseResult::default()
        }
    }

    /// Puts a further figure beside the others.
    pub fn tell(&mut self, name: &str, value: impl Serialize) {
        self.extra.insert(name.to_string(), json!(value));
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

#[derive(Debug)]
pub struct Together {
    pub merged: Merged,
    /// Hash of what their reads returned.
    pub hash: u64,
    pub verified: u64,
    pub scanned: u64,
    /// Keys inserted after the load, and their bytes.
    pub inserted: (u64, u64),
    /// Operations that were due and not issued; of a replay, the time behind.
    pub overdue: u64,
    /// The most of one thread.
    pub most_overdue: u64,
    /// Its time and bytes, and what was issued.
    pub result: PhaseResult,
}

impl Together {
    /// The result of a phase's threads; one that panicked is a failure of the store.
    pub fn of(phase: Phase, store: &'static str, threads: Vec<Option<Issued>>) -> Result<Self> {
        let words = "a thread of the load generator panicked inside a call";
        let panicked = threads.iter().any(Option::is_none);
        let mut failure = panicked.then(|| Error::store(store, "session", words));
        let whole: Vec<Issued> = threads.into_iter().flatten().collect();
        let sum = |of: fn(&Issued) -> u64| whole.iter().map(of).sum::<u64>();
        let most = |of: fn(&Issued) -> u64| whole.iter().map(of).max().unwrap_or(0);
        let (hash, verified) = (
            whole.iter().fold(0, |hash, it| mix_two(hash, it.hash)),
            sum(|it| it.verified),
        );
        let (scanned, inserted) = (
            sum(|it| it.scanned),
            (sum(|it| it.inserted), sum(|it| it.inserted_bytes)),
        );
        let (overdue, most_overdue) = (sum(|it| it.overdue), most(|it| it.overdue));
        let bytes = (sum(|it| it.bytes_written), sum(|it| it.bytes_read));
        let ended = most(|it| it.ended);
        let issued = whole.iter().map(|it| it.recorder.operations()).collect();
        let mut recorders = Vec::new();
        for thread in whole {
            failure = failure.or(thread.failure);
            recorders.push(thread.recorder);
        }
        let merged = merge(recorders)?;
        let mut result = PhaseResult {
            operations: merged.operations,
            seconds: ended as f64 / 1e9,
            user_bytes_written: bytes.0,
            user_bytes_read: bytes.1,
            latency: merged.latency,
            native_latency: merged.native_latency,
            timeline: merged.timeline.clone(),
            issued,
            failure,
            ..PhaseResult::empty(phase)
        };
        merged.tell(&mut result);
        Ok(Together {
            hash,
            verified,
            scanned,
            inserted,
            overdue,
            most_overdue,
            result,
            merged,
        })
    }
}
