//! Small things that tests of engines do with stores.

use std::collections::BTreeMap;

use cambium_api::{Engine, Reader};
use cambium_io::Environment;

use crate::golden::contents;

/// Memory below, threads above: background work meets readers and writers.
pub fn threaded() -> Environment {
    Environment {
        executor: Environment::real().executor,
        ..Environment::memory()
    }
}

/// Every entry, by key.
pub fn entries(reader: &dyn Reader) -> BTreeMap<Vec<u8>, Vec<u8>> {
    contents(reader).into_iter().collect()
}

/// A number of the store's statistics.
pub fn number(store: &dyn Engine, name: &str) -> u64 {
    let statistics = store.stats().expect("an open store has statistics");
    statistics.number(name).expect("the engine counts this")
}
