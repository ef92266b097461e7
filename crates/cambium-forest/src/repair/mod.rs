//! Repair: a damaged store is brought back to what can be read.
//!
//! The log is the truth: every write since the file was begun is in it, and a
//! compaction begins a file with the live documents, each with the sequence number
//! it was written with. So the whole log is scanned, stepping over damage block by
//! block ([`salvage`]). Where a header is sound that the superblock vouches for, the
//! index it names then says of each key which of its writes counts, and whether
//! anything is missing ([`judge`]); else the newest sound write counts, and headers
//! that rollbacks wrote say which writes they undid. The outcome goes into a new
//! file with a new index.
//!
//! Named snapshots come first, oldest first, each as what differs from the one before
//! it ([`rewrite`]); one of which something cannot be read is lost.
//!
//! Memory is bounded, whatever the store holds: what the log has of each key is
//! sorted in runs in a scratch file ([`runs`]).
//!
//! Each loss is a finding of damage: an entry that is gone or has an older value, a
//! named snapshot, and whatever cannot be known because the header,
//! the superblock or the end of the file is gone. What was damaged and is made
//! anew is a note. A batch of which a part is damaged is brought back in part.
//!
//! The new file is written beside the old one, as `NNNNNN.forest.part`; it is synced, read back
//! and verified as an opening would read it, then gets its name, and then both copies of
//! the superblock point to it. Until they do the store is as it was. So a repair can be
//! killed anywhere, and run again.
//!
//! If anything was lost the old file stays, as `NNNNNN.forest.damaged`, which no
//! store reads; else it goes. The superblock says which: where the repair did not come to
//! that, the next opening does it.
//!
//! The marker `CAMBIUM` is made anew from the database file's first block, and that
//! block's facts are in the superblock.

mod judge;
mod rewrite;
mod runs;
mod salvage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{CheckReport, Finding, FindingKind, OptionValues, ProgressSink};
use cambium_base::{Error, FileNumber, Result};
use cambium_io::segmented::place_in;
use cambium_io::{Environment, FileLock, FileSystem, OpenOptions};
use cambium_storage::file_header::FileHeader;
use cambium_storage::marker::{FilesOfEngine, Marker, known_marker, mend_and_lock};
use cambium_storage::store_lock::Unlocked;
use cambium_storage::superblock::{self, Superblock, SuperblockContent};

use self::rewrite::Rewrite;
pub(crate) use self::runs::SCRATCH_NAME;
use self::runs::Sorter;
use self::salvage::Salvaged;
use crate::agreement::{DISAGREES, LACKS_LATER};
use crate::core::{Core, Maintenance, lock};
use crate::database::{Database, Home};
use crate::document::DocumentAddress;
use crate::flush::Copies;
use crate::format::{
    self, DatabaseHeader, FORMAT_VERSION, FileRef, MAGIC, NamespaceRoot, Root, header_record,
};
use crate::open::{assemble, attach, leftovers, put_away};
use crate::options::{ENGINE, Tuning};
use crate::recovery::header_at;
use crate::replay::WERE_SYNCED;
use crate::view::Roots;

/// Numbers go on so far above the highest found that none is given twice.
const SEQUENCE_EPOCH: u64 = 1 << 32;

/// Repairs a store; each loss is a finding.
pub(crate) fn repair(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let (tuning, _) = Tuning::of_opening(options)?;
    let below = &*environment.file_system;
    let environment = &tuning.segmented(environment);
    let file_system = &*environment.file_system;
    let files = FilesOfEngine {
        magics: &[("", MAGIC)],
        has_name: format::is_database_or_scratch,
    };
    let known = || known_marker(file_system, path, ENGINE, FORMAT_VERSION, files);
    let (marker, damage) = known()?;
    let checked = crate::check::check_store(environment, path, (marker.store, tuning), progress);
    let sound = checked.as_ref().is_ok_and(CheckReport::is_sound);
    if sound && damage.is_none() {
        return checked;
    }
    let (marker, damage, held) = mend_and_lock(file_system, path, known)?;
    let marker_damage = damage.and_then(|damage| finding(FindingKind::Note, damage));
    if let Some(mut note) = marker_damage {
        note.what += "; it is made anew";
        if sound {
            let mut report = checked?;
            report.findings.insert(0, note);
            return Ok(report);
        }
    }
    let mut repair = Repair {
        below,
        environment,
        marker: &marker,
        tuning,
        home: Home::new(environment, path, marker.store, true, &tuning),
        report: CheckReport::default(),
    };
    let (file, superblock) = repair.choose_file()?;
    let root = superblock.as_ref().map(|(_, root)| *root);
    let (mut salvaged, sorter) = repair.salvage(file, root, progress)?;
    if let Ok(checked) = &checked {
        repair.take_checked(&mut salvaged, checked);
    }
    repair.write((&salvaged, sorter), superblock, progress)?;
    drop(held);
    Ok(repair.report)
}

