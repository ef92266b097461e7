//! What is special about `zdb`: tables on demand, slots of every width, data
//! files, buckets that grow, indexes that are rebuilt, stores that are repaired.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{
    CompactOptions, Direction, Durability, Engine, EngineKind, Error, FindingKind, IterationOrder,
    KeyRange, OptionValues, ResumeToken, WriteBatch,
};
use cambium_io::{Environment, OpenOptions};
use cambium_testkit::stores;
use cambium_zdb::Zdb;

const PATH: &str = "/store";

fn create(environment: &Environment, pairs: &[(&str, &str)]) -> Arc<dyn Engine> {
    stores::create(&Zdb, environment, &OptionValues::from(pairs))
}

fn open(environment: &Environment, pairs: &[(&str, &str)]) -> Arc<dyn Engine> {
    stores::open(&Zdb, environment, &OptionValues::from(pairs))
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn all(store: &dyn Engine) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut cursor = store.iterate(IterationOrder::Any, None).unwrap();
    let mut entries = BTreeMap::new();
    while let Some(entry) = cursor.next().unwrap() {
        let twice = entries.insert(entry.key.to_vec(), entry.value.to_vec());
        assert!(twice.is_none(), "each key comes once");
    }
    entries
}

fn files(environment: &Environment, prefix: &str) -> Vec<PathBuf> {
    let entries = environment.file_system.list(Path::new(PATH)).unwrap();
    entries
        .into_iter()
        .filter(|entry| entry.name.to_string_lossy().starts_with(prefix))
        .map(|entry| Path::new(PATH).join(entry.name))
        .collect()
}

fn flip(environment: &Environment, path: &Path, offset: u64) {
    let file = environment
        .file_system
        .open(path, OpenOptions::WRITE)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_at(&[byte[0] ^ 0x10], offset).unwrap();
}

#[test]
fn slots_of_every_width_and_any_number_of_files_hold_the_same_data() {
    for slot_bytes in ["4", "5", "6", "7", "8"] {
        for data_files in ["1", "3", "16"] {
            let environment = Environment::memory();
            let pairs = [
                ("keys", "integer"),
                ("slot_bytes", slot_bytes),
                ("data_files", data_files),
                ("keys_per_table", "100"),
                ("piece_bytes", "256"),
            ];
            let store = create(&environment, &pairs);
            for number in 0..500u64 {
                let value = vec![number as u8; number as usize];
                store
                    .put(&key(number), &value, Durability::Buffered)
                    .unwrap();
            }
            let before = all(&*store);
            assert_eq!(before.len(), 500);
            store.close().unwrap();
            let store = open(&environment, &[]);
            assert_eq!(all(&*store), before);
        }
    }
}

#[test]
fn the_first_and_last_keys_there_are_have_tables() {
    let environment = Environment::memory();
    let store = create(
        &environment,
        &[("keys", "integer"), ("sparse_tables", "99")],
    );
    for number in [0, u64::MAX, u64::MAX - 1, 1 << 63] {
        store
            .put(&key(number), &key(number), Durability::Synced)
            .unwrap();
    }
    for number in [0, u64::MAX, u64::MAX - 1, 1 << 63] {
        assert_eq!(store.get(&key(number)).unwrap().unwrap(), key(number));
    }
    let mut cursor = store.scan(&KeyRange::all(), Direction::Reverse).unwrap();
    assert_eq!(cursor.next().unwrap().unwrap().key, key(u64::MAX));
}

#[test]
fn keys_far_apart_are_refused_with_the_cost_named() {
    let environment = Environment::memory();
    let store = create(&environment, &[("keys", "integer"), ("sparse_tables", "4")]);
    let scattered = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let refused = (1..100).find_map(|n| {
        let written = store.put(&key(scattered(n)), b"x", Durability::Buffered);
        written.err().map(|error| (n, error))
    });
    let (after, error) = refused.expect("scattered keys are refused");
    assert_eq!(after, 5);
    let text = error.to_string();
    assert!(text.contains("8000000 bytes of index"), "{text}");
    assert!(text.contains("keys=string"), "{text}");
    // What came before is there, and near keys are still welcome.
    assert!(store.get(&key(scattered(4))).unwrap().is_some());
    store
        .put(&key(scattered(1) ^ 1), b"near", Durability::Synced)
        .unwrap();
}

