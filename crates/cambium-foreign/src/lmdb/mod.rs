//! The functions of LMDB that are used, as `lmdb.h` 0.9.24 declares them.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::functions;
use crate::library::{Library, Wanted, text, unfit};

mod reader;

pub use reader::Reader;

/// What messages call it.
pub const NAME: &str = "lmdb";

const WANTED: Wanted = Wanted {
    store: NAME,
    stems: &["liblmdb.so"],
    names: &["liblmdb.so.0", "liblmdb.so"],
    companions: &[],
    remedy: "install the Debian package liblmdb0, or call `make peers` in Cambium's sources",
};

/// Flag of `mdb_txn_begin`.
pub const READ_ONLY: c_uint = 0x2_0000;

/// Operations of `mdb_cursor_get`: to the first entry.
pub const FIRST: c_uint = 0;
/// To the entry behind the present one.
pub const NEXT: c_uint = 8;
/// To the last entry.
pub const LAST: c_uint = 6;
/// To the entry before the present one.
pub const PREVIOUS: c_uint = 12;
/// To a key, or the first behind it.
pub const SET_RANGE: c_uint = 17;

/// Answer for a key that is not there.
pub const NOT_FOUND: c_int = -30798;

/// `MDB_val`.
#[repr(C)]
pub struct Piece {
    /// How many bytes.
    pub length: usize,
    /// Where they begin.
    pub start: *mut c_void,
}

impl Piece {
    /// Bytes of the caller.
    pub fn new(bytes: &[u8]) -> Self {
        Piece {
            length: bytes.len(),
            // Only read: LMDB's one type serves both ways.
            start: bytes.as_ptr().cast_mut().cast(),
        }
    }

    /// For an answer.
    pub fn empty() -> Self {
        Piece {
            length: 0,
            start: ptr::null_mut(),
        }
    }
}

/// `MDB_stat`.
#[repr(C)]
#[derive(Default)]
pub struct Statistics {
    page_bytes: c_uint,
    depth: c_uint,
    branch_pages: usize,
    leaf_pages: usize,
    overflow_pages: usize,
    entries: usize,
}

/// An object of the library.
pub type Object = *mut c_void;
/// The number of an open database.
pub type Database = c_uint;

functions! {
    /// Declarations of `lmdb.h` 0.9.24.
    pub struct Functions, prefix "mdb_" {
        version(*mut c_int, *mut c_int, *mut c_int) -> *const c_char;
        strerror(c_int) -> *const c_char;
        env_create(*mut Object) -> c_int;
        env_open(Object, *const c_char, c_uint, c_uint) -> c_int;
        env_close(Object);
        env_set_mapsize(Object, usize) -> c_int;
        env_set_maxreaders(Object, c_uint) -> c_int;
        env_set_maxdbs(Object, c_uint) -> c_int;
        env_sync(Object, c_int) -> c_int;
        txn_begin(Object, Object, c_uint, *mut Object) -> c_int;
        txn_commit(Object) -> c_int;
        txn_abort(Object);
        txn_reset(Object);
        txn_renew(Object) -> c_int;
        dbi_open(Object, *const c_char, c_uint, *mut Database) -> c_int;
        dbi_flags(Object, Database, *mut c_uint) -> c_int;
        stat(Object, Database, *mut Statistics) -> c_int;
        get(Object, Database, *mut Piece, *mut Piece) -> c_int;
        put(Object, Database, *mut Piece, *mut Piece, c_uint) -> c_int;
        del(Object, Database, *mut Piece, *mut Piece) -> c_int;
        cursor_open(Object, Database, *mut Object) -> c_int;
        cursor_close(Object);
        cursor_renew(Object, Object) -> c_int;
        cursor_get(Object, *mut Piece, *mut Piece, c_uint) -> c_int;
    }
}

impl Functions {
    /// 0 is success.
    pub fn answer(&self, call: &'static str, answer: c_int) -> Result<()> {
        if answer == 0 {
            return Ok(());
        }
        // SAFETY: takes any number.
        let words = unsafe { (self.strerror)(answer) };
        // SAFETY: a constant C string, or one of the C library.
        Err(Error::store(NAME, call, unsafe { text(words) }))
    }

    /// As `answer`, but a key that is not there is false.
    pub fn found(&self, call: &'static str, answer: c_int) -> Result<bool> {
        if answer == NOT_FOUND {
            return Ok(false);
        }
        self.answer(call, answer).map(|()| true)
    }
}

/// Bytes of a meta page that are read.
const META_BYTES: usize = 152;
/// Offsets in a meta page, in the byte order of the machine, of a magic number, the bytes of
/// a page, the number of the last page, the transaction that wrote it.
const MAGIC_AT: usize = 16;
const PAGE_BYTES_AT: usize = 40;
const LAST_PAGE_AT: usize = 136;
const TRANSACTION_AT: usize = 144;
const MAGIC: u32 = 0xBEEF_C0DE;

/// The bytes of all pages that the newest meta page counts. A sound file may be shorter:
/// LMDB does not write last pages that their own transaction has freed.
pub fn bytes_of_pages(file: &Path) -> Option<u64> {
    let file = File::open(file).ok()?;
    let meta = |at: u64| {
        let mut page = [0; META_BYTES];
        file.read_exact_at(&mut page, at).ok()?;
        let small = |at: usize| Some(u32::from_ne_bytes(page[at..at + 4].try_into().ok()?));
        let large = |at: usize| Some(u64::from_ne_bytes(page[at..at + 8].try_into().ok()?));
        if small(MAGIC_AT)? != MAGIC {
            return None;
        }
        let page_bytes = u64::from(small(PAGE_BYTES_AT)?);
        Some((large(TRANSACTION_AT)?, large(LAST_PAGE_AT)?, page_bytes))
    };
    let first = meta(0);
    let second = first.and_then(|(_, _, page_bytes)| meta(page_bytes));
    let (_, last, page_bytes) = first.max(second)?;
    last.checked_add(1)?.checked_mul(page_bytes)
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
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: three places for numbers.
        unsafe { (functions.version)(&mut major, &mut minor, &mut patch) };
        Ok(Loaded {
            functions,
            version: format!("{major}.{minor}.{patch}"),
            path: library.path.clone(),
        })
    });
    loaded.as_ref().map_err(Clone::clone)
}
