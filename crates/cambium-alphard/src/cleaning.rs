//! Cleaning: small entries move into packs, and what counts leaves packs that are partly
//! obsolete.
//!
//! A moved entry is written as a put of the same value: it gets a number, an index entry and a
//! digest as any write does, so recovery needs to know nothing of cleaning. Readers of a
//! snapshot keep what they see where it lies, so nothing moves as long as one reader holds its
//! moment: nothing would be given back.
//!
//! - *A walk over the device* reads what lies together, and moves all small entries of it that
//!   lie alone, and those of packs that are short or partly obsolete. So what becomes free lies
//!   together as well, and has room for packs.
//! - *Packs that tombstones wait for* are emptied whatever that gives back.
//!
//! The walk waits until an eighth of the space in use would be given back, or until a write finds
//! no space. A compaction walks once. A store that keeps history has no packs: a change is read
//! from the entry of its own write.

use std::collections::BTreeSet;

use cambium_base::{Extent, Result, Value};
use cambium_io::StepOutcome;
use cambium_io::sync::atomic::Ordering;

use crate::core::{Core, Writer, lock, read, write};
use crate::format::{self, EntryHeader, EntryKind};
use crate::pack;
use crate::place::Place;
use crate::plan::{Planned, units};
use crate::read::Opened;
use crate::seeded_bug::SeededBug;
use crate::space::Purpose;
use crate::state::KeyName;
use crate::volume::buffer;

/// Cleaning begins when so large a part of the blocks in use would be given back.
const WASTE_SHARE: u64 = 8;
/// The walk does not begin for fewer blocks of waste.
const LEAST_WASTE: u64 = 16;
/// A step empties at most so many packs that tombstones wait for.
const MOST_PACKS: usize = 32;
/// A step moves at most so many bytes, and at most this part of the free ones: the space that
/// it gives back is free only after it.
const MOST_BYTES: u64 = 128 << 10;
const FREE_SHARE: u64 = 2;
/// A step reads so many bytes at once, and so many times at most.
const READ_BYTES: u32 = 64 << 10;
const MOST_READS: usize = 32;
/// The cleaner writes so many packs under one hold of the writer lock.
const PACKS_A_HOLD: usize = 2;

/// An entry to be moved.
struct Moved {
    name: KeyName,
    from: Place,
    key: Value,
    value: Value,
}

/// Entries to be moved, with the packs in which the cleaner found them.
#[derive(Default)]
struct Gathered {
    entries: Vec<Moved>,
    /// The count of the first entries, which are of packs that tombstones wait for. These packs
    /// lie anywhere, not where the walk is.
    urgent: usize,
    /// The places of all entries, so that none is moved twice.
    places: BTreeSet<Place>,
    /// Bytes of all entries in packs.
    bytes: u64,
    /// The packs that the entries leave.
    packs: Vec<Extent>,
    /// The block at which the walk goes on; `None` at its end.
    next: Option<u32>,
}

/// The bounds of a walk.
#[derive(Clone, Copy)]
struct Walk {
    /// The last write before it began.
    began: u64,
    /// It moves small entries that lie alone, also a few.
    all: bool,
}

/// The walk's decision about an entry.
enum Wanted {
    /// It goes on at the next block: what follows may be of other entries.
    Nothing,
    /// It goes on behind so many blocks.
    Later(u32),
    /// It moves what is in so many blocks.
    Whole(u32),
}

/// Counts the first entries that fill so many bytes of packs. It takes all entries of a pack or
/// none, since a pack's blocks are free only when it is empty; and at least one pack or entry.
fn first_bytes(moved: &[Moved], most: usize) -> usize {
    let (mut count, mut bytes) = (0, 0);
    for pack in moved.chunk_by(|one, next| one.from.block == next.from.block) {
        let entries = pack.iter();
        let entries = entries.map(|moved| pack::entry_bytes(moved.key.len(), moved.value.len()));
        bytes += entries.sum::<usize>();
        if count > 0 && bytes > most {
            break;
        }
        count += pack.len();
    }
    count
}

