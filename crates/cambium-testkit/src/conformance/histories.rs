//! Histories of concurrent operations, recorded and checked for linearizability.
//!
//! Actors ([`crate::threads`]) use few keys on real threads, while another thread does
//! background work and compacts.
//! `CAMBIUM_HISTORY` says how many operations each thread does, 300 unless set.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cambium_api::{CompactOptions, Error};

use super::{Bench, Case, OrFail, Outcome};
use crate::crash::number_from;
use crate::linearizability::{Operation, check};
use crate::threads::Actor;

pub(super) const CASES: &[Case] = &[(
    "concurrent operations happen at once, in the order of their numbers",
    concurrent_operations,
)];

const THREADS: u64 = 4;
/// Values up to these many bytes: one of twenty is large.
const SIZES: [u64; 20] = {
    let mut sizes = [112; 20];
    sizes[0] = 3_000;
    sizes
};

/// Background work and compactions, until everybody is done.
fn upkeep(bench: &Bench, done: &AtomicBool) -> Outcome {
    let mut rounds = 0u64;
    while !done.load(Ordering::Acquire) {
        bench.store.step(1 << 16).or_fail("step")?;
        rounds += 1;
        if rounds % 64 == 0 {
            let options = CompactOptions::default();
            match bench.store.compact(&options, &()) {
                Ok(_) | Err(Error::Unsupported { .. }) => {}
                Err(error) => return Err(format!("compact: {error}")),
            }
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn concurrent_operations(bench: &Bench) -> Outcome {
    let count = number_from("CAMBIUM_HISTORY").unwrap_or(300);
    let clock = Arc::new(AtomicU64::new(1));
    let done = AtomicBool::new(false);
    let act = &|thread: u64| -> Result<Vec<Operation>, String> {
        let (store, clock) = (bench.store.clone(), clock.clone());
        let mut actor = Actor::new(store, clock, thread, thread, &SIZES);
        for _ in 0..count {
            actor.act().map_err(|stop| format!("{stop:?}"))?;
        }
        Ok(actor.record.operations)
    };
    let (histories, background) = std::thread::scope(|scope| {
        let background = scope.spawn(|| upkeep(bench, &done));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || act(thread + 1)))
            .collect();
        let histories: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::Release);
        (histories, background.join())
    });
    let panicked = |_| "a thread panicked".to_string();
    background.map_err(panicked)??;
    let mut history = Vec::new();
    for operations in histories {
        let operations: Result<Vec<_>, String> = operations.map_err(panicked)?;
        history.extend(operations?);
    }
    check(&history)
}
