//! Which tables are open: a bound on the memory of filters and indexes, and on files.
//!
//! A table is opened when it is first read and stays with its [`TableFile`], so
//! that reading an open one costs a look at a pointer. When the open ones exceed
//! a bound, a hand goes round: a table that was read since it last passed is
//! passed over, another is closed. A reader keeps its table as long as it needs.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use cambium_base::Result;
use cambium_io::sync::Mutex;
use cambium_io::sync::atomic::Ordering;

use crate::options::Options;
use crate::table::Table;
use crate::tree::{Context, lock};
use crate::version::TableFile;

/// The hand and what it passes.
#[derive(Debug, Default)]
pub(crate) struct TableCache {
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    tables: VecDeque<(Weak<TableFile>, u64)>,
    bytes: u64,
}

impl TableCache {
    /// The open table of a file.
    pub fn table(&self, context: &Context, file: &Arc<TableFile>) -> Result<Arc<Table>> {
        if let Some(table) = file.open.load_full() {
            if !file.used.load(Ordering::Relaxed) {
                file.used.store(true, Ordering::Relaxed);
            }
            return Ok(table);
        }
        let table = Arc::new(Table::open(context, &file.metadata)?);
        let before = file.open.swap(Some(table.clone()));
        if before.is_none() {
            self.add(file, table.memory_bytes(), &context.options);
        }
        Ok(table)
    }

    fn add(&self, file: &Arc<TableFile>, bytes: u64, options: &Options) {
        let mut ring = lock(&self.ring);
        ring.tables.push_back((Arc::downgrade(file), bytes));
        ring.bytes += bytes;
        // Twice round at most: the first round clears the marks.
        let mut left = ring.tables.len() * 2;
        let (most, limit) = (options.open_tables, options.table_cache_bytes);
        while (ring.tables.len() > most || ring.bytes > limit) && left > 0 {
            left -= 1;
            let Some((table, bytes)) = ring.tables.pop_front() else {
                return;
            };
            match table.upgrade() {
                Some(table) if table.used.swap(false, Ordering::Relaxed) => {
                    ring.tables.push_back((Arc::downgrade(&table), bytes));
                }
                Some(table) => {
                    table.open.store(None);
                    ring.bytes -= bytes;
                }
                None => ring.bytes -= bytes,
            }
        }
    }

    /// Lookups of blocks of open tables that the cache has answered, and those that it has
    /// not; closes the accounts of tables that are gone.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        let mut ring = lock(&self.ring);
        ring.tables.retain(|(table, _)| table.strong_count() > 0);
        ring.bytes = ring.tables.iter().map(|(_, bytes)| bytes).sum();
        let files = ring.tables.iter().filter_map(|(file, _)| file.upgrade());
        let tables = files.filter_map(|file| file.open.load_full());
        tables.fold((0, 0), |(hits, misses), table| {
            let (more_hits, more_misses) = table.hits_and_misses();
            (hits + more_hits, misses + more_misses)
        })
    }
}
