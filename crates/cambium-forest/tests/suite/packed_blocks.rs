//! Packed blocks: what a compaction puts into them is read as before, takes little more
//! than its keys and values, and damage in one costs its documents alone.

use std::path::Path;
use std::sync::Arc;

use crate::support::{Model, contents};
use cambium_api::{
    CompactOptions, Direction, Durability, Engine, EngineKind, Error, FindingKind, IterationOrder,
    KeyRange,
};
use cambium_forest::Forest;
use cambium_io::{Environment, OpenOptions};
use cambium_testkit::stores;

const PATH: &str = "/store";
const FILE: &str = "/store/000002.forest";

fn key(number: u32) -> Vec<u8> {
    format!("key {:08}", number.wrapping_mul(2_654_435_761)).into_bytes()
}

fn create(environment: &Environment, more: &[(&str, &str)]) -> Arc<dyn Engine> {
    let all = [
        ("preallocate_bytes", "4096"),
        ("compaction_threshold", "100"),
        ("write_buffer_entries", "1000"),
    ];
    stores::create(&Forest, environment, &stores::options(&[&all, more]))
}

fn put(store: &dyn Engine, model: &mut Model, number: u32, bytes: usize) {
    let mut value = vec![number as u8; bytes];
    value.extend_from_slice(&number.to_be_bytes());
    store
        .put(&key(number), &value, Durability::Buffered)
        .unwrap();
    model.insert(key(number), value);
}

fn compact(store: &dyn Engine) {
    store.compact(&CompactOptions::default(), &()).unwrap();
}

fn backwards(store: &dyn Engine) -> Vec<Vec<u8>> {
    let mut cursor = store.scan(&KeyRange::all(), Direction::Reverse).unwrap();
    let entries = std::iter::from_fn(|| cursor.next().unwrap());
    entries.map(|entry| entry.key.to_vec()).collect()
}

fn inspected(environment: &Environment) -> String {
    let mut text = Vec::new();
    Forest
        .inspect(environment, Path::new(PATH), &mut text)
        .unwrap();
    String::from_utf8(text).unwrap()
}

/// Where packed blocks lie in the file.
fn blocks(environment: &Environment) -> Vec<u64> {
    let text = inspected(environment);
    let lines = text.lines().filter(|line| line.contains("  block  "));
    let offset = |line: &str| line.split_whitespace().next().unwrap().parse().unwrap();
    lines.map(offset).collect()
}

#[test]
fn small_documents_take_little_more_than_their_bytes() {
    let environment = Environment::memory();
    let (store, mut model) = (create(&environment, &[]), Model::new());
    (0..20_000).for_each(|number| put(&*store, &mut model, number, 96));
    compact(&*store);
    let length = |path: &str| {
        let file = environment
            .file_system
            .open(path.as_ref(), OpenOptions::READ);
        file.unwrap().length().unwrap()
    };
    let bytes: usize = model
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    let taken = length(FILE);
    assert!(taken < bytes as u64 * 13 / 10, "{taken} for {bytes}");
    assert_eq!(contents(&*store), model);
}

/// Packed, overwritten in part, packed again: with a cursor and a named snapshot of before,
/// documents of all sizes, several namespaces, and block sizes small and large.
#[test]
fn what_is_packed_is_read_as_before_both_ways_and_carried_over_again() {
    for (block, cache) in [("512", "0"), ("4096", "65536"), ("8192", "67108864")] {
        let environment = Environment::memory();
        let more = [
            ("block_bytes", block),
            ("node_bytes", "512"),
            ("cache_bytes", cache),
        ];
        let (store, mut model) = (create(&environment, &more), Model::new());
        let sizes = [0, 3, 40, 100, 300, 900, 1_500, 5_000];
        for number in 0..3_000 {
            put(&*store, &mut model, number, sizes[(number % 8) as usize]);
        }
        let other = store.namespace("other").unwrap();
        other.put(b"one", b"alone", Durability::Written).unwrap();
        compact(&*store);
        store.create_named_snapshot("before").unwrap();
        let before = model.clone();
        let pinned = store.snapshot().unwrap();
        for number in (0..3_000).step_by(3) {
            put(&*store, &mut model, number, sizes[(number % 7) as usize]);
        }
        for number in (1..3_000).step_by(50) {
            store.delete(&key(number), Durability::Written).unwrap();
            model.remove(&key(number));
        }
        for _ in 0..2 {
            assert_eq!(contents(&*store), model);
            let keys: Vec<Vec<u8>> = model.keys().rev().cloned().collect();
            assert_eq!(backwards(&*store), keys);
            let all: Vec<&[u8]> = model.keys().map(Vec::as_slice).collect();
            let values = store.multi_get(&all).unwrap();
            let values = values.into_iter().map(|value| value.unwrap().to_vec());
            assert!(values.eq(model.values().cloned()));
            assert_eq!(contents(&*pinned), before);
            compact(&*store);
        }
        assert_eq!(contents(&*store.named_snapshot("before").unwrap()), before);
        assert_eq!(other.get(b"one").unwrap().unwrap(), b"alone");
        drop(pinned);
        store.close().unwrap();
        let none = Default::default();
        let checked = Forest.check(&environment, Path::new(PATH), &none, &());
        assert!(checked.unwrap().is_sound());
    }
}

