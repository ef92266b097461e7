//! Two members that hold the same: making them alike after a crash, bringing one
//! that was away up to date, mending what one of them has lost.
//!
//! **After a crash** both have everything that was durable; what was on its way may
//! be on one of them only. The scan reads both, and notes where they differ
//! ([`crate::recovery`]); the opening then copies those blocks from the member whose
//! headers it believes ([`load_alike`]). Each block of either is as it was before or
//! after a write that was under way, so a crash in between, and the loss of the other
//! member with it, leaves what a crash alone could have left.
//!
//! **A member that was away** is stale: its superblock is written first, so that it
//! knows. From then on every write goes to it too, and steps copy what differs, from
//! the first block to the last in use, each piece under the writer lock, so that no
//! newer write is undone. When all is copied and synced, the superblock makes it
//! current.
//!
//! **An entry that does not match its checksum** is read from the other member, and
//! written over what is damaged in the next step, if it is still the key's.

use cambium_base::{Error, Extent, Result};
use cambium_index::cuckoo::SlotKey;
use cambium_io::sync::atomic::Ordering;
use cambium_io::{AlignedBuffer, StepOutcome};

use crate::core::{Core, lock, read};
use crate::format::{self, Superblock};
use crate::options::Tuning;
use crate::place::Place;
use crate::read::{Opened, StoredEntry};
use crate::recovery::Recovered;
use crate::scan::OfMember;
use crate::seeded_bug::SeededBug;
use crate::volume::{MemberState, Volume};

/// Most bytes that are copied at once.
const MOST_BYTES: u64 = 256 << 10;
/// Most entries that wait to be mended; others are found again.
const MOST_UNSOUND: usize = 1024;

/// How far a stale member is.
#[derive(Debug, Default)]
pub(crate) struct Mirroring {
    /// Everything before this block is copied; `None` before the first step.
    copied: Option<u32>,
}

/// Where the members differ, as blocks and how many of them.
pub(crate) type Differing = Vec<Extent>;

/// Loads what a store holds, and makes members alike that a crash has left with
/// different bytes; not where the proof of completeness fails, unless told so. A
/// member that fails meanwhile is given up, and all is done anew without it.
pub(crate) fn load_alike(
    volume: &Volume,
    superblock: &Superblock,
    tuning: &Tuning,
    despite_damage: bool,
    load: impl Fn() -> Result<Recovered>,
) -> Result<Recovered> {
    loop {
        let recovered = load()?;
        let alike =
            recovered.differing.is_empty() || tuning.seeded_bug.is(SeededBug::MembersDiffer);
        if alike || (recovered.damage().is_some() && !despite_damage) {
            return Ok(recovered);
        }
        match equalize(volume, superblock, &recovered) {
            Ok(()) => return Ok(recovered),
            Err((member, error)) if !volume.lose(member) => return Err(error),
            Err(_) => {}
        }
    }
}

/// Copies what differs from the member whose headers are believed.
fn equalize(volume: &Volume, superblock: &Superblock, recovered: &Recovered) -> OfMember<()> {
    let believed = recovered.believed;
    let others: Vec<usize> = volume.readable().filter(|&at| at != believed).collect();
    for &other in &others {
        rescue(volume, superblock, recovered, other)?;
        for &range in &recovered.differing {
            for piece in pieces(range, most_blocks(volume)) {
                let bytes = volume.read_from(believed, piece).map_err(of(believed))?;
                let written = volume.write_to(other, piece.block, &bytes);
                written.map_err(of(other))?;
            }
        }
    }
    volume.sync().map_err(of(believed))
}

fn of(member: usize) -> impl Fn(Error) -> (usize, Error) {
    move |error| (member, error)
}

/// Live entries that are damaged on the member whose headers are believed, and sound
/// on the other one, are copied the other way: a header says nothing of a body.
fn rescue(
    volume: &Volume,
    superblock: &Superblock,
    recovered: &Recovered,
    other: usize,
) -> OfMember<()> {
    let believed = recovered.believed;
    let differing = &recovered.differing;
    let mut from = Some(0);
    while let Some(at) = from {
        let (page, next) = recovered.state.live_page(at);
        from = next;
        for (_, _, place) in page {
            let extent = place.extent();
            let next = differing.partition_point(|range| range.end() <= u64::from(extent.block));
            let differs = differing
                .get(next)
                .is_some_and(|range| u64::from(range.block) < extent.end());
            if !differs {
                continue;
            }
            let here = volume.read_from(believed, extent).map_err(of(believed))?;
            let there = volume.read_from(other, extent).map_err(of(other))?;
            if !is_sound(&here, extent, superblock) && is_sound(&there, extent, superblock) {
                let written = volume.write_to(believed, extent.block, &there);
                written.map_err(of(believed))?;
            }
        }
    }
    Ok(())
}

