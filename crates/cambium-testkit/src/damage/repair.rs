//! A repair makes nothing worse and names its losses. It may be interrupted anywhere
//! and run again.

use std::sync::{Arc, Mutex, PoisonError};

use cambium_io::simulated::{
    CrashStyle, ErrorNumber, Fault, FaultRule, Generator, OperationClass, ProbePoints,
    SimulatedDisk,
};

use super::DamageReport;
use super::observe::{Observation, first_damage, observe};
use super::strict::{Case, repair_on};

/// Interruptions of each repair.
const INTERRUPTIONS: u64 = 3;

/// Repairs a damaged store, whole and interrupted.
pub(super) fn judge(
    case: &Case<'_>,
    before: &Observation,
    report: &mut DamageReport,
) -> Result<(), String> {
    let disk = case.disk.fork();
    let mut generator = Generator::new(case.number);
    let points = watch(&disk, generator.next_u64());
    let first = disk.operation_count();
    let repaired = repair_on(case, &disk);
    let operations = disk.operation_count() - first;
    disk.clear_crash_probe();
    let after = look(case, &disk).map_err(|what| format!("after a repair: {what}"))?;
    let Ok(repaired) = repaired else {
        report.refused += 1;
        return case.not_worse(before, &after, "a repair that failed");
    };
    if let Some(complaint) = after.complaints.first() {
        return Err(format!("a repaired store is not sound: {complaint}"));
    }
    case.not_worse(before, &after, "a repair")?;
    let state = after.state(case.victim, case.tolerated.low);
    match (&state, first_damage(&repaired)) {
        (Err(what), _) if case.redundant => return Err(format!("a repair lost: {what}")),
        (Err(what), None) => return Err(format!("a repair names no loss: {what}")),
        (Ok(_), None) => report.mended += 1,
        _ => report.lossy += 1,
    }
    for (how, left) in left_by(&points, &mut generator) {
        report.interrupted += 1;
        again(case, before, &after, &left)
            .map_err(|what| format!("{how} within a repair: {what}"))?;
    }
    let left = fail_within(case, operations, &mut generator);
    report.interrupted += 1;
    again(case, before, &after, &left)
        .map_err(|what| format!("a failing operation within a repair: {what}"))
}

/// Disks as they were at some moments.
type Points = Arc<Mutex<Vec<SimulatedDisk>>>;

/// Each kept moment as a kill or a power cut leaves it.
pub(super) fn left_by(
    points: &Points,
    generator: &mut Generator,
) -> Vec<(&'static str, SimulatedDisk)> {
    let kept = std::mem::take(&mut *points.lock().unwrap_or_else(PoisonError::into_inner));
    let numbered = kept.into_iter().enumerate();
    let left = numbered.map(|(number, point)| match number % 3 {
        0 => ("a kill", point.process_crash()),
        _ => (
            "a power cut",
            point.crash(CrashStyle::Mixed, generator.next_u64()),
        ),
    });
    left.collect()
}

/// Keeps some moments of a repair, each as likely as any other.
pub(super) fn watch(disk: &SimulatedDisk, seed: u64) -> Points {
    let points = Points::default();
    let sink = points.clone();
    let mut generator = Generator::new(seed);
    let mut seen = 0;
    disk.set_crash_probe(ProbePoints::Operations, move |point| {
        let mut kept = sink.lock().unwrap_or_else(PoisonError::into_inner);
        seen += 1;
        if kept.len() < INTERRUPTIONS as usize {
            kept.push(point.disk);
        } else {
            let place = generator.below(seen);
            if place < INTERRUPTIONS {
                kept[place as usize] = point.disk;
            }
        }
    });
    points
}

/// A repair in which one operation fails, or all do from one on; the disk works
/// again then.
fn fail_within(case: &Case<'_>, operations: u64, generator: &mut Generator) -> SimulatedDisk {
    let disk = case.disk.fork();
    let number = *generator.pick(&[ErrorNumber::InputOutput, ErrorNumber::NoSpace]);
    let (class, fault) = *generator.pick(&[
        (OperationClass::Any, Fault::Error(number)),
        (OperationClass::Write, Fault::PartialWrite(number)),
        (OperationClass::Sync, Fault::SyncDropsPages(number)),
        (OperationClass::Sync, Fault::SyncKeepsPages(number)),
    ]);
    let among = match class {
        OperationClass::Any => operations.max(1),
        _ => 1 + operations / 8,
    };
    disk.inject(FaultRule {
        class,
        nth: 1 + generator.below(among),
        forever: generator.chance(1, 2),
        fault,
    });
    // The repair may fail; the suite judges only the store that it leaves.
    _ = repair_on(case, &disk);
    disk.clear_faults();
    match generator.chance(1, 2) {
        true => disk.process_crash(),
        false => disk.crash(CrashStyle::Mixed, generator.next_u64()),
    }
}

/// An interrupted repair has taken nothing away without a word, and another one
/// does what the first would have done.
fn again(
    case: &Case<'_>,
    before: &Observation,
    whole: &Observation,
    left: &SimulatedDisk,
) -> Result<(), String> {
    let between = look(case, &left.fork())?;
    let environment = case.suite.subject.environment(left, 6);
    let checked = case.suite.subject.check(&environment);
    let is_sound = checked.is_ok_and(|report| report.is_sound());
    if (is_sound || case.redundant) && between.complaints.is_empty() {
        case.not_worse(before, &between, "it")?;
        let as_known = between.found == whole.found
            || between.found == before.found
            || between.state(case.victim, case.tolerated.low).is_ok();
        if !as_known {
            return Err("the store reads without an error as neither before nor after".to_string());
        }
    }
    repair_on(case, left).map_err(|error| format!("another repair fails: {error}"))?;
    let after = look(case, left)?;
    if let Some(complaint) = after.complaints.first() {
        return Err(format!("not sound after another repair: {complaint}"));
    }
    if after.found == whole.found && after.kept == whole.kept {
        return Ok(());
    }
    match (after.state(case.victim, 0), whole.state(case.victim, 0)) {
        (Ok(one), Ok(other)) => Err(format!(
            "another repair leaves write {one} as the last, the whole one {other}"
        )),
        (one, other) => Err(format!(
            "another repair leaves {one:?}, the whole one {other:?}"
        )),
    }
}

fn look(case: &Case<'_>, disk: &SimulatedDisk) -> Result<Observation, String> {
    observe(&case.suite.subject, disk, case.victim)
}
