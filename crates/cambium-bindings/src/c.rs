//! What crosses the border to C: pointers with lengths, text, memory that the
//! other side frees, comparators and merge operators that it brings.
//!
//! This is the one module of the crate with unsafe code. Each function says
//! what its caller must have been promised by the C program; the functions that
//! are exported to C hand those promises on from the header's words. What can
//! be checked is checked: null pointers are errors, or are left alone where they
//! mean "I don't want it".
#![allow(unsafe_code)]

use std::cmp::Ordering;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Once};

use cambium::{Error, MergeOperator, Result};
use cambium_io::sync::atomic::{AtomicU32, Ordering as Atomic};

use crate::order::Comparator;

/// The bytes that a pointer and a length stand for; null is fine where the
/// length is 0.
///
/// # Errors
/// As of [`list`].
///
/// # Safety
/// As of [`list`].
pub unsafe fn bytes<'a>(start: *const c_char, length: usize, what: &str) -> Result<&'a [u8]> {
    // SAFETY: the caller promises what it asks for.
    unsafe { list(start.cast::<u8>(), length, what) }
}

/// The elements that a pointer and their number stand for; null is fine where the
/// number is 0.
///
/// # Errors
/// `InvalidArgument` for null with a number, or more than any memory has.
///
/// # Safety
/// A pointer that is not null is aligned and points to `length` elements that nobody
/// writes while `'a` lasts.
pub unsafe fn list<'a, T>(start: *const T, length: usize, what: &str) -> Result<&'a [T]> {
    if length == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(Error::InvalidArgument(format!(
            "the {what} is a null pointer with a length of {length}"
        )));
    }
    let size = length.checked_mul(size_of::<T>());
    if size.is_none_or(|size| isize::try_from(size).is_err()) {
        return Err(Error::InvalidArgument(format!(
            "the {what} has a length of {length}: no memory is that large"
        )));
    }
    // SAFETY: not null, no longer than isize::MAX, and the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts(start, length) })
}

/// The bytes before the terminating zero.
///
/// # Errors
/// `InvalidArgument` for null.
///
/// # Safety
/// A pointer that is not null points to bytes that end with a zero, which
/// nobody writes while `'a` lasts.
pub unsafe fn terminated<'a>(start: *const c_char, what: &str) -> Result<&'a [u8]> {
    if start.is_null() {
        return Err(Error::InvalidArgument(format!(
            "the {what} is a null pointer"
        )));
    }
    // SAFETY: not null, and the caller promises the rest.
    Ok(unsafe { CStr::from_ptr(start) }.to_bytes())
}

/// A zero-terminated UTF-8 text.
///
/// # Errors
/// `InvalidArgument` for null and for what is no UTF-8.
///
/// # Safety
/// As of [`terminated`].
pub unsafe fn text<'a>(start: *const c_char, what: &str) -> Result<&'a str> {
    // SAFETY: the caller promises what it asks for.
    let bytes = unsafe { terminated(start, what) }?;
    std::str::from_utf8(bytes)
        .map_err(|error| Error::InvalidArgument(format!("the {what} is no UTF-8: {error}")))
}

/// A zero-terminated path.
///
/// # Errors
/// `InvalidArgument` for null and for the empty path.
///
/// # Safety
/// As of [`terminated`].
pub unsafe fn path<'a>(start: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller promises what it asks for.
    let bytes = unsafe { terminated(start, "path") }?;
    if bytes.is_empty() {
        return Err(Error::InvalidArgument("the path is empty".to_string()));
    }
    path_of(bytes)
}

/// A path of bytes, as Unix has them.
#[cfg(unix)]
fn path_of(bytes: &[u8]) -> Result<&Path> {
    let path: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(bytes);
    Ok(Path::new(path))
}

