//! Following a store by its handle, above every engine that has changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cambium::prelude::*;
use cambium::{
    ChangeOptions, Engines, Environment, Error, Marker, Operation, SequenceNumber, engines,
};
use cambium_io::simulated::SimulatedDisk;
use cambium_storage::marker::write_marker;
use cambium_testkit::memory_engine::MemoryKind;
use cambium_values::ValueLayer;

fn known() -> Engines {
    engines().with(Arc::new(ValueLayer::above(Arc::new(MemoryKind))))
}

/// A store of each engine that has changes.
fn stores() -> Vec<(tempfile::TempDir, Store)> {
    let known = known();
    let names: Vec<&str> = known.iter().map(|kind| kind.name()).collect();
    let mut stores = Vec::new();
    for name in names {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::new().engines(known.clone());
        if name == "alphard" {
            options = options.set("size", "64MiB").set("history", "on");
        }
        let path = folder.path().join("store");
        let store = options.create(&path, name).unwrap();
        if name == "memory" {
            // An engine of tests, which writes none.
            let environment = Environment::real();
            let marker = Marker::of_new(&environment, name, 1);
            write_marker(&*environment.file_system, &path, &marker).unwrap();
        }
        if store.capabilities().changes {
            stores.push((folder, store));
        }
    }
    assert!(!stores.is_empty());
    stores
}

fn put(batch: &ChangeBatch) -> (&[u8], &[u8]) {
    match &batch.changes[0].operation {
        Operation::Put { key, value } => (key, value),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_waiting_follower_sees_what_another_thread_writes() {
    for (_folder, store) in stores() {
        let changes = store.changes(SequenceNumber::ZERO).unwrap();
        let follower = std::thread::spawn(move || {
            let batches = changes.take(100).map(|batch| batch.unwrap().last);
            batches.collect::<Vec<_>>()
        });
        let mut numbers = Vec::new();
        for number in 0..100 {
            numbers.push(store.put(format!("key {number}"), "leaf").unwrap());
        }
        assert_eq!(follower.join().unwrap(), numbers);
        store.close().unwrap();
    }
}

#[test]
fn a_close_ends_a_follower_that_waits() {
    for (_folder, store) in stores() {
        let mut changes = store.changes(SequenceNumber::ZERO).unwrap();
        let follower = std::thread::spawn(move || {
            let first = changes.next();
            (first, changes.next().is_none())
        });
        std::thread::sleep(Duration::from_millis(20));
        store.close().unwrap();
        let (first, ended) = follower.join().unwrap();
        assert!(matches!(first, Some(Err(Error::Closed))) && ended);
    }
}

#[test]
fn a_bounded_wait_ends() {
    for (_folder, store) in stores() {
        let mut changes = store.changes(SequenceNumber::ZERO).unwrap();
        let (began, wait) = (Instant::now(), Duration::from_millis(30));
        assert_eq!(changes.next_timeout(wait).unwrap(), None);
        assert!(began.elapsed() >= wait);
        store.put("oak", "Quercus").unwrap();
        let batch = changes.next_timeout(wait).unwrap().unwrap();
        assert_eq!(put(&batch), (&b"oak"[..], &b"Quercus"[..]));
        assert_eq!(changes.position(), batch.last);
        store.close().unwrap();
    }
}

#[test]
fn a_waiting_follower_reads_all_that_one_look_a_millisecond_finds() {
    for engine in ["forest", "wisckey", "zdb"] {
        let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
        let options = Options::new().environment(environment.clone());
        let store = options.create("/store", engine).unwrap();
        let mut changes = store.changes(SequenceNumber::ZERO).unwrap();
        let wait = Duration::from_secs(1);
        let puts: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        for round in 0..3 {
            puts.iter()
                .for_each(|key| _ = store.put(key, "Quercus").unwrap());
            let began = environment.clock.monotonic();
            for key in &puts {
                let batch = changes.next_timeout(wait).unwrap().unwrap();
                assert_eq!(put(&batch).0, key.as_bytes(), "{engine} {round}");
            }
            let waited = environment.clock.monotonic() - began;
            assert_eq!(waited, Duration::from_millis(1), "{engine} {round}");
        }
        store.close().unwrap();
    }
}

#[test]
fn values_come_as_they_were_written() {
    for (_folder, store) in stores() {
        let moment = cambium::UnixMillis(4_000_000_000_000);
        let mut batch = WriteBatch::new();
        batch.put_expiring("oak", "Quercus", Expiry::At(moment));
        store.write(batch).unwrap();
        store.merge("add", "count", 5_u64.to_le_bytes()).unwrap();
        store.merge("add", "count", 2_u64.to_le_bytes()).unwrap();
        let tagged = [7, 7, 0xf3];
        store.put("tagged", tagged).unwrap();
        let mut changes = store.changes(SequenceNumber::ZERO).unwrap();
        let mut next = || changes.try_next().unwrap().unwrap();
        let expiring = next();
        assert_eq!(put(&expiring), (&b"oak"[..], &b"Quercus"[..]));
        assert_eq!(expiring.changes[0].expires, Some(moment));
        next();
        let merged = next();
        assert_eq!(put(&merged).1, 7_u64.to_le_bytes());
        assert_eq!(merged.changes[0].expires, None);
        assert_eq!(put(&next()).1, tagged);
        store.close().unwrap();
    }
}

#[test]
fn a_consumer_is_where_it_was_after_reopening() {
    for (_folder, store) in stores() {
        store.put("oak", "before").unwrap();
        let consumer = store.consumer("mirror").unwrap();
        assert!(consumer.is_new());
        let first = store.put("oak", "first").unwrap();
        let second = store.put("oak", "second").unwrap();
        consumer.acknowledge(first).unwrap();
        let future = consumer.acknowledge(SequenceNumber(second.0 + 1));
        assert!(matches!(future, Err(Error::InvalidArgument(_))));
        let path = store.path().to_path_buf();
        drop(consumer);
        store.close().unwrap();
        let store = Options::new().engines(known()).open(path).unwrap();
        let consumer = store.consumer("mirror").unwrap();
        assert!(!consumer.is_new());
        assert_eq!(consumer.position().unwrap(), first);
        let synced = ChangeOptions { synced_only: true };
        let mut changes = consumer.changes_with(synced).unwrap();
        assert_eq!(changes.try_next().unwrap().unwrap().last, second);
        consumer.remove().unwrap();
        assert_eq!(store.consumers().unwrap(), []);
        store.close().unwrap();
    }
}

#[test]
fn engines_without_changes_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().set("size", "64MiB");
    let store = options
        .create(folder.path().join("store"), "alphard")
        .unwrap();
    assert!(!store.capabilities().changes);
    let refused = store.changes(SequenceNumber::ZERO).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    store.close().unwrap();
}
