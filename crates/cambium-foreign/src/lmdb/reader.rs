//! Reads an LMDB environment, as of one moment, beside programs that write it.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use super::{
    Database, FIRST, Functions, NAME, NEXT, Object, Piece, READ_ONLY, SET_RANGE, Statistics, load,
};
use crate::error::{Error, Result};
use crate::library::{Handle, bytes};

/// Flags of `mdb_env_open`: the path is a file; a reader belongs to its transaction.
const NO_FOLDER: c_uint = 0x4000;
const NO_THREAD_LOCAL: c_uint = 0x20_0000;
/// Flag of a database: a key may have several values.
const SEVERAL_VALUES: c_uint = 0x4;
/// Databases with names that can be open at once.
const MOST_DATABASES: c_uint = 1024;
/// Answer of `mdb_dbi_open` for a key that is an entry and no database.
const INCOMPATIBLE: c_int = -30784;
/// Bytes of what stands for a database in the one without a name: `MDB_db`.
const DATABASE_BYTES: usize = 48;

/// An open environment, with a read transaction and a cursor.
pub struct Reader {
    functions: &'static Functions,
    environment: Handle,
    transaction: Option<Handle>,
    parts: Vec<String>,
    /// In the order of the parts.
    databases: Vec<Database>,
    unfit: Vec<String>,
    /// Names of all databases: keys in the one without a name, and no entries of it.
    names: BTreeSet<Vec<u8>>,
    cursor: Option<Handle>,
    /// The one without a name is read.
    in_unnamed: bool,
    next: Step,
}

/// How the cursor comes to its next entry.
enum Step {
    First,
    Behind(Vec<u8>),
    Next,
}

impl Reader {
    /// Opens the environment of a folder or of a file.
    ///
    /// # Errors
    /// The library is missing, or LMDB's own words.
    pub fn open(path: &Path) -> Result<Self> {
        let functions = &load()?.functions;
        let mut environment = ptr::null_mut();
        // SAFETY: a place for the new object.
        let made = unsafe { (functions.env_create)(&mut environment) };
        functions.answer("env_create", made)?;
        let mut reader = Reader {
            functions,
            environment: Handle::new(environment, NAME, "env_create")?,
            transaction: None,
            parts: Vec::new(),
            databases: Vec::new(),
            unfit: Vec::new(),
            names: BTreeSet::new(),
            cursor: None,
            in_unnamed: false,
            next: Step::First,
        };
        reader.configure(path)?;
        reader.find_databases()?;
        Ok(reader)
    }

    /// The number of entries that a part has by the words of the file.
    ///
    /// # Errors
    /// LMDB's own words.
    pub fn entries(&self, part: &str) -> Result<usize> {
        let (functions, mut statistics) = (self.functions, Statistics::default());
        let database = self.database(part)?;
        // SAFETY: a transaction of this thread, a database of it, a place for the numbers.
        let asked = unsafe { (functions.stat)(self.transaction(), database, &mut statistics) };
        functions.answer("stat", asked)?;
        // The one without a name is among the names, and is no key of its own.
        let names = if part.is_empty() {
            self.names.len() - 1
        } else {
            0
        };
        Ok(statistics.entries.saturating_sub(names))
    }

    fn database(&self, part: &str) -> Result<Database> {
        let at = self.parts.iter().position(|name| name == part);
        let at = at.ok_or_else(|| Error::store(NAME, "open", format!("no database {part:?}")))?;
        Ok(self.databases[at])
    }

