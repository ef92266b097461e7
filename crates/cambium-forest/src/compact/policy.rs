//! When a compaction begins by itself.
//!
//! The option `compaction_threshold` says at what stale share of the file. What a
//! named snapshot keeps is not stale. What
//! the index does not hold yet may be new or replace something, so a flush may
//! have to tell first. Writers wake the background where that is worth a look.
//!
//! Between the moment when enough is stale and the one when a compaction begins lie
//! a flush and its sync, which take as long as the device needs for what writers
//! have left in the page cache. So that they do not outrun that, they may add half
//! the slack of a compaction meanwhile and no more: at the place in the log where they
//! will have done so ([`Core::plan_hold`]) they are slowed to the least rate. How
//! much of what no flush has seen yet is stale, the last flush tells: as large a
//! share as of what it carried. A load is never slowed, since it replaces nothing.

use cambium_base::Error;
use cambium_io::sync::atomic::Ordering;

use super::settings::Settings;
use crate::core::{Core, lock};
use crate::format::{DatabaseHeader, NamespaceRoot};
use crate::view::{Roots, View};

/// How often it is looked whether one is due while all that is live is written
/// once more, and what is written in between at least.
const LOOKS: u64 = 40;
pub(super) const LEAST_APART: u64 = 1 << 20;
/// A write takes so many bytes of the log at least.
const LEAST_RECORD: u64 = 40;
/// It is not looked more often than this many bytes apart whether writes hide much.
const LEAST_HIDING: u64 = 16 << 10;

/// Whether a compaction should begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Too little is stale; writers say when that may have changed.
    No,
    /// It cannot begin now, and nothing announces when it can.
    Later,
    /// Enough may be stale: the index knows when it holds what was written.
    AfterFlush,
    /// Enough is stale, and can be cleaned.
    Cleaning,
    /// Enough is stale.
    Now,
}

impl Core {
    /// Whether enough is stale, unless one failed just now.
    pub(super) fn is_compaction_due(&self) -> Due {
        if self.is_compaction_put_off() {
            return Due::Later;
        }
        self.due()
    }

    fn is_compaction_put_off(&self) -> bool {
        self.pressure.put_off.lasts(&*self.environment.clock)
    }

    /// The background has failed, which statistics tell, and does not try again at
    /// once.
    pub(super) fn put_compaction_off(&self, error: &Error) {
        let counters = &self.counters;
        counters.failed_compactions.fetch_add(1, Ordering::Relaxed);
        *lock(&counters.last_failure) = Some(error.to_string());
        cambium_io::events::put_off("forest", &self.path, "compaction", error);
        self.pressure.put_off.begin(&*self.environment.clock);
        self.hold_nobody();
    }

    /// No writer waits for a compaction to begin.
    pub(super) fn hold_nobody(&self) {
        self.pressure.hold_at.store(u64::MAX, Ordering::Relaxed);
        self.release_writers();
    }

    /// A writer has come to `end`: wakes the background if it is worth a look.
    pub fn announce_written(&self, end: u64) {
        if end >= self.pressure.look_at.load(Ordering::Relaxed) {
            self.pressure.look_at.store(u64::MAX, Ordering::Relaxed);
            self.notify_background();
        }
        if end >= self.pressure.hold_at.load(Ordering::Relaxed) {
            self.hold_writers();
        }
    }

    /// A flush has carried `logged` bytes of the log into the tries, whose roots were
    /// others before: tells what share of them replaced something, and where writers
    /// have to wait from now on.
    pub fn note_replaced(
        &self,
        view: &View,
        roots: &Roots,
        header: &DatabaseHeader,
        replay_from: u64,
    ) {
        let logged = replay_from.saturating_sub(header.replay_from);
        if logged < LEAST_APART {
            return;
        }
        let before = self.live_bytes(view);
        let live = self.bytes_of(roots.namespaces.values());
        let grown = live.saturating_sub(before).min(logged);
        let replaced = 1000 - (grown.saturating_mul(1000) / logged).min(1000);
        self.pressure.replaced.store(replaced, Ordering::Relaxed);
        self.plan_hold(view, roots, header, replay_from);
    }

