//! Readers beside a writer: each shows one moment while the writer writes, flushes, compacts,
//! rolls back, ends and recovers, and takes newer moments when it is refreshed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    ChangeOptions, CompactOptions, Durability, Engine, EngineKind, Operation, OptionValues,
    SequenceNumber, Snapshot, WriteBatch,
};
use cambium_base::{Error, Value};
use cambium_forest::Forest;
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_io::{Environment, OpenOptions};
use cambium_testkit::stores::{self, threaded};

use crate::support::{Model, SMALL_NODES, contents, options};

const PATH: &str = "/store";

const SMALL: [(&str, &str); 4] = [
    ("write_buffer_entries", "4"),
    ("preallocate_bytes", "4096"),
    ("segment_bytes", "16KiB"),
    ("compaction_least_bytes", "0"),
];

fn small() -> OptionValues {
    OptionValues::from(SMALL)
}

fn create(environment: &Environment, more: &[(&str, &str)]) -> Arc<dyn Engine> {
    let options = stores::options(&[&SMALL, &SMALL_NODES, more]);
    stores::create(&Forest, environment, &options)
}

fn open(environment: &Environment, options: &OptionValues) -> Arc<dyn Engine> {
    stores::open(&Forest, environment, options)
}

fn read(environment: &Environment, more: &[(&str, &str)]) -> Arc<dyn Engine> {
    let options = options(more);
    Forest
        .open_read_only(environment, Path::new(PATH), &options, &())
        .unwrap()
}

fn put(store: &dyn Engine, key: &str, value: &str) {
    let (key, value) = (key.as_bytes(), value.as_bytes());
    store.put(key, value, Durability::Written).unwrap();
}

fn get(store: &dyn Engine, key: &str) -> Option<String> {
    let value = store.get(key.as_bytes()).unwrap()?;
    Some(String::from_utf8(value.to_vec()).unwrap())
}

/// Small numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A reader, and what it should show.
struct Reader {
    store: Arc<dyn Engine>,
    model: Model,
    snapshot: Option<(Arc<dyn Snapshot>, Model)>,
}

impl Reader {
    fn is_right(&self, what: &str) {
        assert_eq!(contents(&*self.store), self.model, "{what}");
        for (key, value) in &self.model {
            let found = self.store.get(key).unwrap();
            assert_eq!(found.as_deref(), Some(&value[..]), "{what}");
        }
        if let Some((snapshot, model)) = &self.snapshot {
            assert_eq!(contents(&**snapshot), *model, "a snapshot, {what}");
        }
    }
}

/// A writer that does everything a writer can, and the state it has written.
struct Writer {
    environment: Environment,
    /// The options for opening the store again.
    opening: OptionValues,
    store: Option<Arc<dyn Engine>>,
    model: Model,
    named: Option<Model>,
}

impl Writer {
    fn reopen(&mut self, numbers: &mut Numbers) {
        let store = self.store.take().unwrap();
        if numbers.below(2) == 0 {
            store.close().unwrap();
        }
        drop(store);
        self.store = Some(open(&self.environment, &self.opening));
    }

    fn compact(&self) {
        let store = self.store.as_ref().unwrap();
        store.compact(&CompactOptions::default(), &()).unwrap();
    }

    fn step(&self) {
        self.store.as_ref().unwrap().step(8 << 10).unwrap();
    }

    fn act(&mut self, numbers: &mut Numbers) {
        let store = self.store.clone().unwrap();
        match numbers.below(40) {
            0 => self.compact(),
            1 => {
                if self.named.take().is_some() {
                    store.drop_named_snapshot("kept").unwrap();
                }
                store.create_named_snapshot("kept").unwrap();
                self.named = Some(self.model.clone());
            }
            2 => {
                if let Some(model) = &self.named {
                    store.rollback("kept").unwrap();
                    self.model = model.clone();
                }
            }
            // The process ends, or is killed; another one opens the store.
            3 | 4 => {
                drop(store);
                self.reopen(numbers);
            }
            5..=12 => self.step(),
            13 => store.sync().unwrap(),
            _ => self.write(&*store, numbers),
        }
    }

