//! One data file of a store under repair.

use std::collections::{BTreeMap, HashMap};

use cambium_base::checksum::ChecksumSeed;
use cambium_base::{Error, Result};
use cambium_index::{FlatSlots, Slot};
use cambium_io::File;
use cambium_storage::record::RecordHeader;

use super::Repair;
use super::catalog::{LostCatalog, SavedEntry};
use super::tails::{PlaceTail, TailEntry};
use crate::catalog::{Catalog, DataEntry, TableEntry};
use crate::data_file::{DataFile, Home};
use crate::format::{self, FLAG_SPLIT, FileRef, kind, range_keys};
use crate::options::Keys;
use crate::rebuild::{FileContent, salvage_content};
use crate::tails::Source;

/// A data file's entry in the catalog, with its table and place.
type At<'a> = (&'a mut DataEntry, (u64, u32));

/// The newest entry of a key.
struct Kept<'a> {
    key: u64,
    sequence: u64,
    origin: Origin<'a>,
}

/// Where an entry was found.
enum Origin<'a> {
    File {
        file: usize,
        offset: u64,
    },
    Frame(&'a SavedEntry),
    /// The newest entry removes the key.
    Removed,
}

/// The index of a table that the catalog names, read where a data file is damaged.
pub(super) struct OldIndex {
    table: u64,
    file: FileRef,
    pieces: Vec<u32>,
    read: Option<Vec<Option<FlatSlots>>>,
}

impl OldIndex {
    pub fn new(table: u64, entry: &TableEntry) -> Self {
        OldIndex {
            table,
            file: entry.index,
            pieces: entry.pieces.clone(),
            read: None,
        }
    }

    /// The pieces that are sound; `None` for the others.
    fn pieces(&mut self, home: &Home) -> Result<&[Option<FlatSlots>]> {
        let pieces = match self.read.take() {
            Some(pieces) => pieces,
            None => sound_pieces(home, self)?,
        };
        Ok(self.read.insert(pieces))
    }
}

/// A read that the device fails is an error: without the index, entries that were
/// replaced could come back.
fn sound_pieces(home: &Home, index: &OldIndex) -> Result<Vec<Option<FlatSlots>>> {
    let path = format::index_path(&home.folder, index.table, index.file.number);
    if home.file_system.metadata(&path)?.is_none() {
        return Ok(Vec::new());
    }
    let file = home.file_system.open(&path, home.access())?;
    let seed = ChecksumSeed::new(&home.identity(index.file));
    let pieces = index.pieces.iter().enumerate();
    let pieces = pieces.map(|(piece, &on_disk)| sound_piece(home, &*file, &seed, piece, on_disk));
    pieces.collect()
}

fn sound_piece(
    home: &Home,
    file: &dyn File,
    seed: &ChecksumSeed,
    piece: usize,
    on_disk: u32,
) -> Result<Option<FlatSlots>> {
    let shape = &home.shape;
    if on_disk == 0 {
        let slots = FlatSlots::new(shape.slots, shape.slots_per_piece());
        return Ok(Some(slots));
    }
    let (generation, copy) = (on_disk >> 1, on_disk & 1);
    let offset = format::piece_offset(shape, piece, copy);
    // Bytes beyond the end of the file are zeros, whose checksum does not match.
    let mut bytes = vec![0; shape.piece_bytes as usize];
    file.read_at(&mut bytes, offset)?;
    let path = file.path();
    let slots = format::decode_piece(shape, seed, path, offset, generation, piece, &bytes);
    Ok(slots
        .ok()
        .map(|slots| FlatSlots::from_bytes(shape.slots, slots)))
}

