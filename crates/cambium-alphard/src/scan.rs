//! The scan: every block in use is read, and the headers among them are gathered.
//!
//! Large reads, several under way, past the operating system's cache; what they bring
//! is looked at by a crew of threads beside the one that reads. Headers are gathered
//! by parts of the index that their keys belong to, so that each part can be decided,
//! and built, by itself ([`crate::recovery`]).
//!
//! ```text
//!  device ──reads──▶ chunks ──crew──▶ headers ──▶ parts, by hash
//! ```
//!
//! Of two members both are read and compared; the headers of one are gathered.

use std::cell::RefCell;
use std::collections::BTreeMap;

use cambium_api::{Finding, FindingKind, Progress, ProgressSink};
use cambium_base::checksum::ChecksumSeed;
use cambium_base::{Error, Extent, Result};
use cambium_index::cuckoo::{Parts, SlotKey};
use cambium_io::batch::read_all;
use cambium_io::{AlignedBuffer, Crew, Environment, ReadRequest};

use crate::format::{self, CONTINUATION, ENTRY, EntryHeader, EntryKind, Superblock};
use crate::mirror::Differing;
use crate::options::Tuning;
use crate::pack;
use crate::place::Place;
use crate::volume::{Volume, buffer};

/// Bytes of one read.
const CHUNK_BYTES: u64 = 1 << 20;
/// Reads under way at once.
const SCAN_DEPTH: usize = 8;
/// Chunks that were read and wait to be looked at.
const MOST_WAITING: usize = 8;
/// Threads beside the one that reads.
const CREW: usize = 2;
/// Less than so much to read is not worth a thread.
const CREW_BYTES: u64 = 16 << 20;
/// Blocks in use for each part that headers are gathered by.
const PART_BLOCKS: u32 = 1 << 15;
/// Most bits of a hash that parts are told apart by.
const MOST_PART_BITS: u32 = 8;

/// A header that was found, without what only the newest ones need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub slot: SlotKey,
    pub check: u64,
    pub sequence: u64,
    block: u32,
    /// The bits of its place, and flags above them.
    place_and_flags: u32,
}

const TOMBSTONE: u32 = 1 << 31;
const BEGINS_BATCH: u32 = 1 << 30;
/// The scan has verified the body, or found it damaged; neither where it did not look.
const SOUND: u32 = 1 << 29;
const UNSOUND: u32 = 1 << 28;
const PLACE: u32 = UNSOUND - 1;

impl Found {
    /// An entry that lies alone.
    fn alone(header: &EntryHeader, unit: u32, sound: Option<bool>) -> Self {
        let flags = [
            (TOMBSTONE, header.kind == EntryKind::Tombstone),
            (BEGINS_BATCH, header.begins_batch),
            (SOUND, sound == Some(true)),
            (UNSOUND, sound == Some(false)),
        ];
        let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
        let place = header.place(unit).slot();
        Found {
            slot: header.slot_key,
            check: header.key_check,
            sequence: header.sequence,
            block: header.block,
            place_and_flags: flags.fold(place.blocks, |flags, (flag, _)| flags | flag),
        }
    }

    /// The entries of a pack, from its first block; `None` if that does not match the checksum
    /// of the table.
    fn packed(header: &EntryHeader, bytes: &[u8], unit: u32) -> Option<Vec<Self>> {
        let table = pack::table(header, bytes)?;
        let rows = pack::rows(table, header.value_bytes as usize).enumerate();
        rows.map(|(number, row)| {
            let row = row?;
            Some(Found {
                slot: row.name.slot,
                check: row.name.check,
                sequence: header.first_sequence() + number as u64,
                block: header.block,
                place_and_flags: Place::packed(header.extent(unit), number).slot().blocks
                    | if row.value.is_none() { TOMBSTONE } else { 0 },
            })
        })
        .collect()
    }

    pub fn is_tombstone(&self) -> bool {
        self.place_and_flags & TOMBSTONE != 0
    }

    /// True for the first entry of a batch.
    pub fn begins_batch(&self) -> bool {
        self.place_and_flags & BEGINS_BATCH != 0
    }

    /// Whether the body matches its checksum, where the scan has looked.
    pub fn sound(&self) -> Option<bool> {
        match self.place_and_flags & (SOUND | UNSOUND) {
            0 => None,
            sound => Some(sound == SOUND),
        }
    }

    pub fn place(&self) -> Place {
        Place::of_slot(Extent {
            block: self.block,
            blocks: self.place_and_flags & PLACE,
        })
    }
}

