//! Snapshots and iterators.

use std::ffi::{c_char, c_void};
use std::sync::Mutex;

use cambium::{Entry, Error, Result, Value};
use cambium_bindings::Walker;
use cambium_bindings::walker::Bounds;

use crate::error::{answer, answer_or, cambium_code, done};
use crate::objects::{
    ITERATORS, Iteration, SNAPSHOTS, STORES, cambium_iterator, cambium_snapshot, cambium_store,
    forget, input, keep, lock, look_up, output, plain, text,
};
use crate::opened::Moment;
use crate::store::{give_value, range};
use crate::upkeep::give_names;

/// The state of a store now, in `*snapshot`, for as long as it is held.
///
/// # Safety
/// `snapshot` is null or a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_snapshot_new(
    store: *mut cambium_store,
    snapshot: *mut *mut cambium_snapshot,
) -> cambium_code {
    output!(snapshot, std::ptr::null_mut());
    done(|| {
        let now = look_up(&STORES, store)?.moment()?;
        output!(snapshot, keep(&SNAPSHOTS, now)?);
        Ok(())
    })
}

/// Lets a snapshot go.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_snapshot_free(snapshot: *mut cambium_snapshot) {
    forget(&SNAPSHOTS, snapshot);
}

/// The state that was kept under a name, in `*snapshot`. It stays readable when its name is
/// dropped, until it is freed.
///
/// # Safety
/// The name ends with a zero; `snapshot` is null or a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_named_snapshot_open(
    store: *mut cambium_store,
    name: *const c_char,
    snapshot: *mut *mut cambium_snapshot,
) -> cambium_code {
    output!(snapshot, std::ptr::null_mut());
    done(|| {
        let kept = plain(store)?.named_snapshot(text!(name, "name")?)?;
        output!(snapshot, keep(&SNAPSHOTS, Moment::Plain(kept))?);
        Ok(())
    })
}

/// The same moment of another namespace, in `*namespace_snapshot`, to be freed by itself;
/// `CAMBIUM_NOT_FOUND`, and null, if there is none of that name. An empty name is the default
/// one.
///
/// # Safety
/// The name ends with a zero; `namespace_snapshot` is null or a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_snapshot_namespace(
    snapshot: *mut cambium_snapshot,
    name: *const c_char,
    namespace_snapshot: *mut *mut cambium_snapshot,
) -> cambium_code {
    output!(namespace_snapshot, std::ptr::null_mut());
    answer_or(c"the snapshot has no namespace of that name", || {
        let moment = look_up(&SNAPSHOTS, snapshot)?;
        let Some(found) = moment.namespace(text!(name, "name")?)? else {
            return Ok(cambium_code::CAMBIUM_NOT_FOUND);
        };
        output!(namespace_snapshot, keep(&SNAPSHOTS, found)?);
        Ok(cambium_code::CAMBIUM_OK)
    })
}

/// Names of the store's namespaces, as of `cambium_namespaces`; one that was made after the
/// snapshot is empty in it.
///
/// # Safety
/// As of `cambium_named_snapshots`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_snapshot_namespaces(
    snapshot: *mut cambium_snapshot,
    names: *mut *mut c_char,
    count: *mut usize,
) -> cambium_code {
    give_names(names, count, || {
        look_up(&SNAPSHOTS, snapshot)?.whole().namespaces()
    })
}

/// As `cambium_get`, as of the snapshot.
///
/// # Safety
/// As of `cambium_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_snapshot_get(
    snapshot: *mut cambium_snapshot,
    key: *const c_void,
    key_length: usize,
    value: *mut *mut c_void,
    value_length: *mut usize,
) -> cambium_code {
    give_value(value, value_length, || {
        look_up(&SNAPSHOTS, snapshot)?.get(input!(key, key_length, "key")?)
    })
}

/// An iterator over the keys from `from` up to, not including, `to` (null is open), in
/// order, as of the snapshot, or of now where that is null. It stands at no entry
/// until it is placed.
///
/// # Safety
/// The pointers are ones to as many bytes as their lengths say; `iterator` is null or
/// a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_iterator_new(
    store: *mut cambium_store,
    snapshot: *mut cambium_snapshot,
    from: *const c_void,
    from_length: usize,
    to: *const c_void,
    to_length: usize,
    iterator: *mut *mut cambium_iterator,
) -> cambium_code {
    output!(iterator, std::ptr::null_mut());
    done(|| {
        let store = look_up(&STORES, store)?;
        let range = range(from, from_length, to, to_length)?;
        let moment = match snapshot.is_null() {
            true => store.moment()?,
            false => (*look_up(&SNAPSHOTS, snapshot)?).clone(),
        };
        if let Moment::Plain(snapshot) = &moment {
            if !store.whole().capabilities().ordered {
                // The engine says it best: which one keeps an order.
                snapshot.scan(&range)?;
            }
        }
        let iteration = Iteration::Ordered(moment.walker(&Bounds::from(&range)));
        output!(iterator, keep(&ITERATORS, Mutex::new(iteration))?);
        Ok(())
    })
}

