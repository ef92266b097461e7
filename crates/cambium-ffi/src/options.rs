//! Options: the engine's, by name, as `cambium options` lists them.

use std::ffi::c_char;
use std::sync::Mutex;

use cambium::{Options, Result};

use crate::error::{cambium_code, done};
use crate::objects::{OPTIONS, cambium_options, forget, keep, lock, look_up, output, text};

/// Options at their defaults, in `*options`.
///
/// # Safety
/// `options` is null or a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_options_new(options: *mut *mut cambium_options) -> cambium_code {
    output!(options, std::ptr::null_mut());
    done(|| {
        output!(options, keep(&OPTIONS, Mutex::new(Options::new()))?);
        Ok(())
    })
}

/// Lets options go.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_options_free(options: *mut cambium_options) {
    forget(&OPTIONS, options);
}

/// Sets one option of the engine, or `memory_budget`, which bounds the memory of all stores
/// that are opened with these options. A name or value that the engine does not know is
/// refused when a store is made or opened.
///
/// # Safety
/// The texts end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_options_set(
    options: *mut cambium_options,
    name: *const c_char,
    value: *const c_char,
) -> cambium_code {
    done(|| {
        let (name, value) = (text!(name, "name")?, text!(value, "value")?);
        let options = look_up(&OPTIONS, options)?;
        let mut options = lock(&options);
        *options = std::mem::take(&mut *options).set(name, value);
        Ok(())
    })
}

/// The options of a handle; null stands for the defaults.
pub fn given(options: *const cambium_options) -> Result<Options> {
    if options.is_null() {
        return Ok(Options::new());
    }
    Ok(lock(&*look_up(&OPTIONS, options)?).clone())
}
