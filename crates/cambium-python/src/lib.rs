//! Cambium for Python.
//!
//! The package `cambium` has the interface of plyvel, the binding to LevelDB that
//! Python programs use, with its names and its behaviour, so that
//! `import cambium as plyvel` serves programs that exist; and beyond it engines and
//! their options, a mapping's operators, statistics, compaction and backups.
//!
//! ```text
//! python/cambium/__init__.py    names, exceptions, types for checkers (.pyi)
//! cambium._native               this crate
//!   what those below share      readable
//!   DB, PrefixedDB, Namespace   database, prefixed, namespace
//!   Snapshot                    snapshot
//!   WriteBatch                  batch
//!   comparators, operators      comparator, operator
//!   Transaction                 transaction
//!   Changes, Consumer           changes
//!   Iterator, RawIterator       iterator, raw_iterator
//! ```
//!
//! Every call lets go of Python's interpreter lock before it asks the store, so
//! other threads of Python run while this one waits for the disk. Iterators ask it
//! for several entries at a time. Objects that were
//! closed, and those of a database that was, raise `RuntimeError`, also when another
//! thread closed them.
#![forbid(unsafe_code)]

mod arguments;
mod backups;
mod batch;
mod changes;
mod comparator;
mod database;
mod errors;
mod iterator;
mod namespace;
mod operator;
mod prefixed;
mod raw_iterator;
mod readable;
mod snapshot;
mod transaction;
mod upkeep;

use pyo3::prelude::*;

/// The part of package `cambium` that is written in Rust.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<database::Db>()?;
    module.add_class::<prefixed::PrefixedDb>()?;
    module.add_class::<namespace::Namespace>()?;
    module.add_class::<snapshot::Snapshot>()?;
    module.add_class::<batch::WriteBatch>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<changes::Changes>()?;
    module.add_class::<changes::Consumer>()?;
    module.add_class::<transaction::Mark>()?;
    module.add_class::<iterator::Iterator>()?;
    module.add_class::<raw_iterator::RawIterator>()?;
    module.add_function(wrap_pyfunction!(upkeep::repair_db, module)?)?;
    module.add_function(wrap_pyfunction!(upkeep::destroy_db, module)?)?;
    module.add_function(wrap_pyfunction!(upkeep::check_db, module)?)?;
    module.add_function(wrap_pyfunction!(backups::list_backups, module)?)?;
    module.add_function(wrap_pyfunction!(backups::restore_db, module)?)?;
    module.add_function(wrap_pyfunction!(backups::keep_backups, module)?)?;
    Ok(())
}
