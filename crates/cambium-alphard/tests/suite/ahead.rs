//! Zeros ahead of entries: where they go, where entries go then, and that no entry lies
//! under them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cambium_alphard::Alphard;
use cambium_api::{CompactOptions, Durability, Engine, EngineKind, Error, OptionValues, Result};
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_io::{Environment, File, FileSystem, OpenOptions, StepOutcome};
use cambium_testkit::layer::{FileLayer, FileSystemLayer, Layered};
use cambium_testkit::stores::{self, entries as contents};

const PATH: &str = "/store";
const BLOCK: u64 = 512;

/// A write: offset, length, and whether it was all zeros.
type Write = (u64, u64, bool);

/// Notes writes to `data`, and stops at the next one of zeros if somebody wants that.
#[derive(Debug)]
struct Watched {
    inner: Arc<dyn FileSystem>,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    writes: Mutex<Vec<Write>>,
    /// Told of the next write of zeros before it is done; it goes on when told to.
    stop: Mutex<Option<(Sender<Write>, Receiver<()>)>>,
    /// There is no room for zeros.
    full: AtomicBool,
}

#[derive(Debug)]
struct WatchedFile {
    inner: Arc<dyn File>,
    seen: Arc<Seen>,
}

impl FileSystemLayer for Watched {
    fn below(&self) -> &dyn FileSystem {
        &*self.inner
    }
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(path, options)?;
        if !path.ends_with("data") {
            return Ok(inner);
        }
        let seen = self.seen.clone();
        Ok(Arc::new(Layered(WatchedFile { inner, seen })))
    }
}

impl FileLayer for WatchedFile {
    fn below(&self) -> &dyn File {
        &*self.inner
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let zeros = buffer.iter().all(|&byte| byte == 0);
        let write = (offset, buffer.len() as u64, zeros);
        let stop = self.seen.stop.lock().unwrap().take_if(|_| zeros);
        if let Some((begun, go_on)) = stop {
            begun.send(write).unwrap();
            go_on.recv().unwrap();
        }
        self.seen.writes.lock().unwrap().push(write);
        if zeros && self.seen.full.load(Ordering::Relaxed) {
            return Err(Error::NoSpace {
                path: self.inner.path().to_path_buf(),
                what: "write".to_string(),
            });
        }
        self.inner.write_at(buffer, offset)
    }
}

impl Seen {
    fn take(&self) -> Vec<Write> {
        std::mem::take(&mut *self.writes.lock().unwrap())
    }
}

fn watched(environment: &Environment) -> (Environment, Arc<Seen>) {
    let seen = Arc::<Seen>::default();
    let inner = environment.file_system.clone();
    let file_system = Arc::new(Layered(Watched {
        inner,
        seen: seen.clone(),
    }));
    let environment = Environment {
        file_system,
        ..environment.clone()
    };
    (environment, seen)
}

fn create(environment: &Environment, pairs: &[(&str, &str)]) -> Arc<dyn Engine> {
    let small = [
        ("size", "1MiB"),
        ("extend_bytes", "64KiB"),
        ("block_bytes", "512"),
        ("io", "sync"),
    ];
    stores::create(&Alphard, environment, &stores::options(&[&small, pairs]))
}

fn put(store: &dyn Engine, key: u32) -> Result<()> {
    let value = vec![key as u8 | 1; 1_200];
    store
        .put(&key.to_be_bytes(), &value, Durability::Synced)
        .map(|_| ())
}

fn steps(store: &dyn Engine) {
    while store.step(1 << 20).unwrap() == StepOutcome::Again {}
}