#[test]
fn a_walk_is_resumed_behind_any_entry_of_a_block() {
    let environment = Environment::memory();
    let store = create(&environment, &[]);
    let mut model = Model::new();
    for number in 0..200 {
        // Some are records of their own, between blocks.
        let bytes = if number % 23 == 0 { 3_000 } else { 40 };
        put(&*store, &mut model, number, bytes);
    }
    compact(&*store);
    let keys: Vec<&Vec<u8>> = model.keys().collect();
    let mut cursor = store.iterate(IterationOrder::Key, None).unwrap();
    for place in 0..=keys.len() {
        let token = cursor.resume_token().unwrap();
        let mut resumed = store.iterate(IterationOrder::Key, Some(&token)).unwrap();
        let next = cursor.next().unwrap().map(|entry| entry.key);
        assert_eq!(next.as_deref(), keys.get(place).map(|key| &key[..]));
        assert_eq!(resumed.next().unwrap().map(|entry| entry.key), next);
    }
    // At the end of a range the token is that of its last entry.
    let range = KeyRange::between(keys[20], keys[60]);
    let mut cursor = store.scan(&range, Direction::Forward).unwrap();
    let mut count = 0;
    while cursor.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 40);
    assert!(cursor.next().unwrap().is_none());
    let token = cursor.resume_token().unwrap();
    let mut resumed = store.iterate(IterationOrder::Key, Some(&token)).unwrap();
    assert_eq!(resumed.next_key().unwrap().as_deref(), Some(&keys[60][..]));
    cursor.seek(keys[30]).unwrap();
    assert_eq!(cursor.next_key().unwrap().as_deref(), Some(&keys[30][..]));
    assert_eq!(*cursor.next().unwrap().unwrap().key, keys[31][..]);
}

#[test]
fn damage_in_a_block_is_named_and_costs_its_documents_alone() {
    let environment = Environment::memory();
    let (store, mut model) = (create(&environment, &[]), Model::new());
    (0..2_000).for_each(|number| put(&*store, &mut model, number, 96));
    compact(&*store);
    store.close().unwrap();
    let damaged = blocks(&environment)[7];
    let file = environment
        .file_system
        .open(FILE.as_ref(), OpenOptions::WRITE);
    let file = file.unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, damaged + 1_000).unwrap();
    file.write_at(&[byte[0] ^ 1], damaged + 1_000).unwrap();
    let none = Default::default();
    let open = || stores::open(&Forest, &environment, &none);
    let store = open();
    let mut lost = Vec::new();
    for (key, value) in &model {
        match store.get(key) {
            Ok(found) => assert_eq!(found.unwrap(), value.as_slice()),
            Err(Error::Corruption { offset, .. }) => {
                assert_eq!(offset, damaged);
                lost.push(key.clone());
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!((20..60).contains(&lost.len()), "{} are lost", lost.len());
    let mut cursor = store.scan(&KeyRange::all(), Direction::Forward).unwrap();
    let failed = std::iter::from_fn(|| cursor.next().transpose()).any(|entry| entry.is_err());
    assert!(failed, "a scan goes over what it cannot read");
    assert!(store.compact(&CompactOptions::default(), &()).is_err());
    store.close().unwrap();
    let path = Path::new(PATH);
    let report = Forest.check(&environment, path, &none, &()).unwrap();
    let at_block = |finding: &&cambium_api::Finding| finding.offset == damaged;
    assert!(report.findings.iter().any(|finding| at_block(&finding)));
    let report = Forest.repair(&environment, path, &none, &()).unwrap();
    let said = format!("{} entries are lost", lost.len());
    let is_it = |finding: &cambium_api::Finding| {
        finding.kind == FindingKind::Damage && finding.what.contains(&said)
    };
    assert!(report.findings.iter().any(is_it), "{report:?}");
    lost.iter().for_each(|key| _ = model.remove(key));
    assert_eq!(contents(&*open()), model);
}
