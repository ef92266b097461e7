//! What the harness itself costs: operations a second of the `null` store, and
//! of `memory` beside it.
//!
//! ```text
//! cargo run --release -p kvzone-core --example calibrate [operations]
//! ```
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use kvzone_core::adapter::{Adapter, DurabilityName, Profile};
use kvzone_core::calibration::{Memory, Null};
use kvzone_core::driver::{PhaseResult, run_job};
use kvzone_core::job::{Job, Load, SizeChoice, Until};

fn main() {
    let operations = std::env::args()
        .nth(1)
        .map_or(10_000_000, |text| text.parse().unwrap());
    println!("16-byte keys, 100-byte values, 1 thread, {operations} operations");
    for adapter in [&Null as &dyn Adapter, &Memory] {
        for workload in [
            "fill-sequential",
            "fill-random",
            "overwrite",
            "read-random",
            "read-sequential",
            "ycsb-a",
            "ycsb-c",
        ] {
            report(
                adapter.name(),
                workload,
                &measure(adapter, workload, operations),
            );
        }
    }
}

fn measure(adapter: &dyn Adapter, workload: &str, operations: u64) -> PhaseResult {
    let fills = workload.starts_with("fill");
    let folder = tempfile::tempdir().unwrap();
    let job = Job {
        store: adapter.name().to_string(),
        repeat: 0,
        folder: folder.path().to_path_buf(),
        durability: DurabilityName::Written,
        cache_bytes: 64 << 20,
        memory_limit_bytes: None,
        profile: Profile::Equal,
        overrides: BTreeMap::new(),
        cold: false,
        reopen: false,
        load: Load {
            workload: workload.to_string(),
            seed: 1,
            keys: if fills {
                operations.min(4_000_000)
            } else {
                1_000_000
            },
            key_bytes: SizeChoice::Fixed(16),
            value_bytes: SizeChoice::Fixed(100),
            until: Until::Operations(operations),
            threads: 1,
            batch: 1,
            rate: None,
            popularity: None,
            verify_every: 100,
            compressible: 0.5,
        },
    };
    run_job(adapter, &job, &()).unwrap().pop().unwrap()
}

fn report(store: &str, workload: &str, phase: &PhaseResult) {
    assert!(phase.failure.is_none(), "{:?}", phase.failure);
    let latency = phase.latency.unwrap();
    println!(
        "{store:8} {workload:16} {:6.2} M/s, {:4.0} ns each; latency p50 {} p99 {} p999 {} ns",
        phase.operations_per_second() / 1e6,
        1e9 / phase.operations_per_second(),
        latency.p50,
        latency.p99,
        latency.p999,
    );
}
