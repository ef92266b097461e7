//! Counters and what `stats` answers.

use std::sync::Arc;

use cambium_api::{Direction, KeyRange, Statistics};
use cambium_base::Result;
use cambium_io::counter::StripedCounter;
use cambium_io::sync::atomic::{AtomicU64, Ordering};

use crate::core::Core;
use crate::cursor::EntryCursor;
use crate::format::{SegmentKind, full_range};
use crate::ledger::LedgerState;
use crate::note::Traffic;

/// Counted since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// What earlier openings wrote, as far as the manifest says.
    pub before: Traffic,
    pub user_bytes: AtomicU64,
    pub log_bytes: AtomicU64,
    pub moved_bytes: AtomicU64,
    pub freed_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub gets: StripedCounter,
    pub syncs: AtomicU64,
    pub collections: AtomicU64,
    pub holes: AtomicU64,
    pub value_reads: StripedCounter,
    /// Of the keys and values that lookups and cursors answered.
    pub answered_bytes: StripedCounter,
    /// Writes that recovery found in the log.
    pub replayed: AtomicU64,
    /// Writers were made to wait for background work for so long.
    pub waited_nanoseconds: AtomicU64,
    /// Log bytes when a writer was last made to pause.
    pub paused_at_bytes: AtomicU64,
    /// How far space has come from where collection begins to its limit, in
    /// thousandths: collection hurries, and writers are slowed.
    pub space_pressure: AtomicU64,
    /// What writes were seen to hide ([`crate::pace`]).
    pub hiding: Hiding,
}

/// Samples of what writes hide; changed under the writer lock alone, but for what the
/// collector forgives.
#[derive(Debug, Default)]
pub(crate) struct Hiding {
    /// Of the samples of late, millionths that hide a value.
    pub share: AtomicU64,
    /// Samples taken.
    pub samples: AtomicU64,
    /// Bytes hidden by all writes so far, about.
    pub bytes: AtomicU64,
}

