//! Named snapshots: they hold the segments and tables that they need through overwriting,
//! collection and reopening, and give the space back when they are dropped. Rollback leads back
//! to exactly what was kept.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{CompactOptions, Durability, Engine, EngineKind, Error, OptionValues};
use cambium_io::Environment;
use cambium_io::simulated::SimulatedDisk;
use cambium_io::sync::schedule::Schedule;
use cambium_io::sync::scheduler::run;
use cambium_io::sync::thread;
use cambium_testkit::golden::contents;
use cambium_testkit::stores;
use cambium_wisckey::Wisckey;

use crate::support::{number, options_of};

const FOLDER: &str = "/store";
const KEYS: u32 = 300;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

const SMALL: [(&str, &str); 8] = [
    ("block_bytes", "512"),
    ("segment_bytes", "4096"),
    ("replay_bytes", "4096"),
    ("preallocate_bytes", "4096"),
    ("inline_bytes", "4"),
    ("table_bytes", "2048"),
    ("level_base_bytes", "4096"),
    ("space_limit", "120"),
];

fn options(changes: &[(&str, &str)]) -> OptionValues {
    options_of(&SMALL, changes)
}

fn create(disk: &SimulatedDisk, changes: &[(&str, &str)]) -> Arc<dyn Engine> {
    let environment = Environment::simulated(disk, 1);
    stores::create(&Wisckey, &environment, &options(changes))
}

fn open(disk: &SimulatedDisk, changes: &[(&str, &str)]) -> cambium_api::Result<Arc<dyn Engine>> {
    let environment = Environment::simulated(disk, 2);
    Wisckey.open(&environment, Path::new(FOLDER), &options(changes), &())
}

/// Writes every key anew.
fn overwrite(store: &dyn Engine, version: u32) -> State {
    let mut state = State::new();
    for number in 0..KEYS {
        let key = format!("key {number:04}").into_bytes();
        let value = format!("{version} of {number} ").repeat(8).into_bytes();
        store.put(&key, &value, Durability::Written).unwrap();
        state.insert(key, value);
        if number % 7 == 0 {
            store.step(1 << 20).unwrap();
        }
    }
    state
}

fn idle(store: &dyn Engine) {
    for _ in 0..2_000 {
        store.step(1 << 20).unwrap();
    }
}

fn found(store: &dyn Engine) -> State {
    contents(store).into_iter().collect()
}

fn found_in(store: &dyn Engine, name: &str) -> cambium_api::Result<State> {
    let snapshot = store.named_snapshot(name)?;
    let mut cursor = snapshot.iterate(cambium_api::IterationOrder::Any, None)?;
    let mut found = State::new();
    while let Some(entry) = cursor.next()? {
        found.insert(entry.key.to_vec(), entry.value.to_vec());
    }
    Ok(found)
}

/// Keeps a state, overwrites and compacts, and reads it again, before and after a reopening;
/// what does not hold.
fn lost_from_a_snapshot(changes: &[(&str, &str)]) -> Option<String> {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, changes);
    let kept = overwrite(&*store, 0);
    store.create_named_snapshot("kept").unwrap();
    for version in 1..6 {
        overwrite(&*store, version);
        store.compact(&CompactOptions::default(), &()).unwrap();
    }
    let now = overwrite(&*store, 6);
    match found_in(&*store, "kept") {
        Ok(state) if state == kept => {}
        other => {
            return Some(format!(
                "the snapshot reads {:?}",
                other.map(|all| all.len())
            ));
        }
    }
    store.close().unwrap();
    let store = match open(&disk, changes) {
        Ok(store) => store,
        Err(error) => return Some(error.to_string()),
    };
    assert_eq!(found(&*store), now);
    if let Err(error) = store.rollback("kept") {
        return Some(error.to_string());
    }
    let back = store.named_snapshot("kept").map(|_| found(&*store));
    match back {
        Ok(state) if state == kept => None,
        other => Some(format!(
            "after a rollback: {:?}",
            other.map(|all| all.len())
        )),
    }
}

#[test]
fn a_snapshot_outlives_overwriting_collection_and_reopening() {
    assert_eq!(lost_from_a_snapshot(&[]), None);
    assert_eq!(lost_from_a_snapshot(&[("hole_bytes", "1")]), None);
    assert_eq!(lost_from_a_snapshot(&[("collection", "tail")]), None);
}

