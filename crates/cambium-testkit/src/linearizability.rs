//! Is a history of concurrent operations linearizable? (Herlihy and Wing 1990)
//!
//! The general question takes exponential time. A store answers each write with
//! its sequence number, which orders all writes, so only two things are left to
//! ask: does that order agree with time, and is there a place in it for each
//! read, between its invocation and its answer? Both are answered in one pass:
//!
//! - An operation's *place* is the number of the last write that it sees, itself
//!   included.
//! - Its *floor* is the largest place of all operations that were answered before
//!   it was invoked.
//! - A write's place is its number, which must lie above its floor. A read gets
//!   the least place at or above its floor at which all that it saw was so; if
//!   there is none, the history is not linearizable. Taking the least never takes
//!   a place from a later operation.
//!
//! What a snapshot holds must equal the state at the number it names, entry by
//! entry, so a history of snapshots is held against serializability too.

use std::collections::BTreeMap;
use std::ops::Range;

/// What an operation did or saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Keys and their new values, and the number that the write was answered.
    /// `saw`: what its precondition said of a key just before.
    Wrote {
        /// The write's number.
        sequence: u64,
        /// What it changed.
        changes: Vec<(u64, Option<u64>)>,
        /// What must have been so just before.
        saw: Vec<(u64, Option<u64>)>,
    },
    /// Values of keys as of one moment.
    Read {
        /// Keys and values.
        saw: Vec<(u64, Option<u64>)>,
    },
    /// A key did not have a value that a write was to depend on.
    Refused {
        /// The key.
        key: u64,
        /// What it was not.
        not: Option<u64>,
    },
    /// Everything, at the number that a snapshot names.
    Snapshot {
        /// The number.
        sequence: u64,
        /// Everything there was.
        entries: BTreeMap<u64, u64>,
    },
}

/// An operation between two ticks of one clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// When it was asked, and when it was answered.
    pub time: Range<u64>,
    /// What it did or saw.
    pub observation: Observation,
}

/// When each key got which value.
#[derive(Debug, Default)]
struct Versions {
    of: BTreeMap<u64, Vec<(u64, Option<u64>)>>,
}

impl Versions {
    /// The versions of a key, beginning with its absence at 0.
    fn versions(&self, key: u64) -> &[(u64, Option<u64>)] {
        self.of.get(&key).map_or(&[(0, None)], Vec::as_slice)
    }

    fn at(&self, key: u64, place: u64) -> Option<u64> {
        let versions = self.versions(key);
        let after = versions.partition_point(|&(sequence, _)| sequence <= place);
        versions[after - 1].1
    }

    /// The least place at or above `floor` at which `holds` of a key's value.
    fn least(&self, key: u64, floor: u64, holds: impl Fn(Option<u64>) -> bool) -> Option<u64> {
        let versions = self.versions(key);
        let after = versions.partition_point(|&(sequence, _)| sequence <= floor);
        let from = versions[after - 1..].iter();
        let mut fitting = from.filter(|(_, value)| holds(*value));
        fitting.next().map(|&(sequence, _)| sequence.max(floor))
    }
}

/// Checks a history that begins with an empty store.
///
/// ```
/// use cambium_testkit::linearizability::{Observation, Operation, check};
/// let wrote = Observation::Wrote { sequence: 1, changes: vec![(7, Some(70))], saw: vec![] };
/// let missed = Observation::Read { saw: vec![(7, None)] };
/// let write = Operation { time: 0..1, observation: wrote };
/// let beside = Operation { time: 0..2, observation: missed.clone() };
/// assert!(check(&[write.clone(), beside]).is_ok());
/// let after = Operation { time: 2..3, observation: missed };
/// assert!(check(&[write, after]).is_err());
/// ```
///
/// # Errors
/// The first operation, in the order of answers, that has no place.
pub fn check(history: &[Operation]) -> Result<(), String> {
    let versions = versions(history)?;
    let mut by_end: Vec<&Operation> = history.iter().collect();
    by_end.sort_by_key(|operation| operation.time.end);
    // (answered at, largest place up to then): both rise.
    let mut floors: Vec<(u64, u64)> = Vec::new();
    for operation in by_end {
        let answered = floors.partition_point(|&(end, _)| end <= operation.time.start);
        let floor = answered.checked_sub(1).map_or(0, |last| floors[last].1);
        let place = place(operation, floor, &versions).ok_or_else(|| {
            format!("no place at or after {floor} for {operation:?}, in the order of the writes")
        })?;
        let highest = floors.last().map_or(0, |&(_, place)| place);
        floors.push((operation.time.end, highest.max(place)));
    }
    Ok(())
}

