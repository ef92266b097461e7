//! The strict rule for a damaged store: each answer is right, or there is an error
//! or a finding.

use cambium_api::{CheckReport, Value};
use cambium_io::simulated::{Generator, SimulatedDisk};

use super::harm::Harm;
use super::observe::{Name, Observation, first_damage, observe, observe_compacted};
use super::repair;
use super::victim::{Tolerated, Victim};
use super::{DamageReport, DamageSuite};

/// The suite compacts one damaged store in this many, and reads it again.
const COMPACTED_EACH: u64 = 3;
/// The suite repairs one damaged store in this many, with one interruption in this
/// many.
const REPAIRED_EACH: u64 = 4;

/// A damaged store and what is known about it.
pub(super) struct Case<'a> {
    pub(super) suite: &'a DamageSuite,
    pub(super) victim: &'a Victim,
    pub(super) disk: SimulatedDisk,
    pub(super) tolerated: Tolerated,
    /// A sector cannot be read: what lies beside it may not be readable either, so
    /// an error is an answer, also where `check` got around that sector.
    pub(super) reads_fail: bool,
    /// A file is gone of which others hold all that it did.
    pub(super) redundant: bool,
    /// Its number, from which its random choices follow.
    pub(super) number: u64,
}

/// The answer of `check` on the closed store.
struct Checked {
    damage: Option<String>,
    has_findings: bool,
}

impl DamageSuite {
    pub(super) fn judge(
        &self,
        victim: &Victim,
        harm: &Harm,
        report: &mut DamageReport,
    ) -> Result<(), String> {
        let disk = victim.disk.fork();
        harm.apply(&disk);
        report.cases += 1;
        let case = Case {
            suite: self,
            victim,
            tolerated: victim.tolerates(harm, &disk),
            reads_fail: matches!(harm, Harm::Unreadable { .. }),
            redundant: self.is_redundant(harm),
            disk,
            number: report.cases,
        };
        let checked = case.check();
        let observed = observe(&self.subject, &case.disk.fork(), victim)?;
        case.compare(&checked, &observed, report)?;
        if case.redundant {
            let state = observed.state(victim, case.tolerated.low);
            state.map_err(|what| format!("other files hold the same: {what}"))?;
            case.interrupt_opening(&observed)?;
        }
        if case.number % COMPACTED_EACH == 0 {
            case.compact(&checked, &observed)?;
        }
        if case.redundant || case.number % REPAIRED_EACH == 0 {
            repair::judge(&case, &observed, report)?;
        }
        Ok(())
    }

    fn is_redundant(&self, harm: &Harm) -> bool {
        let Harm::Gone { path } = harm else {
            return false;
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.redundant.iter().any(|begin| name.starts_with(begin))
    }
}

impl DamageSuite {
    /// The rule for every engine: earlier states may show, and a reader may meet damage
    /// that `check` finds.
    pub(super) fn judge_leniently(
        &self,
        victim: &Victim,
        harm: &Harm,
        report: &mut DamageReport,
    ) -> Result<(), String> {
        let disk = victim.disk.fork();
        harm.apply(&disk);
        report.cases += 1;
        let environment = self.subject.environment(&disk, 2);
        let checked = self.subject.check(&environment);
        let sound = checked.is_ok_and(|report| report.is_sound());
        let observed = observe(&self.subject, &disk, victim)?;
        if !observed.complaints.is_empty() {
            report.detected += 1;
            return Ok(());
        }
        let last = victim.history.window().sent;
        match observed.state(victim, 0) {
            Ok(index) if index == last => report.harmless += 1,
            Ok(_) => report.prefix += 1,
            Err(_) if !sound => report.detected += 1,
            Err(what) => return Err(format!("nothing complains: {what}")),
        }
        Ok(())
    }
}

impl Case<'_> {
    /// Checks the closed store, which must write nothing.
    fn check(&self) -> Checked {
        let disk = self.disk.fork();
        let environment = self.suite.subject.environment(&disk, 2);
        match self.suite.subject.check(&environment) {
            Ok(report) => Checked {
                damage: first_damage(&report),
                has_findings: !report.findings.is_empty(),
            },
            Err(error) => Checked {
                damage: Some(error.to_string()),
                has_findings: true,
            },
        }
    }

