//! KVZone's load generator, measurements and reports.
//!
//! | module | what it holds |
//! |---|---|
//! | [`adapter`] | what KVZone asks of a store, and how a store says what it can do |
//! | [`device`] | what a disk gives through the I/O layer, and beside `fio` |
//! | [`error`] | what can go wrong, and for whom |
//! | [`job`] | what is to be run, as text that crosses a pipe |
//! | [`latency`] | percentiles of many durations |
//! | [`record`] | what is reported of a run |
//! | [`size`] | byte counts as people write them: `64MiB` |
#![forbid(unsafe_code)]

pub mod adapter;
pub mod device;
pub mod error;
pub mod job;
pub mod latency;
pub mod record;
pub mod size;
