//! History that is kept for consumers: through compactions and reopenings, and no longer or
//! larger than it may be.

use std::path::Path;

use cambium_api::{ChangeOptions, Durability, Engine, EngineKind, Error, SequenceNumber};
use cambium_forest::Forest;
use cambium_io::simulated::Generator;
use cambium_io::{Environment, StepOutcome};

use super::support::{
    Model, PATH, apply, change, compact, contents, create, drain, feed, lost, newest, open,
};

/// Names of database files.
pub fn database_files(environment: &Environment) -> Vec<String> {
    let entries = environment.file_system.list(Path::new(PATH)).unwrap();
    let names = entries
        .into_iter()
        .map(|e| e.name.to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".forest")).collect()
}

fn work(store: &dyn Engine) {
    while store.step(1 << 20).unwrap() == StepOutcome::Again {}
}

fn overwrite(store: &dyn Engine, rounds: u64) {
    for round in 0..rounds {
        let key = (round % 10).to_be_bytes();
        store
            .put(&key, &[round as u8; 900], Durability::Buffered)
            .unwrap();
    }
}

fn move_to(store: &dyn Engine, name: &str, to: u64) {
    store.move_consumer(name, Some(SequenceNumber(to))).unwrap();
}

#[test]
fn without_consumers_a_compaction_ends_history() {
    let environment = Environment::memory();
    let store = create(&environment, &[]);
    overwrite(&*store, 50);
    let mut open_before = feed(&*store, 0);
    compact(&*store);
    assert_eq!(database_files(&environment).len(), 1);
    let options = ChangeOptions::default();
    let oldest = lost(store.changes(SequenceNumber(0), options));
    assert_eq!(oldest, newest(&*store));
    assert_eq!(store.stats().unwrap().number("oldest_change"), Some(oldest));
    // One that reads the old file goes on into the new one, but not past a third.
    overwrite(&*store, 5);
    assert_eq!(drain(&mut *open_before).len(), 55);
    let mut slow = feed(&*store, oldest);
    slow.next().unwrap().unwrap();
    compact(&*store);
    overwrite(&*store, 5);
    compact(&*store);
    let rest: Vec<_> = std::iter::from_fn(|| slow.next().transpose())
        .take(5)
        .collect();
    assert_eq!(rest.len(), 5);
    assert!(matches!(rest[4], Err(Error::HistoryLost { oldest }) if oldest.0 == newest(&*store)));
}

#[test]
fn consumers_pin_history_until_the_slowest_has_passed() {
    let environment = Environment::memory();
    let mut store = create(&environment, &[]);
    let mut random = Generator::new(5);
    (0..60).for_each(|_| change(&*store, &mut random));
    let (at, model) = (newest(&*store), contents(&*store));
    move_to(&*store, "slow", at);
    for _ in 0..3 {
        (0..60).for_each(|_| change(&*store, &mut random));
        compact(&*store);
        move_to(&*store, "fast", newest(&*store));
        work(&*store);
        store.close().unwrap();
        drop(store);
        store = open(&environment, &[]);
        work(&*store);
    }
    assert_eq!(database_files(&environment).len(), 4);
    let mut consumed = model;
    let batches = drain(&mut *feed(&*store, at));
    batches.iter().for_each(|batch| apply(batch, &mut consumed));
    assert_eq!(consumed, contents(&*store));
    let kept = store.stats().unwrap().number("history_bytes").unwrap();
    assert!(kept > 0);

    // The check reads what is kept; inspect and dump name it.
    store.close().unwrap();
    let none = Default::default();
    let report = Forest
        .check(&environment, Path::new(PATH), &none, &())
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
    let mut said = Vec::new();
    Forest
        .inspect(&environment, Path::new(PATH), &mut said)
        .unwrap();
    let said = String::from_utf8(said).unwrap();
    assert_eq!(said.matches("is kept for consumers").count(), 3, "{said}");
    let store = Forest
        .open_read_only(&environment, Path::new(PATH), &none, &())
        .unwrap();
    assert_eq!(drain(&mut *feed(&*store, at)).len(), batches.len());
    drop(store);

    // In the middle of it, then behind it.
    let store = open(&environment, &[]);
    let middle = batches[batches.len() / 2].last.0;
    move_to(&*store, "slow", middle);
    work(&*store);
    assert!(database_files(&environment).len() < 4);
    assert_eq!(
        drain(&mut *feed(&*store, middle)).len(),
        batches.len() - batches.len() / 2 - 1
    );
    store.move_consumer("slow", None).unwrap();
    work(&*store);
    assert_eq!(database_files(&environment).len(), 1);
    let names: Vec<_> = store
        .list_consumers()
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["fast"]);
    let stats = store.stats().unwrap();
    assert_eq!(stats.number("history_bytes"), Some(0));
}

