//! Following what is written to a store.
//!
//! [`Store::changes`] reads the batches that were committed after a sequence number, in
//! order, and then waits for new ones. It reads the store's own log, so nothing is written
//! twice, and writers do not wait for it. A [`Consumer`] keeps a position in the store; the
//! log behind that position stays until the consumer has acknowledged it.
//!
//! A mirror begins with a snapshot, and goes on with the changes after its number:
//!
//! ```
//! use std::collections::BTreeMap;
//! use cambium::prelude::*;
//! use cambium::Operation;
//!
//! # fn main() -> cambium::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder for the example");
//! # let store = cambium::create(folder.path(), "forest", &Options::new())?;
//! store.put("oak", "young")?;
//! let mut mirror = BTreeMap::new();
//! let snapshot = store.snapshot()?;
//! for entry in snapshot.iterate()? {
//!     let entry = entry?;
//!     mirror.insert(entry.key.to_vec(), entry.value.to_vec());
//! }
//! store.put("oak", "old")?;
//! let mut changes = store.changes(snapshot.sequence())?;
//! while let Some(batch) = changes.try_next()? {
//!     for change in batch.changes {
//!         match change.operation {
//!             Operation::Put { key, value } => _ = mirror.insert(key, value),
//!             Operation::Delete { key } => _ = mirror.remove(&key),
//!             Operation::DeleteRange { range } => mirror.retain(|key, _| !range.contains(key)),
//!         }
//!     }
//! }
//! assert_eq!(mirror[&b"oak"[..]], b"old");
//! # store.close()
//! # }
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cambium_api::{ChangeBatch, ChangeFeed, ChangeOptions, Error, Result, SequenceNumber};

use crate::store::{OpenStore, Store};

/// The first wait for a batch, and the longest one: each is twice the one before.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
const LONGEST_WAIT: Duration = Duration::from_millis(5);

/// The committed batches of a store after a sequence number, of all namespaces, in order.
///
/// In a store that was opened for reading alone, a wait refreshes the store
/// ([`Store::refresh`]), so that what another process writes is found.
///
/// As an iterator it waits for the next batch, for as long as the store is open; after an
/// error it has ended. [`Changes::try_next`] does not wait, and [`Changes::next_timeout`]
/// waits for a bounded time. It holds the store open; after [`Store::close`] it answers
/// `Closed`, also to a thread that waits.
///
/// ```
/// use cambium::prelude::*;
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// # let store = cambium::create(folder.path(), "forest", &Options::new())?;
/// let mut changes = store.changes(store.snapshot()?.sequence())?;
/// let writer = store.clone();
/// let written = std::thread::spawn(move || writer.put("oak", "Quercus"));
/// let batch = changes.next().expect("it waits until there is one")?;
/// assert_eq!(batch.changes.len(), 1);
/// # written.join().expect("a thread that puts")?;
/// # drop(changes);
/// # store.close()
/// # }
/// ```
pub struct Changes {
    feed: Box<dyn ChangeFeed>,
    position: SequenceNumber,
    failed: bool,
    /// When a waiting call last looked how far the log goes.
    looked: Duration,
    /// Dropped last: the store stays open while the feed reads.
    store: Arc<OpenStore>,
}

impl Changes {
    /// The next batch, if there is one now.
    ///
    /// # Errors
    /// `HistoryLost` where the log was given back before it was read, `Corruption` where it
    /// is damaged, `Closed`, `Io`.
    pub fn try_next(&mut self) -> Result<Option<ChangeBatch>> {
        let batch = self.feed.next()?;
        if let Some(batch) = &batch {
            self.position = batch.last;
        }
        Ok(batch)
    }

