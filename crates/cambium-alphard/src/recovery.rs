//! Recovery: what a device holds after a crash, from its headers alone.
//!
//! 1. Every block in use is read, many at once; the headers among them are gathered
//!    ([`crate::scan`]).
//! 2. *The cut.* The highest number that any header, or the superblock, calls
//!    durable; and above it what follows without a gap, each entry verified whole,
//!    up to the end of a batch.
//! 3. Of each key the newest entry up to the cut counts: a value is live, a
//!    tombstone hides all older ones. What else is found is a stale header.
//! 4. *The proof.* The digest of what is live is the one in the header of the last
//!    entry kept. If it is not, something is missing or has come back: the opening
//!    fails, and says so.
//! 5. In a store with history, the change log is derived ([`crate::past`]).
//! 6. What is kept is made durable, and the headers after the cut are erased,
//!    before the next epoch begins: what was cut off can never come back.

use std::collections::VecDeque;

use cambium_api::{Finding, FindingKind, ProgressSink};
use cambium_base::{Error, Extent, Result};
use cambium_index::cuckoo::{Part, Parts, SlotKey};
use cambium_io::{Crew, Environment};
use cambium_storage::allocator::Allocator;

use crate::change_log::ChangeLog;
use crate::format::{self, Superblock};
use crate::mirror::Differing;
use crate::options::Tuning;
use crate::packs::Packs;
use crate::past::FoundChange;
use crate::place::Place;
use crate::scan::{Found, Newest, OfMember, Scan, crew_for};
use crate::seeded_bug::SeededBug;
use crate::stale::StaleHeaders;
use crate::state::State;
use crate::volume::Volume;

/// A store's memory, as the device says it should be.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub state: State,
    pub allocator: Allocator,
    pub stale: StaleHeaders,
    pub packs: Packs,
    pub tombstones: VecDeque<(u64, Place)>,
    /// The last write that is kept.
    pub sequence: u64,
    /// Up to where the device itself says that all is durable.
    pub marked: u64,
    /// Headers after the cut, sorted: to be erased.
    pub dead: Vec<u32>,
    /// Headers that were found, of whatever is live or not.
    pub headers: usize,
    /// What is odd, or damaged.
    pub findings: Vec<Finding>,
    /// It comes from an index image; nothing was scanned.
    pub from_image: bool,
    /// Bytes that were read.
    pub bytes: u64,
    /// The member whose headers these are.
    pub believed: usize,
    /// Where the other member has other bytes, in order.
    pub differing: Differing,
}

impl Recovered {
    /// Nothing yet, of a store as its superblock describes it.
    pub fn empty(superblock: &Superblock) -> Self {
        let mut state = State::new(superblock.hash_secret, superblock.sequence);
        let keeps_history = superblock.history_lost.is_some();
        state.log = keeps_history.then(|| ChangeLog::new(superblock.sequence, []));
        Recovered {
            state,
            allocator: Allocator::new(superblock.first_block(), superblock.high_water),
            stale: StaleHeaders::default(),
            packs: Packs::new(keeps_history, superblock.block_bytes),
            tombstones: VecDeque::new(),
            sequence: superblock.sequence,
            marked: superblock.synced_through,
            dead: Vec::new(),
            headers: 0,
            findings: Vec::new(),
            from_image: false,
            bytes: 0,
            believed: 0,
            differing: Vec::new(),
        }
    }

    /// Takes the blocks of a live entry or a tombstone, or of its pack; false if something else
    /// has them.
    pub fn take(&mut self, place: Place, is_tombstone: bool) -> bool {
        let extent = place.extent();
        extent.blocks > 0 && (!self.packs.find(place, is_tombstone) || self.allocator.take(extent))
    }

    /// Finds damage where writes up to a number were synced, and some are cut off.
    pub fn miss_promised(&mut self, through: u64, volume: &Volume) {
        if self.sequence < through {
            self.findings.push(Finding {
                kind: FindingKind::Damage,
                file: volume.path().to_path_buf(),
                offset: 0,
                what: format!(
                    "write {} is missing, and writes up to {through} were synced; `repair` keeps \
                     what is there",
                    self.sequence + 1
                ),
            });
        }
    }

