//! Damage: every file of a small store cut at every byte, every byte flipped,
//! every file gone, stretches of it zeroed.
//!
//! Each damaged store must keep these promises:
//!
//! - Nothing panics or runs on for ever, and no length in the damage makes memory run out.
//! - Nothing is answered that was never written: a value is one its key had.
//! - What reads without any error is a state the store was in; if it is not the
//!   last one, that is a legal prefix.
//! - Reading without an error and without being a state is allowed only where
//!   `check` says that there is damage.
//!
//! A strict suite ([`DamageSuite::strict`]) damages four stores: one that was closed,
//! and three whose process died, after a sync, some writes later, or in its first
//! session. It flips bits, cuts files, zeroes sectors of 512 and 4,096 bytes, makes
//! sectors unreadable, and takes files away. Then:
//!
//! - Each answer is right, or `check` of the closed store finds damage. `check`
//!   finds whatever opening or reading complains about.
//! - No write that was synced is gone without a finding, except where a power cut
//!   before its sync leaves the same bytes; the suite compares the damaged store
//!   with what such power cuts leave. If a sector was half written, `check` has a
//!   note.
//! - A store that lacks a redundant file ([`DamageSuite::redundant`]) opens with
//!   everything, also after an opening that was killed or lost power.
//! - Compacting and closing a damaged store loses nothing that could be read.
//! - A repair keeps everything that could be read and says so if anything is lost.
//!   It can be killed, lose power or meet a failing operation anywhere: another
//!   repair then has the result of the first.

mod betrayal;
mod harm;
mod observe;
mod repair;
mod strict;
mod victim;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use cambium_api::EngineKind;

use crate::crash::guarded;
use crate::patience::watched;
use crate::subject::{Repair, Subject, repair_and_lose};
use harm::{Harm, harms, strict_harms};
use victim::{Fashion, Victim};

/// The suite for one engine and one set of options.
///
/// ```
/// use cambium_testkit::{DamageSuite, memory_engine::MemoryKind};
/// let report = DamageSuite::new(&MemoryKind).stride(7).run();
/// assert!(report.detected > 0);
/// ```
#[derive(Clone, Debug)]
pub struct DamageSuite {
    subject: Subject,
    stride: usize,
    writes: u64,
    strict: bool,
    /// Files of which others hold all that they do, by the beginnings of their names.
    redundant: &'static [&'static str],
}

/// Counts of the stores that the suite has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamageReport {
    /// Damaged stores opened and read.
    pub cases: u64,
    /// Those in which opening, reading or checking said so.
    pub detected: u64,
    /// Those that read as the last state, without an error: the damage lay in
    /// what is not needed.
    pub harmless: u64,
    /// Those that read as an earlier state.
    pub prefix: u64,
    /// Those that read as no state there was, each value being one its key
    /// had: only where a device betrayed.
    pub mixed: u64,
    /// Repairs that lost nothing.
    pub mended: u64,
    /// Repairs that lost something and said so.
    pub lossy: u64,
    /// Repairs that answered an error and made nothing worse.
    pub refused: u64,
    /// Repairs that were interrupted and run again.
    pub interrupted: u64,
}

impl DamageSuite {
    /// The suite for an engine with its defaults.
    pub fn new(kind: &'static dyn EngineKind) -> Self {
        DamageSuite {
            subject: Subject::new(kind),
            stride: 1,
            writes: 25,
            strict: false,
            redundant: &[],
        }
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

    /// Looks only at every n-th byte, unless `CAMBIUM_STRIDE` says how far apart.
    #[must_use]
    pub fn stride(mut self, stride: usize) -> Self {
        self.stride = stride.max(1);
        self
    }

    /// Damages more stores in more ways, accepts no loss without a finding, and
    /// repairs some of the damaged stores.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Names files, by the beginnings of their names, whose content lies elsewhere too: in
    /// a strict suite a store without one of them opens with everything, also after an
    /// opening that was killed, and a repair keeps everything.
    #[must_use]
    pub fn redundant(mut self, names: &'static [&'static str]) -> Self {
        self.redundant = names;
        self
    }

    /// Takes repairs in place of the engine's own, such as those with a seeded bug.
    #[must_use]
    pub fn repairs(mut self, repair: Repair) -> Self {
        self.subject.repair = repair;
        self
    }