fn versions(history: &[Operation]) -> Result<Versions, String> {
    let mut writes = BTreeMap::new();
    for operation in history {
        if let Observation::Wrote {
            sequence, changes, ..
        } = &operation.observation
        {
            if *sequence == 0 || writes.insert(*sequence, changes).is_some() {
                return Err(format!("number {sequence} was given to two writes"));
            }
        }
    }
    let mut versions = Versions::default();
    for (sequence, changes) in writes {
        for &(key, value) in changes {
            let of_key = versions.of.entry(key).or_insert_with(|| vec![(0, None)]);
            of_key.push((sequence, value));
        }
    }
    Ok(versions)
}

/// The least place of an operation at or above its floor.
fn place(operation: &Operation, floor: u64, versions: &Versions) -> Option<u64> {
    match &operation.observation {
        Observation::Wrote { sequence, saw, .. } => {
            let before = sequence - 1;
            let depended = saw
                .iter()
                .all(|&(key, value)| versions.at(key, before) == value);
            (*sequence > floor && depended).then_some(*sequence)
        }
        Observation::Read { saw } => {
            let mut place = floor;
            // Each round moves the place up, or ends.
            loop {
                let mut next = place;
                for &(key, value) in saw {
                    next = versions.least(key, next, |found| found == value)?;
                }
                if next == place {
                    return Some(place);
                }
                place = next;
            }
        }
        Observation::Refused { key, not } => versions.least(*key, floor, |found| found != *not),
        Observation::Snapshot { sequence, entries } => {
            let expected = versions.of.keys().filter_map(|&key| {
                let value = versions.at(key, *sequence)?;
                Some((key, value))
            });
            (*sequence >= floor && expected.eq(entries.iter().map(|(&key, &value)| (key, value))))
                .then_some(*sequence)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(time: Range<u64>, sequence: u64, changes: &[(u64, Option<u64>)]) -> Operation {
        let observation = Observation::Wrote {
            sequence,
            changes: changes.to_vec(),
            saw: Vec::new(),
        };
        Operation { time, observation }
    }

    fn read(time: Range<u64>, saw: &[(u64, Option<u64>)]) -> Operation {
        let observation = Observation::Read { saw: saw.to_vec() };
        Operation { time, observation }
    }

    #[test]
    fn an_order_against_time_is_found() {
        let late = write(0..1, 2, &[(1, Some(1))]);
        let early = write(2..3, 1, &[(2, Some(2))]);
        assert!(check(&[late.clone(), early]).is_err());
        assert!(check(&[late, write(0..3, 1, &[(2, Some(2))])]).is_ok());
    }

    #[test]
    fn a_value_that_goes_back_is_found() {
        let one = write(0..9, 1, &[(1, Some(1))]);
        let two = write(0..9, 2, &[(1, Some(2))]);
        let newer = read(1..2, &[(1, Some(2))]);
        let older = read(3..4, &[(1, Some(1))]);
        assert!(check(&[one.clone(), two.clone(), newer.clone()]).is_ok());
        assert!(check(&[one, two, newer, older]).is_err());
    }

    #[test]
    fn half_a_batch_is_found() {
        let both = write(0..9, 2, &[(1, Some(1)), (2, Some(1))]);
        assert!(check(&[both.clone(), read(1..2, &[(1, Some(1)), (2, None)])]).is_err());
        assert!(check(&[both, read(1..2, &[(1, None), (2, None)])]).is_ok());
    }

    #[test]
    fn a_read_of_what_comes_later_is_found() {
        let seen = read(0..1, &[(1, Some(1))]);
        assert!(check(&[seen, write(2..3, 1, &[(1, Some(1))])]).is_err());
    }

    #[test]
    fn a_condition_that_did_not_hold_is_found() {
        let first = write(0..1, 1, &[(1, Some(1))]);
        let dependent = |sequence, value| Operation {
            time: 2..3,
            observation: Observation::Wrote {
                sequence,
                changes: vec![(1, Some(9))],
                saw: vec![(1, value)],
            },
        };
        assert!(check(&[first.clone(), dependent(2, Some(1))]).is_ok());
        assert!(check(&[first.clone(), dependent(2, None)]).is_err());
        let refused = |not| Operation {
            time: 2..3,
            observation: Observation::Refused { key: 1, not },
        };
        assert!(check(&[first.clone(), refused(None)]).is_ok());
        assert!(check(&[first, refused(Some(1))]).is_err());
    }

    #[test]
    fn a_snapshot_holds_the_state_it_names() {
        let writes = [
            write(0..1, 1, &[(1, Some(1))]),
            write(2..3, 2, &[(1, None)]),
        ];
        let snapshot = |time, sequence, entries: &[(u64, u64)]| Operation {
            time,
            observation: Observation::Snapshot {
                sequence,
                entries: entries.iter().copied().collect(),
            },
        };
        let with = |snapshot| check(&[writes[0].clone(), writes[1].clone(), snapshot]);
        assert!(with(snapshot(1..9, 1, &[(1, 1)])).is_ok());
        assert!(with(snapshot(4..9, 1, &[(1, 1)])).is_err());
        assert!(with(snapshot(4..9, 2, &[(1, 1)])).is_err());
        assert!(with(snapshot(4..9, 2, &[])).is_ok());
    }
}
