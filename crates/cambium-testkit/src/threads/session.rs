//! One opening of a store, used by several threads under the scheduler.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cambium_api::{CompactOptions, Engine, Error, KeyKind};
use cambium_io::simulated::{CrashPoint, FaultRule, Generator, ProbePoints, SimulatedDisk};
use cambium_io::sync::thread;
use cambium_io::{Environment, ThreadExecutor};

use super::actor::{Actor, KEYS, Record, Stop};
use super::follower::{Followed, Follower};
use crate::holding::{Found, collect_all};
use crate::subject::Subject;

/// Values up to these many bytes, around the borders of blocks and thresholds.
pub(super) const SIZES: [u64; 8] = [0, 0, 20, 60, 200, 500, 1_100, 4_090];
/// Values of focused sessions: of caches, around checkpoints.
const FOCUSED_SIZES: [&[u64]; 2] = [&[0, 20], &[1_100]];
/// The most calls of one thread in a focused session.
const FOCUSED_ACTIONS: u64 = 12;
/// Crash points that one session keeps.
const POINTS: usize = 6;
/// Crash points that a session with a fault keeps.
const POINTS_WITH_FAULT: usize = 2;

/// The plan of a session.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) subject: Subject,
    pub(super) disk: SimulatedDisk,
    pub(super) seed: u64,
    /// Makes the store in place of opening it.
    pub(super) creates: bool,
    /// The first tick of its clock: above all of earlier sessions.
    pub(super) tick: u64,
    /// Actors of the run so far, so that values stay unique.
    pub(super) actors: u64,
    pub(super) actions: u64,
    /// Threads make few calls, each a few kinds of them on few keys; crash points are kept
    /// only where operations fail.
    pub(super) focused: bool,
    /// Operations that fail, from when the store is open.
    pub(super) faults: Vec<FaultRule>,
}

/// A moment at which the machine could have stopped.
#[derive(Debug)]
pub(super) struct Point {
    pub(super) disk: SimulatedDisk,
    pub(super) tick: u64,
    pub(super) created: bool,
}

/// The outcome of a session.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) keys: KeyKind,
    /// The entries of the store at its opening.
    pub(super) found: Found,
    pub(super) records: Vec<Record>,
    pub(super) followed: Option<Followed>,
    /// The tick when the store was closed.
    pub(super) ended: u64,
    pub(super) points: Vec<Point>,
    /// The store answered an error that the fault explains.
    pub(super) failed: bool,
}

/// Keeps some crash points, each as likely as any other.
struct Watch {
    generator: Generator,
    most: usize,
    seen: u64,
    points: Vec<Point>,
}

/// The state that all threads of a session share.
#[derive(Clone)]
struct Shared {
    store: Arc<dyn Engine>,
    clock: Arc<AtomicU64>,
    /// `close` was called.
    closing: Arc<AtomicBool>,
    /// `close` has returned.
    closed: Arc<AtomicBool>,
    faulty: bool,
    failed: Arc<AtomicBool>,
}

