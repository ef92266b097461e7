//! Consumers of changes: positions that keep history, as far as they may.

use std::sync::Arc;

use cambium_api::{CompactOptions, Durability, Engine, Error, SequenceNumber, Value};

use super::changes::{ALL, expect_fit};
use super::{Bench, Case, OrFail, Outcome, expect, expect_error};
use crate::following::Mirror;

pub(super) const CASES: &[Case] = &[
    (
        "a consumer keeps history through compaction and reopening",
        keeps_history,
    ),
    (
        "history ends at history_bytes, and where the error says",
        bounded_history,
    ),
    (
        "names that cannot be a consumer's are refused",
        refused_names,
    ),
];

/// Puts of single keys, each with its number.
struct Puts<'b> {
    bench: &'b Bench,
    made: Vec<(SequenceNumber, Vec<u8>, Value)>,
}

impl Puts<'_> {
    fn make(&mut self, store: &dyn Engine, count: u64, value_bytes: usize) -> Outcome {
        for _ in 0..count {
            let number = self.made.len() as u64;
            let key = self.bench.key(number % 6);
            let mut value = format!("value {number}").into_bytes();
            value.resize(value.len().max(value_bytes), b'a' + (number % 26) as u8);
            let put = store.put(&key, &value, Durability::Written);
            self.made.push((put.or_fail("put")?, key, value.into()));
        }
        Ok(())
    }

    fn last(&self) -> SequenceNumber {
        self.made.last().map_or(SequenceNumber::ZERO, |put| put.0)
    }

    /// The contents at a number.
    fn until(&self, at: SequenceNumber) -> Mirror {
        let mut mirror = Mirror {
            at,
            ..Mirror::default()
        };
        let entries = mirror.spaces.entry(String::new()).or_default();
        for (_, key, value) in self.made.iter().filter(|put| put.0 <= at) {
            entries.insert(key.clone(), value.clone());
        }
        mirror
    }

    /// Holds if the changes after `at` are there, or those after the number that the
    /// error names, which must not be above `most`.
    fn expect_history(
        &self,
        store: &dyn Engine,
        at: SequenceNumber,
        most: SequenceNumber,
    ) -> Outcome {
        match store.changes(at, ALL).map(|_| ()) {
            Err(Error::HistoryLost { oldest }) if oldest > at && oldest <= most => {
                expect_fit(store, &self.until(oldest))
            }
            Err(error) => Err(format!("changes after {at}: {error}")),
            Ok(()) => expect_fit(store, &self.until(at)),
        }
    }
}

/// Compacts, and gives background work a chance to take history away.
fn tidy_up(store: &dyn Engine) -> Outcome {
    for _ in 0..2 {
        let options = CompactOptions::default();
        store.compact(&options, &()).or_fail("compact")?;
        for _ in 0..50 {
            store.step(1 << 20).or_fail("step")?;
        }
    }
    Ok(())
}

fn keeps_history(bench: &Bench) -> Outcome {
    if !bench.capabilities.changes {
        return Ok(());
    }
    let store = &bench.store;
    let made = Vec::new();
    let mut puts = Puts { bench, made };
    puts.make(&**store, 20, 0)?;
    let begun = puts.last();
    let moved = store.move_consumer("mirror", Some(begun));
    moved.or_fail("making a consumer")?;
    puts.make(&**store, 60, 0)?;
    tidy_up(&**store)?;
    let store = bench.reopened()?;
    tidy_up(&*store)?;
    let listed = store.list_consumers().or_fail("listing")?;
    expect("consumers", listed, vec![("mirror".to_string(), begun)])?;
    expect_fit(&*store, &puts.until(begun))?;
    let mut feed = store.changes(begun, ALL).or_fail("changes")?;
    let mut batches = 0;
    while feed.next().or_fail("next")?.is_some() {
        batches += 1;
    }
    expect("batches behind the consumer", batches, 60)?;

    let done = puts.last();
    let moved = store.move_consumer("mirror", Some(done));
    moved.or_fail("moving a consumer")?;
    puts.make(&*store, 10, 0)?;
    tidy_up(&*store)?;
    expect_fit(&*store, &puts.until(done))?;
    puts.expect_history(&*store, begun, done)?;
    removed(bench, &puts, store)
}

