//! Errors on their way to C: text in memory from `malloc`, as LevelDB words it.

use std::ffi::{CStr, c_char};

use cambium::{Error, Result};
use cambium_bindings::c;

/// The bytes of a pointer and a length that a caller of LevelDB hands in.
macro_rules! input {
    ($start:expr, $length:expr, $what:expr) => {
        // SAFETY: leveldb/c.h: the pointer is one to as many bytes as the length
        // says, which stay as they are during the call.
        unsafe { cambium_bindings::c::bytes($start, $length, $what) }
    };
}
/// Writes to a pointer for an answer, where one is given.
macro_rules! output {
    ($out:expr, $value:expr) => {
        // SAFETY: leveldb/c.h: null, or a place for the answer that is the caller's.
        unsafe { cambium_bindings::c::set($out, $value) }
    };
}
pub(crate) use {input, output};

/// An error as LevelDB's `Status::ToString` would have it.
pub fn status_text(error: &Error) -> String {
    let class = match error {
        Error::Corruption { .. } => "Corruption",
        Error::NotFound { .. } => "NotFound",
        Error::Unsupported { .. } => "Not implemented",
        Error::InvalidArgument(_)
        | Error::LimitExceeded(_)
        | Error::NotAStore { .. }
        | Error::AlreadyExists { .. } => "Invalid argument",
        _ => "IO error",
    };
    match error {
        // Its own text begins with the class.
        Error::InvalidArgument(what) => format!("{class}: {what}"),
        _ => format!("{class}: {error}"),
    }
}

/// Calls; an error, or a panic, goes to `errptr` and the answer is `otherwise`.
pub fn report<T>(errptr: *mut *mut c_char, otherwise: T, call: impl FnOnce() -> Result<T>) -> T {
    match c::guarded(call, Err) {
        Ok(answer) => answer,
        Err(error) => {
            say(errptr, &status_text(&error));
            otherwise
        }
    }
}

/// Calls where there is nobody to tell of an error.
pub fn quietly<T>(otherwise: T, call: impl FnOnce() -> Result<T>) -> T {
    c::guarded(call, Err).unwrap_or(otherwise)
}

/// Puts a text into `*errptr`, in the place of one that may be there.
pub fn say(errptr: *mut *mut c_char, text: &str) {
    if errptr.is_null() {
        return;
    }
    let text = c::allocate(text.as_bytes());
    // SAFETY: leveldb/c.h: not null, and a place for the error that is the caller's.
    let before = unsafe { errptr.read() };
    if !before.is_null() {
        // SAFETY: leveldb/c.h: what stood there came from malloc.
        unsafe { c::free(before.cast()) };
    }
    output!(errptr, text);
}

/// A text that a callback answered, or `None` for null.
///
/// # Safety
/// A pointer that is not null points to bytes that end with a zero.
pub unsafe fn answered_text(start: *const c_char) -> Option<String> {
    if start.is_null() {
        return None;
    }
    // SAFETY: the caller promises it.
    let text = unsafe { CStr::from_ptr(start) };
    Some(text.to_string_lossy().into_owned())
}