impl Repair<'_> {
    /// Reads a data file that the catalog names. A file with damage, or with anything
    /// after its replay offset, is copied: what is live in it, and its tail.
    pub(super) fn repair_place(
        &mut self,
        home: &Home,
        catalog: &mut Catalog,
        (data, at): At<'_>,
        old_index: &mut OldIndex,
        tail: PlaceTail,
    ) -> Result<FileContent> {
        let file = match tail.is_gone {
            true => None,
            false => self.open_place(home, data, at)?,
        };
        let Some(file) = file else {
            let kept = newer_of(&[], &tail.entries);
            return self.copy(home, catalog, (data, at), &[], kept);
        };
        let mut content = salvage_content(&file, data.replay_from)?;
        catalog.last_session = catalog.last_session.max(content.last_session);
        let missing = data.entries.saturating_sub(content.entries);
        let damaged = !content.faults.is_empty() || missing > 0;
        if !damaged && !tail.untidy && tail.entries.is_empty() {
            return Ok(content);
        }
        file.log.resume_at(file.log.file().length()?);
        if damaged {
            let index = old_index.pieces(home)?;
            let keys_lost = reconcile(home, (&file, at), &mut content, index)?;
            let strings = catalog.shape.keys == Keys::String;
            self.report_damage(&file, &content, missing, (keys_lost, strings));
        }
        let kept = newer_of(&content.live, &tail.entries);
        self.copy(home, catalog, (data, at), &[file], kept)
    }

    /// Opens a data file; mends a damaged header, since the catalog says all that
    /// is in it. `None` where the file is gone.
    pub(super) fn open_place(
        &mut self,
        home: &Home,
        data: &DataEntry,
        at: (u64, u32),
    ) -> Result<Option<DataFile>> {
        // The file may have been cut: what is left of it is read all the same.
        let probe = DataEntry {
            replay_from: format::first_offset(&home.shape),
            successor: None,
            ..*data
        };
        match DataFile::open(home, &probe, at) {
            Ok(file) => return Ok(Some(file)),
            Err(error @ Error::Corruption { .. }) => {
                self.report.take(error)?;
                DataFile::mend_header(home, data.file, at)?;
            }
            Err(error) => {
                self.report.take(error)?;
                return Ok(None);
            }
        }
        match DataFile::open(home, &probe, at) {
            Ok(file) => Ok(Some(file)),
            // Shorter than its first block.
            Err(error) => self.report.take(error).map(|()| None),
        }
    }

    fn report_damage(
        &mut self,
        file: &DataFile,
        content: &FileContent,
        missing: u64,
        (keys_lost, strings): (Vec<(u64, u64)>, bool),
    ) {
        let mut places: BTreeMap<u64, String> = content.faults.iter().cloned().collect();
        for (key, offset) in keys_lost {
            let what = what_is_lost(key, strings);
            let known = places.entry(offset).or_default();
            *known = match known.is_empty() {
                true => what,
                false => format!("{known}; {what}"),
            };
        }
        if places.is_empty() {
            let what = format!("{missing} entries are missing");
            places.insert(content.end, what);
        }
        for (offset, what) in places {
            self.note(file.log.path(), offset, what);
        }
    }

    /// Puts together what several files of a place and the commit logs hold, where
    /// no superblock says which of them counts: of each key the newest entry.
    pub(super) fn merge_place(
        &mut self,
        home: &Home,
        catalog: &mut Catalog,
        (data, at): At<'_>,
        lost: &LostCatalog,
    ) -> Result<FileContent> {
        let mut files = Vec::new();
        let mut contents = Vec::new();
        for &file in lost.files.get(&at).into_iter().flatten() {
            let named = DataEntry { file, ..*data };
            let opened = DataFile::open(home, &named, at)?;
            let content = salvage_content(&opened, u64::MAX)?;
            for (offset, what) in &content.faults {
                self.note(opened.log.path(), *offset, what.clone());
            }
            catalog.last_session = catalog.last_session.max(content.last_session);
            catalog.durable_sequence = catalog.durable_sequence.max(content.last_sequence);
            catalog.buckets = catalog.buckets.max(content.buckets);
            opened.log.resume_at(content.end);
            files.push(opened);
            contents.push(content);
        }
        let newest = newest_of_all(home, catalog, at, &contents, lost);
        let only_one = contents.len() == 1 && contents[0].faults.is_empty();
        let known = contents.first().map_or(0, |content| content.last_sequence);
        let mut frames = lost.frames_of(home, at);
        let in_frames = frames.any(|saved| saved.sequence > known);
        match files.first() {
            Some(file) if only_one && !in_frames => {
                data.file = file.file;
                data.replay_from = file.log.end();
                Ok(contents.remove(0))
            }
            _ => self.copy(home, catalog, (data, at), &files, newest),
        }
    }

    /// Copies entries into a new file, in the order of their sequence numbers.
    fn copy(
        &self,
        home: &Home,
        catalog: &mut Catalog,
        (data, at): At<'_>,
        files: &[DataFile],
        mut kept: Vec<Kept<'_>>,
    ) -> Result<FileContent> {
        // Along a file no session is lower than before.
        let session = match catalog.session {
            0 => catalog.last_session,
            session => session,
        };
        let new = self.new_file(home, catalog, data, at)?;
        let mut content = FileContent::default();
        kept.sort_unstable_by_key(|kept| kept.sequence);
        for Kept {
            key,
            sequence,
            origin,
        } in kept
        {
            let (header, payload) = match origin {
                Origin::Removed => continue,
                Origin::File { file, offset } => {
                    let record = files[file].log.read(offset, 4096)?;
                    (record.header, record.payload)
                }
                Origin::Frame(saved) => saved.as_record(),
            };
            let header = RecordHeader { session, ..header };
            let position = append(&new, &header, &payload)?;
            content.live.push((key, position, sequence));
        }
        content.entries = content.live.len() as u64;
        content.live.sort_unstable();
        self.end_of_copy(&new, data)?;
        Ok(content)
    }

    fn new_file(
        &self,
        home: &Home,
        catalog: &mut Catalog,
        data: &mut DataEntry,
        at: (u64, u32),
    ) -> Result<DataFile> {
        data.file = catalog.new_file(self.environment.randomness.next_u64());
        DataFile::create(home, data.file, at)
    }

    /// Replay begins at the end of what was copied.
    fn end_of_copy(&self, new: &DataFile, data: &mut DataEntry) -> Result<()> {
        new.log.pad_to_block();
        new.log.flush()?;
        new.log.sync()?;
        data.replay_from = new.log.end();
        Ok(())
    }
}

