//! Several writers beside followers, background work and compactions.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cambium_api::{
    ChangeFeed, Durability, Engine, EngineKind, OptionValues, SequenceNumber, WriteBatch,
};
use cambium_forest::Forest;
use cambium_io::Environment;

use super::support::{Model, PATH, TINY, apply, compact, contents, drain, feed};

const WRITERS: u64 = 4;
const BATCHES: u64 = 300;

/// Batches of three keys with the same value, and now and then one that deletes them.
fn write(store: &dyn Engine, writer: u64) {
    for round in 0..BATCHES {
        let mut batch = WriteBatch::new();
        for part in 0..3u64 {
            let key = [writer, round % 40, part].map(|number| number as u8);
            match round % 7 {
                6 => batch.delete(key),
                _ => batch.put(key, vec![round as u8; 200]),
            };
        }
        let durability = match round % 10 {
            0 => Durability::Synced,
            1..=4 => Durability::Written,
            _ => Durability::Buffered,
        };
        store.write(batch, durability).unwrap();
    }
}

/// Reads until the writers are done; each batch has its three keys.
fn read(feed: &mut dyn ChangeFeed, done: &AtomicBool, into: &mut Model) -> u64 {
    let mut count = 0;
    loop {
        let was_done = done.load(Ordering::SeqCst);
        for batch in drain(feed) {
            assert_eq!(batch.changes.len(), 3);
            assert_eq!(batch.last.0 - batch.first.0, 2);
            count += 1;
            apply(&batch, into);
        }
        if was_done {
            return count;
        }
        std::thread::yield_now();
    }
}

fn run(options: &OptionValues) {
    let environment = Environment {
        executor: Environment::real().executor,
        ..Environment::memory()
    };
    let store: Arc<dyn Engine> = Forest
        .create(&environment, Path::new(PATH), options)
        .unwrap();
    store
        .move_consumer("late", Some(SequenceNumber(0)))
        .unwrap();
    let done = AtomicBool::new(false);
    let mut followed = Model::new();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&mut *feed(&*store, 0), &done, &mut followed));
        let compacting = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                compact(&*store);
            }
        });
        let writing: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let store = store.clone();
                scope.spawn(move || write(&*store, writer))
            })
            .collect();
        writing.into_iter().for_each(|one| one.join().unwrap());
        done.store(true, Ordering::SeqCst);
        compacting.join().unwrap();
        assert_eq!(reading.join().unwrap(), WRITERS * BATCHES);
    });
    assert_eq!(followed, contents(&*store));
    let mut late = Model::new();
    let again = read(&mut *feed(&*store, 0), &done, &mut late);
    assert_eq!((again, late), (WRITERS * BATCHES, followed));
    store.close().unwrap();
}

#[test]
fn followers_see_every_batch_of_several_writers_through_compactions() {
    run(&OptionValues::default());
    run(&OptionValues::from(TINY));
}
