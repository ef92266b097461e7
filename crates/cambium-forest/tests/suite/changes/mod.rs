//! The change feed of `forest`: whole batches in order, through flushes, compactions,
//! reopenings, crashes and rollbacks; and the history that consumers pin.

mod crashes;
mod retention;
mod support;

use self::support::{
    Model, PATH, apply, change, compact, contents, create, drain, feed, lost, newest, open,
};
use cambium_api::EngineKind;
use cambium_api::{ChangeOptions, Durability, Error, KeyRange, Operation, SequenceNumber};
use cambium_api::{OptionValues, WriteBatch};
use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_io::simulated::Generator;
use cambium_testkit::counted::Counted;
use std::path::Path;

#[test]
fn batches_come_whole_and_in_order_with_their_numbers() {
    let store = create(&Environment::memory(), &[]);
    store.put(b"oak", b"1", Durability::Buffered).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"elm", b"2").delete(b"oak").put(b"fir", b"3");
    let last = store.write(batch, Durability::Buffered).unwrap();
    let mut all = feed(&*store, 0);
    let batches = drain(&mut *all);
    assert_eq!(batches.len(), 2);
    assert_eq!((batches[1].first.0, batches[1].last), (last.0 - 2, last));
    assert!(!batches[1].synced);
    let keys: Vec<_> = batches[1].changes.iter().map(|c| &c.operation).collect();
    assert!(matches!(keys[1], Operation::Delete { key } if key == b"oak"));
    // Within a batch it begins with the batch; behind it, with the next one.
    assert_eq!(drain(&mut *feed(&*store, last.0 - 1)), batches[1..]);
    assert!(drain(&mut *feed(&*store, last.0)).is_empty());
    // Asked again later it goes on, and tells what is synced.
    assert!(all.next().unwrap().is_none());
    store.put(b"yew", b"4", Durability::Synced).unwrap();
    let more = drain(&mut *all);
    assert_eq!(more.len(), 1);
    assert!(more[0].synced);
    let future = store.changes(SequenceNumber(last.0 + 9), ChangeOptions::default());
    assert!(matches!(future, Err(Error::InvalidArgument(_))));
    store.close().unwrap();
    assert!(matches!(all.next(), Err(Error::Closed)));
}

#[test]
fn namespaces_come_by_name_and_a_dropped_one_as_a_range() {
    let store = create(&Environment::memory(), &[]);
    let side = store.namespace("side").unwrap();
    side.put(b"k", b"v", Durability::Buffered).unwrap();
    store.drop_namespace("side").unwrap();
    let again = store.namespace("side").unwrap();
    again.put(b"l", b"w", Durability::Buffered).unwrap();
    let batches = drain(&mut *feed(&*store, 0));
    let all: Vec<_> = batches.iter().flat_map(|batch| &batch.changes).collect();
    assert!(
        all.iter()
            .all(|change| change.namespace.as_deref() == Some("side"))
    );
    let range = KeyRange::all();
    assert_eq!(all[1].operation, Operation::DeleteRange { range });
    assert_eq!(all.len(), 3);
}

/// Feeds that begin anywhere, and one that follows, come to the state of the store.
fn follow(environment: &Environment, besides: &[(&str, &str)], seed: u64) {
    let mut store = create(environment, besides);
    let mut random = Generator::new(seed);
    store.move_consumer("all", Some(SequenceNumber(0))).unwrap();
    let mut followed = Model::new();
    let mut follower = feed(&*store, 0);
    let mut at = 0;
    let mut states = vec![(0, Model::new())];
    for round in 0..400 {
        change(&*store, &mut random);
        match random.below(60) {
            0 => compact(&*store),
            1 => {
                if random.below(2) == 0 {
                    store.close().unwrap();
                }
                drop(follower);
                drop(store);
                store = open(environment, besides);
                follower = feed(&*store, at);
            }
            2 => states.push((newest(&*store), contents(&*store))),
            3..=9 => {
                for batch in drain(&mut *follower) {
                    at = batch.last.0;
                    apply(&batch, &mut followed);
                }
                assert_eq!(followed, contents(&*store), "seed {seed}, round {round}");
            }
            10..=15 => _ = store.step(1 << 20).unwrap(),
            _ => {}
        }
    }
    compact(&*store);
    let end = contents(&*store);
    for (after, state) in states {
        let mut model = state;
        for batch in drain(&mut *feed(&*store, after)) {
            apply(&batch, &mut model);
        }
        assert_eq!(model, end, "seed {seed}, after {after}");
    }
    let report = store.check(&()).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn feeds_that_begin_anywhere_come_to_the_same_end() {
    for seed in 0..15 {
        follow(&Environment::memory(), &[], seed);
    }
    for (name, value) in [
        ("direct", "on"),
        ("buffer_bytes", "300"),
        ("cache_bytes", "0"),
    ] {
        for seed in 20..25 {
            follow(&Environment::memory(), &[(name, value)], seed);
        }
    }
}

#[test]
fn feeds_of_a_store_with_the_defaults_come_to_the_same_end() {
    let environment = Environment::memory();
    let none = OptionValues::default();
    let store = Forest.create(&environment, Path::new(PATH), &none).unwrap();
    let mut random = Generator::new(7);
    let mut model = Model::new();
    let mut all = feed(&*store, 0);
    for _ in 0..2000 {
        change(&*store, &mut random);
        if random.below(50) == 0 {
            drain(&mut *all)
                .iter()
                .for_each(|batch| apply(batch, &mut model));
            assert_eq!(model, contents(&*store));
        }
    }
    compact(&*store);
    // It has the old file open.
    drain(&mut *all)
        .iter()
        .for_each(|batch| apply(batch, &mut model));
    assert_eq!(model, contents(&*store));
}

#[test]
fn after_a_rollback_no_consumer_keeps_the_old_file() {
    let environment = Environment::memory();
    let store = create(&environment, &[]);
    store.move_consumer("one", Some(SequenceNumber(0))).unwrap();
    let mut random = Generator::new(3);
    (0..40).for_each(|_| change(&*store, &mut random));
    compact(&*store);
    store.create_named_snapshot("kept").unwrap();
    (0..40).for_each(|_| change(&*store, &mut random));
    let mut partly_read = feed(&*store, 0);
    partly_read.next().unwrap().unwrap();
    store.rollback("kept").unwrap();
    let at = newest(&*store);
    assert_eq!(lost(partly_read.next()), at);
    let refused = store.move_consumer("two", Some(SequenceNumber(1)));
    assert_eq!(lost(refused), at);
    drop(partly_read);
    while store.step(1 << 20).unwrap() == cambium_io::StepOutcome::Again {}
    assert_eq!(retention::database_files(&environment).len(), 1);
}

#[test]
fn a_reader_of_the_log_reads_it_in_large_pieces() {
    let counted = Counted::new();
    let none = OptionValues::default();
    let store = Forest
        .create(&counted.environment, Path::new(PATH), &none)
        .unwrap();
    for number in 0..40_000u64 {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        store.put(&key, &[7; 100], Durability::Buffered).unwrap();
    }
    // Runs of nodes lie between documents.
    store.create_named_snapshot("flushed").unwrap();
    store.sync().unwrap();
    let bytes = store.stats().unwrap().number("file_bytes").unwrap();
    let mut all = feed(&*store, 0);
    let mut count = 0;
    let done = counted.during(|| count = drain(&mut *all).len());
    assert_eq!(count, 40_000);
    assert!(
        done.reads * (64 << 10) <= bytes + (256 << 10),
        "{} reads of {bytes} bytes",
        done.reads
    );
}
