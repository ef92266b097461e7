//! The facade finds the engine of a store, refuses what it cannot read, and
//! keeps a store open for as long as something of it is held.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use cambium::{
    CheckReport, Durability, Engine, EngineKind, Entry, Environment, Error, FindingKind, KeyRange,
    MARKER_NAME, Marker, OptionSpec, OptionValues, Options, ProgressSink, Result, StoreId, Value,
    engines,
};
use cambium_storage::marker::write_marker;
use cambium_testkit::memory_engine::MemoryKind;

/// An engine that only answers that it was called.
struct Stub;

fn called<T>() -> Result<T> {
    Err(Error::InvalidArgument("the stub was called".to_string()))
}

impl EngineKind for Stub {
    fn name(&self) -> &'static str {
        "stub"
    }
    fn format_version(&self) -> u32 {
        3
    }
    fn summary(&self) -> &'static str {
        "only answers"
    }
    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }
    fn create(&self, _: &Environment, _: &Path, _: &OptionValues) -> Result<Arc<dyn Engine>> {
        called()
    }
    fn open(
        &self,
        _: &Environment,
        _: &Path,
        _: &OptionValues,
        _: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>> {
        called()
    }
    fn open_read_only(
        &self,
        _: &Environment,
        _: &Path,
        _: &OptionValues,
        _: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>> {
        called()
    }
    fn check(
        &self,
        _: &Environment,
        _: &Path,
        _: &OptionValues,
        _: &dyn ProgressSink,
    ) -> Result<CheckReport> {
        called()
    }
    fn inspect(&self, _: &Environment, _: &Path, _: &mut dyn Write) -> Result<()> {
        called()
    }
    fn repair(
        &self,
        _: &Environment,
        _: &Path,
        _: &OptionValues,
        _: &dyn ProgressSink,
    ) -> Result<CheckReport> {
        called()
    }
}

fn mark(path: &Path, engine: &str, format_version: u32) {
    let marker = Marker {
        engine: engine.to_string(),
        format_version,
        store: StoreId([7; 16]),
        expires: false,
    };
    write_marker(&*Environment::real().file_system, path, &marker).unwrap();
}

#[test]
fn an_added_engine_opens_the_stores_that_name_it() {
    let folder = tempfile::tempdir().unwrap();
    mark(folder.path(), "stub", 3);
    let options = Options::new().engines(engines().with(Arc::new(Stub)));
    let error = options.open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("the stub was called"), "{error}");
    let error = options.open_read_only(folder.path()).unwrap_err();
    assert!(error.to_string().contains("the stub was called"), "{error}");
    let error = options.repair(folder.path()).unwrap_err().to_string();
    assert!(error.contains("the stub was called"), "{error}");
}

#[test]
fn stores_of_all_engines_are_opened_for_reading_alone() {
    for kind in engines().iter() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::new();
        if kind.name() == "alphard" {
            options = options.set("size", "16MiB");
        }
        let store = options.create(folder.path(), kind.name()).unwrap();
        store.put("oak", "Quercus").unwrap();
        // Not closed: the entry is in the log alone.
        drop(store);
        let one = Options::new().open_read_only(folder.path()).unwrap();
        let other = Options::new().open_read_only(folder.path()).unwrap();
        assert_eq!(one.get("oak").unwrap().as_deref(), Some(&b"Quercus"[..]));
        assert_eq!(other.get("elm").unwrap(), None);
        let refused = one.put("elm", "Ulmus");
        assert!(matches!(refused, Err(Error::Unsupported { .. })));
        let writer = Options::new().open(folder.path());
        match one.capabilities().readers_beside_writer {
            true => assert!(writer.is_ok()),
            false => assert!(matches!(writer, Err(Error::Locked { .. }))),
        }
    }
}

#[test]
fn a_damaged_marker_is_made_anew_by_the_engine_whose_files_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let store = Options::new().create(folder.path(), "forest").unwrap();
    store.put("oak", "Quercus").unwrap();
    store.close().unwrap();
    drop(store);
    let marker = folder.path().join(MARKER_NAME);
    let sound = Options::new().marker(folder.path()).unwrap();
    let mut damaged = std::fs::read(&marker).unwrap();
    damaged[20] ^= 1;
    std::fs::write(&marker, damaged).unwrap();
    let opened = Options::new().open(folder.path());
    assert!(matches!(opened, Err(Error::Corruption { .. })));
    let report = Options::new().repair(folder.path()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    let repaired = Options::new().marker(folder.path()).unwrap();
    // Whether entries may expire, no file of the engine says.
    assert_eq!(
        (repaired.store, repaired.engine, repaired.expires),
        (sound.store, sound.engine, true)
    );
    let store = Options::new().open(folder.path()).unwrap();
    assert_eq!(store.get("oak").unwrap().unwrap(), b"Quercus");
}

