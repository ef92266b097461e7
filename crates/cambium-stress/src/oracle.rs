//! Decides whether what a store holds is what it may hold.
//!
//! Writes have sequence numbers, and a store must equal the state after all writes up
//! to some number S. Each thread writes its own keys, one operation after another, so
//! its keys must look as after the first P of its operations, for some P. Each P that
//! fits the keys seen allows S an interval: from the number of the last acknowledged
//! operation among those P to before that of the next. Some S must be in the intervals
//! of all threads and of all shared groups, and not below the **floor**: the highest
//! sequence number that a promise covers.
//!
//! The promise: after a close, every acknowledged write is there; after a kill, every
//! one acknowledged as written or synced; after a power cut, every one synced. A promise
//! about a write covers all that were acknowledged before it began.
//!
//! An operation without an answer has no known number: it may be in or not, whole.

use std::collections::HashMap;

use crate::content::{KeyId, MEMBERS, Version, describe, fits, group_keys, shared_version, value};
use crate::ledger::{Base, Effect, Level, Logged, Outcome, version_of};

/// The values that were read from the store; keys without a value are missing.
pub type Observed = HashMap<KeyId, Vec<u8>>;
/// Sequence numbers from the first to the second, both included.
type Interval = (u64, u64);

/// The promise that a store has to keep.
#[derive(Clone, Copy, Debug)]
pub enum Promise {
    /// Writes that were acknowledged with this durability are there.
    Least(Level),
    /// No write since the base.
    Nothing,
    /// The store was brought back to the state of this sequence number.
    Moment(u64),
}

/// Finds the observed state among the promised ones; it becomes the next base.
pub fn verify(
    base: &Base,
    logs: &[Vec<Logged>],
    promise: Promise,
    observed: &Observed,
) -> Result<Base, String> {
    let floors = logs
        .iter()
        .flatten()
        .filter(|operation| is_promised(operation, promise))
        .map(|operation| operation.floor.max(own_number(operation).unwrap_or(0)));
    let mut allowed = vec![match promise {
        Promise::Least(_) => (floors.max().unwrap_or(0), u64::MAX),
        Promise::Moment(number) => (number, number),
        Promise::Nothing => (0, u64::MAX),
    }];
    let mut fits = Vec::new();
    for (thread, log) in logs.iter().enumerate() {
        let fit = fit_thread(thread, &base.own[thread], log, promise, observed)?;
        allowed = narrow(&allowed, &fit.intervals(), || {
            format!(
                "the keys of thread {thread} and those of threads before it are of different moments"
            )
        })?;
        fits.push(fit);
    }
    let mut groups = Vec::new();
    for (group, &before) in base.groups.iter().enumerate() {
        let writes = fit_group(group, before, logs, observed)?;
        let intervals: Vec<Interval> = writes.iter().map(|&(_, interval)| interval).collect();
        allowed = narrow(&allowed, &intervals, || {
            format!("shared group {group} and the keys of threads are of different moments")
        })?;
        groups.push(writes);
    }
    let moment = allowed.last().map_or(0, |interval| interval.1);
    let contains = |interval: Interval| interval.0 <= moment && moment <= interval.1;
    Ok(Base {
        generation: base.generation + 1,
        own: fits.iter().map(|fit| fit.state_at(&contains)).collect(),
        groups: groups
            .iter()
            .map(|writes| {
                writes
                    .iter()
                    .rev()
                    .find(|write| contains(write.1))
                    .and_then(|write| write.0)
            })
            .collect(),
        next: logs
            .iter()
            .zip(&base.next)
            .map(|(log, &next)| log.last().map_or(next, |last| last.number + 1))
            .collect(),
    })
}

/// True if an operation, and what was acknowledged before it, must be in the store. A
/// write that changed nothing, and got no number of its own, promises nothing about
/// earlier buffered ones, unless it was synced.
fn is_promised(operation: &Logged, promise: Promise) -> bool {
    let Promise::Least(least) = promise else {
        return false;
    };
    let Outcome::Acknowledged(number) = operation.outcome else {
        return false;
    };
    let has_number = number.is_some_and(|number| number > operation.floor);
    operation.level >= least
        && (has_number || least == Level::Buffered || operation.level == Level::Synced)
}

