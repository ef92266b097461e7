//! Short programs of two or three threads, under every interleaving of up to two
//! preemptions.
//!
//! A random schedule finds a window of a few instructions by luck; these find it by
//! going through all. Each program is made of calls on two keys of a small store, so
//! in which the caches, views and queues of the store meet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cambium_api::{Engine, Error};
use cambium_io::sync::schedule::{Schedule, next_script};
use cambium_io::sync::{scheduler, thread};

use super::actor::{Actor, Record, Stop};
use super::judge::Order;
use super::session::Played;
use crate::history::History;
use crate::holding::collect_all;
use crate::subject::Subject;

/// One call of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Put,
    Batch,
    Neighbors,
    CompareAndWrite,
    Get,
    MultiGet,
    Scan,
    Snapshot,
    Sync,
    Range,
    Step,
    Compact,
}

use Call::{
    Batch, Compact, CompareAndWrite, Get, MultiGet, Neighbors, Put, Scan, Snapshot, Step,
    Sync as Raise,
};

/// Each a program: the calls of its threads.
const PROGRAMS: &[&[&[Call]]] = &[
    &[&[Neighbors], &[Get, Get], &[Get, Get, Get, Get]],
    &[&[Put], &[Get, Get]],
    &[&[Put, Get], &[Put, Get]],
    &[&[Batch], &[MultiGet], &[MultiGet]],
    &[&[Batch], &[Get, Get, MultiGet]],
    &[&[CompareAndWrite], &[CompareAndWrite], &[Get]],
    &[&[Put, Put], &[Step, Step], &[Get, Get]],
    &[&[Put, Get], &[Compact], &[Get]],
    &[&[Batch], &[Compact], &[MultiGet]],
    &[&[Batch, Put], &[Snapshot], &[Step]],
    &[&[Batch], &[Scan], &[Compact]],
    &[&[Put, Raise], &[Put], &[Step]],
];

/// Programs on a store that was just opened, so that nothing is in memory.
const COLD_PROGRAMS: &[&[&[Call]]] = &[
    &[&[Get], &[Put, Compact, Put, Compact]],
    &[&[MultiGet], &[Batch, Step, Step]],
];

/// Values small enough for every cache.
const SIZES: [u64; 2] = [0, 60];
/// Keys that the programs use.
const KEYS: u64 = 2;
const MOST_PREEMPTIONS: usize = 2;

/// Goes through at most `most` interleavings of each program; answers how many there
/// were in all.
///
/// # Errors
/// The first interleaving that fails, with its program and decisions.
pub(crate) fn explore(subject: &Subject, most: u64) -> Result<u64, String> {
    let warm = PROGRAMS.iter().map(|program| (*program, false));
    let cold = COLD_PROGRAMS.iter().map(|program| (*program, true));
    let mut total = 0;
    for (program, cold) in cold.chain(warm) {
        let mut count = 0;
        // Most defects need few preemptions, so interleavings with one come first.
        for preemptions in 1..=MOST_PREEMPTIONS {
            let mut script = Some(Vec::new());
            while let Some(decisions) = script.take().filter(|_| count < most) {
                let schedule = Schedule::replay(decisions.clone(), preemptions);
                let subject = subject.clone();
                let run = scheduler::run(schedule, move || play(&subject, program, cold));
                let played = run.outcome.and_then(|outcome| outcome);
                played.map_err(|what| {
                    format!("program {program:?}, decisions {decisions:?}: {what}")
                })?;
                count += 1;
                script = next_script(&run.choices);
            }
        }
        total += count;
    }
    Ok(total)
}

/// Makes a store with a few entries, runs the program on it, and checks what it saw.
fn play(subject: &Subject, program: &'static [&'static [Call]], cold: bool) -> Result<(), String> {
    let disk = subject.disk(1);
    let environment = subject.environment(&disk, 1);
    let failed = |error: Error| error.to_string();
    let mut store = subject.create(&environment).map_err(failed)?;
    let clock = Arc::new(AtomicU64::new(1));
    let actor = |store: &Arc<dyn Engine>, number: usize| {
        let (number, clock) = (number as u64 + 1, clock.clone());
        Actor::new(store.clone(), clock, number, number, &SIZES).with_keys(KEYS)
    };
    let capabilities = store.capabilities();
    let empty = collect_all(&*store, &capabilities).map_err(failed)?;
    let mut records = vec![perform(
        actor(&store, program.len()),
        &[Put, Put, Put, Raise],
    )?];
    if cold {
        store.close().map_err(failed)?;
        store = subject.open(&environment).map_err(failed)?;
    }
    let threads: Vec<_> = program
        .iter()
        .enumerate()
        .map(|(number, calls)| {
            let actor = actor(&store, number);
            thread::spawn(move || perform(actor, calls))
        })
        .collect();
    for thread in threads {
        records.push(
            thread
                .join()
                .unwrap_or_else(|_| Err("a panic".to_string()))?,
        );
    }
    let last = actor(&store, program.len() + 1);
    records.push(perform(last, &[MultiGet, Snapshot])?);
    store.close().map_err(failed)?;
    let played = Played {
        keys: capabilities.keys,
        found: empty,
        records,
        followed: None,
        ended: clock.load(Ordering::SeqCst),
        points: Vec::new(),
        failed: false,
    };
    Order::new(History::new(), &played).check_linearizable(&played)
}

fn perform(mut actor: Actor, calls: &[Call]) -> Result<Record, String> {
    for &call in calls {
        match actor.call(call) {
            Ok(()) | Err(Stop::Refused(Error::Unsupported { .. })) => {}
            Err(stop) => return Err(format!("{call:?}: {stop:?}")),
        }
    }
    Ok(actor.record)
}
