//! Counters and what `stats` answers.

use cambium_api::Statistics;
use cambium_base::{Result, SequenceNumber};
use cambium_io::sync::atomic::{AtomicU64, Ordering};
use cambium_storage::record::RecordHeader;

use crate::catalog::Traffic;
use crate::core::{Core, lock};
use crate::format::ENTRY_PREFIX_BYTES;
use crate::options::Keys;

/// Counted since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// What earlier openings wrote, as far as a checkpoint says.
    pub before: Traffic,
    pub user_bytes: AtomicU64,
    pub log_bytes: AtomicU64,
    pub commit_log_bytes: AtomicU64,
    pub index_bytes: AtomicU64,
    pub compaction_bytes: AtomicU64,
    pub syncs: AtomicU64,
    pub checkpoints: AtomicU64,
    pub compactions: AtomicU64,
    pub entry_reads: AtomicU64,
    /// Entries that recovery replayed, and what it took back.
    pub replayed: AtomicU64,
    pub rebuilt_tables: AtomicU64,
}

impl Counters {
    /// Bytes written since the store was made.
    pub fn traffic(&self) -> Traffic {
        self.before.plus(&Traffic {
            user: of(&self.user_bytes),
            data_files: of(&self.log_bytes),
            commit_logs: of(&self.commit_log_bytes),
            index: of(&self.index_bytes),
            compaction: of(&self.compaction_bytes),
        })
    }
}

