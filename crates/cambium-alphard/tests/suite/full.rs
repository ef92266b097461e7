//! A store without free space: deletes empty it, also beside a counter that each batch writes
//! over, and their space takes new entries.

use cambium_alphard::Alphard;
use cambium_api::{Durability, Engine, OptionValues, WriteBatch};
use cambium_io::Environment;
use cambium_io::simulated::SimulatedDisk;
use cambium_io::sync::schedule::Schedule;
use cambium_io::sync::{scheduler, thread};
use cambium_testkit::Subject;
use cambium_testkit::full_disk::fill_and_empty_to_size;
use cambium_testkit::stores::{self, entries, number};

#[test]
fn a_full_store_is_emptied_and_filled_again() {
    let subject = Subject::new(&Alphard)
        .creation("size", "1MiB")
        .any("block_bytes", &["512", "4096"], true)
        .opening("extend_bytes", "65536");
    fill_and_empty_to_size(&subject, 0..60).unwrap();
}

/// A write over an entry of the same size gives back as much as it takes.
#[test]
fn a_full_store_takes_writes_over_what_is_there() {
    for block_bytes in ["512", "4096"] {
        let environment = Environment::memory();
        let options = OptionValues::from([("size", "256KiB"), ("block_bytes", block_bytes)]);
        let store = stores::create(&Alphard, &environment, &options);
        let mut count = 0u32;
        while store
            .put(&count.to_be_bytes(), &[1; 100], Durability::Written)
            .is_ok()
        {
            count += 1;
        }
        for round in 0..3u8 {
            for number in 0..count {
                store
                    .put(&number.to_be_bytes(), &[round; 100], Durability::Written)
                    .unwrap();
            }
        }
        assert_eq!(entries(&*store).len(), count as usize);
        // Cleaning may have made room for some more, and then there is none.
        let mut more = 0u32;
        let full = loop {
            let key = [&b"new"[..], &more.to_be_bytes()].concat();
            match store.put(&key, &[7; 100], Durability::Written) {
                Ok(_) => more += 1,
                Err(error) => break error,
            }
        };
        assert!(
            full.is_no_space() && more < count / 2,
            "{more} came: {full}"
        );
    }
}

/// Fills a store with small values, each beside a counter that it writes over, until one is
/// refused; answers their number.
fn fill_with_small(store: &dyn Engine) -> u64 {
    (0..)
        .find(|number: &u64| {
            let mut batch = WriteBatch::new();
            batch.put(format!("key{number}").as_bytes(), b"value");
            batch.put(b"counter", &number.to_le_bytes());
            store.write(batch, Durability::Written).is_err()
        })
        .unwrap()
}

/// A pack of the most entries takes few blocks where they are tiny: it is not short, and no walk
/// moves it again.
#[test]
fn a_store_that_fills_moves_an_entry_few_times() {
    for block_bytes in ["512", "4096"] {
        let environment = Environment::memory();
        let options = OptionValues::from([("size", "1MiB"), ("block_bytes", block_bytes)]);
        let store = stores::create(&Alphard, &environment, &options);
        let count = fill_with_small(&*store);
        let moved = number(&*store, "entries_moved");
        assert!(moved < 5 * count, "{moved} moves of {count} entries");
    }
}

/// Writes over small entries of a full store, beside a close: what was answered is there after
/// the next opening.
fn close_beside_writes(seed: u64) -> Result<(), String> {
    let environment = Environment::simulated(&SimulatedDisk::new(seed), seed);
    let options = OptionValues::from([("size", "64KiB"), ("block_bytes", "512")]);
    let store = stores::create(&Alphard, &environment, &options);
    fill_with_small(&*store);
    let writers: Vec<_> = (0..2u64)
        .map(|writer| {
            let store = store.clone();
            thread::spawn(move || {
                let keys = (0..30u64).map(|at| format!("key{}", seed % 7 + 20 * at + writer));
                let put = |key: &String| {
                    let put = store.put(key.as_bytes(), b"other", Durability::Buffered);
                    put.is_ok()
                };
                keys.filter(put).collect::<Vec<_>>()
            })
        })
        .collect();
    for _ in 0..seed % 50 {
        thread::yield_now();
    }
    store.close().unwrap();
    let written = writers.into_iter().map(|writer| writer.join().unwrap());
    let written: Vec<_> = written.flatten().collect();
    drop(store);
    let store = stores::open(&Alphard, &environment, &OptionValues::default());
    for key in written {
        let found = store.get(key.as_bytes()).unwrap();
        if found.as_deref() != Some(b"other") {
            return Err(format!("{key} was written, and is {found:?}"));
        }
    }
    Ok(())
}

/// A write that finds no space lets go of its lock, and the store may be closed meanwhile: the
/// write is refused then.
#[test]
fn a_close_beside_writes_without_space_loses_nothing() {
    for seed in 0..200 {
        let run = scheduler::run(Schedule::random(seed), move || close_beside_writes(seed));
        assert_eq!(run.outcome, Ok(Ok(())), "seed {seed}");
    }
}