#[test]
fn a_snapshot_whose_segment_is_dropped_too_early_is_found() {
    let bug = ("seeded_bug", "snapshot_segment_dropped");
    assert!(lost_from_a_snapshot(&[bug]).is_some(), "not found");
}

#[test]
fn the_space_of_a_snapshot_comes_back_when_it_is_dropped() {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, &[]);
    overwrite(&*store, 0);
    store.compact(&CompactOptions::default(), &()).unwrap();
    let (log, files) = (number(&*store, "value_log_bytes"), disk.files().len());
    for round in 0..4 {
        let name = format!("round {round}");
        store.create_named_snapshot(&name).unwrap();
        overwrite(&*store, round + 1);
        store.compact(&CompactOptions::default(), &()).unwrap();
        assert!(number(&*store, "named_snapshot_bytes") > log / 2);
        assert!(number(&*store, "value_log_bytes") > log / 2 * 3);
        store.drop_named_snapshot(&name).unwrap();
        idle(&*store);
        store.compact(&CompactOptions::default(), &()).unwrap();
    }
    assert_eq!(number(&*store, "named_snapshot_bytes"), 0);
    let left = number(&*store, "value_log_bytes");
    assert!(left < log * 5 / 4, "{left} of {log}");
    assert!(disk.files().len() < files + 8, "{:?}", disk.files());
    store.close().unwrap();
    let store = open(&disk, &[]).unwrap();
    assert!(store.list_named_snapshots().unwrap().is_empty());
    assert!(disk.files().len() < files + 8, "{:?}", disk.files());
}

/// What a store holds that goes back, writes on, and collects what is garbage then.
fn lost_behind_a_rollback(changes: &[(&str, &str)]) -> Option<String> {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, changes);
    let mut kept = overwrite(&*store, 0);
    store.create_named_snapshot("kept").unwrap();
    // Half of the values die, and jobs tell of it.
    for number in (0..KEYS).step_by(2) {
        let key = format!("key {number:04}").into_bytes();
        store.delete(&key, Durability::Written).unwrap();
    }
    idle(&*store);
    store.rollback("kept").unwrap();
    assert_eq!(found(&*store), kept);
    store.drop_named_snapshot("kept").unwrap();
    // Four values of five die now: the segments of the others are collected.
    for number in (0..KEYS).filter(|number| number % 5 != 1) {
        let key = format!("key {number:04}").into_bytes();
        store.delete(&key, Durability::Written).unwrap();
        kept.remove(&key);
    }
    // In the background, which reads the segments: a compaction would sort all values first.
    idle(&*store);
    let has_holes = changes.iter().any(|(name, _)| *name == "hole_bytes");
    assert!(has_holes || number(&*store, "collections") > 0);
    store.close().unwrap();
    let store = open(&disk, changes).unwrap();
    let report = store.check(&()).unwrap();
    let complaint = report.findings.first().map(|finding| finding.what.clone());
    complaint.or_else(|| (found(&*store) != kept).then(|| "another state".to_string()))
}

#[test]
fn what_died_before_a_rollback_lives_after_it() {
    assert_eq!(lost_behind_a_rollback(&[]), None);
    assert_eq!(lost_behind_a_rollback(&[("hole_bytes", "1")]), None);
}

#[test]
fn a_rollback_takes_no_longer_where_there_is_more_to_undo() {
    let operations = |versions: u32| {
        let disk = SimulatedDisk::new(1);
        let store = create(&disk, &[]);
        overwrite(&*store, 0);
        store.create_named_snapshot("kept").unwrap();
        for version in 1..=versions {
            overwrite(&*store, version);
        }
        let before = disk.operation_count();
        store.rollback("kept").unwrap();
        disk.operation_count() - before
    };
    let (few, many) = (operations(1), operations(12));
    assert!(
        many <= few + 30,
        "{many} operations, and {few} with less to undo"
    );
}