/// A path of UTF-8: the other paths of Windows have no bytes.
#[cfg(not(unix))]
fn path_of(bytes: &[u8]) -> Result<&Path> {
    let text = std::str::from_utf8(bytes);
    text.map(Path::new)
        .map_err(|error| Error::InvalidArgument(format!("the path is no UTF-8: {error}")))
}

/// Gives an out-parameter its value; nothing where it is null.
///
/// # Safety
/// A pointer that is not null is one to a `T` (its old value is not dropped)
/// that nobody else uses meanwhile.
pub unsafe fn set<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: not null, and the caller promises the rest.
        unsafe { out.write(value) };
    }
}

/// A copy of bytes in memory from `malloc`, with a zero behind the last, for
/// the other side to free; null where there is no memory.
pub fn allocate(bytes: &[u8]) -> *mut c_char {
    // SAFETY: malloc takes any size; this one is at least 1.
    let start = unsafe { libc::malloc(bytes.len().saturating_add(1)) }.cast::<u8>();
    if start.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the new memory is of one byte more than these, and apart from them.
    unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    // SAFETY: the new memory is of one byte more than these.
    let last = unsafe { start.add(bytes.len()) };
    // SAFETY: that byte is ours.
    unsafe { last.write(0) };
    start.cast()
}

/// Frees what [`allocate`], or the other side's `malloc`, gave; null is fine.
///
/// # Safety
/// The pointer is null or came from `malloc` and was not freed since.
pub unsafe fn free(start: *mut c_void) {
    // SAFETY: the caller promises what free asks for.
    unsafe { libc::free(start) };
}

/// Calls, and turns a panic into an answer: nothing unwinds into C.
pub fn guarded<T>(call: impl FnOnce() -> T, otherwise: impl FnOnce(Error) -> T) -> T {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(answer) => answer,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            let text = text.unwrap_or_else(|| "no message".to_string());
            otherwise(Error::InvalidArgument(format!(
                "the library has a fault, please report it: {text}"
            )))
        }
    }
}

/// Forks that lie between the process that counts them and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

#[cfg(unix)]
extern "C" fn count_fork() {
    FORKS.fetch_add(1, Atomic::Relaxed);
}

/// Counts forks from now on.
pub(crate) fn count_forks() {
    #[cfg(unix)]
    {
        static COUNTS: Once = Once::new();
        // No other thread has an object of a store before the handler is there.
        COUNTS.call_once(|| {
            // SAFETY: the function adds to a number, which a child may do at once.
            unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
        });
    }
}

/// A number that differs between a process and those that were forked off it since
/// [`count_forks`]. Unlike the process id it costs no system call.
pub(crate) fn forks() -> u32 {
    FORKS.load(Atomic::Relaxed)
}

/// Called by the library when it uses a state no more.
pub type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;
/// Answers less than, equal to or more than 0.
pub type Compare =
    unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int;

/// The data that a program hands over with its functions. The destructor is called when the
/// last function is used no more.
#[derive(Debug)]
pub struct State {
    pointer: *mut c_void,
    destructor: Destructor,
}

// SAFETY: `State::new` requires that functions take the state from any thread.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

impl State {
    /// Takes over a state.
    ///
    /// # Safety
    /// The program's functions may be called with the state from any thread, several at once,
    /// until the destructor is called. The destructor may be called from any thread, once.
    pub unsafe fn new(pointer: *mut c_void, destructor: Destructor) -> Self {
        State {
            pointer,
            destructor,
        }
    }

    /// What the program's functions are called with.
    pub fn pointer(&self) -> *mut c_void {
        self.pointer
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the last use of the state, as `State::new` requires.
            unsafe { destructor(self.pointer) };
        }
    }
}

/// A comparator that a C program brings.
#[derive(Debug)]
pub struct ProgramComparator {
    name: String,
    state: Arc<State>,
    compare: Compare,
}

