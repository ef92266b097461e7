//! A writer of small entries with a follower of its changes, beside the writer alone, in
//! turns: what following costs the writer, and whether the follower keeps up. The follower
//! acknowledges what it has read ten times a second.
//! `cargo run --release --package cambium --example follower_rate -- forest`
#![forbid(unsafe_code)]

use std::path::Path;
use std::time::{Duration, Instant};

use cambium::prelude::*;
use cambium::{Consumer, SequenceNumber};

const PUTS: u64 = 300_000;
const VALUE: [u8; 100] = [7; 100];
const ROUNDS: usize = 5;

/// Puts under keys that look random, and the last one's number.
fn write(store: &Store) -> cambium::Result<SequenceNumber> {
    let mut last = SequenceNumber::ZERO;
    for number in 0..PUTS {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        last = store.put(key, VALUE)?;
    }
    Ok(last)
}

/// Reads changes until `PUTS` entries have come.
fn follow(consumer: &Consumer) -> cambium::Result<()> {
    let mut changes = consumer.changes()?;
    let (mut entries, mut acknowledged) = (0, Instant::now());
    while entries < PUTS {
        let Some(batch) = changes.next_timeout(Duration::from_secs(60))? else {
            return Err(cambium::Error::InvalidArgument(format!(
                "{entries} changes came, then none for a minute"
            )));
        };
        entries += batch.changes.len() as u64;
        if acknowledged.elapsed() > Duration::from_millis(100) {
            consumer.acknowledge(batch.last)?;
            acknowledged = Instant::now();
        }
    }
    Ok(())
}

/// Seconds of the writer and, with a follower, of both together.
fn round(folder: &Path, engine: &str, is_followed: bool) -> cambium::Result<(f64, f64)> {
    let folder = folder.join(format!("{is_followed}"));
    let store = cambium::create(&folder, engine, &Options::new())?;
    let consumer = match is_followed {
        true => Some(store.consumer("follower")?),
        false => None,
    };
    let began = Instant::now();
    let seconds = std::thread::scope(|scope| {
        let following = consumer
            .as_ref()
            .map(|consumer| scope.spawn(|| follow(consumer)));
        write(&store)?;
        let written = began.elapsed().as_secs_f64();
        if let Some(following) = following {
            following.join().expect("a follower that ends")?;
        }
        Ok((written, began.elapsed().as_secs_f64()))
    });
    drop(consumer);
    store.close()?;
    std::fs::remove_dir_all(&folder)
        .map_err(|error| cambium::Error::io("remove", &folder, error))?;
    seconds
}

fn main() -> cambium::Result<()> {
    let engine = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "forest".to_string());
    let folder = std::env::temp_dir().join(format!("cambium-follower-{}", std::process::id()));
    std::fs::create_dir_all(&folder)
        .map_err(|error| cambium::Error::io("create", &folder, error))?;
    let (mut writers, mut followers) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (alone, _) = round(&folder, &engine, false)?;
        let (written, followed) = round(&folder, &engine, true)?;
        writers.push(alone / written);
        followers.push(alone / followed);
    }
    for (who, mut ratios) in [("writer", writers), ("follower", followers)] {
        ratios.sort_by(f64::total_cmp);
        println!(
            "{engine}: rate of the {who}, to that of the writer alone: {:.2} [{:.2}, {:.2}]",
            ratios[ROUNDS / 2],
            ratios[0],
            ratios[ROUNDS - 1]
        );
    }
    std::fs::remove_dir_all(&folder).map_err(|error| cambium::Error::io("remove", &folder, error))
}
