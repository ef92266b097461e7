//! Holes: freed values give their space back, and nothing else does.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    CompactOptions, Durability, Engine, EngineKind, FindingKind, KeyRange, OptionValues, Reader,
};
use cambium_io::Environment;
use cambium_io::simulated::SimulatedDisk;
use cambium_testkit::golden::contents;
use cambium_wisckey::Wisckey;

use crate::support::{number, work_until_idle};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// No collection: what comes back does so by holes.
const OPENING: [(&str, &str); 9] = [
    ("segment_bytes", "1MiB"),
    ("replay_bytes", "64KiB"),
    ("preallocate_bytes", "0"),
    ("inline_bytes", "8"),
    ("table_bytes", "4096"),
    ("table_block_bytes", "512"),
    ("level_base_bytes", "8192"),
    ("collection", "off"),
    ("hole_bytes", "4096"),
];

fn create(environment: &Environment, folder: &Path) -> Arc<dyn Engine> {
    let options = OptionValues::from(OPENING);
    Wisckey.create(environment, folder, &options).unwrap()
}

fn open(environment: &Environment, folder: &Path) -> Arc<dyn Engine> {
    let options = OptionValues::from(OPENING);
    Wisckey.open(environment, folder, &options, &()).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:04}").into_bytes()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    let mut value = format!("{round} {number} ").into_bytes();
    // Of no whole number of blocks, so that neighbours share one.
    value.resize(16_500 + (number % 7) as usize * 100, b'v');
    value
}

fn put(store: &dyn Engine, state: &mut State, number: u64, round: u64) {
    let (key, value) = (key(number), value(number, round));
    store.put(&key, &value, Durability::Written).unwrap();
    state.insert(key, value);
}

fn is_same(reader: &dyn Reader, state: &State) {
    let expected: Vec<_> = state.clone().into_iter().collect();
    assert!(contents(reader) == expected, "entries differ");
}

/// Two of three values are written again, so often that compactions see it.
fn overwritten(store: &dyn Engine, state: &mut State) {
    (0..60).for_each(|number| put(store, state, number, 0));
    work_until_idle(store);
    for round in 1..4 {
        let again = (0..60).filter(|number| number % 3 != 0);
        again.for_each(|number| put(store, state, number, round));
        work_until_idle(store);
    }
}

/// What went back is not used any more.
fn uses_what_is_left(store: &dyn Engine) {
    let written = number(store, "log_bytes_written");
    let used = number(store, "value_log_bytes");
    let given_back = number(store, "value_log_hole_bytes");
    // The two blocks of the header, and the last block, of each segment.
    let around = number(store, "segments") * 3 * 4096;
    assert!(
        used + given_back <= written + around,
        "{used} bytes are used of {written}, and {given_back} went back"
    );
}

#[test]
fn overwritten_values_give_their_space_back_without_a_collection() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let folder = Path::new("/store");
    let store = create(&environment, folder);
    let mut state = State::new();
    overwritten(&*store, &mut state);
    is_same(&*store, &state);
    assert!(number(&*store, "holes_punched") > 10);
    let given_back = number(&*store, "value_log_hole_bytes");
    assert!(given_back > 60 * 16_000, "{given_back} bytes");
    uses_what_is_left(&*store);
    let mut shown = Vec::new();
    store.dump(&mut shown).unwrap();
    store.close().unwrap();
    Wisckey.inspect(&environment, folder, &mut shown).unwrap();
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("holes given back"), "{shown}");
    assert!(shown.contains("bytes of freed values"), "{shown}");
    assert!(!shown.contains(" ?  "), "holes are no damage: {shown}");
    let report = Wisckey
        .check(&environment, folder, &Default::default(), &())
        .unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    // What went back stays known, and a collection steps over it.
    let store = open(&environment, folder);
    assert_eq!(number(&*store, "value_log_hole_bytes"), given_back);
    store.compact(&CompactOptions::default(), &()).unwrap();
    is_same(&*store, &state);
    let left = number(&*store, "value_log_garbage_bytes");
    assert!(left < 64 << 10, "{left} bytes of garbage are left");
}

#[test]
fn small_values_that_die_side_by_side_become_few_holes() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let store = create(&environment, Path::new("/store"));
    let fill = |numbers: std::ops::Range<u64>, byte: u8| {
        for number in numbers {
            let value = [byte; 100];
            let key = key(number);
            store.put(&key, &value, Durability::Written).unwrap();
        }
        work_until_idle(&*store);
    };
    fill(0..1000, b's');
    let range = KeyRange::between(&key(100), &key(400));
    store.delete_range(range, Durability::Written).unwrap();
    (0..10).for_each(|round| fill(600..1000, round));
    assert_eq!(contents(&*store).len(), 700);
    let holes = number(&*store, "value_log_holes");
    let bytes = number(&*store, "value_log_hole_bytes");
    assert!(
        holes > 0 && bytes / holes > 8 << 10,
        "{bytes} bytes in {holes} holes"
    );
}

#[test]
fn snapshots_and_cursors_keep_their_values() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let store = create(&environment, Path::new("/store"));
    let mut state = State::new();
    (0..60).for_each(|number| put(&*store, &mut state, number, 0));
    let then = state.clone();
    let snapshot = store.snapshot().unwrap();
    overwritten(&*store, &mut state);
    is_same(&*snapshot, &then);
    is_same(&*store, &state);
    drop(snapshot);
    let before = number(&*store, "value_log_hole_bytes");
    overwritten(&*store, &mut state);
    is_same(&*store, &state);
    assert!(number(&*store, "value_log_hole_bytes") > before);
}

#[test]
fn a_tree_built_anew_takes_no_hole_for_damage() {
    let environment = Environment::memory();
    let folder = Path::new("/store");
    let store = create(&environment, folder);
    let mut state = State::new();
    overwritten(&*store, &mut state);
    assert!(number(&*store, "holes_punched") > 0);
    store.close().unwrap();
    drop(store);
    let files = &environment.file_system;
    for entry in files.list(&folder.join("keys")).unwrap() {
        files.remove(&folder.join("keys").join(entry.name)).unwrap();
    }
    let report = Wisckey
        .repair(&environment, folder, &Default::default(), &())
        .unwrap();
    let in_log = report.findings.iter().filter(|finding| {
        let is_log = finding.file.extension().is_some();
        is_log && finding.kind == FindingKind::Damage
    });
    assert_eq!(in_log.count(), 0, "{report:?}");
    let store = open(&environment, folder);
    is_same(&*store, &state);
}

#[test]
fn files_of_this_machine_take_less_space() {
    let folder = tempfile::tempdir().unwrap();
    // Steps are taken here, so that nothing goes on while it is looked at.
    let environment = Environment {
        executor: Environment::memory().executor,
        ..Environment::real()
    };
    let store = create(&environment, &folder.path().join("store"));
    let mut state = State::new();
    overwritten(&*store, &mut state);
    // Nothing is said to have gone back where the file system knows no holes.
    uses_what_is_left(&*store);
    store.compact(&CompactOptions::default(), &()).unwrap();
    is_same(&*store, &state);
    store.close().unwrap();
    drop(store);
    let store = open(&environment, &folder.path().join("store"));
    is_same(&*store, &state);
}
