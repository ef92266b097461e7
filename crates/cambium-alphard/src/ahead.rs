//! Zeros ahead of what is written, in files.
//!
//! A file's space is reserved when the file is made, not written. The first write to each
//! place of it changes what the file system knows of the file, and the sync after such a
//! write has to commit the file system's journal: small synced writes go at half the rate
//! then, and the slowest take four times as long. Once something was written there, that is
//! over. So zeros are written in the background, a stretch ahead of where entries go next,
//! in large pieces with pauses.
//!
//! ```text
//!            touched   lead    zeroed            limit
//!  entries ────┼────────┼─zeros──┼─────reserved────┤
//!              └─────── window ────────┘
//! ```
//!
//! Large groups go to such space as they are, but in longer writes
//! ([`Ahead::meets_fresh_space`]).
//!
//! - *Where*: in free blocks only, after all that were in use or given out since the
//!   opening. A piece is taken out of the allocator while it is written, so no writer
//!   uses it; a writer that finds no other space waits for it ([`Core::take_zeroed_back`]).
//!   Free blocks may hold anything, so a crash may leave any part of a piece.
//! - *When*: once so many small synced groups went to such space; a store that is written to now
//!   and then, or in large groups, has none of it. Writers that catch up with the zeros are
//!   faster: then it ends, and takes more groups to begin again.
//! - *Not* on devices, which have no journal; not in files that are not written past the
//!   operating system's cache, that were filled when they were made (`fill`), nor where
//!   holes are punched again (`discard_bytes`).

use std::time::Duration;

use cambium_base::Extent;
use cambium_io::sync::atomic::Ordering;
use cambium_io::{Environment, FileKind, StepOutcome};
use cambium_storage::allocator::Allocator;

use crate::core::{Core, Writer, lock};
use crate::options::Tuning;
use crate::seeded_bug::SeededBug;
use crate::volume::Volume;

/// Most bytes of one write of zeros, and how many pieces a window has at least.
const MOST_PIECE_BYTES: u32 = 1 << 20;
const PIECES: u32 = 32;
/// Groups that must have met reserved space before zeros are written: one for each of so
/// many bytes of the window, to begin with at most so many, and at most.
const BYTES_A_GROUP: u64 = 1 << 20;
const FIRST_GROUPS: u32 = 16;
const MOST_GROUPS: u32 = 1 << 14;
/// The pause after a piece: so many times as long as writing it took, and at most.
const PAUSE: u32 = 8;
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// What is known of space that was never written.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// Blocks that are to be kept ahead; 0 where nothing is done.
    window: u32,
    /// Blocks of one write.
    piece: u32,
    /// Behind all blocks that were in use, or given out, since the opening.
    touched: u32,
    /// The end of what zeros were written to.
    zeroed: u32,
    /// The present group has space that nothing was written to.
    fresh: bool,
    /// Small synced groups of that kind since zeros were last written.
    groups: u32,
    /// Zeros are written after so many, to begin with and now.
    first_patience: u32,
    patience: u32,
    /// Zeros are being written, piece by piece.
    active: bool,
    /// What is being written, taken out of the allocator.
    under_way: Option<Extent>,
}

/// What to do about zeros now.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Write(Extent),
    /// Enough is ahead.
    Enough,
    /// There is nothing to do until groups meet reserved space.
    Nothing,
}

impl Ahead {
    /// For a store whose blocks from `touched` on were not in use when it was opened.
    fn new(window_bytes: u64, block_bytes: u32, touched: u32) -> Self {
        let blocks = window_bytes / u64::from(block_bytes);
        let window = u32::try_from(blocks).unwrap_or(u32::MAX / 2);
        let patience = (window_bytes / BYTES_A_GROUP).clamp(1, FIRST_GROUPS.into()) as u32;
        Ahead {
            window,
            piece: (window / PIECES).clamp(1, MOST_PIECE_BYTES / block_bytes),
            touched,
            first_patience: patience,
            patience,
            ..Ahead::default()
        }
    }

    /// Space was given out.
    pub fn gave(&mut self, extent: Extent) {
        let end = extent.end() as u32;
        if end > self.touched {
            self.fresh |= end > self.zeroed;
            self.touched = end;
        }
    }

