//! Cleaning: stale space comes back with flushes and by itself, readers keep what they see,
//! and no crash, loss of a superblock or repair brings anything back.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    ChangeOptions, CompactOptions, Direction, Durability, Engine, EngineKind, KeyRange,
    OptionValues,
};
use cambium_base::{Error, SequenceNumber};
use cambium_forest::Forest;
use cambium_io::simulated::{CrashStyle, ProbePoints, SimulatedDisk};
use cambium_io::{Environment, OpenOptions, StepOutcome};
use cambium_testkit::stores::{self, number};

use crate::support::{Model, SMALL_NODES, contents};

const PATH: &str = "/store";
const KEYS: u32 = 2_000;
const NO_CLEANING: (&str, &str) = ("compaction_threshold", "100");

fn settings(more: &[(&str, &str)]) -> OptionValues {
    let all = [
        ("write_buffer_entries", "500"),
        ("preallocate_bytes", "4096"),
        ("segment_bytes", "16KiB"),
        ("compaction_least_bytes", "65536"),
        ("compaction_threshold", "30"),
    ];
    stores::options(&[&all, more])
}

fn create(environment: &Environment, more: &[(&str, &str)]) -> Arc<dyn Engine> {
    let options = settings(&[&SMALL_NODES, more].concat());
    stores::create(&Forest, environment, &options)
}

fn open(environment: &Environment) -> Arc<dyn Engine> {
    stores::open(&Forest, environment, &settings(&[]))
}

/// Overwrites every key in another order, and rests until nothing is left to do.
fn overwrite(store: &dyn Engine, model: &mut Model, round: u32) {
    for number in 0..KEYS {
        let number = number.wrapping_mul(2_654_435_761).wrapping_add(round) % KEYS;
        // Small ones are packed, large ones are not.
        let bytes = if number % 50 == 0 { 700 } else { 60 };
        let key = format!("key {number:05}").into_bytes();
        let value = [&round.to_be_bytes()[..], &vec![number as u8; bytes]].concat();
        store.put(&key, &value, Durability::Written).unwrap();
        model.insert(key, value);
    }
    rest(store);
}

fn rest(store: &dyn Engine) {
    // Once more: a step that finds writers at work waits.
    for _ in 0..2 {
        while store.step(1 << 20).unwrap() == StepOutcome::Again {}
    }
}

fn allocated(environment: &Environment) -> u64 {
    let files = environment.file_system.list(Path::new(PATH)).unwrap();
    let paths = files.iter().map(|file| Path::new(PATH).join(&file.name));
    let opened = paths.map(|path| environment.file_system.open(&path, OpenOptions::READ));
    opened
        .map(|file| file.unwrap().allocated_bytes().unwrap())
        .sum()
}

#[test]
fn space_stays_bounded_and_every_answer_right() {
    let environment = Environment::memory();
    let store = create(&environment, &[]);
    let mut model = Model::new();
    let mut largest = 0;
    for round in 0..12 {
        overwrite(&*store, &mut model, round);
        assert_eq!(contents(&*store), model, "round {round}");
        largest = largest.max(allocated(&environment));
    }
    assert!(number(&*store, "cleanings") > 8);
    assert_eq!(number(&*store, "compactions"), 0);
    let live: usize = model
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    // Records of their own take more than half as much again.
    assert!(largest < 4 * live as u64, "{largest} of {live}");
    store.close().unwrap();
    let report = Forest.check(&environment, Path::new(PATH), &settings(&[]), &());
    assert!(report.as_ref().unwrap().is_sound(), "{report:?}");
    assert_eq!(contents(&*open(&environment)), model);
}

