//! What was asked for lately and is not cached.

use crate::sync::OnceLock;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Which places were asked for lately: what is asked for once need not be kept, and costs
/// a mark in place of a copy.
///
/// Marks share their places; one that is asked for rarely gives way to others, and a wrong
/// one says too early that it is enough.
///
/// ```
/// let marks = cambium_io::cache::Marks::new(1024);
/// let asked: Vec<bool> = (0..3).map(|_| marks.count(7, 3)).collect();
/// assert_eq!(asked, [false, false, true]);
/// ```
#[derive(Debug)]
pub struct Marks {
    /// How many there are.
    count: u64,
    /// Of a place with this one's hash, how often it was asked for. Made at first use.
    marks: OnceLock<Box<[AtomicU32]>>,
}

/// Bits of a mark that count; the others tell places apart.
const COUNT: u32 = 7;
/// Most marks: 4 MiB.
const MOST_MARKS: u64 = 1 << 20;

impl Marks {
    /// About so many marks, of 4 bytes each.
    pub fn new(marks: u64) -> Self {
        Marks {
            count: marks.min(MOST_MARKS).next_power_of_two(),
            marks: OnceLock::new(),
        }
    }

    /// Counts that a place was asked for; true, and it begins again, at so many times, 2
    /// to 7.
    pub fn count(&self, place: u64, enough: u32) -> bool {
        let hash = place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mark = hash as u32 & !COUNT;
        let marks = self
            .marks
            .get_or_init(|| (0..self.count).map(|_| AtomicU32::new(0)).collect());
        let slot = &marks[(hash >> 40) as usize % marks.len()];
        let before = slot.load(Ordering::Relaxed);
        let (after, is_enough) = match (before & !COUNT == mark, before & COUNT) {
            (true, count) if count + 1 >= enough => (mark, true),
            (true, _) => (before + 1, false),
            (false, 0 | 1) => (mark | 1, false),
            (false, _) => (before - 1, false),
        };
        // Two that mark at once count as one.
        slot.store(after, Ordering::Relaxed);
        is_enough
    }
}
