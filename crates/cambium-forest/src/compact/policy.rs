//! When a compaction begins by itself, how fast it goes, and when writers are
//! slowed for it.
//!
//! While a compaction runs there are two files, and writers add to the old one.
//! So that both together stay bounded, what writers may add meanwhile is an
//! option (`compaction_slack`, a share of what is live), and both sides keep to
//! it:
//!
//! ```text
//! share copied    1 ┤            ╭──── the compaction waits above this line:
//!                   │         ╱        it is as far as it has to be
//!                   │      ╱     ╱
//!                   │   ╱     ╱  ╲──── writers are slowed below this one
//!                 0 ┼───┬────────┬──▶ written meanwhile, share of the slack
//!                   0  1/2       1
//! ```
//!
//! Writers that are slow so meet a compaction that is slow, down to a least
//! rate. Writers that are fast meet one at full speed, and only if that is not
//! enough each write waits some milliseconds before it joins the queue; it never
//! waits for the compaction as such.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cambium_storage::record::record_bytes;

use super::Compaction;
use super::settings::Settings;
use crate::core::{Core, lock};
use crate::document::DOCUMENT_ALIGNMENT;
use crate::view::View;

/// Between two looks of who waits for the pace.
pub(super) const PAUSE: Duration = Duration::from_millis(1);
/// A compaction nobody writes beside goes at least this fast, in bytes a second.
const LEAST_RATE: u64 = 64 << 20;
/// What it may be ahead of its pace.
const BURST_BYTES: u64 = 16 << 20;
/// The longest that a write is held back, and what a compaction asks for at
/// most for a write of few bytes.
const LONGEST_DELAY: Duration = Duration::from_millis(60);
const LARGEST_DELAY: Duration = Duration::from_millis(20);
/// A write of more bytes is held back as several are.
const DELAYED_BYTES: u64 = 64 << 10;
/// After a compaction that could not begin, before the next attempt.
const RETRY: Duration = Duration::from_secs(5);

/// Whether a compaction should begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Too little is stale.
    No,
    /// Enough may be stale: the index knows when it holds what was written.
    AfterFlush,
    /// Enough is stale.
    Now,
}

/// What a compaction asks of writers.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    /// Nanoseconds that each write waits.
    delay: AtomicU64,
    /// Bytes of documents in a thousand bytes of their bounds; 0: not known yet.
    filled: AtomicU64,
    /// When a compaction may begin by itself again, nanoseconds.
    not_before: AtomicU64,
}

/// How far a compaction is, against what it has to be.
#[derive(Debug)]
pub(super) struct Pace {
    began: Duration,
    /// Bytes to be copied.
    to_copy: u64,
    /// Bytes read and written so far.
    moved: u64,
    /// Bytes of the records among these, written once.
    filled: u64,
    /// Where the old log ended.
    log_began: u64,
    /// Bytes that writers may add.
    slack: u64,
}

impl Pace {
    pub fn new(core: &Core, view: &View, to_copy: u64, settings: &Settings) -> Self {
        let percent = settings.tuning.slack;
        Pace {
            began: core.environment.clock.monotonic(),
            to_copy,
            moved: 0,
            filled: 0,
            log_began: view.database.log.end(),
            slack: (core.live_bytes(view) / 100 * percent).max(LEAST_SLACK),
        }
    }

    /// A document was read and written: the bound of its length that its
    /// address has, and the bytes of its key and value.
    pub fn note(&mut self, bound: u64, bytes: u64) {
        self.moved += 2 * bound;
        self.filled += record_bytes(bytes, DOCUMENT_ALIGNMENT);
    }

    /// What share is copied, in thousandths.
    fn copied(&self, ended: bool) -> u64 {
        if ended || self.to_copy == 0 {
            return 1000;
        }
        (self.moved / 2).saturating_mul(1000) / self.to_copy
    }
}

/// A small store's writers may add this much whatever its size.
const LEAST_SLACK: u64 = 8 << 20;

impl Core {
    /// Whether enough is stale, unless one failed just now.
    pub(super) fn is_compaction_due(&self) -> Due {
        let now = self.environment.clock.monotonic().as_nanos() as u64;
        if self.pressure.not_before.load(Ordering::Relaxed) > now {
            return Due::No;
        }
        self.due()
    }

    /// The background does not try again at once.
    pub(super) fn put_compaction_off(&self) {
        let until = self.environment.clock.monotonic() + RETRY;
        let until = until.as_nanos() as u64;
        self.pressure.not_before.store(until, Ordering::Relaxed);
    }

