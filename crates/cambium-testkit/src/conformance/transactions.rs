//! Transactions: what they read, when they conflict, and whether histories of many
//! threads are serializable.
//!
//! The order of commits is known, since each answers its sequence number. A history is
//! replayed in that order on a map: every read of every committed transaction must be
//! what the map holds at its turn. A transaction that wrote nothing has its turn at its
//! snapshot.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use cambium_api::transaction::{MOST_ATTEMPTS, transact};
use cambium_api::{Conflict, Durability, Entry, Error, KeyRange, SequenceNumber, Transaction};
use cambium_io::simulated::Generator;
use cambium_io::sync::atomic::AtomicUsize;

use super::{
    Bench, Case, OrFail, Outcome, Plain, expect, expect_contents, expect_error, expect_value,
};
use crate::crash::number_from;

pub(super) const CASES: &[Case] = &[
    (
        "a transaction sees its own writes above one moment",
        own_writes,
    ),
    ("savepoints take writes back", savepoints),
    ("what was read and changed conflicts", conflicts),
    ("transactions span namespaces", namespaces),
    ("an ended transaction says so", ended),
    (
        "a transaction that always conflicts ends after a number of attempts",
        bounded_attempts,
    ),
    ("histories of transactions are serializable", histories),
];

fn begin(bench: &Bench) -> Result<Transaction, String> {
    Transaction::begin(&bench.store, Durability::Written, None).or_fail("begin a transaction")
}

fn bounded_attempts(bench: &Bench) -> Outcome {
    let (key, starving) = (bench.key(1), AtomicUsize::new(0));
    let begin = || Transaction::begin(&bench.store, Durability::Written, None);
    let mut attempts = 0u32;
    let done = transact(begin, &starving, |transaction| {
        transaction.get(&key)?;
        transaction.put(&key, b"lost")?;
        // Another writer comes between, at each attempt.
        attempts += 1;
        let other = attempts.to_be_bytes();
        bench.store.put(&key, &other, Durability::Written)?;
        Ok(())
    });
    expect_error("a transaction that always conflicts", done, |error| {
        matches!(error, Error::Conflict { .. })
    })?;
    expect("attempts", attempts, MOST_ATTEMPTS)?;
    expect_value(&*bench.store, &key, Some(&attempts.to_be_bytes()))?;
    // Others no longer wait for it.
    expect("starving transactions", starving.into_inner(), 0)?;
    let calm = AtomicUsize::new(0);
    let done = transact(begin, &calm, |transaction| transaction.put(&key, b"new"));
    done.or_fail("a transaction without conflicts")?;
    expect_value(&*bench.store, &key, Some(b"new"))
}

fn keys_of(entries: impl Iterator<Item = Result<Entry, Error>>) -> Result<Vec<Vec<u8>>, String> {
    let keys = entries.map(|entry| entry.map(|entry| entry.key.to_vec()));
    keys.collect::<Result<_, Error>>().or_fail("next")
}

fn expect_keys(
    bench: &Bench,
    found: impl Iterator<Item = Result<Entry, Error>>,
    expected: &[u64],
) -> Outcome {
    let found = keys_of(found)?;
    let expected: Vec<_> = expected.iter().map(|number| bench.key(*number)).collect();
    match found == expected {
        true => Ok(()),
        false => Err(format!("found keys {found:?}, expected {expected:?}")),
    }
}

