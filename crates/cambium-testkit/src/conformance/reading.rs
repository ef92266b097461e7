//! Stores that are opened for reading alone: nothing is written, also where a process died
//! before; readers stand beside one another, and a writer beside them only where the engine
//! keeps the readers' moments.

use std::path::Path;
use std::time::Duration;

use cambium_api::{
    CompactOptions, Durability, Engine, Error, Expiry, Request, Response, Result, WriteBatch,
};

use super::{Bench, Case, OrFail, Outcome, expect, expect_error};
use crate::history::compare_all_reads;
use crate::holding::{Change, State, apply, collect_all, collect_snapshot, perform};
use crate::unwritable::unwritable;
use crate::workload::{Action, Workload, key_space};

pub(super) const CASES: &[Case] = &[
    (
        "a reader finds what a crash left, and changes nothing",
        after_a_crash,
    ),
    (
        "a reader finds what a close left, and changes nothing",
        after_a_close,
    ),
    (
        "readers stand beside readers, and writers where they can",
        beside_one_another,
    ),
    ("what is no store is not opened to read it", open_nothing),
];

/// Actions of a history.
const ACTIONS: u64 = 150;

const PATH: &str = "/second";

fn after_a_crash(bench: &Bench) -> Outcome {
    let state = written(bench, |store| {
        drop(store);
        Ok(())
    })?;
    reads_and_writes_nothing(bench, &state)
}

fn after_a_close(bench: &Bench) -> Outcome {
    let state = written(bench, |store| store.close())?;
    reads_and_writes_nothing(bench, &state)
}

type Store = std::sync::Arc<dyn Engine>;

/// A second store with a history, and what it should hold.
fn written(bench: &Bench, end: fn(Store) -> Result<()>) -> std::result::Result<State, String> {
    let subject = bench.subject();
    let made = subject.kind().create(
        &bench.environment,
        Path::new(PATH),
        &subject.create_options(),
    );
    let store = made.or_fail("create")?;
    let mut workload = Workload::rich(17, bench.capabilities).with_layer(bench.has_layer());
    let mut state = State::default();
    for _ in 0..ACTIONS {
        match workload.action() {
            Action::Write(batch, _) => {
                let change = Change::Write(batch);
                for namespace in change.preparations(&state) {
                    state = apply(&state, &namespace);
                }
                state = apply(&state, &change);
                perform(&*store, change, Durability::Written).or_fail("write")?;
            }
            Action::Change(change) if change.is_possible(&state) => {
                state = apply(&state, &change);
                perform(&*store, change, Durability::Synced).or_fail("change")?;
            }
            Action::Sync => store.sync().or_fail("sync")?,
            Action::Step(budget) => store.step(budget).or_fail("step").map(|_| ())?,
            _ => {}
        }
    }
    end(store).or_fail("the end of the writer")?;
    Ok(state)
}

fn reads_and_writes_nothing(bench: &Bench, state: &State) -> Outcome {
    let (environment, attempts) = unwritable(&bench.environment);
    let subject = bench.subject();
    let (kind, options) = (subject.kind(), subject.open_options());
    let opened = kind.open_read_only(&environment, Path::new(PATH), options, &());
    let store = opened.or_fail("open to read")?;
    expect("capabilities", store.capabilities(), bench.capabilities)?;
    compare(bench, &*store, state)?;
    refuses_changes(bench, &*store)?;
    let snapshot = store.snapshot().or_fail("snapshot")?;
    if !state.is_in(&collect_snapshot(&*snapshot).or_fail("reading a snapshot")?) {
        return Err("a snapshot holds something else".to_string());
    }
    for _ in 0..10 {
        store.step(1 << 20).or_fail("step")?;
    }
    let report = store.check(&()).or_fail("check")?;
    expect("findings of a check", report.findings, Vec::new())?;
    store.stats().or_fail("stats")?;
    store.dump(&mut Vec::new()).or_fail("dump")?;
    compare(bench, &*store, state)?;
    store.close().or_fail("close")?;
    drop((store, snapshot));
    attempts.expect_none()?;
    let opened = kind.open(&bench.environment, Path::new(PATH), options, &());
    compare(bench, &*opened.or_fail("open to write")?, state)
}

fn compare(bench: &Bench, store: &dyn Engine, state: &State) -> Outcome {
    let capabilities = &bench.capabilities;
    let found = collect_all(store, capabilities).or_fail("reading it all")?;
    if !state.is(&found) {
        return Err(state.differences(&found).join("; "));
    }
    let keys = key_space(capabilities.keys);
    compare_all_reads(store, state, &keys, capabilities.ordered)
}