    /// The first damage found, as an error.
    pub fn damage(&self) -> Option<Error> {
        let mut findings = self.findings.iter();
        let found = findings.find(|finding| finding.kind == FindingKind::Damage)?;
        Some(Error::corruption(
            &found.file,
            found.offset,
            found.what.clone(),
        ))
    }
}

/// Scans the device and decides what is live. Writes nothing.
///
/// Of two members both are read and compared. The headers of the first are believed
/// if the proof holds for them, else those of the second if it holds there; if it holds
/// for neither, those of the member that has lost fewer of them.
pub(crate) fn recover(
    environment: &Environment,
    volume: &Volume,
    superblock: &Superblock,
    tuning: &Tuning,
    progress: &dyn ProgressSink,
) -> Result<Recovered> {
    let mut best: Option<Recovered> = None;
    for believed in 0..volume.member_count() {
        // A member that cannot be read is lost, and what it answered forgotten.
        while volume.readable().any(|member| member == believed) {
            let mut scan = Scan::new(volume, superblock, believed);
            let cut = scan
                .read_all(environment, tuning, progress)
                .and_then(|()| Cut::of(&mut scan, tuning));
            let recovered = match cut {
                Ok(cut) => settle(scan, environment, tuning, cut)?,
                Err((member, _)) if volume.lose(member) => continue,
                Err((_, error)) => return Err(error),
            };
            if recovered.damage().is_none() {
                return Ok(recovered);
            }
            if best
                .as_ref()
                .is_none_or(|best| recovered.headers > best.headers)
            {
                best = Some(recovered);
            }
            break;
        }
    }
    best.ok_or_else(|| Error::corruption(volume.path(), 0, "no member can be read"))
}

/// Where the writes that are kept end.
struct Cut {
    /// The last one that is kept.
    sequence: u64,
    /// What it says of all that is live, if it was found.
    digest: Option<u64>,
}

impl Cut {
    fn of(scan: &mut Scan<'_>, tuning: &Tuning) -> OfMember<Cut> {
        let entries = scan.newest();
        let mut cut = scan.durable;
        let mut next = cut + 1;
        while let Some(newest) = entries.get(&next) {
            if !is_sound(scan, newest).map_err(|error| (scan.believed, error))? {
                break;
            }
            if newest.remaining == 0 || tuning.seeded_bug.is(SeededBug::BatchSplit) {
                cut = newest.last;
            }
            next = newest.last + 1;
        }
        if tuning.seeded_bug.is(SeededBug::TornTailKept) {
            let last = entries.values().next_back().map(|newest| newest.last);
            cut = last.unwrap_or(cut).max(cut);
        }
        let superblock = scan.superblock;
        Ok(Cut {
            sequence: cut,
            digest: match cut == superblock.sequence {
                true => Some(superblock.live_digest),
                false => {
                    let mut newest = entries.values();
                    let last = newest.find(|newest| newest.last == cut);
                    last.map(|newest| newest.digest)
                }
            },
        })
    }
}

fn is_sound(scan: &Scan<'_>, newest: &Newest) -> Result<bool> {
    newest
        .sound
        .map_or_else(|| scan.body_is_sound(newest.extent), Ok)
}

/// What is live, stale and dead in a part of the index, given the cut.
struct Settled {
    live: Vec<(SlotKey, Extent)>,
    part: Part,
    digest: u64,
    tombstones: Vec<(u64, Place)>,
    stale: Vec<(u64, u32)>,
    dead: Vec<u32>,
    /// Of a store with history.
    changes: Vec<FoundChange>,
}