    fn due(&self) -> Due {
        let tuning = &self.tuning.compaction;
        if tuning.threshold >= 100 {
            return Due::No;
        }
        let view = self.view.load();
        let written = view.database.log.end() - view.database.shape.first_offset();
        let (start, replay_from) = {
            let Ok(maintenance) = self.maintenance.try_lock() else {
                // A flush is going on: later.
                return Due::No;
            };
            (maintenance.header.start, maintenance.header.replay_from)
        };
        let live = self.live_bytes(&view);
        // An eighth of new bytes at least since the last one, whatever is kept.
        if written < tuning.least_bytes || written < start + live / 8 {
            return Due::No;
        }
        // What the indexes do not hold yet may be new, or replace something.
        let behind = view.database.log.end().saturating_sub(replay_from);
        let enough = written / 100 * tuning.threshold;
        if written.saturating_sub(live + behind) > enough {
            Due::Now
        } else if written.saturating_sub(live) > enough && behind > live / 10 {
            Due::AfterFlush
        } else {
            Due::No
        }
    }

    /// About how many bytes of the file the newest state takes. What the index
    /// knows of documents are bounds of their lengths; the last compaction has
    /// seen how far from the lengths these are.
    pub fn live_bytes(&self, view: &View) -> u64 {
        let node = view.database.node_bytes();
        let roots = view.roots.namespaces.values();
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

    /// True if a compaction should wait: it is ahead of its own pace, or of
    /// what all stores of the environment may do together.
    pub(super) fn is_ahead(&self, compaction: &Compaction) -> bool {
        if self
            .environment
            .background
            .is_exhausted(&*self.environment.clock)
        {
            return true;
        }
        let pace = &compaction.pace;
        let elapsed = self
            .environment
            .clock
            .monotonic()
            .saturating_sub(pace.began);
        let settings = &compaction.settings;
        let rate = settings.tuning.rate_bytes;
        if rate > 0 && pace.moved > bytes_in(elapsed, rate) + rate.min(BURST_BYTES) {
            return true;
        }
        if !settings.background || compaction.copying.is_none() {
            return false;
        }
        // As far as it has to be when half of the slack is used up.
        let written = self.written_meanwhile(compaction);
        let share = written.saturating_mul(2000) / pace.slack;
        pace.copied(false) > share && pace.moved > bytes_in(elapsed, LEAST_RATE) + BURST_BYTES
    }

    fn written_meanwhile(&self, compaction: &Compaction) -> u64 {
        let end = compaction.source.view.database.log.end();
        end.saturating_sub(compaction.pace.log_began)
    }

    /// Holds writers back as far as a compaction is behind them.
    pub(super) fn hold_writers_to(&self, compaction: &Compaction) {
        let pace = &compaction.pace;
        let written = self.written_meanwhile(compaction);
        let copied = pace.copied(compaction.copying.is_none());
        let allowed = pace.slack / 2 + pace.slack / 2000 * copied.min(1000);
        let excess = written.saturating_sub(allowed);
        let largest = LARGEST_DELAY.as_nanos() as u64;
        let behind = largest.min(excess.saturating_mul(largest) / (pace.slack / 4).max(1));
        let delay = behind.max(compaction.round.delay());
        self.pressure.delay.store(delay, Ordering::Relaxed);
    }

    /// Remembers how far lengths are from their bounds.
    pub(super) fn note_filled(&self, compaction: &Compaction) {
        let (bytes, bounds) = (compaction.pace.filled, compaction.pace.moved / 2);
        if bounds > 0 && bytes <= bounds {
            let filled = (bytes.saturating_mul(1000) / bounds).max(1);
            self.pressure.filled.store(filled, Ordering::Relaxed);
        }
    }

    /// Lets writers go on at their own speed.
    pub(super) fn release_writers(&self) {
        self.pressure.delay.store(0, Ordering::Relaxed);
    }

    /// A writer waits here before it takes any lock, if a compaction is behind.
    pub fn yield_to_compaction(&self, bytes: u64) {
        let delay = self.pressure.delay.load(Ordering::Relaxed);
        if delay == 0 {
            return;
        }
        let times = 1 + bytes / DELAYED_BYTES;
        let delay = Duration::from_nanos(delay.saturating_mul(times)).min(LONGEST_DELAY);
        self.counters.delays.fetch_add(1, Ordering::Relaxed);
        let nanoseconds = delay.as_nanos() as u64;
        self.counters
            .delayed_nanoseconds
            .fetch_add(nanoseconds, Ordering::Relaxed);
        self.environment.clock.sleep(delay);
    }

    /// Bytes that a compaction would ask for now.
    pub fn compaction_needs_now(&self) -> u64 {
        let maintenance = lock(&self.maintenance);
        let end = self.view.load().database.log.end();
        let behind = end.saturating_sub(maintenance.header.replay_from);
        self.compaction_needs(&maintenance.header, behind)
    }
}

fn bytes_in(time: Duration, rate: u64) -> u64 {
    (time.as_secs_f64() * rate as f64) as u64
}
