//! A database object: the calls that hash database and B+-tree share.
//!
//! Calls answer false for a failure; its code is then asked for on the same
//! thread. After `setmutex`, which comes first, a database is documented as safe
//! to use from several threads.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use kvzone_core::adapter::DurabilityName;
use kvzone_core::error::{Error, Result};

use super::calls::{Both, Loaded, NO_RECORD, load};
use super::{NAME, Plan};
use cambium_foreign::library::{Handle, bytes, text};

/// Modes of `open`.
const WRITER: i32 = 1 << 1;
const CREATE: i32 = 1 << 2;
const NO_WAITING_FOR_LOCK: i32 = 1 << 5;

/// Options of `tune`.
const LARGE: u8 = 1 << 0;

/// What `tune` and `optimize` take for "as it is by default", or "as it is".
const UNCHANGED: i8 = -1;

pub(super) struct Database {
    pub(super) loaded: &'static Loaded,
    pub(super) functions: &'static Both,
    pub(super) object: Handle,
    pub(super) plan: Plan,
    is_open: bool,
}

impl Database {
    pub(super) fn open(plan: Plan, folder: &Path) -> Result<Self> {
        let loaded = load()?;
        let functions = if plan.tree {
            &loaded.tree
        } else {
            &loaded.hash
        };
        // SAFETY: takes nothing, answers a new object.
        let object = Handle::new(unsafe { (functions.new)() }, NAME, "new")?;
        let mut database = Database {
            loaded,
            functions,
            object,
            plan,
            is_open: false,
        };
        database.tune()?;
        let name = if database.plan.tree {
            "store.tcb"
        } else {
            "store.tch"
        };
        let path = CString::new(folder.join(name).as_os_str().as_bytes())
            .map_err(|error| Error::store(NAME, "open", error))?;
        let mode = WRITER | CREATE | NO_WAITING_FOR_LOCK;
        // SAFETY: a new, tuned object; a C string.
        let opened = unsafe { (functions.open)(object.get(), path.as_ptr(), mode) };
        database.answer("open", opened)?;
        database.is_open = true;
        Ok(database)
    }

    fn tune(&self) -> Result<()> {
        let (object, plan) = (self.object.get(), &self.plan);
        // SAFETY: a new object, of which no other thread knows.
        let set = unsafe { (self.functions.setmutex)(object) };
        self.answer("setmutex", set)?;
        let (buckets, power) = (plan.buckets, plan.free_pool_power);
        let (hash, tree) = (&self.loaded.hash_only, &self.loaded.tree_only);
        let tuned = if plan.tree {
            // SAFETY: a B+-tree that is not open.
            unsafe { (tree.tune)(object, 0, 0, buckets, UNCHANGED, power, LARGE) }
        } else {
            // SAFETY: a hash database that is not open.
            unsafe { (hash.tune)(object, buckets, UNCHANGED, power, LARGE) }
        };
        self.answer("tune", tuned)?;
        if plan.tree {
            // SAFETY: a B+-tree that is not open.
            let set = unsafe { (tree.setcache)(object, plan.cached_leaves, plan.cached_nodes) };
            self.answer("setcache", set)?;
        }
        // SAFETY: an object that is not open.
        let set = unsafe { (self.functions.setxmsiz)(object, plan.mapped_bytes) };
        self.answer("setxmsiz", set)
    }

    /// False is a failure, of which the database knows more.
    pub(super) fn answer(&self, call: &'static str, done: bool) -> Result<()> {
        if done {
            return Ok(());
        }
        Err(self.failure(call))
    }

    pub(super) fn failure(&self, call: &'static str) -> Error {
        // SAFETY: takes any number.
        let words = unsafe { (self.functions.errmsg)(self.code()) };
        // SAFETY: a constant C string.
        Error::store(NAME, call, unsafe { text(words) })
    }

    /// Of the call before, on this thread.
    fn code(&self) -> i32 {
        // SAFETY: a database, asked on the thread that made the call.
        unsafe { (self.functions.ecode)(self.object.get()) }
    }

