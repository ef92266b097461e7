//! A memory budget holds for every engine: what is allocated at once, what is refused, and
//! what is given back. And the rate limit of an environment holds for the background work of
//! every engine.
//!
//! A program of its own, since it counts allocations; its tests run one after the other,
//! since all threads share the count.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cambium::{
    BackgroundLimits, CompactOptions, Environment, Error, Options, Store, WriteBatch, engines,
};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const MIB: u64 = 1 << 20;
/// Of two stores.
const BUDGET: u64 = 64 * MIB;
/// Of one.
const SMALL_BUDGET: u64 = 32 * MIB;
/// What `docs/memory.md` leaves out of the budget, with one cursor and a batch of writes.
const BESIDE: u64 = 8 * MIB;
const KEYS: u64 = 50_000;
const VALUE_BYTES: usize = 300;
const ENGINES: [&str; 4] = ["forest", "wisckey", "zdb", "alphard"];

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options_of(engine: &str, environment: &Environment) -> Options {
    let options = Options::new().environment(environment.clone());
    match engine {
        // The whole device is taken at once.
        "alphard" => options.set("size", "128MiB"),
        _ => options,
    }
}

fn opening(environment: &Environment) -> Options {
    Options::new().environment(environment.clone())
}

fn key(number: u64) -> [u8; 16] {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = [b'k'; 16];
    key[4..12].copy_from_slice(&scattered.to_be_bytes());
    key
}

/// Writes every key once.
fn overwrite(store: &Store, keys: u64, round: u8) {
    for first in (0..keys).step_by(500) {
        let mut batch = WriteBatch::new();
        for number in first..(first + 500).min(keys) {
            batch.put(&key(number), &[round; VALUE_BYTES]);
        }
        store.write(batch).unwrap();
    }
}

/// Overwrites, lookups, a whole pass and a compaction.
fn work(store: &Store) {
    for round in 1..=3 {
        overwrite(store, KEYS, round);
    }
    for number in (0..KEYS).step_by(7) {
        assert_eq!(store.get(key(number)).unwrap().unwrap(), [3; VALUE_BYTES]);
    }
    assert_eq!(store.iterate().unwrap().count() as u64, KEYS);
    store.compact(&CompactOptions::default(), &()).unwrap();
    overwrite(store, KEYS / 4, 4);
}

/// The most that was allocated at once meanwhile, beyond what was before.
fn most_more(work: impl FnOnce()) -> u64 {
    PeakAlloc.reset_peak_usage();
    let before = PeakAlloc.current_usage();
    work();
    PeakAlloc.peak_usage().saturating_sub(before) as u64
}

#[test]
fn each_engine_stays_within_what_it_has_reserved() {
    let _alone = alone();
    for engine in ENGINES {
        let environment = Environment::real().with_memory(SMALL_BUDGET);
        let (most, reserved) = most_and_reserved(engine, &environment);
        assert!((1..=SMALL_BUDGET).contains(&reserved), "{engine}");
        let bound = reserved + BESIDE;
        assert!(
            most <= bound,
            "{engine}: {most} bytes at once, more than {bound}"
        );
    }
    // The bound is one: the same work takes more where nothing bounds it.
    let (most, _) = most_and_reserved("forest", &Environment::real());
    assert!(most > SMALL_BUDGET + BESIDE, "{most} bytes at once");
}

/// The most that a store allocates at once, and what it and the cache reserve.
fn most_and_reserved(engine: &str, environment: &Environment) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut reserved = 0;
    let most = most_more(|| {
        let options = options_of(engine, environment);
        let store = options.create(folder.path().join("store"), engine).unwrap();
        work(&store);
        let statistics = store.stats().unwrap();
        let own = statistics.number("memory_reserved_bytes");
        assert!(own > Some(0), "{engine}");
        let limit = statistics.number("environment_memory_limit_bytes");
        assert_eq!(limit, environment.memory.limit(), "{engine}");
        reserved = environment.memory.used();
        store.close().unwrap();
    });
    eprintln!("{engine}: {most} bytes at once, {reserved} reserved");
    (most, reserved)
}

