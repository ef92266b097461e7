//! Tests of the write buffer.

use cambium_io::sync::schedule::Schedule;
use cambium_io::sync::scheduler;

use super::*;
use crate::document::DocumentAddress;

fn put(buffer: &Buffer, key: &[u8], sequence: u64, pinned: &[u64]) {
    let change = Insert {
        namespace: 0,
        key,
        version: Version {
            sequence,
            document: Some(DocumentAddress(sequence << 20)),
        },
    };
    let kept = KeptMoments::new(pinned.iter().copied(), sequence - 1);
    buffer.insert(std::iter::once(change), &kept);
}

fn seen(buffer: &Buffer, key: &[u8], at: u64) -> Option<u64> {
    let version = buffer.get_at(0, key, at);
    version.map(|version| version.sequence)
}

#[test]
fn versions_stay_while_someone_can_ask_for_them() {
    let buffer = Buffer::default();
    for sequence in 1..=9 {
        put(
            &buffer,
            b"oak",
            sequence,
            if sequence > 4 { &[4] } else { &[] },
        );
    }
    assert_eq!(seen(&buffer, b"oak", 4), Some(4), "pinned");
    assert_eq!(seen(&buffer, b"oak", 8), Some(8), "visible before the last");
    assert_eq!(seen(&buffer, b"oak", 9), Some(9));
    assert_eq!(buffer.len(), 3, "all others are gone");
    assert_eq!(seen(&buffer, b"oak", 3), None);
    for passed in [3, 6] {
        // Version 4 is no answer for a moment at which 6 counted.
        assert_eq!(buffer.get(0, b"oak", passed), Lookup::Younger);
    }
    assert_eq!(buffer.get(0, b"elm", 9), Lookup::Unknown);
}

#[test]
fn keys_sort_by_their_bytes_whatever_their_prefixes() {
    let buffer = Buffer::default();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for length in 0..11 {
        for last in [0, 1, 255] {
            let mut key = vec![7; length];
            key.push(last);
            keys.push(key);
            keys.push(vec![last; length]);
        }
    }
    keys.sort();
    keys.dedup();
    for (number, key) in keys.iter().rev().enumerate() {
        put(&buffer, key, number as u64 + 1, &[]);
    }
    let run = buffer.run(0, Bound::Unbounded, Direction::Forward, 999, 999);
    let found: Vec<Vec<u8>> = run.into_iter().map(|(key, _)| key.into_vec()).collect();
    assert_eq!(found, keys);
    for key in &keys {
        assert!(seen(&buffer, key, 999).is_some(), "{key:?}");
        let behind = buffer.run(0, Bound::Excluded(key), Direction::Forward, 999, 1);
        let expected = keys.iter().find(|other| *other > key);
        assert_eq!(
            behind.first().map(|(key, _)| key.to_vec()).as_ref(),
            expected
        );
    }
}

#[test]
fn runs_go_both_ways_and_keep_to_their_bound() {
    let buffer = Buffer::default();
    for (number, key) in [b"a", b"b", b"c", b"d"].iter().enumerate() {
        put(&buffer, *key, number as u64 + 1, &[]);
    }
    let keys = |from, direction, limit| -> Vec<u8> {
        let run = buffer.run(0, from, direction, 9, limit);
        run.iter().map(|(key, _)| key[0]).collect()
    };
    let open = Bound::Unbounded;
    assert_eq!(keys(open, Direction::Forward, 9), b"abcd");
    assert_eq!(keys(Bound::Excluded(b"b"), Direction::Forward, 1), b"c");
    assert_eq!(keys(Bound::Included(b"c"), Direction::Reverse, 9), b"cba");
    assert_eq!(buffer.run(0, open, Direction::Forward, 2, 9).len(), 2);
    assert_eq!(buffer.run(1, open, Direction::Forward, 9, 9).len(), 0);
}

/// Keys of one to four bytes out of few letters, zeros among them, and some
/// that agree in more than eight: the same ones for each seed.
fn some_keys(count: usize) -> Vec<Vec<u8>> {
    let mut state = 7u64;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let mut keys: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            let mut key = vec![9; [0, 0, 8, 12, 16][next(5) as usize]];
            key.extend((0..next(5)).map(|_| [0, 1, 255][next(3) as usize]));
            key
        })
        .collect();
    keys.sort();
    keys.dedup();
    // In an order of no meaning.
    keys.sort_by_key(|key| {
        key.iter()
            .rev()
            .map(|&byte| byte ^ 0x5a)
            .collect::<Vec<u8>>()
    });
    keys
}

