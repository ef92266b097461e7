//! Room on a disk that is nearly full.
//!
//! A compaction writes what is live of a data file before that file goes. So puts leave room
//! for the largest data file and some deletes, and deletes for the smallest. Where a write
//! finds less, files are compacted that have little stale, the most stale first.

use std::sync::Arc;

use cambium_base::{Error, Result};
use cambium_io::Space;
use cambium_io::sync::atomic::Ordering;

use crate::core::Core;
use crate::data_file::DataFile;

/// No more than this part of the disk is left free for a compaction.
const PART_OF_DISK: u64 = 4;
/// And this part for deletes, which string keys write whole buckets for.
const PART_FOR_DELETES: u64 = 16;
const MOST_FOR_DELETES: u64 = 64 << 20;
/// The stale share, in percent, that is given back on a disk that is nearly full.
const WHERE_SCARCE: u64 = 4;

impl DataFile {
    /// About how many bytes its live entries take.
    pub fn live_bytes(&self) -> u64 {
        let entries = self.entries.load(Ordering::Relaxed).max(1);
        let live = self.live.load(Ordering::Relaxed).min(entries);
        (self.log.end() as f64 * live as f64 / entries as f64) as u64
    }
}

impl Core {
    /// Bytes of the disk that puts leave free, and writes that make room.
    fn kept_free(&self, space: Space) -> (u64, u64) {
        let files = self.current_files();
        let lives = files.iter().map(|file| file.live_bytes());
        let most = space.total / PART_OF_DISK;
        let largest = lives.clone().max().unwrap_or(0).min(most);
        let smallest = lives.min().unwrap_or(0).min(most);
        let for_deletes = (space.total / PART_FOR_DELETES).min(MOST_FOR_DELETES);
        (largest + for_deletes, smallest + for_deletes / 4)
    }

    fn current_files(&self) -> Vec<Arc<DataFile>> {
        let tables = self.open_tables();
        let files = tables.iter().flat_map(|table| table.current_files());
        files
            .filter(|file| file.entries.load(Ordering::Relaxed) > 0)
            .collect()
    }

    /// Makes sure that so many bytes can be appended to a data file.
    ///
    /// # Errors
    /// `NoSpace` where that would leave too little room to give space back.
    pub fn reserve_in_file(&self, file: &DataFile, bytes: u64, makes_room: bool) -> Result<()> {
        file.log.reserve_in(bytes, &|needed| {
            let Ok(space) = self.environment.file_system.space(&self.path) else {
                return Ok(u64::MAX);
            };
            let (by_puts, by_deletes) = self.kept_free(space);
            let beside = |kept: u64| space.available.saturating_sub(kept);
            let has_room = beside(by_puts) >= needed;
            self.is_scarce.store(!has_room, Ordering::Relaxed);
            if has_room {
                return Ok(beside(by_puts));
            }
            self.notify_background();
            let kept = if makes_room { by_deletes } else { by_puts };
            if beside(kept) < needed {
                let available = space.available;
                let purpose = match makes_room {
                    true => "for giving the space of deleted entries back",
                    false => "for deletes and for giving space back",
                };
                return Err(Error::NoSpace {
                    path: file.log.path().to_path_buf(),
                    what: format!(
                        "write: it needs {needed} bytes, and of the {available} that are free {kept} are kept {purpose}"
                    ),
                });
            }
            // No more: puts would get what is taken ahead.
            Ok(needed)
        })
    }

    /// From which stale share on a data file is compacted, in percent, and how many bytes there
    /// are for that.
    pub fn compaction_bounds(&self) -> (u64, u64) {
        let threshold = self.tuning.compaction_threshold;
        let space = self.environment.file_system.space(&self.path);
        let Some(space) = space
            .ok()
            .filter(|_| self.is_scarce.load(Ordering::Relaxed))
        else {
            return (threshold, u64::MAX);
        };
        let is_scarce = space.available < self.kept_free(space).0;
        self.is_scarce.store(is_scarce, Ordering::Relaxed);
        match is_scarce {
            true => (threshold.min(WHERE_SCARCE), space.available),
            false => (threshold, u64::MAX),
        }
    }
}
