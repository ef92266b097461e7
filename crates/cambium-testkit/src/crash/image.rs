//! One crash image: open it, compare it, write to it, crash it again.

use std::sync::{Arc, Mutex, PoisonError};

use cambium_api::{Durability, Engine, Error, IterationOrder};
use cambium_io::simulated::{
    CrashStyle, ErrorNumber, Fault, FaultRule, Generator, OperationClass, ProbePoints,
    SimulatedDisk,
};

use super::followers::expect_changes;
use super::report::CrashReport;
use crate::history::{History, compare_all_reads};
use crate::holding::{Change, collect_all, perform};
use crate::subject::Subject;
use crate::unwritable::unwritable;
use crate::workload::{Workload, key_space};

/// What may be found in an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectation {
    /// The oldest state that may be found now.
    pub(crate) low: usize,
    /// The oldest that may be found after another power cut.
    pub(crate) synced: usize,
    pub(crate) high: usize,
    /// False while `create` has not returned: there may be no store yet.
    pub(crate) created: bool,
}

/// Looks at images of one run.
pub(crate) struct Examiner<'a> {
    pub(crate) subject: &'a Subject,
    pub(crate) report: &'a mut CrashReport,
}

type Store = Arc<dyn Engine>;

impl Examiner<'_> {
    /// Crashes a fork of the disk in one style and examines what is left.
    pub(crate) fn crash(
        &mut self,
        disk: &SimulatedDisk,
        style: CrashStyle,
        seed: u64,
        history: &History,
        expectation: Expectation,
    ) -> Result<(), String> {
        let image = disk.crash(style, seed);
        image.set_capacity(None);
        self.examine(&image, seed, history, expectation)
            .map_err(|what| format!("after a crash ({style:?}, image {seed}): {what}"))
    }

    /// The same for the death of the process alone.
    pub(crate) fn kill(
        &mut self,
        disk: &SimulatedDisk,
        seed: u64,
        history: &History,
        expectation: Expectation,
    ) -> Result<(), String> {
        self.report.add("process crashes");
        let image = disk.process_crash();
        image.set_capacity(None);
        self.examine(&image, seed, history, expectation)
            .map_err(|what| format!("after the death of the process: {what}"))
    }

    /// Opens an image, compares it, and goes on from there.
    pub(crate) fn examine(
        &mut self,
        image: &SimulatedDisk,
        seed: u64,
        history: &History,
        expectation: Expectation,
    ) -> Result<(), String> {
        let mut generator = Generator::new(seed);
        self.report.add("states");
        if expectation.created && generator.chance(1, 8) {
            self.check_closed(image, seed)?;
        }
        if generator.chance(1, 12) && self.subject.recoveries_fail {
            self.fail_recovery(&image.fork(), &mut generator, history, expectation)
                .map_err(|what| format!("after an operation failed within recovery: {what}"))?;
        }
        // Of a generator of its own: the seeds of earlier failures lead where they did.
        let read = match Generator::new(!seed).chance(1, 4) {
            true => self.read_alone(image, seed, history, expectation)?,
            false => None,
        };
        let inner = generator.chance(1, 4).then(|| generator.next_u64());
        let Some((store, within)) = self.open(image, seed, inner, expectation)? else {
            return Ok(());
        };
        if let Some(within) = within {
            self.report.add("crashed in recovery");
            let crashed = within.crash(CrashStyle::Mixed, generator.next_u64());
            let expectation = Expectation {
                low: expectation.synced,
                ..expectation
            };
            self.recover(&crashed, history, expectation)
                .map_err(|what| format!("after a crash within recovery: {what}"))?;
        }
        let index = self.compare(&store, history, expectation, generator.chance(1, 4))?;
        if let Some(read) = read.filter(|&read| history.state(read) != history.state(index)) {
            return Err(format!(
                "a reader found the state after change {read}, and the next opening that after change {index}"
            ));
        }
        if generator.chance(1, 16) {
            let report = store
                .check(&())
                .map_err(|error| format!("check: {error}"))?;
            if !report.is_sound() {
                return Err(format!("check found damage: {:?}", report.findings));
            }
        }
        if generator.chance(1, 2) {
            return self.go_on(image, store, history, (expectation, index), &mut generator);
        }
        Ok(())
    }

    /// Opens a store while an operation fails, once or from then on; then the
    /// process dies or the power is cut, and nothing fails any more.
    fn fail_recovery(
        &mut self,
        image: &SimulatedDisk,
        generator: &mut Generator,
        history: &History,
        expectation: Expectation,
    ) -> Result<(), String> {
        let number = *generator.pick(&[ErrorNumber::InputOutput, ErrorNumber::NoSpace]);
        let (class, among, fault) = *generator.pick(&[
            (
                OperationClass::Read,
                40,
                Fault::Error(ErrorNumber::InputOutput),
            ),
            (OperationClass::Write, 12, Fault::Error(number)),
            (OperationClass::Write, 12, Fault::PartialWrite(number)),
            (OperationClass::Sync, 8, Fault::Error(number)),
            (OperationClass::Sync, 8, Fault::SyncDropsPages(number)),
            (OperationClass::Sync, 8, Fault::SyncKeepsPages(number)),
            (OperationClass::Allocate, 4, Fault::Error(number)),
            (OperationClass::Name, 4, Fault::Error(number)),
        ]);
        image.inject(FaultRule {
            class,
            nth: 1 + generator.below(among),
            forever: generator.chance(1, 2),
            fault,
        });
        let environment = self.subject.environment(image, generator.next_u64());
        match self.subject.open(&environment) {
            Err(Error::NotAStore { .. }) if expectation.created => {
                return Err("an I/O error made the store unknown".to_string());
            }
            // A store that opened has used what it could not read for nothing yet.
            Ok(_) => self.report.add("opened under faults"),
            Err(_) => self.report.add("failed in recovery"),
        }
        image.clear_faults();
        let killed = generator.chance(1, 2);
        let left = match killed {
            true => image.process_crash(),
            false => image.crash(CrashStyle::Mixed, generator.next_u64()),
        };
        let keeps = killed && class != OperationClass::Sync;
        let expectation = Expectation {
            low: if keeps {
                expectation.low
            } else {
                expectation.synced
            },
            ..expectation
        };
        self.recover(&left, history, expectation)
    }

    /// `check` of the closed store finds nothing but notes.
    fn check_closed(&mut self, image: &SimulatedDisk, seed: u64) -> Result<(), String> {
        self.report.add("checked closed");
        let environment = self.subject.environment(&image.fork(), seed);
        let report = self.subject.check(&environment);
        let report = report.map_err(|error| format!("check of the closed store: {error}"))?;
        if !report.is_sound() {
            let findings = &report.findings;
            return Err(format!("check of the closed store found: {findings:?}"));
        }
        Ok(())
    }

    /// Opens an image for reading alone, where nothing can be written: answers which
    /// state a reader finds, and fails if anything was to be changed. `None` where there is
    /// no store, rightly.
    fn read_alone(
        &mut self,
        image: &SimulatedDisk,
        seed: u64,
        history: &History,
        expectation: Expectation,
    ) -> Result<Option<usize>, String> {
        let (environment, attempts) = unwritable(&self.subject.environment(image, seed));
        let store = match self.subject.open_read_only(&environment) {
            Ok(store) => store,
            Err(Error::NotAStore { .. }) if !expectation.created => return Ok(None),
            // A kind whose openings come to several states, each rightly.
            Err(Error::Unsupported { .. }) => return Ok(None),
            Err(error) => return Err(format!("opening for reading alone: {error}")),
        };
        self.report.add("opened for reading alone");
        let read = || -> Result<usize, String> {
            let index = self.compare(&store, history, expectation, true)?;
            let failed = |error: Error| error.to_string();
            let report = store.check(&()).map_err(failed)?;
            if !report.is_sound() {
                return Err(format!("check found damage: {:?}", report.findings));
            }
            store.stats().map_err(failed)?;
            store.step(1 << 20).map_err(failed)?;
            store.close().map_err(failed)?;
            attempts.expect_none().map(|()| index)
        };
        let index = read().map_err(|what| format!("opened for reading alone: {what}"))?;
        Ok(Some(index))
    }

    /// Opens an image; with `inner`, also answers a fork of it from somewhere
    /// within the opening. `None` where there is no store, rightly.
    fn open(
        &mut self,
        image: &SimulatedDisk,
        seed: u64,
        inner: Option<u64>,
        expectation: Expectation,
    ) -> Result<Option<(Store, Option<SimulatedDisk>)>, String> {
        let environment = self.subject.environment(image, seed);
        let captured: Arc<Mutex<Option<SimulatedDisk>>> = Arc::default();
        if let Some(inner) = inner {
            let sink = captured.clone();
            let mut generator = Generator::new(inner);
            let mut seen = 0;
            image.set_crash_probe(ProbePoints::Operations, move |point| {
                seen += 1;
                // Each point so far is as likely to be the one that is kept.
                if generator.chance(1, seen) {
                    let mut kept = sink.lock().unwrap_or_else(PoisonError::into_inner);
                    *kept = Some(point.disk);
                }
            });
        }
        let opened = self.subject.open(&environment);
        image.clear_crash_probe();
        let captured = captured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match opened {
            Ok(store) => Ok(Some((store, captured))),
            Err(Error::NotAStore { .. }) if !expectation.created => {
                self.report.add("no store yet");
                Ok(None)
            }
            Err(error) => Err(format!("opening failed: {error}")),
        }
    }

    /// Opens and compares, nothing more.
    fn recover(
        &mut self,
        image: &SimulatedDisk,
        history: &History,
        expectation: Expectation,
    ) -> Result<(), String> {
        self.report.add("states");
        match self.open(image, 1, None, expectation)? {
            Some((store, _)) => self
                .compare(&store, history, expectation, false)
                .map(|_| ()),
            None => Ok(()),
        }
    }

    /// Which state a store is in.
    fn compare(
        &self,
        store: &Store,
        history: &History,
        expectation: Expectation,
        thoroughly: bool,
    ) -> Result<usize, String> {
        let capabilities = store.capabilities();
        let found = collect_all(&**store, &capabilities);
        let found = found.map_err(|error| format!("iterating: {error}"))?;
        let index = history.find(&found, expectation.low, expectation.high)?;
        let ordered = capabilities.ordered && thoroughly;
        let keys = key_space(capabilities.keys);
        compare_all_reads(&**store, history.state(index), &keys, ordered)?;
        if thoroughly && self.subject.below.is_some() {
            expect_expiry_known(&**store)?;
        }
        if thoroughly && capabilities.changes {
            expect_changes(store, history, index)?;
        }
        Ok(index)
    }

    /// Writes to a recovered store, crashes it, and opens it again: what is
    /// found is what was recovered, or the new writes, and nothing that the
    /// first recovery had cut off.
    fn go_on(
        &mut self,
        image: &SimulatedDisk,
        store: Store,
        history: &History,
        (expectation, index): (Expectation, usize),
        generator: &mut Generator,
    ) -> Result<(), String> {
        self.report.add("recovered twice");
        // Users send again what was lost: the same bytes in the same place are
        // what a record left over behind the cut could join.
        let mut lost = history.write_after(index).filter(|change| {
            let again = matches!(change, Change::Write(_));
            generator.chance(1, 2) && again
        });
        let mut history = history.clone();
        history.settle(index, expectation.low);
        let mut low = expectation.synced;
        let mut written = index;
        let mut workload = Workload::new(generator.next_u64(), store.capabilities())
            .with_layer(self.subject.below.is_some());
        for _ in 0..generator.below(4) {
            let (drawn, durability) = workload.next_change(history.current());
            let change = lost.take().unwrap_or(drawn);
            let mut changes = change.preparations(history.current());
            changes.push(change);
            for change in changes {
                let durability = change.durability(durability);
                write(&store, change, durability, &mut history)?;
                let last = history.window().sent;
                match durability {
                    Durability::Synced => (low, written) = (last, last),
                    Durability::Written => written = last,
                    Durability::Buffered => {}
                }
            }
        }
        if generator.chance(1, 4) {
            let capabilities = store.capabilities();
            let found = collect_all(&*store, &capabilities);
            let found = found.map_err(|error| format!("reading what was recovered: {error}"))?;
            let last = history.window().sent;
            history.find(&found, last, last)?;
        }
        if generator.chance(1, 4) {
            _ = store.compact(&Default::default(), &());
        }
        let high = history.window().sent;
        let killed = generator.chance(1, 5);
        let (again, low) = if killed {
            (image.process_crash(), written)
        } else {
            (image.crash(CrashStyle::Mixed, generator.next_u64()), low)
        };
        let expectation = Expectation {
            low,
            synced: low,
            high,
            created: true,
        };
        self.recover(&again, &history, expectation)
            .map_err(|what| format!("after a second crash: {what}"))
    }
}

