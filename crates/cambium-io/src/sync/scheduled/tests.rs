//! The scheduler finds defects in wrong programs, and none in right ones.

use std::sync::Arc;
use std::time::Duration;

use super::super::schedule::{Schedule, next_script};
use super::atomic::{AtomicU64, Ordering};
use super::scheduler::{self, Run};
use super::{Condvar, Mutex, thread};

/// Runs a program under every interleaving of up to two preemptions.
fn explore(program: fn() -> u64) -> (Vec<Run<u64>>, u64) {
    let (mut runs, mut script) = (Vec::new(), Some(Vec::new()));
    let mut largest = 0;
    while let Some(decisions) = script {
        let run = scheduler::run(Schedule::replay(decisions, 2), program);
        script = next_script(&run.choices);
        largest = largest.max(run.outcome.as_ref().map_or(0, |&answer| answer));
        runs.push(run);
    }
    (runs, largest)
}

fn two_threads(act: fn(&Shared)) -> u64 {
    let shared = Arc::new(Shared::default());
    let threads =
        [shared.clone(), shared.clone()].map(|shared| thread::spawn(move || act(&shared)));
    threads.into_iter().for_each(|thread| _ = thread.join());
    shared.number.load(Ordering::SeqCst)
}

#[derive(Default)]
struct Shared {
    number: AtomicU64,
    first: Mutex<u64>,
    second: Mutex<u64>,
    changed: Condvar,
}

fn lose_an_update(shared: &Shared) {
    let seen = shared.number.load(Ordering::SeqCst);
    shared.number.store(seen + 1, Ordering::SeqCst);
}

fn count_under_a_lock(shared: &Shared) {
    let mut first = shared.first.lock().expect("no panic");
    *first += 1;
    shared.number.store(*first, Ordering::SeqCst);
}

#[test]
fn every_interleaving_finds_a_lost_update_and_only_where_there_is_one() {
    let (runs, _) = explore(|| two_threads(lose_an_update));
    let answers: Vec<u64> = runs
        .into_iter()
        .map(|run| run.outcome.expect("ends"))
        .collect();
    assert!(answers.contains(&1) && answers.contains(&2), "{answers:?}");
    let (runs, _) = explore(|| two_threads(count_under_a_lock));
    assert!(runs.len() > 4);
    assert!(runs.into_iter().all(|run| run.outcome == Ok(2)));
}

#[test]
fn random_schedules_find_a_lost_update_and_repeat_it_from_the_seed() {
    let run = |seed| scheduler::run(Schedule::random(seed), || two_threads(lose_an_update));
    let lost = (0..300).find(|&seed| run(seed).outcome == Ok(1));
    let seed = lost.expect("one of 300 runs loses an update");
    let again: Vec<_> = (0..5)
        .map(|_| (run(seed).outcome, run(seed).points))
        .collect();
    assert!(again.iter().all(|other| *other == again[0]), "{again:?}");
}

/// Two threads that take two locks in different orders.
fn deadlock() -> u64 {
    let shared = Arc::new(Shared::default());
    let other = shared.clone();
    let thread = thread::spawn(move || {
        let _second = other.second.lock();
        let _first = other.first.lock();
    });
    let _first = shared.first.lock();
    let second = shared.second.lock().map(|number| *number);
    drop(_first);
    _ = thread.join();
    second.unwrap_or(0)
}

#[test]
fn a_deadlock_is_named_with_those_who_wait() {
    let (runs, _) = explore(deadlock);
    let failed = runs.iter().find_map(|run| run.outcome.as_ref().err());
    let what = failed.expect("one interleaving has it");
    assert!(
        what.contains("all threads wait") && what.contains("a mutex"),
        "{what}"
    );
    assert!(runs.iter().any(|run| run.outcome.is_ok()));
}

/// A thread waits for a number that another thread sets; a wait with a limit ends too.
fn hand_over() -> u64 {
    let shared = Arc::new(Shared::default());
    let other = shared.clone();
    let thread = thread::spawn(move || {
        *other.first.lock().expect("no panic") = 7;
        other.changed.notify_one();
        thread::park();
    });
    let first = shared.first.lock().expect("no panic");
    let first = shared.changed.wait_while(first, |number| *number == 0);
    let first = first.expect("no panic");
    let limit = Duration::from_secs(3);
    let waited = shared.changed.wait_timeout(first, limit).expect("no panic");
    thread.thread().unpark();
    let seen = *waited.0 + u64::from(waited.1.timed_out());
    drop(waited);
    _ = thread.join();
    seen
}

#[test]
fn waits_end_by_a_notify_by_time_and_by_an_unpark() {
    let (runs, _) = explore(hand_over);
    let ended = |how| runs.iter().any(|run| run.outcome == Ok(how));
    assert!(ended(7) && ended(8), "by the notify, and by the limit");
    assert!(runs.iter().all(|run| run.outcome.is_ok()), "{runs:?}");
}

#[test]
fn a_panic_and_an_endless_loop_end_a_run() {
    let run = scheduler::run(Schedule::random(1), || {
        _ = thread::spawn(|| panic!("as it should")).join();
    });
    assert!(run.outcome.is_err_and(|what| what.contains("as it should")));
    let run = scheduler::run(Schedule::random(1).at_most(1_000), || {
        loop {
            thread::yield_now();
        }
    });
    assert!(
        run.outcome
            .is_err_and(|what: String| what.contains("no end"))
    );
}
