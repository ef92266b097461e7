//! A thread that keeps a copy of the default namespace by the change feed alone, and compares
//! it with snapshots: a batch that the feed leaves out, shows twice or shows in part makes
//! the two differ.
//!
//! The copy begins as a snapshot. Up to the number of a later snapshot, all batches of the
//! feed are applied; then both must hold the same. In half of the rounds a consumer keeps
//! the history that is read; without one, a feed that lost its history begins again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cambium::{ChangeBatch, Changes, Consumer, Error, Operation, SequenceNumber, Snapshot};

use crate::actor::Stop;
use crate::content::describe;
use crate::random::Random;
use crate::session::Shared;

/// The name of the consumer.
const CONSUMER: &str = "follower";
/// The longest pause between two looks, in milliseconds.
const LONGEST_PAUSE: u64 = 40;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// Follows the store until the session ends.
pub fn follow(shared: &Arc<Shared>, mut random: Random) {
    if !shared.abilities.changes || shared.plan.plain {
        return;
    }
    while !shared.stop.load(Ordering::Acquire) {
        let ended = match follow_once(shared, &mut random) {
            Ok(()) => continue,
            Err(Ended::Error(error)) if may_begin_again(&error) => {
                pause(&mut random);
                continue;
            }
            Err(Ended::Error(error)) => shared.judge("the follower", error),
            Err(Ended::Violation(what)) => Stop::Violation(what),
        };
        if let Stop::Violation(what) = ended {
            shared.report(format!("the follower: {what}"));
        }
        return;
    }
}

/// Why the follower stops reading.
enum Ended {
    Error(Error),
    Violation(String),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Ended::Error(error)
    }
}

/// Old versions and history are bounded where options say so.
fn may_begin_again(error: &Error) -> bool {
    matches!(
        error,
        Error::HistoryLost { .. }
            | Error::SnapshotLimit { .. }
            | Error::NoSpace { .. }
            | Error::LimitExceeded(_)
    )
}

fn pause(random: &mut Random) {
    std::thread::sleep(Duration::from_millis(random.below(LONGEST_PAUSE)));
}

/// Copies a snapshot, and follows from there on.
fn follow_once(shared: &Shared, random: &mut Random) -> Result<(), Ended> {
    let store = &shared.stores[0];
    let consumer = match random.chance(50) {
        true => Some(store.consumer(CONSUMER)?),
        false => None,
    };
    let snapshot = store.snapshot()?;
    let mut copy = contents(&snapshot)?;
    let mut feed = Feed {
        changes: store.changes(snapshot.sequence())?,
        ahead: None,
    };
    acknowledge(consumer.as_ref(), snapshot.sequence())?;
    drop(snapshot);
    while !shared.stop.load(Ordering::Acquire) {
        pause(random);
        let snapshot = store.snapshot()?;
        let through = snapshot.sequence();
        feed.apply_through(through, &mut copy)?;
        compare(&copy, &contents(&snapshot)?, through)?;
        acknowledge(consumer.as_ref(), through)?;
    }
    match consumer {
        Some(consumer) if random.chance(50) => consumer.remove()?,
        _ => {}
    }
    Ok(())
}

fn contents(snapshot: &Snapshot) -> Result<Entries, Error> {
    let entries = snapshot.iterate()?;
    entries
        .map(|entry| entry.map(|entry| (entry.key.to_vec(), entry.value.to_vec())))
        .collect()
}

/// A feed, and the batch that was read beyond the last snapshot.
struct Feed {
    changes: Changes,
    ahead: Option<ChangeBatch>,
}

impl Feed {
    /// Applies what the feed shows up to a number that a snapshot has.
    fn apply_through(&mut self, through: SequenceNumber, copy: &mut Entries) -> Result<(), Ended> {
        loop {
            let before = self.changes.position();
            let batch = match self.ahead.take() {
                Some(batch) => batch,
                None => match self.changes.try_next()? {
                    Some(batch) if batch.first <= before || batch.last < batch.first => {
                        return Err(Ended::Violation(format!(
                            "the feed shows a batch {}..={} after {before}",
                            batch.first, batch.last
                        )));
                    }
                    Some(batch) => batch,
                    None => return Ok(()),
                },
            };
            if batch.first > through {
                self.ahead = Some(batch);
                return Ok(());
            }
            if batch.last > through {
                return Err(Ended::Violation(format!(
                    "a snapshot at {through} lies within the batch {}..={}",
                    batch.first, batch.last
                )));
            }
            for change in batch.changes {
                if change.namespace.is_none() {
                    apply(change.operation, copy);
                }
            }
        }
    }
}

fn apply(operation: Operation, copy: &mut Entries) {
    match operation {
        Operation::Put { key, value } => _ = copy.insert(key, value),
        Operation::Delete { key } => _ = copy.remove(&key),
        Operation::DeleteRange { range } => copy.retain(|key, _| !range.contains(key)),
    }
}

fn compare(copy: &Entries, snapshot: &Entries, through: SequenceNumber) -> Result<(), Ended> {
    let differing = |(key, value): &(&Vec<u8>, &Vec<u8>), other: &Entries| {
        other.get(*key).is_none_or(|found| found != *value)
    };
    let found = snapshot
        .iter()
        .find(|entry| differing(entry, copy))
        .or_else(|| copy.iter().find(|entry| differing(entry, snapshot)));
    let Some((key, _)) = found else { return Ok(()) };
    Err(Ended::Violation(format!(
        "at {through}, key {key:02x?} has {} by the feed and {} in the snapshot",
        describe(copy.get(key).map(Vec::as_slice)),
        describe(snapshot.get(key).map(Vec::as_slice))
    )))
}

fn acknowledge(consumer: Option<&Consumer>, through: SequenceNumber) -> Result<(), Error> {
    consumer.map_or(Ok(()), |consumer| consumer.acknowledge(through))
}
