//! Repair: a damaged store is brought back to what can be read.
//!
//! The log is the truth: every write since the file was begun is in it, and a
//! compaction begins a file with the live documents, each with the sequence number
//! it was written with. So the whole log is scanned, stepping over damage block by
//! block, and of each key the newest sound write counts. Nodes and headers are not
//! needed, but for one thing: a header that a rollback wrote says which writes it
//! undid. The outcome goes into a new file with a new index; then the old file goes.
//!
//! Each loss is a finding. A batch of which a part is damaged is brought back in
//! part; named snapshots are not kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{CheckReport, Finding, FindingKind, OptionValues, Progress, ProgressSink};
use cambium_base::{Error, FileNumber, Result, SequenceNumber};
use cambium_io::{Environment, LockMode, OpenOptions};
use cambium_storage::file_header::FileHeader;
use cambium_storage::marker::Marker;
use cambium_storage::record::{RecordHeader, record_bytes};
use cambium_storage::scan::{LogScanner, Scanned, SessionRule};
use cambium_storage::superblock::{self, Superblock};

use crate::core::{Core, Maintenance, lock};
use crate::database::{Database, Home};
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress};
use crate::flush::Copies;
use crate::format::{
    self, DatabaseHeader, FLAG_MOVED, FORMAT_VERSION, FileRef, MAGIC, NamespaceRoot, Root,
    document_auxiliary, header_record, kind, namespace_and_key,
};
use crate::index::Change;
use crate::nodes::NodeRuns;
use crate::open::{LOCK_NAME, assemble, read_marker};
use crate::options::Tuning;
use crate::view::{Roots, View};

/// Numbers go on so far above the highest found that none is given twice.
const SEQUENCE_EPOCH: u64 = 1 << 32;
/// Changes that go into the new index together.
const BATCH_DOCUMENTS: usize = 4096;

/// Repairs a store; each loss is a finding.
pub(crate) fn repair(
    environment: &Environment,
    path: &Path,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let checked = crate::check::check(environment, path, progress);
    if checked.as_ref().is_ok_and(CheckReport::is_sound) {
        return checked;
    }
    let marker = read_marker(&*environment.file_system, path)?;
    let lock_path = path.join(LOCK_NAME);
    let held = environment
        .file_system
        .lock(&lock_path, LockMode::Exclusive)?;
    let mut repair = Repair {
        environment,
        marker: &marker,
        home: Home {
            file_system: environment.file_system.clone(),
            folder: path.to_path_buf(),
            store: marker.store,
            writable: true,
            cache: environment.cache.clone(),
        },
        report: CheckReport::default(),
    };
    let (file, superblock) = repair.choose_file()?;
    let salvaged = repair.salvage(file, progress)?;
    repair.write(&salvaged, superblock, progress)?;
    drop(held);
    // What was written must be sound.
    let proof = crate::check::check(environment, path, progress)?;
    repair.report.entries = proof.entries;
    repair.report.bytes = proof.bytes;
    repair.report.files = proof.files;
    repair.report.findings.extend(proof.findings);
    Ok(repair.report)
}

/// A write that may count: where it is, or that it removed the key.
#[derive(Clone, Copy, Debug)]
struct Version {
    sequence: u64,
    document: Option<DocumentAddress>,
}

/// What a log comes to.
struct Salvaged {
    database: Database,
    versions: BTreeMap<(u16, Vec<u8>), Vec<Version>>,
    names: BTreeMap<u16, String>,
    highest_sequence: u64,
    highest_session: u32,
}

struct Repair<'a> {
    environment: &'a Environment,
    marker: &'a Marker,
    home: Home,
    report: CheckReport,
}

