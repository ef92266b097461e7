//! Repair: a damaged store is brought back to what can be read.
//!
//! The log is the truth. Of every data file each sound record is read; what is
//! lost is named, place by place. A file with damage is rewritten with its
//! sound live entries, the index is made anew from the data files, and frames
//! of the commit logs that no data file has are taken over. The store is then
//! closed cleanly. Where the superblock itself is lost, the catalog is made
//! anew from the headers of the files and the copy of the store's shape that
//! the commit logs' headers carry.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{CheckReport, Finding, FindingKind, OptionValues, Progress, ProgressSink};
use cambium_base::{Error, Result};
use cambium_io::{Environment, OpenOptions};
use cambium_storage::file_header::FileHeader;
use cambium_storage::marker::{self, FilesOfEngine, Marker};
use cambium_storage::record::RecordHeader;
use cambium_storage::superblock::{self, Superblock, SuperblockContent};

use crate::catalog::{Catalog, DataEntry, TableEntry, Traffic};
use crate::core::Core;
use crate::data_file::{DataFile, Home};
use crate::format::{self, DATA_MAGIC, FORMAT_VERSION, FileRef};
use crate::options::ENGINE;
use crate::rebuild::{FileContent, read_content};

/// Numbers go on so far above the highest found that none is given twice.
const SEQUENCE_EPOCH: u64 = 1 << 32;

/// Repairs a store; each loss is a finding.
pub(crate) fn repair(
    environment: &Environment,
    path: &Path,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let file_system = &*environment.file_system;
    let magics = [DATA_MAGIC, format::INDEX_MAGIC, format::COMMIT_MAGIC].map(|magic| ("", magic));
    let files = FilesOfEngine {
        magics: &magics,
        has_name: crate::open::is_of_zdb_alone,
    };
    let known = || marker::known_marker(file_system, path, ENGINE, FORMAT_VERSION, files);
    let (marker, damage, held) = marker::mend_and_lock(file_system, path, known)?;
    let mut repair = Repair {
        environment,
        path,
        marker: &marker,
        report: CheckReport::default(),
    };
    let (catalog, generation) = repair.catalog()?;
    let rebuilt = repair.rebuild(catalog, generation, progress)?;
    drop(held);
    // Recovery takes over what only the commit logs have, and proves the result.
    let tuning = OptionValues::default();
    let core = match crate::open::open(environment, path, &tuning, progress) {
        Ok(core) => core,
        Err(error) if error.is_corruption() => {
            repair.lose(error)?;
            repair.forget_tails(rebuilt)?;
            crate::open::open(environment, path, &tuning, progress)?
        }
        Err(error) => return Err(error),
    };
    repair.count(&core)?;
    core.close()?;
    if let Some(damage) = damage {
        repair.report.note_mended(damage, "it is made anew")?;
    }
    Ok(repair.report)
}

struct Repair<'a> {
    environment: &'a Environment,
    path: &'a Path,
    marker: &'a Marker,
    report: CheckReport,
}

