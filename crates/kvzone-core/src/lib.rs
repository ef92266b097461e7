//! KVZone's load generator, measurements and reports.
//!
//! | module | what it holds |
//! |---|---|
//! | [`adapter`] | what KVZone asks of a store, and how a store says what it can do |
//! | [`calibration`] | stores that show what the measuring itself costs and sees |
//! | [`device`] | what a disk gives through the I/O layer |
//! | [`distribution`] | laws by which keys are chosen |
//! | [`driver`] | issues a job's operations to a store, and measures them |
//! | [`error`] | what can go wrong, and for whom |
//! | [`job`] | what is to be run, as text that crosses a pipe |
//! | [`key_patterns`] | the key patterns of the ForestDB paper |
//! | [`keys`] | numbers in order of insertion, and the bytes that stand for them |
//! | [`names`] | the names nearest to one that was mistyped |
//! | [`permutation`] | a random order that takes no memory |
//! | [`production`] | workloads of production systems, with their sources |
//! | [`protocol`] | what a worker process tells the one that started it |
//! | [`random`] | random numbers from a seed |
//! | [`record`] | what is reported of a run |
//! | [`report`] | what people read: summaries, tables, a page |
//! | [`sizes`] | laws of sizes: fixed, uniform, normal, Pareto, counted |
//! | [`size`] | byte counts as people write them: `64MiB` |
//! | [`statistics`] | medians, intervals, the order of rounds, verdicts |
//! | [`trace`] | what a program asked of its store, in a file |
//! | [`values`] | values that prove what they are |
//! | [`versions`] | which version of each key the store should hold |
//! | [`workload`] | the workloads that have names |
#![forbid(unsafe_code)]
// Internal to KVZone: an item whose name says all has no comment.
#![allow(missing_docs)]

pub mod adapter;
pub mod calibration;
pub mod device;
pub mod distribution;
pub mod driver;
pub mod error;
pub mod job;
pub mod key_patterns;
pub mod keys;
mod latency;
pub mod names;
pub mod permutation;
pub mod production;
pub mod protocol;
pub mod random;
pub mod record;
pub mod report;
pub mod size;
pub mod sizes;
pub mod statistics;
pub mod trace;
pub mod values;
pub mod versions;
pub mod workload;
