//! The change feed: where it begins and ends, and what it leaves out.

use cambium_api::{
    ChangeOptions, Durability, Engine, Error, Operation, SequenceNumber, WriteBatch,
};

use super::{Bench, Case, OrFail, Outcome, expect, expect_error};
use crate::following::Mirror;
use crate::holding::collect_all;

pub(super) const CASES: &[Case] = &[
    ("an engine without changes says so", refused_where_unable),
    (
        "a snapshot and the changes behind it fit",
        behind_a_snapshot,
    ),
    (
        "changes that are not synced are left out where asked",
        synced_only,
    ),
    ("changes from the future are refused", from_the_future),
    ("a closed store shows no changes", closed),
    ("a rollback ends history", rollback),
    ("changes name their namespace", namespaces),
    (
        "a store that is opened for reading alone shows changes",
        read_only,
    ),
];

pub(super) const ALL: ChangeOptions = ChangeOptions { synced_only: false };
pub(super) const SYNCED: ChangeOptions = ChangeOptions { synced_only: true };

fn refused_where_unable(bench: &Bench) -> Outcome {
    if bench.capabilities.changes {
        return Ok(());
    }
    let store = &bench.store;
    let unsupported = |error: &Error| matches!(error, Error::Unsupported { .. });
    let feed = store.changes(SequenceNumber::ZERO, ALL).map(|_| ());
    expect_error("changes", feed, unsupported)?;
    expect_error("consumers", store.list_consumers(), unsupported)?;
    let moved = store.move_consumer("mirror", Some(SequenceNumber::ZERO));
    expect_error("a consumer", moved, unsupported)
}

/// Holds if the changes behind a mirror make the store's contents of it.
pub(super) fn expect_fit(store: &dyn Engine, mirror: &Mirror) -> Outcome {
    let mut mirror = mirror.clone();
    let mut feed = store.changes(mirror.at, ALL).or_fail("changes")?;
    mirror.follow(&mut *feed).or_fail("following")?;
    expect_same(store, &mirror)
}

pub(super) fn expect_same(store: &dyn Engine, mirror: &Mirror) -> Outcome {
    let found = collect_all(store, &store.capabilities()).or_fail("reading it all")?;
    mirror.difference(&found.spaces).map_or(Ok(()), Err)
}

fn behind_a_snapshot(bench: &Bench) -> Outcome {
    if !bench.capabilities.changes {
        return Ok(());
    }
    // Without a consumer, background work may give the log back before it is read.
    let consumer = bench
        .store
        .move_consumer("mirror", Some(SequenceNumber::ZERO));
    consumer.or_fail("making a consumer")?;
    let mut mirrors = Vec::new();
    let people = match bench.capabilities.namespaces {
        true => bench.store.namespace("people").or_fail("namespace")?,
        false => bench.store.clone(),
    };
    for number in 0..60 {
        let durability = match number % 7 {
            0 => Durability::Synced,
            1..=3 => Durability::Written,
            _ => Durability::Buffered,
        };
        let key = bench.key(number % 9);
        let value = format!("value {number}");
        let store = [&bench.store, &people][usize::from(number % 4 == 1)];
        let written = match number % 5 {
            4 => store.delete(&key, durability),
            _ => store.put(&key, value.as_bytes(), durability),
        };
        written.or_fail("write")?;
        if number % 10 == 3 {
            let snapshot = bench.store.snapshot().or_fail("snapshot")?;
            mirrors.push(Mirror::of(&*snapshot).or_fail("reading a snapshot")?);
        }
    }
    for mirror in &mirrors {
        expect_fit(&*bench.store, mirror)?;
    }
    expect_fit(&*bench.store, &Mirror::default())
}

fn synced_only(bench: &Bench) -> Outcome {
    if !bench.capabilities.changes {
        return Ok(());
    }
    let store = &bench.store;
    bench.put(1, b"first")?;
    store.sync().or_fail("sync")?;
    let at = store.snapshot().or_fail("snapshot")?.sequence();
    let mut synced = store.changes(at, SYNCED).or_fail("changes")?;
    let mut all = store.changes(at, ALL).or_fail("changes")?;
    for durability in [Durability::Buffered, Durability::Written] {
        let key = bench.key(2);
        store.put(&key, b"second", durability).or_fail("put")?;
        // In this order: what was not synced at the second call was not at the first.
        let early = synced.next().or_fail("next")?;
        let shown = all.next().or_fail("next")?.ok_or("a batch is not shown")?;
        if early.is_some() && !shown.synced {
            return Err("a batch is shown as synced, and is not".to_string());
        }
        store.sync().or_fail("sync")?;
        let late = match early {
            Some(batch) => Some(batch),
            None => synced.next().or_fail("next")?,
        };
        let late = late.ok_or("a synced batch is not shown")?;
        expect("synced", late.synced, true)?;
        expect(
            "the batch",
            (late.first, late.last),
            (shown.first, shown.last),
        )?;
        expect("its changes", late.changes, shown.changes)?;
        expect("a second one", synced.next().or_fail("next")?, None)?;
    }
    Ok(())
}

fn from_the_future(bench: &Bench) -> Outcome {
    if !bench.capabilities.changes {
        return Ok(());
    }
    bench.fill(3)?;
    let store = &bench.store;
    let last = store.snapshot().or_fail("snapshot")?.sequence();
    let invalid = |error: &Error| matches!(error, Error::InvalidArgument(_));
    for after in [
        last.next(),
        SequenceNumber(last.0 + 1000),
        SequenceNumber::MAX,
    ] {
        let feed = store.changes(after, ALL).map(|_| ());
        expect_error("changes from the future", feed, invalid)?;
        let moved = store.move_consumer("mirror", Some(after));
        expect_error("a consumer in the future", moved, invalid)?;
    }
    expect("consumers", store.list_consumers().or_fail("list")?, vec![])?;
    let mut feed = store.changes(last, ALL).or_fail("changes")?;
    expect("changes at the end", feed.next().or_fail("next")?, None)?;
    bench.put(1, b"later")?;
    let batch = feed.next().or_fail("next")?.ok_or("a batch is not shown")?;
    expect("its number", batch.first > last, true)
}

