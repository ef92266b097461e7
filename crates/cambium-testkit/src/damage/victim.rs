//! Stores to be damaged, and all that each has ever been.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use cambium_api::{Capabilities, CompactOptions, Durability, Error, Value};
use cambium_io::simulated::{CrashStyle, Moment, ProbePoints, SimulatedDisk};

use super::harm::{Harm, SECTOR_BYTES};
use crate::history::History;
use crate::holding::perform;
use crate::subject::Subject;
use crate::workload::{Workload, key_space};

/// The first seed of the histories that make stores to damage.
const FIRST_SEED: u64 = 7;

/// How a store came to lie there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fashion {
    /// Compacted half way, synced and closed.
    Closed,
    /// Compacted half way; the process died after a sync.
    Killed,
    /// Compacted half way; the process died some writes after a sync.
    KilledInWrites,
    /// Never compacted; the process died in its first session, after a sync.
    KilledYoung,
}

impl Fashion {
    /// Every one.
    pub(super) const ALL: [Fashion; 4] = [
        Fashion::Closed,
        Fashion::Killed,
        Fashion::KilledInWrites,
        Fashion::KilledYoung,
    ];
}

/// A small store and its history.
pub(super) struct Victim {
    pub(super) disk: SimulatedDisk,
    pub(super) history: History,
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) capabilities: Capabilities,
    /// The disk before some of its syncs: crashes then leave what some harm does.
    pub(super) earlier: Vec<Earlier>,
}

/// The disk just before a sync, which differs from the victim in few sectors.
pub(super) struct Earlier {
    /// The last synced state at that time.
    synced: usize,
    cached: SimulatedDisk,
    durable: SimulatedDisk,
    /// Sectors in which the victim differs from what was cached then.
    differing: Vec<(PathBuf, usize)>,
}

/// The states that the suite tolerates, since an earlier power cut could have left the
/// same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tolerated {
    /// The oldest state that may be found.
    pub(super) low: usize,
    /// The harm left bytes that a torn write within one sector could have left,
    /// and no whole sector could: then `check` has to mention it.
    pub(super) mentioned: bool,
}

/// Forks of the disk before its syncs, with what was synced at each.
type Forks = Arc<Mutex<(usize, Vec<(usize, SimulatedDisk)>)>>;

