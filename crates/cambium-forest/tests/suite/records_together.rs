//! Records that lie together are read at once by a walk, and made one by one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use cambium_api::{
    CompactOptions, Cursor, Direction, Durability, Engine, Error, IterationOrder, KeyRange,
};
use cambium_forest::Forest;
use cambium_io::{Environment, OpenOptions};
use cambium_testkit::stores;

const FILE: &str = "/store/000002.forest";

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A store of documents of which few fit into a packed block, in key order in its file.
fn filled(
    environment: &Environment,
    more: &[(&str, &str)],
) -> (std::sync::Arc<dyn Engine>, Entries) {
    let all = [
        ("preallocate_bytes", "4096"),
        ("compaction_threshold", "100"),
    ];
    let store = stores::create(&Forest, environment, &stores::options(&[&all, more]));
    let mut model = BTreeMap::new();
    for number in 0..600_u32 {
        let key = format!("key {:08}", number.wrapping_mul(2_654_435_761)).into_bytes();
        let bytes = [700, 1_040, 2_500, 6_000, 90][(number % 5) as usize] + number as usize;
        let value: Vec<u8> = (0..bytes).map(|at| (at as u32 ^ number) as u8).collect();
        store.put(&key, &value, Durability::Buffered).unwrap();
        model.insert(key, value);
    }
    store.compact(&CompactOptions::default(), &()).unwrap();
    (store, model.into_iter().collect())
}

/// One entry by `next`, then a few by `visit`, and again.
fn drain(mut cursor: Box<dyn Cursor>) -> Entries {
    let mut found = Entries::new();
    while let Some(entry) = cursor.next().unwrap() {
        found.push((entry.key.to_vec(), entry.value.to_vec()));
        let until = found.len() + found.len() % 7;
        let mut visit = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            match found.len() < until {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        _ = cursor.visit(&mut visit).unwrap();
    }
    found
}

#[test]
fn walks_meet_every_record_in_its_order_from_anywhere() {
    for more in [
        &[("block_bytes", "512"), ("node_bytes", "512")][..],
        &[("cache_bytes", "0")],
        &[("direct", "on"), ("read_ahead", "3")],
    ] {
        let environment = Environment::memory();
        let (store, entries) = filled(&environment, more);
        let scan = |range: &KeyRange, direction| store.scan(range, direction).unwrap();
        for _again in 0..2 {
            assert_eq!(drain(scan(&KeyRange::all(), Direction::Forward)), entries);
            let mut backwards = drain(scan(&KeyRange::all(), Direction::Reverse));
            backwards.reverse();
            assert_eq!(backwards, entries);
        }
        for (from, to) in [(0, 1), (3, 90), (250, 259), (590, 599)] {
            let range = KeyRange::between(&entries[from].0, &entries[to].0);
            assert_eq!(drain(scan(&range, Direction::Forward)), entries[from..to]);
        }
        let mut cursor = store.iterate(IterationOrder::Key, None).unwrap();
        for place in 0..=entries.len() {
            let token = cursor.resume_token().unwrap();
            let mut resumed = store.iterate(IterationOrder::Key, Some(&token)).unwrap();
            let next = cursor.next().unwrap().map(|entry| entry.key);
            assert_eq!(next.as_deref(), entries.get(place).map(|(key, _)| &key[..]));
            assert_eq!(resumed.next().unwrap().map(|entry| entry.key), next);
        }
        cursor.seek(&entries[300].0).unwrap();
        assert_eq!(*cursor.next_key().unwrap().unwrap(), entries[300].0[..]);
        assert_eq!(*cursor.next().unwrap().unwrap().value, entries[301].1[..]);
        store.close().unwrap();
    }
}

/// Two reads that begin in one block: small records, one that ends just below what is read at
/// once, and one behind it.
#[test]
fn reads_that_begin_in_one_block_are_kept_apart() {
    let environment = Environment::memory();
    let store = stores::create(&Forest, &environment, &Default::default());
    let mut entries = Entries::new();
    for number in 0..120_u32 {
        let bytes = [1_040, 1_040, 254_000, 2_500];
        let key = format!("key {number:08}").into_bytes();
        let value = vec![number as u8; bytes[(number % 4) as usize]];
        store.put(&key, &value, Durability::Buffered).unwrap();
        entries.push((key, value));
    }
    store.compact(&CompactOptions::default(), &()).unwrap();
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut found = drain(store.scan(&KeyRange::all(), direction).unwrap());
        if direction == Direction::Reverse {
            found.reverse();
        }
        assert!(found == entries, "{direction:?}: {} entries", found.len());
    }
}

#[test]
fn a_damaged_record_is_named_behind_all_that_come_before_it() {
    let environment = Environment::memory();
    let (store, entries) = filled(&environment, &[]);
    store.close().unwrap();
    let damaged = 333;
    let file = environment
        .file_system
        .open(Path::new(FILE), OpenOptions::WRITE);
    let file = file.unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let wanted = &entries[damaged].1;
    let mut places = bytes.windows(wanted.len());
    let place = places.position(|there| there == wanted).unwrap() as u64;
    file.write_at(&[wanted[9] ^ 1], place + 9).unwrap();
    let store = stores::open(&Forest, &environment, &Default::default());
    for by_visits in [false, true] {
        let mut cursor = store.scan(&KeyRange::all(), Direction::Forward).unwrap();
        let mut found = Entries::new();
        let error = loop {
            let step = match by_visits {
                true => cursor.visit(&mut |key, value| {
                    found.push((key.to_vec(), value.to_vec()));
                    ControlFlow::Continue(())
                }),
                false => cursor.next().map(|entry| match entry {
                    Some(entry) => {
                        found.push((entry.key.to_vec(), entry.value.to_vec()));
                        ControlFlow::Break(())
                    }
                    None => ControlFlow::Continue(()),
                }),
            };
            match step {
                Err(error) => break error,
                Ok(ControlFlow::Continue(())) => panic!("a scan goes over what it cannot read"),
                Ok(ControlFlow::Break(())) => {}
            }
        };
        let Error::Corruption { offset, .. } = error else {
            panic!("{error}");
        };
        assert!(
            (place - 64..place).contains(&offset),
            "{offset} for {place}"
        );
        assert_eq!(found, entries[..damaged]);
    }
}
