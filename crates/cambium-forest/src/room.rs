//! Room on a disk that is nearly full.
//!
//! To give space back a store has to write: tombstones, the nodes of a flush, documents that a
//! cleaning moves out of the way. So puts leave room for all three, and deletes for the last
//! two. A write that is refused sets off a flush, which cleans if enough is stale, and so
//! does a delete that finds little room.

use cambium_base::{Error, Result};
use cambium_io::Space;
use cambium_io::sync::atomic::Ordering;

use crate::cleaning::PART_OF_LEAST;
use crate::core::Core;
use crate::database::Database;
use crate::planned::Planned;
use crate::view::View;

/// About how many bytes of a leaf an entry takes.
const ENTRY_BYTES: u64 = 32;
/// The stale share, in percent, that is given back on a disk that is nearly full.
const WHERE_SCARCE: u64 = 4;
/// Nodes on the way to those that a flush changes, and blocks of headers.
const NODES_BESIDE: u64 = 8;
/// As many stale bytes are worth a flush when a write was refused.
const LEAST_REFUSED: u64 = 64 << 10;
/// For headers, and a few thousand tombstones.
const LEAST_ROOM: u64 = 128 << 10;
/// No more in a small store, however large the files may be that are not cleaned.
const MOST_LEAST_ROOM: u64 = 1 << 20;
/// And for tombstones of so small a part of the log that cleaning finds something to give back.
const PART_OF_LOG: u64 = 256;
/// A flush takes this part of what is free ahead, at most.
const PART_AHEAD: u64 = 16;
/// No more than this part of the disk is left free.
const PART_OF_DISK: u64 = 5;