    fn write(&mut self, store: &dyn Engine, numbers: &mut Numbers) {
        let mut batch = WriteBatch::new();
        for _ in 0..=numbers.below(4) {
            let key = format!("key {}", numbers.below(30)).into_bytes();
            if numbers.below(4) == 0 {
                self.model.remove(&key);
                batch.delete(&key);
            } else {
                let value = vec![numbers.below(250) as u8; numbers.below(200) as usize];
                batch.put(&key, &value);
                self.model.insert(key, value);
            }
        }
        let durability = match numbers.below(3) {
            0 => Durability::Synced,
            _ => Durability::Written,
        };
        store.write(batch, durability).unwrap();
    }
}

fn mixed(seed: u64) {
    let mut numbers = Numbers(seed);
    let environment = Environment::memory();
    let mut writer = Writer {
        opening: small(),
        store: Some(create(&environment, &[])),
        environment: environment.clone(),
        model: Model::new(),
        named: None,
    };
    let mut readers: Vec<Reader> = Vec::new();
    for action in 0..400 {
        writer.act(&mut numbers);
        let what = format!("seed {seed}, action {action}");
        match numbers.below(6) {
            0 if readers.len() < 4 => readers.push(Reader {
                store: read(&environment, &[]),
                model: writer.model.clone(),
                snapshot: None,
            }),
            1 if !readers.is_empty() => {
                let chosen = numbers.below(readers.len() as u64) as usize;
                let reader = &mut readers[chosen];
                if numbers.below(3) == 0 {
                    let snapshot = reader.store.snapshot().unwrap();
                    reader.snapshot = Some((snapshot, reader.model.clone()));
                }
                reader.store.refresh().unwrap();
                reader.model.clone_from(&writer.model);
            }
            2 if readers.len() == 4 => drop(readers.remove(numbers.below(4) as usize)),
            _ => {}
        }
        if !readers.is_empty() {
            let chosen = numbers.below(readers.len() as u64) as usize;
            readers[chosen].is_right(&what);
        }
    }
    for reader in readers {
        reader.is_right(&format!("seed {seed}, at the end"));
    }
}

#[test]
fn readers_keep_their_moments_whatever_a_writer_does() {
    for seed in 0..60 {
        mixed(seed);
    }
}

/// Sees whether a reader's snapshot outlives overwriting and a refresh.
fn pins(bug: &[(&str, &str)]) -> bool {
    let environment = Environment::memory();
    let writer = create(&environment, &[("write_buffer_entries", "1000")]);
    put(&*writer, "oak", "young");
    let reader = read(&environment, bug);
    let snapshot = reader.snapshot().unwrap();
    put(&*writer, "oak", "old");
    reader.refresh().unwrap();
    assert_eq!(get(&*reader, "oak").as_deref(), Some("old"));
    snapshot.get(b"oak").unwrap().as_deref() == Some(b"young")
}

#[test]
fn a_snapshot_of_a_reader_outlives_a_refresh() {
    assert!(pins(&[]));
    assert!(!pins(&[("seeded_bug", "refresh_drops_pinned")]));
}

fn superblocks(environment: &Environment) -> BTreeMap<String, Vec<u8>> {
    let files = &environment.file_system;
    let copies = ["superblock-0", "superblock-1"].map(|name| {
        let path = Path::new(PATH).join(name);
        let file = files.open(&path, OpenOptions::READ).unwrap();
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        (name.to_string(), bytes)
    });
    copies.into_iter().collect()
}

/// Opens a reader that has read the superblock before a rollback, and the log after it; answers
/// a value that was undone.
fn passes_rollback(bug: &[(&str, &str)]) -> Result<Option<Value>, Error> {
    let environment = Environment::memory();
    let writer = create(&environment, &[("write_buffer_entries", "1000")]);
    put(&*writer, "oak", "kept");
    writer.create_named_snapshot("kept").unwrap();
    put(&*writer, "oak", "undone");
    put(&*writer, "elm", "undone");
    let before = superblocks(&environment);
    writer.rollback("kept").unwrap();
    put(&*writer, "oak", "after");
    for (name, bytes) in before {
        let path = Path::new(PATH).join(name);
        let file = environment.file_system.open(&path, OpenOptions::WRITE);
        file.unwrap().write_at(&bytes, 0).unwrap();
    }
    let options = options(bug);
    let reader = Forest.open_read_only(&environment, Path::new(PATH), &options, &())?;
    reader.get(b"oak")
}

