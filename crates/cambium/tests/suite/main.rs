//! The suites of `cambium` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod beside;
mod changes;
mod checkpoints;
mod dictionaries;
mod examples;
mod facade;
mod futures;
mod made;
mod refused;
mod scans;
mod statistics;
mod tables;
mod transactions;
mod values;
mod values_conformance;
mod values_crashes;
