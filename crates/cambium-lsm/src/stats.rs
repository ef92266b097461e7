//! Counters, and what they come to.

use crate::format::LEVELS;
use crate::tree::{Tree, lock};
use cambium_io::counter::StripedCounter;
use cambium_io::sync::atomic::{AtomicU64, Ordering};

/// Counted since the tree was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub gets: StripedCounter,
    pub filter_negatives: StripedCounter,
    pub filter_positives: StripedCounter,
    pub filter_mistakes: StripedCounter,
    pub flushes: AtomicU64,
    pub compactions: AtomicU64,
    pub moves: AtomicU64,
    written: AtomicU64,
    flushed: AtomicU64,
    compacted: AtomicU64,
}

/// Lookups of blocks that the cache answered, and those that it did not, of tables
/// that were closed: while one is open it counts its own.
#[derive(Debug, Default)]
pub(crate) struct CacheCounts {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    /// Bytes of blocks, as stored, that lookups and cursors read: of all tables.
    pub read: AtomicU64,
}

impl Counters {
    pub fn add_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn add_flushed(&self, bytes: u64) {
        self.flushed.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn add_compacted(&self, bytes: u64) {
        self.compacted.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// One level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelStatistics {
    /// Tables.
    pub tables: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Bytes at which the level is compacted; 0 for level 0, which goes by its
    /// number of tables, and for the last, which has no bound.
    pub target_bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones of single keys.
    pub deletes: u64,
    /// Fragments of range tombstones.
    pub range_tombstones: u64,
}

/// The tree in numbers. Counts of events are since the tree was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeStatistics {
    /// From level 0 down.
    pub levels: Vec<LevelStatistics>,
    /// Memory of the active memtable.
    pub memtable_bytes: u64,
    /// Sealed memtables that wait for their flush.
    pub sealed_memtables: u64,
    /// Their memory.
    pub sealed_bytes: u64,
    /// Keys looked up.
    pub gets: u64,
    /// Filters that spared a table.
    pub filter_negatives: u64,
    /// Filters that let a lookup through, which then found its key.
    pub filter_positives: u64,
    /// Filters that let a lookup through for nothing.
    pub filter_mistakes: u64,
    /// Blocks that the cache had, for all trees that share it.
    pub cache_hits: u64,
    /// Blocks that it did not have.
    pub cache_misses: u64,
    /// Bytes of blocks that lookups and cursors read from files; jobs are left out.
    pub bytes_read: u64,
    /// Memory of cached blocks.
    pub cache_bytes: u64,
    /// Tables that are open.
    pub open_tables: u64,
    /// Memory of their filters and indexes.
    pub open_table_bytes: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Compactions done.
    pub compactions: u64,
    /// Tables that went down a level as they were.
    pub moves: u64,
    /// Bytes of tables written by flushes.
    pub bytes_flushed: u64,
    /// Bytes of tables read by compactions.
    pub bytes_compacted: u64,
    /// Bytes of tables written by both: this over `bytes_flushed` is the
    /// tree's write amplification.
    pub bytes_written: u64,
    /// Bytes of the manifest; 0 before the first edit of an opening.
    pub manifest_bytes: u64,
    /// Edits in the manifest.
    pub manifest_edits: u64,
    /// Highest sequence number in tables.
    pub flushed_sequence: u64,
}

impl TreeStatistics {
    /// Bytes of all tables.
    pub fn table_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes).sum()
    }

    /// Bytes written for each byte flushed; 0 before the first flush.
    pub fn write_amplification(&self) -> f64 {
        match self.bytes_flushed {
            0 => 0.0,
            flushed => self.bytes_written as f64 / flushed as f64,
        }
    }
}

impl Tree {
    /// Bytes of tables and manifests written since the tree was opened. Waits for
    /// nobody, where [`Tree::statistics`] waits for an edit that is being synced.
    pub fn bytes_written(&self) -> u64 {
        self.context.counters.written.load(Ordering::Relaxed)
    }

    /// The tree in numbers.
    pub fn statistics(&self) -> TreeStatistics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (view, counters) = (self.view.load(), &self.context.counters);
        let cache = &self.context.options.block_cache;
        let open = self.context.tables.totals();
        let closed = &self.context.cache_counts;
        let (manifest_bytes, manifest_edits) = lock(&self.manifest).size();
        TreeStatistics {
            levels: (0..LEVELS)
                .map(|level| self.level_statistics(level))
                .collect(),
            memtable_bytes: view.active.bytes(),
            sealed_memtables: view.sealed.len() as u64,
            sealed_bytes: view.sealed.iter().map(|one| one.memtable.bytes()).sum(),
            gets: counters.gets.sum(),
            filter_negatives: counters.filter_negatives.sum(),
            filter_positives: counters.filter_positives.sum(),
            filter_mistakes: counters.filter_mistakes.sum(),
            cache_hits: of(&closed.hits) + open.cache_hits,
            cache_misses: of(&closed.misses) + open.cache_misses,
            bytes_read: of(&closed.read),
            cache_bytes: cache.bytes(),
            open_tables: open.tables,
            open_table_bytes: open.bytes,
            flushes: of(&counters.flushes),
            compactions: of(&counters.compactions),
            moves: of(&counters.moves),
            bytes_flushed: of(&counters.flushed),
            bytes_compacted: of(&counters.compacted),
            bytes_written: of(&counters.written),
            manifest_bytes,
            manifest_edits,
            flushed_sequence: self.flushed_sequence(),
        }
    }

    fn level_statistics(&self, level: usize) -> LevelStatistics {
        let view = self.view.load();
        let files = &view.version.levels[level];
        let sum = |of: fn(&crate::version::TableMetadata) -> u64| {
            files.iter().map(|file| of(&file.metadata)).sum()
        };
        LevelStatistics {
            tables: files.len() as u64,
            bytes: sum(|table| table.bytes),
            target_bytes: match level {
                0 => 0,
                _ if level + 1 == LEVELS => 0,
                _ => self.level_target(&view.version, level),
            },
            entries: sum(|table| table.entries),
            deletes: sum(|table| table.deletes),
            range_tombstones: sum(|table| table.range_tombstones),
        }
    }

    /// Bytes of tables that lie in `[from, to)`, about: a table at the edge
    /// counts half.
    pub fn approximate_bytes(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> u64 {
        let view = self.view.load();
        let mut bytes = 0;
        for (_, file) in view.version.files() {
            let range = &file.metadata.range;
            if !range.touches(from, to) {
                continue;
            }
            let begins = from.is_none_or(|from| from <= range.smallest.as_slice());
            let ends = to.is_none_or(|to| range.upper.ends_before(to));
            bytes += match begins && ends {
                true => file.metadata.bytes,
                false => file.metadata.bytes / 2,
            };
        }
        bytes
    }
}
