//! Damage: every file of a small store cut at every byte, every byte flipped,
//! every file gone, stretches of it zeroed.
//!
//! What must hold for each:
//!
//! - Nothing panics or runs on for ever, and no length in the damage makes memory run out.
//! - Nothing is answered that was never written: a value is one its key had.
//! - What reads without any error is a state the store was in; if it is not the
//!   last one, that is a legal prefix.
//! - Reading without an error and without being a state is allowed only where
//!   `check` says that there is damage.
//! - Of engines that ask for it ([`DamageSuite::strict`]): a store that was closed
//!   never reads as an earlier state, one that died after its last write was synced
//!   does so only where a file is cut, and a repair that says that nothing was lost
//!   brings back the last one.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use cambium_api::{Capabilities, CompactOptions, EngineKind, Error, Value};
use cambium_io::simulated::{
    CrashStyle, Fault, FaultRule, Generator, OperationClass, SimulatedDisk,
};

use crate::crash::guarded;
use crate::crash::number_from;
use crate::history::History;
use crate::holding::{Found, collect_all, perform};
use crate::patience::watched;
use crate::subject::{Subject, store_path};
use crate::workload::{Workload, key_space};

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
}

/// What the suite has looked at.
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
    /// Repairs that said that nothing was lost, and so it was.
    pub mended: u64,
}

/// What was done to a store.
#[derive(Clone, Debug)]
enum Harm {
    Cut(PathBuf, usize),
    Flip(PathBuf, usize),
    Zero(PathBuf, usize),
    Gone(PathBuf),
}

/// A small store and all it has ever been.
struct Victim {
    disk: SimulatedDisk,
    history: History,
    keys: Vec<Vec<u8>>,
    closed: bool,
}

