//! Kyoto Cabinet 1.2, through its C interface (`kclangc.h`): the hash database on a file.
//!
//! # Durability
//! | asked for | what is set |
//! |---|---|
//! | `buffered` | refused: a write goes into a mapping of the file or to the operating system at once |
//! | `written` | as it is by default: survives the process; a power cut may leave a file that it has to reorganize |
//! | `synced` | `kcdbsync` with hard synchronization after each write or batch |
//!
//! That is the peer's like of `written`, and weaker than ours: it promises no
//! prefix of the writes after a power cut.
//!
//! # Settings
//! | setting | `default` | `equal` | `tuned` |
//! |---|---|---|---|
//! | `buckets` (`#bnum`) | as shipped: 1,048,583 | twice the expected entries, no fewer than shipped | as `equal` |
//! | `mapped_bytes` (`#msiz`) | as shipped: 64 MiB | the budget | the whole file, as it is expected to be, where that is more |
//! | `linear` (`#opts=l`) | off | off | on: chains are lists, not trees, as its documents advise where there are buckets enough |
//!
//! A hash database falls off a cliff when there are many more entries than
//! buckets, which are fixed when the file is made. Its cache is the mapping of
//! the file's beginning, which is page cache; compression is never on.
//!
//! A batch is `kcdbsetbulk` and `kcdbremovebulk`, in runs of one kind; other
//! threads see each run whole, but a crash may leave half of it.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::Path;

use kvzone_core::adapter::{Capabilities, DurabilityName, OpenRequest, Profile};
use kvzone_core::error::{Error, Result};

use super::library::{Foreign, NO_BUFFERED_HASH, UNBUFFERED, availability};
use super::settings::Settings;

mod calls;
mod session;

const NAME: &str = "kyotocabinet";

/// Modes of `kcdbopen`.
const WRITER: u32 = 1 << 1;
const CREATE: u32 = 1 << 2;

/// As shipped.
const BUCKETS: u64 = 1_048_583;
const MAPPED_BYTES: u64 = 64 << 20;

/// Bytes of a bucket, and of an entry beside its key and value, about.
const BUCKET_BYTES: u64 = 6;
const ENTRY_BYTES: u64 = 32;

struct Plan {
    buckets: u64,
    mapped_bytes: u64,
    linear: bool,
    /// Each write is followed by a hard synchronization.
    sync: bool,
    printed: BTreeMap<String, String>,
}

fn plan(request: &OpenRequest) -> Result<Plan> {
    let mut settings = Settings::new(NAME, request);
    let sync = request.durability == DurabilityName::Synced;
    settings.state_flag("sync_after_each_write", sync);
    settings.state("compression", "off");
    let wanted = request.expected_keys.saturating_mul(2).max(BUCKETS);
    let (buckets, mapped) = match request.profile {
        Profile::Default => (BUCKETS, MAPPED_BYTES),
        Profile::Equal => (wanted, request.budget_bytes),
        Profile::Tuned => {
            let whole = file_bytes(request, wanted);
            (wanted, request.budget_bytes.max(whole))
        }
    };
    let tuned = request.profile == Profile::Tuned;
    Ok(Plan {
        buckets: settings.number("buckets", buckets)?,
        mapped_bytes: settings.number("mapped_bytes", mapped)?,
        linear: settings.flag("linear", tuned)?,
        sync,
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
    let mut path = format!(
        "{folder}/store.kch#bnum={}#msiz={}",
        plan.buckets, plan.mapped_bytes
    );
    if plan.linear {
        path.push_str("#opts=l");
    }
    CString::new(path).map_err(|error| Error::store(NAME, "dbopen", error))
}

pub(super) const KYOTOCABINET: Foreign = Foreign {
    name: NAME,
    summary: "hash table in a mapped file",
    probe: || {
        availability(calls::load().map(|loaded| (loaded.version.clone(), loaded.path.clone())))
    },
    capabilities: Capabilities {
        ordered: false,
        durabilities: UNBUFFERED,
        compacts: false,
        ..Capabilities::BEST
    },
    lacks: NO_BUFFERED_HASH,
    capabilities_for: None,
    server: None,
    settings: |request| Ok(plan(request)?.printed),
    open: |request| {
        let plan = plan(request)?;
        let path = tuned_path(&plan, &request.folder)?;
        session::open(plan, &path)
    },
};