impl Core {
    /// Moves some entries, where at least so many blocks are wasted; `Idle` if there is nothing
    /// to do, or no space. The caller has `maintenance`.
    pub fn clean_some(&self, least_waste: u64) -> Result<StepOutcome> {
        let walk = {
            let mut writer = self.lock_to_lead();
            let oldest = read(&self.state).oldest_pin();
            // While one reader holds everything since the last try, nothing would be given back.
            let (can, last) = (writer.session_begun, writer.next_sequence - 1);
            let packs = &mut writer.packs;
            let is_held = oldest.is_some() && packs.pinned == oldest;
            let pays = packs.is_urgent() || packs.waste() >= least_waste;
            if !pays || !can || packs.are_off || is_held {
                return self.settle_moved(&mut writer);
            }
            packs.pinned = oldest;
            Walk {
                began: packs.go_on(last),
                all: least_waste == 0,
            }
        };
        // An entry that the moment sees keeps its place: no newer entry is written there.
        let moment = {
            let mut state = write(&self.state);
            state.is_cleaned = true;
            state.pin()
        };
        let moved = self
            .gather(moment, walk)
            .and_then(|gathered| Ok((self.move_all(&gathered)?, gathered)));
        let mut writer = self.lock_to_lead();
        write(&self.state).is_cleaned = false;
        self.unpin(moment);
        self.collect_unpinned(&mut writer);
        let (count, gathered) = moved?;
        writer.packs.unsettled |= count > 0;
        if count < gathered.entries.len() {
            // The entries that did move give space back for the others.
            if count >= gathered.urgent {
                writer.packs.next_block = gathered.entries[count].from.block;
            }
            return self.settle_moved(&mut writer);
        }
        if read(&self.state).pins() == 0 {
            // Damaged, if it still counts: a reader reports that, and a repair mends it.
            let packs = gathered.packs.iter();
            packs.for_each(|pack| writer.packs.leave(pack.block, walk.began));
        }
        match gathered.next {
            Some(block) => writer.packs.next_block = block,
            None => writer.packs.walked(),
        }
        Ok(StepOutcome::Again)
    }

    /// Makes moves durable, so that their space is given back although nobody writes; `Idle` if
    /// there were none since the last time.
    fn settle_moved(&self, writer: &mut Writer) -> Result<StepOutcome> {
        if !std::mem::take(&mut writer.packs.unsettled) {
            return Ok(StepOutcome::Idle);
        }
        self.settle(writer)?;
        Ok(StepOutcome::Again)
    }

    /// The waste from which on the background cleans, in blocks.
    pub fn waste_worth_cleaning(&self) -> u64 {
        let writer = lock(&self.writer);
        let allocator = &writer.allocator;
        let free = allocator.free_blocks() + allocator.waiting_blocks();
        LEAST_WASTE.max(u64::from(allocator.limit()).saturating_sub(free) / WASTE_SHARE)
    }

    fn most_pack_blocks(&self) -> u32 {
        pack::most_blocks(self.block_bytes)
    }

    fn most_pack_bytes(&self) -> usize {
        pack::room(self.most_pack_blocks(), self.block_bytes)
    }

    /// Finds the next entries to be moved.
    fn gather(&self, moment: u64, walk: Walk) -> Result<Gathered> {
        let (urgent, next, free) = {
            let mut writer = lock(&self.writer);
            let urgent = writer.packs.take_urgent(MOST_PACKS);
            let free = writer.allocator.free_blocks() * u64::from(self.block_bytes);
            (urgent, writer.packs.next_block, free)
        };
        let most = (free / FREE_SHARE).clamp(self.most_pack_bytes() as u64, MOST_BYTES);
        let mut gathered = Gathered {
            next: Some(next),
            ..Gathered::default()
        };
        for (&pack, answer) in urgent.iter().zip(self.read_many(&urgent)?) {
            let open = |bytes| self.open_extent(bytes, pack);
            if let Ok((opened, _)) = self.open_from_any(answer, pack, open) {
                gathered.take_packed(&opened, pack);
            }
        }
        gathered.packs = urgent;
        self.keep_seen(&mut gathered, 0, moment);
        gathered.urgent = gathered.entries.len();
        let mut reads = 0;
        while reads < MOST_READS && gathered.bytes < most {
            let Some(from) = gathered.next else { break };
            let before = gathered.entries.len();
            gathered.next = self.walk(from, (most, walk), &mut gathered)?;
            self.keep_seen(&mut gathered, before, moment);
            reads += 1;
        }
        Ok(gathered)
    }