fn is_sound(bytes: &[u8], extent: Extent, superblock: &Superblock) -> bool {
    let (unit, seed) = (superblock.block_bytes, superblock.seed());
    format::decode_header(bytes, extent.block, unit, seed)
        .is_some_and(|header| header.extent(unit) == extent)
        && format::body_is_sound(bytes, extent.block, unit, seed)
}

fn most_blocks(volume: &Volume) -> u32 {
    (MOST_BYTES / u64::from(volume.block_bytes)) as u32
}

/// An extent in pieces of at most so many blocks.
fn pieces(extent: Extent, most: u32) -> impl Iterator<Item = Extent> {
    (0..extent.blocks)
        .step_by(most as usize)
        .map(move |done| Extent {
            block: extent.block + done,
            blocks: most.min(extent.blocks - done),
        })
}

impl Core {
    /// Blocks of a stale member that are still to be compared.
    pub fn blocks_to_copy(&self, limit: u32) -> Option<u64> {
        self.volume.stale()?;
        let copied = self.mirroring.try_lock().ok().and_then(|held| held.copied);
        Some(u64::from(limit - copied.unwrap_or(0).min(limit)))
    }

    /// Brings a stale member a piece further; `Idle` if there is none.
    pub fn bring_up_to_date(&self, budget: u64) -> Result<StepOutcome> {
        let Some(member) = self.volume.stale() else {
            return Ok(StepOutcome::Idle);
        };
        let mut mirroring = lock(&self.mirroring);
        let mut writer = lock(&self.writer);
        let Some(at) = mirroring.copied else {
            // It learns that it is stale before a block of it is changed.
            self.change_superblock(&mut writer, |_| ())?;
            self.keep_members(&mut writer)?;
            mirroring.copied = Some(writer.superblock.first_block());
            return Ok(StepOutcome::Again);
        };
        // What a flight writes meanwhile would be undone.
        self.land_all();
        let limit = writer.allocator.limit();
        if at < limit && !self.has_bug(SeededBug::StaleBelieved) {
            let most = (budget.min(MOST_BYTES) / u64::from(self.block_bytes)).max(1);
            let blocks = (limit - at).min(most as u32);
            self.copy(member, Extent { block: at, blocks })?;
            mirroring.copied = Some(at + blocks);
            return Ok(StepOutcome::Again);
        }
        self.flush(&mut writer)?;
        self.sync_members()?;
        self.keep_members(&mut writer)?;
        if self.volume.state(member) != MemberState::Stale {
            return Ok(StepOutcome::Idle);
        }
        self.volume.make_current(member);
        let kept = self.keep_members(&mut writer);
        if kept.is_err() && writer.superblock.current >> member & 1 == 0 {
            self.volume.make_stale(member);
        }
        mirroring.copied = None;
        kept.map(|()| StepOutcome::Again)
    }

    /// Copies to a stale member what differs in an extent.
    fn copy(&self, member: usize, extent: Extent) -> Result<()> {
        let right = self.volume.read(extent)?;
        let compared = self.volume.read_from(member, extent);
        let bytes = u64::from(extent.blocks) * u64::from(self.block_bytes);
        self.environment.pay_for_background(2 * bytes);
        let written = match compared {
            Ok(found) if found[..] == right[..] => return Ok(()),
            _ => self.volume.write_to(member, extent.block, &right),
        };
        if written.is_err() {
            _ = self.volume.lose(member);
        }
        self.counters
            .blocks_copied
            .fetch_add(u64::from(extent.blocks), Ordering::Relaxed);
        Ok(())
    }

    /// Verifies what was read at a place, and answers the entry there; where that is not
    /// sound, the other member is asked.
    pub fn open_read(
        &self,
        answer: Result<AlignedBuffer>,
        place: Place,
        slot: SlotKey,
    ) -> Result<StoredEntry> {
        let entry = |opened: &Opened| self.entry_of(opened, place, slot);
        self.open_sound(answer, place, slot, entry)
    }

