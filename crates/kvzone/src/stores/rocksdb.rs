//! RocksDB, plain and with values in blob files, through its C interface
//! (`rocksdb/c.h`), as the Maven artifact `org.rocksdb:rocksdbjni` exports it.
//!
//! Debian's RocksDB is built with assertions and would be no fair peer; it is
//! taken only where the artifact's library is not found.
//!
//! # Durability
//! | asked for | what is set | what it means |
//! |---|---|---|
//! | `buffered` | `manual_wal_flush` on | the log is collected in the process |
//! | `written` | `sync` off | the log is written, not synced; tables are synced when they are made |
//! | `synced` | `sync` on | fdatasync of the log before the call returns; concurrent writers share one |
//!
//! # Settings
//! | setting | `default` | `equal` | `tuned` |
//! |---|---|---|---|
//! | `cache_bytes` | 32 MiB, as shipped | its share of the budget | that, and the share of the filters |
//! | `compression` | snappy, as shipped | off | off |
//! | `write_buffer_bytes` | 64 MiB | an eighth of the budget | as `equal` |
//! | `write_buffers` | 2 | 2 | 2 |
//! | `background_jobs` | 2 | 2 | as many as there are processors, 2 at least |
//! | `block_bytes` | 4 KiB | 4 KiB | 16 KiB |
//! | `bytes_per_sync` | 0 | 0 | 1 MiB |
//! | `cache_index_and_filters`, with those of level 0 pinned | off | off | on |
//! | `bloom_bits` a key | 0 | 10 | 10 |
//! | `max_open_files` | no limit | no limit | no limit |
//! | `verify_checksums` of reads | on, as shipped | on | on |
//! | `blob_files` | fixed by the name: off in `rocksdb`, on in `rocksdb-blob` | | |
//! | `min_blob_bytes` | 0, as shipped | 512 | 512 |
//! | `blob_file_bytes` | 256 MiB | 256 MiB | 256 MiB |
//! | `blob_gc` | off, as shipped | on | on |
//! | `blob_gc_age_cutoff` | 0.25 | 0.25 | 0.25 |
//! | `blob_gc_force_threshold` | 1.0 | 1.0 | 1.0 |
//!
//! `tuned` is the list "Other general options" of RocksDB's wiki page *Setup Options and Basic
//! Tuning*; the rest of that list is the default of this version.
//!
//! `cache_bytes` is the cache of blocks, with blobs in the same one; up to
//! `write_buffers` times `write_buffer_bytes` come on top, and the filters of open
//! tables: [`OpenRequest::shares`] counts both. The last five are
//! those of `rocksdb-blob` alone.
//!
//! A read goes into the caller's buffer (`rocksdb_get_into_buffer`) where the
//! library has that call. `settle` is `rocksdb_wait_for_compact`, or where that
//! is missing a look at its counters every 20 ms; it does not flush the
//! memtable, which nothing has put off.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_double, c_int, c_uchar, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kvzone_core::adapter::{
    Availability, Capabilities, DurabilityName, FILTER_BITS, OpenRequest, OpenStore, Profile,
    Session,
};
use kvzone_core::error::{Error, Result};

use cambium_foreign::functions;
use cambium_foreign::library::{Handle, Library, unfit};
use cambium_foreign::log_structured::{Functions, ROCKSDB as WANTED};

use super::library::{Foreign, availability};
use super::log_structured::{Database, GetIntoBuffer, Opening};
use super::settings::Settings;

const PLAIN: &str = "rocksdb";
const BLOB: &str = "rocksdb-blob";

/// Kinds of compression in the C interface.
const NO_COMPRESSION: c_int = 0;
const SNAPPY: c_int = 1;

type Object = *mut c_void;
type ErrorOut = *mut *mut c_char;

