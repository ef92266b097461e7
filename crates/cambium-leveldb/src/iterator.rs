//! Iterators. An error makes one invalid, and stays until the iterator is placed
//! anew.

use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard};

use cambium::{Direction, Result};
use cambium_bindings::walker::Bounds;
use cambium_bindings::{RunWalker, c, order};

use crate::database::snapshot_of;
use crate::objects::{
    DATABASES, ITERATORS, Iteration, forget, keep, leveldb_iterator_t, leveldb_readoptions_t,
    leveldb_t, lock, look_up,
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
    let iteration = match c::guarded(make, Err) {
        Ok(walker) => Iteration {
            walker: Some(walker),
            status: None,
        },
        Err(error) => Iteration {
            walker: None,
            status: Some(error),
        },
    };
    keep(&ITERATORS, Mutex::new(iteration))
}

/// Lets an iterator go.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_destroy(iterator: *mut leveldb_iterator_t) {
    quietly((), || {
        forget(&ITERATORS, iterator);
        Ok(())
    });
}

/// 1 if the iterator stands at an entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_valid(iterator: *const leveldb_iterator_t) -> u8 {
    quietly(0, || {
        let iterator = look_up(&ITERATORS, iterator)?;
        let iteration = locked(&iterator)?;
        let walker = iteration.walker.as_ref();
        Ok(u8::from(
            walker.is_some_and(|walker| walker.entry().is_some()),
        ))
    })
}

/// The content of an iterator, which a comparator cannot have: it may be called for it.
fn locked(iterator: &Mutex<Iteration>) -> Result<MutexGuard<'_, Iteration>> {
    order::refuse_within_comparator()?;
    Ok(lock(iterator))
}

fn go(iterator: *mut leveldb_iterator_t, to: impl FnOnce(&mut RunWalker) -> Result<()>) {
    quietly((), || {
        let iterator = look_up(&ITERATORS, iterator)?;
        let mut iteration = locked(&iterator)?;
        let Some(walker) = &mut iteration.walker else {
            return Ok(());
        };
        let moved = c::guarded(|| to(walker), Err);
        match moved {
            Ok(()) => iteration.status = None,
            Err(error) => iteration.status = Some(error),
        }
        Ok(())
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

/// Goes to the next entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_next(iterator: *mut leveldb_iterator_t) {
    step(iterator, Direction::Forward);
}

/// Goes to the entry before.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_prev(iterator: *mut leveldb_iterator_t) {
    step(iterator, Direction::Reverse);
}

/// An iterator that stands nowhere, after an error too, stays as it is.
fn step(iterator: *mut leveldb_iterator_t, direction: Direction) {
    quietly((), || {
        let iterator = look_up(&ITERATORS, iterator)?;
        let mut iteration = locked(&iterator)?;
        let Iteration { walker, status } = &mut *iteration;
        if let Some(walker) = walker.as_mut().filter(|walker| walker.entry().is_some()) {
            *status = c::guarded(|| walker.step(direction), Err).err();
        }
        Ok(())
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
    shown(iterator, klen, |(key, _)| key)
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
    shown(iterator, vlen, |(_, value)| value)
}

fn shown(
    iterator: *const leveldb_iterator_t,
    length: *mut usize,
    part: impl for<'w> FnOnce((&'w [u8], &'w [u8])) -> &'w [u8],
) -> *const c_char {
    output!(length, 0);
    quietly(std::ptr::null(), || {
        let iterator = look_up(&ITERATORS, iterator)?;
        let iteration = locked(&iterator)?;
        let entry = iteration.walker.as_ref().and_then(RunWalker::entry);
        let Some(bytes) = entry.map(part) else {
            return Ok(std::ptr::null());
        };
        output!(length, bytes.len());
        // The walker keeps it where it is until it moves.
        Ok(bytes.as_ptr().cast())
    })
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
    let status = || Ok(lock(&*look_up(&ITERATORS, iterator)?).status.clone());
    match c::guarded(status, Err) {
        Ok(None) => {}
        Ok(Some(error)) | Err(error) => say(errptr, &status_text(&error)),
    }
}
