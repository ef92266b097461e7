//! Copying entries from one store into another: what a backup and an export
//! between engines share.

use cambium_base::{Durability, Result};

use crate::batch::WriteBatch;
use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::report::{Progress, ProgressSink};

/// Bytes of a batch: large enough that its own cost does not count.
const BATCH_BYTES: u64 = 4 << 20;

/// Puts all that a cursor answers into `copy`, and adds to `done` how many
/// entries that were. Nothing is synced: `copy.sync()` or `copy.close()` is the
/// caller's.
///
/// # Errors
/// Those of either store; what was copied up to there stays in the copy.
pub fn copy_entries(
    cursor: &mut dyn Cursor,
    copy: &dyn Engine,
    done: &mut u64,
    progress: &dyn ProgressSink,
) -> Result<()> {
    let mut batch = WriteBatch::new();
    while let Some(entry) = cursor.next()? {
        batch.put(&entry.key, &entry.value);
        *done += 1;
        if batch.bytes() > BATCH_BYTES {
            copy.write(std::mem::take(&mut batch), Durability::Buffered)?;
            progress.report(Progress {
                phase: "backup",
                done: *done,
                total: None,
            });
        }
    }
    copy.write(batch, Durability::Buffered).map(|_| ())
}