impl Victim {
    /// Makes a store that has something of everything that the engine has, in as
    /// few bytes as can be.
    pub(super) fn make(subject: &Subject, writes: u64, fashion: Fashion) -> Result<Self, String> {
        let plain = Victim::from_seed(subject, writes, FIRST_SEED, fashion)?;
        let capabilities = plain.capabilities;
        if !capabilities.namespaces && !capabilities.named_snapshots {
            return Ok(plain);
        }
        let mut victims = Vec::new();
        for seed in FIRST_SEED..FIRST_SEED + 60 {
            let victim = Victim::from_seed(subject, writes, seed, fashion)?;
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

    /// A store on a device that lied about syncs, or lost or misplaced writes.
    pub(super) fn betrayed(
        disk: SimulatedDisk,
        history: History,
        keys: Vec<Vec<u8>>,
        capabilities: Capabilities,
    ) -> Self {
        Victim {
            disk,
            history,
            keys,
            capabilities,
            earlier: Vec::new(),
        }
    }

    fn from_seed(
        subject: &Subject,
        writes: u64,
        seed: u64,
        fashion: Fashion,
    ) -> Result<Self, String> {
        let fail = |error: Error| format!("making a store: {error}");
        let disk = subject.disk(1);
        let environment = subject.environment(&disk, 1);
        let store = subject.create(&environment).map_err(fail)?;
        let forks = watch(&disk);
        let capabilities = store.capabilities();
        let mut workload = Workload::rich(seed, capabilities);
        let mut history = History::new();
        let synced_until = match fashion {
            Fashion::KilledInWrites => writes - writes / 6,
            _ => writes,
        };
        for number in 0..writes {
            let (change, durability) = workload.next_change(history.current());
            let mut changes = change.preparations(history.current());
            changes.push(change);
            for change in changes {
                history.send(&change);
                let mut durability = change.durability(durability);
                if number >= synced_until {
                    durability = durability.min(Durability::Written);
                }
                let sequence = perform(&*store, change, durability).map_err(fail)?;
                history.acknowledge(sequence, durability);
                note_synced(&forks, history.window().synced);
            }
            if number == writes / 2 && fashion != Fashion::KilledYoung {
                let compacted = store.compact(&CompactOptions::default(), &());
                compacted.map_err(fail)?;
            }
            if number + 1 == synced_until {
                store.sync().map_err(fail)?;
                history.secure(Durability::Synced);
                note_synced(&forks, history.window().synced);
            }
        }
        if fashion == Fashion::Closed {
            store.close().map_err(fail)?;
        }
        let left = disk.crash(CrashStyle::Everything, 1);
        disk.clear_crash_probe();
        drop(store);
        let forks = std::mem::take(&mut forks.lock().unwrap_or_else(PoisonError::into_inner).1);
        Ok(Victim {
            earlier: Earlier::near(&left, forks),
            disk: left,
            keys: key_space(capabilities.keys),
            history,
            capabilities,
        })
    }

    /// The states that a reader may find after a harm. No engine can tell the harm from a
    /// power cut before the last syncs if both leave the same bytes.
    pub(super) fn tolerates(&self, harm: &Harm, harmed: &SimulatedDisk) -> Tolerated {
        let mut tolerated = Tolerated {
            low: self.history.window().synced,
            mentioned: false,
        };
        for earlier in &self.earlier {
            if earlier.synced >= tolerated.low && !tolerated.mentioned {
                continue;
            }
            match earlier.could_leave(harm, harmed) {
                Likeness::None => {}
                Likeness::Torn => {
                    // Zeros are no bytes that a check could mention.
                    if matches!(harm, Harm::Zero { .. }) {
                        tolerated.low = tolerated.low.min(earlier.synced);
                    } else if earlier.synced < tolerated.low {
                        tolerated.low = earlier.synced;
                        tolerated.mentioned = true;
                    }
                }
                Likeness::Exact => {
                    tolerated.low = tolerated.low.min(earlier.synced);
                    tolerated.mentioned = false;
                }
            }
        }
        tolerated
    }

    /// Fails for a value that the key never had. A repair may have to make a name
    /// for a namespace whose own is lost: there, any namespace may have had it.
    pub(super) fn expect_once(
        &self,
        name: &str,
        key: &[u8],
        value: Option<&Value>,
    ) -> Result<(), String> {
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

fn watch(disk: &SimulatedDisk) -> Forks {
    let forks: Forks = Arc::default();
    let sink = forks.clone();
    disk.set_crash_probe(ProbePoints::Syncs, move |point| {
        if point.moment == Moment::BeforeSync {
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            let synced = sink.0;
            sink.1.push((synced, point.disk));
        }
    });
    forks
}

fn note_synced(forks: &Forks, synced: usize) {
    forks.lock().unwrap_or_else(PoisonError::into_inner).0 = synced;
}

/// How far a crash could have left what a harm did.
enum Likeness {
    None,
    /// Sectors may be half written.
    Torn,
    /// Sectors are whole.
    Exact,
}

fn sector_of(disk: &SimulatedDisk, path: &std::path::Path, sector: usize) -> Option<Vec<u8>> {
    let contents = disk.contents(path)?;
    let start = (sector * SECTOR_BYTES).min(contents.len());
    let end = (start + SECTOR_BYTES).min(contents.len());
    let mut bytes = contents[start..end].to_vec();
    bytes.resize(SECTOR_BYTES, 0);
    Some(bytes)
}

impl Earlier {
    /// Those of the forks whose files differ from what was left in one file at most.
    fn near(left: &SimulatedDisk, forks: Vec<(usize, SimulatedDisk)>) -> Vec<Earlier> {
        let near = forks.into_iter().filter_map(|(synced, cached)| {
            let differing = differing_sectors(left, &cached)?;
            let durable = cached.crash(CrashStyle::NothingUnsynced, 1);
            Some(Earlier {
                synced,
                cached,
                durable,
                differing,
            })
        });
        near.collect()
    }

    fn could_leave(&self, harm: &Harm, harmed: &SimulatedDisk) -> Likeness {
        let (path, range) = harm.place();
        let sectors = range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES);
        let explained = |(of, sector): &(PathBuf, usize)| of == path && sectors.contains(sector);
        if range.is_empty() || !self.differing.iter().all(explained) {
            return Likeness::None;
        }
        if harmed.contents(path).is_none() {
            // The file is gone: so it can be where its name was not synced.
            return match self.durable.contents(path) {
                None => Likeness::Exact,
                Some(_) => Likeness::None,
            };
        }
        // The end of a log is never taken from a length, so a file that is cut is
        // one that goes on with zeros.
        let length = self.cached.contents(path).map_or(0, |bytes| bytes.len());
        let end = sectors.end.min(length.div_ceil(SECTOR_BYTES));
        let mut likeness = Likeness::Exact;
        for sector in sectors.start..end {
            let now = sector_of(harmed, path, sector);
            let durable = sector_of(&self.durable, path, sector);
            let cached = sector_of(&self.cached, path, sector);
            if now == cached || now == durable {
                continue;
            }
            if cached == durable {
                return Likeness::None;
            }
            likeness = Likeness::Torn;
        }
        likeness
    }
}

/// The sectors in which two disks differ; `None` if they lie in more than one file,
/// or a file is on one disk only.
fn differing_sectors(one: &SimulatedDisk, other: &SimulatedDisk) -> Option<Vec<(PathBuf, usize)>> {
    let files = one.files();
    if files != other.files() {
        return None;
    }
    let mut differing: Vec<(PathBuf, usize)> = Vec::new();
    for path in files {
        let mut bytes = one.contents(&path)?;
        let mut others = other.contents(&path)?;
        let length = bytes.len().max(others.len());
        bytes.resize(length, 0);
        others.resize(length, 0);
        let pairs = bytes.chunks(SECTOR_BYTES).zip(others.chunks(SECTOR_BYTES));
        let numbers = pairs
            .enumerate()
            .filter(|(_, (a, b))| a != b)
            .map(|(number, _)| (path.clone(), number));
        let own: Vec<_> = numbers.collect();
        if !own.is_empty() && !differing.is_empty() {
            return None;
        }
        differing.extend(own);
    }
    Some(differing)
}
