//! The suites of `kvzone` in one program, which is linked once. Each module is a suite:
//! `cargo test -p kvzone --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod advise;
mod compare;
mod datasets;
mod device;
mod harness;
mod kill;
mod list;
mod matrix;
mod reproduce;
mod run;
mod trace;
mod usage;

/// The program as users have it.
fn program() -> &'static str {
    env!("CARGO_BIN_EXE_kvzone")
}