fn own_writes(bench: &Bench) -> Outcome {
    bench.fill(6)?;
    let transaction = begin(bench)?;
    // The engine's own writes are not seen.
    bench.put(2, b"later")?;
    bench.put(9, b"later")?;
    let (put, again) = (bench.key(7), bench.key(1));
    transaction.put(&put, "new").or_fail("put")?;
    transaction.put(&again, "other").or_fail("put")?;
    transaction.delete(bench.key(3)).or_fail("delete")?;
    let value = transaction.get(&again).or_fail("get")?;
    if value.as_deref() != Some(b"other") {
        return Err(format!("the own value is {value:?}"));
    }
    let keys = [bench.key(2), bench.key(3), put.clone(), bench.key(9)];
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let values = transaction.multi_get(&keys).or_fail("multi_get")?;
    let values: Vec<_> = values.iter().map(|value| value.as_deref()).collect();
    if values != [Some(&b"value 2"[..]), None, Some(b"new"), None] {
        return Err(format!("multi_get answers {values:?}"));
    }
    let mut all = keys_of(transaction.iterate().or_fail("iterate")?)?;
    all.sort();
    if all != [0, 1, 2, 4, 5, 7].map(|number| bench.key(number)) {
        return Err(format!("iterate answers {all:?}"));
    }
    if bench.capabilities.ordered {
        own_scans(bench, &transaction)?;
    }
    drop(transaction);
    let value = bench.store.get(&again).or_fail("get")?;
    match value.as_deref() == Some(b"value 1") {
        true => Ok(()),
        false => Err("a dropped transaction wrote".to_string()),
    }
}

fn own_scans(bench: &Bench, transaction: &Transaction) -> Outcome {
    let scan = |from, to| {
        let keys = bench.key(from)..bench.key(to);
        transaction.scan(keys).or_fail("scan")
    };
    expect_keys(bench, scan(0, 9)?, &[0, 1, 2, 4, 5, 7])?;
    expect_keys(bench, scan(1, 7)?.rev(), &[5, 4, 2, 1])?;
    let mut entries = scan(1, 8)?;
    entries.seek(bench.key(3)).or_fail("seek")?;
    expect_keys(bench, entries, &[4, 5, 7])?;
    let mut entries = scan(1, 8)?;
    entries.seek_back(bench.key(3)).or_fail("seek")?;
    expect_keys(bench, entries.rev(), &[2, 1])?;
    // Its ends meet, between keys of the store and keys of the transaction.
    for from_the_back in 0..=6 {
        let mut entries = scan(0, 9)?;
        let back: Vec<_> = entries.by_ref().rev().take(from_the_back).collect();
        expect_keys(
            bench,
            entries.chain(back.into_iter().rev()),
            &[0, 1, 2, 4, 5, 7],
        )?;
    }
    // A scan meets what is written while it goes on.
    let mut entries = scan(0, 9)?;
    for _ in 0..2 {
        entries.next();
    }
    transaction.delete(bench.key(2)).or_fail("delete")?;
    transaction.put(bench.key(6), "meanwhile").or_fail("put")?;
    expect_keys(bench, entries, &[4, 5, 6, 7])?;
    let range = KeyRange::between(&bench.key(4), &bench.key(7));
    transaction.delete_range(&range).or_fail("delete_range")?;
    transaction.put(bench.key(5), "again").or_fail("put")?;
    expect_keys(bench, scan(0, 9)?, &[0, 1, 5, 7])?;
    expect_keys(bench, scan(0, 9)?.rev(), &[7, 5, 1, 0])
}

fn savepoints(bench: &Bench) -> Outcome {
    let mut expected = bench.fill(3)?;
    let transaction = begin(bench)?;
    transaction.put(bench.key(0), "kept").or_fail("put")?;
    let first = transaction.savepoint().or_fail("savepoint")?;
    transaction.put(bench.key(0), "lost").or_fail("put")?;
    transaction.put(bench.key(5), "lost").or_fail("put")?;
    let second = transaction.savepoint().or_fail("savepoint")?;
    transaction.delete(bench.key(1)).or_fail("delete")?;
    transaction.roll_back_to(second).or_fail("to the second")?;
    transaction.roll_back_to(first).or_fail("to the first")?;
    for number in 2..6 {
        transaction
            .put(bench.key(2), format!("lost {number}"))
            .or_fail("put")?;
    }
    transaction.put(bench.key(2), "kept").or_fail("put")?;
    let other = begin(bench)?;
    for (what, roll_back) in [
        ("a savepoint that is gone", transaction.roll_back_to(second)),
        ("another transaction's savepoint", other.roll_back_to(first)),
    ] {
        expect_error(what, roll_back, |error| {
            matches!(error, Error::InvalidArgument(_))
        })?;
    }
    transaction.commit().or_fail("commit")?;
    expected.insert(bench.key(0), b"kept".to_vec());
    expected.insert(bench.key(2), b"kept".to_vec());
    let again = bench.reopened()?;
    expect_contents(&*again, &expected)
}

