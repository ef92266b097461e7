//! Values in memory: lookups that cost no access, and never an answer that was
//! overwritten or deleted before they began.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use cambium_alphard::Alphard;
use cambium_api::{Durability, Engine, Result, Snapshot};
use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_io::{Environment, File, FileSystem, OpenOptions};
use cambium_testkit::counted::Counted;
use cambium_testkit::layer::{FileLayer, FileSystemLayer, Layered};
use cambium_testkit::stores::{self, number};

fn create(environment: &Environment, pairs: &[(&str, &str)]) -> Arc<dyn Engine> {
    let small = [
        ("size", "65536"),
        ("block_bytes", "512"),
        ("extend_bytes", "65536"),
        ("io", "sync"),
    ];
    stores::create(&Alphard, environment, &stores::options(&[&small, pairs]))
}

#[test]
fn a_lookup_of_what_was_read_lately_costs_no_access() {
    let device = Counted::new();
    let store = create(&device.environment, &[("size", "16MiB")]);
    let keys: [&[u8]; 3] = [b"short", b"a key of more than seven bytes", b""];
    for value in [&[1u8; 10][..], &[2; 5_000], &[]] {
        for key in keys {
            store.put(key, value, Durability::Synced).unwrap();
            let read = |expected: u64, what: &str| {
                let counted = device.during(|| {
                    assert_eq!(store.get(key).unwrap().unwrap(), value);
                });
                assert_eq!(counted.reads, expected, "{what}");
            };
            // The store was looked up in before: what is written to it is kept as well.
            let first = u64::from(key == keys[0] && value.len() == 10);
            read(first, "the first");
            read(0, "the second");
        }
        let together = device.during(|| {
            let values = store.multi_get(&keys).unwrap();
            assert!(values.iter().all(|found| found.as_deref() == Some(value)));
        });
        assert_eq!(together.reads, 0, "several at once");
    }
    let (hits, misses) = (
        number(&*store, "cache_hits"),
        number(&*store, "cache_misses"),
    );
    assert_eq!((hits, misses), (26, 1));
    assert!(number(&*store, "cache_bytes") > 0);
    let walked = device.during(|| {
        let mut cursor = store
            .iterate(cambium_api::IterationOrder::Any, None)
            .unwrap();
        while cursor.next().unwrap().is_some() {}
    });
    assert!(walked.reads > 0, "a walk asks the device");
    let checked = device.during(|| assert!(store.check(&()).unwrap().is_sound()));
    assert!(checked.reads > 0, "and so does a check");
}

#[test]
fn nothing_is_kept_by_a_store_without_a_cache_and_nothing_large_by_any() {
    for (cache, value, expected) in [
        ("0", 100, 1),
        ("65536", 100, 0),
        ("65536", 4_000, 0),
        ("65536", 5_000, 1),
    ] {
        let device = Counted::new();
        let options = [("size", "1MiB"), ("cache_bytes", cache)];
        let store = create(&device.environment, &options);
        let value = vec![3; value];
        store.put(b"key", &value, Durability::Synced).unwrap();
        for reads in [1, expected, expected] {
            let counted = device.during(|| assert_eq!(store.get(b"key").unwrap().unwrap(), value));
            assert_eq!(counted.reads, reads, "{cache} {}", value.len());
        }
    }
}

#[test]
fn what_is_asked_for_once_pushes_nothing_out() {
    let device = Counted::new();
    let options = [("size", "16MiB"), ("cache_bytes", "262144")];
    let store = create(&device.environment, &options);
    for key in 0..5_000u32 {
        let value = vec![key as u8; 1_000];
        store
            .put(&key.to_be_bytes(), &value, Durability::Buffered)
            .unwrap();
    }
    store.sync().unwrap();
    let look = |key: u32| {
        let found = store.get(&key.to_be_bytes()).unwrap().unwrap();
        assert_eq!(found, vec![key as u8; 1_000]);
    };
    for _ in 0..4 {
        (0..50).for_each(look);
    }
    (50..5_000).for_each(look);
    let again = device.during(|| (0..50).for_each(look));
    assert!(again.reads < 10, "{} of 50 were pushed out", again.reads);
    assert!(number(&*store, "cache_bytes") <= 262_144);
}

