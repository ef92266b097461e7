//! Making a store of a backup, and verifying all that is kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{
    ChangeBatch, CheckReport, Durability, Engine, Expiry, Finding, FindingKind, Progress,
    ProgressSink, Special, WriteBatch,
};
use cambium_base::{Error, Result};
use cambium_io::{DirectoryEntry, FileLock, FileSystem, LockMode};
use cambium_storage::creation::clean;

use crate::archive::{ArchiveReader, Header};
use crate::place::{Backup, BackupKind, Place, parent_of, remove, remove_folder};

/// Bytes that are written at once.
const WRITTEN_BYTES: u64 = 4 << 20;
/// Ends the name of the folder in which a store is restored.
const UNFINISHED: &str = ".restoring";
/// The lock in that folder. A folder with it belongs to a restore.
const LOCK_NAME: &str = "RESTORING";

/// Opens and verifies stores: the caller has the list of engines.
pub trait Stores {
    /// Opens a store for reading and writing.
    ///
    /// # Errors
    /// Those of opening.
    fn open(&self, path: &Path) -> Result<Arc<dyn Engine>>;

    /// Opens a store for reading alone.
    ///
    /// # Errors
    /// Those of opening.
    fn open_read_only(&self, path: &Path) -> Result<Arc<dyn Engine>>;

    /// Verifies a store that nobody has open.
    ///
    /// # Errors
    /// Those of a check.
    fn check(&self, path: &Path) -> Result<CheckReport>;
}

impl Place {
    /// Makes a store in `target`, which is empty or not there, of a backup: of the newest,
    /// or the one of a number. Durable when it returns. The store is made in a folder
    /// `TARGET.restoring` and renamed when it is whole; a restore that was cut off leaves that
    /// folder, which the next one removes, and no store in `target`.
    ///
    /// # Errors
    /// `NotFound` for a number that is not kept, `AlreadyExists` where something is in the
    /// way, `Locked` during another restore to `target`, `Corruption` of the backup, those of
    /// the file system.
    pub fn restore(
        &self,
        stores: &dyn Stores,
        target: &Path,
        at: Option<u32>,
        progress: &dyn ProgressSink,
    ) -> Result<Backup> {
        let _held = self.lock(LockMode::Shared)?;
        let chain = self.chain_of(at)?;
        let files = self.files();
        if clean(target).starts_with(clean(&self.folder)) {
            return Err(Error::InvalidArgument(format!(
                "restore to {}: that is inside the folder of backups; expected a folder elsewhere",
                target.display()
            )));
        }
        refuse_what_is_there(files, target)?;
        let unfinished = Unfinished::begin(files, target)?;
        let store = unfinished.folder.join("store");
        let ended = self
            .fill(stores, &store, &chain, progress)
            .and_then(|()| publish(files, &store, target));
        let removed = unfinished.remove(files);
        ended.and(removed)?;
        chain
            .into_iter()
            .next_back()
            .ok_or_else(|| self.nothing(at))
    }

    fn fill(
        &self,
        stores: &dyn Stores,
        folder: &Path,
        chain: &[Backup],
        progress: &dyn ProgressSink,
    ) -> Result<()> {
        let Some((full, archives)) = chain.split_first() else {
            return Err(self.nothing(None));
        };
        let source = stores.open_read_only(&full.path)?;
        // A copy may share files of which opening it reads little.
        let report = source.check(progress)?;
        let mut findings = report.findings.into_iter();
        if let Some(damage) = findings.find(|found| found.kind == FindingKind::Damage) {
            let number = full.number;
            let what = format!(
                "{}; full backup {number} cannot be restored, nor can the archives that follow it; `check` verifies the other full backups",
                damage.what
            );
            return Err(Error::corruption(damage.file, damage.offset, what));
        }
        source.backup(folder, progress)?;
        source.close()?;
        if archives.is_empty() {
            return Ok(());
        }
        let store = stores.open(folder)?;
        let mut writes = Writes {
            store: &*store,
            batch: WriteBatch::new(),
            done: 0,
            progress,
        };
        for backup in archives {
            let mut archive = self.archive(backup)?;
            while let Some(batch) = archive.next()? {
                writes.add(batch)?;
            }
        }
        writes.write()?;
        store.sync()?;
        store.close()
    }

    /// The full backup, and the archives behind it, that a backup consists of.
    fn chain_of(&self, at: Option<u32>) -> Result<Vec<Backup>> {
        let mut backups = self.list()?;
        if let Some(number) = at {
            backups.retain(|backup| backup.number <= number);
        }
        let last = backups
            .last()
            .filter(|last| at.is_none_or(|at| at == last.number));
        let Some(last) = last else {
            return Err(self.nothing(at));
        };
        if let Some(Finding {
            file, offset, what, ..
        }) = &last.damage
        {
            // An older state is restored only where the caller names it.
            let sound = backups.iter().rfind(|backup| backup.damage.is_none());
            let instead = match sound {
                Some(sound) => format!(
                    "backup {} cannot be restored, the last one before it that can is {}",
                    last.number, sound.number
                ),
                None => format!(
                    "backup {} cannot be restored, and none before it can",
                    last.number
                ),
            };
            return Err(Error::corruption(
                file,
                *offset,
                format!("{what}; {instead}"),
            ));
        }
        let is_full = |backup: &Backup| backup.kind == BackupKind::Full;
        let begin = backups.iter().rposition(is_full).unwrap_or(0);
        Ok(backups.split_off(begin))
    }

