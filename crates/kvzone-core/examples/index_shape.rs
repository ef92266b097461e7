//! Prints live index space and node reads of every index structure for every key
//! pattern of ForestDB 2016, table 2.
//!
//! ```text
//! cargo run --release -p kvzone-core --example index_shape [KEYS [PATTERN [SEED [BATCH]]]]
//! ```
//!
//! A million keys by default. PATTERN is a part of a pattern's name.

use kvzone_core::index_shape::{Experiment, STRUCTURES, build};
use kvzone_core::key_patterns::KeyPattern;

const PATTERNS: [KeyPattern; 9] = [
    KeyPattern::Random(8),
    KeyPattern::Random(16),
    KeyPattern::Random(32),
    KeyPattern::Random(64),
    KeyPattern::Random(128),
    KeyPattern::Random(256),
    KeyPattern::Worst,
    KeyPattern::Small,
    KeyPattern::TwoLevel,
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let keys = arguments
        .next()
        .map_or(Ok(1_000_000), |text| text.parse())?;
    let wanted = arguments.next().unwrap_or_default();
    let seed = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let batch = arguments.next().map_or(Ok(4096), |text| text.parse())?;
    println!("{keys} keys, nodes of 4,096 bytes, chunks of 8, batches of {batch} in random order");
    println!(
        "{:<12} {:<24} {:>10} {:>10} {:>6} {:>6} {:>8} {:>8} {:>8}",
        "pattern", "index", "MiB", "bytes/key", "reads", "height", "tries", "leaves", "written"
    );
    for pattern in PATTERNS {
        if !pattern.to_string().contains(&wanted) {
            continue;
        }
        for (name, shape) in STRUCTURES {
            let made = build(&Experiment {
                pattern,
                keys,
                shape,
                node_bytes: 4096,
                chunk_bytes: 8,
                batch,
                seed,
            })?;
            println!(
                "{:<12} {:<24} {:>10.2} {:>10.2} {:>6.3} {:>6} {:>8} {:>8} {:>8.2}",
                pattern.to_string(),
                name,
                made.bytes as f64 / f64::from(1 << 20),
                made.bytes as f64 / keys as f64,
                made.node_reads,
                made.height,
                made.trees.0,
                made.trees.1,
                made.nodes_written,
            );
        }
    }
    Ok(())
}
