//! Backups: clones of all files where the file system shares blocks between files, else a
//! copy of the newest state and every named snapshot, in a new store of the same shape.
//!
//! Both stores append to the database file, so it cannot have two names. A clone is taken
//! while neither writers nor flushes write, after the log's buffer was handed over: the
//! clones are what a process leaves that dies at that moment, and the copy is recovered
//! from them, which reads as much as the write buffer holds. The other way, entry by entry:
//!
//! ```text
//! oldest snapshot ─▶ next snapshot ─▶ … ─▶ newest state
//!   copied whole      what differs           what differs
//! ```
//!
//! The states are copied in the order in which they were. Each is held against
//! the one before it, in key order; a document is the same where the number of its
//! write is. When the copy equals a snapshot, it is kept there under the same
//! name. The copy numbers its writes itself.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{Direction, Engine, KeyRange, Operation, Progress, ProgressSink, WriteBatch};
use cambium_base::{Durability, Result, SequenceNumber};
use cambium_storage::sharing::{clone_files, make_checkpoint, sync_files};

use crate::addresses::Known;
use crate::buffer::Buffer;
use crate::core::{Core, lock};
use crate::cursor::EntryCursor;
use crate::engine::run;
use crate::format::NamedSnapshot;
use crate::open::{LOCK_NAME, attach, is_ours, make_ready};
use crate::view::{Names, Pin, Roots, View};
use crate::write::WriteRequest;

/// Bytes of a batch: large enough that its own cost does not count.
const BATCH_BYTES: u64 = 4 << 20;

/// Copies the state now into a folder that is empty or not there; answers the last write
/// that the copy holds.
pub(crate) fn back_up(
    core: &Arc<Core>,
    destination: &Path,
    progress: &dyn ProgressSink,
) -> Result<SequenceNumber> {
    core.check_open()?;
    // What lies in the files after a failure is not known; what can be read is.
    if core.health.is_of_reader() || core.check_sound().is_ok() {
        if let Some(last) = clone_store(core, destination, progress)? {
            return Ok(last);
        }
    }
    copy(core, destination, progress)
}

/// Makes a copy of clones; `None`, and nothing is left of it, where there cannot be any.
fn clone_store(
    core: &Arc<Core>,
    destination: &Path,
    progress: &dyn ProgressSink,
) -> Result<Option<SequenceNumber>> {
    let (environment, store) = (&core.environment, core.home.store);
    let files = &environment.file_system;
    if !core.health.is_of_reader() {
        // The file system writes back what it shares: most of it before writers wait.
        match core.write_request(WriteRequest::new(Vec::new(), Durability::Synced)) {
            Err(error) if error.is_no_space() || core.check_sound().is_err() => return Ok(None),
            synced => _ = synced?,
        }
    }
    make_checkpoint(files, &core.path, destination, is_ours, |held| {
        let Some(last) = core.clone_files_into(destination)? else {
            return Ok(None);
        };
        sync_files(&**files, destination)?;
        let tuning = core.tuning;
        let copy = attach(environment, destination, store, tuning, (held, true))?;
        make_ready(&copy, progress)?;
        // The copy has no consumers.
        copy.give_history_back()?;
        copy.close()?;
        Ok(Some(last))
    })
}

impl Core {
    fn clone_files_into(&self, destination: &Path) -> Result<Option<SequenceNumber>> {
        let _maintenance = lock(&self.maintenance);
        let writer = lock(&self.writer);
        let log = &self.view.load().database.log;
        if !self.health.is_of_reader() {
            log.flush().map_err(|error| self.unless_full(error))?;
        }
        let files = &*self.environment.file_system;
        let is_wanted = |name: &str| is_ours(name) && name != LOCK_NAME;
        let cloned = clone_files(files, &self.path, destination, is_wanted)?;
        Ok(cloned.then(|| SequenceNumber(writer.next_sequence - 1)))
    }
}