/// Whole segments go; a file in one piece is rewritten.
#[test]
fn space_comes_back_where_no_holes_can_be_made() {
    for (segment_bytes, is_compacted) in [("64KiB", false), ("128MiB", true)] {
        let environment = Environment {
            file_system: Arc::new(cambium_io::PortableFileSystem),
            ..Environment::real()
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let besides = [("segment_bytes", segment_bytes)];
        let store = Forest.create(&environment, &path, &settings(&besides));
        let store = store.unwrap();
        let bytes = || {
            let entries = std::fs::read_dir(&path).unwrap();
            let lengths = entries.map(|entry| entry.unwrap().metadata().unwrap().len());
            lengths.sum::<u64>()
        };
        let mut model = Model::new();
        for round in 0..40 {
            overwrite(&*store, &mut model, round);
        }
        assert_eq!(contents(&*store), model);
        assert_eq!(number(&*store, "compactions") > 0, is_compacted);
        // All that was written is some 8 MB.
        assert!(bytes() < 3 << 20, "{}", bytes());
    }
}

#[test]
fn a_store_of_which_everything_is_deleted_gives_everything_back() {
    let environment = Environment::memory();
    // Headers lie close to one another: a tail may be far shorter than the file.
    let store = create(&environment, &[("write_buffer_entries", "100")]);
    for number in 0..20_000u32 {
        let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
        store.put(&key, &[7; 100], Durability::Written).unwrap();
    }
    rest(&*store);
    let full = allocated(&environment);
    let all = KeyRange::all();
    store.delete_range(all, Durability::Written).unwrap();
    rest(&*store);
    let left = allocated(&environment);
    assert!(left < full / 10, "{left} of {full}");
    assert_eq!(contents(&*store), Model::new());
}

/// Reads through a snapshot and a cursor that were made before everything was overwritten
/// and cleaned.
fn reads_what_it_saw(more: &[(&str, &str)]) -> Result<(), String> {
    let environment = Environment::memory();
    let store = create(&environment, more);
    let mut model = Model::new();
    overwrite(&*store, &mut model, 0);
    let seen = model.clone();
    let snapshot = store.snapshot().unwrap();
    let mut cursor = store.scan(&KeyRange::all(), Direction::Forward).unwrap();
    for round in 1..6 {
        overwrite(&*store, &mut model, round);
    }
    let cleaned = number(&*store, "cleanings");
    let held = allocated(&environment);
    let mut walked = Model::new();
    while let Some(entry) = cursor.next().map_err(|error| error.to_string())? {
        walked.insert(entry.key.to_vec(), entry.value.to_vec());
    }
    assert!(walked == seen, "a cursor shows another state");
    for (key, value) in &seen {
        let found = snapshot.get(key).map_err(|error| error.to_string())?;
        assert_eq!(found.as_deref(), Some(value.as_slice()));
    }
    drop((cursor, snapshot));
    assert_eq!(
        cleaned, 1,
        "a tail that may be read waits, and so do those after it"
    );
    overwrite(&*store, &mut model, 6);
    assert!(number(&*store, "cleanings") > 1);
    assert!(allocated(&environment) < held, "space comes back");
    assert_eq!(contents(&*store), model);
    Ok(())
}

#[test]
fn readers_keep_what_they_see() {
    reads_what_it_saw(&[]).unwrap();
    let bug = [("seeded_bug", "tail_freed_beside_readers")];
    assert!(std::panic::catch_unwind(|| reads_what_it_saw(&bug).unwrap()).is_err());
    let bug = [("seeded_bug", "nodes_reused_beside_readers")];
    assert!(std::panic::catch_unwind(|| reads_what_it_saw(&bug).unwrap()).is_err());
}

/// Damages the copy of the superblock that counts, after a cleaning.
fn outlives_its_newest_superblock(more: &[(&str, &str)]) -> Result<(), String> {
    let environment = Environment::memory();
    let store = create(&environment, more);
    let mut model = Model::new();
    for round in 0..4 {
        overwrite(&*store, &mut model, round);
    }
    let cleans = !more.contains(&NO_CLEANING);
    assert_eq!(number(&*store, "cleanings") > 0, cleans);
    // As after the death of the process: a close writes both copies.
    drop(store);
    let mut copies = Vec::new();
    for copy in ["superblock-0", "superblock-1"] {
        let path = Path::new(PATH).join(copy);
        let file = environment.file_system.open(&path, OpenOptions::WRITE);
        copies.push(file.unwrap());
    }
    let mut damaged = Vec::new();
    for file in copies {
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let changed: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
        file.write_at(&changed, 0).unwrap();
        let store = Forest
            .open_read_only(&environment, Path::new(PATH), &settings(&[]), &())
            .map_err(|error| error.to_string())?;
        damaged.push((|| {
            let mut cursor = store.scan(&KeyRange::all(), Direction::Forward)?;
            let mut found = Model::new();
            while let Some(entry) = cursor.next()? {
                found.insert(entry.key.to_vec(), entry.value.to_vec());
            }
            Ok(found == model)
        })());
        file.write_at(&bytes, 0).unwrap();
    }
    for found in damaged {
        let found = found.map_err(|error: Error| error.to_string())?;
        assert!(found, "another state");
    }
    Ok(())
}

#[test]
fn the_loss_of_either_superblock_loses_nothing() {
    outlives_its_newest_superblock(&[]).unwrap();
    let bug = [("seeded_bug", "cleaning_named_once")];
    outlives_its_newest_superblock(&bug).unwrap_err();
    outlives_its_newest_superblock(&[NO_CLEANING]).unwrap();
}

#[test]
fn nodes_are_written_where_earlier_ones_were() {
    let environment = Environment::memory();
    let store = create(&environment, &[NO_CLEANING]);
    let mut model = Model::new();
    (0..4).for_each(|round| overwrite(&*store, &mut model, round));
    let before = allocated(&environment);
    let nodes = number(&*store, "node_bytes_written");
    let snapshot = store.snapshot().unwrap();
    let seen = model.clone();
    (4..8).for_each(|round| overwrite(&*store, &mut model, round));
    let nodes = number(&*store, "node_bytes_written") - nodes;
    let held = allocated(&environment) - before;
    for (key, value) in &seen {
        assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    drop(snapshot);
    // The first writes to none of the blocks that the snapshot has kept: readers of the
    // flush before it may hold them.
    (8..12).for_each(|round| overwrite(&*store, &mut model, round));
    let grown = allocated(&environment) - before - held;
    assert!(
        held > grown + nodes / 2,
        "{held} and {grown}, {nodes} of nodes"
    );
    assert_eq!(contents(&*store), model);
    store.close().unwrap();
    let report = Forest.check(&environment, Path::new(PATH), &settings(&[]), &());
    assert!(report.as_ref().unwrap().is_sound(), "{report:?}");
}

#[test]
fn a_crash_at_any_operation_of_a_cleaning_leaves_the_state() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let store = create(&environment, &[]);
    let mut model = Model::new();
    overwrite(&*store, &mut model, 0);
    store
        .delete_range(KeyRange::from(..b"key 01000".to_vec()), Durability::Synced)
        .unwrap();
    model.retain(|key, _| key.as_slice() >= b"key 01000".as_slice());
    let images = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = images.clone();
    disk.set_crash_probe(ProbePoints::Operations, move |point| {
        seen.lock().unwrap().push(point.disk);
    });
    let before = number(&*store, "cleanings");
    rest(&*store);
    disk.clear_crash_probe();
    assert!(number(&*store, "cleanings") > before);
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 10, "{}", images.len());
    for (count, image) in images.iter().enumerate() {
        for style in CrashStyle::ALL {
            let environment = Environment::simulated(&image.crash(style, count as u64), 7);
            let store = open(&environment);
            assert_eq!(contents(&*store), model, "image {count}, {style:?}");
            rest(&*store);
            assert_eq!(contents(&*store), model, "image {count}, {style:?}");
            store.close().unwrap();
            let report = Forest.check(&environment, Path::new(PATH), &settings(&[]), &());
            assert!(
                report.as_ref().unwrap().is_sound(),
                "image {count}, {style:?}"
            );
        }
    }
}

