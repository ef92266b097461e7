//! KVZone's load generator, measurements and reports.
//!
//! | module | what it holds |
//! |---|---|
//! | [`device`] | what a disk gives through the I/O layer, and beside `fio` |
//! | [`latency`] | percentiles of many durations |
//! | [`size`] | byte counts as people write them: `64MiB` |
#![forbid(unsafe_code)]

pub mod device;
pub mod latency;
pub mod size;
