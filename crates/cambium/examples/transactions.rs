//! Transactions: reads and writes of one moment, from several threads.
//! `cargo run --package cambium --example transactions`
#![forbid(unsafe_code)]

use std::path::Path;

use cambium::prelude::*;

pub(crate) fn run(folder: &Path) -> cambium::Result<()> {
    let store = cambium::create(folder.join("accounts"), "forest", &Options::new())?;
    for account in ["ann", "bob", "cid"] {
        store.put(account, "100")?;
    }

    // Four threads move money at the same time. A transaction that meets another one
    // runs again, so no transfer is lost and no account is overdrawn.
    std::thread::scope(|scope| {
        let transfers = [
            ("ann", "bob"),
            ("bob", "cid"),
            ("cid", "ann"),
            ("ann", "cid"),
        ];
        let threads = transfers.map(|(from, to)| {
            let store = &store;
            scope.spawn(move || (0..50).try_for_each(|_| transfer(store, from, to)))
        });
        let mut outcomes = threads.into_iter().map(|thread| thread.join());
        outcomes.try_for_each(|outcome| outcome.expect("no thread panics"))
    })?;

    // Without writes a transaction is a consistent view, and never conflicts.
    let view = store.transaction()?;
    let mut sum = 0;
    for entry in view.scan(..)? {
        sum += number(&entry?.value);
    }
    assert_eq!(sum, 300);
    drop(view);

    // A part of a transaction can be taken back.
    let transaction = store.transaction()?;
    transaction.put("dan", "0")?;
    let savepoint = transaction.savepoint()?;
    transaction.delete_range(&KeyRange::all())?;
    assert_eq!(transaction.get("ann")?, None);
    transaction.roll_back_to(savepoint)?;
    transaction.commit()?;
    assert_eq!(store.iterate()?.count(), 4);
    store.close()
}

fn transfer(store: &Store, from: &str, to: &str) -> cambium::Result<()> {
    store.transact(|transaction| {
        let balance = transaction.get(from)?.map_or(0, |value| number(&value));
        if balance == 0 {
            return Ok(()); // Nothing is written.
        }
        let other = transaction.get(to)?.map_or(0, |value| number(&value));
        transaction.put(from, (balance - 1).to_string())?;
        transaction.put(to, (other + 1).to_string())
    })
}

fn number(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.parse().unwrap_or_default()
}

fn main() -> cambium::Result<()> {
    let folder = std::env::temp_dir().join(format!("cambium-example-{}", std::process::id()));
    let outcome = run(&folder);
    // The example leaves nothing behind.
    _ = std::fs::remove_dir_all(&folder);
    outcome
}
