//! Options of a tree. What is fixed at creation (comparator, filter) stands in
//! the manifest; all else may differ with each opening, since every table says
//! how it is built.

use std::sync::Arc;

use cambium_base::{Error, Result};
use cambium_io::{BatchOptions, BlockCache};
use cambium_storage::compression::Compression;

use crate::seeded_bug::SeededBug;

/// The order of keys: by their bytes, as unsigned numbers.
pub const BYTES_COMPARATOR: &str = "cambium.bytes";
/// The filter policy: [`cambium_index::BlockedBloom`] of xxh3-64 hashes.
pub const BLOOM_FILTER: &str = "cambium.blocked_bloom.xxh3";

/// How a tree is shaped and served.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of memory at which the active memtable wants to be sealed. Larger
    /// writes less and makes opening after a crash slower.
    pub memtable_bytes: u64,
    /// Sealed memtables that may wait for a flush before writers must stop.
    pub sealed_limit: usize,
    /// Bytes of a block of entries before compression: what a lookup reads.
    pub block_bytes: u32,
    /// Entries from one whole key to the next in a block. Smaller searches
    /// faster and takes more space.
    pub restart_interval: u16,
    /// Bytes at which a compaction begins another table.
    pub table_bytes: u64,
    /// Bytes of level 1.
    pub level_base_bytes: u64,
    /// How much larger each level is than the one above.
    pub level_ratio: u32,
    /// Tables of level 0 that set off a compaction.
    pub l0_trigger: usize,
    /// Tables of level 0 from which on writers are slowed.
    pub l0_slow: usize,
    /// Tables of level 0 from which on writers are stopped.
    pub l0_stop: usize,
    /// Bits of filter for each key; 0 for none. 10 let about 1 % of needless
    /// reads through.
    pub filter_bits_per_key: u32,
    /// The order of keys, by name.
    pub comparator: String,
    /// Compression of blocks; of blocks of pointers it saves little.
    pub compression: Compression,
    /// Compactions at once, each taken by whichever thread calls
    /// [`crate::Tree::step`].
    pub compaction_jobs: usize,
    /// Memory for open tables (filter, top of the index).
    pub table_cache_bytes: u64,
    /// Most tables that are open, beyond those that are read just then.
    pub open_tables: usize,
    /// How [`crate::Tree::multi_get`] reads.
    pub read: BatchOptions,
    /// Where blocks are cached: often the environment's, which stores share.
    pub block_cache: Arc<BlockCache>,
    /// A defect, in tests.
    #[doc(hidden)]
    pub seeded_bug: Option<SeededBug>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            memtable_bytes: 64 << 20,
            sealed_limit: 3,
            block_bytes: 4096,
            restart_interval: 16,
            table_bytes: 16 << 20,
            level_base_bytes: 256 << 20,
            level_ratio: 10,
            l0_trigger: 4,
            l0_slow: 12,
            l0_stop: 24,
            filter_bits_per_key: 10,
            comparator: BYTES_COMPARATOR.to_owned(),
            compression: Compression::None,
            compaction_jobs: 2,
            table_cache_bytes: 256 << 20,
            open_tables: 512,
            read: BatchOptions::default(),
            block_cache: BlockCache::new(64 << 20),
            seeded_bug: None,
        }
    }
}

impl Options {
    /// Refuses what makes no sense, naming the option and its range.
    pub fn validate(&self) -> Result<()> {
        let bits = u64::from(self.filter_bits_per_key);
        let most_bits = u64::from(cambium_index::bloom::MOST_BITS_PER_KEY);
        within("memtable_bytes", self.memtable_bytes, 1, 64 << 30)?;
        within("sealed_limit", self.sealed_limit as u64, 1, 64)?;
        within("block_bytes", self.block_bytes.into(), 64, 1 << 20)?;
        within("restart_interval", self.restart_interval.into(), 1, 1024)?;
        within("table_bytes", self.table_bytes, 256, 1 << 40)?;
        within("level_base_bytes", self.level_base_bytes, 256, 1 << 50)?;
        within("level_ratio", self.level_ratio.into(), 2, 1000)?;
        within("l0_trigger", self.l0_trigger as u64, 1, 1000)?;
        within("l0_slow", self.l0_slow as u64, 1, 1_000_000)?;
        within("l0_stop", self.l0_stop as u64, 2, 1_000_000)?;
        within("filter_bits_per_key", bits, 0, most_bits)?;
        within("open_tables", self.open_tables as u64, 1, 1 << 20)?;
        within("compaction_jobs", self.compaction_jobs as u64, 1, 64)?;
        if self.l0_trigger > self.l0_slow || self.l0_slow >= self.l0_stop {
            return Err(Error::InvalidArgument(format!(
                "l0_trigger {}, l0_slow {}, l0_stop {}: expected them to rise",
                self.l0_trigger, self.l0_slow, self.l0_stop
            )));
        }
        known_comparator(&self.comparator)?;
        self.compression.check_is_built()?;
        self.read.validate()
    }

    /// The name of the filter policy that new tables get; empty for none.
    pub(crate) fn filter_name(&self) -> &'static str {
        match self.filter_bits_per_key {
            0 => "",
            _ => BLOOM_FILTER,
        }
    }
}

fn within(option: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "{option} {value}: expected {least} to {most}"
    )))
}

/// Refuses an order of keys that this program does not have.
pub(crate) fn known_comparator(name: &str) -> Result<()> {
    if name == BYTES_COMPARATOR {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "comparator {name:?}: this program has {BYTES_COMPARATOR:?} only"
    )))
}

/// Refuses a filter policy that this program does not have.
pub(crate) fn known_filter(name: &str) -> Result<()> {
    if name.is_empty() || name == BLOOM_FILTER {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "filter policy {name:?}: this program has {BLOOM_FILTER:?} only"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Options)) -> String {
        let mut options = Options::default();
        change(&mut options);
        options.validate().unwrap_err().to_string()
    }

    #[test]
    fn options_out_of_range_are_refused_by_name() {
        Options::default().validate().unwrap();
        assert!(refused(|options| options.block_bytes = 8).contains("block_bytes 8"));
        assert!(refused(|options| options.level_ratio = 1).contains("level_ratio 1"));
        assert!(refused(|options| options.l0_slow = 99).contains("l0_stop"));
        let comparator = refused(|options| options.comparator = "reverse".to_owned());
        assert!(comparator.contains("\"reverse\"") && comparator.contains(BYTES_COMPARATOR));
        assert!(
            known_filter("ribbon")
                .unwrap_err()
                .to_string()
                .contains("\"ribbon\"")
        );
    }
}
