//! What is found of the libraries of foreign stores ([`cambium_foreign::library`]),
//! as an adapter answers it.

use std::path::PathBuf;

use cambium::Durability;
use kvzone_core::adapter::{Availability, DurabilityName, OpenRequest};
use kvzone_core::error::{Error, Result};

/// What [`kvzone_core::adapter::Adapter::probe`] answers for a library.
pub(super) fn availability(found: Result<(String, PathBuf)>) -> Availability {
    match found {
        Ok((version, path)) => Availability::Found {
            version,
            path: Some(path),
        },
        Err(Error::Missing { what, remedy, .. }) => Availability::Missing { what, remedy },
        Err(error) => Availability::Missing {
            what: error.to_string(),
            remedy: "make peers".to_string(),
        },
    }
}

/// The message for a store in Rust whose feature, of the same name, was left out.
pub(super) fn not_compiled_in(store: &str) -> Availability {
    Availability::Missing {
        what: format!("this kvzone was built without feature {store}"),
        remedy: format!("cargo build --release --package kvzone --features {store}"),
    }
}

/// The answer of opening it.
pub(super) fn missing(store: &str, found: Availability) -> Error {
    let (what, remedy) = match found {
        Availability::Missing { what, remedy } => (what, remedy),
        Availability::Found { .. } => ("it is here".to_string(), String::new()),
    };
    Error::Missing {
        store: store.to_string(),
        what,
        remedy,
    }
}

/// True for the B+-tree of a library that has hash databases too.
pub(super) fn is_tree(request: &OpenRequest) -> bool {
    request.overrides.get("type").is_some_and(|it| it == "tree")
}

/// Promises of their writes: none of a hash database stays in the process.
pub(super) fn durabilities(tree: bool) -> &'static [Durability] {
    let all = &Durability::ALL;
    if tree { all } else { &all[1..] }
}

pub(super) fn refuse_buffered(store: &str, request: &OpenRequest, tree: bool) -> Result<()> {
    if tree || request.durability != DurabilityName::Buffered {
        return Ok(());
    }
    Err(Error::Unsupported {
        store: store.to_string(),
        what: "buffered writes in a hash database: none stays in the process".to_string(),
    })
}