impl DamageSuite {
    /// The suite for an engine with its defaults.
    pub fn new(kind: &'static dyn EngineKind) -> Self {
        DamageSuite {
            subject: Subject::new(kind),
            stride: 1,
            writes: 25,
            strict: false,
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

    /// Accepts no earlier state of a store whose writes were all synced, and repairs some of
    /// the damaged stores.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Damages stores that were closed and stores that were not.
    ///
    /// # Panics
    /// If anything does not hold, naming file and offset.
    pub fn run(&self) -> DamageReport {
        self.damage_all().expect("damage is found, or does no harm")
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

    fn betray(&self, seed: u64, report: &mut DamageReport) -> Result<(), String> {
        let mut generator = Generator::new(seed);
        let disk = SimulatedDisk::new(generator.next_u64());
        let environment = self.subject.environment(&disk, seed);
        let store = self.subject.create(&environment);
        let store = store.map_err(|error| format!("create: {error}"))?;
        let (class, fault) = *generator.pick(&[
            (OperationClass::Sync, Fault::SyncLies),
            (OperationClass::Write, Fault::PhantomWrite),
            (OperationClass::Write, Fault::MisdirectedWrite),
        ]);
        disk.inject(FaultRule {
            class,
            nth: 1 + generator.below(20),
            forever: class == OperationClass::Sync && generator.chance(1, 2),
            fault,
        });
        let capabilities = store.capabilities();
        let mut workload = Workload::new(generator.next_u64(), capabilities);
        let mut history = History::new();
        for _ in 0..self.writes {
            let (change, durability) = workload.next_change(history.current());
            let mut changes = change.preparations(history.current());
            changes.push(change);
            let mut changes = changes.into_iter();
            let stopped = changes.any(|change| {
                history.send(&change);
                perform(&*store, change, durability).is_err()
            });
            if stopped {
                break;
            }
        }
        let victim = Victim {
            disk: disk.crash(CrashStyle::Mixed, generator.next_u64()),
            history,
            keys: key_space(capabilities.keys),
            closed: false,
        };
        report.cases += 1;
        let last = victim.history.window().sent;
        match self.read(&victim.disk, &victim)? {
            None => report.detected += 1,
            Some(found) => match victim.history.find(&found, 0, last) {
                Ok(index) if index == last => report.harmless += 1,
                Ok(_) => report.prefix += 1,
                Err(_) => report.mixed += 1,
            },
        }
        Ok(())
    }

    /// The first thing that does not hold, if any: for tests of the suite.
    pub fn find_failure(&self) -> Option<String> {
        self.damage_all().err()
    }

    fn damage_all(&self) -> Result<DamageReport, String> {
        let suite = self.clone();
        watched(move |announcer| {
            let mut report = DamageReport::default();
            for closed in [true, false] {
                let victim = suite.victim(closed)?;
                for harm in suite.harms(&victim.disk) {
                    let case = format!("closed {closed}, {harm:?}");
                    announcer.next(case.clone());
                    let run = AssertUnwindSafe(|| suite.harm(&victim, &harm, &mut report));
                    guarded(run).map_err(|what| format!("{case}: {what}"))?;
                }
            }
            Ok(report)
        })
    }

    /// A store with overwritten, deleted and compacted entries, closed or not.
    fn victim(&self, closed: bool) -> Result<Victim, String> {
        let (plain, capabilities) = self.victim_of(FIRST_SEED, closed)?;
        if !capabilities.namespaces && !capabilities.named_snapshots {
            return Ok(plain);
        }
        // Something of everything that the engine has, in as few bytes as can be.
        let mut victims = Vec::new();
        for seed in FIRST_SEED..FIRST_SEED + 60 {
            let (victim, _) = self.victim_of(seed, closed)?;
            let last = victim.history.current();
            let spaces = last.spaces.values().filter(|entries| entries.len() > 1);
            let spaces_wanted = 1 + usize::from(capabilities.namespaces);
            let kept_wanted = usize::from(capabilities.named_snapshots);
            if spaces.count() >= spaces_wanted && last.kept.len() >= kept_wanted {
                victims.push(victim);
            }
        }
        let smallest = victims
            .into_iter()
            .min_by_key(|victim| victim.disk.used_bytes());
        smallest.ok_or_else(|| "no history leaves something of everything".to_string())
    }

    fn victim_of(&self, seed: u64, closed: bool) -> Result<(Victim, Capabilities), String> {
        let fail = |error: Error| format!("making a store: {error}");
        let disk = SimulatedDisk::new(1);
        let environment = self.subject.environment(&disk, 1);
        let store = self.subject.create(&environment).map_err(fail)?;
        let capabilities = store.capabilities();
        let mut workload = Workload::rich(seed, capabilities);
        let mut history = History::new();
        for number in 0..self.writes {
            let (change, durability) = workload.next_change(history.current());
            let mut changes = change.preparations(history.current());
            changes.push(change);
            for change in changes {
                history.send(&change);
                let durability = change.durability(durability);
                let sequence = perform(&*store, change, durability).map_err(fail)?;
                history.acknowledge(sequence, durability);
            }
            if number == self.writes / 2 {
                store
                    .compact(&CompactOptions::default(), &())
                    .map_err(fail)?;
            }
        }
        store.sync().map_err(fail)?;
        if closed {
            store.close().map_err(fail)?;
        }
        drop(store);
        let victim = Victim {
            disk: disk.crash(CrashStyle::Everything, 1),
            history,
            keys: key_space(capabilities.keys),
            closed,
        };
        Ok((victim, capabilities))
    }

    fn harms(&self, disk: &SimulatedDisk) -> Vec<Harm> {
        let stride =
            number_from("CAMBIUM_STRIDE").map_or(self.stride, |given| given.max(1) as usize);
        let mut harms = Vec::new();
        for path in disk.files() {
            let bytes = disk.contents(&path).unwrap_or_default();
            for at in (0..bytes.len()).step_by(stride) {
                harms.push(Harm::Cut(path.clone(), at));
                harms.push(Harm::Flip(path.clone(), at));
            }
            for at in (0..bytes.len()).step_by(stride.max(64)) {
                harms.push(Harm::Zero(path.clone(), at));
            }
            harms.push(Harm::Gone(path));
        }
        harms
    }

    fn harm(&self, victim: &Victim, harm: &Harm, report: &mut DamageReport) -> Result<(), String> {
        let disk = victim.disk.fork();
        apply(&disk, harm);
        report.cases += 1;
        // Checking writes nothing, so it can come first.
        let environment = self.subject.environment(&disk, 2);
        let checked = self.subject.check(&environment);
        let sound = checked.as_ref().is_ok_and(|report| report.is_sound());
        if self.strict && !sound && report.cases % REPAIRED_EACH == 0 {
            self.repair(&disk.fork(), victim, report)?;
        }
        let outcome = self.read(&disk, victim)?;
        let last = victim.history.window().sent;
        match outcome {
            None => report.detected += 1,
            Some(found) => match victim.history.find(&found, 0, last) {
                Ok(index) if index == last => report.harmless += 1,
                // Of a file that is cut nobody knows what it held.
                Ok(index) if self.strict && (victim.closed || !matches!(harm, Harm::Cut(..))) => {
                    let state = if victim.closed { "closed" } else { "synced" };
                    return Err(format!(
                        "a {state} store reads as write {index} left it, not {last}"
                    ));
                }
                Ok(_) => report.prefix += 1,
                Err(_) if !sound => report.detected += 1,
                Err(what) => return Err(format!("nothing complains: {what}")),
            },
        }
        Ok(())
    }

    /// Repairs; what that says is held against what is there then.
    fn repair(
        &self,
        disk: &SimulatedDisk,
        victim: &Victim,
        report: &mut DamageReport,
    ) -> Result<(), String> {
        let environment = self.subject.environment(disk, 4);
        let Ok(repaired) = self.subject.repair(&environment) else {
            return Ok(());
        };
        let Some(found) = self.read(disk, victim)? else {
            return Err(format!("a repaired store is damaged: {repaired:?}"));
        };
        let last = victim.history.window().sent;
        let whole = victim.history.find(&found, 0, last) == Ok(last);
        if repaired.is_sound() && victim.closed && !whole {
            return Err(format!(
                "a repair lost something without a word: {repaired:?}"
            ));
        }
        report.mended += u64::from(repaired.is_sound() && whole);
        Ok(())
    }

    /// Opens and reads everything; `None` if any of it answers an error.
    fn read(&self, disk: &SimulatedDisk, victim: &Victim) -> Result<Option<Found>, String> {
        let environment = self.subject.environment(disk, 3);
        let Ok(store) = self.subject.open(&environment) else {
            return Ok(None);
        };
        let mut complained = false;
        for name in store.list_namespaces().unwrap_or_default() {
            let Ok(space) = store.namespace(&name) else {
                return Ok(None);
            };
            for key in &victim.keys {
                match space.get(key) {
                    Ok(value) => victim.expect_once(&name, key, value.as_ref())?,
                    Err(_) => complained = true,
                }
            }
        }
        let found = match collect_all(&*store, &store.capabilities()) {
            Ok(found) => found,
            Err(_) => return Ok(None),
        };
        for (name, entries) in &found.spaces {
            for (key, value) in entries {
                victim.expect_once(name, key, Some(value))?;
            }
        }
        let unsound = store.check(&()).map_or(true, |report| !report.is_sound());
        // What is left must bear being closed, compacted and dropped.
        _ = store.compact(&CompactOptions::default(), &());
        _ = store.close();
        Ok((!complained && !unsound).then_some(found))
    }
}

/// Of the histories that make stores to damage.
const FIRST_SEED: u64 = 7;
/// One of so many damaged stores is repaired too.
const REPAIRED_EACH: u64 = 5;

impl Victim {
    /// Fails for a value that the key never had. A repair may have to make a name
    /// for a namespace whose own is lost: there, any namespace may have had it.
    fn expect_once(&self, name: &str, key: &[u8], value: Option<&Value>) -> Result<(), String> {
        let states = 0..=self.history.window().sent;
        let mut spaces = states.map(|index| &self.history.state(index).spaces);
        let known = spaces.clone().any(|spaces| spaces.contains_key(name));
        let had = spaces.any(|spaces| {
            let mut within = spaces.iter().filter(|(of, _)| !known || *of == name);
            let absent = value.is_none() && !spaces.contains_key(name);
            absent || within.any(|(_, entries)| entries.get(key) == value)
        });
        if had {
            return Ok(());
        }
        let key = cambium_base::hexdump::readable(&key[..key.len().min(24)]);
        let length = value.map(|value| value.len());
        Err(format!("key {key} has {length:?} bytes it never had"))
    }
}

fn apply(disk: &SimulatedDisk, harm: &Harm) {
    match harm {
        Harm::Cut(path, at) => {
            let mut bytes = disk.contents(path).unwrap_or_default();
            bytes.truncate(*at);
            disk.replace_contents(path, &bytes);
        }
        Harm::Flip(path, at) => {
            disk.flip_bit(path, *at as u64, (*at % 8) as u32);
        }
        Harm::Zero(path, at) => {
            let mut bytes = disk.contents(path).unwrap_or_default();
            let end = bytes.len().min(at + 64);
            bytes[*at..end].fill(0);
            disk.replace_contents(path, &bytes);
        }
        Harm::Gone(path) => remove(disk, path),
    }
}

fn remove(disk: &SimulatedDisk, path: &Path) {
    use cambium_io::FileSystem;
    // The path comes from the disk itself, and nothing is armed to fail.
    _ = disk.remove(path);
    _ = disk.sync_directory(store_path());
}
