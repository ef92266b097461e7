//! The crash driver: seeded runs, crashed everywhere, compared with the oracle.
//!
//! A run makes a store on a [`SimulatedDisk`] and does random things to it:
//! writes of every durability, syncs, background steps, compactions, snapshots,
//! reopenings, deaths of the process and of the machine. Before and after every
//! sync, and before some other operations, the disk is forked; each fork is
//! crashed in several styles, opened, and compared with the oracle
//! ([`crate::history`]): what is recovered must equal exactly one state between
//! the last that was acknowledged as synced and the last that was sent. Then
//! the recovered store is written to, crashed and opened again: what recovery
//! cut off must not come back. Sometimes the second crash falls into the
//! recovery itself.
//!
//! [`CrashSuite::run_faults`] does the same while operations fail: no error may
//! turn into a panic, a wrong answer or a lost synced write; after a failed
//! sync the store takes no more writes; after a full disk it goes on.
//!
//! Everything follows from a seed. A failure names it, with the command that
//! repeats it:
//!
//! ```text
//! CAMBIUM_SEED=17 cargo test -p cambium-zdb integer_store_survives_crashes
//! ```
//!
//! `CAMBIUM_STATES` sets how many crash images a suite looks at.
//!
//! [`SimulatedDisk`]: cambium_io::simulated::SimulatedDisk

mod driver;
mod exhaustive;
mod faults;
mod followers;
mod image;
mod points;
mod report;

use std::panic::AssertUnwindSafe;

use cambium_api::EngineKind;

pub(crate) use image::{Examiner, Expectation};
pub use report::{CrashReport, FAULTS, Failure, POWER_CUTS};

use crate::broken::Breakage;
use crate::subject::Subject;
use driver::Driver;

/// Runs with crashes, with crashes and failing operations, of every short sequence
/// of actions, or of several threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Crashes,
    Faults,
    Exhaustive,
    /// Several threads under the scheduler, crashed anywhere.
    Threads,
    /// The same while operations fail.
    ThreadFaults,
}

/// Actions that exhaustive runs are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// Of the default namespace.
    Writes,
    /// Of namespaces and named snapshots.
    Names,
}

/// A suite for one engine and one set of options.
///
/// ```
/// use cambium_testkit::{CrashSuite, memory_engine::MemoryKind};
/// let report = CrashSuite::new(&MemoryKind, env!("CARGO_PKG_NAME"), "crash")
///     .states(200)
///     .run();
/// assert!(report.states() >= 200);
/// ```
#[derive(Clone, Debug)]
pub struct CrashSuite {
    pub(crate) subject: Subject,
    package: &'static str,
    test: &'static str,
    seed: u64,
    states: u64,
    pub(crate) actions: u64,
}

/// Reads a number from an environment variable.
pub(crate) fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.replace('_', "").parse().ok()
}

/// True if suites of short sequences leave none out.
pub(crate) fn all_sequences() -> bool {
    std::env::var("CAMBIUM_SEQUENCES").is_ok_and(|which| which == "all")
}

impl CrashSuite {
    /// A suite for an engine with its defaults; `package` and `test` stand in
    /// the command that repeats a failure.
    pub fn new(kind: &'static dyn EngineKind, package: &'static str, test: &'static str) -> Self {
        CrashSuite {
            subject: Subject::new(kind),
            package,
            test,
            seed: number_from("CAMBIUM_SEED").unwrap_or(1),
            states: 3_000,
            actions: 40,
        }
    }

    /// Says that the kind is the value layer above this engine: expiring puts and merges are
    /// among what runs do.
    #[must_use]
    pub fn layer_above(mut self, engine: &'static dyn EngineKind) -> Self {
        self.subject = self.subject.layer_above(engine);
        self
    }

    /// Sets an option that is fixed at creation.
    #[must_use]
    pub fn creation(mut self, name: &str, value: &str) -> Self {
        self.subject = self.subject.creation(name, value);
        self
    }

    /// Sets an option of each opening, creation included.
    #[must_use]
    pub fn opening(mut self, name: &str, value: &str) -> Self {
        self.subject = self.subject.opening(name, value);
        self
    }

