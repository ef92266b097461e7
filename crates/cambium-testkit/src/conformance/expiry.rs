//! Entries that expire, in a store that has the value layer; without it they are refused.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cambium_api::{
    ChangeOptions, CompactOptions, Cursor, Direction, Durability, Engine, Error, Expiry,
    IterationOrder, KeyRange, Precondition, Reader, Special, Transaction, UnixMillis, WriteBatch,
};
use cambium_io::Environment;
use cambium_io::simulated::SteppedClock;

use super::{
    Bench, Case, OrFail, Outcome, Plain, expect, expect_contents, expect_error, expect_value,
};

pub(super) const CASES: &[Case] = &[
    (
        "without the value layer, entries that expire are refused",
        refused_without_layer,
    ),
    ("an expired entry is not there for any call", gone),
    (
        "an expired entry is not there in the next openings",
        gone_when_opened_again,
    ),
    (
        "snapshots and cursors judge expiry by their own moment",
        own_moments,
    ),
    (
        "the moment of an entry can be changed and taken away",
        other_moments,
    ),
    (
        "the last operation of a batch decides whether an entry expires",
        batches,
    ),
    ("entries expire in their own namespace", namespaces),
    (
        "named snapshots and rollbacks bring no expired entry back",
        named_snapshots,
    ),
    ("a sweep deletes expired entries and no other", swept),
    ("changes have the moment of their entries", changes),
    (
        "a wall clock that is set back brings no expired entry back",
        clock_set_back,
    ),
];

const SECOND: Duration = Duration::from_secs(1);
const SOON: Expiry = Expiry::After(SECOND);
const LATER: Expiry = Expiry::After(Duration::from_secs(1_000));

fn put_expiring(bench: &Bench, number: u64, value: &[u8], expiry: Expiry) -> Outcome {
    let put = bench
        .store
        .put_expiring(&bench.key(number), value, expiry, Durability::Written);
    put.or_fail("an expiring put").map(|_| ())
}

fn pass(bench: &Bench, time: Duration) {
    bench.environment.clock.sleep(time);
}

fn refused_without_layer(bench: &Bench) -> Outcome {
    if bench.has_layer() {
        return Ok(());
    }
    bench.put(1, b"value")?;
    let (store, key) = (&bench.store, bench.key(1));
    let names_the_layer = |error: &Error| {
        let is_of_use = matches!(error, Error::Unsupported { .. } | Error::InvalidArgument(_));
        is_of_use && error.to_string().contains("value layer")
    };
    let put = store.put_expiring(&key, b"other", SOON, Durability::Written);
    expect_error("an expiring put", put, names_the_layer)?;
    let changed = store.set_expiry(&key, Some(SOON), Durability::Written);
    expect_error("set_expiry", changed, names_the_layer)?;
    let merged = store.merge("append", &key, b"other", Durability::Written);
    expect_error("a merge", merged, names_the_layer)?;
    let only = Plain::from([(key, b"value".to_vec())]);
    expect_contents(&**store, &only)
}

/// The keys that a cursor shows by each of its calls, which must agree.
fn keys_by_each_call(open: impl Fn() -> Result<Box<dyn Cursor>, String>) -> Result<Keys, String> {
    let (mut by_entry, mut by_key, mut by_visit) = (Keys::new(), Keys::new(), Keys::new());
    let mut cursor = open()?;
    while let Some(entry) = cursor.next().or_fail("next")? {
        by_entry.push(entry.key.to_vec());
    }
    let mut cursor = open()?;
    while let Some(key) = cursor.next_key().or_fail("next_key")? {
        by_key.push(key.to_vec());
    }
    let mut cursor = open()?;
    let end = cursor.visit(&mut |key, _| {
        by_visit.push(key.to_vec());
        std::ops::ControlFlow::Continue(())
    });
    end.or_fail("visit").map(|_| ())?;
    expect(
        "keys by next_key, in place of those by next",
        by_key,
        by_entry.clone(),
    )?;
    expect(
        "keys by visit, in place of those by next",
        by_visit,
        by_entry.clone(),
    )?;
    Ok(by_entry)
}

type Keys = Vec<Vec<u8>>;