fn of(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Core {
    /// Bytes written since the store was made.
    pub fn traffic(&self) -> Traffic {
        let before = &self.counters.before;
        Traffic {
            user_bytes: before.user_bytes + of(&self.counters.user_bytes),
            log_bytes: before.log_bytes + of(&self.counters.log_bytes),
            moved_bytes: before.moved_bytes + of(&self.counters.moved_bytes),
            freed_bytes: before.freed_bytes + of(&self.counters.freed_bytes),
            tree_bytes: before.tree_bytes + self.tree.bytes_written(),
        }
    }

    /// The store's statistics.
    pub fn statistics(&self) -> Result<Statistics> {
        self.check_open()?;
        let mut all = Statistics::default();
        self.space_statistics(&mut all)?;
        self.tree_statistics(&mut all);
        self.traffic_statistics(&mut all);
        if let Some(plan) = self.memory.get() {
            plan.statistics(&mut all);
        }
        Ok(all)
    }

    fn space_statistics(&self, all: &mut Statistics) -> Result<()> {
        let segments = self.segments.load_full();
        let state = self.ledger.state().clone();
        let mut on_disk = 0;
        for segment in segments.values() {
            on_disk += segment.log.file().allocated_bytes()?;
        }
        let (total, live) = state.total_and_live();
        let moved = state.segments.values();
        let moved = moved.filter(|account| account.kind == SegmentKind::Moved);
        let worst = state
            .segments
            .iter()
            .map(|(&number, account)| (number, state.kept_bytes(number, account), account))
            .max_by_key(|(_, kept, account)| kept.saturating_sub(account.live_bytes()));
        all.count(
            "segments",
            segments.len() as u64,
            "segments of the value log, those included that only snapshots hold",
        );
        all.count(
            "open_segments",
            self.home.files.count() as u64,
            "segments whose files are open, those included that are being written",
        );
        all.count(
            "moved_segments",
            moved.count() as u64,
            "segments that garbage collection wrote, their values in key order",
        );
        all.bytes("value_log_bytes", on_disk, "space of the value log on disk");
        all.bytes(
            "value_log_live_bytes",
            live,
            "records of the value log that tables point to",
        );
        all.bytes(
            "value_log_garbage_bytes",
            total.saturating_sub(live),
            "the rest of the segments that tables know, holes left out",
        );
        self.hole_statistics(&state, all);
        self.history_statistics(&state, all);
        self.snapshot_statistics(&state, all);
        if let Some((number, kept, account)) = worst {
            all.text(
                "most_garbage",
                format!(
                    "segment {number}: {} of {} bytes",
                    kept.saturating_sub(account.live_bytes()),
                    kept
                ),
                "the segment with the most garbage",
            );
        }
        all.bytes(
            "reserve_bytes",
            self.reserve.bytes(),
            "space held back for a full disk",
        );
        all.count(
            "reserve_opened",
            self.reserve.times(),
            "times that deletes, or what makes room, had to have the reserve since the store was opened",
        );
        all.ratio(
            "space_amplification",
            total,
            live,
            "bytes of segments that tables know, holes left out, per live byte in them",
        );
        Ok(())
    }

    fn hole_statistics(&self, state: &LedgerState, all: &mut Statistics) {
        let segments = state.segments.keys();
        let given_back = segments.map(|&number| state.holes.given_back(number)).sum();
        let segments = state.segments.keys();
        let holes = segments.filter_map(|&number| state.holes.of(number));
        all.count(
            "value_log_holes",
            holes.map(|holes| holes.count() as u64).sum(),
            "runs of freed values within segments",
        );
        all.bytes(
            "value_log_hole_bytes",
            given_back,
            "of segments that went back to the file system, or are about to",
        );
        all.text(
            "hole_punching",
            match (self.tuning.hole_bytes, state.holes.is_refused()) {
                (0, _) => "off",
                (_, true) => "the file system gives nothing back",
                (_, false) => "on",
            }
            .to_string(),
            "whether freed values within segments give their space back",
        );
        all.count(
            "holes_punched",
            of(&self.counters.holes),
            "since the store was opened, those of earlier openings once more",
        );
    }

    fn tree_statistics(&self, all: &mut Statistics) {
        let tree = self.tree.statistics();
        let tables = tree.levels.iter().map(|level| level.tables).sum();
        let entries = tree.levels.iter().map(|level| level.entries).sum();
        all.bytes(
            "tree_bytes",
            tree.table_bytes(),
            "tables of keys, pointers and small values",
        );
        all.count("tree_tables", tables, "tables of the tree");
        all.count(
            "tree_entries",
            entries,
            "entries of the tree's tables; a key that was overwritten may have several",
        );
        all.bytes(
            "write_buffer_bytes",
            tree.memtable_bytes + tree.sealed_bytes,
            "memory of write buffers, those included that are being flushed",
        );
        all.ratio(
            "tree_cache_hit_ratio",
            tree.cache_hits,
            tree.cache_hits + tree.cache_misses,
            "share of lookups of the tree's blocks that the cache answered",
        );
    }

    fn traffic_statistics(&self, all: &mut Statistics) {
        let traffic = self.traffic();
        all.bytes(
            "user_bytes_written",
            traffic.user_bytes,
            "keys and values written since the store was made",
        );
        all.bytes(
            "log_bytes_written",
            traffic.log_bytes,
            "records that writers appended, and the padding behind each synced group",
        );
        all.bytes(
            "tree_bytes_written",
            traffic.tree_bytes,
            "tables and manifests that flushes and compactions wrote",
        );
        all.bytes(
            "collection_bytes_written",
            traffic.moved_bytes,
            "records that garbage collection moved",
        );
        all.bytes(
            "collection_bytes_freed",
            traffic.freed_bytes,
            "segments that garbage collection freed",
        );
        all.count(
            "collections",
            of(&self.counters.collections),
            "segments that were read and collected since the store was opened",
        );
        all.ratio(
            "write_amplification",
            traffic.log_bytes + traffic.tree_bytes + traffic.moved_bytes,
            traffic.user_bytes,
            "bytes of log, tables and moved values written per byte that users wrote",
        );
        all.count(
            "syncs",
            of(&self.counters.syncs),
            "syncs of the log since the store was opened",
        );
        all.count(
            "value_reads",
            self.counters.value_reads.sum(),
            "reads of the value log",
        );
        all.ratio(
            "value_reads_per_get",
            self.counters.value_reads.sum(),
            self.counters.gets.sum(),
            "reads of the value log per key looked up, those of cursors included",
        );
        all.ratio(
            "read_amplification",
            self.home.files.bytes_read() + self.tree.statistics().bytes_read,
            self.counters.answered_bytes.sum(),
            "bytes that lookups and cursors read from files, by bytes of the keys and values that they answered, since the store was opened; cursors that are open are not counted",
        );
        all.count(
            "writers_waited_milliseconds",
            of(&self.counters.waited_nanoseconds) / 1_000_000,
            "for the tree or for garbage collection, since the store was opened",
        );
        all.count(
            "replayed_writes",
            of(&self.counters.replayed),
            "writes that recovery found in the log",
        );
    }

    /// About how many bytes the entries of a range take: exact for some, beyond by the part of
    /// the tree that they are, and as large a part of the values.
    pub fn approximate_size(self: &Arc<Self>, namespace: u16, range: &KeyRange) -> Result<u64> {
        const COUNTED: u64 = 10_000;
        let mut cursor = EntryCursor::new(self.pin()?, namespace, range, Direction::Forward);
        let (mut entries, mut bytes) = (0, 0);
        while entries < COUNTED {
            let Some((_, entry_bytes)) = cursor.next_unread()? else {
                return Ok(bytes);
            };
            entries += 1;
            bytes += entry_bytes;
        }
        let (from, to) = full_range(namespace, range);
        let part = self.tree.part_between(&from, &to)?;
        let (flushed, unflushed) = self.live_and_unflushed();
        let share = |bytes: u64, part: u64, all: u64| {
            (u128::from(bytes) * u128::from(part) / u128::from(all.max(1))) as u64
        };
        let in_tables = share(flushed, part.table_bytes, part.all_table_bytes);
        let buffered = (part.buffered_entries, part.all_buffered_entries);
        let in_buffers = share(unflushed, buffered.0, buffered.1);
        // A larger range never answers less than the entries that were counted of a part.
        Ok((part.table_bytes + in_tables + in_buffers).max(bytes))
    }

    /// Bytes of values in the log: live ones that tables point to, and those that only write
    /// buffers point to.
    fn live_and_unflushed(&self) -> (u64, u64) {
        let state = self.ledger.state();
        let (_, live) = state.total_and_live();
        let segments = self.segments.load();
        let unflushed = segments.values().filter(|segment| {
            let number = segment.number;
            number >= state.head.segment && !state.segments.contains_key(&number)
        });
        (live, unflushed.map(|segment| segment.log.end()).sum())
    }
}
