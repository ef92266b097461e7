//! Jobs under way, and who may take which table.
//!
//! A job is parked between its steps; whoever calls [`crate::Tree::step`] takes
//! one, does a bounded piece, and parks it again. So any number of threads can
//! take steps, and a test can take them in any order.

use std::collections::BTreeSet;

use crate::compact::CompactionJob;
use crate::flush::FlushJob;
use crate::format::LEVELS;
use crate::version::KeyRange;

/// Where a job is.
#[derive(Debug, Default)]
pub(crate) enum Slot<J> {
    /// There is none.
    #[default]
    Empty,
    /// Some thread is taking a step of it.
    Taken,
    /// It waits for its next step.
    Parked(Box<J>),
}

/// What a compaction keeps others from.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub files: BTreeSet<u64>,
    pub output_level: usize,
    pub range: KeyRange,
}

impl Claim {
    /// True if both cannot run at once.
    pub fn conflicts(&self, other: &Claim) -> bool {
        !self.files.is_disjoint(&other.files)
            || self.output_level == other.output_level && self.range.overlaps(&other.range)
    }
}

/// A compaction under way.
#[derive(Debug)]
pub(crate) struct RunningCompaction {
    pub id: u64,
    pub claim: Claim,
    pub slot: Slot<CompactionJob>,
}

/// All jobs under way.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub flush: Slot<FlushJob>,
    pub compactions: Vec<RunningCompaction>,
    /// No job may begin or go on.
    pub held: bool,
    pub next_id: u64,
    /// Where the last compaction of each level ended, for taking turns.
    pub turns: [Vec<u8>; LEVELS],
}

impl Jobs {
    /// True if any job is under way.
    pub fn any(&self) -> bool {
        !matches!(self.flush, Slot::Empty) || !self.compactions.is_empty()
    }

    /// True if some thread takes a step of a job.
    pub fn any_taken(&self) -> bool {
        let is_taken = |running: &RunningCompaction| matches!(running.slot, Slot::Taken);
        matches!(self.flush, Slot::Taken) || self.compactions.iter().any(is_taken)
    }

    /// Gives parked jobs up; those that are taken end by themselves.
    pub fn abandon(&mut self) {
        if let Slot::Parked(job) = std::mem::take(&mut self.flush) {
            job.abandon();
        }
        for running in self.compactions.drain(..) {
            if let Slot::Parked(job) = running.slot {
                job.abandon();
            }
        }
    }

    /// True if a claim can run beside all others.
    pub fn admits(&self, claim: &Claim) -> bool {
        let mut running = self.compactions.iter();
        !self.held && !running.any(|running| running.claim.conflicts(claim))
    }

    /// Notes a compaction as taken; answers its id.
    pub fn start(&mut self, claim: Claim) -> u64 {
        self.next_id += 1;
        self.compactions.push(RunningCompaction {
            id: self.next_id,
            claim,
            slot: Slot::Taken,
        });
        self.next_id
    }

    /// Takes a parked compaction, the oldest first.
    pub fn take_parked(&mut self) -> Option<(u64, Box<CompactionJob>)> {
        if self.held {
            return None;
        }
        for running in &mut self.compactions {
            if let Slot::Parked(job) = std::mem::replace(&mut running.slot, Slot::Taken) {
                return Some((running.id, job));
            }
        }
        None
    }

    /// Parks a compaction, unless the tree was closed meanwhile.
    pub fn park(&mut self, id: u64, job: Box<CompactionJob>) {
        match self.compactions.iter_mut().find(|running| running.id == id) {
            Some(running) => running.slot = Slot::Parked(job),
            None => job.abandon(),
        }
    }

    /// Forgets a compaction.
    pub fn end(&mut self, id: u64) {
        self.compactions.retain(|running| running.id != id);
    }
}
