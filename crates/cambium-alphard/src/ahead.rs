//! Zeros ahead of what is written, in files.
//!
//! A file's space is reserved when the file is made, not written. The first write to each
//! place of it changes what the file system knows of the file, and the sync after such a
//! write has to commit the file system's journal: small synced writes go at half the rate
//! then, and the slowest take four times as long. Once something was written there, that is
//! over. So while small synced groups take new space into use, the background writes zeros
//! to the space that comes next, in pieces with pauses.
//!
//! ```text
//!            touched    high water       zeroed         total
//!  entries ─────┼──────────┼────zeros──────┼───reserved───┤
//!                          └─ next step of extend_bytes ┘
//! ```
//!
//! - *Where*: behind the high water, where no entry ever lay and no writer may write. So
//!   zeros and entries never meet: a writer that raises the high water waits for the piece
//!   that is being written ([`crate::space`]). A crash may leave any part of a piece.
//! - *Not* on devices, which have no journal; not in files that are not written past the
//!   operating system's cache, that were filled when they were made (`fill`), nor where
//!   holes are punched again (`discard_bytes`).

use std::time::Duration;

use cambium_base::Extent;
use cambium_io::sync::atomic::Ordering;
use cambium_io::{Environment, FileKind, StepOutcome};

use crate::core::{Core, Writer, lock};
use crate::options::Tuning;
use crate::seeded_bug::SeededBug;
use crate::volume::Volume;

/// Most bytes of one write of zeros, and how many pieces a step has at least.
const MOST_PIECE_BYTES: u32 = 1 << 20;
const PIECES: u32 = 32;
/// Zeros are written once some small synced groups have taken new space since the high water
/// was raised: one for each of so many bytes of the step, and at most so many.
const BYTES_A_GROUP: u64 = 1 << 20;
const MOST_GROUPS: u64 = 16;
/// The least step of a store with zeros ahead: the first one has none.
const FIRST_STEP_BYTES: u64 = 4 << 20;
/// The pause after a piece: so many times as long as writing it took, and at most.
const PAUSE: u32 = 8;
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The space of a file that nothing was written to.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// Zeros are of use in this store.
    is_on: bool,
    /// Behind all blocks that were in use, or given out, since the opening.
    touched: u32,
    /// The end of what zeros were written to.
    zeroed: u32,
    /// The present group has taken new space, and some that nothing was written to.
    is_new: bool,
    is_fresh: bool,
    /// Small synced groups that took new space since the high water was raised.
    groups: u32,
}

impl Ahead {
    /// Space was given out.
    pub fn gave(&mut self, extent: Extent) {
        let end = extent.end() as u32;
        if end > self.touched {
            self.is_new = true;
            self.is_fresh |= end > self.zeroed;
            self.touched = end;
        }
    }

    /// True if the present group has space of a file that nothing was written to, as far as
    /// is known. Unless a write lies on the file system's own blocks there, it has them for
    /// itself: another one waits.
    pub fn meets_fresh_space(&self) -> bool {
        self.is_on && self.is_fresh
    }

    /// A group that was synced, or is on its way, has its space. True if zeros should be
    /// written from now on.
    fn group(&mut self, is_small: bool, least: u32) -> bool {
        self.is_fresh = false;
        let counts = std::mem::take(&mut self.is_new) && is_small && self.is_on;
        self.groups = self.groups.saturating_add(counts.into());
        counts && self.groups == least
    }

    /// The high water is raised: the next zeros wait for the next small groups.
    pub fn raised(&mut self) {
        self.groups = 0;
    }

    /// How far to raise the high water: steps grow with the store, so that the first one,
    /// which has no zeros, is small.
    pub fn step_bytes(&self, used_bytes: u64, extend_bytes: u64) -> u64 {
        match self.is_on {
            true => extend_bytes.min((used_bytes / 8).max(FIRST_STEP_BYTES)),
            false => extend_bytes,
        }
    }

    /// Where zeros go next, up to `end`, after so many groups at least.
    fn next(&mut self, high_water: u32, end: u32, most: u32, least: u32) -> Option<Extent> {
        let block = self.zeroed.max(high_water);
        if !self.is_on || self.groups < least || block >= end {
            return None;
        }
        let blocks = ((end - high_water) / PIECES)
            .clamp(1, most)
            .min(end - block);
        self.zeroed = block + blocks;
        Some(Extent { block, blocks })
    }
}

/// True where zeros ahead are of use.
fn is_of_use(environment: &Environment, volume: &Volume, tuning: &Tuning) -> bool {
    tuning.zero_ahead
        && tuning.discard_bytes == 0
        && (0..volume.member_count()).all(|member| {
            let found = environment.file_system.metadata(volume.member_path(member));
            let is_file = matches!(found, Ok(Some(found)) if found.kind == FileKind::File);
            let file = volume.file_of(member);
            is_file && file.is_ok_and(|file| file.alignment().offset > 1)
        })
}

impl Core {
    /// Has zeros written ahead from now on, if they are of use; says so.
    pub fn begin_ahead(&self) -> bool {
        let mut writer = lock(&self.writer);
        let is_on =
            !writer.superblock.filled && is_of_use(&self.environment, &self.volume, &self.tuning);
        writer.ahead = Ahead {
            is_on,
            touched: writer.allocator.taken_end(),
            ..Ahead::default()
        };
        is_on
    }

