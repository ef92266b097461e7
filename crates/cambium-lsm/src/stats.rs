//! Counters, and what they come to.

use crate::format::LEVELS;
use crate::read::ReadThrough;
use crate::tree::Tree;
use cambium_base::Result;
use cambium_io::sync::atomic::{AtomicU64, Ordering};

/// Counted since the tree was opened. Lookups of blocks are those of tables that were closed:
/// while one is open it counts its own.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Bytes of tables.
    pub written: AtomicU64,
    /// Lookups of blocks that the cache answered.
    pub hits: AtomicU64,
    /// Those that it did not.
    pub misses: AtomicU64,
    /// Bytes of blocks, as stored, that lookups and cursors read: of all tables.
    pub read: AtomicU64,
}

/// The part of a tree that lies in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreePart {
    /// Entries of write buffers, old versions and tombstones included.
    pub buffered_entries: u64,
    /// Those of all keys.
    pub all_buffered_entries: u64,
    /// Bytes of tables.
    pub table_bytes: u64,
    /// Those of all keys.
    pub all_table_bytes: u64,
}

/// One level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelStatistics {
    /// Tables.
    pub tables: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
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
    /// Blocks that the cache had, for all trees that share it.
    pub cache_hits: u64,
    /// Blocks that it did not have.
    pub cache_misses: u64,
    /// Bytes of blocks that lookups and cursors read from files; jobs are left out.
    pub bytes_read: u64,
}

impl TreeStatistics {
    /// Bytes of all tables.
    pub fn table_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes).sum()
    }
}

impl Tree {
    /// Bytes of tables written since the tree was opened.
    pub fn bytes_written(&self) -> u64 {
        self.context.counters.written.load(Ordering::Relaxed)
    }

    /// The tree in numbers.
    pub fn statistics(&self) -> TreeStatistics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (view, counters) = (self.view.load(), &self.context.counters);
        let (hits, misses) = self.context.tables.hits_and_misses();
        TreeStatistics {
            levels: (0..LEVELS)
                .map(|level| self.level_statistics(level))
                .collect(),
            memtable_bytes: view.active.bytes(),
            sealed_memtables: view.sealed.len() as u64,
            sealed_bytes: view.sealed.iter().map(|one| one.memtable.bytes()).sum(),
            cache_hits: of(&counters.hits) + hits,
            cache_misses: of(&counters.misses) + misses,
            bytes_read: of(&counters.read),
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
            entries: sum(|table| table.entries),
        }
    }

    /// Estimates the part of the tree that lies in `[from, to)`. Reads three blocks of a table at
    /// an end of the range.
    ///
    /// # Errors
    /// [`cambium_base::Error::Corruption`] and errors of reading.
    pub fn part_between(&self, from: &[u8], to: &[u8]) -> Result<TreePart> {
        let view = self.view.load();
        let mut part = TreePart::default();
        for memtable in view.memtables() {
            let (inside, all) = memtable.count_between(from, to);
            part.buffered_entries += inside;
            part.all_buffered_entries += all;
        }
        for (_, file) in view.version.files() {
            let (range, bytes) = (&file.metadata.range, file.metadata.bytes);
            part.all_table_bytes += bytes;
            if from >= to || !range.touches(Some(from), Some(to)) {
                continue;
            }
            let offset_of = |key| {
                let table = self.context.table(file)?;
                table.offset_of(key, &mut ReadThrough)
            };
            let start = match from <= range.smallest.as_slice() {
                true => 0,
                false => offset_of(from)?,
            };
            let end = match range.upper.ends_before(to) {
                true => bytes,
                false => offset_of(to)?,
            };
            part.table_bytes += end.saturating_sub(start);
        }
        Ok(part)
    }
}