    fn nothing(&self, at: Option<u32>) -> Error {
        let (kind, name) = match at {
            Some(number) => ("backup in this folder", number.to_string()),
            None => ("backup in a folder", self.folder.display().to_string()),
        };
        Error::NotFound { kind, name }
    }

    fn archive(&self, backup: &Backup) -> Result<ArchiveReader> {
        let header = Header {
            place: self.id,
            number: backup.number,
            after: backup.after,
        };
        ArchiveReader::open(self.files(), &backup.path, &header)
    }

    /// Reads and verifies everything that is kept. Damage is no error: it stands in the
    /// report.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn verify(&self, stores: &dyn Stores, progress: &dyn ProgressSink) -> Result<CheckReport> {
        let _held = self.lock(LockMode::Shared)?;
        let mut report = CheckReport::default();
        self.report_damage(&mut report)?;
        let backups = self.list()?;
        for (done, backup) in backups.iter().enumerate() {
            progress.report(Progress {
                phase: "check",
                done: done as u64,
                total: Some(backups.len() as u64),
            });
            // Its files may be missing, and nothing in them can be restored.
            if let Some(damage) = &backup.damage {
                report.findings.push(damage.clone());
                continue;
            }
            let checked = match backup.kind {
                BackupKind::Full => stores.check(&backup.path),
                BackupKind::Changes => self.verify_archive(backup),
            };
            match checked {
                Ok(mut found) => {
                    report.findings.append(&mut found.findings);
                    report.entries += found.entries;
                    report.bytes += found.bytes;
                    report.files += found.files;
                }
                Err(error) => report.take(error)?,
            }
        }
        Ok(report)
    }

    fn verify_archive(&self, backup: &Backup) -> Result<CheckReport> {
        let mut report = CheckReport {
            bytes: backup.bytes,
            files: 1,
            ..CheckReport::default()
        };
        let mut archive = self.archive(backup)?;
        let mut through = backup.after;
        while let Some(batch) = archive.next()? {
            report.entries += batch.changes.len() as u64;
            through = batch.last;
        }
        match through == backup.through {
            true => Ok(report),
            false => Err(Error::corruption(
                &backup.path,
                0,
                "the archive ends elsewhere than its name says",
            )),
        }
    }
}

/// Refuses a target that holds something.
fn refuse_what_is_there(files: &dyn FileSystem, target: &Path) -> Result<()> {
    let is_free = match files.metadata(target)? {
        None => true,
        Some(_) => files.list(target).is_ok_and(|entries| entries.is_empty()),
    };
    match is_free {
        true => Ok(()),
        false => Err(Error::AlreadyExists {
            path: target.to_path_buf(),
            what: "a restored store needs a folder that is empty or not there".to_string(),
        }),
    }
}

/// Gives a whole store its name, durably.
fn publish(files: &dyn FileSystem, store: &Path, target: &Path) -> Result<()> {
    if files.metadata(target)?.is_some() {
        files.remove_directory(target)?;
    }
    files.rename(store, target)?;
    files.sync_directory(parent_of(target))
}

/// The folder in which a store is restored.
struct Unfinished {
    folder: PathBuf,
    held: Box<dyn FileLock>,
}

impl Unfinished {
    /// Makes the folder, or takes the one that an interrupted restore left and empties it.
    fn begin(files: &dyn FileSystem, target: &Path) -> Result<Unfinished> {
        // Without a slash at the end.
        let mut name = target.components().collect::<PathBuf>().into_os_string();
        name.push(UNFINISHED);
        let folder = PathBuf::from(name);
        if files.metadata(&folder)?.is_none() {
            files.create_directory(&folder)?;
        }
        let entries = files.list(&folder)?;
        let is_lock = |entry: &DirectoryEntry| entry.name == Path::new(LOCK_NAME);
        if !entries.is_empty() && !entries.iter().any(is_lock) {
            return Err(Error::AlreadyExists {
                path: folder,
                what: "a restore needs this name, and no restore made this; move or remove it"
                    .to_string(),
            });
        }
        let held = files.lock(&folder.join(LOCK_NAME), LockMode::Exclusive)?;
        for entry in entries.iter().filter(|entry| !is_lock(entry)) {
            remove(files, &folder, entry)?;
        }
        Ok(Unfinished { folder, held })
    }

    fn remove(self, files: &dyn FileSystem) -> Result<()> {
        // The lock goes last: what is left without it belongs to nobody.
        for entry in files.list(&self.folder)? {
            if entry.name != Path::new(LOCK_NAME) {
                remove(files, &self.folder, &entry)?;
            }
        }
        drop(self.held);
        remove_folder(files, &self.folder)
    }
}

/// Writes the batches of archives, several at once: until all are there, the store is none.
struct Writes<'a> {
    store: &'a dyn Engine,
    batch: WriteBatch,
    done: u64,
    progress: &'a dyn ProgressSink,
}

impl Writes<'_> {
    fn add(&mut self, batch: ChangeBatch) -> Result<()> {
        for change in batch.changes {
            if let Some(name) = &change.namespace {
                self.store.namespace(name)?;
            }
            self.batch.push(change.namespace, change.operation);
            if let Some(expires) = change.expires {
                self.batch
                    .make_special(Special::Expires(Expiry::At(expires)));
            }
        }
        self.done += 1;
        match self.batch.bytes() > WRITTEN_BYTES {
            true => self.write(),
            false => Ok(()),
        }
    }

    fn write(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.store.write(batch, Durability::Buffered)?;
        self.progress.report(Progress {
            phase: "restore",
            done: self.done,
            total: None,
        });
        Ok(())
    }
}
