//! How many simulated crash states a second are looked at: one image taken,
//! recovered, compared with the oracle, written to and reopened
//! (`docs/benchmarks.md`).
//!
//! ```text
//! cargo run --release -p cambium-forest --example crash_states -- [STATES]
//! ```

use std::time::Instant;

use cambium_forest::Forest;
use cambium_testkit::CrashSuite;

fn main() {
    let argument = std::env::args().nth(1);
    let states = argument
        .and_then(|text| text.parse().ok())
        .unwrap_or(50_000);
    let suite = CrashSuite::new(&Forest, "cambium-forest", "crash_states")
        .creation("node_bytes", "512")
        .creation("block_bytes", "512")
        .opening("write_buffer_entries", "4")
        .opening("preallocate_bytes", "4096")
        .opening("compaction_least_bytes", "8192")
        .states(states);
    let started = Instant::now();
    let looked_at = suite.run().states();
    let rate = looked_at as f64 / started.elapsed().as_secs_f64();
    println!("{looked_at} crash states, {rate:.0} a second on one core");
}
