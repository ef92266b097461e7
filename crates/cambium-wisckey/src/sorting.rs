//! Sorting on request: values of the log into the order of their keys.
//!
//! Garbage collection sorts what it moves, and moves no more than it must. A store
//! that was written in random order and never overwritten has no garbage, and its
//! scans read each value for itself for ever. So a compaction that was asked for
//! walks the keys, a *window* of values after the other, and moves those windows
//! that lie scattered.
//!
//! ```text
//!  keys      a    b    c    d  │  e    f    g    h  │
//!  values    5/80 2/10 9/44 1/7│  6/0  6/1  6/2  6/3│    segment/place
//!            scattered: moved  │  together: stays   │
//! ```
//!
//! Moving is that of a collection ([`crate::moving`]): values are durable at their new
//! place before a pointer is exchanged, and whatever is written meanwhile wins. The
//! segments that values came from are empty then, and are dropped without being read.
//! Sorting what is sorted moves nothing.

use std::sync::Arc;

use cambium_base::{Result, Value};
use cambium_lsm::Moment;

use crate::collect::Work;
use crate::core::{Core, lock};
use crate::format::{SegmentKind, Stored};
use crate::moving::LiveValue;
use crate::read::{LARGEST_GAP, Wanted};

/// Where values lie one after the other for so many bytes on average, a window is
/// sorted enough: longer reads are hardly faster, and values of that size need no
/// sorting.
const SORTED_BYTES: u64 = 64 << 10;
/// Jumps that any window may take: to its first value, and where a segment ends.
const SORTED_JUMPS: u64 = 2;

/// Values of keys that follow each other.
#[derive(Debug, Default)]
struct KeyStretch {
    wanted: Vec<Wanted>,
    bytes: u64,
    /// Where the next one begins; `None` after the last key.
    next: Option<Vec<u8>>,
}

impl KeyStretch {
    /// True if who walks its keys jumps back and forth in the log.
    fn is_scattered(&self) -> bool {
        let ends = |want: &Wanted| {
            let bytes = want.pointer.record_bytes(want.full_key.len());
            (want.pointer.segment, want.pointer.offset + bytes)
        };
        let jumps = self.wanted.windows(2).filter(|pair| {
            let ((segment, end), next) = (ends(&pair[0]), pair[1].pointer);
            next.segment != segment || next.offset < end || next.offset > end + LARGEST_GAP
        });
        jumps.count() as u64 > SORTED_JUMPS + self.bytes / SORTED_BYTES
    }
}

impl Core {
    /// Moves what lies scattered; answers whether there was any. Only what is in
    /// tables is looked at. Values that cannot be read stay where they are.
    ///
    /// Nothing is done where the device has no room for all values a second time:
    /// the segments that they leave are freed afterwards.
    pub fn sort_values(
        self: &Arc<Self>,
        work: &mut Work,
        mut report: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<bool> {
        let live = self.ledger.state().total_and_live().1;
        let room = self.environment.file_system.space(&self.path)?.available;
        if room / 2 < live {
            return Ok(false);
        }
        let (mut from, mut done, mut moved) = (Some(Vec::new()), 0, false);
        while let Some(first) = from {
            // What its pointers lead to stays until it has moved.
            let pin = self.pin()?;
            let started = self.environment.clock.monotonic();
            let window = self.stretch_from(&first, pin.moment)?;
            work.search += self.since(started);
            done += window.bytes;
            from = window.next.clone();
            if window.is_scattered() {
                let before = work.moved_bytes();
                moved |= self.sort_stretch(window, work)?;
                self.environment
                    .pay_for_background(work.moved_bytes() - before);
            }
            drop(pin);
            if self.tree.seal_due() {
                self.seal(&mut lock(&self.writer))?;
                self.tree.flush()?;
            }
            report(done.min(live), live)?;
        }
        Ok(moved)
    }

    /// The next values that tables point to.
    fn stretch_from(&self, first: &[u8], moment: Moment) -> Result<KeyStretch> {
        let state = self.ledger.state();
        let is_settled = |number: u32| {
            let account = state.segments.get(&number);
            account.is_some_and(|account| {
                account.kind == SegmentKind::Moved || number < state.head.segment
            })
        };
        let mut window = KeyStretch::default();
        let mut cursor = self.tree.cursor(Some(first), None, moment)?;
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            if window.bytes >= self.tuning.window_bytes {
                window.next = Some(entry.key.to_vec());
                break;
            }
            match Stored::decode(entry.value) {
                Some(Stored::Pointer(pointer)) if is_settled(pointer.segment) => {
                    window.bytes += pointer.record_bytes(entry.key.len());
                    window.wanted.push(Wanted {
                        pointer,
                        sequence: entry.sequence,
                        full_key: Value::copy_of(entry.key),
                    });
                }
                Some(_) => {}
                None => return Err(self.strange_entry()),
            }
            cursor.next()?;
        }
        Ok(window)
    }

    fn sort_stretch(self: &Arc<Self>, window: KeyStretch, work: &mut Work) -> Result<bool> {
        let started = self.environment.clock.monotonic();
        let values = match self.fetch(&window.wanted) {
            Err(error) if error.is_corruption() => return Ok(false),
            values => values?,
        };
        work.read += self.since(started);
        work.read_operations += window.wanted.len() as u64;
        work.bytes_read += window.bytes;
        let live = window.wanted.iter().zip(&values);
        let live = live.map(|(want, value)| LiveValue {
            full_key: &want.full_key,
            value,
            sequence: want.sequence,
            pointer: want.pointer,
        });
        let live: Vec<LiveValue<'_>> = live.collect();
        let mut collector = lock(&self.collection);
        self.move_window(&mut collector, &live, None, work)?;
        Ok(true)
    }
}
