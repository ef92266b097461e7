//! One run: actions on a store, images at crash points.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cambium_api::{Capabilities, CompactOptions, Durability, Engine, Snapshot};
use cambium_base::Error;
use cambium_io::Environment;
use cambium_io::simulated::{CrashStyle, Event, Generator, SimulatedDisk};

use super::followers::Followers;
use super::image::{Examiner, Expectation};
use super::points::{Tracker, styles_for, watch};
use super::report::CrashReport;
use super::{CrashSuite, Mode};
use crate::history::{History, Window, compare_all_reads};
use crate::holding::{Change, State, collect_all, collect_snapshot, perform};
use crate::workload::{Action, Workload, key_space};

/// How often a store is reopened and written to after a failed sync.
const REOPENINGS: u64 = 6;

/// A run in progress.
pub(super) struct Driver<'a> {
    pub(super) suite: &'a CrashSuite,
    pub(super) report: &'a mut CrashReport,
    pub(super) mode: Mode,
    pub(super) generator: Generator,
    pub(super) disk: SimulatedDisk,
    pub(super) environment: Environment,
    /// `None` while the store is closed or could not be opened.
    pub(super) store: Option<Arc<dyn Engine>>,
    pub(super) history: History,
    pub(super) workload: Workload,
    snapshots: Vec<(Arc<dyn Snapshot>, State)>,
    pub(super) followers: Followers,
    tracker: Arc<Mutex<Tracker>>,
    /// In fault mode: a rule is armed, and no error of it was seen yet.
    pub(super) armed: Option<super::faults::Armed>,
    /// Nothing more can be asked of this store but to be recovered.
    pub(super) finished: bool,
}

impl<'a> Driver<'a> {
    /// Does a whole run.
    pub(super) fn run(
        suite: &'a CrashSuite,
        mode: Mode,
        seed: u64,
        report: &'a mut CrashReport,
    ) -> Result<(), String> {
        let mut driver = Driver::begin(suite, mode, seed, report)?;
        let outcome = driver.act();
        driver.end(outcome)
    }

    /// Does a run of given actions, looking at every point.
    pub(super) fn run_script(
        suite: &'a CrashSuite,
        seed: u64,
        script: impl FnOnce(&Capabilities) -> Vec<Action>,
        report: &'a mut CrashReport,
    ) -> Result<(), String> {
        let mut driver = Driver::begin(suite, Mode::Exhaustive, seed, report)?;
        let capabilities = driver.store.as_ref().map(|store| store.capabilities());
        let actions = capabilities.map(|capabilities| script(&capabilities));
        let names = format!("{actions:?}");
        let outcome = driver.follow(actions.unwrap_or_default());
        driver
            .end(outcome)
            .map_err(|what| format!("actions {names}: {what}"))
    }

    /// Makes the store and looks at what its making leaves.
    fn begin(
        suite: &'a CrashSuite,
        mode: Mode,
        seed: u64,
        report: &'a mut CrashReport,
    ) -> Result<Self, String> {
        report.add("runs");
        let mut generator = Generator::new(seed);
        let disk = suite.subject.disk(generator.next_u64());
        disk.set_short_transfers(generator.chance(1, 4));
        let environment = suite.subject.environment(&disk, generator.next_u64());
        let history = History::new();
        let tracker = Arc::new(Mutex::new(Tracker {
            window: history.window(),
            created: false,
            generator: Generator::new(generator.next_u64()),
            points: Vec::new(),
            seen: 0,
            every: mode == Mode::Exhaustive,
        }));
        watch(&disk, &tracker);
        let store = suite
            .subject
            .create(&environment)
            .map_err(|error| format!("creating: {error}"))?;
        let workload = Workload::new(generator.next_u64(), store.capabilities())
            .with_layer(suite.subject.below.is_some());
        let mut driver = Driver {
            suite,
            report,
            mode,
            generator,
            disk,
            environment,
            store: Some(store),
            history,
            workload,
            snapshots: Vec::new(),
            followers: Followers::new(seed),
            tracker,
            armed: None,
            finished: false,
        };
        driver.look_at_points()?;
        driver.tracker().created = true;
        Ok(driver)
    }