#[test]
fn readers_from_before_a_rollback_see_what_they_saw() {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, &[]);
    let kept = overwrite(&*store, 0);
    store.create_named_snapshot("kept").unwrap();
    let undone = overwrite(&*store, 1);
    let snapshot = store.snapshot().unwrap();
    let mut cursor = snapshot
        .iterate(cambium_api::IterationOrder::Any, None)
        .unwrap();
    cursor.next().unwrap();
    store.rollback("kept").unwrap();
    let later = overwrite(&*store, 2);
    store.compact(&CompactOptions::default(), &()).unwrap();
    idle(&*store);
    let mut rest = 1;
    while let Some(entry) = cursor.next().unwrap() {
        assert_eq!(undone[entry.key.as_slice()], entry.value.to_vec());
        rest += 1;
    }
    assert_eq!(rest, undone.len());
    for (key, value) in &undone {
        assert_eq!(snapshot.get(key).unwrap().unwrap(), *value);
    }
    assert_eq!(found(&*store), later);
    assert_eq!(found_in(&*store, "kept").unwrap(), kept);
    drop((cursor, snapshot));
    idle(&*store);
    // The name stays, and leads back once more.
    store.rollback("kept").unwrap();
    assert_eq!(found(&*store), kept);
}

/// Keeps, drops and goes back beside a writer and steps, interleaved by a scheduler at every
/// lock, ordered atomic and file operation; what does not hold.
fn wrong_among_threads(seed: u64) -> Option<String> {
    let disk = SimulatedDisk::new(seed);
    let tiny = [("segment_bytes", "2048"), ("replay_bytes", "1024")];
    let store = create(&disk, &tiny);
    let put = |store: &dyn Engine, number: u32, version: u32| {
        let key = format!("key {number:04}").into_bytes();
        let value = format!("{version:060}").into_bytes();
        store.put(&key, &value, Durability::Written).map(drop)
    };
    for number in 0..30 {
        put(&*store, number, 0).unwrap();
    }
    let scheduled = run(Schedule::random(seed), move || {
        let (writing, stepping) = (store.clone(), store.clone());
        let writer = thread::spawn(move || {
            for number in 0..30 {
                put(&*writing, number % 10, 1 + number).unwrap();
            }
        });
        let steps = thread::spawn(move || {
            for _ in 0..20 {
                stepping.step(1 << 20).unwrap();
            }
        });
        store.create_named_snapshot("kept").unwrap();
        let kept = found_in(&*store, "kept").unwrap();
        let before = store.snapshot().unwrap();
        let seen = before.get(b"key 0003").unwrap();
        store.rollback("kept").unwrap();
        let still = before.get(b"key 0003").unwrap();
        writer.join().unwrap();
        steps.join().unwrap();
        drop(before);
        let again = found_in(&*store, "kept").unwrap();
        // Writers may have gone on behind the rollback, with keys that they have.
        store.rollback("kept").unwrap();
        let back = found(&*store);
        store.close().unwrap();
        (kept, seen == still, again, back)
    });
    let (kept, same, again, back) = scheduled.outcome.unwrap();
    if !same {
        return Some("a snapshot changed with a rollback".to_string());
    }
    if kept != again || kept != back || kept.len() != 30 {
        return Some(format!(
            "{}, {}, {} entries",
            kept.len(),
            again.len(),
            back.len()
        ));
    }
    let store = open(&disk, &[]).unwrap();
    (found(&*store) != kept).then(|| "reopened, it is another state".to_string())
}

#[test]
fn snapshots_and_rollbacks_beside_writers_and_steps() {
    for seed in 0..150 {
        assert_eq!(wrong_among_threads(seed), None, "seed {seed}");
    }
}

#[test]
fn a_full_disk_refuses_a_snapshot_and_keeps_none() {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, &[("reserve_bytes", "0")]);
    overwrite(&*store, 0);
    idle(&*store);
    store.put(b"last", &[7; 64], Durability::Synced).unwrap();
    disk.set_capacity(Some(0));
    let made = store.create_named_snapshot("kept");
    assert!(matches!(made, Err(Error::NoSpace { .. })), "{made:?}");
    assert!(store.list_named_snapshots().unwrap().is_empty());
    disk.set_capacity(None);
    idle(&*store);
    assert!(store.list_named_snapshots().unwrap().is_empty());
    store.create_named_snapshot("kept").unwrap();
    assert_eq!(found_in(&*store, "kept").unwrap(), found(&*store));
}
