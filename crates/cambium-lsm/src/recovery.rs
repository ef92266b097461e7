//! From the superblock and the manifest to a version. Reads only.
//!
//! | found | meaning |
//! |---|---|
//! | edits without a gap, then nothing | all of them count |
//! | then bytes that are no record | a torn end: the edit was never acknowledged |
//! | then bytes that are no record, and a record behind | damage: the later one says that all before it were durable |
//! | fewer edits than the superblock knows | damage |
//! | an error of reading | opening fails |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cambium_base::checksum::ChecksumSeed;
use cambium_base::{Error, FileIdentity, FileNumber, Result};
use cambium_io::sync::atomic::Ordering;
use cambium_io::{File, OpenOptions};
use cambium_storage::file_header::FileHeader;
use cambium_storage::scan::{LogScanner, Scanned, SessionRule};
use cambium_storage::superblock::{self, Superblock, copy_path};

use crate::format::{FORMAT_VERSION, LEVELS, MANIFEST_MAGIC, Root, manifest_name, number_in_name};
use crate::kept::KeptVersions;
use crate::manifest::{EDIT_RECORD, Edit, GEOMETRY, Manifest};
use crate::options::{known_comparator, known_filter};
use crate::owner::Owner;
use crate::seeded_bug::SeededBug;
use crate::tree::Context;
use crate::version::{Level, TableFile, TableMetadata, Version};

/// What was found.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub manifest: Manifest,
    pub version: Version,
    pub kept: KeptVersions,
    pub flushed: u64,
}

/// Tables with their levels, by number.
type Tables = BTreeMap<u64, (usize, TableMetadata)>;

/// What the edits so far come to.
#[derive(Debug, Default)]
struct Replayed {
    tables: Tables,
    kept: BTreeMap<String, Tables>,
    edits: u64,
    next_file: u64,
    flushed: u64,
    comparator: String,
    filter: String,
}

impl Replayed {
    /// Takes an edit; `Err` says why it cannot be.
    fn take(&mut self, edit: Edit) -> Result<(), String> {
        if edit.base != (self.edits == 0) {
            return Err("a base is the first edit of a manifest, and only that".to_owned());
        }
        if edit.next_file < self.next_file || edit.flushed < self.flushed {
            return Err("numbers that went back".to_owned());
        }
        for (level, number) in &edit.removed {
            match self.tables.remove(number) {
                Some((found, _)) if found == *level => {}
                _ => return Err(format!("table {number} is not at level {level}")),
            }
        }
        for (level, table) in edit.added {
            let number = table.number;
            if self.tables.insert(number, (level, table)).is_some() {
                return Err(format!("table {number} is there already"));
            }
        }
        for (name, tables) in edit.kept {
            let tables = tables.into_iter();
            let tables = tables.map(|(level, table)| (table.number, (level, table)));
            self.kept.insert(name, tables.collect());
        }
        let not_kept = |name: &str| format!("no version is kept as {name:?}");
        if let Some(name) = &edit.installed {
            let kept = self.kept.get(name).ok_or_else(|| not_kept(name))?;
            self.tables.clone_from(kept);
        }
        if let Some(name) = edit.keep {
            self.kept.insert(name, self.tables.clone());
        }
        if let Some(name) = &edit.released {
            self.kept.remove(name).ok_or_else(|| not_kept(name))?;
        }
        self.comparator = edit
            .comparator
            .unwrap_or(std::mem::take(&mut self.comparator));
        self.filter = edit.filter.unwrap_or(std::mem::take(&mut self.filter));
        self.next_file = edit.next_file;
        self.flushed = edit.flushed;
        self.edits += 1;
        Ok(())
    }
}

