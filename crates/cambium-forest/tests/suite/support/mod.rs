//! What the tests of compactions have in common.

use std::collections::BTreeMap;

use cambium_api::{IterationOrder, OptionValues, Reader};

/// What a store should hold.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Options by their names.
pub fn options(pairs: &[(&str, &str)]) -> OptionValues {
    let mut options = OptionValues::default();
    for (name, value) in pairs {
        options.set(name, value);
    }
    options
}

/// Everything that a reader sees.
pub fn contents(reader: &dyn Reader) -> Model {
    let mut cursor = reader.iterate(IterationOrder::Key, None).unwrap();
    let mut entries = Model::new();
    while let Some(entry) = cursor.next().unwrap() {
        entries.insert(entry.key.to_vec(), entry.value.to_vec());
    }
    entries
}
