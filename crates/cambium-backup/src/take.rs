//! Taking a backup: what was written since the last one, or all.
//!
//! A consumer of the store's changes stands where the last backup ends, and its name has the
//! number of that backup. Each backup makes its own consumer before it counts, and removes
//! the consumers of earlier backups after that. So a process that dies at any moment leaves
//! the last backup and its consumer. A store without that consumer is another one than the
//! last backup was made of, such as an older copy that was put back: its changes do not
//! follow that backup, and a full backup is taken.

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
    /// that one can be restored and the store's log still has all that; else a full backup. What was
    /// written before the call is in it; durable when this returns.
    ///
    /// # Errors
    /// `Locked` while another process takes a backup here; those of a synced write to the
    /// store, of reading it, and of the file system. The place has what it had before.
    pub fn take(&self, engine: &dyn Engine, progress: &dyn ProgressSink) -> Result<Taken> {
        let _held = self.lock(LockMode::Exclusive)?;
        let backups = self.list()?;
        self.remove_leftovers(&backups)?;
        let changes = match backups.last() {
            Some(last) if last.damage.is_none() => self.take_changes(engine, last, progress)?,
            _ => None,
        };
        let taken = match changes {
            Some(taken) => taken,
            None => {
                let number = backups.last().map_or(1, |last| last.number + 1);
                self.take_full(engine, number, progress)?
            }
        };
        self.name_newest(taken.backup.number)?;
        self.remove_other_consumers(engine, taken.backup.number)?;
        Ok(taken)
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
        let expected = (self.consumer(last.number), last.through);
        if !engine.list_consumers()?.contains(&expected) {
            return Ok(None);
        }
        let until = engine.snapshot()?.sequence();
        engine.sync()?;
        let options = ChangeOptions { synced_only: true };
        let written = engine
            .changes(last.through, options)
            .and_then(|mut feed| self.write_archive((engine, &mut *feed), last, until, progress));
        match written {
            Ok(Some(backup)) => Ok(Some(Taken {
                backup,
                is_new: true,
            })),
            Ok(None) => Ok(Some(Taken {
                backup: last.clone(),
                is_new: false,
            })),
            // A number that the store does not have yet: it lost what the last backup has.
            Err(Error::HistoryLost { .. } | Error::InvalidArgument(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the batches through `until`; `None` where there are none.
    fn write_archive(
        &self,
        (engine, feed): (&dyn Engine, &mut dyn ChangeFeed),
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
        engine.move_consumer(&self.consumer(header.number), Some(through))?;
        files.rename(&draft, &path)?;
        files.sync_directory(&self.folder)?;
        Ok(Some(Backup {
            number: header.number,
            kind: BackupKind::Changes,
            after: header.after,
            through,
            taken,
            bytes,
            damage: None,
            path,
        }))
    }

    fn take_full(
        &self,
        engine: &dyn Engine,
        number: u32,
        progress: &dyn ProgressSink,
    ) -> Result<Taken> {
        let move_consumer = |to| match engine.capabilities().changes {
            true => engine.move_consumer(&self.consumer(number), Some(to)),
            false => Ok(()),
        };
        // Before the copy, so that nothing that follows it is lost.
        let after = engine.snapshot()?.sequence();
        move_consumer(after)?;
        let taken = self.now();
        let through = engine.backup(&self.full_folder(number), progress)?;
        move_consumer(through)?;
        self.describe_full(number, (after, through), taken)?;
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

    /// Removes the consumers of this place but the one of a backup.
    fn remove_other_consumers(&self, engine: &dyn Engine, number: u32) -> Result<()> {
        if !engine.capabilities().changes {
            return Ok(());
        }
        let (ours, current) = (self.consumers(), self.consumer(number));
        for (name, _) in engine.list_consumers()? {
            if name.starts_with(&ours) && name != current {
                engine.move_consumer(&name, None)?;
            }
        }
        Ok(())
    }
}