fn of(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Core {
    /// The store's statistics.
    pub fn statistics(&self) -> Result<Statistics> {
        self.check_open()?;
        let mut all = Statistics::default();
        all.text("engine", "zdb", "the engine of this store");
        let keys = match self.shape.keys {
            Keys::Integer => "integer",
            Keys::String => "string",
        };
        all.text("keys", keys, "what keys are");
        self.size_statistics(&mut all)?;
        self.history_statistics(&mut all);
        self.index_statistics(&mut all);
        self.traffic_statistics(&mut all);
        Ok(all)
    }

    fn size_statistics(&self, all: &mut Statistics) -> Result<()> {
        let (mut entries, mut live, mut log_bytes, mut headers) = (0, 0, 0, 0);
        for number in self.table_numbers() {
            let Some(table) = self.table(number)? else {
                continue;
            };
            for file in table.current_files() {
                entries += of(&file.entries);
                live += of(&file.live);
                log_bytes += file.log.end();
                headers += file.log.geometry().first_offset;
            }
        }
        if self.shape.keys == Keys::String {
            all.count("entries", self.buckets.keys(), "keys with a value");
            all.count(
                "buckets",
                self.buckets.count(),
                "buckets that string keys are hashed to",
            );
            all.count("buckets_used", live, "buckets with an entry");
        } else {
            all.count("entries", live, "keys with a value");
        }
        all.count(
            "entries_in_log",
            entries,
            "entries in the data files, stale ones included",
        );
        all.ratio(
            "stale_share",
            entries - live.min(entries),
            entries,
            "share of the log's entries that are stale; compaction gives them back",
        );
        all.bytes(
            "data_file_bytes",
            log_bytes,
            "bytes of all data files up to their ends",
        );
        let mut space = 0;
        for entry in self.environment.file_system.list(&self.path)? {
            let metadata = self
                .environment
                .file_system
                .metadata(&self.path.join(&entry.name))?;
            space += metadata.map_or(0, |metadata| metadata.allocated);
        }
        all.bytes(
            "space_bytes",
            space,
            "bytes that the store takes on the device, preallocated ones included",
        );
        let header = RecordHeader {
            sequence: SequenceNumber(self.visible.load(Ordering::Acquire)),
            session: 1,
            ..RecordHeader::default()
        };
        let per_entry =
            header.record_bytes(ENTRY_PREFIX_BYTES as u64, 1) + self.shape.alignment / 2;
        let payload = log_bytes
            .saturating_sub(headers)
            .saturating_sub(entries * per_entry);
        let live_bytes = (payload as f64 * live as f64 / entries.max(1) as f64) as u64;
        all.bytes(
            "live_bytes",
            live_bytes,
            "bytes of keys and values that are live, estimated from the share of live entries",
        );
        all.ratio(
            "space_amplification",
            space,
            live_bytes,
            "bytes on the device for each live byte",
        );
        Ok(())
    }

    fn history_statistics(&self, all: &mut Statistics) {
        let past = lock(&self.past);
        all.bytes(
            "history_bytes",
            past.kept_bytes(),
            "bytes of replaced data files that are kept for consumers of the change feed",
        );
        all.count(
            "oldest_change",
            past.lost,
            "the change feed has every change after this sequence number",
        );
    }

    fn index_statistics(&self, all: &mut Statistics) {
        let open = self.open_tables();
        let (mut loaded, mut range) = (0, 0);
        for table in &open {
            let (table_loaded, table_range) = table.index_bytes();
            loaded += table_loaded;
            range += table_range;
        }
        all.count("tables", self.table_numbers().len() as u64, "flat tables");
        all.count(
            "tables_open",
            open.len() as u64,
            "flat tables with files and index in memory",
        );
        all.count(
            "slot_bytes",
            self.shape.slots.bytes() as u64,
            "bytes of index a key of the range",
        );
        all.bytes(
            "index_memory_bytes",
            loaded,
            "memory of the index: pieces touched so far",
        );
        all.bytes("index_range_bytes", range, "memory of the index with every piece touched: slot bytes times range, and nothing per key beside");
        all.count(
            "old_versions_held",
            self.history.held(),
            "old positions kept for open snapshots and cursors",
        );
        all.count(
            "snapshots_open",
            self.history.open_snapshots(),
            "open snapshots and cursors",
        );
        all.bytes("cache_bytes", self.cache.bytes(), "entries cached");
        let (hits, misses) = self.cache.hits_and_misses();
        all.ratio(
            "cache_hit_share",
            hits,
            hits + misses,
            "share of entry lookups that the cache answered",
        );
    }

    fn traffic_statistics(&self, all: &mut Statistics) {
        let counters = &self.counters;
        let traffic = counters.traffic();
        all.bytes(
            "user_bytes_written",
            traffic.user,
            "bytes of keys and values written since the store was made",
        );
        all.bytes(
            "log_bytes_written",
            traffic.data_files,
            "bytes appended to data files since then",
        );
        all.bytes(
            "commit_log_bytes_written",
            traffic.commit_logs,
            "bytes of frames since then",
        );
        all.bytes(
            "index_bytes_written",
            traffic.index,
            "bytes of index pieces since then",
        );
        all.bytes(
            "compaction_bytes_written",
            traffic.compaction,
            "bytes copied by compaction since then",
        );
        all.ratio(
            "write_amplification",
            traffic.written(),
            traffic.user,
            "bytes written for each byte of keys and values",
        );
        all.count("syncs", of(&counters.syncs), "data syncs since then");
        all.count(
            "checkpoints",
            of(&counters.checkpoints),
            "checkpoints since then",
        );
        all.count(
            "compactions",
            of(&counters.compactions),
            "data files compacted since then",
        );
        all.count(
            "entry_reads",
            of(&counters.entry_reads),
            "entries read from files since then",
        );
        all.count(
            "entries_replayed",
            of(&counters.replayed),
            "entries that recovery replayed at this open",
        );
        all.count(
            "tables_rebuilt",
            of(&counters.rebuilt_tables),
            "index files rebuilt from the data files at this open",
        );
        if let Some(plan) = self.memory.get() {
            plan.statistics(all);
        }
        let writer = lock(&self.writer);
        all.count(
            "last_sequence",
            writer.next_sequence - 1,
            "sequence number of the last entry",
        );
        all.count(
            "synced_through",
            writer.synced_through,
            "every entry up to here is on the device",
        );
    }
}
