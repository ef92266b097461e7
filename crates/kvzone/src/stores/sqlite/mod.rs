//! SQLite 3, as a key-value store: one table, prepared statements, a log.
//!
//! # Durability
//! The journal is a write-ahead log in every case.
//!
//! | asked for | `synchronous` | what it means |
//! |---|---|---|
//! | `buffered` | refused | a commit hands its log pages to the operating system; there is nothing weaker |
//! | `written` | `NORMAL` | the log is written, and synced before a checkpoint: a power cut costs the last commits and nothing else |
//! | `synced` | `FULL` | the log is synced by every commit |
//!
//! `synchronous=off` is an override for `written`: no syncs at all, and a power
//! cut may damage the file.
//!
//! # Settings
//! | setting | `default` | `equal` | `tuned` |
//! |---|---|---|---|
//! | `table` | by the keys' size | by the keys' size | by the keys' size |
//! | `cache_bytes` | 2 MB a connection, as shipped | the budget, divided among connections | as `equal` |
//! | `page_bytes` | 4096 | 4096 | 4096 |
//! | `wal_autocheckpoint` pages | 1000 | 1000 | 10000 |
//! | `mmap_bytes` | 0 | 0 | 0 |
//! | `writer_lock` | off | on | on |
//! | `busy_timeout_ms` | 60000 | 60000 | 60000 |
//!
//! `table=integer`, for keys of up to 8 bytes, is `(key INTEGER PRIMARY KEY,
//! value BLOB)`, where a key is its big-endian number with the highest bit
//! turned over, so that signed order is the order of bytes; `table=blob` is
//! `(key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID`. There is no compression.
//!
//! Each session has a connection of its own. SQLite lets one write at a time,
//! and the others wait in its busy handler, asleep for milliseconds; with
//! `writer_lock` the sessions of this process stand in line at a lock before
//! they call, which costs it nothing and spares it that. A put or delete is a
//! transaction of its own, a batch is one transaction.

use std::collections::BTreeMap;

use cambium_foreign::sqlite::NAME;
use kvzone_core::adapter::{Capabilities, DurabilityName, OpenRequest, Profile};
use kvzone_core::error::Result;

use super::library::{Foreign, UNBUFFERED, availability};
use super::settings::Settings;

mod session;

/// Most bytes of a key that is a number.
const INTEGER_BYTES: u32 = 8;

/// As shipped: `cache_size` of -2000 KiB.
const CACHE_BYTES: u64 = 2_048_000;

struct Plan {
    /// Bytes of a key, where keys are numbers.
    integer_keys: Option<usize>,
    cache_bytes_each: u64,
    page_bytes: u64,
    autocheckpoint: u64,
    mmap_bytes: u64,
    busy_timeout_ms: i32,
    writer_lock: bool,
    synchronous: &'static str,
    printed: BTreeMap<String, String>,
}

fn plan(request: &OpenRequest) -> Result<Plan> {
    let mut settings = Settings::new(NAME, request);
    let synchronous = match request.durability {
        DurabilityName::Synced => settings.word("synchronous", "full", &["full"])?,
        _ => settings.word("synchronous", "normal", &["normal", "off"])?,
    };
    let short = request.key_bytes <= INTEGER_BYTES;
    let table = if short { "integer" } else { "blob" };
    let allowed: &[_] = if short {
        &["integer", "blob"]
    } else {
        &["blob"]
    };
    let table = settings.word("table", table, allowed)?;
    settings.state("journal_mode", "wal");
    settings.state("compression", "off");
    let shipped = request.profile == Profile::Default;
    let tuned = request.profile == Profile::Tuned;
    // One connection a session, and one that looks after the file.
    let connections = u64::from(request.threads) + 1;
    let cache = if shipped {
        CACHE_BYTES * connections
    } else {
        request.budget_bytes
    };
    let cache_bytes = settings.number("cache_bytes", cache)?;
    settings.state("connections", connections);
    Ok(Plan {
        integer_keys: (table == "integer").then_some(request.key_bytes as usize),
        cache_bytes_each: cache_bytes / connections,
        page_bytes: settings.number("page_bytes", 4096)?,
        autocheckpoint: settings.number("wal_autocheckpoint", if tuned { 10_000 } else { 1000 })?,
        mmap_bytes: settings.number("mmap_bytes", 0)?,
        busy_timeout_ms: settings.int("busy_timeout_ms", 60_000)?,
        writer_lock: settings.flag("writer_lock", !shipped)?,
        synchronous,
        printed: settings.finish()?,
    })
}

impl Plan {
    /// What a connection begins with; the page size is taken by a new file only.
    fn pragmas(&self) -> String {
        format!(
            "PRAGMA page_size={};\n\
             PRAGMA journal_mode=WAL;\n\
             PRAGMA synchronous={};\n\
             PRAGMA cache_size=-{};\n\
             PRAGMA wal_autocheckpoint={};\n\
             PRAGMA mmap_size={};",
            self.page_bytes,
            self.synchronous,
            self.cache_bytes_each.div_ceil(1024),
            self.autocheckpoint,
            self.mmap_bytes,
        )
    }

    fn table(&self) -> &'static str {
        match self.integer_keys {
            Some(_) => {
                "CREATE TABLE IF NOT EXISTS entries (key INTEGER PRIMARY KEY, value BLOB NOT NULL)"
            }
            None => {
                "CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
            }
        }
    }
}

pub(super) const SQLITE: Foreign = Foreign {
    name: NAME,
    summary: "B+-tree file with a write-ahead log, through prepared SQL; one writer at a time",
    probe: || {
        let loaded = cambium_foreign::sqlite::load().map_err(Into::into);
        availability(loaded.map(|loaded| (loaded.version.clone(), loaded.path.clone())))
    },
    capabilities: Capabilities {
        durabilities: UNBUFFERED,
        ..Capabilities::BEST
    },
    lacks: "buffered writes: a commit hands its log to the operating system",
    capabilities_for: None,
    server: None,
    settings: |request| Ok(plan(request)?.printed),
    open: |request| session::open(plan(request)?, &request.folder),
};