    /// The present group has its space: notes whether it took new space.
    pub fn note_group(&self, writer: &mut Writer, is_small: bool) {
        let least = self.least_groups(writer);
        if writer.ahead.group(is_small, least) {
            if let Some(task) = self.zeros.get() {
                task.notify();
            }
        }
    }

    /// How many small groups have to take new space before zeros are written.
    fn least_groups(&self, writer: &Writer) -> u32 {
        let blocks = self.next_limit(writer, 0) - writer.allocator.limit();
        let bytes = u64::from(blocks) * u64::from(self.block_bytes);
        (bytes / BYTES_A_GROUP).clamp(1, MOST_GROUPS) as u32
    }

    /// A step of the background: a piece of zeros, and a pause.
    pub fn zero_and_pause(&self) -> StepOutcome {
        let clock = &self.environment.clock;
        let begin = clock.monotonic();
        let outcome = self.zero_ahead();
        if outcome == StepOutcome::Again {
            let took = clock.monotonic() - begin;
            clock.sleep((took * PAUSE).min(LONGEST_PAUSE));
        }
        outcome
    }

    /// Writes a piece of zeros, if some should be ahead.
    pub fn zero_ahead(&self) -> StepOutcome {
        if self.environment.is_background_ahead() {
            return StepOutcome::WaitIo;
        }
        let (piece, writing) = {
            let mut guard = lock(&self.writer);
            if self.health.is_closed() {
                return StepOutcome::Done;
            }
            let Ok(writing) = self.zeroing.try_lock() else {
                return StepOutcome::Idle;
            };
            let writer = &mut *guard;
            let (end, least) = (self.next_limit(writer, 0), self.least_groups(writer));
            let (limit, most) = (
                writer.allocator.limit(),
                MOST_PIECE_BYTES / self.block_bytes,
            );
            let next = writer.ahead.next(limit, end, most, least);
            match next.filter(|_| self.health.check_sound().is_ok()) {
                Some(piece) => (piece, writing),
                None => return StepOutcome::Asleep,
            }
        };
        let bytes = piece.blocks as usize * self.block_bytes as usize;
        let written = self.volume.write_zeros(piece.block, bytes);
        drop(writing);
        let mut writer = lock(&self.writer);
        if written.is_err() || self.volume.current() != writer.superblock.current {
            // The next write that meets the failure reports it.
            writer.ahead = Ahead::default();
            return StepOutcome::Asleep;
        }
        let counted = &self.counters.zeroed;
        counted.fetch_add(bytes as u64, Ordering::Relaxed);
        self.environment.pay_for_background(bytes as u64);
        StepOutcome::Again
    }

    /// Waits for zeros that are being written. The caller holds the writer lock, so no more
    /// are begun.
    pub fn wait_for_zeros(&self) {
        if !self.has_bug(SeededBug::ZeroesFreed) {
            drop(lock(&self.zeroing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u32 = 64;
    const GROUPS: u32 = 16;

    /// An entry of 4 blocks, alone in its group.
    fn put(ahead: &mut Ahead, block: u32) -> bool {
        ahead.gave(Extent { block, blocks: 4 });
        ahead.group(true, GROUPS)
    }

    #[test]
    fn zeros_go_a_step_behind_the_high_water_after_small_groups_in_new_space() {
        let mut ahead = Ahead {
            is_on: true,
            ..Ahead::default()
        };
        let next = |ahead: &mut Ahead, limit: u32| ahead.next(limit, limit + STEP, 8, GROUPS);
        let asked = (0..GROUPS).filter(|group| put(&mut ahead, 16 + 4 * group));
        assert_eq!(asked.collect::<Vec<_>>(), [GROUPS - 1]);
        let mut end = 100;
        while let Some(piece) = next(&mut ahead, 100) {
            assert_eq!((piece.block, piece.blocks), (end, 2));
            end += 2;
        }
        assert_eq!(end, 100 + STEP);
        ahead.raised();
        assert_eq!(next(&mut ahead, 164), None, "no group since");
        ahead.gave(Extent {
            block: 100,
            blocks: 4,
        });
        assert!(!ahead.meets_fresh_space());
        assert!(!ahead.group(true, GROUPS));
        // Large groups, and those in space that was used, count for nothing.
        for _ in 0..2 * GROUPS {
            assert!(!put(&mut ahead, 16));
            ahead.gave(Extent {
                block: ahead.touched,
                blocks: 1,
            });
            assert!(!ahead.group(false, GROUPS));
        }
        assert_eq!(ahead.groups, 1);
        ahead.gave(Extent {
            block: 160,
            blocks: 8,
        });
        assert!(ahead.meets_fresh_space(), "behind the zeros");
    }

    #[test]
    fn a_store_without_zeros_has_no_fresh_space_and_takes_whole_steps() {
        let mut ahead = Ahead::default();
        assert!((0..100).all(|group| !put(&mut ahead, 4 * group)));
        ahead.gave(Extent {
            block: 900,
            blocks: 4,
        });
        assert!(!ahead.meets_fresh_space());
        assert_eq!(ahead.next(100, 200, 8, 0), None);
        assert_eq!(ahead.step_bytes(0, 64 << 20), 64 << 20);
        ahead.is_on = true;
        assert_eq!(ahead.step_bytes(0, 64 << 20), FIRST_STEP_BYTES);
        assert_eq!(ahead.step_bytes(1 << 30, 64 << 20), 64 << 20);
        assert_eq!(ahead.step_bytes(1 << 30, 4096), 4096);
    }
}
