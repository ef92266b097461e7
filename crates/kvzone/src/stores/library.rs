//! What is found of the libraries of foreign stores ([`cambium_foreign::library`]),
//! as an adapter answers it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use cambium::Durability;
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
        (self.settings)(request)
    }

    fn open(&self, request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
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

/// The message for a store in Rust whose feature, of the same name, was left out.
#[cfg(not(all(feature = "fjall", feature = "redb")))]
pub(super) fn not_compiled_in(store: &str) -> Availability {
    Availability::Missing {
        what: format!("this kvzone was built without feature {store}"),
        remedy: format!("cargo build --release --package kvzone --features {store}"),
    }
}

/// The answer of opening it.
#[cfg(not(all(feature = "fjall", feature = "redb")))]
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
pub(super) const fn durabilities(tree: bool) -> &'static [Durability] {
    match tree {
        true => &Durability::ALL,
        false => &[Durability::Written, Durability::Synced],
    }
}

pub(super) fn refuse_buffered(store: &str, request: &OpenRequest, tree: bool) -> Result<()> {
    if tree || request.durability != DurabilityName::Buffered {
        return Ok(());
    }
    Err(Error::unsupported(
        store,
        "buffered writes in a hash database: none stays in the process",
    ))
}