/// Damage as a finding; nothing else becomes one.
fn finding(kind: FindingKind, error: Error) -> Option<Finding> {
    match error {
        Error::Corruption { file, offset, what } => Some(Finding {
            kind,
            file,
            offset,
            what,
        }),
        _ => None,
    }
}

/// A header that the superblock vouches for.
#[derive(Debug)]
struct Trusted {
    offset: u64,
    header: DatabaseHeader,
    /// Those before it whose trees are whole, newest first.
    older: Vec<DatabaseHeader>,
}

struct Repair<'a> {
    /// The file system that has the segments of the database file.
    below: &'a dyn FileSystem,
    environment: &'a Environment,
    marker: &'a Marker,
    tuning: Tuning,
    home: Home,
    report: CheckReport,
}

impl Repair<'_> {
    fn lose(&mut self, file: &Path, offset: u64, what: impl Into<String>) {
        self.say(FindingKind::Damage, file, offset, what);
    }

    fn say(&mut self, kind: FindingKind, file: &Path, offset: u64, what: impl Into<String>) {
        self.report.findings.push(Finding {
            kind,
            file: file.to_path_buf(),
            offset,
            what: what.into(),
        });
    }

    /// Takes over what the check found: a damaged node is no loss, and of a
    /// document before the place of replay the index says what its loss is.
    fn take_checked(&mut self, salvaged: &mut Salvaged, checked: &CheckReport) {
        let file = salvaged.database.path().to_path_buf();
        let file = &*file;
        let damage = checked.findings.iter();
        for found in damage.filter(|found| found.kind == FindingKind::Damage) {
            let known = self.report.findings.iter().any(|known| {
                (&known.file, known.offset, &known.what) == (&found.file, found.offset, &found.what)
            });
            if known || superblock_copy(&found.file) {
                continue;
            }
            let ours = found.file == file;
            // Nothing is left after the header: writes may have gone with it.
            let is_cut_off = !salvaged.was_closed && salvaged.last_record < found.offset;
            if ours && found.what.starts_with(DISAGREES) {
                let counts = match found.what.ends_with(LACKS_LATER) {
                    true => "index",
                    false => {
                        salvaged.overlooked.insert(found.offset);
                        "log"
                    }
                };
                let what = format!("{}; the {counts} counts", found.what);
                self.say(FindingKind::Note, file, found.offset, what);
                continue;
            }
            let rebuilt = found.offset < salvaged.database.shape.first_offset()
                || salvaged.is_node(found.offset)
                || salvaged.trusted.as_ref().is_some_and(|trusted| {
                    found.offset > trusted.offset
                        && salvaged.newest_header == Some(found.offset)
                        && !is_cut_off
                });
            let is_promised = found.what.ends_with(WERE_SYNCED);
            if ours && rebuilt && !is_promised {
                let what = format!("{}; it is made anew, and nothing depends on it", found.what);
                self.say(FindingKind::Note, file, found.offset, what);
            } else if !ours
                || salvaged
                    .trusted
                    .as_ref()
                    .is_none_or(|trusted| found.offset >= trusted.header.replay_from)
            {
                self.report.findings.push(found.clone());
            }
        }
    }

    /// The file that counts, and the superblock where one is sound.
    fn choose_file(&mut self) -> Result<(FileRef, Option<(Superblock, Root)>)> {
        let file_system = &self.environment.file_system;
        let folder = self.home.folder.clone();
        let store = self.marker.store;
        let read = superblock::read(&**file_system, &folder, &store, FORMAT_VERSION);
        let found = match read {
            Ok(content) => Root::decode(&content.payload).map(|mut root| {
                root.may_be_older = content.other_copy.is_some();
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
            let is_missing = file_system.metadata(&path)?.is_none();
            if is_missing && place_in(self.below, &path, u64::MAX)?.0 != path {
                self.lose(&path, 0, "the first segment of the file is missing");
                // The place of a segment that is not there reads as zeros.
                self.below.open(&path, OpenOptions::CREATE)?;
            }
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
            // Listed by the names of other segments.
            if file_system.metadata(&path)?.is_none() {
                self.lose(&path, 0, "the first segment of the file is missing");
                continue;
            }
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
        let tuning = self.tuning;
        let database = Database::open(&self.home, file, &tuning, None, None)?;
        let end = database.log.end();
        Ok(crate::recovery::header_before(&database, end)?.is_some())
    }

    /// Writes what was brought back into a new file, and lets the old ones go.
    fn write(
        &mut self,
        salvaged: (&Salvaged, Sorter),
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
        let written = self.write_file(number, salvaged, superblock, progress);
        let core = written.inspect_err(|_| self.remove_unless_named(number))?;
        self.put_away(&core)
    }

    /// Lets go what was written of a file that could not be finished: its space may
    /// be what was missing.
    fn remove_unless_named(&self, number: FileNumber) {
        let file_system = &self.environment.file_system;
        let folder = &self.home.folder;
        // If they stay, the next open or repair removes them.
        _ = file_system.remove(&format::part_path(folder, number));
        let read = superblock::read(&**file_system, folder, &self.home.store, FORMAT_VERSION);
        let root = read.map(|content| Root::decode(&content.payload));
        if matches!(root, Ok(Some(root)) if root.file.number != number) {
            _ = file_system.remove(&format::database_path(folder, number));
        }
    }

    fn write_file(
        &mut self,
        number: FileNumber,
        (salvaged, sorter): (&Salvaged, Sorter),
        superblock: Option<(Superblock, Root)>,
        progress: &dyn ProgressSink,
    ) -> Result<Arc<Core>> {
        let file = FileRef {
            number,
            salt: self.environment.randomness.next_u64(),
        };
        let tuning = self.tuning;
        let shape = salvaged.database.shape;
        let part = format::part_path(&self.home.folder, number);
        let database = Database::create_at(&self.home, &part, file, &shape, &tuning)?;
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
            next_namespace: salvaged.next_namespace(),
            namespaces: salvaged
                .names
                .iter()
                .map(|(&number, name)| (number, name.clone(), NamespaceRoot::default()))
                .collect(),
            dropped: salvaged.dropped_names(),
            changes_from: sequence,
            ..DatabaseHeader::default()
        };
        let superblock = match superblock {
            Some((superblock, _)) => superblock,
            None => self.new_superblock(),
        };
        let maintenance = Maintenance::new(root, superblock, header);
        let core = assemble(
            self.environment,
            self.home.clone(),
            tuning,
            database,
            maintenance,
            None,
        )?;
        let namespaces = self.copy(&core, (salvaged, sorter), (sequence, session), progress)?;
        finish(&core, namespaces, sequence)?;
        self.prove(&core, &part, progress)?;
        self.switch(&core, &part)?;
        Ok(core)
    }

    /// Reads the new file as an opening would, and verifies that it holds what was
    /// written.
    fn prove(&mut self, core: &Arc<Core>, part: &Path, progress: &dyn ProgressSink) -> Result<()> {
        let maintenance = lock(&core.maintenance);
        let root = maintenance.root;
        let tuning = Tuning {
            cache_bytes: Some(0),
            ..self.tuning
        };
        let home = Home {
            writable: false,
            cache: tuning.cache_of(self.environment),
            ..self.home.clone()
        };
        let database = Database::open_at(&home, part, root.file, &tuning, (Some(root.end), None))?;
        let reads_back = |place: u64| {
            let read = header_at(&database, place)?;
            // Ignore the traffic: a header counts its own bytes.
            let same = read.filter(|(.., header)| {
                let traffic = header.traffic;
                *header
                    == DatabaseHeader {
                        traffic,
                        ..maintenance.header.clone()
                    }
            });
            same.ok_or_else(|| database.damage(place, "a header that was just written is another"))
        };
        reads_back(root.spare_header)?;
        let (.., header) = reads_back(root.header)?;
        let proven = Maintenance {
            header_end: root.end,
            ..Maintenance::new(root, self.new_superblock(), header)
        };
        drop(maintenance);
        let core = assemble(self.environment, home, tuning, database, proven, None)?;
        let mut proof = CheckReport::default();
        crate::check::check_contents(&core, &mut proof, progress)?;
        if let Some(found) = proof.findings.into_iter().next() {
            let what = format!(
                "the repair wrote this file, and it reads back otherwise: {}; the store is as it was before: run the repair again",
                found.what
            );
            return Err(Error::corruption(found.file, found.offset, what));
        }
        self.report.entries = proof.entries;
        self.report.bytes = proof.bytes;
        self.report.files = proof.files;
        Ok(())
    }

    /// Makes the new file the store's. Before, the store is as it was; afterwards an
    /// opening, or another repair, puts away what this one has left.
    fn switch(&mut self, core: &Arc<Core>, part: &Path) -> Result<()> {
        let file_system = &self.environment.file_system;
        let mut maintenance = lock(&core.maintenance);
        let path = format::database_path(&self.home.folder, maintenance.root.file.number);
        file_system.rename(part, &path)?;
        file_system.sync_directory(&self.home.folder)?;
        maintenance.root.keeps_damaged = !self.report.is_sound();
        maintenance.write_root_twice()?;
        file_system.sync_directory(&self.home.folder)
    }

    /// Lets the old files go, or keeps them under another name if anything of
    /// them was lost.
    fn put_away(&mut self, core: &Core) -> Result<()> {
        let file_system = self.environment.file_system.clone();
        let folder = self.home.folder.clone();
        if !core.history.list().is_empty() {
            let what = "the changes before the repair are given up: consumers of the change feed begin again with a snapshot";
            self.say(FindingKind::Note, &folder, 0, what);
        }
        let left = leftovers(&*file_system, &folder, &lock(&core.maintenance).root, &[])?;
        put_away(&*file_system, &left)?;
        for kept in left.into_iter().filter_map(|(_, kept)| kept) {
            let what = "the file as it was before the repair; no store reads it: remove it when nothing more is wanted of it";
            self.say(FindingKind::Note, &kept, 0, what);
        }
        file_system.sync_directory(&folder)
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

    /// A superblock that begins anew; nothing is written yet.
    fn new_superblock(&self) -> Superblock {
        let nothing = SuperblockContent {
            payload: Vec::new(),
            generation: 0,
            copy: 1,
            other_copy: None,
        };
        let (file_system, folder) = (&self.environment.file_system, &self.home.folder);
        Superblock::resume(
            file_system,
            folder,
            self.home.store,
            FORMAT_VERSION,
            &nothing,
        )
    }

    /// The old store as its index has it, for reading, where a header can be
    /// trusted.
    fn old_store(&self) -> Result<Option<Arc<Core>>> {
        let tuning = self.tuning;
        let (folder, store) = (&self.home.folder, self.home.store);
        let held = (Box::new(Unlocked) as Box<dyn FileLock>, false);
        match attach(self.environment, folder, store, tuning, held) {
            Ok(core) => Ok(Some(core)),
            Err(Error::Corruption { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Copies named snapshots and the newest sound documents.
    fn copy(
        &mut self,
        core: &Arc<Core>,
        (salvaged, sorter): (&Salvaged, Sorter),
        (sequence, session): (u64, u32),
        progress: &dyn ProgressSink,
    ) -> Result<BTreeMap<u16, NamespaceRoot>> {
        let mut rewrite = Rewrite::new(core, sequence, session);
        let mut before = None;
        if let Some(trusted) = &salvaged.trusted {
            let header = &trusted.header;
            if !header.snapshots.is_empty() {
                let old = self.old_store()?;
                before = self.copy_snapshots(&mut rewrite, old.as_ref(), header, progress)?;
            }
        }
        self.copy_newest(&mut rewrite, (salvaged, sorter), before, progress)?;
        lock(&core.maintenance).header.snapshots = rewrite.kept;
        Ok(rewrite.roots)
    }
}

/// The old file, for messages.
fn path_of(home: &Home, old: Option<&Arc<Core>>) -> PathBuf {
    old.map_or_else(
        || home.folder.clone(),
        |old| old.view.load().database.path().to_path_buf(),
    )
}

/// What to say of a key whose newest value cannot be read.
fn lost_value(key: &[u8], instead: Option<DocumentAddress>) -> String {
    let key = cambium_base::hexdump::readable(&key[..key.len().min(32)]);
    match instead {
        Some(_) => format!("the newest value of key {key} cannot be read; an older one is back"),
        None => format!("the value of key {key} cannot be read"),
    }
}

/// True for the name of a copy of the superblock.
fn superblock_copy(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with("superblock-"))
}

/// Ends the new file with a header in two copies, and syncs it.
fn finish(core: &Arc<Core>, namespaces: BTreeMap<u16, NamespaceRoot>, sequence: u64) -> Result<()> {
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
    maintenance.root.name(&appended, database);
    maintenance.root.end = database.log.end();
    maintenance.root.clean = true;
    maintenance.header = header;
    Ok(())
}