    /// Drops the entries behind the first ones that a moment does not see: newer entries may be
    /// on their way to the same places.
    fn keep_seen(&self, gathered: &mut Gathered, first: usize, moment: u64) {
        let old_bytes = self.has_bug(SeededBug::CleansOldBytes);
        let state = read(&self.state);
        let found = gathered.entries.split_off(first);
        let seen = found.into_iter().filter(|moved| {
            let (slot, from) = (moved.name.slot, moved.from);
            old_bytes || state.sees(&moved.key, slot, from, moment)
        });
        gathered.entries.extend(seen);
    }

    /// Reads on from a block; answers where to go on.
    fn walk(
        &self,
        from: u32,
        (most, walk): (u64, Walk),
        gathered: &mut Gathered,
    ) -> Result<Option<u32>> {
        let (from, limit) = {
            let writer = lock(&self.writer);
            let from = from.max(writer.superblock.first_block());
            let from = writer.packs.next_after(from, walk.all);
            (from, writer.allocator.limit())
        };
        let Some(from) = from.filter(|&from| from < limit) else {
            return Ok(None);
        };
        let extent = Extent {
            block: from,
            blocks: (READ_BYTES / self.block_bytes).min(limit - from),
        };
        // Looked up before the device is read, which has older bytes in these blocks.
        let end = extent.end() as u32;
        let pending = read(&self.pending);
        let on_their_way: BTreeSet<u32> = pending.range(from..end).map(|(&at, _)| at).collect();
        drop(pending);
        let Ok(bytes) = self.volume.read(extent) else {
            // A reader of an entry there gets the error.
            return Ok((end < limit).then_some(end));
        };
        self.environment.pay_for_background(bytes.len() as u64);
        let mut block = from;
        while block < end && gathered.bytes < most {
            let rest = &bytes[(block - from) as usize * self.block_bytes as usize..];
            let header = format::decode_header(rest, block, self.block_bytes, self.seed);
            // Younger entries are left to the next walk: those that this one moved are among them.
            let header = header.filter(|header| header.sequence <= walk.began);
            let is_there = !on_their_way.contains(&block);
            let header = header.filter(|_| is_there || self.has_bug(SeededBug::CleansOldBytes));
            match header.map_or(Wanted::Nothing, |header| self.wants(&header)) {
                Wanted::Nothing => block += 1,
                Wanted::Later(blocks) => block = block.saturating_add(blocks),
                Wanted::Whole(blocks) => {
                    let Some(whole) = rest.get(..(blocks * self.block_bytes) as usize) else {
                        // The next read begins with it.
                        return Ok((block > from).then_some(block));
                    };
                    gathered.take(self, whole, Extent { block, blocks });
                    block += blocks;
                }
            }
        }
        Ok((block < limit).then_some(block))
    }

    /// Decides what a walk does about the entry of a header.
    fn wants(&self, header: &EntryHeader) -> Wanted {
        let blocks = header.extent(self.block_bytes).blocks;
        let place = header.place(self.block_bytes);
        match header.kind {
            EntryKind::Pack => {
                let packs = &lock(&self.writer).packs;
                match packs.is_worth_moving(header.block) {
                    true => Wanted::Whole(blocks),
                    false => Wanted::Nothing,
                }
            }
            EntryKind::Value => {
                let is_live = read(&self.state)
                    .find(header.slot_key)
                    .any(|at| at == place);
                match (is_live, place.is_small()) {
                    (false, _) => Wanted::Nothing,
                    (true, true) => Wanted::Whole(blocks),
                    (true, false) => Wanted::Later(blocks),
                }
            }
            EntryKind::Tombstone => Wanted::Nothing,
        }
    }

