//! Iterators. An error makes one invalid, and stays until the iterator is placed
//! anew.

use std::ffi::c_char;
use std::sync::Mutex;

use cambium::{Direction, Result};
use cambium_bindings::handles::Recent;
use cambium_bindings::walker::Bounds;
use cambium_bindings::{RunWalker, c, order};

use crate::database::snapshot_of;
use crate::objects::{
    DATABASES, ITERATORS, Iteration, Shown, Slice, Walk, forget, handle_error, keep,
    leveldb_iterator_t, leveldb_readoptions_t, leveldb_t, lock, look_up,
};
use crate::report::{input, output, quietly, say, status_text};

/// An iterator over the snapshot of the options, or over the state now; unplaced
/// at first. One that could not be made is invalid, and its error says why.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_iterator(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
) -> *mut leveldb_iterator_t {
    let make = || {
        let open = look_up(&DATABASES, db)?;
        let view = match snapshot_of(options)? {
            Some(view) => (*view).clone(),
            None => open.database.view()?,
        };
        Ok(RunWalker::new(&view, &Bounds::default(), false))
    };
    let walk = match c::guarded(make, Err) {
        Ok(walker) => Walk {
            walker: Some(walker),
            status: None,
        },
        Err(error) => Walk {
            walker: None,
            status: Some(error),
        },
    };
    let iteration = Iteration {
        state: Mutex::new(walk),
        ..Iteration::default()
    };
    keep(&ITERATORS, iteration)
}

thread_local! {
    /// The iterator that this thread is at.
    static RECENT: Recent<Iteration> = const { Recent::new() };
}

/// Calls with an iterator, which a comparator cannot have: it may be called for it.
fn with<R>(
    iterator: *const leveldb_iterator_t,
    call: impl FnOnce(&Iteration) -> Result<R>,
) -> Result<R> {
    order::refuse_within_comparator()?;
    let answer = ITERATORS.with(&RECENT, iterator.addr(), call);
    answer.map_err(|error| handle_error(&error))?
}

/// Lets an iterator go.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_destroy(iterator: *mut leveldb_iterator_t) {
    quietly((), || {
        let iteration = forget(&ITERATORS, iterator);
        // Called by a comparator it may be the one that is moved: then it goes after that.
        if let (Some(iteration), Ok(())) = (iteration, order::refuse_within_comparator()) {
            // Threads may have looked it up.
            iteration.shown.set(None);
            *lock(&iteration.state) = Walk::default();
        }
        Ok(())
    });
}

/// 1 if the iterator stands at an entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_valid(iterator: *const leveldb_iterator_t) -> u8 {
    let is_valid = |iteration: &Iteration| Ok(!iteration.shown.key.get().0.is_null());
    quietly(0, || with(iterator, is_valid).map(u8::from))
}

fn go(iterator: *mut leveldb_iterator_t, to: impl FnOnce(&mut RunWalker) -> Result<()>) {
    quietly((), || {
        with(iterator, |iteration| {
            let mut walk = lock(&iteration.state);
            let Walk { walker, status } = &mut *walk;
            if let Some(walker) = walker {
                iteration.shown.set(None);
                *status = c::guarded(|| to(walker), Err).err();
                iteration.shown.set(walker.entry());
            }
            Ok(())
        })
    });
}

/// Goes to the first entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_seek_to_first(iterator: *mut leveldb_iterator_t) {
    go(iterator, RunWalker::seek_to_first);
}

/// Goes to the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_seek_to_last(iterator: *mut leveldb_iterator_t) {
    go(iterator, RunWalker::seek_to_last);
}

/// Goes to the first entry at or behind a key.
///
/// # Safety
/// `k` is one to `klen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek(
    iterator: *mut leveldb_iterator_t,
    k: *const c_char,
    klen: usize,
) {
    go(iterator, |walker| walker.seek(input!(k, klen, "key")?));
}

/// Goes to the next entry. An iterator that stands nowhere, after an error too, stays as it is.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_next(iterator: *mut leveldb_iterator_t) {
    step(iterator, Direction::Forward);
}

/// Goes to the entry before.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_prev(iterator: *mut leveldb_iterator_t) {
    step(iterator, Direction::Reverse);
}

fn step(iterator: *mut leveldb_iterator_t, direction: Direction) {
    quietly((), || {
        with(iterator, |iteration| {
            let mut walk = lock(&iteration.state);
            let Walk { walker, status } = &mut *walk;
            if let Some(walker) = walker.as_mut().filter(|walker| walker.entry().is_some()) {
                if !walker.can_step(direction) {
                    iteration.shown.set(None);
                }
                *status = c::guarded(|| walker.step(direction), Err).err();
                iteration.shown.set(walker.entry());
            }
            Ok(())
        })
    });
}

/// The key where it stands, its length in `*klen`, until the iterator moves; null
/// where it is invalid.
///
/// # Safety
/// `klen` is null or a place for the length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_key(
    iterator: *const leveldb_iterator_t,
    klen: *mut usize,
) -> *const c_char {
    shown(iterator, klen, |shown| &shown.key)
}

/// The value where it stands; as of [`leveldb_iter_key`].
///
/// # Safety
/// As of [`leveldb_iter_key`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_value(
    iterator: *const leveldb_iterator_t,
    vlen: *mut usize,
) -> *const c_char {
    shown(iterator, vlen, |shown| &shown.value)
}

fn shown(
    iterator: *const leveldb_iterator_t,
    length: *mut usize,
    part: impl FnOnce(&Shown) -> &Slice,
) -> *const c_char {
    let slice = || with(iterator, |iteration| Ok(part(&iteration.shown).get()));
    let (start, bytes) = quietly((std::ptr::null(), 0), slice);
    output!(length, bytes);
    start.cast()
}

/// The error that made the iterator invalid, if one did.
///
/// # Safety
/// `errptr` is null or a place for null or memory from `malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_get_error(
    iterator: *const leveldb_iterator_t,
    errptr: *mut *mut c_char,
) {
    let status = || Ok(lock(&look_up(&ITERATORS, iterator)?.state).status.clone());
    match c::guarded(status, Err) {
        Ok(None) => {}
        Ok(Some(error)) | Err(error) => say(errptr, &status_text(&error)),
    }
}
