//! The functions and methods of Berkeley DB that are used, as `db.h` 5.3.28
//! declares them.
//!
//! Its objects are C structs whose methods are members: pointers to functions at
//! offsets that belong to one version of the header, on machines where `long`
//! and pointers have 64 bits. [`load`] refuses every other version; the offsets
//! are those that `offsetof` gives for Debian's header of 5.3.28.

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;

use kvzone_core::error::Result;

use super::NAME;
use cambium_foreign::functions;
use cambium_foreign::library::{Handle, Library, Wanted, text, unfit};

const WANTED: Wanted = Wanted {
    store: NAME,
    stems: &["libdb-5.3.so"],
    names: &["libdb-5.3.so"],
    companions: &[],
    remedy: "make peers (Debian package libdb5.3)",
};

/// The version whose structs are known.
const KNOWN_VERSION: (c_int, c_int, c_int) = (5, 3, 28);

pub(super) type Object = *mut c_void;
type Text = *const c_char;

/// Answers of methods that are no failures of the database.
pub(super) const NOT_FOUND: c_int = -30988;
pub(super) const DEADLOCK: c_int = -30993;
pub(super) const BUFFER_SMALL: c_int = -30999;

/// Flags of the environment's `open`.
pub(super) const CREATE: u32 = 0x1;
pub(super) const RECOVER: u32 = 0x2;
pub(super) const THREAD: u32 = 0x20;
pub(super) const INIT_LOCK: u32 = 0x100;
pub(super) const INIT_LOG: u32 = 0x200;
pub(super) const INIT_MPOOL: u32 = 0x400;
pub(super) const INIT_TXN: u32 = 0x2000;
pub(super) const PRIVATE: u32 = 0x1_0000;

/// Flag of the database's `open`: a write without a transaction is one.
pub(super) const AUTO_COMMIT: u32 = 0x100;
/// The kind of database.
pub(super) const BTREE: c_int = 1;

/// Flags of the environment.
pub(super) const TXN_NOSYNC: u32 = 0x1;
pub(super) const TXN_WRITE_NOSYNC: u32 = 0x20;
/// Of `log_set_config`.
pub(super) const LOG_AUTO_REMOVE: u32 = 0x1;
/// Of `set_lk_detect`: the one that has written least gives way.
pub(super) const LOCK_MINWRITE: u32 = 0x6;
/// Of `compact`: pages that are free go back to the file system.
pub(super) const FREE_SPACE: u32 = 0x2;

/// Where a cursor goes.
pub(super) const FIRST: u32 = 7;
pub(super) const NEXT: u32 = 16;
pub(super) const SET_RANGE: u32 = 27;

/// Of a [`Piece`]: the library copies into memory of the caller.
pub(super) const USER_MEMORY: u32 = 0x800;

/// `DBT`: bytes of the caller, to read or to fill.
#[repr(C)]
pub(super) struct Piece {
    pub(super) data: *mut c_void,
    /// Bytes there, or that there would be.
    pub(super) size: u32,
    /// Bytes there is room for.
    pub(super) room: u32,
    partial_length: u32,
    partial_offset: u32,
    of_application: *mut c_void,
    pub(super) flags: u32,
}

const _: () = assert!(size_of::<Piece>() == 40);

impl Piece {
    /// Bytes to read; fewer than 2^32, which the caller has checked.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Piece {
            data: bytes.as_ptr().cast_mut().cast(),
            size: bytes.len() as u32,
            room: 0,
            partial_length: 0,
            partial_offset: 0,
            of_application: ptr::null_mut(),
            flags: 0,
        }
    }

    /// A buffer's whole room to fill, of which its bytes are an argument.
    pub(super) fn into(buffer: &mut Vec<u8>) -> Self {
        Piece {
            data: buffer.as_mut_ptr().cast(),
            room: u32::try_from(buffer.capacity()).unwrap_or(u32::MAX),
            flags: USER_MEMORY,
            ..Piece::of(buffer)
        }
    }
}

functions! {
    /// Functions that are no methods.
    pub(super) struct Functions, prefix "db_" {
        env_create(*mut Object, u32) -> c_int;
        create(*mut Object, Object, u32) -> c_int;
        strerror(c_int) -> Text;
        version(*mut c_int, *mut c_int, *mut c_int) -> Text;
    }
}

/// A member of an object.
///
/// # Safety
/// The object must be a live one, made by the version of the library that
/// [`load`] accepts, whose header puts a `T` at the offset.
unsafe fn member<T: Copy>(object: Handle, offset: usize) -> T {
    // SAFETY: the caller says that the struct reaches beyond the offset.
    let place = unsafe { object.get().byte_add(offset) };
    // SAFETY: the caller says that a T lies there.
    unsafe { place.cast::<T>().read() }
}

