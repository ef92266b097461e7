//! What the tests of compactions have in common.

use std::collections::BTreeMap;

use cambium_api::OptionValues;
pub use cambium_testkit::stores::entries as contents;

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
