//! Tokyo Cabinet 1.4, through its C interface: the hash database of `tchdb.h`,
//! or the B+-tree over one of `tcbdb.h`.
//!
//! # Durability
//! | asked for | `type=hash` | `type=tree` |
//! |---|---|---|
//! | `buffered` | refused: a write goes into a mapping of the file or to the operating system at once | changed pages stay in its cache |
//! | `written` | as it is by default | `tcbdbmemsync` after each write or batch: changed pages go to the file |
//! | `synced` | `tchdbsync` after each write or batch | `tcbdbsync` |
//!
//! That is the peer's like of what is asked for, and weaker than ours: a file is
//! changed in place, so a power cut in the middle of a write may leave one that
//! it has to reorganize.
//!
//! # Settings
//! | setting | `default` | `equal` | `tuned` |
//! |---|---|---|---|
//! | `type` | `hash` | `hash` | `hash` |
//! | `buckets` | as shipped: 131,071, and 32,749 in a tree | twice the expected entries, or twice a tree's expected leaves; no fewer than shipped | as `equal` |
//! | `mapped_bytes` | as shipped: 64 MiB, and none in a tree | the cache asked for, and none in a tree | as `equal` |
//! | `cached_leaves`, `cached_nodes` (tree) | as shipped: 1,024 and 512 | as many leaves as fit the cache asked for; 512 | as `equal` |
//! | `free_pool_power` | as shipped: 10 | 10 | 16: more of the free places are remembered |
//!
//! `large` (64-bit places, so that a file may pass 2 GiB) is always on,
//! compression never; buckets are fixed when the file is made. The hash
//! database's cache is the mapping of the file's beginning, which is page cache.
//!
//! A batch is its changes one by one with one synchronization behind them.

use std::collections::BTreeMap;

use kvzone_core::adapter::{Capabilities, DurabilityName, OpenRequest, Profile};
use kvzone_core::error::Result;

use super::library::{Foreign, NO_BUFFERED_HASH, UNBUFFERED, availability};
use super::settings::Settings;

mod calls;
mod database;
mod session;

const NAME: &str = "tokyocabinet";

/// As shipped.
const HASH_BUCKETS: u64 = 131_071;
const TREE_BUCKETS: u64 = 32_749;
const MAPPED_BYTES: u64 = 64 << 20;
const CACHED_LEAVES: u64 = 1024;
const CACHED_NODES: u64 = 512;
const FREE_POOL_POWER: i32 = 10;

/// A leaf is split at so many entries, or bytes.
const LEAF_ENTRIES: u64 = 128;
const LEAF_BYTES: u64 = 16_386;
/// Memory of an entry beside its key and value, about.
const ENTRY_BYTES: u64 = 32;

struct Plan {
    tree: bool,
    buckets: i64,
    mapped_bytes: i64,
    cached_leaves: i32,
    cached_nodes: i32,
    free_pool_power: i8,
    durability: DurabilityName,
    printed: BTreeMap<String, String>,
}

fn plan(request: &OpenRequest) -> Result<Plan> {
    let mut settings = Settings::new(NAME, request);
    let tree = settings.word("type", "hash", &["hash", "tree"])? == "tree";
    let shipped = request.profile == Profile::Default;
    let tuned = request.profile == Profile::Tuned;
    let synced = request.durability == DurabilityName::Synced;
    settings.state_flag("sync_after_each_write", synced);
    settings.state("compression", "off");
    settings.state("large", "on");
    let leaf = leaf_bytes(request);
    let (least, wanted) = if tree {
        (TREE_BUCKETS, expected_leaves(request).saturating_mul(2))
    } else {
        (HASH_BUCKETS, request.expected_keys.saturating_mul(2))
    };
    let buckets = if shipped { least } else { wanted.max(least) };
    let mapped = match (tree, shipped) {
        (true, _) => 0,
        (false, true) => MAPPED_BYTES,
        (false, false) => request.budget_bytes,
    };
    let (mut leaves, mut nodes) = (0, 0);
    if tree {
        let fit = (request.budget_bytes / leaf).max(1);
        leaves = settings.fitting("cached_leaves", if shipped { CACHED_LEAVES } else { fit })?;
        nodes = settings.fitting("cached_nodes", CACHED_NODES)?;
    }
    let power = if tuned { 16 } else { FREE_POOL_POWER };
    Ok(Plan {
        tree,
        buckets: settings.fitting("buckets", buckets)?,
        mapped_bytes: settings.fitting("mapped_bytes", mapped)?,
        cached_leaves: leaves,
        cached_nodes: nodes,
        free_pool_power: settings.fitting("free_pool_power", power as u64)?,
        durability: request.durability,
        printed: settings.finish()?,
    })
}

fn entry_bytes(request: &OpenRequest) -> u64 {
    request.expected_value_bytes + u64::from(request.key_bytes) + ENTRY_BYTES
}

/// About how large a full leaf is.
fn leaf_bytes(request: &OpenRequest) -> u64 {
    let entry = entry_bytes(request);
    (LEAF_ENTRIES * entry).min(LEAF_BYTES).max(entry)
}

fn expected_leaves(request: &OpenRequest) -> u64 {
    request.expected_keys.saturating_mul(entry_bytes(request)) / leaf_bytes(request)
}

fn is_tree(request: &OpenRequest) -> bool {
    request.overrides.get("type").is_some_and(|it| it == "tree")
}

pub(super) const TOKYOCABINET: Foreign = Foreign {
    name: NAME,
    summary: "hash table in a file (type=hash), or a B+-tree over it (type=tree)",
    probe: || {
        availability(calls::load().map(|loaded| (loaded.version.clone(), loaded.path.clone())))
    },
    capabilities: Capabilities {
        ordered: false,
        durabilities: UNBUFFERED,
        ..Capabilities::BEST
    },
    lacks: NO_BUFFERED_HASH,
    capabilities_for: Some(|request, general| match is_tree(request) {
        true => Capabilities {
            ordered: true,
            durabilities: &DurabilityName::ALL,
            ..general
        },
        false => general,
    }),
    server: None,
    settings: |request| Ok(plan(request)?.printed),
    open: |request| session::open(plan(request)?, &request.folder),
};