/// Declares a method: where its pointer lies in the object, and its arguments
/// behind the object itself.
macro_rules! methods {
    ($($name:ident at $offset:literal ($($argument:ident: $type:ty),*);)*) => {
        $(
            /// # Safety
            /// The object must be a live one of the kind that has this method,
            /// made by the version of the library that [`load`] accepts, in a
            /// state in which the method may be called.
            pub(super) unsafe fn $name(object: Handle, $($argument: $type),*) -> c_int {
                type Method = unsafe extern "C" fn(Object, $($type),*) -> c_int;
                // SAFETY: as the caller says of the object.
                let method: Method = unsafe { member(object, $offset) };
                // SAFETY: the caller says that it may be called.
                unsafe { method(object.get(), $($argument),*) }
            }
        )*
    };
}

methods! {
    // Methods of `DB_ENV`.
    environment_open at 1328 (home: Text, flags: u32, mode: c_int);
    environment_close at 488 (flags: u32);
    set_cachesize at 1632 (gib: u32, bytes: u32, regions: c_int);
    set_flags at 1728 (flags: u32, on: c_int);
    set_lk_detect at 1800 (policy: u32);
    set_lg_bsize at 1752 (bytes: u32);
    set_lg_max at 1776 (bytes: u32);
    log_set_config at 1112 (flags: u32, on: c_int);
    txn_begin at 2040 (parent: Object, transaction: *mut Object, flags: u32);
    txn_checkpoint at 2048 (kib: u32, minutes: u32, flags: u32);
    // Methods of `DB`.
    set_pagesize at 1248 (bytes: u32);
    database_open at 1008 (
        transaction: Object, file: Text, name: Text, kind: c_int, flags: u32, mode: c_int
    );
    database_close at 568 (flags: u32);
    put at 1024 (transaction: Object, key: *mut Piece, value: *mut Piece, flags: u32);
    get at 632 (transaction: Object, key: *mut Piece, value: *mut Piece, flags: u32);
    delete at 592 (transaction: Object, key: *mut Piece, flags: u32);
    compact at 576 (
        transaction: Object, from: *mut Piece, to: *mut Piece, counts: Object, flags: u32,
        end: *mut Piece
    );
    cursor at 584 (transaction: Object, cursor: *mut Object, flags: u32);
    // Methods of `DBC`.
    cursor_get at 392 (key: *mut Piece, value: *mut Piece, flags: u32);
    cursor_close at 352 ();
    // Methods of `DB_TXN`.
    commit at 240 (flags: u32);
    abort at 232 ();
}

/// Has an environment call this with what it has to say of an error.
///
/// # Safety
/// The object must be a live environment of the version that [`load`] accepts.
pub(super) unsafe fn set_errcall(environment: Handle, call: ErrorCall) {
    type Method = unsafe extern "C" fn(Object, ErrorCall);
    const OFFSET: usize = 1688;
    // SAFETY: as the caller says of the object.
    let method: Method = unsafe { member(environment, OFFSET) };
    // SAFETY: a live environment; the function lives as long as the program.
    unsafe { method(environment.get(), call) }
}

/// Environment, prefix, words.
pub(super) type ErrorCall = unsafe extern "C" fn(Object, Text, Text);

/// A library that is here.
pub(super) struct Loaded {
    pub(super) functions: Functions,
    pub(super) version: String,
    pub(super) path: PathBuf,
}

/// Found, resolved and its version checked once a process.
pub(super) fn load() -> Result<&'static Loaded> {
    static LOADED: OnceLock<Result<Loaded>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        if cfg!(not(target_pointer_width = "64")) {
            let what = "its structs are known for 64-bit machines alone".to_string();
            return Err(unfit(&WANTED, what).into());
        }
        let library = Library::load(&WANTED)?;
        let functions = Functions::resolve(library).map_err(|what| unfit(&WANTED, what))?;
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: places for three numbers.
        let words = unsafe { (functions.version)(&mut major, &mut minor, &mut patch) };
        // SAFETY: a constant C string.
        let words = unsafe { text(words) };
        if (major, minor, patch) != KNOWN_VERSION {
            let (a, b, c) = KNOWN_VERSION;
            let what = format!(
                "{} is {words:?}, and methods are known where version {a}.{b}.{c} has them",
                library.path.display()
            );
            return Err(unfit(&WANTED, what).into());
        }
        Ok(Loaded {
            functions,
            version: format!("{major}.{minor}.{patch}"),
            path: library.path.clone(),
        })
    });
    loaded.as_ref().map_err(Clone::clone)
}
