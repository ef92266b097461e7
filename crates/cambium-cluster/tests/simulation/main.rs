//! A chain of nodes, etcd and clients in one thread, under faults that a seed decides.
//!
//! Nodes are killed and started again, paused for longer than their leases, and cut off from
//! each other and from etcd, also one way only. Every history of clients is held against
//! linearizability; at the end all faults are mended, and all nodes must hold the same.
//!
//! `CAMBIUM_SEED=N` runs one seed, `CAMBIUM_STATES=N` a hundredth as many: a seed is some
//! thousand steps.
#![allow(missing_docs, clippy::unwrap_used)] // a test that cannot go on has failed

mod etcd;
mod node;
mod world;

use world::{Bug, World};

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What the seeds up to a bound find; `None` if nothing.
fn run(bug: Option<Bug>, seeds: std::ops::Range<u64>) -> Option<String> {
    for seed in seeds {
        if let Err(failure) = World::new(seed, bug).run() {
            return Some(format!("CAMBIUM_SEED={seed}: {failure}"));
        }
    }
    None
}

#[test]
fn histories_are_linearizable_and_all_copies_end_the_same() {
    let seeds = match number_from("CAMBIUM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number_from("CAMBIUM_STATES").map_or(100, |states| states.div_ceil(100)),
    };
    assert_eq!(run(None, seeds), None);
}

/// Nothing fails, and heads change by command alone: what an `async` head has answered stays.
#[test]
fn planned_changes_of_a_head_lose_nothing() {
    let seeds = number_from("CAMBIUM_STATES").map_or(20, |states| states.div_ceil(300));
    for seed in 1..=seeds {
        let outcome = World::planned(seed).run();
        assert_eq!(outcome, Ok(()), "seed {seed}");
    }
}

/// Bugs that others had are found by the same runs; in two halves, side by side.
fn find_bugs(first: usize) {
    for &bug in Bug::ALL.iter().skip(first).step_by(2) {
        let found = run(Some(bug), 1..3_000);
        assert!(found.is_some(), "{bug:?} was not found");
        println!("{bug:?}: {}", found.unwrap());
    }
}

#[test]
fn seeded_bugs_are_found() {
    find_bugs(0);
}

#[test]
fn the_other_seeded_bugs_are_found() {
    find_bugs(1);
}
