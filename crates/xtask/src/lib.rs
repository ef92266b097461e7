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
//! | [`blocks`] | blocks of the book run, or say why not |
//! | [`book`] | every page is in the book; the book's sources for mdBook |
//! | [`cells`] | tables that are copied from the matrix are as it is |
//! | [`licences`] | crates of others: their licences and Rust versions, and that each is there once |
//! | [`links`] | links between documents lead somewhere |
//! | [`packages`] | a crate has what the registry shows, or is not published |
//!
//! [`workspace`] finds the files, [`source`] tells code from comments,
//! strings and tests, [`violation`] is what a rule reports. A rule takes text
//! and answers violations, so each is tested on a small bad example: a
//! checker that finds nothing proves nothing.
//!
//! The suite `tests/generated.rs` holds `docs/format/` against the code's layout tables, and
//! `docs/reference/` against its options, statistics and errors.
//!
//! What this does not see: names reached through a glob import or a macro of
//! another crate. It reads text, not types; it keeps honest people honest.
#![forbid(unsafe_code)]

pub mod banned;
pub mod blocks;
pub mod book;
pub mod cells;
pub mod documents;
pub mod layers;
pub mod licences;
pub mod links;
pub mod packages;
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
    found.extend(blocks::check(&files));
    found.extend(book::check(&files));
    found.extend(cells::check(&files));
    found.extend(packages::check(&files));
    if root.join("Cargo.lock").is_file() {
        found.extend(licences::check(&licences::foreign(root)?));
    }
    found.sort();
    found.dedup();
    Ok(found)
}
