//! Garbage collection: what it frees, what it must not touch, and what goes on
//! meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cambium_api::{
    CompactOptions, Direction, Durability, Engine, EngineKind, Error, FindingKind, KeyRange,
    OptionValues, WriteBatch,
};
use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_io::{Environment, OpenOptions};
use cambium_testkit::golden::contents;
use cambium_testkit::stores::{self, threaded};
use cambium_wisckey::Wisckey;

use crate::support::work_until_idle;

const FOLDER: &str = "/store";
type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn small() -> OptionValues {
    OptionValues::from([
        ("block_bytes", "512"),
        ("segment_bytes", "16KiB"),
        ("replay_bytes", "16KiB"),
        ("preallocate_bytes", "4096"),
        ("inline_bytes", "8"),
        ("table_bytes", "4096"),
        ("table_block_bytes", "512"),
        ("level_base_bytes", "8192"),
        ("space_limit", "160"),
    ])
}

fn create(environment: &Environment) -> Arc<dyn Engine> {
    stores::create(&Wisckey, environment, &small())
}

fn key(number: u64) -> Vec<u8> {
    // Multiplied by an odd number: each key once, in no order.
    format!("key {:08}", number.wrapping_mul(0x9e37_79b1) % 100_000_000).into_bytes()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    let mut value = format!("{round:06} {number:06} ").into_bytes();
    value.resize(200 + (number % 64) as usize, b'v');
    value
}

fn fill(store: &dyn Engine, state: &mut State, keys: u64, round: u64) {
    for number in 0..keys {
        let (key, value) = (key(number), value(number, round));
        store.put(&key, &value, Durability::Written).unwrap();
        state.insert(key, value);
    }
}

fn is_same(store: &dyn Engine, state: &State) {
    let expected: Vec<_> = state.clone().into_iter().collect();
    assert!(contents(store) == expected, "entries differ");
}

fn ratio(store: &dyn Engine, name: &str) -> f64 {
    let stats = store.stats().unwrap();
    let found = stats.entries.iter().find(|entry| entry.name == name);
    match found.map(|entry| &entry.value) {
        Some(cambium_api::StatisticValue::Ratio(ratio)) => *ratio,
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn space_stays_within_its_limit_under_steady_overwriting() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let store = create(&environment);
    let mut state = State::new();
    fill(&*store, &mut state, 300, 0);
    for round in 1..16 {
        // Others stay, so that no segment is all garbage.
        for number in (0..300).filter(|number| number * 7 % 16 != round) {
            let (key, value) = (key(number), value(number, round));
            store.put(&key, &value, Durability::Written).unwrap();
            state.insert(key, value);
        }
        work_until_idle(&*store);
    }
    is_same(&*store, &state);
    let stats = store.stats().unwrap();
    assert!(stats.number("collections").unwrap() > 5, "{stats:?}");
    let amplification = ratio(&*store, "space_amplification");
    // A segment's worth of garbage is let be.
    assert!(amplification <= 1.85, "{amplification}");
    let used = stats.number("value_log_bytes").unwrap();
    let live: u64 = state.values().map(|value| value.len() as u64 + 64).sum();
    assert!(used < live * 3, "{used} bytes on disk for {live} live ones");
    store.close().unwrap();
    let report = Wisckey
        .check(&environment, Path::new(FOLDER), &Default::default(), &())
        .unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    assert_eq!(report.entries, 300);
}

#[test]
fn compaction_leaves_nothing_but_what_is_live_and_scans_become_sequential() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let store = create(&environment);
    let mut state = State::new();
    for round in 0..3 {
        fill(&*store, &mut state, 200, round);
    }
    for number in (0..200).step_by(2) {
        store.delete(&key(number), Durability::Written).unwrap();
        state.remove(&key(number));
    }
    let scan_reads = || {
        let before = store.stats().unwrap().number("value_reads").unwrap();
        is_same(&*store, &state);
        store.stats().unwrap().number("value_reads").unwrap() - before
    };
    let before = scan_reads();
    let report = store.compact(&CompactOptions::default(), &()).unwrap();
    assert!(report.documents >= 100, "{report:?}");
    let after = scan_reads();
    assert!(after * 2 < before, "{after} reads, and {before} before");
    let amplification = ratio(&*store, "space_amplification");
    assert!(amplification < 1.1, "{amplification}");
    store.close().unwrap();
    let store = stores::open(&Wisckey, &environment, &small());
    is_same(&*store, &state);
}

