//! A connection of SQLite, and statements prepared in it.
//!
//! Contract of `sqlite3.h`, on which the blocks below rely: a connection and its
//! statements are used by one thread at a time (it is opened without a mutex);
//! a blob bound with a null destructor is the caller's, and is read until the
//! statement is reset or bound again; what a column answers stays until the
//! statement steps or is reset. Statements are finalized before their
//! connection is closed.

use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use super::{
    BLOB, CHECKPOINT_TRUNCATE, DONE, Functions, INTEGER, NAME, OK, PERSISTENT, READ_FLAGS, REAL,
    ROW, TEXT,
};
use crate::error::{Error, Result};
use crate::library::{Handle, bytes, text};

/// An open connection; closed when it is dropped.
pub struct Connection {
    functions: &'static Functions,
    handle: Handle,
}

impl Connection {
    /// Opens a file that is there, to read it and nothing else.
    pub fn open_to_read(functions: &'static Functions, file: &Path) -> Result<Self> {
        Connection::open_as(functions, file, READ_FLAGS)
    }

    /// Opens a file with flags of `sqlite3_open_v2`, and no settings.
    pub fn open_as(functions: &'static Functions, file: &Path, flags: c_int) -> Result<Self> {
        let path = CString::new(file.as_os_str().as_bytes())
            .map_err(|error| Error::store(NAME, "open", error))?;
        let mut handle = ptr::null_mut();
        let (open, usual) = (functions.open_v2, ptr::null());
        // SAFETY: a C string, a place for the object, the usual file system.
        let opened = unsafe { open(path.as_ptr(), &mut handle, flags, usual) };
        // An object is answered with an error too, which it explains.
        let connection = Connection {
            functions,
            handle: Handle::new(handle, NAME, "open")?,
        };
        connection.answer("open", opened)?;
        Ok(connection)
    }

    /// How long a call waits for another that has the file locked.
    pub fn wait_at_most(&self, milliseconds: c_int) {
        // SAFETY: an open connection.
        unsafe { (self.functions.busy_timeout)(self.handle.get(), milliseconds) };
    }

    fn answer(&self, call: &'static str, answer: c_int) -> Result<()> {
        if answer == OK {
            return Ok(());
        }
        Err(self.failure(call))
    }

    fn failure(&self, call: &'static str) -> Error {
        // SAFETY: a connection, of which the call before was made.
        let words = unsafe { (self.functions.errmsg)(self.handle.get()) };
        // SAFETY: a C string that the connection holds until the next call.
        Error::store(NAME, call, unsafe { text(words) })
    }

    /// Runs statements that answer nothing of interest.
    pub fn execute(&self, sql: &str) -> Result<()> {
        let sql = CString::new(sql).map_err(|error| Error::store(NAME, "exec", error))?;
        let (exec, none) = (self.functions.exec, ptr::null_mut());
        // SAFETY: an open connection and a C string; no callback, no words apart.
        let done = unsafe { exec(self.handle.get(), sql.as_ptr(), none, none, ptr::null_mut()) };
        self.answer("exec", done)
    }

    /// Brings the log into the file, and cuts it off.
    pub fn checkpoint(&self) -> Result<()> {
        let nothing = ptr::null_mut();
        // SAFETY: an open connection; all files of it; counters not asked for.
        let done = unsafe {
            (self.functions.wal_checkpoint_v2)(
                self.handle.get(),
                ptr::null(),
                CHECKPOINT_TRUNCATE,
                nothing,
                nothing,
            )
        };
        self.answer("wal_checkpoint", done)
    }

    /// Prepares a statement, which must be dropped before the connection.
    pub fn prepare(&self, sql: &str) -> Result<Statement> {
        let sql = CString::new(sql).map_err(|error| Error::store(NAME, "prepare", error))?;
        let (mut statement, no_rest) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: an open connection, a C string, a place for the object.
        let prepared = unsafe {
            (self.functions.prepare_v3)(
                self.handle.get(),
                sql.as_ptr(),
                -1,
                PERSISTENT,
                &mut statement,
                no_rest,
            )
        };
        self.answer("prepare", prepared)?;
        Ok(Statement {
            functions: self.functions,
            handle: Handle::new(statement, NAME, "prepare")?,
        })
    }

    /// Steps a statement to its next row; false at its end.
    pub fn step(&self, call: &'static str, statement: &Statement) -> Result<bool> {
        // SAFETY: a statement of this connection; what is bound to it stays.
        match unsafe { (self.functions.step)(statement.handle.get()) } {
            ROW => Ok(true),
            DONE => Ok(false),
            _ => Err(self.failure(call)),
        }
    }

    /// Steps a statement that has no rows, and makes it ready again.
    pub fn run(&self, call: &'static str, statement: &Statement) -> Result<()> {
        let done = self.step(call, statement);
        statement.reset();
        done.map(|_| ())
    }

