//! The commit queue under every interleaving of a few preemptions.

use std::sync::Arc;

use cambium_io::sync::{Mutex, scheduler, thread};
use cambium_storage::commit_queue::CommitQueue;
use cambium_storage::health::Health;

/// Interleavings of one program that a test looks at, at most.
const MOST: u64 = 10_000;

fn submit(patient: bool) -> u64 {
    scheduler::explore(2, MOST, move || {
        let queue = Arc::new(CommitQueue::<u64, u64>::default());
        let led = Arc::new(Mutex::new(Vec::<u64>::new()));
        let health = Arc::new(Health::default());
        let threads: Vec<_> = (0..3u64)
            .map(|number| {
                let (queue, health, led) = (queue.clone(), health.clone(), led.clone());
                thread::spawn(move || {
                    let answer = queue.submit(&health, number, patient, |group| {
                        led.lock().unwrap().extend(&group);
                        group.into_iter().map(|request| request * 2).collect()
                    });
                    assert_eq!(answer.unwrap(), number * 2);
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let mut led = led.lock().unwrap();
        led.sort_unstable();
        assert_eq!(led[..], [0, 1, 2], "each request is done once");
    })
}

#[test]
fn every_request_is_led_once_and_has_its_own_answer() {
    assert!(submit(false) > 1_000);
}

#[test]
fn a_leader_that_waits_for_others_goes_ahead() {
    assert!(submit(true) > 1_000);
}
