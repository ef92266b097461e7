//! The suites of `cambium-testkit` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium-testkit --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod conformance;
mod crash;
mod damage;