    /// True if the present group has space of a file that nothing was written to, as far as
    /// is known. Unless a write lies on the file system's own blocks there, it has them for
    /// itself: another one waits.
    pub fn meets_fresh_space(&self) -> bool {
        self.fresh && self.window > 0
    }

    /// A group that was synced, or is on its way, has its space. True if zeros should be
    /// written from now on.
    fn group(&mut self, is_small: bool) -> bool {
        let counts = std::mem::take(&mut self.fresh) && is_small && self.window > 0;
        self.groups = self.groups.saturating_add(counts.into());
        counts && !self.active && self.groups == self.patience
    }

    /// What to do now; a piece is taken out of the allocator.
    fn next(&mut self, allocator: &mut Allocator) -> Next {
        if self.window == 0 || self.groups < self.patience || self.under_way.is_some() {
            return Next::Nothing;
        }
        let lead = self.touched.saturating_add(self.piece);
        if self.active && self.zeroed < lead {
            self.end((self.patience * 2).min(MOST_GROUPS));
            return Next::Nothing;
        }
        self.active = true;
        self.zeroed = self.zeroed.max(lead);
        let limit = allocator.limit();
        while self.zeroed < limit {
            if self.zeroed >= self.touched.saturating_add(self.window) {
                return Next::Enough;
            }
            let piece = Extent {
                block: self.zeroed,
                blocks: self.piece.min(limit - self.zeroed),
            };
            self.zeroed = piece.end() as u32;
            if allocator.take(piece) {
                self.under_way = Some(piece);
                return Next::Write(piece);
            }
        }
        self.end(self.first_patience);
        Next::Nothing
    }

    /// No more until so many groups have met reserved space.
    fn end(&mut self, patience: u32) {
        self.active = false;
        self.groups = 0;
        self.patience = patience;
    }
}

impl Writer {
    /// Frees the piece that was being written, unless a writer has taken it back.
    fn free_zeroed(&mut self) -> bool {
        let piece = self.ahead.under_way.take();
        piece.is_some_and(|piece| {
            self.allocator.free(piece);
            true
        })
    }
}