#[test]
fn a_reader_stops_at_a_rollback_that_its_superblock_does_not_name() {
    let value = passes_rollback(&[]).unwrap();
    assert_eq!(value.as_deref(), Some(&b"undone"[..]));
    // It takes the number of the rollback for a write that is missing.
    let bug = [("seeded_bug", "reader_passes_rollback")];
    assert!(passes_rollback(&bug).unwrap_err().is_corruption());
}

/// A recovery writes its header twice, and the superblock names it afterwards. A reader that
/// has met the first copy alone meets the other one later.
#[test]
fn a_reader_takes_the_copies_of_a_recoverys_header_one_after_the_other() {
    const BLOCK: usize = 512;
    let disk = SimulatedDisk::new(1);
    let more = [("block_bytes", "512")];
    let killed = create(&Environment::simulated(&disk, 1), &more);
    put(&*killed, "oak", "Quercus");
    let environment = Environment::simulated(&disk.crash(CrashStyle::Everything, 1), 1);
    let reader = read(&environment, &[]);
    let named = superblocks(&environment);
    let writer = open(&environment, &small());
    for (name, bytes) in named {
        let file = environment
            .file_system
            .open(&Path::new(PATH).join(name), OpenOptions::WRITE);
        file.unwrap().write_at(&bytes, 0).unwrap();
    }
    let log = Path::new(PATH).join("000001.forest");
    let log = environment.file_system.open(&log, OpenOptions::WRITE);
    let log = log.unwrap();
    let mut bytes = vec![0; log.length().unwrap() as usize];
    log.read_exact_at(&mut bytes, 0).unwrap();
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let second = last - last % BLOCK;
    log.write_at(&[0; BLOCK], second as u64).unwrap();
    reader.refresh().unwrap();
    let copy = &bytes[second..second + BLOCK];
    log.write_at(copy, second as u64).unwrap();
    for _again in 0..2 {
        reader.refresh().unwrap();
        assert_eq!(get(&*reader, "oak").as_deref(), Some("Quercus"));
    }
    drop(writer);
}

/// Reads a file that a compaction has replaced, and of which consumers need only the end.
fn reads_replaced(bug: &[(&str, &str)]) -> Result<(), Error> {
    let environment = Environment::memory();
    let writer = create(&environment, bug);
    let mut model = Model::new();
    for number in 0..200 {
        let (key, value) = (format!("{number:04}"), format!("value {number}"));
        put(&*writer, &key, &value);
        model.insert(key.into_bytes(), value.into_bytes());
        writer.step(1 << 20).unwrap();
    }
    let reader = read(&environment, &[("cache_bytes", "0")]);
    let newest = writer.put(b"0000", b"new", Durability::Written).unwrap();
    writer.move_consumer("slow", Some(newest)).unwrap();
    put(&*writer, "0001", "new");
    writer.compact(&CompactOptions::default(), &()).unwrap();
    let work = || {
        for _ in 0..50 {
            writer.step(1 << 20).unwrap();
        }
    };
    work();
    for (key, value) in &model {
        let found = reader.get(key)?;
        assert_eq!(found.as_deref(), Some(&value[..]));
    }
    let taken = allocated(&environment);
    reader.close().unwrap();
    drop(reader);
    environment.clock.sleep(std::time::Duration::from_secs(6));
    work();
    // What the reader kept from being given back is given back afterwards.
    assert!(allocated(&environment) < taken || !bug.is_empty());
    Ok(())
}

