//! Scans go from both ends, and seek, over stores, snapshots and transactions.

use std::ops::{Bound, ControlFlow};

use cambium::prelude::*;
use cambium::{Error, Result};

/// Stores with the keys 10 to 19, as 8 bytes, big-endian.
fn ordered_stores() -> Vec<(tempfile::TempDir, Store)> {
    let engines = [
        ("forest", None),
        ("wisckey", None),
        ("zdb", Some("integer")),
    ];
    let made = engines.map(|(engine, keys)| {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::new();
        if let Some(keys) = keys {
            options = options.set("keys", keys);
        }
        let store = options.create(folder.path(), engine).unwrap();
        for number in 10..20 {
            store.put(key(number), number.to_string()).unwrap();
        }
        (folder, store)
    });
    made.into()
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn number(entry: Option<Result<Entry>>) -> Option<u64> {
    Some(number_of(&entry?.unwrap().key))
}

fn number_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(*key.first_chunk().unwrap())
}

fn numbers(entries: impl Iterator<Item = Result<Entry>>) -> Vec<u64> {
    entries.filter_map(|entry| number(Some(entry))).collect()
}

/// Every way of taking some entries from each end shows each entry once.
fn ends_meet<S>(scan: impl Fn() -> Result<S>)
where
    S: DoubleEndedIterator<Item = Result<Entry>>,
{
    for way in 0..1024_u32 {
        let mut entries = scan().unwrap();
        let (mut front, mut back) = (Vec::new(), Vec::new());
        for step in 0..10 {
            match way & (1 << step) {
                0 => front.extend(number(entries.next())),
                _ => back.extend(number(entries.next_back())),
            }
        }
        assert!(entries.next().is_none() && entries.next_back().is_none());
        front.extend(back.into_iter().rev());
        assert_eq!(front, (10..20).collect::<Vec<_>>(), "{way:b}");
    }
}

#[test]
fn the_ends_of_a_scan_meet() {
    for (_folder, store) in ordered_stores() {
        ends_meet(|| store.scan(..));
        let then = store.snapshot().unwrap();
        store.delete(key(15)).unwrap();
        store.put(key(30), "later").unwrap();
        ends_meet(|| then.scan(..));
        let transaction = store.transaction().unwrap();
        transaction.put(key(15), "own").unwrap();
        transaction.delete(key(30)).unwrap();
        ends_meet(|| transaction.scan(..));
    }
}

/// Every way of visiting some entries from each end shows each entry once, also beside
/// entries that are taken.
#[test]
fn the_ends_of_visits_meet() {
    for (_folder, store) in ordered_stores() {
        for way in 0..1024_u32 {
            let mut entries = store.scan(..).unwrap();
            let (mut front, mut back) = (Vec::new(), Vec::new());
            for step in 0..5 {
                let mut left = 2;
                let mut visit = |found: &mut Vec<u64>, key: &[u8]| {
                    found.push(number_of(key));
                    left -= 1;
                    match left {
                        0 => ControlFlow::Break(()),
                        _ => ControlFlow::Continue(()),
                    }
                };
                let end = match way >> (2 * step) & 3 {
                    0 => entries.visit(|key, _| visit(&mut front, key)),
                    1 => entries.visit_back(|key, _| visit(&mut back, key)),
                    2 => {
                        front.extend(number(entries.next()));
                        entries.visit(|key, _| visit(&mut front, key))
                    }
                    _ => {
                        back.extend(number(entries.next_back()));
                        entries.visit_back(|key, _| visit(&mut back, key))
                    }
                };
                assert!(end.unwrap().is_break() || front.len() + back.len() == 10);
            }
            let rest = entries.visit(|key, value| {
                assert_eq!(value, number_of(key).to_string().as_bytes());
                front.push(number_of(key));
                ControlFlow::Continue(())
            });
            assert!(rest.unwrap().is_continue());
            assert!(entries.next().is_none() && entries.next_back().is_none());
            front.extend(back.into_iter().rev());
            assert_eq!(front, (10..20).collect::<Vec<_>>(), "{way:b}");
        }
        // A visit to the end leaves nothing for the other end, until the front goes back.
        let mut entries = store.scan(..key(15)).unwrap();
        _ = entries.visit(|_, _| ControlFlow::Continue(())).unwrap();
        entries.seek_back(key(12)).unwrap();
        assert_eq!(number(entries.next_back()), None);
        entries.seek(key(11)).unwrap();
        assert_eq!(number(entries.next_back()), Some(12));
        assert_eq!(numbers(entries), [11]);
    }
}