/// An iterator over every entry as of now, in the order that is cheapest for the
/// engine; works on every engine. Only `cambium_iterator_next` moves it.
///
/// # Safety
/// `iterator` is null or a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_pass_new(
    store: *mut cambium_store,
    iterator: *mut *mut cambium_iterator,
) -> cambium_code {
    give_pass(iterator, || plain(store)?.iterate())
}

/// Hands a pass over entries to C.
pub fn give_pass<P: Iterator<Item = Result<Entry>> + Send + 'static>(
    iterator: *mut *mut cambium_iterator,
    begin: impl FnOnce() -> Result<P>,
) -> cambium_code {
    output!(iterator, std::ptr::null_mut());
    done(|| {
        let iteration = Iteration::Pass(Box::new(begin()?), None);
        output!(iterator, keep(&ITERATORS, Mutex::new(iteration))?);
        Ok(())
    })
}

/// Lets an iterator go.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_iterator_free(iterator: *mut cambium_iterator) {
    forget(&ITERATORS, iterator);
}

fn entry_of(iteration: &Iteration) -> Option<&Entry> {
    match iteration {
        Iteration::Ordered(walker) => walker.entry(),
        Iteration::Pass(_, entry) => entry.as_ref(),
    }
}

/// Moves; answers whether there is an entry.
fn go(
    iterator: *mut cambium_iterator,
    to: impl FnOnce(&mut Iteration) -> Result<()>,
) -> cambium_code {
    answer(|| {
        let iterator = look_up(&ITERATORS, iterator)?;
        let mut iteration = lock(&iterator);
        to(&mut iteration)?;
        Ok(match entry_of(&iteration) {
            Some(_) => cambium_code::CAMBIUM_OK,
            None => cambium_code::CAMBIUM_NOT_FOUND,
        })
    })
}

fn ordered(iteration: &mut Iteration) -> Result<&mut Walker> {
    match iteration {
        Iteration::Ordered(walker) => Ok(walker),
        Iteration::Pass(..) => Err(Error::InvalidArgument(
            "a pass over every entry only goes on: use cambium_iterator_new".to_string(),
        )),
    }
}

/// Goes to the first entry; `CAMBIUM_NOT_FOUND` where there is none. So do all moves.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_iterator_first(iterator: *mut cambium_iterator) -> cambium_code {
    go(iterator, |iteration| ordered(iteration)?.seek_to_first())
}

/// Goes to the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_iterator_last(iterator: *mut cambium_iterator) -> cambium_code {
    go(iterator, |iteration| ordered(iteration)?.seek_to_last())
}

/// Goes to the first entry at or behind a key.
///
/// # Safety
/// `key` is one to `key_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_iterator_seek(
    iterator: *mut cambium_iterator,
    key: *const c_void,
    key_length: usize,
) -> cambium_code {
    go(iterator, |iteration| {
        ordered(iteration)?.seek(input!(key, key_length, "key")?)
    })
}

/// Goes to the next entry. A pass begins with it.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_iterator_next(iterator: *mut cambium_iterator) -> cambium_code {
    go(iterator, |iteration| match iteration {
        Iteration::Ordered(walker) => walker.next(),
        Iteration::Pass(entries, entry) => {
            *entry = None;
            *entry = entries.next().transpose()?;
            Ok(())
        }
    })
}

/// Goes to the entry before.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_iterator_previous(iterator: *mut cambium_iterator) -> cambium_code {
    go(iterator, |iteration| ordered(iteration)?.previous())
}

/// The key where it stands, in `*bytes` and `*length`, until it moves or is freed;
/// `CAMBIUM_NOT_FOUND`, and null, where it stands at no entry.
///
/// # Safety
/// `bytes` and `length` are null or places for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_iterator_key(
    iterator: *const cambium_iterator,
    bytes: *mut *const c_void,
    length: *mut usize,
) -> cambium_code {
    shown(iterator, bytes, length, |entry| &entry.key)
}

/// The value where it stands; as `cambium_iterator_key`.
///
/// # Safety
/// As of `cambium_iterator_key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_iterator_value(
    iterator: *const cambium_iterator,
    bytes: *mut *const c_void,
    length: *mut usize,
) -> cambium_code {
    shown(iterator, bytes, length, |entry| &entry.value)
}

fn shown(
    iterator: *const cambium_iterator,
    bytes: *mut *const c_void,
    length: *mut usize,
    part: impl FnOnce(&Entry) -> &Value,
) -> cambium_code {
    output!(bytes, std::ptr::null());
    output!(length, 0);
    answer(|| {
        let iterator = look_up(&ITERATORS, iterator)?;
        let iteration = lock(&iterator);
        let Some(value) = entry_of(&iteration).map(part) else {
            return Ok(cambium_code::CAMBIUM_NOT_FOUND);
        };
        output!(length, value.len());
        // The iterator keeps it where it is until it moves.
        output!(bytes, value.as_ptr().cast());
        Ok(cambium_code::CAMBIUM_OK)
    })
}
