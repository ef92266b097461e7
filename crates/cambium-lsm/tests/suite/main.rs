//! The suites of `cambium-lsm` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium-lsm --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod crashes;
mod damage;
mod faults;
mod flush;
mod model;
mod relocation;
mod seeded_bugs;
mod support;
mod threads;
mod versions;