fn removed(bench: &Bench, puts: &Puts<'_>, store: Arc<dyn Engine>) -> Outcome {
    let gone = store.move_consumer("mirror", None);
    gone.or_fail("taking a consumer away")?;
    tidy_up(&*store)?;
    puts.expect_history(&*store, SequenceNumber::ZERO, puts.last())?;
    store.close().or_fail("close")?;
    let store = bench.open().or_fail("open")?;
    let listed = store.list_consumers().or_fail("listing")?;
    expect("consumers that were taken away", listed, vec![])
}

fn bounded_history(bench: &Bench) -> Outcome {
    if !bench.capabilities.changes {
        return Ok(());
    }
    bench.store.close().or_fail("close")?;
    let subject = bench.subject().clone().opening("history_bytes", "65536");
    let store = subject
        .open(&bench.environment)
        .or_fail("opening with history_bytes")?;
    let made = Vec::new();
    let mut puts = Puts { bench, made };
    puts.make(&*store, 10, 1_000)?;
    let begun = puts.last();
    let moved = store.move_consumer("mirror", Some(begun));
    moved.or_fail("making a consumer")?;
    for _ in 0..8 {
        puts.make(&*store, 250, 1_000)?;
        tidy_up(&*store)?;
    }
    puts.expect_history(&*store, begun, puts.last())?;
    store.close().or_fail("close")?;
    let store = subject.open(&bench.environment).or_fail("open")?;
    tidy_up(&*store)?;
    puts.expect_history(&*store, begun, puts.last())?;
    let listed = store.list_consumers().or_fail("listing")?;
    expect("consumers", listed, vec![("mirror".to_string(), begun)])?;
    // Where its history is lost a consumer cannot stay: it begins again at a snapshot.
    let stays = store.move_consumer("mirror", Some(begun));
    match store.changes(begun, ALL) {
        Ok(_) => stays.or_fail("a consumer that stays")?,
        Err(_) => expect_error("a consumer whose history is lost", stays, |error| {
            matches!(error, Error::HistoryLost { .. })
        })?,
    }
    let snapshot = store.snapshot().or_fail("snapshot")?;
    let moved = store.move_consumer("mirror", Some(snapshot.sequence()));
    moved.or_fail("beginning again")?;
    let mirror = Mirror::of(&*snapshot).or_fail("reading a snapshot")?;
    puts.make(&*store, 10, 1_000)?;
    expect_fit(&*store, &mirror)
}

fn refused_names(bench: &Bench) -> Outcome {
    if !bench.capabilities.changes {
        return Ok(());
    }
    let store = &bench.store;
    let invalid = |error: &Error| matches!(error, Error::InvalidArgument(_));
    let at = Some(SequenceNumber::ZERO);
    let longest = "n".repeat(255);
    let nameless = store.move_consumer("", at);
    expect_error("a consumer without a name", nameless, invalid)?;
    let long = store.move_consumer(&"n".repeat(256), at);
    expect_error("a name of 256 bytes", long, invalid)?;
    let missing = store.move_consumer("mirror", None);
    expect_error("taking away what is not there", missing, |error| {
        matches!(error, Error::NotFound { .. })
    })?;
    for name in [longest.as_str(), "Bücher\n\0"] {
        store.move_consumer(name, at).or_fail("a strange name")?;
    }
    let store = bench.reopened()?;
    let listed = store.list_consumers().or_fail("listing")?;
    let names: Vec<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
    expect("consumers", names, vec!["Bücher\n\0", &longest])
}