#[test]
fn two_stores_share_one_budget_and_give_it_back() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::real().with_memory(BUDGET);
    let most = most_more(|| {
        let store = |engine: &str| {
            let options = options_of(engine, &environment);
            options.create(folder.path().join(engine), engine).unwrap()
        };
        let (forest, wisckey) = (store("forest"), store("wisckey"));
        assert!(environment.memory.used() <= BUDGET);
        std::thread::scope(|scope| {
            scope.spawn(|| work(&forest));
            work(&wisckey);
        });
        forest.close().unwrap();
        wisckey.close().unwrap();
        // The cache is the environment's.
        assert_eq!(environment.memory.used(), environment.cache.capacity());
    });
    assert!(most <= BUDGET + 2 * BESIDE, "{most} bytes at once");
}

#[test]
fn a_budget_that_is_too_small_is_refused_and_the_least_that_it_names_will_do() {
    let _alone = alone();
    for engine in ENGINES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let options = options_of(engine, &Environment::real());
        let store = options.create(&path, engine).unwrap();
        overwrite(&store, 1000, 1);
        store.close().unwrap();
        drop(store);
        let before = files_of(&path);
        let refused = Options::new().memory_budget(4 * MIB).open(&path);
        let Err(Error::LimitExceeded(text)) = refused else {
            panic!("{engine} with 4 MiB: {refused:?}");
        };
        assert_eq!(files_of(&path), before, "{engine}");
        let least = named(&text);
        assert!(least < 48 * MIB, "{engine}: {text}");
        let environment = Environment::real().with_memory(least);
        let store = opening(&environment).open(&path).unwrap();
        assert_eq!(store.get(key(7)).unwrap().unwrap(), [1; VALUE_BYTES]);
        overwrite(&store, 1000, 2);
        store.close().unwrap();
        // Nothing is left of a creation that is refused either.
        let other = folder.path().join("other");
        let small = Environment::real().with_memory(4 * MIB);
        let refused = options_of(engine, &small).create(&other, engine);
        assert!(matches!(refused, Err(Error::LimitExceeded(_))), "{engine}");
        assert!(!other.exists(), "{engine}");
        assert_eq!(small.memory.used(), 0, "{engine}");
    }
}

