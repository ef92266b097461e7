//! What KVZone asks of a store, and how a store says what it can do.
//!
//! ```text
//!  Adapter ──open──▶ Arc<dyn OpenStore> ──session──▶ Box<dyn Session>   one a thread
//!  (one a name,       (one a worker process)          get put delete write scan
//!   knows no files
//!   until opened)
//! ```
//!
//! An [`Adapter`] is a name in `--stores`: it says whether its library is here
//! ([`Adapter::probe`]), what the store can do ([`Capabilities`]), and which
//! settings it would run with ([`Adapter::settings`]). Nothing that a store
//! cannot do is emulated: a workload that needs it is answered "n/a" for that
//! store, with [`Capabilities`] as the reason.
//!
//! A foreign store's own error words are kept ([`Error::Store`]): they name the
//! store and the call.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::Durability;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What a store, reached through its adapter, can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Entries are kept in key order: [`Session::scan`] works.
    pub ordered: bool,
    /// What a write can promise, beginning with the weakest.
    pub durabilities: &'static [DurabilityName],
    /// [`OpenStore::compact`] does something.
    pub compacts: bool,
    /// What it keeps is on a disk; false for the calibration stores.
    pub persistent: bool,
}

impl Capabilities {
    /// The least: a store in memory, without order, that lines its writers up.
    pub const BARE: Capabilities = Capabilities {
        ordered: false,
        durabilities: &DurabilityName::ALL,
        compacts: false,
        persistent: false,
    };

    pub const BEST: Capabilities = Capabilities {
        ordered: true,
        durabilities: &DurabilityName::ALL,
        compacts: true,
        persistent: true,
    };
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    Found {
        version: String,
        /// The library, where there is one.
        path: Option<PathBuf>,
    },
    Missing {
        /// What was looked for, and where.
        what: String,
        /// How to get it: a command.
        remedy: String,
    },
}

