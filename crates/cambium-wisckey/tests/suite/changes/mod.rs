//! The change feed: it shows what was committed, whole and in order, through reopening,
//! collection and crashes; and consumers hold what they have not read.

mod crashes;
mod history;
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use cambium_api::{
    ChangeOptions, Durability, EngineKind, Error, Operation, OptionValues, SequenceNumber,
    WriteBatch,
};
use cambium_io::Environment;
use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_testkit::counted::Counted;
use cambium_testkit::golden::contents;
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
                    followed.extend(to_the_end(&mut *following));
                    writing.is_shown(&followed, 0);
                }
            }
            work_until_idle(&*store);
            let all = changes_after(&*store, FROM_THE_START);
            writing.is_shown(&all, 0);
            lead_to(&*store, State::new(), &all);
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
                writing.is_shown(&to_the_end(&mut *synced), 0);
                let position = followed.last().map_or(FROM_THE_START, |batch| batch.last);
                following = feed(&*store, position);
            }
        }
        store.close().unwrap();
        let mut options = options.clone();
        options.take("block_bytes");
        let read_only = Wisckey.open_read_only(&environment, Path::new(FOLDER), &options, &());
        let read_only = read_only.unwrap();
        writing.is_shown(&changes_after(&*read_only, FROM_THE_START), 0);
    }
}

#[test]
fn a_snapshot_and_the_changes_after_it_leave_no_gap() {
    let environment = Environment::memory();
    let store = create(&environment, &tiny(&[]));
    let mut writing = Writing::new(3);
    for _ in 0..40 {
        (0..20).for_each(|_| writing.write(&*store));
        work_until_idle(&*store);
        let snapshot = store.snapshot().unwrap();
        let mut state = State::new();
        for name in snapshot.namespaces().unwrap() {
            let named = snapshot.namespace(&name).unwrap().unwrap();
            state.insert(name, contents(&*named).into_iter().collect());
        }
        let mut following = feed(&*store, snapshot.sequence());
        (0..7).for_each(|_| writing.write(&*store));
        lead_to(&*store, state, &to_the_end(&mut *following));
    }
}

#[test]
fn numbers_of_the_future_are_refused_and_synced_only_waits_for_the_sync() {
    let environment = Environment::memory();
    let store = create(&environment, &OptionValues::default());
    let written = store.put(b"a", b"1", Durability::Buffered).unwrap();
    let future = SequenceNumber(written.0 + 1);
    let options = ChangeOptions { synced_only: true };
    for refused in [
        store.changes(future, options).map(drop),
        store.move_consumer("c", Some(future)),
    ] {
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    }
    let mut synced = store.changes(FROM_THE_START, options).unwrap();
    assert_eq!(synced.next().unwrap(), None);
    // What lies in the writer's buffer is shown from there.
    let buffered = changes_after(&*store, FROM_THE_START);
    assert_eq!((buffered.len(), buffered[0].synced), (1, false));
    store.sync().unwrap();
    assert!(synced.next().unwrap().unwrap().synced);
    assert_eq!(synced.next().unwrap(), None);
    // A consumer's position survives, with all writes up to it.
    let last = store.put(b"a", b"2", Durability::Buffered).unwrap();
    store.move_consumer("c", Some(last)).unwrap();
    assert!(synced.next().unwrap().unwrap().synced);
    assert_eq!(store.list_consumers().unwrap(), [("c".to_string(), last)]);
    assert!(store.move_consumer("d", None).is_err());
    assert!(store.move_consumer("", Some(last)).is_err());
    store.move_consumer("c", None).unwrap();
    assert_eq!(store.list_consumers().unwrap(), []);
}

/// Writers with batches of their own, and a follower beside them.
fn follow_writers(environment: &Environment, folder: &Path, options: &OptionValues) {
    const WRITERS: u64 = 3;
    const BATCHES: u64 = 1_500;
    let store = Wisckey.create(environment, folder, options).unwrap();
    store
        .move_consumer("follower", Some(FROM_THE_START))
        .unwrap();
    let is_done = AtomicBool::new(false);
    let batches = std::thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let mut following = feed(&*store, FROM_THE_START);
            let mut batches = Vec::new();
            loop {
                let was_done = is_done.load(Ordering::Acquire);
                let new = to_the_end(&mut *following);
                if let Some(last) = new.last() {
                    store.move_consumer("follower", Some(last.last)).unwrap();
                }
                batches.extend(new);
                if was_done {
                    return batches;
                }
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let store = &store;
                scope.spawn(move || {
                    let mut random = Generator::new(writer);
                    for stamp in 0..BATCHES {
                        let mut batch = WriteBatch::new();
                        for key in 0..1 + random.below(6) {
                            let mut value = format!("{writer} {stamp} ").into_bytes();
                            value.resize(20 + random.below(200) as usize, b'v');
                            batch.put(format!("{writer} {key}"), value);
                        }
                        if random.chance(1, 8) {
                            batch.delete(format!("{writer} {}", random.below(6)));
                        }
                        let durability = match random.below(30) {
                            0 => Durability::Synced,
                            1..10 => Durability::Buffered,
                            _ => Durability::Written,
                        };
                        store.write(batch, durability).unwrap();
                    }
                })
            })
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        is_done.store(true, Ordering::Release);
        follower.join().unwrap()
    });
    is_in_order(&batches);
    assert_eq!(batches.len() as u64, WRITERS * BATCHES);
    let mut stamps = BTreeMap::new();
    for batch in &batches {
        let of_change = |operation: &Operation| match operation {
            Operation::Put { value, .. } => {
                let text = String::from_utf8_lossy(value).into_owned();
                let mut words = text.split(' ').map(|word| word.parse().unwrap_or(u64::MAX));
                Some((words.next().unwrap(), words.next().unwrap()))
            }
            _ => None,
        };
        let operations = batch.changes.iter().map(|change| &change.operation);
        let found: Vec<(u64, u64)> = operations.filter_map(of_change).collect();
        assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
        let (writer, stamp) = found[0];
        assert_eq!(stamps.insert(writer, stamp), stamp.checked_sub(1));
    }
    lead_to(&*store, State::new(), &batches);
    store.close().unwrap();
}

/// Memory below, threads above: background work meets readers and writers.
fn threaded() -> Environment {
    Environment {
        executor: Environment::real().executor,
        ..Environment::memory()
    }
}

#[test]
fn a_follower_beside_writers_sees_every_batch_once() {
    follow_writers(&threaded(), Path::new(FOLDER), &tiny(&[]));
    let changes = [("hole_bytes", "1"), ("segment_bytes", "16KiB")];
    follow_writers(&threaded(), Path::new(FOLDER), &tiny(&changes));
}

#[test]
fn a_follower_of_files_of_this_machine_sees_every_batch_once() {
    for (name, options) in [
        ("defaults", OptionValues::default()),
        ("tiny", tiny(&[])),
        ("direct", options(&[("direct", "on"), ("open_files", "1")])),
    ] {
        let folder = tempfile::tempdir().unwrap();
        follow_writers(&Environment::real(), &folder.path().join(name), &options);
    }
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
