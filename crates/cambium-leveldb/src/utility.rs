//! Memory and versions.

use std::ffi::{c_int, c_void};

use cambium_bindings::c;

/// Frees what this library answered in memory from `malloc`.
///
/// # Safety
/// The pointer is null, or such memory, and was not freed since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_free(ptr: *mut c_void) {
    // SAFETY: the caller promises it.
    unsafe { c::free(ptr) };
}

/// The major version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_major_version() -> c_int {
    1
}

/// The minor version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_minor_version() -> c_int {
    23
}
