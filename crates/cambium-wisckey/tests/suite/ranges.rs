//! Range queries: what is read ahead, by each back end, and that the order and
//! the moment hold whatever happens meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    CompactOptions, Cursor, Direction, Durability, Engine, Entry, IterationOrder, KeyRange,
    OptionValues,
};
use cambium_io::simulated::SimulatedDisk;
use cambium_io::{Environment, OpenOptions};
use cambium_testkit::stores;
use cambium_testkit::stores::threaded;
use cambium_wisckey::Wisckey;

const FOLDER: &str = "/store";
const WAYS: [&str; 3] = ["io_uring", "threads", "sync"];
const KEYS: u64 = 600;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(way: &str) -> OptionValues {
    OptionValues::from([
        ("segment_bytes", "16KiB"),
        ("replay_bytes", "16KiB"),
        ("preallocate_bytes", "4096"),
        ("inline_bytes", "20"),
        ("table_bytes", "4096"),
        ("level_base_bytes", "8192"),
        ("collection", "off"),
        ("range_width", "5"),
        ("range_io", way),
    ])
}

/// Keys in no order; every seventh value is inline.
fn filled(environment: &Environment, way: &str) -> (Arc<dyn Engine>, State) {
    filled_with(environment, &options(way))
}

fn filled_with(environment: &Environment, options: &OptionValues) -> (Arc<dyn Engine>, State) {
    let store = stores::create(&Wisckey, environment, options);
    let mut state = State::new();
    for number in 0..KEYS {
        let key = format!("{:05}", number * 7919 % 10_007).into_bytes();
        let length = if number % 7 == 0 { 9 } else { 300 };
        let mut value = format!("{number:06}").into_bytes();
        value.resize(length, b'v');
        store.put(&key, &value, Durability::Written).unwrap();
        state.insert(key, value);
    }
    (store, state)
}

fn simulated() -> Environment {
    Environment::simulated(&SimulatedDisk::new(1), 1)
}

fn pair(entry: &Entry) -> (Vec<u8>, Vec<u8>) {
    (entry.key.to_vec(), entry.value.to_vec())
}

fn rest(cursor: &mut dyn Cursor) -> Vec<(Vec<u8>, Vec<u8>)> {
    let next = || cursor.next().unwrap().map(|entry| pair(&entry));
    std::iter::from_fn(next).collect()
}

fn value_reads(store: &dyn Engine) -> u64 {
    store.stats().unwrap().number("value_reads").unwrap()
}

#[test]
fn every_way_of_reading_answers_the_same_in_both_directions_while_values_move() {
    for way in WAYS {
        let environments = [simulated(), threaded()];
        for environment in environments {
            let (store, state) = filled(&environment, way);
            let expected: Vec<_> = state.into_iter().collect();
            let scan = |direction| store.scan(&KeyRange::all(), direction).unwrap();
            let mut forward = scan(Direction::Forward);
            let mut backward = scan(Direction::Reverse);
            let mut seen = Vec::new();
            for _ in 0..100 {
                seen.push(pair(&forward.next().unwrap().unwrap()));
                let entry = backward.next().unwrap().unwrap();
                assert_eq!(pair(&entry), expected[expected.len() - seen.len()]);
            }
            // With reads under way everything moves, and half of it is deleted.
            for (key, _) in expected.iter().step_by(2) {
                store.delete(key, Durability::Written).unwrap();
            }
            store.compact(&CompactOptions::default(), &()).unwrap();
            seen.append(&mut rest(&mut *forward));
            assert!(seen == expected, "{way}: forward");
            let left = rest(&mut *backward).into_iter().rev();
            assert!(
                left.eq(expected[..expected.len() - 100].iter().cloned()),
                "{way}"
            );
            // Elsewhere, with reads under way.
            forward.seek(&expected[10].0).unwrap();
            for _ in 0..50 {
                _ = forward.next().unwrap().unwrap();
            }
            forward.seek(&expected[300].0).unwrap();
            assert!(
                rest(&mut *forward) == expected[300..],
                "{way}: after a seek"
            );
            backward.seek(&expected[300].0).unwrap();
            assert_eq!(pair(&backward.next().unwrap().unwrap()), expected[300]);
            drop((forward, backward));
            store.close().unwrap();
        }
    }
}

#[test]
fn reads_run_ahead_once_access_is_sequential_and_no_further_than_was_walked() {
    for way in WAYS {
        let (store, _) = filled(&simulated(), way);
        let mut cursor = store.scan(&KeyRange::all(), Direction::Forward).unwrap();
        let before = value_reads(&*store);
        let mut ahead = 0;
        for walked in 1..=KEYS {
            assert!(cursor.next().unwrap().is_some());
            let begun = value_reads(&*store) - before;
            assert!(
                begun <= 2 * walked,
                "{way}: {begun} reads for {walked} entries"
            );
            assert!(begun <= walked + 64, "{way}: more than read_ahead");
            ahead = ahead.max(begun.saturating_sub(walked));
        }
        assert!(ahead >= 16, "{way}: never more than {ahead} reads ahead");
        assert!(cursor.next().unwrap().is_none());
        let mut single = store.scan(&KeyRange::all(), Direction::Reverse).unwrap();
        let before = value_reads(&*store);
        assert!(single.next().unwrap().is_some());
        assert!(
            value_reads(&*store) - before <= 1,
            "{way}: ahead of one entry"
        );
    }
}

