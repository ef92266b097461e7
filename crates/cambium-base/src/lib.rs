//! What every other crate of Cambium may rely on: codings, checksums, hashes,
//! errors, and the types of order and durability.
//!
//! This crate does no I/O, starts no thread and reads no clock. It depends on
//! no other crate of the workspace.
//!
//! | module | what it holds |
//! |---|---|
//! | [`address`] | addresses of servers |
//! | [`error`] | the one error type, classed by who must act |
//! | [`order`] | sequence numbers and durability levels |
//! | [`identity`] | store ids, file numbers, salts |
//! | [`coding`] | little-endian fields, bounded decoding, common prefixes |
//! | [`checksum`] | CRC-32C, seeded by identity and place |
//! | [`hash`] | Jenkins' one-at-a-time and lookup3 |
//! | [`layout`] | field tables from which format documents are generated |
//! | [`names`] | enumerations with names, distances between names |
//! | [`extent`] | runs of blocks |
//! | [`hexdump`] | bytes made readable |
//! | [`varint`] | numbers in as few bytes as they need |
//! | [`value`] | reference-counted bytes handed to callers |
#![forbid(unsafe_code)]

pub mod address;
pub mod checksum;
pub mod coding;
pub mod error;
pub mod extent;
pub mod hash;
pub mod hexdump;
pub mod identity;
pub mod layout;
pub mod names;
pub mod order;
pub mod value;
pub mod varint;

pub use address::Address;
pub use error::{Conflict, Error, Result};
pub use extent::Extent;
pub use identity::{FileIdentity, FileNumber, StoreId};
pub use order::{Durability, SequenceNumber};
pub use value::Value;
