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
    fill_and_empty(&small(), (0..14).chain([46, 94])).unwrap();
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

/// Steps of a background that nobody disturbs, over a minute.
fn idle(store: &dyn Engine, environment: &Environment) {
    for _ in 0..300 {
        while store.step(1 << 20).unwrap() == cambium_io::StepOutcome::Again {}
        let pause = std::time::Duration::from_millis(200);
        environment.clock.sleep(pause);
    }
}

fn file_bytes(store: &dyn Engine) -> u64 {
    store.stats().unwrap().number("space_bytes").unwrap()
}

#[test]
fn the_space_of_what_single_writes_replaced_or_deleted_comes_back_while_nobody_writes() {
    for deletes in [false, true] {
        let disk = cambium_io::simulated::SimulatedDisk::new(1);
        let environment = Environment::simulated(&disk, 1);
        let tuning = [("compaction_least_bytes", "1MiB")];
        let store = stores::create(&Forest, &environment, &options(&tuning));
        let keys = (0..300_u64).map(u64::to_be_bytes);
        for key in keys.clone() {
            store.put(&key, &[7; 40_000], Durability::Written).unwrap();
        }
        for key in keys {
            match deletes {
                true => store.delete(&key, Durability::Written).unwrap(),
                false => store.put(&key, &[8; 40], Durability::Written).unwrap(),
            };
        }
        assert!(file_bytes(&*store) > 12_000_000);
        idle(&*store, &environment);
        let left = file_bytes(&*store);
        assert!(left < 4_000_000, "deletes {deletes}: {left} bytes are left");
    }
}

/// A caller that keeps more of the disk free than the store refuses writes itself.
#[test]
fn a_caller_that_refuses_writes_has_space_given_back() {
    let disk = cambium_io::simulated::SimulatedDisk::new(1);
    disk.set_capacity(Some(64 << 20));
    let environment = Environment::simulated(&disk, 1);
    let tuning = [
        ("compaction_least_bytes", "4MiB"),
        ("compaction_threshold", "80"),
    ];
    let store = stores::create(&Forest, &environment, &options(&tuning));
    let kept_free = 16 << 20;
    let free = || environment.file_system.space(std::path::Path::new("/"));
    let free = || free().unwrap().available;
    let mut count = 0_u64;
    while free() >= kept_free {
        let key = count.to_be_bytes();
        store.put(&key, &[7; 4_000], Durability::Written).unwrap();
        count += 1;
    }
    for number in 0..count / 2 {
        let key = number.to_be_bytes();
        store.delete(&key, Durability::Written).unwrap();
    }
    store.note_refused(kept_free);
    idle(&*store, &environment);
    assert!(free() > kept_free, "{} bytes are free", free());
}

#[test]
fn a_call_of_compact_cleans_where_there_is_no_room_for_a_new_file() {
    let disk = cambium_io::simulated::SimulatedDisk::new(1);
    let capacity = 64 << 20;
    disk.set_capacity(Some(capacity));
    let environment = Environment::simulated(&disk, 1);
    // Less is stale than the options ask for.
    let tuning = [
        ("compaction_least_bytes", "32MiB"),
        ("compaction_threshold", "80"),
    ];
    let store = stores::create(&Forest, &environment, &options(&tuning));
    for number in 0..6_000_u64 {
        let key = number.to_be_bytes();
        store.put(&key, &[7; 4_000], Durability::Written).unwrap();
    }
    for number in 0..3_000_u64 {
        let key = (2 * number).to_be_bytes();
        store.delete(&key, Durability::Written).unwrap();
    }
    let space = || environment.file_system.space(std::path::Path::new("/"));
    let used = |capacity: u64| capacity - space().unwrap().available;
    let small = used(capacity) + (6 << 20);
    disk.set_capacity(Some(small));
    store.compact(&CompactOptions::default(), &()).unwrap();
    let used = used(small);
    assert!(used < 15_000_000, "{used} bytes are used");
}
