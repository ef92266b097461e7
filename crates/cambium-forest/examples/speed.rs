//! What one thread gets of a `forest` store, phase by phase: for tuning, where
//! `kvzone` would take too long.
//!
//! ```text
//! cargo run --release -p cambium-forest --example speed -- [DIR] [KEYS] [option=value ...]
//! ```

use std::path::PathBuf;
use std::time::Instant;

use cambium_api::{Durability, Engine, EngineKind, OptionValues, Result, WriteBatch};
use cambium_forest::Forest;
use cambium_io::Environment;

fn key(number: u64) -> [u8; 16] {
    let mut bytes = [0x61; 16];
    let scattered = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes[..8].copy_from_slice(&scattered.to_be_bytes());
    bytes
}

/// Bytes this process has caused to be written to the device.
fn written() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("write_bytes"));
    line.and_then(|line| line.split(' ').nth(1)?.parse().ok())
        .unwrap_or(0)
}

fn phase(name: &str, count: u64, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let (before, started) = (written(), Instant::now());
    work()?;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{name:<28} {:>9.0}/s {:>6.0} ns each, {:>6.1} MB written",
        count as f64 / seconds,
        seconds * 1e9 / count as f64,
        (written() - before) as f64 / 1e6
    );
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| ".".into()));
    let keys: u64 = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(300_000);
    let mut options = OptionValues::default();
    for assignment in arguments {
        options.set_assignment(&assignment)?;
    }
    let path = folder.join(format!("speed-{}", std::process::id()));
    let environment = Environment::real();
    let store = Forest.create(&environment, &path, &options)?;
    let value = [7u8; 100];
    phase("fill, Written", keys, || {
        (0..keys).try_for_each(|number| {
            let put = store.put(&key(number), &value, Durability::Written);
            put.map(|_| ())
        })
    })?;
    if std::env::var_os("FILL_ONLY").is_some() {
        phase("close", keys, || store.close())?;
        let store = Forest.open(&environment, &path, &OptionValues::default(), &())?;
        for statistic in store.stats()?.entries {
            println!("{:<28} {:?}", statistic.name, statistic.value);
        }
        return Ok(());
    }
    phase("overwrite in batches of 100", keys, || {
        (0..keys / 100).try_for_each(|number| {
            let mut batch = WriteBatch::new();
            for place in 0..100 {
                batch.put(&key(number * 7919 * 100 % keys + place), &value);
            }
            store.write(batch, Durability::Written).map(|_| ())
        })
    })?;
    phase("get, buffer and trie", keys, || gets(&*store, keys))?;
    phase("sync and settle", 1, || {
        store.sync()?;
        while store.step(1 << 20)? == cambium_io::StepOutcome::Again {}
        store.close()
    })?;
    let opening = OptionValues::default();
    let store = Forest.open(&environment, &path, &opening, &())?;
    phase("get, trie", keys, || gets(&*store, keys))?;
    phase("get of absent keys", keys, || {
        (keys..2 * keys).try_for_each(|number| store.get(&key(number)).map(|_| ()))
    })?;
    phase("multi_get of 100", keys, || {
        (0..keys / 100).try_for_each(|number| {
            let asked: Vec<[u8; 16]> = (0..100)
                .map(|place| key((number * 100 + place) * 7919 % keys))
                .collect();
            let asked: Vec<&[u8]> = asked.iter().map(|key| &key[..]).collect();
            store.multi_get(&asked).map(|_| ())
        })
    })?;
    phase("scan", keys, || {
        let range = cambium_api::KeyRange::all();
        let mut cursor = store.scan(&range, cambium_api::Direction::Forward)?;
        while cursor.next()?.is_some() {}
        Ok(())
    })?;
    phase("compact", keys, || {
        store.compact(&Default::default(), &()).map(|_| ())
    })?;
    phase("scan after it", keys, || {
        let range = cambium_api::KeyRange::all();
        let mut cursor = store.scan(&range, cambium_api::Direction::Forward)?;
        while cursor.next()?.is_some() {}
        Ok(())
    })?;
    for statistic in store.stats()?.entries {
        println!("{:<28} {:?}", statistic.name, statistic.value);
    }
    store.close()?;
    std::fs::remove_dir_all(&path).expect("the store's folder can be removed");
    Ok(())
}

fn gets(store: &dyn Engine, keys: u64) -> Result<()> {
    (0..keys).try_for_each(|number| {
        let value = store.get(&key(number * 7919 % keys))?;
        assert!(value.is_some(), "key {number} is there");
        Ok(())
    })
}
