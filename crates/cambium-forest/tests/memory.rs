//! Memory is bounded by the options, whatever the data: the most that was
//! allocated at once while more was written than any bound holds.
//!
//! One test a program: all threads share the count.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use cambium_api::{
    CompactOptions, Direction, Durability, EngineKind, Entry, KeyRange, OptionValues, WriteBatch,
};
use cambium_forest::Forest;
use cambium_io::{Environment, StepOutcome};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

const MIB: usize = 1 << 20;
const KEYS: u64 = 160_000;

/// Two levels, as in section 4 of the paper: a few groups of many keys.
fn key(number: u64) -> Vec<u8> {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = vec![0x61; 40];
    key[..8].copy_from_slice(&(scattered >> 62).to_be_bytes());
    key[24..32].copy_from_slice(&scattered.to_be_bytes());
    key
}

/// The most that was allocated at once during `work`, beyond what was before.
fn most_more(work: impl FnOnce()) -> usize {
    PeakAlloc.reset_peak_usage();
    let before = PeakAlloc.current_usage();
    work();
    PeakAlloc.peak_usage().saturating_sub(before)
}

#[test]
fn a_load_and_its_flushes_keep_to_the_bounds_of_the_options() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    // Without threads: what the background does is done between the writes.
    let environment = Environment {
        executor: Environment::memory().executor,
        ..Environment::real()
    };
    let mut options = OptionValues::default();
    for (name, value) in [
        ("write_buffer_bytes", "4MiB"),
        ("flush_bytes", "1MiB"),
        ("cache_bytes", "1MiB"),
        ("buffer_bytes", "256KiB"),
        ("compaction_threshold", "100"),
        ("compaction_memory_bytes", "4MiB"),
    ] {
        options.set(name, value);
    }
    let store = Forest.create(&environment, &path, &options).unwrap();
    PeakAlloc.reset_peak_usage();
    let before = PeakAlloc.current_usage();
    for round in 0..2u64 {
        for batch in 0..KEYS / 200 {
            let mut changes = WriteBatch::new();
            for number in batch * 200..(batch + 1) * 200 {
                changes.put(&key(number), &[round as u8; 100]);
            }
            store.write(changes, Durability::Written).unwrap();
        }
        while store.step(1 << 20).unwrap() == StepOutcome::Again {}
    }
    let most = PeakAlloc.peak_usage().saturating_sub(before);
    // Three write buffers while one is flushed, the flush, the cache, what
    // waits in the log's buffer, and 3 MiB for all that does not grow.
    let bound = 3 * 4 * MIB + 2 * MIB + MIB / 4 + 3 * MIB;
    assert!(most <= bound, "{most} bytes at once, more than {bound}");
    // Statistics walk the index, and keep none of it but in the cache, in which other
    // blocks made room: whose allocations are rounded up, theirs are not.
    let statistics = most_more(|| {
        let found = store.stats().unwrap();
        assert!(
            found
                .entries
                .iter()
                .any(|entry| entry.name == "index_height")
        );
    });
    let bound = MIB + MIB / 2;
    assert!(statistics <= bound, "{statistics} bytes for statistics");
    // A compaction keeps to its option also where direct reads take more than
    // the documents' own bytes.
    let direct = CompactOptions {
        direct: true,
        ..CompactOptions::default()
    };
    let compaction = most_more(|| {
        store.compact(&direct, &()).unwrap();
    });
    assert!(compaction <= 6 * MIB, "{compaction} bytes for a compaction");
    assert_eq!(store.get(&key(7)).unwrap().unwrap(), [1; 100]);
    store.close().unwrap();
    // An entry that is kept from a scan keeps none of its neighbours in memory.
    let path = folder.path().join("large");
    let store = Forest.create(&environment, &path, &options).unwrap();
    for number in 0..1000 {
        let (key, large) = (key(number), [2; 6000]);
        store.put(&key, &large, Durability::Buffered).unwrap();
    }
    store.compact(&CompactOptions::default(), &()).unwrap();
    let before = PeakAlloc.current_usage();
    let mut cursor = store.scan(&KeyRange::all(), Direction::Forward).unwrap();
    let entries = std::iter::from_fn(|| cursor.next().unwrap());
    let kept: Vec<Entry> = entries.step_by(40).collect();
    drop(cursor);
    let more = PeakAlloc.current_usage().saturating_sub(before);
    assert!(
        more <= 3 * MIB / 2,
        "{more} bytes for {} entries",
        kept.len()
    );
    store.close().unwrap();
}