#[test]
fn a_key_of_the_wrong_kind_is_refused_and_says_what_was_expected() {
    let environment = Environment::memory();
    let store = create(&environment, &[("keys", "integer")]);
    for wrong in [&b""[..], b"seven", b"nine byte"] {
        let error = store.get(wrong).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert!(error.to_string().contains("8 bytes"), "{error}");
    }
}

#[test]
fn tables_beyond_the_limit_are_closed_and_opened_again() {
    let environment = Environment::memory();
    let pairs = [
        ("keys", "integer"),
        ("keys_per_table", "10"),
        ("piece_bytes", "256"),
        ("open_tables", "3"),
        ("sparse_tables", "1000"),
    ];
    let store = create(&environment, &pairs);
    for round in 0..3u8 {
        for number in 0..400u64 {
            store
                .put(&key(number), &[round], Durability::Written)
                .unwrap();
        }
    }
    while store.step(1 << 20).unwrap() == cambium_io::StepOutcome::Again {}
    let stats = store.stats().unwrap();
    assert_eq!(stats.number("tables"), Some(40));
    for number in 0..400u64 {
        assert_eq!(store.get(&key(number)).unwrap().unwrap(), [2]);
    }
    store.close().unwrap();
    assert_eq!(
        all(&*open(&environment, &[("open_tables", "2")])).len(),
        400
    );
}

#[test]
fn buckets_grow_online_and_a_walk_survives_their_growth() {
    let environment = Environment::memory();
    let store = create(
        &environment,
        &[
            ("buckets", "4"),
            ("keys_per_table", "64"),
            ("sparse_tables", "99"),
        ],
    );
    let name = |n: u64| format!("key {n}").into_bytes();
    for n in 0..300 {
        store.put(&name(n), &key(n), Durability::Buffered).unwrap();
    }
    // A walk that is resumed after every entry, while the table grows.
    let mut seen = BTreeMap::new();
    let mut token: Option<ResumeToken> = None;
    for n in 300.. {
        let mut cursor = store.iterate(IterationOrder::Any, token.as_ref()).unwrap();
        let Some(entry) = cursor.next().unwrap() else {
            break;
        };
        seen.insert(entry.key.to_vec(), entry.value.to_vec());
        token = cursor.resume_token();
        if n < 900 {
            store.put(&name(n), &key(n), Durability::Buffered).unwrap();
        }
    }
    for n in 0..300 {
        assert_eq!(seen.get(&name(n)), Some(&key(n).to_vec()), "key {n}");
    }
    let stats = store.stats().unwrap();
    assert!(stats.number("buckets").unwrap() >= 512, "{stats:?}");
    let entries = stats.number("entries").unwrap();
    store.close().unwrap();
    let store = open(&environment, &[]);
    assert_eq!(all(&*store).len() as u64, entries);
    assert!(store.check(&()).unwrap().is_sound());
}

#[test]
fn insertion_order_is_the_order_of_writing_within_a_table() {
    let environment = Environment::memory();
    let store = create(&environment, &[("keys", "integer"), ("data_files", "3")]);
    let order = [5u64, 3, 9, 1, 7, 2];
    for number in order {
        store.put(&key(number), b"x", Durability::Written).unwrap();
    }
    store.put(&key(3), b"again", Durability::Written).unwrap();
    let walk = |store: &dyn Engine| {
        let mut numbers = Vec::new();
        let mut token: Option<ResumeToken> = None;
        loop {
            let mut cursor = store
                .iterate(IterationOrder::Insertion, token.as_ref())
                .unwrap();
            let Some(entry) = cursor.next().unwrap() else {
                return numbers;
            };
            numbers.push(u64::from_be_bytes((*entry.key).try_into().unwrap()));
            token = cursor.resume_token();
        }
    };
    assert_eq!(walk(&*store), [5, 9, 1, 7, 2, 3]);
    store.compact(&CompactOptions::default(), &()).unwrap();
    assert_eq!(walk(&*store), [5, 9, 1, 7, 2, 3]);
}

