//! Feeds beside writers: batches whole and in order, through compactions and reopenings.

use std::collections::BTreeMap;

use cambium_api::{ChangeBatch, Engine, Operation, SequenceNumber, WriteBatch};
use cambium_io::Environment;
use cambium_io::simulated::Generator;
use cambium_testkit::stores::threaded;

use super::support::*;

/// Random batches, with compactions, steps and reopenings between them, read by a feed that
/// stays and by feeds from anywhere.
pub(super) fn followed(setting: Setting, seed: u64) -> Outcome {
    let environment = Environment::memory();
    let mut random = Generator::new(seed);
    let mut store = setting.create(&environment);
    text(store.move_consumer("test", Some(SequenceNumber::ZERO)))?;
    let mut written: BTreeMap<u64, Contents> = BTreeMap::new();
    let mut feed = text(store.changes(SequenceNumber::ZERO, ALL))?;
    let mut shown = Vec::new();
    for _ in 0..120 {
        let (last, expected) = write_random(&setting, &*store, &mut random, (300, &DURABILITIES))?;
        written.entry(last).or_insert(expected);
        match random.below(12) {
            0 => compact(&*store)?,
            1 => _ = text(store.step(1 << 20))?,
            2 => {
                text(store.close())?;
                store = setting.open(&environment)?;
                let at = shown.last().map_or(0, |batch: &ChangeBatch| batch.last.0);
                feed = text(store.changes(SequenceNumber(at), ALL))?;
            }
            3..6 => shown.extend(drain(&mut *feed)?),
            _ => {}
        }
    }
    shown.extend(drain(&mut *feed)?);
    for batch in &shown {
        // Deletes of keys that are not there are no changes.
        let changes = final_changes(batch);
        let of_write = written
            .get(&batch.last.0)
            .ok_or("a batch that nobody wrote")?;
        let missing = of_write
            .iter()
            .filter(|(key, _)| !changes.contains_key(*key));
        if missing.into_iter().any(|(_, change)| change != b"deleted")
            || changes
                .iter()
                .any(|(key, change)| of_write.get(key) != Some(change))
        {
            return Err(format!(
                "batch {}..{} is another one",
                batch.first, batch.last
            ));
        }
    }
    if !lead_to(&shown, &*store) {
        return Err("the changes make other contents".to_string());
    }
    for _ in 0..20 {
        let after = random.below(shown.last().map_or(0, |batch| batch.last.0) + 1);
        let rest = shown.iter().filter(|batch| batch.last.0 > after);
        let rest: Vec<ChangeBatch> = rest.cloned().collect();
        if unmarked(&changes(&*store, after)?) != unmarked(&rest) {
            return Err(format!("other changes after {after}"));
        }
    }
    Ok(())
}

#[test]
fn batches_come_whole_and_in_order_through_compactions_and_reopenings() {
    for setting in settings() {
        for seed in 1..=12 {
            let outcome = followed(setting, seed);
            assert_eq!(
                outcome,
                Ok(()),
                "{} {} {seed}",
                setting.keys,
                setting.is_small
            );
        }
    }
}

/// What the writers of [`several_writers`] put into each batch.
const KEYS_OF_BATCH: u64 = 5;
const WRITERS: u64 = 4;

/// Threads write batches, each over several tables and with one stamp, while a feed follows
/// them and the background compacts.
pub(super) fn several_writers(setting: Setting, batches: u64) -> Outcome {
    let environment = threaded();
    let store = setting.create(&environment);
    text(store.move_consumer("test", Some(SequenceNumber::ZERO)))?;
    let write = |writer: u64| -> Outcome {
        let mut random = Generator::new(writer);
        for number in 0..batches {
            let stamp = [writer.to_le_bytes(), number.to_le_bytes()].concat();
            let mut batch = WriteBatch::new();
            for place in 0..KEYS_OF_BATCH {
                // No two writers share a key: each key tells its last batch.
                let key = place * 60 + random.below(10) * WRITERS + writer;
                batch.put(&setting.key(key), &stamp);
            }
            text(store.write(batch, *random.pick(&DURABILITIES)))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let writers = (0..WRITERS).map(|writer| scope.spawn(move || write(writer)));
        let writers: Vec<_> = writers.collect();
        let outcome = follow_writers(&*store, batches);
        for writer in writers {
            writer.join().unwrap()?;
        }
        outcome
    })
}

fn follow_writers(store: &dyn Engine, batches: u64) -> Outcome {
    let mut feed = text(store.changes(SequenceNumber::ZERO, ALL))?;
    let mut next = [0u64; WRITERS as usize];
    while next.iter().any(|&number| number < batches) {
        let Some(batch) = text(feed.next())? else {
            std::thread::yield_now();
            continue;
        };
        let stamps = batch.changes.iter().map(|change| match &change.operation {
            Operation::Put { value, .. } => value.clone(),
            other => panic!("nobody did {other:?}"),
        });
        let stamps: Vec<Vec<u8>> = stamps.collect();
        let writer = u64::from_le_bytes(stamps[0][..8].try_into().unwrap()) as usize;
        let number = u64::from_le_bytes(stamps[0][8..].try_into().unwrap());
        let is_one = stamps.iter().all(|stamp| *stamp == stamps[0]);
        if !is_one || stamps.len() as u64 != KEYS_OF_BATCH || number != next[writer] {
            return Err(format!("{batch:?} is no batch, or not the next one"));
        }
        next[writer] += 1;
        if number % 50 == 0 {
            text(store.move_consumer("test", Some(batch.last)))?;
        }
    }
    Ok(())
}

#[test]
fn several_writers_are_followed_batch_by_batch() {
    for setting in settings() {
        let outcome = several_writers(setting, 400);
        assert_eq!(outcome, Ok(()), "{} {}", setting.keys, setting.is_small);
    }
}
