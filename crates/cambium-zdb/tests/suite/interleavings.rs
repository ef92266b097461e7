//! Threads of `zdb` under the scheduler: short programs, each about one place where
//! threads meet, run under many interleavings. Each must hold in all of them, and
//! must not when the bug that it is about is switched on.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    CompactOptions, Durability, Engine, EngineKind, OptionValues, Result, WriteBatch,
};
use cambium_io::Environment;
use cambium_io::simulated::{
    CrashStyle, ErrorNumber, Fault, FaultRule, OperationClass, SimulatedDisk,
};
use cambium_io::sync::schedule::Schedule;
use cambium_io::sync::scheduler;
use cambium_io::sync::thread;
use cambium_testkit::stores;
use cambium_zdb::Zdb;

const PATH: &str = "/store";

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Integer keys in tables of 10, with a checkpoint after nearly every write.
fn small() -> OptionValues {
    OptionValues::from([
        ("keys", "integer"),
        ("keys_per_table", "10"),
        ("data_files", "2"),
        ("piece_bytes", "256"),
        ("block_bytes", "256"),
        ("commit_log_bytes", "2048"),
        ("sparse_tables", "1000"),
    ])
}

fn opening(seeded_bug: Option<&str>, pairs: &[(&str, &str)]) -> OptionValues {
    let mut options = OptionValues::from(pairs);
    options.set("sparse_tables", "1000");
    if let Some(name) = seeded_bug {
        options.set("seeded_bug", name);
    }
    options
}

