//! Reading what lies after the replay offsets: the tails of data files, the
//! commit logs, and the successors of compactions.
//!
//! A data file's tail counts as its own up to the first hole. Entries after a hole
//! are saved aside, like the entries of frames, and appended anew: so the index never
//! points after a hole.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cambium_api::{Progress, ProgressSink};
use cambium_base::coding::u64_at;
use cambium_base::{Error, Result};
use cambium_storage::log::LogFile;
use cambium_storage::record::{MOST_RECORD_HEADER_BYTES, RecordHeader};
use cambium_storage::scan::{LogScanner, ScanFault, Scanned, SessionRule};

use crate::catalog::{Catalog, DataEntry};
use crate::core::{Core, lock};
use crate::data_file::DataFile;
use crate::format::{
    ENTRY_PREFIX_BYTES, FramedKey, decode_frame, entry_bounds, entry_key, kind, range_keys,
};
use crate::seeded_bug::SeededBug;
use crate::table::Table;

/// An entry found after the replay offsets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub sequence: u64,
    pub key: u64,
    /// The last key of a removed range; else the key.
    pub last: u64,
    pub batch_index: u32,
    pub batch_remaining: u32,
    pub auxiliary: u32,
    pub attempt: u16,
    pub kind: u8,
    pub flags: u8,
    pub source: Source,
}

/// Where an entry was found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// In its data file, with where the record ends.
    Primary { file: usize, offset: u64, end: u64 },
    /// In a frame, in a successor, or after a hole of a data file: the number of the
    /// saved value, and in the last case the file and where the record ends.
    Saved {
        value: usize,
        behind_hole: Option<(usize, u64)>,
    },
}

/// A torn tail or damage, with the file it is in.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub file: std::path::PathBuf,
    pub fault: ScanFault,
}

/// Everything found after the replay offsets.
#[derive(Default)]
pub(crate) struct Tails {
    pub found: Vec<Found>,
    pub values: Vec<(u64, Vec<u8>)>,
    /// Data files of `tables`.
    pub files: Vec<Arc<DataFile>>,
    /// Tables with anything after their replay offsets. The others may be closed again:
    /// recovery holds open what was written since the last checkpoint.
    pub tables: HashMap<u64, Arc<Table>>,
    /// Files with anything that may have to be cut off.
    pub untidy: Vec<bool>,
    pub faults: Vec<Fault>,
    /// Entries that commit logs had, by their sequence numbers.
    pub framed: HashMap<u64, FramedKey>,
    /// Records of every kind that were read.
    records: u64,
    pub synced_through: u64,
    /// Entries up to here are in the index.
    pub replay_sequence: u64,
    /// The last entry that the catalog promises.
    pub durable_sequence: u64,
    /// Records of this session count.
    session: u32,
    thorough: bool,
}

impl Core {
    /// Reads what lies after the replay offsets. Writes nothing.
    /// With `thorough` records are looked for at every place after damage.
    pub fn read_tails(&self, progress: &dyn ProgressSink, thorough: bool) -> Result<Tails> {
        let catalog = lock(&self.maintenance).catalog.clone();
        let mut tails = Tails::behind(&catalog, thorough);
        let total = Some(catalog.tables.len() as u64);
        for (done, (&number, entry)) in catalog.tables.iter().enumerate() {
            progress.report(Progress {
                phase: "recover",
                done: done as u64,
                total,
            });
            let Some(table) = self.table(number)? else {
                continue;
            };
            let before = (tails.records, tails.files.len());
            for (file, data) in table.current_files().into_iter().zip(&entry.files) {
                let place = tails.files.len();
                tails.files.push(file.clone());
                let untidy = tails.read_log(&file.log, data.replay_from, Some(place))?;
                tails.untidy.push(untidy);
                if let Some((successor, from)) = data.successor {
                    self.read_successor(&mut tails, &file, successor, from)?;
                }
            }
            if tails.records == before.0 && !tails.untidy[before.1..].contains(&true) {
                tails.files.truncate(before.1);
                tails.untidy.truncate(before.1);
            } else {
                tails.tables.insert(number, table);
            }
        }
        if !self.has_bug(SeededBug::CommitLogIgnored) {
            let logs = &lock(&self.writer).commit_logs;
            for log in logs {
                let from = log.log.geometry().first_offset;
                tails.read_log(&log.log, from, None)?;
            }
        }
        Ok(tails)
    }

    fn read_successor(
        &self,
        tails: &mut Tails,
        file: &DataFile,
        successor: crate::format::FileRef,
        from: u64,
    ) -> Result<()> {
        let path = crate::format::data_path(&self.path, file.table, file.place, successor.number);
        if self.environment.file_system.metadata(&path)?.is_none() {
            return Ok(());
        }
        let entry = DataEntry::of_new(successor, from);
        let opened = DataFile::open(&self.home, &entry, (file.table, file.place))?;
        tails.read_log(&opened.log, from, None)?;
        Ok(())
    }
}

impl Tails {
    /// Nothing read yet of what lies after a catalog's replay offsets. With
    /// `thorough` records are looked for at every place after damage.
    pub fn behind(catalog: &Catalog, thorough: bool) -> Self {
        Tails {
            replay_sequence: catalog.replay_sequence,
            durable_sequence: catalog.durable_sequence,
            session: catalog.session,
            thorough,
            ..Tails::default()
        }
    }

