//! Merges the writes of several threads into one history, and computes the states that
//! a crash may leave.

use std::collections::BTreeSet;

use cambium_api::{Durability, SequenceNumber};

use super::actor::{KEYS, Written, value_of};
use super::session::{Played, Point};
use crate::crash::Expectation;
use crate::following::Mirror;
use crate::history::History;
use crate::holding::{Change, Entries, State, apply, brief};
use crate::linearizability::{Observation, Operation, check};
use crate::workload::key;

/// The writes of a session in the order of their sequence numbers, above a history.
pub(super) struct Order {
    pub(super) history: History,
    /// The state of the history at the session's beginning.
    base: usize,
    /// State `base + 1 + n` is after write `n`.
    writes: Vec<Written>,
    syncs: Vec<std::ops::Range<u64>>,
    /// Writes that answered an error.
    doubtful: Vec<Written>,
    /// Numbers that a follower was told to survive any crash, and when.
    survives: Vec<(u64, SequenceNumber)>,
}

impl Order {
    /// Orders what a session wrote.
    pub(super) fn new(mut history: History, played: &Played) -> Self {
        let base = history.window().sent;
        let records = || played.records.iter();
        let (mut writes, doubtful): (Vec<Written>, Vec<Written>) = records()
            .flat_map(|record| record.writes.iter().cloned())
            .partition(|write| write.sequence.is_some());
        writes.sort_by_key(|write| write.sequence);
        for write in &writes {
            history.send(&Change::Write(write.batch.clone()));
            let sequence = write.sequence.map(SequenceNumber);
            history.acknowledge(sequence, Durability::Buffered);
        }
        Order {
            history,
            base,
            writes,
            syncs: records().flat_map(|record| record.syncs.clone()).collect(),
            doubtful,
            survives: played
                .followed
                .iter()
                .flat_map(|it| it.survives.clone())
                .collect(),
        }
    }

    /// The newest state whose number is not above `number`.
    fn state_at(&self, number: SequenceNumber) -> usize {
        let is_within = |write: &Written| write.sequence.is_some_and(|at| at <= number.0);
        let newest = self.writes.iter().rposition(is_within);
        newest.map_or(self.base, |place| self.base + 1 + place)
    }

    /// Holds the batches that a follower saw against the states that the writes made.
    ///
    /// # Errors
    /// The batch that is not whole, is not in order, or is missing.
    pub(super) fn check_followed(&self, played: &Played) -> Result<(), String> {
        let Some(followed) = &played.followed else {
            return Ok(());
        };
        let mut mirror = Mirror {
            at: followed.start,
            spaces: played.found.spaces.clone(),
        };
        for batch in &followed.shown {
            let applied = mirror.apply(batch);
            applied.map_err(|error| format!("following changes: {error}"))?;
            let expected = self.history.state(self.state_at(batch.last));
            if let Some(what) = mirror.difference(&expected.spaces) {
                // A write that answered an error may have been done.
                if self.doubtful.is_empty() {
                    return Err(what);
                }
                return Ok(());
            }
        }
        let done = |tick: u64| self.writes.iter().rposition(|write| write.time.end < tick);
        let oldest = followed.complete.and_then(done);
        let oldest = oldest.map_or(self.base, |place| self.base + 1 + place);
        let mut possible = oldest..=self.history.window().sent;
        if !possible.any(|at| mirror.difference(&self.history.state(at).spaces).is_none()) {
            let expected = &self.history.state(oldest).spaces;
            let what = mirror.difference(expected).unwrap_or_default();
            return Err(format!("changes are missing at the end: {what}"));
        }
        Ok(())
    }

    /// The newest state that was acknowledged at least this safe before a tick.
    fn secured(&self, durability: Durability, tick: u64) -> usize {
        let numbered = self.writes.iter().enumerate();
        let acknowledged = numbered.filter(|(_, write)| {
            let asked = match durability {
                Durability::Written => write.durability != Durability::Buffered,
                _ => write.durability == Durability::Synced,
            };
            let earlier_than_a_sync = self
                .syncs
                .iter()
                .any(|sync| write.time.end <= sync.start && sync.end < tick);
            (asked && write.time.end < tick) || earlier_than_a_sync
        });
        let newest = acknowledged.map(|(number, _)| self.base + 1 + number).max();
        newest.unwrap_or(self.base)
    }