#[test]
fn entries_go_where_zeros_went_before() {
    let (environment, seen) = watched(&Environment::memory());
    let store = create(&environment, &[]);
    let mut zeroed: Vec<(u64, u64)> = Vec::new();
    let mut met = 0;
    for key in 0..200 {
        seen.take();
        put(&*store, key).unwrap();
        for (offset, length, zeros) in seen.take() {
            assert!(!zeros, "zeros by a writer");
            let end = offset + length;
            let covered = |at: u64| zeroed.iter().any(|&(from, to)| from <= at && at < to);
            let within = (offset..end).step_by(BLOCK as usize).all(covered);
            met += u32::from(within);
        }
        let in_use = store.stats().unwrap().number("in_use_bytes").unwrap();
        steps(&*store);
        for (offset, length, zeros) in seen.take() {
            assert!(zeros && offset >= in_use, "{offset} of {in_use}");
            assert!(offset + length <= in_use + (64 << 10), "more than a step");
            zeroed.push((offset, offset + length));
        }
    }
    // The first step has no zeros; superblocks go elsewhere.
    assert!(met > 150, "{met} of 200 synced writes went to zeroed space");
    let zeros = store.stats().unwrap().number("zeroed_ahead_bytes").unwrap();
    assert!(zeros > 200 << 10, "{zeros}");
}

#[test]
fn nothing_is_zeroed_where_that_is_of_no_use() {
    let cases: [&[(&str, &str)]; 4] = [
        &[("zero_ahead", "off")],
        &[("direct", "off")],
        &[("discard_bytes", "1MiB")],
        // Large groups, and those that are not synced, ask for none.
        &[("coalesce_bytes", "4096")],
    ];
    for pairs in cases {
        let (environment, seen) = watched(&Environment::memory());
        let store = create(&environment, pairs);
        for key in 0..50 {
            let durability = match pairs[0].0 {
                "coalesce_bytes" => Durability::Written,
                _ => Durability::Synced,
            };
            let key = [key];
            store.put(&key, &[7; 1_200], durability).unwrap();
            steps(&*store);
        }
        let written = seen.take();
        assert!(written.iter().all(|(_, _, zeros)| !zeros), "{pairs:?}");
        assert_eq!(store.stats().unwrap().number("zeroed_ahead_bytes"), Some(0));
    }
    let disk = SimulatedDisk::new(1);
    disk.add_device(Path::new("/device"), 1 << 20, 512);
    let environment = Environment::simulated(&disk, 1);
    let options = OptionValues::from([("device", "/device"), ("extend_bytes", "64KiB")]);
    let store = stores::create(&Alphard, &environment, &options);
    (0..50).for_each(|key| put(&*store, key).unwrap());
    steps(&*store);
    assert_eq!(store.stats().unwrap().number("zeroed_ahead_bytes"), Some(0));
}

/// Bytes of a range that zeros were written to.
fn zeroed(writes: &[Write], range: std::ops::Range<u64>) -> u64 {
    let mut zeros: Vec<_> = writes.iter().filter(|write| write.2).collect();
    zeros.sort_unstable();
    let mut at = range.start;
    for (offset, length, _) in zeros {
        if *offset <= at && offset + length > at {
            at = (offset + length).min(range.end);
        }
    }
    at - range.start
}

#[test]
fn a_file_that_is_filled_has_no_new_space_after_an_opening_and_an_extension_either() {
    const MIB: u64 = 1 << 20;
    let (environment, seen) = watched(&Environment::memory());
    let nothing_is_zeroed = |store: &dyn Engine| {
        seen.take();
        (0..50).for_each(|key| put(store, key).unwrap());
        steps(store);
        assert!(seen.take().iter().all(|(_, _, zeros)| !zeros));
    };
    let store = create(&environment, &[("fill", "on")]);
    assert_eq!(zeroed(&seen.take(), 0..MIB), MIB);
    nothing_is_zeroed(&*store);
    store.close().unwrap();
    drop(store);
    let options = OptionValues::from([("extend_bytes", "64KiB")]);
    let store = stores::open(&Alphard, &environment, &options);
    nothing_is_zeroed(&*store);
    let mut larger = CompactOptions::default();
    larger.settings.set("size", "2500000");
    store.compact(&larger, &()).unwrap();
    let added = MIB..2_500_000 / BLOCK * BLOCK;
    assert_eq!(zeroed(&seen.take(), added.clone()), added.end - added.start);
    nothing_is_zeroed(&*store);
    store.close().unwrap();
    drop(store);

    let (environment, seen) = watched(&Environment::memory());
    let store = create(&environment, &[]);
    assert_eq!(
        zeroed(&seen.take(), 0..MIB),
        0,
        "who asks for nothing waits for nothing"
    );
    (0..50).for_each(|key| put(&*store, key).unwrap());
    steps(&*store);
    assert!(seen.take().iter().any(|(_, _, zeros)| *zeros));
}

