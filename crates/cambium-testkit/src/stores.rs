//! Small things that tests of engines do with stores.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{Engine, EngineKind, OptionValues, Reader};
use cambium_io::Environment;

use crate::golden::contents;

/// The folder of a test's store.
pub const PATH: &str = "/store";

/// Options of some lists; a later list changes what an earlier one says.
pub fn options(lists: &[&[(&str, &str)]]) -> OptionValues {
    OptionValues::from(&lists.concat()[..])
}

/// Makes a store at [`PATH`].
pub fn create(
    kind: &dyn EngineKind,
    environment: &Environment,
    options: &OptionValues,
) -> Arc<dyn Engine> {
    let made = kind.create(environment, Path::new(PATH), options);
    made.expect("a store is made")
}

/// Opens the store at [`PATH`].
pub fn open(
    kind: &dyn EngineKind,
    environment: &Environment,
    options: &OptionValues,
) -> Arc<dyn Engine> {
    let opened = kind.open(environment, Path::new(PATH), options, &());
    opened.expect("a sound store is opened")
}

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
