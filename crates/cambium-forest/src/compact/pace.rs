//! How fast a compaction goes, and when writers are slowed for it.
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
//!                   0  1/8      3/4
//! ```
//!
//! Writers that are slow so meet a compaction that is slow, down to a least
//! rate. Writers that are fast meet one at full speed, and only if that is not
//! enough are they slowed to a **rate**: what is left of the slack, over the time
//! that what is left to copy will take. Each write takes its turn on a line that
//! all writers share: it waits for the turns of the writes before it, each as long as its
//! bytes take at that rate. None waits for the compaction as such.
//!
//! Catching up, writers may go at a third of the rate of copying, so that each
//! round is a third of the one before it.

use std::time::Duration;

use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Compaction;
use super::settings::Settings;
use crate::core::Core;
use crate::seeded_bug::SeededBug;
use crate::upkeep::PutOff;
use crate::view::View;

/// Between two looks of who waits for the pace.
pub(super) const PAUSE: Duration = Duration::from_millis(1);
/// The least speed of a compaction without writers beside it, in bytes a second.
const LEAST_RATE: u64 = 256 << 20;
/// What it may be ahead of its pace.
const BURST_BYTES: u64 = 16 << 20;
/// A small store's writers may add this much whatever its size.
const LEAST_SLACK: u64 = 8 << 20;
/// What writers may add while documents are copied, in thousandths of the slack;
/// the rest is for catching up.
const WHILE_COPYING: u64 = 650;
/// What they may add before they are slowed, in thousandths of the slack.
const AT_ONCE: u64 = 125;
/// Bytes a second of copying, before one was seen.
const FIRST_RATE: u64 = 256 << 20;
/// A rate is that of about this much work.
const RATE_OF: Duration = Duration::from_millis(400);
/// Writers are never slowed below this, in bytes a second.
const LEAST_ALLOWED: u64 = 2 << 20;
/// A write's bytes beside those of its keys and values, about.
const WRITE_OVERHEAD: u64 = 64;
/// The longest that a writer sleeps before it looks whether it still has to wait.
const LONGEST_SLEEP: Duration = Duration::from_millis(60);
/// What is not worth going to sleep for: the line remembers it.
/// Few long sleeps leave the 99th percentile of writes alone, many short ones do not.
const SHORTEST_DELAY: Duration = Duration::from_micros(500);

/// What a compaction asks of writers.
#[derive(Debug)]
pub(crate) struct Pressure {
    /// Nanoseconds of a KiB on the line that writers share; with 0 no writer waits.
    cost: AtomicU64,
    /// Where that line ends, in nanoseconds of the clock.
    line: AtomicU64,
    /// Bytes of documents in a thousand bytes of their bounds; 0: not known yet.
    pub(super) filled: AtomicU64,
    /// Bytes a second that the last compaction copied; 0: there was none.
    copied: AtomicU64,
    /// A compaction that began by itself failed: the next one waits.
    pub(super) put_off: PutOff,
    /// Where the log ends when it is worth a look whether one is due.
    pub(super) look_at: AtomicU64,
    /// True while one runs: then its pace says how fast writers may be.
    pub runs: AtomicBool,
    /// Where it ends when writers wait until one begins that is due.
    pub(super) hold_at: AtomicU64,
    /// Of a thousand bytes that the last flush carried, those that replaced others.
    pub replaced: AtomicU64,
}

impl Default for Pressure {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Pressure {
            cost: zero(),
            line: zero(),
            filled: zero(),
            copied: zero(),
            put_off: PutOff::default(),
            look_at: AtomicU64::new(u64::MAX),
            runs: AtomicBool::new(false),
            hold_at: AtomicU64::new(u64::MAX),
            replaced: zero(),
        }
    }
}