impl ProgramComparator {
    /// A comparator by a function and its state.
    ///
    /// # Safety
    /// The function takes the state, and two pointers to as many bytes as their lengths say. It
    /// keeps neither pointer and does not unwind.
    pub unsafe fn new(name: String, state: Arc<State>, compare: Compare) -> Self {
        ProgramComparator {
            name,
            state,
            compare,
        }
    }
}

impl Comparator for ProgramComparator {
    fn name(&self) -> &str {
        &self.name
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        let (a, b) = (left.as_ptr().cast(), right.as_ptr().cast());
        // SAFETY: its own state, and two slices, as `ProgramComparator::new` requires.
        let answer = unsafe { (self.compare)(self.state.pointer, a, left.len(), b, right.len()) };
        answer.cmp(&0)
    }
}

/// Makes the next value of a key's current one (null where it is not there) and an operand, in
/// memory from `malloc`; answers 0, or anything else where it cannot.
pub type Merge = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    usize,
    *const c_char,
    usize,
    *mut *mut c_char,
    *mut usize,
) -> c_int;

/// A merge operator that a C program brings.
#[derive(Debug)]
pub struct ProgramOperator {
    name: String,
    state: State,
    merge: Merge,
}

impl ProgramOperator {
    /// An operator by a function and its state.
    ///
    /// # Safety
    /// The function takes the state, the current value and the operand, each a pointer to as
    /// many bytes as its length says, and places for its answer. It keeps no pointer, puts null
    /// or memory from `malloc` with its length into the places, and does not unwind.
    pub unsafe fn new(name: String, state: State, merge: Merge) -> Self {
        ProgramOperator { name, state, merge }
    }
}

impl MergeOperator for ProgramOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn merge(&self, key: &[u8], current: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>> {
        let state = self.state.pointer;
        let before = current.map_or(std::ptr::null(), |current| current.as_ptr().cast());
        let (before_length, with) = (current.map_or(0, <[u8]>::len), operand.as_ptr().cast());
        let (mut value, mut length) = (std::ptr::null_mut(), 0);
        let (out, out_length) = (&raw mut value, &raw mut length);
        let merge = self.merge;
        // SAFETY: its own state, two slices and two places, as `ProgramOperator::new` requires.
        let answer = unsafe {
            merge(
                state,
                before,
                before_length,
                with,
                operand.len(),
                out,
                out_length,
            )
        };
        // SAFETY: null or as many bytes, as `ProgramOperator::new` requires.
        let made = unsafe { bytes(value, length, "merged value") }.map(<[u8]>::to_vec);
        // SAFETY: null or from malloc, as `ProgramOperator::new` requires.
        unsafe { free(value.cast()) };
        match answer {
            0 => made,
            _ => Err(Error::InvalidArgument(format!(
                "merge by {} into key {:?}: the program's function answered {answer}, not 0",
                self.name,
                String::from_utf8_lossy(key)
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_an_error_where_bytes_are_needed() {
        // SAFETY: null is allowed.
        assert_eq!(unsafe { bytes(std::ptr::null(), 0, "key") }.unwrap(), b"");
        // SAFETY: null is allowed.
        assert!(unsafe { bytes(std::ptr::null(), 1, "key") }.is_err());
        // SAFETY: null is allowed.
        assert!(unsafe { path(std::ptr::null()) }.is_err());
        // SAFETY: null is allowed.
        unsafe { set(std::ptr::null_mut(), 7) };
    }

    #[test]
    fn what_is_allocated_ends_with_a_zero() {
        let copy = allocate(b"oak");
        // SAFETY: it was made just now, with a zero at its end.
        assert_eq!(unsafe { terminated(copy, "copy") }.unwrap(), b"oak");
        // SAFETY: it came from malloc.
        unsafe { free(copy.cast()) };
    }

    #[test]
    fn a_panic_is_an_answer() {
        let answer = guarded(|| panic!("lost"), |error| error.to_string());
        assert!(answer.contains("lost"), "{answer}");
    }
}