functions! {
    /// What RocksDB has and LevelDB does not.
    pub(super) struct Own, prefix "rocksdb_" {
        options_set_max_background_jobs(Object, c_int);
        options_set_max_write_buffer_number(Object, c_int);
        options_set_manual_wal_flush(Object, c_uchar);
        options_set_bytes_per_sync(Object, u64);
        options_set_block_based_table_factory(Object, Object);
        block_based_options_create() -> Object;
        block_based_options_destroy(Object);
        block_based_options_set_block_cache(Object, Object);
        block_based_options_set_filter_policy(Object, Object);
        block_based_options_set_block_size(Object, usize);
        block_based_options_set_cache_index_and_filter_blocks(Object, c_uchar);
        block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(Object, c_uchar);
        filterpolicy_create_bloom(c_double) -> Object;
        flush_wal(Object, c_uchar, ErrorOut);
        property_int(Object, *const c_char, *mut u64) -> c_int;
    }
}

functions! {
    /// Values in files of their own: since 6.18.
    pub(super) struct Blobs, prefix "rocksdb_" {
        options_set_enable_blob_files(Object, c_uchar);
        options_set_min_blob_size(Object, u64);
        options_set_blob_file_size(Object, u64);
        options_set_enable_blob_gc(Object, c_uchar);
        options_set_blob_gc_age_cutoff(Object, c_double);
        options_set_blob_gc_force_threshold(Object, c_double);
        options_set_blob_compression_type(Object, c_int);
        options_set_blob_cache(Object, Object);
    }
}

functions! {
    /// Waiting for background work: since 10.
    pub(super) struct Wait, prefix "rocksdb_" {
        wait_for_compact(Object, Object, ErrorOut);
        wait_for_compact_options_create() -> Object;
        wait_for_compact_options_destroy(Object);
    }
}

struct Loaded {
    functions: Functions,
    own: Own,
    blobs: std::result::Result<Blobs, String>,
    wait: Option<Wait>,
    get_into_buffer: Option<GetIntoBuffer>,
    version: String,
    path: PathBuf,
}

fn load() -> Result<&'static Loaded> {
    static LOADED: OnceLock<Result<Loaded>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let library = Library::load(&WANTED)?;
        let unfit = |what| unfit(&WANTED, what);
        // SAFETY: the declaration of `rocksdb/c.h` 11.8.
        let get_into_buffer = unsafe { library.symbol("rocksdb_get_into_buffer") };
        Ok(Loaded {
            functions: Functions::resolve(library, "rocksdb_").map_err(unfit)?,
            own: Own::resolve(library).map_err(unfit)?,
            blobs: Blobs::resolve(library),
            wait: Wait::resolve(library).ok(),
            get_into_buffer: get_into_buffer.ok(),
            version: version(library),
            path: library.path.clone(),
        })
    });
    loaded.as_ref().map_err(Clone::clone)
}

/// The C interface does not say its version. The function that Java calls for
/// it does, of the artifact's library; of others the file's name.
fn version(library: &Library) -> String {
    type JavaVersion = unsafe extern "C" fn(Object, Object) -> c_int;
    // SAFETY: `jint Java_org_rocksdb_RocksDB_version(JNIEnv*, jclass)`.
    let ask = unsafe { library.symbol::<JavaVersion>("Java_org_rocksdb_RocksDB_version") };
    if let Ok(ask) = ask {
        // SAFETY: it looks at neither argument, and answers a constant.
        let packed = unsafe { ask(ptr::null_mut(), ptr::null_mut()) };
        return format!(
            "{}.{}.{}",
            packed >> 16,
            (packed >> 8) & 0xff,
            packed & 0xff
        );
    }
    let name = library.path.file_name().and_then(|name| name.to_str());
    let numbers = name.and_then(|name| name.strip_prefix("librocksdb.so."));
    numbers.unwrap_or("unknown").to_string()
}

/// Settings of values in files of their own.
struct BlobPlan {
    min_blob_bytes: u64,
    blob_file_bytes: u64,
    gc: bool,
    gc_age_cutoff: f64,
    gc_force_threshold: f64,
}

