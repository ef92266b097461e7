//! The functions of SQLite that are used, as `sqlite3.h` 3.40 declares them.

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::error::Result;
use crate::functions;
use crate::library::{Library, Wanted, text, unfit};

mod connection;
mod rows;

pub use connection::{Cell, Connection, Statement};
pub use rows::Rows;

/// What messages call it.
pub const NAME: &str = "sqlite";

const WANTED: Wanted = Wanted {
    store: NAME,
    stems: &["libsqlite3.so"],
    names: &["libsqlite3.so.0", "libsqlite3.so"],
    companions: &[],
    remedy: "install the Debian package libsqlite3-0, or call `make peers` in Cambium's sources",
};

/// Answer of a call that worked.
pub const OK: c_int = 0;
/// Answer of a step to a row.
pub const ROW: c_int = 100;
/// Answer of a step behind the last row.
pub const DONE: c_int = 101;

/// Storage classes that `sqlite3_column_type` answers; any other is NULL.
const INTEGER: c_int = 1;
const REAL: c_int = 2;
const TEXT: c_int = 3;
const BLOB: c_int = 4;

/// Flags of `sqlite3_open_v2`: no mutex, since one session has a connection.
pub const OPEN_FLAGS: c_int = 0x2 | 0x4 | 0x8000;

/// Likewise for reading a file that is there.
pub const READ_FLAGS: c_int = 0x1 | 0x8000;

/// Flag of `sqlite3_prepare_v3`: the statement is kept.
pub const PERSISTENT: u32 = 1;

/// Mode of `sqlite3_wal_checkpoint_v2`: all of the log, and cut it off.
pub const CHECKPOINT_TRUNCATE: c_int = 3;

/// An object of the library.
pub type Object = *mut c_void;

functions! {
    /// Declarations of `sqlite3.h` 3.40.
    pub struct Functions, prefix "sqlite3_" {
        libversion() -> *const c_char;
        open_v2(*const c_char, *mut Object, c_int, *const c_char) -> c_int;
        close_v2(Object) -> c_int;
        errmsg(Object) -> *const c_char;
        busy_timeout(Object, c_int) -> c_int;
        exec(Object, *const c_char, Object, Object, *mut *mut c_char) -> c_int;
        prepare_v3(Object, *const c_char, c_int, u32, *mut Object, Object) -> c_int;
        finalize(Object) -> c_int;
        step(Object) -> c_int;
        reset(Object) -> c_int;
        bind_int64(Object, c_int, i64) -> c_int;
        bind_double(Object, c_int, f64) -> c_int;
        bind_blob(Object, c_int, *const c_void, c_int, Object) -> c_int;
        column_type(Object, c_int) -> c_int;
        column_int64(Object, c_int) -> i64;
        column_double(Object, c_int) -> f64;
        column_blob(Object, c_int) -> *const c_void;
        column_bytes(Object, c_int) -> c_int;
        wal_checkpoint_v2(Object, *const c_char, c_int, *mut c_int, *mut c_int) -> c_int;
    }
}

/// A library that is here.
pub struct Loaded {
    /// Its functions.
    pub functions: Functions,
    /// Its version, as it says.
    pub version: String,
    /// Where it is.
    pub path: PathBuf,
}

/// Found and resolved once a process.
pub fn load() -> Result<&'static Loaded> {
    static LOADED: OnceLock<Result<Loaded>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let library = Library::load(&WANTED)?;
        let functions = Functions::resolve(library).map_err(|what| unfit(&WANTED, what))?;
        // SAFETY: takes nothing, answers a constant C string.
        let version = unsafe { (functions.libversion)() };
        Ok(Loaded {
            functions,
            // SAFETY: a constant C string.
            version: unsafe { text(version) },
            path: library.path.clone(),
        })
    });
    loaded.as_ref().map_err(Clone::clone)
}