impl Core {
    /// Bytes that can be written: those free on the disk, and those taken ahead of the log's
    /// end.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn room(&self, view: &View) -> Result<u64> {
        let space = self.environment.file_system.space(&self.path)?;
        Ok(space
            .available
            .saturating_add(view.database.log.bytes_ahead()))
    }

    /// Bytes that a flush writes at most, beside documents that it moves.
    pub fn most_of_flush(&self, view: &View) -> u64 {
        let nodes = (view.roots.nodes() + NODES_BESIDE) * u64::from(self.shape.node_bytes);
        nodes + view.buffered_keys() * ENTRY_BYTES
    }

    /// Bytes that the log grows by for the nodes of a flush that changes so many leaves beside
    /// those of what is buffered, and writes some of them over others.
    pub fn nodes_grown(&self, view: &View, leaves: u64) -> u64 {
        let buffered = view.buffered_keys();
        let nodes = (leaves + buffered).min(view.roots.nodes()) + NODES_BESIDE;
        let nodes = nodes.saturating_sub(view.database.node_space.blocks());
        nodes * u64::from(self.shape.node_bytes) + buffered * ENTRY_BYTES
    }

    /// True if a flush may find more stale bytes than it writes: those known already, and the
    /// documents that buffered entries replace, if each replaces one of the mean length. The
    /// log has `behind` bytes that are not in the tries.
    pub fn flush_may_make_room(&self, view: &View, behind: u64) -> bool {
        let used = view.database.log.used_bytes();
        let documents = view.roots.documents() + view.buffered_keys();
        let buffered = view.buffered_keys() * (used / documents.max(1));
        let known = used.saturating_sub(behind + self.live_bytes(view));
        buffered + known >= self.nodes_grown(view, 0).max(LEAST_REFUSED)
    }

    /// At most how many bytes of the tries' documents buffered entries replace or remove, if each
    /// is of the mean length; and that length.
    pub fn hidden_bytes(&self, view: &View) -> (u64, u64) {
        let live = self.live_bytes(view);
        let mean = live / view.roots.documents().max(1);
        ((view.buffered_keys() * mean).min(live), mean)
    }

    /// Bytes of a tail that there is always room to move: twice the least, since a tail ends
    /// behind a whole batch.
    pub fn kept_tail(&self, view: &View) -> u64 {
        let least = self.tuning.compaction.least_bytes / PART_OF_LEAST;
        let least = least.clamp(LEAST_ROOM, MOST_LEAST_ROOM);
        2 * least.max(view.database.log.used_bytes() / PART_OF_LOG)
    }

    /// Bytes of the disk that puts leave free, and deletes.
    fn kept_free(&self, view: &View, space: Space) -> (u64, u64) {
        let tail = self.kept_tail(view) / 2;
        // Buffered entries become nodes, and the first flush of the next opening writes these
        // once more.
        let anew = view.buffered_keys() * ENTRY_BYTES;
        let by_puts = (self.most_of_flush(view) + anew + 4 * tail).min(space.total / PART_OF_DISK);
        let by_deletes = (self.nodes_grown(view, 0) + 2 * tail).min(by_puts / 4 * 3);
        (by_puts, by_deletes)
    }

    /// Looks whether there is room again for puts.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn look_for_room(&self, view: &View) -> Result<()> {
        if self.cleaning.is_scarce.load(Ordering::Relaxed) {
            let space = self.environment.file_system.space(&self.path)?;
            let kept = self.kept_free(view, space).0.max(self.kept_by_caller());
            let is_scarce = space.available < kept;
            self.cleaning.is_scarce.store(is_scarce, Ordering::Relaxed);
        }
        Ok(())
    }

    fn kept_by_caller(&self) -> u64 {
        self.cleaning.kept_by_caller.load(Ordering::Relaxed)
    }

    /// From which stale share on space is given back, in percent.
    pub fn cleaning_threshold(&self) -> u64 {
        let threshold = self.tuning.compaction.threshold;
        match self.cleans_most() {
            true => threshold.min(WHERE_SCARCE),
            false => threshold,
        }
    }

    /// Makes sure that so many bytes of a flush or a header can be appended. Takes little
    /// ahead where little is free: puts would get it.
    ///
    /// # Errors
    /// `NoSpace`; `LimitExceeded` where the log would grow past what can be addressed.
    pub fn reserve(&self, database: &Database, bytes: u64) -> Result<()> {
        database.check_room(bytes)?;
        database.log.reserve_in(bytes, &|needed| {
            if self.cleaning.is_scarce.load(Ordering::Relaxed) {
                return Ok(needed);
            }
            let space = self.environment.file_system.space(&self.path);
            let free = space.map_or(u64::MAX, |space| space.available);
            Ok(needed.max(free / PART_AHEAD))
        })
    }

    /// Makes sure that entries of so many bytes can be appended.
    ///
    /// # Errors
    /// `NoSpace` where that would leave too little room to give space back.
    pub fn reserve_for(&self, view: &View, entries: &[Planned], bytes: u64) -> Result<()> {
        let removes = entries.iter().all(|entry| entry.makes_room);
        let refused = |needed: u64, space: Space, kept: u64| {
            self.note_refused();
            let purpose = match removes {
                true => "for giving the space of deleted entries back",
                false => "for deletes and for giving space back",
            };
            Error::NoSpace {
                path: view.database.path().to_path_buf(),
                what: format!(
                    "write: it needs {needed} bytes, and of the {} that are free {kept} are kept \
                     {purpose}",
                    space.available
                ),
            }
        };
        if !removes && self.cleaning.is_scarce.load(Ordering::Relaxed) {
            // A flush leaves a rest of the space that it took; puts do not get that either.
            let space = self.environment.file_system.space(&self.path)?;
            let kept = self.kept_free(view, space).0;
            let ahead = view.database.log.bytes_ahead();
            if space.available.saturating_add(ahead) < kept.saturating_add(bytes) {
                return Err(refused(bytes, space, kept));
            }
        }
        let room = |needed: u64| {
            let Ok(space) = self.environment.file_system.space(&self.path) else {
                return Ok(u64::MAX);
            };
            let (by_puts, by_deletes) = self.kept_free(view, space);
            let beside = |kept: u64| space.available.saturating_sub(kept);
            let is_scarce = beside(by_puts.max(self.kept_by_caller())) < needed;
            self.cleaning.is_scarce.store(is_scarce, Ordering::Relaxed);
            if beside(by_puts) >= needed {
                return Ok(beside(by_puts));
            }
            let kept = if removes { by_deletes } else { by_puts };
            if beside(kept) < needed {
                return Err(refused(needed, space, kept));
            }
            self.note_refused();
            // No more: puts would get what is taken ahead.
            Ok(needed)
        };
        view.database.check_room(bytes)?;
        view.database.log.reserve_in(bytes, &room)
    }
}
