//! KVZone's load generator, measurements and reports.
//!
//! | module | what it holds |
//! |---|---|
//! | [`adapter`] | what KVZone asks of a store, and how a store says what it can do |
//! | [`device`] | what a disk gives through the I/O layer, and beside `fio` |
//! | [`driver`] | issues a job's operations to a store, and measures them |
//! | [`error`] | what can go wrong, and for whom |
//! | [`job`] | what is to be run, as text that crosses a pipe |
//! | [`latency`] | percentiles of many durations |
//! | [`names`] | the names nearest to one that was mistyped |
//! | [`protocol`] | what a worker process tells the one that started it |
//! | [`record`] | what is reported of a run |
//! | [`size`] | byte counts as people write them: `64MiB` |
//! | [`statistics`] | medians, intervals, the order of rounds, verdicts |
//! | [`workload`] | the workloads that have names |
#![forbid(unsafe_code)]

pub mod adapter;
pub mod device;
pub mod driver;
pub mod error;
pub mod job;
pub mod latency;
pub mod names;
pub mod protocol;
pub mod record;
pub mod size;
pub mod statistics;
pub mod workload;