    /// Has each repair lose an entry more than it says: for tests of the suite.
    #[must_use]
    pub fn lossy_repairs(self) -> Self {
        self.repairs(repair_and_lose).strict()
    }

    /// Damages stores that were closed and stores that were not.
    ///
    /// # Panics
    /// If anything does not hold, naming file and offset.
    pub fn run(&self) -> DamageReport {
        let outcome = self.damage_all(MOST_FAILURES);
        // Print one failure a line: `expect` would escape the ends of lines.
        let what = outcome.as_ref().err().map_or("", String::as_str);
        assert!(outcome.is_ok(), "damage was not found, or spread:\n{what}");
        outcome.unwrap_or_default()
    }

    /// Runs on devices that betray: syncs that lie, writes that are lost or
    /// land elsewhere; then crashes and reads. Writes may be gone, old values
    /// may show; what was never written, and a panic, may not.
    ///
    /// # Panics
    /// If anything does not hold, naming the seed.
    pub fn run_betrayed(&self, runs: u64) -> DamageReport {
        let suite = self.clone();
        let outcome = watched(move |announcer| {
            let mut report = DamageReport::default();
            for seed in 0..runs {
                announcer.next(format!("seed {seed}"));
                let run = AssertUnwindSafe(|| suite.betray(seed, &mut report));
                guarded(run).map_err(|what| format!("seed {seed}: {what}"))?;
            }
            Ok(report)
        });
        outcome.expect("no value is read that was never written")
    }

    /// The first thing that does not hold, if any: for tests of the suite.
    pub fn find_failure(&self) -> Option<String> {
        self.damage_all(1).err()
    }

    fn damage_all(&self, most: usize) -> Result<DamageReport, String> {
        let suite = self.clone();
        watched(move |announcer| {
            let mut report = DamageReport::default();
            let mut failures = Failures::new(most);
            for &fashion in suite.fashions() {
                announcer.next(format!("making a store that is {fashion:?}"));
                let victim = Victim::make(&suite.subject, suite.writes, fashion)?;
                for harm in suite.harms(&victim) {
                    let case = format!("{fashion:?}, {harm:?}");
                    announcer.next(case.clone());
                    let run = AssertUnwindSafe(|| suite.judge_one(&victim, &harm, &mut report));
                    if let Err(what) = guarded(run) {
                        failures.add(&case, &what)?;
                    }
                }
            }
            failures.none().map(|()| report)
        })
    }

    fn fashions(&self) -> &'static [Fashion] {
        match self.strict {
            true => &Fashion::ALL,
            false => &[Fashion::Closed, Fashion::Killed],
        }
    }

    fn harms(&self, victim: &Victim) -> Vec<Harm> {
        match self.strict {
            true => strict_harms(&victim.disk, self.stride),
            false => harms(&victim.disk, self.stride),
        }
    }

    fn judge_one(
        &self,
        victim: &Victim,
        harm: &Harm,
        report: &mut DamageReport,
    ) -> Result<(), String> {
        match self.strict {
            true => self.judge(victim, harm, report),
            false => self.judge_leniently(victim, harm, report),
        }
    }
}

/// Failures that differ in more than numbers; the first of each kind.
struct Failures {
    kinds: BTreeMap<String, String>,
    most: usize,
}

/// Letters by which kinds of failures are told apart.
const KIND_LETTERS: usize = 50;
/// Kinds of failures that a suite reports.
const MOST_FAILURES: usize = 12;

impl Failures {
    /// None yet; so many kinds end the suite.
    fn new(most: usize) -> Self {
        Failures {
            kinds: BTreeMap::new(),
            most,
        }
    }

    fn add(&mut self, case: &str, what: &str) -> Result<(), String> {
        let kind = what.chars().filter(|letter| !letter.is_ascii_digit());
        self.kinds
            .entry(kind.take(KIND_LETTERS).collect())
            .or_insert_with(|| format!("{case}: {what}"));
        match self.kinds.len() < self.most {
            true => Ok(()),
            false => self.none(),
        }
    }

    fn none(&self) -> Result<(), String> {
        match self.kinds.is_empty() {
            true => Ok(()),
            false => Err(self.kinds.values().cloned().collect::<Vec<_>>().join("\n")),
        }
    }
}