/// Holds if a store that has entries that expire knows so: their moments are of no use
/// without the mark in its file `CAMBIUM`.
fn expect_expiry_known(store: &dyn Engine) -> Result<(), String> {
    let failed = |error: Error| format!("looking for entries that expire: {error}");
    let statistics = store.stats().map_err(failed)?;
    if statistics.number("expired_entries_deleted").is_some() {
        return Ok(());
    }
    let mut cursor = store.iterate(IterationOrder::Any, None).map_err(failed)?;
    while let Some(entry) = cursor.next().map_err(failed)? {
        if store.expires_at(&entry.key).map_err(failed)?.is_some() {
            let key = cambium_base::hexdump::readable(&entry.key);
            return Err(format!("key {key} expires, and the store is not marked so"));
        }
    }
    Ok(())
}

/// Writes after a recovery, and holds the number that it gets against the last.
fn write(
    store: &Store,
    change: Change,
    durability: Durability,
    history: &mut History,
) -> Result<(), String> {
    history.send(&change);
    let sequence = perform(&**store, change, durability)
        .map_err(|error| format!("the first writes after recovery: {error}"))?;
    let last = history.window().sent;
    let before = history.sequence_at(last - 1);
    let differs = history.state(last) != history.state(last - 1);
    let too_low = |&sequence: &_| sequence < before || (sequence == before && differs);
    if let Some(sequence) = sequence.filter(too_low) {
        return Err(format!(
            "a write after recovery got sequence number {sequence}, not above {before}"
        ));
    }
    history.acknowledge(sequence, durability);
    Ok(())
}