#[test]
fn a_store_of_an_engine_that_is_not_there_names_it() {
    let folder = tempfile::tempdir().unwrap();
    mark(folder.path(), "stub", 3);
    let error = cambium::open(folder.path()).unwrap_err();
    assert!(matches!(error, Error::UnknownEngine { .. }));
    assert!(error.to_string().contains("\"stub\""), "{error}");
}

#[test]
fn a_newer_format_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    mark(folder.path(), "stub", 4);
    let options = Options::new().engines(engines().with(Arc::new(Stub)));
    let error = options.open(folder.path()).unwrap_err();
    let Error::UnsupportedVersion {
        found, supported, ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((found, supported), (4, 3));
}

#[test]
fn an_empty_folder_and_a_missing_one_are_no_stores() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_path_buf(), folder.path().join("missing")] {
        let error = cambium::open(&path).unwrap_err();
        assert!(matches!(error, Error::NotAStore { .. }), "{error}");
    }
}

#[test]
fn a_damaged_marker_is_a_finding_of_check_and_an_error_of_open() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new();
    options.create(folder.path(), "zdb").unwrap();
    std::fs::write(folder.path().join(MARKER_NAME), "cambium store\n?").unwrap();
    assert!(cambium::open(folder.path()).unwrap_err().is_corruption());
    let report = cambium::check(folder.path()).unwrap();
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.findings[0].kind, FindingKind::Damage);
}

#[test]
fn reads_of_keys_beyond_the_limit_are_refused_by_every_engine() {
    for (engine, name, value) in [
        ("forest", "write_buffer_bytes", "1MiB"),
        ("wisckey", "inline_bytes", "64"),
        ("zdb", "keys", "string"),
        ("zdb", "keys", "integer"),
        ("alphard", "size", "64MiB"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let store = Options::new().set(name, value);
        let store = store.create(folder.path().join("s"), engine).unwrap();
        let (key, then) = (vec![b'k'; 65_536], store.snapshot().unwrap());
        for (call, answer) in [
            ("get", store.get(&key).map(drop)),
            ("get_into", store.get_into(&key, &mut Vec::new()).map(drop)),
            ("multi_get", store.multi_get(&[&key]).map(drop)),
            ("expires_at", store.expires_at(&key).map(drop)),
            ("a snapshot's get", then.get(&key).map(drop)),
            ("a snapshot's multi_get", then.multi_get(&[&key]).map(drop)),
        ] {
            let is_limit = matches!(answer, Err(Error::LimitExceeded(_)));
            assert!(is_limit, "{engine}: {call}: {answer:?}");
        }
    }
}

#[test]
fn a_store_stays_open_while_an_iterator_or_snapshot_of_it_lives() {
    let folder = tempfile::tempdir().unwrap();
    let store = Options::new().create(folder.path(), "zdb").unwrap();
    store.put("oak", "Quercus").unwrap();
    let (mut entries, snapshot) = (store.iterate().unwrap(), store.snapshot().unwrap());
    drop(store);
    assert_eq!(entries.next().unwrap().unwrap().key, "oak");
    assert!(matches!(
        cambium::open(folder.path()),
        Err(Error::Locked { .. })
    ));
    drop(entries);
    assert!(snapshot.get("oak").unwrap().is_some());
    drop(snapshot);
    // The last holder closed it: unlocked, and buffered writes are in.
    let store = cambium::open(folder.path()).unwrap();
    assert!(store.get("oak").unwrap().is_some());
}

#[test]
fn a_namespace_keeps_its_store_open_and_does_not_close_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = Options::new().create(folder.path(), "zdb").unwrap();
    drop(store.namespace("").unwrap());
    store.put("oak", "Quercus").unwrap();
    let namespace = store.namespace("").unwrap();
    drop(store);
    assert!(namespace.get("oak").unwrap().is_some());
}

#[test]
fn after_an_error_an_iterator_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let store = Options::new().create(folder.path(), "zdb").unwrap();
    store.put("oak", "Quercus").unwrap();
    let mut entries = store.iterate().unwrap();
    store.close().unwrap();
    assert!(matches!(entries.next(), Some(Err(Error::Closed))));
    assert!(entries.next().is_none());
}

#[test]
fn options_that_do_not_exist_or_cannot_change_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let unknown = Options::new().set("kyes", "integer");
    let error = unknown.create(folder.path(), "zdb").unwrap_err();
    assert!(error.to_string().contains("did you mean keys?"), "{error}");
    Options::new().create(folder.path(), "zdb").unwrap();
    let fixed = Options::new().assign("keys=integer").unwrap();
    let error = fixed.open(folder.path()).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    assert!(Options::new().assign("keys").is_err());
}

