//! Threads that write while those that count read, or the other way round (see
//! [`Beside`]).
//!
//! They draw from streams of their own, so what the others are asked does not
//! depend on them, and end when the others do. What they moved counts for the
//! bytes of the phase, and stands in `extra`: `writers_operations`,
//! `writers_ops_per_second`, `writers_calls`, `writers_latency_ns` (of a call:
//! from the intended start in an open loop), `writers_overdue` (due, and not
//! issued in the end); of readers likewise, beginning with `readers_`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde_json::json;

use super::super::issuer::{Issue, Issued, Issuer, Schedule};
use super::super::recorder::Recorder;
use super::super::result::{PhaseResult, Together};
use super::super::stream::{Stream, StreamPlan};
use super::{Signals, Work};
use crate::adapter::OpenStore;
use crate::error::Result;
use crate::job::{Beside, Popularity, SizeChoice};
use crate::random::mix_two;
use crate::record::Phase;
use crate::workload::OperationKind;

/// Tells their streams from those of the phase's other threads.
const BESIDE: u64 = 0x7772_6974;

const UPDATES: &[(OperationKind, u32)] = &[(OperationKind::Update, 100)];
const READS: &[(OperationKind, u32)] = &[(OperationKind::Read, 100)];

impl Work<'_> {
    pub(super) fn accompanied(&self) -> Option<Beside> {
        self.load.beside.filter(|_| self.phase == Phase::Run)
    }

    pub(super) fn beside<'b>(
        &'b self,
        store: &Arc<dyn OpenStore>,
        signals: &'b Signals,
        progress: &'b AtomicU64,
    ) -> Result<Vec<Issuer<'b>>> {
        let Some(beside) = self.accompanied() else {
            return Ok(Vec::new());
        };
        let thread = |thread: u32| {
            let thread = u64::from(thread);
            let plan = StreamPlan {
                keys: &self.plan.keys,
                mix: match beside.kind {
                    OperationKind::Read => READS,
                    _ => UPDATES,
                },
                popularity: Popularity::Uniform,
                seed: self.load.seed,
                threads: u64::from(beside.threads),
                operations: None,
                span: 1,
                scans: self.plan.scans,
                missing: 0,
                lifetime: None,
            };
            let purpose = mix_two(BESIDE, thread);
            let issue = Issue {
                schedule: beside.rate.map(|rate| Schedule {
                    first: thread as f64 * 1e9 / rate,
                    interval: f64::from(beside.threads) * 1e9 / rate,
                    poisson: None,
                }),
                batch: match beside.kind {
                    OperationKind::Update => self.batch(),
                    _ => SizeChoice::Fixed(1),
                },
                enough: Some(&signals.enough),
                ..self.issue(signals, progress, purpose)
            };
            let recorder = Recorder::new(&[beside.kind], beside.rate.is_some())?;
            let session = store.clone().session()?;
            let stream = Stream::new(plan, BESIDE, thread);
            Ok(Issuer::new(
                issue,
                session,
                stream,
                self.witness(),
                recorder,
            ))
        };
        (0..beside.threads).map(thread).collect()
    }
}

/// Puts what the threads beside did into the result of those that count.
pub(super) fn add(
    result: &mut PhaseResult,
    store: &'static str,
    beside: Beside,
    threads: Vec<Option<Issued>>,
) -> Result<()> {
    let found = Together::of(Phase::Run, store, threads)?;
    result.user_bytes_written += found.result.user_bytes_written;
    result.user_bytes_read += found.result.user_bytes_read;
    result.failure = result.failure.take().or(found.result.failure.clone());
    let calls: u64 = found.merged.calls.values().sum();
    let extra = [
        ("threads", json!(beside.threads)),
        ("target_rate", json!(beside.rate)),
        ("operations", json!(found.result.operations)),
        (
            "ops_per_second",
            json!(found.result.operations_per_second()),
        ),
        ("calls", json!(calls)),
        ("latency_ns", json!(found.result.latency)),
        ("overdue", json!(found.overdue)),
    ];
    let whose = match beside.kind {
        OperationKind::Read => "readers",
        _ => "writers",
    };
    for (name, value) in extra {
        result.tell(&format!("{whose}_{name}"), value);
    }
    Ok(())
}
