//! Reads a database of LevelDB or RocksDB.
//!
//! RocksDB is opened for reading alone, with all its column families. LevelDB knows
//! no such opening: it takes its lock, replays its log into tables and writes a new
//! manifest, as every opening of LevelDB does.

use std::ffi::{CStr, CString, c_char, c_uchar};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use super::{ErrorOut, Functions, LEVELDB, Object, ROCKSDB, take_error};
use crate::error::{Error, Result};
use crate::functions;
use crate::library::{Handle, Library, Wanted, bytes, unfit};

/// What RocksDB calls the default column family.
const DEFAULT_FAMILY: &str = "default";

functions! {
    /// Column families, and opening for reading alone: RocksDB's, of `rocksdb/c.h` 11.8.
    struct Families, prefix "rocksdb_" {
        list_column_families(Object, *const c_char, *mut usize, ErrorOut) -> *mut *mut c_char;
        list_column_families_destroy(*mut *mut c_char, usize);
        open_for_read_only_column_families(Object, *const c_char, i32, *const *const c_char, *const Object, *mut Object, c_uchar, ErrorOut) -> Object;
        column_family_handle_destroy(Object);
        create_iterator_cf(Object, Object, Object) -> Object;
    }
}

struct Loaded {
    functions: Functions,
    /// RocksDB alone has them.
    families: Option<Families>,
    store: &'static str,
}

fn load(wanted: &Wanted, prefix: &str) -> Result<Loaded> {
    let library = Library::load(wanted)?;
    let missing = |what| unfit(wanted, what);
    Ok(Loaded {
        functions: Functions::resolve(library, prefix).map_err(missing)?,
        families: match prefix == "rocksdb_" {
            true => Some(Families::resolve(library).map_err(missing)?),
            false => None,
        },
        store: wanted.store,
    })
}

fn leveldb() -> Result<&'static Loaded> {
    static LOADED: OnceLock<Result<Loaded>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| load(&LEVELDB, "leveldb_"));
    loaded.as_ref().map_err(Clone::clone)
}

fn rocksdb() -> Result<&'static Loaded> {
    static LOADED: OnceLock<Result<Loaded>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| load(&ROCKSDB, "rocksdb_"));
    loaded.as_ref().map_err(Clone::clone)
}

/// An open database and an iterator over a part of it.
pub struct Reader {
    loaded: &'static Loaded,
    options: Handle,
    read_options: Handle,
    /// None until it is open.
    database: Option<Handle>,
    /// Column families in the order of their names; empty for LevelDB.
    families: Vec<Handle>,
    parts: Vec<String>,
    iterator: Option<Handle>,
    /// The iterator stands on an entry that was answered already.
    was_answered: bool,
}

impl Reader {
    /// Opens a database of LevelDB.
    ///
    /// # Errors
    /// The library is missing, or LevelDB's own words.
    pub fn leveldb(folder: &Path) -> Result<Self> {
        let mut reader = Reader::new(leveldb()?)?;
        let (functions, name) = (&reader.loaded.functions, c_path(folder)?);
        let mut problem = ptr::null_mut();
        // SAFETY: options of this library, a C string, and an error that is null.
        let database =
            unsafe { (functions.open)(reader.options.get(), name.as_ptr(), &mut problem) };
        reader.error("open", problem)?;
        reader.database = Some(Handle::new(database, reader.loaded.store, "open")?);
        reader.parts = vec![String::new()];
        Ok(reader)
    }

    /// Opens a database of RocksDB for reading alone.
    ///
    /// # Errors
    /// The library is missing, or RocksDB's own words.
    pub fn rocksdb(folder: &Path) -> Result<Self> {
        let mut reader = Reader::new(rocksdb()?)?;
        let Some(own) = &reader.loaded.families else {
            return Ok(reader);
        };
        let store = reader.loaded.store;
        let path = c_path(folder)?;
        let names = reader.list_families(own, &path)?;
        let pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let options = vec![reader.options.get(); names.len()];
        let mut families = vec![ptr::null_mut(); names.len()];
        let mut problem = ptr::null_mut();
        // SAFETY: options of this library, C strings, as many of each as are said,
        // places for as many handles, and an error that is null.
        let database = unsafe {
            (own.open_for_read_only_column_families)(
                reader.options.get(),
                path.as_ptr(),
                names.len() as i32,
                pointers.as_ptr(),
                options.as_ptr(),
                families.as_mut_ptr(),
                0,
                &mut problem,
            )
        };
        reader.error("open", problem)?;
        reader.database = Some(Handle::new(database, store, "open")?);
        for (family, name) in families.into_iter().zip(names) {
            reader.families.push(Handle::new(family, store, "open")?);
            reader.parts.push(match name.to_string_lossy() {
                name if name == DEFAULT_FAMILY => String::new(),
                name => name.into_owned(),
            });
        }
        Ok(reader)
    }

    fn new(loaded: &'static Loaded) -> Result<Self> {
        let functions = &loaded.functions;
        // SAFETY: takes nothing, answers a new object.
        let options = unsafe { (functions.options_create)() };
        // SAFETY: as above.
        let read_options = unsafe { (functions.readoptions_create)() };
        let read_options = Handle::new(read_options, loaded.store, "readoptions_create")?;
        // SAFETY: made above.
        unsafe { (functions.readoptions_set_verify_checksums)(read_options.get(), 1) };
        Ok(Reader {
            loaded,
            options: Handle::new(options, loaded.store, "options_create")?,
            read_options,
            database: None,
            families: Vec::new(),
            parts: Vec::new(),
            iterator: None,
            was_answered: false,
        })
    }

