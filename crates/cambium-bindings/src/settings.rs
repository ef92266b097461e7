//! LevelDB's options, and what they mean for an engine.
//!
//! | LevelDB | here |
//! |---|---|
//! | `create_if_missing`, `error_if_exists` | the same |
//! | `write_buffer_size` | option `write_buffer_bytes` of the engine |
//! | `block_cache`, `lru_cache_size` | option `cache_bytes` |
//! | `block_size` | option `table_block_bytes` |
//! | `max_file_size` | option `table_bytes` |
//! | bloom filter policy, `bloom_filter_bits` | option `filter_bits` |
//! | `compression` | none, or what the engine does by itself: Snappy is not there |
//! | `comparator` | see [`order`](crate::order) |
//! | `paranoid_checks`, `verify_checksums` | every byte is verified whether asked or not |
//! | `max_open_files`, `block_restart_interval`, `env`, `info_log`, `fill_cache`, `reuse_logs` | nothing here corresponds: accepted, no effect |
//!
//! A size beyond what LevelDB itself would take is brought into its bounds, as
//! LevelDB does; one that the engine does not have has no effect.

use std::fmt;
use std::sync::Arc;

use cambium::Options;

use crate::order::Comparator;

/// The engine that LevelDB's C interface runs on where none is named.
pub const LEVELDB_ENGINE: &str = "wisckey";

/// How a database is opened.
#[derive(Clone)]
pub struct Settings {
    /// The engine of a database that is made; one that is there has its own.
    pub engine: String,
    /// Make the database where none is.
    pub create_if_missing: bool,
    /// Refuse a database that is there already.
    pub error_if_exists: bool,
    /// Open for reading alone; nothing is made.
    pub read_only: bool,
    /// Keys and pointers gathered in memory, in bytes.
    pub write_buffer_bytes: Option<u64>,
    /// The cache of blocks, in bytes.
    pub cache_bytes: Option<u64>,
    /// Blocks of tables, in bytes.
    pub block_bytes: Option<u64>,
    /// Where a table ends, in bytes.
    pub table_bytes: Option<u64>,
    /// Bits a key in filters.
    pub filter_bits: Option<u64>,
    /// An order of keys other than that of their bytes.
    pub comparator: Option<Arc<dyn Comparator>>,
    /// Options of the engine by their own names.
    pub engine_options: Vec<(String, String)>,
    /// Environment, engines and progress.
    pub options: Options,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            engine: LEVELDB_ENGINE.to_string(),
            create_if_missing: false,
            error_if_exists: false,
            read_only: false,
            write_buffer_bytes: None,
            cache_bytes: None,
            block_bytes: None,
            table_bytes: None,
            filter_bits: None,
            comparator: None,
            engine_options: Vec::new(),
            options: Options::new(),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("engine", &self.engine)
            .field("create_if_missing", &self.create_if_missing)
            .field("error_if_exists", &self.error_if_exists)
            .field("engine_options", &self.engine_options)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// The options for an engine: LevelDB's that it has, then those given by
    /// their own names.
    pub fn for_engine(&self, engine: &str) -> Options {
        let kind = self.options.engines_used().get(engine);
        let specs = kind.as_ref().map_or(&[][..], |kind| kind.options());
        let known = |name: &str| {
            let spec = specs.iter().find(|spec| spec.name == name);
            spec.is_some_and(|spec| !spec.at_creation)
        };
        // LevelDB's own bounds (`ClipToRange`).
        let sizes = [
            (
                "write_buffer_bytes",
                self.write_buffer_bytes,
                64 << 10,
                1 << 30,
            ),
            ("cache_bytes", self.cache_bytes, 0, 1 << 40),
            ("table_block_bytes", self.block_bytes, 1 << 10, 1 << 20),
            ("table_bytes", self.table_bytes, 1 << 20, 1 << 30),
            ("filter_bits", self.filter_bits, 0, 30),
        ];
        let mut options = self.options.clone();
        for (name, size, least, most) in sizes {
            if let Some(size) = size.filter(|_| known(name)) {
                options = options.set(name, size.clamp(least, most));
            }
        }
        for (name, value) in &self.engine_options {
            options = options.set(name, value);
        }
        options
    }
}
