//! What a feed reads of the device.

use std::path::Path;

use cambium_api::{Durability, EngineKind, Operation};
use cambium_io::Environment;
use cambium_testkit::counted::Counted;
use cambium_zdb::Zdb;

use super::support::*;

#[test]
fn a_follower_reads_large_pieces_and_finds_its_place_without_reading_all() {
    let device = Counted::new();
    for keys in KINDS {
        let setting = Setting::new(keys, false);
        let folder = Path::new("/").join(keys);
        let store = Zdb.create(&device.environment, &folder, &setting.options());
        let store = store.unwrap();
        for number in 0..60_000 {
            let value = [number as u8; 100];
            store
                .put(&setting.key(number), &value, Durability::Written)
                .unwrap();
        }
        let log_bytes = store.stats().unwrap().number("data_file_bytes").unwrap();
        let mut batches = 0;
        let done = device.during(|| batches = changes(&*store, 0).unwrap().len());
        assert_eq!(batches, 60_000);
        assert!(
            done.reads <= log_bytes / (64 << 10) + 8,
            "{done:?} of {log_bytes}"
        );
        assert_eq!((done.writes, done.syncs), (0, 0));
        let last = store.snapshot().unwrap().sequence().0;
        let done = device.during(|| batches = changes(&*store, last - 100).unwrap().len());
        assert!((1..=100).contains(&batches), "{batches}");
        assert!(done.bytes_read < 4 << 20, "{done:?} of {log_bytes}");
    }
}

#[test]
fn values_longer_than_a_piece_are_shown() {
    for keys in KINDS {
        let setting = Setting::new(keys, false);
        let store = setting.create(&Environment::memory());
        let values: Vec<Vec<u8>> = (0..12).map(|n| vec![n; 1 << (2 * n)]).collect();
        for (number, value) in values.iter().enumerate() {
            let durability = [Durability::Buffered, Durability::Synced][number % 2];
            store
                .put(&setting.key(number as u64), value, durability)
                .unwrap();
        }
        for after in 0..12 {
            let shown = changes(&*store, after).unwrap();
            let shown = shown.iter().map(|batch| match &batch.changes[0].operation {
                Operation::Put { value, .. } => value,
                other => panic!("nobody did {other:?}"),
            });
            assert!(shown.eq(&values[after as usize..]), "after {after}");
        }
    }
}
