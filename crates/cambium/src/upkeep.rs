//! What keeps a store in shape while it is open: compaction, checks, backups,
//! statistics and named snapshots.

use std::io::Write;
use std::path::Path;

use cambium_api::{
    CheckReport, CompactOptions, CompactReport, ProgressSink, Result, SequenceNumber, Statistics,
};

use crate::store::Store;

impl Store {
    /// Rewrites what is live and gives space back; reads and writes go on.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// # for age in 0..10 { store.put("oak", format!("{age}"))?; }
    /// let report = store.compact(&cambium::CompactOptions::default(), &())?;
    /// assert!(report.total_seconds >= 0.0);
    /// assert_eq!(store.get("oak")?.as_deref(), Some(&b"9"[..]));
    /// # store.close()
    /// # }
    /// ```
    pub fn compact(
        &self,
        options: &CompactOptions,
        progress: &dyn ProgressSink,
    ) -> Result<CompactReport> {
        self.engine().compact(options, progress)
    }

    /// Asks a running compaction to stop; it answers `Cancelled`. Does nothing where
    /// none runs.
    pub fn cancel(&self) {
        self.engine().cancel();
    }

    /// Reads and verifies everything this open store holds.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// assert!(store.check(&())?.is_sound());
    /// # store.close()
    /// # }
    /// ```
    pub fn check(&self, progress: &dyn ProgressSink) -> Result<CheckReport> {
        self.engine().check(progress)
    }

    /// Writes the store's structure as text for people.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// store.put("oak", "Quercus")?;
    /// let mut text = Vec::new();
    /// store.dump(&mut text)?;
    /// assert!(!text.is_empty());
    /// # store.close()
    /// # }
    /// ```
    pub fn dump(&self, to: &mut dyn Write) -> Result<()> {
        self.engine().dump(to)
    }

    /// Takes the newest moment of a store that was opened for reading alone beside a process
    /// that writes ([`Options::open_read_only`](crate::Options::open_read_only)). Snapshots and
    /// cursors keep their moments. Every other store shows its newest state already.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// let writer = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// let reader = cambium::Options::new().open_read_only(folder.path())?;
    /// writer.put("oak", "Quercus")?;
    /// assert_eq!(reader.get("oak")?, None);
    /// reader.refresh()?;
    /// assert!(reader.get("oak")?.is_some());
    /// # reader.close()?;
    /// # writer.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As of opening; the store then keeps the moment that it has.
    pub fn refresh(&self) -> Result<()> {
        self.engine().refresh()
    }

    /// Counters, sizes and amplification.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// store.put("oak", "Quercus")?;
    /// assert_eq!(store.stats()?.number("entries"), Some(1));
    /// # store.close()
    /// # }
    /// ```
    pub fn stats(&self) -> Result<Statistics> {
        self.engine().stats()
    }

    /// Copies the state now, all namespaces and named snapshots, into
    /// `destination`, a folder outside of the store that is empty or not there,
    /// durable when it returns; reads and writes go on. On the same file system the
    /// engine shares files or blocks with the copy where it can, so that this takes no
    /// longer for a larger store (`docs/backup.md`); elsewhere it copies all entries, and
    /// the copy numbers its writes itself. A comparator's name ([`COMPARATOR_NAME`](crate::COMPARATOR_NAME))
    /// goes with it.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let copy = folder.path().join("copy");
    /// # let store = cambium::create(folder.path().join("store"), "forest", &cambium::Options::new())?;
    /// store.put("oak", "Quercus")?;
    /// store.backup(&copy, &())?;
    /// assert!(cambium::open(&copy)?.get("oak")?.is_some());
    /// # store.close()
    /// # }
    /// ```
    pub fn backup(&self, destination: impl AsRef<Path>, progress: &dyn ProgressSink) -> Result<()> {
        self.refuse_inside(destination.as_ref())?;
        self.engine().backup(destination.as_ref(), progress)?;
        Ok(())
    }

    /// Keeps the state now under a name, through crashes and compaction, where
    /// the engine can ([`named_snapshots`](crate::Capabilities::named_snapshots)).
    ///
    /// # Errors
    /// `AlreadyExists` for a name in use, `Unsupported`, and those of a write.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// store.put("oak", "young")?;
    /// store.create_named_snapshot("monday")?;
    /// store.put("oak", "felled")?;
    /// store.rollback("monday")?;
    /// assert_eq!(store.get("oak")?.as_deref(), Some(&b"young"[..]));
    ///
    /// assert_eq!(store.list_named_snapshots()?[0].0, "monday");
    /// store.drop_named_snapshot("monday")?;
    /// # store.close()
    /// # }
    /// ```
    pub fn create_named_snapshot(&self, name: &str) -> Result<()> {
        self.engine().create_named_snapshot(name)
    }

    /// Names of kept states, with the last write each sees.
    pub fn list_named_snapshots(&self) -> Result<Vec<(String, SequenceNumber)>> {
        self.engine().list_named_snapshots()
    }

    /// A kept state to read, as a snapshot is read. It stays readable when its name is
    /// dropped, until the answer is.
    ///
    /// # Errors
    /// `NotFound`, `Unsupported`.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "wisckey", &cambium::Options::new())?;
    /// store.put("oak", "young")?;
    /// store.create_named_snapshot("monday")?;
    /// store.put("oak", "felled")?;
    /// let monday = store.named_snapshot("monday")?;
    /// assert_eq!(monday.get("oak")?.as_deref(), Some(&b"young"[..]));
    /// # drop(monday);
    /// # store.close()
    /// # }
    /// ```
    pub fn named_snapshot(&self, name: &str) -> Result<crate::Snapshot> {
        let snapshot = self.engine().named_snapshot(name)?;
        Ok(crate::Snapshot::new(snapshot, &self.open))
    }

    /// Lets a kept state go.
    ///
    /// # Errors
    /// `NotFound`, `Unsupported`, and those of a write.
    pub fn drop_named_snapshot(&self, name: &str) -> Result<()> {
        self.engine().drop_named_snapshot(name)
    }

    /// Brings the store back to a kept state; see [`Store::create_named_snapshot`].
    /// Snapshots and iterators that are open go on seeing what they saw.
    ///
    /// # Errors
    /// `NotFound`, `Unsupported`, and those of a write.
    pub fn rollback(&self, name: &str) -> Result<()> {
        self.engine().rollback(name)
    }
}
