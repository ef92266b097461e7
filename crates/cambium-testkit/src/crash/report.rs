//! What a suite answers.

use std::collections::BTreeMap;
use std::fmt;

use cambium_io::simulated::{Event, SimulatedDisk};

/// What a suite has looked at.
#[derive(Clone, Debug, Default)]
pub struct CrashReport {
    pub(crate) counts: BTreeMap<&'static str, u64>,
    events: BTreeMap<Event, u64>,
}

/// Everything that a power cut can do to files: a long enough run of crashes
/// has met each.
pub const POWER_CUTS: [Event; 11] = [
    Event::CrashNothingUnsynced,
    Event::CrashEverything,
    Event::CrashPrefix,
    Event::CrashSectors,
    Event::CrashLengthsWithoutData,
    Event::CrashDataWithoutLengths,
    Event::CrashNames,
    Event::TornWrite,
    Event::WriteLost,
    Event::NameLost,
    Event::ProcessCrash,
];

/// Everything that a failing operation can do.
pub const FAULTS: [Event; 5] = [
    Event::DiskFull,
    Event::PartialWrite,
    Event::SyncDroppedPages,
    Event::SyncKeptPages,
    Event::ErrorInjected,
];

impl CrashReport {
    /// # Panics
    /// If one of `events` never happened: then the run has not tested it.
    pub fn met(&self, events: &[Event]) {
        for &event in events {
            assert!(self.event(event) > 0, "{event:?} was never met");
        }
    }

    /// # Panics
    /// If these are not the runs of all sequences of up to three actions, with some 12
    /// states each; see [`crate::crash::CrashSuite::run_exhaustive`].
    pub fn met_three_actions(&self) {
        let longest = if super::all_sequences() { 729 } else { 183 };
        assert_eq!(self.runs(), 9 + 81 + longest);
        assert!(self.states() > 10_000 * self.runs() / 819, "{self:?}");
    }

    /// # Panics
    /// If the runs made or dropped no namespace, kept no state or went back to none.
    pub fn met_names(&self) {
        for name in [
            "namespaces made",
            "namespaces dropped",
            "states kept",
            "states let go",
            "rollbacks",
        ] {
            assert!(self.count(name) > 0, "no {name}: {self:?}");
        }
    }

    pub(crate) fn add(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    pub(crate) fn add_events(&mut self, disk: &SimulatedDisk) {
        for &event in Event::ALL {
            *self.events.entry(event).or_default() += disk.event_count(event);
        }
    }

    /// How often something was done: `runs`, `states`, `recovered twice`,
    /// `crashed in recovery`, `process crashes`, `poisoned`, `refused for
    /// space` and so on.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Crash images opened and compared.
    pub fn states(&self) -> u64 {
        self.count("states")
    }

    /// Runs begun.
    pub fn runs(&self) -> u64 {
        self.count("runs")
    }

    /// How often something happened to the disks.
    pub fn event(&self, event: Event) -> u64 {
        self.events.get(&event).copied().unwrap_or(0)
    }
}

/// A state that should not be, and how to see it again.
#[derive(Clone)]
pub struct Failure {
    pub(crate) seed: u64,
    pub(crate) what: String,
    pub(crate) command: String,
    pub(crate) subject: String,
}

impl Failure {
    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What was found and expected.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {}\n  engine: {}\n  again:  {}",
            self.seed, self.what, self.subject, self.command
        )
    }
}

/// As `Display`: this is what a failed `expect` prints.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
