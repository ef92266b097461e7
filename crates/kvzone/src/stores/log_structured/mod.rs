//! What LevelDB and RocksDB have in common: RocksDB began as a copy of LevelDB,
//! and the oldest part of its C interface is LevelDB's with another prefix.
//!
//! `Functions` of [`cambium_foreign::log_structured`] holds that part. [`Database`] is an open
//! database with what it was opened with, [`session`] what one thread works with.
//!
//! The contract of their headers, on which the blocks below rely, stands there.
//!
//! Objects are freed in this order: iterators and batches, database, then
//! options, filter and cache, which the database uses until it is closed.

use std::ffi::{CString, c_char, c_int, c_uchar};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use kvzone_core::adapter::{Session, alone};
use kvzone_core::error::{Error, Result};

use cambium_foreign::library::{Handle, text};
use cambium_foreign::log_structured::{Bytes, ErrorOut, Functions, Object, take_error};

mod session;

/// RocksDB's `get` into a buffer of the caller: no allocation in the library.
/// Answers 1 if the value fitted; `found` and the length are set anyway.
pub(super) type GetIntoBuffer = unsafe extern "C" fn(
    Object,
    Object,
    Bytes,
    usize,
    *mut c_char,
    usize,
    *mut usize,
    *mut c_uchar,
    ErrorOut,
) -> c_uchar;

/// What a database is opened with. The database takes over what is in it.
pub(super) struct Opening {
    pub(super) store: &'static str,
    pub(super) functions: &'static Functions,
    pub(super) get_into_buffer: Option<GetIntoBuffer>,
    pub(super) options: Handle,
    pub(super) read_options: Handle,
    pub(super) write_options: Handle,
    /// What the database uses until it is closed, with its destructor.
    pub(super) kept: Vec<(Handle, unsafe extern "C" fn(Object))>,
}

impl Opening {
    pub(super) fn new(store: &'static str, functions: &'static Functions) -> Result<Self> {
        // SAFETY: takes nothing, answers a new object.
        let options = unsafe { (functions.options_create)() };
        // SAFETY: as above.
        let read_options = unsafe { (functions.readoptions_create)() };
        // SAFETY: as above.
        let write_options = unsafe { (functions.writeoptions_create)() };
        Ok(Opening {
            store,
            functions,
            get_into_buffer: None,
            options: Handle::new(options, store, "options_create")?,
            read_options: Handle::new(read_options, store, "readoptions_create")?,
            write_options: Handle::new(write_options, store, "writeoptions_create")?,
            kept: Vec::new(),
        })
    }

    pub(super) fn set_flag(&self, setter: unsafe extern "C" fn(Object, c_uchar), on: bool) {
        // SAFETY: the setter is one of `options_set_*`, whose object this is.
        unsafe { setter(self.options.get(), c_uchar::from(on)) };
    }

    pub(super) fn set_int(&self, setter: unsafe extern "C" fn(Object, c_int), value: c_int) {
        // SAFETY: the setter is one of `options_set_*`, whose object this is.
        unsafe { setter(self.options.get(), value) };
    }

    /// Calls a setter of the options for a `size_t` or `uint64_t`, which are
    /// one on the machines that these libraries are loaded on.
    pub(super) fn set_bytes(&self, setter: unsafe extern "C" fn(Object, usize), value: u64) {
        // SAFETY: the setter is one of `options_set_*`, whose object this is.
        unsafe { setter(self.options.get(), value as usize) };
    }

    pub(super) fn make_cache(&mut self, capacity_bytes: u64) -> Result<Handle> {
        // SAFETY: takes a number, answers a new object.
        let cache = unsafe { (self.functions.cache_create_lru)(capacity_bytes as usize) };
        let cache = Handle::new(cache, self.store, "cache_create_lru")?;
        self.kept.push((cache, self.functions.cache_destroy));
        Ok(cache)
    }

    /// Whether blocks read are compared with their checksums.
    pub(super) fn verify_reads(&self, on: bool) {
        let setter = self.functions.readoptions_set_verify_checksums;
        // SAFETY: the setter's object is a `readoptions`, as this is.
        unsafe { setter(self.read_options.get(), c_uchar::from(on)) };
    }

    /// Whether a write returns after its log is on the device.
    pub(super) fn sync_writes(&self, on: bool) {
        let setter = self.functions.writeoptions_set_sync;
        // SAFETY: the setter's object is a `writeoptions`, as this is.
        unsafe { setter(self.write_options.get(), c_uchar::from(on)) };
    }

