//! The index image: what a clean close leaves, so that the next opening need not
//! scan the device.
//!
//! It is a file in the store's folder, believed only if the superblock says that
//! the store was closed cleanly and names the image's id, if its checksum is right,
//! and if its entries make the digest that the superblock holds. The first write
//! after opening takes the clean mark away, durably, and the image with it. What is
//! free is not in it: that is derived.

use cambium_base::checksum::crc32c_append;
use cambium_base::coding::{u32_at, u64_at};
use cambium_base::layout::{Layout, field};
use cambium_base::{Extent, Result};
use cambium_index::cuckoo::{Builder, SlotKey};
use cambium_io::{File, FileSystem, OpenOptions};
use std::path::Path;

use crate::change_log::{ChangeLog, LoggedChange};
use crate::core::{Core, Writer, read};
use crate::format::{self, IMAGE_NAME, Superblock};
use crate::place::Place;
use crate::recovery::Recovered;

const MAGIC: [u8; 8] = *b"CMBMacki";
const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 16;
const NOTE_BYTES: usize = 12;
const CHANGE_BYTES: usize = 8;
const REPLACED_BYTES: usize = ENTRY_BYTES;
/// Bytes written or read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The image's head.
pub const IMAGE_LAYOUT: Layout = Layout {
    name: "Index image",
    about: "At offset 0 of `index-image`. It is followed by the entries (slot key, 8 bytes; block, 4; blocks, 4: of a small entry with 2^26 more; in a pack 2^27 more, with 2^8 for each entry before it in the pack), the tombstones (sequence, 8; block, 4; blocks, 4, as of an entry), the stale headers (sequence, 8; block, 4), the changes (block, 4; blocks, 4, with 2^31 more in a delete and 2^30 more in the first of a batch), the replaced entries (sequence of the replacement, 8; block, 4; blocks, 4) and a CRC-32C of everything before it.",
    fields: &[
        field(0, 8, "magic", "`CMBMacki`"),
        field(8, 8, "image_id", "the superblock names it, or the image is an old one"),
        field(16, 8, "entries", "how many entries follow"),
        field(24, 8, "tombstones", "how many tombstones follow"),
        field(32, 8, "stale_headers", "how many stale headers follow"),
        field(40, 8, "history_lost", "no change up to this write is shown; 0 without history"),
        field(48, 8, "changes", "how many changes follow: one for each later write"),
        field(56, 8, "replaced", "how many replaced entries follow: those that changes are read from"),
    ],
    size: HEADER_BYTES,
}
.checked();

/// Writes bytes one after another, in pieces.
struct Sink<'a> {
    file: &'a dyn File,
    bytes: Vec<u8>,
    offset: u64,
    checksum: u32,
}

impl Sink<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= CHUNK_BYTES {
            self.hand_over()?;
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<()> {
        self.file.write_at(&self.bytes, self.offset)?;
        self.checksum = crc32c_append(self.checksum, &self.bytes);
        self.offset += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }

    fn extent(&mut self, word: u64, extent: Extent) -> Result<()> {
        self.put(&word.to_le_bytes())?;
        self.put(&extent.block.to_le_bytes())?;
        self.put(&extent.blocks.to_le_bytes())
    }

    fn note(&mut self, (sequence, block): (u64, u32)) -> Result<()> {
        self.put(&sequence.to_le_bytes())?;
        self.put(&block.to_le_bytes())
    }
}

impl Core {
    /// Writes an image, durably; answers its id.
    pub fn write_image(&self, writer: &Writer) -> Result<u64> {
        let file_system = &*self.environment.file_system;
        let options = OpenOptions {
            truncate: true,
            ..OpenOptions::CREATE
        };
        let file = file_system.open(&self.path.join(IMAGE_NAME), options)?;
        let id = self.environment.randomness.next_u64().max(1);
        let state = read(&self.state);
        let mut sink = Sink {
            file: &*file,
            bytes: Vec::with_capacity(CHUNK_BYTES + ENTRY_BYTES),
            offset: 0,
            checksum: 0,
        };
        let log = state.log.as_ref();
        // Without history, what waits is free in the next opening.
        let replaced = log.map(|_| writer.allocator.waiting());
        let lengths = [
            state.index.len() as u64,
            writer.tombstones.len() as u64,
            writer.stale.len() as u64,
            log.map_or(0, ChangeLog::lost),
            log.map_or(0, |log| log.len() as u64),
            replaced
                .as_ref()
                .map_or(0, |replaced| replaced.len() as u64),
        ];
        sink.put(&MAGIC)?;
        sink.put(&id.to_le_bytes())?;
        for length in lengths {
            sink.put(&length.to_le_bytes())?;
        }
        let mut from = Some(0);
        let mut page = Vec::new();
        while let Some(at) = from {
            page.clear();
            from = state.index.page(at, &mut page);
            for (_, slot, place) in &page {
                sink.extent(slot.bits(), *place)?;
            }
        }
        for &(sequence, place) in &writer.tombstones {
            sink.extent(sequence, place.slot())?;
        }
        for note in writer.stale.iter() {
            sink.note(note)?;
        }
        for change in log.into_iter().flat_map(ChangeLog::iter) {
            sink.put(&change.encode())?;
        }
        for (sequence, extent) in replaced.into_iter().flatten() {
            sink.extent(sequence, extent)?;
        }
        sink.hand_over()?;
        let checksum = sink.checksum;
        let end = sink.offset;
        file.write_at(&checksum.to_le_bytes(), end)?;
        file.sync_data()?;
        file_system.sync_directory(&self.path)?;
        Ok(id)
    }
}