#[test]
fn what_is_deleted_or_overwritten_during_a_collection_stays_so() {
    for budget in [300, 1_000, 5_000] {
        let disk = SimulatedDisk::new(budget);
        let environment = Environment::simulated(&disk, 1);
        let store = create(&environment);
        let mut state = State::new();
        for round in 0..4 {
            fill(&*store, &mut state, 100, round);
        }
        // One small step of whatever is due, then one change, again and again.
        for number in 0..100 {
            store.step(budget).unwrap();
            let key = key(number);
            match number % 3 {
                0 => {
                    store.delete(&key, Durability::Written).unwrap();
                    state.remove(&key);
                }
                1 => {
                    let value = value(number, 99);
                    store.put(&key, &value, Durability::Written).unwrap();
                    state.insert(key, value);
                }
                _ => {}
            }
        }
        let range = KeyRange::between(b"key 2", b"key 4");
        store
            .delete_range(range.clone(), Durability::Written)
            .unwrap();
        state.retain(|key, _| !range.contains(key));
        work_until_idle(&*store);
        is_same(&*store, &state);
        store.compact(&CompactOptions::default(), &()).unwrap();
        is_same(&*store, &state);
        // Also after a crash: what a recovery replays is not older than what
        // was collected.
        drop(store);
        let store = stores::open(&Wisckey, &environment, &small());
        is_same(&*store, &state);
    }
}

#[test]
fn snapshots_and_cursors_outlive_the_collection_of_their_values() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let store = create(&environment);
    let mut state = State::new();
    fill(&*store, &mut state, 200, 0);
    let snapshot = store.snapshot().unwrap();
    let then = state.clone();
    let mut cursor = store.scan(&KeyRange::all(), Direction::Reverse).unwrap();
    let first = cursor.next().unwrap().unwrap();
    for round in 1..6 {
        fill(&*store, &mut state, 200, round);
        work_until_idle(&*store);
    }
    store.compact(&CompactOptions::default(), &()).unwrap();
    assert_eq!(
        contents(&*snapshot),
        then.clone().into_iter().collect::<Vec<_>>()
    );
    let mut walked = vec![(first.key.to_vec(), first.value.to_vec())];
    while let Some(entry) = cursor.next().unwrap() {
        walked.push((entry.key.to_vec(), entry.value.to_vec()));
    }
    walked.reverse();
    assert_eq!(walked, then.into_iter().collect::<Vec<_>>());
    is_same(&*store, &state);
    drop((snapshot, cursor));
    // With the last reader goes what only it could see.
    let held = store.stats().unwrap().number("segments").unwrap();
    fill(&*store, &mut state, 200, 7);
    work_until_idle(&*store);
    store.compact(&CompactOptions::default(), &()).unwrap();
    let left = store.stats().unwrap().number("segments").unwrap();
    assert!(left < held, "{left} segments, and {held} while it was read");
}

#[test]
fn reads_beside_collection_by_threads_never_fail() {
    let environment = threaded();
    let store = create(&environment);
    let mut state = State::new();
    fill(&*store, &mut state, 100, 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2u64 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                let mut number = reader;
                while !done.load(Ordering::Relaxed) {
                    number += 1;
                    let key = key(number % 100);
                    let found = store.get(&key).unwrap().unwrap();
                    let expected = value(number % 100, 0);
                    assert_eq!(found[6..], expected[6..], "another key's value");
                    let found = store.multi_get(&[&key, b"none"]).unwrap();
                    assert!(found[0].is_some() && found[1].is_none());
                    if number % 50 == 0 {
                        assert_eq!(contents(&**store).len(), 100);
                    }
                }
            });
        }
        for round in 1..60 {
            fill(&*store, &mut state, 100, round);
        }
        done.store(true, Ordering::Relaxed);
    });
    is_same(&*store, &state);
    let freed = store.stats().unwrap().number("collection_bytes_freed");
    assert!(freed.unwrap() > 0);
    store.close().unwrap();
}