/// Copies the entries of now, and those of each named snapshot, into a new store.
fn copy(
    core: &Arc<Core>,
    destination: &Path,
    progress: &dyn ProgressSink,
) -> Result<SequenceNumber> {
    let (newest, header) = core.pin_with_header()?;
    let last = SequenceNumber(newest.sequence);
    let mut snapshots = header.snapshots.clone();
    snapshots.sort_by_key(|snapshot| snapshot.sequence);
    let options = core.shape.as_options();
    // Before it has its marker it is no store: a copy is whole, or none.
    let making = crate::open::make(&core.environment, destination, &options)?;
    making.conclude_closed(&core.path, |filled| {
        let copy = run(filled);
        let mut backup = Backup {
            copy: &*copy,
            before: None,
            done: 0,
            progress,
        };
        for snapshot in &snapshots {
            let names = header.names_of(snapshot).into_iter().collect();
            backup.bring_to(pin_of(core, &newest, snapshot, names)?)?;
            copy.create_named_snapshot(&snapshot.name)?;
        }
        backup.bring_to(newest)?;
        copy.sync()?;
        copy.close()
    })?;
    Ok(last)
}

/// The moment that a named snapshot keeps.
pub(crate) fn pin_of(
    core: &Core,
    newest: &Pin,
    snapshot: &NamedSnapshot,
    names: Names,
) -> Result<Pin> {
    let mut pin = newest.again()?;
    pin.view = Arc::new(View {
        database: newest.view.database.clone(),
        active: Arc::new(Buffer::new(core.hash_seed, 0)),
        sealed: None,
        run: Arc::default(),
        roots: Arc::new(Roots {
            sequence: snapshot.sequence,
            namespaces: snapshot.namespaces.iter().copied().collect(),
        }),
        names: Arc::new(names),
        known: Known::nothing(),
    });
    Ok(pin)
}

/// A copy under way.
struct Backup<'a> {
    copy: &'a dyn Engine,
    /// What the copy equals.
    before: Option<Pin>,
    /// Entries put or deleted.
    done: u64,
    progress: &'a dyn ProgressSink,
}

impl Backup<'_> {
    /// Makes the copy equal a moment.
    fn bring_to(&mut self, moment: Pin) -> Result<()> {
        let names = moment.view.names.clone();
        if let Some(before) = &self.before {
            let before = before.view.names.iter();
            // One that was made again under the same name is another.
            for (name, _) in before.filter(|&(name, number)| names.number(name) != Some(number)) {
                self.copy.drop_namespace(name)?;
            }
        }
        for (name, number) in names.iter() {
            let into = self.copy.namespace(name)?;
            self.bring_namespace_to(&moment, number, &*into)?;
        }
        self.before = Some(moment);
        Ok(())
    }

    fn bring_namespace_to(&mut self, moment: &Pin, number: u16, into: &dyn Engine) -> Result<()> {
        let cursor = |pin: &Pin| -> Result<EntryCursor> {
            let range = KeyRange::all();
            Ok(EntryCursor::new(
                pin.again()?,
                number,
                range,
                Direction::Forward,
            ))
        };
        let mut wanted = cursor(moment)?;
        let before = self.before.as_ref();
        let before = before.filter(|before| before.view.names.has(number));
        let mut there = before.map(cursor).transpose()?;
        let mut next_there = || match &mut there {
            Some(cursor) => cursor.next_document(),
            None => Ok(None),
        };
        let (mut old, mut new) = (next_there()?, wanted.next_document()?);
        let mut batch = WriteBatch::new();
        loop {
            let order = match (&old, &new) {
                (None, None) => break,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(old), Some(new)) => old.key.cmp(&new.key),
            };
            let same = order.is_eq()
                && old.as_ref().map(|document| document.sequence)
                    == new.as_ref().map(|document| document.sequence);
            if order.is_le() {
                let gone = std::mem::replace(&mut old, next_there()?);
                if let Some(gone) = gone.filter(|_| order.is_lt()) {
                    self.take(
                        Operation::Delete {
                            key: gone.key.to_vec(),
                        },
                        &mut batch,
                        into,
                    )?;
                }
            }
            if order.is_ge() {
                let came = std::mem::replace(&mut new, wanted.next_document()?);
                if let Some(came) = came.filter(|_| !same) {
                    let (key, value) = (came.key.to_vec(), came.value.to_vec());
                    self.take(Operation::Put { key, value }, &mut batch, into)?;
                }
            }
        }
        into.write(batch, Durability::Buffered).map(|_| ())
    }

    fn take(
        &mut self,
        operation: Operation,
        batch: &mut WriteBatch,
        into: &dyn Engine,
    ) -> Result<()> {
        batch.push(None, operation);
        self.done += 1;
        if batch.bytes() > BATCH_BYTES {
            into.write(std::mem::take(batch), Durability::Buffered)?;
            self.progress.report(Progress {
                phase: "backup",
                done: self.done,
                total: None,
            });
        }
        Ok(())
    }
}