    fn end(self, outcome: Result<(), String>) -> Result<(), String> {
        self.disk.clear_crash_probe();
        self.report.add_events(&self.disk);
        outcome
    }

    fn follow(&mut self, actions: Vec<Action>) -> Result<(), String> {
        for action in actions {
            self.perform(action)?;
            self.look_at_points()?;
            self.follow_changes()?;
        }
        self.finish()
    }

    fn tracker(&self) -> MutexGuard<'_, Tracker> {
        self.tracker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn act(&mut self) -> Result<(), String> {
        let arm_at = match self.mode {
            Mode::Faults => self.generator.below(self.suite.actions),
            _ => u64::MAX,
        };
        for number in 0..self.suite.actions {
            if number == arm_at {
                self.arm();
            }
            let action = self.workload.action();
            let name = format!("{action:?}");
            self.perform(action)
                .and_then(|()| self.look_at_points())
                .and_then(|()| self.follow_changes())
                .map_err(|what| format!("action {number}, {}: {what}", shortened(&name)))?;
            if self.finished {
                break;
            }
        }
        self.finish()
    }

    /// The last look: crash what is there now in every style.
    fn finish(&mut self) -> Result<(), String> {
        self.disk.clear_faults();
        self.disk.set_capacity(None);
        let disk = self.disk.fork();
        let window = self.history.window();
        for style in CrashStyle::ALL {
            self.examine_point(&disk, window, true, style)?;
        }
        if self.lost_pages() {
            self.reopen_after_failed_sync(&disk, window)?;
        }
        Ok(())
    }

    /// The process dies after a failed sync, and another one opens the store: what
    /// it reads may be in the page cache only, and what it is told to sync must
    /// survive a power cut all the same.
    fn reopen_after_failed_sync(
        &mut self,
        disk: &SimulatedDisk,
        window: Window,
    ) -> Result<(), String> {
        let expectation = Expectation {
            low: window.synced,
            synced: window.synced,
            high: window.sent,
            created: true,
        };
        for _ in 0..REOPENINGS {
            let seed = self.generator.next_u64();
            let mut examiner = Examiner {
                subject: &self.suite.subject,
                report: self.report,
            };
            examiner.kill(disk, seed, &self.history, expectation)?;
        }
        Ok(())
    }

    /// Examines the forks of the last action.
    pub(super) fn look_at_points(&mut self) -> Result<(), String> {
        let points = {
            let mut tracker = self.tracker();
            tracker.seen = 0;
            std::mem::take(&mut tracker.points)
        };
        for point in points {
            for style in styles_for(self.mode, point.moment) {
                self.examine_point(&point.disk, point.window, point.created, *style)?;
            }
        }
        Ok(())
    }

    fn examine_point(
        &mut self,
        disk: &SimulatedDisk,
        window: Window,
        created: bool,
        style: CrashStyle,
    ) -> Result<(), String> {
        let seed = self.generator.next_u64();
        let kill = created && self.generator.chance(1, 6);
        let written = self.oldest_after_kill(window);
        let mut examiner = Examiner {
            subject: &self.suite.subject,
            report: self.report,
        };
        let mut expectation = Expectation {
            low: window.synced,
            synced: window.synced,
            high: window.sent,
            created,
        };
        examiner.crash(disk, style, seed, &self.history, expectation)?;
        if kill {
            expectation.low = written;
            examiner.kill(disk, seed, &self.history, expectation)?;
        }
        Ok(())
    }

    /// True if a failed sync dropped pages, or took them for written.
    pub(super) fn lost_pages(&self) -> bool {
        let events = [Event::SyncDroppedPages, Event::SyncKeptPages];
        events.iter().any(|&event| self.disk.event_count(event) > 0)
    }

    /// The oldest state that may be found after the death of the process. A
    /// failed sync takes `Written` back too.
    fn oldest_after_kill(&self, window: Window) -> usize {
        if self.lost_pages() {
            window.synced
        } else {
            window.written
        }
    }

    /// Tells the probe what may be found from now on.
    pub(super) fn promise(&mut self) {
        let window = self.history.window();
        self.tracker().window = window;
    }

