//! Small stores of others, for the tests of what reads them.

use std::ffi::{CString, c_char, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use crate::error::{Error, Result};
use crate::functions;
use crate::library::{Handle, Library, unfit};
use crate::lmdb::{self, Piece};
use crate::log_structured::{Bytes, ErrorOut, Functions, LEVELDB, Object, ROCKSDB, take_error};

/// Keys with their values.
pub type Entries<'a> = &'a [(&'a [u8], &'a [u8])];

functions! {
    struct Families, prefix "rocksdb_" {
        create_column_family(Object, Object, *const c_char, ErrorOut) -> Object;
        column_family_handle_destroy(Object);
        put_cf(Object, Object, Object, Bytes, usize, Bytes, usize, ErrorOut);
    }
}

fn c_path(path: &Path) -> Result<CString> {
    let bytes = path.as_os_str().as_bytes();
    CString::new(bytes).map_err(|error| Error::store("path", "open", error))
}

/// Makes a database of LevelDB.
///
/// # Errors
/// The library is missing, or its own words.
pub fn leveldb(folder: &Path, entries: Entries<'_>) -> Result<()> {
    let library = Library::load(&LEVELDB)?;
    let functions =
        Functions::resolve(library, "leveldb_").map_err(|what| unfit(&LEVELDB, what))?;
    log_structured(&functions, None, folder, entries, "", &[])
}

/// Makes a database of RocksDB, with a column family beside the default one.
///
/// # Errors
/// The library is missing, or its own words.
pub fn rocksdb(folder: &Path, entries: Entries<'_>, name: &str, more: Entries<'_>) -> Result<()> {
    let library = Library::load(&ROCKSDB)?;
    let missing = |what| unfit(&ROCKSDB, what);
    let functions = Functions::resolve(library, "rocksdb_").map_err(missing)?;
    let families = Families::resolve(library).map_err(missing)?;
    log_structured(&functions, Some(&families), folder, entries, name, more)
}

fn log_structured(
    functions: &Functions,
    families: Option<&Families>,
    folder: &Path,
    entries: Entries<'_>,
    name: &str,
    more: Entries<'_>,
) -> Result<()> {
    let path = c_path(folder)?;
    let mut problem = ptr::null_mut();
    // SAFETY: takes nothing, answers a new object.
    let options = unsafe { (functions.options_create)() };
    // SAFETY: as above.
    let writing = unsafe { (functions.writeoptions_create)() };
    // SAFETY: options made above.
    unsafe { (functions.options_set_create_if_missing)(options, 1) };
    // SAFETY: options, a C string, an error that is null.
    let database = unsafe { (functions.open)(options, path.as_ptr(), &mut problem) };
    // SAFETY: what the call left.
    unsafe { take_error(functions, "made", "open", problem) }?;
    for (key, value) in entries {
        let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
        let (put, lengths) = (functions.put, (key.len(), value.len()));
        // SAFETY: an open database, options, bytes that stay, an error that is null.
        unsafe {
            put(
                database,
                writing,
                key_at,
                lengths.0,
                value_at,
                lengths.1,
                &mut problem,
            )
        };
        // SAFETY: what the call left.
        unsafe { take_error(functions, "made", "put", problem) }?;
    }
    if let Some(families) = families {
        let name = CString::new(name).map_err(|error| Error::store("made", "open", error))?;
        let create = families.create_column_family;
        // SAFETY: an open database, options, a C string, an error that is null.
        let family = unsafe { create(database, options, name.as_ptr(), &mut problem) };
        // SAFETY: what the call left.
        unsafe { take_error(functions, "made", "create_column_family", problem) }?;
        for (key, value) in more {
            let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
            let (put, value_bytes) = (families.put_cf, value.len());
            // SAFETY: as of `put`, and a family of the database.
            unsafe {
                put(
                    database,
                    writing,
                    family,
                    key_at,
                    key.len(),
                    value_at,
                    value_bytes,
                    &mut problem,
                )
            };
            // SAFETY: what the call left.
            unsafe { take_error(functions, "made", "put_cf", problem) }?;
        }
        // SAFETY: made above, and not used after this.
        unsafe { (families.column_family_handle_destroy)(family) };
    }
    // SAFETY: made above, and not used after this.
    unsafe { (functions.close)(database) };
    // SAFETY: as above.
    unsafe { (functions.writeoptions_destroy)(writing) };
    // SAFETY: as above.
    unsafe { (functions.options_destroy)(options) };
    Ok(())
}

/// Makes an environment of LMDB in a folder that is there: databases with their flags
/// and entries; the empty name is the one without a name.
///
/// # Errors
/// The library is missing, or its own words.
pub fn lmdb(folder: &Path, databases: &[(impl AsRef<[u8]>, c_uint, Entries<'_>)]) -> Result<()> {
    const CREATE: c_uint = 0x4_0000;
    let functions = &lmdb::load()?.functions;
    let path = c_path(folder)?;
    let mut environment = ptr::null_mut();
    // SAFETY: a place for the new object.
    let made = unsafe { (functions.env_create)(&mut environment) };
    functions.answer("env_create", made)?;
    let environment = Handle::new(environment, lmdb::NAME, "env_create")?;
    // SAFETY: an environment that is not open yet.
    let set = unsafe { (functions.env_set_maxdbs)(environment.get(), 16) };
    functions.answer("env_set_maxdbs", set)?;
    // SAFETY: as above, and a C string.
    let opened = unsafe { (functions.env_open)(environment.get(), path.as_ptr(), 0, 0o644) };
    functions.answer("env_open", opened)?;
    let mut transaction = ptr::null_mut();
    let (begin, no_parent) = (functions.txn_begin, ptr::null_mut());
    // SAFETY: an open environment and a place for the new object.
    let begun = unsafe { begin(environment.get(), no_parent, 0, &mut transaction) };
    functions.answer("txn_begin", begun)?;
    for (name, flags, entries) in databases {
        let name = CString::new(name.as_ref());
        let name = name.map_err(|error| Error::store("made", "open", error))?;
        let (start, flags) = match name.is_empty() {
            true => (ptr::null(), 0),
            false => (name.as_ptr(), *flags | CREATE),
        };
        let mut database = 0;
        // SAFETY: a transaction; null, or a C string.
        let opened = unsafe { (functions.dbi_open)(transaction, start, flags, &mut database) };
        functions.answer("dbi_open", opened)?;
        for (key, value) in *entries {
            let (mut key, mut value) = (Piece::new(key), Piece::new(value));
            // SAFETY: a transaction, a database of it, bytes that stay.
            let put = unsafe { (functions.put)(transaction, database, &mut key, &mut value, 0) };
            functions.answer("put", put)?;
        }
    }
    // SAFETY: a transaction that is not used after this.
    let committed = unsafe { (functions.txn_commit)(transaction) };
    functions.answer("txn_commit", committed)?;
    // SAFETY: no transaction is left.
    unsafe { (functions.env_close)(environment.get()) };
    Ok(())
}
