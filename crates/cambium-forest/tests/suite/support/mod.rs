//! What the tests of compactions have in common.

use std::collections::BTreeMap;

use cambium_api::OptionValues;
pub use cambium_testkit::stores::entries as contents;

/// What a store should hold.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Options of a creation, by which a small store has many nodes.
pub const SMALL_NODES: [(&str, &str); 2] = [("node_bytes", "512"), ("block_bytes", "512")];

/// Options by their names.
pub fn options(pairs: &[(&str, &str)]) -> OptionValues {
    OptionValues::from(pairs)
}
