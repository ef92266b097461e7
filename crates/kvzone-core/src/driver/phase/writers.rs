//! Threads that write while those that count read (see
//! [`Writers`]).
//!
//! They draw from streams of their own, so what the readers are asked does not
//! depend on them, and end when the readers do. What they wrote counts for the
//! bytes of the phase, and stands in `extra`: `writers_operations`,
//! `writers_ops_per_second`, `writers_calls`, `writers_latency_ns` (of a call:
//! from the intended start in an open loop), `writers_overdue` (due, and not
//! issued in the end).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde_json::json;

use super::super::issuer::{Issue, Issued, Issuer, Schedule};
use super::super::recorder::{Recorder, merge};
use super::super::result::PhaseResult;
use super::super::stream::{Stream, StreamPlan};
use super::{Signals, Work};
use crate::adapter::OpenStore;
use crate::error::{Error, Result};
use crate::job::{Popularity, Writers};
use crate::random::mix_two;
use crate::record::Phase;
use crate::workload::OperationKind;

/// Tells their streams from those of the phase's other threads.
const WRITERS: u64 = 0x7772_6974;

/// All that they do.
const MIX: &[(OperationKind, u32)] = &[(OperationKind::Update, 100)];

impl Work<'_> {
    /// The writers of this phase, if it has some.
    pub(super) fn accompanied(&self) -> Option<Writers> {
        self.load.writers.filter(|_| self.phase == Phase::Run)
    }

    pub(super) fn writers<'b>(
        &'b self,
        store: &Arc<dyn OpenStore>,
        signals: &'b Signals,
        progress: &'b AtomicU64,
    ) -> Result<Vec<Issuer<'b>>> {
        let Some(writers) = self.accompanied() else {
            return Ok(Vec::new());
        };
        let thread = |thread: u32| {
            let thread = u64::from(thread);
            let plan = StreamPlan {
                keys: &self.plan.keys,
                mix: MIX,
                popularity: Popularity::Uniform,
                seed: self.load.seed,
                threads: u64::from(writers.threads),
                operations: None,
                span: 1,
                scans: self.plan.scans,
                missing: 0,
                lifetime: None,
            };
            let purpose = mix_two(WRITERS, thread);
            let issue = Issue {
                schedule: writers.rate.map(|rate| Schedule {
                    first: thread as f64 * 1e9 / rate,
                    interval: f64::from(writers.threads) * 1e9 / rate,
                }),
                batch: self.batch(),
                enough: Some(&signals.enough),
                ..self.issue(signals, progress, purpose)
            };
            let recorder = Recorder::new(&[OperationKind::Update], writers.rate.is_some())?;
            let session = store.clone().session()?;
            let stream = Stream::new(plan, WRITERS, thread);
            Ok(Issuer::new(
                issue,
                session,
                stream,
                self.witness(),
                recorder,
            ))
        };
        (0..writers.threads).map(thread).collect()
    }
}

/// Puts what the writers did into the result of the readers.
pub(super) fn add(
    result: &mut PhaseResult,
    store: &'static str,
    writers: Writers,
    threads: Vec<Option<Issued>>,
) -> Result<()> {
    let mut recorders = Vec::new();
    let (mut overdue, mut ended) = (0, 0);
    for thread in threads {
        let Some(thread) = thread else {
            let words = "a writing thread of the load generator panicked inside a call";
            let failure = || Error::store(store, "session", words);
            result.failure.get_or_insert_with(failure);
            continue;
        };
        result.user_bytes_written += thread.bytes_written;
        overdue += thread.overdue;
        ended = ended.max(thread.ended);
        recorders.push(thread.recorder);
        result.failure = result.failure.take().or(thread.failure);
    }
    let merged = merge(recorders)?;
    let seconds = ended as f64 / 1e9;
    let rate = if ended > 0 {
        merged.operations as f64 / seconds
    } else {
        0.0
    };
    let calls: u64 = merged.calls.values().sum();
    let extra = [
        ("threads", json!(writers.threads)),
        ("target_rate", json!(writers.rate)),
        ("operations", json!(merged.operations)),
        ("ops_per_second", json!(rate)),
        ("calls", json!(calls)),
        ("latency_ns", json!(merged.latency)),
        ("overdue", json!(overdue)),
    ];
    for (name, value) in extra {
        result.extra.insert(format!("writers_{name}"), value);
    }
    Ok(())
}
