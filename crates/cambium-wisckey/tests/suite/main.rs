//! The suites of `cambium-wisckey` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium-wisckey --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod after_crashes;
mod amplification;
mod changes;
mod checkpoints;
mod collection;
mod conformance;
mod crashes;
mod damage;
mod decoders;
mod failed_syncs;
mod files;
mod golden;
mod headers;
mod holes;
mod kept;
mod moving;
mod named;
mod names;
mod ranges;
mod reserve;
mod sizes;
mod sorting;
mod space;
mod support;
mod threads;