fn closed(bench: &Bench) -> Outcome {
    if !bench.capabilities.changes {
        return Ok(());
    }
    bench.fill(3)?;
    let store = &bench.store;
    let mut feed = store
        .changes(SequenceNumber::ZERO, ALL)
        .or_fail("changes")?;
    feed.next().or_fail("next")?;
    store.close().or_fail("close")?;
    let is_closed = |error: &Error| matches!(error, Error::Closed);
    expect_error("a feed", feed.next(), is_closed)?;
    let feed = store.changes(SequenceNumber::ZERO, ALL).map(|_| ());
    expect_error("changes", feed, is_closed)?;
    expect_error("consumers", store.list_consumers(), is_closed)?;
    let moved = store.move_consumer("mirror", Some(SequenceNumber::ZERO));
    expect_error("a consumer", moved, is_closed)
}

fn rollback(bench: &Bench) -> Outcome {
    if !bench.capabilities.changes || !bench.capabilities.named_snapshots {
        return Ok(());
    }
    let store = &bench.store;
    bench.put(1, b"kept")?;
    let at = store.snapshot().or_fail("snapshot")?.sequence();
    store.create_named_snapshot("kept").or_fail("keeping")?;
    bench.put(1, b"taken back")?;
    let mut feed = store.changes(at, ALL).or_fail("changes")?;
    let consumer = store.move_consumer("mirror", Some(at));
    consumer.or_fail("making a consumer")?;
    store.rollback("kept").or_fail("rolling back")?;
    let lost = |error: &Error| matches!(error, Error::HistoryLost { .. });
    expect_error("a feed from before a rollback", feed.next(), lost)?;
    let Err(Error::HistoryLost { oldest }) = store.changes(at, ALL).map(|_| ()) else {
        return Err("changes from before a rollback are shown".to_string());
    };
    store
        .changes(oldest, ALL)
        .or_fail("changes at the oldest")?;
    let snapshot = store.snapshot().or_fail("snapshot")?;
    let mirror = Mirror::of(&*snapshot).or_fail("reading a snapshot")?;
    // Before there are changes behind the snapshot: what was lost holds none of them.
    let moved = store.move_consumer("mirror", Some(mirror.at));
    moved.or_fail("moving a consumer behind a rollback")?;
    bench.put(1, b"new")?;
    bench.put(2, b"new")?;
    expect_fit(&**store, &mirror)?;
    let reopened = bench.reopened()?;
    expect_fit(&*reopened, &mirror)?;
    let feed = reopened.changes(at, ALL).map(|_| ());
    expect_error("changes from before a rollback", feed, lost)
}

fn namespaces(bench: &Bench) -> Outcome {
    if !bench.capabilities.changes || !bench.capabilities.namespaces {
        return Ok(());
    }
    let store = &bench.store;
    // Without a consumer, background work may give the log back before it is read.
    let consumer = store.move_consumer("mirror", Some(SequenceNumber::ZERO));
    consumer.or_fail("making a consumer")?;
    let people = store.namespace("people").or_fail("namespace")?;
    bench.put(1, b"of the default one")?;
    let key = bench.key(1);
    let put = people.put(&key, b"of people", Durability::Written);
    put.or_fail("put")?;
    let mut batch = WriteBatch::new();
    batch.delete(&key);
    let operation = Operation::Put {
        key: key.clone(),
        value: b"of both".to_vec(),
    };
    batch.push(Some("people".into()), operation);
    store.write(batch, Durability::Written).or_fail("write")?;
    let mut mirror = Mirror::default();
    let mut feed = store.changes(mirror.at, ALL).or_fail("changes")?;
    mirror.follow(&mut *feed).or_fail("following")?;
    expect_same(&**store, &mirror)?;
    if !bench.capabilities.droppable_namespaces {
        return Ok(());
    }
    store.drop_namespace("people").or_fail("dropping")?;
    mirror.follow(&mut *feed).or_fail("following a drop")?;
    expect_same(&**store, &mirror)?;
    let people = store.namespace("people").or_fail("namespace")?;
    let put = people.put(&key, b"of the second", Durability::Written);
    put.or_fail("put")?;
    mirror.follow(&mut *feed).or_fail("following a new one")?;
    expect_same(&**store, &mirror)?;
    expect_fit(&*bench.reopened()?, &Mirror::default())
}

fn read_only(bench: &Bench) -> Outcome {
    if !bench.capabilities.changes {
        return Ok(());
    }
    let start = bench.store.snapshot().or_fail("snapshot")?;
    let mirror = Mirror::of(&*start).or_fail("reading a snapshot")?;
    drop(start);
    let consumer = bench.store.move_consumer("mirror", Some(mirror.at));
    consumer.or_fail("making a consumer")?;
    bench.fill(40)?;
    bench.store.close().or_fail("close")?;
    let store = bench.subject().open_read_only(&bench.environment);
    let store = match store {
        Err(Error::Unsupported { .. }) => return Ok(()),
        other => other.or_fail("opening for reading alone")?,
    };
    expect_fit(&*store, &mirror)?;
    let moved = store.move_consumer("mirror", Some(mirror.at));
    expect_error("a consumer of a reader", moved, |error| {
        matches!(error, Error::Unsupported { .. })
    })
}
