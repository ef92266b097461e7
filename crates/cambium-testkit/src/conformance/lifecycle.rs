//! Creating, opening, closing, checking, compacting, backing up.

use std::path::Path;

use cambium_api::{
    CompactOptions, Durability, Error, IterationOrder, KeyRange, OptionValues, Request, Response,
};

use super::{Bench, Case, OrFail, Outcome, expect, expect_contents, expect_error, expect_value};

pub(super) const CASES: &[Case] = &[
    (
        "a store that was dropped keeps what was written",
        reopen_without_close,
    ),
    ("a store has one owner", one_owner),
    ("a closed store answers Closed", closed),
    ("unknown options are refused", unknown_options),
    ("a store is not created over another", create_over),
    (
        "an opening may say what the store was created with",
        open_as_created,
    ),
    ("what is no store is not opened", open_nothing),
    ("a compaction keeps everything", compaction),
    ("a sound store checks sound", check),
    ("a backup is the same store", backup),
    ("submitted requests are answered once", submit),
    ("people can look inside", looking_inside),
    (
        "files do not pile up under overwriting",
        files_do_not_pile_up,
    ),
];

fn reopen_without_close(bench: &Bench) -> Outcome {
    let environment = bench.environment.clone();
    let subject = bench.subject().clone();
    let path = Path::new("/second");
    let kind = subject.kind();
    let store = kind.create(&environment, path, &subject.create_options());
    let store = store.or_fail("create")?;
    store
        .put(&bench.key(1), b"written", Durability::Written)
        .or_fail("put")?;
    drop(store);
    let store = kind.open(&environment, path, subject.open_options(), &());
    let store = store.or_fail("open without close")?;
    expect_value(&*store, &bench.key(1), Some(b"written"))
}

fn one_owner(bench: &Bench) -> Outcome {
    expect_error("a second opening", bench.open(), |error| {
        matches!(error, Error::Locked { .. })
    })?;
    bench.put(1, b"still here")?;
    bench.store.close().or_fail("close")?;
    let store = bench.open().or_fail("open after close")?;
    expect_value(&*store, &bench.key(1), Some(b"still here"))
}

fn closed(bench: &Bench) -> Outcome {
    bench.fill(5)?;
    let store = &bench.store;
    let snapshot = store.snapshot().or_fail("snapshot")?;
    let mut cursor = store
        .iterate(IterationOrder::Any, None)
        .or_fail("iterate")?;
    store.close().or_fail("close")?;
    store.close().or_fail("a second close")?;
    let key = bench.key(1);
    let is_closed = |error: &Error| matches!(error, Error::Closed);
    expect_error("get", store.get(&key), is_closed)?;
    expect_error("multi_get", store.multi_get(&[&key]), is_closed)?;
    expect_error(
        "put",
        store.put(&key, b"x", Durability::Buffered),
        is_closed,
    )?;
    expect_error("delete", store.delete(&key, Durability::Synced), is_closed)?;
    expect_error("sync", store.sync(), is_closed)?;
    expect_error("snapshot", store.snapshot(), is_closed)?;
    let pass = store.iterate(IterationOrder::Any, None);
    expect_error("iterate", pass, is_closed)?;
    let compacted = store.compact(&CompactOptions::default(), &());
    expect_error("compact", compacted, is_closed)?;
    expect_error("check", store.check(&()), is_closed)?;
    expect_error("stats", store.stats(), is_closed)?;
    let kept = store.list_named_snapshots();
    expect_error("named snapshots", kept, is_closed)?;
    let backup = store.backup(Path::new("/backup"), &());
    expect_error("backup", backup, is_closed)?;
    expect_error("a cursor", cursor.next(), is_closed)?;
    expect_error("a snapshot", snapshot.get(&key), is_closed)
}

fn unknown_options(bench: &Bench) -> Outcome {
    let mut options = OptionValues::default();
    options.set("no_such_option", "1");
    let kind = bench.subject().kind();
    let is_invalid = |error: &Error| matches!(error, Error::InvalidArgument(_));
    let created = kind.create(&bench.environment, Path::new("/other"), &options);
    expect_error("create with an unknown option", created, is_invalid)?;
    bench.store.close().or_fail("close")?;
    let opened = kind.open(&bench.environment, bench.path(), &options, &());
    expect_error("open with an unknown option", opened, is_invalid)?;
    bench.open().or_fail("open after a refusal").map(|_| ())
}

fn create_over(bench: &Bench) -> Outcome {
    let entries = bench.fill(5)?;
    bench.store.close().or_fail("close")?;
    let created = bench.subject().create(&bench.environment);
    expect_error("create over a store", created, |error| {
        matches!(error, Error::AlreadyExists { .. })
    })?;
    expect_contents(&*bench.open().or_fail("open")?, &entries)
}

fn open_as_created(bench: &Bench) -> Outcome {
    let entries = bench.fill(5)?;
    bench.store.close().or_fail("close")?;
    let (kind, options) = (bench.subject().kind(), bench.subject().create_options());
    let opened = kind.open(&bench.environment, bench.path(), &options, &());
    expect_contents(&*opened.or_fail("open as created")?, &entries)
}

fn open_nothing(bench: &Bench) -> Outcome {
    let is_no_store = |error: &Error| matches!(error, Error::NotAStore { .. });
    let kind = bench.subject().kind();
    let files = &bench.environment.file_system;
    files
        .create_directory(Path::new("/empty"))
        .or_fail("create folder")?;
    for path in ["/nowhere", "/empty"] {
        let options = bench.subject().open_options();
        let opened = kind.open(&bench.environment, Path::new(path), options, &());
        expect_error(&format!("open of {path}"), opened, is_no_store)?;
    }
    let left = files.metadata(Path::new("/nowhere")).or_fail("metadata")?;
    expect("what opening nothing made", left.is_some(), false)
}

