//! LevelDB 1.23, through its C interface (`leveldb/c.h`).
//!
//! # Durability
//! | asked for | what is set | what it means |
//! |---|---|---|
//! | `buffered` | refused | every write is handed to the operating system; there is nothing weaker |
//! | `written` | `sync` off | the log is written, not synced; tables are synced when they are made |
//! | `synced` | `sync` on | fdatasync of the log before the call returns; concurrent writers share one |
//!
//! # Settings
//! | setting | `default` | `equal` | `tuned` |
//! |---|---|---|---|
//! | `cache_bytes` | 8 MiB, as shipped | its share of the budget | as `equal` |
//! | `compression` | snappy, as shipped | off | off |
//! | `write_buffer_bytes` | 4 MiB | an eighth of the budget | as `equal` |
//! | `max_file_bytes` | 2 MiB | 2 MiB | 32 MiB |
//! | `block_bytes` | 4 KiB | 4 KiB | 4 KiB |
//! | `bloom_bits` a key | 0 | 10 | 10 |
//! | `max_open_files` | 1000 | 1000 | 1000 |
//! | `verify_checksums` of reads | off, as shipped | on, as every other store | on |
//!
//! `cache_bytes` is the cache of blocks; up to two write buffers come on top, and the
//! filters of open tables: [`OpenRequest::shares`] counts both.
//!
//! # Waiting for it
//! LevelDB has no call that waits for compaction. [`Open::settle`] looks at what
//! it says of its levels, every 20 ms, until no level is over its limit (four
//! files in level 0, 10 MB in level 1 and ten times as much in each below) and
//! nothing has changed for 300 ms. A compaction that runs longer than that
//! within the limits (one that reads alone asked for) is not seen.
//!
//! `sync` writes an empty batch with a sync, which covers the present log. The
//! log before it, if its memtable is being written as a table at this moment,
//! is covered when that table is synced.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use kvzone_core::adapter::{
    Capabilities, DurabilityName, FILTER_BITS, OpenRequest, OpenStore, Profile, Session,
};
use kvzone_core::error::Result;

use cambium_foreign::functions;
use cambium_foreign::library::{Handle, Library, unfit};
use cambium_foreign::log_structured::{Functions, LEVELDB as WANTED};

use super::library::{Foreign, UNBUFFERED, availability};
use super::log_structured::{Database, Opening};
use super::settings::Settings;

const NAME: &str = "leveldb";

functions! {
    /// What LevelDB has and RocksDB does not, or with other arguments.
    pub(super) struct Own, prefix "leveldb_" {
        major_version() -> c_int;
        minor_version() -> c_int;
        options_set_cache(*mut c_void, *mut c_void);
        options_set_filter_policy(*mut c_void, *mut c_void);
        options_set_max_file_size(*mut c_void, usize);
        options_set_block_size(*mut c_void, usize);
        filterpolicy_create_bloom(c_int) -> *mut c_void;
        filterpolicy_destroy(*mut c_void);
    }
}

struct Loaded {
    functions: Functions,
    own: Own,
    version: String,
    path: PathBuf,
}

fn load() -> Result<&'static Loaded> {
    static LOADED: OnceLock<Result<Loaded>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let library = Library::load(&WANTED)?;
        let unfit = |what| unfit(&WANTED, what);
        let functions = Functions::resolve(library, "leveldb_").map_err(unfit)?;
        let own = Own::resolve(library).map_err(unfit)?;
        // SAFETY: takes nothing, answers a number.
        let major = unsafe { (own.major_version)() };
        // SAFETY: as above.
        let minor = unsafe { (own.minor_version)() };
        Ok(Loaded {
            functions,
            own,
            version: format!("{major}.{minor}"),
            path: library.path.clone(),
        })
    });
    loaded.as_ref().map_err(Clone::clone)
}

struct Plan {
    cache_bytes: u64,
    snappy: bool,
    write_buffer_bytes: u64,
    max_file_bytes: u64,
    block_bytes: u64,
    bloom_bits: c_int,
    max_open_files: c_int,
    verify_checksums: bool,
    sync: bool,
    printed: BTreeMap<String, String>,
}

fn plan(request: &OpenRequest) -> Result<Plan> {
    let tuned = request.profile == Profile::Tuned;
    let shipped = request.profile == Profile::Default;
    let sync = request.durability == DurabilityName::Synced;
    let mut settings = Settings::new(NAME, request);
    settings.state_flag("sync", sync);
    let shares = request.shares();
    let by_budget = |as_shipped, share| if shipped { as_shipped } else { share };
    let cache_bytes = by_budget(8 << 20, shares.cache_bytes);
    let write_buffer_bytes = by_budget(4 << 20, shares.write_buffer_bytes);
    let compression = if shipped { "snappy" } else { "off" };
    Ok(Plan {
        cache_bytes: settings.number("cache_bytes", cache_bytes)?,
        snappy: settings.word("compression", compression, &["off", "snappy"])? == "snappy",
        write_buffer_bytes: settings.number("write_buffer_bytes", write_buffer_bytes)?,
        max_file_bytes: settings
            .number("max_file_bytes", if tuned { 32 << 20 } else { 2 << 20 })?,
        block_bytes: settings.number("block_bytes", 4 << 10)?,
        bloom_bits: settings.int("bloom_bits", if shipped { 0 } else { FILTER_BITS as c_int })?,
        max_open_files: settings.int("max_open_files", 1000)?,
        verify_checksums: settings.flag("verify_checksums", !shipped)?,
        sync,
        printed: settings.finish()?,
    })
}