#[test]
fn values_that_lie_side_by_side_are_few_reads() {
    for way in WAYS {
        let mut options = options(way);
        // Values are sorted within a segment: one holds them all.
        options.set("segment_bytes", "1MiB");
        options.set("replay_bytes", "1MiB");
        let (store, state) = filled_with(&simulated(), &options);
        // Garbage everywhere, so that everything is moved, into the order of keys.
        for (key, value) in state.iter().step_by(3) {
            store.put(key, value, Durability::Written).unwrap();
        }
        store.compact(&CompactOptions::default(), &()).unwrap();
        let before = value_reads(&*store);
        let mut cursor = store.scan(&KeyRange::all(), Direction::Forward).unwrap();
        assert_eq!(rest(&mut *cursor).len() as u64, KEYS);
        let reads = value_reads(&*store) - before;
        assert!(reads < KEYS / 8, "{way}: {reads} reads for {KEYS} entries");
    }
}

#[test]
fn values_at_hand_come_as_they_are_while_some_have_to_be_waited_for() {
    // Of files in memory, three blocks in four are said to be at hand.
    let mut options = options("io_uring");
    options.set("segment_bytes", "1MiB");
    options.set("replay_bytes", "1MiB");
    let (store, state) = filled_with(&Environment::memory(), &options);
    for sorted in [false, true] {
        if sorted {
            store.compact(&CompactOptions::default(), &()).unwrap();
        }
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut expected: Vec<_> = state.clone().into_iter().collect();
            if direction == Direction::Reverse {
                expected.reverse();
            }
            let before = value_reads(&*store);
            let mut cursor = store.scan(&KeyRange::all(), direction).unwrap();
            // Entries that are held keep what was read before them as it is.
            let held = || cursor.next().unwrap();
            let held: Vec<Entry> = std::iter::from_fn(held).collect();
            assert!(held.iter().map(pair).eq(expected), "sorted: {sorted}");
            let reads = value_reads(&*store) - before;
            assert_eq!(reads < KEYS / 4, sorted, "{reads} reads");
        }
    }
}

#[test]
fn keys_alone_read_no_values_and_mix_with_entries() {
    for environment in [simulated(), Environment::memory()] {
        let (store, state) = filled(&environment, "io_uring");
        let expected: Vec<_> = state.into_iter().collect();
        let scan = || store.scan(&KeyRange::all(), Direction::Forward).unwrap();
        let before = value_reads(&*store);
        let mut keys = scan();
        for (key, _) in &expected {
            assert_eq!(*keys.next_key().unwrap().unwrap(), key[..]);
        }
        assert_eq!(keys.next_key().unwrap(), None);
        assert_eq!(value_reads(&*store), before);
        // With reads under way.
        let mut mixed = scan();
        for (place, expected) in expected.iter().enumerate() {
            if place % 5 < 3 {
                assert_eq!(pair(&mixed.next().unwrap().unwrap()), *expected);
            } else {
                assert_eq!(*mixed.next_key().unwrap().unwrap(), expected.0[..]);
            }
            if place == 100 {
                let token = mixed.resume_token().unwrap();
                drop(mixed);
                mixed = store.iterate(IterationOrder::Any, Some(&token)).unwrap();
            }
        }
        assert!(mixed.next().unwrap().is_none());
    }
}

#[test]
fn a_damaged_value_answers_when_its_turn_comes_and_is_gone_past() {
    for way in WAYS {
        let environment = Environment::memory();
        let (store, state) = filled(&environment, way);
        store.close().unwrap();
        drop(store);
        let folder = Path::new(FOLDER);
        let file_system = &environment.file_system;
        let is_segment = |name: &Path| name.extension().is_some_and(|it| it == "values");
        let listed = file_system.list(folder).unwrap();
        let segment = listed.iter().find(|entry| is_segment(&entry.name)).unwrap();
        let path = folder.join(&segment.name);
        let file = file_system.open(&path, OpenOptions::WRITE).unwrap();
        file.write_at(&[0xa5; 16], 10_000).unwrap();
        let store = stores::open(&Wisckey, &environment, &options(way));
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut expected: Vec<_> = state.clone().into_iter().collect();
            if direction == Direction::Reverse {
                expected.reverse();
            }
            let mut cursor = store.scan(&KeyRange::all(), direction).unwrap();
            let mut damaged = 0;
            for expected in &expected {
                match cursor.next() {
                    Ok(entry) => assert_eq!(pair(&entry.unwrap()), *expected),
                    Err(error) => {
                        assert!(error.is_corruption(), "{error}");
                        assert!(
                            error.to_string().contains(path.to_str().unwrap()),
                            "{error}"
                        );
                        damaged += 1;
                    }
                }
            }
            assert!(cursor.next().unwrap().is_none());
            assert_eq!(damaged, 1, "{way}");
        }
    }
}
