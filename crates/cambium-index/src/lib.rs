//! Index structures: no file names, no engine words.
//!
//! | module | what it holds |
//! |---|---|
//! | [`bloom`] | the blocked Bloom filter of sorted tables |
//! | [`btree`] | the append-only B+-tree |
//! | [`cuckoo`] | the cuckoo table of Alphard, in memory, which grows without a pause |
//! | [`hbtrie`] | the HB+-trie: a patricia trie whose nodes are B+-trees |
//! | [`flat`] | the flat array of slots of ZDB: a position per integer key |
//! | [`node_store`] | where the nodes of append-only trees come from and go to |
//! | [`linear_hash`] | which bucket a hash belongs to while a table grows bucket by bucket |
#![forbid(unsafe_code)]

pub mod bloom;
pub mod btree;
pub mod cuckoo;
pub mod flat;
pub mod hbtrie;
pub mod linear_hash;
pub mod node_store;

pub use bloom::{BlockedBloom, BloomBuilder};
pub use cuckoo::CuckooIndex;
pub use flat::{FlatSlots, Slot, SlotFormat};
pub use linear_hash::BucketMap;
pub use node_store::{MemoryNodes, NODE_TRAILER_BYTES, Node, NodeAddress, NodeReader, NodeWriter};

/// The layouts of everything that this crate writes.
pub fn layouts() -> Vec<&'static cambium_base::layout::Layout> {
    vec![&bloom::HEADER, &btree::NODE_HEADER, &hbtrie::TREE_HEAD]
}