/// Says that the newest entry of a key, or of a bucket of string keys, is lost.
pub(super) fn what_is_lost(key: u64, strings: bool) -> String {
    match strings {
        true => format!(
            "bucket {key} is lost: keys in it are gone or have older values, and which they were is not known"
        ),
        false => format!("the entry of key {key} is lost"),
    }
}

/// Appends a record to a new file and hands it over now and then.
fn append(new: &DataFile, header: &RecordHeader, payload: &[u8]) -> Result<u64> {
    const FLUSH_BYTES: usize = 1 << 20;
    new.log
        .reserve(header.total_bytes(new.log.geometry().alignment))?;
    let position = new.log.append(header, &[payload]).start;
    if new.log.buffered_bytes() > FLUSH_BYTES {
        new.log.flush()?;
    }
    Ok(position)
}

/// The newest entry of each key, among the file's entry and those in the tail.
fn newer_of<'a>(live: &[(u64, u64, u64)], tail: &'a [TailEntry]) -> Vec<Kept<'a>> {
    let mut newest: BTreeMap<u64, Kept<'a>> = BTreeMap::new();
    for &(key, offset, sequence) in live {
        let origin = Origin::File { file: 0, offset };
        newest.insert(
            key,
            Kept {
                key,
                sequence,
                origin,
            },
        );
    }
    for TailEntry { found, saved } in tail {
        let (key, sequence) = (found.key, found.sequence);
        if found.kind == kind::DELETE_RANGE {
            newest.retain(|other, _| !(key..=found.last).contains(other));
            continue;
        }
        let origin = match (found.kind, saved, found.source) {
            (kind::PUT, Some(saved), _) => Origin::Frame(saved),
            (kind::PUT, None, Source::Primary { offset, .. }) => Origin::File { file: 0, offset },
            _ => Origin::Removed,
        };
        newest.insert(
            key,
            Kept {
                key,
                sequence,
                origin,
            },
        );
    }
    newest.into_values().collect()
}