#[test]
fn a_full_disk_stops_collection_and_loses_nothing() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let mut options = small();
    options.set("reserve_bytes", "0");
    let store = stores::create(&Wisckey, &environment, &options);
    let mut state = State::new();
    for round in 0..4 {
        fill(&*store, &mut state, 150, round);
    }
    disk.set_capacity(Some(disk.used_bytes() + 2_000));
    let mut failed = 0;
    for _ in 0..200 {
        match store.step(4_000) {
            Ok(_) => {}
            Err(Error::NoSpace { .. }) => failed += 1,
            Err(other) => panic!("a full disk answers {other}"),
        }
    }
    is_same(&*store, &state);
    disk.set_capacity(None);
    fill(&*store, &mut state, 150, 9);
    work_until_idle(&*store);
    is_same(&*store, &state);
    assert!(failed > 0, "the disk was never full");
    store.close().unwrap();
    let report = Wisckey
        .check(&environment, Path::new(FOLDER), &Default::default(), &())
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
}

fn files(environment: &Environment, below: &str) -> Vec<std::path::PathBuf> {
    let folder = Path::new(FOLDER).join(below);
    let entries = environment.file_system.list(&folder).unwrap();
    let names = entries.iter().map(|entry| folder.join(&entry.name));
    names.collect()
}

fn damage(environment: &Environment, path: &Path, offset: u64) {
    let file = environment
        .file_system
        .open(path, OpenOptions::WRITE)
        .unwrap();
    file.write_at(&[0xa5; 64], offset).unwrap();
}

#[test]
fn repair_keeps_all_but_the_value_that_is_damaged() {
    let environment = Environment::memory();
    let store = create(&environment);
    let mut state = State::new();
    fill(&*store, &mut state, 100, 0);
    store.close().unwrap();
    let segment = files(&environment, "").into_iter().find(|path| {
        path.extension()
            .is_some_and(|extension| extension == "values")
    });
    damage(&environment, &segment.unwrap(), 2_000);
    let folder = Path::new(FOLDER);
    assert!(
        !Wisckey
            .check(&environment, folder, &Default::default(), &())
            .unwrap()
            .is_sound()
    );
    let report = Wisckey
        .repair(&environment, folder, &Default::default(), &())
        .unwrap();
    assert!((1..=2).contains(&report.findings.len()), "{report:?}");
    let lost = report.findings.len();
    assert!(
        Wisckey
            .check(&environment, folder, &Default::default(), &())
            .unwrap()
            .is_sound()
    );
    let store = Wisckey.open(&environment, folder, &small(), &()).unwrap();
    let left = contents(&*store);
    assert_eq!(left.len(), 100 - lost);
    assert!(left.iter().all(|(key, value)| state[key] == *value));
}

#[test]
fn repair_builds_a_lost_tree_anew_from_the_value_log() {
    let environment = Environment::memory();
    let store = create(&environment);
    let mut state = State::new();
    for round in 0..2 {
        fill(&*store, &mut state, 80, round);
    }
    let people = store.namespace("people").unwrap();
    people
        .put(b"ada", b"lovelace", Durability::Written)
        .unwrap();
    let mut batch = WriteBatch::new();
    for number in 0..10 {
        batch.delete(&key(number));
        state.remove(&key(number));
    }
    store.write(batch, Durability::Synced).unwrap();
    store.close().unwrap();
    drop((store, people));
    for path in files(&environment, "keys") {
        environment.file_system.remove(&path).unwrap();
    }
    let folder = Path::new(FOLDER);
    assert!(Wisckey.open(&environment, folder, &small(), &()).is_err());
    let report = Wisckey
        .repair(&environment, folder, &Default::default(), &())
        .unwrap();
    let damage = |finding: &&cambium_api::Finding| finding.kind == FindingKind::Damage;
    assert!(
        report.findings.iter().any(|finding| damage(&finding)),
        "{report:?}"
    );
    let store = Wisckey.open(&environment, folder, &small(), &()).unwrap();
    is_same(&*store, &state);
    let people = store.namespace("people").unwrap();
    assert_eq!(people.get(b"ada").unwrap().unwrap(), b"lovelace");
    store
        .put(b"more", b"is written", Durability::Synced)
        .unwrap();
    store.close().unwrap();
    assert!(
        Wisckey
            .check(&environment, folder, &Default::default(), &())
            .unwrap()
            .is_sound()
    );
}

