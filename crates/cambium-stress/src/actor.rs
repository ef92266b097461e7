//! A thread of the load. It alone writes its own keys, so it knows exactly what they
//! have; shared groups are written by all.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cambium::{CompactOptions, Error, SequenceNumber, Store};

use crate::content::{KeyId, Version, describe, fits, shared_version, value};
use crate::held::Held;
use crate::ledger::{Base, Effect, Level, Log, Logged, Outcome, version_of};
use crate::random::Random;
use crate::session::{Ending, Orders, Shared, lock};

/// Why a thread ends.
pub enum Stop {
    /// The store was closed, or its disk failed: nothing is wrong.
    Quiet,
    Violation(String),
}

pub type Step = Result<(), Stop>;

pub fn violation<T>(what: String) -> Result<T, Stop> {
    Err(Stop::Violation(what))
}

/// Something that a thread does.
type Action<'a> = fn(&mut Actor<'a>) -> Step;

/// A thread.
pub struct Actor<'a> {
    pub thread: usize,
    pub shared: &'a Arc<Shared>,
    pub random: Random,
    /// The version of each own key.
    pub model: Vec<Option<Version>>,
    /// The number of the next operation.
    next: u64,
    log: Log,
    pub held: Vec<Held>,
}

impl<'a> Actor<'a> {
    /// The actions of a thread, each with how often it is drawn.
    const ACTIONS: [(u64, Action<'a>); 22] = [
        (180, Self::get_own),
        (60, Self::get_of_another),
        (40, Self::multi_get_own),
        (250, Self::put),
        (50, Self::delete),
        (60, Self::batch),
        (60, Self::write_group),
        (60, Self::read_group),
        (8, Self::delete_range),
        (40, Self::write_if),
        (30, Self::swap),
        (30, Self::submit),
        (25, Self::scan),
        (12, Self::hold),
        (70, Self::go_on_with_held),
        (5, Self::resume),
        (10, Self::sync),
        (1, Self::compact),
        (3, Self::look_around),
        (2, Self::name_snapshot),
        (2, Self::come_and_go),
        (1, Self::open_again),
    ];

    pub fn new(
        thread: usize,
        shared: &'a Arc<Shared>,
        base: &Base,
        ledger: &Path,
        orders: &Orders,
    ) -> std::io::Result<Self> {
        let gather = orders.undisturbed && orders.ending != Ending::Abandon;
        Ok(Actor {
            thread,
            shared,
            random: Random::part(orders.seed, 100 + thread as u64),
            model: base.own[thread].clone(),
            next: base.next[thread],
            log: Log::open(ledger, base.generation, thread, gather)?,
            held: Vec::new(),
        })
    }

    /// Runs until the session ends or something is wrong.
    pub fn run(&mut self) {
        let mut ended = Ok(());
        if self.shared.plan.plain && self.model.iter().all(Option::is_none) {
            ended = self.fill();
        }
        while ended.is_ok() && !self.shared.stop.load(Ordering::Acquire) {
            ended = self.step();
            self.shared.operations.fetch_add(1, Ordering::Relaxed);
        }
        if let Err(error) = self.log.flush() {
            self.shared.report(format!("the ledger: {error}"));
        }
        if let Err(Stop::Violation(what)) = ended {
            self.shared.report(format!(
                "thread {}, operation {}: {what}",
                self.thread, self.next
            ));
        }
    }

    fn step(&mut self) -> Step {
        if self.shared.plan.plain {
            return if self.random.chance(50) {
                self.put()
            } else {
                self.get_own()
            };
        }
        let mut drawn = self
            .random
            .below(Self::ACTIONS.iter().map(|action| action.0).sum());
        for (often, action) in Self::ACTIONS {
            if drawn < often {
                return action(self);
            }
            drawn -= often;
        }
        Ok(())
    }

    /// The handle for a key's namespace.
    pub fn store(&self, key: KeyId) -> &'a Store {
        &self.shared.stores[self.shared.shape().namespace(key)]
    }

    pub fn key(&self, key: KeyId) -> Vec<u8> {
        self.shared.shape().key(key)
    }

