//! Counters and what `stats` answers.

use cambium_api::Statistics;
use cambium_base::Result;
use cambium_io::sync::atomic::{AtomicU64, Ordering};

use crate::core::{Core, lock, read};

/// Counted since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub user_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub entries_written: AtomicU64,
    pub bytes_written: AtomicU64,
    pub reads: AtomicU64,
    pub syncs: AtomicU64,
    pub erased: AtomicU64,
    /// Entries moved into packs, or out of them.
    pub moved: AtomicU64,
    /// Bytes of zeros over them, and over what is free between them.
    pub erased_bytes: AtomicU64,
    pub discarded: AtomicU64,
    pub zeroed: AtomicU64,
    pub blocks_copied: AtomicU64,
    pub mended: AtomicU64,
}

fn of(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Core {
    /// Bytes of entries that are not known to be on the device, under way or waiting.
    fn pending_bytes(&self) -> u64 {
        let pending = crate::core::read(&self.pending);
        pending.values().map(|entry| entry.len() as u64).sum()
    }

    /// The store's statistics.
    pub fn statistics(&self) -> Result<Statistics> {
        self.check_open()?;
        let mut statistics = Statistics::default();
        let writer = lock(&self.writer);
        let state = read(&self.state);
        let unit = u64::from(self.block_bytes);
        let index_bytes = state.index.memory_bytes() as u64;
        let entries = state.index.len() as u64;
        let superblock = &writer.superblock;
        let free = writer.allocator.free_blocks()
            + u64::from(superblock.total_blocks - writer.allocator.limit());
        let total = u64::from(superblock.total_blocks);
        let largest = writer.allocator.free_extents().map(|run| run.blocks).max();
        let beyond = superblock.total_blocks - writer.allocator.limit();
        let largest = largest.unwrap_or(0).max(beyond);
        statistics.count("entries", entries, "live entries");
        statistics.count("sequence", writer.next_sequence - 1, "the last write");
        statistics.count(
            "synced_through",
            writer.synced_through,
            "the last write known to be durable",
        );
        statistics.bytes("size_bytes", total * unit, "space of the store");
        statistics.bytes("block_bytes", unit, "unit of space");
        statistics.bytes("free_bytes", free * unit, "space that can be given out now");
        statistics.bytes(
            "largest_free_bytes",
            u64::from(largest) * unit,
            "the longest free run: the largest entry that fits",
        );
        statistics.bytes(
            "waiting_bytes",
            writer.allocator.waiting_blocks() * unit,
            "space that is freed once what replaced it is known to be durable",
        );
        statistics.bytes(
            "in_use_bytes",
            u64::from(writer.allocator.limit()) * unit,
            "where a scan after a crash ends",
        );
        statistics.count(
            "tombstones",
            writer.tombstones.len() as u64,
            "deletes whose older entries are not all erased",
        );
        statistics.count(
            "stale_headers",
            writer.stale.len() as u64,
            "headers of entries that count no more, and are still on the device",
        );
        statistics.bytes("index_memory_bytes", index_bytes, "memory of the index");
        statistics.ratio(
            "index_bytes_a_key",
            index_bytes,
            entries,
            "memory of the index for each entry",
        );
        statistics.ratio(
            "index_fill",
            entries,
            state.index.slots() as u64,
            "used part of the index's slots",
        );
        statistics.bytes(
            "free_map_bytes",
            writer.allocator.memory_bytes() as u64,
            "memory of the map of free space",
        );
        statistics.bytes(
            "pending_bytes",
            self.pending_bytes(),
            "entries in memory that are not written yet",
        );
        statistics.count(
            "snapshots",
            state.pins() as u64,
            "snapshots and cursors open",
        );
        statistics.count(
            "changes_held",
            state.changes(),
            "changes that those keep in memory",
        );
        drop(state);
        self.history_statistics(&writer, &mut statistics);
        let limit = writer.allocator.limit();
        self.mirror_statistics(&mut statistics, limit);
        let counters = &self.counters;
        statistics.bytes(
            "user_bytes_written",
            of(&counters.user_bytes),
            "keys and values written since opening",
        );
        statistics.bytes(
            "device_bytes_written",
            of(&counters.bytes_written),
            "bytes of entries written since opening",
        );
        statistics.ratio(
            "write_amplification",
            of(&counters.bytes_written),
            of(&counters.user_bytes),
            "entry bytes for each byte of keys and values",
        );
        statistics.count(
            "device_writes",
            of(&counters.writes),
            "writes since opening; several entries share one",
        );
        statistics.ratio(
            "entries_a_write",
            of(&counters.entries_written),
            of(&counters.writes),
            "entries that a write carried",
        );
        statistics.count(
            "device_reads",
            of(&counters.reads),
            "reads of entries since opening",
        );
        let (hits, misses) = self.kept.hits_and_misses();
        statistics.bytes(
            "cache_bytes",
            self.kept.bytes(),
            "memory of cached values; of all stores that share the cache",
        );
        statistics.count(
            "cache_hits",
            hits,
            "lookups that the cache answered since opening",
        );
        statistics.count(
            "cache_misses",
            misses,
            "lookups of what is there that it did not answer",
        );
        statistics.ratio(
            "value_cache_hit_share",
            hits,
            hits + misses,
            "share of lookups that the cache answered",
        );
        statistics.count(
            "syncs",
            of(&counters.syncs),
            "syncs since opening; several writes share one",
        );
        statistics.count(
            "packs",
            writer.packs.len() as u64,
            "groups of small entries that share blocks",
        );
        statistics.count(
            "entries_moved",
            of(&counters.moved),
            "small entries moved into packs, or out of packs that were partly obsolete, since opening",
        );
        statistics.count(
            "headers_erased",
            of(&counters.erased),
            "stale headers erased since opening; a pack of obsolete entries has one",
        );
        statistics.bytes(
            "erased_bytes",
            of(&counters.erased_bytes),
            "zeros written over stale headers, and over what is free between them, since opening",
        );
        statistics.bytes(
            "discarded_bytes",
            of(&self.counters.discarded),
            "free space that the device, or the file system, was told of since opening",
        );
        statistics.bytes(
            "zeroed_ahead_bytes",
            of(&self.counters.zeroed),
            "zeros written to reserved space before entries come there since opening",
        );
        statistics.count(
            "requests_waiting",
            self.submissions.waiting() as u64,
            "submitted requests that no worker has taken",
        );
        statistics.count("epoch", u64::from(superblock.epoch), "openings that wrote");
        if let Some(reserved) = &writer.index_memory {
            statistics.bytes(
                "index_reserved_bytes",
                reserved.bytes(),
                "memory that the index and stale headers have reserved; it grows with them",
            );
        }
        if let Some(plan) = self.memory.get() {
            plan.statistics(&mut statistics);
        }
        Ok(statistics)
    }

    /// What a store with two members says of them.
    fn mirror_statistics(&self, statistics: &mut Statistics, limit: u32) {
        statistics.count(
            "members",
            self.volume.member_count() as u64,
            "devices or files that hold the same entries",
        );
        statistics.count(
            "members_current",
            self.volume.readable().count() as u64,
            "of those, how many have every entry; fewer than there are: the store has no mirror now",
        );
        if !self.volume.is_mirrored() {
            return;
        }
        let left = self.blocks_to_copy(limit).unwrap_or(0);
        statistics.bytes(
            "mirror_bytes_left",
            left * u64::from(self.block_bytes),
            "of a stale member, still to be compared with the other one",
        );
        statistics.bytes(
            "mirror_bytes_copied",
            of(&self.counters.blocks_copied) * u64::from(self.block_bytes),
            "copied to a stale member since opening",
        );
        statistics.count(
            "entries_mended",
            of(&self.counters.mended),
            "entries that one member had lost, written there anew since opening",
        );
    }
}
