//! LMDB 0.9, through `lmdb.h`.
//!
//! # Durability
//! | asked for | what is set | what it means |
//! |---|---|---|
//! | `buffered` | refused | a commit hands its pages to the operating system; there is nothing weaker |
//! | `written` | `MDB_NOSYNC` | pages are written, not synced |
//! | `synced` | nothing, as shipped | data and then the root are synced before a commit returns |
//!
//! `MDB_NOSYNC` is the peer's like of `written`, and weaker than ours: pages may
//! reach the device in any order, so that a power cut may cost the whole
//! database and not the last writes alone. `MDB_WRITEMAP`, with which dirty
//! pages are written in place of being copied, is a setting, on when `tuned`.
//!
//! # Settings
//! | setting | `default` | `equal` | `tuned` |
//! |---|---|---|---|
//! | `map_bytes` | what is expected, with room: it has no use for less, and 10 MiB as shipped would end every run | the same | the same |
//! | `nosync` | by durability | by durability | by durability |
//! | `writemap` | off | off | on |
//! | `no_read_ahead` | off | off | off |
//! | `max_readers` | 126, or as many as there are threads and 16 | the same | the same |
//!
//! It has no cache of its own but the operating system's, so `--budget` means
//! nothing to it, and no compression.
//!
//! # How it is called
//! The environment is opened with `MDB_NOTLS`, so that a read transaction
//! belongs to a session and not to a thread. A session keeps one, which it
//! renews for each get and resets after it: a transaction kept would see old
//! values, and keep old pages from being used again. A value is found without a
//! copy, and copied into the caller's buffer before the reset. A put, a delete
//! and a batch are each a write transaction; writers wait for one another.
//! Keys are of 1 to 511 bytes.

use std::collections::BTreeMap;
use std::ffi::c_uint;

use cambium_foreign::lmdb::NAME;
use kvzone_core::adapter::{Capabilities, DurabilityName, OpenRequest, Profile};
use kvzone_core::error::Result;

use super::library::{Foreign, UNBUFFERED, availability};
use super::settings::Settings;

mod session;

/// Flags of `mdb_env_open`.
const NO_SYNC: c_uint = 0x1_0000;
const WRITE_MAP: c_uint = 0x8_0000;
const NO_THREAD_LOCAL: c_uint = 0x20_0000;
const NO_READ_AHEAD: c_uint = 0x80_0000;

/// Room beside the entries, and how often they may be there: pages are half
/// full after random inserts, an old version of each may be kept, and a value
/// of half a page takes a whole one.
const MAP_ROOM_BYTES: u64 = 1 << 30;
const MAP_FACTOR: u64 = 6;
/// Bytes that an entry takes beside its key and value, roughly.
const ENTRY_BYTES: u64 = 64;
/// The map's size is a multiple of a page.
const PAGE_BYTES: u64 = 4096;

struct Plan {
    map_bytes: u64,
    max_readers: c_uint,
    flags: c_uint,
    printed: BTreeMap<String, String>,
}

fn plan(request: &OpenRequest) -> Result<Plan> {
    let mut settings = Settings::new(NAME, request);
    let unsynced = request.durability == DurabilityName::Written;
    settings.state_flag("nosync", unsynced);
    settings.state("compression", "off");
    let entry = request.expected_value_bytes + u64::from(request.key_bytes) + ENTRY_BYTES;
    let expected = request.expected_keys.saturating_mul(entry);
    let map_bytes = expected
        .saturating_mul(MAP_FACTOR)
        .saturating_add(MAP_ROOM_BYTES);
    let map_bytes = settings.number("map_bytes", map_bytes / PAGE_BYTES * PAGE_BYTES)?;
    let readers = u64::from(request.threads).saturating_add(16).max(126);
    let max_readers = settings.number("max_readers", readers)?;
    let mut flags = NO_THREAD_LOCAL;
    for (on, flag) in [
        (unsynced, NO_SYNC),
        (
            settings.flag("writemap", request.profile == Profile::Tuned)?,
            WRITE_MAP,
        ),
        (settings.flag("no_read_ahead", false)?, NO_READ_AHEAD),
    ] {
        if on {
            flags |= flag;
        }
    }
    Ok(Plan {
        map_bytes,
        max_readers: c_uint::try_from(max_readers).unwrap_or(c_uint::MAX),
        flags,
        printed: settings.finish()?,
    })
}

pub(super) const LMDB: Foreign = Foreign {
    name: NAME,
    summary: "copy-on-write B+-tree in a memory map; one writer, readers without locks",
    probe: || {
        availability(
            cambium_foreign::lmdb::load()
                .map(|loaded| (loaded.version.clone(), loaded.path.clone()))
                .map_err(Into::into),
        )
    },
    capabilities: Capabilities {
        durabilities: UNBUFFERED,
        compacts: false,
        ..Capabilities::BEST
    },
    lacks: "buffered writes: a commit hands its pages to the operating system",
    capabilities_for: None,
    server: None,
    settings: |request| Ok(plan(request)?.printed),
    open: |request| session::open(&plan(request)?, &request.folder),
};
