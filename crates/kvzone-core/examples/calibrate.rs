//! What the harness itself costs: operations a second of the `null` store, and
//! of `memory` beside it. On a shared machine, look at the processor time.
//!
//! ```text
//! cargo run --release -p kvzone-core --example calibrate [operations [store [workload]]]
//! ```
#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use kvzone_core::adapter::Adapter;
use kvzone_core::calibration::{Memory, Null};
use kvzone_core::driver::{Observer, PhaseResult, run_job};
use kvzone_core::error::Result;
use kvzone_core::job::{Job, Load, Until};
use kvzone_core::record::Phase;

const WORKLOADS: [&str; 7] = [
    "fill-sequential",
    "fill-random",
    "overwrite",
    "read-random",
    "read-sequential",
    "ycsb-a",
    "ycsb-c",
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let operations = arguments
        .first()
        .map_or(10_000_000, |text| text.parse().unwrap());
    let chosen = |at: usize, name: &str| arguments.get(at).is_none_or(|only| only == name);
    println!("16-byte keys, 100-byte values, 1 thread, {operations} operations");
    for adapter in [&Null as &dyn Adapter, &Memory] {
        for workload in WORKLOADS {
            if chosen(1, adapter.name()) && chosen(2, workload) {
                let (phase, cpu) = measure(adapter, workload, operations);
                report(adapter.name(), workload, &phase, cpu);
            }
        }
    }
}

fn measure(adapter: &dyn Adapter, workload: &str, operations: u64) -> (PhaseResult, f64) {
    let fills = workload.starts_with("fill");
    let folder = tempfile::tempdir().unwrap();
    let load = Load {
        workload: workload.to_string(),
        keys: if fills {
            operations.min(4_000_000)
        } else {
            1_000_000
        },
        until: Until::Operations(operations),
        verify_every: 100,
        ..Load::default()
    };
    let job = Job {
        budget_bytes: 64 << 20,
        ..Job::new(adapter.name(), folder.path(), load)
    };
    let processor = Processor::default();
    let phase = run_job(adapter, &job, &processor).unwrap().pop().unwrap();
    (phase, processor.spent.into_inner().unwrap())
}

/// Processor seconds of the last phase's operations.
#[derive(Default)]
struct Processor {
    before: Mutex<f64>,
    spent: Mutex<f64>,
}

impl Observer for Processor {
    fn phase_starts(&self, _phase: Phase) -> Result<()> {
        *self.before.lock().unwrap() = processor_seconds();
        Ok(())
    }

    fn work_ended(&self, _phase: Phase) -> Result<()> {
        *self.spent.lock().unwrap() = processor_seconds() - *self.before.lock().unwrap();
        Ok(())
    }
}

/// User and system time of this process: fields 14 and 15 of its `stat`, in
/// hundredths of a second.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let fields = after_name.split_whitespace().skip(11).take(2);
    fields
        .map(|ticks| ticks.parse::<f64>().unwrap() / 100.0)
        .sum()
}

fn report(store: &str, workload: &str, phase: &PhaseResult, cpu: f64) {
    assert!(phase.failure.is_none(), "{:?}", phase.failure);
    let latency = phase.latency.unwrap();
    println!(
        "{store:8} {workload:16} {:6.2} M/s, {:4.0} ns each, {:4.0} ns CPU; latency p50 {} p99 {} p999 {} ns",
        phase.operations_per_second() / 1e6,
        1e9 / phase.operations_per_second(),
        cpu * 1e9 / phase.operations as f64,
        latency.p50,
        latency.p99,
        latency.p999,
    );
}