fn own_number(operation: &Logged) -> Option<u64> {
    match operation.outcome {
        Outcome::Acknowledged(number) if !operation.effects.is_empty() => number,
        _ => None,
    }
}

fn narrow(
    one: &[Interval],
    other: &[Interval],
    what: impl Fn() -> String,
) -> Result<Vec<Interval>, String> {
    let mut both: Vec<Interval> = one
        .iter()
        .flat_map(|a| other.iter().map(|b| (a.0.max(b.0), a.1.min(b.1))))
        .filter(|interval| interval.0 <= interval.1)
        .collect();
    both.sort_unstable();
    both.dedup();
    if both.is_empty() {
        return Err(format!(
            "no prefix of the writes gives this state: {}; sequence numbers {one:?} against {other:?}",
            what()
        ));
    }
    Ok(both)
}

/// How many operations of a thread may have happened for its keys to look as observed.
struct Fit<'a> {
    start: Replay<'a>,
    operations: Vec<&'a Logged>,
    /// Counts that fit, each with the sequence numbers it allows.
    found: Vec<(usize, Interval)>,
}

impl Fit<'_> {
    fn intervals(&self) -> Vec<Interval> {
        self.found.iter().map(|(_, interval)| *interval).collect()
    }

    fn state_at(&self, contains: &impl Fn(Interval) -> bool) -> Vec<Option<Version>> {
        let fitting = self.found.iter().rfind(|(_, interval)| contains(*interval));
        let count = fitting.map_or(0, |(count, _)| *count);
        let mut replay = self.start.clone();
        for operation in &self.operations[..count] {
            replay.apply(operation);
        }
        replay.state
    }
}

/// The keys of a thread while its operations are applied one by one.
#[derive(Clone)]
struct Replay<'a> {
    thread: usize,
    state: Vec<Option<Version>>,
    observed: &'a Observed,
    different: Vec<bool>,
    count: usize,
}

impl<'a> Replay<'a> {
    fn new(thread: usize, base: &[Option<Version>], observed: &'a Observed) -> Self {
        let mut replay = Replay {
            thread,
            state: vec![None; base.len()],
            observed,
            different: vec![false; base.len()],
            count: 0,
        };
        for (id, version) in base.iter().enumerate() {
            replay.set(id as u32, *version);
        }
        replay
    }

    fn set(&mut self, id: u32, version: Option<Version>) -> bool {
        let key = (self.thread, id);
        let differs = !fits(key, version, self.observed.get(&key).map(Vec::as_slice));
        let place = &mut self.different[id as usize];
        self.count = self.count + usize::from(differs) - usize::from(*place);
        *place = differs;
        let changed = self.state[id as usize] != version;
        self.state[id as usize] = version;
        changed
    }

    /// Applies an operation; true if it changes anything, shared keys included.
    fn apply(&mut self, operation: &Logged) -> bool {
        let mut changed = false;
        for (place, effect) in operation.effects.iter().enumerate() {
            changed |= match *effect {
                Effect::Put { id, length } => {
                    let version = version_of(operation.number, place);
                    self.set(id, Some(Version { version, length }))
                }
                Effect::Delete { id } => self.set(id, None),
                Effect::DeleteRange { from, to } => {
                    (from..to).fold(false, |changed, id| self.set(id, None) | changed)
                }
                Effect::Group { .. } => true,
            };
        }
        changed
    }
}