#[test]
fn a_consumer_that_is_little_behind_keeps_little_of_a_large_file() {
    let environment = Environment::memory();
    // One file, whose space is looked at.
    let options = [("history_bytes", "64KiB"), ("segment_bytes", "128MiB")];
    let store = create(&environment, &options);
    overwrite(&*store, 2000);
    let at = newest(&*store);
    move_to(&*store, "near", at);
    overwrite(&*store, 20);
    let snapshot = store.snapshot().unwrap();
    let files = &environment.file_system;
    let old = Path::new(PATH).join(&database_files(&environment)[0]);
    let before = files.metadata(&old).unwrap().unwrap().allocated;
    compact(&*store);
    work(&*store);
    // A snapshot reads it yet.
    assert_eq!(
        snapshot.get(&3u64.to_be_bytes()).unwrap().unwrap().len(),
        900
    );
    assert_eq!(drain(&mut *feed(&*store, at)).len(), 20);
    drop(snapshot);
    work(&*store);
    let after = files.metadata(&old).unwrap().unwrap().allocated;
    assert!(after < before / 10, "{after} of {before}");
    assert_eq!(drain(&mut *feed(&*store, at)).len(), 20);
    let kept = store.stats().unwrap().number("history_bytes").unwrap();
    assert!(kept <= 64 << 10, "{kept}");
    let options = ChangeOptions::default();
    let oldest = lost(store.changes(SequenceNumber(0), options));
    assert!(oldest <= at);
    assert!(drain(&mut *feed(&*store, oldest)).len() as u64 == newest(&*store) - oldest);
}

#[test]
fn no_more_than_history_bytes_is_kept() {
    for limit in ["0", "32KiB", "256KiB"] {
        let environment = Environment::memory();
        let besides = [("history_bytes", limit)];
        let mut store = create(&environment, &besides);
        move_to(&*store, "stuck", 0);
        let most = cambium_api::options::parse_bytes(limit).unwrap();
        for _ in 0..8 {
            let at = newest(&*store);
            move_to(&*store, "moving", at);
            overwrite(&*store, 100);
            compact(&*store);
            work(&*store);
            if limit == "256KiB" {
                assert_eq!(drain(&mut *feed(&*store, at)).len(), 100);
            }
            let kept = store.stats().unwrap().number("history_bytes").unwrap();
            assert!(kept <= most, "{kept} of {limit}");
            let oldest = store.stats().unwrap().number("oldest_change").unwrap();
            let got = drain(&mut *feed(&*store, oldest));
            assert_eq!(got.len() as u64, newest(&*store) - oldest);
            store.close().unwrap();
            store = {
                drop(store);
                open(&environment, &besides)
            };
            assert_eq!(store.stats().unwrap().number("oldest_change"), Some(oldest));
        }
        let options = ChangeOptions::default();
        assert!(lost(store.changes(SequenceNumber(0), options)) > 0);
        assert_eq!(store.list_consumers().unwrap()[1].1.0, 0);
    }
}

#[test]
fn a_consumer_is_made_where_history_is_and_is_synced_before() {
    let store = create(&Environment::memory(), &[]);
    overwrite(&*store, 5);
    let future = store.move_consumer("a", Some(SequenceNumber(6)));
    assert!(matches!(future, Err(Error::InvalidArgument(_))));
    assert!(drain(&mut *super::support::synced_feed(&*store, 0)).is_empty());
    move_to(&*store, "a", 3);
    assert_eq!(
        drain(&mut *super::support::synced_feed(&*store, 0)).len(),
        5
    );
    store.move_consumer("a", None).unwrap();
    let missing = store.move_consumer("a", None);
    assert!(matches!(missing, Err(Error::NotFound { .. })));
    compact(&*store);
    assert_eq!(lost(store.move_consumer("a", Some(SequenceNumber(3)))), 5);
    move_to(&*store, "a", 5);
    let mut model = Model::new();
    let mut random = Generator::new(1);
    (0..20).for_each(|_| change(&*store, &mut random));
    drain(&mut *feed(&*store, 5))
        .iter()
        .for_each(|batch| apply(batch, &mut model));
    assert!(!model.is_empty());
}

#[test]
fn a_backup_and_a_repair_have_no_history() {
    let environment = Environment::memory();
    let store = create(&environment, &[]);
    move_to(&*store, "one", 0);
    overwrite(&*store, 50);
    compact(&*store);
    store.backup(Path::new("/copy"), &()).unwrap();
    let copy = Forest
        .open(&environment, Path::new("/copy"), &Default::default(), &())
        .unwrap();
    assert_eq!(contents(&*copy), contents(&*store));
    assert!(copy.list_consumers().unwrap().is_empty());
    assert_eq!(copy.stats().unwrap().number("history_bytes"), Some(0));

    // Damage in the newest file: a repair writes another one.
    let oldest = newest(&*store);
    store
        .put(b"more", b"than before", Durability::Synced)
        .unwrap();
    store.close().unwrap();
    drop(store);
    let file = database_files(&environment).into_iter().max().unwrap();
    let files = &environment.file_system;
    let path = Path::new(PATH).join(file);
    let handle = files.open(&path, cambium_io::OpenOptions::WRITE).unwrap();
    handle.write_at(&[1; 512], 600).unwrap();
    drop(handle);
    let none = Default::default();
    let report = Forest
        .repair(&environment, Path::new(PATH), &none, &())
        .unwrap();
    let given_up = |what: &str| what.contains("the changes before the repair are given up");
    assert!(
        report
            .findings
            .iter()
            .any(|finding| given_up(&finding.what)),
        "{report:?}"
    );
    let store = open(&environment, &[]);
    let options = ChangeOptions::default();
    assert!(lost(store.changes(SequenceNumber(0), options)) > oldest);
    assert_eq!(database_files(&environment).len(), 1);
}