impl Plan {
    /// Runs the session; on a scheduled thread.
    pub(super) fn play(self) -> Result<Played, String> {
        let mut generator = Generator::new(self.seed);
        let environment = self.environment(&mut generator);
        let clock = Arc::new(AtomicU64::new(self.tick));
        // Half of these sessions begin with nothing in memory: a copy of the store shows
        // what is in it.
        let cold = self.focused && !self.creates && generator.chance(1, 2);
        let copy = cold.then(|| self.disk.fork());
        let (created, closed) = (Arc::new(AtomicBool::new(!self.creates)), Arc::default());
        let watch = self.watch(&clock, &created, &closed, generator.next_u64());
        let store = match self.creates {
            true => self.subject.create(&environment),
            false => self.subject.open(&environment),
        };
        let store = store.map_err(|error| format!("opening: {error}"))?;
        created.store(true, Ordering::SeqCst);
        let found = match copy {
            Some(disk) => self
                .subject
                .open(&self.subject.environment(&disk, 1))
                .and_then(|copy| collect_all(&*copy, &copy.capabilities())),
            None => collect_all(&*store, &store.capabilities()),
        };
        let mut played = Played {
            found: found.map_err(|error| format!("iterating after opening: {error}"))?,
            keys: store.capabilities().keys,
            records: Vec::new(),
            followed: None,
            ended: 0,
            points: Vec::new(),
            failed: false,
        };
        let follower = Follower::of(&store, &clock, self.seed);
        let follower = follower.map_err(|error| format!("beginning to follow: {error}"))?;
        for &rule in &self.faults {
            self.disk.inject(rule);
        }
        let shared = Shared {
            store,
            clock: clock.clone(),
            closing: Arc::default(),
            closed,
            faulty: !self.faults.is_empty(),
            failed: Arc::default(),
        };
        let done = Arc::new(AtomicBool::new(false));
        let follower = follower.map(|follower| {
            let done = done.clone();
            thread::spawn(move || follower.run(&done))
        });
        let records = self.act(&shared, &mut generator);
        done.store(true, Ordering::SeqCst);
        if let Some(follower) = follower {
            let (followed, error) = follower.join().map_err(|_| "a panic".to_string())?;
            played.followed = Some(followed);
            error.map_or(Ok(()), |error| shared.refused(error))?;
        }
        played.records = records?;
        shared.close().or_else(|error| shared.refused(error))?;
        drop(environment);
        drop(shared.store);
        played.ended = clock.fetch_add(1, Ordering::SeqCst);
        played.failed = shared.failed.load(Ordering::SeqCst);
        self.disk.clear_crash_probe();
        self.disk.clear_faults();
        let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(what) = watch.as_ref().err() {
            return Err(what.clone());
        }
        if let Ok(watch) = &mut *watch {
            played.points = std::mem::take(&mut watch.points);
        }
        Ok(played)
    }

    /// Three sessions of four have background threads, as users' stores do.
    fn environment(&self, generator: &mut Generator) -> Environment {
        let seed = generator.next_u64();
        let mut environment = self.subject.environment(&self.disk, seed);
        if generator.chance(3, 4) {
            environment.executor = Arc::new(ThreadExecutor);
        }
        environment
    }

    fn watch(
        &self,
        clock: &Arc<AtomicU64>,
        created: &Arc<AtomicBool>,
        closed: &Arc<AtomicBool>,
        seed: u64,
    ) -> Arc<Mutex<Result<Watch, String>>> {
        let watch = Arc::new(Mutex::new(Ok(Watch {
            generator: Generator::new(seed),
            most: match (self.focused, self.faults.is_empty()) {
                (_, false) => POINTS_WITH_FAULT,
                (true, true) => 0,
                (false, true) => POINTS,
            },
            seen: 0,
            points: Vec::new(),
        })));
        let (kept, clock) = (watch.clone(), clock.clone());
        let (created, closed) = (created.clone(), closed.clone());
        self.disk
            .set_crash_probe(ProbePoints::Operations, move |point: CrashPoint| {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if closed.load(Ordering::SeqCst) {
                    *kept = Err(format!("{:?} after close had returned", point.moment));
                } else if let Ok(watch) = &mut *kept {
                    watch.offer(Point {
                        disk: point.disk,
                        tick: clock.load(Ordering::SeqCst),
                        created: created.load(Ordering::SeqCst),
                    });
                }
            });
        watch
    }

    /// Lets actors and upkeep loose on the store, and waits for them.
    fn act(&self, shared: &Shared, generator: &mut Generator) -> Result<Vec<Record>, String> {
        let actors = 1 + generator.below(4);
        let actions = match self.focused {
            true => 1 + generator.below(FOCUSED_ACTIONS),
            false => 1 + generator.below(2 * self.actions / actors),
        };
        let (keys, sizes) = match self.focused {
            true => (2 + generator.below(3), *generator.pick(&FOCUSED_SIZES)),
            false => (KEYS, &SIZES[..]),
        };
        let threads: Vec<_> = (0..actors)
            .map(|number| {
                let actor = Actor::new(
                    shared.store.clone(),
                    shared.clock.clone(),
                    self.actors + number + 1,
                    generator.next_u64(),
                    sizes,
                );
                let mut actor = actor.with_keys(keys);
                if self.focused {
                    actor = actor.with_few_calls();
                }
                let shared = shared.clone();
                thread::spawn(move || shared.perform(actor, actions))
            })
            .collect();
        // Up to two, so that calls of upkeep meet each other.
        let upkeep: Vec<_> = (0..generator.below(3))
            .map(|_| {
                let (shared, seed) = (shared.clone(), generator.next_u64());
                thread::spawn(move || shared.upkeep(seed))
            })
            .collect();
        let mut outcome = Ok(Vec::new());
        for thread in threads {
            let record = thread.join().unwrap_or_else(|_| Err("a panic".to_string()));
            outcome = outcome.and_then(|mut records: Vec<Record>| {
                records.push(record?);
                Ok(records)
            });
        }
        for thread in upkeep {
            let done = thread.join().unwrap_or_else(|_| Err("a panic".to_string()));
            outcome = outcome.and_then(|records| done.map(|()| records));
        }
        outcome
    }
}