#[test]
fn a_repair_of_a_cleaned_store_brings_nothing_back() {
    let environment = Environment::memory();
    let store = create(&environment, &[]);
    let mut model = Model::new();
    for round in 0..5 {
        overwrite(&*store, &mut model, round);
        for number in (round..KEYS).step_by(7) {
            let key = format!("key {number:05}").into_bytes();
            store.delete(&key, Durability::Written).unwrap();
            model.remove(&key);
        }
        rest(&*store);
    }
    assert!(number(&*store, "cleanings") > 3);
    store.close().unwrap();
    drop(store);
    // Without a superblock the log alone tells what there is.
    for copy in ["superblock-0", "superblock-1"] {
        let path = Path::new(PATH).join(copy);
        let file = environment.file_system.open(&path, OpenOptions::WRITE);
        file.unwrap().write_at(&[0xa5; 4096], 0).unwrap();
    }
    Forest
        .repair(&environment, Path::new(PATH), &settings(&[]), &())
        .unwrap();
    assert_eq!(contents(&*open(&environment)), model);
}

#[test]
fn history_goes_with_its_tail_and_a_consumer_keeps_it() {
    let environment = Environment::memory();
    let store = create(&environment, &[]);
    let mut model = Model::new();
    overwrite(&*store, &mut model, 0);
    let mut feed = store
        .changes(SequenceNumber(0), ChangeOptions::default())
        .unwrap();
    assert!(feed.next().unwrap().is_some());
    for round in 1..5 {
        overwrite(&*store, &mut model, round);
    }
    let lost = feed.next().unwrap_err();
    assert!(matches!(lost, Error::HistoryLost { .. }), "{lost}");
    let from = store.snapshot().unwrap().sequence();
    store.move_consumer("follower", Some(from)).unwrap();
    let before = number(&*store, "file_bytes");
    for round in 5..9 {
        overwrite(&*store, &mut model, round);
    }
    assert!(number(&*store, "file_bytes") > before);
    let mut feed = store.changes(from, ChangeOptions::default()).unwrap();
    let mut batches = 0;
    while feed.next().unwrap().is_some() {
        batches += 1;
    }
    assert_eq!(batches, 4 * KEYS);
    store.move_consumer("follower", None).unwrap();
    overwrite(&*store, &mut model, 9);
    let now = number(&*store, "file_bytes");
    assert!(now < before * 2, "{now} after {before}");
    assert_eq!(contents(&*store), model);
}

#[test]
fn a_compaction_of_a_cleaned_store_begins_a_whole_file() {
    let environment = Environment::memory();
    let store = create(&environment, &[]);
    let mut model = Model::new();
    for round in 0..4 {
        overwrite(&*store, &mut model, round);
    }
    store.compact(&CompactOptions::default(), &()).unwrap();
    assert_eq!(contents(&*store), model);
    overwrite(&*store, &mut model, 4);
    overwrite(&*store, &mut model, 5);
    store.close().unwrap();
    assert_eq!(contents(&*open(&environment)), model);
}
