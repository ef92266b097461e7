//! Ways to make writes durable, and which of them takes the least time.
//!
//! | way | what it does |
//! |---|---|
//! | [`Way::Calls`] | a call for each write, then one for each file's sync |
//! | [`Way::SyncedCalls`] | a call for each write, which the kernel syncs |
//! | [`Way::Ring`] | all writes by one system call, each synced by the kernel; one wait |
//! | [`Way::RingAndCall`] | the same, but the last write is a call meanwhile |
//! | [`Way::RingThenSync`] | all writes by the ring; when they are there, each file's sync |
//!
//! A device that takes requests without blocking has those of the ring all at once, and
//! its flush follows a write without this thread. One that does its work in the call of
//! whoever asks would need a thread of the kernel for each, and waking that takes longer
//! than the work. Which it is nobody says; so it is measured, for each [`Shape`] by itself.

use std::sync::Arc;
use std::time::Duration;

use super::choice::Choice;
use crate::write_queue::WriteRequest;

/// A way to make writes, or what was written before, durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Calls,
    SyncedCalls,
    Ring,
    RingAndCall,
    RingThenSync,
}

/// What is asked for, as far as it decides which way is the quickest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    files: usize,
    /// Writes to each file: none, one, or more, by powers of two.
    writes: u32,
    /// Of all bytes: the logarithm to base 4, rounded down.
    size: u32,
}

impl Shape {
    /// Syncs of so many files.
    pub fn of_syncs(files: usize) -> Self {
        Shape {
            files,
            writes: 0,
            size: 0,
        }
    }

    /// Writes that are to be durable; those to one file stand together.
    pub fn of_writes(requests: &[WriteRequest]) -> Self {
        let of_files = requests.chunk_by(|one, next| Arc::ptr_eq(&one.file, &next.file));
        let files = of_files.count();
        let bytes: usize = requests.iter().map(WriteRequest::byte_count).sum();
        Shape {
            files,
            writes: (requests.len() / files.max(1))
                .checked_ilog2()
                .map_or(0, |log| log + 1),
            size: bytes.max(1).ilog2() / 2,
        }
    }

    /// The ways there are; the first is taken first.
    fn ways(self) -> &'static [Way] {
        match (self.files, self.writes) {
            (0 | 1, 0) => &[Way::Calls],
            (_, 0) => &[Way::RingAndCall, Way::Calls],
            (0 | 1, 1) => &[Way::Calls, Way::SyncedCalls, Way::Ring],
            (_, 1) => &[Way::Ring, Way::RingAndCall, Way::SyncedCalls, Way::Calls],
            _ => &[Way::RingThenSync, Way::Ring, Way::Calls],
        }
    }
}

/// Knows the quickest way for each shape.
#[derive(Debug, Default)]
pub(super) struct Chooser {
    choices: Vec<(Shape, Choice)>,
}

impl Chooser {
    /// The way to take now.
    pub fn next(&mut self, shape: Shape) -> Way {
        let ways = shape.ways();
        ways[self.choice(shape).next()]
    }

    /// That way took so long.
    pub fn took(&mut self, shape: Shape, time: Duration) {
        self.choice(shape).took(time);
    }

    fn choice(&mut self, shape: Shape) -> &mut Choice {
        let known = self.choices.iter().position(|(known, _)| *known == shape);
        let at = known.unwrap_or_else(|| {
            let choice = Choice::new(shape.ways().len());
            self.choices.push((shape, choice));
            self.choices.len() - 1
        });
        &mut self.choices[at].1
    }
}
