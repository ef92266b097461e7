//! Room on the disk that is kept for deletes.
//!
//! A store whose disk is full cannot even delete: a delete is a write, and so is the compaction
//! that gives space back. So when less than the reserve is free, commands that write are
//! refused, but for those that only delete. Reads go on.
//!
//! The free space is looked at behind each batch, and again before a command is refused. The
//! store refuses nothing at that moment, so a refusal tells it to give space back.

use std::path::PathBuf;
use std::sync::Arc;

use cambium::Store;
use cambium_io::FileSystem;
use cambium_io::sync::atomic::Ordering;

use crate::metrics::Metrics;

/// Without an argument the reserve is this share of the file system, and at most so much.
const DEFAULT_SHARE: u64 = 16;
const MOST_DEFAULT_BYTES: u64 = 1 << 30;

/// The reserve, and whether it is reached.
pub struct Room {
    store: Store,
    file_system: Arc<dyn FileSystem>,
    folder: PathBuf,
    metrics: Arc<Metrics>,
    reserve: Option<u64>,
    /// Bytes that are free, and how many should be, if there are too few.
    missing: Option<(u64, u64)>,
}

impl Room {
    /// Watches the file system of a folder. `reserve` is in bytes; 0 refuses nothing.
    pub fn new(
        store: Store,
        file_system: Arc<dyn FileSystem>,
        folder: PathBuf,
        metrics: Arc<Metrics>,
        reserve: Option<u64>,
    ) -> Room {
        let mut room = Room {
            store,
            file_system,
            folder,
            metrics,
            reserve,
            missing: None,
        };
        room.look();
        room
    }

    /// Looks at the free space.
    pub fn look(&mut self) {
        // A file system that does not answer refuses writes itself.
        let space = self.file_system.space(&self.folder).ok();
        let was_full = self.missing.is_some();
        self.missing = space.and_then(|space| {
            let default = (space.total / DEFAULT_SHARE).min(MOST_DEFAULT_BYTES);
            let reserve = self.reserve.unwrap_or(default);
            (space.available < reserve).then_some((space.available, reserve))
        });
        let is_full = self.missing.is_some();
        self.metrics.is_full.store(is_full, Ordering::Relaxed);
        match self.missing {
            Some((free, reserve)) if !was_full => {
                tracing::error!(free, reserve, "the disk is full: only deletes are accepted");
            }
            None if was_full => tracing::info!("the disk has room again"),
            _ => {}
        }
    }

    /// Why a command that writes more than deletes cannot run.
    pub fn refusal(&mut self) -> Option<String> {
        self.missing?;
        self.look();
        let (free, reserve) = self.missing?;
        self.store.engine().note_refused(reserve);
        Some(format!(
            "No space left on device: {free} bytes are free, and {reserve} are kept for deletes \
             (--reserve). Delete keys and call CAMBIUM.COMPACT, or make room"
        ))
    }
}
