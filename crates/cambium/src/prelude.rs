//! What nearly every user of a store needs, for `use cambium::prelude::*`.

pub use crate::{
    ChangeBatch, Changes, Direction, Durability, Entries, Entry, Expiry, IterationOrder, KeyRange,
    Options, Precondition, Snapshot, Store, Table, Transaction, Value, WriteBatch,
};
