//! One store after the other until the time is up or something is violated.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::arguments::Arguments;
use crate::children::{Busy, head};
use crate::random::Random;
use crate::round::Round;

/// Counts of a run, for its last line.
#[derive(Debug, Default)]
pub struct Tally {
    pub stores: u64,
    pub sessions: u64,
    /// Sessions of puts and gets alone.
    pub plain: u64,
    pub closes: u64,
    pub kills: u64,
    pub cuts: u64,
    pub faults: u64,
    pub tools: u64,
    pub killed_tools: u64,
    pub locked: u64,
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
    if let Some(name) = &arguments.file_system
        && let Err(error) = Command::new(format!("mkfs.{name}")).arg("-V").output()
    {
        eprintln!("cambium-stress: SKIPPED power cuts of {name}: mkfs.{name}: {error}");
        return ExitCode::SUCCESS;
    }
    if arguments.needs_disk() && std::env::var_os(OWN_MOUNTS).is_none() {
        return with_own_mounts();
    }
    let seed = arguments.seed.unwrap_or_else(seed_of_clock);
    let engine = &arguments.engine;
    eprintln!("cambium-stress: engine {engine}, seed {seed}");
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
        let folder = root.join(format!("{engine}-{own_seed}"));
        let mut round = Round::new(arguments, folder, own_seed, until, &mut tally);
        if let Err(what) = round.run() {
            round.keep_store();
            eprintln!(
                "cambium-stress: VIOLATION, engine {engine}: {}\nwhat was done to the store:\n{}\n\
                 kept, with ledger, plan and history: {}\n\
                 again: cambium-stress {} --seed {own_seed}",
                head(&what),
                round.history_end(),
                round.folder().display(),
                arguments.again()
            );
            println!("cambium-stress: engine {engine}, seed {seed}: a violation. {tally:?}");
            return ExitCode::from(1);
        }
        round.remove();
        number += 1;
    }
    drop(busy);
    _ = std::fs::remove_dir(&root);
    println!("cambium-stress: engine {engine}, seed {seed}: nothing found. {tally:?}");
    ExitCode::SUCCESS
}

/// Set in a process that has mounts of its own.
const OWN_MOUNTS: &str = "CAMBIUM_STRESS_OWN_MOUNTS";

/// Begins again with mounts of its own: no copy in another process keeps a disk in use, and
/// they end with the process.
fn with_own_mounts() -> ExitCode {
    let mut command = Command::new("unshare");
    command
        .arg("--mount")
        .args(std::env::args_os())
        .env(OWN_MOUNTS, "1");
    eprintln!("cambium-stress: unshare: {}", command.exec());
    ExitCode::from(2)
}

fn seed_of_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |since| since.as_nanos() as u64 % 1_000_000)
}
