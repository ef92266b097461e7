//! An open database of Kyoto Cabinet, and a session.
//!
//! Calls answer 0 (or -1) for a failure; code and words are then asked for, on
//! the same thread, and belong to the database. A database is documented as safe
//! to use from several threads.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::Arc;

use kvzone_core::adapter::{Change, OpenStore, Session, alone};
use kvzone_core::error::{Error, Result};

use super::calls::{Functions, NO_RECORD, Record, Text, load};
use super::{CREATE, NAME, Plan, WRITER};
use cambium_foreign::library::{Handle, text};

pub(super) fn open(plan: Plan, path: &CString) -> Result<Arc<dyn OpenStore>> {
    let functions = &load()?.functions;
    // SAFETY: takes nothing, answers a new object.
    let database = Handle::new(unsafe { (functions.dbnew)() }, NAME, "dbnew")?;
    let mut open = Open {
        functions,
        database,
        is_open: false,
        plan,
    };
    // SAFETY: a new database, a C string.
    let opened = unsafe { (functions.dbopen)(database.get(), path.as_ptr(), WRITER | CREATE) };
    open.answer("dbopen", opened)?;
    open.is_open = true;
    Ok(Arc::new(open))
}

struct Open {
    functions: &'static Functions,
    /// Documented as safe to use from several threads.
    database: Handle,
    is_open: bool,
    plan: Plan,
}

impl Open {
    /// 0 is a failure, of which the database knows more.
    fn answer(&self, call: &'static str, answer: i32) -> Result<()> {
        if answer != 0 {
            return Ok(());
        }
        Err(self.failure(call))
    }

    fn failure(&self, call: &'static str) -> Error {
        // SAFETY: a database, asked on the thread that made the call.
        let words = unsafe { (self.functions.dbemsg)(self.database.get()) };
        // SAFETY: a C string that the database holds until the next call.
        Error::store(NAME, call, unsafe { text(words) })
    }

    /// True if the call before, on this thread, failed for want of the key.
    fn was_missing(&self) -> bool {
        // SAFETY: a database, asked on the thread that made the call.
        unsafe { (self.functions.dbecode)(self.database.get()) == NO_RECORD }
    }

    fn synchronize(&self) -> Result<()> {
        let nothing = ptr::null_mut();
        // SAFETY: an open database; hard, without a callback.
        let done = unsafe { (self.functions.dbsync)(self.database.get(), 1, nothing, nothing) };
        self.answer("dbsync", done)
    }

    /// What a write promises beyond being done.
    fn after_write(&self) -> Result<()> {
        if self.plan.sync {
            return self.synchronize();
        }
        Ok(())
    }

    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (from, key_bytes) = (start(key), key.len());
        // SAFETY: an open database; bytes that stay for the call.
        let done = unsafe {
            (self.functions.dbset)(
                self.database.get(),
                from,
                key_bytes,
                start(value),
                value.len(),
            )
        };
        self.answer("dbset", done)
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        // SAFETY: an open database; bytes that stay for the call.
        let done = unsafe { (self.functions.dbremove)(self.database.get(), start(key), key.len()) };
        if done == 0 && !self.was_missing() {
            return Err(self.failure("dbremove"));
        }
        Ok(())
    }
}

/// Where bytes begin. Of an empty slice Rust may say address 1, which is what
/// Kyoto Cabinet's visitors mean by "remove this record": it gets a real one.
fn start(bytes: &[u8]) -> *const c_char {
    if bytes.is_empty() {
        return c"".as_ptr();
    }
    bytes.as_ptr().cast()
}

fn piece(bytes: &[u8]) -> Text {
    Text {
        start: start(bytes),
        length: bytes.len(),
    }
}