fn conflicts(bench: &Bench) -> Outcome {
    bench.fill(4)?;
    let is_key = |number: u64| {
        let expected = bench.key(number);
        move |error: &Error| matches!(error, Error::Conflict { conflict: Conflict::Key { key, .. } } if *key == expected)
    };
    let reading = |read: u64, written: u64| -> Result<_, String> {
        let transaction = begin(bench)?;
        transaction.get(bench.key(read)).or_fail("get")?;
        transaction.put(bench.key(20), "mine").or_fail("put")?;
        bench.put(written, b"theirs")?;
        Ok(transaction.commit())
    };
    expect_error("a key that changed", reading(1, 1)?, is_key(1))?;
    expect_error("a key that was made", reading(8, 8)?, is_key(8))?;
    reading(1, 2)?.or_fail("a commit beside other keys")?;
    // Neither blind writes nor read-only transactions conflict.
    let (blind, reader) = (begin(bench)?, begin(bench)?);
    blind.put(bench.key(1), "blind").or_fail("put")?;
    reader.get(bench.key(1)).or_fail("get")?;
    bench.put(1, b"theirs")?;
    blind.commit().or_fail("commit")?;
    reader.commit().or_fail("commit")?;
    let everything = begin(bench)?;
    everything.iterate().or_fail("iterate")?.for_each(drop);
    everything.put(bench.key(20), "mine").or_fail("put")?;
    bench.put(30, b"phantom")?;
    let committed = everything.commit();
    expect_error("a pass over everything", committed, is_range)?;
    if !bench.capabilities.ordered {
        return Ok(());
    }
    for (written, from_the_end) in [(12, false), (10, false), (12, true), (14, true)] {
        let transaction = begin(bench)?;
        let range = bench.key(10)..bench.key(15);
        let scanned = transaction.scan(range).or_fail("scan")?;
        match from_the_end {
            true => keys_of(scanned.rev())?,
            false => keys_of(scanned)?,
        };
        transaction.put(bench.key(20), "mine").or_fail("put")?;
        bench.put(written, b"phantom")?;
        let committed = transaction.commit();
        expect_error("a phantom", committed, is_range)?;
    }
    // A scan that stopped has not read what comes behind.
    let transaction = begin(bench)?;
    let mut entries = transaction.scan(..);
    let first = entries.as_mut().map(|entries| entries.next().is_some());
    if !first.map_err(|error| error.to_string())? {
        return Err("the scan found nothing".to_string());
    }
    transaction.put(bench.key(20), "mine").or_fail("put")?;
    bench.put(3, b"behind")?;
    transaction.commit().or_fail("commit")?;
    Ok(())
}

fn is_range(error: &Error) -> bool {
    let range = |conflict: &Conflict| matches!(conflict, Conflict::Range { .. });
    matches!(error, Error::Conflict { conflict } if range(conflict))
}

fn namespaces(bench: &Bench) -> Outcome {
    if !bench.capabilities.namespaces {
        return Ok(());
    }
    let transaction = begin(bench)?;
    let trees = transaction.namespace("trees").or_fail("namespace")?;
    trees.put("oak", "there").or_fail("put")?;
    transaction.put("oak", "here").or_fail("put")?;
    if trees.get("oak").or_fail("get")?.as_deref() != Some(b"there") {
        return Err("the namespaces of a transaction are one".to_string());
    }
    trees.get("elm").or_fail("get")?;
    transaction.commit().or_fail("commit")?;
    let trees = bench.store.namespace("trees").or_fail("namespace")?;
    if trees.get(b"oak").or_fail("get")?.as_deref() != Some(b"there") {
        return Err("the commit lost what is in the namespace".to_string());
    }
    let transaction = begin(bench)?;
    let view = transaction.namespace("trees").or_fail("namespace")?;
    view.get("elm").or_fail("get")?;
    transaction.put("oak", "again").or_fail("put")?;
    trees.put(b"elm", b"", Durability::Written).or_fail("put")?;
    let committed = transaction.commit();
    expect_error(
        "a key of a namespace",
        committed,
        |error| matches!(error, Error::Conflict { conflict: Conflict::Key { namespace, .. } } if namespace == "trees"),
    )
}