    fn configure(&mut self, path: &Path) -> Result<()> {
        let (functions, environment) = (self.functions, self.environment.get());
        // SAFETY: an environment that is not open yet.
        let set = unsafe { (functions.env_set_maxdbs)(environment, MOST_DATABASES) };
        functions.answer("env_set_maxdbs", set)?;
        // The lock of `folder/data.mdb` is the folder's: a name of its own would not
        // keep writers off the pages that are read here.
        let folder = path.parent().filter(|_| path.ends_with("data.mdb"));
        let folder = folder.filter(|folder| folder.join("lock.mdb").exists());
        let path = folder.unwrap_or(path);
        let is_file = if path.is_file() { NO_FOLDER } else { 0 };
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|error| Error::store(NAME, "env_open", error))?;
        let flags = READ_ONLY | NO_THREAD_LOCAL | is_file;
        // SAFETY: as above; a C string, and permissions for a new lock file.
        let opened = unsafe { (functions.env_open)(environment, name.as_ptr(), flags, 0o644) };
        functions.answer("env_open", opened)?;
        let mut transaction = ptr::null_mut();
        let begin = functions.txn_begin;
        // SAFETY: an open environment, no parent, a place for the new object.
        let begun = unsafe { begin(environment, ptr::null_mut(), READ_ONLY, &mut transaction) };
        functions.answer("txn_begin", begun)?;
        self.transaction = Some(Handle::new(transaction, NAME, "txn_begin")?);
        Ok(())
    }

    fn transaction(&self) -> Object {
        self.transaction.map_or(ptr::null_mut(), Handle::get)
    }

    /// Opens the database without a name, and all that it names.
    fn find_databases(&mut self) -> Result<()> {
        self.add(None)?;
        if self.parts.is_empty() {
            return Ok(());
        }
        let mut names = Vec::new();
        // A damaged tree may repeat its pages without an end.
        let most = self.entries("")?;
        self.start("", Step::First, false)?;
        for _ in 0..most {
            let Some((key, value)) = self.step()? else {
                break;
            };
            if value.len() == DATABASE_BYTES {
                names.extend(CString::new(key));
            }
        }
        for name in names {
            self.add(Some(&name))?;
        }
        Ok(())
    }

    /// Opens a database, if there is one of this name.
    fn add(&mut self, name: Option<&CStr>) -> Result<()> {
        let (functions, transaction) = (self.functions, self.transaction());
        let mut database = 0;
        let c_name = name.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: a transaction of this thread; null, or a C string.
        let opened = unsafe { (functions.dbi_open)(transaction, c_name, 0, &mut database) };
        if opened == INCOMPATIBLE {
            return Ok(());
        }
        functions.answer("dbi_open", opened)?;
        let name = name.unwrap_or_default();
        self.names.insert(name.to_bytes().to_vec());
        let name = name.to_string_lossy().into_owned();
        let mut flags = 0;
        // SAFETY: as above, and a database of it.
        let asked = unsafe { (functions.dbi_flags)(transaction, database, &mut flags) };
        functions.answer("dbi_flags", asked)?;
        if flags & SEVERAL_VALUES != 0 {
            self.unfit
                .push(format!("database {name:?} keeps several values a key"));
            return Ok(());
        }
        // Two names that are not UTF-8 can be one text.
        if self.parts.contains(&name) {
            self.unfit.push(format!(
                "a database {name:?} has the name of another one as text"
            ));
            return Ok(());
        }
        self.parts.push(name);
        self.databases.push(database);
        Ok(())
    }

    fn start(&mut self, part: &str, next: Step, in_unnamed: bool) -> Result<()> {
        self.end_cursor();
        let database = self.database(part)?;
        let (functions, transaction) = (self.functions, self.transaction());
        let mut cursor = ptr::null_mut();
        // SAFETY: a transaction, a database of it, a place for the new object.
        let opened = unsafe { (functions.cursor_open)(transaction, database, &mut cursor) };
        functions.answer("cursor_open", opened)?;
        self.cursor = Some(Handle::new(cursor, NAME, "cursor_open")?);
        (self.next, self.in_unnamed) = (next, in_unnamed);
        Ok(())
    }

    /// Moves the cursor; what it stands on, until the transaction ends.
    fn step<'a>(&mut self) -> Result<Option<(&'a [u8], &'a [u8])>> {
        let Some(cursor) = self.cursor else {
            return Ok(None);
        };
        let step = std::mem::replace(&mut self.next, Step::Next);
        let (mut key, mut value) = (Piece::empty(), Piece::empty());
        let operation = match &step {
            Step::First => FIRST,
            Step::Behind(behind) => {
                key = Piece::new(behind);
                SET_RANGE
            }
            Step::Next => NEXT,
        };
        let move_to = self.functions.cursor_get;
        // SAFETY: a cursor of an open transaction, and bytes that stay for the call.
        let moved = unsafe { move_to(cursor.get(), &mut key, &mut value, operation) };
        if !self.functions.found("cursor_get", moved)? {
            return Ok(None);
        }
        // SAFETY: LMDB answered them; they lie in its map until the transaction ends,
        // which is when this is dropped, and callers keep them no longer.
        let key = unsafe { bytes(key.start, key.length) };
        if matches!(&step, Step::Behind(behind) if key == behind) {
            return self.step();
        }
        // SAFETY: as above.
        Ok(Some((key, unsafe { bytes(value.start, value.length) })))
    }

    fn end_cursor(&mut self) {
        if let Some(cursor) = self.cursor.take() {
            // SAFETY: made by `cursor_open`, and not used after this.
            unsafe { (self.functions.cursor_close)(cursor.get()) };
        }
    }
}

impl crate::Reader for Reader {
    fn parts(&self) -> &[String] {
        &self.parts
    }

    fn unfit_parts(&self) -> &[String] {
        &self.unfit
    }

    fn begin(&mut self, part: &str, behind: Option<&[u8]>) -> Result<()> {
        let next = behind.map_or(Step::First, |behind| Step::Behind(behind.to_vec()));
        self.start(part, next, part.is_empty())
    }

    fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        loop {
            let found = self.step()?;
            match found {
                Some((key, _)) if self.in_unnamed && self.names.contains(key) => {}
                found => return Ok(found),
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.end_cursor();
        if let Some(transaction) = self.transaction.take() {
            // SAFETY: its cursor is gone, and it is not used after this.
            unsafe { (self.functions.txn_abort)(transaction.get()) };
        }
        // SAFETY: there is no transaction left.
        unsafe { (self.functions.env_close)(self.environment.get()) };
    }
}
