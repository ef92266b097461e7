//! The suites of `cambium-alphard` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium-alphard --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod ahead;
mod asynchronous;
mod by_hand;
mod changes;
mod checkpoints;
mod conformance;
mod crashes;
mod damage;
mod decoders;
mod device;
mod failures;
mod flights;
mod full;
mod golden;
mod groups;
mod kept;
#[cfg(target_os = "linux")]
mod loop_device;
mod mirror;
mod packs;
mod states;
mod threads;
