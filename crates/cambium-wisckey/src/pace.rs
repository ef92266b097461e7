//! When to seal the write buffer by bytes of log, and where segments end.
//!
//! Tables tell what is garbage, but late: a flush and a merge after it was made. So
//! writes are sampled too, one in so many bytes of log: write buffers and filters say
//! whether its key was there, and no device is asked. What was hidden, by the samples,
//! and was not told of yet is garbage all the same ([`crate::choose`]).

use std::ops::Range;

use cambium_io::sync::atomic::Ordering;

use crate::core::Core;
use crate::format::kind;
use crate::options::{Policy, Tuning};
use crate::value_log::{LogEntry, Writer};

/// A write is sampled where its record runs over a multiple of this.
const SAMPLE_BYTES: u64 = 32 << 10;
/// Weight of a sample against those before it: 1 in so many.
const SAMPLE_WEIGHT: u64 = 64;
/// Samples before which nothing is said.
const FEWEST_SAMPLES: u64 = 16;

/// When to seal the write buffer by bytes of log, and where to end segments.
///
/// What is overwritten becomes known garbage only when the tables that hold it are
/// merged. Where writers mostly add keys, large write buffers are best; where they
/// overwrite, small ones, so that garbage is known before it is as much as what is
/// live. Which it is shows in the samples.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Bytes of log after which the write buffer is sealed.
    pub seal_at: u64,
    /// Bytes of live records when the write buffer was last sealed.
    live: u64,
    /// Writers are taken to overwrite.
    overwrites: bool,
}

impl Pace {
    /// Bytes of live records when the write buffer was last sealed.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// As of an opening, or of a seal; of late, a share `hiding` of samples hid a value.
    fn of(live: u64, hiding: f64, tuning: &Tuning) -> Pace {
        let overwrites = hiding >= MUCH_GARBAGE;
        let room = live / 100 * (tuning.space_limit - 100);
        let seal_at = match overwrites {
            false => room.max(FIRST_SEAL_BYTES / 100 * (tuning.space_limit - 100)),
            true => room / 8,
        };
        let least = LEAST_SEGMENT_BYTES.min(tuning.segment_bytes);
        Pace {
            seal_at: seal_at.max(least).min(tuning.replay_bytes),
            live,
            overwrites,
        }
    }
}

/// Share of the log from which on writers are taken to overwrite.
const MUCH_GARBAGE: f64 = 0.1;
/// A write buffer is sealed after so much log at first, where space may be twice what is
/// live; in proportion where it may be more or less.
const FIRST_SEAL_BYTES: u64 = 64 << 20;
/// Segments of small stores end here: a sixteenth of what is live.
const LEAST_SEGMENT_BYTES: u64 = 4 << 20;

impl Core {
    /// Where segments end while so many bytes are live: small stores have small
    /// ones, so that a segment's worth of garbage is not much of them.
    pub fn segment_target(&self, live: u64) -> u64 {
        let most = self.tuning.segment_bytes;
        (live / 16).clamp(LEAST_SEGMENT_BYTES.min(most), most)
    }

    /// Computes anew when to seal; `logged` bytes went by since the last time.
    pub fn set_pace(&self, writer: &mut Writer, logged: u64) {
        let (total, live) = self.ledger.state().total_and_live();
        self.home.keeper.log_has(total + logged);
        writer.pace = Pace::of(live, self.hiding_share(), &self.tuning);
    }

    /// Computes anew when to seal, if writers were not taken to overwrite, and do.
    pub fn look_at_samples(&self, writer: &mut Writer) {
        if !writer.pace.overwrites && self.hiding_share() >= MUCH_GARBAGE {
            self.set_pace(writer, 0);
        }
    }

    /// Of the writes of late, the share of samples that hid a value.
    fn hiding_share(&self) -> f64 {
        let hiding = &self.counters.hiding;
        match hiding.samples.load(Ordering::Relaxed) {
            0..FEWEST_SAMPLES => 0.0,
            _ => hiding.share.load(Ordering::Relaxed) as f64 / 1e6,
        }
    }

    /// Samples a record at a place of the log, before it is in the tree. Called under
    /// the writer lock.
    pub fn sample(&self, entry: &LogEntry<'_>, place: Range<u64>) {
        let bytes =
            place.end / SAMPLE_BYTES * SAMPLE_BYTES - place.start / SAMPLE_BYTES * SAMPLE_BYTES;
        // Small values are garbage of the log whatever they hide.
        let counts = match entry.kind {
            kind::PUT => entry.second.len() > self.tuning.inline_bytes,
            other => other == kind::DELETE,
        };
        if bytes == 0 || !counts || self.tuning.policy == Policy::Off {
            return;
        }
        let hiding = &self.counters.hiding;
        let Some(hides) = self.tree.probably_has(entry.first) else {
            // A new table that was never read is taken to hide as much as the others.
            let expected = bytes * hiding.share.load(Ordering::Relaxed) / 1_000_000;
            hiding.bytes.fetch_add(expected, Ordering::Relaxed);
            return;
        };
        let before = hiding.share.load(Ordering::Relaxed);
        let now = if hides { 1_000_000 } else { 0 };
        let share = (before * (SAMPLE_WEIGHT - 1) + now) / SAMPLE_WEIGHT;
        hiding.share.store(share, Ordering::Relaxed);
        hiding.samples.fetch_add(1, Ordering::Relaxed);
        if hides {
            hiding.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes that writes hid and no job told of yet, by the samples; at most `most`. What
    /// cannot be is forgotten, so that errors do not add up.
    pub fn hidden_by_samples(&self, told: u64, most: u64) -> u64 {
        let hiding = &self.counters.hiding;
        if hiding.samples.load(Ordering::Relaxed) < FEWEST_SAMPLES {
            return 0;
        }
        let seen = hiding.bytes.load(Ordering::Relaxed);
        let possible = seen.clamp(told, told.saturating_add(most));
        if possible > seen {
            hiding.bytes.fetch_add(possible - seen, Ordering::Relaxed);
        } else {
            hiding.bytes.fetch_sub(seen - possible, Ordering::Relaxed);
        }
        possible - told
    }
}
