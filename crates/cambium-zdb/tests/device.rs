//! What reaches the device: reads an entry, syncs a group, blocks an open.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::path::Path;
use std::sync::Arc;

use cambium_api::{Durability, Engine, EngineKind, OptionValues, WriteBatch};
use cambium_io::recording::{IoCounters, Recorder, RecordingFileSystem};
use cambium_io::{Environment, FileSystem};
use cambium_zdb::Zdb;

const PATH: &str = "/store";

/// An environment whose file system counts, and the counters.
fn counted() -> (Environment, Recorder) {
    let plain = Environment::memory();
    let (file_system, recorder) = RecordingFileSystem::counting(plain.file_system.clone());
    let file_system: Arc<dyn FileSystem> = Arc::new(file_system);
    (
        Environment {
            file_system,
            ..plain
        },
        recorder,
    )
}

fn options(pairs: &[(&str, &str)]) -> OptionValues {
    let mut options = OptionValues::default();
    for (name, value) in pairs {
        options.set(name, value);
    }
    options
}

fn create(environment: &Environment, pairs: &[(&str, &str)]) -> Arc<dyn Engine> {
    let path = Path::new(PATH);
    Zdb.create(environment, path, &options(pairs)).unwrap()
}

fn open(environment: &Environment) -> Arc<dyn Engine> {
    let path = Path::new(PATH);
    let no_cache = options(&[("cache_bytes", "0")]);
    Zdb.open(environment, path, &no_cache, &()).unwrap()
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// What `work` made the device do.
fn during(recorder: &Recorder, work: impl FnOnce()) -> IoCounters {
    let before = recorder.counters();
    work();
    recorder.counters().since(before)
}

#[test]
fn an_entry_up_to_the_guess_costs_one_read_and_a_longer_one_two() {
    let (environment, recorder) = counted();
    let store = create(&environment, &[("keys", "integer")]);
    // 48 bytes of record header and 16 of time and key come with the value.
    let sizes = [
        0usize,
        4,
        1000,
        4096 - 64,
        4096 - 63,
        5000,
        100_000,
        3 << 20,
    ];
    for (number, size) in sizes.iter().enumerate() {
        let value = vec![number as u8; *size];
        store
            .put(&key(number as u64), &value, Durability::Written)
            .unwrap();
    }
    store.close().unwrap();
    let store = open(&environment);
    // The first touch reads the piece of the index, and opens the table.
    store.get(&key(0)).unwrap();
    for (number, size) in sizes.iter().enumerate() {
        let reads = during(&recorder, || {
            let value = store.get(&key(number as u64)).unwrap().unwrap();
            assert_eq!(value.len(), *size);
        });
        let expected = if size + 64 <= 4096 { 1 } else { 2 };
        assert_eq!(reads.reads, expected, "a value of {size} bytes");
    }
    let missing = during(&recorder, || {
        assert_eq!(store.get(&key(77)).unwrap(), None);
    });
    assert_eq!(missing.reads, 0, "a key without an entry costs no read");
}

#[test]
fn a_synced_group_costs_one_sync_however_many_files_it_touches() {
    let (environment, recorder) = counted();
    let store = create(&environment, &[("keys", "integer"), ("data_files", "8")]);
    store.put(&key(0), b"first", Durability::Synced).unwrap();
    for round in 1..50u64 {
        let mut batch = WriteBatch::new();
        for number in 0..8 {
            batch.put(&key(number), &key(round));
        }
        let done = during(&recorder, || {
            store.write(batch, Durability::Synced).unwrap();
        });
        assert_eq!(done.syncs, 1, "eight files, one sync");
    }
}

#[test]
fn an_open_after_a_clean_close_reads_headers_alone() {
    let mut reads_of = Vec::new();
    for entries in [100u64, 20_000] {
        let (environment, recorder) = counted();
        let store = create(&environment, &[("keys", "integer")]);
        for number in 0..entries {
            store
                .put(&key(number), &[1; 100], Durability::Buffered)
                .unwrap();
        }
        store.close().unwrap();
        drop(store);
        let mut store = None;
        let opened = during(&recorder, || store = Some(open(&environment)));
        assert!(opened.bytes_read < 64 << 10, "{opened:?}");
        assert_eq!(opened.writes, 0, "an open that writes nothing stays clean");
        reads_of.push((opened.reads, opened.bytes_read));
    }
    assert_eq!(reads_of[0], reads_of[1], "whatever the store holds");
}

#[test]
fn rebuilding_a_lost_index_reads_each_data_file_once() {
    let (environment, recorder) = counted();
    let store = create(&environment, &[("keys", "integer")]);
    for number in 0..30_000u64 {
        store
            .put(&key(number), &[1; 100], Durability::Buffered)
            .unwrap();
    }
    store.close().unwrap();
    drop(store);
    let data_bytes = files(&environment, "data-");
    for index in names(&environment, "index-") {
        environment.file_system.remove(&index).unwrap();
    }
    let mut store = None;
    let opened = during(&recorder, || store = Some(open(&environment)));
    let store = store.unwrap();
    assert_eq!(store.stats().unwrap().number("tables_rebuilt"), Some(1));
    assert!(opened.bytes_read >= 30_000 * 168, "the files were read");
    assert!(
        opened.bytes_read < data_bytes + (64 << 10),
        "{} bytes read of data files of {data_bytes}",
        opened.bytes_read
    );
}

fn names(environment: &Environment, prefix: &str) -> Vec<std::path::PathBuf> {
    let entries = environment.file_system.list(Path::new(PATH)).unwrap();
    entries
        .into_iter()
        .filter(|entry| entry.name.to_string_lossy().starts_with(prefix))
        .map(|entry| Path::new(PATH).join(entry.name))
        .collect()
}

fn files(environment: &Environment, prefix: &str) -> u64 {
    names(environment, prefix)
        .iter()
        .map(|path| {
            let metadata = environment.file_system.metadata(path).unwrap();
            metadata.unwrap().length
        })
        .sum()
}

#[test]
fn the_index_takes_slot_bytes_times_range_and_nothing_a_key() {
    let (environment, _) = counted();
    let pairs = [
        ("keys", "integer"),
        ("slot_bytes", "5"),
        ("cache_bytes", "0"),
    ];
    let store = create(&environment, &pairs);
    let mut batch = WriteBatch::new();
    for number in 0..200_000u64 {
        batch.put(&key(number), b"x");
    }
    store.write(batch, Durability::Written).unwrap();
    let stats = store.stats().unwrap();
    assert_eq!(stats.number("index_range_bytes"), Some(5_000_000));
    assert!(stats.number("index_memory_bytes").unwrap() <= 1_100_000);
    assert_eq!(stats.number("old_versions_held"), Some(0));
}