/// What the cut is decided by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest {
    /// The last of its numbers.
    pub last: u64,
    pub epoch: u32,
    pub digest: u64,
    pub remaining: u32,
    pub extent: Extent,
    /// `None` where the entry did not lie whole in what was read.
    pub sound: Option<bool>,
}

/// An error, and the member that it came from.
pub(crate) type OfMember<T> = std::result::Result<T, (usize, Error)>;

/// Everything that one pass over the device tells.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    pub volume: &'a Volume,
    pub superblock: &'a Superblock,
    pub seed: ChecksumSeed,
    /// All headers, by parts of the index.
    pub found: Vec<Vec<Found>>,
    /// Packs whose tables do not match their checksums: their first numbers, and their blocks.
    pub torn_packs: Vec<(u64, u32)>,
    /// Entries at or above `durable`, by their first numbers: of those with one number, that
    /// of the newest epoch counts.
    newest: Vec<(u64, Newest)>,
    /// How many of those were left when they were last sifted.
    sifted: usize,
    /// The highest number that anyone calls durable.
    pub durable: u64,
    /// Blocks that are neither entries nor erased: how many, and the first.
    pub odd: u64,
    pub first_odd: Option<u32>,
    pub findings: Vec<Finding>,
    pub bytes: u64,
    /// The member whose headers are gathered.
    pub believed: usize,
    comparison: Comparison,
}

/// What two members have in the same place.
#[derive(Debug, Default)]
struct Comparison {
    /// Chunks that only one member has answered yet, by their offsets.
    waiting: BTreeMap<u64, AlignedBuffer>,
    differing: Differing,
}

impl Comparison {
    /// Takes a chunk of one member; compares it if the other's is there.
    fn take(&mut self, offset: u64, chunk: AlignedBuffer, unit: u32) {
        let Some(other) = self.waiting.remove(&offset) else {
            self.waiting.insert(offset, chunk);
            return;
        };
        if chunk[..] == other[..] {
            return;
        }
        let first = (offset / u64::from(unit)) as u32;
        let blocks = chunk.chunks(unit as usize).zip(other.chunks(unit as usize));
        for (block, (one, two)) in (first..).zip(blocks) {
            match self.differing.last_mut() {
                _ if one == two => {}
                Some(last) if last.end() == u64::from(block) => last.blocks += 1,
                _ => self.differing.push(Extent { block, blocks: 1 }),
            }
        }
    }
}

/// A piece of the device, read, and what was known to be durable by then.
struct Chunk {
    bytes: AlignedBuffer,
    offset: u64,
    durable: u64,
}

/// The contents of headers.
#[derive(Default)]
struct Gathered {
    /// Entries, each with its part of the index.
    found: Vec<(u16, Found)>,
    newest: Vec<(u64, Newest)>,
    torn_packs: Vec<(u64, u32)>,
}

/// What a chunk holds.
struct Looked {
    bytes: AlignedBuffer,
    offset: u64,
    gathered: Gathered,
    durable: u64,
    /// Neither entries nor erased.
    odd: Vec<u32>,
    /// Headers that this store cannot have written: their blocks, and why.
    impossible: Vec<(u32, String)>,
}

/// What is needed to look at chunks, on any thread.
#[derive(Clone, Copy)]
struct Looker {
    unit: u32,
    seed: ChecksumSeed,
    epoch: u32,
    high_water: u32,
    parts: Parts,
    /// Bodies of all entries are verified: those that were replaced may be history.
    all_bodies: bool,
}

impl Looker {
    /// Gathers the headers of a chunk.
    fn look(&self, chunk: Chunk) -> Looked {
        let Chunk {
            bytes,
            offset,
            durable,
        } = chunk;
        let unit = self.unit as usize;
        let first = (offset / unit as u64) as u32;
        let mut looked = Looked {
            bytes,
            offset,
            gathered: Gathered::default(),
            durable,
            odd: Vec::new(),
            impossible: Vec::new(),
        };
        let mut headers = Vec::new();
        for (block, bytes) in (first..).zip(looked.bytes.chunks_exact(unit)) {
            match bytes[0] {
                CONTINUATION => {}
                0 if bytes.iter().all(|&byte| byte == 0) => {}
                ENTRY => match format::decode_header(bytes, block, self.unit, self.seed) {
                    Some(header) => headers.push(header),
                    None => looked.odd.push(block),
                },
                _ => looked.odd.push(block),
            }
        }
        headers.retain(|header| match self.objection(header) {
            Some(what) => {
                looked.impossible.push((header.block, what));
                false
            }
            None => true,
        });
        looked.gathered.found.reserve_exact(headers.len());
        let durable = headers.iter().map(|header| header.synced_through);
        looked.durable = durable.fold(looked.durable, u64::max);
        for header in headers {
            let start = (header.block - first) as usize * unit;
            let rest = &looked.bytes[start..];
            self.gather(header, rest, looked.durable, &mut looked.gathered);
        }
        looked
    }

