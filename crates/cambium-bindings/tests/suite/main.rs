//! The suites of `cambium-bindings` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium-bindings --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod databases;
mod removed;
