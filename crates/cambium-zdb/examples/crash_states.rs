//! How many simulated crash states a second are looked at: one image taken,
//! recovered, compared with the oracle, written to and reopened
//! (`docs/benchmarks.md`).
//!
//! ```text
//! cargo run --release -p cambium-zdb --example crash_states -- [STATES]
//! ```

use std::time::Instant;

use cambium_testkit::CrashSuite;
use cambium_zdb::Zdb;

fn main() {
    let argument = std::env::args().nth(1);
    let states = argument
        .and_then(|text| text.parse().ok())
        .unwrap_or(50_000);
    for keys in ["integer", "string"] {
        let suite = CrashSuite::new(&Zdb, "cambium-zdb", "crash_states")
            .creation("keys", keys)
            .creation("keys_per_table", "64")
            .creation("piece_bytes", "256")
            .creation("block_bytes", "256")
            .creation("data_files", "3")
            .creation("commit_log_bytes", "2048")
            .creation("buckets", "4")
            .opening("sparse_tables", "1000")
            .opening("compaction_least_bytes", "0")
            .opening("checkpoint_bytes", "2048")
            .states(states);
        let started = Instant::now();
        let looked_at = suite.run().states();
        let rate = looked_at as f64 / started.elapsed().as_secs_f64();
        println!("{keys} keys: {looked_at} crash states, {rate:.0} a second on one core");
    }
}
