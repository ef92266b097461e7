//! Incremental backups of stores, and stores restored from them.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{CheckReport, Engine, Error, OptionValues, ProgressSink, Result};
use cambium_backup::{Backup, Place, Stores, Taken};
use cambium_storage::marker::read_marker;

use crate::options::Options;
use crate::store::Store;

impl Store {
    /// Backs this store up in `place`, a folder of backups outside of it, which is made if it
    /// is not there. The first time this is a full copy, later what was written since the
    /// last backup there; where the store's log no longer has all of that, where the last backup
    /// is damaged, and for an engine without [`changes`](crate::Capabilities::changes), it is a
    /// full copy again. Durable when it returns; reads and writes go on. [`Options::restore`] makes a store of any
    /// backup that is kept.
    ///
    /// A consumer named after the place keeps the log that the next backup needs, up to the
    /// option `history_bytes`.
    ///
    /// # Errors
    /// `AlreadyExists` where the folder holds something else, `Locked` while another process
    /// takes a backup there, those of a synced write, and what the disk says.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let (place, restored) = (folder.path().join("place"), folder.path().join("restored"));
    /// # let store = cambium::create(folder.path().join("store"), "forest", &cambium::Options::new())?;
    /// store.put("oak", "Quercus")?;
    /// let monday = store.backup_into(&place, &())?.backup;
    /// store.put("elm", "Ulmus")?;
    /// store.backup_into(&place, &())?;
    ///
    /// let options = cambium::Options::new();
    /// assert_eq!(options.backups(&place)?.len(), 2);
    /// options.restore(&place, &restored, Some(monday.number))?;
    /// assert_eq!(cambium::open(&restored)?.iterate()?.count(), 1);
    /// # store.close()
    /// # }
    /// ```
    pub fn backup_into(
        &self,
        place: impl AsRef<Path>,
        progress: &dyn ProgressSink,
    ) -> Result<Taken> {
        let place = place.as_ref();
        self.refuse_inside(place)?;
        let root = self.root();
        let environment = &root.environment;
        let marker = read_marker(&*environment.file_system, &root.path)?;
        let place = Place::open_or_create(environment, place, marker.store)?;
        place.take(&*root.engine, progress)
    }

    /// Refuses a folder within the store's own for what is to lie elsewhere.
    pub(crate) fn refuse_inside(&self, folder: &Path) -> Result<()> {
        match folder.starts_with(self.path()) {
            false => Ok(()),
            true => Err(Error::InvalidArgument(format!(
                "backup into {}: that is inside the store; expected a folder elsewhere",
                folder.display()
            ))),
        }
    }
}

impl Options {
    /// The backups of a place, oldest first; see [`Store::backup_into`]. One that cannot be
    /// restored has its [`damage`](Backup::damage).
    ///
    /// # Errors
    /// `NotFound` where the folder holds no backups, and what the disk says.
    pub fn backups(&self, place: impl AsRef<Path>) -> Result<Vec<Backup>> {
        self.place(place.as_ref())?.list()
    }

    /// Makes a store in `target`, a folder that is empty or not there, of the newest backup
    /// of a place, or of the one with a number. Durable when it returns. What it is made of is
    /// read and verified first. On the file system of the place the store may share files with
    /// it, as after [`Store::backup`].
    ///
    /// # Errors
    /// `NotFound` for a number that is not kept, `AlreadyExists` where something is in the
    /// way, `Corruption` of the backup, and what the disk says.
    pub fn restore(
        &self,
        place: impl AsRef<Path>,
        target: impl AsRef<Path>,
        at: Option<u32>,
    ) -> Result<Backup> {
        let place = self.place(place.as_ref())?;
        place.restore(self, target.as_ref(), at, &*self.progress)
    }

    /// Removes the oldest backups of a place: those before the newest `chains` full ones. Answers
    /// what went.
    ///
    /// # Errors
    /// `InvalidArgument` where `chains` is 0; as of [`Options::backups`]; `Locked` while another process takes a backup there.
    pub fn keep_backups(&self, place: impl AsRef<Path>, chains: usize) -> Result<Vec<Backup>> {
        self.place(place.as_ref())?.keep(chains)
    }

    /// Verifies all backups of a place.
    pub(crate) fn check_backups(&self, place: &Path) -> Result<CheckReport> {
        self.place(place)?.verify(self, &*self.progress)
    }

    fn place(&self, folder: &Path) -> Result<Place> {
        Place::open(&self.environment, folder)
    }
}

impl Stores for Options {
    fn open(&self, path: &Path) -> Result<Arc<dyn Engine>> {
        let (kind, _) = self.kind_of(path)?;
        kind.open(&self.environment, path, &self.values, &*self.progress)
    }

    fn open_read_only(&self, path: &Path) -> Result<Arc<dyn Engine>> {
        let (kind, _) = self.kind_of(path)?;
        let options = OptionValues::default();
        kind.open_read_only(&self.environment, path, &options, &*self.progress)
    }

    fn check(&self, path: &Path) -> Result<CheckReport> {
        Options::check(self, path)
    }
}
