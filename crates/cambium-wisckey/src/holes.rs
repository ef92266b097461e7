//! Holes: values within a segment that nothing leads to any more, and whose space
//! went back to the file system before the segment is collected (section 3.3.2
//! frees the log's tail this way).
//!
//! What a flush or compaction drops stands in the log as dead records. Where
//! `hole_bytes` of whole blocks of them lie side by side, the note that counts the
//! garbage says so too ([`crate::note_layouts::HOLE_LAYOUT`]):
//!
//! ```text
//!  │ live │ dead │ dead     │ dead │ live │      the run that the note names
//!  ├──────┼──────┼─┬────────┴───┬──┼──────┤
//!  │ live │      ╎ │ given back │  ╎ live │      its whole blocks
//! ```
//!
//! 1. Blocks are given back only after the edit with the note is durable: from
//!    then on no table leads there, after a crash either.
//! 2. They are given back only when no pin is left from before that edit: a cursor
//!    may hold pointers from before a value was moved. A reader without a pin that
//!    meets a hole looks in the tree again ([`crate::read`]).
//! 3. They are given back only when no consumer of changes needs the segment, and after a
//!    note says that its history is lost ([`crate::history`]).
//! 4. They are given back only while the segment's file has one name: a checkpoint, or
//!    the store that this one is a checkpoint of, may read what is dead here
//!    ([`crate::backup`]).
//! 5. A scan of a segment from start to end skips the named runs.
//!
//! A crash may undo or halve what the file system was told: after an opening every
//! run is given back once more.

use std::collections::BTreeMap;

use cambium_base::Result;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::sharing::has_other_names;

use crate::core::{Core, lock};
use crate::ledger::LedgerState;
use crate::note::NoteItem;
use crate::seeded_bug::SeededBug;
use crate::segment::Segment;

/// Runs that a step gives back at most.
const AT_ONCE: usize = 256;
/// After so many bytes it is known whether the file system gives space back.
const PROOF_BYTES: u64 = 1 << 20;
/// Dead records of a job that are remembered before they are joined.
const MOST_RECORDS: usize = 256 << 10;

/// Which runs become holes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HoleRule {
    /// Least whole blocks of a run, bytes; 0 for no holes.
    pub least: u64,
    /// A block, bytes.
    pub unit: u64,
    /// What [`crate::seeded_bug::SeededBug::HoleTooWide`] does.
    pub too_wide: bool,
}

impl HoleRule {
    /// The whole blocks of a run, as offset and length.
    fn blocks(&self, start: u64, end: u64) -> (u64, u64) {
        let unit = self.unit.max(1);
        if self.too_wide {
            let start = start / unit * unit;
            return (start, end.next_multiple_of(unit) - start);
        }
        let first = start.next_multiple_of(unit);
        (first, (end / unit * unit).saturating_sub(first))
    }
}

/// The runs of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holes {
    /// Start and end; none touches another.
    runs: BTreeMap<u64, u64>,
    given_back: u64,
}

impl Holes {
    /// Joins a run to what it touches; answers what came of it.
    fn add(&mut self, rule: &HoleRule, mut start: u64, mut end: u64) -> (u64, u64) {
        while let Some((&other, &other_end)) = self.runs.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.runs.remove(&other);
            self.given_back -= rule.blocks(other, other_end).1;
            start = start.min(other);
            end = end.max(other_end);
        }
        self.runs.insert(start, end);
        self.given_back += rule.blocks(start, end).1;
        (start, end)
    }

    /// Start and end of each run, ascending.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|(&start, &end)| (start, end))
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.runs.len()
    }
}

/// A run whose blocks are to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    segment: u32,
    run: (u64, u64),
    /// Readers pinned up to here may be led there.
    moment: u64,
}

/// All holes that committed notes told of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HoleLedger {
    of: BTreeMap<u32, Holes>,
    due: Vec<Due>,
    /// The file system gives nothing back.
    refused: bool,
    /// Bytes it was asked for, and gave, until that is known.
    asked: u64,
    given: u64,
}

impl HoleLedger {
    /// A note named a run.
    pub fn add(&mut self, rule: &HoleRule, segment: u32, run: (u64, u64), moment: u64) {
        let holes = self.of.entry(segment).or_default();
        let run = holes.add(rule, run.0, run.1);
        if rule.least > 0 {
            self.due.push(Due {
                segment,
                run,
                moment,
            });
        }
    }