/// Reads the tree in the context's folder, and hands its notes to the owner.
pub(crate) fn recover(context: &Context, owner: &dyn Owner) -> Result<Recovered> {
    let file_system = &context.environment.file_system;
    let folder = &context.folder;
    let content = superblock::read(file_system.as_ref(), folder, &context.store, FORMAT_VERSION)?;
    let root = Root::decode(&content.payload, &copy_path(folder, content.copy))?;
    let path = folder.join(manifest_name(root.manifest));
    if file_system.metadata(&path)?.is_none() {
        let what = "the manifest is missing; the superblock names it";
        return Err(Error::corruption(path, 0, what));
    }
    let file = file_system.open(&path, OpenOptions::READ)?;
    let identity = FileIdentity {
        store: context.store,
        number: FileNumber(root.manifest),
        salt: root.salt,
    };
    let header = FileHeader::read(file.as_ref(), MANIFEST_MAGIC, FORMAT_VERSION)?;
    header.check_identity(&path, &identity)?;
    let replayed = replay(file.as_ref(), &identity, &root, owner)?;
    known_comparator(&replayed.comparator)?;
    known_filter(&replayed.filter)?;

    let mut next_file = replayed.next_file.max(root.manifest + 1);
    // A file that nobody knows keeps its number to itself.
    for entry in file_system.list(folder)? {
        if let Some(number) = number_in_name(&entry.name) {
            next_file = next_file.max(number.saturating_add(1));
        }
    }
    context.next_file.store(next_file, Ordering::Release);

    let mut files = BTreeMap::new();
    let version = version_of(context, replayed.tables, &mut files);
    check_disjoint(&version, &path)?;
    let current: BTreeSet<u64> = files.keys().copied().collect();
    let mut kept = KeptVersions::new();
    for (name, tables) in replayed.kept {
        let version = version_of(context, tables, &mut files);
        check_disjoint(&version, &path)?;
        kept.insert(name, Arc::new(version));
    }
    for file in files.values() {
        file.set_obsolete(!current.contains(&file.metadata.number));
    }
    let superblock =
        Superblock::resume(file_system, folder, context.store, FORMAT_VERSION, &content);
    Ok(Recovered {
        manifest: Manifest::resume(superblock, root, replayed.edits),
        version,
        kept,
        flushed: replayed.flushed,
    })
}

/// A version of some tables. Versions share the tables that they have in common.
fn version_of(
    context: &Context,
    tables: Tables,
    files: &mut BTreeMap<u64, Arc<TableFile>>,
) -> Version {
    let mut levels = <[Level; LEVELS]>::default();
    for (level, mut table) in tables.into_values() {
        if context.options.has_bug(SeededBug::VersionsForgotten) {
            table.has_versions = false;
        }
        let file = files
            .entry(table.number)
            .or_insert_with(|| TableFile::new(table, &context.graveyard));
        levels[level].push(file.clone());
    }
    Version::new(levels)
}

fn replay(
    file: &dyn File,
    identity: &FileIdentity,
    root: &Root,
    owner: &dyn Owner,
) -> Result<Replayed> {
    let path = file.path();
    let mut replayed = Replayed::default();
    let mut fault: Option<(u64, String)> = None;
    let mut scanner = LogScanner::new(
        file,
        ChecksumSeed::new(identity),
        GEOMETRY,
        SessionRule::NeverLower,
        GEOMETRY.first_offset,
        u64::MAX,
    )?;
    while let Some(scanned) = scanner.next()? {
        let record = match scanned {
            Scanned::Fault(found) => {
                fault.get_or_insert((found.offset, found.reason.to_string()));
                continue;
            }
            Scanned::Record(record) => record,
        };
        let expected = replayed.edits + 1;
        let number = record.header.sequence.0;
        if number != expected || fault.is_some() {
            let (offset, what) = fault.unwrap_or((record.offset, String::new()));
            let what = format!("edit {expected} is missing, but edit {number} is there; {what}");
            return Err(Error::corruption(path, offset, what));
        }
        let decoded = match record.header.kind {
            EDIT_RECORD => Edit::decode(&scanner.payload(&record)?),
            _ => None,
        };
        let refused = |what: String| Error::corruption(path, record.offset, what);
        let edit = decoded.ok_or_else(|| refused("the record is no edit".to_owned()))?;
        let (note, base) = (edit.note.clone(), edit.base);
        replayed
            .take(edit)
            .map_err(|what| refused(format!("edit {number}: {what}")))?;
        if base || !note.is_empty() {
            owner.committed(&note, base)?;
        }
    }
    if replayed.edits < root.edits.max(1) {
        let offset = fault
            .as_ref()
            .map_or(GEOMETRY.first_offset, |fault| fault.0);
        let what = format!(
            "the manifest ends with edit {}; the superblock knows of {}",
            replayed.edits, root.edits
        );
        return Err(Error::corruption(path, offset, what));
    }
    Ok(replayed)
}

fn check_disjoint(version: &Version, path: &std::path::Path) -> Result<()> {
    match version.overlaps().next() {
        Some((what, _)) => Err(Error::corruption(path, 0, what)),
        None => Ok(()),
    }
}