/// Holds if every call of a reader shows these entries, and none that `gone` names.
fn expect_exactly(bench: &Bench, reader: &dyn Reader, there: &Plain, gone: &[u64]) -> Outcome {
    expect_contents(reader, there)?;
    for (key, value) in there {
        expect_value(reader, key, Some(value))?;
    }
    for &number in gone {
        let key = bench.key(number);
        expect_value(reader, &key, None)?;
        let moment = reader.expires_at(&key).or_fail("expires_at")?;
        expect("the moment of an entry that is not there", moment, None)?;
    }
    let wanted: Keys = there.keys().cloned().collect();
    let any = || reader.iterate(IterationOrder::Any, None).or_fail("iterate");
    let mut keys = keys_by_each_call(any)?;
    keys.sort();
    expect("keys in any order", keys, wanted.clone())?;
    if bench.capabilities.ordered {
        let all = KeyRange::all();
        let forward = || reader.scan(&all, Direction::Forward).or_fail("scan");
        expect("keys forward", keys_by_each_call(forward)?, wanted.clone())?;
        let back = || reader.scan(&all, Direction::Reverse).or_fail("scan");
        let mut keys = keys_by_each_call(back)?;
        keys.reverse();
        expect("keys in reverse", keys, wanted.clone())?;
        // A cursor that is placed on an expired entry begins at the next one.
        for &number in gone {
            let key = bench.key(number);
            let mut cursor = forward()?;
            cursor.seek(&key).or_fail("seek")?;
            let found = cursor.next().or_fail("next")?;
            let next = wanted.iter().find(|other| **other > key);
            let found = found.map(|entry| entry.key.to_vec());
            expect("the entry behind an expired one", found, next.cloned())?;
        }
    }
    Ok(())
}

/// Writes entries 0 to 11, of which every third expires soon and every third later; answers
/// those that stay for a while.
fn mixed(bench: &Bench) -> Result<Plain, String> {
    let mut stay = Plain::new();
    for number in 0..12 {
        let value = format!("leaf and root {number}, ").repeat(1 + number as usize);
        match number % 3 {
            0 => bench.put(number, value.as_bytes())?,
            1 => put_expiring(bench, number, value.as_bytes(), LATER)?,
            _ => put_expiring(bench, number, value.as_bytes(), SOON)?,
        }
        if number % 3 != 2 {
            stay.insert(bench.key(number), value.into_bytes());
        }
    }
    Ok(stay)
}

const EXPIRED: [u64; 4] = [2, 5, 8, 11];

fn gone(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let store = &*bench.store;
    let stay = mixed(bench)?;
    let key = bench.key(5);
    let value = "leaf and root 5, ".repeat(6).into_bytes();
    expect_value(store, &key, Some(&value))?;
    let now = bench.environment.clock.wall_nanoseconds() / 1_000_000;
    let moment = store.expires_at(&key).or_fail("expires_at")?;
    let is_near = |at: &UnixMillis| at.0 <= now + 1_000 && at.0 + 1_000 > now;
    expect(
        "a moment a second away",
        moment.is_some_and(|at| is_near(&at)),
        true,
    )?;
    let none = store.expires_at(&bench.key(0)).or_fail("expires_at")?;
    expect("the moment of an entry that stays", none, None)?;
    let before = Transaction::begin(&bench.store, Durability::Written, None);
    let before = before.or_fail("begin a transaction")?;

    pass(bench, SECOND);
    expect_exactly(bench, store, &stay, &EXPIRED)?;
    let is_there = store.set_expiry(&key, None, Durability::Written);
    expect(
        "set_expiry of an expired entry",
        is_there.or_fail("set_expiry")?,
        false,
    )?;
    let seen = before.get(&key).or_fail("get")?;
    expect(
        "a transaction begun before",
        seen.as_deref(),
        Some(&value[..]),
    )?;
    drop(before);
    let after = Transaction::begin(&bench.store, Durability::Written, None);
    let seen = after.or_fail("begin a transaction")?.get(&key);
    expect(
        "a transaction begun after",
        seen.or_fail("get")?.is_none(),
        true,
    )?;

    let mut batch = WriteBatch::new();
    batch.put(&key, b"new");
    let equals = Precondition::Equals {
        key: key.clone(),
        value,
    };
    let present = Precondition::Present { key: key.clone() };
    for refused in [equals, present] {
        let done = store.write_if(&[refused], batch.clone(), Durability::Written);
        expect_error("a precondition on an expired entry", done, |error| {
            matches!(error, Error::PreconditionFailed { index: 0 })
        })?;
    }
    let absent = Precondition::Absent { key: key.clone() };
    let done = store.write_if(&[absent], batch, Durability::Written);
    done.or_fail("write_if of an expired entry that is to be absent")?;
    let mut there = stay;
    there.insert(key, b"new".to_vec());
    // A put without a moment takes the moment away.
    pass(bench, SECOND);
    expect_exactly(bench, store, &there, &[2, 8, 11])
}

