//! The handle of an open store.
//!
//! A [`Store`] is a counted reference: clone it into every thread that needs
//! it. The store closes when [`Store::close`] is called, or when the last
//! clone, iterator and snapshot is dropped. An error of a close that happens
//! while dropping goes nowhere, so a program that wants to know calls `close`.

use cambium_io::Environment;
use cambium_io::sync::atomic::AtomicUsize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{
    Capabilities, Completion, Durability, Engine, IterationOrder, KeyRange, Precondition, Request,
    Result, ResumeToken, SequenceNumber, Value, WriteBatch, limits,
};

use crate::entries::Entries;
use crate::snapshot::Snapshot;

/// What the clones of a store, its iterators and its snapshots share.
pub(crate) struct OpenStore {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) path: PathBuf,
    /// That of the engine; `None` is the default one.
    pub(crate) namespace: Option<Arc<str>>,
    /// Namespaces do not close what they are part of: they keep it open.
    pub(crate) parent: Option<Arc<OpenStore>>,
    /// Transactions that conflicted often, of all namespaces.
    pub(crate) starving: Arc<AtomicUsize>,
    /// Where readers of changes wait, and backups are written.
    pub(crate) environment: Environment,
}

impl OpenStore {
    /// True of handles of one store, in whichever of its namespaces.
    pub(crate) fn is_part_of(&self, other: &OpenStore) -> bool {
        Arc::ptr_eq(&self.starving, &other.starving)
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        if self.parent.is_none() {
            // Nobody is left to be told; whoever wants to know calls `close`.
            // What a failed close leaves, the next open recovers.
            _ = self.engine.close();
        }
    }
}

impl fmt::Debug for OpenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenStore({})", self.path.display())
    }
}

/// An open store. `Send`, `Sync` and cheap to clone; every call may be made
/// from any number of threads.
///
/// ```
/// use cambium::prelude::*;
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// let store = cambium::create(folder.path(), "forest", &Options::new())?;
/// std::thread::scope(|scope| {
///     for tree in ["oak", "elm"] {
///         let store = store.clone();
///         scope.spawn(move || store.put(tree, "leaf"));
///     }
/// });
/// assert_eq!(store.iterate()?.count(), 2);
/// # store.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Store {
    pub(crate) open: Arc<OpenStore>,
    /// Of writes through this handle.
    pub(crate) durability: Durability,
}