    /// Moves entries; answers how many, which are fewer where there is no space.
    fn move_all(&self, gathered: &Gathered) -> Result<usize> {
        let mut most = PACKS_A_HOLD * self.most_pack_bytes();
        let mut rest = gathered.entries.as_slice();
        while !rest.is_empty() {
            self.environment
                .wait_for_background(&|| self.health.is_closed());
            let count = first_bytes(rest, most);
            if self.move_entries(&rest[..count])? {
                rest = &rest[count..];
            } else if count > first_bytes(rest, 0) {
                most /= 2;
            } else {
                break;
            }
        }
        Ok(gathered.entries.len() - rest.len())
    }

    /// Writes entries anew that are still where they were read; false if there is no space.
    fn move_entries(&self, moved: &[Moved]) -> Result<bool> {
        let mut writer = self.lock_to_lead();
        self.check_writable()?;
        let mut planned: Vec<Planned<'_>> = {
            let state = read(&self.state);
            let is_live = |moved: &&Moved| state.find(moved.name.slot).any(|at| at == moved.from);
            let live = moved.iter().filter(is_live);
            let planned = live.map(|moved| {
                let (value, before) = (Some(&moved.value[..]), Some(moved.from));
                Planned::new(&moved.key, value, moved.name, before)
            });
            planned.collect()
        };
        if planned.is_empty() {
            return Ok(true);
        }
        // Readers that hold a moment keep a note of each entry that moves.
        if self.check_snapshots(planned.len()).is_err() {
            return Ok(false);
        }
        match self.place(&mut writer, &mut planned, Purpose::Move) {
            Err(error) if error.is_no_space() => return Ok(false),
            placed => placed?,
        }
        let packs = &mut writer.packs;
        let before = planned.iter().filter_map(|entry| entry.before);
        let before: u64 = before.map(|place| packs.takes(place)).sum();
        let after = units(&planned).map(|unit| 1000 * u64::from(unit[0].place.extent().blocks));
        packs.gained += before as i64 - after.sum::<u64>() as i64;
        self.apply(&mut writer, &planned);
        let bytes = planned.iter().map(|entry| {
            let value = entry.value.map_or(0, <[u8]>::len);
            pack::entry_bytes(entry.key.len(), value) as u64
        });
        self.environment.pay_for_background(bytes.sum());
        let count = planned.len() as u64;
        self.counters.moved.fetch_add(count, Ordering::Relaxed);
        match writer.pending_bytes >= self.tuning.coalesce_bytes {
            true => self.flush(&mut writer).map(|()| true),
            false => Ok(true),
        }
    }
}

impl Gathered {
    /// Takes an entry that lies alone, or those of a pack, from their blocks.
    fn take(&mut self, core: &Core, blocks: &[u8], extent: Extent) {
        let mut bytes = buffer(blocks.len());
        bytes.copy_from_slice(blocks);
        let opened = core.open_extent(bytes, extent).ok();
        match opened.as_ref().map(|opened| (opened, opened.alone())) {
            Some((_, Some(entry))) => {
                let lengths = (entry.key.len(), entry.value.len());
                self.push(Moved {
                    name: read(&core.state).name(&entry.key),
                    from: Place::alone(extent.block, lengths, core.block_bytes),
                    key: entry.key,
                    value: entry.value,
                });
            }
            Some((opened, None)) => {
                self.take_packed(opened, extent);
                self.packs.push(extent);
            }
            // One that holds a pack is left alone from now on.
            None => self.packs.push(extent),
        }
    }

    fn take_packed(&mut self, opened: &Opened, pack: Extent) {
        for (number, (name, key, value)) in opened.packed().enumerate() {
            let Some(value) = value else { continue };
            self.push(Moved {
                name,
                from: Place::packed(pack, number),
                key: Value::from(key.to_vec()),
                value: Value::from(value.to_vec()),
            });
        }
    }

    fn push(&mut self, moved: Moved) {
        if !self.places.insert(moved.from) {
            return;
        }
        self.bytes += pack::entry_bytes(moved.key.len(), moved.value.len()) as u64;
        self.entries.push(moved);
    }
}
