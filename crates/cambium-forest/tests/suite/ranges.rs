//! Deleted ranges: one record each, whatever they hold; hidden in every layer at every moment,
//! and gone from the tries after a flush, a compaction, a crash or a repair.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cambium_api::{
    CompactOptions, Direction, Durability, Engine, EngineKind, KeyRange, Reader, Snapshot,
};
use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_io::simulated::{CrashStyle, Generator, SimulatedDisk};
use cambium_testkit::stores;

use crate::support::{Model, SMALL_NODES, contents, options};

const PATH: &str = "/store";

const SETTINGS: [(&str, &str); 4] = [
    ("write_buffer_entries", "64"),
    ("preallocate_bytes", "4096"),
    ("segment_bytes", "16KiB"),
    ("compaction_least_bytes", "16384"),
];

fn create(environment: &Environment, more: &[(&str, &str)]) -> Arc<dyn Engine> {
    let options = stores::options(&[&SETTINGS, &SMALL_NODES, more]);
    stores::create(&Forest, environment, &options)
}

fn open(environment: &Environment) -> Arc<dyn Engine> {
    stores::open(&Forest, environment, &options(&SETTINGS))
}

/// Some are long and begin alike, so that the sorted run cuts them.
fn key(numbers: &mut Generator) -> Vec<u8> {
    let number = numbers.below(400);
    match number % 4 {
        0 => [&vec![b'l'; 150][..], format!("{number:03}").as_bytes()].concat(),
        1 => format!("{number:03}-{}", "x".repeat(100)).into_bytes(),
        _ => format!("{number:03}").into_bytes(),
    }
}

fn range(numbers: &mut Generator) -> KeyRange {
    let (one, other) = (key(numbers), key(numbers));
    let (from, to) = (one.clone().min(other.clone()), one.max(other));
    KeyRange {
        from: (numbers.below(8) > 0).then_some(from),
        to: (numbers.below(8) > 0).then_some(to),
    }
}

/// Compares the answers of every kind of lookup with a model.
fn expect(reader: &dyn Reader, model: &Model, numbers: &mut Generator) {
    assert_eq!(&contents(reader), model);
    let mut reverse = reader.scan(&KeyRange::all(), Direction::Reverse).unwrap();
    for (key, value) in model.iter().rev() {
        let entry = reverse.next().unwrap().unwrap();
        assert_eq!((&*entry.key, &*entry.value), (&key[..], &value[..]));
    }
    assert!(reverse.next().unwrap().is_none());
    let keys: Vec<Vec<u8>> = (0..24).map(|_| key(numbers)).collect();
    let places: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let together = reader.multi_get(&places).unwrap();
    for (key, value) in keys.iter().zip(together) {
        assert_eq!(value.as_deref(), model.get(key).map(Vec::as_slice));
        let alone = reader.get(key).unwrap();
        assert_eq!(alone.as_deref(), model.get(key).map(Vec::as_slice));
    }
    for direction in [Direction::Forward, Direction::Reverse] {
        let range = range(numbers);
        let mut cursor = reader.scan(&range, direction).unwrap();
        let inside = model.keys().filter(|key| range.contains(key));
        let mut inside: Vec<&Vec<u8>> = inside.collect();
        if direction == Direction::Reverse {
            inside.reverse();
        }
        for key in inside {
            assert_eq!(*cursor.next_key().unwrap().unwrap(), key[..]);
        }
        assert!(cursor.next_key().unwrap().is_none());
    }
}

fn write(store: &dyn Engine, model: &mut Model, numbers: &mut Generator, round: u64) {
    match numbers.below(16) {
        0 => {
            let range = range(numbers);
            model.retain(|key, _| !range.contains(key));
            store.delete_range(range, Durability::Written).unwrap();
        }
        1 | 2 => {
            let key = key(numbers);
            model.remove(&key);
            store.delete(&key, Durability::Written).unwrap();
        }
        _ => {
            let (key, value) = (key(numbers), round.to_be_bytes().to_vec());
            store.put(&key, &value, Durability::Written).unwrap();
            model.insert(key, value);
        }
    }
}

