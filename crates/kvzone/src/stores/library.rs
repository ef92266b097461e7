//! What is found of the libraries of foreign stores ([`cambium_foreign::library`]),
//! as an adapter answers it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use kvzone_core::adapter::{
    Adapter, Availability, Capabilities, DurabilityName, OpenRequest, OpenStore,
};
use kvzone_core::error::{Error, Result};

use super::server;

/// The program of a server, and how to get it.
type Server = (fn(&OpenRequest) -> PathBuf, &'static str);

/// A foreign store as data: what [`Adapter`] asks.
pub(super) struct Foreign {
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    pub(super) probe: fn() -> Availability,
    pub(super) capabilities: Capabilities,
    /// Why it has not every durability; empty where it has.
    pub(super) lacks: &'static str,
    /// What a request changes of them.
    pub(super) capabilities_for: Option<fn(&OpenRequest, Capabilities) -> Capabilities>,
    pub(super) server: Option<Server>,
    pub(super) settings: fn(&OpenRequest) -> Result<BTreeMap<String, String>>,
    pub(super) open: fn(&OpenRequest) -> Result<Arc<dyn OpenStore>>,
}

impl Foreign {
    /// False for a server that runs already.
    fn is_ours(&self, request: &OpenRequest) -> bool {
        self.server.is_none() || !server::is_elsewhere(request)
    }

    fn check_durability(&self, request: &OpenRequest) -> Result<()> {
        let has = self.capabilities_for(request).durabilities;
        match has.contains(&request.durability) {
            true => Ok(()),
            false => Err(Error::unsupported(self.name, self.lacks)),
        }
    }
}

impl Adapter for Foreign {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn probe(&self) -> Availability {
        (self.probe)()
    }

    fn probe_for(&self, request: &OpenRequest) -> Availability {
        match self.server {
            Some((program, remedy)) => server::probe_for(request, &program(request), remedy),
            None => self.probe(),
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn capabilities_for(&self, request: &OpenRequest) -> Capabilities {
        let mut general = self.capabilities;
        // A server that runs already is never closed.
        general.persistent &= self.is_ours(request);
        self.capabilities_for
            .map_or(general, |of| of(request, general))
    }

    /// The folder; nothing of a server that runs already.
    fn data_paths(&self, request: &OpenRequest) -> Vec<PathBuf> {
        Vec::from_iter(self.is_ours(request).then(|| request.folder.clone()))
    }

    fn settings(&self, request: &OpenRequest) -> Result<BTreeMap<String, String>> {
        self.check_durability(request)?;
        (self.settings)(request)
    }

    fn open(&self, request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        self.check_durability(request)?;
        (self.open)(request)
    }
}

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

/// The same for a store in Rust, which its feature, of the same name, compiles in.
pub(super) fn compiled_in(store: &str, version: &str, is_here: bool) -> Availability {
    match is_here {
        true => Availability::Found {
            version: version.to_string(),
            path: None,
        },
        false => availability(Err(not_compiled_in(store))),
    }
}

pub(super) fn not_compiled_in(store: &str) -> Error {
    Error::Missing {
        store: store.to_string(),
        what: format!("this kvzone was built without feature {store}"),
        remedy: format!("cargo build --release --package kvzone --features {store}"),
    }
}

/// Promises of a store that hands every write to the operating system.
pub(super) const UNBUFFERED: &[DurabilityName] = &[DurabilityName::Written, DurabilityName::Synced];

/// Why a hash database lacks the other.
pub(super) const NO_BUFFERED_HASH: &str =
    "buffered writes in a hash database: none stays in the process";