    /// Scans one log; `primary` is the number of a data file, `None` a log
    /// whose entries must be appended to their files. Answers whether anything
    /// but records of this session lies in it.
    pub fn read_log(&mut self, log: &LogFile, from: u64, primary: Option<usize>) -> Result<bool> {
        let mut scanner = LogScanner::new(
            &**log.file(),
            *log.seed(),
            *log.geometry(),
            SessionRule::Only(self.session),
            from,
            u64::MAX,
        )?;
        if self.thorough {
            scanner = scanner.thorough();
        }
        // Where the run of sound records ends: what lies after a hole is taken
        // over like a frame, so that the file holds nothing but sound records.
        let mut hole: Option<u64> = None;
        while let Some(scanned) = scanner.next()? {
            let record = match scanned {
                Scanned::Record(record) => record,
                Scanned::Fault(fault) => {
                    hole = hole.or(Some(fault.offset));
                    let file = log.path().to_path_buf();
                    self.faults.push(Fault { file, fault });
                    continue;
                }
            };
            let header = record.header;
            self.records += 1;
            hole = hole.or(scanner.first_remains());
            self.synced_through = self.synced_through.max(header.synced_through.0);
            match header.kind {
                kind if kind::is_entry(kind) => {
                    let Some(bounds) = entry_bounds(&header, record.prefix()) else {
                        return Err(damaged_entry(log, record.offset));
                    };
                    let end = record.offset + header.total_bytes(log.geometry().alignment);
                    let source = match (primary, hole) {
                        (Some(file), None) => Source::Primary {
                            file,
                            offset: record.offset,
                            end,
                        },
                        _ => {
                            let payload = scanner.payload(&record)?;
                            let time = u64_at(&payload, 0);
                            let value = payload[ENTRY_PREFIX_BYTES..].to_vec();
                            self.values.push((time, value));
                            Source::Saved {
                                value: self.values.len() - 1,
                                behind_hole: primary.map(|file| (file, end)),
                            }
                        }
                    };
                    self.found.push(found_in(&header, bounds, source));
                }
                // Only a repair goes on without an entry.
                kind::KEYS if self.thorough => {
                    let payload = scanner.payload(&record)?;
                    let keys = FramedKey::decode_all(&payload);
                    self.framed.extend(keys.map(|key| (key.sequence, key)));
                }
                kind::FRAME => {
                    let payload = scanner.payload(&record)?;
                    self.add_frame(&header, &payload)
                        .ok_or_else(|| damaged_entry(log, record.offset))?;
                }
                _ => {}
            }
        }
        Ok(hole.or(scanner.first_remains()).is_some())
    }

    /// Saves the accepted entries that lie in a data file behind the place of one that the
    /// file has lost without a trace (zeros look like padding). That one is appended anew,
    /// so these must be too: sequence numbers ascend along a file.
    pub fn save_out_of_order(
        &mut self,
        accepted: &mut [Found],
        place_of: impl Fn(u64) -> (u64, u64),
    ) -> Result<()> {
        let mut appended: HashSet<(u64, u64)> = HashSet::new();
        for found in accepted {
            let place = place_of(found.key);
            match found.source {
                Source::Primary { file, offset, end } if appended.contains(&place) => {
                    self.values.push(entry_at(&self.files[file].log, offset)?);
                    found.source = Source::Saved {
                        value: self.values.len() - 1,
                        behind_hole: Some((file, end)),
                    };
                }
                Source::Primary { .. } => {}
                Source::Saved { .. } => _ = appended.insert(place),
            }
        }
        Ok(())
    }

    fn add_frame(&mut self, header: &RecordHeader, payload: &[u8]) -> Option<()> {
        let (time, entries) = decode_frame(payload)?;
        for (index, entry) in entries.into_iter().enumerate() {
            let last = match entry.kind {
                kind::DELETE_RANGE => range_keys(entry.value)?.1,
                _ => entry.key,
            };
            self.values.push((time, entry.value.to_vec()));
            self.found.push(Found {
                sequence: header.sequence.0 + index as u64,
                key: entry.key,
                last,
                batch_index: entry.batch_index,
                batch_remaining: entry.batch_remaining,
                auxiliary: entry.auxiliary,
                attempt: header.attempt,
                kind: entry.kind,
                flags: entry.flags,
                source: Source::Saved {
                    value: self.values.len() - 1,
                    behind_hole: None,
                },
            });
        }
        Some(())
    }
}

/// Time and value of the entry at an offset behind the replay offset.
fn entry_at(log: &LogFile, offset: u64) -> Result<(u64, Vec<u8>)> {
    let mut bytes = [0; MOST_RECORD_HEADER_BYTES];
    let count = log.file().read_at(&mut bytes, offset)?;
    let header = RecordHeader::decode(&bytes[..count], log.seed(), offset)
        .map_err(|_| damaged_entry(log, offset))?;
    let mut payload = vec![0; header.payload_bytes as usize];
    let start = offset + u64::from(header.header_bytes);
    log.file().read_exact_at(&mut payload, start)?;
    if header.check_payload(&payload).is_err() || entry_key(&payload).is_none() {
        return Err(damaged_entry(log, offset));
    }
    let value = payload.split_off(ENTRY_PREFIX_BYTES);
    Ok((u64_at(&payload, 0), value))
}

fn found_in(header: &RecordHeader, (key, last): (u64, u64), source: Source) -> Found {
    Found {
        sequence: header.sequence.0,
        key,
        last,
        batch_index: header.batch_index,
        batch_remaining: header.batch_remaining,
        auxiliary: header.auxiliary,
        attempt: header.attempt,
        kind: header.kind,
        flags: header.flags,
        source,
    }
}

fn damaged_entry(log: &LogFile, offset: u64) -> Error {
    Error::corruption(
        log.path(),
        offset,
        "a record whose checksums match is no entry and no frame of this format",
    )
}