#[test]
fn the_order_is_the_same_however_often_it_was_asked_for() {
    let keys = some_keys(600);
    let mut sorted = keys.clone();
    sorted.sort();
    for asked_each in [1, 3, 20, 200, 1_000] {
        let buffer = Buffer::new(5, 0);
        for (number, key) in keys.iter().enumerate() {
            put(&buffer, key, number as u64 + 1, &[]);
            if number % asked_each == 0 {
                let run = buffer.run(0, Bound::Unbounded, Direction::Forward, 9_999, 9_999);
                let found: Vec<Vec<u8>> = run.into_iter().map(|(key, _)| key.into()).collect();
                let mut known = keys[..=number].to_vec();
                known.sort();
                assert_eq!(found, known, "asked every {asked_each}");
            }
        }
        let mut backwards: Vec<Vec<u8>> = buffer
            .run(0, Bound::Unbounded, Direction::Reverse, 9_999, 9_999)
            .into_iter()
            .map(|(key, _)| key.into())
            .collect();
        backwards.reverse();
        assert_eq!(backwards, sorted);
    }
}

#[test]
fn pieces_for_a_flush_are_all_keys_once_and_keep_to_their_bound() {
    let buffer = Buffer::default();
    let mut keys = some_keys(500);
    for (number, key) in keys.iter().enumerate() {
        put(&buffer, key, number as u64 + 1, &[]);
    }
    put(&buffer, &keys[3], 9_000, &[]);
    let mut found: Vec<Vec<u8>> = Vec::new();
    loop {
        let most = 10 * CHANGE_BYTES;
        let piece = buffer.newest_behind(0, found.last().map(Vec::as_slice), most);
        if piece.is_empty() {
            break;
        }
        assert!(piece.len() < 11, "{} changes", piece.len());
        found.extend(piece.into_iter().map(|(key, version)| {
            assert_eq!(version.sequence == 9_000, key == keys[3]);
            key
        }));
    }
    keys.sort();
    assert_eq!(found, keys);
    assert_eq!(buffer.newest_behind(0, None, 0).len(), 1, "at least one");
}

#[test]
fn namespaces_keep_apart() {
    let buffer = Buffer::default();
    for (number, namespace) in [7u16, 0, u16::MAX, 7].into_iter().enumerate() {
        let key = [b'k', number as u8];
        let change = Insert {
            namespace,
            key: &key,
            version: Version {
                sequence: number as u64 + 1,
                document: None,
            },
        };
        buffer.insert(std::iter::once(change), &KeptMoments::default());
    }
    assert_eq!(buffer.namespaces(), [0, 7, u16::MAX]);
    for (namespace, count) in [(0, 1), (7, 2), (u16::MAX, 1), (8, 0)] {
        for direction in [Direction::Forward, Direction::Reverse] {
            let run = buffer.run(namespace, Bound::Unbounded, direction, 9, 9);
            assert_eq!(run.len(), count, "namespace {namespace}");
        }
        assert_eq!(buffer.newest_behind(namespace, None, 1 << 20).len(), count);
    }
    assert_eq!(buffer.get(0, b"k\0", 9), Lookup::Unknown);
}

/// Points at which another thread may run while a first scan sorts many keys.
fn points_of_a_first_scan(sorts_at_once: bool) -> u64 {
    let points = |scans: bool| {
        let program = move || {
            let mut buffer = Buffer::new(5, 0);
            buffer.sorts_at_once = sorts_at_once;
            for number in 0..6_000u64 {
                let key = format!("a common beginning {:04}", number * 7 % 6_000);
                put(&buffer, key.as_bytes(), number + 1, &[]);
            }
            if scans {
                let first = buffer.run(0, Bound::Unbounded, Direction::Forward, 9_999, 1);
                assert_eq!(&*first[0].0, b"a common beginning 0000");
            }
        };
        let run = scheduler::run(Schedule::random(1), program);
        assert_eq!(run.outcome, Ok(()));
        run.points
    };
    points(true) - points(false)
}

#[test]
fn a_first_scan_holds_no_writer_until_all_keys_are_sorted() {
    let (with_turns, at_once) = (points_of_a_first_scan(false), points_of_a_first_scan(true));
    assert!(with_turns > at_once + 20, "{with_turns} and {at_once}");
}