/// How far a compaction is, against what it has to be.
#[derive(Debug)]
pub(super) struct Pace {
    began: Duration,
    /// Bytes to be copied.
    to_copy: u64,
    /// Bytes read and written so far.
    moved: u64,
    /// Bytes of documents that count as dealt out when all are, and those that do
    /// now: dealing a byte out takes about as long as copying it.
    to_deal: u64,
    dealt: u64,
    /// Bounds of what was written takes, and the bytes that it takes.
    bounds: u64,
    filled: u64,
    has_copied: bool,
    /// Where the old log ended.
    log_began: u64,
    /// Bytes that writers may add.
    slack: u64,
    /// Time that was worked of late, and bytes that were carried over in it.
    worked: Duration,
    carried: u64,
}

impl Pace {
    pub fn new(core: &Core, view: &View, to_copy: u64, settings: &Settings) -> Self {
        let percent = settings.tuning.slack;
        let last = match core.pressure.copied.load(Ordering::Relaxed) {
            0 => FIRST_RATE,
            rate => rate,
        };
        Pace {
            began: core.environment.clock.monotonic(),
            to_copy,
            moved: 0,
            to_deal: 0,
            dealt: 0,
            bounds: 0,
            filled: 0,
            has_copied: false,
            log_began: view.database.log.end(),
            slack: core.slack_bytes(core.live_bytes(view), percent),
            worked: RATE_OF / 8,
            carried: bytes_in(RATE_OF / 8, last),
        }
    }

    /// A document was read and written whose old address has such a bound of its length.
    pub fn note_moved(&mut self, bound: u64) {
        self.moved += 2 * bound;
    }

    /// Documents take so many bytes of the new file, and their new addresses have such
    /// bounds in all.
    pub fn note_filled(&mut self, bounds: u64, bytes: u64) {
        self.bounds += bounds;
        self.filled += bytes;
    }

    /// Documents of so many bytes are there already, and are not copied.
    pub fn leave_out(&mut self, bytes: u64) {
        self.to_copy = self.to_copy.saturating_sub(bytes);
    }

    /// Documents of so many bytes will be dealt out before they are copied.
    pub fn expect_dealing(&mut self, bytes: u64) {
        self.to_deal = bytes;
        self.to_copy += bytes;
    }

    /// Documents of so many bytes were dealt out.
    pub fn note_dealt(&mut self, bytes: u64) {
        let counted = bytes.min(self.to_deal - self.dealt);
        self.dealt += counted;
        self.moved += 2 * counted;
    }

    /// Bytes of documents that were dealt out.
    pub fn dealt_bytes(&self) -> u64 {
        self.dealt
    }

    /// Some of all windows need no dealing any more: what was to be dealt of them
    /// is, or stays where it lies.
    pub fn end_dealing(&mut self, windows: u32, of: u32) {
        let share = self.to_deal / u64::from(of.max(1)) * u64::from(windows);
        self.note_dealt(share.saturating_sub(self.dealt));
    }

    /// Bytes that were copied or dealt out.
    pub fn copied_bytes(&self) -> u64 {
        self.moved / 2
    }

    /// Some time was worked, and so many bytes are carried over in it.
    pub fn spent(&mut self, time: Duration, bytes: u64) {
        self.worked += time;
        self.carried += bytes;
        if self.worked > RATE_OF {
            self.worked /= 2;
            self.carried /= 2;
        }
    }

    /// Everything is copied.
    pub fn end_copying(&mut self) {
        self.has_copied = true;
    }

    pub fn has_copied(&self) -> bool {
        self.has_copied
    }

    /// What share is copied, in thousandths.
    fn copied(&self) -> u64 {
        if self.has_copied || self.to_copy == 0 {
            return 1000;
        }
        (self.copied_bytes().saturating_mul(1000) / self.to_copy).min(1000)
    }

    /// Bytes a second.
    fn rate(&self) -> u64 {
        (self.carried as f64 / self.worked.as_secs_f64()) as u64
    }

