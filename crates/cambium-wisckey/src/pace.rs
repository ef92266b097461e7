//! When to seal the write buffer by bytes of log, and where segments end.

use std::sync::atomic::Ordering;

use crate::core::Core;
use crate::options::{Policy, Tuning};
use crate::value_log::Writer;

/// When to seal the write buffer by bytes of log, and where to end segments.
///
/// What is overwritten becomes known garbage only when the tables that hold it are
/// merged. Where writers mostly add keys, large write buffers are best; where they
/// overwrite, small ones, so that garbage is known before it is as much as what is
/// live. Which it is shows in the share of the log that jobs tell to be garbage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Bytes of log after which the write buffer is sealed.
    pub seal_at: u64,
    /// Bytes of live records when the write buffer was last sealed.
    live: u64,
    /// Garbage told when the write buffer was last sealed.
    garbage_told: u64,
    /// Of the bytes logged lately, how many made garbage: 0.0 to about 1.0.
    garbage_share: f64,
}

impl Pace {
    /// Bytes of live records when the write buffer was last sealed.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// As of an opening, or of a seal after `logged` bytes.
    fn after(&self, logged: u64, live: u64, garbage_told: u64, tuning: &Tuning) -> Pace {
        let told = garbage_told.saturating_sub(self.garbage_told);
        let share = match logged {
            0 => self.garbage_share,
            logged => (self.garbage_share + (told as f64 / logged as f64).min(1.0)) / 2.0,
        };
        let room = live / 100 * (tuning.space_limit - 100);
        let seal_at = match share < MUCH_GARBAGE {
            true => room.max(FIRST_SEAL_BYTES),
            false => (room / 8).max(LEAST_SEGMENT_BYTES.min(tuning.segment_bytes)),
        };
        Pace {
            seal_at: seal_at.min(tuning.replay_bytes),
            live,
            garbage_told,
            garbage_share: share,
        }
    }
}

/// Share of the log from which on writers are taken to overwrite.
const MUCH_GARBAGE: f64 = 0.1;
/// A write buffer is sealed after so much log at first.
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
        let (live, garbage_told) = {
            let state = self.ledger.state();
            (state.total_and_live().1, state.garbage_told)
        };
        let pace = writer.pace.after(logged, live, garbage_told, &self.tuning);
        writer.pace = pace;
        let made = (pace.garbage_share * 1000.0) as u64;
        self.counters.garbage_made.store(made, Ordering::Relaxed);
        let overwrites = pace.garbage_share >= MUCH_GARBAGE && self.tuning.policy != Policy::Off;
        self.tree.merge_sooner(overwrites);
    }
}
