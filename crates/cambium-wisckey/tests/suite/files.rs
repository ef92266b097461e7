//! How the value log's files are opened: few at a time, and past the page cache
//! where that was asked for.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    CompactOptions, Direction, Durability, Engine, EngineKind, Error, KeyRange, OptionValues,
    WriteBatch,
};
use cambium_io::{Alignment, Environment, File, FileSystem, OpenOptions};
use cambium_testkit::golden::contents;
use cambium_testkit::layer::{FileLayer, FileSystemLayer, Layered};
use cambium_wisckey::Wisckey;
use cambium_wisckey::format::FILE_SUFFIX;

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// Files of this folder that this process has open, by a part of their names; `None` where
/// the system does not say.
fn open_files(folder: &Path, name: &str) -> Option<usize> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    let is_one = |path: &Path| {
        // A name that was removed ends in " (deleted)".
        path.starts_with(folder) && path.to_string_lossy().contains(name)
    };
    let paths = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    Some(paths.filter(|path| is_one(path)).count())
}

/// Steps are taken here, on real files.
fn by_hand() -> Environment {
    Environment {
        executor: Environment::memory().executor,
        ..Environment::real()
    }
}

const MOST: usize = 4;
const KEYS: u64 = 200;

fn many_segments() -> OptionValues {
    OptionValues::from([
        ("segment_bytes", "4KiB"),
        ("replay_bytes", "64KiB"),
        ("preallocate_bytes", "0"),
        ("inline_bytes", "8"),
        ("collection", "off"),
        ("open_files", "4"),
    ])
}

fn fill(store: &dyn Engine, round: u8) {
    for number in 0..KEYS {
        let value = [round; 900];
        let durability = match number % 50 {
            0 => Durability::Synced,
            _ => Durability::Written,
        };
        store.put(&key(number), &value, durability).unwrap();
    }
    store.sync().unwrap();
}

fn is_filled(store: &dyn Engine, round: u8) {
    for number in 0..KEYS {
        // In an order that comes back to each segment again and again.
        let found = store.get(&key(number * 7 % KEYS)).unwrap().unwrap();
        assert_eq!(found, [round; 900]);
    }
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let found = store.multi_get(&keys).unwrap();
    assert!(
        found
            .iter()
            .all(|value| value.as_deref() == Some(&[round; 900][..]))
    );
    assert_eq!(contents(store).len() as u64, KEYS);
}

#[test]
fn a_store_of_many_segments_has_few_files_open() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let path = folder.join("store");
    let environment = by_hand();
    let is_bounded = |extra: usize, when: &str| match open_files(&folder, FILE_SUFFIX) {
        None => println!("skipped: this system does not tell what is open"),
        Some(open) => assert!(open <= MOST + extra, "{open} files are open {when}"),
    };
    let store = Wisckey
        .create(&environment, &path, &many_segments())
        .unwrap();
    fill(&*store, 1);
    is_filled(&*store, 1);
    let segments = store.stats().unwrap().number("segments").unwrap();
    assert!(segments > 40, "{segments} segments");
    // What is being written is kept open.
    is_bounded(1, "after writing");
    store.close().unwrap();
    drop(store);
    let store = Wisckey
        .open(&environment, &path, &many_segments(), &())
        .unwrap();
    is_bounded(1, "after opening");
    is_filled(&*store, 1);
    is_bounded(1, "after reading");
    // What is collected under a cursor loses its name, and is still read.
    let mut cursor = store.scan(&KeyRange::all(), Direction::Forward).unwrap();
    let mut walked = Vec::new();
    walked.push(cursor.next().unwrap().unwrap());
    fill(&*store, 2);
    store.compact(&CompactOptions::default(), &()).unwrap();
    is_filled(&*store, 2);
    while let Some(entry) = cursor.next().unwrap() {
        walked.push(entry);
    }
    assert_eq!(walked.len() as u64, KEYS);
    assert!(walked.iter().all(|entry| entry.value == [1; 900]));
    drop(cursor);
    store.compact(&CompactOptions::default(), &()).unwrap();
    is_filled(&*store, 2);
    is_bounded(2, "after collecting");
}

#[test]
fn a_store_of_many_tables_has_few_files_open() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let mut options = many_segments();
    for (name, value) in [("table_bytes", "256"), ("level_base_bytes", "64KiB")] {
        options.set(name, value);
    }
    let store = Wisckey
        .create(&by_hand(), &folder.join("store"), &options)
        .unwrap();
    fill(&*store, 1);
    store.compact(&CompactOptions::default(), &()).unwrap();
    let tables = store.stats().unwrap().number("tree_tables").unwrap();
    assert!(tables > 5 * MOST as u64, "{tables} tables");
    let mut cursor = store.scan(&KeyRange::all(), Direction::Forward).unwrap();
    while cursor.next().unwrap().is_some() {
        // The table that the cursor reads may be one more.
        match open_files(&folder, "table-") {
            None => println!("skipped: this system does not tell what is open"),
            Some(open) => assert!(open <= MOST + 1, "{open} tables are open"),
        }
    }
    is_filled(&*store, 1);
}

