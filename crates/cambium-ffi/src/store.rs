//! Stores: opened, read, written and closed.

use std::ffi::{c_char, c_void};

use cambium::{Durability, Error, KeyKind, KeyRange, Result, Value};
use cambium_bindings::c;

use crate::error::{answer, cambium_code, done};
use crate::objects::{
    STORES, cambium_options, cambium_store, folder, forget, input, keep, look_up, output, plain,
    text,
};
use crate::opened::{self, How, Opened};
use crate::options::given;

/// How safe a write is when it is answered: kept by this process, lost with it.
pub const CAMBIUM_BUFFERED: i32 = 0;
/// With the operating system: survives the process, not a power cut.
pub const CAMBIUM_WRITTEN: i32 = 1;
/// On the device.
pub const CAMBIUM_SYNCED: i32 = 2;

/// What a store can do: keys are kept in order, so iterators with bounds work.
pub const CAMBIUM_ORDERED: u32 = 1;
/// Namespaces work.
pub const CAMBIUM_NAMESPACES: u32 = 2;
/// Named snapshots and rollback work.
pub const CAMBIUM_NAMED_SNAPSHOTS: u32 = 4;
/// Keys are unsigned 64-bit integers, 8 bytes big-endian.
pub const CAMBIUM_INTEGER_KEYS: u32 = 8;
/// Namespaces can be dropped.
pub const CAMBIUM_DROPPABLE_NAMESPACES: u32 = 16;
/// Changes and consumers work.
pub const CAMBIUM_CHANGES: u32 = 32;
/// Processes read the store beside one that writes, and `cambium_refresh` takes what it wrote.
pub const CAMBIUM_READERS_BESIDE_WRITER: u32 = 64;

/// A durability that C names by number.
pub fn durability(number: i32) -> Result<Durability> {
    match number {
        CAMBIUM_BUFFERED => Ok(Durability::Buffered),
        CAMBIUM_WRITTEN => Ok(Durability::Written),
        CAMBIUM_SYNCED => Ok(Durability::Synced),
        other => Err(Error::InvalidArgument(format!(
            "durability {other}: expected CAMBIUM_BUFFERED, CAMBIUM_WRITTEN or CAMBIUM_SYNCED"
        ))),
    }
}

fn give(store: *mut *mut cambium_store, open: impl FnOnce() -> Result<Opened>) -> cambium_code {
    output!(store, std::ptr::null_mut());
    done(|| {
        if store.is_null() {
            let what = "there is no place for the store: a null pointer";
            return Err(Error::InvalidArgument(what.to_string()));
        }
        output!(store, keep(&STORES, open()?)?);
        Ok(())
    })
}

/// Makes a store in a folder that is empty or not there, by an engine (null is
/// `forest`), and opens it. `options` may be null.
///
/// # Safety
/// The texts end with a zero; `store` is a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_create(
    folder: *const c_char,
    engine: *const c_char,
    options: *const cambium_options,
    store: *mut *mut cambium_store,
) -> cambium_code {
    give(store, || {
        opened::open(
            folder!(folder)?,
            given(options)?,
            How::Create(named(engine)?),
        )
    })
}

/// Opens the store in a folder. `options` may be null.
///
/// # Safety
/// As of `cambium_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_open(
    folder: *const c_char,
    options: *const cambium_options,
    store: *mut *mut cambium_store,
) -> cambium_code {
    give(store, || {
        opened::open(folder!(folder)?, given(options)?, How::Open)
    })
}

/// Opens the store in a folder for reading alone: its data are not changed, and others may
/// read beside it. A process may write a store of engine `forest` meanwhile: the reader shows
/// the moment at which it was opened, until `cambium_refresh`. Writes answer
/// `CAMBIUM_UNSUPPORTED`.
///
/// # Safety
/// As of `cambium_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_open_read_only(
    folder: *const c_char,
    options: *const cambium_options,
    store: *mut *mut cambium_store,
) -> cambium_code {
    give(store, || {
        opened::open(folder!(folder)?, given(options)?, How::OpenReadOnly)
    })
}

/// Opens the store in a folder, or makes one by the engine where none is.
///
/// # Safety
/// As of `cambium_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_open_or_create(
    folder: *const c_char,
    engine: *const c_char,
    options: *const cambium_options,
    store: *mut *mut cambium_store,
) -> cambium_code {
    give(store, || {
        let how = How::OpenOrCreate(named(engine)?);
        opened::open(folder!(folder)?, given(options)?, how)
    })
}

fn named<'a>(engine: *const c_char) -> Result<&'a str> {
    match engine.is_null() {
        true => Ok(cambium::DEFAULT_ENGINE),
        false => text!(engine, "engine"),
    }
}

/// Syncs and closes a store. Whatever is asked of it, of its iterators and its
/// snapshots answers `CAMBIUM_CLOSED` from now on; the handles are still to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_close(store: *mut cambium_store) -> cambium_code {
    done(|| look_up(&STORES, store)?.close())
}

/// Lets a handle go. A store that was not closed is closed when its last handle,
/// iterator and snapshot are gone, and an error of that goes nowhere.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_store_free(store: *mut cambium_store) {
    forget(&STORES, store);
}

/// A namespace of a store, made if it is not there, as a store of its own handle.
///
/// # Safety
/// The name ends with a zero; `namespace_store` is a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_namespace(
    store: *mut cambium_store,
    name: *const c_char,
    namespace_store: *mut *mut cambium_store,
) -> cambium_code {
    give(namespace_store, || {
        let namespace = plain(store)?.namespace(text!(name, "name")?)?;
        Ok(Opened::Plain(namespace))
    })
}

