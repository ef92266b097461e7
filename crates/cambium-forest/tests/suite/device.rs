//! What reaches the device: reads a document, syncs a group, blocks an open.

use std::sync::Arc;

use cambium_api::{Durability, Engine, EngineKind, OptionValues, WriteBatch};
use cambium_forest::Forest;
use cambium_forest::format::FILE_SUFFIX;
use cambium_io::segmented::file_of;
use cambium_io::{Environment, OpenOptions};
use cambium_testkit::counted::Counted;
use cambium_testkit::stores;

fn create(environment: &Environment, pairs: &[(&str, &str)]) -> Arc<dyn Engine> {
    stores::create(&Forest, environment, &OptionValues::from(pairs))
}

fn open(environment: &Environment, pairs: &[(&str, &str)]) -> Arc<dyn Engine> {
    stores::open(&Forest, environment, &OptionValues::from(pairs))
}

/// Keys that share nothing but their length.
fn key(number: u64) -> Vec<u8> {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{scattered:016x}{number:08}").into_bytes()
}

#[test]
fn a_document_of_any_length_costs_one_read_and_a_missing_key_none() {
    let device = Counted::new();
    let store = create(&device.environment, &[]);
    let sizes = [0usize, 4, 1000, 4096, 5000, 100_000, 3 << 20];
    // A document that reaches from one segment into the next costs two: not these.
    store
        .put(&key(99), &vec![0; 1 << 20], Durability::Written)
        .unwrap();
    for (number, size) in sizes.iter().enumerate() {
        let value = vec![number as u8; *size];
        store
            .put(&key(number as u64), &value, Durability::Written)
            .unwrap();
    }
    store.close().unwrap();
    let store = open(&device.environment, &[]);
    // The first touch reads the node of the index.
    store.get(&key(0)).unwrap();
    for (number, size) in sizes.iter().enumerate() {
        let reads = device.during(|| {
            let value = store.get(&key(number as u64)).unwrap().unwrap();
            assert_eq!(value.len(), *size);
        });
        let record = (*size as u64 + 72) * 9 / 8 + 8;
        if *size < 16 << 10 {
            // In whole blocks, which may be cached since a neighbour was read.
            assert!(reads.reads <= 1, "a value of {size} bytes");
            let blocks = record.next_multiple_of(4096) + 4096;
            assert!(reads.bytes_read <= blocks, "{reads:?} for {size} bytes");
        } else {
            assert_eq!(reads.reads, 1, "a value of {size} bytes");
            assert!(reads.bytes_read <= record, "{reads:?} for {size} bytes");
        }
        let again = device.during(|| {
            assert!(store.get(&key(number as u64)).unwrap().is_some());
        });
        let is_cached = *size < 14_000;
        assert_eq!(again.reads, u64::from(!is_cached), "again {size} bytes");
    }
    let missing = device.during(|| {
        for number in 100..200 {
            assert_eq!(store.get(&key(number)).unwrap(), None);
        }
    });
    assert!(missing.reads <= 1, "fingerprints tell: {missing:?}");
}

/// On a real file system: what is written and read is never in its cache.
#[test]
fn nothing_of_a_direct_store_is_in_the_page_cache() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let environment = Environment::real();
    let cached_pages = |direct: &str| {
        let path = folder.path().join(direct);
        let options = OptionValues::from([("direct", direct), ("cache_bytes", "1MiB")]);
        let store = Forest.create(&environment, &path, &options).unwrap();
        let mut batch = WriteBatch::new();
        for number in 0..5_000 {
            batch.put(&key(number), &[number as u8; 300]);
        }
        store.write(batch, Durability::Synced).unwrap();
        store.close().unwrap();
        let store = Forest.open(&environment, &path, &options, &()).unwrap();
        let keys: Vec<Vec<u8>> = (0..5_000).map(key).collect();
        let wanted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let together = store.multi_get(&wanted).unwrap();
        for (number, key) in keys.iter().enumerate() {
            let expected = [number as u8; 300];
            assert_eq!(store.get(key).unwrap().unwrap(), expected);
            assert_eq!(together[number].as_deref(), Some(&expected[..]));
        }
        let names = environment.file_system.list(&path).unwrap();
        let pages = names
            .iter()
            .filter(|entry| file_of(&entry.name.to_string_lossy()).ends_with(FILE_SUFFIX));
        let pages = pages.map(|entry| {
            let open = environment
                .file_system
                .open(&path.join(&entry.name), OpenOptions::READ);
            cambium_io::resident_pages(&*open.unwrap()).unwrap()
        });
        pages.sum::<Option<u64>>()
    };
    let (direct, buffered) = (cached_pages("on"), cached_pages("off"));
    match buffered {
        None => println!("skipped: this kernel does not tell what it has cached"),
        Some(pages) => {
            assert!(
                pages > 300,
                "{pages} pages of a store that is read through the cache"
            );
            assert_eq!(direct, Some(0));
        }
    }
}