struct Plan {
    cache_bytes: u64,
    snappy: bool,
    write_buffer_bytes: u64,
    write_buffers: c_int,
    background_jobs: c_int,
    block_bytes: usize,
    bytes_per_sync: u64,
    cache_index_and_filters: bool,
    bloom_bits: c_int,
    max_open_files: c_int,
    verify_checksums: bool,
    durability: DurabilityName,
    blobs: Option<BlobPlan>,
    printed: BTreeMap<String, String>,
}

fn plan(store: &'static str, request: &OpenRequest) -> Result<Plan> {
    let tuned = request.profile == Profile::Tuned;
    let shipped = request.profile == Profile::Default;
    let mut settings = Settings::new(store, request);
    let durability = request.durability;
    settings.state_flag("sync", durability == DurabilityName::Synced);
    let buffered = durability == DurabilityName::Buffered;
    settings.state_flag("manual_wal_flush", buffered);
    settings.state_flag("blob_files", store == BLOB);
    let shares = request.shares();
    let by_budget = |as_shipped, share| if shipped { as_shipped } else { share };
    let of_filters = if tuned { shares.filter_bytes } else { 0 };
    let cache_bytes = by_budget(32 << 20, shares.cache_bytes + of_filters);
    let write_buffer_bytes = by_budget(64 << 20, shares.write_buffer_bytes);
    let compression = if shipped { "snappy" } else { "off" };
    let jobs = if tuned { processors() } else { 2 };
    let bloom = if shipped { 0 } else { FILTER_BITS as c_int };
    Ok(Plan {
        cache_bytes: settings.number("cache_bytes", cache_bytes)?,
        snappy: settings.word("compression", compression, &["off", "snappy"])? == "snappy",
        write_buffer_bytes: settings.number("write_buffer_bytes", write_buffer_bytes)?,
        write_buffers: settings.int("write_buffers", 2)?,
        background_jobs: settings.int("background_jobs", jobs)?,
        block_bytes: settings.fitting("block_bytes", if tuned { 16 << 10 } else { 4 << 10 })?,
        bytes_per_sync: settings.number("bytes_per_sync", if tuned { 1 << 20 } else { 0 })?,
        cache_index_and_filters: settings.flag("cache_index_and_filters", tuned)?,
        bloom_bits: settings.int("bloom_bits", bloom)?,
        max_open_files: settings.int("max_open_files", -1)?,
        verify_checksums: settings.flag("verify_checksums", true)?,
        durability,
        blobs: match store {
            BLOB => Some(blob_plan(&mut settings, shipped)?),
            _ => None,
        },
        printed: settings.finish()?,
    })
}

fn blob_plan(settings: &mut Settings, shipped: bool) -> Result<BlobPlan> {
    Ok(BlobPlan {
        min_blob_bytes: settings.number("min_blob_bytes", if shipped { 0 } else { 512 })?,
        blob_file_bytes: settings.number("blob_file_bytes", 256 << 20)?,
        gc: settings.flag("blob_gc", !shipped)?,
        gc_age_cutoff: settings.share("blob_gc_age_cutoff", 0.25)?,
        gc_force_threshold: settings.share("blob_gc_force_threshold", 1.0)?,
    })
}

fn processors() -> c_int {
    let count = std::thread::available_parallelism().map_or(2, usize::from);
    c_int::try_from(count).unwrap_or(2).max(2)
}

