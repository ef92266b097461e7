//! Codes, and the words of the last error of each thread.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};

use cambium::{Error, Result};
use cambium_bindings::c;

/// What became of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum cambium_code {
    /// It was done.
    CAMBIUM_OK = 0,
    /// The key, snapshot or namespace is not there.
    CAMBIUM_NOT_FOUND = 1,
    /// An argument or option makes no sense, or a handle is none.
    CAMBIUM_INVALID_ARGUMENT = 2,
    /// The engine cannot do this.
    CAMBIUM_UNSUPPORTED = 3,
    /// A key, a value or a batch is larger than its limit.
    CAMBIUM_LIMIT_EXCEEDED = 4,
    /// A precondition of a batch did not hold; nothing was written.
    CAMBIUM_PRECONDITION_FAILED = 5,
    /// The store was closed.
    CAMBIUM_CLOSED = 6,
    /// Another process or handle owns the store.
    CAMBIUM_LOCKED = 7,
    /// The path holds no store.
    CAMBIUM_NOT_A_STORE = 8,
    /// A store, or something else, is there already.
    CAMBIUM_ALREADY_EXISTS = 9,
    /// The store is of a newer format, or of an engine that is not in here.
    CAMBIUM_UNKNOWN_FORMAT = 10,
    /// Bytes on the device are not what was written.
    CAMBIUM_CORRUPTION = 11,
    /// The operating system failed.
    CAMBIUM_IO = 12,
    /// The disk, or a quota, is full; the store is as it was before.
    CAMBIUM_NO_SPACE = 13,
    /// An earlier write failed; the store takes no more.
    CAMBIUM_POISONED = 14,
    /// Open snapshots hold too many old versions.
    CAMBIUM_SNAPSHOT_LIMIT = 15,
    /// It was cancelled; the store is as it was.
    CAMBIUM_CANCELLED = 16,
    /// Anything else; the message says what.
    CAMBIUM_OTHER = 17,
    /// A sync failed: writes since the last one may be lost, and the store takes no more.
    CAMBIUM_SYNC_FAILED = 18,
    /// Another writer changed what a transaction had read; nothing was written.
    CAMBIUM_CONFLICT = 19,
    /// The log no longer has the changes that were asked for; `cambium_error_oldest` says from
    /// where on it has them.
    CAMBIUM_HISTORY_LOST = 20,
}

thread_local! {
    static MESSAGE: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
    static OLDEST: Cell<u64> = const { Cell::new(0) };
}

/// The code of an error.
pub fn code_of(error: &Error) -> cambium_code {
    match error {
        Error::Io { .. } => cambium_code::CAMBIUM_IO,
        Error::SyncFailed { .. } => cambium_code::CAMBIUM_SYNC_FAILED,
        Error::NoSpace { .. } => cambium_code::CAMBIUM_NO_SPACE,
        Error::Corruption { .. } => cambium_code::CAMBIUM_CORRUPTION,
        Error::Locked { .. } => cambium_code::CAMBIUM_LOCKED,
        Error::NotAStore { .. } => cambium_code::CAMBIUM_NOT_A_STORE,
        Error::AlreadyExists { .. } => cambium_code::CAMBIUM_ALREADY_EXISTS,
        Error::UnsupportedVersion { .. } | Error::UnknownEngine { .. } => {
            cambium_code::CAMBIUM_UNKNOWN_FORMAT
        }
        Error::Unsupported { .. } => cambium_code::CAMBIUM_UNSUPPORTED,
        Error::InvalidArgument(_) => cambium_code::CAMBIUM_INVALID_ARGUMENT,
        Error::LimitExceeded(_) => cambium_code::CAMBIUM_LIMIT_EXCEEDED,
        Error::PreconditionFailed { .. } => cambium_code::CAMBIUM_PRECONDITION_FAILED,
        Error::Conflict { .. } => cambium_code::CAMBIUM_CONFLICT,
        Error::SnapshotLimit { .. } => cambium_code::CAMBIUM_SNAPSHOT_LIMIT,
        Error::HistoryLost { .. } => cambium_code::CAMBIUM_HISTORY_LOST,
        Error::Poisoned { .. } => cambium_code::CAMBIUM_POISONED,
        Error::NotFound { .. } => cambium_code::CAMBIUM_NOT_FOUND,
        Error::Closed => cambium_code::CAMBIUM_CLOSED,
        Error::Cancelled => cambium_code::CAMBIUM_CANCELLED,
        _ => cambium_code::CAMBIUM_OTHER,
    }
}

/// Calls, and answers the code; an error's words are kept for the thread.
pub fn answer(call: impl FnOnce() -> Result<cambium_code>) -> cambium_code {
    answer_or(c"there is none", call)
}

/// As [`answer`], with the words of `CAMBIUM_NOT_FOUND`.
pub fn answer_or(
    not_found: &'static CStr,
    call: impl FnOnce() -> Result<cambium_code>,
) -> cambium_code {
    match c::guarded(call, Err) {
        Ok(code) => {
            if code == cambium_code::CAMBIUM_NOT_FOUND {
                set_message(not_found.into());
            }
            code
        }
        Err(error) => {
            if let Error::HistoryLost { oldest } = &error {
                OLDEST.set(oldest.0);
            }
            let text = error.to_string().replace('\0', "\u{fffd}");
            set_message(CString::new(text).unwrap_or_default().into());
            code_of(&error)
        }
    }
}

fn set_message(text: Cow<'static, CStr>) {
    MESSAGE.with(|message| {
        message.replace(text);
    });
}

/// Calls what has nothing to answer.
pub fn done(call: impl FnOnce() -> Result<()>) -> cambium_code {
    answer(|| call().map(|()| cambium_code::CAMBIUM_OK))
}

/// The words of the last error of the calling thread, or of its last `CAMBIUM_NOT_FOUND`; empty
/// before the first. They stay until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_error_message() -> *const c_char {
    MESSAGE.with(|message| message.borrow().as_ptr())
}

/// The sequence number after which the log still had everything at the last
/// `CAMBIUM_HISTORY_LOST` of the calling thread; 0 before the first. A reader that goes on from
/// it leaves a gap.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_error_oldest() -> u64 {
    OLDEST.get()
}

/// Gives back what a call answered in memory of its own; null is fine.
///
/// # Safety
/// The pointer came from this library and was not given back before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_free(memory: *mut std::ffi::c_void) {
    // SAFETY: the caller promises it.
    unsafe { c::free(memory) };
}

/// The library's version, such as 0.1.0.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
