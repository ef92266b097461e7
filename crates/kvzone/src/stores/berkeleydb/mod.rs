//! Berkeley DB 5.3, through its C interface: a B+-tree or a hash database in an
//! environment of its own.
//!
//! # Durability
//! | asked for | `mode=transactional` | `mode=concurrent` |
//! |---|---|---|
//! | `buffered` | `DB_TXN_NOSYNC`: the log stays in the process | changed pages stay in its cache |
//! | `written` | `DB_TXN_WRITE_NOSYNC`: the log goes to the operating system | `memp_trickle` after each write or batch: so do the changed pages |
//! | `synced` | a commit syncs the log; commits of several threads share a sync | `DB->sync` after each write or batch |
//!
//! The transactional data store keeps what it says through a crash. The
//! concurrent one, with which the Alphard paper measures since the other was
//! "prone to deadlocks", has no log: a file that was not closed may be broken.
//! It is here to repeat the paper; what is durable is compared with the other.
//! A write that a deadlock undoes is done again.
//!
//! # Settings
//! | setting | `default` | `equal` | `tuned` |
//! |---|---|---|---|
//! | `mode` | `transactional` | `transactional` | `transactional` |
//! | `type` | `btree` | `btree` | `btree` |
//! | `cache_bytes` | as shipped: 256 KiB | the budget | as `equal` |
//! | `page_bytes` | 4096 | 4096 | 16 KiB where a value is larger than 1 KiB |
//! | `log_buffer_bytes` | as shipped: 32,000 | 1 MiB | 4 MiB |
//! | `log_file_bytes` | as shipped: 10 MiB | 64 MiB | 64 MiB |
//! | `checkpoint_bytes` | 64 MiB | 64 MiB | 256 MiB |
//! | `expected_entries` (hash) | 0: the file grows | those expected | those expected |
//!
//! It takes no checkpoints by itself: the session whose write passes
//! `checkpoint_bytes` takes one, and log files that are done with are removed.
//! There is no compression, and no checksum on pages, as shipped.
//!
//! A batch is one transaction; in `mode=concurrent` its changes one by one, with
//! one synchronization behind them.

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

/// Bytes of a page's header, and of an entry beside key and value: what its
/// documents compute a hash database's fill factor with.
const PAGE_HEADER_BYTES: u64 = 32;
const ENTRY_BYTES: u64 = 8;

struct Plan {
    transactional: bool,
    hash: bool,
    cache_bytes: u64,
    page_bytes: u32,
    log_buffer_bytes: u32,
    log_file_bytes: u32,
    checkpoint_bytes: u64,
    expected_entries: u32,
    entries_a_page: u32,
    durability: DurabilityName,
    printed: BTreeMap<String, String>,
}

fn plan(request: &OpenRequest) -> Result<Plan> {
    let mut settings = Settings::new(NAME, request);
    let (shipped, tuned) = (
        request.profile == Profile::Default,
        request.profile == Profile::Tuned,
    );
    let by_profile = |default: u64, equal: u64, tuned: u64| match request.profile {
        Profile::Default => default,
        Profile::Equal => equal,
        Profile::Tuned => tuned,
    };
    let mode = settings.word("mode", "transactional", &["transactional", "concurrent"])?;
    let transactional = mode == "transactional";
    let hash = settings.word("type", "btree", &["btree", "hash"])? == "hash";
    let large = tuned && request.expected_value_bytes > SMALL_VALUE_BYTES;
    let cache = by_profile(CACHE_BYTES, request.budget_bytes, request.budget_bytes);
    let cache_bytes = settings.number("cache_bytes", cache)?;
    let page_bytes: u32 = settings.fitting("page_bytes", if large { 16 << 10 } else { 4096 })?;
    let (mut log_buffer, mut log_file, mut checkpoint) = (0, 0, 0);
    if transactional {
        let chosen = by_profile(LOG_BUFFER_BYTES, 1 << 20, 4 << 20);
        log_buffer = settings.fitting("log_buffer_bytes", chosen)?;
        let chosen = by_profile(LOG_FILE_BYTES, 64 << 20, 64 << 20);
        log_file = settings.fitting("log_file_bytes", chosen)?;
        let chosen = by_profile(64 << 20, 64 << 20, 256 << 20);
        checkpoint = settings.number("checkpoint_bytes", chosen)?;
    }
    let mut expected_entries = 0;
    if hash {
        let chosen = if shipped { 0 } else { request.expected_keys };
        expected_entries = settings.fitting("expected_entries", chosen)?;
    }
    settings.state("sync", request.durability);
    settings.state("compression", "off");
    Ok(Plan {
        transactional,
        hash,
        cache_bytes,
        page_bytes,
        log_buffer_bytes: log_buffer,
        log_file_bytes: log_file,
        checkpoint_bytes: checkpoint,
        expected_entries,
        entries_a_page: entries_a_page(request, page_bytes),
        durability: request.durability,
        printed: settings.finish()?,
    })
}

fn entries_a_page(request: &OpenRequest, page_bytes: u32) -> u32 {
    let entry = request.expected_value_bytes + u64::from(request.key_bytes) + ENTRY_BYTES;
    let room = u64::from(page_bytes).saturating_sub(PAGE_HEADER_BYTES);
    // No more than the bytes of a page.
    (room / entry).max(1) as u32
}

pub(super) const BERKELEYDB: Foreign = Foreign {
    name: NAME,
    summary: "B+-tree or hash table (type=hash) with a write-ahead log, in transactions",
    probe: || {
        availability(calls::load().map(|loaded| (loaded.version.clone(), loaded.path.clone())))
    },
    capabilities: Capabilities::BEST,
    capabilities_for: Some(|request, general| {
        let is =
            |name: &str, value: &str| request.overrides.get(name).is_some_and(|it| it == value);
        let concurrent = is("mode", "concurrent");
        Capabilities {
            ordered: !is("type", "hash"),
            atomic_batches: !concurrent,
            concurrent_writers: !concurrent,
            ..general
        }
    }),
    server: None,
    settings: |request| Ok(plan(request)?.printed),
    open: |request| session::open(plan(request)?, &request.folder),
};
