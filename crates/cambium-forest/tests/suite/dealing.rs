//! Compactions that deal scattered documents out in a scratch file: what they
//! read, what they leave behind, and what happens where there is no room.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{Model, SMALL_NODES, contents, options};
use cambium_api::{
    CompactOptions, CompactReport, Durability, Engine, EngineKind, Error, Progress, ProgressSink,
};
use cambium_forest::Forest;
use cambium_io::simulated::SimulatedDisk;
use cambium_io::{Advice, Environment, OpenOptions};
use cambium_testkit::stores;

const PATH: &str = "/store";

const TUNING: [(&str, &str); 5] = [
    ("write_buffer_entries", "500"),
    ("preallocate_bytes", "4096"),
    ("segment_bytes", "16KiB"),
    ("compaction_threshold", "100"),
    ("cache_bytes", "65536"),
];

fn open(environment: &Environment) -> Arc<dyn Engine> {
    stores::open(&Forest, environment, &options(&TUNING))
}

/// Small documents, written in an order that has nothing to do with their keys,
/// among them some that are too large to be dealt.
fn filled(environment: &Environment, documents: u32) -> (Arc<dyn Engine>, Model) {
    let options = stores::options(&[&TUNING, &SMALL_NODES]);
    let store = stores::create(&Forest, environment, &options);
    let mut model = Model::new();
    for number in 0..documents * 5 / 4 {
        let key = format!("key {:05}", number * 1373 % documents).into_bytes();
        let bytes = if number % 500 == 0 { 20_000 } else { 60 };
        let mut value = vec![number as u8; bytes];
        value.extend_from_slice(&number.to_be_bytes());
        store.put(&key, &value, Durability::Buffered).unwrap();
        model.insert(key, value);
    }
    store.sync().unwrap();
    (store, model)
}

fn compact(
    store: &dyn Engine,
    sort: &str,
    memory: &str,
    sink: &dyn ProgressSink,
) -> Result<CompactReport, Error> {
    let call = CompactOptions {
        settings: options(&[("sort", sort), ("compaction_memory_bytes", memory)]),
        ..CompactOptions::default()
    };
    store.compact(&call, sink)
}

fn names(environment: &Environment) -> Vec<String> {
    let entries = environment.file_system.list(Path::new(PATH)).unwrap();
    let names = entries.iter().map(|entry| entry.name.to_string_lossy());
    names.map(|name| name.into_owned()).collect()
}

fn leaves_no_scratch_file(environment: &Environment) {
    let names = names(environment);
    assert!(
        !names.iter().any(|name| name.contains("scratch")),
        "{names:?}"
    );
}

#[test]
fn scattered_documents_are_read_together() {
    let mut reads = BTreeMap::new();
    for sort in ["window", "deal"] {
        let environment = Environment::memory();
        let (store, model) = filled(&environment, 10_000);
        let report = compact(&*store, sort, "256KiB", &()).unwrap();
        assert_eq!(report.documents, model.len() as u64);
        assert_eq!(contents(&*store), model);
        assert!(store.check(&()).unwrap().is_sound());
        leaves_no_scratch_file(&environment);
        reads.insert(sort, report.read_operations);
        // Now they lie in the order of their keys, and stay where they are.
        let again = compact(&*store, sort, "256KiB", &()).unwrap();
        reads.insert("again", again.read_operations);
        assert_eq!(contents(&*store), model);
    }
    assert!(reads["deal"] < reads["window"] / 2, "{reads:?}");
    assert!(reads["again"] < reads["deal"] / 4, "{reads:?}");
}

