//! The suites of `cambium-storage` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium-storage --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod interleavings;
mod superblock;