/// Entries are written to the space that comes next while zeros are on their way there: true
/// if all entries are there afterwards, and after a crash.
fn entries_survive_zeros(bug: &[(&str, &str)]) -> bool {
    let disk = SimulatedDisk::new(1);
    let (environment, seen) = watched(&Environment::simulated(&disk, 1));
    let store = create(&environment, bug);
    put(&*store, 0).unwrap();
    let (begun, has_begun) = channel();
    let (go_on, may_go_on) = channel();
    *seen.stop.lock().unwrap() = Some((begun, may_go_on));
    let mut model = contents(&*store);
    std::thread::scope(|scope| {
        let step = scope.spawn(|| store.step(1 << 20));
        has_begun.recv().unwrap();
        let (done, is_done) = channel();
        let writer = scope.spawn({
            let store = &store;
            move || {
                (1..60).for_each(|key| put(&**store, key).unwrap());
                done.send(()).unwrap();
            }
        });
        // A writer that does not wait for the zeros is done by then.
        let waits = is_done.recv_timeout(Duration::from_millis(300)).is_err();
        assert_eq!(waits, bug.is_empty());
        go_on.send(()).unwrap();
        writer.join().unwrap();
        assert_eq!(step.join().unwrap().unwrap(), StepOutcome::Again);
    });
    for key in 1..60u32 {
        model.insert(key.to_be_bytes().to_vec(), vec![key as u8 | 1; 1_200]);
    }
    let is_there =
        |store: &dyn Engine| store.check(&()).unwrap().is_sound() && contents(store) == model;
    let crashed = disk.crash(CrashStyle::Everything, 1);
    let environment = Environment::simulated(&crashed, 1);
    let opened = Alphard.open(&environment, Path::new(PATH), &OptionValues::default(), &());
    is_there(&*store) && opened.is_ok_and(|store| is_there(&*store))
}

#[test]
fn zeros_never_come_over_an_entry() {
    assert!(entries_survive_zeros(&[]));
    let found =
        std::panic::catch_unwind(|| entries_survive_zeros(&[("seeded_bug", "zeroes_freed")]));
    assert!(!found.unwrap_or(false), "the seeded bug was not found");
}

#[test]
fn a_close_waits_for_zeros_under_way() {
    let (environment, seen) = watched(&Environment::memory());
    let store = create(&environment, &[]);
    put(&*store, 0).unwrap();
    let (begun, has_begun) = channel();
    let (go_on, may_go_on) = channel();
    *seen.stop.lock().unwrap() = Some((begun, may_go_on));
    std::thread::scope(|scope| {
        let step = scope.spawn(|| store.step(1 << 20));
        has_begun.recv().unwrap();
        let close = scope.spawn(|| {
            store.close().unwrap();
            seen.take().iter().any(|(_, _, zeros)| *zeros)
        });
        go_on.send(()).unwrap();
        assert!(close.join().unwrap(), "closed while zeros were under way");
        step.join().unwrap().unwrap();
    });
}

#[test]
fn a_member_that_has_no_room_for_zeros_is_not_given_up() {
    let (environment, seen) = watched(&Environment::memory());
    let store = create(&environment, &[("mirror", "/mirror")]);
    put(&*store, 0).unwrap();
    seen.full.store(true, Ordering::Relaxed);
    seen.take();
    steps(&*store);
    let zeros = seen.take().iter().filter(|(_, _, zeros)| *zeros).count();
    assert_eq!(zeros, 1, "zeros go on, or were never begun");
    put(&*store, 1).unwrap();
    let stats = store.stats().unwrap();
    let current = stats.number("members_current");
    assert_eq!(current, Some(2));
}