pub(super) const LEVELDB: Foreign = Foreign {
    name: NAME,
    summary: "LSM-tree with a log; leveled compaction on one thread",
    probe: || availability(load().map(|loaded| (loaded.version.clone(), loaded.path.clone()))),
    capabilities: Capabilities {
        durabilities: UNBUFFERED,
        ..Capabilities::BEST
    },
    lacks: "buffered writes: it hands each to the operating system",
    capabilities_for: None,
    server: None,
    settings: |request| Ok(plan(request)?.printed),
    open: |request| {
        let plan = plan(request)?;
        let loaded = load()?;
        let mut opening = Opening::new(NAME, &loaded.functions)?;
        apply(loaded, &plan, &mut opening)?;
        let database = opening.open(&request.folder)?;
        Ok(Arc::new(Open { database }))
    },
};

fn apply(loaded: &'static Loaded, plan: &Plan, opening: &mut Opening) -> Result<()> {
    let (functions, own) = (&loaded.functions, &loaded.own);
    opening.set_int(functions.options_set_compression, c_int::from(plan.snappy));
    opening.set_bytes(
        functions.options_set_write_buffer_size,
        plan.write_buffer_bytes,
    );
    opening.set_bytes(own.options_set_max_file_size, plan.max_file_bytes);
    opening.set_bytes(own.options_set_block_size, plan.block_bytes);
    opening.set_int(functions.options_set_max_open_files, plan.max_open_files);
    opening.verify_reads(plan.verify_checksums);
    opening.sync_writes(plan.sync);
    let cache = opening.make_cache(plan.cache_bytes)?;
    // SAFETY: options and cache of this library; the cache outlives the database.
    unsafe { (own.options_set_cache)(opening.options.get(), cache.get()) };
    if plan.bloom_bits > 0 {
        // SAFETY: takes a number, answers a new object.
        let filter = unsafe { (own.filterpolicy_create_bloom)(plan.bloom_bits) };
        let filter = Handle::new(filter, NAME, "filterpolicy_create_bloom")?;
        opening.kept.push((filter, own.filterpolicy_destroy));
        // SAFETY: options and filter of this library; it outlives the database.
        unsafe { (own.options_set_filter_policy)(opening.options.get(), filter.get()) };
    }
    Ok(())
}

struct Open {
    database: Arc<Database>,
}

/// Files in level 0 from which it is compacted.
const LEVEL_0_FILES: u64 = 4;
/// Megabytes in level 1 from which it is; each level below ten times as many.
const LEVEL_1_MEGABYTES: f64 = 10.0;
/// How often is looked, and how long nothing may have changed.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const QUIET: Duration = Duration::from_millis(300);

impl OpenStore for Open {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        self.database.clone().session()
    }

    fn sync(&self) -> Result<()> {
        self.database.sync_log()
    }

    fn settle(&self) -> Result<()> {
        let mut before = String::new();
        let mut since = Instant::now();
        loop {
            let now = self.database.property("leveldb.stats");
            if now != before || !within_limits(&now) {
                since = Instant::now();
                before = now;
            } else if since.elapsed() >= QUIET {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn compact(&self) -> Result<()> {
        self.database.compact();
        Ok(())
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        let memory = self.database.property("leveldb.approximate-memory-usage");
        let memory = memory
            .parse()
            .ok()
            .map(|bytes| ("memory_bytes".to_string(), bytes));
        memory.into_iter().collect()
    }

    fn close(self: Arc<Self>) -> Result<()> {
        let database = self.database.clone();
        drop(self);
        database.close()
    }
}

/// True if no level of `leveldb.stats` asks to be compacted. Lines are level,
/// files, megabytes, seconds, megabytes read, megabytes written.
fn within_limits(stats: &str) -> bool {
    stats.lines().all(|line| {
        let fields: Vec<f64> = line
            .split_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        match fields[..] {
            [0.0, files, _, _, _, _] => files < LEVEL_0_FILES as f64,
            [level, _, megabytes, _, _, _] => {
                megabytes <= LEVEL_1_MEGABYTES * 10_f64.powf(level - 1.0)
            }
            _ => true,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_over_their_limits_are_seen() {
        let head = "                               Compactions\n\
                    Level  Files Size(MB) Time(sec) Read(MB) Write(MB)\n\
                    --------------------------------------------------\n";
        let calm = format!("{head}  0        3        4         0        0         4\n");
        assert!(within_limits(&calm));
        assert!(within_limits(""));
        let files = format!("{head}  0        4        4         0        0         4\n");
        assert!(!within_limits(&files));
        let bytes = format!("{head}  1        9       11         0        0         4\n");
        assert!(!within_limits(&bytes));
        let below = format!("{head}  2        9       99         0        0         4\n");
        assert!(within_limits(&below));
    }
}