/// Random operations on few keys in a store so small that each place is taken again and
/// again; the first answer that is not the model's.
fn differs(seed: u64, cache: &str, bug: Option<&str>) -> Option<String> {
    let disk = SimulatedDisk::new(seed);
    let environment = Environment::simulated(&disk, seed);
    let mut options = vec![("cache_bytes", cache)];
    options.extend(bug.map(|bug| ("seeded_bug", bug)));
    let store = create(&environment, &options);
    let mut random = Generator::new(seed);
    let mut model = BTreeMap::new();
    type Kept = (Arc<dyn Snapshot>, BTreeMap<Vec<u8>, Vec<u8>>);
    let mut snapshots: Vec<Kept> = Vec::new();
    for step in 0..3_000u64 {
        let key = match random.below(20) {
            number @ 0..10 => vec![number as u8],
            number => format!("a longer key {number}").into_bytes(),
        };
        let durability = match random.below(3) {
            0 => Durability::Buffered,
            1 => Durability::Written,
            _ => Durability::Synced,
        };
        // Of the few places some are taken at each moment.
        while number(&*store, "free_bytes") < 16 << 10 {
            snapshots.clear();
            if store.step(1 << 20).unwrap() != cambium_io::StepOutcome::Again {
                store.sync().unwrap();
            }
        }
        match random.below(16) {
            0..5 => {
                let length = [10, 300, 300, 700][random.below(4) as usize];
                let value = [step.to_le_bytes().repeat(length / 8), vec![1]].concat();
                store.put(&key, &value, durability).unwrap();
                model.insert(key, value);
            }
            5..7 => {
                store.delete(&key, durability).unwrap();
                model.remove(&key);
            }
            7 if snapshots.len() < 2 => {
                snapshots.push((store.snapshot().unwrap(), model.clone()));
            }
            8 => _ = snapshots.pop(),
            9 => _ = store.step(1 << 20).unwrap(),
            10 => {
                let keys: Vec<&[u8]> = model.keys().map(Vec::as_slice).collect();
                let found = store.multi_get(&keys).unwrap();
                let mut pairs = found.into_iter().zip(model.values());
                if pairs.any(|(found, value)| found.as_deref() != Some(&value[..])) {
                    return Some(format!("step {step}: several at once"));
                }
            }
            11 => {
                for (snapshot, then) in &snapshots {
                    if snapshot.get(&key).unwrap().as_deref() != then.get(&key).map(Vec::as_slice) {
                        return Some(format!("step {step}: a snapshot's {key:?}"));
                    }
                }
            }
            _ => {
                if store.get(&key).unwrap().as_deref() != model.get(&key).map(Vec::as_slice) {
                    return Some(format!("step {step}: {key:?}"));
                }
            }
        }
    }
    None
}

#[test]
fn lookups_answer_as_a_model_does_while_places_are_taken_again() {
    for seed in 0..20 {
        for cache in ["0", "2000", "8192", "1MiB"] {
            assert_eq!(differs(seed, cache, None), None, "seed {seed}, {cache}");
        }
    }
}

#[test]
fn a_cache_that_serves_what_was_overwritten_is_found() {
    let bug = Some("cache_serves_overwritten");
    // Where there is room, what is written takes the place of what was kept there.
    let differ = |cache| (0..60).any(|seed| differs(seed, cache, bug).is_some());
    assert!(["2000", "4096", "8192"].into_iter().any(differ));
}

/// Stops at the next read of a length, when it has read and before it answers.
#[derive(Debug)]
struct Late {
    inner: Arc<dyn FileSystem>,
    stop: Arc<Stop>,
}

type Held = (usize, Sender<()>, Receiver<()>);

#[derive(Debug, Default)]
struct Stop {
    held: Mutex<Option<Held>>,
    /// Where that read was, and where the last write of its length.
    read_at: AtomicU64,
    written_at: AtomicU64,
}

#[derive(Debug)]
struct LateFile {
    inner: Arc<dyn File>,
    stop: Arc<Stop>,
}

impl FileSystemLayer for Late {
    fn below(&self) -> &dyn FileSystem {
        &*self.inner
    }
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(path, options)?;
        let stop = self.stop.clone();
        Ok(Arc::new(Layered(LateFile { inner, stop })))
    }
}

impl FileLayer for LateFile {
    fn below(&self) -> &dyn File {
        &*self.inner
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let count = self.inner.read_at(buffer, offset)?;
        let is_it = |held: &mut Held| held.0 == buffer.len();
        let held = self.stop.held.lock().unwrap().take_if(is_it);
        if let Some((_, begun, go_on)) = held {
            self.stop.read_at.store(offset, Ordering::Release);
            begun.send(()).unwrap();
            go_on.recv().unwrap();
        }
        Ok(count)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        if buffer.len() == ENTRY {
            self.stop.written_at.store(offset, Ordering::Release);
        }
        self.inner.write_at(buffer, offset)
    }
}

/// What an entry takes whose value has 1,200 bytes.
const ENTRY: usize = 1_536;

/// The first byte of what a lookup finds, and of what it should find, after another one had
/// read the place when it was an older value's, and answered when it was this one's.
fn after_a_late_read(bug: Option<&str>) -> (u8, u8) {
    let memory = Environment::memory();
    let stop = Arc::<Stop>::default();
    let environment = Environment {
        file_system: Arc::new(Layered(Late {
            inner: memory.file_system.clone(),
            stop: stop.clone(),
        })),
        ..memory
    };
    let options: Vec<_> = bug.map(|bug| ("seeded_bug", bug)).into_iter().collect();
    let store = create(&environment, &options);
    let put = |byte: u8| {
        let value = [byte; 1_200];
        store.put(b"key", &value, Durability::Synced).unwrap();
    };
    put(1);
    let (begun, is_reading) = channel();
    let (go_on, wait) = channel();
    *stop.held.lock().unwrap() = Some((ENTRY, begun, wait));
    let newest = std::thread::scope(|scope| {
        // It began when the first value was the newest, so any is right.
        scope.spawn(|| assert!(store.get(b"key").unwrap().is_some()));
        is_reading.recv().unwrap();
        // Until the place is the same key's again.
        let mut newest = 1;
        while newest == 1
            || stop.written_at.load(Ordering::Acquire) != stop.read_at.load(Ordering::Acquire)
        {
            newest += 1;
            assert!(newest < 255, "the place was never taken again");
            put(newest);
        }
        go_on.send(()).unwrap();
        newest
    });
    (store.get(b"key").unwrap().unwrap()[0], newest)
}

#[test]
fn what_was_read_before_a_place_was_taken_again_is_not_kept() {
    let (found, newest) = after_a_late_read(None);
    assert_eq!(found, newest);
}

#[test]
fn a_cache_that_takes_late_reads_is_found() {
    let (found, newest) = after_a_late_read(Some("cache_takes_late_reads"));
    assert_ne!(found, newest);
}