/// The budget that the text of a refusal names.
fn named(text: &str) -> u64 {
    let (_, rest) = text.rsplit_once("a budget of ").unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn the_first_budget_that_a_refusal_names_has_room_for_the_entries_and_for_a_copy() {
    let _alone = alone();
    let environment = Environment::memory();
    let within = |bytes| {
        let environment = Environment {
            file_system: environment.file_system.clone(),
            ..Environment::memory()
        };
        opening(&environment.with_memory(bytes))
    };
    for engine in ENGINES {
        let path = PathBuf::from(engine);
        let store = options_of(engine, &environment)
            .create(&path, engine)
            .unwrap();
        for batch in 0..50 {
            let mut writes = WriteBatch::new();
            (0..1000).for_each(|at| _ = writes.put(&key(batch * 1000 + at), &[1; 100]));
            store.write(writes).unwrap();
        }
        store.close().unwrap();
        drop(store);
        let Err(refused) = within(MIB).open(&path) else {
            panic!("{engine}: opened with 1 MiB");
        };
        let least = named(&refused.to_string());
        let store = within(least).open(&path);
        let store = store.unwrap_or_else(|error| panic!("{engine} with {least}: {error}"));
        let copied = store.backup(format!("{engine}-copy"), &());
        drop(store);
        let Err(refused) = copied else { continue };
        let enough = named(&refused.to_string());
        let store = within(enough).open(&path).unwrap();
        let copied = store.backup(format!("{engine}-copy"), &());
        copied.unwrap_or_else(|error| panic!("{engine}, a copy with {enough}: {error}"));
    }
}

fn files_of(path: &Path) -> Vec<(std::ffi::OsString, u64)> {
    let entries = std::fs::read_dir(path).unwrap().map(Result::unwrap);
    let sized = entries.map(|entry| (entry.file_name(), entry.metadata().unwrap().len()));
    let mut files: Vec<_> = sized.collect();
    files.sort();
    files
}

#[test]
fn a_value_that_is_no_number_of_bytes_is_refused_by_name() {
    let refused = Options::new().set("memory_budget", "much");
    let error = refused.create("/nowhere/at/all", "forest").unwrap_err();
    assert!(error.to_string().contains("memory_budget=much"), "{error}");
}

#[test]
fn writers_of_alphard_are_refused_when_its_index_has_no_room_and_deletes_go_on() {
    let _alone = alone();
    let environment = Environment::memory();
    let options = options_of("alphard", &environment);
    let path = Path::new("store");
    options.create(path, "alphard").unwrap().close().unwrap();
    let plan = |bytes| {
        let environment = Environment {
            file_system: environment.file_system.clone(),
            ..Environment::memory()
        };
        environment.with_memory(bytes)
    };
    let environment = plan(64 * MIB);
    let store = opening(&environment).open(path).unwrap();
    // Another part of the program takes all but a little.
    let taken = environment
        .memory
        .reserve(environment.memory.free() - MIB / 2);
    let mut written = 0;
    let error = loop {
        match store.put(key(written), [1]) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::LimitExceeded(_)), "{error}");
    assert!((10_000..50_000).contains(&written), "{written}");
    assert_eq!(store.get(key(0)).unwrap().unwrap(), [1]);
    store.delete(key(0)).unwrap();
    drop(taken);
    store.put(key(written), [1]).unwrap();
    store.close().unwrap();
}

/// Overwrites and a compaction on a clock that only waiting advances; answers how long that
/// took.
fn time_at(engine: &str, bytes_per_second: u64) -> Duration {
    let environment = Environment {
        background: BackgroundLimits::new(2, bytes_per_second),
        ..Environment::memory()
    };
    let options = match engine {
        "forest" => options_of(engine, &environment).set("write_buffer_bytes", "128KiB"),
        "wisckey" => options_of(engine, &environment).set("write_buffer_bytes", "128KiB"),
        "zdb" => options_of(engine, &environment).set("checkpoint_bytes", "256KiB"),
        _ => options_of(engine, &environment),
    };
    let store = Arc::new(options.create("store", engine).unwrap());
    for round in 1..=3 {
        overwrite(&store, 5_000, round);
    }
    for number in 0..1000 {
        store.delete(key(number)).unwrap();
    }
    while store.engine().step(1 << 20).unwrap() == cambium_io::StepOutcome::Again {}
    store.compact(&CompactOptions::default(), &()).unwrap();
    assert_eq!(store.get(key(2000)).unwrap().unwrap(), [3; VALUE_BYTES]);
    assert_eq!(store.get(key(0)).unwrap(), None);
    store.close().unwrap();
    environment.clock.monotonic()
}

#[test]
fn background_work_of_every_engine_keeps_to_the_rate_and_ends() {
    let _alone = alone();
    for kind in engines().iter() {
        let engine = kind.name();
        let (free, slow) = (time_at(engine, 0), time_at(engine, 256 << 10));
        let slower = time_at(engine, 64 << 10);
        eprintln!("{engine}: {free:?} without a limit, {slow:?}, {slower:?}");
        let least = Duration::from_millis(500);
        assert!(
            slow >= free + least,
            "{engine}: {slow:?}, {free:?} without a limit"
        );
        let ratio = slower.as_secs_f64() / slow.as_secs_f64();
        assert!(
            (2.0..8.0).contains(&ratio),
            "{engine}: {slower:?} after {slow:?}"
        );
        // The least rate is a bound: no writer waits for ever.
        assert!(time_at(engine, 1) <= slower * 2, "{engine}");
    }
}
