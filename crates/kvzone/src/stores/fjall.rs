//! fjall 3, a store in Rust, compiled in with feature `fjall`.
//!
//! Without the feature it is named as missing, with the command that brings it:
//! it has some forty dependencies, which nobody should have to build who does not
//! measure it.
//!
//! # Durability
//! | asked for | what is called | what it means |
//! |---|---|---|
//! | `buffered` | refused | each write hands its journal to the operating system, as shipped; without that nothing says when it does |
//! | `written` | nothing, as shipped | the journal is with the operating system |
//! | `synced` | `persist(SyncData)` after each call, or a batch's durability | the journal is on the device |
//!
//! # Settings
//! | setting | `default` | `equal` | `tuned` |
//! |---|---|---|---|
//! | `cache_bytes` | 32 MiB | its share of the budget | the same |
//! | `max_memtable_bytes` | 64 MiB | 64 MiB, or half of the cache if that is less | the same |
//! | `worker_threads` | the machine's processors, at most 4 | the same | the same |
//!
//! Compression is off: the feature that brings it is not compiled in. A write is
//! an insert, a batch a `WriteBatch`, which is atomic; a scan begins a range.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvzone_core::adapter::{Capabilities, OpenRequest, OpenStore, Profile};
use kvzone_core::error::Result;

use super::library::{Foreign, UNBUFFERED, compiled_in};

const NAME: &str = "fjall";
/// The version in the manifest; the crate does not say its own.
const VERSION: &str = "3.1";

pub(super) const FJALL: Foreign = Foreign {
    name: NAME,
    summary: "LSM-tree in Rust with a journal; leveled compaction",
    probe: || compiled_in(NAME, VERSION, cfg!(feature = "fjall")),
    capabilities: Capabilities {
        durabilities: UNBUFFERED,
        ..Capabilities::BEST
    },
    lacks: "buffered writes: each hands its journal to the operating system",
    capabilities_for: None,
    server: None,
    settings: |request| Ok(Plan::new(request)?.printed),
    open: |request| open(&Plan::new(request)?, request),
};

#[cfg_attr(not(feature = "fjall"), allow(dead_code))]
struct Plan {
    cache_bytes: u64,
    max_memtable_bytes: u64,
    worker_threads: u64,
    printed: BTreeMap<String, String>,
}

impl Plan {
    fn new(request: &OpenRequest) -> Result<Plan> {
        let is_default = request.profile == Profile::Default;
        let cache = if is_default {
            32 << 20
        } else {
            request.shares().cache_bytes
        };
        let memtable = match is_default {
            true => 64 << 20,
            false => request.shares().write_buffer_bytes,
        };
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let mut settings = super::settings::Settings::new(NAME, request);
        settings.state("durability", request.durability);
        settings.state("compression", "off");
        Ok(Plan {
            cache_bytes: settings.number("cache_bytes", cache)?,
            max_memtable_bytes: settings.number("max_memtable_bytes", memtable)?,
            worker_threads: settings.number("worker_threads", processors.min(4) as u64)?,
            printed: settings.finish()?,
        })
    }
}

#[cfg(not(feature = "fjall"))]
fn open(_: &Plan, _: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
    Err(super::library::not_compiled_in(NAME))
}

#[cfg(feature = "fjall")]
use session::open;

#[cfg(feature = "fjall")]
mod session {
    //! An open database with its one keyspace.

    use std::ops::Bound;
    use std::time::Duration;

    use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
    use kvzone_core::adapter::{Change, DurabilityName, Session, Visit};
    use kvzone_core::error::Error;

    use super::*;

    /// How often background work is looked at while it is waited for.
    const GLANCE: Duration = Duration::from_millis(5);

    fn failed(call: &'static str) -> impl Fn(fjall::Error) -> Error {
        move |error| Error::store(NAME, call, error)
    }

    pub(super) fn open(plan: &Plan, request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        let database = Database::builder(&request.folder)
            .cache_size(plan.cache_bytes)
            .worker_threads(plan.worker_threads.max(1) as usize)
            .open()
            .map_err(failed("open"))?;
        let memtable = plan.max_memtable_bytes;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(memtable);
        let keyspace = database
            .keyspace("entries", options)
            .map_err(failed("keyspace"))?;
        Ok(Arc::new(Open {
            database,
            keyspace,
            synced: request.durability == DurabilityName::Synced,
        }))
    }

    struct Open {
        database: Database,
        keyspace: Keyspace,
        synced: bool,
    }

    impl OpenStore for Open {
        fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
            Ok(Box::new(Worker(self)))
        }

        fn sync(&self) -> Result<()> {
            let done = self.database.persist(PersistMode::SyncAll);
            done.map_err(failed("persist"))
        }

        fn settle(&self) -> Result<()> {
            let busy = || {
                self.database.outstanding_flushes() > 0 || self.database.active_compactions() > 0
            };
            while busy() {
                std::thread::sleep(GLANCE);
            }
            Ok(())
        }

        fn compact(&self) -> Result<()> {
            let flushed = self.keyspace.rotate_memtable_and_wait();
            flushed.map_err(failed("rotate_memtable_and_wait"))?;
            self.keyspace
                .major_compact()
                .map_err(failed("major_compact"))
        }

        fn close(self: Arc<Self>) -> Result<()> {
            self.sync()
        }
    }

    struct Worker(Arc<Open>);

    impl Worker {
        fn done(&self) -> Result<()> {
            match self.0.synced {
                true => self
                    .0
                    .database
                    .persist(PersistMode::SyncData)
                    .map_err(failed("persist")),
                false => Ok(()),
            }
        }
    }

    impl Session for Worker {
        fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
            value.clear();
            let found = self.0.keyspace.get(key).map_err(failed("get"))?;
            if let Some(found) = &found {
                value.extend_from_slice(found);
            }
            Ok(found.is_some())
        }

        fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
            self.0
                .keyspace
                .insert(key, value)
                .map_err(failed("insert"))?;
            self.done()
        }

        fn delete(&mut self, key: &[u8]) -> Result<()> {
            self.0.keyspace.remove(key).map_err(failed("remove"))?;
            self.done()
        }

        fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
            let mode = self.0.synced.then_some(PersistMode::SyncData);
            let mut batch = self.0.database.batch().durability(mode);
            for change in changes {
                match *change {
                    Change::Put { key, value } => batch.insert(&self.0.keyspace, key, value),
                    Change::Delete { key } => batch.remove(&self.0.keyspace, key),
                }
            }
            batch.commit().map_err(failed("commit"))
        }

        fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
            let range = (Bound::Included(from), Bound::Unbounded);
            let mut visited = 0;
            for entry in self
                .0
                .keyspace
                .range::<&[u8], _>(range)
                .take(limit as usize)
            {
                let (key, value) = entry.into_inner().map_err(failed("range"))?;
                visit(&key, &value);
                visited += 1;
            }
            Ok(visited)
        }
    }
}