impl Watch {
    fn offer(&mut self, point: Point) {
        self.seen += 1;
        if self.points.len() < self.most {
            self.points.push(point);
        } else {
            let place = self.generator.below(self.seen) as usize;
            if place < self.most {
                self.points[place] = point;
            }
        }
    }
}

impl Shared {
    /// An error that the session explains, by a close or by a fault.
    fn refused(&self, error: Error) -> Result<(), String> {
        let closing = self.closing.load(Ordering::SeqCst);
        match error {
            Error::Closed if closing => Ok(()),
            Error::Cancelled | Error::Unsupported { .. } => Ok(()),
            // Only a suite with a small limit reaches it.
            Error::SnapshotLimit { .. } => Ok(()),
            _ if self.faulty => {
                self.failed.store(true, Ordering::SeqCst);
                Ok(())
            }
            error => Err(format!("an operation failed: {error}")),
        }
    }

    fn perform(&self, mut actor: Actor, actions: u64) -> Result<Record, String> {
        for _ in 0..actions {
            match actor.act() {
                Ok(()) => {}
                Err(Stop::Wrong(what)) => return Err(what),
                Err(Stop::Refused(error)) => {
                    let closed = matches!(error, Error::Closed);
                    self.refused(error)?;
                    if closed {
                        break;
                    }
                }
            }
        }
        Ok(actor.record)
    }

    /// Calls that maintain the store: steps, compactions, checks, syncs.
    fn upkeep(&self, seed: u64) -> Result<(), String> {
        let mut generator = Generator::new(seed);
        for _ in 0..1 + generator.below(8) {
            (0..generator.below(60)).for_each(|_| thread::yield_now());
            let done = match generator.below(20) {
                0..=5 => self.store.step(1 + generator.below(1 << 13)).map(|_| ()),
                6..=12 => self.compact(),
                13 => {
                    self.store.cancel();
                    Ok(())
                }
                14 => self.check(),
                15 => self.store.stats().map(|_| ()),
                16 => self.store.sync(),
                17 => self.store.snapshot().map(|_| thread::yield_now()),
                18 => self.consume(seed),
                _ => self.close(),
            };
            done.or_else(|error| match error {
                error @ Error::Corruption { .. } if !self.faulty => Err(error.to_string()),
                error => self.refused(error),
            })?;
        }
        Ok(())
    }

    fn close(&self) -> Result<(), Error> {
        self.closing.store(true, Ordering::SeqCst);
        self.store.close()?;
        self.closed.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn compact(&self) -> Result<(), Error> {
        let options = CompactOptions::default();
        self.store.compact(&options, &()).map(|_| ())
    }

    /// Keeps the history since now, for a moment.
    fn consume(&self, name: u64) -> Result<(), Error> {
        let name = name.to_string();
        let now = self.store.snapshot()?.sequence();
        match self.store.move_consumer(&name, Some(now)) {
            // No consumer kept that history.
            Err(Error::HistoryLost { .. }) => Ok(()),
            moved => moved.and_then(|()| self.store.move_consumer(&name, None)),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let report = self.store.check(&())?;
        if report.is_sound() || self.faulty {
            return Ok(());
        }
        let what = format!("check beside writers found: {:?}", report.findings);
        Err(Error::corruption("", 0, what))
    }
}