    /// True if the call before, on this thread, failed for want of the key.
    pub(super) fn was_missing(&self) -> bool {
        self.code() == NO_RECORD
    }

    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (key_bytes, value_bytes) = (length(key)?, length(value)?);
        let put = self.functions.put;
        // SAFETY: an open database; bytes that stay for the call.
        let done = unsafe {
            put(
                self.object.get(),
                start(key),
                key_bytes,
                start(value),
                value_bytes,
            )
        };
        self.answer("put", done)
    }

    pub(super) fn remove(&self, key: &[u8]) -> Result<()> {
        let key_bytes = length(key)?;
        // SAFETY: an open database; bytes that stay for the call.
        let done = unsafe { (self.functions.out)(self.object.get(), start(key), key_bytes) };
        if !done && !self.was_missing() {
            return Err(self.failure("out"));
        }
        Ok(())
    }

    /// Copies a key's value; false if there is none.
    pub(super) fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let (key_bytes, mut value_bytes) = (length(key)?, 0);
        let get = self.functions.get;
        // SAFETY: an open database, bytes that stay for the call, and a place
        // for the length.
        let found = unsafe { get(self.object.get(), start(key), key_bytes, &mut value_bytes) };
        if found.is_null() {
            if self.was_missing() {
                return Ok(false);
            }
            return Err(self.failure("get"));
        }
        // SAFETY: the library answers a region of so many bytes, and it is ours.
        value.extend_from_slice(unsafe { bytes(found, value_bytes as usize) });
        // SAFETY: the region came from the library, and is not used after this.
        unsafe { (self.loaded.memory.free)(found) };
        Ok(true)
    }

    /// What a write or a batch promises beyond being done.
    pub(super) fn after_write(&self) -> Result<()> {
        match self.plan.durability {
            DurabilityName::Synced => self.synchronize(),
            DurabilityName::Written if self.plan.tree => self.write_pages(),
            DurabilityName::Written | DurabilityName::Buffered => Ok(()),
        }
    }

    /// Everything to the device.
    pub(super) fn synchronize(&self) -> Result<()> {
        // SAFETY: an open database.
        let done = unsafe { (self.functions.sync)(self.object.get()) };
        self.answer("sync", done)
    }

    /// A tree's changed pages to the operating system.
    fn write_pages(&self) -> Result<()> {
        // SAFETY: an open B+-tree.
        let done = unsafe { (self.loaded.tree_only.memsync)(self.object.get(), false) };
        self.answer("memsync", done)
    }

    /// Writes the file anew, without holes, tuned as it is.
    pub(super) fn optimize(&self) -> Result<()> {
        let object = self.object.get();
        let (hash, tree) = (&self.loaded.hash_only, &self.loaded.tree_only);
        let done = if self.plan.tree {
            // SAFETY: an open B+-tree.
            unsafe { (tree.optimize)(object, 0, 0, 0, UNCHANGED, UNCHANGED, u8::MAX) }
        } else {
            // SAFETY: an open hash database.
            unsafe { (hash.optimize)(object, 0, UNCHANGED, UNCHANGED, u8::MAX) }
        };
        self.answer("optimize", done)
    }

    pub(super) fn entries(&self) -> u64 {
        // SAFETY: an open database.
        unsafe { (self.functions.rnum)(self.object.get()) }
    }

    pub(super) fn close(mut self) -> Result<()> {
        self.is_open = false;
        // SAFETY: an open database that nobody else uses.
        let closed = unsafe { (self.functions.close)(self.object.get()) };
        self.answer("close", closed)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.is_open {
            // SAFETY: an open database that nobody else uses.
            unsafe { (self.functions.close)(self.object.get()) };
        }
        // SAFETY: made by `new`, closed or never opened, not used after this.
        unsafe { (self.functions.del)(self.object.get()) };
    }
}