    /// Closes it, and says what went wrong.
    pub fn close(self) -> Result<()> {
        // SAFETY: a connection whose statements are finalized.
        let closed = unsafe { (self.functions.close_v2)(self.handle.get()) };
        let result = self.answer("close", closed);
        std::mem::forget(self);
        result
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: statements that are left keep it until they are finalized.
        unsafe { (self.functions.close_v2)(self.handle.get()) };
    }
}

/// A column of a row in its storage class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// No value.
    Null,
    /// A whole number.
    Integer(i64),
    /// A real number.
    Real(f64),
    /// Text, in the encoding of the file.
    Text(&'a [u8]),
    /// Bytes.
    Blob(&'a [u8]),
}

/// A prepared statement; finalized when it is dropped.
pub struct Statement {
    functions: &'static Functions,
    handle: Handle,
}

impl Statement {
    /// Binds a number to a parameter, from 1.
    pub fn bind_number(&self, parameter: c_int, number: i64) -> Result<()> {
        // SAFETY: a statement that is reset.
        let bound = unsafe { (self.functions.bind_int64)(self.handle.get(), parameter, number) };
        bound_or_refused(bound)
    }

    /// Binds a real number to a parameter, from 1.
    pub fn bind_real(&self, parameter: c_int, real: f64) -> Result<()> {
        // SAFETY: a statement that is reset.
        let bound = unsafe { (self.functions.bind_double)(self.handle.get(), parameter, real) };
        bound_or_refused(bound)
    }

    /// Binds bytes to a parameter, from 1.
    ///
    /// # Safety
    /// The bytes must stay until the statement is bound again or dropped, or
    /// it must be reset before they go and not be stepped after that.
    pub unsafe fn bind_bytes(&self, parameter: c_int, bytes: &[u8]) -> Result<()> {
        let Ok(length) = c_int::try_from(bytes.len()) else {
            return Err(Error::store(NAME, "bind", "more than 2 GiB"));
        };
        // An empty slice's pointer is not null, which would mean NULL.
        let (start, not_copied) = (bytes.as_ptr().cast(), ptr::null_mut());
        let bind = self.functions.bind_blob;
        // SAFETY: a statement that is reset; the caller says that bytes stay.
        let bound = unsafe { bind(self.handle.get(), parameter, start, length, not_copied) };
        bound_or_refused(bound)
    }

    /// A column of the present row as a number.
    pub fn number(&self, column: c_int) -> i64 {
        // SAFETY: a statement at a row.
        unsafe { (self.functions.column_int64)(self.handle.get(), column) }
    }

    /// A column of the present row as a real number.
    fn real(&self, column: c_int) -> f64 {
        // SAFETY: a statement at a row.
        unsafe { (self.functions.column_double)(self.handle.get(), column) }
    }

    /// A column of the present row, as the file stores it.
    ///
    /// # Safety
    /// Text and bytes must not be used after the statement steps or is reset.
    pub unsafe fn cell<'a>(&self, column: c_int) -> Cell<'a> {
        // SAFETY: a statement at a row; asked before a call that converts the column.
        match unsafe { (self.functions.column_type)(self.handle.get(), column) } {
            INTEGER => Cell::Integer(self.number(column)),
            REAL => Cell::Real(self.real(column)),
            // SAFETY: the caller says that the bytes are not used too long.
            TEXT => Cell::Text(unsafe { self.bytes(column) }),
            // SAFETY: as above.
            BLOB => Cell::Blob(unsafe { self.bytes(column) }),
            _ => Cell::Null,
        }
    }

    /// A column of the present row as bytes.
    ///
    /// # Safety
    /// The bytes must not be used after the statement steps or is reset.
    pub unsafe fn bytes<'a>(&self, column: c_int) -> &'a [u8] {
        // SAFETY: a statement at a row.
        let start = unsafe { (self.functions.column_blob)(self.handle.get(), column) };
        // SAFETY: as above; asked after the bytes, as the header says.
        let length = unsafe { (self.functions.column_bytes)(self.handle.get(), column) };
        // SAFETY: so many bytes, which the caller says are not used too long.
        unsafe { bytes(start, usize::try_from(length).unwrap_or(0)) }
    }

    /// Makes it ready to be bound and stepped again. A failed step repeats its
    /// error here, which was told before.
    pub fn reset(&self) {
        // SAFETY: a statement.
        unsafe { (self.functions.reset)(self.handle.get()) };
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: made by `prepare`, and not used after this.
        unsafe { (self.functions.finalize)(self.handle.get()) };
    }
}

fn bound_or_refused(answer: c_int) -> Result<()> {
    match answer {
        OK => Ok(()),
        other => Err(Error::store(NAME, "bind", format!("error {other}"))),
    }
}