fn compaction(bench: &Bench) -> Outcome {
    let mut entries = bench.fill(200)?;
    for number in 0..150 {
        let key = bench.key(number);
        if number % 5 == 0 {
            bench
                .store
                .delete(&key, Durability::Written)
                .or_fail("delete")?;
            entries.remove(&key);
        } else {
            bench.put(number, b"newer")?;
            entries.insert(key, b"newer".to_vec());
        }
    }
    for _ in 0..2 {
        bench
            .store
            .compact(&CompactOptions::default(), &())
            .or_fail("compact")?;
        expect_contents(&*bench.store, &entries)?;
    }
    let store = bench.reopened()?;
    expect_contents(&*store, &entries)?;
    store
        .compact(&CompactOptions::default(), &())
        .or_fail("compact after reopening")?;
    expect_contents(&*store, &entries)
}

fn check(bench: &Bench) -> Outcome {
    bench.fill(100)?;
    for number in 0..30 {
        bench
            .store
            .delete(&bench.key(number), Durability::Written)
            .or_fail("delete")?;
    }
    let report = bench.store.check(&()).or_fail("check")?;
    expect("findings of an open store", report.findings.clone(), vec![])?;
    expect("entries checked", report.entries, 70)?;
    bench.store.close().or_fail("close")?;
    let report = bench
        .subject()
        .check(&bench.environment)
        .or_fail("check of the closed store")?;
    expect(
        "findings of a closed store",
        report.findings.clone(),
        vec![],
    )?;
    expect("entries checked", report.entries, 70)
}

fn backup(bench: &Bench) -> Outcome {
    let mut entries = bench.fill(100)?;
    bench
        .store
        .delete(&bench.key(3), Durability::Buffered)
        .or_fail("delete")?;
    entries.remove(&bench.key(3));
    let destination = Path::new("/backup");
    bench.store.backup(destination, &()).or_fail("backup")?;
    bench.put(0, b"after the backup")?;
    let options = bench.subject().open_options();
    let kind = bench.subject().kind();
    let copy = kind.open(&bench.environment, destination, options, &());
    let copy = copy.or_fail("open of the backup")?;
    expect_contents(&*copy, &entries)?;
    expect_error(
        "backup over a store",
        bench.store.backup(destination, &()),
        |error| matches!(error, Error::AlreadyExists { .. }),
    )
}

fn submit(bench: &Bench) -> Outcome {
    let (sender, receiver) = std::sync::mpsc::channel();
    let requests = [
        Request::Put {
            key: bench.key(1),
            value: b"submitted".to_vec(),
            durability: Durability::Written,
        },
        Request::Get { key: bench.key(1) },
        Request::Sync,
        Request::Delete {
            key: bench.key(1),
            durability: Durability::Written,
        },
        Request::Get { key: bench.key(1) },
    ];
    let count = requests.len();
    for (number, request) in requests.into_iter().enumerate() {
        let sender = sender.clone();
        let completion = Box::new(move |answer| {
            // The receiver waits for all; it cannot be gone.
            _ = sender.send((number, answer));
        });
        bench.store.submit(request, completion);
    }
    drop(sender);
    let mut answers = Vec::new();
    for (number, answer) in receiver {
        answers.push((number, answer.or_fail("a submitted request")?));
    }
    answers.sort_by_key(|(number, _)| *number);
    expect("answers", answers.len(), count)?;
    expect(
        "get after put",
        &answers[1].1,
        &Response::Value(Some(b"submitted"[..].into())),
    )?;
    expect("get after delete", &answers[4].1, &Response::Value(None))
}

fn looking_inside(bench: &Bench) -> Outcome {
    bench.fill(20)?;
    let mut text = Vec::new();
    bench.store.dump(&mut text).or_fail("dump")?;
    if text.is_empty() {
        return Err("dump writes nothing".to_string());
    }
    let statistics = bench.store.stats().or_fail("stats")?;
    if statistics.entries.is_empty() {
        return Err("stats answers nothing".to_string());
    }
    if bench.capabilities.ordered {
        let size = bench.store.approximate_size(&KeyRange::all());
        if size.or_fail("approximate_size")? == 0 {
            return Err("20 entries take no space".to_string());
        }
    }
    bench.store.close().or_fail("close")?;
    text.clear();
    let kind = bench.subject().kind();
    kind.inspect(&bench.environment, bench.path(), &mut text)
        .or_fail("inspect")?;
    expect("inspect writes something", text.is_empty(), false)
}

/// Overwriting and compacting the same few keys must not need ever more files.
fn files_do_not_pile_up(bench: &Bench) -> Outcome {
    let files = &bench.environment.file_system;
    let mut counts = Vec::new();
    for round in 0..12u64 {
        for number in 0..40 {
            bench.put(number, &[round as u8; 100])?;
        }
        bench
            .store
            .compact(&CompactOptions::default(), &())
            .or_fail("compact")?;
        bench.settle()?;
        counts.push(files.list(bench.path()).or_fail("list")?.len());
    }
    let (early, late) = (counts[3], counts[11]);
    if late > early + 4 {
        return Err(format!("files after each compaction: {counts:?}"));
    }
    Ok(())
}
