//! The change feed: it shows what was committed, whole and in order, through reopening,
//! collection and crashes; and consumers hold what they have not read.

mod crashes;
mod history;
mod support;

use std::path::Path;

use cambium_api::{
    ChangeOptions, Durability, EngineKind, Error, OptionValues, SequenceNumber, WriteBatch,
};
use cambium_io::Environment;
use cambium_io::simulated::SimulatedDisk;
use cambium_testkit::counted::Counted;
use cambium_wisckey::Wisckey;

use support::*;

#[test]
fn every_batch_is_shown_as_it_was_written_through_reopening() {
    for (seed, options) in [(1, OptionValues::default()), (2, tiny(&[]))] {
        let environment = Environment::simulated(&SimulatedDisk::new(seed), seed);
        let mut store = create(&environment, &options);
        store.move_consumer("all", Some(FROM_THE_START)).unwrap();
        let mut writing = Writing::new(seed);
        let mut following = feed(&*store, FROM_THE_START);
        let mut followed = Vec::new();
        for round in 0..6 {
            for _ in 0..150 {
                writing.write(&*store);
                if writing.random.chance(1, 10) {
                    followed.extend(drain(&mut *following));
                    writing.is_shown(&followed, 0);
                }
            }
            work_until_idle(&*store);
            let all = changes_after(&*store, FROM_THE_START);
            writing.is_shown(&all, 0);
            assert!(lead_to(&all, &*store));
            // From anywhere; from within a batch the whole of it.
            for skipped in (0..all.len()).step_by(37) {
                let batch = &all[skipped];
                let before = SequenceNumber(batch.first.0 - 1);
                writing.is_shown(&changes_after(&*store, before), skipped);
                let within = SequenceNumber(batch.last.0 - 1);
                writing.is_shown(&changes_after(&*store, within), skipped);
                writing.is_shown(&changes_after(&*store, batch.last), skipped + 1);
            }
            if round % 2 == 1 {
                store.close().unwrap();
                assert!(matches!(following.next(), Err(Error::Closed)));
                store = open(&environment, &options);
                let synced = ChangeOptions { synced_only: true };
                let mut synced = store.changes(FROM_THE_START, synced).unwrap();
                writing.is_shown(&drain(&mut *synced), 0);
                let position = followed.last().map_or(FROM_THE_START, |batch| batch.last);
                following = feed(&*store, position);
            }
        }
        store.close().unwrap();
        let read_only = Wisckey.open_read_only(&environment, Path::new(FOLDER), &options, &());
        let read_only = read_only.unwrap();
        writing.is_shown(&changes_after(&*read_only, FROM_THE_START), 0);
    }
}

#[test]
fn a_consumers_position_is_durable_with_all_writes_up_to_it() {
    let store = create(&Environment::memory(), &OptionValues::default());
    let options = ChangeOptions { synced_only: true };
    let mut synced = store.changes(FROM_THE_START, options).unwrap();
    let last = store.put(b"a", b"1", Durability::Buffered).unwrap();
    assert_eq!(synced.next().unwrap(), None);
    store.move_consumer("c", Some(last)).unwrap();
    assert!(synced.next().unwrap().unwrap().synced);
    assert_eq!(store.list_consumers().unwrap(), [("c".to_string(), last)]);
}

/// A batch that is longer than what is read at once; what is shown of it wrongly.
fn long_batch_shown(bug: &[(&str, &str)]) -> Option<String> {
    let environment = Environment::memory();
    let store = create(&environment, &options(bug));
    for (round, bytes) in [(0u64, 900), (1, 400_000), (2, 30)] {
        let mut batch = WriteBatch::new();
        for key in 0..2_000_000 / (bytes as u64 + 100) {
            let key = format!("{round} {key}");
            batch.put(key.as_bytes(), vec![round as u8; bytes]);
        }
        let length = batch.len();
        let before = store.put(b"before", b"", Durability::Written).unwrap();
        let last = store.write(batch, Durability::Written).unwrap();
        let mut following = feed(&*store, before);
        let shown = match following.next() {
            Ok(Some(batch)) => (batch.changes.len(), batch.last),
            other => return Some(format!("{other:?}")),
        };
        if shown != (length, last) {
            return Some(format!("{shown:?} and not {length} up to {last}"));
        }
    }
    None
}

#[test]
fn a_batch_longer_than_a_read_is_shown_whole() {
    assert_eq!(long_batch_shown(&[]), None);
}

#[test]
fn a_reader_of_history_reads_the_device_in_large_pieces() {
    let device = Counted::new();
    let store = create(&device.environment, &OptionValues::default());
    for key in 0..100_000u64 {
        let value = vec![key as u8; 100];
        store
            .put(&key.to_be_bytes(), &value, Durability::Written)
            .unwrap();
    }
    let log_bytes = number(&*store, "log_bytes_written");
    let mut batches = 0;
    let done = device.during(|| batches = changes_after(&*store, FROM_THE_START).len());
    assert_eq!(batches, 100_000);
    assert!(done.reads * (64 << 10) < log_bytes, "{done:?}");
    assert!(done.bytes_read < log_bytes * 11 / 10, "{done:?}");
    assert_eq!((done.writes, done.syncs), (0, 0));
}

#[test]
fn seeded_bugs_of_the_feed_are_found() {
    assert!(long_batch_shown(&[("seeded_bug", "change_batch_split")]).is_some());
    let early = ("seeded_bug", "history_dropped_early");
    use history::missed_by_a_consumer;
    assert!(missed_by_a_consumer(&[early]).is_some());
    let holes = [("hole_bytes", "1"), ("collection", "off")];
    assert_eq!(missed_by_a_consumer(&holes), None);
    assert!(missed_by_a_consumer(&[holes[0], holes[1], early]).is_some());
    let unsynced = [("seeded_bug", "changes_unsynced")];
    let found = (0..50).find_map(|seed| crashes::taken_back_by_crashes(seed, &unsynced));
    assert!(found.is_some());
}