    pub(super) fn open(self, folder: &Path) -> Result<Arc<Database>> {
        self.set_flag(self.functions.options_set_create_if_missing, true);
        let name = CString::new(folder.as_os_str().as_bytes())
            .map_err(|error| Error::store(self.store, "open", error))?;
        let mut problem = ptr::null_mut();
        // SAFETY: options of this library, a C string, and an error that is null.
        let database =
            unsafe { (self.functions.open)(self.options.get(), name.as_ptr(), &mut problem) };
        // SAFETY: what the call left, used no more.
        unsafe { take_error(self.functions, self.store, "open", problem) }?;
        let database = Handle::new(database, self.store, "open")?;
        Ok(Arc::new(Database {
            database: Some(database),
            opening: self,
        }))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // SAFETY: made by `options_create`; nothing uses it any more.
        unsafe { (self.functions.options_destroy)(self.options.get()) };
        // SAFETY: made by `readoptions_create`; nothing uses it any more.
        unsafe { (self.functions.readoptions_destroy)(self.read_options.get()) };
        // SAFETY: made by `writeoptions_create`; nothing uses it any more.
        unsafe { (self.functions.writeoptions_destroy)(self.write_options.get()) };
        for (object, destroy) in self.kept.drain(..) {
            // SAFETY: each stands beside the destructor of its kind, and the
            // database that used it is closed.
            unsafe { destroy(object.get()) };
        }
    }
}

pub(super) struct Database {
    /// None when it is closed; the options go after it.
    database: Option<Handle>,
    pub(super) opening: Opening,
}

impl Database {
    pub(super) fn store(&self) -> &'static str {
        self.opening.store
    }

    /// For calling C; null once it is closed, which no call outlives.
    pub(super) fn handle(&self) -> Object {
        self.database.map_or(ptr::null_mut(), Handle::get)
    }

    pub(super) fn error(&self, call: &'static str, problem: *mut c_char) -> Result<()> {
        if problem.is_null() {
            return Ok(());
        }
        // SAFETY: what a call left, which the callers use no more.
        Ok(unsafe { take_error(self.opening.functions, self.store(), call, problem) }?)
    }

    /// What the store says of itself under a name; empty if it knows none.
    pub(super) fn property(&self, name: &str) -> String {
        let Ok(name) = CString::new(name) else {
            return String::new();
        };
        let functions = self.opening.functions;
        // SAFETY: an open database and a C string.
        let value = unsafe { (functions.property_value)(self.handle(), name.as_ptr()) };
        // SAFETY: null, or a C string that is ours.
        let words = unsafe { text(value) };
        if !value.is_null() {
            // SAFETY: the string came from the library, and is not used after this.
            unsafe { (functions.free)(value.cast()) };
        }
        words
    }

    pub(super) fn compact(&self) {
        let all = ptr::null();
        // SAFETY: an open database; null bounds mean every key.
        unsafe { (self.opening.functions.compact_range)(self.handle(), all, 0, all, 0) };
    }

    /// Writes an empty batch with a sync: everything logged before it, in the
    /// same log, is on the device when it returns.
    pub(super) fn sync_log(&self) -> Result<()> {
        let functions = self.opening.functions;
        // SAFETY: takes nothing, answers a new object.
        let options = unsafe { (functions.writeoptions_create)() };
        let options = Handle::new(options, self.store(), "writeoptions_create")?;
        // SAFETY: made above.
        unsafe { (functions.writeoptions_set_sync)(options.get(), 1) };
        // SAFETY: takes nothing, answers a new object.
        let batch = unsafe { (functions.writebatch_create)() };
        let mut problem = ptr::null_mut();
        // SAFETY: an open database, options and a batch made above.
        unsafe { (functions.write)(self.handle(), options.get(), batch, &mut problem) };
        // SAFETY: made above, and not used after this.
        unsafe { (functions.writebatch_destroy)(batch) };
        // SAFETY: made above, and not used after this.
        unsafe { (functions.writeoptions_destroy)(options.get()) };
        self.error("write", problem)
    }

    /// Closes it, where it is not in use any more.
    pub(super) fn close(self: Arc<Self>) -> Result<()> {
        let store = self.store();
        alone(self, store).map(drop)
    }

    pub(super) fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        // SAFETY: takes nothing, answers a new object.
        let batch = unsafe { (self.opening.functions.writebatch_create)() };
        let batch = Handle::new(batch, self.store(), "writebatch_create")?;
        Ok(Box::new(session::OneThread {
            batch,
            database: self,
        }))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Some(database) = self.database.take() {
            // SAFETY: sessions, which alone hold iterators, keep a counted
            // reference to this, so there are none.
            unsafe { (self.opening.functions.close)(database.get()) };
        }
    }
}
