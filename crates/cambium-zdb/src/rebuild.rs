//! Rebuilding a lost index from the data files: the log is the truth.
//!
//! Each data file is read once, from its first record to where replay begins.
//! For each key the entry with the highest sequence number counts, be it the removal of a
//! range that holds the key: each data file has the removals of its own keys. A `CUT`
//! record takes back what an earlier recovery cut off. Keys of different files
//! are different keys, so the files are read side by side where the
//! environment runs tasks.

use std::collections::BTreeMap;
use std::path::Path;

use cambium_api::{Progress, ProgressSink};
use cambium_base::checksum::ChecksumSeed;
use cambium_base::coding::u64_at;
use cambium_base::{Error, Result};
use cambium_index::{FlatSlots, Slot};
use cambium_io::Crew;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::scan::{LogScanner, Scanned};

use crate::catalog::TableEntry;
use crate::core::{CellState, Core, lock, write};
use crate::data_file::{DataFile, Home};
use crate::format::{self, FileRef, entry_bounds, kind};
use crate::seeded_bug::SeededBug;
use crate::table::create_index;

/// What a data file says of its keys.
#[derive(Debug, Default)]
pub(crate) struct FileContent {
    /// Key, position and sequence number of each live entry.
    pub live: Vec<(u64, u64, u64)>,
    /// Key and sequence number of each key whose newest entry removes it, but for ranges.
    pub removed: Vec<(u64, u64)>,
    /// Removals of ranges: their sequence numbers, first and last keys.
    pub ranges: Vec<(u64, u64, u64)>,
    /// Entries met, stale ones included.
    pub entries: u64,
    /// Where the last sound record ends.
    pub end: u64,
    /// Highest sequence number and session met.
    pub last_sequence: u64,
    pub last_session: u32,
    /// Highest number of buckets that a split speaks of.
    pub buckets: u64,
    /// Damaged places.
    pub faults: Vec<(u64, String)>,
}

/// An entry of a data file.
struct Met {
    offset: u64,
    sequence: u64,
    key: u64,
    /// The last key that it removes, if it removes a range; else its key.
    last: u64,
    kind: u8,
}

/// Reads a data file from its first record up to `until`.
pub(crate) fn read_content(file: &DataFile, until: u64) -> Result<FileContent> {
    content_of(file, scanner_of(file, until)?)
}

/// As [`read_content`], but also looks for records after damage, at every place where one
/// may begin.
pub(crate) fn salvage_content(file: &DataFile, until: u64) -> Result<FileContent> {
    content_of(file, scanner_of(file, until)?.thorough())
}

fn scanner_of(file: &DataFile, until: u64) -> Result<LogScanner<'_>> {
    file.log.scan(file.log.geometry().first_offset, until)
}

fn content_of(file: &DataFile, mut scanner: LogScanner<'_>) -> Result<FileContent> {
    let geometry = *file.log.geometry();
    let mut content = FileContent {
        end: geometry.first_offset,
        ..FileContent::default()
    };
    let mut met: Vec<Met> = Vec::new();
    while let Some(scanned) = scanner.next()? {
        let record = match scanned {
            Scanned::Fault(fault) => {
                content
                    .faults
                    .push((fault.offset, fault.reason.to_string()));
                continue;
            }
            Scanned::Record(record) => record,
        };
        let header = record.header;
        content.end = record.offset + header.total_bytes(geometry.alignment);
        content.last_session = content.last_session.max(header.session);
        match header.kind {
            kind if kind::is_entry(kind) => {
                let bounds = entry_bounds(&header, record.prefix());
                let Some((key, last)) = bounds else {
                    content
                        .faults
                        .push((record.offset, "an entry without a key".into()));
                    continue;
                };
                met.push(Met {
                    offset: record.offset,
                    sequence: header.sequence.0,
                    key,
                    last,
                    kind,
                });
                if header.flags & format::FLAG_SPLIT != 0 {
                    content.buckets = content.buckets.max(key + 1);
                }
            }
            kind::CUT if record.prefix().len() >= 8 => {
                let cut = u64_at(record.prefix(), 0);
                met.retain(|entry| entry.offset < cut);
                content.faults.retain(|&(offset, _)| offset < cut);
            }
            _ => {}
        }
    }
    content.entries = met.len() as u64;
    met.sort_by_key(|entry| entry.sequence);
    content.last_sequence = met.last().map_or(0, |newest| newest.sequence);
    let mut newest: BTreeMap<u64, Met> = BTreeMap::new();
    for entry in met {
        if entry.kind != kind::DELETE_RANGE {
            newest.insert(entry.key, entry);
            continue;
        }
        content.ranges.push((entry.sequence, entry.key, entry.last));
        let keys = newest.range(entry.key..=entry.last).map(|(&key, _)| key);
        for key in keys.collect::<Vec<_>>() {
            newest.remove(&key);
        }
    }
    for (key, entry) in newest {
        match entry.kind {
            kind::PUT => content.live.push((key, entry.offset, entry.sequence)),
            _ => content.removed.push((key, entry.sequence)),
        }
    }
    Ok(content)
}

/// Threads that read data files beside the one that fills the index.
const REBUILDING_THREADS: usize = 4;

