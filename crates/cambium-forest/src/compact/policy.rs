//! When a compaction begins by itself.
//!
//! The option `compaction_threshold` says at what stale share of the file. What a
//! named snapshot keeps is not stale. What
//! the index does not hold yet may be new or replace something, so a flush may
//! have to tell first. Writers wake the background where that is worth a look.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::core::{Core, lock};
use crate::format::{DatabaseHeader, NamespaceRoot};
use crate::view::View;

/// After a compaction that could not begin, before the next attempt.
const RETRY: Duration = Duration::from_secs(5);

/// How often it is looked whether one is due while all that is live is written
/// once more, and what is written in between at least.
const LOOKS: u64 = 40;
const LEAST_APART: u64 = 1 << 20;

/// Whether a compaction should begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Too little is stale; writers say when that may have changed.
    No,
    /// It cannot begin now, and nobody says when it can.
    Later,
    /// Enough may be stale: the index knows when it holds what was written.
    AfterFlush,
    /// Enough is stale.
    Now,
}

impl Core {
    /// Whether enough is stale, unless one failed just now.
    pub(super) fn is_compaction_due(&self) -> Due {
        let now = self.environment.clock.monotonic().as_nanos() as u64;
        if self.pressure.not_before.load(Ordering::Relaxed) > now {
            return Due::Later;
        }
        self.due()
    }

    /// The background does not try again at once.
    pub(super) fn put_compaction_off(&self) {
        let until = self.environment.clock.monotonic() + RETRY;
        let until = until.as_nanos() as u64;
        self.pressure.not_before.store(until, Ordering::Relaxed);
    }

    /// A writer has come to `end`: wakes the background if it is worth a look.
    pub fn announce_written(&self, end: u64) {
        if end >= self.pressure.look_at.load(Ordering::Relaxed) {
            self.pressure.look_at.store(u64::MAX, Ordering::Relaxed);
            self.notify_background();
        }
    }

    fn due(&self) -> Due {
        let tuning = &self.tuning.compaction;
        if tuning.threshold >= 100 {
            return Due::No;
        }
        let view = self.view.load();
        let written = view.database.log.end() - view.database.shape.first_offset();
        let live = self.live_bytes(&view);
        // Where it is worth the next look: at least this far from here.
        let apart = (live / LOOKS).max(LEAST_APART);
        let look_at = view.database.log.end() + apart;
        self.pressure.look_at.store(look_at, Ordering::Relaxed);
        if view.database.log.end() >= look_at {
            // Who wrote that may have looked before.
            return Due::Later;
        }
        let (start, replay_from, kept) = {
            let Ok(maintenance) = self.maintenance.try_lock() else {
                // A flush is going on.
                return Due::Later;
            };
            let header = &maintenance.header;
            let kept = self.kept_bytes(header, live);
            (header.start, header.replay_from, kept)
        };
        // What named snapshots keep would be carried over once more.
        let live = live + kept;
        // An eighth of new bytes at least since the last one, whatever is kept.
        if written < tuning.least_bytes || written < start + live / 8 {
            return Due::No;
        }
        // What the indexes do not hold yet may be new, or replace something.
        let behind = view.database.log.end().saturating_sub(replay_from);
        let enough = written / 100 * tuning.threshold;
        if written.saturating_sub(live + behind) > enough {
            Due::Now
        } else if written.saturating_sub(live) > enough && behind >= apart {
            Due::AfterFlush
        } else {
            Due::No
        }
    }

    /// About how many bytes of the file the newest state takes. What the index
    /// knows of documents are bounds of their lengths; the last compaction has
    /// seen how far from the lengths these are.
    pub fn live_bytes(&self, view: &View) -> u64 {
        self.bytes_of(view.roots.namespaces.values())
    }

    /// At least how many bytes of the file named snapshots reach, and the newest
    /// state, of about `live` bytes, does not. What they share is not known
    /// without a walk: it is what the last compaction met, or by how much the
    /// largest of them exceeds the newest state.
    pub fn kept_bytes(&self, header: &DatabaseHeader, live: u64) -> u64 {
        if header.snapshots.is_empty() {
            return 0;
        }
        let each = header.snapshots.iter().map(|snapshot| {
            let roots = snapshot.namespaces.iter();
            self.bytes_of(roots.map(|(_, root)| root))
        });
        let beyond = each.max().unwrap_or(0).saturating_sub(live);
        beyond.max(self.pressure.kept.load(Ordering::Relaxed))
    }

    /// A compaction has carried over documents of so many bytes for named
    /// snapshots alone.
    pub(super) fn note_kept(&self, header: &DatabaseHeader, documents: u64) {
        let kept = header.snapshots.iter().flat_map(|one| &one.namespaces);
        let nodes: u64 = kept.map(|(_, root)| root.nodes).sum();
        let bytes = documents + nodes * u64::from(self.shape.node_bytes);
        self.pressure.kept.store(bytes, Ordering::Relaxed);
    }

    /// A named snapshot went, or the newest state is another: how much is kept is
    /// not known any more, and it is worth a look.
    pub fn forget_kept(&self) {
        self.pressure.kept.store(0, Ordering::Relaxed);
        self.notify_background();
    }

    /// About how many bytes the trees of some roots take.
    fn bytes_of<'r>(&self, roots: impl Iterator<Item = &'r NamespaceRoot>) -> u64 {
        let node = u64::from(self.shape.node_bytes);
        let (mut documents, mut nodes) = (0, 0);
        for root in roots {
            documents += root.document_bytes;
            nodes += root.nodes * node;
        }
        let filled = match self.pressure.filled.load(Ordering::Relaxed) {
            // Half of the eighth by which a bound passes a length at most.
            0 => 940,
            known => known,
        };
        documents / 1000 * filled + nodes
    }

    /// Bytes that a compaction would ask for now.
    pub fn compaction_needs_now(&self) -> u64 {
        let maintenance = lock(&self.maintenance);
        let end = self.view.load().database.log.end();
        let behind = end.saturating_sub(maintenance.header.replay_from);
        self.compaction_needs(&maintenance.header, behind)
    }
}