impl Repair<'_> {
    fn lose(&mut self, file: &Path, offset: u64, what: impl Into<String>) {
        self.report.findings.push(Finding {
            kind: FindingKind::Damage,
            file: file.to_path_buf(),
            offset,
            what: what.into(),
        });
    }

    /// The file that counts, and the superblock where one is sound.
    fn choose_file(&mut self) -> Result<(FileRef, Option<(Superblock, Root)>)> {
        let file_system = &self.environment.file_system;
        let folder = self.home.folder.clone();
        let store = self.marker.store;
        let read = superblock::read(&**file_system, &folder, &store, FORMAT_VERSION);
        let found = match read {
            Ok(content) => Root::decode(&content.payload).map(|root| {
                let superblock =
                    Superblock::resume(file_system, &folder, store, FORMAT_VERSION, &content);
                (superblock, root)
            }),
            Err(Error::Corruption { file, offset, what }) => {
                self.lose(&file, offset, what);
                None
            }
            Err(error) => return Err(error),
        };
        if let Some((superblock, root)) = found {
            let path = format::database_path(&folder, root.file.number);
            if file_system.metadata(&path)?.is_some() {
                return Ok((root.file, Some((superblock, root))));
            }
            self.lose(&path, 0, "the file that the superblock names is missing");
        }
        // The newest file with a header of its own: what a compaction that did
        // not come to its end left has none.
        let mut files = self.database_files()?;
        files.sort_by_key(|(file, _)| std::cmp::Reverse(file.number));
        let complete = files.iter().find(|(_, complete)| *complete);
        match complete.or(files.first()) {
            Some((file, _)) => Ok((*file, None)),
            None => Err(Error::corruption(
                folder,
                0,
                "there is no database file with a sound first block: nothing can be brought back",
            )),
        }
    }

    /// Every database file of this store, and whether it has a database header.
    fn database_files(&mut self) -> Result<Vec<(FileRef, bool)>> {
        let file_system = self.environment.file_system.clone();
        let mut files = Vec::new();
        for entry in file_system.list(&self.home.folder)? {
            let Some(number) = format::database_number(&entry.name.to_string_lossy()) else {
                continue;
            };
            let path = self.home.folder.join(&entry.name);
            let handle = file_system.open(&path, OpenOptions::READ)?;
            match FileHeader::read(&*handle, MAGIC, FORMAT_VERSION) {
                Ok(header) if header.identity.store == self.home.store => {
                    let file = FileRef {
                        number,
                        salt: header.identity.salt,
                    };
                    files.push((file, self.has_header(file)?));
                }
                Ok(_) => self.lose(&path, 40, "the file belongs to another store"),
                Err(Error::Corruption { file, offset, what }) => self.lose(&file, offset, what),
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }

    fn has_header(&self, file: FileRef) -> Result<bool> {
        let tuning = Tuning::take(&mut OptionValues::default())?;
        let database = Database::open(&self.home, file, &tuning, None)?;
        let end = database.log.end();
        Ok(crate::recovery::header_before(&database, end)?.is_some())
    }

    /// Scans the whole log of a file.
    fn salvage(&mut self, file: FileRef, progress: &dyn ProgressSink) -> Result<Salvaged> {
        let tuning = Tuning::take(&mut OptionValues::default())?;
        let database = Database::open(&self.home, file, &tuning, None)?;
        let path = database.path().to_path_buf();
        let mut salvaged = Salvaged {
            versions: BTreeMap::new(),
            names: BTreeMap::from([(0, String::new())]),
            highest_sequence: 0,
            highest_session: 0,
            database,
        };
        let handle = salvaged.database.log.file().clone();
        let mut scanner = LogScanner::new(
            &*handle,
            *salvaged.database.log.seed(),
            *salvaged.database.log.geometry(),
            SessionRule::NeverLower,
            salvaged.database.shape.first_offset(),
            u64::MAX,
        )?
        .thorough();
        let mut count = 0u64;
        while let Some(scanned) = scanner.next()? {
            let record = match scanned {
                Scanned::Fault(fault) => {
                    self.lose(&path, fault.offset, fault.reason.to_string());
                    continue;
                }
                Scanned::Record(record) => record,
            };
            count += 1;
            if count % 4096 == 0 {
                progress.report(Progress {
                    phase: "repair: read",
                    done: count,
                    total: None,
                });
            }
            let header = record.header;
            let end = record.offset + header.total_bytes(DOCUMENT_ALIGNMENT);
            salvaged.highest_sequence = salvaged.highest_sequence.max(header.sequence.0);
            match header.kind {
                kind::NODES => {
                    let extent = salvaged.database.run_extent(end, header.auxiliary);
                    scanner.skip_to(extent.1);
                }
                kind::HEADER => {
                    if let Some(decoded) = DatabaseHeader::decode(&scanner.payload(&record)?) {
                        self.take_header(&path, record.offset, &decoded, &mut salvaged);
                    }
                }
                kind::PUT | kind::DELETE | kind::NAMESPACE => {
                    let Some((namespace, key_bytes)) = namespace_and_key(&header) else {
                        continue;
                    };
                    let mut key = scanner.payload(&record)?;
                    key.truncate(key_bytes);
                    salvaged.take_write(&header, namespace, key, record.offset, end);
                }
                _ => {}
            }
        }
        salvaged.highest_session = scanner.highest_session();
        Ok(salvaged)
    }

    fn take_header(
        &mut self,
        path: &Path,
        offset: u64,
        header: &DatabaseHeader,
        salvaged: &mut Salvaged,
    ) {
        for (number, name, _) in &header.namespaces {
            salvaged.names.insert(*number, name.clone());
        }
        if let Some(kept) = header.rolled_back_to {
            for versions in salvaged.versions.values_mut() {
                versions.retain(|version| version.sequence <= kept);
            }
        }
        for snapshot in &header.snapshots {
            let what = format!("snapshot {:?} is not kept by a repair", snapshot.name);
            let known = self.report.findings.iter().any(|known| known.what == what);
            if !known {
                self.report.findings.push(Finding {
                    kind: FindingKind::Note,
                    file: path.to_path_buf(),
                    offset,
                    what,
                });
            }
        }
    }

    /// Writes what was brought back into a new file, and lets the old ones go.
    fn write(
        &mut self,
        salvaged: &Salvaged,
        superblock: Option<(Superblock, Root)>,
        progress: &dyn ProgressSink,
    ) -> Result<()> {
        let others: Vec<PathBuf> = self.all_paths()?;
        let highest = others
            .iter()
            .filter_map(|path| format::database_number(&path.file_name()?.to_string_lossy()))
            .map(|number| number.0)
            .max()
            .unwrap_or(0);
        let next = superblock.as_ref().map_or(0, |(_, root)| root.next_file);
        let number = FileNumber(next.max(highest + 1));
        let file = FileRef {
            number,
            salt: self.environment.randomness.next_u64(),
        };
        let tuning = Tuning::take(&mut OptionValues::default())?;
        let shape = salvaged.database.shape;
        let database = Database::create(&self.home, file, &shape, &tuning)?;
        let sequence = (salvaged.highest_sequence / SEQUENCE_EPOCH + 1) * SEQUENCE_EPOCH;
        let session = superblock
            .as_ref()
            .map_or(0, |(_, root)| root.session)
            .max(salvaged.highest_session)
            + 1;
        let root = Root {
            file,
            next_file: number.0 + 1,
            session,
            shape: Some(shape),
            ..Root::default()
        };
        let header = DatabaseHeader {
            sequence,
            replay_session: session,
            next_namespace: salvaged
                .names
                .keys()
                .max()
                .map_or(1, |&last| u32::from(last) + 1),
            namespaces: salvaged
                .names
                .iter()
                .map(|(&number, name)| (number, name.clone(), NamespaceRoot::default()))
                .collect(),
            ..DatabaseHeader::default()
        };
        let superblock = match superblock {
            Some((superblock, _)) => superblock,
            None => self.new_superblock(&root)?,
        };
        let maintenance = Maintenance {
            root,
            superblock,
            header,
            header_end: 0,
            sealed_at: None,
        };
        let core = assemble(
            self.environment,
            self.home.clone(),
            tuning,
            database,
            maintenance,
            None,
        );
        let namespaces = self.copy(&core, salvaged, (sequence, session), progress)?;
        publish(&core, namespaces, sequence)?;
        for path in others {
            self.environment.file_system.remove(&path)?;
        }
        Ok(())
    }

    fn all_paths(&self) -> Result<Vec<PathBuf>> {
        let entries = self.environment.file_system.list(&self.home.folder)?;
        let ours = entries
            .into_iter()
            .filter(|entry| format::database_number(&entry.name.to_string_lossy()).is_some());
        Ok(ours
            .map(|entry| self.home.folder.join(entry.name))
            .collect())
    }

    fn new_superblock(&self, root: &Root) -> Result<Superblock> {
        for copy in 0..2 {
            let path = superblock::copy_path(&self.home.folder, copy);
            if self.environment.file_system.metadata(&path)?.is_some() {
                self.environment.file_system.remove(&path)?;
            }
        }
        Superblock::create(
            &self.environment.file_system,
            &self.home.folder,
            self.home.store,
            FORMAT_VERSION,
            &root.encode(),
        )
    }

    /// Copies the newest sound documents in key order.
    fn copy(
        &mut self,
        core: &Arc<Core>,
        salvaged: &Salvaged,
        (sequence, session): (u64, u32),
        progress: &dyn ProgressSink,
    ) -> Result<BTreeMap<u16, NamespaceRoot>> {
        let mut roots: BTreeMap<u16, NamespaceRoot> = BTreeMap::new();
        let database = core.view.load().database.clone();
        let mut changes: Vec<(Vec<u8>, Change)> = Vec::new();
        let mut namespace = 0;
        let total = salvaged.versions.len() as u64;
        for (done, ((of, key), versions)) in salvaged.versions.iter().enumerate() {
            if *of != namespace || changes.len() == BATCH_DOCUMENTS {
                let root = roots.entry(namespace).or_default();
                apply(core, &database, root, &mut changes, (sequence, session))?;
                namespace = *of;
                progress.report(Progress {
                    phase: "repair: write",
                    done: done as u64,
                    total: Some(total),
                });
            }
            let newest = versions.iter().max_by_key(|version| version.sequence);
            let Some(address) = newest.and_then(|version| version.document) else {
                continue;
            };
            let document = salvaged.database.read_document(address)?;
            let bytes = record_bytes(
                (key.len() + document.value.len()) as u64,
                DOCUMENT_ALIGNMENT,
            );
            database.log.reserve(bytes)?;
            let header = RecordHeader {
                kind: kind::PUT,
                flags: FLAG_MOVED,
                sequence: SequenceNumber(document.sequence),
                session,
                auxiliary: document_auxiliary(*of, key.len()),
                ..RecordHeader::default()
            };
            let offset = database.log.append(&header, &[key, &document.value]);
            if database.log.buffered_bytes() > 1 << 20 {
                database.log.flush()?;
            }
            let to = DocumentAddress::new(offset, bytes, key);
            changes.push((key.clone(), Change::Put(to)));
        }
        let root = roots.entry(namespace).or_default();
        apply(core, &database, root, &mut changes, (sequence, session))?;
        Ok(roots)
    }
}

impl Salvaged {
    fn take_write(
        &mut self,
        header: &RecordHeader,
        namespace: u16,
        key: Vec<u8>,
        offset: u64,
        end: u64,
    ) {
        if header.kind == kind::NAMESPACE {
            let name = String::from_utf8_lossy(&key).into_owned();
            self.names.insert(namespace, name);
            return;
        }
        let document =
            (header.kind == kind::PUT).then(|| DocumentAddress::new(offset, end - offset, &key));
        self.names
            .entry(namespace)
            .or_insert_with(|| format!("lost-{namespace}"));
        let versions = self.versions.entry((namespace, key)).or_default();
        versions.retain(|version| version.sequence != header.sequence.0);
        versions.push(Version {
            sequence: header.sequence.0,
            document,
        });
    }
}

/// Applies changes to one namespace of the new file.
fn apply(
    core: &Arc<Core>,
    database: &Database,
    root: &mut NamespaceRoot,
    changes: &mut Vec<(Vec<u8>, Change)>,
    (sequence, session): (u64, u32),
) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut runs = NodeRuns::new(core, database, changes.len() as u64).exclusive(sequence, session);
    core.apply_changes(&mut runs, database, root, std::mem::take(changes))?;
    runs.finish()
}