fn gone_when_opened_again(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let stay = mixed(bench)?;
    let subject = bench.subject();
    let store = bench.reopened()?;
    pass(bench, SECOND);
    expect_exactly(bench, &*store, &stay, &EXPIRED)?;
    store.close().or_fail("close")?;
    let reader = subject.open_read_only(&bench.environment);
    let reader = reader.or_fail("open for reading alone")?;
    expect_exactly(bench, &*reader, &stay, &EXPIRED)?;
    reader.close().or_fail("close")?;
    // Everything that expires has done so by the time of the last opening.
    pass(bench, Duration::from_secs(1_000));
    let store = bench.open().or_fail("open")?;
    let only = |number: u64| (bench.key(number), stay[&bench.key(number)].clone());
    let rest: Plain = [0, 3, 6, 9].map(only).into();
    expect_exactly(bench, &*store, &rest, &[1, 2, 4, 5, 7, 8, 10, 11])?;
    store.close().or_fail("close")
}

fn own_moments(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let store = &*bench.store;
    let stay = mixed(bench)?;
    let all = super::contents(store)?;
    let before = store.snapshot().or_fail("snapshot")?;
    let mut cursor = store
        .iterate(IterationOrder::Any, None)
        .or_fail("iterate")?;
    pass(bench, SECOND);
    let after = store.snapshot().or_fail("snapshot")?;
    for _ in 0..2 {
        expect_exactly(bench, &*before, &all, &[])?;
        expect_exactly(bench, &*after, &stay, &EXPIRED)?;
        let moment = before.expires_at(&bench.key(2)).or_fail("expires_at")?;
        expect(
            "the moment, in a snapshot before it",
            moment.is_some(),
            true,
        )?;
        // The sweep, which deletes expired entries, leaves snapshots alone.
        let compacted = store.compact(&CompactOptions::default(), &());
        compacted.or_fail("compact").map(|_| ())?;
        expect_exactly(bench, store, &stay, &EXPIRED)?;
    }
    let mut seen = Plain::new();
    while let Some(entry) = cursor.next().or_fail("next")? {
        let expires = cursor.expires_at().is_some();
        let stays = (0..12)
            .step_by(3)
            .any(|number| bench.key(number) == *entry.key);
        expect("an entry that a cursor shows expires", expires, !stays)?;
        seen.insert(entry.key.to_vec(), entry.value.to_vec());
    }
    super::expect_entries(&seen, &all)
}

fn other_moments(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let store = &*bench.store;
    let set = |number, expiry| {
        let set = store.set_expiry(&bench.key(number), expiry, Durability::Written);
        set.or_fail("set_expiry")
    };
    for number in 0..3 {
        put_expiring(bench, number, b"value", SOON)?;
    }
    bench.put(3, b"value")?;
    expect("set_expiry to none", set(0, None)?, true)?;
    expect("set_expiry to later", set(1, Some(LATER))?, true)?;
    expect("set_expiry of one that stays", set(3, Some(SOON))?, true)?;
    expect("set_expiry of none", set(4, Some(SOON))?, false)?;
    // A moment in the past: the entry is not there from the beginning.
    put_expiring(bench, 5, b"value", Expiry::At(UnixMillis(1)))?;
    let there = |numbers: &[u64]| -> Plain {
        let entries = numbers
            .iter()
            .map(|&number| (bench.key(number), b"value".to_vec()));
        entries.collect()
    };
    expect_exactly(bench, store, &there(&[0, 1, 2, 3]), &[4, 5])?;
    pass(bench, SECOND);
    expect_exactly(bench, store, &there(&[0, 1]), &[2, 3, 4, 5])?;
    put_expiring(bench, 2, b"value", LATER)?;
    let store = bench.reopened()?;
    expect_exactly(bench, &*store, &there(&[0, 1, 2]), &[3, 4, 5])
}