    /// An own key: skewed, so that some are changed often.
    pub fn pick(&mut self) -> u32 {
        let keys = f64::from(self.shared.shape().keys);
        let fraction = self.random.fraction();
        let skewed = match self.shared.plan.plain {
            true => !self.shared.plan.uniform,
            false => self.random.chance(50),
        };
        let at = if skewed { fraction.powi(4) } else { fraction };
        (at * keys) as u32
    }

    /// A durability as the plan has it.
    pub fn level(&mut self) -> Level {
        let drawn = self.random.below(100);
        let plan = &self.shared.plan;
        if drawn < plan.buffered {
            Level::Buffered
        } else if drawn < plan.buffered + plan.synced {
            Level::Synced
        } else {
            Level::Written
        }
    }

    /// The length of a value: around the sizes at which engines change their ways.
    pub fn length(&mut self) -> u32 {
        const EDGES: &[u32] = &[
            0, 1, 8, 15, 16, 17, 63, 64, 65, 127, 128, 255, 256, 511, 512, 513, 1023, 1024, 1025,
            4000, 4095, 4096, 4097, 8192, 16_383, 16_384, 32_768, 65_000, 65_535, 65_536,
        ];
        let most = self.shared.plan.most_value;
        if self.shared.plan.plain {
            return most;
        }
        match self.random.below(2000) {
            0 if most >= 5000 => self.random.between(65_536, 400_000) as u32,
            1..800 => (*self.random.pick(EDGES)).min(most),
            800..1200 => self.random.below(65) as u32,
            _ => self.random.magnitude(16, u64::from(most.max(16))) as u32,
        }
    }

    /// Logs an intent, makes the call, and logs the answer. The model follows what was
    /// acknowledged. True if it was.
    pub fn change(
        &mut self,
        level: Level,
        effects: &[Effect],
        call: impl FnOnce(&Self, u64) -> Result<Option<SequenceNumber>, Error>,
    ) -> Result<bool, Stop> {
        let number = self.next;
        self.next += 1;
        self.begin(number, effects);
        let intent = Logged {
            number,
            level,
            floor: self.shared.acknowledged.load(Ordering::Acquire),
            effects: effects.to_vec(),
            outcome: Outcome::Unknown,
        };
        self.logged(|log| log.intent(intent))?;
        match call(self, number) {
            Ok(sequence) => {
                let sequence = sequence.map(|sequence| sequence.0);
                self.logged(|log| log.outcome(number, Outcome::Acknowledged(sequence)))?;
                self.acknowledge(number, effects, sequence);
                Ok(true)
            }
            Err(error) => self.refused(number, error),
        }
    }

    pub fn logged(&mut self, line: impl FnOnce(&mut Log) -> std::io::Result<()>) -> Step {
        line(&mut self.log).map_err(|error| Stop::Violation(format!("the ledger: {error}")))
    }

    /// Tells readers of other threads that an operation begins.
    fn begin(&self, number: u64, effects: &[Effect]) {
        let keys = &self.shared.keys[self.thread];
        for effect in effects {
            let (ids, takes_away) = own_ids(effect);
            for id in ids {
                if takes_away {
                    keys[id as usize]
                        .taken_away
                        .store(number, Ordering::Release);
                }
                keys[id as usize].begun.store(number, Ordering::Release);
            }
        }
    }

    fn acknowledge(&mut self, number: u64, effects: &[Effect], sequence: Option<u64>) {
        for (place, effect) in effects.iter().enumerate() {
            let (ids, takes_away) = own_ids(effect);
            for id in ids {
                let length = if let Effect::Put { length, .. } = effect {
                    *length
                } else {
                    0
                };
                let version = Version {
                    version: version_of(number, place),
                    length,
                };
                self.model[id as usize] = (!takes_away).then_some(version);
            }
        }
        // After all effects: a batch may put a key and then take it away.
        for id in effects.iter().flat_map(|effect| own_ids(effect).0) {
            let known = number << 1 | u64::from(self.model[id as usize].is_some());
            self.shared.keys[self.thread][id as usize]
                .acknowledged
                .store(known, Ordering::Release);
        }
        let Some(sequence) = sequence else {
            return;
        };
        let known = &self.shared.acknowledged;
        known.fetch_max(sequence, Ordering::AcqRel);
        if let Some(&Effect::Group { group, .. }) = effects.first() {
            // Readers of the group look for the sequence number of its new version.
            let state = &self.shared.groups[group];
            let mut numbers = lock(&state.numbers);
            numbers.insert(shared_version(self.thread, number), sequence);
            state.acknowledged.fetch_max(sequence, Ordering::AcqRel);
        }
    }

