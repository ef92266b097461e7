//! Room on the disk: a compaction takes no more than the statistics said beforehand, and a
//! store that has filled its disk opens, deletes, and gives space back.

use crate::support::options;
use cambium_api::{CompactOptions, Durability, Engine};
use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_testkit::Subject;
use cambium_testkit::full_disk::fill_and_empty;
use cambium_testkit::stores;

const KEYS: u64 = 3_000;

/// A store whose keys were written in no order, a third of them twice.
fn fill(store: &dyn Engine) {
    for number in 0..KEYS * 4 / 3 {
        let key = (number * 7_919 % KEYS).to_be_bytes();
        let value = vec![number as u8; 1000];
        store.put(&key, &value, Durability::Written).unwrap();
    }
}

/// The less memory, the more often the right edge of the index is written again.
#[test]
fn what_is_said_is_enough_however_little_memory_there_is() {
    for memory in ["4KiB", "16KiB", "256KiB", "64MiB"] {
        let environment = Environment::memory();
        let tuning = [
            ("compaction_threshold", "100"),
            ("preallocate_bytes", "4096"),
            ("segment_bytes", "16KiB"),
            ("compaction_memory_bytes", memory),
        ];
        let store = stores::create(&Forest, &environment, &options(&tuning));
        fill(&*store);
        // So that what is buffered is not counted beside what is live.
        store.create_named_snapshot("flushes").unwrap();
        store.drop_named_snapshot("flushes").unwrap();
        let said = store.stats().unwrap().number("compaction_needs_bytes");
        let said = said.unwrap();
        let report = store.compact(&CompactOptions::default(), &()).unwrap();
        let taken = report.bytes_written;
        assert!(taken <= said, "{memory}: {taken} taken, {said} said");
        assert!(
            said <= 4 * taken,
            "{memory}: {said} said, and {taken} taken"
        );
    }
}

/// A segment of this disk is what a default one is of a real disk.
fn small() -> Subject {
    Subject::new(&Forest)
        .opening("compaction_least_bytes", "4MiB")
        .opening("segment_bytes", "512KiB")
}

#[test]
fn a_store_that_has_filled_its_disk_opens_deletes_and_gives_space_back() {
    fill_and_empty(&small(), 0..14).unwrap();
}

#[test]
fn a_small_store_takes_little_of_a_disk_whatever_its_options_are() {
    let disk = cambium_io::simulated::SimulatedDisk::new(1);
    disk.set_capacity(Some(128 << 20));
    let environment = Environment::simulated(&disk, 1);
    let tuning = [("compaction_least_bytes", "1125899906842623")];
    let store = stores::create(&Forest, &environment, &options(&tuning));
    for number in 0..1_150_u64 {
        let key = number.to_be_bytes();
        store.put(&key, &[7; 100_000], Durability::Written).unwrap();
    }
}
