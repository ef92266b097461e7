//! Parts that threads share without a lock of their own, under every interleaving of
//! a few preemptions.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use cambium_io::cache::BlockCache;
use cambium_io::step::{Owner, StepOutcome};
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use cambium_io::sync::{Mutex, scheduler, thread};
use cambium_io::{Crew, ThreadExecutor};

/// Interleavings of one program that a test looks at, at most.
const MOST: u64 = 20_000;

#[test]
fn a_cache_never_keeps_what_was_read_before_a_change() {
    let count = scheduler::explore(3, MOST, || {
        let file = Arc::new(BlockCache::new(1 << 16).file());
        // The content of block 7 in the file.
        let stored = Arc::new(AtomicU64::new(1));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (file, stored) = (file.clone(), stored.clone());
                thread::spawn(move || {
                    if let Some(Err(moment)) = file.look(7) {
                        let bytes = stored.load(Ordering::SeqCst).to_le_bytes();
                        file.offer(7, &bytes[..].into(), moment);
                    }
                })
            })
            .collect();
        stored.store(2, Ordering::SeqCst);
        file.remove(7);
        let seen = file.look(7).and_then(Result::ok);
        assert!(seen.is_none_or(|block| block[..] == 2u64.to_le_bytes()));
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
        let seen = file.look(7).and_then(Result::ok);
        assert!(seen.is_none_or(|block| block[..] == 2u64.to_le_bytes()));
    });
    assert!(count > 100, "{count}");
}

#[test]
fn the_last_owner_of_a_store_outlasts_every_step() {
    struct Store {
        dropped: Arc<AtomicBool>,
        steps: AtomicU64,
    }
    impl Drop for Store {
        fn drop(&mut self) {
            self.dropped.store(true, Ordering::SeqCst);
        }
    }
    let count = scheduler::explore(3, MOST, || {
        let dropped = Arc::new(AtomicBool::new(false));
        let owner = Owner::new(Arc::new(Store {
            dropped: dropped.clone(),
            steps: AtomicU64::new(0),
        }));
        let mut task = owner.task(|store: &Arc<Store>| {
            store.steps.fetch_add(1, Ordering::SeqCst);
            assert!(!store.dropped.load(Ordering::SeqCst));
            StepOutcome::Idle
        });
        let stepper = thread::spawn(move || {
            while task() != StepOutcome::Done {
                thread::yield_now();
            }
        });
        let other = owner.clone();
        let user = thread::spawn(move || drop(other));
        user.join().unwrap();
        drop(owner);
        assert!(dropped.load(Ordering::SeqCst), "the store is gone");
        stepper.join().unwrap();
    });
    assert!(count > 50, "{count}");
}

#[test]
fn a_crew_does_every_job_once() {
    let count = scheduler::explore(2, MOST, || {
        let done = Arc::new(Mutex::new(Vec::new()));
        let place = done.clone();
        let crew = Crew::new(&ThreadExecutor, "test", 2, move |job: u64| {
            place.lock().unwrap().push(job);
            job
        });
        (0..3).for_each(|job| crew.add(job));
        let mut outcomes = Vec::new();
        while let Some(outcome) = crew.next().unwrap() {
            outcomes.push(outcome);
        }
        drop(crew);
        outcomes.sort_unstable();
        done.lock().unwrap().sort_unstable();
        assert_eq!(
            (&outcomes[..], &done.lock().unwrap()[..]),
            (&[0, 1, 2][..], &[0, 1, 2][..])
        );
    });
    assert!(count > 100, "{count}");
}
