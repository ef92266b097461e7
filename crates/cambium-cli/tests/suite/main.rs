//! The suites of `cambium-cli` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium-cli --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod backups;
mod changes;
mod commands;
mod compaction;
mod copies;
mod entries;
mod failures;
mod foreign;
mod harness;
mod imports;
mod memory;
mod namespaces;
mod reading;
mod shell;