    /// Finds where the log ends when a compaction has been due for as long as writers
    /// take for half the slack, if of what lies before `replay_from` all is live that
    /// `roots` and the named snapshots reach.
    pub(super) fn plan_hold(
        &self,
        view: &View,
        roots: &Roots,
        header: &DatabaseHeader,
        replay_from: u64,
    ) {
        let tuning = &self.tuning.compaction;
        if self.pressure.runs.load(Ordering::Relaxed) {
            return;
        }
        if self.cleans(header) {
            // Cleaning has a pace of its own.
            self.pressure.hold_at.store(u64::MAX, Ordering::Relaxed);
            return;
        }
        let newest = self.bytes_of(roots.namespaces.values());
        let live = newest + self.kept_bytes(header, newest);
        let replaced = self.pressure.replaced.load(Ordering::Relaxed);
        let first = view.database.log.begin();
        let flushed = replay_from.saturating_sub(first);
        let due_at = due_from(live, flushed, replaced, tuning.threshold);
        let begins = self.environment.executor.runs_tasks() && !self.is_compaction_put_off();
        let Some(due_at) = due_at.filter(|_| begins) else {
            self.hold_nobody();
            return;
        };
        let due_at = due_at.max(tuning.least_bytes).max(header.start + live / 8);
        // The other half stays for the one that begins late.
        let slack = self.slack_bytes(live, tuning.slack) / 2;
        self.pressure
            .hold_at
            .store(first.saturating_add(due_at + slack), Ordering::Relaxed);
        // A writer beyond it says so with its next write.
        self.release_writers();
    }

