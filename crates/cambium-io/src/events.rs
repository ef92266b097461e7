//! Events for those who listen: openings, recoveries, flushes, compactions, stalls and
//! failures, by the crate `tracing`.
//!
//! Every event has the target `cambium` and the fields that its function takes. Where
//! nobody listens, an event costs one comparison. Events are for people and their tools;
//! nothing of a store depends on them.
//!
//! | event | level | when |
//! |---|---|---|
//! | `opened` | info | a store is open, after its recovery |
//! | `recovered` | info | the writes behind the last flush are in memory again |
//! | `flushed` | debug | writes in memory became part of the index on the device |
//! | `compacted` | info | live entries were rewritten, and space came back |
//! | `stalled` | warn | a writer waits for a flush |
//! | `put off` | warn | background work failed, and is tried again later |
//! | `lost` | warn | a member of a mirror failed, and the store goes on with the others |
//! | `poisoned` | error | a failure after which a store takes no more writes |

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

/// A store was opened.
pub fn opened(engine: &str, path: &Path, elapsed: Duration) {
    tracing::info!(target: "cambium", engine, path = %path.display(), ?elapsed, "opened");
}

/// The writes that were not in the index yet are in memory.
pub fn recovered(engine: &str, path: &Path, through: u64) {
    tracing::info!(target: "cambium", engine, path = %path.display(), through, "recovered");
}

/// Writes in memory became part of the index on the device.
pub fn flushed(engine: &str, path: &Path) {
    tracing::debug!(target: "cambium", engine, path = %path.display(), "flushed");
}

/// Live entries were rewritten; `bytes` were written for it.
pub fn compacted(engine: &str, path: &Path, bytes: u64) {
    tracing::info!(target: "cambium", engine, path = %path.display(), bytes, "compacted");
}

/// A writer waits until there is room in memory.
pub fn stalled(engine: &str, path: &Path) {
    tracing::warn!(target: "cambium", engine, path = %path.display(), "stalled");
}

/// Background work failed and will be tried again.
pub fn put_off(engine: &str, path: &Path, work: &str, error: &dyn Display) {
    tracing::warn!(target: "cambium", engine, path = %path.display(), work, %error, "put off");
}

/// A member of a mirror failed.
pub fn lost(engine: &str, member: &Path) {
    tracing::warn!(target: "cambium", engine, path = %member.display(), "lost");
}

/// A store takes no more writes.
pub fn poisoned(error: &dyn Display) {
    tracing::error!(target: "cambium", %error, "poisoned");
}
