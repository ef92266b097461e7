//! What LevelDB and RocksDB have in common: RocksDB began as a copy of LevelDB,
//! and the oldest part of its C interface is LevelDB's with another prefix.
//!
//! [`Functions`] holds that part, resolved with either prefix; declarations are
//! those of `leveldb/c.h` 1.23 and `rocksdb/c.h` 11.8.
//!
//! Contract of these headers, on which callers rely: keys and values are pointer
//! and length and may hold any bytes; nothing passed in is kept after the call;
//! `errptr` points to null before the call, and afterwards to null or to a C string
//! that the caller frees with `*_free`; a database may be used from several threads,
//! an iterator or batch by one at a time. What an iterator answers stays until it
//! moves.

use std::ffi::{c_char, c_int, c_uchar, c_void};

use crate::error::{Error, Result};
use crate::functions;
use crate::library::{Wanted, text};

mod reader;

pub use reader::Reader;

/// An object of the library.
pub type Object = *mut c_void;
/// Where bytes begin.
pub type Bytes = *const c_char;
/// Where a call leaves its error.
pub type ErrorOut = *mut *mut c_char;

/// LevelDB's library.
pub const LEVELDB: Wanted = Wanted {
    store: "leveldb",
    stems: &["libleveldb.so"],
    names: &["libleveldb.so.1d", "libleveldb.so.1", "libleveldb.so"],
    companions: &["libsnappy.so.1"],
    remedy: "install the Debian package libleveldb1d, or call `make peers` in Cambium's sources",
};

/// RocksDB's library.
pub const ROCKSDB: Wanted = Wanted {
    store: "rocksdb",
    stems: &["librocksdbjni-linux64.so", "librocksdbjni", "librocksdb.so"],
    names: &["librocksdb.so"],
    companions: &[],
    remedy: "install the Debian package librocksdb7.8, or call `make peers` in Cambium's sources (Maven artifact org.rocksdb:rocksdbjni:11.8.1)",
};

functions! {
    /// Functions of either library, by their names without the prefix.
    pub struct Functions, prefix of the caller {
        open(Object, Bytes, ErrorOut) -> Object;
        close(Object);
        put(Object, Object, Bytes, usize, Bytes, usize, ErrorOut);
        delete(Object, Object, Bytes, usize, ErrorOut);
        write(Object, Object, Object, ErrorOut);
        get(Object, Object, Bytes, usize, *mut usize, ErrorOut) -> *mut c_char;
        free(Object);
        property_value(Object, Bytes) -> *mut c_char;
        compact_range(Object, Bytes, usize, Bytes, usize);
        create_iterator(Object, Object) -> Object;
        iter_destroy(Object);
        iter_valid(Object) -> c_uchar;
        iter_seek(Object, Bytes, usize);
        iter_next(Object);
        iter_prev(Object);
        iter_seek_to_last(Object);
        iter_key(Object, *mut usize) -> Bytes;
        iter_value(Object, *mut usize) -> Bytes;
        iter_get_error(Object, ErrorOut);
        writebatch_create() -> Object;
        writebatch_destroy(Object);
        writebatch_clear(Object);
        writebatch_put(Object, Bytes, usize, Bytes, usize);
        writebatch_delete(Object, Bytes, usize);
        options_create() -> Object;
        options_destroy(Object);
        options_set_create_if_missing(Object, c_uchar);
        options_set_compression(Object, c_int);
        options_set_write_buffer_size(Object, usize);
        options_set_max_open_files(Object, c_int);
        readoptions_create() -> Object;
        readoptions_destroy(Object);
        readoptions_set_verify_checksums(Object, c_uchar);
        writeoptions_create() -> Object;
        writeoptions_destroy(Object);
        writeoptions_set_sync(Object, c_uchar);
        cache_create_lru(usize) -> Object;
        cache_destroy(Object);
    }
}

/// Turns what a call left in its `errptr` into an error, and frees it.
///
/// # Errors
/// The store\'s own words, if there are any.
///
/// # Safety
/// `problem` must be null, or what a call of this library left, and be used no more.
pub unsafe fn take_error(
    functions: &Functions,
    store: &'static str,
    call: &'static str,
    problem: *mut c_char,
) -> Result<()> {
    if problem.is_null() {
        return Ok(());
    }
    // SAFETY: the headers promise a C string, where it is not null.
    let words = unsafe { text(problem) };
    // SAFETY: the string came from the library, and is not used after this.
    unsafe { (functions.free)(problem.cast()) };
    Err(Error::store(store, call, words))
}