#[test]
fn compaction_gives_space_back_and_keeps_what_a_snapshot_sees() {
    let environment = Environment::memory();
    let store = create(
        &environment,
        &[
            ("keys", "integer"),
            ("data_files", "2"),
            ("compaction_threshold", "100"),
        ],
    );
    for round in 0..20u8 {
        for number in 0..100u64 {
            store
                .put(&key(number), &[round; 200], Durability::Written)
                .unwrap();
        }
        if round == 10 {
            store.sync().unwrap();
        }
    }
    let snapshot = store.snapshot().unwrap();
    for number in 0..100u64 {
        store
            .put(&key(number), b"new", Durability::Written)
            .unwrap();
    }
    let before = store.stats().unwrap().number("data_file_bytes").unwrap();
    let report = store.compact(&CompactOptions::default(), &()).unwrap();
    assert_eq!(report.documents, 100);
    let after = store.stats().unwrap().number("data_file_bytes").unwrap();
    assert!(after * 10 < before, "{before} bytes before, {after} after");
    for number in 0..100u64 {
        assert_eq!(snapshot.get(&key(number)).unwrap().unwrap(), [19; 200]);
        assert_eq!(store.get(&key(number)).unwrap().unwrap(), b"new");
    }
    drop(snapshot);
    store.close().unwrap();
    assert_eq!(all(&*open(&environment, &[])).len(), 100);
}

#[test]
fn a_lost_index_is_rebuilt_from_the_data_files() {
    let environment = Environment::memory();
    let pairs = [
        ("keys", "integer"),
        ("keys_per_table", "100"),
        ("piece_bytes", "256"),
    ];
    let store = create(&environment, &pairs);
    for number in 0..250u64 {
        store
            .put(&key(number), &key(number), Durability::Written)
            .unwrap();
    }
    store.delete(&key(7), Durability::Written).unwrap();
    let before = all(&*store);
    store.close().unwrap();
    let indexes = files(&environment, "index-");
    assert_eq!(indexes.len(), 3);
    for index in indexes {
        environment.file_system.remove(&index).unwrap();
    }
    let store = open(&environment, &[]);
    assert_eq!(all(&*store), before);
    assert_eq!(store.stats().unwrap().number("tables_rebuilt"), Some(3));
    store.close().unwrap();
    assert!(
        Zdb.check(&environment, Path::new(PATH), &Default::default(), &())
            .unwrap()
            .is_sound()
    );
}

#[test]
fn repair_keeps_what_can_be_read_and_names_what_is_lost() {
    let environment = Environment::memory();
    let store = create(&environment, &[("keys", "integer"), ("data_files", "1")]);
    for number in 0..50u64 {
        store
            .put(&key(number), &[number as u8; 100], Durability::Written)
            .unwrap();
    }
    store.close().unwrap();
    // In the middle of the tenth entry's value.
    let data = &files(&environment, "data-")[0];
    flip(&environment, data, 4096 + 128 * 9 + 100);
    let report = Zdb
        .check(&environment, Path::new(PATH), &Default::default(), &())
        .unwrap();
    let damage = report
        .findings
        .iter()
        .find(|finding| finding.kind == FindingKind::Damage);
    assert_eq!(damage.unwrap().offset, 4096 + 128 * 9);
    let store = open(&environment, &[]);
    assert!(store.get(&key(9)).unwrap_err().is_corruption());
    assert!(store.get(&key(10)).unwrap().is_some());
    // A pass goes over no entry that it could not read, also behind keys alone.
    let mut pass = store.scan(&KeyRange::all(), Direction::Forward).unwrap();
    assert_eq!(pass.next_key().unwrap().unwrap(), key(0)[..]);
    for _again in 0..2 {
        assert!(pass.next().unwrap_err().is_corruption());
    }
    drop(pass);
    store.close().unwrap();
    let report = Zdb
        .repair(&environment, Path::new(PATH), &Default::default(), &())
        .unwrap();
    assert_eq!(report.findings.len(), 1);
    assert_eq!(report.entries, 49);
    let report = Zdb
        .check(&environment, Path::new(PATH), &Default::default(), &())
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
    let store = open(&environment, &[]);
    assert_eq!(all(&*store).len(), 49);
    assert_eq!(store.get(&key(9)).unwrap(), None);
}

