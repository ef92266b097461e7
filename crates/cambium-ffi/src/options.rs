//! Options: the engine's, by name, as `cambium options` lists them.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

use cambium::{Error, Options, Result, comparator};
use cambium_bindings::Comparator;
use cambium_bindings::c::{ProgramComparator, State};

use crate::error::{cambium_code, done};
use crate::objects::{OPTIONS, cambium_options, forget, keep, lock, look_up, output, text};

/// Answers less than, equal to or more than 0, as the left key comes before the right one, is
/// the same, or comes after it. `state` is that of `cambium_options_set_comparator`.
pub type cambium_compare = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        left: *const c_char,
        left_length: usize,
        right: *const c_char,
        right_length: usize,
    ) -> c_int,
>;

/// Called once, on any thread, when the library uses a state no more.
pub type cambium_destructor = Option<unsafe extern "C" fn(state: *mut c_void)>;

/// How a store is made or opened.
#[derive(Clone, Default)]
pub struct Chosen {
    pub options: Options,
    /// An order of keys other than that of their bytes.
    pub comparator: Option<Arc<dyn Comparator>>,
}

/// Options at their defaults, in `*options`.
///
/// # Safety
/// `options` is null or a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_options_new(options: *mut *mut cambium_options) -> cambium_code {
    output!(options, std::ptr::null_mut());
    done(|| {
        output!(options, keep(&OPTIONS, Mutex::default())?);
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
        let chosen = &mut *lock(&options);
        chosen.options = std::mem::take(&mut chosen.options).set(name, value);
        Ok(())
    })
}

/// Orders the keys of stores that are made or opened with these options by a function of the
/// program, not by their bytes. The name is kept with a store: from then on the store is opened
/// with a comparator of the same name only. Keys that compare equal are one key. All keys of the
/// store are in memory while it is open. Such a store answers `CAMBIUM_UNSUPPORTED` to
/// transactions, namespaces, conditions, submitted requests, expiring and merged values, and
/// deleted ranges.
///
/// `destructor` may be null. It is called with the state when the options and all stores,
/// snapshots and iterators that use the comparator are gone; at once if this call fails.
///
/// # Safety
/// The name ends with a zero. `compare` may be called on any thread, several times at once. It
/// keeps neither key, calls nothing of this library, and does not unwind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_options_set_comparator(
    options: *mut cambium_options,
    name: *const c_char,
    state: *mut c_void,
    compare: cambium_compare,
    destructor: cambium_destructor,
) -> cambium_code {
    // SAFETY: cambium.h: the functions take the state from any thread.
    let state = unsafe { State::new(state, destructor) };
    done(move || {
        let name = text!(name, "name")?;
        comparator::check_name(name)?;
        let compare = compare.ok_or_else(|| {
            Error::InvalidArgument("there is no function that compares: a null pointer".to_string())
        })?;
        // SAFETY: cambium.h: the function takes the state and two keys.
        let order = unsafe { ProgramComparator::new(name.to_string(), Arc::new(state), compare) };
        let options = look_up(&OPTIONS, options)?;
        lock(&options).comparator = Some(Arc::new(order));
        Ok(())
    })
}

/// The options of a handle; null stands for the defaults.
pub fn given(options: *const cambium_options) -> Result<Chosen> {
    if options.is_null() {
        return Ok(Chosen::default());
    }
    Ok(lock(&*look_up(&OPTIONS, options)?).clone())
}