/// Takes entries out that the index does not point at: their newer versions, or
/// removals, are lost, and the older ones must not come back. Answers keys and
/// offsets of the entries that the index points at and that cannot be read. Where the
/// index is damaged too, the log alone counts.
fn reconcile(
    home: &Home,
    (file, (table, place)): (&DataFile, (u64, u32)),
    content: &mut FileContent,
    index: &[Option<FlatSlots>],
) -> Result<Vec<(u64, u64)>> {
    let shape = &home.shape;
    let first_key = table.saturating_mul(shape.keys_per_table);
    let per_piece = shape.slots_per_piece();
    let readable: HashMap<u64, u64> = content
        .live
        .iter()
        .map(|&(key, offset, _)| (key, offset))
        .collect();
    content.live.retain(|&(key, offset, _)| {
        let slot = (key - first_key) as usize;
        match index.get(slot / per_piece) {
            Some(Some(slots)) => slots.get(slot % per_piece) == Slot::Position(offset),
            _ => true,
        }
    });
    let mut lost = Vec::new();
    for (piece, slots) in index.iter().enumerate() {
        let Some(slots) = slots else { continue };
        for slot in 0..slots.len() {
            let key = first_key.saturating_add((piece * per_piece + slot) as u64);
            if let Slot::Position(offset) = slots.get(slot) {
                let here = key % u64::from(shape.data_files) == u64::from(place);
                if !here || readable.get(&key) == Some(&offset) {
                    continue;
                }
                // Damage may hide a sound record from a scan, not from the index.
                match file.read_entry(offset, key, 4096) {
                    Ok(entry) => content.live.push((key, offset, entry.sequence.0)),
                    Err(Error::Corruption { .. }) => lost.push((key, offset)),
                    Err(other) => return Err(other),
                }
            }
        }
    }
    Ok(lost)
}

/// The newest entry of each key of a place, among all its files and the commit logs.
fn newest_of_all<'a>(
    home: &Home,
    catalog: &mut Catalog,
    at: (u64, u32),
    contents: &[FileContent],
    lost: &'a LostCatalog,
) -> Vec<Kept<'a>> {
    let mut newest: BTreeMap<u64, (u64, Origin<'a>)> = BTreeMap::new();
    let mut ranges = Vec::new();
    let mut meet = |key: u64, sequence: u64, origin: Origin<'a>| {
        let known = newest.get(&key).map(|(sequence, _)| *sequence);
        if known.is_none_or(|known| known < sequence) {
            newest.insert(key, (sequence, origin));
        }
    };
    for (file, content) in contents.iter().enumerate() {
        for &(key, offset, sequence) in &content.live {
            meet(key, sequence, Origin::File { file, offset });
        }
        for &(key, sequence) in &content.removed {
            meet(key, sequence, Origin::Removed);
        }
        ranges.extend_from_slice(&content.ranges);
    }
    for saved in lost.frames_of(home, at) {
        let key = saved.key;
        catalog.durable_sequence = catalog.durable_sequence.max(saved.sequence);
        if saved.flags & FLAG_SPLIT != 0 {
            catalog.buckets = catalog.buckets.max(key + 1);
        }
        match saved.kind {
            kind::PUT => meet(key, saved.sequence, Origin::Frame(saved)),
            kind::DELETE => meet(key, saved.sequence, Origin::Removed),
            _ => {
                ranges.extend(range_keys(&saved.value).map(|(_, last)| (saved.sequence, key, last)))
            }
        }
    }
    for (sequence, first, last) in ranges {
        newest.retain(|key, (known, _)| *known > sequence || !(first..=last).contains(key));
    }
    newest
        .into_iter()
        .map(|(key, (sequence, origin))| Kept {
            key,
            sequence,
            origin,
        })
        .collect()
}