    /// The next batch, if one comes within a time. Errors as of [`Changes::try_next`].
    pub fn next_timeout(&mut self, most: Duration) -> Result<Option<ChangeBatch>> {
        if !self.feed.looks_again() {
            if let Some(batch) = self.try_next()? {
                return Ok(Some(batch));
            }
        }
        let clock = self.store.environment.clock.clone();
        let began = clock.monotonic();
        // Beside a busy writer, one look serves many batches.
        let early = SHORTEST_WAIT.saturating_sub(began.saturating_sub(self.looked));
        clock.sleep(early.min(most));
        let mut wait = SHORTEST_WAIT;
        loop {
            self.looked = clock.monotonic();
            if let Some(batch) = self.try_next()? {
                return Ok(Some(batch));
            }
            let left = most.saturating_sub(self.looked.saturating_sub(began));
            if left.is_zero() {
                return Ok(None);
            }
            clock.sleep(wait.min(left));
            self.store.engine.refresh()?;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// The number of the last entry that was read: where [`Store::changes`] goes on.
    pub fn position(&self) -> SequenceNumber {
        self.position
    }
}

impl Iterator for Changes {
    type Item = Result<ChangeBatch>;

    fn next(&mut self) -> Option<Result<ChangeBatch>> {
        if self.failed {
            return None;
        }
        let next = self.next_timeout(Duration::MAX).transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Changes(after {})", self.position)
    }
}

/// A reader of changes whose position the store keeps, through crashes. The log behind the
/// position stays, up to the option `history_bytes`.
///
/// A new consumer stands at the store's last change. Where it needs the store's contents
/// too, and where its history was lost, it copies a snapshot and acknowledges the
/// snapshot's sequence number:
///
/// ```
/// use cambium::prelude::*;
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// # let store = cambium::create(folder.path(), "forest", &Options::new())?;
/// store.put("oak", "Quercus")?;
/// let consumer = store.consumer("mirror")?;
/// let mut changes = match consumer.changes() {
///     Ok(changes) if !consumer.is_new() => changes,
///     Err(error) if !matches!(error, cambium::Error::HistoryLost { .. }) => return Err(error),
///     _ => {
///         let snapshot = store.snapshot()?;
///         // ... copy the snapshot ...
///         consumer.acknowledge(snapshot.sequence())?;
///         consumer.changes()?
///     }
/// };
/// store.put("elm", "Ulmus")?;
/// while let Some(batch) = changes.try_next()? {
///     // ... apply the batch, durably ...
///     consumer.acknowledge(batch.last)?;
/// }
/// assert_eq!(store.consumers()?, [("mirror".to_string(), consumer.position()?)]);
/// consumer.remove()?;
/// # drop(changes);
/// # store.close()
/// # }
/// ```
pub struct Consumer {
    store: Store,
    name: String,
    is_new: bool,
}

impl Consumer {
    /// The consumer's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if [`Store::consumer`] made it.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The last change that it is done with.
    ///
    /// # Errors
    /// `NotFound` after it was removed, `Closed`.
    pub fn position(&self) -> Result<SequenceNumber> {
        self.store.position_of(&self.name)
    }

    /// The changes after its position; errors as of [`Store::changes`].
    pub fn changes(&self) -> Result<Changes> {
        self.changes_with(ChangeOptions::default())
    }

    /// The same, with a choice of batches.
    pub fn changes_with(&self, options: ChangeOptions) -> Result<Changes> {
        self.store.changes_with(self.position()?, options)
    }

    /// It is done with all changes up to a sequence number. Durable when it returns, with
    /// every write up to that number; this costs a sync, so acknowledge many batches at once.
    ///
    /// # Errors
    /// `InvalidArgument` for a number that the store has not given out yet, `HistoryLost`
    /// for one that history does not reach back to, and those of a synced write.
    pub fn acknowledge(&self, through: SequenceNumber) -> Result<()> {
        let engine = &self.store.root().engine;
        engine.move_consumer(&self.name, Some(through))
    }

    /// Takes the consumer away: the store keeps no history for it.
    ///
    /// # Errors
    /// `NotFound` where it is away already, and those of a synced write.
    pub fn remove(self) -> Result<()> {
        self.store.root().engine.move_consumer(&self.name, None)
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Consumer({:?})", self.name)
    }
}

impl Store {
    /// The batches that were committed after a sequence number, and then those to come; 0
    /// begins with the store's first. A snapshot's [`sequence`](crate::Snapshot::sequence)
    /// fits without a gap. Changes are of all namespaces, whichever this handle is of.
    ///
    /// # Errors
    /// `HistoryLost` where the log no longer has what came right after the number: begin
    /// again with a snapshot. `InvalidArgument` for a number that the store has not given
    /// out yet. `Unsupported` where the engine has no [`changes`](crate::Capabilities::changes).
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// let last = store.put("oak", "Quercus")?;
    /// let mut changes = store.changes(cambium::SequenceNumber::ZERO)?;
    /// let batch = changes.try_next()?.expect("the put above");
    /// assert_eq!((batch.last, batch.changes.len()), (last, 1));
    /// assert!(changes.try_next()?.is_none());
    /// # drop(changes);
    /// # store.close()
    /// # }
    /// ```
    pub fn changes(&self, after: SequenceNumber) -> Result<Changes> {
        self.changes_with(after, ChangeOptions::default())
    }

    /// The same, with a choice of batches: those that survive any crash alone.
    ///
    /// ```
    /// use cambium::ChangeOptions;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// let options = ChangeOptions { synced_only: true };
    /// let mut changes = store.changes_with(cambium::SequenceNumber::ZERO, options)?;
    /// store.put("oak", "Quercus")?;
    /// store.sync()?;
    /// assert!(changes.try_next()?.expect("the put above").synced);
    /// # drop(changes);
    /// # store.close()
    /// # }
    /// ```
    pub fn changes_with(&self, after: SequenceNumber, options: ChangeOptions) -> Result<Changes> {
        let root = self.root();
        Ok(Changes {
            feed: root.engine.changes(after, options)?,
            position: after,
            failed: false,
            looked: Duration::ZERO,
            store: root.clone(),
        })
    }

    /// The store that this handle's namespace is part of.
    pub(crate) fn root(&self) -> &Arc<OpenStore> {
        let mut root = &self.open;
        while let Some(parent) = &root.parent {
            root = parent;
        }
        root
    }

    /// A reader of changes whose position the store keeps; made at the store's last change
    /// if there is none of that name. See [`Consumer`].
    ///
    /// # Errors
    /// `InvalidArgument` for an empty name or one over 255 bytes, `Unsupported` as of
    /// [`Store::changes`], and those of a synced write.
    pub fn consumer(&self, name: &str) -> Result<Consumer> {
        match self.existing_consumer(name) {
            Err(Error::NotFound { .. }) => {}
            found => return found,
        }
        let last = self.snapshot()?.sequence();
        self.root().engine.move_consumer(name, Some(last))?;
        Ok(Consumer {
            store: self.clone(),
            name: name.to_string(),
            is_new: true,
        })
    }

    /// The same, but none is made.
    ///
    /// # Errors
    /// `NotFound` where there is none of that name, `Unsupported`, `Closed`.
    pub fn existing_consumer(&self, name: &str) -> Result<Consumer> {
        self.position_of(name)?;
        Ok(Consumer {
            store: self.clone(),
            name: name.to_string(),
            is_new: false,
        })
    }

    fn position_of(&self, name: &str) -> Result<SequenceNumber> {
        let mut consumers = self.consumers()?.into_iter();
        let found = consumers.find(|(it, _)| it == name);
        found.map(|(_, at)| at).ok_or_else(|| Error::NotFound {
            kind: "consumer",
            name: name.to_string(),
        })
    }

    /// Names of consumers, with the last change that each is done with.
    ///
    /// # Errors
    /// `Unsupported` as of [`Store::changes`], `Closed`.
    pub fn consumers(&self) -> Result<Vec<(String, SequenceNumber)>> {
        self.root().engine.list_consumers()
    }
}
