//! Several threads on one store, interleaved from a seed and crashed anywhere.
//!
//! A run opens a store one to three times on one simulated disk. In each session one
//! to four actors ([`actor`]) read and write a few keys, an upkeep thread takes steps,
//! compacts, checks, syncs, cancels and closes, and the engine's own background
//! threads do what they do in a user's store. All are threads of a scheduler
//! ([`cambium_io::sync`]): at every lock, ordered atomic access, wait and file
//! operation it decides from the seed which one goes on. Caches are on unless the
//! suite turns them off.
//!
//! The suite checks these promises:
//!
//! - Everything the actors saw fits one order of all writes, the order of their
//!   sequence numbers ([`crate::linearizability`]).
//! - Each image of a crash anywhere equals the state after some prefix of that order:
//!   with every write that was acknowledged as synced before the crash, and without
//!   any that began after it ([`judge`]). Images then go through the same
//!   examination as those of one thread ([`crate::crash`]).
//! - After `close` has returned, nothing is written.
//! - The store that is opened next holds everything if it was closed.
//! - No thread panics, and the threads do not wait for each other for ever.
//!
//! A suite may focus three runs of four: each thread makes a few kinds of calls on few
//! keys, so that calls meet more often, and the store is crashed at the end alone.
//!
//! Short programs of two or three threads ([`short`]) go through every interleaving of
//! a few preemptions.
//!
//! With failing operations an actor's write may answer an error, and whether it
//! happened is not known. Then each key must have a value that some write from the
//! last synced state on gave it.

mod actor;
mod follower;
mod judge;
mod session;
mod short;

use cambium_api::Durability;
use cambium_io::simulated::{
    CrashStyle, ErrorNumber, Event, Fault, FaultRule, Generator, OperationClass, SimulatedDisk,
};
use cambium_io::sync::schedule::Schedule;
use cambium_io::sync::scheduler;

pub(crate) use actor::Actor;
pub(crate) use short::explore;

use crate::crash::{CrashReport, Examiner, Expectation};
use crate::history::History;
use crate::holding::collect_all;
use crate::space::check_space;
use crate::subject::Subject;
use judge::Order;
use session::{Plan, Played, Point};

/// A run in progress.
struct Run<'a> {
    /// With the options of this run's store, and of the session that is going on.
    subject: Subject,
    report: &'a mut CrashReport,
    generator: Generator,
    disk: SimulatedDisk,
    history: History,
    /// States that the next opening may find.
    low: usize,
    high: usize,
    tick: u64,
    actors: u64,
    actions: u64,
    focused: bool,
}

/// Runs some sessions that follow from a seed.
pub(crate) fn run(
    subject: &Subject,
    actions: u64,
    faults: bool,
    seed: u64,
    report: &mut CrashReport,
) -> Result<(), String> {
    report.add("runs");
    let mut generator = Generator::new(seed);
    let subject = subject.draw(&mut generator, true);
    let focused = subject.focused && generator.chance(3, 4);
    let disk = subject.disk(generator.next_u64());
    disk.set_short_transfers(generator.chance(1, 4));
    // A session with a fault costs few images, so there are many.
    let sessions = 1 + generator.below(if faults { 2 } else { 3 });
    let mut run = Run {
        subject,
        report,
        generator,
        disk,
        history: History::new(),
        low: 0,
        high: 0,
        tick: 1,
        actors: 0,
        actions,
        focused,
    };
    for number in 0..sessions {
        let last = number + 1 == sessions;
        let injected = match faults && last {
            true => run.draw_faults(),
            false => Vec::new(),
        };
        run.subject = run.subject.draw(&mut run.generator, false);
        let session = run.session(number == 0, injected, !faults);
        session.map_err(|what| format!("session {number} of {:?}: {what}", run.subject))?;
    }
    if run.subject.frees_space && !faults {
        check_space(&run.subject, &run.disk, &mut run.generator)?;
    }
    run.report.add_events(&run.disk);
    Ok(())
}