    fn due(&self) -> Due {
        let tuning = &self.tuning.compaction;
        if tuning.threshold >= 100 {
            return Due::No;
        }
        let view = self.view.load();
        let written = view.database.log.used_bytes();
        let live = self.live_bytes(&view);
        // Where it is worth the next look: at least this far from here.
        let apart = (live / LOOKS).max(LEAST_APART);
        let look_at = view.database.log.end() + apart;
        self.pressure.look_at.store(look_at, Ordering::Relaxed);
        if view.database.log.end() >= look_at {
            // Who wrote that may have looked before.
            return Due::Later;
        }
        let (start, replay_from, kept, cleans) = {
            let Ok(maintenance) = self.maintenance.try_lock() else {
                // A flush is going on.
                return Due::Later;
            };
            let header = &maintenance.header;
            let kept = self.kept_bytes(header, live);
            self.plan_hold(&view, &view.roots, header, header.replay_from);
            let cleans = self.cleans(header);
            (header.start, header.replay_from, kept, cleans)
        };
        // What named snapshots keep would be carried over once more.
        let live = live + kept;
        // An eighth of new bytes at least since the last one, whatever is kept.
        if written < tuning.least_bytes || !cleans && written < start + live / 8 {
            return Due::No;
        }
        // The documents of deleted ranges become stale when a flush removes them from the tries.
        if view.buffers().any(|buffer| buffer.deleted_ranges() > 0) {
            return match self.writers_rest(&view) {
                true => Due::AfterFlush,
                false => Due::Later,
            };
        }
        // Entries that the indexes do not hold yet may be new, or replace something. With
        // empty buffers there are none: flushes wrote what lies behind, and one more would
        // change nothing, so no compaction waits for it.
        let behind = match view.is_buffered() {
            true => view.database.log.end().saturating_sub(replay_from),
            false => 0,
        };
        // A flush finds out how much deletes have made stale; no writer fills the buffer.
        if view.is_buffered() && self.flush_may_make_room(&view, behind) && self.was_refused() {
            return Due::AfterFlush;
        }
        let threshold = match cleans {
            true => self.cleaning_threshold(),
            false => tuning.threshold,
        };
        let enough = written / 100 * threshold;
        // Nothing else flushes a buffer that is not full, as long as nobody writes.
        let stale = written.saturating_sub(live + behind);
        let (hidden, mean) = self.hidden_bytes(&view);
        let may_hide = view.is_buffered() && stale <= enough && stale + hidden > enough;
        if may_hide && self.writers_rest_long(&view) {
            return Due::AfterFlush;
        }
        let keys = enough.saturating_sub(stale + hidden) / mean.max(1);
        let look_at = view.database.log.end() + (keys * LEAST_RECORD).max(LEAST_HIDING);
        self.pressure.look_at.fetch_min(look_at, Ordering::Relaxed);
        if written.saturating_sub(live + behind) > enough {
            match cleans {
                // The next flush cleans. It comes soon, unless writers rest.
                true if view.is_buffered() => match self.writers_rest(&view) {
                    true => Due::AfterFlush,
                    false => Due::Later,
                },
                true => Due::Cleaning,
                false => Due::Now,
            }
        } else if written.saturating_sub(live) > enough && behind >= apart {
            Due::AfterFlush
        } else if may_hide {
            Due::Later
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
    /// without a walk: it is what the last one or a compaction met ([`super::survey`]),
    /// or by how much the largest of them exceeds the newest state.
    pub fn kept_bytes(&self, header: &DatabaseHeader, live: u64) -> u64 {
        if header.snapshots.is_empty() {
            return 0;
        }
        let each = header.snapshots.iter().map(|snapshot| {
            let roots = snapshot.namespaces.iter();
            self.bytes_of(roots.map(|(_, root)| root))
        });
        let beyond = each.max().unwrap_or(0).saturating_sub(live);
        beyond.max(self.kept.bytes())
    }

    /// A compaction has carried over so many bytes for named snapshots alone, into a file
    /// that ends at `end`.
    pub(super) fn note_kept(&self, bytes: u64, end: u64) {
        self.kept.note(bytes, end);
    }

    /// The newest state is another: how much is kept is not known any more, and it is
    /// worth a look.
    pub fn forget_kept(&self) {
        self.kept.forget();
        self.notify_background();
    }

    /// A named snapshot or a namespace went: less is kept, and it is worth a look.
    pub fn note_less_kept(&self) {
        self.kept.note_less();
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
        self.filled_bytes(documents) + nodes
    }

    /// About how many bytes documents take whose bounds have so many.
    pub(super) fn filled_bytes(&self, bounds: u64) -> u64 {
        let filled = match self.pressure.filled.load(Ordering::Relaxed) {
            // Half of the eighth by which a bound passes a length at most.
            0 => 940,
            known => known,
        };
        bounds / 1000 * filled
    }

    /// Bytes that a compaction would ask for now.
    pub fn compaction_needs_now(&self) -> u64 {
        let maintenance = lock(&self.maintenance);
        let end = self.view.load().database.log.end();
        let behind = end.saturating_sub(maintenance.header.replay_from);
        let settings = Settings::of_background(&self.tuning);
        self.compaction_needs(&maintenance.header, behind, &settings)
    }
}

/// How many bytes are written when so many percent of them are stale, if `live` of
/// those `flushed` are live, and of each further thousand `replaced` replace others.
/// `None`: never.
fn due_from(live: u64, flushed: u64, replaced: u64, threshold: u64) -> Option<u64> {
    // written - live - (written - flushed) (1000 - replaced) / 1000 = written threshold / 100
    let excess = replaced.checked_sub(10 * threshold).filter(|&it| it > 0)?;
    let of_flushed = flushed.saturating_mul(1000 - replaced.min(1000));
    Some(live.saturating_mul(1000).saturating_sub(of_flushed) / excess)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// What is stale once so much is written, in bytes.
    fn stale(written: u64, live: u64, flushed: u64, replaced: u64) -> u64 {
        let new = (written - flushed) * (1000 - replaced) / 1000;
        written - live - new
    }

    #[test]
    fn it_is_due_where_the_stale_share_reaches_the_threshold() {
        for (live, flushed, replaced, threshold) in [
            (1_000_000, 1_000_000, 1000, 30),
            (1_000_000, 1_200_000, 1000, 30),
            (1_000_000, 1_100_000, 700, 30),
            (1_000_000, 1_000_000, 310, 30),
            (1_000_000, 1_000_000, 1000, 50),
        ] {
            let due = due_from(live, flushed, replaced, threshold).unwrap();
            let share = stale(due, live, flushed, replaced) * 1000 / due;
            assert!(
                share.abs_diff(10 * threshold) <= 1,
                "{share} of a thousand, of {threshold} percent"
            );
        }
    }

    #[test]
    fn a_load_and_a_store_that_never_compacts_are_never_due() {
        assert_eq!(due_from(1_000_000, 1_000_000, 0, 30), None);
        assert_eq!(due_from(1_000_000, 1_000_000, 300, 30), None);
        assert_eq!(due_from(1_000_000, 1_000_000, 1000, 100), None);
        // Nothing is written yet.
        assert_eq!(due_from(0, 0, 1000, 30), Some(0));
    }
}