    /// The newest state that can have been sent before a tick.
    fn sent(&self, tick: u64) -> usize {
        let numbered = self.writes.iter().enumerate();
        let begun = numbered.filter(|(_, write)| write.time.start < tick);
        let newest = begun.map(|(number, _)| self.base + 1 + number).max();
        newest.unwrap_or(self.base)
    }

    /// The states that a power cut, and those that the end of the process, may leave at a
    /// point.
    pub(super) fn expectations(&self, point: &Point) -> (Expectation, Expectation) {
        let window = self.history.window();
        let shown = self.survives.iter().filter(|(tick, _)| *tick < point.tick);
        let shown = shown.map(|(_, number)| self.state_at(*number)).max();
        let synced = self
            .secured(Durability::Synced, point.tick)
            .max(window.synced)
            .max(shown.unwrap_or_default());
        let written = self
            .secured(Durability::Written, point.tick)
            .max(window.written)
            .max(synced);
        let expectation = |low| Expectation {
            low,
            synced,
            high: self.sent(point.tick),
            created: point.created,
        };
        (expectation(synced), expectation(written))
    }

    /// One line for each write, for a failure's text.
    pub(super) fn describe(&self, tick: u64) -> String {
        let mut text = format!("\n    the crash was at tick {tick}; the session's writes:");
        for (number, write) in self.writes.iter().enumerate() {
            let (state, time) = (self.base + 1 + number, &write.time);
            let sequence = write.sequence.unwrap_or_default();
            text += &format!(
                "\n    state {state}: number {sequence}, {:?}, ticks {time:?}, {} operations",
                write.durability,
                write.batch.operations().len()
            );
        }
        for write in &self.doubtful {
            text += &format!(
                "\n    answered an error: {:?}, ticks {:?}, {} operations",
                write.durability,
                write.time,
                write.batch.operations().len()
            );
        }
        text + &format!("\n    syncs: {:?}", self.syncs)
    }

    /// Holds what a session saw against one order of all its writes.
    ///
    /// # Errors
    /// The first operation that has no place in it.
    pub(super) fn check_linearizable(&self, played: &Played) -> Result<(), String> {
        let before = self.history.sequence_at(self.base).0;
        let mut changes = Vec::new();
        let entries = &played.found.spaces[""];
        for number in 0..KEYS {
            if let Some(value) = entries.get(&key(played.keys, number)) {
                let value = value_of(value).map_err(|stop| format!("{stop:?}"))?;
                changes.push((number, Some(value)));
            }
        }
        // The state at the opening, as if one write had made it.
        let mut all = vec![Operation {
            time: 0..1,
            observation: Observation::Wrote {
                sequence: before.max(1),
                changes,
                saw: Vec::new(),
            },
        }];
        if before == 0 {
            all.clear();
        }
        for record in &played.records {
            all.extend(record.operations.iter().cloned());
        }
        check(&all)
    }

    /// Where writes failed, each key has a value that it may have: of the oldest
    /// state that had to survive, of a later write, or of one that failed.
    ///
    /// # Errors
    /// The key whose value is none of those.
    pub(super) fn check_doubtful(&self, found: &Entries, low: usize) -> Result<(), String> {
        let mut states: Vec<State> = Vec::new();
        for at in low..=self.history.window().sent {
            let state = self.history.state(at);
            states.push(state.clone());
            let after = |write: &Written| apply(state, &Change::Write(write.batch.clone()));
            states.extend(self.doubtful.iter().map(after));
        }
        let keys: BTreeSet<&Vec<u8>> = states
            .iter()
            .flat_map(|state| state.entries().keys())
            .chain(found.keys())
            .collect();
        for key in keys {
            let value = found.get(key);
            if !states.iter().any(|state| state.entries().get(key) == value) {
                return Err(format!(
                    "key {} has {}, which no write from state {low} on gave it",
                    cambium_base::hexdump::readable(&key[..key.len().min(24)]),
                    brief(value),
                ));
            }
        }
        Ok(())
    }
}
