//! Taking a backup: what was written since the last one, or all.
//!
//! A consumer of the store's changes stands where the last backup ends. It moves after the
//! backup is durable, so a process that dies in between leaves it where that backup begins.
//! Anywhere else the store is not the one that the last backup was made of, but an older
//! copy of it, say: then its changes do not fit, and a full backup is taken.

use cambium_api::{ChangeFeed, ChangeOptions, Engine, Progress, ProgressSink};
use cambium_base::{Error, Result, SequenceNumber};
use cambium_io::LockMode;

use crate::archive::{ArchiveWriter, Header};
use crate::place::{Backup, BackupKind, Place};

/// Batches between two reports of progress.
const REPORTED: u64 = 1024;

/// What [`Place::take`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The newest backup of the place.
    pub backup: Backup,
    /// False if nothing was written since the one before, so that it is still the newest.
    pub is_new: bool,
}

impl Place {
    /// Backs an open store up: an archive of what was written since the last backup, where
    /// there is one and the store's log still has all that; else a full backup. What was
    /// written before the call is in it; durable when this returns.
    ///
    /// # Errors
    /// `Locked` while another process takes a backup here; those of a synced write to the
    /// store, of reading it, and of the file system. The place has what it had before.
    pub fn take(&self, engine: &dyn Engine, progress: &dyn ProgressSink) -> Result<Taken> {
        let _held = self.lock(LockMode::Exclusive)?;
        let backups = self.list()?;
        self.remove_leftovers(&backups)?;
        if let Some(last) = backups.last() {
            if let Some(taken) = self.take_changes(engine, last, progress)? {
                return Ok(taken);
            }
        }
        let number = backups.last().map_or(1, |last| last.number + 1);
        self.take_full(engine, number, progress)
    }

    /// `None` where the log does not have what follows the last backup.
    fn take_changes(
        &self,
        engine: &dyn Engine,
        last: &Backup,
        progress: &dyn ProgressSink,
    ) -> Result<Option<Taken>> {
        if !engine.capabilities().changes {
            return Ok(None);
        }
        let consumer = self.consumer();
        let consumers = engine.list_consumers()?;
        let at = consumers.iter().find(|(name, _)| *name == consumer);
        let fits = at.is_some_and(|(_, at)| (last.after..=last.through).contains(at));
        if !fits {
            return Ok(None);
        }
        let until = engine.snapshot()?.sequence();
        engine.sync()?;
        let options = ChangeOptions { synced_only: true };
        let written = engine
            .changes(last.through, options)
            .and_then(|mut feed| self.write_archive(&mut *feed, last, until, progress));
        let backup = match written {
            Ok(Some(backup)) => backup,
            Ok(None) => {
                let backup = last.clone();
                return Ok(Some(Taken {
                    backup,
                    is_new: false,
                }));
            }
            // From the future: the store lost what the last backup has.
            Err(Error::HistoryLost { .. } | Error::InvalidArgument(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.move_consumer(engine, backup.through)?;
        Ok(Some(Taken {
            backup,
            is_new: true,
        }))
    }

    /// Writes the batches through `until`; `None` where there are none.
    fn write_archive(
        &self,
        feed: &mut dyn ChangeFeed,
        last: &Backup,
        until: SequenceNumber,
        progress: &dyn ProgressSink,
    ) -> Result<Option<Backup>> {
        let files = self.files();
        let draft = self.archive_draft();
        let header = Header {
            place: self.id,
            number: last.number + 1,
            after: last.through,
        };
        let mut archive = ArchiveWriter::create(files, &draft, &header)?;
        let mut done = 0;
        while let Some(batch) = feed.next()? {
            if batch.first > until {
                break;
            }
            archive.add(&batch)?;
            done += 1;
            if done % REPORTED == 0 {
                progress.report(Progress {
                    phase: "backup",
                    done,
                    total: None,
                });
            }
        }
        if archive.is_empty() {
            drop(archive);
            files.remove(&draft)?;
            return Ok(None);
        }
        let (through, taken) = (archive.through(), self.now());
        let bytes = archive.finish(taken)?;
        let path = self.archive_path(header.number, header.after, through);
        files.rename(&draft, &path)?;
        files.sync_directory(&self.folder)?;
        Ok(Some(Backup {
            number: header.number,
            kind: BackupKind::Changes,
            after: header.after,
            through,
            taken,
            bytes,
            path,
        }))
    }

    fn take_full(
        &self,
        engine: &dyn Engine,
        number: u32,
        progress: &dyn ProgressSink,
    ) -> Result<Taken> {
        // Pins history from before the copy on.
        let after = engine.snapshot()?.sequence();
        self.move_consumer(engine, after)?;
        let taken = self.now();
        let through = engine.backup(&self.full_folder(number), progress)?;
        self.describe_full(number, (after, through), taken)?;
        self.move_consumer(engine, through)?;
        let backups = self.list()?;
        let backup = backups.into_iter().next_back();
        let backup = backup.ok_or_else(|| {
            let path = self.folder.clone();
            Error::corruption(path, 0, "the backup that was taken just now is gone")
        })?;
        Ok(Taken {
            backup,
            is_new: true,
        })
    }

    fn move_consumer(&self, engine: &dyn Engine, to: SequenceNumber) -> Result<()> {
        match engine.capabilities().changes {
            true => engine.move_consumer(&self.consumer(), Some(to)),
            false => Ok(()),
        }
    }
}
