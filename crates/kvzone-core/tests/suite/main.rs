//! The suites of `kvzone-core` in one program, which is linked once. Each module is a suite:
//! `cargo test -p kvzone-core --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod driver;
mod kill;
mod lying;
mod paper_workloads;
mod queue;

use kvzone_core::job::{Load, Until};

/// A workload that takes no time, with each read verified.
fn load(workload: &str) -> Load {
    Load {
        workload: workload.to_string(),
        seed: 7,
        keys: 2_000,
        until: Until::Operations(4_000),
        verify_every: 1,
        ..Load::default()
    }
}