    /// Turns an error into a failure of the suite, or, while faults are
    /// about, into what has to hold after one.
    fn failed(&mut self, error: Error, what: &str, wrote: bool) -> Result<(), String> {
        match self.mode {
            Mode::Faults => self.after_failure(error, what, wrote),
            _ => Err(format!("{what}: {error}")),
        }
    }

    fn perform(&mut self, action: Action) -> Result<(), String> {
        let Some(store) = self.store.clone() else {
            return self.reopen();
        };
        match action {
            Action::Write(batch, durability) => {
                let write = Change::Write(batch);
                for namespace in write.preparations(self.history.current()) {
                    self.change(&*store, namespace, durability)?;
                    // A fault came between: the batch is another store's, or none's.
                    if self.finished || self.store.is_none() {
                        return Ok(());
                    }
                }
                if !write.preparations(self.history.current()).is_empty() {
                    return Ok(());
                }
                self.change(&*store, write, durability)
            }
            Action::Change(change) if change.is_possible(self.history.current()) => {
                self.change(&*store, change, Durability::Synced)
            }
            Action::Change(change) => self.refused(&*store, change),
            Action::Sync => match store.sync() {
                Ok(()) => {
                    self.history.secure(Durability::Synced);
                    self.promise();
                    Ok(())
                }
                Err(error) => self.failed(error, "sync", false),
            },
            Action::Step(budget) => match store.step(budget) {
                Ok(_) => Ok(()),
                Err(error) => self.failed(error, "step", false),
            },
            Action::Compact => match store.compact(&CompactOptions::default(), &()) {
                Ok(_) => Ok(()),
                Err(error) => self.failed(error, "compact", false),
            },
            Action::OpenSnapshot => match store.snapshot() {
                Ok(snapshot) => {
                    let state = self.history.current().clone();
                    self.snapshots.push((snapshot, state));
                    Ok(())
                }
                Err(error) => self.failed(error, "snapshot", false),
            },
            Action::CloseSnapshot => self.close_snapshot(),
            Action::Read => self.read(&*store),
            Action::Reopen => {
                drop(store);
                self.close_and_reopen()
            }
            Action::Kill => self.go_on_with(self.disk.process_crash(), false),
            Action::PowerCut => {
                let seed = self.generator.next_u64();
                self.go_on_with(self.disk.crash(CrashStyle::Mixed, seed), true)
            }
        }
    }

    fn change(
        &mut self,
        store: &dyn Engine,
        change: Change,
        durability: Durability,
    ) -> Result<(), String> {
        self.history.send(&change);
        self.promise();
        let before = self.history.sequence_at(self.history.window().sent - 1);
        let durability = change.durability(durability);
        let counted = change.counted_as();
        match perform(store, change, durability) {
            Ok(sequence) => {
                let last = self.history.window().sent;
                let changed = self.history.state(last) != self.history.state(last - 1);
                let grew = |sequence| sequence > before || (!changed && sequence == before);
                if let Some(sequence) = sequence.filter(|&sequence| !grew(sequence)) {
                    return Err(format!(
                        "sequence number {sequence} after {before}, which must grow"
                    ));
                }
                self.history.acknowledge(sequence, durability);
                self.promise();
                self.report.add(counted);
                Ok(())
            }
            Err(error) => self.failed(error, "write", true),
        }
    }

    /// A change that is refused, or was done already, changes nothing.
    fn refused(&mut self, store: &dyn Engine, change: Change) -> Result<(), String> {
        let name = format!("{change:?}");
        let made = matches!(change, Change::MakeNamespace(_));
        match perform(store, change, Durability::Synced) {
            Ok(_) if made => Ok(()),
            Ok(_) => Err(format!("{name} succeeds; it must be refused")),
            Err(Error::AlreadyExists { .. } | Error::NotFound { .. }) if !made => Ok(()),
            Err(error) => self.failed(error, "refusing", false),
        }
    }

