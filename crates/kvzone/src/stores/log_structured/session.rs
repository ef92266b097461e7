//! A session over LevelDB or RocksDB, and an iterator.

use std::ptr;
use std::sync::Arc;

use kvzone_core::adapter::{Change, Session, Visit};
use kvzone_core::error::Result;

use cambium_foreign::log_structured::{Bytes, Functions};

use super::{Database, GetIntoBuffer, Opening};
use cambium_foreign::library::{Handle, bytes};

/// What one thread works with: the database, and a batch that is used again.
pub(super) struct OneThread {
    pub(super) batch: Handle,
    pub(super) database: Arc<Database>,
}

impl Drop for OneThread {
    fn drop(&mut self) {
        // SAFETY: made by `writebatch_create`, and not used after this.
        unsafe { (self.database.opening.functions.writebatch_destroy)(self.batch.get()) };
    }
}

fn start(bytes: &[u8]) -> Bytes {
    bytes.as_ptr().cast()
}

impl OneThread {
    /// The library allocates the value: LevelDB has no other form.
    fn get_allocated(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let Opening {
            functions,
            read_options,
            ..
        } = &self.database.opening;
        let (mut length, mut problem) = (0, ptr::null_mut());
        // SAFETY: an open database, its read options, and key bytes that stay.
        let found = unsafe {
            (functions.get)(
                self.database.handle(),
                read_options.get(),
                start(key),
                key.len(),
                &mut length,
                &mut problem,
            )
        };
        self.database.error("get", problem)?;
        if found.is_null() {
            return Ok(false);
        }
        // SAFETY: the library answered so many bytes, and they are ours.
        value.extend_from_slice(unsafe { bytes(found.cast(), length) });
        // SAFETY: the value came from the library, and is not used after this.
        unsafe { (functions.free)(found.cast()) };
        Ok(true)
    }

    /// The value goes into the caller's buffer; a second call where that was
    /// too small.
    fn get_into(&self, get: GetIntoBuffer, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let options = self.database.opening.read_options.get();
        loop {
            let (mut length, mut found, mut problem) = (0, 0, ptr::null_mut());
            // SAFETY: an open database, its read options, key bytes that stay,
            // and a buffer with room for so many bytes as are named.
            let fitted = unsafe {
                get(
                    self.database.handle(),
                    options,
                    start(key),
                    key.len(),
                    value.as_mut_ptr().cast(),
                    value.capacity(),
                    &mut length,
                    &mut found,
                    &mut problem,
                )
            };
            self.database.error("get", problem)?;
            if found == 0 {
                return Ok(false);
            }
            if fitted != 0 && length <= value.capacity() {
                // SAFETY: the library wrote so many bytes, within the capacity.
                unsafe { value.set_len(length) };
                return Ok(true);
            }
            value.reserve_exact(length);
        }
    }

    fn fill_batch(&self, changes: &[Change<'_>]) {
        let (functions, batch) = (self.database.opening.functions, self.batch.get());
        // SAFETY: the batch is this session's own.
        unsafe { (functions.writebatch_clear)(batch) };
        for change in changes {
            match *change {
                Change::Put { key, value } => {
                    let (put, length) = (functions.writebatch_put, value.len());
                    // SAFETY: as above; key and value are copied into it.
                    unsafe { put(batch, start(key), key.len(), start(value), length) };
                }
                Change::Delete { key } => {
                    // SAFETY: as above; the key is copied into it.
                    unsafe { (functions.writebatch_delete)(batch, start(key), key.len()) };
                }
            }
        }
    }
}

impl Session for OneThread {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        match self.database.opening.get_into_buffer {
            Some(get) => self.get_into(get, key, value),
            None => self.get_allocated(key, value),
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let opening = &self.database.opening;
        let mut problem = ptr::null_mut();
        // SAFETY: an open database, its write options, bytes that stay.
        unsafe {
            (opening.functions.put)(
                self.database.handle(),
                opening.write_options.get(),
                start(key),
                key.len(),
                start(value),
                value.len(),
                &mut problem,
            )
        };
        self.database.error("put", problem)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let opening = &self.database.opening;
        let mut problem = ptr::null_mut();
        // SAFETY: an open database, its write options, bytes that stay.
        unsafe {
            (opening.functions.delete)(
                self.database.handle(),
                opening.write_options.get(),
                start(key),
                key.len(),
                &mut problem,
            )
        };
        self.database.error("delete", problem)
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        self.fill_batch(changes);
        let opening = &self.database.opening;
        let mut problem = ptr::null_mut();
        // SAFETY: an open database, its write options, this session's batch.
        unsafe {
            (opening.functions.write)(
                self.database.handle(),
                opening.write_options.get(),
                self.batch.get(),
                &mut problem,
            )
        };
        self.database.error("write", problem)
    }

    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let mut walk = Walk::new(&self.database)?;
        walk.seek(from);
        walk.visit(limit, Walk::advance, visit)
    }

