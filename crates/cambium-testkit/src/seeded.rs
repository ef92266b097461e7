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

use crate::broken::Breakage;
use crate::crash::Failure;

/// Breaches that harm space or other processes, and not an engine's data: files that stay
/// are no part of a store, and the end of a log is never taken from a length. That locks hold
/// is the conformance suite's to see.
pub const NOT_OF_DATA: [Breakage; 3] = [
    Breakage::LockIgnored,
    Breakage::RemoveIgnored,
    Breakage::TruncateIgnored,
];

/// Runs a suite that has to fail.
///
/// # Panics
/// If it does not: then the suite does not see what it is there to see.
pub fn find_bug(name: &str, run: impl FnOnce() -> Option<Failure>) -> Failure {
    let failure = run();
    assert!(failure.is_some(), "the suite does not find the bug {name}");
    failure.expect("it was just seen to be there")
}

/// Runs a suite for each bug; `run` gets its name.
///
/// # Panics
/// If any is not found, naming all that were missed.
pub fn each_bug_is_found<'a>(
    names: impl IntoIterator<Item = &'a str>,
    mut run: impl FnMut(&'a str) -> Option<Failure>,
) {
    let mut missed: Vec<&str> = names.into_iter().collect();
    missed.retain(|name| run(name).is_none());
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Runs a suite for each promise of the file system that can be broken, but
/// for those that the engine does not rely on, or that other suites see.
///
/// # Panics
/// As [`each_bug_is_found`].
pub fn each_breach_is_found(
    tolerated: &[Breakage],
    mut run: impl FnMut(Breakage) -> Option<Failure>,
) {
    let asked = Breakage::ALL
        .into_iter()
        .filter(|(breakage, _)| !tolerated.contains(breakage));
    let by_name: std::collections::BTreeMap<_, _> =
        asked.map(|(breakage, name)| (name, breakage)).collect();
    each_bug_is_found(by_name.keys().copied(), |name| run(by_name[name]));
}
