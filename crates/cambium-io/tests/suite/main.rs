//! The suites of `cambium-io` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium-io --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod full_disk;
mod read_queues;
mod real_files;
mod recording;
mod sharing;
