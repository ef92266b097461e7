//! An environment with its one database.
//!
//! Contract of `db.h`, on which the blocks below rely: with `DB_THREAD`,
//! environment and database may be used from several threads; a cursor and a
//! transaction by one thread at a time. They are gone before the database is
//! closed, and the database before its environment, after whose `close` the
//! object is gone, whatever it answers.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use kvzone_core::adapter::DurabilityName;
use kvzone_core::error::{Error, Result};

use super::calls::{self, Object, Piece, load};
use super::{NAME, Plan};
use cambium_foreign::library::{Handle, text};

thread_local! {
    /// What the library said of the error that this thread's call met.
    static WORDS: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps what the library says, which would go to standard error.
unsafe extern "C" fn remember(_: Object, _: *const c_char, words: *const c_char) {
    // SAFETY: the library hands over a C string.
    let said = unsafe { text(words) };
    WORDS.with_borrow_mut(|words| {
        if !words.is_empty() {
            words.push_str("; ");
        }
        words.push_str(&said);
    });
}

/// 0 is success; other answers are errors of which the library has words.
pub(super) fn answer(call: &'static str, answer: c_int) -> Result<()> {
    let said = WORDS.with_borrow_mut(std::mem::take);
    if answer == 0 {
        return Ok(());
    }
    let mut words = match load() {
        Ok(loaded) => {
            // SAFETY: takes any number.
            let words = unsafe { (loaded.functions.strerror)(answer) };
            // SAFETY: a C string, used at once.
            unsafe { text(words) }
        }
        Err(error) => error.to_string(),
    };
    if !said.is_empty() {
        words = format!("{words}: {said}");
    }
    Err(Error::store(NAME, call, words))
}

pub(super) struct Environment {
    pub(super) object: Handle,
    is_there: bool,
}

impl Environment {
    pub(super) fn open(plan: &Plan, folder: &Path) -> Result<Self> {
        let mut object = ptr::null_mut();
        // SAFETY: a place for the new object.
        let made = unsafe { (load()?.functions.env_create)(&mut object, 0) };
        answer("db_env_create", made)?;
        let object = Handle::new(object, NAME, "db_env_create")?;
        // SAFETY: a new environment of the version that was checked.
        unsafe { calls::set_errcall(object, remember) };
        let environment = Environment {
            object,
            is_there: true,
        };
        environment.configure(plan)?;
        let home = CString::new(folder.as_os_str().as_bytes())
            .map_err(|error| Error::store(NAME, "DB_ENV->open", error))?;
        let kind = calls::INIT_TXN | calls::INIT_LOG | calls::INIT_LOCK | calls::INIT_MPOOL;
        let flags = calls::CREATE | calls::PRIVATE | calls::THREAD | calls::RECOVER | kind;
        // SAFETY: an environment that is not open; a C string, and permissions.
        let opened = unsafe { calls::environment_open(object, home.as_ptr(), flags, 0o644) };
        answer("DB_ENV->open", opened)?;
        Ok(environment)
    }

    fn configure(&self, plan: &Plan) -> Result<()> {
        let (gib, bytes) = (plan.cache_bytes >> 30, plan.cache_bytes & ((1 << 30) - 1));
        // SAFETY: an environment that is not open, here and in all calls below.
        let set = unsafe { calls::set_cachesize(self.object, gib as u32, bytes as u32, 1) };
        answer("DB_ENV->set_cachesize", set)?;
        // SAFETY: see above.
        let set = unsafe { calls::set_lk_detect(self.object, calls::LOCK_MINWRITE) };
        answer("DB_ENV->set_lk_detect", set)?;
        // SAFETY: see above.
        let set = unsafe { calls::set_lg_bsize(self.object, plan.log_buffer_bytes) };
        answer("DB_ENV->set_lg_bsize", set)?;
        // SAFETY: see above.
        let set = unsafe { calls::set_lg_max(self.object, plan.log_file_bytes) };
        answer("DB_ENV->set_lg_max", set)?;
        // SAFETY: see above.
        let set = unsafe { calls::log_set_config(self.object, calls::LOG_AUTO_REMOVE, 1) };
        answer("DB_ENV->log_set_config", set)?;
        let flag = match plan.durability {
            DurabilityName::Buffered => calls::TXN_NOSYNC,
            DurabilityName::Written => calls::TXN_WRITE_NOSYNC,
            DurabilityName::Synced => return Ok(()),
        };
        // SAFETY: see above.
        answer("DB_ENV->set_flags", unsafe {
            calls::set_flags(self.object, flag, 1)
        })
    }

    pub(super) fn close(mut self) -> Result<()> {
        self.is_there = false;
        // SAFETY: an environment without open databases, not used after this.
        answer("DB_ENV->close", unsafe {
            calls::environment_close(self.object, 0)
        })
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        if self.is_there {
            // SAFETY: an environment without open databases, which nobody uses.
            unsafe { calls::environment_close(self.object, 0) };
        }
    }
}

/// The database of an environment; closed when it is dropped.
pub(super) struct Database {
    pub(super) object: Handle,
    is_there: bool,
}

impl Database {
    pub(super) fn open(plan: &Plan, environment: &Environment) -> Result<Self> {
        let mut object = ptr::null_mut();
        // SAFETY: a place for the new object, and an open environment.
        let made = unsafe { (load()?.functions.create)(&mut object, environment.object.get(), 0) };
        answer("db_create", made)?;
        let database = Database {
            object: Handle::new(object, NAME, "db_create")?,
            is_there: true,
        };
        // SAFETY: a database that is not open.
        let set = unsafe { calls::set_pagesize(database.object, plan.page_bytes) };
        answer("DB->set_pagesize", set)?;
        let (kind, name) = (calls::BTREE, c"store.btree");
        let flags = calls::CREATE | calls::THREAD | calls::AUTO_COMMIT;
        // SAFETY: a database that is not open; C strings, null for "the only
        // one of its file", and permissions.
        let opened = unsafe {
            let (object, none) = (database.object, ptr::null());
            calls::database_open(
                object,
                ptr::null_mut(),
                name.as_ptr(),
                none,
                kind,
                flags,
                0o644,
            )
        };
        answer("DB->open", opened)?;
        Ok(database)
    }

    pub(super) fn close(mut self) -> Result<()> {
        self.is_there = false;
        // SAFETY: a database without cursors, not used after this.
        answer("DB->close", unsafe {
            calls::database_close(self.object, 0)
        })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.is_there {
            // SAFETY: a database without cursors, which nobody uses.
            unsafe { calls::database_close(self.object, 0) };
        }
    }
}

/// A cursor with the buffers it copies into; closed when it is dropped.
pub(super) struct Walk {
    cursor: Handle,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Walk {
    pub(super) fn new(database: &Database) -> Result<Self> {
        let (mut cursor, none) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: an open database, no transaction, a place for the new object.
        let made = unsafe { calls::cursor(database.object, none, &mut cursor, 0) };
        answer("DB->cursor", made)?;
        Ok(Walk {
            cursor: Handle::new(cursor, NAME, "DB->cursor")?,
            key: Vec::with_capacity(256),
            value: Vec::with_capacity(4096),
        })
    }

    /// The entry that a cursor goes to, from a key where there is one to go to;
    /// none if there is no more. A buffer that is too small grows, and the
    /// cursor has not moved then.
    pub(super) fn entry(&mut self, to: u32, from: &[u8]) -> Result<Option<(&[u8], &[u8])>> {
        loop {
            self.key.clear();
            self.key.extend_from_slice(from);
            self.value.clear();
            let mut key = Piece::into(&mut self.key);
            let mut value = Piece::into(&mut self.value);
            // SAFETY: a live cursor, and room for as many bytes as are named.
            let found = unsafe { calls::cursor_get(self.cursor, &mut key, &mut value, to) };
            let (key_bytes, value_bytes) = (key.size as usize, value.size as usize);
            match found {
                0 => {
                    // SAFETY: the library wrote so many bytes, within the room
                    // that it was told of.
                    unsafe { self.key.set_len(key_bytes) };
                    // SAFETY: as above.
                    unsafe { self.value.set_len(value_bytes) };
                    return Ok(Some((&self.key, &self.value)));
                }
                calls::NOT_FOUND => return Ok(None),
                calls::BUFFER_SMALL => {
                    nothing_said();
                    self.key.clear();
                    self.key.reserve(key_bytes);
                    self.value.reserve(value_bytes);
                }
                other => answer("DBC->get", other)?,
            }
        }
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        // SAFETY: made by `cursor`, and not used after this.
        unsafe { calls::cursor_close(self.cursor) };
    }
}

/// Forgets what the library said of something that is no error.
pub(super) fn nothing_said() {
    WORDS.with_borrow_mut(String::clear);
}