    fn compare(
        &self,
        checked: &Checked,
        observed: &Observation,
        report: &mut DamageReport,
    ) -> Result<(), String> {
        if checked.damage.is_some() {
            report.detected += 1;
            return Ok(());
        }
        if let Some(complaint) = observed.complaints.first() {
            if self.reads_fail {
                report.detected += 1;
                return Ok(());
            }
            return Err(format!(
                "check says sound, and there is an error: {complaint}"
            ));
        }
        let last = self.victim.history.window().sent;
        let index = observed
            .state(self.victim, self.tolerated.low)
            .map_err(|what| format!("check says sound, nothing complains: {what}"))?;
        if index < self.victim.history.window().synced
            && self.tolerated.mentioned
            && !checked.has_findings
        {
            return Err(format!(
                "write {} was synced, write {index} is the last one found, and check has not \
                 even a note about the torn end",
                self.victim.history.window().synced
            ));
        }
        match index == last {
            true => report.harmless += 1,
            false => report.prefix += 1,
        }
        Ok(())
    }

    /// An opening that is killed or loses power takes nothing away.
    fn interrupt_opening(&self, before: &Observation) -> Result<(), String> {
        if !before.complaints.is_empty() {
            return Ok(());
        }
        let disk = self.disk.fork();
        let points = repair::watch(&disk, self.number);
        let environment = self.suite.subject.environment(&disk, 3);
        let store = self.suite.subject.open(&environment);
        disk.clear_crash_probe();
        drop(store);
        for (how, left) in repair::left_by(&points, &mut Generator::new(self.number)) {
            let after = observe(&self.suite.subject, &left, self.victim)?;
            let what = format!("{how} within an opening");
            if let Some(complaint) = after.complaints.first() {
                return Err(format!("{what} leaves a store with damage: {complaint}"));
            }
            self.not_worse(before, &after, &what)?;
        }
        Ok(())
    }

    /// Using a damaged store takes nothing away without a word.
    fn compact(&self, checked: &Checked, before: &Observation) -> Result<(), String> {
        let disk = self.disk.fork();
        let after = observe_compacted(&self.suite.subject, &disk, self.victim)
            .map_err(|what| format!("after a compaction: {what}"))?;
        if after.complaints.is_empty() {
            return self.not_worse(before, &after, "a compaction");
        }
        match !self.reads_fail && checked.damage.is_none() && before.complaints.is_empty() {
            true => Err(format!(
                "sound before a compaction, not after it: {}",
                after.complaints[0]
            )),
            false => Ok(()),
        }
    }

    /// Every value that was read before is there, unless a newer state is.
    pub(super) fn not_worse(
        &self,
        before: &Observation,
        after: &Observation,
        what: &str,
    ) -> Result<(), String> {
        let state = after.state(self.victim, 0).ok();
        for (place, value) in &before.values {
            let now = after.values.get(place);
            let is_same = now == Some(value);
            let is_right = is_value_since(self.victim, place, now, self.tolerated.low);
            // A value that went for what came later, or for a later state, was old.
            let first = first_with(self.victim, place, value);
            let is_later = state.is_some_and(|state| first <= state)
                || now.is_some_and(|now| first < first_with(self.victim, place, now));
            if !is_same && !is_right && !is_later {
                return Err(format!(
                    "{what} changed key {} from {} to {}",
                    cambium_base::hexdump::readable(&place.1[..place.1.len().min(24)]),
                    crate::holding::brief(Some(value)),
                    crate::holding::brief(now),
                ));
            }
        }
        Ok(())
    }
}

/// True if a key has this value in a state at or after `low`.
fn is_value_since(victim: &Victim, place: &Name, value: Option<&Value>, low: usize) -> bool {
    let sent = victim.history.window().sent;
    (low..=sent).any(|at| value_at(victim, place, at) == value)
}

/// The first state in which a key has a value; none is `usize::MAX`.
fn first_with(victim: &Victim, place: &Name, value: &Value) -> usize {
    let mut states = 0..=victim.history.window().sent;
    let first = states.find(|&at| value_at(victim, place, at) == Some(value));
    first.unwrap_or(usize::MAX)
}

fn value_at<'a>(victim: &'a Victim, place: &Name, at: usize) -> Option<&'a Value> {
    let spaces = &victim.history.state(at).spaces;
    spaces
        .get(&place.0)
        .and_then(|entries| entries.get(&place.1))
}

/// Repairs; the report of it, if it succeeded.
pub(super) fn repair_on(case: &Case<'_>, disk: &SimulatedDisk) -> Result<CheckReport, String> {
    let environment = case.suite.subject.environment(disk, 4);
    let repaired = case.suite.subject.repair(&environment);
    repaired.map_err(|error| error.to_string())
}