fn ended(bench: &Bench) -> Outcome {
    let transaction = begin(bench)?;
    let entries = transaction.iterate().or_fail("iterate")?;
    transaction.put(bench.key(1), "").or_fail("put")?;
    transaction.commit().or_fail("commit")?;
    let found: Result<Vec<_>, Error> = entries.collect();
    let is_right = |error: &Error| matches!(error, Error::InvalidArgument(_));
    expect_error("a scan of an ended transaction", found, is_right)?;
    let (outlives, idle) = (begin(bench)?, begin(bench)?);
    outlives.put(bench.key(2), "").or_fail("put")?;
    bench.store.close().or_fail("close")?;
    let is_closed = |error: &Error| matches!(error, Error::Closed);
    let committed = outlives.commit();
    expect_error("a commit after close", committed, is_closed)?;
    expect_error("a get after close", idle.get(bench.key(1)), is_closed)
}

/// The keys from the first up to the second, and the entries that were among them.
type ReadRange = (u64, u64, Vec<(u64, u64)>);

/// Reads and writes of a committed transaction.
#[derive(Debug)]
struct Committed {
    /// Its turn: the commit's sequence number, or the snapshot's.
    turn: SequenceNumber,
    wrote: BTreeMap<u64, Option<u64>>,
    read: Vec<(u64, Option<u64>)>,
    ranges: Vec<ReadRange>,
}

const KEYS: u64 = 6;
const THREADS: u64 = 3;
/// Each so many rounds the threads wait for each other before they commit.
const MEETS: u64 = 4;

/// State that the threads of a history share.
#[derive(Default)]
struct Shared {
    next_value: AtomicU64,
    arrived: AtomicU64,
}

impl Shared {
    /// Waits until so many have arrived, or for a while: one may have failed.
    fn meet(&self, all: u64) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let mut patience = 10_000;
        while self.arrived.load(Ordering::Acquire) < all && patience > 0 {
            patience -= 1;
            std::thread::yield_now();
        }
    }
}

fn histories(bench: &Bench) -> Outcome {
    let rounds = number_from("CAMBIUM_HISTORY").unwrap_or(120);
    let shared = Shared::default();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let shared = &shared;
                scope.spawn(move || run_thread(bench, thread, rounds, shared))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut history = Vec::new();
    let mut conflicts = 0;
    for outcome in outcomes {
        let (committed, failed) = outcome.map_err(|_| "a thread panicked".to_string())??;
        history.extend(committed);
        conflicts += failed;
    }
    if conflicts == 0 {
        return Err("no transaction met another one".to_string());
    }
    // A reader's snapshot includes the commit with the same sequence number.
    history.sort_by_key(|committed| (committed.turn, committed.wrote.is_empty()));
    let mut state: BTreeMap<u64, u64> = BTreeMap::new();
    for committed in &history {
        check_reads(committed, &state)?;
        for (&key, value) in &committed.wrote {
            match value {
                Some(value) => state.insert(key, *value),
                None => state.remove(&key),
            };
        }
    }
    let expected: Plain = state
        .iter()
        .map(|(key, value)| (bench.key(*key), value.to_string().into_bytes()))
        .collect();
    expect_contents(&*bench.store, &expected)
}

fn check_reads(committed: &Committed, state: &BTreeMap<u64, u64>) -> Outcome {
    let wrong = |what: String| Err(format!("{what}, in the order of commits; {committed:?}"));
    for &(key, value) in &committed.read {
        if state.get(&key).copied() != value {
            return wrong(format!("key {key} has {:?}", state.get(&key)));
        }
    }
    for (from, to, found) in &committed.ranges {
        let expected: Vec<_> = state
            .range(from..to)
            .map(|(key, value)| (*key, *value))
            .collect();
        if expected != *found {
            return wrong(format!("keys {from} to {to} are {expected:?}"));
        }
    }
    Ok(())
}