fn load_for(store: &'static str) -> Result<&'static Loaded> {
    let named = load().map_err(|error| match error {
        Error::Missing { what, remedy, .. } => Error::Missing {
            store: store.to_string(),
            what,
            remedy,
        },
        error => error,
    })?;
    match &named.blobs {
        Err(what) if store == BLOB => Err(unfit(&WANTED, what.clone()).into()),
        _ => Ok(named),
    }
}

fn probe(store: &'static str) -> Availability {
    let loaded = load_for(store);
    availability(loaded.map(|loaded| (loaded.version.clone(), loaded.path.clone())))
}

fn open(store: &'static str, request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
    let plan = plan(store, request)?;
    let loaded = load_for(store)?;
    let mut opening = Opening::new(store, &loaded.functions)?;
    opening.get_into_buffer = loaded.get_into_buffer;
    apply(loaded, &plan, &mut opening)?;
    let database = opening.open(&request.folder)?;
    Ok(Arc::new(Open { loaded, database }))
}

/// Values in the tree: see the essay.
pub(super) const ROCKSDB: Foreign = Foreign {
    name: PLAIN,
    summary: "LSM-tree with a log; leveled compaction on several threads",
    probe: || probe(PLAIN),
    capabilities: Capabilities::BEST,
    lacks: "",
    capabilities_for: None,
    server: None,
    settings: |request| Ok(plan(PLAIN, request)?.printed),
    open: |request| open(PLAIN, request),
};

/// Values in files of their own.
pub(super) const ROCKSDB_BLOB: Foreign = Foreign {
    name: BLOB,
    summary: "RocksDB with larger values in blob files, as WiscKey has them (BlobDB)",
    probe: || probe(BLOB),
    settings: |request| Ok(plan(BLOB, request)?.printed),
    open: |request| open(BLOB, request),
    ..ROCKSDB
};

fn apply(loaded: &'static Loaded, plan: &Plan, opening: &mut Opening) -> Result<()> {
    let (functions, own) = (&loaded.functions, &loaded.own);
    let compression = if plan.snappy { SNAPPY } else { NO_COMPRESSION };
    opening.set_int(functions.options_set_compression, compression);
    opening.set_bytes(
        functions.options_set_write_buffer_size,
        plan.write_buffer_bytes,
    );
    opening.set_int(own.options_set_max_write_buffer_number, plan.write_buffers);
    opening.set_int(own.options_set_max_background_jobs, plan.background_jobs);
    opening.set_int(functions.options_set_max_open_files, plan.max_open_files);
    // SAFETY: the setter's object is an `options`, as this is.
    unsafe { (own.options_set_bytes_per_sync)(opening.options.get(), plan.bytes_per_sync) };
    let buffered = plan.durability == DurabilityName::Buffered;
    opening.set_flag(own.options_set_manual_wal_flush, buffered);
    opening.verify_reads(plan.verify_checksums);
    opening.sync_writes(plan.durability == DurabilityName::Synced);
    let cache = opening.make_cache(plan.cache_bytes)?;
    apply_table(own, plan, cache, opening)?;
    if let (Some(blobs), Ok(functions)) = (&plan.blobs, &loaded.blobs) {
        apply_blobs(functions, blobs, compression, cache, opening);
    }
    Ok(())
}

/// Cache and filter belong to the format of tables.
fn apply_table(own: &Own, plan: &Plan, cache: Handle, opening: &mut Opening) -> Result<()> {
    // SAFETY: takes nothing, answers a new object.
    let table = unsafe { (own.block_based_options_create)() };
    let table = Handle::new(table, opening.store, "block_based_options_create")?;
    opening.kept.push((table, own.block_based_options_destroy));
    // SAFETY: both objects are of this library; the cache is counted by it.
    unsafe { (own.block_based_options_set_block_cache)(table.get(), cache.get()) };
    // SAFETY: the setter's object is a table's options, as this is.
    unsafe { (own.block_based_options_set_block_size)(table.get(), plan.block_bytes) };
    for set in [
        own.block_based_options_set_cache_index_and_filter_blocks,
        own.block_based_options_set_pin_l0_filter_and_index_blocks_in_cache,
    ] {
        // SAFETY: as above.
        unsafe { set(table.get(), c_uchar::from(plan.cache_index_and_filters)) };
    }
    if plan.bloom_bits > 0 {
        // SAFETY: takes a number, answers a new object.
        let filter = unsafe { (own.filterpolicy_create_bloom)(f64::from(plan.bloom_bits)) };
        let filter = Handle::new(filter, opening.store, "filterpolicy_create_bloom")?;
        // SAFETY: both are of this library; the table's options own the filter.
        unsafe { (own.block_based_options_set_filter_policy)(table.get(), filter.get()) };
    }
    // SAFETY: both are of this library; what is in `table` is copied.
    unsafe { (own.options_set_block_based_table_factory)(opening.options.get(), table.get()) };
    Ok(())
}

fn apply_blobs(
    blobs: &Blobs,
    plan: &BlobPlan,
    compression: c_int,
    cache: Handle,
    opening: &Opening,
) {
    opening.set_flag(blobs.options_set_enable_blob_files, true);
    opening.set_flag(blobs.options_set_enable_blob_gc, plan.gc);
    opening.set_int(blobs.options_set_blob_compression_type, compression);
    let options = opening.options.get();
    // SAFETY: the setter's object is an `options`, as this is.
    unsafe { (blobs.options_set_min_blob_size)(options, plan.min_blob_bytes) };
    // SAFETY: as above.
    unsafe { (blobs.options_set_blob_file_size)(options, plan.blob_file_bytes) };
    // SAFETY: as above.
    unsafe { (blobs.options_set_blob_gc_age_cutoff)(options, plan.gc_age_cutoff) };
    // SAFETY: as above.
    unsafe { (blobs.options_set_blob_gc_force_threshold)(options, plan.gc_force_threshold) };
    // SAFETY: as above; the cache is counted by the library.
    unsafe { (blobs.options_set_blob_cache)(options, cache.get()) };
}

struct Open {
    loaded: &'static Loaded,
    database: Arc<Database>,
}

/// Counters that are reported.
const COUNTERS: &[&str] = &[
    "rocksdb.estimate-num-keys",
    "rocksdb.total-sst-files-size",
    "rocksdb.total-blob-file-size",
    "rocksdb.live-blob-file-garbage-size",
    "rocksdb.cur-size-all-mem-tables",
    "rocksdb.block-cache-usage",
    "rocksdb.estimate-pending-compaction-bytes",
];

/// Counters that are 0 when nothing is under way.
const UNDER_WAY: &[&str] = &[
    "rocksdb.mem-table-flush-pending",
    "rocksdb.num-running-flushes",
    "rocksdb.compaction-pending",
    "rocksdb.num-running-compactions",
];

impl Open {
    fn counter(&self, name: &str) -> Option<u64> {
        let name = CString::new(name).ok()?;
        let mut value = 0;
        let ask = self.loaded.own.property_int;
        // SAFETY: an open database, a C string, a place for the answer.
        let failed = unsafe { ask(self.database.handle(), name.as_ptr(), &mut value) };
        (failed == 0).then_some(value)
    }

    fn wait_for_compaction(&self, wait: &Wait) -> Result<()> {
        // SAFETY: takes nothing, answers a new object.
        let options = unsafe { (wait.wait_for_compact_options_create)() };
        let mut problem = ptr::null_mut();
        // SAFETY: an open database, options made above, an error that is null.
        unsafe { (wait.wait_for_compact)(self.database.handle(), options, &mut problem) };
        // SAFETY: made above, and not used after this.
        unsafe { (wait.wait_for_compact_options_destroy)(options) };
        self.database.error("wait_for_compact", problem)
    }
}

impl OpenStore for Open {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        self.database.clone().session()
    }

    fn sync(&self) -> Result<()> {
        let mut problem = ptr::null_mut();
        // SAFETY: an open database, an error that is null.
        unsafe { (self.loaded.own.flush_wal)(self.database.handle(), 1, &mut problem) };
        self.database.error("flush_wal", problem)
    }

    fn settle(&self) -> Result<()> {
        if let Some(wait) = &self.loaded.wait {
            return self.wait_for_compaction(wait);
        }
        let busy = |name: &&str| self.counter(name).unwrap_or(0) > 0;
        while UNDER_WAY.iter().any(busy) {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        self.database.compact();
        Ok(())
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        let found = COUNTERS.iter().filter_map(|name| {
            let value = self.counter(name)?;
            let name = name.trim_start_matches("rocksdb.").replace('-', "_");
            Some((name, value as f64))
        });
        found.collect()
    }

    fn close(self: Arc<Self>) -> Result<()> {
        let database = self.database.clone();
        drop(self);
        database.close()
    }
}