/// What an image holds, if it is the one that the superblock speaks of and whole.
pub(crate) fn load(
    file_system: &dyn FileSystem,
    folder: &Path,
    superblock: &Superblock,
) -> Result<Option<Recovered>> {
    let path = folder.join(IMAGE_NAME);
    if !superblock.clean || superblock.image_id == 0 || file_system.metadata(&path)?.is_none() {
        return Ok(None);
    }
    let file = file_system.open(&path, OpenOptions::READ)?;
    let length = file.length()?;
    let mut head = [0; HEADER_BYTES];
    if file.read_at(&mut head, 0)? < HEADER_BYTES
        || head[..8] != MAGIC
        || u64_at(&head, 8) != superblock.image_id
    {
        return Ok(None);
    }
    let counts = [16, 24, 32, 48, 56].map(|at| u64_at(&head, at));
    let widths = [
        ENTRY_BYTES,
        ENTRY_BYTES,
        NOTE_BYTES,
        CHANGE_BYTES,
        REPLACED_BYTES,
    ];
    let lengths = counts.iter().zip(widths);
    let body: u128 = lengths
        .map(|(&count, width)| u128::from(count) * width as u128)
        .sum();
    if body + HEADER_BYTES as u128 + 4 != u128::from(length) {
        return Ok(None);
    }
    let [entries, tombstones, stale, changes, replaced] = counts;
    let mut source = Source {
        file: &*file,
        offset: HEADER_BYTES as u64,
        end: length - 4,
        bytes: Vec::new(),
        at: 0,
        checksum: crc32c_append(0, &head),
    };
    let mut recovered = Recovered::empty(superblock);
    let expected = usize::try_from(entries).unwrap_or(usize::MAX);
    let mut index = Builder::new(superblock.hash_secret, expected);
    for _ in 0..entries {
        let (bits, extent) = source.extent()?;
        match SlotKey::from_bits(bits) {
            Some(slot) if recovered.take(Place::of_slot(extent), false) => {
                index.push(slot, extent);
                let digest = format::digest_of(slot, Place::of_slot(extent));
                recovered.state.live_digest ^= digest;
            }
            _ => return Ok(None),
        }
    }
    recovered.state.index = index.finish();
    for _ in 0..tombstones {
        let (sequence, slot) = source.extent()?;
        let place = Place::of_slot(slot);
        if !recovered.take(place, true) {
            return Ok(None);
        }
        recovered.tombstones.push_back((sequence, place));
    }
    let mut headers = Vec::new();
    for _ in 0..stale {
        let bytes = source.take::<NOTE_BYTES>()?;
        headers.push((u64_at(&bytes, 0), u32_at(&bytes, 8)));
    }
    recovered.stale = headers.into_iter().collect();
    recovered.packs.all_found(&mut recovered.stale);
    if !load_history(
        &mut source,
        &mut recovered,
        u64_at(&head, 40),
        (changes, replaced),
    )? {
        return Ok(None);
    }
    let mut checksum = [0; 4];
    file.read_exact_at(&mut checksum, length - 4)?;
    let whole = u32_at(&checksum, 0) == source.checksum
        && recovered.state.live_digest == superblock.live_digest
        && recovered.state.index.len() as u64 == superblock.live_entries;
    recovered.from_image = true;
    Ok(whole.then_some(recovered))
}

/// The change log, and what it keeps out of free space; false if it does not fit the store.
fn load_history(
    source: &mut Source<'_>,
    recovered: &mut Recovered,
    lost: u64,
    (changes, replaced): (u64, u64),
) -> Result<bool> {
    let limit = recovered.allocator.limit();
    let mut logged = Vec::new();
    for _ in 0..changes {
        match LoggedChange::decode(source.take::<CHANGE_BYTES>()?, limit) {
            Some(change) => logged.push(change),
            None => return Ok(false),
        }
    }
    for _ in 0..replaced {
        let (sequence, extent) = source.extent()?;
        if extent.blocks == 0 || !recovered.allocator.take(extent) {
            return Ok(false);
        }
        recovered.allocator.free_after(extent, sequence);
    }
    if recovered.state.log.is_none() {
        return Ok(changes == 0 && replaced == 0);
    }
    recovered.state.log = Some(ChangeLog::new(lost, logged));
    Ok(lost.checked_add(changes) == Some(recovered.sequence))
}

/// Reads bytes one after another, in pieces.
struct Source<'a> {
    file: &'a dyn File,
    offset: u64,
    end: u64,
    bytes: Vec<u8>,
    at: usize,
    checksum: u32,
}

impl Source<'_> {
    fn take<const COUNT: usize>(&mut self) -> Result<[u8; COUNT]> {
        if self.bytes.len() - self.at < COUNT {
            self.bytes.drain(..self.at);
            self.at = 0;
            let kept = self.bytes.len();
            let more = (self.end - self.offset).min(CHUNK_BYTES as u64) as usize;
            self.bytes.resize(kept + more, 0);
            self.file
                .read_exact_at(&mut self.bytes[kept..], self.offset)?;
            self.checksum = crc32c_append(self.checksum, &self.bytes[kept..]);
            self.offset += more as u64;
        }
        let mut taken = [0; COUNT];
        taken.copy_from_slice(&self.bytes[self.at..self.at + COUNT]);
        self.at += COUNT;
        Ok(taken)
    }

    fn extent(&mut self) -> Result<(u64, Extent)> {
        let bytes = self.take::<ENTRY_BYTES>()?;
        let extent = Extent {
            block: u32_at(&bytes, 8),
            blocks: u32_at(&bytes, 12),
        };
        Ok((u64_at(&bytes, 0), extent))
    }
}