fn batches(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let keys: Vec<_> = (0..5).map(|number| bench.key(number)).collect();
    let mut batch = WriteBatch::new();
    batch
        .put_expiring(&keys[0], "goes", SOON)
        .put_expiring(&keys[1], "goes", SOON)
        .put(&keys[1], "stays")
        .put(&keys[2], "stays")
        .put_expiring(&keys[2], "goes", SOON)
        .put_expiring(&keys[3], "goes", SOON)
        .delete(&keys[3])
        .put_expiring(&keys[4], "stays", LATER);
    let absent = [Precondition::Absent {
        key: keys[0].clone(),
    }];
    let done = bench.store.write_if(&absent, batch, Durability::Written);
    done.or_fail("a batch with preconditions")?;
    let entry = |number: usize, value: &str| (keys[number].clone(), value.as_bytes().to_vec());
    let stay = Plain::from([entry(1, "stays"), entry(4, "stays")]);
    let mut before = stay.clone();
    before.extend([entry(0, "goes"), entry(2, "goes")]);
    expect_exactly(bench, &*bench.store, &before, &[3])?;
    pass(bench, SECOND);
    expect_exactly(bench, &*bench.store, &stay, &[0, 2, 3])?;
    expect_exactly(bench, &*bench.reopened()?, &stay, &[0, 2, 3])
}

fn namespaces(bench: &Bench) -> Outcome {
    if !bench.has_layer() || !bench.capabilities.namespaces {
        return Ok(());
    }
    let store = &bench.store;
    let trees = store.namespace("trees").or_fail("namespace")?;
    let key = bench.key(1);
    bench.put(1, b"stays")?;
    let put = trees.put_expiring(&key, b"goes", SOON, Durability::Written);
    put.or_fail("an expiring put into a namespace")?;
    let mut batch = WriteBatch::new();
    batch.put_expiring(bench.key(2), "goes", SOON);
    let (of_trees, value) = (bench.key(2), b"stays".to_vec());
    let operation = cambium_api::Operation::Put {
        key: of_trees,
        value,
    };
    batch.push(Some("trees".into()), operation);
    batch.make_special(Special::Expires(LATER));
    store.write(batch, Durability::Written).or_fail("write")?;
    let snapshot = store.snapshot().or_fail("snapshot")?;
    pass(bench, SECOND);
    let only = |number| Plain::from([(bench.key(number), b"stays".to_vec())]);
    for again in [false, true] {
        let store = match again {
            false => store.clone(),
            true => bench.reopened()?,
        };
        let trees = store.namespace("trees").or_fail("namespace")?;
        expect_exactly(bench, &*store, &only(1), &[2])?;
        expect_exactly(bench, &*trees, &only(2), &[1])?;
        if !again {
            let before = snapshot.namespace("trees").or_fail("namespace")?;
            let before = before.ok_or("a snapshot without its namespace")?;
            expect_value(&*before, &key, Some(b"goes"))?;
            // The sweep goes through every namespace.
            let deleted = sweep(&*store)?;
            expect("entries that a sweep deleted", deleted, Some(2))?;
        }
    }
    Ok(())
}

/// Lets a compaction take expired entries away; answers how many were since the opening.
fn sweep(store: &dyn Engine) -> Result<Option<u64>, String> {
    let compacted = store.compact(&CompactOptions::default(), &());
    compacted.or_fail("compact").map(|_| ())?;
    let statistics = store.stats().or_fail("stats")?;
    Ok(statistics.number("expired_entries_deleted"))
}

fn named_snapshots(bench: &Bench) -> Outcome {
    if !bench.has_layer() || !bench.capabilities.named_snapshots {
        return Ok(());
    }
    let store = &*bench.store;
    let stay = mixed(bench)?;
    let all = super::contents(store)?;
    store
        .create_named_snapshot("before")
        .or_fail("create_named_snapshot")?;
    let early = store.named_snapshot("before").or_fail("named_snapshot")?;
    bench.put(2, b"other")?;
    pass(bench, SECOND);
    // It judges by the moment at which it is opened.
    expect_exactly(bench, &*early, &all, &[])?;
    drop(early);
    for again in [false, true] {
        let store = match again {
            false => bench.store.clone(),
            true => bench.reopened()?,
        };
        let late = store.named_snapshot("before").or_fail("named_snapshot")?;
        expect_exactly(bench, &*late, &stay, &EXPIRED)?;
        drop(late);
        if !again {
            // The sweep keeps what the named snapshot has.
            let compacted = store.compact(&CompactOptions::default(), &());
            compacted.or_fail("compact").map(|_| ())?;
            continue;
        }
        store.rollback("before").or_fail("rollback")?;
        expect_exactly(bench, &*store, &stay, &EXPIRED)?;
        let deleted = sweep(&*store)?;
        expect(
            "entries that a sweep deleted after a rollback",
            deleted,
            Some(4),
        )?;
        expect_exactly(bench, &*store, &stay, &EXPIRED)?;
        store.close().or_fail("close")?;
    }
    Ok(())
}

