//! The suites of `cambium-zdb` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium-zdb --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod changes;
mod checkpoints;
mod conformance;
mod crashes;
mod damage;
mod device;
mod files;
mod golden;
mod interleavings;
mod ranges;
mod repairs;
mod room;
mod tables;