/// The transactions of a thread that committed, and how many did not.
fn run_thread(
    bench: &Bench,
    thread: u64,
    rounds: u64,
    shared: &Shared,
) -> Result<(Vec<Committed>, u64), String> {
    let mut random = Generator::new(thread + 1);
    let (mut history, mut conflicts) = (Vec::new(), 0);
    for round in 0..rounds {
        let transaction = begin(bench)?;
        let mut committed = Committed {
            turn: transaction.sequence(),
            wrote: BTreeMap::new(),
            read: Vec::new(),
            ranges: Vec::new(),
        };
        for _ in 0..1 + random.below(3) {
            read_something(bench, &transaction, &mut random, &mut committed)?;
        }
        if round % 8 == thread {
            bench.store.step(1 << 16).or_fail("step")?;
        }
        if round % MEETS == 0 {
            shared.meet((round / MEETS + 1) * THREADS);
        }
        if random.below(8) > 0 {
            for _ in 0..1 + random.below(2) {
                write_something(bench, &transaction, &mut random, &mut committed, shared)?;
            }
        }
        let durability = match random.below(16) {
            0 => Durability::Synced,
            1..8 => Durability::Buffered,
            _ => Durability::Written,
        };
        match transaction.with_durability(durability).commit() {
            Ok(turn) => {
                committed.turn = turn;
                history.push(committed);
            }
            Err(Error::Conflict { .. }) => conflicts += 1,
            Err(other) => return Err(format!("commit: {other}")),
        }
    }
    Ok((history, conflicts))
}

fn number_in(value: &[u8]) -> Result<u64, String> {
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.parse()
        .map_err(|_| format!("a value nobody wrote: {value:?}"))
}

fn read_something(
    bench: &Bench,
    transaction: &Transaction,
    random: &mut Generator,
    committed: &mut Committed,
) -> Outcome {
    if random.below(4) > 0 {
        let key = random.below(KEYS);
        let value = transaction.get(bench.key(key)).or_fail("get")?;
        let value = value.map(|value| number_in(&value)).transpose()?;
        committed.read.push((key, value));
        return Ok(());
    }
    let (from, to, entries) = match bench.capabilities.ordered {
        true => {
            let from = random.below(KEYS);
            let to = from + random.below(KEYS - from) + 1;
            let range = bench.key(from)..bench.key(to);
            (from, to, transaction.scan(range))
        }
        false => (0, KEYS, transaction.iterate()),
    };
    let mut found = Vec::new();
    let mut entries = entries.or_fail("scan")?;
    loop {
        let entry = match bench.capabilities.ordered && random.below(2) == 0 {
            true => entries.next_back(),
            false => entries.next(),
        };
        let Some(entry) = entry.transpose().or_fail("next")? else {
            break;
        };
        let key = (from..to).find(|key| bench.key(*key) == *entry.key);
        let key = key.ok_or_else(|| format!("a key outside of the range: {:?}", entry.key))?;
        found.push((key, number_in(&entry.value)?));
    }
    found.sort_unstable();
    committed.ranges.push((from, to, found));
    Ok(())
}

fn write_something(
    bench: &Bench,
    transaction: &Transaction,
    random: &mut Generator,
    committed: &mut Committed,
    shared: &Shared,
) -> Outcome {
    let key = random.below(KEYS);
    if random.below(4) == 0 {
        // With a put beside it, so that the commit has a sequence number of its own.
        let other = (key + 1) % KEYS;
        committed.wrote.insert(other, None);
        transaction.delete(bench.key(other)).or_fail("delete")?;
    }
    let value = shared.next_value.fetch_add(1, Ordering::Relaxed);
    committed.wrote.insert(key, Some(value));
    let written = transaction.put(bench.key(key), value.to_string());
    written.or_fail("put")
}
