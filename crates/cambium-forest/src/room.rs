//! Room on a disk that is nearly full.
//!
//! To give space back a store has to write: tombstones, the nodes of a flush, documents that a
//! cleaning moves out of the way. So puts leave room for all three, and deletes for the last
//! two. A write that is refused sets off a flush, which cleans if enough is stale, and so
//! does a delete that finds little room.

use cambium_base::{Error, Result};
use cambium_io::Space;
use cambium_io::sync::atomic::Ordering;

use crate::core::Core;
use crate::database::Database;
use crate::planned::Planned;
use crate::view::View;

/// About how many bytes of a leaf an entry takes.
const ENTRY_BYTES: u64 = 64;
/// The stale share, in percent, that is given back on a disk that is nearly full.
const WHERE_SCARCE: u64 = 4;
/// For headers, and a few thousand tombstones.
const LEAST_ROOM: u64 = 128 << 10;
/// A flush takes this part of what is free ahead, at most.
const PART_AHEAD: u64 = 16;
/// No more than this part of the disk is left free.
const PART_OF_DISK: u64 = 8;

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
        let buffered: usize = view.buffers().map(|buffer| buffer.keys()).sum();
        let nodes = view.roots.nodes() * u64::from(self.shape.node_bytes);
        nodes + buffered as u64 * ENTRY_BYTES
    }

    /// Bytes of the disk that puts leave free, and deletes.
    fn kept_free(&self, view: &View, space: Space) -> (u64, u64) {
        let tail = self.least_tail().max(LEAST_ROOM);
        let by_puts = self.most_of_flush(view) + 3 * tail;
        let by_puts = by_puts.min(space.total / PART_OF_DISK);
        (by_puts, by_puts - tail.min(by_puts / 3))
    }

    /// Looks whether there is room again for puts.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn look_for_room(&self, view: &View) -> Result<()> {
        if self.cleaning.is_scarce.load(Ordering::Relaxed) {
            let space = self.environment.file_system.space(&self.path)?;
            let is_scarce = space.available < self.kept_free(view, space).0;
            self.cleaning.is_scarce.store(is_scarce, Ordering::Relaxed);
        }
        Ok(())
    }

    /// From which stale share on space is given back, in percent.
    pub fn cleaning_threshold(&self) -> u64 {
        let threshold = self.tuning.compaction.threshold;
        match self.cleaning.is_scarce.load(Ordering::Relaxed) {
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
        let refused = |needed: u64, space: Space, kept: u64| {
            self.note_refused();
            Error::NoSpace {
                path: view.database.path().to_path_buf(),
                what: format!(
                    "write: it needs {needed} bytes, and of the {} that are free {kept} are kept \
                     for deletes and for giving space back",
                    space.available
                ),
            }
        };
        let room = |needed: u64| {
            let Ok(space) = self.environment.file_system.space(&self.path) else {
                return Ok(u64::MAX);
            };
            let (by_puts, by_deletes) = self.kept_free(view, space);
            let beside = |kept: u64| space.available.saturating_sub(kept);
            let removes = entries.iter().all(Planned::removes);
            let has_room = beside(by_puts) >= needed;
            self.cleaning.is_scarce.store(!has_room, Ordering::Relaxed);
            if has_room {
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
