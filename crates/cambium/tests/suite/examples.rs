//! The examples run. That of the README is run beside it, in `readme.rs`.
#![allow(dead_code)] // Their `main` is for people.

#[path = "../../examples/batches.rs"]
mod batches;
#[path = "../../examples/integer_tables.rs"]
mod integer_tables;
#[path = "../../examples/large_values.rs"]
mod large_values;
#[path = "../../examples/raw_device.rs"]
mod raw_device;
#[path = "../../examples/snapshots.rs"]
mod snapshots;
#[path = "../../examples/transactions.rs"]
mod transactions;

#[test]
fn batches_and_durability() {
    batches::run(tempfile::tempdir().unwrap().path()).unwrap();
}

#[test]
fn snapshots_for_a_while_and_under_a_name() {
    snapshots::run(tempfile::tempdir().unwrap().path()).unwrap();
}

#[test]
fn large_values_in_a_log() {
    large_values::run(tempfile::tempdir().unwrap().path()).unwrap();
}

#[test]
fn integer_keys_in_tables() {
    integer_tables::run(tempfile::tempdir().unwrap().path()).unwrap();
}

#[test]
fn a_file_in_the_place_of_a_raw_device() {
    raw_device::run(tempfile::tempdir().unwrap().path(), None).unwrap();
}

#[test]
fn transactions_from_several_threads() {
    transactions::run(tempfile::tempdir().unwrap().path()).unwrap();
}
