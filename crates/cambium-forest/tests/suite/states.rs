//! What is special about `forest`: namespaces, snapshots under a name, rollback,
//! values that are copies of the store's own blocks, and that space comes back.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{CompactOptions, Durability, Engine, EngineKind, Error, OptionValues, Reader};
use cambium_forest::Forest;
use cambium_forest::seeded_bug::SeededBug;
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_io::{Environment, OpenOptions};
use cambium_testkit::golden::contents;
use cambium_testkit::stores;

const PATH: &str = "/store";

const SMALL: [(&str, &str); 3] = [
    ("node_bytes", "512"),
    ("block_bytes", "512"),
    ("write_buffer_entries", "8"),
];

fn create(environment: &Environment) -> Arc<dyn Engine> {
    stores::create(&Forest, environment, &OptionValues::from(SMALL))
}

fn open(environment: &Environment) -> Arc<dyn Engine> {
    let tuning = OptionValues::from([("write_buffer_entries", "8")]);
    stores::open(&Forest, environment, &tuning)
}

fn put(store: &dyn Engine, key: &str, value: &str) {
    let (key, value) = (key.as_bytes(), value.as_bytes());
    store.put(key, value, Durability::Written).unwrap();
}

fn text(reader: &dyn Reader, key: &str) -> Option<String> {
    let value = reader.get(key.as_bytes()).unwrap();
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[test]
fn a_name_longer_than_any_is_refused() {
    let store = create(&Environment::memory());
    let long = "n".repeat(256);
    assert!(matches!(
        store.namespace(&long),
        Err(Error::LimitExceeded(_))
    ));
    assert!(store.namespace(&long[..255]).is_ok());
    for name in ["", long.as_str()] {
        let refused = store.create_named_snapshot(name);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    }
}

#[test]
fn a_rollback_survives_any_crash_or_never_was() {
    for seed in 0..200 {
        let disk = SimulatedDisk::new(seed);
        let environment = Environment::simulated(&disk, seed);
        let store = create(&environment);
        for number in 0..20 {
            put(&*store, &format!("{number:02}"), "first");
        }
        store.create_named_snapshot("before").unwrap();
        let before = contents(&*store);
        for number in 0..(seed % 30) {
            put(&*store, &format!("{number:02}"), "second");
        }
        store.sync().unwrap();
        let image = disk.crash(CrashStyle::Mixed, seed);
        store.rollback("before").unwrap();
        let after = contents(&*store);
        assert_eq!(after, before);
        put(&*store, "x", "written, not synced");
        for (disk, rolled_back) in [(image, false), (disk.crash(CrashStyle::Mixed, seed), true)] {
            let environment = Environment::simulated(&disk, seed + 1);
            let store = open(&environment);
            let mut found = contents(&*store);
            found.retain(|(key, _)| key != b"x");
            assert_eq!(
                found == before,
                rolled_back || seed % 30 == 0,
                "seed {seed}"
            );
            assert_eq!(store.list_named_snapshots().unwrap().len(), 1);
        }
    }
}

/// Every block of the store's own file as a value, at places where a scan that
/// believed it would go wrong.
#[test]
fn copies_of_its_own_blocks_are_values_and_nothing_else() {
    let disk = SimulatedDisk::new(3);
    let environment = Environment::simulated(&disk, 3);
    let store = create(&environment);
    let mut expected = Vec::new();
    for round in 0..4u32 {
        for number in 0..12u32 {
            let key = format!("{round}-{number}").into_bytes();
            store.put(&key, &[7; 60], Durability::Synced).unwrap();
            expected.push((key, vec![7; 60]));
        }
        let name = disk.files().into_iter().find(|path| {
            path.extension()
                .is_some_and(|extension| extension == "forest")
        });
        let bytes = disk.contents(&name.unwrap()).unwrap();
        for (number, block) in bytes.chunks(512).enumerate().take(60) {
            let key = format!("{round}-block-{number}").into_bytes();
            // Shifted so that some copies begin at a block of the file.
            let mut value = vec![0; (round as usize * 152 + number * 8) % 512];
            value.extend_from_slice(block);
            let durability = [Durability::Written, Durability::Synced][number % 2];
            store.put(&key, &value, durability).unwrap();
            expected.push((key, value));
        }
    }
    store.sync().unwrap();
    expected.sort();
    for style in CrashStyle::ALL {
        let image = disk.crash(style, 9);
        let environment = Environment::simulated(&image, 4);
        let report = Forest
            .check(&environment, Path::new(PATH), &Default::default(), &())
            .unwrap();
        assert!(report.is_sound(), "{style:?}: {report:?}");
        let store = open(&environment);
        assert_eq!(contents(&*store), expected, "{style:?}");
        store.compact(&CompactOptions::default(), &()).unwrap();
        assert_eq!(contents(&*store), expected, "{style:?}");
    }
}

#[test]
fn space_comes_back_by_itself() {
    for (cleaning, counted) in [("on", "cleanings"), ("off", "compactions")] {
        space_comes_back(cleaning, counted);
    }
}

fn space_comes_back(cleaning: &str, counted: &str) {
    let environment = Environment::memory();
    let tuning = OptionValues::from([
        ("cleaning", cleaning),
        ("compaction_least_bytes", "100000"),
        ("compaction_threshold", "50"),
        ("preallocate_bytes", "0"),
        ("segment_bytes", "16KiB"),
        ("write_buffer_entries", "64"),
    ]);
    let store = stores::create(&Forest, &environment, &tuning);
    let mut largest = 0;
    for round in 0..300u32 {
        for key in 0..20u32 {
            let value = vec![round as u8; 200];
            store
                .put(&key.to_be_bytes(), &value, Durability::Written)
                .unwrap();
        }
        while store.step(1 << 16).unwrap() == cambium_io::StepOutcome::Again {}
        largest = largest.max(store.stats().unwrap().number("file_bytes").unwrap());
    }
    let stats = store.stats().unwrap();
    assert!(stats.number(counted).unwrap() > 3, "{stats:?}");
    assert!(largest < 400_000, "the file grew to {largest}");
    assert_eq!(contents(&*store).len(), 20);
}

#[test]
fn a_compaction_that_is_cancelled_changes_nothing() {
    let environment = Environment::memory();
    let store = create(&environment);
    for number in 0..200 {
        put(&*store, &format!("{number:03}"), "value");
    }
    struct Cancels(Arc<dyn Engine>);
    impl cambium_api::ProgressSink for Cancels {
        fn report(&self, _: cambium_api::Progress) {
            self.0.cancel();
        }
    }
    let names = |environment: &Environment| environment.file_system.list(Path::new(PATH)).unwrap();
    let before = names(&environment);
    let compacted = store.compact(&CompactOptions::default(), &Cancels(store.clone()));
    assert!(matches!(compacted, Err(Error::Cancelled)));
    assert_eq!(names(&environment), before);
    assert_eq!(contents(&*store).len(), 200);
}

/// The number a write gets after a crash that lost everything unsynced.
fn number_after_a_crash(bug: Option<&str>) -> (u64, u64) {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let store = create(&environment);
    store.put(b"a", b"kept", Durability::Synced).unwrap();
    let lost = store.put(b"a", b"lost", Durability::Written).unwrap();
    let disk = disk.crash(CrashStyle::NothingUnsynced, 1);
    let environment = Environment::simulated(&disk, 2);
    let mut tuning = OptionValues::default();
    if let Some(bug) = bug {
        tuning.set("seeded_bug", bug);
    }
    let store = stores::open(&Forest, &environment, &tuning);
    assert_eq!(text(&*store, "a").as_deref(), Some("kept"));
    let given = store.put(b"b", b"new", Durability::Written).unwrap();
    (lost.0, given.0)
}

#[test]
fn numbers_are_not_given_twice_after_a_crash() {
    let (lost, given) = number_after_a_crash(None);
    assert!(given > lost, "{given} after {lost}");
    let bug = SeededBug::ALL
        .iter()
        .find(|(bug, _)| *bug == SeededBug::EpochReused);
    let (lost, given) = number_after_a_crash(bug.map(|(_, name)| *name));
    assert!(given <= lost, "the seeded bug would not be found");
}

/// Fills a disk, so that a flush finds no room while writers still do, and
/// makes room again; answers whether everything that was accepted is there.
fn survives_a_full_disk(bug: Option<&str>) -> bool {
    let disk = SimulatedDisk::new(2);
    let environment = Environment::simulated(&disk, 2);
    let mut tuning = OptionValues::from(SMALL);
    // Many keys for each node: buffers go straight into the trie.
    tuning.set("node_bytes", "4096");
    tuning.set("write_buffer_entries", "36");
    if let Some(bug) = bug {
        tuning.set("seeded_bug", bug);
    }
    let store = stores::create(&Forest, &environment, &tuning);
    let mut expected = std::collections::BTreeMap::new();
    let (mut refused, mut flushes) = (0, 0);
    for round in 0..2000u32 {
        if round % 100 == 20 {
            disk.set_capacity(Some(disk.used_bytes()));
        }
        if round % 100 == 90 {
            disk.set_capacity(None);
        }
        let key = (round % 80).to_be_bytes().to_vec();
        let mut value = vec![7; 150];
        value.extend_from_slice(&round.to_be_bytes());
        match store.put(&key, &value, Durability::Written) {
            Ok(_) => _ = expected.insert(key, value),
            Err(error) => {
                assert!(error.is_no_space(), "{error}");
                refused += 1;
            }
        }
        flushes = store.stats().unwrap().number("flushes").unwrap();
        if !contents(&*store).into_iter().eq(expected.clone()) {
            return false;
        }
    }
    assert!(refused > 20 && flushes > 10, "{refused} {flushes}");
    true
}

#[test]
fn a_flush_that_finds_no_room_is_done_later() {
    assert!(survives_a_full_disk(None));
    assert!(!survives_a_full_disk(Some("flush_drops_active")));
}

/// A store with every kind of block, damaged in one place after the other.
#[test]
fn a_repair_brings_back_everything_but_what_is_damaged() {
    let disk = SimulatedDisk::new(5);
    let environment = Environment::simulated(&disk, 5);
    let store = create(&environment);
    for number in 0..60 {
        put(&*store, &format!("{number:02}"), &format!("value {number}"));
    }
    put(&*store.namespace("people").unwrap(), "ada", "lovelace");
    store.create_named_snapshot("kept").unwrap();
    put(&*store, "undone", "by the rollback");
    store.rollback("kept").unwrap();
    store.delete(b"07", Durability::Written).unwrap();
    store.close().unwrap();
    let expected = contents(&*open(&Environment::simulated(&disk.fork(), 1)));
    assert_eq!(expected.len(), 59);
    for path in disk.files() {
        if path.ends_with("CAMBIUM") || path.ends_with("LOCK") {
            continue;
        }
        let length = disk.contents(&path).unwrap().len();
        for at in (0..length).step_by(97) {
            let damaged = disk.fork();
            damaged.flip_bit(&path, at as u64, 3);
            repaired_is_nearly(&damaged, &expected, &format!("{} at {at}", path.display()));
        }
    }
    for copy in ["/store/superblock-0", "/store/superblock-1"] {
        disk.replace_contents(Path::new(copy), b"nothing of use");
    }
    let found = repaired_is_nearly(&disk, &expected, "both superblocks");
    assert_eq!(found, expected);
}

#[test]
fn a_repair_that_finds_no_room_leaves_everything_as_it_was() {
    let disk = SimulatedDisk::new(5);
    let environment = Environment::simulated(&disk, 5);
    let store = create(&environment);
    for number in 0..400 {
        put(&*store, &format!("{number:03}"), &"value".repeat(50));
    }
    store.create_named_snapshot("kept").unwrap();
    store.close().unwrap();
    let file = Path::new("/store/000001.forest");
    let bytes = disk.contents(file).unwrap();
    let mut places = bytes.windows(10).enumerate();
    let within_a_value = places.rfind(|(_, bytes)| *bytes == b"valuevalue").unwrap();
    disk.flip_bit(file, within_a_value.0 as u64, 3);
    let before = disk.files();
    let check = |disk| {
        Forest.check(
            &Environment::simulated(disk, 1),
            Path::new(PATH),
            &Default::default(),
            &(),
        )
    };
    assert!(!check(&disk).unwrap().is_sound());
    for room in [0, 3_000, 60_000] {
        disk.set_capacity(Some(disk.used_bytes() + room));
        let repaired = Forest.repair(&environment, Path::new(PATH), &Default::default(), &());
        assert!(repaired.unwrap_err().is_no_space(), "room for {room} bytes");
        assert_eq!(disk.files(), before, "room for {room} bytes");
        assert!(!check(&disk).unwrap().is_sound());
    }
    disk.set_capacity(None);
    let repaired = Forest
        .repair(&environment, Path::new(PATH), &Default::default(), &())
        .unwrap();
    assert!(!repaired.is_sound(), "a document is lost");
    assert!(check(&disk).unwrap().is_sound());
}

/// At most one entry, or what hides it, may be lost; nothing may be made up.
fn repaired_is_nearly(
    disk: &SimulatedDisk,
    expected: &[(Vec<u8>, Vec<u8>)],
    what: &str,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let environment = Environment::simulated(disk, 6);
    let path = Path::new(PATH);
    let report = match Forest.repair(&environment, path, &Default::default(), &()) {
        Ok(report) => report,
        // The first block names the file: nothing can be believed without it.
        Err(Error::Corruption { offset, .. }) if offset < 512 => return Vec::new(),
        Err(error) => panic!("{what}: {error}"),
    };
    let told = report
        .findings
        .iter()
        .any(|finding| finding.what.contains("snapshot"));
    let report = Forest
        .check(&environment, path, &Default::default(), &())
        .unwrap();
    assert!(report.is_sound(), "{what}: {report:?}");
    let store = open(&environment);
    let found = contents(&*store);
    let lost = expected
        .iter()
        .filter(|entry| !found.contains(entry))
        .count();
    let returned = found.iter().filter(|entry| !expected.contains(entry));
    let returned: Vec<_> = returned.map(|(key, _)| key.as_slice()).collect();
    // A damaged tombstone, or a damaged rollback, brings back what it hid.
    let hidden = returned
        .iter()
        .all(|key| [&b"07"[..], b"undone"].contains(key));
    assert!(
        lost + returned.len() <= 1 && hidden,
        "{what}: lost {lost}, back {returned:?}"
    );
    put(&*store, "again", "writable");
    let kept = store.list_named_snapshots().unwrap();
    assert!(told || kept.len() == 1, "{what}: a named snapshot is gone");
    if !kept.is_empty() {
        store.rollback("kept").unwrap();
        let kept = contents(&*store);
        let whole = |number| {
            let (key, value) = (format!("{number:02}"), format!("value {number}"));
            kept.contains(&(key.into_bytes(), value.into_bytes()))
        };
        assert!(kept.len() == 60 && (0..60).all(whole), "{what}: {kept:?}");
    }
    store.close().unwrap();
    found
}

#[test]
fn a_folder_with_something_else_is_left_alone() {
    let environment = Environment::memory();
    let files = &environment.file_system;
    files.create_directory(Path::new(PATH)).unwrap();
    let other = Path::new(PATH).join("letter.txt");
    files.open(&other, OpenOptions::CREATE).unwrap();
    let created = Forest.create(&environment, Path::new(PATH), &OptionValues::default());
    assert!(matches!(created, Err(Error::AlreadyExists { .. })));
}