impl Store {
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        path: &Path,
        durability: Durability,
        environment: &Environment,
    ) -> Self {
        Store {
            open: Arc::new(OpenStore {
                engine,
                path: path.to_path_buf(),
                namespace: None,
                parent: None,
                starving: Arc::default(),
                environment: environment.clone(),
            }),
            durability,
        }
    }

    /// The same store by a handle whose writes are as safe as `durability` says when they
    /// return. [`Options::durability`](crate::Options::durability) is what a store is
    /// opened with. Costs a clone of the handle.
    ///
    /// ```
    /// use cambium::prelude::*;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &Options::new())?;
    /// store.put("oak", "with the operating system: survives this process")?;
    /// let synced = store.with_durability(Durability::Synced);
    /// synced.put("elm", "on the device: survives a power cut")?;
    /// # store.close()
    /// # }
    /// ```
    #[must_use]
    pub fn with_durability(&self, durability: Durability) -> Store {
        Store {
            open: self.open.clone(),
            durability,
        }
    }

    /// How safe writes through this handle are when they return.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// The folder it was opened by.
    pub fn path(&self) -> &Path {
        &self.open.path
    }

    /// The engine itself, for what this handle has no call for.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.open.engine
    }

    /// What this store can do beyond the common part.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// assert!(store.capabilities().ordered && store.capabilities().namespaces);
    /// # store.close()
    /// # }
    /// ```
    pub fn capabilities(&self) -> Capabilities {
        self.open.engine.capabilities()
    }

    /// The value of a key, or `None`.
    ///
    /// # Errors
    /// `Corruption` where the bytes on the device are not what was written,
    /// `InvalidArgument` for a key the store cannot have, `Closed`, `Io`.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// store.put("oak", "Quercus")?;
    /// assert_eq!(store.get("oak")?.as_deref(), Some(&b"Quercus"[..]));
    /// assert_eq!(store.get("elm")?, None);
    /// # store.close()
    /// # }
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        limits::check_key(key)?;
        self.open.engine.get(key)
    }

    /// Puts the value of a key into `buffer`, replacing what was there; false,
    /// and an empty buffer, if there is none. Errors as of [`Store::get`].
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// # store.put("oak", "Quercus")?;
    /// let mut buffer = Vec::new();
    /// assert!(store.get_into("oak", &mut buffer)? && buffer == b"Quercus");
    /// # store.close()
    /// # }
    /// ```
    pub fn get_into(&self, key: impl AsRef<[u8]>, buffer: &mut Vec<u8>) -> Result<bool> {
        let key = key.as_ref();
        limits::check_key(key)?;
        self.open.engine.get_into(key, buffer)
    }

    /// The values of several keys as of one moment, in the order of the keys;
    /// their reads go to the device together. Errors as of [`Store::get`].
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// # store.put("oak", "Quercus")?;
    /// let values = store.multi_get(&[b"elm", b"oak"])?;
    /// assert!(values[0].is_none() && values[1].is_some());
    /// # store.close()
    /// # }
    /// ```
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        keys.iter().try_for_each(|key| limits::check_key(key))?;
        self.open.engine.multi_get(keys)
    }

    /// Gives a key a value, with this handle's [durability](Store::with_durability).
    ///
    /// # Errors
    /// `LimitExceeded` for a key or value that is too long, `InvalidArgument`
    /// for a key the store cannot have, `NoSpace` (nothing was lost),
    /// `Poisoned` after an earlier failure, `Closed`, `Io`.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// let first = store.put("oak", "Quercus")?;
    /// assert!(store.put("elm", "Ulmus")? > first);
    /// # store.close()
    /// # }
    /// ```
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.open.engine.put(key, value, self.durability)
    }

    /// Takes a key away; no error if it is not there. Errors as of
    /// [`Store::put`].
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// # store.put("oak", "Quercus")?;
    /// store.delete("oak")?;
    /// assert_eq!(store.get("oak")?, None);
    /// # store.close()
    /// # }
    /// ```
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        self.open.engine.delete(key.as_ref(), self.durability)
    }

    /// Deletes all keys of a range, atomically. On `forest` and `wisckey` this is one record of
    /// the log, and its time does not grow with what the range holds; the space comes back in
    /// the background. Errors as of [`Store::put`]; `Unsupported` where the engine keeps no
    /// order.
    ///
    /// ```
    /// use cambium::prelude::*;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = Options::new().set("keys", "integer").create(folder.path(), "zdb")?;
    /// # for key in 0u64..10 { store.put(key.to_be_bytes(), "")?; }
    /// store.delete_range(2u64.to_be_bytes()..5u64.to_be_bytes())?;
    /// assert_eq!(store.iterate()?.count(), 7);
    /// # store.close()
    /// # }
    /// ```
    pub fn delete_range(&self, range: impl Into<KeyRange>) -> Result<SequenceNumber> {
        let engine = &self.open.engine;
        engine.delete_range(range.into(), self.durability)
    }

    /// Writes a batch, whole or not at all. Errors as of [`Store::put`].
    ///
    /// ```
    /// use cambium::prelude::*;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &Options::new())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"from", b"90").put(b"to", b"110");
    /// store.write(batch)?;
    /// # assert_eq!(store.iterate()?.count(), 2);
    /// # store.close()
    /// # }
    /// ```
    pub fn write(&self, batch: WriteBatch) -> Result<SequenceNumber> {
        self.open.engine.write(batch, self.durability)
    }

    /// Writes a batch if all preconditions hold at that moment, atomically
    /// against every other write.
    ///
    /// # Errors
    /// `PreconditionFailed` with the first that did not hold, nothing
    /// written; otherwise as of [`Store::put`].
    ///
    /// ```
    /// use cambium::prelude::*;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &Options::new())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"owner", b"me");
    /// let free = [Precondition::Absent { key: b"owner".to_vec() }];
    /// store.write_if(&free, batch.clone())?;
    /// assert!(store.write_if(&free, batch).is_err());
    /// # store.close()
    /// # }
    /// ```
    pub fn write_if(
        &self,
        preconditions: &[Precondition],
        batch: WriteBatch,
    ) -> Result<SequenceNumber> {
        let engine = &self.open.engine;
        engine.write_if(preconditions, batch, self.durability)
    }

    /// Entries of a range in key order, as of now, from both ends: `..`, `"a".."b"`,
    /// `"a"..="b"`, [`KeyRange::prefix`].
    ///
    /// # Errors
    /// `Unsupported` where the engine keeps no order: see
    /// [`Store::capabilities`].
    ///
    /// ```
    /// use cambium::prelude::*;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = Options::new().set("keys", "integer").create(folder.path(), "zdb")?;
    /// # for key in 0u64..10 { store.put(key.to_be_bytes(), "")?; }
    /// assert_eq!(store.scan(7u64.to_be_bytes()..)?.count(), 3);
    /// let last = store.scan(..)?.next_back();
    /// assert_eq!(last.transpose()?.unwrap().key, 9u64.to_be_bytes());
    /// # store.close()
    /// # }
    /// ```
    pub fn scan(&self, range: impl Into<KeyRange>) -> Result<Entries> {
        let range = range.into();
        let front = self
            .open
            .engine
            .scan(&range, cambium_api::Direction::Forward);
        Entries::scan(front, range, &self.open)
    }

    /// Every entry as of now, in the order that is cheapest for the engine.
    /// Works on every engine.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// # store.put("oak", "Quercus")?;
    /// for entry in store.iterate()? {
    ///     assert_eq!(entry?.key, "oak");
    /// }
    /// # store.close()
    /// # }
    /// ```
    pub fn iterate(&self) -> Result<Entries> {
        self.iterate_with(IterationOrder::Any, None)
    }

    /// Every entry in an order, from the start or from where an earlier pass
    /// left off.
    ///
    /// # Errors
    /// `Unsupported` for an order the engine does not keep, `InvalidArgument`
    /// for a token it did not make.
    ///
    /// ```
    /// use cambium::prelude::*;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = Options::new().set("keys", "integer").create(folder.path(), "zdb")?;
    /// # for key in 0u64..10 { store.put(key.to_be_bytes(), "")?; }
    /// let mut first = store.iterate()?;
    /// assert_eq!(first.by_ref().take(4).count(), 4);
    /// let token = first.resume_token();
    /// let rest = store.iterate_with(IterationOrder::Any, token.as_ref())?;
    /// assert_eq!(rest.count(), 6);
    /// # store.close()
    /// # }
    /// ```
    pub fn iterate_with(
        &self,
        order: IterationOrder,
        resume: Option<&ResumeToken>,
    ) -> Result<Entries> {
        let cursor = self.open.engine.iterate(order, resume)?;
        Ok(Entries::pass(cursor, &self.open))
    }

    /// The state now, for as long as the answer is held; see [`Snapshot`].
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// let before = store.snapshot()?;
    /// store.put("oak", "Quercus")?;
    /// assert_eq!(before.get("oak")?, None);
    /// # store.close()
    /// # }
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot::new(self.open.engine.snapshot()?, &self.open))
    }

    /// About how many bytes on disk the entries of a range take: from a hundred entries on within
    /// a factor of 1.5 as a rule, and never more for a part than for the whole. Small ranges are
    /// counted; of large ones a few blocks of the index are read.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// # store.put("oak", vec![7; 10_000])?;
    /// assert!(store.approximate_size(..)? > 1_000);
    /// # store.close()
    /// # }
    /// ```
    pub fn approximate_size(&self, range: impl Into<KeyRange>) -> Result<u64> {
        self.open.engine.approximate_size(&range.into())
    }

    /// Raises everything written so far to `Synced`.
    ///
    /// # Errors
    /// An error of the device is final: the store takes no more writes.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// store.put("oak", "Quercus")?;
    /// store.sync()?; // from here on a power cut loses nothing
    /// # store.close()
    /// # }
    /// ```
    pub fn sync(&self) -> Result<()> {
        self.open.engine.sync()
    }

    /// Submits a request; the completion comes exactly once, on any thread,
    /// also after an error or a close, and must not block.
    ///
    /// ```
    /// use cambium::{Request, Response};
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// let (sender, answers) = std::sync::mpsc::channel();
    /// let request = Request::Get { key: b"oak".to_vec() };
    /// store.submit(request, Box::new(move |answer| _ = sender.send(answer)));
    /// let answer = answers.recv().expect("a completion comes exactly once")?;
    /// assert_eq!(answer, Response::Value(None));
    /// # store.close()
    /// # }
    /// ```
    pub fn submit(&self, request: Request, completion: Completion) {
        self.open.engine.submit(request, completion);
    }

    /// Syncs, writes clean marks and lets everything go, also for all clones,
    /// iterators and snapshots: they answer `Closed` from now on. A second
    /// close does nothing.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// store.close()?;
    /// assert!(matches!(store.get("oak"), Err(cambium::Error::Closed)));
    /// # Ok(()) }
    /// ```
    pub fn close(&self) -> Result<()> {
        self.open.engine.close()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Store({}, engine {})",
            self.open.path.display(),
            self.capabilities().engine
        )
    }
}