/// By default, a file that the page cache does not have is dealt out, and others are not.
#[test]
fn a_file_that_is_not_in_the_page_cache_is_dealt_out() {
    // Files in memory, as those of a temporary folder may be, are always in the cache.
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let (environment, path) = (Environment::real(), folder.path().join("store"));
    let reads = |drops: bool| {
        let made = Forest.create(&environment, &path, &options(&TUNING));
        let store = made.unwrap();
        for number in 0..10_000u32 {
            let key = format!("key {:05}", number * 1373 % 10_000).into_bytes();
            store.put(&key, &[7; 60], Durability::Buffered).unwrap();
        }
        store.sync().unwrap();
        let mut pages = Some(0);
        for entry in environment.file_system.list(&path).unwrap() {
            let file = path.join(&entry.name);
            let file = environment.file_system.open(&file, OpenOptions::READ);
            let file = file.unwrap();
            if drops {
                file.advise(0, file.length().unwrap(), Advice::DontNeed);
            }
            let found = cambium_io::resident_pages(&*file).unwrap();
            pages = pages.zip(found).map(|(sum, more)| sum + more);
        }
        let report = compact(&*store, "auto", "256KiB", &()).unwrap();
        store.close().unwrap();
        std::fs::remove_dir_all(&path).unwrap();
        (report.read_operations, pages)
    };
    let (cached, _) = reads(false);
    match reads(true) {
        // Other file systems keep what they are told to drop.
        (dealt, Some(pages)) if pages < 20 => assert!(dealt < cached / 2, "{dealt} {cached}"),
        (_, pages) => println!("skipped: {pages:?} pages are still in the cache"),
    }
}

#[test]
fn windows_are_dealt_group_by_group_where_memory_is_small() {
    for memory in ["4KiB", "8KiB", "20KiB"] {
        let environment = Environment::memory();
        let (store, model) = filled(&environment, 2000);
        store.create_named_snapshot("kept").unwrap();
        store.delete(b"key 00077", Durability::Buffered).unwrap();
        let report = compact(&*store, "deal", memory, &()).unwrap();
        assert_eq!(report.documents, model.len() as u64, "{memory}");
        assert_eq!(contents(&*store).len(), model.len() - 1, "{memory}");
        assert!(store.check(&()).unwrap().is_sound(), "{memory}");
        store.rollback("kept").unwrap();
        assert_eq!(contents(&*store), model, "{memory}");
        leaves_no_scratch_file(&environment);
    }
}

#[test]
fn a_scratch_file_that_a_crash_left_is_removed_by_the_next_opening() {
    let environment = Environment::memory();
    let (store, model) = filled(&environment, 2000);
    store.close().unwrap();
    let left = PathBuf::from(PATH).join("000009.forest.scratch");
    let others = PathBuf::from(PATH).join("notes.scratch");
    for path in [&left, &others] {
        let file = environment.file_system.open(path, OpenOptions::CREATE);
        file.unwrap().write_at(b"left over", 0).unwrap();
    }
    let report = Forest
        .check(&environment, Path::new(PATH), &Default::default(), &())
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
    let store = open(&environment);
    assert_eq!(contents(&*store), model);
    let names = names(&environment);
    assert!(!names.contains(&"000009.forest.scratch".to_string()));
    assert!(names.contains(&"notes.scratch".to_string()), "not ours");
}

/// At a report of progress the room that is left becomes less.
struct Filling<'a> {
    disk: &'a SimulatedDisk,
    number: u64,
    room: u64,
    seen: AtomicU64,
}

impl ProgressSink for Filling<'_> {
    fn report(&self, _: Progress) {
        if self.seen.fetch_add(1, Ordering::Relaxed) == self.number {
            let room = self.disk.used_bytes() + self.room;
            self.disk.set_capacity(Some(room));
        }
    }
}

#[test]
fn without_room_for_a_scratch_file_it_goes_on_without() {
    let disk = SimulatedDisk::new(1);
    let (store, model) = filled(&Environment::simulated(&disk, 1), 2000);
    let needs = store.stats().unwrap().number("compaction_needs_bytes");
    let needs = needs.unwrap();
    store.close().unwrap();
    drop(store);
    let (mut done, mut failed) = (0, 0);
    for number in [0, 1, 2] {
        for share in (0..32).step_by(2) {
            let disk = disk.fork();
            let environment = Environment::simulated(&disk, 1);
            let store = open(&environment);
            let sink = Filling {
                disk: &disk,
                number,
                room: needs * share / 12,
                seen: AtomicU64::new(0),
            };
            match compact(&*store, "deal", "64KiB", &sink) {
                Ok(_) => done += 1,
                Err(error) => {
                    assert!(error.is_no_space(), "{error}");
                    assert!(share <= 24, "there is room for both files: {error}");
                    failed += 1;
                }
            }
            assert_eq!(contents(&*store), model);
            leaves_no_scratch_file(&environment);
        }
    }
    assert!(done > 10 && failed > 10, "{done} {failed}");
}
