//! Write buffers that are packed answer what an ordered map would: with keys that begin
//! alike for hundreds of bytes, of which a run keeps only what tells them apart, by
//! lookups and by cursors that go both ways and seek, under snapshots, through flushes,
//! compactions and openings after a process died.

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_api::{
    CompactOptions, Direction, Durability, Engine, KeyRange, OptionValues, Reader, Snapshot,
};
use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_io::simulated::{CrashStyle, Generator, SimulatedDisk};
use cambium_testkit::stores;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A run goes into the trie after many small buffers; compactions come by themselves.
const OPTIONS: [(&str, &str); 5] = [
    ("node_bytes", "512"),
    ("block_bytes", "512"),
    ("write_buffer_entries", "120"),
    ("cache_bytes", "262144"),
    ("compaction_least_bytes", "65536"),
];

/// Short and long keys, some of them prefixes of others.
fn key(draw: &mut Generator) -> Vec<u8> {
    let mut key = format!("{}", draw.below(6)).into_bytes();
    for _ in 0..draw.below(3) {
        let byte = b'a' + draw.below(2) as u8;
        let length = [1, 270, 400][draw.below(3) as usize];
        key.extend(std::iter::repeat_n(byte, length));
    }
    if draw.below(2) == 0 {
        key.extend_from_slice(format!("{}", draw.below(20)).as_bytes());
    }
    key
}

fn looked_up(reader: &dyn Reader, model: &Model, draw: &mut Generator) {
    let keys: Vec<Vec<u8>> = (0..8).map(|_| key(draw)).collect();
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let together = reader.multi_get(&asked).unwrap();
    for (key, found) in keys.iter().zip(together) {
        let expected = model.get(key).map(Vec::as_slice);
        assert_eq!(found.as_deref(), expected, "together: {key:?}");
        let alone = reader.get(key).unwrap();
        assert_eq!(alone.as_deref(), expected, "alone: {key:?}");
    }
}

/// Walks a few entries of a range, seeks, and walks on.
fn walked(reader: &dyn Reader, model: &Model, draw: &mut Generator) {
    let (one, other) = (key(draw), key(draw));
    let range = match draw.below(3) {
        0 => KeyRange::all(),
        1 => KeyRange::prefix(&one[..one.len() / 2]),
        _ => KeyRange::between(one.as_slice().min(&other), one.as_slice().max(&other)),
    };
    let direction = match draw.below(2) {
        0 => Direction::Forward,
        _ => Direction::Reverse,
    };
    let mut inside: Vec<(&Vec<u8>, &Vec<u8>)> = model
        .iter()
        .filter(|(key, _)| range.contains(key))
        .collect();
    if direction == Direction::Reverse {
        inside.reverse();
    }
    let mut cursor = reader.scan(&range, direction).unwrap();
    let mut left = inside.as_slice();
    for _ in 0..3 {
        for _ in 0..draw.below(12) {
            let expected = left.split_first().map(|(first, behind)| {
                left = behind;
                *first
            });
            let found = cursor.next().unwrap();
            let found = found.as_ref().map(|entry| (&*entry.key, &*entry.value));
            let expected = expected.map(|(key, value)| (key.as_slice(), value.as_slice()));
            assert_eq!(found, expected, "{range:?} {direction:?}");
        }
        let target = key(draw);
        cursor.seek(&target).unwrap();
        let before = inside.iter().filter(|(key, _)| match direction {
            Direction::Forward => **key < target,
            Direction::Reverse => **key > target,
        });
        left = &inside[before.count()..];
    }
}

fn agrees(reader: &dyn Reader, model: &Model, draw: &mut Generator) {
    looked_up(reader, model, draw);
    walked(reader, model, draw);
}

/// How much was packed, and how often a run went into the trie.
#[derive(Default)]
struct Met {
    packed: u64,
    flushes: u64,
    crashes: u64,
}

impl Met {
    fn note(&mut self, store: &dyn Engine) {
        let stats = store.stats().unwrap();
        self.packed += stats.number("packed_buffers").unwrap();
        self.flushes += stats.number("flushes").unwrap();
    }
}

fn conforms(seed: u64, met: &mut Met) {
    let mut disk = SimulatedDisk::new(seed);
    let options = OptionValues::from(OPTIONS);
    let environment = Environment::simulated(&disk, seed);
    let mut store: Arc<dyn Engine> = stores::create(&Forest, &environment, &options);
    let mut model = Model::new();
    let mut snapshots: Vec<(Arc<dyn Snapshot>, Model)> = Vec::new();
    let mut draw = Generator::new(seed);
    for number in 0..2_000u64 {
        let key = key(&mut draw);
        match draw.below(250) {
            0 => _ = store.compact(&CompactOptions::default(), &()).unwrap(),
            1 => {
                // The process dies; what was written is with the operating system.
                met.note(&*store);
                met.crashes += 1;
                snapshots.clear();
                disk = disk.crash(CrashStyle::Everything, seed);
                let environment = Environment::simulated(&disk, seed + number);
                let tuning = OptionValues::from([("write_buffer_entries", "120")]);
                store = stores::open(&Forest, &environment, &tuning);
            }
            2 => {
                snapshots.push((store.snapshot().unwrap(), model.clone()));
                if snapshots.len() > 3 {
                    snapshots.remove(0);
                }
            }
            3..60 => {
                store.delete(&key, Durability::Written).unwrap();
                model.remove(&key);
            }
            60..180 => {
                let value = format!("{number}").into_bytes();
                store.put(&key, &value, Durability::Written).unwrap();
                model.insert(key, value);
            }
            _ => {
                agrees(&*store, &model, &mut draw);
                for (snapshot, then) in &snapshots {
                    agrees(&**snapshot, then, &mut draw);
                }
            }
        }
        if number % 200 == 0 {
            let entries = store.stats().unwrap().number("entries").unwrap();
            assert_eq!(entries, model.len() as u64);
        }
    }
    met.note(&*store);
    let report = store.check(&()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.entries, model.len() as u64);
    store.close().unwrap();
}

#[test]
fn packed_buffers_change_no_answer() {
    let mut met = Met::default();
    for seed in 0..12 {
        conforms(seed, &mut met);
    }
    assert!(met.packed > 8 * met.flushes.max(1) / 4, "little was packed");
    assert!(met.flushes > 50 && met.crashes > 20, "hardly any");
}
