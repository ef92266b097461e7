//! What reaches the device: reads an entry, syncs a group, blocks an open.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cambium_api::{Direction, Durability, Engine, EngineKind, KeyRange, OptionValues, WriteBatch};
use cambium_io::batch::ReadQueue;
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_io::{BatchOptions, Environment, FileSystem};
use cambium_testkit::counted::Counted;
use cambium_testkit::layer::{FileSystemLayer, Layered};
use cambium_testkit::stores;
use cambium_zdb::Zdb;

const PATH: &str = "/store";

fn create(environment: &Environment, pairs: &[(&str, &str)]) -> Arc<dyn Engine> {
    stores::create(&Zdb, environment, &OptionValues::from(pairs))
}

fn open(environment: &Environment) -> Arc<dyn Engine> {
    let no_cache = OptionValues::from([("cache_bytes", "0")]);
    stores::open(&Zdb, environment, &no_cache)
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

#[test]
fn small_values_are_read_a_block_at_a_time_and_only_the_newest_count() {
    let device = Counted::new();
    let options = [
        ("keys", "integer"),
        ("keys_per_table", "10000"),
        ("data_files", "2"),
    ];
    let store = create(&device.environment, &options);
    let value = |number: u64| number.to_le_bytes();
    for number in 0..4_000 {
        store
            .put(&key(number), &value(number), Durability::Written)
            .unwrap();
    }
    for number in (0..4_000).step_by(3) {
        store
            .put(&key(number), &value(number + 1), Durability::Written)
            .unwrap();
        store.delete(&key(number + 1), Durability::Written).unwrap();
    }
    store.close().unwrap();
    let path = Path::new(PATH);
    let read_all = |cache: &str| {
        let cache = OptionValues::from([("cache_bytes", cache)]);
        let store = Zdb.open(&device.environment, path, &cache, &()).unwrap();
        let reads = device.during(|| {
            for number in (0..4_000).map(|step| step * 1_777 % 4_000) {
                let expected = match number % 3 {
                    0 => Some(value(number + 1)),
                    1 => None,
                    _ => Some(value(number)),
                };
                let found = store.get(&key(number)).unwrap();
                assert_eq!(found.as_deref(), expected.as_ref().map(|value| &value[..]));
            }
        });
        store.close().unwrap();
        reads.reads
    };
    let (together, alone) = (read_all("1MiB"), read_all("128KiB"));
    assert!(together < 500, "{together} reads of 2,666 values");
    assert!(alone > 2_500, "no line for each key: {alone} reads");
}

#[test]
fn an_entry_up_to_the_guess_costs_one_read_and_a_longer_one_two() {
    let device = Counted::new();
    let store = create(&device.environment, &[("keys", "integer")]);
    // A record header of about 15 bytes, and 16 of time and key, come with the value.
    let sizes = [
        0usize,
        4,
        1000,
        4096 - 32,
        4096 - 24,
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
    let store = open(&device.environment);
    // The first touch reads the piece of the index, and opens the table.
    store.get(&key(0)).unwrap();
    for (number, size) in sizes.iter().enumerate() {
        let reads = device.during(|| {
            let value = store.get(&key(number as u64)).unwrap().unwrap();
            assert_eq!(value.len(), *size);
        });
        let expected = if size + 32 <= 4096 { 1 } else { 2 };
        assert_eq!(reads.reads, expected, "a value of {size} bytes");
    }
    let missing = device.during(|| {
        assert_eq!(store.get(&key(77)).unwrap(), None);
    });
    assert_eq!(missing.reads, 0, "a key without an entry costs no read");
}

#[test]
fn a_synced_group_costs_one_sync_however_many_files_it_touches() {
    let device = Counted::new();
    let store = create(
        &device.environment,
        &[("keys", "integer"), ("data_files", "8")],
    );
    store.put(&key(0), b"first", Durability::Synced).unwrap();
    for round in 1..50u64 {
        let mut batch = WriteBatch::new();
        for number in 0..8 {
            batch.put(&key(number), &key(round));
        }
        let done = device.during(|| {
            store.write(batch, Durability::Synced).unwrap();
        });
        assert_eq!(done.syncs, 1, "eight files, one sync");
    }
}

#[test]
fn an_open_after_a_clean_close_reads_headers_alone() {
    let mut reads_of = Vec::new();
    for entries in [100u64, 20_000] {
        let device = Counted::new();
        let store = create(&device.environment, &[("keys", "integer")]);
        for number in 0..entries {
            store
                .put(&key(number), &[1; 100], Durability::Buffered)
                .unwrap();
        }
        store.close().unwrap();
        drop(store);
        let mut store = None;
        let opened = device.during(|| store = Some(open(&device.environment)));
        assert!(opened.bytes_read < 64 << 10, "{opened:?}");
        assert_eq!(opened.writes, 0, "an open that writes nothing stays clean");
        reads_of.push((opened.reads, opened.bytes_read));
    }
    assert_eq!(reads_of[0], reads_of[1], "whatever the store holds");
}

#[test]
fn rebuilding_a_lost_index_reads_each_data_file_once() {
    let device = Counted::new();
    let store = create(&device.environment, &[("keys", "integer")]);
    for number in 0..30_000u64 {
        store
            .put(&key(number), &[1; 100], Durability::Buffered)
            .unwrap();
    }
    store.close().unwrap();
    drop(store);
    let data_bytes = files(&device.environment, "data-");
    for index in names(&device.environment, "index-") {
        device.environment.file_system.remove(&index).unwrap();
    }
    let mut store = None;
    let opened = device.during(|| store = Some(open(&device.environment)));
    let store = store.unwrap();
    assert_eq!(store.stats().unwrap().number("tables_rebuilt"), Some(1));
    assert!(opened.bytes_read >= 30_000 * 128, "the files were read");
    assert!(
        opened.bytes_read < data_bytes + (64 << 10),
        "{} bytes read of data files of {data_bytes}",
        opened.bytes_read
    );
}

/// Counts the read queues that are made.
#[derive(Debug)]
struct CountsQueues(Arc<dyn FileSystem>, Arc<AtomicUsize>);

impl FileSystemLayer for CountsQueues {
    fn below(&self) -> &dyn FileSystem {
        &*self.0
    }
    fn read_queue(&self, options: BatchOptions) -> cambium_api::Result<Box<dyn ReadQueue>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.below().read_queue(options)
    }
}

#[test]
fn a_pass_over_all_keys_makes_one_read_queue() {
    let made = Arc::new(AtomicUsize::new(0));
    let plain = Environment::memory();
    let layer = CountsQueues(plain.file_system.clone(), made.clone());
    let environment = Environment {
        file_system: Arc::new(Layered(layer)),
        ..plain
    };
    let store = create(&environment, &[("keys", "integer")]);
    for number in 0..2_000 {
        store
            .put(&key(number), b"Quercus", Durability::Written)
            .unwrap();
    }
    store.close().unwrap();
    drop(store);
    let store = open(&environment);
    made.store(0, Ordering::Relaxed);
    let mut cursor = store.scan(&KeyRange::all(), Direction::Forward).unwrap();
    let mut found = 0;
    while cursor.next().unwrap().is_some() {
        found += 1;
    }
    assert_eq!(found, 2_000);
    store.multi_get(&[&key(1), &key(2), &key(3)]).unwrap();
    assert_eq!(made.load(Ordering::Relaxed), 1);
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
    let device = Counted::new();
    let pairs = [
        ("keys", "integer"),
        ("slot_bytes", "5"),
        ("cache_bytes", "0"),
    ];
    let store = create(&device.environment, &pairs);
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

/// Full commit logs have the data files synced, and the index not written: thousands of
/// synced writes in random order would write as many of its pieces.
#[test]
fn small_synced_writes_leave_the_index_alone() {
    let disk = SimulatedDisk::new(1);
    let options = [("keys", "integer"), ("commit_log_bytes", "1MiB")];
    let store = create(&Environment::simulated(&disk, 1), &options);
    let number_of = |write: u64| write * 7_919 % 1_000_003;
    for write in 0..1_500u64 {
        let value = write.to_le_bytes();
        store
            .put(&key(number_of(write)), &value, Durability::Synced)
            .unwrap();
    }
    let stats = store.stats().unwrap();
    assert_eq!(stats.number("index_bytes_written"), Some(0));
    let store = open(&Environment::simulated(
        &disk.crash(CrashStyle::NothingUnsynced, 3),
        2,
    ));
    for write in 0..1_500u64 {
        let found = store.get(&key(number_of(write))).unwrap();
        assert_eq!(found.as_deref(), Some(&write.to_le_bytes()[..]));
    }
}