    /// Lets each run of threads draw a value of an option that is fixed at creation.
    #[must_use]
    pub fn any_creation(mut self, name: &'static str, values: &'static [&'static str]) -> Self {
        self.subject = self.subject.any(name, values, true);
        self
    }

    /// Lets each session of threads draw a value of an option of opening.
    #[must_use]
    pub fn any_opening(mut self, name: &'static str, values: &'static [&'static str]) -> Self {
        self.subject = self.subject.any(name, values, false);
        self
    }

    /// Gives each disk a block device, for an option of the engine's.
    #[must_use]
    pub fn device(
        mut self,
        option: &str,
        path: &'static str,
        bytes: u64,
        sector_bytes: u32,
    ) -> Self {
        self.subject = self.subject.device(option, path, bytes, sector_bytes);
        self
    }

    /// Puts a file system below the engine that breaks its contract.
    #[must_use]
    pub fn broken(mut self, breakage: Breakage) -> Self {
        self.subject = self.subject.broken(breakage);
        self
    }

    /// Lets no operation of a recovery fail: for an engine kind whose openings are
    /// disturbed already. Where one member of a pair is away and the other fails, two
    /// openings may each write to another one, and no engine can tell which is right.
    #[must_use]
    pub fn without_failing_recoveries(mut self) -> Self {
        self.subject.recoveries_fail = false;
        self
    }

    /// Ends runs with several threads with a store that is filled and emptied: its space
    /// must come back while it is idle.
    #[must_use]
    pub fn frees_space(mut self) -> Self {
        self.subject.frees_space = true;
        self
    }

    /// Focuses three of four runs with several threads: each thread makes a few kinds of
    /// calls on few keys, and the store is crashed at its end alone. Rare windows are met
    /// more often, and few crash images are looked at.
    #[must_use]
    pub fn focused(mut self) -> Self {
        self.subject.focused = true;
        self
    }

    /// How many crash images to look at, unless `CAMBIUM_STATES` says so.
    #[must_use]
    pub fn states(mut self, states: u64) -> Self {
        self.states = states;
        self
    }

    /// Actions a run; 40 unless set.
    #[must_use]
    pub fn actions(mut self, actions: u64) -> Self {
        self.actions = actions;
        self
    }

    /// Crashes everywhere.
    ///
    /// # Panics
    /// At the first state that should not be, with the command that repeats it.
    pub fn run(&self) -> CrashReport {
        self.find(Mode::Crashes, self.bounded())
            .expect("the engine keeps its promises through crashes")
    }

    /// Crashes and failing operations.
    ///
    /// # Panics
    /// As [`CrashSuite::run`].
    pub fn run_faults(&self) -> CrashReport {
        self.find(Mode::Faults, self.bounded())
            .expect("the engine keeps its promises through failing operations")
    }

    /// Every sequence of up to `length` actions out of a small alphabet (puts,
    /// a delete, a batch, sync, compaction, step, reopening), with every crash
    /// point of each. The alphabet has nine letters: 3 is some 800 sequences. Of the
    /// longest every fourth is run, unless `CAMBIUM_SEQUENCES` is `all`.
    ///
    /// # Panics
    /// As [`CrashSuite::run`]; `CAMBIUM_SEED` is the number of the sequence.
    pub fn run_exhaustive(&self, length: u32) -> CrashReport {
        self.every_sequence(Alphabet::Writes, length)
    }

    /// The same of another alphabet: batches across namespaces, named snapshots
    /// that come and go, rollback.
    ///
    /// # Panics
    /// As [`CrashSuite::run_exhaustive`].
    pub fn run_exhaustive_names(&self, length: u32) -> CrashReport {
        self.every_sequence(Alphabet::Names, length)
    }

    fn every_sequence(&self, alphabet: Alphabet, length: u32) -> CrashReport {
        let first = number_from("CAMBIUM_SEED").unwrap_or(0);
        self.find_exhaustively(alphabet, first, length)
            .expect("the engine keeps its promises through every short sequence")
    }

    fn find_exhaustively(
        &self,
        alphabet: Alphabet,
        first: u64,
        length: u32,
    ) -> Result<CrashReport, Failure> {
        let mut report = CrashReport::default();
        for number in exhaustive::numbers(first, length, all_sequences()) {
            let script = |capabilities: &_| exhaustive::sequence(number, alphabet, capabilities);
            let run = AssertUnwindSafe(|| Driver::run_script(self, number, script, &mut report));
            guarded(run).map_err(|what| self.failure(Mode::Exhaustive, number, what))?;
        }
        Ok(report)
    }

    fn bounded(&self) -> u64 {
        number_from("CAMBIUM_STATES").unwrap_or(self.states)
    }

    /// Several threads at once, interleaved by a scheduler at every lock and file
    /// operation, with crashes anywhere; see [`crate::threads`].
    ///
    /// # Panics
    /// As [`CrashSuite::run`].
    pub fn run_threads(&self) -> CrashReport {
        self.find(Mode::Threads, self.bounded())
            .expect("the engine keeps its promises to several threads")
    }

    /// The same while operations fail.
    ///
    /// # Panics
    /// As [`CrashSuite::run`].
    pub fn run_threads_with_faults(&self) -> CrashReport {
        self.find(Mode::ThreadFaults, self.bounded())
            .expect("the engine keeps its promises to several threads while operations fail")
    }

    /// Short programs of two or three threads, each under at most `most` interleavings,
    /// of up to two preemptions; answers how many there were.
    ///
    /// # Panics
    /// At the first answer that no order of the calls explains.
    pub fn run_short_programs(&self, most: u64) -> u64 {
        self.explore(most)
            .expect("the engine keeps its promises to short programs")
    }

    /// As [`CrashSuite::run_short_programs`], for tests of the suite itself.
    pub fn find_failure_in_short_programs(&self, most: u64) -> Option<Failure> {
        self.explore(most).err()
    }

    fn explore(&self, most: u64) -> Result<u64, Failure> {
        let explored = crate::threads::explore(&self.subject, most);
        explored.map_err(|what| self.failure(Mode::Threads, 0, what))
    }

    /// As [`CrashSuite::find_failure`], among several threads.
    pub fn find_failure_among_threads(&self) -> Option<Failure> {
        [Mode::Threads, Mode::ThreadFaults]
            .into_iter()
            .find_map(|mode| self.find(mode, self.states).err())
    }

    /// As [`CrashSuite::find_failure`], among several threads and failing operations alone.
    pub fn find_failure_among_threads_with_faults(&self) -> Option<Failure> {
        self.find(Mode::ThreadFaults, self.states).err()
    }

    /// Looks for a failure, in crashes first, then among faults, in at most
    /// the set number of states each: for tests of the suite itself.
    pub fn find_failure(&self) -> Option<Failure> {
        [Mode::Crashes, Mode::Faults]
            .into_iter()
            .find_map(|mode| self.find(mode, self.states).err())
    }

    fn find(&self, mode: Mode, states: u64) -> Result<CrashReport, Failure> {
        let mut report = CrashReport::default();
        let mut seed = self.seed;
        while report.states() < states {
            let before = report.states();
            self.run_one(mode, seed, &mut report)?;
            // A run that reaches no state would go on for ever.
            if report.states() == before && report.runs() > 1_000 {
                return Err(self.failure(mode, seed, "1,000 runs reached no state".to_string()));
            }
            seed = seed.wrapping_add(1);
        }
        Ok(report)
    }

    fn run_one(&self, mode: Mode, seed: u64, report: &mut CrashReport) -> Result<(), Failure> {
        let run = AssertUnwindSafe(|| match mode {
            Mode::Threads | Mode::ThreadFaults => {
                let faults = mode == Mode::ThreadFaults;
                crate::threads::run(&self.subject, self.actions, faults, seed, report)
            }
            _ => Driver::run(self, mode, seed, report),
        });
        guarded(run).map_err(|what| self.failure(mode, seed, what))
    }

    fn failure(&self, mode: Mode, seed: u64, what: String) -> Failure {
        Failure {
            seed,
            what,
            command: format!(
                "CAMBIUM_SEED={seed} cargo test -p {} {}",
                self.package, self.test
            ),
            subject: format!("{:?}, {mode:?}", self.subject),
        }
    }
}

/// Runs something of an engine's; a panic becomes what it said.
pub(crate) fn guarded(
    run: impl FnOnce() -> Result<(), String> + std::panic::UnwindSafe,
) -> Result<(), String> {
    std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        Err(format!("a panic: {}", text.unwrap_or_default()))
    })
}