#[test]
fn a_commit_is_one_write_and_a_synced_group_one_sync() {
    let device = Counted::new();
    let store = create(&device.environment, &[]);
    store.put(b"first", b"", Durability::Synced).unwrap();
    let mut with_zeros = 0;
    for round in 0..50u64 {
        let mut batch = WriteBatch::new();
        for number in 0..8 {
            batch.put(&key(number), &key(round));
        }
        let done = device.during(|| {
            store.write(batch, Durability::Synced).unwrap();
        });
        // The second write says that there was a sync, and waits for none.
        assert_eq!((done.syncs, done.writes), (1, 2), "eight documents");
        with_zeros += u64::from(done.bytes_written > 4096);
        let done = device.during(|| {
            store
                .put(&key(round), b"value", Durability::Written)
                .unwrap();
        });
        assert_eq!((done.syncs, done.writes), (0, 1));
    }
    // Zeros are written ahead of a run of syncs, for many of them at once.
    assert!(
        with_zeros <= 5,
        "{with_zeros} of 50 commits wrote more than documents"
    );
}

#[test]
fn an_overwrite_reads_no_old_document() {
    let device = Counted::new();
    let store = create(&device.environment, &[("write_buffer_entries", "1000")]);
    for _ in 0..3 {
        let done = device.during(|| {
            for number in 0..1000 {
                store
                    .put(&key(number), &[1; 500], Durability::Written)
                    .unwrap();
            }
        });
        // Keys that share their first chunk are read to be told apart; these
        // do not, so that nothing is read but to compare a key that hangs at
        // the chunk of one that is put.
        assert!(done.reads <= 1000, "{done:?}");
        assert!(done.bytes_read < 700 * 1000, "{done:?}");
    }
}

#[test]
fn an_open_after_a_clean_close_reads_a_constant_number_of_blocks() {
    let mut reads_of = Vec::new();
    for entries in [100u64, 20_000] {
        let device = Counted::new();
        let store = create(&device.environment, &[]);
        for number in 0..entries {
            store
                .put(&key(number), &[1; 100], Durability::Buffered)
                .unwrap();
        }
        store.close().unwrap();
        drop(store);
        let mut store = None;
        let opened = device.during(|| store = Some(open(&device.environment, &[])));
        assert!(opened.bytes_read < 32 << 10, "{opened:?}");
        assert_eq!(opened.writes, 0, "an open that writes nothing stays clean");
        reads_of.push((opened.reads, opened.bytes_read));
    }
    assert_eq!(reads_of[0], reads_of[1], "whatever the store holds");
}

#[test]
fn an_open_after_a_kill_reads_what_followed_the_last_flush() {
    let device = Counted::new();
    // What is allocated ahead is looked at too.
    let tuning = [
        ("write_buffer_entries", "10000"),
        ("preallocate_bytes", "65536"),
        ("segment_bytes", "16KiB"),
    ];
    let store = create(&device.environment, &tuning);
    for number in 0..50_100u64 {
        store
            .put(&key(number), &[1; 100], Durability::Buffered)
            .unwrap();
    }
    store.sync().unwrap();
    drop(store);
    let mut store = None;
    let opened = device.during(|| store = Some(open(&device.environment, &tuning)));
    let store = store.unwrap();
    let replayed = store.stats().unwrap().number("writes_replayed").unwrap();
    assert_eq!(replayed, 100);
    assert!(opened.bytes_read < 1 << 20, "{opened:?}");
    assert!(store.get(&key(50_099)).unwrap().is_some());
}

#[test]
fn every_header_is_counted_through_reopening() {
    let device = Counted::new();
    let mut store = create(&device.environment, &[]);
    for round in 1..=3u64 {
        store.put(&key(round), b"x", Durability::Synced).unwrap();
        store.close().unwrap();
        store = open(&device.environment, &[]);
        let headers = store.stats().unwrap().number("header_bytes_written");
        assert!(headers.unwrap() >= round * 4096, "{headers:?}");
    }
}

#[test]
fn many_keys_are_read_in_two_batches_at_most_a_level() {
    let device = Counted::new();
    let store = create(&device.environment, &[]);
    let count = 3_000u64;
    for number in 0..count {
        store
            .put(&key(number), &key(number), Durability::Buffered)
            .unwrap();
    }
    store.close().unwrap();
    let store = open(&device.environment, &[]);
    let keys: Vec<Vec<u8>> = (0..count + 100).map(key).collect();
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut values = Vec::new();
    let done = device.during(|| values = store.multi_get(&asked).unwrap());
    for (number, value) in values.iter().enumerate() {
        let expected = (number as u64) < count;
        assert_eq!(value.is_some(), expected, "key {number}");
        assert!(value.as_ref().is_none_or(|value| **value == *keys[number]));
    }
    let nodes = store.stats().unwrap().number("nodes").unwrap();
    assert!(
        done.reads <= count + nodes + 2,
        "each node and document once"
    );
}