#[test]
fn repair_makes_a_lost_superblock_anew() {
    for keys in ["integer", "string"] {
        let environment = Environment::memory();
        let store = create(&environment, &[("keys", keys), ("buckets", "4")]);
        for number in 0..50u64 {
            store
                .put(&key(number), &key(number), Durability::Synced)
                .unwrap();
        }
        let before = all(&*store);
        store.close().unwrap();
        for copy in files(&environment, "superblock-") {
            flip(&environment, &copy, 50);
        }
        let opened = Zdb.open(&environment, Path::new(PATH), &OptionValues::default(), &());
        assert!(opened.unwrap_err_text().contains("superblock"));
        Zdb.repair(&environment, Path::new(PATH), &Default::default(), &())
            .unwrap();
        let store = open(&environment, &[]);
        assert_eq!(all(&*store), before, "{keys} keys");
        store
            .put(&key(1), b"still writable", Durability::Synced)
            .unwrap();
        store.close().unwrap();
        assert!(
            Zdb.check(&environment, Path::new(PATH), &Default::default(), &())
                .unwrap()
                .is_sound()
        );
    }
}

trait ErrorText {
    fn unwrap_err_text(self) -> String;
}

impl<T> ErrorText for cambium_api::Result<T> {
    fn unwrap_err_text(self) -> String {
        self.err().expect("an error").to_string()
    }
}

#[test]
fn writers_are_refused_past_the_snapshot_limit_and_readers_are_right() {
    let environment = Environment::memory();
    let store = create(
        &environment,
        &[("keys", "integer"), ("snapshot_limit", "10")],
    );
    for number in 0..20u64 {
        store
            .put(&key(number), b"old", Durability::Written)
            .unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    let mut refused = 0;
    for number in 0..20u64 {
        match store.put(&key(number), b"new", Durability::Written) {
            Ok(_) => {}
            Err(Error::SnapshotLimit { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(refused, 10);
    for number in 0..20u64 {
        assert_eq!(snapshot.get(&key(number)).unwrap().unwrap(), b"old");
    }
    drop(snapshot);
    store.put(&key(19), b"new", Durability::Written).unwrap();
}

#[test]
fn a_backup_is_a_store_with_the_same_entries() {
    for keys in ["integer", "string"] {
        let environment = Environment::memory();
        let store = create(&environment, &[("keys", keys)]);
        let mut batch = WriteBatch::new();
        for number in 0..1000u64 {
            batch.put(&key(number), &[number as u8; 50]);
        }
        store.write(batch, Durability::Written).unwrap();
        store.backup(Path::new("/copy"), &()).unwrap();
        let copy = Zdb
            .open(
                &environment,
                Path::new("/copy"),
                &OptionValues::default(),
                &(),
            )
            .unwrap();
        assert_eq!(all(&*copy), all(&*store));
    }
}

#[test]
fn repair_makes_a_damaged_marker_anew() {
    for superblock in [true, false] {
        let environment = Environment::memory();
        let store = create(&environment, &[("keys", "string"), ("buckets", "4")]);
        for number in 0..50u64 {
            store
                .put(&key(number), &key(number), Durability::Synced)
                .unwrap();
        }
        let before = all(&*store);
        store.close().unwrap();
        let marker = Path::new(PATH).join("CAMBIUM");
        flip(&environment, &marker, 20);
        // Then its data files alone say whose it is.
        if !superblock {
            for copy in files(&environment, "superblock-") {
                flip(&environment, &copy, 30);
            }
        }
        let report = Zdb
            .repair(&environment, Path::new(PATH), &Default::default(), &())
            .unwrap();
        let mut findings = report.findings.iter();
        assert!(findings.any(|finding| finding.file == marker), "{report:?}");
        assert_eq!(all(&*open(&environment, &[])), before);
    }
}
