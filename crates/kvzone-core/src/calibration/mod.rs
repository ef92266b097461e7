//! Stores that show what the measuring itself costs, and what it sees.
//!
//! | store | what it does | what it is for |
//! |---|---|---|
//! | [`Null`] | nothing | the harness's own cost an operation |
//! | [`Memory`] | a sorted map under one lock | the least that a store that keeps data costs |
//! | [`Stalling`] | as `memory`, but stands still for 100 ms of every second | proof that a stall is seen; not for users |
//!
//! They promise nothing about durability: each takes any, so that it can stand
//! beside the stores that are measured. A store within twice what `null` costs
//! is measuring the harness, and is not ranked.

mod memory;
mod null;
mod stalling;

use std::collections::BTreeMap;

use cambium_base::Durability;

pub use memory::Memory;
pub use null::Null;
pub use stalling::Stalling;

use crate::adapter::{Adapter, Availability, Capabilities, OpenRequest};
use crate::error::{Error, Result};

/// Those that users may name.
pub fn all() -> Vec<Box<dyn Adapter>> {
    vec![Box::new(Null), Box::new(Memory)]
}

/// Those that only tests name.
pub fn hidden() -> Vec<Box<dyn Adapter>> {
    vec![Box::new(Stalling)]
}

/// What all of them can do.
fn capabilities(concurrent_writers: bool) -> Capabilities {
    Capabilities {
        ordered: true,
        atomic_batches: true,
        concurrent_writers,
        durabilities: &Durability::ALL,
        sizes_its_cache: false,
        compacts: false,
        persistent: false,
    }
}

fn found() -> Availability {
    Availability::Found {
        version: env!("CARGO_PKG_VERSION").to_string(),
        path: None,
    }
}

/// There are no settings: any override is refused.
fn no_settings(store: &str, request: &OpenRequest) -> Result<BTreeMap<String, String>> {
    match request.overrides.keys().next() {
        None => Ok(BTreeMap::new()),
        Some(name) => Err(Error::Usage(format!(
            "{store}.{name}: {store} has no settings"
        ))),
    }
}