/// True where zeros ahead are of use.
fn is_of_use(environment: &Environment, volume: &Volume, tuning: &Tuning) -> bool {
    tuning.zero_ahead_bytes > 0
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
        if !is_of_use(&self.environment, &self.volume, &self.tuning) {
            return false;
        }
        let mut writer = lock(&self.writer);
        if writer.superblock.filled {
            return false;
        }
        let touched = writer.allocator.taken_end();
        writer.ahead = Ahead::new(self.tuning.zero_ahead_bytes, self.block_bytes, touched);
        true
    }

    /// The present group has its space: notes whether it met some that was reserved only.
    pub fn note_group(&self, writer: &mut Writer, is_small: bool) {
        if writer.ahead.group(is_small) {
            if let Some(task) = self.zeros.get() {
                task.notify();
            }
        }
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
        // A close waits for it.
        let _one_at_a_time = lock(&self.zeroing);
        if self.health.is_closed() {
            return StepOutcome::Done;
        }
        if self.health.check_sound().is_err() {
            return StepOutcome::Asleep;
        }
        if self.environment.is_background_ahead() {
            return StepOutcome::WaitIo;
        }
        let mut guard = lock(&self.writer);
        let writer = &mut *guard;
        let piece = match writer.ahead.next(&mut writer.allocator) {
            Next::Write(piece) => piece,
            Next::Enough => return StepOutcome::Idle,
            Next::Nothing => return StepOutcome::Asleep,
        };
        if self.has_bug(SeededBug::ZeroesFreed) {
            writer.free_zeroed();
        }
        let writing = lock(&self.zeros_under_way);
        drop(guard);
        let bytes = piece.blocks as usize * self.block_bytes as usize;
        let written = self.volume.write_zeros(piece.block, bytes);
        drop(writing);
        let mut writer = lock(&self.writer);
        writer.free_zeroed();
        if written.is_err() || self.volume.current() != writer.superblock.current {
            // Who writes there meets the same, and tells; the next write says who is lost.
            writer.ahead = Ahead::default();
            return StepOutcome::Asleep;
        }
        let counted = &self.counters.zeroed;
        counted.fetch_add(bytes as u64, Ordering::Relaxed);
        self.environment.pay_for_background(bytes as u64);
        StepOutcome::Again
    }

    /// Waits for zeros that are being written, and frees their space; false if there are none.
    pub fn take_zeroed_back(&self, writer: &mut Writer) -> bool {
        if writer.ahead.under_way.is_some() {
            drop(lock(&self.zeros_under_way));
        }
        writer.free_zeroed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries of 4 blocks, one a group.
    fn put(ahead: &mut Ahead, allocator: &mut Allocator) -> bool {
        let given = allocator.alloc(4);
        given.into_iter().for_each(|extent| ahead.gave(extent));
        ahead.group(true)
    }

    /// 64 blocks of 512 bytes ahead, in pieces of 2, of a store that has 1,000.
    fn small() -> (Ahead, Allocator) {
        (Ahead::new(64 * 512, 512, 16), Allocator::new(16, 1_000))
    }

    #[test]
    fn zeros_go_a_stretch_ahead_and_stop_there_until_entries_follow() {
        let (mut ahead, mut allocator) = small();
        assert_eq!(ahead.next(&mut allocator), Next::Nothing, "nobody writes");
        assert!(put(&mut ahead, &mut allocator));
        let mut end = 22;
        while let Next::Write(piece) = ahead.next(&mut allocator) {
            assert_eq!((piece.block, piece.blocks), (end, 2));
            assert!(allocator.is_taken(piece));
            assert_eq!(ahead.next(&mut allocator), Next::Nothing, "one at a time");
            end += 2;
            ahead.under_way = None;
            allocator.free(piece);
        }
        assert_eq!(end, 20 + 64);
        assert_eq!(ahead.next(&mut allocator), Next::Enough);
        // What was zeroed is not reserved only: nobody asks for more.
        for _ in 0..5 {
            assert!(!put(&mut ahead, &mut allocator));
        }
        assert_eq!(ahead.groups, 1);
        assert!(matches!(ahead.next(&mut allocator), Next::Write(_)));
    }

    #[test]
    fn who_is_faster_than_the_zeros_is_left_alone_for_a_while() {
        let (mut ahead, mut allocator) = small();
        assert!(put(&mut ahead, &mut allocator));
        assert!(matches!(ahead.next(&mut allocator), Next::Write(_)));
        ahead.under_way = None;
        for _ in 0..3 {
            put(&mut ahead, &mut allocator);
        }
        assert_eq!(ahead.next(&mut allocator), Next::Nothing);
        assert!(!put(&mut ahead, &mut allocator));
        assert!(put(&mut ahead, &mut allocator), "two groups now");
        assert!(matches!(ahead.next(&mut allocator), Next::Write(_)));
    }

    #[test]
    fn large_groups_and_space_that_was_used_ask_for_no_zeros() {
        let (mut ahead, mut allocator) = small();
        for _ in 0..10 {
            let given = allocator.alloc(4);
            given.into_iter().for_each(|extent| ahead.gave(extent));
            assert!(ahead.meets_fresh_space());
            assert!(!ahead.group(false));
            assert!(!ahead.meets_fresh_space(), "the next group may not");
        }
        ahead.gave(Extent {
            block: 16,
            blocks: 4,
        });
        assert!(!ahead.meets_fresh_space());
        assert!(!ahead.group(true));
        assert_eq!(ahead.next(&mut allocator), Next::Nothing);
        let mut off = Ahead::default();
        assert!(!put(&mut off, &mut allocator));
        off.gave(Extent {
            block: 900,
            blocks: 4,
        });
        assert!(!off.meets_fresh_space(), "a device has none");
        assert_eq!(off.next(&mut allocator), Next::Nothing);
    }

    #[test]
    fn zeros_end_where_the_space_in_use_ends_and_pass_over_what_is_taken() {
        let mut ahead = Ahead::new(64 * 512, 512, 16);
        let mut allocator = Allocator::new(16, 40);
        assert!(put(&mut ahead, &mut allocator));
        assert!(allocator.take(Extent {
            block: 25,
            blocks: 1
        }));
        let mut written = Vec::new();
        while let Next::Write(piece) = ahead.next(&mut allocator) {
            written.push(piece.block);
            ahead.under_way = None;
        }
        assert_eq!(written, [22, 26, 28, 30, 32, 34, 36, 38]);
        assert!(!ahead.active);
    }
}