    /// The bytes that an operation of one effect gives to an own key.
    pub fn own_value(&self, id: u32, number: u64, length: u32) -> Vec<u8> {
        let version = version_of(number, 0);
        value((self.thread, id), Version { version, length })
    }

    /// Judges the error of a change. False if nothing was written.
    fn refused(&mut self, number: u64, error: Error) -> Result<bool, Stop> {
        match error {
            Error::PreconditionFailed { .. }
            | Error::NoSpace { .. }
            | Error::LimitExceeded(_)
            | Error::SnapshotLimit { .. } => {
                self.shared.note_refusal(&error);
                self.logged(|log| log.outcome(number, Outcome::Refused))?;
                Ok(false)
            }
            other => Err(self.judge("a change", other)),
        }
    }

    /// As [`Shared::judge`].
    pub fn judge(&self, what: &str, error: Error) -> Stop {
        self.shared.judge(what, error)
    }

    /// Compares what an own key was read to have with what it has.
    pub fn expect(
        &self,
        how: &str,
        id: u32,
        version: Option<Version>,
        bytes: Option<&[u8]>,
    ) -> Step {
        let key = (self.thread, id);
        if fits(key, version, bytes) {
            return Ok(());
        }
        let expected = version.map(|version| value(key, version));
        violation(format!(
            "{how}: key {id} has {}, expected {}",
            describe(bytes),
            describe(expected.as_deref())
        ))
    }

    /// Gives each key a value before a plain load.
    fn fill(&mut self) -> Step {
        let length = self.shared.plan.most_value;
        let ids: Vec<u32> = (0..self.shared.shape().keys).collect();
        for some in ids.chunks(200) {
            let effects: Vec<Effect> = some.iter().map(|&id| Effect::Put { id, length }).collect();
            self.write_batch(Level::Written, &effects)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Step {
        let store = &self.shared.stores[0];
        self.change(Level::Synced, &[], |_, _| store.sync().map(|()| None))
            .map(|_| ())
    }

    fn compact(&mut self) -> Step {
        if self.random.chance(20) {
            self.shared.stores[0].cancel();
            return Ok(());
        }
        match self.shared.stores[0].compact(&CompactOptions::default(), &()) {
            Ok(_) | Err(Error::Cancelled | Error::LimitExceeded(_) | Error::NoSpace { .. }) => {
                Ok(())
            }
            // Named snapshots stop it where an option says so.
            Err(Error::InvalidArgument(what)) if what.contains("compaction_snapshots=refuse") => {
                Ok(())
            }
            Err(error) => Err(self.judge("compact", error)),
        }
    }

    /// Calls that only look: statistics, sizes, an online check, the text of the structure.
    fn look_around(&mut self) -> Step {
        let store = &self.shared.stores[0];
        let looked = match self.random.below(20) {
            0 => match store.check(&()) {
                // As a read would: what a failed sync took from the disk is damage.
                Ok(report) if !report.is_sound() && self.shared.drops => {
                    return Err(Stop::Quiet);
                }
                Ok(report) if !report.is_sound() => {
                    return violation(format!(
                        "check of the open store finds {:?}",
                        report.findings
                    ));
                }
                Ok(_) | Err(Error::Unsupported { .. }) => Ok(()),
                Err(error) => Err(error),
            },
            1 => store.dump(&mut std::io::sink()),
            2..10 => store.stats().map(|_| ()),
            _ => match store.approximate_size(&cambium::KeyRange::all()) {
                Ok(_) | Err(Error::Unsupported { .. }) => Ok(()),
                Err(error) => Err(error),
            },
        };
        looked.map_err(|error| self.judge("looking around", error))
    }
}

/// The own keys that an effect changes, and whether it takes them away.
fn own_ids(effect: &Effect) -> (std::ops::Range<u32>, bool) {
    match *effect {
        Effect::Put { id, .. } => (id..id + 1, false),
        Effect::Delete { id } => (id..id + 1, true),
        Effect::DeleteRange { from, to } => (from..to, true),
        Effect::Group { .. } => (0..0, false),
    }
}
