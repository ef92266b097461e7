//! History: what compactions keep and what they end.

use std::path::Path;

use cambium_api::{Durability, Engine, EngineKind, Error, SequenceNumber};
use cambium_io::Environment;
use cambium_zdb::Zdb;

use super::support::*;

/// Names of the store's data files.
fn data_files(environment: &Environment) -> Vec<String> {
    let entries = environment.file_system.list(Path::new(PATH)).unwrap();
    let names = entries
        .into_iter()
        .map(|entry| entry.name.to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("data-")).collect();
    names.sort();
    names
}

fn put_all(setting: &Setting, store: &dyn Engine, value: &[u8]) -> Outcome {
    for number in 0..30 {
        text(store.put(&setting.key(number), value, Durability::Written))?;
    }
    Ok(())
}

/// A compaction keeps what a consumer needs, also after a reopening, and no longer.
pub(super) fn kept_for_a_consumer(setting: Setting) -> Outcome {
    let environment = Environment::memory();
    let store = setting.create(&environment);
    put_all(&setting, &*store, b"first")?;
    text(store.move_consumer("test", Some(SequenceNumber::ZERO)))?;
    let before = changes(&*store, 0)?;
    compact(&*store)?;
    put_all(&setting, &*store, b"second")?;
    compact(&*store)?;
    let all = changes(&*store, 0)?;
    if all.len() != 60 || unmarked(&all[..30]) != unmarked(&before) {
        return Err(format!("{} of 60 batches", all.len()));
    }
    text(store.close())?;
    let report = text(Zdb.check(&environment, Path::new(PATH), &setting.options(), &()))?;
    if !report.is_sound() {
        return Err(format!("{report:?}"));
    }
    let kept = data_files(&environment).len();
    let store = setting.open(&environment)?;
    if changes(&*store, 0)? != all {
        return Err("other changes after the reopening".to_string());
    }
    if text(store.stats())?.number("history_bytes") == Some(0) {
        return Err("no history is counted".to_string());
    }
    // Not the first write of this opening: the store is closed again without one.
    text(store.move_consumer("test", Some(all[59].last)))?;
    for _ in 0..3 {
        text(store.step(1 << 20))?;
    }
    if data_files(&environment).len() >= kept {
        return Err("the consumer has passed, and the files stay".to_string());
    }
    match store.changes(SequenceNumber(1), ALL).map(|_| ()) {
        Err(Error::HistoryLost { oldest }) if oldest <= all[59].last => {}
        other => return Err(format!("changes that are gone: {other:?}")),
    }
    changes(&*store, all[59].last.0).map(|_| ())
}

#[test]
fn a_compaction_keeps_history_for_consumers_and_no_longer() {
    for setting in settings() {
        assert_eq!(kept_for_a_consumer(setting), Ok(()), "{}", setting.keys);
    }
}

#[test]
fn without_consumers_a_compaction_ends_history_but_not_the_feed_that_follows() {
    for setting in settings() {
        let environment = Environment::memory();
        let store = setting.create(&environment);
        put_all(&setting, &*store, b"first").unwrap();
        let mut feed = store.changes(SequenceNumber::ZERO, ALL).unwrap();
        assert_eq!(drain(&mut *feed).unwrap().len(), 30);
        put_all(&setting, &*store, b"second").unwrap();
        let files = data_files(&environment);
        compact(&*store).unwrap();
        assert_eq!(data_files(&environment).len(), files.len());
        assert_ne!(data_files(&environment), files);
        put_all(&setting, &*store, b"third").unwrap();
        // It has the old files open.
        assert_eq!(drain(&mut *feed).unwrap().len(), 60);
        let lost = store.changes(SequenceNumber(3), ALL).map(|_| ());
        let Err(Error::HistoryLost { oldest }) = lost else {
            panic!("{lost:?}");
        };
        assert!(!changes(&*store, oldest.0).unwrap().is_empty());
        assert_eq!(
            store.stats().unwrap().number("oldest_change"),
            Some(oldest.0)
        );
        // One that read nothing while its files were replaced twice has lost them.
        let mut late = store.changes(oldest, ALL).unwrap();
        for value in [b"fourth", b"fifth."] {
            put_all(&setting, &*store, value).unwrap();
            compact(&*store).unwrap();
        }
        let read = drain(&mut *late);
        assert!(read.is_err_and(|error| error.contains("no longer has")));
    }
}

#[test]
fn history_ends_at_its_limit() {
    for keys in KINDS {
        let setting = Setting::new(keys, true);
        let environment = Environment::memory();
        setting.create(&environment).close().unwrap();
        let mut options = setting.options();
        options.set("history_bytes", "100000");
        let store = Zdb
            .open(&environment, Path::new(PATH), &options, &())
            .unwrap();
        store
            .move_consumer("test", Some(SequenceNumber::ZERO))
            .unwrap();
        for _ in 0..20 {
            put_all(&setting, &*store, &[7; 100]).unwrap();
            compact(&*store).unwrap();
            let kept = store.stats().unwrap().number("history_bytes").unwrap();
            assert!(kept <= 100_000, "{kept} bytes");
        }
        let lost = store.changes(SequenceNumber::ZERO, ALL).map(|_| ());
        let Err(Error::HistoryLost { oldest }) = lost else {
            panic!("{lost:?}");
        };
        assert!(changes(&*store, oldest.0).unwrap().len() > 30);
        let stays = store.move_consumer("test", Some(SequenceNumber::ZERO));
        assert!(matches!(stays, Err(Error::HistoryLost { .. })));
    }
}