    /// Bytes a second that writers may write who have written so many since it
    /// began; `None`: as many as they like.
    fn allowed(&self, written: u64, slower: u32) -> Option<u64> {
        if self.has_copied {
            return Some(((self.rate() / 3) >> slower).max(LEAST_ALLOWED));
        }
        let share = AT_ONCE + (WHILE_COPYING - AT_ONCE) * self.copied() / 1000;
        if written <= self.slack / 1000 * share {
            return None;
        }
        let left = self.to_copy.saturating_sub(self.copied_bytes());
        let seconds = left as f64 / self.rate().max(1) as f64;
        let room = (self.slack / 1000 * WHILE_COPYING).saturating_sub(written);
        Some(((room as f64 / seconds.max(0.001)) as u64).max(LEAST_ALLOWED))
    }
}

impl Core {
    /// True if a compaction should wait: for a named snapshot that is being made, or
    /// since it is ahead of its own pace, or of what all stores of the environment may
    /// do together.
    pub(super) fn is_ahead(&self, compaction: &Compaction) -> bool {
        if self.is_held(compaction) {
            return true;
        }
        if self.environment.is_background_ahead() {
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
        if rate > 0 && compaction.moved_bytes() > bytes_in(elapsed, rate) + rate.min(BURST_BYTES) {
            return true;
        }
        if !settings.background || compaction.copying.is_none() {
            return false;
        }
        // As far as it has to be when half of the slack is used up.
        let written = self.written_meanwhile(compaction);
        let share = written.saturating_mul(2000) / pace.slack;
        pace.copied() > share && pace.moved > bytes_in(elapsed, LEAST_RATE) + BURST_BYTES
    }

    fn written_meanwhile(&self, compaction: &Compaction) -> u64 {
        let end = compaction.source.view.database.log.end();
        end.saturating_sub(compaction.pace.log_began)
    }

    /// Slows writers in proportion to what a compaction has yet to catch up with.
    pub(super) fn hold_writers_to(&self, compaction: &Compaction) {
        let written = self.written_meanwhile(compaction);
        let allowed = compaction.pace.allowed(written, compaction.round.slower());
        let cost = allowed.map_or(0, cost_at);
        self.pressure.cost.store(cost, Ordering::Relaxed);
    }

    /// Bytes that writers may add where a compaction is due or runs.
    pub(super) fn slack_bytes(&self, live: u64, percent: u64) -> u64 {
        (live / 100 * percent).max(LEAST_SLACK)
    }

    /// Slows writers as far as they are ever slowed.
    pub(super) fn hold_writers(&self) {
        let cost = cost_at(LEAST_ALLOWED);
        self.pressure.cost.store(cost, Ordering::Relaxed);
    }

    /// Remembers how far lengths are from their bounds, and how fast it went.
    pub(super) fn note_filled(&self, compaction: &Compaction) {
        let pace = &compaction.pace;
        let (bytes, bounds) = (pace.filled, pace.bounds);
        if bounds > 0 && bytes <= bounds {
            let filled = (bytes.saturating_mul(1000) / bounds).max(1);
            self.pressure.filled.store(filled, Ordering::Relaxed);
            self.pressure.copied.store(pace.rate(), Ordering::Relaxed);
        }
    }

    /// A compaction runs: writers no longer wait for it to begin.
    pub(super) fn note_begun(&self) {
        self.pressure.runs.store(true, Ordering::Relaxed);
        self.meanwhile.set_running(true);
        self.pressure.hold_at.store(u64::MAX, Ordering::Relaxed);
    }

    /// A compaction runs no more: lets writers go on at their own speed.
    pub(super) fn note_ended(&self) {
        self.pressure.runs.store(false, Ordering::Relaxed);
        self.meanwhile.set_running(false);
        self.release_writers();
    }

    /// Lets writers go on at their own speed.
    pub(super) fn release_writers(&self) {
        self.pressure.cost.store(0, Ordering::Relaxed);
        self.pressure.line.store(0, Ordering::Relaxed);
    }

    /// A writer waits here before it takes any lock, if a compaction is slower than writers.
    pub fn yield_to_compaction(&self, bytes: u64) {
        let cost = self.pressure.cost.load(Ordering::Relaxed);
        if cost == 0 {
            return;
        }
        let clock = &self.environment.clock;
        let began = clock.monotonic();
        let now = began.as_nanos() as u64;
        let own = (bytes + WRITE_OVERHEAD).saturating_mul(cost) >> 10;
        let most = match self.has_bug(SeededBug::LongDelaysCut) {
            true => now + LONGEST_SLEEP.as_nanos() as u64,
            false => u64::MAX,
        };
        let behind = |line: u64| Some(line.max(now).saturating_add(own).min(most));
        // Its turn comes where the line ended; never refused.
        let line = &self.pressure.line;
        let turn = line.fetch_update(Ordering::Relaxed, Ordering::Relaxed, behind);
        let turn = Duration::from_nanos(turn.unwrap_or_else(|line| line));
        if turn.saturating_sub(began) < SHORTEST_DELAY {
            return;
        }
        let is_held = || self.pressure.cost.load(Ordering::Relaxed) > 0;
        self.delay(turn, LONGEST_SLEEP, is_held);
    }

    /// Delays a writer until a moment, or until it is not held back any more; it looks after
    /// each sleep of `longest`.
    pub fn delay(&self, until: Duration, longest: Duration, is_held: impl Fn() -> bool) {
        let clock = &self.environment.clock;
        let began = clock.monotonic();
        while is_held() && !self.health.is_closed() {
            let left = until.saturating_sub(clock.monotonic());
            if left.is_zero() {
                break;
            }
            clock.sleep(left.min(longest));
        }
        let delayed = clock.monotonic().saturating_sub(began).as_nanos() as u64;
        let counters = &self.counters;
        counters.delays.fetch_add(1, Ordering::Relaxed);
        counters
            .delayed_nanoseconds
            .fetch_add(delayed, Ordering::Relaxed);
    }
}

/// What a KiB costs on the writers' line at a rate in bytes a second.
fn cost_at(rate: u64) -> u64 {
    (1_000_000_000 << 10) / rate.max(1)
}

fn bytes_in(time: Duration, rate: u64) -> u64 {
    (time.as_secs_f64() * rate as f64) as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot go on has failed

    use std::path::Path;

    use cambium_api::OptionValues;
    use cambium_io::Environment;
    use cambium_storage::creation::Making;

    use super::*;

    /// How long writers take for eight writes of so many bytes each that are slowed to
    /// the least rate.
    fn time_of_eight(bytes: u64, bug: Option<&str>) -> Duration {
        let environment = Environment::memory();
        let mut options = OptionValues::default();
        bug.into_iter()
            .for_each(|bug| _ = options.set("seeded_bug", bug));
        let making = crate::open::make(&environment, Path::new("/s"), &options);
        let core = making.and_then(Making::conclude).unwrap();
        core.hold_writers();
        let began = environment.clock.monotonic();
        (0..9).for_each(|_| core.yield_to_compaction(bytes));
        environment.clock.monotonic() - began
    }

    #[test]
    fn large_writes_are_slowed_to_the_rate_as_small_ones_are() {
        for bytes in [4 << 10, 256 << 10, 1 << 20, 16 << 20] {
            let rate = |bug| (8 * bytes) as f64 / time_of_eight(bytes, bug).as_secs_f64();
            let allowed = LEAST_ALLOWED as f64;
            assert!(rate(None) <= 1.01 * allowed, "{bytes} bytes");
            assert!(rate(None) >= 0.95 * allowed, "{bytes} bytes");
            let is_found = rate(Some("long_delays_cut")) > 1.01 * allowed;
            assert_eq!(is_found, bytes > 128 << 10, "{bytes} bytes");
        }
    }

    #[test]
    fn a_writer_that_waits_goes_on_when_the_compaction_ends() {
        let environment = Environment::real();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let making = crate::open::make(&environment, &path, &OptionValues::default());
        let core = making.and_then(Making::conclude).unwrap();
        core.hold_writers();
        core.yield_to_compaction(1 << 30);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| core.yield_to_compaction(1));
            while core.counters.delays.load(Ordering::Relaxed) == 0 && !waits.is_finished() {
                core.note_ended();
                std::thread::yield_now();
            }
        });
    }
}
