//! Removals of ranges of integer keys: an entry for each data file, which recoveries,
//! compactions, rebuilds of the index, repairs, snapshots and change feeds heed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{
    Change, ChangeOptions, CompactOptions, Direction, Durability, Engine, EngineKind, Error,
    KeyRange, Operation, OptionValues, Reader, SequenceNumber, WriteBatch,
};
use cambium_io::simulated::Generator;
use cambium_io::{Environment, OpenOptions};
use cambium_testkit::stores;
use cambium_zdb::Zdb;

const PATH: &str = "/store";
/// Tables of 100 keys, pieces of 60.
const SMALL: [(&str, &str); 5] = [
    ("keys", "integer"),
    ("keys_per_table", "100"),
    ("piece_bytes", "256"),
    ("slot_bytes", "4"),
    ("data_files", "3"),
];

type Contents = BTreeMap<u64, Vec<u8>>;

fn create(environment: &Environment, opening: &[(&str, &str)]) -> Arc<dyn Engine> {
    stores::create(&Zdb, environment, &stores::options(&[&SMALL, opening]))
}

fn open(environment: &Environment, opening: &[(&str, &str)]) -> Arc<dyn Engine> {
    stores::open(&Zdb, environment, &OptionValues::from(opening))
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn put(store: &dyn Engine, keys: impl IntoIterator<Item = u64>, value: &[u8]) {
    for number in keys {
        store.put(&key(number), value, Durability::Written).unwrap();
    }
}

fn delete(store: &dyn Engine, from: u64, to: u64, durability: Durability) {
    let range = KeyRange::between(&key(from), &key(to));
    store.delete_range(range, durability).unwrap();
}

fn all(store: &dyn Reader) -> Contents {
    let mut cursor = store.scan(&KeyRange::all(), Direction::Forward).unwrap();
    let mut contents = Contents::new();
    while let Some(entry) = cursor.next().unwrap() {
        let number = u64::from_be_bytes(entry.key[..].try_into().unwrap());
        contents.insert(number, entry.value.to_vec());
    }
    contents
}

fn keys_of(store: &dyn Reader) -> Vec<u64> {
    all(store).into_keys().collect()
}

fn files(environment: &Environment, prefix: &str) -> Vec<PathBuf> {
    let entries = environment.file_system.list(Path::new(PATH)).unwrap();
    let names = entries.into_iter().map(|entry| entry.name);
    let names = names.filter(|name| name.to_string_lossy().starts_with(prefix));
    names.map(|name| Path::new(PATH).join(name)).collect()
}

fn remove(environment: &Environment, prefix: &str) {
    for path in files(environment, prefix) {
        environment.file_system.remove(&path).unwrap();
    }
}

/// How many entries a sound store has.
fn checked(environment: &Environment) -> u64 {
    let options = OptionValues::default();
    let report = Zdb
        .check(environment, Path::new(PATH), &options, &())
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
    report.entries
}

fn entries_written(store: &dyn Engine) -> u64 {
    let changes = store.changes(SequenceNumber::ZERO, ChangeOptions { synced_only: false });
    let mut last = 0;
    let mut feed = changes.unwrap();
    while let Some(batch) = feed.next().unwrap() {
        last = batch.last.0;
    }
    last
}

#[test]
fn a_range_takes_an_entry_for_each_data_file_with_keys_of_it() {
    let environment = Environment::memory();
    let store = create(&environment, &[]);
    put(&*store, (0..300).chain([1000]), b"value");
    assert_eq!(entries_written(&*store), 301);
    delete(&*store, 50, 250, Durability::Synced);
    assert_eq!(entries_written(&*store), 301 + 3 * 3);
    // One key is left in the range, then none.
    delete(&*store, 249, 251, Durability::Synced);
    delete(&*store, 60, 250, Durability::Synced);
    assert_eq!(entries_written(&*store), 301 + 3 * 3 + 1);
    let kept: Vec<u64> = (0..50).chain(251..300).chain([1000]).collect();
    assert_eq!(keys_of(&*store), kept);
    store.close().unwrap();
    assert_eq!(checked(&environment), kept.len() as u64);
}

#[test]
fn the_last_key_there_is_belongs_to_an_open_range() {
    let environment = Environment::memory();
    let store = create(&environment, &[("sparse_tables", "99")]);
    let keys = [0, 1, u64::MAX - 1, u64::MAX];
    put(&*store, keys, b"value");
    delete(&*store, 1, u64::MAX, Durability::Written);
    assert_eq!(keys_of(&*store), [0, u64::MAX]);
    let open_range = KeyRange::from(key(1)..);
    store.delete_range(open_range, Durability::Written).unwrap();
    assert_eq!(keys_of(&*store), [0]);
    drop(store);
    assert_eq!(
        checked(&environment),
        1,
        "with what the next opening replays"
    );
    assert_eq!(keys_of(&*open(&environment, &[])), [0]);
}

#[test]
fn the_order_within_a_batch_counts() {
    let environment = Environment::memory();
    let store = create(&environment, &[("cache_bytes", "1MiB")]);
    put(&*store, 0..20, b"old");
    for number in 0..20 {
        // Into the cache.
        assert_eq!(store.get(&key(number)).unwrap().unwrap(), b"old");
    }
    let mut batch = WriteBatch::new();
    batch.put(&key(3), b"lost").put(&key(4), b"lost");
    batch.delete_range(KeyRange::between(&key(2), &key(10)));
    batch
        .put(&key(4), b"new")
        .delete(&key(5))
        .put(&key(15), b"new");
    store.write(batch, Durability::Synced).unwrap();
    let mut expected: Contents = (0..20).map(|number| (number, b"old".to_vec())).collect();
    expected.retain(|number, _| !(2..10).contains(number));
    expected.extend([4, 15].map(|number| (number, b"new".to_vec())));
    assert_eq!(all(&*store), expected);
    for number in 0..20 {
        let value = store.get(&key(number)).unwrap();
        assert_eq!(
            value.as_deref(),
            expected.get(&number).map(|value| &value[..])
        );
    }
    drop(store);
    assert_eq!(all(&*open(&environment, &[])), expected, "after a recovery");
}

#[test]
fn snapshots_see_what_a_range_removed() {
    let environment = Environment::memory();
    let store = create(&environment, &[("snapshot_limit", "40")]);
    put(&*store, 0..150, b"old");
    let snapshot = store.snapshot().unwrap();
    delete(&*store, 90, 120, Durability::Written);
    put(&*store, 95..100, b"new");
    assert_eq!(keys_of(&*snapshot), (0..150).collect::<Vec<_>>());
    assert_eq!(snapshot.get(&key(95)).unwrap().unwrap(), b"old");
    let range = KeyRange::between(&key(0), &key(50));
    let refused = store.delete_range(range, Durability::Written);
    assert!(
        matches!(refused, Err(Error::SnapshotLimit { .. })),
        "{refused:?}"
    );
    assert_eq!(keys_of(&*store).len(), 150 - 30 + 5);
    drop(snapshot);
    delete(&*store, 0, 50, Durability::Written);
    assert_eq!(keys_of(&*store).len(), 100 - 30 + 5);
}

#[test]
fn a_feed_shows_a_range_once() {
    let environment = Environment::memory();
    let store = create(&environment, &[]);
    put(&*store, 0..250, b"value");
    delete(&*store, 20, 220, Durability::Synced);
    let after = SequenceNumber(250);
    let mut feed = store
        .changes(after, ChangeOptions { synced_only: true })
        .unwrap();
    let batch = feed.next().unwrap().unwrap();
    let operations = batch.changes.into_iter();
    let operations: Vec<_> = operations
        .map(|Change { operation, .. }| operation)
        .collect();
    let range = KeyRange::between(&key(20), &key(220));
    assert_eq!(operations, [Operation::DeleteRange { range }]);
    assert!(feed.next().unwrap().is_none());
}

/// Removes a range while a compaction is at work, and then the index: what a rebuild of it
/// brings.
fn rebuilt(bug: Option<&str>) -> Vec<u64> {
    let environment = Environment::memory();
    let mut opening = vec![
        ("compaction_least_bytes", "0"),
        ("compaction_threshold", "20"),
    ];
    opening.extend(bug.map(|bug| ("seeded_bug", bug)));
    let store = create(&environment, &opening);
    put(&*store, 0..100, &[1; 1000]);
    put(&*store, (0..100).step_by(2), &[2; 1000]);
    // Copies a part of one file.
    store.step(20_000).unwrap();
    delete(&*store, 10, 90, Durability::Written);
    put(&*store, 50..52, b"later");
    // A second compaction would find the removed entries stale.
    while store.stats().unwrap().number("compactions") == Some(0) {
        store.step(1 << 20).unwrap();
    }
    store.close().unwrap();
    remove(&environment, "index-");
    let store = open(&environment, &[]);
    let keys = keys_of(&*store);
    store.close().unwrap();
    checked(&environment);
    keys
}

#[test]
fn a_rebuild_after_a_compaction_brings_no_removed_key_back() {
    let expected: Vec<u64> = (0..10).chain(50..52).chain(90..100).collect();
    assert_eq!(rebuilt(None), expected);
    assert_ne!(rebuilt(Some("compaction_without_ranges")), expected);
}

/// The bytes of all data files.
fn data(environment: &Environment) -> Vec<(PathBuf, Vec<u8>)> {
    let read = |path: PathBuf| {
        let file = environment
            .file_system
            .open(&path, OpenOptions::READ)
            .unwrap();
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        (path, bytes)
    };
    files(environment, "data-").into_iter().map(read).collect()
}

#[test]
fn a_repair_brings_no_removed_key_back() {
    for (superblock_lost, data_lost, whole_range) in [
        (false, false, true),
        (false, true, true),
        (true, false, true),
        (true, true, true),
        (true, true, false),
    ] {
        let environment = Environment::memory();
        let store = create(&environment, &[]);
        put(&*store, 0..150, b"value");
        store.close().unwrap();
        let store = open(&environment, &[]);
        store.put(&key(149), b"new", Durability::Synced).unwrap();
        let before = data(&environment);
        // A frame of the commit log has these too.
        match whole_range {
            true => delete(&*store, 20, 130, Durability::Synced),
            false => _ = store.delete(&key(20), Durability::Synced).unwrap(),
        }
        drop(store);
        if data_lost {
            for (path, bytes) in before {
                let file = environment.file_system.open(&path, OpenOptions::WRITE);
                let file = file.unwrap();
                let rest = file.length().unwrap() as usize - bytes.len();
                file.write_at(&[bytes, vec![0; rest]].concat(), 0).unwrap();
            }
        }
        if superblock_lost {
            remove(&environment, "superblock-");
        }
        let options = OptionValues::default();
        Zdb.repair(&environment, Path::new(PATH), &options, &())
            .unwrap();
        let expected = (0..150).filter(|number| match whole_range {
            true => !(20..130).contains(number),
            false => *number != 20,
        });
        assert_eq!(
            keys_of(&*open(&environment, &[])),
            expected.collect::<Vec<_>>(),
            "superblock lost: {superblock_lost}, end of the data lost: {data_lost}"
        );
    }
}

/// Random changes with compactions and recoveries between them; then the index is lost.
fn index_lost_after_changes(seed: u64) {
    let environment = Environment::memory();
    let opening = [
        ("compaction_least_bytes", "0"),
        ("checkpoint_bytes", "4096"),
        ("open_tables", "2"),
    ];
    let mut random = Generator::new(seed);
    let mut store = create(&environment, &opening);
    let mut expected = Contents::new();
    for _ in 0..200 {
        let mut batch = WriteBatch::new();
        for _ in 0..1 + random.below(4) {
            let from = random.below(400);
            match random.below(8) {
                0 => {
                    let to = from + 1 + random.below(150);
                    batch.delete_range(KeyRange::between(&key(from), &key(to)));
                    expected.retain(|number, _| !(from..to).contains(number));
                }
                1 => {
                    batch.delete(&key(from));
                    expected.remove(&from);
                }
                _ => {
                    let value = vec![random.below(256) as u8; random.below(60) as usize];
                    batch.put(&key(from), &value);
                    expected.insert(from, value);
                }
            }
        }
        let durabilities = [Durability::Written, Durability::Synced];
        store.write(batch, *random.pick(&durabilities)).unwrap();
        match random.below(20) {
            0 => _ = store.compact(&CompactOptions::default(), &()).unwrap(),
            1..5 => _ = store.step(500).unwrap(),
            5 => {
                drop(store);
                assert_eq!(checked(&environment), expected.len() as u64, "seed {seed}");
                store = open(&environment, &opening);
            }
            _ => {}
        }
    }
    store.close().unwrap();
    remove(&environment, "index-");
    let store = open(&environment, &[]);
    assert_eq!(all(&*store), expected, "seed {seed}");
    store.close().unwrap();
    assert_eq!(checked(&environment), expected.len() as u64);
}

#[test]
fn random_ranges_stay_removed_when_the_index_is_lost() {
    (1..=60).for_each(index_lost_after_changes);
}
