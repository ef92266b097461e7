//! What a check, a repair and an opening say of a damaged store, held against
//! what is so: nothing lost is passed over, and nothing comes back that was
//! undone.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cambium_api::{
    CheckReport, CompactOptions, Durability, Engine, EngineKind, Error, Finding, IterationOrder,
    OptionValues, Reader, Result,
};
use cambium_forest::Forest;
use cambium_forest::format::{ROOT_BYTES, Root};
use cambium_io::Environment;
use cambium_io::simulated::{CrashStyle, ProbePoints, SimulatedDisk};
use cambium_testkit::golden::contents;
use cambium_testkit::stores;

const PATH: &str = "/store";

type Entries = Vec<(Vec<u8>, Vec<u8>)>;
/// A name, and what is done to a store.
type Case = (&'static str, fn(&dyn Engine));

const SMALL: [(&str, &str); 4] = [
    ("node_bytes", "512"),
    ("block_bytes", "512"),
    ("write_buffer_entries", "8"),
    ("preallocate_bytes", "0"),
];

fn create(disk: &SimulatedDisk) -> Arc<dyn Engine> {
    let environment = Environment::simulated(disk, 1);
    stores::create(&Forest, &environment, &OptionValues::from(SMALL))
}

fn open(disk: &SimulatedDisk) -> Result<Arc<dyn Engine>> {
    let environment = Environment::simulated(disk, 2);
    let none = OptionValues::default();
    Forest.open(&environment, Path::new(PATH), &none, &())
}

fn check(disk: &SimulatedDisk) -> CheckReport {
    let environment = Environment::simulated(disk, 3);
    Forest
        .check(&environment, Path::new(PATH), &Default::default(), &())
        .unwrap()
}

fn put(store: &dyn Engine, key: &str, value: &str) {
    let (key, value) = (key.as_bytes(), value.as_bytes());
    store.put(key, value, Durability::Buffered).unwrap();
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
        .max_by_key(|bytes| u64::from_le_bytes(bytes[16..24].try_into().unwrap()))
        .unwrap();
    Root::decode(&newest[48..48 + ROOT_BYTES]).unwrap()
}

/// Ways to come to a newest header that tells what no replay brings back.
fn telling() -> Vec<(&'static str, SimulatedDisk)> {
    let cases: [Case; 5] = [
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

fn repair(disk: &SimulatedDisk) -> CheckReport {
    let environment = Environment::simulated(disk, 4);
    Forest
        .repair(&environment, Path::new(PATH), &Default::default(), &())
        .unwrap()
}

/// A small closed store with overwritten and deleted entries and several
/// flushes; with a compaction that left a snapshot's documents without
/// tombstones; with that snapshot, or without it.
fn closed(compacted: bool, kept: bool) -> (SimulatedDisk, Entries) {
    let disk = SimulatedDisk::new(5);
    let store = create(&disk);
    for number in 0..60 {
        put(&*store, &format!("{number:02}"), "first");
    }
    store.create_named_snapshot("kept").unwrap();
    for number in 0..30 {
        put(&*store, &format!("{:02}", number * 2), "second");
    }
    store.delete(b"07", Durability::Written).unwrap();
    if compacted {
        store.compact(&CompactOptions::default(), &()).unwrap();
        put(&*store, "late", "value");
    }
    if !kept {
        store.drop_named_snapshot("kept").unwrap();
    }
    store.close().unwrap();
    drop(store);
    let entries = contents(&*open(&disk.fork()).unwrap());
    (disk, entries)
}

/// Repairs, and holds the report against what is there then; answers whether it
/// says that nothing was lost.
fn repairs_honestly(disk: &SimulatedDisk, (expected, kept): (&Entries, bool), case: &str) -> bool {
    let report = repair(disk);
    assert!(check(disk).is_sound(), "{case}");
    let store = open(disk).unwrap();
    let whole = contents(&*store) == *expected && names(&*store).len() == usize::from(kept);
    assert!(
        whole || !report.is_sound(),
        "{case}: lost without a word: {report:?}"
    );
    put(&*store, "again", "writable");
    store.close().unwrap();
    let put_away = disk
        .files()
        .iter()
        .any(|path| path.to_string_lossy().ends_with(".forest.damaged"));
    assert_eq!(put_away, !report.is_sound(), "{case}");
    report.is_sound()
}

const KINDS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

#[test]
fn a_repair_of_a_cut_file_says_what_is_lost() {
    for (compacted, kept) in KINDS {
        let (disk, entries) = closed(compacted, kept);
        let file = database_file(&disk);
        let bytes = disk.contents(&file).unwrap();
        for length in (1024..root(&disk).end as usize).step_by(211) {
            let damaged = disk.fork();
            damaged.replace_contents(&file, &bytes[..length]);
            let case = format!("{compacted} {kept}, cut at {length}");
            let sound = repairs_honestly(&damaged, (&entries, kept), &case);
            // Behind the spare there may be nothing but what is made anew.
            assert!(!sound || length as u64 > root(&disk).spare_header, "{case}");
        }
    }
}

#[test]
fn a_repair_of_a_store_with_a_hole_says_what_is_lost() {
    for (compacted, kept) in KINDS {
        let (disk, entries) = closed(compacted, kept);
        let file = database_file(&disk);
        let bytes = disk.contents(&file).unwrap();
        let (mut sound, mut cases) = (0, 0);
        for at in (0..bytes.len()).step_by(149) {
            for length in [1, 64, 512] {
                let damaged = disk.fork();
                let mut changed = bytes.clone();
                let end = bytes.len().min(at + length);
                match length {
                    1 => changed[at] ^= 1 << (at % 8),
                    _ => changed[at..end].fill(0),
                }
                damaged.replace_contents(&file, &changed);
                let case = format!("{compacted} {kept}, {length} at {at}");
                let whole = repairs_honestly(&damaged, (&entries, kept), &case);
                sound += u32::from(whole);
                cases += 1;
            }
        }
        // Much of a file is not needed; what is, is missed.
        assert!(sound > cases / 4 && sound < cases, "{sound} of {cases}");
    }
}

/// What a compaction left out a repair must not bring back, though a snapshot
/// kept its document: the log alone does not say that it was deleted.
#[test]
fn a_repair_brings_back_no_deleted_entry_that_a_snapshot_kept() {
    let (disk, mut entries) = closed(true, true);
    let file = database_file(&disk);
    let bytes = disk.contents(&file).unwrap();
    let at = bytes.windows(4).position(|part| part == b"late").unwrap();
    disk.flip_bit(&file, at as u64, 1);
    let report = repair(&disk);
    assert!(!report.is_sound());
    entries.retain(|(key, _)| key != b"late");
    assert_eq!(contents(&*open(&disk).unwrap()), entries, "{report:?}");
}

/// The lines of a marker that say which store it is.
fn lines_of_store(disk: &SimulatedDisk, marker: &Path) -> Vec<String> {
    let text = String::from_utf8(disk.contents(marker).unwrap()).unwrap();
    text.lines().take(4).map(str::to_string).collect()
}

#[test]
fn a_store_without_its_marker_or_first_block_is_repaired() {
    let (disk, entries) = closed(false, true);
    let marker = Path::new("/store/CAMBIUM");
    let file = database_file(&disk);
    let length = disk.contents(marker).unwrap().len();
    for at in 0..length {
        let damaged = disk.fork();
        damaged.flip_bit(marker, at as u64, 2);
        let report = repair(&damaged);
        assert!(report.is_sound(), "{at}: {report:?}");
        let store = open(&damaged).unwrap();
        assert_eq!(
            (contents(&*store), names(&*store).len()),
            (entries.clone(), 1)
        );
        // Nothing but the marker was touched. It may say more: that entries may expire,
        // which a repair cannot know.
        assert_eq!(
            lines_of_store(&disk, marker),
            lines_of_store(&damaged, marker)
        );
        assert_eq!(disk.contents(&file), damaged.contents(&file));
    }
    for at in 0..96 {
        let damaged = disk.fork();
        damaged.flip_bit(&file, at, 2);
        assert!(!check(&damaged).is_sound(), "{at}");
        assert!(open(&damaged).is_err(), "{at}");
        repair(&damaged);
        assert_eq!(contents(&*open(&damaged).unwrap()), entries, "{at}");
    }
}

/// Damage of a closed store, and whether all entries survive it.
fn damaged(disk: &SimulatedDisk) -> Vec<(&'static str, SimulatedDisk)> {
    let file = database_file(disk);
    let newest = root(disk).header;
    let within_a_value = {
        let bytes = disk.contents(&file).unwrap();
        let found = bytes.windows(5).rposition(|part| part == b"value");
        found.unwrap() as u64
    };
    let without_superblocks = disk.fork();
    for copy in ["/store/superblock-0", "/store/superblock-1"] {
        without_superblocks.replace_contents(Path::new(copy), b"nothing of use");
    }
    let (value, header, both) = (disk.fork(), disk.fork(), without_superblocks.fork());
    value.flip_bit(&file, within_a_value, 1);
    both.flip_bit(&file, within_a_value, 1);
    header.flip_bit(&file, newest + 70, 1);
    vec![
        ("a value", value),
        ("the newest header", header),
        ("both superblocks", without_superblocks),
        ("both superblocks and a value", both),
    ]
}

#[test]
fn a_repair_can_be_killed_anywhere_and_run_again() {
    let (disk, _) = closed(true, true);
    for (case, damaged) in damaged(&disk) {
        let points: Arc<Mutex<Vec<SimulatedDisk>>> = Arc::default();
        let seen = points.clone();
        let whole = damaged.fork();
        whole.set_crash_probe(ProbePoints::Operations, move |point| {
            seen.lock().unwrap().push(point.disk);
        });
        let is_sound = repair(&whole).is_sound();
        whole.clear_crash_probe();
        let repaired = contents(&*open(&whole).unwrap());
        assert!(!repaired.is_empty(), "{case}");
        let points = std::mem::take(&mut *points.lock().unwrap());
        assert!(points.len() > 20, "{case}: {} operations", points.len());
        for (number, point) in points.iter().enumerate() {
            let styles = [CrashStyle::NothingUnsynced, CrashStyle::Mixed];
            let cut = styles.map(|style| point.crash(style, number as u64));
            for image in cut.into_iter().chain([point.process_crash()]) {
                // An opening in between finds the repaired state, or answers an error.
                let opened = image.fork();
                if let Ok(store) = open(&opened) {
                    let found = contents_or_damage(&*store);
                    assert!(
                        found.is_none_or(|found| found == repaired),
                        "{case} {number}"
                    );
                }
                repair(&image);
                let found = contents(&*open(&image).unwrap());
                assert_eq!(found, repaired, "{case} at operation {number}");
                assert!(check(&image).is_sound(), "{case} at operation {number}");
                let keeps = |path: &PathBuf| path.to_string_lossy().ends_with(".damaged");
                let is_kept = image.files().iter().any(keeps);
                assert!(is_sound || is_kept, "{case} at operation {number}");
            }
        }
    }
}

/// Everything that a reader sees; none where an entry cannot be read.
fn contents_or_damage(reader: &dyn Reader) -> Option<Entries> {
    let mut cursor = reader.iterate(IterationOrder::Key, None).ok()?;
    let mut entries = Vec::new();
    while let Some(entry) = cursor.next().ok()? {
        entries.push((entry.key.to_vec(), entry.value.to_vec()));
    }
    Some(entries)
}

/// A compacted store that is opened with a tuning, changed and closed.
fn changed(changes: fn(&dyn Engine), tuning: &[(&str, &str)]) -> (SimulatedDisk, Entries) {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk);
    for number in 0..100 {
        put(&*store, &format!("{number:03}"), "tree");
    }
    store.compact(&CompactOptions::default(), &()).unwrap();
    store.close().unwrap();
    let environment = Environment::simulated(&disk, 4);
    let mut options = OptionValues::default();
    for (name, value) in tuning {
        options.set(name, value);
    }
    let store = stores::open(&Forest, &environment, &options);
    changes(&*store);
    let entries = contents(&*store);
    store.close().unwrap();
    (disk, entries)
}

#[test]
fn a_check_names_entries_that_a_flush_lost_and_a_repair_brings_them_back() {
    let cases: [Case; 3] = [
        ("the index lacks it", |store| {
            (0..9).for_each(|number| put(store, &format!("new{number}"), "leaf"));
        }),
        ("the index has an older value", |store| {
            (0..9).for_each(|number| put(store, &format!("05{number}"), "leaf"));
        }),
        ("removed key", |store| {
            for number in 0..9 {
                let key = format!("07{number}");
                store.delete(key.as_bytes(), Durability::Buffered).unwrap();
            }
        }),
    ];
    for (what, changes) in cases {
        let (disk, expected) = changed(changes, &[]);
        assert!(check(&disk).findings.is_empty());
        let (disk, _) = changed(changes, &[("seeded_bug", "flush_loses_entry")]);
        let report = check(&disk);
        let named = |found: &Finding| found.what.contains(what);
        assert!(report.findings.iter().any(named), "{what}: {report:?}");
        let environment = Environment::simulated(&disk, 5);
        let repaired = Forest
            .repair(&environment, Path::new(PATH), &Default::default(), &())
            .unwrap();
        assert!(repaired.is_sound(), "{repaired:?}");
        assert!(check(&disk).findings.is_empty());
        assert_eq!(contents(&*open(&disk).unwrap()), expected);
    }
}