    fn read(&mut self, store: &dyn Engine) -> Result<(), String> {
        let capabilities = store.capabilities();
        let keys = key_space(capabilities.keys);
        let current = self.history.current().clone();
        let outcome = match collect_all(store, &capabilities) {
            Ok(found) if current.is(&found) => {
                compare_all_reads(store, &current, &keys, capabilities.ordered)
            }
            Ok(found) => {
                let sent = self.history.window().sent;
                self.history.find(&found, sent, sent).map(|_| ())
            }
            Err(error) => Err(format!("a read failed: {error}")),
        };
        match outcome {
            // While reads are made to fail they may; wrong answers never.
            Err(what) if self.armed.is_some() && what.starts_with("a read failed") => Ok(()),
            other => other,
        }
    }

    fn close_snapshot(&mut self) -> Result<(), String> {
        let Some((snapshot, state)) = self.snapshots.pop() else {
            return Ok(());
        };
        match collect_snapshot(&*snapshot) {
            Ok(mut found) => {
                // A namespace that was made later is empty there.
                found
                    .retain(|name, entries| !entries.is_empty() || state.spaces.contains_key(name));
                if state.is_in(&found) {
                    return Ok(());
                }
                Err(format!(
                    "a snapshot has {} entries in {} namespaces that are not what it began with",
                    found
                        .values()
                        .map(std::collections::BTreeMap::len)
                        .sum::<usize>(),
                    found.len()
                ))
            }
            Err(error) => self.failed(error, "reading a snapshot", false),
        }
    }

    fn close_and_reopen(&mut self) -> Result<(), String> {
        while !self.snapshots.is_empty() {
            self.close_snapshot()?;
        }
        let Some(store) = self.store.take() else {
            return Ok(());
        };
        match store.close() {
            Ok(()) => {
                // A poisoned store closes without a word; it promised nothing.
                if self.armed.is_none() {
                    self.history.secure(Durability::Synced);
                    self.promise();
                }
            }
            Err(error) if self.mode != Mode::Faults => return Err(format!("close: {error}")),
            Err(_) => self.report.add("close failed"),
        }
        drop(store);
        self.reopen()
    }

    /// Opens the store on the disk as it is, and settles on what is found.
    pub(super) fn reopen(&mut self) -> Result<(), String> {
        self.report.add("reopened");
        match self.suite.subject.open(&self.environment) {
            Ok(store) => {
                let window = self.history.window();
                self.settle(store, self.oldest_after_kill(window))
            }
            Err(error) if self.armed.is_some() => {
                self.report.add("open failed");
                self.disarm();
                if matches!(error, Error::NotAStore { .. }) {
                    return Err(format!("an I/O error made the store unknown: {error}"));
                }
                Ok(())
            }
            Err(error) => Err(format!("opening: {error}")),
        }
    }

    /// The run goes on with another disk, as after a crash.
    fn go_on_with(&mut self, disk: SimulatedDisk, power: bool) -> Result<(), String> {
        self.report.add(if power {
            "power cuts lived through"
        } else {
            "kills lived through"
        });
        self.disarm();
        disk.set_capacity(None);
        self.snapshots.clear();
        self.disk.clear_crash_probe();
        if power {
            self.history.forget_written();
        }
        self.promise();
        let low = self.oldest_after_kill(self.history.window());
        let seed = self.generator.next_u64();
        self.environment = self.suite.subject.environment(&disk, seed);
        self.disk = disk;
        watch(&self.disk, &self.tracker);
        self.store = None;
        match self.suite.subject.open(&self.environment) {
            Ok(store) => self.settle(store, low),
            Err(error) => Err(format!("opening after a crash: {error}")),
        }
    }

    fn settle(&mut self, store: Arc<dyn Engine>, low: usize) -> Result<(), String> {
        let sent = self.history.window().sent;
        // Forks taken while it opened speak of states that settling forgets.
        self.look_at_points()?;
        match collect_all(&*store, &store.capabilities()) {
            Ok(found) => {
                let index = self.history.find(&found, low, sent)?;
                self.history.settle(index, low);
                self.promise();
            }
            Err(error) if self.armed.is_some() => {
                // Which state was recovered cannot be told: stop here.
                self.report.add("unreadable under faults");
                self.finished = true;
                _ = error;
            }
            Err(error) => return Err(format!("iterating after opening: {error}")),
        }
        self.followers.let_go();
        self.store = Some(store);
        Ok(())
    }

    /// Drops what the store handed out.
    pub(super) fn drop_snapshots(&mut self) {
        self.snapshots.clear();
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}
