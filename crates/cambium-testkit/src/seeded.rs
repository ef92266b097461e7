//! Bugs that are switched on, to be found.
//!
//! Engines take a hidden option `seeded_bug=NAME` that breaks one of their own
//! rules; [`crate::broken`] breaks the file system's. A test goes through all
//! names and asks for each:
//!
//! ```
//! use cambium_testkit::{CrashSuite, find_bug, memory_engine::MemoryKind};
//! let failure = find_bug("sync_skipped", || {
//!     CrashSuite::new(&MemoryKind, env!("CARGO_PKG_NAME"), "bugs")
//!         .opening("seeded_bug", "sync_skipped")
//!         .states(5_000)
//!         .find_failure()
//! });
//! assert!(failure.what().contains("expected"));
//! ```

use crate::crash::Failure;

/// Runs a suite that has to fail.
///
/// # Panics
/// If it does not: then the suite does not see what it is there to see.
pub fn find_bug(name: &str, run: impl FnOnce() -> Option<Failure>) -> Failure {
    let failure = run();
    assert!(failure.is_some(), "the suite does not find the bug {name}");
    failure.expect("it was just seen to be there")
}
