//! Followers of the change feed while other threads write: whole batches in order, and the
//! same end as the store's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cambium_api::{ChangeOptions, Error, KeyRange, Operation, SequenceNumber, WriteBatch};

use super::changes::{ALL, SYNCED, expect_same};
use super::threads::{PAIRS, guard, write_pairs};
use super::{Bench, Case, OrFail, Outcome, expect};
use crate::following::Mirror;

pub(super) const CASES: &[Case] = &[(
    "followers see whole batches in order, and end where the store does",
    followers,
)];

const WRITERS: u64 = 3;
const ROUNDS: u64 = 250;

/// How a follower reads.
#[derive(Clone, Copy)]
struct Follower {
    /// Keeps history under this name.
    consumer: Option<&'static str>,
    options: ChangeOptions,
}

const FOLLOWERS: [Follower; 3] = [
    Follower {
        consumer: Some("all"),
        options: ALL,
    },
    Follower {
        consumer: Some("synced"),
        options: SYNCED,
    },
    Follower {
        consumer: None,
        options: ALL,
    },
];

/// Begins when the writers are done, and finds all that they wrote.
const LATE: Follower = Follower {
    consumer: Some("late"),
    options: ALL,
};

fn followers(bench: &Bench) -> Outcome {
    if !bench.capabilities.changes {
        return Ok(());
    }
    let all = FOLLOWERS.iter().chain([&LATE]);
    for name in all.filter_map(|follower| follower.consumer) {
        let made = bench.store.move_consumer(name, Some(SequenceNumber::ZERO));
        made.or_fail("making a consumer")?;
    }
    let (stop, rounds) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let followers: Vec<_> = FOLLOWERS
            .iter()
            .map(|follower| scope.spawn(move || guard(stop, || follower.run(bench, stop))))
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || guard(stop, || change_pairs(bench, stop, rounds, writer)))
            })
            .collect();
        let mut outcomes: Vec<_> = writers.into_iter().map(|thread| thread.join()).collect();
        outcomes.push(Ok(bench.store.sync().or_fail("sync")));
        stop.store(true, Ordering::Release);
        outcomes.extend(followers.into_iter().map(|thread| thread.join()));
        let panicked = |_| Err("a thread panicked".to_string());
        let outcomes = outcomes.into_iter();
        outcomes
            .map(|outcome| outcome.unwrap_or_else(panicked))
            .collect()
    });
    outcomes.into_iter().collect::<Outcome>()?;
    LATE.run(bench, stop)
}

/// True for steps that delete; engines may leave out deletes of what is not there.
fn deletes(step: u64) -> bool {
    matches!(step % 8, 5 | 6)
}

/// Both keys of a pair always have the same value, or none.
fn change_pairs(bench: &Bench, stop: &AtomicBool, rounds: &AtomicU64, writer: u64) -> Outcome {
    write_pairs(
        bench,
        stop,
        (writer, rounds),
        ROUNDS,
        |step, round, pair| {
            let keys = [bench.key(pair), bench.key(pair + 1)];
            let mut batch = WriteBatch::new();
            match step % 8 {
                5 if bench.capabilities.ordered => {
                    batch.delete_range(KeyRange::between(&keys[0], &bench.key(pair + 2)));
                }
                _ if deletes(step) => {
                    batch.delete(&keys[0]).delete(&keys[1]);
                }
                _ => {
                    let value = format!("round {round}{}", ".".repeat((round % 90) as usize));
                    for key in &keys {
                        batch.put(key, value.as_bytes());
                    }
                }
            }
            batch
        },
    )
}

impl Follower {
    fn run(self, bench: &Bench, stop: &AtomicBool) -> Outcome {
        let mut mirror = Mirror::default();
        while !self
            .follow(bench, stop, &mut mirror)
            .map_err(|what| format!("a follower, {}: {what}", self.consumer.unwrap_or("alone")))?
        {
            // History was lost: a snapshot is where it begins again.
            let snapshot = bench.store.snapshot().or_fail("snapshot")?;
            mirror = Mirror::of(&*snapshot).or_fail("reading a snapshot")?;
        }
        expect_same(&*bench.store, &mirror)
    }

    /// Follows until the writers are done; false where history was lost.
    fn follow(
        self,
        bench: &Bench,
        stop: &AtomicBool,
        mirror: &mut Mirror,
    ) -> std::result::Result<bool, String> {
        let mut feed = match bench.store.changes(mirror.at, self.options) {
            Err(Error::HistoryLost { .. }) if self.consumer.is_none() => return Ok(false),
            other => other.or_fail("changes")?,
        };
        let (mut count, mut puts) = (0, 0);
        loop {
            // Read before the feed is: nothing is written behind it.
            let is_last = stop.load(Ordering::Acquire);
            loop {
                let batch = match feed.next() {
                    Err(Error::HistoryLost { .. }) if self.consumer.is_none() => return Ok(false),
                    other => other.or_fail("next")?,
                };
                let Some(batch) = batch else { break };
                if self.options.synced_only && !batch.synced {
                    return Err(format!("batch {} is not synced", batch.last));
                }
                mirror.apply(&batch).or_fail("a batch")?;
                expect_pairs(bench, mirror)?;
                let first = batch.changes.first().map(|change| &change.operation);
                puts += u64::from(matches!(first, Some(Operation::Put { .. })));
                count += 1;
                if let Some(name) = self.consumer.filter(|_| count % 40 == 0) {
                    let moved = bench.store.move_consumer(name, Some(mirror.at));
                    moved.or_fail("moving a consumer")?;
                }
            }
            if is_last {
                if self.consumer.is_some() {
                    let written = (0..ROUNDS).filter(|step| !deletes(*step)).count() as u64;
                    expect("batches that put", puts, WRITERS * written)?;
                }
                return Ok(true);
            }
            std::thread::yield_now();
        }
    }
}

fn expect_pairs(bench: &Bench, mirror: &Mirror) -> Outcome {
    let Some(entries) = mirror.spaces.get("") else {
        return Ok(());
    };
    for pair in (0..2 * PAIRS).step_by(2) {
        let values = [pair, pair + 1].map(|number| entries.get(&bench.key(number)));
        if values[0] != values[1] {
            return Err(format!(
                "half a batch was shown at key {pair}, through change {}",
                mirror.at
            ));
        }
    }
    Ok(())
}