#[test]
fn every_kind_of_range_is_a_range_of_keys() {
    for (_folder, store) in ordered_stores() {
        let scan = |range: KeyRange| numbers(store.scan(range).unwrap());
        assert_eq!(scan((key(12)..key(15)).into()), [12, 13, 14]);
        assert_eq!(scan((key(12)..=key(15)).into()), [12, 13, 14, 15]);
        assert_eq!(scan((..key(12)).into()), [10, 11]);
        assert_eq!(scan((..=key(12)).into()), [10, 11, 12]);
        assert_eq!(scan((key(18)..).into()), [18, 19]);
        let behind = (Bound::Excluded(key(12)), Bound::Included(key(14)));
        assert_eq!(scan(behind.into()), [13, 14]);
        assert_eq!(scan((key(15)..key(12)).into()), []);
        assert_eq!(numbers(store.scan(key(15)..key(12)).unwrap().rev()), []);
        store.delete_range(..=key(18)).unwrap();
        assert_eq!(numbers(store.scan(..).unwrap()), [19]);
    }
}

#[test]
fn seeks_move_the_ends() {
    for (_folder, store) in ordered_stores() {
        store.delete(key(14)).unwrap();
        let mut entries = store.scan(key(11)..key(18)).unwrap();
        entries.seek(key(14)).unwrap();
        assert_eq!(number(entries.next()), Some(15));
        entries.seek_back(key(14)).unwrap();
        assert_eq!(number(entries.next_back()), None);
        // Also back to what was passed, and never over the bounds.
        entries.seek(key(0)).unwrap();
        assert_eq!(number(entries.next()), Some(11));
        assert_eq!(number(entries.next_back()), Some(13));
        entries.seek_back(key(99)).unwrap();
        assert_eq!(numbers(entries.rev()), [17, 16, 15, 13, 12]);
        let transaction = store.transaction().unwrap();
        transaction.put(key(14), "own").unwrap();
        let mut entries = transaction.scan(key(11)..key(18)).unwrap();
        entries.seek(key(14)).unwrap();
        entries.seek_back(key(16)).unwrap();
        assert_eq!(numbers(entries), [14, 15, 16]);
    }
}

#[test]
fn keys_come_alone_from_both_ends() {
    for (_folder, store) in ordered_stores() {
        let mut entries = store.scan(..).unwrap();
        assert_eq!(entries.next_key().unwrap().unwrap(), key(10));
        assert_eq!(entries.next_key_back().unwrap().unwrap(), key(19));
        assert_eq!(numbers(entries), (11..19).collect::<Vec<_>>());
    }
}

#[test]
fn a_pass_in_no_order_has_no_back() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().set("size", "64MiB");
    let store = options.create(folder.path(), "alphard").unwrap();
    store.put("oak", "Quercus").unwrap();
    let refused = store.scan(..).unwrap_err();
    assert!(matches!(
        refused,
        Error::Unsupported {
            engine: "alphard",
            ..
        }
    ));
    let mut entries = store.iterate().unwrap();
    assert!(entries.seek("oak").is_err() && entries.seek_back("oak").is_err());
    let refused = entries.next_back().unwrap().unwrap_err();
    assert!(
        refused.to_string().contains("use scan on an engine"),
        "{refused}"
    );
    assert!(entries.next().is_none());
}

#[test]
fn a_closed_store_ends_its_scans_from_both_ends() {
    for (_folder, store) in ordered_stores() {
        let (mut front, mut back) = (store.scan(..).unwrap(), store.scan(..).unwrap());
        store.close().unwrap();
        assert!(matches!(front.next(), Some(Err(Error::Closed))));
        assert!(matches!(back.next_back(), Some(Err(Error::Closed))));
        assert!(front.next().is_none() && back.next_back().is_none());
    }
}