impl OpenStore for Open {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(OneThread {
            open: self,
            puts: Pieces(Vec::new()),
            deletes: Pieces(Vec::new()),
        }))
    }

    fn sync(&self) -> Result<()> {
        self.synchronize()
    }

    fn compact(&self) -> Result<()> {
        Err(Error::unsupported(
            NAME,
            "compaction: its C interface has none",
        ))
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        // SAFETY: an open database.
        let entries = unsafe { (self.functions.dbcount)(self.database.get()) };
        BTreeMap::from([("entries".to_string(), entries as f64)])
    }

    fn close(self: Arc<Self>) -> Result<()> {
        let mut open = alone(self, NAME)?;
        open.is_open = false;
        // SAFETY: an open database that nobody else uses.
        let closed = unsafe { (open.functions.dbclose)(open.database.get()) };
        open.answer("dbclose", closed)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.is_open {
            // SAFETY: an open database that nobody else uses.
            unsafe { (self.functions.dbclose)(self.database.get()) };
        }
        // SAFETY: made by `dbnew`, closed or never opened, not used after this.
        unsafe { (self.functions.dbdel)(self.database.get()) };
    }
}

/// Pointers to the changes of one call, kept for their memory alone: empty
/// between calls.
struct Pieces<T>(Vec<T>);

// SAFETY: it is empty whenever a session goes to another thread.
unsafe impl<T> Send for Pieces<T> {}

struct OneThread {
    open: Arc<Open>,
    puts: Pieces<Record>,
    deletes: Pieces<Text>,
}

impl OneThread {
    fn flush_puts(&mut self) -> Result<()> {
        let (records, count) = (self.puts.0.as_ptr(), self.puts.0.len());
        self.puts.0.clear();
        if count == 0 {
            return Ok(());
        }
        let open = &*self.open;
        // SAFETY: an open database and so many records, whose memory a cleared
        // vector keeps, pointing to bytes of the caller's changes.
        let done = unsafe { (open.functions.dbsetbulk)(open.database.get(), records, count, 1) };
        if done < 0 {
            return Err(open.failure("dbsetbulk"));
        }
        Ok(())
    }

    fn flush_deletes(&mut self) -> Result<()> {
        let (keys, count) = (self.deletes.0.as_ptr(), self.deletes.0.len());
        self.deletes.0.clear();
        if count == 0 {
            return Ok(());
        }
        let open = &*self.open;
        // SAFETY: as in `flush_puts`.
        let done = unsafe { (open.functions.dbremovebulk)(open.database.get(), keys, count, 1) };
        if done < 0 {
            return Err(open.failure("dbremovebulk"));
        }
        Ok(())
    }

    /// Runs of puts and of deletes, in their order.
    fn write_bulk(&mut self, changes: &[Change<'_>]) -> Result<()> {
        for change in changes {
            match *change {
                Change::Put { key, value } => {
                    self.flush_deletes()?;
                    self.puts.0.push(Record {
                        key: piece(key),
                        value: piece(value),
                    });
                }
                Change::Delete { key } => {
                    self.flush_puts()?;
                    self.deletes.0.push(piece(key));
                }
            }
        }
        self.flush_deletes()?;
        self.flush_puts()
    }
}

impl Session for OneThread {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let open = &*self.open;
        loop {
            // SAFETY: an open database, key bytes that stay, and room for so
            // many bytes as are named.
            let length = unsafe {
                (open.functions.dbgetbuf)(
                    open.database.get(),
                    start(key),
                    key.len(),
                    value.as_mut_ptr().cast(),
                    value.capacity(),
                )
            };
            let Ok(length) = usize::try_from(length) else {
                if open.was_missing() {
                    return Ok(false);
                }
                return Err(open.failure("dbgetbuf"));
            };
            if length <= value.capacity() {
                // SAFETY: the library wrote so many bytes, within the capacity.
                unsafe { value.set_len(length) };
                return Ok(true);
            }
            value.reserve_exact(length);
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.open.set(key, value)?;
        self.open.after_write()
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.open.remove(key)?;
        self.open.after_write()
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        let written = self.write_bulk(changes);
        self.puts.0.clear();
        self.deletes.0.clear();
        written?;
        self.open.after_write()
    }
}
