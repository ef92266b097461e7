//! Recovery: what a device holds after a crash, from its headers alone.
//!
//! 1. Every block in use is read, many at once; the headers among them are gathered
//!    ([`Scan`]).
//! 2. *The cut.* The highest number that any header, or the superblock, calls
//!    durable; and above it what follows without a gap, each entry verified whole,
//!    up to the end of a batch.
//! 3. Of each key the newest entry up to the cut counts: a value is live, a
//!    tombstone hides all older ones. What else is found is a stale header.
//! 4. *The proof.* The digest of what is live is the one in the header of the last
//!    entry kept. If it is not, something is missing or has come back: the opening
//!    fails, and says so.
//! 5. What is kept is made durable, and the headers behind the cut are erased,
//!    before the next epoch begins: what was cut off can never come back.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use cambium_api::{Finding, FindingKind, Progress, ProgressSink};
use cambium_base::checksum::ChecksumSeed;
use cambium_base::{Error, Extent, Result};
use cambium_index::cuckoo::{Builder, SlotKey};
use cambium_io::batch::read_all;
use cambium_io::{AlignedBuffer, FileSystem, ReadRequest};
use cambium_storage::allocator::Allocator;

use crate::format::{self, CONTINUATION, ENTRY, EntryHeader, EntryKind, Superblock};
use crate::mirror::Differing;
use crate::options::Tuning;
use crate::seeded_bug::SeededBug;
use crate::stale::StaleHeaders;
use crate::state::State;
use crate::volume::{Volume, buffer};

/// Bytes of one read of a scan.
const CHUNK_BYTES: u64 = 1 << 20;
/// Reads of a scan under way at once.
const SCAN_DEPTH: usize = 8;