/// Where bytes begin; never an address that no byte lies at.
pub(super) fn start(bytes: &[u8]) -> *const c_char {
    if bytes.is_empty() {
        return c"".as_ptr();
    }
    bytes.as_ptr().cast()
}

/// How many there are, as C counts.
pub(super) fn length(bytes: &[u8]) -> Result<i32> {
    i32::try_from(bytes.len()).map_err(|_| {
        let words = format!("{} bytes, where {} is most", bytes.len(), i32::MAX);
        Error::store(NAME, "length", words)
    })
}

/// A cursor over a B+-tree with the strings it copies into.
pub(super) struct Walk<'a> {
    database: &'a Database,
    cursor: Handle,
    key: Text<'a>,
    value: Text<'a>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(database: &'a Database) -> Result<Self> {
        let (key, value) = (Text::new(database)?, Text::new(database)?);
        // SAFETY: an open B+-tree.
        let cursor = unsafe { (database.loaded.tree_only.curnew)(database.object.get()) };
        Ok(Walk {
            database,
            cursor: Handle::new(cursor, NAME, "curnew")?,
            key,
            value,
        })
    }

    /// To the first key from this one on; false if there is none.
    pub(super) fn jump(&self, from: &[u8]) -> Result<bool> {
        let tree = &self.database.loaded.tree_only;
        let from_bytes = length(from)?;
        let found = if from.is_empty() {
            // SAFETY: a live cursor.
            unsafe { (tree.curfirst)(self.cursor.get()) }
        } else {
            // SAFETY: a live cursor; bytes that stay for the call.
            unsafe { (tree.curjump)(self.cursor.get(), start(from), from_bytes) }
        };
        self.found("curjump", found)
    }

    /// To the next key; false if there is none.
    pub(super) fn next(&self) -> Result<bool> {
        // SAFETY: a live cursor.
        let found = unsafe { (self.database.loaded.tree_only.curnext)(self.cursor.get()) };
        self.found("curnext", found)
    }

    /// Key and value there, copied at one moment; none if they went meanwhile.
    pub(super) fn entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let currec = self.database.loaded.tree_only.currec;
        let (key, value) = (self.key.emptied(), self.value.emptied());
        // SAFETY: a live cursor and two strings of the library.
        let found = unsafe { currec(self.cursor.get(), key, value) };
        if !self.found("currec", found)? {
            return Ok(None);
        }
        Ok(Some((self.key.bytes(), self.value.bytes())))
    }

    fn found(&self, call: &'static str, found: bool) -> Result<bool> {
        if !found && !self.database.was_missing() {
            return Err(self.database.failure(call));
        }
        Ok(found)
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `curnew`, and not used after this.
        unsafe { (self.database.loaded.tree_only.curdel)(self.cursor.get()) };
    }
}

struct Text<'a> {
    database: &'a Database,
    object: Handle,
}

impl<'a> Text<'a> {
    fn new(database: &'a Database) -> Result<Self> {
        // SAFETY: takes nothing, answers a new object.
        let object = unsafe { (database.loaded.memory.xstrnew)() };
        Ok(Text {
            database,
            object: Handle::new(object, NAME, "tcxstrnew")?,
        })
    }

    fn emptied(&self) -> *mut std::ffi::c_void {
        // SAFETY: a live string.
        unsafe { (self.database.loaded.memory.xstrclear)(self.object.get()) };
        self.object.get()
    }

    fn bytes(&self) -> &[u8] {
        let memory = &self.database.loaded.memory;
        // SAFETY: a live string.
        let length = unsafe { (memory.xstrsize)(self.object.get()) };
        // SAFETY: a live string.
        let start = unsafe { (memory.xstrptr)(self.object.get()) };
        // SAFETY: so many bytes of a live string, which stay until it is
        // changed; that takes `&mut` of the walk that it belongs to.
        unsafe { bytes(start, length as usize) }
    }
}

impl Drop for Text<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `tcxstrnew`, and not used after this.
        unsafe { (self.database.loaded.memory.xstrdel)(self.object.get()) };
    }
}
