//! Golden traces and fixtures: what a store does to its files, operation by
//! operation, what is shown of it, and a store of each format version that must
//! stay readable.
//!
//! `UPDATE_GOLDEN=1 cargo test -p cambium-alphard --test suite golden::` writes the traces
//! anew, and fixtures that are missing.

use std::path::Path;

use cambium_alphard::Alphard;
use cambium_api::{CompactOptions, Durability, EngineKind, OptionValues, WriteBatch};
use cambium_io::Environment;
use cambium_io::simulated::SimulatedDisk;
use cambium_testkit::golden::{
    FIXTURE, Golden, Trace, contents, fixture_in_memory, refuses_a_newer_format,
};
use cambium_testkit::stores;

fn small() -> OptionValues {
    OptionValues::from([
        ("size", "65536"),
        ("block_bytes", "512"),
        ("extend_bytes", "16384"),
        ("io", "sync"),
        // What lookups read is part of the trace.
        ("cache_bytes", "0"),
    ])
}

fn golden() -> Golden {
    Golden::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn each_call_does_these_operations_in_this_order() {
    let (environment, mut trace) = Trace::new();
    let store = stores::create(&Alphard, &environment, &small());
    trace.note("create");
    store.put(b"oak", b"tree", Durability::Synced).unwrap();
    trace.note("the first put: an epoch, space taken into use, one synced entry");
    store.put(b"oak", b"Quercus", Durability::Written).unwrap();
    trace.note("put, written");
    let mut batch = WriteBatch::new();
    batch.put(b"elm", b"Ulmus").put(b"fir", &[7; 2_000]);
    store.write(batch, Durability::Synced).unwrap();
    trace.note("a synced batch: one write");
    store.delete(b"fir", Durability::Synced).unwrap();
    trace.note("delete: a tombstone");
    assert_eq!(store.get(b"oak").unwrap().unwrap(), b"Quercus");
    trace.note("get");
    let keys: [&[u8]; 3] = [b"oak", b"elm", b"ash"];
    store.multi_get(&keys).unwrap();
    trace.note("several gets");
    store.compact(&CompactOptions::default(), &()).unwrap();
    trace.note("compact: the superblock, then zeros over stale headers");
    store.put(b"ash", b"Fraxinus", Durability::Written).unwrap();
    store.close().unwrap();
    drop(store);
    trace.note("put, close: an index image, then the superblock");
    trace.note_openings(&Alphard, &environment, (b"yew", b"Taxus"));
    golden().compare("operations.txt", trace.text());
}

#[test]
fn people_see_this_inside() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let store = stores::create(&Alphard, &environment, &small());
    for number in 0..20 {
        let key = format!("key {number:02}");
        let value = vec![7; 40 * number];
        store
            .put(key.as_bytes(), &value, Durability::Written)
            .unwrap();
    }
    store.delete(b"key 05", Durability::Synced).unwrap();
    store.close().unwrap();
    golden().compare_inside(&Alphard, &environment, Vec::new());
}

#[test]
fn stores_of_every_format_version_stay_readable() {
    let fixture = golden().fixture("format-1", |folder| {
        let environment = Environment::real();
        let options = OptionValues::from([("size", "65536"), ("block_bytes", "512")]);
        let store = Alphard.create(&environment, folder, &options).unwrap();
        for number in 0..10u8 {
            let key = vec![number; usize::from(number) * 3];
            let value = vec![number; usize::from(number) * 200];
            store.put(&key, &value, Durability::Written).unwrap();
        }
        store.delete(&[3; 9], Durability::Written).unwrap();
        store.close().unwrap();
    });
    let expected: Vec<(Vec<u8>, Vec<u8>)> = (0..10u8)
        .filter(|&number| number != 3)
        .map(|number| {
            let length = usize::from(number);
            (vec![number; length * 3], vec![number; length * 200])
        })
        .collect();
    // By the index image, and by a scan where that is gone.
    for image in [true, false] {
        let environment = fixture_in_memory(&fixture);
        let folder = Path::new(FIXTURE);
        if !image {
            let path = folder.join("index-image");
            environment.file_system.remove(&path).unwrap();
        }
        let options = OptionValues::default();
        let store = Alphard.open(&environment, folder, &options, &()).unwrap();
        assert_eq!(contents(&*store), expected);
        assert!(store.check(&()).unwrap().is_sound());
    }
    refuses_a_newer_format(&Alphard, &fixture);
}
