//! Transactions where the store no longer remembers what was written since they began.

use cambium::prelude::*;
use cambium::{Conflict, Error};

/// Writes more than a store remembers, on keys of their own.
fn write_much(store: &Store) {
    let key = |number: u32| [&number.to_be_bytes()[..], &[b'x'; 60_000]].concat();
    for number in 0..100 {
        store.put(key(number), "").unwrap();
    }
}

fn store(folder: &tempfile::TempDir) -> Store {
    let store = cambium::create(folder.path(), "forest", &Options::new()).unwrap();
    for tree in ["ash", "elm", "oak"] {
        store.put(tree, "there").unwrap();
    }
    store
}

/// A transaction that read a key, a missing key and a range.
fn begun(store: &Store) -> Transaction {
    let transaction = store.transaction().unwrap();
    assert!(transaction.get("oak").unwrap().is_some());
    assert!(transaction.get("yew").unwrap().is_none());
    let scanned = transaction.scan("a".."f").unwrap();
    assert_eq!(scanned.count(), 2);
    transaction.put("result", "").unwrap();
    transaction
}

#[test]
fn a_long_transaction_commits_if_what_it_read_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder);
    let transaction = begun(&store);
    write_much(&store);
    transaction.commit().unwrap();
    assert!(store.get("result").unwrap().is_some());
}

#[test]
fn a_long_transaction_conflicts_with_what_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder);
    for (changed, in_range) in [("oak", false), ("yew", false), ("beech", true)] {
        let transaction = begun(&store);
        store.put(changed, "new").unwrap();
        write_much(&store);
        let error = transaction.commit().unwrap_err();
        let Error::Conflict { conflict } = error else {
            panic!("{error}");
        };
        assert_eq!(
            matches!(conflict, Conflict::Range { .. }),
            in_range,
            "{conflict}"
        );
        store.delete("yew").unwrap();
        store.delete("beech").unwrap();
        assert!(store.get("result").unwrap().is_none());
    }
}

/// The loser of a conflict begins later than the winner: without a turn of its own it
/// would lose for ever.
#[test]
fn threads_that_count_one_key_up_all_come_through() {
    for engine in ["forest", "wisckey", "zdb", "alphard"] {
        let folder = tempfile::tempdir().unwrap();
        let store = cambium::create(folder.path(), engine, &Options::new()).unwrap();
        let count_up = |transaction: &Transaction| {
            let count = transaction.get("count")?;
            let count = count.and_then(|value| value.first().copied()).unwrap_or(0);
            transaction.put("count", [count.wrapping_add(1)])
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for _ in 0..1_000 {
                        store.transact(count_up).unwrap();
                    }
                });
            }
        });
        let count = store.get("count").unwrap().unwrap();
        assert_eq!(count.as_ref(), [(4_000 % 256) as u8], "{engine}");
    }
}