/// Runs a program under many schedules; returns the first failure.
fn first_failure(
    schedules: u64,
    bug: Option<&'static str>,
    program: fn(Option<&'static str>) -> std::result::Result<(), String>,
) -> Option<String> {
    let first: u64 = std::env::var("CAMBIUM_SEED").map_or(1, |seed| seed.parse().unwrap());
    (first..first + schedules).find_map(|seed| {
        let run = scheduler::run(Schedule::random(seed), move || program(bug));
        let failure = run.outcome.and_then(|outcome| outcome).err()?;
        Some(format!("CAMBIUM_SEED={seed}: {failure}"))
    })
}

fn holds_unless(
    bug: &'static str,
    program: fn(Option<&'static str>) -> std::result::Result<(), String>,
) {
    assert_eq!(first_failure(300, None, program), None);
    assert!(
        first_failure(1_000, Some(bug), program).is_some(),
        "{bug} is found"
    );
}

fn text<T>(result: Result<T>) -> std::result::Result<T, String> {
    result.map_err(|error| error.to_string())
}

type Outcome = std::result::Result<(), String>;

/// Runs threads and answers the first failure.
fn together(programs: Vec<Box<dyn FnOnce() -> Outcome + Send>>) -> Outcome {
    let threads: Vec<_> = programs.into_iter().map(thread::spawn).collect();
    let outcomes: Vec<Outcome> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    outcomes.into_iter().collect()
}

/// A store of key 1 and 25 that was closed, so that no piece is in memory.
fn closed_store(environment: &Environment) {
    let store = stores::create(&Zdb, environment, &small());
    for number in [1, 25] {
        store
            .put(&key(number), &[0; 1200], Durability::Written)
            .unwrap();
    }
    store.close().unwrap();
}

fn reads_while_tables_close(bug: Option<&'static str>) -> Outcome {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    closed_store(&environment);
    let options = opening(bug, &[("checkpoint_bytes", "1024"), ("open_tables", "1")]);
    let store = stores::open(&Zdb, &environment, &options);
    let (reader, writer) = (store.clone(), store);
    together(vec![
        Box::new(move || text(reader.get(&key(1))).map(|_| ())),
        // Closes the first table, opens it again, and writes its piece twice.
        Box::new(move || {
            for number in [25, 1, 1] {
                text(writer.put(&key(number), &[9; 1200], Durability::Written))?;
            }
            Ok(())
        }),
    ])
}

fn a_read_meets_two_checkpoints(bug: Option<&'static str>) -> Outcome {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    closed_store(&environment);
    let options = opening(bug, &[("checkpoint_bytes", "1024")]);
    let store = stores::open(&Zdb, &environment, &options);
    let (reader, writer) = (store.clone(), store);
    together(vec![
        Box::new(move || text(reader.get(&key(1))).map(|_| ())),
        Box::new(move || {
            for round in 1..=2 {
                text(writer.put(&key(1), &[round; 1200], Durability::Written))?;
            }
            Ok(())
        }),
    ])
}

#[test]
fn a_piece_that_is_written_while_it_is_read_is_no_damage() {
    holds_unless("load_race_is_damage", a_read_meets_two_checkpoints);
}

#[test]
fn a_table_in_use_stays_open() {
    holds_unless("table_closed_in_use", reads_while_tables_close);
}

fn batch_of(version: u8, keys: [u64; 3]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for number in keys {
        batch.put(&key(number), &[version]);
    }
    batch
}

fn batches_of_one_piece_are_seen_whole(bug: Option<&'static str>) -> Outcome {
    batches_are_seen_whole(bug, [1, 2, 3])
}

/// Of three pieces in two tables, and not in the order of the keys.
fn batches_of_several_tables_are_seen_whole(bug: Option<&'static str>) -> Outcome {
    batches_are_seen_whole(bug, [1500, 900, 1])
}

fn batches_are_seen_whole(bug: Option<&'static str>, keys: [u64; 3]) -> Outcome {
    let environment = Environment::memory();
    let mut options = small();
    if let Some(name) = bug {
        options.set("seeded_bug", name);
    }
    options
        .set("keys_per_table", "1000")
        .set("cache_bytes", "256KiB");
    let store = stores::create(&Zdb, &environment, &options);
    store.write(batch_of(0, keys), Durability::Written).unwrap();
    let (reader, writer) = (store.clone(), store);
    let version = |store: &Arc<dyn Engine>, number| -> std::result::Result<u8, String> {
        Ok(text(store.get(&key(number)))?.ok_or("a key is gone")?[0])
    };
    together(vec![
        Box::new(move || {
            for _ in 0..4 {
                let seen = version(&reader, keys[0])?;
                let (later, last) = (version(&reader, keys[1])?, version(&reader, keys[2])?);
                if later < seen || last < later {
                    return Err(format!(
                        "versions {seen}, {later}, {last}, one after the other"
                    ));
                }
            }
            Ok(())
        }),
        Box::new(move || {
            for round in 1..=3 {
                text(writer.write(batch_of(round, keys), Durability::Written))?;
                for number in keys {
                    let seen = version(&writer, number)?;
                    if seen != round {
                        return Err(format!("{round} was written to {number}, {seen} is read"));
                    }
                }
            }
            Ok(())
        }),
    ])
}

#[test]
fn a_cached_batch_is_seen_whole_and_never_stale() {
    holds_unless("cache_outside_locks", batches_of_one_piece_are_seen_whole);
    holds_unless(
        "cache_outside_locks",
        batches_of_several_tables_are_seen_whole,
    );
}

fn counts_are_those_of_the_checkpoint(bug: Option<&'static str>) -> Outcome {
    let environment = Environment::memory();
    let mut options = small();
    options.set("keys", "string").set("buckets", "2");
    options.set("checkpoint_bytes", "1024");
    if let Some(name) = bug {
        options.set("seeded_bug", name);
    }
    let store = stores::create(&Zdb, &environment, &options);
    let writer = |name: &'static str, store: Arc<dyn Engine>| {
        move || {
            for number in 0..5u8 {
                let key = format!("{name} {number}");
                text(store.put(key.as_bytes(), &[number; 200], Durability::Written))?;
                if number % 2 == 1 {
                    text(store.delete(key.as_bytes(), Durability::Written))?;
                }
            }
            Ok(())
        }
    };
    together(vec![
        Box::new(writer("a", store.clone())),
        Box::new(writer("b", store.clone())),
    ])?;
    // The process dies here.
    drop(store);
    let check = || {
        Zdb.check(&environment, Path::new(PATH), &Default::default(), &())
            .unwrap()
    };
    let report = check();
    if !report.is_sound() || report.entries != 6 {
        return Err(format!("{report:?}"));
    }
    let options = opening(None, &[]);
    let store = text(Zdb.open(&environment, Path::new(PATH), &options, &()))?;
    for name in ["a 0", "a 2", "a 4", "b 0", "b 2", "b 4"] {
        text(store.get(name.as_bytes()))?.ok_or(format!("{name} is gone"))?;
    }
    text(store.close())?;
    match check() {
        report if report.is_sound() && report.entries == 6 => Ok(()),
        report => Err(format!("after recovery: {report:?}")),
    }
}

#[test]
fn a_checkpoint_counts_what_it_holds() {
    holds_unless("counts_of_later", counts_are_those_of_the_checkpoint);
}

fn statistics_beside_a_compaction(_: Option<&'static str>) -> Outcome {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let store = stores::create(&Zdb, &environment, &small());
    for number in [1, 2, 3, 1, 2] {
        text(store.put(&key(number), &[7; 1200], Durability::Written))?;
    }
    let reader = store.clone();
    together(vec![
        Box::new(move || text(store.compact(&CompactOptions::default(), &())).map(|_| ())),
        Box::new(move || {
            (0..6).try_for_each(|_| match text(reader.stats())?.number("entries") {
                Some(3) => Ok(()),
                other => Err(format!("{other:?} entries, where there are 3")),
            })
        }),
    ])
}

#[test]
fn the_number_of_entries_stays_beside_a_compaction() {
    assert_eq!(
        first_failure(300, None, statistics_beside_a_compaction),
        None
    );
}

fn a_failed_sync_fails_all(bug: Option<&'static str>) -> Outcome {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let mut options = small();
    options
        .set("data_files", "1")
        .set("commit_group_bytes", "0");
    options.set("checkpoint_bytes", "1024");
    if let Some(name) = bug {
        options.set("seeded_bug", name);
    }
    let store = text(Zdb.create(&environment, Path::new(PATH), &options))?;
    text(store.put(&key(1), b"old", Durability::Synced))?;
    text(store.put(&key(1), b"new", Durability::Written))?;
    // Two threads sync the data file; only the first gets the error.
    disk.inject(FaultRule {
        class: OperationClass::Sync,
        nth: 1,
        forever: false,
        fault: Fault::SyncKeepsPages(ErrorNumber::InputOutput),
    });
    let (one, other) = (store.clone(), store);
    let synced = Arc::new(std::sync::Mutex::new(0));
    let count = synced.clone();
    together(vec![
        Box::new(move || {
            *count.lock().unwrap() += u32::from(one.sync().is_ok());
            Ok(())
        }),
        // The background checkpoint of this write.
        Box::new(move || {
            _ = other.put(&key(2), &[0; 1200], Durability::Written);
            Ok(())
        }),
    ])?;
    let count = *synced.lock().unwrap();
    let after = disk.crash(CrashStyle::NothingUnsynced, 1);
    let environment = Environment::simulated(&after, 2);
    let store = text(Zdb.open(&environment, Path::new(PATH), &opening(None, &[]), &()))?;
    let value = text(store.get(&key(1)));
    let value = value?;
    match (count, value.as_deref()) {
        (0, _) | (_, Some(b"new")) => Ok(()),
        (_, other) => Err(format!("sync answered Ok, and {other:?} is what is left")),
    }
}

#[test]
fn no_sync_is_believed_beside_one_that_failed() {
    holds_unless("sync_error_taken", a_failed_sync_fails_all);
}