/// Makes the new file the store's, closed.
fn publish(
    core: &Arc<Core>,
    namespaces: BTreeMap<u16, NamespaceRoot>,
    sequence: u64,
) -> Result<()> {
    let mut maintenance = lock(&core.maintenance);
    let view = core.view.load_full();
    let database = &view.database;
    database.log.flush()?;
    database.log.sync()?;
    let roots = Roots {
        sequence,
        namespaces,
    };
    let header = DatabaseHeader {
        replay_from: database.log.end(),
        start: database.log.end(),
        ..maintenance.header.clone()
    };
    let next_namespace = header.next_namespace;
    let mut header = core.complete(header, &maintenance, &roots, next_namespace);
    header.previous = 0;
    let record = header_record(sequence, sequence, maintenance.root.session, false);
    let appended = core.append_header(database, &header, &record, Copies::Two)?;
    core.sync_header(database)?;
    core.environment.file_system.sync_directory(&core.path)?;
    maintenance.root.name(&appended);
    maintenance.root.end = database.log.end();
    maintenance.root.clean = true;
    let payload = maintenance.root.encode();
    maintenance.superblock.write_both(&payload)?;
    core.change_view(|view| View {
        database: view.database.clone(),
        active: Arc::default(),
        sealed: None,
        roots: Arc::new(roots),
    });
    Ok(())
}
