//! Rebuilding a lost index from the data files: the log is the truth.
//!
//! Each data file is read once, from its first record to where replay begins.
//! For each key the entry with the highest sequence number counts. A `CUT`
//! record takes back what an earlier recovery cut off. Keys of different files
//! are different keys, so the files are read side by side where the
//! environment runs tasks.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use cambium_api::{Progress, ProgressSink};
use cambium_base::coding::u64_at;
use cambium_base::{Error, Result};
use cambium_index::Slot;
use cambium_io::Crew;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::scan::{LogScanner, Scanned, SessionRule};

use crate::core::{CellState, Core, lock};
use crate::data_file::DataFile;
use crate::format::{self, entry_key, kind};
use crate::table::create_index;

/// What a data file says of its keys.
#[derive(Debug, Default)]
pub(crate) struct FileContent {
    /// Key, position and sequence number of each live entry.
    pub live: Vec<(u64, u64, u64)>,
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

/// Reads a data file from its first record up to `until`.
pub(crate) fn read_content(file: &DataFile, until: u64) -> Result<FileContent> {
    let geometry = *file.log.geometry();
    let mut scanner = LogScanner::new(
        &**file.log.file(),
        *file.log.seed(),
        geometry,
        SessionRule::NeverLower,
        geometry.first_offset,
        until,
    )?;
    let mut content = FileContent {
        end: geometry.first_offset,
        ..FileContent::default()
    };
    // Offset, sequence, key and kind, in the order of the file.
    let mut met: Vec<(u64, u64, u64, u8)> = Vec::new();
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
            kind::PUT | kind::DELETE => {
                let Some(key) = entry_key(record.prefix()) else {
                    content
                        .faults
                        .push((record.offset, "an entry without a key".into()));
                    continue;
                };
                met.push((record.offset, header.sequence.0, key, header.kind));
                if header.flags & format::FLAG_SPLIT != 0 {
                    content.buckets = content.buckets.max(key + 1);
                }
            }
            kind::CUT if record.prefix().len() >= 8 => {
                let cut = u64_at(record.prefix(), 0);
                met.retain(|&(offset, ..)| offset < cut);
                content.faults.retain(|&(offset, _)| offset < cut);
            }
            _ => {}
        }
    }
    content.entries = met.len() as u64;
    let mut newest: HashMap<u64, (u64, u64, u8)> = HashMap::new();
    for (offset, sequence, key, kind) in met {
        content.last_sequence = content.last_sequence.max(sequence);
        let known = newest.entry(key).or_insert((sequence, offset, kind));
        if sequence >= known.0 {
            *known = (sequence, offset, kind);
        }
    }
    content.live = newest
        .into_iter()
        .filter(|(_, (_, _, entry_kind))| *entry_kind == kind::PUT)
        .map(|(key, (sequence, offset, _))| (key, offset, sequence))
        .collect();
    content.live.sort_unstable();
    Ok(content)
}

/// Threads that read data files beside the one that fills the index.
const REBUILDING_THREADS: usize = 4;

impl Core {
    /// Makes an empty index file for a table whose own is missing.
    pub fn make_empty_index(&self, number: u64) -> Result<()> {
        let mut maintenance = lock(&self.maintenance);
        let Some(entry) = maintenance.catalog.tables.get_mut(&number) else {
            return Ok(());
        };
        create_index(&self.home, number, entry.index)?.sync_data()?;
        self.environment.file_system.sync_directory(&self.path)?;
        entry.pieces.fill(0);
        let entry = entry.clone();
        if let Some(cell) = self.tables.load().get(&number) {
            let mut state = cell.state.write().unwrap_or_else(PoisonError::into_inner);
            *state = CellState::Closed(entry);
        }
        Ok(())
    }

    /// Sets the slots of tables with empty indexes from their data files, up
    /// to the replay offsets. The pieces are dirty afterwards.
    pub fn rebuild_tables(&self, numbers: &[u64], progress: &dyn ProgressSink) -> Result<()> {
        let mut work = Vec::new();
        for &number in numbers {
            if let Some(table) = self.table(number)? {
                work.extend(table.current_files());
                self.counters.rebuilt_tables.fetch_add(1, Ordering::Relaxed);
            }
        }
        let total = work.len() as u64;
        let crew = Crew::new(
            &*self.environment.executor,
            "rebuild",
            REBUILDING_THREADS,
            |file: Arc<DataFile>| {
                let content = read_content(&file, file.log.end());
                (file, content)
            },
        );
        work.into_iter().for_each(|file| crew.add(file));
        let mut done = 0;
        while let Some((file, content)) = crew.next()? {
            self.take_content(&file, content?)?;
            done += 1;
            progress.report(Progress {
                phase: "rebuild the index",
                done,
                total: Some(total),
            });
        }
        Ok(())
    }

    fn take_content(&self, file: &DataFile, content: FileContent) -> Result<()> {
        if let Some((offset, what)) = content.faults.first() {
            return Err(Error::corruption(
                file.log.path(),
                *offset,
                format!(
                    "{what}; the index cannot be rebuilt without loss: `cambium repair` keeps what can be read"
                ),
            ));
        }
        let Some(table) = self.table(file.table)? else {
            return Ok(());
        };
        file.live.store(0, Ordering::Relaxed);
        file.entries.store(content.entries, Ordering::Relaxed);
        for (key, position, _) in content.live {
            if self.table_number(key) != file.table {
                return Err(Error::corruption(
                    file.log.path(),
                    position,
                    format!("an entry of key {key}, which belongs to another table"),
                ));
            }
            table.load_piece(table.piece_of(key).0)?;
            table.set_slot(key, Slot::Position(position), || {});
        }
        Ok(())
    }
}
