//! Room on the disk: a store that has filled its disk opens, deletes, and gives space back.

use cambium_testkit::Subject;
use cambium_testkit::full_disk::fill_and_empty;
use cambium_zdb::Zdb;

fn small(keys: &str) -> Subject {
    Subject::new(&Zdb)
        .creation("keys", keys)
        .opening("compaction_least_bytes", "256KiB")
}

#[test]
fn integer_keys_on_a_disk_that_was_full_have_room_again() {
    fill_and_empty(&small("integer"), 0..8).unwrap();
}

#[test]
fn string_keys_on_a_disk_that_was_full_have_room_again() {
    fill_and_empty(&small("string"), 0..8).unwrap();
}
