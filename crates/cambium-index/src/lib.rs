//! Index structures: no file names, no engine words.
//!
//! | module | what it holds |
//! |---|---|
//! | [`flat`] | the flat array of slots of ZDB: a position per integer key |
//! | [`linear_hash`] | which bucket a hash belongs to while a table grows bucket by bucket |
#![forbid(unsafe_code)]

pub mod flat;
pub mod linear_hash;

pub use flat::{FlatSlots, Slot, SlotFormat};
pub use linear_hash::BucketMap;