impl Run<'_> {
    fn draw_faults(&mut self) -> Vec<FaultRule> {
        let count = match self.focused {
            true => 1 + self.generator.below(3),
            false => 1,
        };
        (0..count).map(|_| self.draw_fault()).collect()
    }

    fn draw_fault(&mut self) -> FaultRule {
        let generator = &mut self.generator;
        let number = *generator.pick(&[
            ErrorNumber::InputOutput,
            ErrorNumber::InputOutput,
            ErrorNumber::NoSpace,
        ]);
        let (class, fault) = match generator.below(8) {
            0..=1 => (OperationClass::Sync, Fault::SyncDropsPages(number)),
            2..=3 => (OperationClass::Sync, Fault::SyncKeepsPages(number)),
            4 => (OperationClass::Sync, Fault::Error(number)),
            5 => (OperationClass::Write, Fault::PartialWrite(number)),
            6 => (OperationClass::Write, Fault::Error(number)),
            _ => (OperationClass::Allocate, Fault::Error(number)),
        };
        let range = generator.pick(&[4, 12, 40]);
        FaultRule {
            class,
            nth: 1 + generator.below(*range),
            forever: generator.chance(1, 4),
            fault,
        }
    }

    fn session(
        &mut self,
        creates: bool,
        faults: Vec<FaultRule>,
        examined: bool,
    ) -> Result<(), String> {
        let plan = Plan {
            subject: self.subject.clone(),
            disk: self.disk.clone(),
            seed: self.generator.next_u64(),
            creates,
            tick: self.tick,
            actors: self.actors,
            actions: self.actions,
            focused: self.focused,
            faults: faults.clone(),
        };
        let schedule = Schedule::random(self.generator.next_u64());
        let run = scheduler::run(schedule, move || plan.play());
        self.report.add("sessions");
        let played = run.outcome.and_then(|played| played)?;
        self.tick = played.ended + 1;
        self.actors += played.records.len() as u64;
        let index = self.history.find(&played.found, self.low, self.high);
        let index = index.map_err(|what| format!("after opening: {what}"))?;
        self.history.settle(index, self.low);
        let order = Order::new(self.history.clone(), &played);
        if !faults.is_empty() {
            let told = |what| format!("{what}\n    the faults: {faults:?}");
            return self.judge_doubtful(&order, &played).map_err(told);
        }
        order.check_linearizable(&played)?;
        order.check_followed(&played)?;
        if examined {
            self.examine(&order, &played)?;
        }
        self.go_on(order, played);
        Ok(())
    }

    /// Crashes the points of a session, and its end.
    fn examine(&mut self, order: &Order, played: &Played) -> Result<(), String> {
        for point in &played.points {
            let (power, kill) = order.expectations(point);
            let seed = self.generator.next_u64();
            let killed = point.created && self.generator.chance(1, 6);
            let mut examiner = Examiner {
                subject: &self.subject,
                report: self.report,
            };
            let history = &order.history;
            let told = |what| format!("{what}{}", order.describe(point.tick));
            examiner
                .crash(&point.disk, CrashStyle::Mixed, seed, history, power)
                .map_err(told)?;
            if killed {
                examiner
                    .kill(&point.disk, seed, history, kill)
                    .map_err(told)?;
            }
        }
        let last = order.history.window().sent;
        let expectation = Expectation {
            low: last,
            synced: last,
            high: last,
            created: true,
        };
        let seed = self.generator.next_u64();
        let mut examiner = Examiner {
            subject: &self.subject,
            report: self.report,
        };
        examiner
            .crash(
                &self.disk,
                CrashStyle::Mixed,
                seed,
                &order.history,
                expectation,
            )
            .map_err(|what| format!("after close: {what}"))
    }

    /// The next session has the closed store, or what a crash left of this one.
    fn go_on(&mut self, mut order: Order, played: Played) {
        let created = played.points.iter().filter(|point| point.created);
        let points: Vec<&Point> = created.collect();
        if !points.is_empty() && self.generator.chance(1, 2) {
            let point = *self.generator.pick(&points);
            let (power, _) = order.expectations(point);
            self.disk = point
                .disk
                .crash(CrashStyle::Mixed, self.generator.next_u64());
            (self.low, self.high) = (power.low, power.high);
        } else {
            order.history.secure(Durability::Synced);
            let last = order.history.window().sent;
            (self.low, self.high) = (last, last);
        }
        self.history = order.history;
    }

    /// Operations failed: what the store still holds now and after a crash.
    fn judge_doubtful(&mut self, order: &Order, played: &Played) -> Result<(), String> {
        if played.failed {
            self.report.add("operations failed");
        }
        let end = Point {
            disk: self.disk.fork(),
            tick: played.ended,
            created: true,
        };
        for point in played
            .points
            .iter()
            .chain([&end])
            .filter(|point| point.created)
        {
            let (power, kill) = order.expectations(point);
            let told =
                |after: &str, what| format!("after {after}: {what}{}", order.describe(point.tick));
            let seed = self.generator.next_u64();
            let style = *self
                .generator
                .pick(&[CrashStyle::NothingUnsynced, CrashStyle::Mixed]);
            let cut = point.disk.crash(style, seed);
            self.recover_doubtful(&cut, order, power.low)
                .map_err(|what| told("a power cut", what))?;
            // A failed sync may have lost what was only written.
            let failed = [Event::SyncDroppedPages, Event::SyncKeptPages];
            let sync_failed = failed.iter().any(|&event| self.disk.event_count(event) > 0);
            let low = if sync_failed { power.low } else { kill.low };
            self.recover_doubtful(&point.disk.process_crash(), order, low)
                .map_err(|what| told("the death of the process", what))?;
        }
        Ok(())
    }

    fn recover_doubtful(
        &mut self,
        disk: &SimulatedDisk,
        order: &Order,
        low: usize,
    ) -> Result<(), String> {
        self.report.add("states");
        disk.set_capacity(None);
        let environment = self.subject.environment(disk, self.generator.next_u64());
        let store = self.subject.open(&environment);
        let store = store.map_err(|error| format!("opening: {error}"))?;
        let found = collect_all(&*store, &store.capabilities());
        let found = found.map_err(|error| format!("iterating: {error}"))?;
        order.check_doubtful(&found.spaces[""], low)
    }
}