    /// A segment is gone.
    pub fn forget(&mut self, segment: u32) {
        self.of.remove(&segment);
    }

    /// The holes of a segment.
    pub fn of(&self, segment: u32) -> Option<&Holes> {
        self.of.get(&segment)
    }

    /// Bytes of a segment that went back.
    pub fn given_back(&self, segment: u32) -> u64 {
        match self.refused {
            true => 0,
            false => self.of(segment).map_or(0, |holes| holes.given_back),
        }
    }

    /// True if the file system gives nothing back.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// Everything known, as items of a note.
    pub fn items(&self) -> impl Iterator<Item = NoteItem> + '_ {
        self.of.iter().flat_map(|(&segment, holes)| {
            holes.runs().map(move |(start, end)| NoteItem::Hole {
                segment,
                offset: start,
                bytes: end - start,
            })
        })
    }

    /// Takes runs that no reader pinned since `oldest` can be led to, of segments that are
    /// not held.
    fn take_due(&mut self, oldest: Option<u64>, is_held: impl Fn(u32) -> bool) -> Vec<Due> {
        let ready =
            |due: &Due| oldest.is_none_or(|oldest| oldest > due.moment) && !is_held(due.segment);
        let mut taken = Vec::new();
        self.due.retain(|due| {
            let take = taken.len() < AT_ONCE && ready(due);
            if take {
                taken.push(*due);
            }
            !take
        });
        taken
    }

    /// Whether the file system was told often enough to know what it does.
    fn is_proven(&self) -> bool {
        self.asked >= PROOF_BYTES
    }

    fn learn(&mut self, asked: u64, given: u64) {
        self.asked += asked;
        self.given += given;
        if self.is_proven() && self.given == 0 {
            self.refuse();
        }
    }

    fn refuse(&mut self) {
        self.refused = true;
        self.due = Vec::new();
    }
}

/// The dead records that one job leaves.
#[derive(Debug, Default)]
pub(crate) struct DeadRecords {
    rule: HoleRule,
    /// Segment, start and end.
    runs: Vec<(u32, u64, u64)>,
    /// Where the last joining left so many.
    most: usize,
}

impl DeadRecords {
    /// None yet.
    pub fn new(rule: HoleRule) -> Self {
        DeadRecords {
            rule,
            ..DeadRecords::default()
        }
    }

    /// A record is dead once the job is committed.
    pub fn add(&mut self, segment: u32, offset: u64, bytes: u64) {
        if self.rule.least == 0 {
            return;
        }
        self.runs.push((segment, offset, offset + bytes));
        if self.runs.len() >= MOST_RECORDS.max(self.most * 2) {
            self.join();
            self.most = self.runs.len();
        }
    }

    /// Joins neighbours, and forgets what is too short for a hole.
    fn join(&mut self) {
        self.runs.sort_unstable();
        let rule = self.rule;
        let mut joined: Vec<(u32, u64, u64)> = Vec::new();
        for &(segment, start, end) in &self.runs {
            match joined.last_mut() {
                Some(last) if last.0 == segment && last.2 >= start => last.2 = last.2.max(end),
                _ => joined.push((segment, start, end)),
            }
        }
        joined.retain(|&(_, start, end)| rule.blocks(start, end).1 >= rule.least);
        self.runs = joined;
    }

    /// The runs that become holes, as items of the job's note.
    pub fn into_items(mut self) -> impl Iterator<Item = NoteItem> {
        self.join();
        self.runs
            .into_iter()
            .map(|(segment, start, end)| NoteItem::Hole {
                segment,
                offset: start,
                bytes: end - start,
            })
    }
}

impl Core {
    /// Gives back blocks of holes that no reader can be led to any more. True if
    /// others are left for another step.
    pub fn punch_holes(&self) -> bool {
        let (due, lost) = {
            let mut state = self.ledger.state();
            // Asked for under the lock under which runs become due.
            let oldest = match self.has_bug(SeededBug::HoleUnderPin) {
                true => None,
                false => self.ledger.oldest_pin(),
            };
            let held = self.held_history(&state);
            let LedgerState {
                holes, segments, ..
            } = &mut *state;
            let is_held = |number| segments.get(&number).is_some_and(|known| held.has(known));
            let due = holes.take_due(oldest, is_held);
            let numbers: Vec<u32> = due.iter().map(|due| due.segment).collect();
            let through = state.take_history_of(&numbers);
            (due, (through > state.lost_through).then_some(through))
        };
        if lost.is_some_and(|through| self.note_lost_history(through).is_err()) {
            self.ledger.state().holes.due.extend(due);
            return false;
        }
        for due in &due {
            if self.punch(due).is_err() {
                // Nothing is lost but the space, and that not for ever: the
                // segment can be collected.
                self.ledger.state().holes.refuse();
                return false;
            }
        }
        due.len() == AT_ONCE
    }

