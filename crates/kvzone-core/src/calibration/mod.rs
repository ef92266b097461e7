//! Stores that show what the measuring itself costs, and what it sees.
//!
//! | store | what it does | what it is for |
//! |---|---|---|
//! | [`Null`] | nothing | the harness's own cost an operation |
//! | [`Memory`] | a sorted map under one lock | the least that a store that keeps data costs |
//!
//! They promise nothing about durability: each takes any, so that it can stand
//! beside the stores that are measured. A store within twice what `null` costs
//! is measuring the harness, and is not ranked.

mod memory;
mod null;

pub use memory::Memory;
pub use null::Null;

use crate::adapter::{Adapter, Capabilities};

/// Those that users may name.
pub fn all() -> Vec<Box<dyn Adapter>> {
    vec![Box::new(Null), Box::new(Memory)]
}

const CAPABILITIES: Capabilities = Capabilities {
    ordered: true,
    ..Capabilities::BARE
};
