//! The suites of `cambium-io` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium-io --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

#[cfg(target_os = "linux")]
mod full_disk;
#[cfg(target_os = "linux")]
mod linux_files;
mod portable;
mod read_queues;
#[cfg(target_os = "linux")]
mod real;
mod recording;
mod sharing;
