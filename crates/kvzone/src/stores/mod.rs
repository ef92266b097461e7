//! The stores that KVZone knows, each behind the same trait.
//!
//! ```text
//!  all() ─▶ cambium.rs                 every engine of ours
//!           leveldb.rs, rocksdb.rs   ─┐
//!           berkeleydb, lmdb, sqlite  ├─▶ cambium_foreign   found and loaded,
//!           kyotocabinet, tokyocabinet ─┘                or named as missing
//!           fjall.rs, redb.rs        compiled in where that was asked for
//!           redis.rs,                ─▶ server/   a process of their own, reached over
//!           cambium_server.rs                     Redis' protocol
//!           kvzone_core::calibration   what measuring itself costs
//! ```
//!
//! A foreign store is a library that is loaded when it is asked for
//! ([`cambium_foreign::library`]); KVZone is whole without any of them. Which settings a store
//! runs with is decided in its own file, by profile, and printed ([`settings`]).
//!
//! Unsafe code stands in the files of foreign stores alone: a call into a C
//! library is one block, with the part of the library's contract that it needs.

use std::sync::OnceLock;

use kvzone_core::adapter::{Adapter, Availability};
use kvzone_core::calibration;
use kvzone_core::error::{Error, Result};
use kvzone_core::names;

#[cfg(test)]
mod agreement;
#[allow(unsafe_code)]
mod berkeleydb;
mod cambium;
mod cambium_server;
#[cfg(test)]
pub(crate) mod conformance;
mod fjall;
#[allow(unsafe_code)]
mod kyotocabinet;
#[allow(unsafe_code)]
mod leveldb;
mod library;
#[allow(unsafe_code)]
mod lmdb;
#[allow(unsafe_code)]
mod log_structured;
mod redb;
mod redis;
#[allow(unsafe_code)]
mod rocksdb;
#[allow(unsafe_code)]
mod server;
mod settings;
#[allow(unsafe_code)]
mod sqlite;
#[allow(unsafe_code)]
mod tokyocabinet;

/// Every store, ours first, those for calibration last; those whose library is
/// missing too.
pub(crate) fn all() -> Vec<Box<dyn Adapter>> {
    let mut stores = cambium::adapters();
    stores.push(Box::new(leveldb::LEVELDB));
    stores.push(Box::new(rocksdb::ROCKSDB));
    stores.push(Box::new(rocksdb::ROCKSDB_BLOB));
    stores.push(Box::new(berkeleydb::BERKELEYDB));
    stores.push(Box::new(kyotocabinet::KYOTOCABINET));
    stores.push(Box::new(tokyocabinet::TOKYOCABINET));
    stores.push(Box::new(lmdb::LMDB));
    stores.push(Box::new(sqlite::SQLITE));
    stores.push(Box::new(fjall::FJALL));
    stores.push(Box::new(redb::REDB));
    stores.push(Box::new(redis::REDIS));
    stores.push(Box::new(cambium_server::CAMBIUM_SERVER));
    stores.extend(calibration::all());
    stores
}

/// Stores that are no choice: they calibrate, or are another's likeness, or
/// destroy what a device carries, or are servers, which no program embeds.
const NO_CHOICE: [&str; 7] = [
    "null",
    "memory",
    "forest-couchstore",
    "alphard-file",
    "alphard-raw",
    "redis",
    "cambium-server",
];

pub(crate) fn choices() -> Vec<String> {
    let is_choice = |store: &dyn Adapter| {
        let is_here = matches!(store.probe(), Availability::Found { .. });
        is_here && !NO_CHOICE.contains(&store.name())
    };
    let all = all();
    let stores = all.iter().filter(|store| is_choice(&***store));
    stores.map(|store| store.name().to_string()).collect()
}

/// Makes the stores that only tests name.
pub(crate) static MORE: OnceLock<MakeStores> = OnceLock::new();

type MakeStores = fn() -> Vec<Box<dyn Adapter>>;

/// The store of a name; those that only tests name are found as well.
///
/// # Errors
/// A usage error that offers the nearest names.
pub(crate) fn find(name: &str) -> Result<Box<dyn Adapter>> {
    let mut known = all()
        .into_iter()
        .chain(MORE.get().into_iter().flat_map(|more| more()));
    if let Some(store) = known.find(|store| store.name() == name) {
        return Ok(store);
    }
    let stores = all();
    let names = stores.iter().map(|store| store.name());
    Err(Error::Usage(names::unknown("store", name, names)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_choice_is_known_and_never_chosen() {
        let names: Vec<&str> = all().iter().map(|store| store.name()).collect();
        let choices = choices();
        for name in NO_CHOICE {
            assert!(names.contains(&name), "{name}");
            assert!(!choices.iter().any(|choice| choice == name), "{name}");
        }
        assert!(choices.iter().any(|choice| choice == "zdb"));
    }
}
