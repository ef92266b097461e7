//! Where the processor's time goes: puts, gets and a range deletion of small integer entries, by
//! one thread and by several, without a harness around them.
//!
//! ```text
//! cargo run --release -p cambium-zdb --example hot_paths -- FOLDER [KEYS [VALUE_BYTES]]
//! ```
//!
//! For finding costs with a profiler; comparisons with other stores are
//! KVZone's.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use cambium_api::{Durability, Engine, EngineKind, KeyRange, OptionValues, WriteBatch};
use cambium_io::Environment;
use cambium_zdb::Zdb;

fn main() -> Result<(), cambium_base::Error> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| ".".to_string());
    let keys: u64 = arguments
        .next()
        .map_or(1_000_000, |text| text.parse().unwrap());
    let value_bytes: usize = arguments.next().map_or(4, |text| text.parse().unwrap());
    for threads in [1, 4] {
        measure(Path::new(&folder), keys, value_bytes, threads)?;
    }
    Ok(())
}

fn measure(
    folder: &Path,
    keys: u64,
    value_bytes: usize,
    threads: u64,
) -> Result<(), cambium_base::Error> {
    let path = folder.join("hot_paths");
    _ = std::fs::remove_dir_all(&path);
    let mut options = OptionValues::default();
    options.set("keys", "integer");
    options.set("cache_bytes", "256MiB");
    options.set("snapshot_limit", &(2 * keys).to_string());
    let store = Zdb.create(&Environment::real(), &path, &options)?;
    let value = vec![7; value_bytes];
    let put = |key: u64| {
        store
            .put(&key.to_be_bytes(), &value, Durability::Written)
            .unwrap();
    };
    report("put", threads, keys, &store, put);
    let delete = |what| {
        store.sync().unwrap();
        let begun = Instant::now();
        store
            .delete_range(KeyRange::all(), Durability::Written)
            .unwrap();
        let milliseconds = begun.elapsed().as_secs_f64() * 1e3;
        println!("{what:>22}: {milliseconds:.2} ms for {keys} keys");
    };
    delete("delete_range");
    report("put again", threads, keys, &store, put);
    let get = |key: u64| {
        let scattered = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys;
        assert!(store.get(&scattered.to_be_bytes()).unwrap().is_some());
    };
    report("get, first", threads, keys, &store, get);
    report("get, again", threads, keys, &store, get);
    let batch = |key: u64| {
        if key % 100 == 0 {
            let mut batch = WriteBatch::new();
            for key in key..key + 100 {
                batch.put(&key.to_be_bytes(), &value);
            }
            store.write(batch, Durability::Written).unwrap();
        }
    };
    report("put in batches of 100", 1, keys, &store, batch);
    delete("delete_range, all cached");
    (0..keys).for_each(batch);
    let snapshot = store.snapshot()?;
    delete("delete_range, snapshot");
    drop(snapshot);
    store.close()?;
    _ = std::fs::remove_dir_all(&path);
    Ok(())
}

fn report(
    what: &str,
    threads: u64,
    keys: u64,
    _store: &Arc<dyn Engine>,
    operation: impl Fn(u64) + Sync,
) {
    let start = (Instant::now(), processor_seconds());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let operation = &operation;
            scope.spawn(move || {
                for key in (thread..keys).step_by(threads as usize) {
                    operation(key);
                }
            });
        }
    });
    let each = |seconds: f64| seconds * 1e9 / keys as f64;
    println!(
        "{what:>22}, {threads} threads: {:6.0} ns each, all together; {:6.0} ns of processor",
        each(start.0.elapsed().as_secs_f64()),
        each(processor_seconds() - start.1)
    );
}

/// User and system time of this process so far, in steps of 10 ms.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.split_whitespace().collect();
    let ticks = |place: usize| {
        fields
            .get(place)
            .map_or(0.0, |text| text.parse().unwrap_or(0.0))
    };
    (ticks(13) + ticks(14)) / 100.0
}