fn settle_part(
    parts: &Parts,
    number: usize,
    mut found: Vec<Found>,
    (cut, oldest_history): (u64, Option<u64>),
) -> Settled {
    found.sort_unstable_by_key(|found| (found.slot, found.check, u64::MAX - found.sequence));
    let mut newest_of = None;
    let (mut digest, mut live) = (0, Vec::with_capacity(found.len()));
    let (mut tombstones, mut stale, mut dead) = (Vec::new(), Vec::new(), Vec::new());
    let mut changes = Vec::new();
    for (at, entry) in found.iter().enumerate() {
        let place = entry.place();
        if entry.sequence > cut {
            dead.push(place.block);
            continue;
        }
        let name = (entry.slot, entry.check);
        let first = newest_of != Some(name);
        newest_of = Some(name);
        if oldest_history.is_some_and(|oldest| entry.sequence > oldest) {
            let newer = (!first).then(|| &found[at - 1]);
            let older = found
                .get(at + 1)
                .filter(|one| (one.slot, one.check) == name);
            changes.extend(FoundChange::of(entry, newer, older));
        }
        if entry.is_tombstone() {
            tombstones.push((entry.sequence, place));
        } else if first {
            live.push((entry.slot, place.slot()));
            digest ^= format::digest_of(entry.slot, place);
        } else {
            stale.push((entry.sequence, place.block));
        }
    }
    drop(found);
    Settled {
        part: parts.build(number, &live),
        live,
        digest,
        tombstones,
        stale,
        dead,
        changes,
    }
}

/// What is live, stale and dead, given the cut.
fn settle(
    mut scan: Scan<'_>,
    environment: &Environment,
    tuning: &Tuning,
    cut: Cut,
) -> Result<Recovered> {
    let mut recovered = Recovered::empty(scan.superblock);
    recovered.sequence = cut.sequence;
    recovered.state.visible = cut.sequence;
    recovered.marked = scan.durable;
    recovered.bytes = scan.bytes;
    recovered.believed = scan.believed;
    recovered.differing = scan.differing();
    let found = std::mem::take(&mut scan.found);
    recovered.headers = found.iter().map(Vec::len).sum();
    let parts = scan.parts(recovered.headers);
    let oldest_history = scan.oldest_history(cut.sequence, tuning);
    let within = (cut.sequence, oldest_history);
    let decide = move |(number, found)| settle_part(&parts, number, found, within);
    let threads = crew_for(scan.bytes);
    let crew = Crew::new(&*environment.executor, "alphard index", threads, decide);
    found.into_iter().enumerate().for_each(|job| crew.add(job));
    let (mut made, mut stale, mut changes) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(settled) = crew.next()? {
        let mut overlap = |block| {
            let what = "two live entries lie over one another".to_string();
            scan.finding(FindingKind::Damage, block, what);
        };
        for &(_, slot) in &settled.live {
            if !recovered.take(Place::of_slot(slot), false) {
                overlap(slot.block);
            }
        }
        for &(_, place) in &settled.tombstones {
            if !recovered.take(place, true) {
                overlap(place.block);
            }
        }
        recovered.state.live_digest ^= settled.digest;
        recovered.tombstones.extend(settled.tombstones);
        recovered.dead.extend(settled.dead);
        stale.extend(settled.stale);
        changes.extend(settled.changes);
        made.push(settled.part);
    }
    recovered.state.index = parts.join(made);
    if oldest_history.is_some() {
        recovered.state.log = Some(scan.derive_log(&mut recovered, changes, tuning));
    }
    recovered.stale = stale.into_iter().collect();
    recovered.packs.all_found(&mut recovered.stale);
    let torn = scan.torn_packs.iter();
    let torn = torn.filter(|(sequence, _)| *sequence > cut.sequence);
    recovered.dead.extend(torn.map(|(_, block)| *block));
    recovered.dead.sort_unstable();
    recovered.dead.dedup();
    recovered.tombstones.make_contiguous().sort_unstable();
    prove(&mut scan, &recovered, &cut);
    if let Some(first) = scan.first_odd {
        let what = format!(
            "{} blocks are neither entries nor erased: torn by a crash, or there before the device was formatted",
            scan.odd
        );
        scan.finding(FindingKind::Note, first, what);
    }
    recovered.findings = scan.findings;
    Ok(recovered)
}

/// Compares what is live with what the last write that is kept says.
fn prove(scan: &mut Scan<'_>, recovered: &Recovered, cut: &Cut) {
    if cut.digest == Some(recovered.state.live_digest) {
        return;
    }
    let (entries, last) = (recovered.state.index.len(), cut.sequence);
    let what = match cut.digest {
        Some(_) => format!(
            "the {entries} live entries found are not those of write {last}: some are missing, or have come back; `repair` keeps what is there"
        ),
        None => format!(
            "write {last}, which is durable, is not there; `repair` keeps the {entries} live entries found"
        ),
    };
    scan.finding(FindingKind::Damage, scan.superblock.first_block(), what);
}
