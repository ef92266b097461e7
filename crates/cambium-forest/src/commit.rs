//! How a plan's entries are committed.
//!
//! 1. Space is allocated, so that a full disk refuses it before a byte is written.
//! 2. Entries are numbered and appended to the log's buffer.
//! 3. The buffer is handed to the operating system with one write; if anyone
//!    asked for `Synced`, padded to a block and synced, once for the group; then
//!    a record without payload says so, which no sync waits for. A commit writes
//!    no index and no header.
//! 4. The entries go into the write-buffer index, and become visible.
//!
//! A crash between any two steps leaves a suffix to be dropped. A failed write
//! or sync stops all further writes; a full disk takes back what was appended.

use std::sync::Arc;

use cambium_api::Written;
use cambium_base::{Durability, Error, Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;
use cambium_storage::record::{RecordHeader, next_attempt};

use crate::core::{Core, Writer};
use crate::database::Database;
use crate::planned::{Action, Planned};
use crate::seeded_bug::SeededBug;
use crate::view::{Names, Roots, View};

/// Bytes of a large batch that are handed to the operating system at once.
const LARGEST_APPEND: usize = 4 << 20;

impl Core {
    /// Brings entries to the device as the durability asks; answers the
    /// sequence number of the first.
    pub fn write_entries(
        &self,
        writer: &mut Writer,
        entries: &mut [Planned],
        durability: Durability,
    ) -> Result<u64> {
        self.check_sound()?;
        let view = self.view.load();
        let database = &view.database;
        let first = writer.next_sequence;
        let template = self.record_template(writer);
        let numbered = entries.iter().zip(first..);
        let bytes = numbered.map(|(entry, sequence)| entry.will_take(&template, sequence));
        let bytes = bytes.sum();
        if bytes > 0 {
            self.reserve_for(&view, entries, bytes)?;
        }
        let end = database.log.end();
        if database.marks.is_due(end) {
            database.marks.note(writer.place(end), self.least_tail());
        }
        writer.tombstones += entries.iter().filter(|entry| entry.removes()).count() as u64;
        let appended = self.append(writer, database, entries, (&template, first));
        if let Err(error) = appended.and_then(|()| self.hand_over(writer, database, durability)) {
            return Err(self.take_back(writer, database, end, error));
        }
        let last = first + entries.len() as u64 - 1;
        let sync = durability == Durability::Synced && writer.unsynced;
        if sync {
            if self.has_bug(SeededBug::MarkBeforeSync) {
                self.mark_synced(writer, &view, last);
            }
            if !self.has_bug(SeededBug::CommitUnsynced) {
                self.sync_log(database)?;
            }
            self.synced_through.fetch_max(last, Ordering::AcqRel);
            writer.unsynced = false;
        }
        writer.next_sequence = last + 1;
        if sync {
            self.mark_synced(writer, &view, last);
        }
        Ok(first)
    }

    /// The part of the headers that all records of a group share.
    pub fn record_template(&self, writer: &Writer) -> RecordHeader {
        RecordHeader {
            attempt: writer.attempt,
            synced_through: SequenceNumber(self.synced_through.load(Ordering::Acquire)),
            session: writer.session,
            ..RecordHeader::default()
        }
    }

    fn append(
        &self,
        writer: &mut Writer,
        database: &Database,
        entries: &mut [Planned],
        (template, first): (&RecordHeader, u64),
    ) -> Result<()> {
        let most = self.tuning.buffer_bytes.max(LARGEST_APPEND);
        for (index, entry) in entries.iter_mut().enumerate() {
            if matches!(entry.action, Action::Delete) && self.has_bug(SeededBug::DeleteUnlogged) {
                continue;
            }
            let is_namespace = matches!(entry.action, Action::Namespace);
            if is_namespace && self.has_bug(SeededBug::NamespaceUnlogged) {
                continue;
            }
            let header = entry.header(template, first + index as u64);
            entry.place = database.log.append(&header, &[&entry.key, entry.value()]);
            writer.unsynced = true;
            if database.log.buffered_bytes() > most {
                // A batch that ends here does not count: its last entry is missing.
                database.log.flush()?;
            }
        }
        Ok(())
    }

    /// Hands the buffer to the operating system as the durability asks.
    fn hand_over(
        &self,
        writer: &Writer,
        database: &Database,
        durability: Durability,
    ) -> Result<()> {
        match durability {
            Durability::Buffered => {
                if database.log.buffered_bytes() <= self.tuning.buffer_bytes {
                    return Ok(());
                }
            }
            Durability::Written => {}
            Durability::Synced => {
                if writer.unsynced {
                    database.log.pad_to_block();
                }
            }
        }
        database.log.flush()
    }

    /// Undoes an append that failed for lack of space; any other failure
    /// stops all writes.
    pub fn take_back(
        &self,
        writer: &mut Writer,
        database: &Database,
        end: u64,
        error: Error,
    ) -> Error {
        if !error.is_no_space() {
            return self.health.poison(error);
        }
        // What may be left of the entries must not be mixed with what follows.
        writer.attempt = match next_attempt(writer.attempt) {
            Ok(next) => next,
            Err(exhausted) => return self.health.poison(exhausted),
        };
        match database.log.cut_back(end) {
            Ok(()) => error,
            Err(failure) => self.health.poison(failure),
        }
    }

    /// Makes entries visible.
    pub fn apply(&self, writer: &mut Writer, entries: Vec<Planned>, first: u64, user_bytes: u64) {
        if entries.is_empty() {
            return;
        }
        let count = entries.len() as u64;
        let logged = entries.iter().map(Planned::record_bytes).sum();
        if let Some(last) = entries.last() {
            self.announce_written(last.place.end);
        }
        let kept = self.kept_moments();
        let active = self.view.load().active.clone();
        for entry in &entries {
            match entry.action {
                Action::Namespace => {
                    self.add_namespace(writer, entry.namespace, entry.key.clone());
                }
                Action::DropNamespace => self.forget_namespace(writer, entry.namespace),
                _ => {}
            }
        }
        self.recent.note(noted(&entries, first));
        let numbered = entries.iter().zip(first..);
        let inserts = numbered.filter_map(|(entry, sequence)| entry.insert(sequence));
        active.insert(inserts, &kept);
        let numbered = entries.iter().zip(first..);
        let ranges = active.deleted_ranges();
        numbered
            .filter_map(|(entry, sequence)| entry.deleted_range(sequence))
            .for_each(|range| active.delete_range(range));
        self.visible.store(first + count - 1, Ordering::Release);
        if active.deleted_ranges() > ranges {
            self.notify_background();
        }
        self.counters
            .user_bytes
            .fetch_add(user_bytes, Ordering::Relaxed);
        self.counters.log_bytes.fetch_add(logged, Ordering::Relaxed);
        self.counters.writes.fetch_add(count, Ordering::Relaxed);
        active.note_logged(logged);
        if self.is_full(&active) {
            self.flush_due.store(true, Ordering::Release);
        }
    }

    /// Knows a namespace from now on.
    pub fn add_namespace(&self, writer: &mut Writer, number: u16, name: Vec<u8>) {
        let name = String::from_utf8_lossy(&name).into_owned();
        self.change_view(|view| {
            let mut names = Names::clone(&view.names);
            names.insert(name, number);
            View {
                names: Arc::new(names),
                ..view.clone()
            }
        });
        writer.next_namespace = writer.next_namespace.max(u32::from(number) + 1);
    }

    /// Knows a namespace no longer. What buffers have of it the next flush leaves
    /// out; snapshots and cursors that are open go on with the view they have.
    pub fn forget_namespace(&self, _: &Writer, number: u16) {
        self.change_view(|view| {
            let mut names = Names::clone(&view.names);
            names.remove(number);
            let mut roots = Roots::clone(&view.roots);
            roots.namespaces.remove(&number);
            View {
                names: Arc::new(names),
                roots: Arc::new(roots),
                ..view.clone()
            }
        });
    }
}

/// The writes in the form that validation compares.
fn noted(entries: &[Planned], first: u64) -> impl Iterator<Item = (u64, Written<'_>)> {
    let numbered = (first..).zip(entries);
    numbered.filter_map(|(sequence, entry)| {
        let written = match &entry.action {
            Action::DeleteRange(to) => {
                let to = (!to.is_empty()).then_some(&**to);
                Written::RangeOf(entry.namespace, &entry.key, to)
            }
            Action::Put(_) | Action::Delete => Written::Key(entry.namespace, &entry.key),
            Action::DropNamespace => Written::Namespace(entry.namespace),
            Action::Namespace => return None,
        };
        Some((sequence, written))
    })
}