    /// Gathers what a header tells, and what was read from it on.
    fn gather(&self, header: EntryHeader, rest: &[u8], durable: u64, into: &mut Gathered) {
        let extent = header.extent(self.unit);
        let whole = rest.get(..extent.blocks as usize * self.unit as usize);
        let is_sound = |whole| format::body_is_sound(whole, header.block, self.unit, self.seed);
        let mut sound = whole.filter(|_| self.all_bodies).map(is_sound);
        let part_of = |found: Found| (self.parts.part_of(found.slot) as u16, found);
        if header.kind == EntryKind::Pack {
            let Some(packed) = Found::packed(&header, rest, self.unit) else {
                into.torn_packs
                    .push((header.first_sequence(), header.block));
                return;
            };
            into.found.extend(packed.into_iter().map(part_of));
        } else {
            let found = Found::alone(&header, self.unit, sound);
            into.found.push(part_of(found));
        }
        if header.sequence >= durable {
            sound = sound.or(whole.map(is_sound));
            let newest = Newest {
                last: header.sequence,
                epoch: header.epoch,
                digest: header.live_digest,
                remaining: header.remaining,
                extent,
                sound,
            };
            into.newest.push((header.first_sequence(), newest));
        }
    }

    /// Why a header cannot be of this store, if so.
    fn objection(&self, header: &EntryHeader) -> Option<String> {
        let extent = header.extent(self.unit);
        let fits = extent.end() <= self.high_water.into();
        (header.epoch > self.epoch || !fits).then(|| {
            format!(
                "an entry of epoch {} in {} blocks, where the superblock knows epoch {} and {} blocks",
                header.epoch, extent.blocks, self.epoch, self.high_water
            )
        })
    }
}

impl<'a> Scan<'a> {
    pub fn new(volume: &'a Volume, superblock: &'a Superblock, believed: usize) -> Self {
        Scan {
            volume,
            superblock,
            seed: superblock.seed(),
            found: Vec::new(),
            torn_packs: Vec::new(),
            newest: Vec::new(),
            sifted: 0,
            durable: superblock.synced_through,
            odd: 0,
            first_odd: None,
            findings: Vec::new(),
            bytes: 0,
            believed,
            comparison: Comparison::default(),
        }
    }

    pub fn finding(&mut self, kind: FindingKind, block: u32, what: String) {
        self.findings.push(Finding {
            kind,
            file: self.volume.member_path(self.believed).to_path_buf(),
            offset: self.volume.offset(block),
            what,
        });
    }

    /// The parts of an index of so many entries, as headers were gathered by them.
    pub fn parts(&self, expected: usize) -> Parts {
        let wanted = self.superblock.high_water / PART_BLOCKS;
        let bits = wanted.checked_ilog2().unwrap_or(0).min(MOST_PART_BITS);
        Parts::new(self.superblock.hash_secret, bits, expected)
    }