    /// The names of the column families, the default one first.
    fn list_families(&self, own: &Families, path: &CStr) -> Result<Vec<CString>> {
        let (mut count, mut problem) = (0, ptr::null_mut());
        // SAFETY: options of this library, a C string, places for the answers.
        let list = unsafe {
            let list = own.list_column_families;
            list(self.options.get(), path.as_ptr(), &mut count, &mut problem)
        };
        self.error("list_column_families", problem)?;
        // SAFETY: the library answered so many pointers.
        let pointers = unsafe { std::slice::from_raw_parts(list, count) };
        let mut names: Vec<CString> = Vec::new();
        for pointer in pointers {
            // SAFETY: each is a C string.
            names.push(unsafe { CStr::from_ptr(*pointer) }.to_owned());
        }
        // SAFETY: the list came from the library, and is not used after this.
        unsafe { (own.list_column_families_destroy)(list, count) };
        names.sort_by_key(|name| (name.to_bytes() != DEFAULT_FAMILY.as_bytes(), name.clone()));
        Ok(names)
    }

    fn error(&self, call: &'static str, problem: *mut c_char) -> Result<()> {
        let Loaded {
            functions, store, ..
        } = self.loaded;
        // SAFETY: callers pass on what a call left, and use it no more.
        unsafe { take_error(functions, store, call, problem) }
    }

    fn end_iterator(&mut self) {
        if let Some(iterator) = self.iterator.take() {
            // SAFETY: made by `create_iterator`, and not used after this.
            unsafe { (self.loaded.functions.iter_destroy)(iterator.get()) };
        }
    }
}

impl crate::Reader for Reader {
    fn parts(&self) -> &[String] {
        &self.parts
    }

    fn begin(&mut self, part: &str, behind: Option<&[u8]>) -> Result<()> {
        self.end_iterator();
        let (loaded, database) = (
            self.loaded,
            self.database.map_or(ptr::null_mut(), Handle::get),
        );
        let at = self.parts.iter().position(|name| name == part);
        let at =
            at.ok_or_else(|| Error::store(loaded.store, "open", format!("no part {part:?}")))?;
        let (functions, options) = (&loaded.functions, self.read_options.get());
        let made = match &loaded.families {
            // SAFETY: an open database, its read options, a family of its own.
            Some(own) => unsafe {
                (own.create_iterator_cf)(database, options, self.families[at].get())
            },
            // SAFETY: an open database and its read options.
            None => unsafe { (functions.create_iterator)(database, options) },
        };
        let iterator = Handle::new(made, loaded.store, "create_iterator")?;
        self.iterator = Some(iterator);
        let from = behind.unwrap_or_default();
        // SAFETY: an iterator of an open database, and bytes that stay.
        unsafe { (functions.iter_seek)(iterator.get(), from.as_ptr().cast(), from.len()) };
        self.was_answered = behind.is_some_and(|behind| {
            // SAFETY: as above.
            let on_entry = unsafe { (functions.iter_valid)(iterator.get()) } != 0;
            on_entry && key(functions, iterator) == behind
        });
        Ok(())
    }

    fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let (functions, Some(iterator)) = (&self.loaded.functions, self.iterator) else {
            return Ok(None);
        };
        if self.was_answered {
            // SAFETY: an iterator that stands on an entry.
            unsafe { (functions.iter_next)(iterator.get()) };
        }
        // SAFETY: an iterator of an open database.
        self.was_answered = unsafe { (functions.iter_valid)(iterator.get()) } != 0;
        if !self.was_answered {
            let mut problem = ptr::null_mut();
            // SAFETY: as above, and an error that is null.
            unsafe { (functions.iter_get_error)(iterator.get(), &mut problem) };
            self.error("read", problem)?;
            return Ok(None);
        }
        let mut length = 0;
        // SAFETY: an iterator that stands on an entry.
        let value = unsafe { (functions.iter_value)(iterator.get(), &mut length) };
        // SAFETY: so many bytes, until the iterator moves, which borrows this mutably.
        let value = unsafe { bytes(value.cast(), length) };
        Ok(Some((key(functions, iterator), value)))
    }
}

/// The key that an iterator stands on; the caller does not move it while the key is used.
fn key<'a>(functions: &Functions, iterator: Handle) -> &'a [u8] {
    let mut length = 0;
    // SAFETY: callers have seen that the iterator stands on an entry.
    let key = unsafe { (functions.iter_key)(iterator.get(), &mut length) };
    // SAFETY: so many bytes, until the iterator moves.
    unsafe { bytes(key.cast(), length) }
}

fn c_path(folder: &Path) -> Result<CString> {
    CString::new(folder.as_os_str().as_bytes()).map_err(|error| Error::store("path", "open", error))
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.end_iterator();
        let functions = &self.loaded.functions;
        if let Some(own) = &self.loaded.families {
            for family in self.families.drain(..) {
                // SAFETY: made by opening, and not used after this.
                unsafe { (own.column_family_handle_destroy)(family.get()) };
            }
        }
        if let Some(database) = self.database.take() {
            // SAFETY: its iterator and families are gone.
            unsafe { (functions.close)(database.get()) };
        }
        // SAFETY: made by `readoptions_create`; nothing uses it any more.
        unsafe { (functions.readoptions_destroy)(self.read_options.get()) };
        // SAFETY: made by `options_create`; nothing uses it any more.
        unsafe { (functions.options_destroy)(self.options.get()) };
    }
}