    /// The same of entries in the same blocks. The first one tells whether these hold what the
    /// index says.
    pub fn open_pack(
        &self,
        answer: Result<AlignedBuffer>,
        pack: &[(SlotKey, Place)],
    ) -> Result<Vec<Result<StoredEntry>>> {
        let (slot, place) = pack[0];
        let entry = |opened: &Opened, (slot, place)| self.entry_of(opened, place, slot);
        self.open_sound(answer, place, slot, |opened| {
            let first = entry(opened, pack[0])?;
            let others = pack[1..].iter().map(|&other| entry(opened, other));
            Ok([Ok(first)].into_iter().chain(others).collect())
        })
    }

    /// Takes what is asked for from what was read in the blocks of a place, or from what another
    /// member has there; the first one is mended soon then.
    fn open_sound<T>(
        &self,
        answer: Result<AlignedBuffer>,
        place: Place,
        slot: SlotKey,
        take: impl Fn(&Opened) -> Result<T>,
    ) -> Result<T> {
        let extent = place.extent();
        let open = |bytes| take(&self.open_extent(bytes, extent)?);
        let (taken, is_whole) = self.open_from_any(answer, extent, open)?;
        if !is_whole {
            self.note_unsound(place, slot);
        }
        Ok(taken)
    }

    /// One member has an entry that another one has not: it is mended soon.
    fn note_unsound(&self, place: Place, slot: SlotKey) {
        let mut unsound = lock(&self.unsound);
        if unsound.len() < MOST_UNSOUND && !unsound.contains(&(slot, place)) {
            unsound.push((slot, place));
        }
        drop(unsound);
        if let Some(task) = self.background.get() {
            task.notify();
        }
    }

    /// Opens what was read at an extent, or what another member has there; false where the first
    /// was not sound.
    pub fn open_from_any<T>(
        &self,
        answer: Result<AlignedBuffer>,
        extent: Extent,
        open: impl Fn(AlignedBuffer) -> Result<T>,
    ) -> Result<(T, bool)> {
        let error = match answer.and_then(&open) {
            Ok(opened) => return Ok((opened, true)),
            Err(error) => error,
        };
        // A close after a failure forgets entries that never came to the device.
        self.check_open()?;
        if !self.volume.is_mirrored() {
            return Err(error);
        }
        let mut members = self.volume.readable();
        let found = members.find_map(|member| {
            let again = self.volume.read_from(member, extent);
            again.and_then(&open).ok()
        });
        found.map(|opened| (opened, false)).ok_or(error)
    }

    /// Writes entries that one member has over what another one has instead.
    pub fn mend(&self) -> Result<()> {
        let unsound = std::mem::take(&mut *lock(&self.unsound));
        for (slot, place) in unsound {
            let mut writer = lock(&self.writer);
            // Freed or on its way since: then there is nothing to mend.
            let is_live = read(&self.state).find(slot).any(|at| at == place);
            if !is_live || read(&self.pending).contains_key(&place.block) {
                continue;
            }
            if self.mend_one(slot, place)? {
                self.counters.mended.fetch_add(1, Ordering::Relaxed);
                self.keep_members(&mut writer)?;
            }
        }
        Ok(())
    }

    /// Mends an entry that stays where it is; true if something was written.
    fn mend_one(&self, slot: SlotKey, place: Place) -> Result<bool> {
        let extent = place.extent();
        let mut sound = None;
        let mut damaged = Vec::new();
        for member in self.volume.readable() {
            let bytes = self.volume.read_from(member, extent);
            let is_sound = bytes.as_ref().is_ok_and(|bytes| {
                let mut copy = crate::volume::buffer(bytes.len());
                copy.copy_from_slice(bytes);
                self.open_extent(copy, extent)
                    .and_then(|opened| self.entry_of(&opened, place, slot))
                    .is_ok()
            });
            match bytes {
                Ok(bytes) if is_sound => sound = Some(bytes),
                _ => damaged.push(member),
            }
        }
        let Some(bytes) = sound.filter(|_| !damaged.is_empty()) else {
            return Ok(false);
        };
        for member in damaged {
            let written = self.volume.write_to(member, extent.block, &bytes);
            // Cannot be read and cannot be written: the other one has it.
            if written.is_err() && !self.volume.lose(member) {
                return written.map(|()| false);
            }
        }
        self.sync_members()?;
        Ok(true)
    }
}

/// What a member that is missing is said to be.
pub(crate) fn missing_text(error: &Error) -> String {
    let why = match error {
        Error::Corruption { what, .. } => what.clone(),
        other => other.to_string(),
    };
    format!("this member is missing, and the store goes on without it: {why}")
}