    /// Reads every block in use, several chunks at once.
    pub fn read_all(
        &mut self,
        environment: &Environment,
        tuning: &Tuning,
        progress: &dyn ProgressSink,
    ) -> OfMember<()> {
        let mut options = tuning.read_queue;
        options.depth = options.depth.min(SCAN_DEPTH);
        let here = |error| (self.believed, error);
        let mut queue = environment.file_system.read_queue(options).map_err(here)?;
        let start = self.volume.offset(self.superblock.first_block());
        let end = self.volume.offset(self.superblock.high_water);
        let mut files = Vec::new();
        for member in self.volume.readable() {
            let file = self.volume.file_of(member).map_err(here)?;
            files.push((member, file.clone()));
        }
        let crew = self.crew(environment, end - start);
        // Memory that was looked at serves again: fresh pages cost as much as reading.
        let spare: RefCell<Vec<AlignedBuffer>> = RefCell::default();
        let memory = |bytes: usize| {
            let found = spare.borrow_mut().pop();
            found
                .filter(|found| found.len() == bytes)
                .unwrap_or_else(|| buffer(bytes))
        };
        let compared = files.len() > 1;
        let total = (end - start) * files.len() as u64;
        let chunks = (start..end).step_by(CHUNK_BYTES as usize);
        let memory = &memory;
        let chunks = chunks.flat_map(|offset| {
            files.iter().map(move |(member, file)| ReadRequest {
                file: file.clone(),
                offset,
                buffer: memory(CHUNK_BYTES.min(end - offset) as usize),
                // Offsets are whole blocks: the low bits are free.
                tag: offset | *member as u64,
            })
        });
        let mut failed = self.believed;
        let give_back = |scan: &mut Self, offset, bytes| match compared {
            true => scan.comparison.take(offset, bytes, scan.volume.block_bytes),
            false => spare.borrow_mut().push(bytes),
        };
        read_all(&mut *queue, chunks, |completion| {
            let member = (completion.tag & 1) as usize;
            let offset = completion.tag & !1;
            failed = member;
            let count = completion.result?;
            if count < completion.buffer.len() {
                let what = format!("the device ends here; expected {end} bytes");
                let path = self.volume.member_path(member);
                return Err(Error::corruption(path, offset + count as u64, what));
            }
            self.bytes += count as u64;
            progress.report(Progress {
                phase: "scanning",
                done: self.bytes,
                total: Some(total),
            });
            if member != self.believed {
                give_back(self, offset, completion.buffer);
                return Ok(());
            }
            crew.add(Chunk {
                bytes: completion.buffer,
                offset,
                durable: self.durable,
            });
            while crew.pending() > MOST_WAITING {
                let Some(looked) = crew.next()? else { break };
                let bytes = self.take(looked);
                give_back(self, bytes.0, bytes.1);
            }
            while let Some(looked) = crew.ready() {
                let bytes = self.take(looked);
                give_back(self, bytes.0, bytes.1);
            }
            Ok(())
        })
        .map_err(|error| (failed, error))?;
        while let Some(looked) = crew.next().map_err(|error| (self.believed, error))? {
            let (offset, bytes) = self.take(looked);
            give_back(self, offset, bytes);
        }
        Ok(())
    }

    /// Who looks at chunks, of so many bytes in all.
    fn crew(&mut self, environment: &Environment, bytes: u64) -> Crew<Chunk, Looked> {
        let parts = self.parts(0);
        self.found = std::iter::repeat_with(Vec::new)
            .take(parts.count())
            .collect();
        let looker = Looker {
            unit: self.volume.block_bytes,
            seed: self.seed,
            epoch: self.superblock.epoch,
            high_water: self.superblock.high_water,
            parts,
            all_bodies: self.superblock.history_lost.is_some(),
        };
        let threads = crew_for(bytes);
        let look = move |chunk| looker.look(chunk);
        Crew::new(&*environment.executor, "alphard scan", threads, look)
    }

    /// Takes what a chunk holds; answers its memory.
    fn take(&mut self, looked: Looked) -> (u64, AlignedBuffer) {
        self.durable = self.durable.max(looked.durable);
        for (part, found) in looked.gathered.found {
            self.found[part as usize].push(found);
        }
        self.torn_packs.extend(looked.gathered.torn_packs);
        self.newest.extend(looked.gathered.newest);
        if self.newest.len() > 2 * self.sifted + 1024 {
            self.sift();
        }
        self.odd += looked.odd.len() as u64;
        self.first_odd = looked.odd.into_iter().chain(self.first_odd).min();
        for (block, what) in looked.impossible {
            self.finding(FindingKind::Damage, block, what);
        }
        (looked.offset, looked.bytes)
    }

    /// Reads an entry of the member that is believed: true if its body matches its checksum.
    pub fn body_is_sound(&self, extent: Extent) -> Result<bool> {
        let bytes = self.volume.read_from(self.believed, extent)?;
        let unit = self.volume.block_bytes;
        Ok(format::body_is_sound(&bytes, extent.block, unit, self.seed))
    }

    /// Forgets what is below what is durable.
    fn sift(&mut self) {
        let durable = self.durable;
        self.newest.retain(|(_, newest)| newest.last >= durable);
        self.sifted = self.newest.len();
    }

    /// Entries at or above what is durable, by their first numbers.
    pub fn newest(&mut self) -> BTreeMap<u64, Newest> {
        self.sift();
        let mut newest = std::mem::take(&mut self.newest);
        newest.sort_by_key(|(sequence, newest)| (*sequence, newest.epoch));
        // Of equal numbers the last one stays.
        newest.into_iter().collect()
    }

    /// Where the members differ, in order.
    pub fn differing(&mut self) -> Differing {
        let mut differing = std::mem::take(&mut self.comparison.differing);
        differing.sort_unstable();
        differing
    }
}

/// Threads beside the caller for so many bytes of the device.
pub(crate) fn crew_for(bytes: u64) -> usize {
    if bytes < CREW_BYTES { 0 } else { CREW }
}