/// A store's memory, as the device says it should be.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub state: State,
    pub allocator: Allocator,
    pub stale: StaleHeaders,
    pub tombstones: VecDeque<(u64, u32)>,
    /// The last write that is kept.
    pub sequence: u64,
    /// Up to where the device itself says that all is durable.
    pub marked: u64,
    /// Headers behind the cut, sorted: to be erased.
    pub dead: Vec<u32>,
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
        Recovered {
            state: State::new(superblock.hash_secret, superblock.sequence),
            allocator: Allocator::new(superblock.first_block(), superblock.high_water),
            stale: StaleHeaders::default(),
            tombstones: VecDeque::new(),
            sequence: superblock.sequence,
            marked: superblock.synced_through,
            dead: Vec::new(),
            findings: Vec::new(),
            from_image: false,
            bytes: 0,
            believed: 0,
            differing: Vec::new(),
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

/// A header that was found, without what only the newest ones need.
#[derive(Clone, Copy, Debug)]
struct Found {
    slot: SlotKey,
    check: u64,
    sequence: u64,
    extent: Extent,
    kind: EntryKind,
}

/// What the cut is decided by.
#[derive(Clone, Copy, Debug)]
struct Newest {
    epoch: u32,
    digest: u64,
    remaining: u32,
    extent: Extent,
    /// `None` where the entry did not lie whole in what was read.
    sound: Option<bool>,
}

/// Everything that one pass over the device tells.
#[derive(Debug)]
struct Scan<'a> {
    volume: &'a Volume,
    superblock: &'a Superblock,
    seed: ChecksumSeed,
    found: Vec<Found>,
    /// Entries at or above `durable`, by number.
    newest: BTreeMap<u64, Newest>,
    /// The highest number that anyone calls durable.
    durable: u64,
    /// Blocks that are neither entries nor erased: how many, and the first.
    odd: u64,
    first_odd: Option<u32>,
    findings: Vec<Finding>,
    bytes: u64,
    /// The member whose headers are gathered.
    believed: usize,
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

/// Scans the device and decides what is live. Writes nothing.
///
/// Of two members both are read and compared. The headers of the first are believed
/// if the proof holds for them, else those of the second if it holds there.
pub(crate) fn recover(
    file_system: &dyn FileSystem,
    volume: &Volume,
    superblock: &Superblock,
    tuning: &Tuning,
    progress: &dyn ProgressSink,
) -> Result<Recovered> {
    let mut first = None;
    for believed in 0..volume.member_count() {
        // A member that cannot be read is lost, and what it answered forgotten.
        while volume.readable().any(|member| member == believed) {
            let mut scan = Scan::new(volume, superblock, believed);
            let cut = scan
                .read_all(file_system, tuning, progress)
                .and_then(|()| scan.cut(tuning));
            let recovered = match cut {
                Ok(cut) => scan.settle(cut),
                Err((member, _)) if volume.lose(member) => continue,
                Err((_, error)) => return Err(error),
            };
            if recovered.damage().is_none() {
                return Ok(recovered);
            }
            first = first.or(Some(recovered));
            break;
        }
    }
    first.ok_or_else(|| Error::corruption(volume.path(), 0, "no member can be read"))
}

/// An error, and the member that it came from.
pub(crate) type OfMember<T> = std::result::Result<T, (usize, Error)>;

impl<'a> Scan<'a> {
    fn new(volume: &'a Volume, superblock: &'a Superblock, believed: usize) -> Self {
        Scan {
            volume,
            superblock,
            seed: superblock.seed(),
            found: Vec::new(),
            newest: BTreeMap::new(),
            durable: superblock.synced_through,
            odd: 0,
            first_odd: None,
            findings: Vec::new(),
            bytes: 0,
            believed,
            comparison: Comparison::default(),
        }
    }

    fn finding(&mut self, kind: FindingKind, block: u32, what: String) {
        self.findings.push(Finding {
            kind,
            file: self.volume.member_path(self.believed).to_path_buf(),
            offset: self.volume.offset(block),
            what,
        });
    }

    /// Reads every block in use, several chunks at once.
    fn read_all(
        &mut self,
        file_system: &dyn FileSystem,
        tuning: &Tuning,
        progress: &dyn ProgressSink,
    ) -> OfMember<()> {
        let mut options = tuning.read_queue;
        options.depth = options.depth.min(SCAN_DEPTH);
        let here = |error| (self.believed, error);
        let mut queue = file_system.read_queue(options).map_err(here)?;
        let start = self.volume.offset(self.superblock.first_block());
        let end = self.volume.offset(self.superblock.high_water);
        let mut files = Vec::new();
        for member in self.volume.readable() {
            let file = self.volume.file_of(member).map_err(here)?;
            files.push((member, file.clone()));
        }
        let compared = files.len() > 1;
        // Memory that was looked at serves again: fresh pages cost as much as reading.
        let spare: RefCell<Vec<AlignedBuffer>> = RefCell::default();
        let memory = |bytes: usize| {
            let found = spare.borrow_mut().pop();
            found
                .filter(|found| found.len() == bytes)
                .unwrap_or_else(|| buffer(bytes))
        };
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
            if member == self.believed {
                self.look_at(&completion.buffer, offset);
            }
            if compared {
                let unit = self.volume.block_bytes;
                self.comparison.take(offset, completion.buffer, unit);
            } else {
                spare.borrow_mut().push(completion.buffer);
            }
            Ok(())
        })
        .map_err(|error| (failed, error))?;
        self.comparison.differing.sort_unstable();
        Ok(())
    }

    /// Gathers the headers of a chunk.
    fn look_at(&mut self, chunk: &[u8], offset: u64) {
        let unit = self.volume.block_bytes as usize;
        let first = (offset / unit as u64) as u32;
        for (block, bytes) in (first..).zip(chunk.chunks_exact(unit)) {
            match bytes[0] {
                CONTINUATION => {}
                0 if bytes.iter().all(|&byte| byte == 0) => {}
                ENTRY => match format::decode_header(bytes, block, unit as u32, self.seed) {
                    Some(header) => {
                        let start = (block - first) as usize * unit;
                        self.gather(&header, &chunk[start..]);
                    }
                    None => self.note_odd(block),
                },
                _ => self.note_odd(block),
            }
        }
    }

    fn note_odd(&mut self, block: u32) {
        self.odd += 1;
        self.first_odd = Some(self.first_odd.map_or(block, |first| first.min(block)));
    }

    fn gather(&mut self, header: &EntryHeader, rest: &[u8]) {
        let unit = self.volume.block_bytes;
        let extent = header.extent(unit);
        if header.epoch > self.superblock.epoch || extent.end() > self.superblock.high_water.into()
        {
            let what = format!(
                "an entry of epoch {} in {} blocks, where the superblock knows epoch {} and {} blocks",
                header.epoch, extent.blocks, self.superblock.epoch, self.superblock.high_water
            );
            return self.finding(FindingKind::Damage, header.block, what);
        }
        self.found.push(Found {
            slot: header.slot_key,
            check: header.key_check,
            sequence: header.sequence,
            extent,
            kind: header.kind,
        });
        if header.synced_through > self.durable {
            self.durable = header.synced_through;
            self.newest = self.newest.split_off(&self.durable);
        }
        if header.sequence < self.durable {
            return;
        }
        let whole = rest.get(..extent.blocks as usize * unit as usize);
        let newest = Newest {
            epoch: header.epoch,
            digest: header.live_digest,
            remaining: header.remaining,
            extent,
            sound: whole.map(|whole| format::body_is_sound(whole, header.block, unit, self.seed)),
        };
        let known = self.newest.entry(header.sequence).or_insert(newest);
        if known.epoch < newest.epoch {
            *known = newest;
        }
    }

    /// The last write that is kept.
    fn cut(&mut self, tuning: &Tuning) -> OfMember<u64> {
        let mut cut = self.durable;
        let mut next = cut + 1;
        while let Some(newest) = self.newest.get(&next).copied() {
            if !self
                .is_sound(&newest)
                .map_err(|error| (self.believed, error))?
            {
                break;
            }
            if newest.remaining == 0 || tuning.seeded_bug == Some(SeededBug::BatchSplit) {
                cut = next;
            }
            next += 1;
        }
        if tuning.seeded_bug == Some(SeededBug::TornTailKept) {
            cut = self
                .newest
                .keys()
                .next_back()
                .copied()
                .unwrap_or(cut)
                .max(cut);
        }
        Ok(cut)
    }

    fn is_sound(&self, newest: &Newest) -> Result<bool> {
        match newest.sound {
            Some(sound) => Ok(sound),
            None => {
                let bytes = self.volume.read_from(self.believed, newest.extent)?;
                let block = newest.extent.block;
                Ok(format::body_is_sound(
                    &bytes,
                    block,
                    self.volume.block_bytes,
                    self.seed,
                ))
            }
        }
    }

    /// What is live, stale and dead, given the cut.
    fn settle(mut self, cut: u64) -> Recovered {
        let mut recovered = Recovered::empty(self.superblock);
        recovered.sequence = cut;
        recovered.state.visible = cut;
        recovered.marked = self.durable;
        recovered.bytes = self.bytes;
        recovered.believed = self.believed;
        recovered.differing = std::mem::take(&mut self.comparison.differing);
        let mut found = std::mem::take(&mut self.found);
        found.sort_unstable_by_key(|found| (found.slot, found.check, u64::MAX - found.sequence));
        let mut newest_of = None;
        let mut live = Vec::with_capacity(found.len());
        for entry in &found {
            if entry.sequence > cut {
                recovered.dead.push(entry.extent.block);
                continue;
            }
            let first = newest_of != Some((entry.slot, entry.check));
            newest_of = Some((entry.slot, entry.check));
            match entry.kind {
                EntryKind::Tombstone => recovered
                    .tombstones
                    .push_back((entry.sequence, entry.extent.block)),
                EntryKind::Value if first => {
                    live.push((entry.slot, entry.extent));
                    recovered.state.live_digest ^= format::digest_of(entry.slot, entry.extent);
                }
                EntryKind::Value => {
                    recovered.stale.add(entry.sequence, entry.extent.block);
                    continue;
                }
            }
            if !recovered.allocator.take(entry.extent) {
                let what = "two live entries lie over one another".to_string();
                self.finding(FindingKind::Damage, entry.extent.block, what);
            }
        }
        drop(found);
        recovered.state.index = Builder::from_entries(self.superblock.hash_secret, &live);
        drop(live);
        recovered.dead.sort_unstable();
        recovered.tombstones.make_contiguous().sort_unstable();
        self.prove(&recovered, cut);
        if let Some(first) = self.first_odd {
            let what = format!(
                "{} blocks are neither entries nor erased: torn by a crash, or there before the device was formatted",
                self.odd
            );
            self.finding(FindingKind::Note, first, what);
        }
        recovered.findings = self.findings;
        recovered
    }

    /// Compares what is live with what the last write that is kept says.
    fn prove(&mut self, recovered: &Recovered, cut: u64) {
        let said = if cut == self.superblock.sequence {
            Some(self.superblock.live_digest)
        } else {
            self.newest.get(&cut).map(|newest| newest.digest)
        };
        if said == Some(recovered.state.live_digest) {
            return;
        }
        let entries = recovered.state.index.len();
        let what = match said {
            Some(_) => format!(
                "the {entries} live entries found are not those of write {cut}: some are missing, or have come back; `repair` keeps what is there"
            ),
            None => format!(
                "write {cut}, which is durable, is not there; `repair` keeps the {entries} live entries found"
            ),
        };
        self.finding(FindingKind::Damage, self.superblock.first_block(), what);
    }
}
