//! The house rules of this repository, as a program.
//!
//! A rule that only a document knows is kept until someone is in a hurry.
//! `cargo xtask tidy` reads every file of the workspace and reports what
//! breaks a rule, each with file, line, and what to do instead; it is part of
//! `make test`, and [`tidy`] is what its test calls.
//!
//! | module | what it keeps |
//! |---|---|
//! | [`layers`] | imports between crates go strictly downward |
//! | [`banned`] | calls that have one right place, with their replacement |
//! | [`shape`] | module essays, `forbid(unsafe_code)`, leftover markers, file length, machine paths |
//! | [`documents`] | each crate and each dependency has its line in a document |
//! | [`links`] | links between documents lead somewhere |
//!
//! [`workspace`] finds the files, [`source`] tells code from comments,
//! strings and tests, [`violation`] is what a rule reports. A rule takes text
//! and answers violations, so each is tested on a small bad example: a
//! checker that finds nothing proves nothing.
//!
//! The suite `tests/formats.rs` holds `docs/format/` against the code's layout tables.
//!
//! What this does not see: names reached through a glob import or a macro of
//! another crate. It reads text, not types; it keeps honest people honest.
#![forbid(unsafe_code)]

pub mod banned;
pub mod documents;
pub mod layers;
pub mod links;
pub mod shape;
pub mod source;
pub mod violation;
pub mod workspace;

use std::io;
use std::path::Path;

pub use violation::{Severity, Violation};

/// Checks every rule on the workspace at `root`; the answer is sorted by
/// place. Reads each file once; writes nothing.
///
/// # Errors
/// If a file cannot be read.
pub fn tidy(root: &Path) -> io::Result<Vec<Violation>> {
    let files = workspace::read(root)?;
    let mut found = layers::check(&files);
    found.extend(banned::check(&files));
    found.extend(shape::check(&files));
    found.extend(documents::check(&files));
    found.extend(links::check(&files));
    found.sort();
    found.dedup();
    Ok(found)
}
