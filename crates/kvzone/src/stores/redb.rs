//! redb 4, a store in Rust: a copy-on-write B+-tree in one file, compiled in with
//! feature `redb`.
//!
//! Without the feature it is named as missing, with the command that brings it: it
//! needs a newer Rust than the rest of KVZone.
//!
//! # Durability
//! | asked for | what is called | what it means |
//! |---|---|---|
//! | `buffered` | `Durability::None` | later reads see it; until a commit with `Immediate` it is lost with the process |
//! | `written` | refused | redb has no such level: a commit is either synced, or not to be found after a crash of the process |
//! | `synced` | `Durability::Immediate`, the default | on the device when the commit returns |
//!
//! # Settings
//! | setting | `default` | `equal` | `tuned` |
//! |---|---|---|---|
//! | `cache_bytes` | 1 GiB, as shipped | the budget | the same |
//! | `two_phase_commit` | off, as shipped | the same | the same |
//! | `quick_repair` | off, as shipped | the same | the same |
//!
//! There is no compression. A put is a transaction of its own, a batch one, which
//! is atomic; writers take turns. A get begins a read transaction, and so does a
//! scan.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvzone_core::adapter::{Capabilities, DurabilityName, OpenRequest, OpenStore, Profile};
use kvzone_core::error::Result;

use super::library::{Foreign, compiled_in};

const NAME: &str = "redb";
/// The version in the manifest; the crate does not say its own.
const VERSION: &str = "4.5";

pub(super) const REDB: Foreign = Foreign {
    name: NAME,
    summary: "copy-on-write B+-tree in Rust, one file; each synced commit is in place",
    probe: || compiled_in(NAME, VERSION, cfg!(feature = "redb")),
    capabilities: Capabilities {
        durabilities: &[DurabilityName::Buffered, DurabilityName::Synced],
        ..Capabilities::BEST
    },
    lacks: "written writes: a commit is synced, or lost with the process",
    capabilities_for: None,
    server: None,
    settings: |request| Ok(Plan::new(request)?.printed),
    open: |request| open(&Plan::new(request)?, request),
};

#[cfg_attr(not(feature = "redb"), allow(dead_code))]
struct Plan {
    cache_bytes: u64,
    two_phase_commit: bool,
    quick_repair: bool,
    printed: BTreeMap<String, String>,
}

impl Plan {
    fn new(request: &OpenRequest) -> Result<Plan> {
        let cache = match request.profile {
            Profile::Default => 1 << 30,
            _ => request.budget_bytes,
        };
        let mut settings = super::settings::Settings::new(NAME, request);
        settings.state("durability", request.durability);
        settings.state("compression", "none");
        Ok(Plan {
            cache_bytes: settings.number("cache_bytes", cache)?,
            two_phase_commit: settings.flag("two_phase_commit", false)?,
            quick_repair: settings.flag("quick_repair", false)?,
            printed: settings.finish()?,
        })
    }
}

#[cfg(not(feature = "redb"))]
fn open(_: &Plan, _: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
    Err(super::library::not_compiled_in(NAME))
}

#[cfg(feature = "redb")]
use session::open;

#[cfg(feature = "redb")]
mod session {
    //! An open database with its one table.

    use std::sync::RwLock;

    use kvzone_core::adapter::{Change, Session, Visit};
    use kvzone_core::error::Error;
    use redb::{
        Database, Durability as Level, ReadableDatabase, Table, TableDefinition, WriteTransaction,
    };

    use super::*;

    type Key = &'static [u8];
    const ENTRIES: TableDefinition<'_, Key, Key> = TableDefinition::new("entries");

    fn failed<E: ToString>(call: &'static str) -> impl Fn(E) -> Error {
        move |error| Error::store(NAME, call, error)
    }

    pub(super) fn open(plan: &Plan, request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        let path = request.folder.join("entries.redb");
        let database = Database::builder()
            .set_cache_size(plan.cache_bytes as usize)
            .create(path)
            .map_err(failed("create"))?;
        let open = Open {
            database: RwLock::new(database),
            level: match request.durability {
                DurabilityName::Buffered => Level::None,
                _ => Level::Immediate,
            },
            two_phase_commit: plan.two_phase_commit,
            quick_repair: plan.quick_repair,
        };
        // A read of a table that is not there yet would be an error.
        open.change(Level::Immediate, |_| Ok(()))?;
        Ok(Arc::new(open))
    }

    struct Open {
        /// Written by a compaction alone, which must be by itself.
        database: RwLock<Database>,
        level: Level,
        two_phase_commit: bool,
        quick_repair: bool,
    }

    impl Open {
        fn with<T>(&self, act: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
            // Poisoned means that a compaction panicked; redb repairs what it left.
            act(&self.database.read().unwrap_or_else(|e| e.into_inner()))
        }

        fn change(
            &self,
            level: Level,
            act: impl FnOnce(&mut Table<'_, Key, Key>) -> Result<()>,
        ) -> Result<()> {
            self.with(|database| {
                let mut transaction: WriteTransaction =
                    database.begin_write().map_err(failed("begin_write"))?;
                transaction
                    .set_durability(level)
                    .map_err(failed("set_durability"))?;
                transaction.set_two_phase_commit(self.two_phase_commit);
                transaction.set_quick_repair(self.quick_repair);
                {
                    let mut table = transaction
                        .open_table(ENTRIES)
                        .map_err(failed("open_table"))?;
                    act(&mut table)?;
                }
                transaction.commit().map_err(failed("commit"))
            })
        }
    }

    impl OpenStore for Open {
        fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
            Ok(Box::new(Worker(self)))
        }

        fn sync(&self) -> Result<()> {
            self.change(Level::Immediate, |_| Ok(()))
        }

        fn settle(&self) -> Result<()> {
            Ok(())
        }

        fn compact(&self) -> Result<()> {
            let mut database = self.database.write().unwrap_or_else(|e| e.into_inner());
            database.compact().map(drop).map_err(failed("compact"))
        }

        fn close(self: Arc<Self>) -> Result<()> {
            self.sync()
        }
    }

    struct Worker(Arc<Open>);

    impl Session for Worker {
        fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
            value.clear();
            self.0.with(|database| {
                let transaction = database.begin_read().map_err(failed("begin_read"))?;
                let table = transaction
                    .open_table(ENTRIES)
                    .map_err(failed("open_table"))?;
                let found = table.get(key).map_err(failed("get"))?;
                if let Some(found) = &found {
                    value.extend_from_slice(found.value());
                }
                Ok(found.is_some())
            })
        }

        fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
            self.0.change(self.0.level, |table| {
                for change in changes {
                    match *change {
                        Change::Put { key, value } => table.insert(key, value),
                        Change::Delete { key } => table.remove(key),
                    }
                    .map_err(failed("write"))?;
                }
                Ok(())
            })
        }

        fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
            self.0.with(|database| {
                let transaction = database.begin_read().map_err(failed("begin_read"))?;
                let table = transaction
                    .open_table(ENTRIES)
                    .map_err(failed("open_table"))?;
                let mut visited = 0;
                let range = table.range::<&[u8]>(from..).map_err(failed("range"))?;
                for entry in range.take(limit as usize) {
                    let (key, value) = entry.map_err(failed("range"))?;
                    visit(key.value(), value.value());
                    visited += 1;
                }
                Ok(visited)
            })
        }
    }
}
