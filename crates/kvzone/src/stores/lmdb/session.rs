//! An open LMDB environment, and a session with its read transaction.
//!
//! Contract of `lmdb.h`, on which the blocks below rely: an environment may be
//! used from several threads; a write transaction by the thread that began it; a
//! read transaction, with `MDB_NOTLS`, by one thread at a time. What a get or a
//! cursor answers lies in the map and stays until the transaction ends or is
//! reset. Transactions are gone before the environment is closed.

use std::ffi::{CString, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use kvzone_core::adapter::{Change, OpenStore, Session, Visit, alone};
use kvzone_core::error::{Error, Result};

use super::{NAME, Plan};
use cambium_foreign::library::{Handle, bytes};
use cambium_foreign::lmdb::{
    Database, FIRST, Functions, LAST, NEXT, PREVIOUS, Piece, READ_ONLY, SET_RANGE, load,
};

pub(super) fn open(plan: &Plan, folder: &Path) -> Result<Arc<dyn OpenStore>> {
    let functions = &load()?.functions;
    let mut environment = ptr::null_mut();
    // SAFETY: a place for the new object.
    let made = unsafe { (functions.env_create)(&mut environment) };
    functions.answer("env_create", made)?;
    let mut open = Open {
        functions,
        environment: Handle::new(environment, NAME, "env_create")?,
        database: 0,
    };
    open.configure(plan, folder)?;
    open.open_database()?;
    Ok(Arc::new(open))
}

/// An open environment with its one database; closed when it is dropped.
struct Open {
    functions: &'static Functions,
    /// Documented as safe to use from several threads.
    environment: Handle,
    database: Database,
}

impl Open {
    fn configure(&self, plan: &Plan, folder: &Path) -> Result<()> {
        let (functions, environment) = (self.functions, self.environment.get());
        // SAFETY: an environment that is not open yet.
        let set = unsafe { (functions.env_set_mapsize)(environment, plan.map_bytes as usize) };
        functions.answer("env_set_mapsize", set)?;
        // SAFETY: as above.
        let set = unsafe { (functions.env_set_maxreaders)(environment, plan.max_readers) };
        functions.answer("env_set_maxreaders", set)?;
        let path = CString::new(folder.as_os_str().as_bytes())
            .map_err(|error| Error::store(NAME, "env_open", error))?;
        // SAFETY: as above; a C string, and permissions for new files.
        let opened = unsafe { (functions.env_open)(environment, path.as_ptr(), plan.flags, 0o644) };
        Ok(functions.answer("env_open", opened)?)
    }

    /// The unnamed database is always there; its number is asked for once.
    fn open_database(&mut self) -> Result<()> {
        let functions = self.functions;
        let transaction = self.begin(0)?;
        let mut database = 0;
        // SAFETY: a transaction of this thread; null for the unnamed database.
        let opened =
            unsafe { (functions.dbi_open)(transaction.get(), ptr::null(), 0, &mut database) };
        let committed = self.end(transaction, opened == 0);
        functions.answer("dbi_open", opened)?;
        self.database = database;
        committed
    }

    fn begin(&self, flags: c_uint) -> Result<Handle> {
        let mut transaction = ptr::null_mut();
        let (environment, parent) = (self.environment.get(), ptr::null_mut());
        // SAFETY: an open environment, no parent, a place for the new object.
        let begun =
            unsafe { (self.functions.txn_begin)(environment, parent, flags, &mut transaction) };
        self.functions.answer("txn_begin", begun)?;
        Ok(Handle::new(transaction, NAME, "txn_begin")?)
    }

    /// Commits or aborts; the transaction is gone either way.
    fn end(&self, transaction: Handle, commit: bool) -> Result<()> {
        if commit {
            // SAFETY: a transaction that is not used after this.
            let done = unsafe { (self.functions.txn_commit)(transaction.get()) };
            return Ok(self.functions.answer("txn_commit", done)?);
        }
        // SAFETY: a transaction that is not used after this.
        unsafe { (self.functions.txn_abort)(transaction.get()) };
        Ok(())
    }

    fn apply(&self, transaction: Handle, change: &Change<'_>) -> Result<()> {
        let (functions, transaction) = (self.functions, transaction.get());
        match *change {
            Change::Put { key, value } => {
                let (mut key, mut value) = (Piece::new(key), Piece::new(value));
                // SAFETY: a write transaction of this thread; bytes that stay.
                let put =
                    unsafe { (functions.put)(transaction, self.database, &mut key, &mut value, 0) };
                Ok(functions.answer("put", put)?)
            }
            Change::Delete { key } => {
                let mut key = Piece::new(key);
                let any = ptr::null_mut();
                // SAFETY: as above; null deletes whatever the value is.
                let deleted = unsafe { (functions.del)(transaction, self.database, &mut key, any) };
                functions.found("del", deleted)?;
                Ok(())
            }
        }
    }

    /// One write transaction over these changes.
    fn write(&self, changes: &[Change<'_>]) -> Result<()> {
        let transaction = self.begin(0)?;
        let mut changes = changes.iter();
        let applied = changes.try_for_each(|change| self.apply(transaction, change));
        let ended = self.end(transaction, applied.is_ok());
        applied.and(ended)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: sessions, which alone hold transactions, keep a counted
        // reference to this, so there are none.
        unsafe { (self.functions.env_close)(self.environment.get()) };
    }
}

impl OpenStore for Open {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        let reading = self.begin(READ_ONLY)?;
        let mut cursor = ptr::null_mut();
        // SAFETY: a transaction and its database, a place for the new object.
        let opened =
            unsafe { (self.functions.cursor_open)(reading.get(), self.database, &mut cursor) };
        let opened = self.functions.answer("cursor_open", opened);
        let cursor = opened.and_then(|()| Handle::new(cursor, NAME, "cursor_open"));
        let cursor = match cursor {
            Ok(cursor) => cursor,
            Err(error) => {
                self.end(reading, false)?;
                return Err(error.into());
            }
        };
        // SAFETY: a read transaction.
        unsafe { (self.functions.txn_reset)(reading.get()) };
        Ok(Box::new(OneThread {
            reading,
            cursor,
            open: self,
        }))
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: an open environment; 1 for a sync whatever the flags say.
        let synced = unsafe { (self.functions.env_sync)(self.environment.get(), 1) };
        Ok(self.functions.answer("env_sync", synced)?)
    }

    fn compact(&self) -> Result<()> {
        Err(Error::unsupported(
            NAME,
            "compaction in place: it can only copy itself",
        ))
    }

    fn close(self: Arc<Self>) -> Result<()> {
        alone(self, NAME).map(drop)
    }
}

/// A session: its read transaction, reset between calls, and a cursor of it.
struct OneThread {
    reading: Handle,
    cursor: Handle,
    open: Arc<Open>,
}

impl OneThread {
    fn renew(&self) -> Result<()> {
        let functions = self.open.functions;
        // SAFETY: a read transaction that is reset.
        let renewed = unsafe { (functions.txn_renew)(self.reading.get()) };
        Ok(functions.answer("txn_renew", renewed)?)
    }

    fn reset(&self) {
        // SAFETY: a read transaction that is renewed.
        unsafe { (self.open.functions.txn_reset)(self.reading.get()) };
    }

    fn get_renewed(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let functions = self.open.functions;
        let (mut key, mut answer) = (Piece::new(key), Piece::empty());
        // SAFETY: a read transaction and its database; bytes that stay.
        let got = unsafe {
            (functions.get)(
                self.reading.get(),
                self.open.database,
                &mut key,
                &mut answer,
            )
        };
        if !functions.found("get", got)? {
            return Ok(false);
        }
        // SAFETY: bytes of the map, which stay until the transaction is reset.
        value.extend_from_slice(unsafe { bytes(answer.start, answer.length) });
        Ok(true)
    }

    /// Entries from where `first` goes with key `from`, each `then` from the one before.
    fn scan_renewed(
        &self,
        from: &[u8],
        (first, then): (c_uint, c_uint),
        limit: u64,
        visit: &mut Visit<'_>,
    ) -> Result<u64> {
        let functions = self.open.functions;
        let cursor = self.cursor.get();
        // SAFETY: a cursor of the transaction that was renewed.
        let renewed = unsafe { (functions.cursor_renew)(self.reading.get(), cursor) };
        functions.answer("cursor_renew", renewed)?;
        let (mut key, mut value) = (Piece::new(from), Piece::empty());
        let mut operation = first;
        let mut visited = 0;
        while visited < limit {
            // SAFETY: a cursor of a live transaction; bytes that stay.
            let moved = unsafe { (functions.cursor_get)(cursor, &mut key, &mut value, operation) };
            if !functions.found("cursor_get", moved)? {
                break;
            }
            // SAFETY: bytes of the map, which stay until the transaction is reset.
            let found = unsafe { bytes(key.start, key.length) };
            // SAFETY: as above.
            visit(found, unsafe { bytes(value.start, value.length) });
            visited += 1;
            operation = then;
        }
        Ok(visited)
    }
}

impl Session for OneThread {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        self.renew()?;
        let found = self.get_renewed(key, value);
        self.reset();
        found
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        self.open.write(changes)
    }

    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        self.renew()?;
        // No key is empty, and LMDB takes none that is.
        let first = if from.is_empty() { FIRST } else { SET_RANGE };
        let visited = self.scan_renewed(from, (first, NEXT), limit, visit);
        self.reset();
        visited
    }

    fn walk(&mut self, backwards: bool, visit: &mut Visit<'_>) -> Result<u64> {
        self.renew()?;
        let moves = match backwards {
            false => (FIRST, NEXT),
            true => (LAST, PREVIOUS),
        };
        let visited = self.scan_renewed(&[], moves, u64::MAX, visit);
        self.reset();
        visited
    }
}

impl Drop for OneThread {
    fn drop(&mut self) {
        // SAFETY: made by `cursor_open`; a cursor of a read transaction is
        // closed by whoever opened it, before the transaction ends.
        unsafe { (self.open.functions.cursor_close)(self.cursor.get()) };
        // SAFETY: made by `txn_begin`, and not used after this.
        unsafe { (self.open.functions.txn_abort)(self.reading.get()) };
    }
}