/// Takes a namespace away with everything in it, durable when it returns, where the
/// engine can. Its snapshots and iterators go on; whatever else is asked of its handles
/// answers `CAMBIUM_NOT_FOUND`, also when one of the same name is made.
///
/// # Safety
/// The name ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_namespace_drop(
    store: *mut cambium_store,
    name: *const c_char,
) -> cambium_code {
    done(|| plain(store)?.drop_namespace(text!(name, "name")?))
}

/// What a store can do: a sum of `CAMBIUM_ORDERED` and the like, 0 for a wrong handle.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_capabilities(store: *const cambium_store) -> u32 {
    let capabilities = || {
        let opened = look_up(&STORES, store)?;
        let (able, is_plain) = (opened.whole().capabilities(), opened.plain().is_ok());
        let all = [
            (CAMBIUM_ORDERED, able.ordered),
            (CAMBIUM_NAMESPACES, able.namespaces && is_plain),
            (CAMBIUM_NAMED_SNAPSHOTS, able.named_snapshots && is_plain),
            (CAMBIUM_INTEGER_KEYS, able.keys == KeyKind::Integer),
            (
                CAMBIUM_DROPPABLE_NAMESPACES,
                able.droppable_namespaces && is_plain,
            ),
            (CAMBIUM_CHANGES, able.changes),
            (
                CAMBIUM_READERS_BESIDE_WRITER,
                able.readers_beside_writer && is_plain,
            ),
        ];
        let there = all.iter().filter(|(_, there)| *there);
        Ok(there.map(|(bit, _)| bit).sum())
    };
    c::guarded(capabilities, Err).unwrap_or(0)
}

/// Gives a key a value.
///
/// # Safety
/// The pointers are ones to as many bytes as their lengths say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_put(
    store: *mut cambium_store,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    durable: i32,
) -> cambium_code {
    done(|| {
        let key = input!(key, key_length, "key")?;
        let value = input!(value, value_length, "value")?;
        let store = look_up(&STORES, store)?;
        store.put(key, value, durability(durable)?)
    })
}

/// Takes a key away; no error if it is not there.
///
/// # Safety
/// As of `cambium_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_delete(
    store: *mut cambium_store,
    key: *const c_void,
    key_length: usize,
    durable: i32,
) -> cambium_code {
    done(|| {
        let key = input!(key, key_length, "key")?;
        let store = look_up(&STORES, store)?;
        store.delete(key, durability(durable)?)
    })
}

/// Takes all keys from `from` up to, not including, `to` away. A null pointer is an
/// open bound.
///
/// # Safety
/// As of `cambium_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_delete_range(
    store: *mut cambium_store,
    from: *const c_void,
    from_length: usize,
    to: *const c_void,
    to_length: usize,
    durable: i32,
) -> cambium_code {
    done(|| {
        let range = range(from, from_length, to, to_length)?;
        let store = plain(store)?;
        let written = store.engine().delete_range(range, durability(durable)?);
        written.map(drop)
    })
}

/// A range as C has it: a null pointer is an open bound.
pub fn range(
    from: *const c_void,
    from_length: usize,
    to: *const c_void,
    to_length: usize,
) -> Result<KeyRange> {
    let bound = |start: *const c_void, length| {
        if start.is_null() && length == 0 {
            return Ok(None);
        }
        input!(start, length, "bound").map(|bound| Some(bound.to_vec()))
    };
    Ok(KeyRange {
        from: bound(from, from_length)?,
        to: bound(to, to_length)?,
    })
}

/// The value of a key in memory of its own, in `*value` and `*value_length`;
/// `CAMBIUM_NOT_FOUND`, and null, if there is none.
///
/// # Safety
/// As of `cambium_put`; `value` and `value_length` are null or places for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_get(
    store: *mut cambium_store,
    key: *const c_void,
    key_length: usize,
    value: *mut *mut c_void,
    value_length: *mut usize,
) -> cambium_code {
    give_value(value, value_length, || {
        look_up(&STORES, store)?.get(input!(key, key_length, "key")?)
    })
}

/// Hands a value to C in memory of its own.
pub fn give_value(
    value: *mut *mut c_void,
    value_length: *mut usize,
    get: impl FnOnce() -> Result<Option<Value>>,
) -> cambium_code {
    output!(value, std::ptr::null_mut());
    output!(value_length, 0);
    answer(|| {
        let Some(found) = get()? else {
            return Ok(cambium_code::CAMBIUM_NOT_FOUND);
        };
        output!(value_length, found.len());
        if !value.is_null() {
            output!(value, c::allocate(&found).cast());
        }
        Ok(cambium_code::CAMBIUM_OK)
    })
}

/// Puts the value of a key into the caller's buffer, as much of it as fits, and the
/// length of all of it into `*value_length`.
///
/// # Safety
/// As of `cambium_get`; `buffer` is a place for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_get_into(
    store: *mut cambium_store,
    key: *const c_void,
    key_length: usize,
    buffer: *mut c_void,
    capacity: usize,
    value_length: *mut usize,
) -> cambium_code {
    output!(value_length, 0);
    answer(|| {
        let store = look_up(&STORES, store)?;
        let Some(found) = store.get(input!(key, key_length, "key")?)? else {
            return Ok(cambium_code::CAMBIUM_NOT_FOUND);
        };
        output!(value_length, found.len());
        let fits = if buffer.is_null() {
            0
        } else {
            capacity.min(found.len())
        };
        if fits > 0 {
            // SAFETY: cambium.h: the buffer has `capacity` bytes, which are the
            // caller's, and `fits` is no more than that or than what was found.
            unsafe { buffer.cast::<u8>().copy_from(found.as_ptr(), fits) };
        }
        Ok(cambium_code::CAMBIUM_OK)
    })
}
