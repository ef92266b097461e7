//! A catalog made anew from the files of a store whose superblock is lost.

use std::collections::BTreeMap;

use cambium_base::checksum::ChecksumSeed;
use cambium_base::{Result, SequenceNumber, Value};
use cambium_io::OpenOptions;
use cambium_storage::file_header::FileHeader;
use cambium_storage::record::RecordHeader;
use cambium_storage::scan::{LogScanner, Scanned, SessionRule};

use super::Repair;
use crate::catalog::{Catalog, DataEntry, TableEntry, Traffic};
use crate::changes::past::Past;
use crate::data_file::Home;
use crate::format::{self, DATA_MAGIC, FORMAT_VERSION, FileRef, decode_frame, kind};

/// Facts that the repair reads from the files beside the catalog.
#[derive(Default)]
pub(super) struct LostCatalog {
    /// All data files by table and place: two where a compaction was at work, or
    /// where a repair was killed.
    pub files: BTreeMap<(u64, u32), Vec<FileRef>>,
    /// Entries of the commit logs, of the last session in them.
    pub frames: Vec<SavedEntry>,
}

impl LostCatalog {
    /// The entries of the commit logs that belong to a data file.
    pub fn frames_of(
        &self,
        home: &Home,
        (table, place): (u64, u32),
    ) -> impl Iterator<Item = &SavedEntry> {
        let (keys, files) = (home.shape.keys_per_table, u64::from(home.shape.data_files));
        let is_here = move |key| key / keys == table && key % files == u64::from(place);
        self.frames.iter().filter(move |saved| is_here(saved.key))
    }
}

/// An entry of a commit log.
pub(super) struct SavedEntry {
    pub sequence: u64,
    pub key: u64,
    pub kind: u8,
    pub flags: u8,
    pub time: u64,
    pub value: Vec<u8>,
}

impl SavedEntry {
    /// The header and payload of its record in a data file.
    pub fn as_record(&self) -> (RecordHeader, Value) {
        let header = RecordHeader {
            kind: self.kind,
            flags: self.flags,
            sequence: SequenceNumber(self.sequence),
            ..RecordHeader::default()
        };
        let prefix = format::entry_prefix(self.time, self.key);
        (header, Value::from([&prefix[..], &self.value].concat()))
    }
}

impl Repair<'_> {
    /// Makes a catalog from the files that are there.
    pub(super) fn catalog_from_files(&mut self) -> Result<(Catalog, LostCatalog)> {
        let file_system = &*self.environment.file_system;
        let (shape, hash_seed, commit_logs) =
            format::read_shape(file_system, self.path, self.marker.store)?;
        let mut lost = LostCatalog::default();
        for entry in file_system.list(self.path)? {
            let name = entry.name.to_string_lossy();
            if !name.starts_with("data-") || !format::is_data_or_index(&name) {
                continue;
            }
            let file = file_system.open(&self.path.join(&entry.name), OpenOptions::READ)?;
            match FileHeader::read(&*file, DATA_MAGIC, FORMAT_VERSION) {
                Ok(header) => {
                    let place = (header.parameters[0], header.parameters[1] as u32);
                    lost.files.entry(place).or_default().push(FileRef {
                        number: header.identity.number,
                        salt: header.identity.salt,
                    });
                }
                Err(error) => self.report.take(error)?,
            }
        }
        let mut catalog = Catalog {
            shape,
            clean: false,
            session: 0,
            last_session: 0,
            next_file: 1,
            replay_sequence: 0,
            durable_sequence: 0,
            hash_seed,
            buckets: shape.buckets,
            string_keys: 0,
            traffic: Traffic::default(),
            past: Past::default(),
            commit_logs,
            tables: BTreeMap::new(),
        };
        self.read_frames(&mut catalog, &mut lost)?;
        let frames = lost
            .frames
            .iter()
            .map(|frame| frame.key / shape.keys_per_table);
        let tables = lost.files.keys().map(|&(table, _)| table).chain(frames);
        for table in tables {
            let first = format::first_offset(&shape);
            let nothing = DataEntry::of_new(FileRef::default(), first);
            catalog.tables.entry(table).or_insert_with(|| TableEntry {
                index: FileRef::default(),
                pieces: vec![0; shape.pieces()],
                files: vec![nothing; shape.data_files as usize],
            });
        }
        Ok((catalog, lost))
    }

    /// Reads the commit logs. Frames of older sessions are remains: what counted
    /// of them is in the data files.
    fn read_frames(&mut self, catalog: &mut Catalog, lost: &mut LostCatalog) -> Result<()> {
        for (log, &file_ref) in catalog.commit_logs.clone().iter().enumerate() {
            let path = format::commit_path(self.path, log);
            let file = self
                .environment
                .file_system
                .open(&path, OpenOptions::READ)?;
            let geometry = format::commit_geometry(&catalog.shape);
            let mut scanner = LogScanner::new(
                &*file,
                ChecksumSeed::new(&self.home(catalog).identity(file_ref)),
                geometry,
                SessionRule::NeverLower,
                geometry.first_offset,
                u64::MAX,
            )?;
            while let Some(scanned) = scanner.next()? {
                let Scanned::Record(record) = scanned else {
                    continue;
                };
                let header = record.header;
                if header.kind != kind::FRAME || header.session < catalog.last_session {
                    continue;
                }
                if header.session > catalog.last_session {
                    catalog.last_session = header.session;
                    lost.frames.clear();
                }
                let payload = scanner.payload(&record)?;
                let Some((time, entries)) = decode_frame(&payload) else {
                    continue;
                };
                let first = header.sequence.0;
                let entries = entries.into_iter().enumerate();
                lost.frames.extend(entries.map(|(index, entry)| SavedEntry {
                    sequence: first + index as u64,
                    key: entry.key,
                    kind: entry.kind,
                    flags: entry.flags,
                    time,
                    value: entry.value.to_vec(),
                }));
            }
        }
        Ok(())
    }
}
