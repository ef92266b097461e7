//! What a check, a repair and an opening say of a damaged store, held against
//! what is so: nothing lost is passed over, and nothing comes back that was
//! undone.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{
    CheckReport, CompactOptions, Durability, Engine, EngineKind, Error, IterationOrder,
    OptionValues, Reader, Result,
};
use cambium_forest::Forest;
use cambium_forest::format::{ROOT_BYTES, Root};
use cambium_io::Environment;
use cambium_io::simulated::SimulatedDisk;

const PATH: &str = "/store";

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

const SMALL: [(&str, &str); 4] = [
    ("node_bytes", "512"),
    ("block_bytes", "512"),
    ("write_buffer_entries", "8"),
    ("preallocate_bytes", "0"),
];

fn create(disk: &SimulatedDisk) -> Arc<dyn Engine> {
    let environment = Environment::simulated(disk, 1);
    let path = Path::new(PATH);
    Forest
        .create(&environment, path, &OptionValues::from(SMALL))
        .unwrap()
}

fn open(disk: &SimulatedDisk) -> Result<Arc<dyn Engine>> {
    let environment = Environment::simulated(disk, 2);
    let none = OptionValues::default();
    Forest.open(&environment, Path::new(PATH), &none, &())
}

fn check(disk: &SimulatedDisk) -> CheckReport {
    let environment = Environment::simulated(disk, 3);
    Forest.check(&environment, Path::new(PATH), &()).unwrap()
}

fn put(store: &dyn Engine, key: &str, value: &str) {
    let (key, value) = (key.as_bytes(), value.as_bytes());
    store.put(key, value, Durability::Buffered).unwrap();
}

fn contents(reader: &dyn Reader) -> Entries {
    let mut cursor = reader.iterate(IterationOrder::Key, None).unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = cursor.next().unwrap() {
        entries.push((entry.key.to_vec(), entry.value.to_vec()));
    }
    entries
}

fn names(store: &dyn Engine) -> Vec<String> {
    let named = store.list_named_snapshots().unwrap();
    named.into_iter().map(|(name, _)| name).collect()
}

fn database_file(disk: &SimulatedDisk) -> PathBuf {
    let files = disk.files();
    let mut of_forest = files
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "forest"));
    of_forest.next().unwrap()
}

/// What the superblock says.
fn root(disk: &SimulatedDisk) -> Root {
    let copies = ["/store/superblock-0", "/store/superblock-1"];
    let newest = copies
        .map(|copy| disk.contents(Path::new(copy)).unwrap())
        .into_iter()
        .max_by_key(|bytes| bytes[16..24].to_vec().into_iter().rev().collect::<Vec<_>>())
        .unwrap();
    Root::decode(&newest[48..48 + ROOT_BYTES]).unwrap()
}

/// Ways to come to a newest header that tells what no replay brings back.
fn telling() -> Vec<(&'static str, SimulatedDisk)> {
    let cases: [(&str, fn(&dyn Engine)); 5] = [
        ("rollback", |store| {
            store.create_named_snapshot("kept").unwrap();
            for number in 0..50 {
                put(store, &format!("{number:02}"), "undone");
            }
            store.sync().unwrap();
            store.rollback("kept").unwrap();
        }),
        ("named", |store| {
            store.create_named_snapshot("kept").unwrap()
        }),
        ("dropped", |store| {
            store.create_named_snapshot("kept").unwrap();
            store.drop_named_snapshot("kept").unwrap();
        }),
        ("compacted", |store| {
            store.create_named_snapshot("kept").unwrap();
            put(store, "a", "b");
            _ = store.compact(&CompactOptions::default(), &()).unwrap();
        }),
        ("flushed", |store| {
            store.create_named_snapshot("kept").unwrap();
            for number in 0..50 {
                put(store, &format!("{number:02}"), "later");
            }
        }),
    ];
    let made = cases.map(|(name, change)| {
        let disk = SimulatedDisk::new(1);
        let store = create(&disk);
        for number in 0..50 {
            put(&*store, &format!("{number:02}"), "first");
        }
        change(&*store);
        store.close().unwrap();
        (name, disk)
    });
    made.into()
}

#[test]
fn a_damaged_header_undoes_nothing() {
    for (name, disk) in telling() {
        let intact = open(&disk.fork()).unwrap();
        let (entries, snapshots) = (contents(&*intact), names(&*intact));
        let header = root(&disk).header;
        let damaged = disk.fork();
        damaged.flip_bit(&database_file(&disk), header + 100, 1);
        assert!(!check(&damaged).is_sound(), "{name}");
        let store = open(&damaged).unwrap();
        assert_eq!(contents(&*store), entries, "{name}");
        assert_eq!(names(&*store), snapshots, "{name}");
        store.close().unwrap();
        drop(store);
        assert!(check(&damaged).is_sound(), "{name}");
    }
}

#[test]
fn without_a_header_that_leads_to_the_same_state_nothing_opens() {
    for (name, disk) in telling() {
        let root = root(&disk);
        for header in [root.header, root.spare_header] {
            disk.flip_bit(&database_file(&disk), header + 100, 1);
        }
        assert!(!check(&disk).is_sound(), "{name}");
        let refused = open(&disk);
        assert!(matches!(refused, Err(Error::Corruption { .. })), "{name}");
    }
}

/// The clean mark is taken out by a damaged header: what the superblock says is
/// durable must be there all the same.
#[test]
fn replay_from_the_header_before_reaches_what_was_promised() {
    let (_, disk) = telling().pop().unwrap();
    let root = root(&disk);
    let file = database_file(&disk);
    let mut bytes = disk.contents(&file).unwrap();
    // The newest header and the documents that follow the one before it.
    bytes[root.spare_header as usize + 512..root.end as usize].fill(0);
    disk.replace_contents(&file, &bytes);
    assert!(!check(&disk).is_sound());
    assert!(matches!(open(&disk), Err(Error::Corruption { .. })));
}