fn swept(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let store = &*bench.store;
    let stay = mixed(bench)?;
    pass(bench, SECOND);
    let mut there = stay;
    // One is written anew after it has expired.
    put_expiring(bench, 8, b"new", LATER)?;
    there.insert(bench.key(8), b"new".to_vec());
    let deleted = sweep(store)?;
    expect("entries that a sweep deleted", deleted, Some(3))?;
    expect_exactly(bench, store, &there, &[2, 5, 11])?;
    expect_exactly(bench, &*bench.reopened()?, &there, &[2, 5, 11])
}

fn changes(bench: &Bench) -> Outcome {
    if !bench.has_layer() || !bench.capabilities.changes {
        return Ok(());
    }
    let store = &*bench.store;
    let stay = mixed(bench)?;
    let options = ChangeOptions::default();
    let mut feed = store
        .changes(Default::default(), options)
        .or_fail("changes")?;
    let mut moments = BTreeMap::new();
    while let Some(batch) = feed.next().or_fail("next")? {
        for change in batch.changes {
            if let cambium_api::Operation::Put { key, value } = change.operation {
                if let Some(expected) = stay.get(&key) {
                    expect("the value of a change", value, expected.clone())?;
                }
                moments.insert(key, change.expires);
            }
        }
    }
    for number in 0..12 {
        let key = bench.key(number);
        let moment = store.expires_at(&key).or_fail("expires_at")?;
        expect(
            "the moment of a change",
            moments.get(&key).copied(),
            Some(moment),
        )?;
    }
    Ok(())
}

/// A store of its own, on a clock that can be set back.
fn clock_set_back(bench: &Bench) -> Outcome {
    if !bench.has_layer() {
        return Ok(());
    }
    let clock = Arc::new(SteppedClock::default());
    let environment = Environment {
        clock: clock.clone(),
        ..bench.environment.clone()
    };
    let (kind, options) = (bench.subject().kind(), bench.subject().create_options());
    let store = kind.create(&environment, Path::new("/set back"), &options);
    let store: Arc<dyn Engine> = store.or_fail("create")?;
    let keys = [bench.key(1), bench.key(2), bench.key(3)];
    for (key, expiry) in keys.iter().zip([SOON, LATER]) {
        let put = store.put_expiring(key, b"value", expiry, Durability::Written);
        put.or_fail("an expiring put")?;
    }
    clock.advance(SECOND);
    let there = |number: usize| Plain::from([(keys[number].clone(), b"value".to_vec())]);
    expect_exactly(bench, &*store, &there(1), &[1])?;
    for time in [SECOND / 2, Duration::from_secs(100_000)] {
        clock.set_back(time);
        expect_exactly(bench, &*store, &there(1), &[1])?;
        expect_exactly(
            bench,
            &*store.snapshot().or_fail("snapshot")?,
            &there(1),
            &[1],
        )?;
        let is_there = store.set_expiry(&keys[0], None, Durability::Written);
        expect(
            "set_expiry of an expired entry",
            is_there.or_fail("set_expiry")?,
            false,
        )?;
    }
    // An entry that is written now does not expire before its time.
    let put = store.put_expiring(&keys[2], b"value", SOON, Durability::Written);
    put.or_fail("an expiring put")?;
    let mut both = there(1);
    both.extend(there(2));
    expect_exactly(bench, &*store, &both, &[1])?;
    let compacted = store.compact(&CompactOptions::default(), &());
    compacted.or_fail("compact").map(|_| ())?;
    expect_exactly(bench, &*store, &both, &[1])?;
    store.close().or_fail("close")
}