fn fit_thread<'a>(
    thread: usize,
    base: &[Option<Version>],
    log: &'a [Logged],
    promise: Promise,
    observed: &'a Observed,
) -> Result<Fit<'a>, String> {
    let start = Replay::new(thread, base, observed);
    let mut replay = start.clone();
    let operations: Vec<&Logged> = log
        .iter()
        .filter(|operation| operation.outcome != Outcome::Refused)
        .collect();
    let promised = operations
        .iter()
        .rposition(|operation| is_promised(operation, promise))
        .map_or(0, |at| at + 1);
    let mut found: Vec<(usize, Interval)> = Vec::new();
    let mut from = 0;
    let mut nearest = (usize::MAX, 0);
    for count in 0..=operations.len() {
        if count >= promised {
            nearest = nearest.min((replay.count, count));
            if replay.count == 0 {
                found.push((count, (from, u64::MAX)));
            }
        }
        let Some(operation) = operations.get(count) else {
            break;
        };
        if let (true, Some(number)) = (replay.apply(operation), own_number(operation)) {
            for (_, interval) in &mut found {
                interval.1 = interval.1.min(number.saturating_sub(1));
            }
            from = from.max(number);
        }
    }
    let fit = Fit {
        start,
        operations,
        found,
    };
    if fit.found.is_empty() {
        return Err(explain(&fit, promised, nearest.1));
    }
    Ok(fit)
}

/// Says which keys do not fit after the number of operations that fits best.
fn explain(fit: &Fit<'_>, promised: usize, count: usize) -> String {
    let mut replay = fit.start.clone();
    for operation in &fit.operations[..count] {
        replay.apply(operation);
    }
    let last = |at: usize| at.checked_sub(1).map_or(0, |at| fit.operations[at].number);
    let mut text = format!(
        "thread {}: its keys are as after none of its operations. Operation {} and those before it \
         were promised; after operation {} fewest keys differ, {} of them:",
        replay.thread,
        last(promised),
        last(count),
        replay.count
    );
    for id in (0..replay.different.len())
        .filter(|&id| replay.different[id])
        .take(8)
    {
        let key = (replay.thread, id as u32);
        let expected = replay.state[id].map(|version| value(key, version));
        text += &format!(
            "\n  key {id} has {}, expected {}",
            describe(replay.observed.get(&key).map(Vec::as_slice)),
            describe(expected.as_deref())
        );
    }
    text
}

/// The writes of a group that its keys may show, in the order of their numbers.
fn fit_group(
    group: usize,
    before: Option<Version>,
    logs: &[Vec<Logged>],
    observed: &Observed,
) -> Result<Vec<(Option<Version>, Interval)>, String> {
    let mut writes: Vec<(Option<Version>, Option<u64>, u64)> = vec![(before, Some(0), 0)];
    for (thread, log) in logs.iter().enumerate() {
        let mut last = 0;
        for operation in log
            .iter()
            .filter(|operation| operation.outcome != Outcome::Refused)
        {
            for effect in &operation.effects {
                if let Effect::Group { group: of, length } = *effect
                    && of == group
                {
                    let version = shared_version(thread, operation.number);
                    writes.push((
                        Some(Version { version, length }),
                        own_number(operation),
                        last,
                    ));
                }
            }
            last = own_number(operation).unwrap_or(last);
        }
    }
    let mut numbers: Vec<u64> = writes.iter().filter_map(|write| write.1).collect();
    numbers.sort_unstable();
    let shows = |version: Option<Version>| {
        let bytes = |key| observed.get(&key).map(Vec::as_slice);
        group_keys(group).all(|key| fits(key, version, bytes(key)))
    };
    let mut found: Vec<(Option<Version>, Interval)> = writes
        .iter()
        .filter(|write| shows(write.0))
        .map(|&(version, number, last)| match number {
            Some(number) => {
                let next = numbers.iter().find(|&&next| next > number);
                (version, (number, next.map_or(u64::MAX, |next| next - 1)))
            }
            None => (version, (last, u64::MAX)),
        })
        .collect();
    found.sort_by_key(|write| write.1);
    if found.is_empty() {
        let mut text =
            format!("shared group {group} shows no batch that was written, or parts of several:");
        for key in group_keys(group) {
            let bytes = observed.get(&key).map(Vec::as_slice);
            text += &format!(
                "\n  member {}: {}",
                key.1 as usize % MEMBERS,
                describe(bytes)
            );
        }
        return Err(text);
    }
    Ok(found)
}