#[test]
fn nothing_of_a_direct_log_is_in_the_page_cache() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let environment = by_hand();
    let cached_pages = |direct: &str| {
        let path = folder.path().join(direct);
        let options = OptionValues::from([("direct", direct)]);
        let store = Wisckey.create(&environment, &path, &options).unwrap();
        let mut batch = WriteBatch::new();
        for number in 0..2_000 {
            batch.put(&key(number), &[number as u8; 1_000]);
        }
        store.write(batch, Durability::Synced).unwrap();
        store
            .put(&key(7), &[9; 70_000], Durability::Written)
            .unwrap();
        store.put(&key(8), &[9; 10], Durability::Synced).unwrap();
        store.close().unwrap();
        drop(store);
        let store = Wisckey.open(&environment, &path, &options, &()).unwrap();
        are_there(&store);
        store.put(&key(9), &[9; 333], Durability::Written).unwrap();
        drop(store);
        // Recovery reads the log as well.
        let store = Wisckey.open(&environment, &path, &options, &()).unwrap();
        assert_eq!(store.get(&key(9)).unwrap().unwrap(), [9; 333]);
        assert!(store.check(&()).unwrap().is_sound());
        let names = environment.file_system.list(&path).unwrap();
        let segments = names
            .iter()
            .filter(|entry| entry.name.to_string_lossy().ends_with(FILE_SUFFIX));
        let pages: Vec<Option<u64>> = segments
            .map(|entry| {
                let path = path.join(&entry.name);
                let file = environment.file_system.open(&path, OpenOptions::READ);
                cambium_io::resident_pages(&*file.unwrap()).unwrap()
            })
            .collect();
        assert!(!pages.is_empty());
        pages.into_iter().sum::<Option<u64>>()
    };
    let (direct, buffered) = (cached_pages("on"), cached_pages("off"));
    match buffered {
        None => println!("skipped: this kernel does not tell what it has cached"),
        Some(pages) => {
            assert!(
                pages > 300,
                "{pages} pages of a log that is read through the cache"
            );
            assert_eq!(direct, Some(0));
        }
    }
}

fn are_there(store: &Arc<dyn Engine>) {
    let keys: Vec<Vec<u8>> = (0..2_000).map(key).collect();
    let wanted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let together = store.multi_get(&wanted).unwrap();
    for (number, found) in together
        .iter()
        .enumerate()
        .filter(|(number, _)| *number > 8)
    {
        let expected = [number as u8; 1_000];
        assert_eq!(store.get(&keys[number]).unwrap().unwrap(), expected);
        assert_eq!(found.as_deref(), Some(&expected[..]));
    }
    assert_eq!(together[7].as_deref(), Some(&[9; 70_000][..]));
    assert_eq!(contents(&**store).len(), 2_000);
}

#[test]
fn direct_io_in_larger_units_than_the_stores_blocks_is_refused() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let environment = by_hand();
    let path = folder.path().join("store");
    let options = OptionValues::from([("direct", "on"), ("block_bytes", "512")]);
    let store = Wisckey.create(&environment, &path, &options).unwrap();
    match store.put(b"key", &[1; 1_000], Durability::Synced) {
        // A device with sectors of 512 bytes.
        Ok(_) => assert_eq!(store.get(b"key").unwrap().unwrap(), [1; 1_000]),
        Err(Error::InvalidArgument(what)) => assert!(what.contains("block_bytes=512"), "{what}"),
        Err(other) => panic!("{other}"),
    }
}

/// A disk that takes direct I/O in units of 4 KiB.
#[derive(Debug)]
struct LargeUnits(Arc<dyn FileSystem>);

#[derive(Debug)]
struct DirectFile(Arc<dyn File>);

impl FileSystemLayer for LargeUnits {
    fn below(&self) -> &dyn FileSystem {
        &*self.0
    }
    fn open(&self, path: &Path, options: OpenOptions) -> cambium_api::Result<Arc<dyn File>> {
        let file = self.0.open(path, options)?;
        Ok(match options.direct {
            true => Arc::new(Layered(DirectFile(file))),
            false => file,
        })
    }
}

impl FileLayer for DirectFile {
    fn below(&self) -> &dyn File {
        &*self.0
    }
    fn alignment(&self) -> Alignment {
        Alignment {
            memory: 4096,
            offset: 4096,
        }
    }
}

#[test]
fn a_direct_log_in_blocks_below_the_disks_unit_is_refused_at_creation() {
    let mut environment = Environment::memory();
    environment.file_system = Arc::new(Layered(LargeUnits(environment.file_system)));
    let create = |blocks: &str| {
        let options = OptionValues::from([("direct", "on"), ("block_bytes", blocks)]);
        Wisckey.create(&environment, Path::new("/store"), &options)
    };
    let refused = create("512").map(drop);
    let told = matches!(&refused, Err(Error::InvalidArgument(what)) if what.contains("4096"));
    assert!(told, "{refused:?}");
    // Nothing is left that keeps another store away.
    let store = create("4096").unwrap();
    store.put(b"key", b"value", Durability::Synced).unwrap();
    store.close().unwrap();
}