#[test]
fn repair_makes_a_damaged_marker_anew() {
    let environment = Environment::memory();
    let store = create(&environment);
    let mut state = State::new();
    fill(&*store, &mut state, 100, 0);
    store.close().unwrap();
    let folder = Path::new(FOLDER);
    let marker = folder.join("CAMBIUM");
    // Its superblock says whose it is; then its segments alone.
    for superblock in [true, false] {
        damage(&environment, &marker, 20);
        if !superblock {
            for copy in ["superblock-0", "superblock-1"] {
                damage(&environment, &folder.join(copy), 30);
            }
        }
        assert!(Wisckey.open(&environment, folder, &small(), &()).is_err());
        let report = Wisckey
            .repair(&environment, folder, &Default::default(), &())
            .unwrap();
        let named = |finding: &cambium_api::Finding| finding.file == marker;
        assert!(report.findings.iter().any(named), "{report:?}");
        assert!(
            Wisckey
                .check(&environment, folder, &Default::default(), &())
                .unwrap()
                .is_sound()
        );
        let store = Wisckey.open(&environment, folder, &small(), &()).unwrap();
        assert_eq!(
            contents(&*store),
            state.clone().into_iter().collect::<Vec<_>>()
        );
        store.close().unwrap();
    }
}

#[test]
fn segments_full_of_what_is_live_are_left_alone() {
    // Of such short segments the header is much, and no collection frees it.
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let mut options = small();
    options.set("segment_bytes", "4096");
    options.set("space_limit", "110");
    let store = stores::create(&Wisckey, &environment, &options);
    let mut state = State::new();
    fill(&*store, &mut state, 300, 0);
    for round in 1..4 {
        for number in (0..300).filter(|number| number % 3 == 0) {
            let (key, value) = (key(number), value(number, round));
            store.put(&key, &value, Durability::Written).unwrap();
            state.insert(key, value);
        }
        work_until_idle(&*store);
    }
    is_same(&*store, &state);
    let moved = || {
        store
            .stats()
            .unwrap()
            .number("collection_bytes_written")
            .unwrap()
    };
    let before = moved();
    // Somebody seals a write buffer now and then, and nothing becomes garbage.
    for number in 0..40 {
        let key = format!("new {number}");
        store.put(key.as_bytes(), b"", Durability::Synced).unwrap();
        work_until_idle(&*store);
    }
    let live: u64 = state.values().map(|value| value.len() as u64 + 64).sum();
    assert!(
        moved() - before < live,
        "{} bytes of {live} were moved",
        moved() - before
    );
    assert!(before > 0, "nothing was collected at all");
}

#[test]
fn a_rate_that_is_too_low_does_not_let_space_grow() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let mut options = small();
    // A byte a second, and the clock stands still: what goes on is beyond the limit.
    options.set("collection_rate", "1");
    let store = stores::create(&Wisckey, &environment, &options);
    let mut state = State::new();
    fill(&*store, &mut state, 300, 0);
    let mut random = Generator::new(1);
    for round in 1..40 {
        for _ in 0..100 {
            let number = random.below(300);
            let (key, value) = (key(number), value(number, round));
            store.put(&key, &value, Durability::Written).unwrap();
            state.insert(key, value);
        }
        work_until_idle(&*store);
    }
    is_same(&*store, &state);
    let amplification = ratio(&*store, "space_amplification");
    assert!(amplification <= 2.2, "{amplification}");
}

#[test]
fn what_only_closed_snapshots_saw_gives_its_space_back() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    for compacts in [true, false] {
        let folder = format!("{FOLDER}-{compacts}");
        let store = Wisckey.create(&environment, Path::new(&folder), &small());
        let store = store.unwrap();
        let mut state = State::new();
        let mut snapshots = Vec::new();
        for round in 0..100 {
            fill(&*store, &mut state, 20, round);
            snapshots.push((store.snapshot().unwrap(), round));
        }
        store.compact(&CompactOptions::default(), &()).unwrap();
        for (snapshot, round) in snapshots.drain(..) {
            let found = snapshot.get(&key(7)).unwrap().unwrap();
            assert_eq!(*found, *value(7, round));
        }
        match compacts {
            true => _ = store.compact(&CompactOptions::default(), &()).unwrap(),
            false => work_until_idle(&*store),
        }
        is_same(&*store, &state);
        let stats = store.stats().unwrap();
        assert_eq!(stats.number("tree_entries"), Some(20));
        let live = stats.number("value_log_live_bytes").unwrap();
        assert!(live < 20 * 400, "{live} bytes live");
        // Garbage of less than a segment or two is let be.
        let used = stats.number("value_log_bytes").unwrap();
        assert!(used < 6 * 16384, "{used} bytes on disk");
    }
}
