//! Options of databases, reads and writes; caches, environments and loggers. What
//! an option means is listed in `cambium_bindings::settings`.

use std::ffi::{c_char, c_int};
use std::path::PathBuf;
use std::sync::Mutex;

use cambium_bindings::c;

use crate::objects::{
    CACHES, COMPARATORS, Cache, DefaultEnvironment, ENVIRONMENTS, FILTERS, OPTIONS, OpenOptions,
    READ_OPTIONS, ReadOptions, WRITE_OPTIONS, WriteOptions, forget, keep, leveldb_cache_t,
    leveldb_comparator_t, leveldb_env_t, leveldb_filterpolicy_t, leveldb_logger_t,
    leveldb_options_t, leveldb_readoptions_t, leveldb_snapshot_t, leveldb_writeoptions_t, lock,
    look_up,
};
use crate::report::quietly;

/// Where LevelDB's tests put their databases.
const TEST_DIRECTORY_VARIABLE: &str = "TEST_TMPDIR";

/// Options at their defaults.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_create() -> *mut leveldb_options_t {
    keep(&OPTIONS, Mutex::new(OpenOptions::default()))
}

/// Lets options go.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_destroy(options: *mut leveldb_options_t) {
    quietly((), || {
        forget(&OPTIONS, options);
        Ok(())
    });
}

fn change(options: *mut leveldb_options_t, change: impl FnOnce(&mut OpenOptions)) {
    quietly((), || {
        change(&mut lock(&*look_up(&OPTIONS, options)?));
        Ok(())
    });
}

/// The order of keys; null is the order of bytes.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_comparator(
    options: *mut leveldb_options_t,
    comparator: *mut leveldb_comparator_t,
) {
    let comparator = look_up(&COMPARATORS, comparator).ok();
    change(options, |options| {
        options.comparator = comparator.map(|comparator| (*comparator).clone());
    });
}

/// The filter policy; null is what the engine does by itself.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_filter_policy(
    options: *mut leveldb_options_t,
    policy: *mut leveldb_filterpolicy_t,
) {
    let policy = look_up(&FILTERS, policy).ok();
    change(options, |options| {
        options.filter = policy.map(|policy| (*policy).clone());
    });
}

/// Make the database where none is.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_create_if_missing(options: *mut leveldb_options_t, on: u8) {
    change(options, |options| options.create_if_missing = on != 0);
}

/// Refuse a database that is there.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_error_if_exists(options: *mut leveldb_options_t, on: u8) {
    change(options, |options| options.error_if_exists = on != 0);
}

/// Every byte is verified whether this is set or not.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_paranoid_checks(_options: *mut leveldb_options_t, _on: u8) {}

/// There is one environment.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_env(
    _options: *mut leveldb_options_t,
    _env: *mut leveldb_env_t,
) {
}

/// The library writes no log for people.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_info_log(
    _options: *mut leveldb_options_t,
    _logger: *mut leveldb_logger_t,
) {
}

/// Bytes that gather in memory before they are sorted into the store.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_write_buffer_size(
    options: *mut leveldb_options_t,
    bytes: usize,
) {
    change(options, |options| {
        options.write_buffer_bytes = Some(bytes as u64)
    });
}

/// Engines bound the files they hold open by themselves.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_max_open_files(
    _options: *mut leveldb_options_t,
    _files: c_int,
) {
}

/// A cache for blocks, of its size; databases do not share it.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_cache(
    options: *mut leveldb_options_t,
    cache: *mut leveldb_cache_t,
) {
    let cache = look_up(&CACHES, cache).ok();
    change(options, |options| {
        options.cache_bytes = cache.map(|cache| cache.bytes)
    });
}

/// Bytes of a table's blocks.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_block_size(options: *mut leveldb_options_t, bytes: usize) {
    change(options, |options| options.block_bytes = Some(bytes as u64));
}

/// Keys in blocks are not laid out so.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_block_restart_interval(
    _options: *mut leveldb_options_t,
    _interval: c_int,
) {
}

/// Bytes at which a table ends.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_max_file_size(options: *mut leveldb_options_t, bytes: usize) {
    change(options, |options| options.table_bytes = Some(bytes as u64));
}

/// `leveldb_no_compression` (0) and `leveldb_snappy_compression` (1): the engine compresses
/// nothing either way, unless its own option says so.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_compression(
    _options: *mut leveldb_options_t,
    _compression: c_int,
) {
}

/// Read options at their defaults.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_create() -> *mut leveldb_readoptions_t {
    keep(&READ_OPTIONS, Mutex::new(ReadOptions::default()))
}

/// Lets read options go.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_destroy(options: *mut leveldb_readoptions_t) {
    quietly((), || {
        forget(&READ_OPTIONS, options);
        Ok(())
    });
}

/// Every byte is verified whether this is set or not.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_verify_checksums(
    _options: *mut leveldb_readoptions_t,
    _on: u8,
) {
}

/// The cache decides by itself what it keeps.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_fill_cache(
    _options: *mut leveldb_readoptions_t,
    _on: u8,
) {
}

/// Read this moment; null is now. Reads answer an error once it is released.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_snapshot(
    options: *mut leveldb_readoptions_t,
    snapshot: *const leveldb_snapshot_t,
) {
    quietly((), || {
        lock(&*look_up(&READ_OPTIONS, options)?).snapshot = snapshot.addr();
        Ok(())
    });
}

/// Write options at their defaults.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_create() -> *mut leveldb_writeoptions_t {
    keep(&WRITE_OPTIONS, Mutex::new(WriteOptions::default()))
}

/// Lets write options go.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_destroy(options: *mut leveldb_writeoptions_t) {
    quietly((), || {
        forget(&WRITE_OPTIONS, options);
        Ok(())
    });
}

/// Answer when the write is on the device; otherwise when the operating system
/// has it.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_set_sync(options: *mut leveldb_writeoptions_t, on: u8) {
    quietly((), || {
        lock(&*look_up(&WRITE_OPTIONS, options)?).sync = on != 0;
        Ok(())
    });
}

/// A cache of so many bytes.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_create_lru(capacity: usize) -> *mut leveldb_cache_t {
    let bytes = capacity as u64;
    keep(&CACHES, Cache { bytes })
}

/// Lets a cache go; a database opened with it keeps its own.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_destroy(cache: *mut leveldb_cache_t) {
    quietly((), || {
        forget(&CACHES, cache);
        Ok(())
    });
}

/// The one environment.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_default_env() -> *mut leveldb_env_t {
    keep(&ENVIRONMENTS, DefaultEnvironment)
}

/// Lets an environment go.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_env_destroy(env: *mut leveldb_env_t) {
    quietly((), || {
        forget(&ENVIRONMENTS, env);
        Ok(())
    });
}

/// A folder for tests, made if it is not there, in memory from `malloc`.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_env_get_test_directory(env: *mut leveldb_env_t) -> *mut c_char {
    quietly(std::ptr::null_mut(), || {
        look_up(&ENVIRONMENTS, env)?;
        let path = std::env::var_os(TEST_DIRECTORY_VARIABLE).map_or_else(
            || {
                let user = rustix::process::geteuid().as_raw();
                PathBuf::from(format!("/tmp/leveldbtest-{user}"))
            },
            PathBuf::from,
        );
        let options = cambium::Options::new();
        let file_system = &options.environment_used().file_system;
        if file_system.metadata(&path)?.is_none() {
            file_system.create_directory(&path)?;
        }
        Ok(c::allocate(path.as_os_str().as_encoded_bytes()))
    })
}
