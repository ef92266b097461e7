//! How many files a store of many tables has open.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cambium_api::{Durability, Engine, EngineKind, IterationOrder, OptionValues, Result};
use cambium_io::{Environment, File, FileSystem, OpenOptions, StepOutcome};
use cambium_testkit::golden::contents;
use cambium_testkit::layer::{FileLayer, FileSystemLayer, Layered};
use cambium_zdb::Zdb;

/// Counts the files that are open at once.
#[derive(Debug)]
struct Counting {
    below: Arc<dyn FileSystem>,
    open: Arc<AtomicUsize>,
    most: AtomicUsize,
}

#[derive(Debug)]
struct Counted {
    below: Arc<dyn File>,
    open: Arc<AtomicUsize>,
}

impl FileSystemLayer for Counting {
    fn below(&self) -> &dyn FileSystem {
        &*self.below
    }

    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        let below = self.below.open(path, options)?;
        let open = 1 + self.open.fetch_add(1, Ordering::Relaxed);
        self.most.fetch_max(open, Ordering::Relaxed);
        let open = self.open.clone();
        Ok(Arc::new(Layered(Counted { below, open })))
    }
}

impl FileLayer for Counted {
    fn below(&self) -> &dyn File {
        &*self.below
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

const KEYS: u64 = 300;
const TABLES: usize = 4;
/// An index and three data files each; tables that were changed stay open until the
/// writer makes a checkpoint, which it does at half of the limit and eight more.
const MOST: usize = (TABLES + TABLES / 2 + 8 + 3) * 4 + 8;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn read_all(store: &dyn Engine, round: u8) {
    let keys: Vec<[u8; 8]> = (0..KEYS).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
    let found = store.multi_get(&keys).unwrap();
    let expected = [round; 900];
    assert!(
        found
            .iter()
            .all(|value| value.as_deref() == Some(&expected[..]))
    );
    for number in 0..KEYS {
        // In an order that comes back to each table again and again.
        assert_eq!(
            store.get(&key(number * 7 % KEYS)).unwrap().unwrap(),
            expected
        );
    }
    assert_eq!(contents(store).len() as u64, KEYS);
    let mut cursor = store.iterate(IterationOrder::Any, None).unwrap();
    while cursor.next().unwrap().is_some() {}
}

fn stays_within_the_bound(keys: &str) {
    let memory = Environment::memory();
    let counting = Arc::new(Layered(Counting {
        below: memory.file_system.clone(),
        open: Arc::default(),
        most: AtomicUsize::new(0),
    }));
    let environment = Environment {
        file_system: counting.clone(),
        ..memory
    };
    let is_bounded = |when: &str| {
        let most = counting.0.most.swap(0, Ordering::Relaxed);
        assert!(most <= MOST, "{keys} keys, {when}: {most} files were open");
    };
    let path = Path::new("/store");
    let opening = [
        ("open_tables", "4"),
        ("sparse_tables", "65536"),
        ("cache_bytes", "0"),
    ];
    let mut creation = OptionValues::from(opening);
    let fixed = [
        ("keys", keys),
        ("keys_per_table", "1"),
        ("data_files", "3"),
        ("buckets", "2"),
    ];
    for (name, value) in fixed {
        creation.set(name, value);
    }
    let open = || {
        Zdb.open(&environment, path, &OptionValues::from(opening), &())
            .unwrap()
    };
    let put_all = |store: &dyn Engine, round: u8| {
        for number in 0..KEYS {
            let durability = match number % 50 {
                0 => Durability::Synced,
                _ => Durability::Written,
            };
            store.put(&key(number), &[round; 900], durability).unwrap();
        }
    };

    let store = Zdb.create(&environment, path, &creation).unwrap();
    put_all(&*store, 1);
    is_bounded("writing");
    while store.step(1 << 20).unwrap() == StepOutcome::Again {}
    read_all(&*store, 1);
    is_bounded("reading");
    put_all(&*store, 2);
    is_bounded("overwriting");
    read_all(&*store, 2);
    is_bounded("reading what was overwritten");
    // Nobody closes the store.
    drop(store);
    let store = open();
    is_bounded("recovering");
    read_all(&*store, 2);
    is_bounded("reading what was recovered");
    store.close().unwrap();
    drop(store);
    let report = Zdb
        .check(&environment, path, &OptionValues::from(opening), &())
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
    is_bounded("checking");
    let store = open();
    read_all(&*store, 2);
    is_bounded("reading after a close");
    put_all(&*store, 3);
    drop(store);
    counting.0.most.store(0, Ordering::Relaxed);
    let report = Zdb
        .repair(&environment, path, &OptionValues::from(opening), &())
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
    is_bounded("repairing");
    read_all(&*open(), 3);
}

#[test]
fn a_store_of_many_tables_has_few_files_open() {
    stays_within_the_bound("integer");
    stays_within_the_bound("string");
}
