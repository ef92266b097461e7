//! The suites of `kvzone-core` in one program, which is linked once. Each module is a suite:
//! `cargo test -p kvzone-core --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod driver;
mod kill;
mod lying;
mod paper_workloads;
mod queue;
