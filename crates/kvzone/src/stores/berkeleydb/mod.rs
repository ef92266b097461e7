//! Berkeley DB 5.3, through its C interface: a B+-tree in an environment of its own, with
//! transactions.
//!
//! # Durability
//! | asked for | what is set |
//! |---|---|
//! | `buffered` | `DB_TXN_NOSYNC`: the log stays in the process |
//! | `written` | `DB_TXN_WRITE_NOSYNC`: the log goes to the operating system |
//! | `synced` | a commit syncs the log; commits of several threads share a sync |
//!
//! The KVZone paper measures the concurrent data store, since this one was "prone to
//! deadlocks". That one has no log, so a file that was not closed may be broken. A write that a
//! deadlock undoes is done again.
//!
//! # Settings
//! | setting | `default` | `equal` | `tuned` |
//! |---|---|---|---|
//! | `cache_bytes` | as shipped: 256 KiB | the budget | as `equal` |
//! | `page_bytes` | 4096 | 4096 | 16 KiB where a value is larger than 1 KiB |
//! | `log_buffer_bytes` | as shipped: 32,000 | 1 MiB | 4 MiB |
//! | `log_file_bytes` | as shipped: 10 MiB | 64 MiB | 64 MiB |
//! | `checkpoint_bytes` | 64 MiB | 64 MiB | 256 MiB |
//!
//! It takes no checkpoints by itself: the session whose write passes
//! `checkpoint_bytes` takes one, and log files that are done with are removed.
//! There is no compression, and no checksum on pages, as shipped.
//!
//! A batch is one transaction.

use std::collections::BTreeMap;

use kvzone_core::adapter::{Capabilities, DurabilityName, OpenRequest, Profile};
use kvzone_core::error::Result;

use super::library::{Foreign, availability};
use super::settings::Settings;

mod calls;
mod environment;
mod session;

const NAME: &str = "berkeleydb";

/// As shipped.
const CACHE_BYTES: u64 = 256 << 10;
const LOG_BUFFER_BYTES: u64 = 32_000;
const LOG_FILE_BYTES: u64 = 10 << 20;

/// With values above this, `tuned` takes larger pages.
const SMALL_VALUE_BYTES: u64 = 1 << 10;

struct Plan {
    cache_bytes: u64,
    page_bytes: u32,
    log_buffer_bytes: u32,
    log_file_bytes: u32,
    checkpoint_bytes: u64,
    durability: DurabilityName,
    printed: BTreeMap<String, String>,
}

fn plan(request: &OpenRequest) -> Result<Plan> {
    let mut settings = Settings::new(NAME, request);
    let by_profile = |default: u64, equal: u64, tuned: u64| match request.profile {
        Profile::Default => default,
        Profile::Equal => equal,
        Profile::Tuned => tuned,
    };
    let large =
        request.profile == Profile::Tuned && request.expected_value_bytes > SMALL_VALUE_BYTES;
    let cache = by_profile(CACHE_BYTES, request.budget_bytes, request.budget_bytes);
    let cache_bytes = settings.number("cache_bytes", cache)?;
    let log_buffer = by_profile(LOG_BUFFER_BYTES, 1 << 20, 4 << 20);
    let log_file = by_profile(LOG_FILE_BYTES, 64 << 20, 64 << 20);
    let checkpoint = by_profile(64 << 20, 64 << 20, 256 << 20);
    settings.state("sync", request.durability);
    settings.state("compression", "off");
    Ok(Plan {
        cache_bytes,
        page_bytes: settings.fitting("page_bytes", if large { 16 << 10 } else { 4096 })?,
        log_buffer_bytes: settings.fitting("log_buffer_bytes", log_buffer)?,
        log_file_bytes: settings.fitting("log_file_bytes", log_file)?,
        checkpoint_bytes: settings.number("checkpoint_bytes", checkpoint)?,
        durability: request.durability,
        printed: settings.finish()?,
    })
}

pub(super) const BERKELEYDB: Foreign = Foreign {
    name: NAME,
    summary: "B+-tree with a write-ahead log, in transactions",
    probe: || {
        availability(calls::load().map(|loaded| (loaded.version.clone(), loaded.path.clone())))
    },
    capabilities: Capabilities::BEST,
    lacks: "",
    capabilities_for: None,
    server: None,
    settings: |request| Ok(plan(request)?.printed),
    open: |request| session::open(plan(request)?, &request.folder),
};