impl Repair<'_> {
    fn note(&mut self, file: &Path, offset: u64, what: impl Into<String>) {
        self.report.findings.push(Finding {
            kind: FindingKind::Damage,
            file: file.to_path_buf(),
            offset,
            what: what.into(),
        });
    }

    fn lose(&mut self, error: Error) -> Result<()> {
        match error {
            Error::Corruption { file, offset, what } => {
                self.note(&file, offset, what);
                Ok(())
            }
            other => Err(other),
        }
    }

    fn home(&self, catalog: &Catalog) -> Home {
        Home {
            file_system: self.environment.file_system.clone(),
            folder: self.path.to_path_buf(),
            store: self.marker.store,
            shape: catalog.shape,
            writable: true,
        }
    }

    /// The catalog, or one made anew.
    fn catalog(&mut self) -> Result<(Catalog, u64)> {
        let file_system = &*self.environment.file_system;
        let found = superblock::read(file_system, self.path, &self.marker.store, FORMAT_VERSION);
        match found {
            Ok(content) => match Catalog::decode(&content.payload) {
                Some(catalog) => return Ok((catalog, content.generation)),
                None => self.note(
                    &superblock::copy_path(self.path, 0),
                    0,
                    "no catalog of this format",
                ),
            },
            Err(error) => self.lose(error)?,
        }
        Ok((self.catalog_from_files()?, 1 << 32))
    }

    /// Makes a catalog from the files that are there.
    fn catalog_from_files(&mut self) -> Result<Catalog> {
        let file_system = &*self.environment.file_system;
        let (shape, hash_seed, commit_logs) =
            format::read_shape(file_system, self.path, self.marker.store)?;
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
            commit_logs,
            tables: BTreeMap::new(),
        };
        let mut places: BTreeMap<(u64, u32), FileRef> = BTreeMap::new();
        for entry in file_system.list(self.path)? {
            let name = entry.name.to_string_lossy().into_owned();
            let path = self.path.join(&entry.name);
            let number = name
                .rsplit('-')
                .next()
                .and_then(|text| u64::from_str_radix(text, 16).ok());
            catalog.next_file = catalog.next_file.max(number.unwrap_or(0) + 1);
            if !name.starts_with("data-") || !format::is_data_or_index(&name) {
                continue;
            }
            let file = file_system.open(&path, OpenOptions::READ)?;
            let header = match FileHeader::read(&*file, DATA_MAGIC, FORMAT_VERSION) {
                Ok(header) => header,
                Err(error) => {
                    self.lose(error)?;
                    continue;
                }
            };
            let place = (header.parameters[0], header.parameters[1] as u32);
            let file = FileRef {
                number: header.identity.number,
                salt: header.identity.salt,
            };
            // Of two files at a place the lower number is the one that a
            // compaction has not replaced yet: it has everything.
            let known = places.entry(place).or_insert(file);
            if file.number < known.number {
                *known = file;
            }
        }
        for ((table, place), file) in places {
            let entry = catalog.tables.entry(table).or_insert_with(|| TableEntry {
                index: FileRef::default(),
                pieces: vec![0; shape.pieces()],
                files: vec![
                    DataEntry {
                        file: FileRef::default(),
                        replay_from: u64::MAX,
                        entries: 0,
                        live: 0,
                        successor: None,
                    };
                    shape.data_files as usize
                ],
            });
            if let Some(data) = entry.files.get_mut(place as usize) {
                data.file = file;
            }
        }
        Ok(catalog)
    }

    /// Reads every data file, rewrites damaged ones, and makes empty indexes;
    /// the superblock names the result.
    fn rebuild(
        &mut self,
        mut catalog: Catalog,
        generation: u64,
        progress: &dyn ProgressSink,
    ) -> Result<(Catalog, u64)> {
        let home = self.home(&catalog);
        let lost_superblock = catalog
            .tables
            .values()
            .any(|entry| entry.files.iter().any(|data| data.replay_from == u64::MAX));
        let numbers: Vec<u64> = catalog.tables.keys().copied().collect();
        for (done, &number) in numbers.iter().enumerate() {
            progress.report(Progress {
                phase: "repair",
                done: done as u64,
                total: Some(numbers.len() as u64),
            });
            let Some(mut entry) = catalog.tables.remove(&number) else {
                continue;
            };
            for place in 0..entry.files.len() {
                let data = entry.files[place];
                entry.files[place] =
                    self.repair_file(&home, &mut catalog, data, (number, place as u32))?;
            }
            // The index is made anew from the data files at the next open.
            let salt = self.environment.randomness.next_u64();
            let index = catalog.new_file(salt);
            entry.index = index;
            entry.pieces = vec![0; home.shape.pieces()];
            catalog.tables.insert(number, entry);
        }
        if lost_superblock {
            let last = catalog.durable_sequence;
            catalog.replay_sequence = (last / SEQUENCE_EPOCH + 1) * SEQUENCE_EPOCH;
            catalog.durable_sequence = catalog.replay_sequence;
            catalog.last_session += 1;
            catalog.session = catalog.last_session;
            catalog.clean = true;
        }
        self.write_superblock(&catalog, generation)?;
        Ok((catalog, generation))
    }

    fn write_superblock(&self, catalog: &Catalog, generation: u64) -> Result<()> {
        let content = SuperblockContent {
            payload: Vec::new(),
            generation,
            copy: 1,
            other_copy: None,
        };
        let mut superblock = Superblock::resume(
            &self.environment.file_system,
            self.path,
            self.marker.store,
            FORMAT_VERSION,
            &content,
        );
        superblock.write_both(&catalog.encode())?;
        self.environment.file_system.sync_directory(self.path)
    }

    /// A data file as it is to be named: itself if it is sound up to where
    /// replay begins, else a new one with what could be read.
    fn repair_file(
        &mut self,
        home: &Home,
        catalog: &mut Catalog,
        data: DataEntry,
        place: (u64, u32),
    ) -> Result<DataEntry> {
        let length_known = data.replay_from != u64::MAX;
        let probe = DataEntry {
            replay_from: format::first_offset(&home.shape),
            successor: None,
            ..data
        };
        let opened = match DataFile::open(home, &probe, place) {
            Ok(opened) => opened,
            Err(
                error @ (Error::Corruption { .. }
                | Error::Io {
                    operation: "open", ..
                }),
            ) => {
                let path = format::data_path(self.path, place.0, place.1, data.file.number);
                self.note(&path, 0, format!("{error}; the whole file is lost"));
                return self.rewrite(home, catalog, None, place);
            }
            Err(error) => return Err(error),
        };
        let content = read_content(&opened, data.replay_from)?;
        opened.log.resume_at(content.end);
        catalog.last_session = catalog.last_session.max(content.last_session);
        catalog.durable_sequence = catalog.durable_sequence.max(match length_known {
            true => 0,
            false => content.last_sequence,
        });
        catalog.buckets = catalog.buckets.max(content.buckets);
        let cut_short = length_known
            && opened.log.file().length()? < data.replay_from
            && content.end < data.replay_from
            && content.faults.is_empty()
            && content.entries != data.entries;
        if cut_short {
            self.note(
                opened.log.path(),
                content.end,
                "the file ends here; what lay behind is lost",
            );
        }
        for (offset, what) in &content.faults {
            self.note(opened.log.path(), *offset, what.clone());
        }
        if content.faults.is_empty() && !cut_short {
            let replay_from = match length_known {
                true => data.replay_from,
                false => content
                    .end
                    .next_multiple_of(u64::from(home.shape.block_bytes)),
            };
            return Ok(DataEntry {
                replay_from,
                ..data
            });
        }
        self.rewrite(home, catalog, Some((opened, content)), place)
    }

    /// Copies what could be read into a new file.
    fn rewrite(
        &mut self,
        home: &Home,
        catalog: &mut Catalog,
        old: Option<(DataFile, FileContent)>,
        place: (u64, u32),
    ) -> Result<DataEntry> {
        let file = catalog.new_file(self.environment.randomness.next_u64());
        let new = DataFile::create(home, file, place)?;
        let mut live = 0;
        if let Some((old, content)) = &old {
            for &(_, position, _) in &content.live {
                let record = old.log.read(position, 4096)?;
                let header = RecordHeader {
                    session: catalog.last_session,
                    ..record.header
                };
                new.log.reserve(header.total_bytes(home.shape.alignment))?;
                new.log.append(&header, &[&record.payload]);
                new.log.flush()?;
                live += 1;
            }
        }
        new.log.pad_to_block();
        new.log.flush()?;
        new.log.sync()?;
        Ok(DataEntry {
            file,
            replay_from: new.log.end(),
            entries: live,
            live,
            successor: None,
        })
    }

    /// Gives up what lies behind the replay offsets, because part of it is
    /// missing; what was damaged is in the report.
    fn forget_tails(&self, (mut catalog, generation): (Catalog, u64)) -> Result<()> {
        catalog.clean = true;
        catalog.durable_sequence = catalog.durable_sequence.max(catalog.replay_sequence);
        catalog.replay_sequence = (catalog.durable_sequence / SEQUENCE_EPOCH + 1) * SEQUENCE_EPOCH;
        catalog.durable_sequence = catalog.replay_sequence;
        self.write_superblock(&catalog, generation + 16)
    }

    fn count(&mut self, core: &Arc<Core>) -> Result<()> {
        let mut buckets = Vec::new();
        core.for_each_key(0, None, |key| buckets.push(key))?;
        if core.shape.keys == crate::options::Keys::Integer {
            self.report.entries = buckets.len() as u64;
            return Ok(());
        }
        let mut keys = 0;
        for bucket in buckets {
            keys += core.read_bucket(bucket, None)?.pairs.len() as u64;
        }
        let buckets = core.buckets.count();
        core.buckets.recovered(buckets, keys);
        self.report.entries = keys;
        // The count is kept by the checkpoint of the close.
        core.begin_session()
    }
}