/// Writes a new index file that holds what the data files of a table hold, and
/// syncs it; answers which image of each piece counts. Nothing names the file
/// yet, so a crash before the superblock does leaves all as it was.
pub(crate) fn write_index(
    home: &Home,
    number: u64,
    index: FileRef,
    contents: &[FileContent],
) -> Result<Vec<u32>> {
    const FIRST_IMAGE: u32 = 1 << 1;
    let shape = &home.shape;
    let first_key = number.saturating_mul(shape.keys_per_table);
    let per_piece = shape.slots_per_piece();
    let mut pieces: Vec<Option<FlatSlots>> = Vec::new();
    pieces.resize_with(shape.pieces(), || None);
    for &(key, position, _) in contents.iter().flat_map(|content| &content.live) {
        let slot = (key - first_key) as usize;
        pieces[slot / per_piece]
            .get_or_insert_with(|| FlatSlots::new(shape.slots, per_piece))
            .set(slot % per_piece, Slot::Position(position));
    }
    let file = create_index(home, number, index)?;
    let seed = ChecksumSeed::new(&home.identity(index));
    let mut on_disk = vec![0; pieces.len()];
    for (piece, slots) in pieces.into_iter().enumerate() {
        let Some(slots) = slots else { continue };
        let offset = format::piece_offset(shape, piece, FIRST_IMAGE & 1);
        // For both images, as for any piece that has one.
        file.allocate(offset, 2 * u64::from(shape.piece_bytes))?;
        let generation = FIRST_IMAGE >> 1;
        let bytes = format::encode_piece(shape, &seed, offset, generation, piece, slots.as_bytes());
        file.write_at(&bytes, offset)?;
        on_disk[piece] = FIRST_IMAGE;
    }
    file.sync_data()?;
    Ok(on_disk)
}

impl Core {
    /// Builds indexes that are missing from the data files. They are whole and
    /// durable before the superblock names them.
    pub fn rebuild_tables(&self, numbers: &[u64], progress: &dyn ProgressSink) -> Result<()> {
        let mut maintenance = lock(&self.maintenance);
        for (done, &number) in numbers.iter().enumerate() {
            progress.report(Progress {
                phase: "rebuild the index",
                done: done as u64,
                total: Some(numbers.len() as u64),
            });
            let Some(mut entry) = maintenance.catalog.tables.get(&number).cloned() else {
                continue;
            };
            let salt = self.environment.randomness.next_u64();
            entry.index = maintenance.catalog.new_file(salt);
            if self.has_bug(SeededBug::EmptyIndexNamed) {
                create_index(&self.home, number, entry.index)?.sync_data()?;
                self.environment.file_system.sync_directory(&self.path)?;
                entry.pieces.fill(0);
                maintenance.catalog.tables.insert(number, entry.clone());
                maintenance.write_catalog_twice()?;
            }
            let contents = self.contents_of(number, &entry)?;
            entry.pieces = write_index(&self.home, number, entry.index, &contents)?;
            for (data, content) in entry.files.iter_mut().zip(&contents) {
                (data.entries, data.live) = (content.entries, content.live.len() as u64);
            }
            if let Some(cell) = self.tables.load().get(&number) {
                let mut state = write(&cell.state);
                if let CellState::Open(_) = *state {
                    self.open_count.fetch_sub(1, Ordering::Relaxed);
                }
                *state = CellState::Closed(entry.clone());
            }
            maintenance.catalog.tables.insert(number, entry);
            self.counters.rebuilt_tables.fetch_add(1, Ordering::Relaxed);
        }
        self.environment.file_system.sync_directory(&self.path)?;
        maintenance.write_catalog_twice()
    }

    /// The entries of a table's data files before the replay offsets, by place.
    fn contents_of(&self, number: u64, entry: &TableEntry) -> Result<Vec<FileContent>> {
        let crew = Crew::new(
            &*self.environment.executor,
            "rebuild",
            REBUILDING_THREADS,
            |(place, file, until): (usize, DataFile, u64)| (place, read_content(&file, until)),
        );
        for (place, data) in entry.files.iter().enumerate() {
            let file = DataFile::open(&self.home, data, (number, place as u32))?;
            crew.add((place, file, data.replay_from));
        }
        let mut contents: Vec<FileContent> = Vec::new();
        contents.resize_with(entry.files.len(), FileContent::default);
        while let Some((place, content)) = crew.next()? {
            let file = entry.files[place].file.number;
            let path = format::data_path(&self.path, number, place as u32, file);
            contents[place] = content?;
            let belongs = |key| self.table_number(key) == number;
            contents[place].require_sound(&path, belongs)?;
        }
        Ok(contents)
    }
}

impl FileContent {
    /// Refuses content from which no index can be built without loss.
    fn require_sound(&self, path: &Path, belongs: impl Fn(u64) -> bool) -> Result<()> {
        if let Some((offset, what)) = self.faults.first() {
            let what = format!(
                "{what}; the index cannot be rebuilt without loss: `cambium repair` keeps what can be read"
            );
            return Err(Error::corruption(path, *offset, what));
        }
        if let Some((key, offset, _)) = self.live.iter().find(|(key, ..)| !belongs(*key)) {
            let what = format!("an entry of key {key}, which belongs to another table");
            return Err(Error::corruption(path, *offset, what));
        }
        Ok(())
    }
}
