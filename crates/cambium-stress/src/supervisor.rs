//! One store after the other until the time is up or something is violated.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::arguments::Arguments;
use crate::children::Busy;
use crate::random::Random;
use crate::round::{Round, head};

/// What a run has done, for its last line.
#[derive(Debug, Default)]
pub struct Tally {
    pub stores: u64,
    pub sessions: u64,
    pub closes: u64,
    pub kills: u64,
    pub cuts: u64,
    pub faults: u64,
    pub tools: u64,
    pub killed_tools: u64,
    pub backups: u64,
    pub damaged: u64,
    pub operations: u64,
    pub refused: u64,
}

/// Runs until the time is up or something is violated.
pub fn main(arguments: &Arguments) -> ExitCode {
    if arguments.needs_disk() && !Path::new("/dev/fuse").exists() {
        eprintln!("cambium-stress: SKIPPED power cuts and faults: /dev/fuse is missing");
        return ExitCode::SUCCESS;
    }
    let seed = arguments.seed.unwrap_or_else(seed_of_clock);
    eprintln!("cambium-stress: engine {}, seed {seed}", arguments.engine);
    let root = arguments.dir.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("cambium-stress-{}", std::process::id()))
    });
    let until = Instant::now() + Duration::from_secs(arguments.seconds);
    let mut tally = Tally::default();
    let busy = Busy::start(arguments.load);
    let mut number = 0;
    while Instant::now() < until && arguments.rounds.is_none_or(|rounds| number < rounds) {
        let own_seed = match number {
            0 => seed,
            number => Random::part(seed, number).next() >> 20,
        };
        let folder = root.join(format!("{}-{own_seed}", arguments.engine));
        let mut round = Round::new(arguments, folder, own_seed, until, &mut tally);
        if let Err(what) = round.run() {
            round.keep_store();
            eprintln!(
                "cambium-stress: VIOLATION, engine {}: {}",
                arguments.engine,
                head(&what)
            );
            eprintln!("what was done to the store:\n{}", round.history_end());
            eprintln!(
                "kept, with ledger, plan and history: {}",
                round.folder().display()
            );
            eprintln!(
                "again: cambium-stress {} --seed {own_seed}",
                arguments.again()
            );
            return ExitCode::from(1);
        }
        round.remove();
        number += 1;
    }
    drop(busy);
    _ = std::fs::remove_dir(&root);
    println!(
        "cambium-stress: engine {}, seed {seed}: nothing found. {tally:?}",
        arguments.engine
    );
    ExitCode::SUCCESS
}

fn seed_of_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |since| since.as_nanos() as u64 % 1_000_000)
}
