//! Writing into memory, sealing, and how much to hold back.

use std::sync::Arc;

use cambium_io::sync::atomic::Ordering;
use cambium_io::sync::{Mutex, RwLockReadGuard, read, write};

use crate::entry::{EntryKind, EntryRef};
use crate::kept::Keep;
use crate::memtable::Memtable;
use crate::tree::{Context, Sealed, Tree, View, WritePressure};

/// Writes into the active memtable; holds off [`Tree::seal`] while it lives.
/// Nothing here does I/O, fails, or waits for a job.
#[derive(Debug)]
pub struct Writer<'a> {
    memtable: Arc<Memtable>,
    context: &'a Context,
    _rotation: RwLockReadGuard<'a, ()>,
}

impl Tree {
    /// Begins to write; any number of writers at once. Cost: one shared lock.
    ///
    /// Of one key, a write with a higher sequence number must not end up in an
    /// older memtable: number and write under the lock under which
    /// [`Tree::seal`] is called, or seal when all numbered writes are in.
    pub fn writer(&self) -> Writer<'_> {
        let rotation = read(&self.rotation);
        Writer {
            memtable: self.view.load().active.clone(),
            context: &self.context,
            _rotation: rotation,
        }
    }

    /// Memory of the active memtable, in bytes, about.
    pub fn memtable_bytes(&self) -> u64 {
        self.view.load().active.bytes()
    }

    /// True if memtables are sealed and not flushed yet.
    pub fn has_sealed(&self) -> bool {
        !self.view.load().sealed.is_empty()
    }

    /// Says whether nobody writes just now: then steps also compact level 0, at which scans
    /// look table by table. While it is `resting` or `sweeping`, they compact tables that are
    /// mostly tombstones, which frees what those hide.
    pub fn set_resting(&self, resting: bool, sweeping: bool) {
        self.resting.store(resting, Ordering::Relaxed);
        self.sweeping.store(resting || sweeping, Ordering::Relaxed);
    }

    /// Entries in tables, those that are hidden by others included.
    pub fn table_entries(&self) -> u64 {
        let view = self.view.load();
        let files = view.version.files();
        files.map(|(_, file)| file.metadata.entries).sum()
    }

    /// True if the active memtable is as large as it should get.
    pub fn seal_due(&self) -> bool {
        self.memtable_bytes() >= self.context.options.memtable_bytes
    }

    /// Seals the active memtable and begins another; memory only. `note` is
    /// handed to the observer of the flush that makes it true. An empty memtable
    /// without a note is not sealed; with a note it is, and its flush writes the
    /// note alone. So all notes are committed in the order of their seals.
    pub fn seal(&self, note: Vec<u8>) {
        _ = self.seal_with(note, None);
    }

    /// As [`Tree::seal`]; the version that the flush makes may be kept.
    pub(crate) fn seal_with(&self, note: Vec<u8>, keep: Option<Keep>) -> Option<Arc<Sealed>> {
        let _rotation = write(&self.rotation);
        let memtable = self.view.load().active.clone();
        let written = memtable.bytes();
        if written == 0 && note.is_empty() && keep.is_none() {
            return None;
        }
        // The next one will be sealed when it is about as large.
        let most = self.context.options.memtable_bytes;
        let expected = match written {
            0 => most,
            written => (written / 4 * 5).min(most),
        };
        let fresh = Arc::new(Memtable::expecting(most, expected));
        let sealed = Arc::new(Sealed {
            memtable,
            note,
            keep: Mutex::new(keep),
        });
        self.change_view(|view| View {
            active: fresh,
            sealed: std::iter::once(sealed.clone())
                .chain(view.sealed.iter().cloned())
                .collect(),
            version: view.version.clone(),
        });
        Some(sealed)
    }

    /// How much writers should hold back: ask before a group of writes, and
    /// wait or take steps accordingly. It slows before it stops.
    pub fn write_pressure(&self) -> WritePressure {
        let options = &self.context.options;
        let view = self.view.load();
        let tables = view.version.levels[0].len();
        if view.sealed.len() > options.sealed_limit || tables >= options.l0_stop {
            return WritePressure::Stop;
        }
        let share = |now: usize, from: usize, to: usize| {
            (now.saturating_sub(from)) as f64 / (to - from).max(1) as f64
        };
        let sealed = share(view.sealed.len(), 1, options.sealed_limit + 1);
        let tables = share(tables, options.l0_slow, options.l0_stop);
        match sealed.max(tables) {
            worse if worse > 0.0 => WritePressure::Slow(worse.min(1.0)),
            _ => WritePressure::Free,
        }
    }
}

impl Writer<'_> {
    fn insert(&self, kind: EntryKind, sequence: u64, key: &[u8], value: &[u8]) {
        let entry = EntryRef {
            key,
            sequence,
            kind,
            value,
        };
        self.memtable.insert(self.context.hash(key), &entry);
    }

    /// Gives a key a value.
    pub fn put(&self, sequence: u64, key: &[u8], value: &[u8]) {
        self.insert(EntryKind::Value, sequence, key, value);
    }

    /// Deletes a key.
    pub fn delete(&self, sequence: u64, key: &[u8]) {
        self.insert(EntryKind::Delete, sequence, key, &[]);
    }

    /// Deletes all keys of `[from, to)`, `None` for no end: hides what has a
    /// lower sequence number. One record, however many keys there are; an empty
    /// range does nothing.
    pub fn delete_range(&self, sequence: u64, from: &[u8], to: Option<&[u8]>) {
        self.memtable.insert_range(sequence, from, to);
    }
}