fn allocated(environment: &Environment) -> u64 {
    let files = &environment.file_system;
    let entries = files.list(Path::new(PATH)).unwrap();
    let sizes = entries.iter().map(|entry| {
        let path = Path::new(PATH).join(&entry.name);
        let file = files.open(&path, OpenOptions::READ).unwrap();
        file.allocated_bytes().unwrap()
    });
    sizes.sum()
}

#[test]
fn nothing_is_given_back_of_a_file_that_a_reader_reads() {
    reads_replaced(&[]).unwrap();
    let bug = [("seeded_bug", "history_freed_beside_readers")];
    reads_replaced(&bug).unwrap_err();
}

#[test]
fn a_follower_beside_a_writer_meets_every_batch_once() {
    for seed in 0..30 {
        let mut numbers = Numbers(seed);
        let environment = Environment::memory();
        // A cleaning that overtook the feed would be no fault.
        let uncleaned = [("cleaning", "off")];
        let mut writer = Writer {
            store: Some(create(&environment, &uncleaned)),
            opening: stores::options(&[&SMALL, &uncleaned]),
            environment: environment.clone(),
            model: Model::new(),
            named: None,
        };
        let reader = read(&environment, &[]);
        let mut feed = reader
            .changes(SequenceNumber(0), ChangeOptions::default())
            .unwrap();
        let mut followed = Model::new();
        for action in 0..300 {
            let chosen = numbers.below(60);
            match chosen {
                0 => writer.reopen(&mut numbers),
                1 => writer.compact(),
                2..=10 => writer.step(),
                _ => {
                    let store = writer.store.clone().unwrap();
                    writer.write(&*store, &mut numbers);
                }
            }
            // Two compactions between two refreshes would lose history.
            if chosen > 10 && numbers.below(3) > 0 {
                continue;
            }
            reader.refresh().unwrap();
            let what = format!("seed {seed}, action {action}");
            let failed = |error| panic!("{what}: {error}");
            while let Some(batch) = feed.next().unwrap_or_else(failed) {
                for change in batch.changes {
                    match change.operation {
                        Operation::Put { key, value } => _ = followed.insert(key, value),
                        Operation::Delete { key } => _ = followed.remove(&key),
                        Operation::DeleteRange { .. } => {}
                    }
                }
            }
            assert_eq!(followed, writer.model, "{what}");
        }
    }
}

/// Threads of one process in place of processes: readers are opened, refreshed and read while
/// background work, a writer and compactions go on at every place of the code.
#[test]
fn readers_beside_threads_that_write_see_whole_batches() {
    let environment = threaded();
    let writer = create(&environment, &[("write_buffer_entries", "40")]);
    let write = |number: u32| {
        let mut batch = WriteBatch::new();
        for place in 0..6 {
            let value = format!("{number:08} {}", "x".repeat((number % 40) as usize));
            batch.put(format!("key {place}").as_bytes(), value.as_bytes());
        }
        writer.write(batch, Durability::Written).unwrap();
    };
    write(0);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| follow_batches(&environment)))
            .collect();
        for number in 1..4_000 {
            write(number);
            if number % 500 == 0 {
                writer.compact(&CompactOptions::default(), &()).unwrap();
            }
        }
        for place in 0..6 {
            put(&*writer, &format!("key {place}"), "99999999 end");
        }
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
    });
}

/// Opens and refreshes readers until the last batch is there.
fn follow_batches(environment: &Environment) {
    let (mut last, mut rounds) = (String::new(), 0);
    let mut reader = read(environment, &[]);
    while !last.starts_with("99999999") {
        rounds += 1;
        match rounds % 5 {
            0 => reader = read(environment, &[]),
            _ => reader.refresh().unwrap(),
        }
        let found = contents(&*reader);
        assert_eq!(found.len(), 6);
        let first = String::from_utf8(found[&b"key 0"[..]].clone()).unwrap();
        let is_end = |value: &Vec<u8>| value.starts_with(b"99999999");
        if !found.values().any(is_end) {
            assert!(found.values().all(|value| *value == first.as_bytes()));
        }
        assert!(first >= last, "{first} after {last}");
        last = String::from_utf8(found[&b"key 5"[..]].clone()).unwrap();
    }
}
