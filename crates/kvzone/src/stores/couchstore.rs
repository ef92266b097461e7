//! `forest-couchstore`: the stand-in for the baseline of the ForestDB paper.
//!
//! Couchstore (section 2.3 of ForestDB 2016) is an append-only B+-tree over
//! whole keys, updated at every commit, without a cache of its own and without
//! a write buffer. Engine `forest` has all of its parts as options, so the
//! stand-in is `forest` with
//!
//! | option | value | why |
//! |---|---|---|
//! | `index` | `btree` | whole keys, no prefix compression |
//! | `write_buffer_entries` | 1 | each batch goes into the tree: at most one waits while another is written |
//! | `cache_bytes` | 0 | the operating system's cache alone |
//! | `read_ahead` | 1 | documents and nodes are read one by one |
//! | `compaction_threshold` | 30 | percent stale, as in the paper (section 4.2) |
//! | `cleaning` | off | the whole store is rewritten, as in the paper |
//!
//! It is no measurement of Couchstore: its format, its Erlang-born B+-tree with
//! chunked nodes and its by-sequence index are not here. All other options can
//! be set as those of `forest`; these cannot.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use kvzone_core::adapter::{Adapter, Availability, Capabilities, OpenRequest, OpenStore};
use kvzone_core::error::{Error, Result};

const NAME: &str = "forest-couchstore";

const OPTIONS: [(&str, &str); 6] = [
    ("index", "btree"),
    ("write_buffer_entries", "1"),
    ("cache_bytes", "0"),
    ("read_ahead", "1"),
    ("compaction_threshold", "30"),
    ("cleaning", "off"),
];

pub(super) struct Couchstore {
    forest: Box<dyn Adapter>,
}

impl Couchstore {
    pub(super) fn new(forest: Box<dyn Adapter>) -> Self {
        Couchstore { forest }
    }

    fn request(&self, request: &OpenRequest) -> Result<OpenRequest> {
        let mut request = request.clone();
        for (name, value) in OPTIONS {
            let asked = request
                .overrides
                .insert(name.to_string(), value.to_string());
            if let Some(other) = asked.filter(|other| other != value) {
                return Err(Error::Usage(format!(
                    "{NAME}.{name}={other}: {name} is {value} in this store, that is what it is for"
                )));
            }
        }
        Ok(request)
    }
}

impl Adapter for Couchstore {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "engine forest as an append-only B+-tree without write buffer or cache: the baseline of the ForestDB paper"
    }

    fn probe(&self) -> Availability {
        self.forest.probe()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            sizes_its_cache: false,
            ..self.forest.capabilities()
        }
    }

    fn settings(&self, request: &OpenRequest) -> Result<BTreeMap<String, String>> {
        self.forest.settings(&self.request(request)?)
    }

    fn open(&self, request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        self.forest.open(&self.request(request)?)
    }

    fn data_paths(&self, request: &OpenRequest) -> Vec<PathBuf> {
        self.forest.data_paths(request)
    }
}