    /// True if a checkpoint may have the segment too: its space is not ours to give back.
    fn is_shared(&self, segment: &Segment) -> Result<bool> {
        if self.has_bug(SeededBug::HoleInShared) {
            return Ok(false);
        }
        has_other_names(&*self.environment.file_system, segment.path())
    }

    fn punch(&self, due: &Due) -> Result<()> {
        let (known, proven) = {
            let state = self.ledger.state();
            let known = state.segments.contains_key(&due.segment);
            (known, state.holes.is_proven())
        };
        let Some(segment) = self.segment(due.segment).filter(|_| known) else {
            return Ok(());
        };
        let (offset, bytes) = self.ledger.hole_rule.blocks(due.run.0, due.run.1);
        let _sharing = lock(&self.sharing);
        if self.is_shared(&segment)? {
            return Ok(());
        }
        let file = segment.log.file();
        if proven {
            file.punch_hole(offset, bytes)?;
        } else {
            // Where holes are not known, zeros are written in their place.
            let before = file.allocated_bytes()?;
            file.punch_hole(offset, bytes)?;
            let given = before.saturating_sub(file.allocated_bytes()?);
            // What an opening tells once more may have gone back already.
            if given > 0 || due.moment > 0 {
                self.ledger.state().holes.learn(bytes, given);
            }
        }
        self.counters.holes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: HoleRule = HoleRule {
        least: 4096,
        unit: 4096,
        too_wide: false,
    };

    #[test]
    fn only_whole_blocks_of_dead_records_go_back() {
        assert_eq!(RULE.blocks(100, 4095), (4096, 0));
        assert_eq!(RULE.blocks(100, 8192), (4096, 4096));
        assert_eq!(RULE.blocks(4096, 12_287), (4096, 4096));
    }

    #[test]
    fn runs_that_touch_are_one() {
        let mut holes = Holes::default();
        assert_eq!(holes.add(&RULE, 0, 6000), (0, 6000));
        assert_eq!(holes.add(&RULE, 20_000, 30_000), (20_000, 30_000));
        assert_eq!(holes.given_back, 4096 + 8192);
        assert_eq!(holes.add(&RULE, 6000, 20_000), (0, 30_000));
        assert_eq!(holes.given_back, 7 * 4096);
        assert_eq!(holes.add(&RULE, 1000, 2000), (0, 30_000));
        assert_eq!(holes.count(), 1);
    }

    #[test]
    fn records_of_a_job_become_holes_where_they_lie_side_by_side() {
        let mut dead = DeadRecords::new(RULE);
        for record in [5, 2, 4, 9, 3u64] {
            dead.add(7, record * 2000, 2000);
        }
        let items: Vec<NoteItem> = dead.into_items().collect();
        let hole = NoteItem::Hole {
            segment: 7,
            offset: 4000,
            bytes: 8000,
        };
        assert_eq!(items, [hole]);
    }

    #[test]
    fn a_pin_from_before_keeps_a_run() {
        let mut holes = HoleLedger::default();
        holes.add(&RULE, 1, (0, 9000), 5);
        assert!(holes.take_due(Some(5), |_| false).is_empty());
        assert!(holes.take_due(Some(6), |_| true).is_empty());
        assert_eq!(holes.take_due(Some(6), |_| false).len(), 1);
        assert!(holes.take_due(None, |_| false).is_empty());
    }

    #[test]
    fn a_file_system_that_gives_nothing_back_is_asked_no_longer() {
        let mut holes = HoleLedger::default();
        holes.add(&RULE, 1, (0, 1 << 20), 5);
        holes.learn(PROOF_BYTES - 1, 0);
        assert_eq!(holes.given_back(1), 1 << 20);
        holes.learn(1, 0);
        assert!(holes.is_refused());
        assert_eq!(holes.given_back(1), 0);
    }
}