crate::named! {
    /// How far settings go from what a store does by itself.
    #[derive(Default)]
    pub enum Profile {
        /// As its authors ship it, but for the durability asked for.
        Default = "default",
        /// The same durability and cache for all, no compression.
        #[default]
        Equal = "equal",
        /// Set by hand for the workload, as its documents advise.
        Tuned = "tuned",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRequest {
    /// A folder that is there, and empty the first time.
    pub folder: PathBuf,
    /// What every write of this run promises.
    pub durability: DurabilityName,
    /// Memory of the store's own: write buffers, filters and cache together, in bytes.
    pub budget_bytes: u64,
    pub profile: Profile,
    /// `--set store.option=value`, with the store's name taken off.
    pub overrides: BTreeMap<String, String>,
    /// About how many entries there will be: stores that size their index
    /// beforehand are told.
    pub expected_keys: u64,
    /// Bytes of a key; 8 and fewer mean that keys are big-endian integers.
    pub key_bytes: u32,
    pub expected_value_bytes: u64,
    /// How many sessions will be open at once.
    pub threads: u32,
}

/// Bits of a filter for each key, in every store that has filters.
pub const FILTER_BITS: u32 = 10;

/// A budget of memory, divided the same way for every store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Bytes of each of two write buffers: one fills while the other is written.
    pub write_buffer_bytes: u64,
    /// Bytes of all filters.
    pub filter_bytes: u64,
    /// Bytes of the cache: the rest.
    pub cache_bytes: u64,
}

impl OpenRequest {
    /// Divides the budget: an eighth for each of two write buffers, [`FILTER_BITS`] for
    /// each key up to half of it, and the cache has the rest. A store without write
    /// buffers or filters has their share in its cache, [`OpenRequest::budget_bytes`].
    ///
    /// ```
    /// # use kvzone_core::adapter::{DurabilityName, OpenRequest, Profile};
    /// # let mut request = OpenRequest {
    /// #     folder: "store".into(), durability: DurabilityName::Written,
    /// #     budget_bytes: 0, profile: Profile::Equal, overrides: Default::default(),
    /// #     expected_keys: 0, key_bytes: 16, expected_value_bytes: 100, threads: 1,
    /// # };
    /// request.budget_bytes = 64 << 20;
    /// request.expected_keys = 4 << 20;
    /// let shares = request.shares();
    /// assert_eq!(shares.write_buffer_bytes, 8 << 20);
    /// assert_eq!(shares.cache_bytes, (64 - 16 - 5) << 20);
    /// ```
    pub fn shares(&self) -> Shares {
        let write_buffer_bytes = self.budget_bytes / 8;
        let filters = self.expected_keys.saturating_mul(u64::from(FILTER_BITS)) / 8;
        let filter_bytes = filters.min(self.budget_bytes / 2);
        Shares {
            write_buffer_bytes,
            filter_bytes,
            cache_bytes: self.budget_bytes - 2 * write_buffer_bytes - filter_bytes,
        }
    }
}

crate::named! {
    /// [`Durability`] with a text form, for jobs and reports.
    #[derive(Default)]
    pub enum DurabilityName {
        /// In the process's memory.
        Buffered = "buffered",
        /// With the operating system.
        #[default]
        Written = "written",
        /// On the device.
        Synced = "synced",
    }
}

impl From<DurabilityName> for Durability {
    fn from(name: DurabilityName) -> Self {
        match name {
            DurabilityName::Buffered => Durability::Buffered,
            DurabilityName::Written => Durability::Written,
            DurabilityName::Synced => Durability::Synced,
        }
    }
}

impl fmt::Display for DurabilityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

pub trait Adapter: Send + Sync {
    /// Lower case, as in `--stores`.
    fn name(&self) -> &'static str;

    fn summary(&self) -> &'static str;

    /// Looks whether it can be run. Loads a library, and nothing else; a store that is
    /// compiled in is found.
    fn probe(&self) -> Availability {
        Availability::Found {
            version: env!("CARGO_PKG_VERSION").to_string(),
            path: None,
        }
    }

    /// The same for this request, whose overrides may name what is missing else.
    fn probe_for(&self, request: &OpenRequest) -> Availability {
        let _ = request;
        self.probe()
    }

    /// What it can do at best.
    fn capabilities(&self) -> Capabilities;

    /// What it can do as it would be opened for this request: a store may keep
    /// order for one kind of key, and not for another.
    fn capabilities_for(&self, request: &OpenRequest) -> Capabilities {
        let _ = request;
        self.capabilities()
    }

    /// Every setting that it would be opened with, as name and value, for the
    /// report; an unknown or malformed override is a usage error that names
    /// the nearest setting. A store without settings refuses every override.
    fn settings(&self, request: &OpenRequest) -> Result<BTreeMap<String, String>> {
        let store = self.name();
        match request.overrides.keys().next() {
            None => Ok(BTreeMap::new()),
            Some(name) => Err(Error::Usage(format!(
                "{store}.{name}: {store} has no settings"
            ))),
        }
    }

    /// Opens the store in a folder, making it where there is none.
    fn open(&self, request: &OpenRequest) -> Result<Arc<dyn OpenStore>>;

    /// False for a store that answers reads with anything: nothing that it
    /// returns is compared or hashed.
    fn keeps_data(&self) -> bool {
        true
    }

    /// The files that hold data, for space and for dropping caches; all files
    /// below the folder unless a store keeps them elsewhere (a device).
    fn data_paths(&self, request: &OpenRequest) -> Vec<PathBuf> {
        vec![request.folder.clone()]
    }
}

pub trait OpenStore: Send + Sync {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>>;

    /// What one thread submits requests through, where the store has an asynchronous
    /// interface. The driver has queues and workers for stores without one.
    fn queue(self: Arc<Self>) -> Result<Option<Box<dyn Queue>>> {
        Ok(None)
    }

    /// Makes everything written so far durable.
    fn sync(&self) -> Result<()>;

    /// Waits until work that the store put off (flush, compaction) is done;
    /// returns at once where there is none.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Gives back what space can be given back; nothing in a store that cannot
    /// ([`Capabilities::compacts`]).
    fn compact(&self) -> Result<()> {
        Ok(())
    }

    /// The store's own counters, for `extra` in the report.
    fn counters(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    /// Closes the store cleanly. Sessions are gone before it is called.
    fn close(self: Arc<Self>) -> Result<()>;
}

#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    Put { key: &'a [u8], value: &'a [u8] },
    Delete { key: &'a [u8] },
}

/// What one thread works with. Every call is as durable, when it returns, as
/// the [`OpenRequest`] said.
pub trait Session: Send {
    /// Puts the value of a key into `value`, replacing what was there; false,
    /// and an empty `value`, if there is none.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Unless a store has another call for it, as a batch of one.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(&[Change::Put { key, value }])
    }

    /// Takes a key away; no error if it is not there.
    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write(&[Change::Delete { key }])
    }

    /// Applies changes in order, in the store's own form of a batch. Stores without one
    /// call [`one_by_one`].
    fn write(&mut self, changes: &[Change<'_>]) -> Result<()>;

    /// Visits up to `limit` entries from `from` (inclusive) on, in key order;
    /// answers how many there were. A store without order has no scans.
    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let _ = (from, limit, visit);
        Err(no_scan("this store"))
    }

    /// Visits every entry in key order, or from the last to the first; answers how many
    /// there were. An adapter without it answers that it is unsupported.
    fn walk(&mut self, backwards: bool, visit: &mut Visit<'_>) -> Result<u64> {
        let _ = (backwards, visit);
        Err(Error::unsupported(
            "this adapter",
            "walks over the whole store",
        ))
    }
}

/// Applies changes one after the other.
///
/// # Errors
/// The first that a change meets.
pub fn one_by_one(session: &mut dyn Session, changes: &[Change<'_>]) -> Result<()> {
    changes.iter().try_for_each(|change| match *change {
        Change::Put { key, value } => session.put(key, value),
        Change::Delete { key } => session.delete(key),
    })
}

/// An asynchronous interface as one thread uses it: a store's own, or queues with workers. The requests for one key
/// are served in the order in which they were submitted; each write is as durable, when its
/// completion comes, as the [`OpenRequest`] said.
pub trait Queue: Send {
    /// Submits a request. Its completion comes once, on any thread, also with an error, and
    /// perhaps before this returns.
    fn submit(&mut self, request: Request<'_>, done: Done);
}

#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    Get { key: &'a [u8] },
    Put { key: &'a [u8], value: &'a [u8] },
    Delete { key: &'a [u8] },
}

/// Called with the value that a get found, with none otherwise; and with the nanoseconds
/// that the store took, where the time in a queue before it is not the store's.
pub type Done = Box<dyn FnOnce(Result<Option<&[u8]>>, Option<u64>) + Send>;

/// A store that is to be closed, from the last one who has it.
pub fn alone<T>(store: Arc<T>, name: &'static str) -> Result<T> {
    Arc::into_inner(store).ok_or_else(|| Error::store(name, "close", "a session is still open"))
}

/// Called with key and value of each entry.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) + 'a;

/// The answer of stores without order.
pub fn no_scan(store: &'static str) -> Error {
    Error::unsupported(store, "scans: it keeps no key order")
}

/// The folder's name inside a run's own folder, the same for all adapters.
pub fn store_folder(run: &Path) -> PathBuf {
    run.join("store")
}
