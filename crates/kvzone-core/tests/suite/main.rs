//! The suites of `kvzone-core` in one program, which is linked once. Each module is a suite:
//! `cargo test -p kvzone-core --test suite NAME::`.

mod driver;
mod kill;
mod lying;
mod paper_workloads;
mod queue;
