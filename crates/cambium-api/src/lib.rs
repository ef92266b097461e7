//! What every storage engine promises: the traits [`Engine`] (an open store)
//! and [`EngineKind`] (a way of making and opening one), and their types.
//!
//! The facade, the command line, KVZone, the server and the bindings speak
//! these traits and know no engine by name; an engine knows none of them.
//!
//! | module | what it holds |
//! |---|---|
//! | [`engine`] | the traits, and the promises as prose |
//! | [`batch`] | write batches and preconditions |
//! | [`backup`] | copying entries from one store into another |
//! | [`transaction`] | transactions over any engine |
//! | [`changes`] | the change feed: committed batches in order |
//! | [`conflicts`] | what transactions read, compared with recent writes |
//! | [`expiry`] | when entries cease to be there |
//! | [`memory`] | the memory that a store may use, fitted into its environment's budget |
//! | [`merge`] | merge operators |
//! | [`cursor`] | ranges, directions, cursors, resume tokens |
//! | [`options`] | options that print, parse and explain themselves |
//! | [`report`] | what check, stats, compact and inspect answer |
//! | [`seeded_bug`] | defects that suites switch on |
//! | [`summary`] | what all engines' statistics have in common, typed |
#![forbid(unsafe_code)]

pub mod backup;
pub mod batch;
pub mod changes;
pub mod conflicts;
pub mod cursor;
pub mod engine;
pub mod expiry;
mod kind;
pub mod limits;
pub mod memory;
pub mod merge;
pub mod options;
pub mod report;
pub mod seeded_bug;
pub mod summary;
pub mod transaction;

pub use batch::{Operation, Precondition, Special, WriteBatch, gives_space_back};
pub use cambium_base::{Conflict, Durability, Error, Result, SequenceNumber, Value};
pub use changes::{Change, ChangeBatch, ChangeFeed, ChangeOptions};
pub use conflicts::{ReadSet, RecentWrites, Written};
pub use cursor::{Cursor, Direction, Entry, IterationOrder, KeyRange, ResumeToken, Visit};
pub use engine::{
    Capabilities, Completion, Engine, EngineKind, KeyKind, Reader, Request, Response, Snapshot,
};
pub use expiry::{Expiry, UnixMillis};
pub use kind::Kind;
pub use memory::{MemoryBound, MemoryPart, MemoryPlan};
pub use merge::MergeOperator;
pub use options::{OptionSpec, OptionValues};
pub use report::{
    CheckReport, CompactOptions, CompactReport, Finding, FindingKind, PhaseSeconds, Progress,
    ProgressSink, Statistic, StatisticValue, Statistics,
};
pub use seeded_bug::Seeded;
pub use summary::Summary;
pub use transaction::{Savepoint, Transaction, TransactionEntries, TransactionView};