    fn walk(&mut self, backwards: bool, visit: &mut Visit<'_>) -> Result<u64> {
        let mut walk = Walk::new(&self.database)?;
        if backwards {
            walk.seek_to_last();
            return walk.visit(u64::MAX, Walk::retreat, visit);
        }
        walk.seek(&[]);
        walk.visit(u64::MAX, Walk::advance, visit)
    }
}

/// An iterator, destroyed when it is dropped.
struct Walk<'a> {
    database: &'a Database,
    iterator: Handle,
}

impl<'a> Walk<'a> {
    fn new(database: &'a Database) -> Result<Self> {
        let opening = &database.opening;
        let create = opening.functions.create_iterator;
        // SAFETY: an open database and its read options.
        let iterator = unsafe { create(database.handle(), opening.read_options.get()) };
        Ok(Walk {
            database,
            iterator: Handle::new(iterator, database.store(), "create_iterator")?,
        })
    }

    fn functions(&self) -> &'static Functions {
        self.database.opening.functions
    }

    fn seek(&mut self, from: &[u8]) {
        // SAFETY: a live iterator; the key is copied.
        unsafe { (self.functions().iter_seek)(self.iterator.get(), start(from), from.len()) };
    }

    fn seek_to_last(&mut self) {
        // SAFETY: a live iterator.
        unsafe { (self.functions().iter_seek_to_last)(self.iterator.get()) };
    }

    /// Entries from where it stands on, each a move from the one before.
    fn visit(mut self, limit: u64, go: fn(&mut Self), visit: &mut Visit<'_>) -> Result<u64> {
        let mut visited = 0;
        while visited < limit && self.is_valid() {
            visit(self.key(), self.value());
            go(&mut self);
            visited += 1;
        }
        self.finish()?;
        Ok(visited)
    }

    fn is_valid(&self) -> bool {
        // SAFETY: a live iterator.
        unsafe { (self.functions().iter_valid)(self.iterator.get()) != 0 }
    }

    /// Valid until the iterator moves: nobody keeps it longer than a visit.
    fn key(&self) -> &[u8] {
        let mut length = 0;
        // SAFETY: a live iterator that is valid.
        let key = unsafe { (self.functions().iter_key)(self.iterator.get(), &mut length) };
        // SAFETY: the iterator holds so many bytes until it moves.
        unsafe { bytes(key.cast(), length) }
    }

    fn value(&self) -> &[u8] {
        let mut length = 0;
        // SAFETY: a live iterator that is valid.
        let value = unsafe { (self.functions().iter_value)(self.iterator.get(), &mut length) };
        // SAFETY: the iterator holds so many bytes until it moves.
        unsafe { bytes(value.cast(), length) }
    }

    fn advance(&mut self) {
        // SAFETY: a live iterator that is valid.
        unsafe { (self.functions().iter_next)(self.iterator.get()) };
    }

    fn retreat(&mut self) {
        // SAFETY: a live iterator that is valid.
        unsafe { (self.functions().iter_prev)(self.iterator.get()) };
    }

    /// An iterator that ended early says why.
    fn finish(self) -> Result<()> {
        let mut problem = ptr::null_mut();
        // SAFETY: a live iterator, and an error that is null.
        unsafe { (self.functions().iter_get_error)(self.iterator.get(), &mut problem) };
        self.database.error("iterate", problem)
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `create_iterator`, and not used after this.
        unsafe { (self.functions().iter_destroy)(self.iterator.get()) };
    }
}