fn refuses_changes(bench: &Bench, store: &dyn Engine) -> Outcome {
    let capabilities = &bench.capabilities;
    let key = bench.key(1);
    let mut batch = WriteBatch::new();
    batch.put(&key, b"value").delete(&bench.key(2));
    let write = |durability| store.write(batch.clone(), durability).map(|_| ());
    let compacted = store.compact(&CompactOptions::default(), &());
    let put = Request::Put {
        key: key.clone(),
        value: b"value".to_vec(),
        durability: Durability::Written,
    };
    submitted(store, Request::Get { key: key.clone() }).or_fail("a submitted get")?;
    let mut refused = vec![
        (
            "put",
            store.put(&key, b"value", Durability::Buffered).map(|_| ()),
        ),
        ("delete", store.delete(&key, Durability::Synced).map(|_| ())),
        ("a batch", write(Durability::Buffered)),
        ("a synced batch", write(Durability::Synced)),
        ("sync", store.sync()),
        ("compact", compacted.map(|_| ())),
        ("a submitted put", submitted(store, put).map(|_| ())),
    ];
    if capabilities.named_snapshots {
        refused.push((
            "a named snapshot",
            store.create_named_snapshot("of a reader"),
        ));
        refused.push(("its end", store.drop_named_snapshot("of a reader")));
        refused.push(("rollback", store.rollback("of a reader")));
    }
    if capabilities.namespaces {
        let made = store.namespace("of a reader").map(|_| ());
        refused.push(("a new namespace", made));
    }
    if capabilities.droppable_namespaces {
        refused.push(("its drop", store.drop_namespace("of a reader")));
    }
    // In other words without the value layer, where it is always refused.
    let expiry = Expiry::After(Duration::from_secs(1));
    let expiring = store.put_expiring(&key, b"value", expiry, Durability::Buffered);
    expect_error("an expiring put", expiring, |error| {
        matches!(error, Error::Unsupported { .. } | Error::InvalidArgument(_))
    })?;
    for (what, refused) in refused {
        expect_error(what, refused, |error| {
            let is_unsupported = matches!(error, Error::Unsupported { .. });
            is_unsupported && error.to_string().contains("opened for reading alone")
        })?;
    }
    Ok(())
}

/// The answer to a request that is submitted.
fn submitted(store: &dyn Engine, request: Request) -> Result<Response> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let completion = Box::new(move |answer| {
        // The receiver waits for it; it cannot be gone.
        _ = sender.send(answer);
    });
    store.submit(request, completion);
    receiver.recv().unwrap_or(Err(Error::Closed))
}

fn beside_one_another(bench: &Bench) -> Outcome {
    let state = written(bench, |store| store.close())?;
    let subject = bench.subject();
    let (kind, options, path) = (subject.kind(), subject.open_options(), Path::new(PATH));
    let read = || kind.open_read_only(&bench.environment, path, options, &());
    let write = || kind.open(&bench.environment, path, options, &());
    if bench.capabilities.readers_beside_writer {
        return beside_a_writer(bench, state, (read, write));
    }
    let is_locked = |error: &Error| matches!(error, Error::Locked { .. });
    let one = read().or_fail("open to read")?;
    let other = read().or_fail("a second reader")?;
    expect_error("a writer beside readers", write(), is_locked)?;
    one.close().or_fail("close")?;
    expect_error("a writer beside a reader", write(), is_locked)?;
    compare(bench, &*other, &state)?;
    other.close().or_fail("close")?;
    let closed = other.get(&bench.key(1));
    expect_error("a closed reader", closed, |error| {
        matches!(error, Error::Closed)
    })?;
    let writer = write().or_fail("open to write")?;
    expect_error("a reader beside a writer", read(), is_locked)?;
    compare(bench, &*writer, &state)
}

/// Readers keep their moments while a writer works, and take newer ones when they are
/// refreshed.
fn beside_a_writer(
    bench: &Bench,
    before: State,
    (read, write): (impl Fn() -> Result<Store>, impl Fn() -> Result<Store>),
) -> Outcome {
    let early = read().or_fail("open to read")?;
    let writer = write().or_fail("open to write beside a reader")?;
    let late = read().or_fail("open to read beside a writer")?;
    let snapshot = early.snapshot().or_fail("snapshot")?;
    let mut workload = Workload::rich(23, bench.capabilities).with_layer(bench.has_layer());
    let mut state = before.clone();
    for _ in 0..ACTIONS {
        match workload.action() {
            Action::Write(batch, _) => {
                let change = Change::Write(batch);
                for namespace in change.preparations(&state) {
                    state = apply(&state, &namespace);
                }
                state = apply(&state, &change);
                perform(&*writer, change, Durability::Written).or_fail("write")?;
            }
            Action::Step(budget) => writer.step(budget).or_fail("step").map(|_| ())?,
            Action::Change(_) | Action::Sync => continue,
            _ => {
                let compacted = writer.compact(&CompactOptions::default(), &());
                compacted.or_fail("compact")?;
            }
        }
        early.refresh().or_fail("refresh")?;
        compare(bench, &*early, &state)?;
    }
    compare(bench, &*late, &before)?;
    if !before.is_in(&collect_snapshot(&*snapshot).or_fail("reading a snapshot")?) {
        return Err("a snapshot of a reader has changed".to_string());
    }
    writer.close().or_fail("close")?;
    late.refresh().or_fail("refresh")?;
    compare(bench, &*late, &state)?;
    late.close().or_fail("close")?;
    expect_error("a closed reader", late.refresh(), |error| {
        matches!(error, Error::Closed)
    })
}

fn open_nothing(bench: &Bench) -> Outcome {
    let subject = bench.subject();
    let (environment, attempts) = unwritable(&bench.environment);
    let (kind, options) = (subject.kind(), subject.open_options());
    let opened = kind.open_read_only(&environment, Path::new("/nowhere"), options, &());
    expect_error("a reader of nothing", opened, |error| {
        matches!(error, Error::NotAStore { .. })
    })?;
    attempts.expect_none()
}