#[test]
fn what_a_store_was_created_with_may_be_said_again_and_not_changed() {
    for (engine, name, given, same, other) in [
        ("forest", "chunk_bytes", "4", "4", "8"),
        ("wisckey", "block_bytes", "8192", "8KiB", "4096"),
        ("zdb", "keys", "integer", "integer", "string"),
        ("zdb", "piece_bytes", "32KiB", "32768", "64KiB"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let with = |value: &str| Options::new().set(name, value);
        let store = with(given).create(folder.path(), engine).unwrap();
        store.close().unwrap();
        with(same).open(folder.path()).unwrap().close().unwrap();
        let error = with(other).open(folder.path()).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        let message = error.to_string();
        assert!(message.contains(&format!("{name}={other}")), "{message}");
        assert!(message.contains("this one has "), "{message}");
        Options::new().open(folder.path()).unwrap();
    }
}

#[test]
fn an_ordered_engine_scans_ranges_both_ways_and_seeks() {
    let options = Options::new()
        .environment(Environment::memory())
        .engines(engines().with(Arc::new(MemoryKind)));
    let store = options.create("trees", MemoryKind.name()).unwrap();
    for key in ["ash", "elm", "fir", "oak"] {
        store.put(key, key.len().to_string()).unwrap();
    }
    let key = |entry: Result<Entry>| entry.unwrap().key;
    let keys: Vec<Value> = store.scan("b".."oak").unwrap().map(key).collect();
    assert_eq!(keys, ["elm", "fir"]);
    let keys: Vec<Value> = store.scan("b"..="oak").unwrap().rev().map(key).collect();
    assert_eq!(keys, ["oak", "fir", "elm"]);
    let (end, start) = ("a", "z");
    assert_eq!(store.scan(start..end).unwrap().count(), 0);
    assert_eq!(store.scan(start..end).unwrap().rev().count(), 0);
    let snapshot = store.snapshot().unwrap();
    store.delete_range(KeyRange::prefix(b"e")).unwrap();
    let mut then = snapshot.scan(..).unwrap();
    then.seek("b").unwrap();
    assert_eq!(then.next().unwrap().unwrap().key, "elm");
    let mut now = store.scan(..).unwrap();
    now.seek("b").unwrap();
    assert_eq!(now.next().unwrap().unwrap().key, "fir");
    store.close().unwrap();
}

#[test]
fn a_store_is_opened_or_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trees");
    let options = Options::new().set("chunk_bytes", 4);
    let store = options.open_or_create(&path, "forest").unwrap();
    store.put("oak", "Quercus").unwrap();
    store.close().unwrap();
    let store = options.open_or_create(&path, "forest").unwrap();
    assert!(store.get("oak").unwrap().is_some());
    store.close().unwrap();
    assert!(cambium::open_or_create(&path).unwrap().get("oak").is_ok());
    let error = Options::new().open_or_create(&path, "zdb").unwrap_err();
    assert!(
        error.to_string().contains("engine forest, not zdb"),
        "{error}"
    );
    // It is not for folders that hold something else.
    std::fs::create_dir(folder.path().join("other")).unwrap();
    std::fs::write(folder.path().join("other/letter"), "dear").unwrap();
    let error = cambium::open_or_create(folder.path().join("other")).unwrap_err();
    assert!(matches!(error, Error::AlreadyExists { .. }), "{error}");
}

#[test]
fn several_threads_open_or_make_one_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trees");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| match cambium::open_or_create(&path) {
                Ok(store) => store.close().unwrap(),
                Err(error) => assert!(matches!(error, Error::Locked { .. }), "{error}"),
            });
        }
    });
    cambium::open(&path).unwrap().close().unwrap();
}

#[test]
fn a_handle_has_a_durability_and_hands_it_on() {
    let options = Options::new()
        .environment(Environment::memory())
        .engines(engines().with(Arc::new(MemoryKind)));
    let written = options.create("trees", MemoryKind.name()).unwrap();
    assert_eq!(written.durability(), Durability::Written);
    let synced = written.with_durability(Durability::Synced);
    assert_eq!(synced.durability(), Durability::Synced);
    assert_eq!(synced.clone().durability(), Durability::Synced);
    assert_eq!(written.durability(), Durability::Written);
    if synced.capabilities().namespaces {
        let people = synced.namespace("people").unwrap();
        assert_eq!(people.durability(), Durability::Synced);
    }
}
