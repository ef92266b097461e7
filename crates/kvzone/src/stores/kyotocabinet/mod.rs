//! Kyoto Cabinet 1.2, through its C interface (`kclangc.h`): the hash database
//! on a file, or its B+-tree on one.
//!
//! # Durability
//! | asked for | `type=hash` | `type=tree` |
//! |---|---|---|
//! | `buffered` | refused: a write goes into a mapping of the file or to the operating system at once | dirty pages stay in its cache |
//! | `written` | as it is by default: survives the process; a power cut may leave a file that it has to reorganize | `OAUTOTRAN`: each write is a transaction of its own |
//! | `synced` | `kcdbsync` with hard synchronization after each write or batch | the same |
//!
//! That is the peer's like of `written`, and weaker than ours: it promises no
//! prefix of the writes after a power cut.
//!
//! # Settings
//! | setting | `default` | `equal` | `tuned` |
//! |---|---|---|---|
//! | `type` | `hash` | `hash` | `hash` |
//! | `buckets` (`#bnum`) | as shipped: 1,048,583, and 65,536 in a tree | twice the expected entries, no fewer than shipped; in a tree a tenth of them | as `equal` |
//! | `mapped_bytes` (`#msiz`) | as shipped: 64 MiB | the budget | the whole file, as it is expected to be, where that is more |
//! | `page_cache_bytes` (`#pccap`, tree) | as shipped: 64 MiB | the budget | as `equal` |
//! | `linear` (`#opts=l`) | off | off | on: chains are lists, not trees, as its documents advise where there are buckets enough |
//! | `batch` | `bulk` | `bulk` | `bulk` |
//!
//! A hash database falls off a cliff when there are many more entries than
//! buckets, which are fixed when the file is made. Its cache is the mapping of
//! the file's beginning, which is page cache; compression is never on.
//!
//! A batch is `kcdbsetbulk` and `kcdbremovebulk`, in runs of one kind; other
//! threads see each run whole, but a crash may leave half of it. With
//! `batch=transaction` it is one transaction, whole after a crash too.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::Path;

use kvzone_core::adapter::{Capabilities, DurabilityName, OpenRequest, Profile};
use kvzone_core::error::{Error, Result};

use super::library::{Foreign, availability, durabilities, is_tree, refuse_buffered};
use super::settings::Settings;

mod calls;
mod session;

const NAME: &str = "kyotocabinet";

/// Modes of `kcdbopen`.
const WRITER: u32 = 1 << 1;
const CREATE: u32 = 1 << 2;
const AUTO_TRANSACTION: u32 = 1 << 4;

/// As shipped.
const HASH_BUCKETS: u64 = 1_048_583;
const TREE_BUCKETS: u64 = 64 << 10;
const MAPPED_BYTES: u64 = 64 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchForm {
    Bulk,
    Transaction,
}

/// Bytes of a bucket, and of an entry beside its key and value, about.
const BUCKET_BYTES: u64 = 6;
const ENTRY_BYTES: u64 = 32;

struct Plan {
    tree: bool,
    buckets: u64,
    mapped_bytes: u64,
    page_cache_bytes: u64,
    linear: bool,
    batch: BatchForm,
    /// Each write is followed by a hard synchronization.
    sync: bool,
    mode: u32,
    printed: BTreeMap<String, String>,
}

fn plan(request: &OpenRequest) -> Result<Plan> {
    let mut settings = Settings::new(NAME, request);
    let tree = settings.word("type", "hash", &["hash", "tree"])? == "tree";
    refuse_buffered(NAME, request, tree)?;
    let shipped = request.profile == Profile::Default;
    let mode = match request.durability {
        DurabilityName::Written if tree => WRITER | CREATE | AUTO_TRANSACTION,
        _ => WRITER | CREATE,
    };
    let sync = request.durability == DurabilityName::Synced;
    settings.state_flag("auto_transaction", mode & AUTO_TRANSACTION != 0);
    settings.state_flag("sync_after_each_write", sync);
    settings.state("compression", "off");
    let (least, wanted) = if tree {
        (TREE_BUCKETS, request.expected_keys / 10)
    } else {
        (HASH_BUCKETS, request.expected_keys.saturating_mul(2))
    };
    let buckets = if shipped { least } else { wanted.max(least) };
    let cache = if shipped {
        MAPPED_BYTES
    } else {
        request.budget_bytes
    };
    let tuned = request.profile == Profile::Tuned;
    let mapped = if tuned {
        cache.max(file_bytes(request, buckets))
    } else {
        cache
    };
    let page_cache_bytes = match tree {
        true => settings.number("page_cache_bytes", cache)?,
        false => 0,
    };
    let batch = settings.word("batch", "bulk", &["bulk", "transaction"])?;
    Ok(Plan {
        tree,
        buckets: settings.number("buckets", buckets)?,
        mapped_bytes: settings.number("mapped_bytes", mapped)?,
        page_cache_bytes,
        linear: settings.flag("linear", tuned)?,
        batch: match batch {
            "transaction" => BatchForm::Transaction,
            _ => BatchForm::Bulk,
        },
        sync,
        mode,
        printed: settings.finish()?,
    })
}

/// About how large the file will be.
fn file_bytes(request: &OpenRequest, buckets: u64) -> u64 {
    let entry = request.expected_value_bytes + u64::from(request.key_bytes) + ENTRY_BYTES;
    let entries = request.expected_keys.saturating_mul(entry);
    entries.saturating_add(buckets.saturating_mul(BUCKET_BYTES))
}

/// Path and tuning as one string: `/folder/store.kch#bnum=...#msiz=...`.
fn tuned_path(plan: &Plan, folder: &Path) -> Result<CString> {
    let folder = folder.to_str().filter(|text| !text.contains('#'));
    let Some(folder) = folder else {
        let words = "a folder for it has no # in its name, and is UTF-8: it reads settings there";
        return Err(Error::Usage(format!("{NAME}: {words}")));
    };
    let kind = if plan.tree { "kct" } else { "kch" };
    let mut path = format!(
        "{folder}/store.{kind}#bnum={}#msiz={}",
        plan.buckets, plan.mapped_bytes
    );
    if plan.tree {
        path.push_str(&format!("#pccap={}", plan.page_cache_bytes));
    }
    if plan.linear {
        path.push_str("#opts=l");
    }
    CString::new(path).map_err(|error| Error::store(NAME, "dbopen", error))
}

pub(super) const KYOTOCABINET: Foreign = Foreign {
    name: NAME,
    summary: "hash table in a mapped file (type=hash), or a B+-tree over it (type=tree)",
    probe: || {
        availability(calls::load().map(|loaded| (loaded.version.clone(), loaded.path.clone())))
    },
    capabilities: Capabilities {
        ordered: false,
        atomic_batches: false,
        durabilities: durabilities(false),
        compacts: false,
        ..Capabilities::BEST
    },
    capabilities_for: Some(|request, general| {
        let batch = request.overrides.get("batch");
        Capabilities {
            ordered: is_tree(request),
            atomic_batches: batch.is_some_and(|form| form == "transaction"),
            durabilities: durabilities(is_tree(request)),
            ..general
        }
    }),
    server: None,
    settings: |request| Ok(plan(request)?.printed),
    open: |request| {
        let plan = plan(request)?;
        let path = tuned_path(&plan, &request.folder)?;
        session::open(plan, &path)
    },
};
