//! What reaches the device: accesses an operation, writes a batch, syncs a group,
//! what an open reads.

use std::path::Path;
use std::sync::Arc;

use cambium_alphard::Alphard;
use cambium_api::{Durability, Engine, EngineKind, OptionValues, WriteBatch};
use cambium_io::Environment;
use cambium_io::recording::IoCounters;
use cambium_io::simulated::SimulatedDisk;
use cambium_testkit::counted::Counted;
use cambium_testkit::stores;

/// Counted here is what reaches the device; `kept.rs` counts what memory spares it.
const UNCACHED: (&str, &str) = ("cache_bytes", "0");

fn create(environment: &Environment) -> Arc<dyn Engine> {
    let options = OptionValues::from([("size", "16MiB"), UNCACHED]);
    stores::create(&Alphard, environment, &options)
}

fn open(environment: &Environment) -> Arc<dyn Engine> {
    let options = OptionValues::from([UNCACHED]);
    stores::open(&Alphard, environment, &options)
}

fn accesses(counters: &IoCounters) -> (u64, u64, u64) {
    (counters.reads, counters.writes, counters.syncs)
}

#[test]
fn a_store_of_small_blocks_goes_on_where_direct_transfers_are_larger() {
    let disk = SimulatedDisk::new(1);
    disk.add_device(Path::new("/device"), 16 << 20, 4096);
    let environment = Environment::simulated(&disk, 1);
    let create = |direct| {
        let pairs = [
            ("device", "/device"),
            ("block_bytes", "512"),
            ("direct", direct),
        ];
        let options = OptionValues::from(pairs);
        Alphard.create(&environment, Path::new("/store"), &options)
    };
    let refused = create("on").err().unwrap().to_string();
    assert!(refused.contains("set direct=auto"), "{refused}");
    let store = create("auto").unwrap();
    store.put(b"oak", b"Quercus", Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    let open = |direct| {
        let options = OptionValues::from([("direct", direct)]);
        Alphard.open(&environment, Path::new("/store"), &options, &())
    };
    assert!(open("on").is_err());
    let store = open("auto").unwrap();
    assert_eq!(store.get(b"oak").unwrap().unwrap(), &b"Quercus"[..]);
    store.close().unwrap();
    drop(store);
    let checked = Alphard.check(
        &environment,
        Path::new("/store"),
        &OptionValues::default(),
        &(),
    );
    assert!(checked.unwrap().is_sound());
}

#[test]
fn every_operation_costs_one_access_at_most() {
    let device = Counted::new();
    let environment = &device.environment;
    let store = create(environment);
    // The first write gives the opening its epoch, and takes space into use.
    store.put(b"first", b"", Durability::Written).unwrap();
    for key in [&b"short"[..], b"a key of more than seven bytes"] {
        for value in [&[1u8; 10][..], &[2; 5_000], &[3; 300_000]] {
            let put = device.during(|| {
                _ = store.put(key, value, Durability::Written).unwrap();
            });
            assert_eq!(accesses(&put), (0, 1, 0), "put, over what is there or not");
            let get = device.during(|| {
                assert_eq!(store.get(key).unwrap().unwrap(), value);
            });
            assert_eq!(accesses(&get), (1, 0, 0), "get");
        }
        let delete = device.during(|| {
            _ = store.delete(key, Durability::Written).unwrap();
        });
        assert_eq!(accesses(&delete), (0, 1, 0), "delete");
        let missing = device.during(|| assert_eq!(store.get(key).unwrap(), None));
        assert_eq!(accesses(&missing), (0, 0, 0), "get of what is not there");
    }
    let synced = device.during(|| {
        _ = store.put(b"synced", b"value", Durability::Synced).unwrap();
    });
    assert_eq!(accesses(&synced), (0, 1, 1));
}

#[test]
fn a_longer_key_that_memory_does_not_know_costs_a_read_more() {
    let device = Counted::new();
    let environment = &device.environment;
    let store = create(environment);
    let key = b"a key of more than seven bytes";
    store.put(key, &[1; 5_000], Durability::Written).unwrap();
    store.close().unwrap();
    drop(store);
    let store = open(environment);
    store.put(b"first", b"", Durability::Written).unwrap();
    let over = device.during(|| {
        _ = store.put(key, b"new", Durability::Written).unwrap();
    });
    assert_eq!(accesses(&over), (1, 1, 0));
    assert!(over.bytes_read <= 512, "the header's block alone");
}

#[test]
fn a_batch_is_one_write_and_buffered_writes_share_one() {
    let device = Counted::new();
    let environment = &device.environment;
    let store = create(environment);
    store.put(b"first", b"", Durability::Written).unwrap();
    let mut batch = WriteBatch::new();
    for number in 0..500u32 {
        batch.put(&number.to_be_bytes(), &[7; 300]);
    }
    let written = device.during(|| {
        _ = store.write(batch, Durability::Synced).unwrap();
    });
    assert_eq!(accesses(&written), (0, 1, 1));
    let written = device.during(|| {
        for number in 500..1_000u32 {
            let key = number.to_be_bytes();
            store.put(&key, &[7; 300], Durability::Buffered).unwrap();
            assert_eq!(store.get(&key).unwrap().unwrap(), [7; 300]);
        }
        store.sync().unwrap();
    });
    // And the file `SYNCED`.
    assert_eq!(accesses(&written), (0, 2, 1), "none until it was asked for");
}

#[test]
fn large_entries_that_lie_together_share_a_write_with_small_ones() {
    let device = Counted::new();
    let environment = &device.environment;
    let store = create(environment);
    store.put(b"first", b"", Durability::Written).unwrap();
    let value = |number: u8| match number % 5 {
        0 | 1 => vec![number; 70_000 + usize::from(number)],
        _ => vec![number; 300],
    };
    let put = |number: u8| {
        store
            .put(&[number], &value(number), Durability::Buffered)
            .unwrap();
    };
    let written = device.during(|| {
        (0..10).for_each(put);
        store.sync().unwrap();
    });
    // And the file `SYNCED`.
    assert_eq!(accesses(&written), (0, 2, 1));
    // One that is too long for a write with others (`coalesce_bytes`) has its own.
    let written = device.during(|| {
        put(10);
        let long = vec![7; (1 << 20) - 1000];
        store.put(b"long", &long, Durability::Buffered).unwrap();
        store.sync().unwrap();
    });
    assert_eq!(accesses(&written), (0, 3, 1));
    store.close().unwrap();
    let store = open(environment);
    for number in 0..=10 {
        assert_eq!(store.get(&[number]).unwrap().unwrap(), value(number));
    }
}

#[test]
fn an_open_after_a_clean_close_reads_the_image_and_not_the_device() {
    let device = Counted::new();
    let environment = &device.environment;
    let store = create(environment);
    for number in 0..5_000u32 {
        store
            .put(&number.to_be_bytes(), &[1; 1_000], Durability::Buffered)
            .unwrap();
    }
    store.close().unwrap();
    drop(store);
    let opened = device.during(|| drop(open(environment)));
    assert!(opened.bytes_read < 16 * 5_000 + (32 << 10), "{opened:?}");
    assert_eq!(opened.writes, 0, "an open that writes nothing stays clean");
    // The first write makes the image an old one.
    let store = open(environment);
    store.put(b"key", b"value", Durability::Synced).unwrap();
    drop(store);
    let scanned = device.during(|| {
        let store = open(environment);
        assert_eq!(store.get(b"key").unwrap().unwrap(), b"value");
        assert_eq!(store.stats().unwrap().number("entries"), Some(5_001));
    });
    assert!(scanned.bytes_read > 5_000 * 1_024, "{scanned:?}");
}

#[test]
fn space_in_use_comes_back_under_steady_overwriting_and_deleting() {
    let device = Counted::new();
    let environment = &device.environment;
    let store = create(environment);
    for round in 0..40u32 {
        for number in 0..1_000u32 {
            let key = number.to_be_bytes();
            store
                .put(&key, &[round as u8; 2_000], Durability::Buffered)
                .unwrap();
        }
        store.sync().unwrap();
    }
    for number in 0..1_000u32 {
        store
            .delete(&number.to_be_bytes(), Durability::Buffered)
            .unwrap();
    }
    store.compact(&Default::default(), &()).unwrap();
    let stats = store.stats().unwrap();
    assert_eq!(stats.number("entries"), Some(0));
    assert_eq!(stats.number("waiting_bytes"), Some(0));
    assert_eq!(
        stats.number("tombstones"),
        Some(1),
        "the newest entry stays"
    );
    let (size, free) = (stats.number("size_bytes"), stats.number("free_bytes"));
    assert_eq!(size.unwrap() - free.unwrap(), 512 + 8_192);
}

/// A later opening may use direct access.
#[test]
fn a_store_made_without_direct_access_has_blocks_that_direct_access_takes() {
    let disk = SimulatedDisk::new(1);
    disk.add_device(Path::new("/device"), 1 << 20, 4096);
    let environment = Environment::simulated(&disk, 1);
    let options = OptionValues::from([("device", "/device"), ("direct", "off")]);
    let store = stores::create(&Alphard, &environment, &options);
    store.put(b"oak", b"Quercus", Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    let store = open(&environment);
    assert_eq!(store.get(b"oak").unwrap().unwrap(), b"Quercus");
    store.close().unwrap();
}