fn check(environment: &Environment) {
    let options = Default::default();
    let report = Forest.check(environment, Path::new(PATH), &options, &());
    let report = report.unwrap();
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn every_layer_and_every_moment_agree_with_a_model() {
    for seed in 0..12 {
        let environment = Environment::memory();
        let mut numbers = Generator::new(seed);
        let mut store = create(&environment, &[]);
        let mut model = Model::new();
        let mut moments: Vec<(Arc<dyn Snapshot>, Model)> = Vec::new();
        for round in 0..1_500 {
            write(&*store, &mut model, &mut numbers, round);
            match numbers.below(60) {
                0 => moments.push((store.snapshot().unwrap(), model.clone())),
                1 if !moments.is_empty() => {
                    let place = numbers.below(moments.len() as u64) as usize;
                    let (snapshot, then) = moments.swap_remove(place);
                    expect(&*snapshot, &then, &mut numbers);
                }
                2 => _ = store.step(1 << 20).unwrap(),
                3 => expect(&*store, &model, &mut numbers),
                4 => {
                    let entries = store.stats().unwrap().number("entries");
                    assert_eq!(entries, Some(model.len() as u64), "seed {seed}, {round}");
                }
                5 if round % 4 == 0 => {
                    store.compact(&CompactOptions::default(), &()).unwrap();
                }
                6 => {
                    for (snapshot, then) in moments.drain(..) {
                        expect(&*snapshot, &then, &mut numbers);
                    }
                    store.close().unwrap();
                    drop(store);
                    check(&environment);
                    store = open(&environment);
                }
                _ => {}
            }
        }
        expect(&*store, &model, &mut numbers);
    }
}

/// A range, a flush, and a close; fails if anything of the range is back, or a check finds it.
fn delete_and_flush(more: &[(&str, &str)]) {
    let environment = Environment::memory();
    let store = create(&environment, more);
    for number in 0..200u32 {
        let key = number.to_be_bytes();
        store.put(&key, b"value", Durability::Written).unwrap();
    }
    let range = KeyRange::between(&10u32.to_be_bytes(), &20u32.to_be_bytes());
    store.delete_range(range, Durability::Written).unwrap();
    store.close().unwrap();
    drop(store);
    check(&environment);
    assert_eq!(contents(&*open(&environment)).len(), 190);
}

#[test]
fn a_flush_removes_what_a_range_deleted() {
    delete_and_flush(&[]);
}

#[test]
#[should_panic(expected = "deleted a range, and the index has an older document")]
fn a_check_finds_a_flush_that_forgets_ranges() {
    delete_and_flush(&[("seeded_bug", "flush_forgets_ranges")]);
}

#[test]
fn a_crash_keeps_a_range_that_was_synced() {
    for seed in 0..20 {
        let disk = SimulatedDisk::new(seed);
        let environment = Environment::simulated(&disk, seed);
        let mut numbers = Generator::new(seed);
        let store = create(&environment, &[]);
        let mut model = Model::new();
        for round in 0..numbers.below(500) {
            write(&*store, &mut model, &mut numbers, round);
        }
        let range = range(&mut numbers);
        model.retain(|key, _| !range.contains(key));
        store.delete_range(range, Durability::Synced).unwrap();
        let disk = disk.crash(CrashStyle::Mixed, seed);
        let environment = Environment::simulated(&disk, seed);
        check(&environment);
        let store = open(&environment);
        expect(&*store, &model, &mut numbers);
        store.close().unwrap();
        drop(store);
        check(&environment);
        let path = Path::new(PATH);
        let report = Forest
            .repair(&environment, path, &options(&SETTINGS), &())
            .unwrap();
        assert!(report.is_sound(), "{report:?}");
        expect(&*open(&environment), &model, &mut numbers);
    }
}

#[test]
fn a_range_costs_one_record_however_much_it_holds() {
    let environment = Environment::memory();
    let more = [("write_buffer_entries", "100000")];
    let store = create(&environment, &more);
    let mut costs = Vec::new();
    for count in [10u32, 10_000] {
        for number in 0..count {
            let key = number.to_be_bytes();
            store.put(&key, b"value", Durability::Written).unwrap();
        }
        let log = |store: &dyn Engine| {
            store
                .stats()
                .unwrap()
                .number("document_bytes_written")
                .unwrap()
        };
        let reads = |store: &dyn Engine| store.stats().unwrap().number("document_reads");
        let before = (log(&*store), reads(&*store));
        store
            .delete_range(KeyRange::all(), Durability::Written)
            .unwrap();
        costs.push(log(&*store) - before.0);
        assert_eq!(reads(&*store), before.1, "a range reads nothing");
        assert_eq!(store.stats().unwrap().number("entries"), Some(0));
    }
    assert_eq!(costs[0], costs[1]);
}

#[test]
fn readers_beside_ranges_and_flushes_see_a_range_whole_or_not_at_all() {
    let environment = Environment::memory();
    let store = create(&environment, &[]);
    let put_all = |store: &dyn Engine| {
        let mut batch = cambium_api::WriteBatch::new();
        for number in 0..200u32 {
            batch.put(&number.to_be_bytes(), b"value");
        }
        store.write(batch, Durability::Written).unwrap();
    };
    put_all(&*store);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let count = contents(&*store).len();
                    assert!(count == 0 || count == 200, "{count} of 200 entries");
                    let one = store.get(&7u32.to_be_bytes()).unwrap();
                    assert!(one.is_none_or(|value| *value == *b"value"));
                }
            });
        }
        for _ in 0..300 {
            store
                .delete_range(KeyRange::all(), Durability::Written)
                .unwrap();
            put_all(&*store);
        }
        ended.store(true, Ordering::Relaxed);
    });
}
