//! What is found of the libraries of foreign stores ([`cambium_foreign::library`]),
//! as an adapter answers it.

use std::path::PathBuf;

use kvzone_core::adapter::Availability;
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
