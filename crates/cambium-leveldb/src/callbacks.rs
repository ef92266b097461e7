//! Comparators and filter policies: code of the program that we call.
//!
//! The promises that the calls rest on are those of `leveldb/c.h`: the functions
//! take the state they were given with, may be called from any thread at once,
//! do not keep the pointers they are handed, and do not unwind. The state lives
//! until the destructor is called, which is when nothing uses it any more: its
//! handle destroyed, and the databases opened with it closed.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use cambium::{Error, Result};
use cambium_bindings::c::{ProgramComparator, State};
use cambium_bindings::{Comparator, c};

use crate::objects::{
    COMPARATORS, FILTERS, Filter, forget, keep, leveldb_comparator_t, leveldb_filterpolicy_t,
};
use crate::report::{answered_text, quietly};

/// Called when a state is used no more.
pub type leveldb_destructor_t = Option<unsafe extern "C" fn(*mut c_void)>;
/// Answers the name.
pub type leveldb_name_t = Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>;
/// Answers less than, equal to or more than 0.
pub type leveldb_compare_t =
    Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int>;
/// Answers a filter of keys in memory from `malloc`.
pub type leveldb_create_filter_t = Option<
    unsafe extern "C" fn(
        *mut c_void,
        *const *const c_char,
        *const usize,
        c_int,
        *mut usize,
    ) -> *mut c_char,
>;
/// Answers 0 where a key is not among those of a filter.
pub type leveldb_key_may_match_t =
    Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> u8>;

/// An order of keys that the program brought.
pub struct UserComparator {
    state: Arc<State>,
    compare: leveldb_compare_t,
    name: leveldb_name_t,
}

impl UserComparator {
    /// What a database is opened with, under the name that the comparator has now.
    ///
    /// # Errors
    /// `InvalidArgument` where a function or the name is missing.
    pub fn named(&self) -> Result<Arc<dyn Comparator>> {
        let missing = |what| Error::InvalidArgument(format!("the comparator has no {what}"));
        let compare = self.compare.ok_or_else(|| missing("compare function"))?;
        let name = self.name.ok_or_else(|| missing("name function"))?;
        // SAFETY: its own state; see the top of this module.
        let name = unsafe { name(self.state.pointer()) };
        // SAFETY: leveldb/c.h: the name is text that ends with a zero.
        let name = unsafe { answered_text(name) }.ok_or_else(|| missing("name"))?;
        // SAFETY: see the top of this module.
        let comparator = unsafe { ProgramComparator::new(name, self.state.clone(), compare) };
        Ok(Arc::new(comparator))
    }
}

/// A filter policy that the program brought.
pub struct FilterPolicy {
    state: State,
    create: leveldb_create_filter_t,
    may_match: leveldb_key_may_match_t,
}

impl FilterPolicy {
    /// What the policy says of a key, by a filter that is made of it alone; true
    /// where it cannot say.
    pub fn may_hold(&self, key: &[u8]) -> bool {
        let (Some(create), Some(may_match)) = (self.create, self.may_match) else {
            return true;
        };
        let (start, length) = (key.as_ptr().cast::<c_char>(), key.len());
        let mut filter_length = 0;
        // SAFETY: its own state, one key, and a place for the length; see the top
        // of this module.
        let filter = unsafe {
            create(
                self.state.pointer(),
                &raw const start,
                &raw const length,
                1,
                &raw mut filter_length,
            )
        };
        if filter.is_null() {
            return true;
        }
        // SAFETY: its own state, the key, and the filter it made; see the top.
        let answer =
            unsafe { may_match(self.state.pointer(), start, length, filter, filter_length) };
        // SAFETY: leveldb/c.h: filters come from malloc.
        unsafe { c::free(filter.cast()) };
        answer != 0
    }
}

/// Makes a comparator of the program's functions.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_comparator_create(
    state: *mut c_void,
    destructor: leveldb_destructor_t,
    compare: leveldb_compare_t,
    name: leveldb_name_t,
) -> *mut leveldb_comparator_t {
    // SAFETY: see the top of this module.
    let state = unsafe { State::new(state, destructor) };
    let comparator = UserComparator {
        state: Arc::new(state),
        compare,
        name,
    };
    keep(&COMPARATORS, Arc::new(comparator))
}

/// Lets a comparator go. Its destructor is called when the last database opened
/// with it is closed.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_comparator_destroy(comparator: *mut leveldb_comparator_t) {
    quietly((), || {
        forget(&COMPARATORS, comparator);
        Ok(())
    });
}

/// Makes a filter policy of the program's functions.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create(
    state: *mut c_void,
    destructor: leveldb_destructor_t,
    create_filter: leveldb_create_filter_t,
    key_may_match: leveldb_key_may_match_t,
    _name: leveldb_name_t,
) -> *mut leveldb_filterpolicy_t {
    // SAFETY: see the top of this module.
    let state = unsafe { State::new(state, destructor) };
    let policy = FilterPolicy {
        state,
        create: create_filter,
        may_match: key_may_match,
    };
    keep(&FILTERS, Filter::Brought(Arc::new(policy)))
}

/// A Bloom filter of so many bits a key: the engine's own.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create_bloom(
    bits_per_key: c_int,
) -> *mut leveldb_filterpolicy_t {
    let bits = u64::try_from(bits_per_key).unwrap_or(0);
    keep(&FILTERS, Filter::Bloom { bits })
}

/// Lets a filter policy go. Its destructor is called when the last database
/// opened with it is closed.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_destroy(policy: *mut leveldb_filterpolicy_t) {
    quietly((), || {
        forget(&FILTERS, policy);
        Ok(())
    });
}
