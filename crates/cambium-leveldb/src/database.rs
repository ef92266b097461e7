//! Databases: opening, reading, writing, removing and mending.

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::Arc;

use cambium::{Durability, Error, Result, Value};
use cambium_bindings::{Database, Settings, View, c, remove};

use crate::objects::{
    BATCHES, DATABASES, Filter, OPTIONS, OpenDatabase, OpenOptions, READ_OPTIONS, SNAPSHOTS,
    WRITE_OPTIONS, forget, keep, leveldb_options_t, leveldb_readoptions_t, leveldb_snapshot_t,
    leveldb_t, leveldb_writebatch_t, leveldb_writeoptions_t, lock, look_up,
};
use crate::report::{input, output, quietly, report};

/// Names the engine of databases that are made.
const ENGINE_VARIABLE: &str = "CAMBIUM_LEVELDB_ENGINE";
/// Holds options of the engine, `name=value` and commas between.
const OPTIONS_VARIABLE: &str = "CAMBIUM_LEVELDB_OPTIONS";

/// Opens, or makes, a database.
///
/// # Safety
/// As `leveldb/c.h` has it: `name` ends with a zero, `errptr` is null or a place for
/// null or memory from `malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_open(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> *mut leveldb_t {
    report(errptr, std::ptr::null_mut(), || {
        // SAFETY: leveldb/c.h: the name ends with a zero.
        let path = unsafe { c::path(name) }?;
        let options = lock(&*look_up(&OPTIONS, options)?).clone();
        let filter = match &options.filter {
            Some(Filter::Brought(policy)) => Some(policy.clone()),
            _ => None,
        };
        let database = Database::open(path, &settings(&options)?)?;
        Ok(keep(&DATABASES, OpenDatabase { database, filter }))
    })
}

fn settings(options: &OpenOptions) -> Result<Settings> {
    let named = options.comparator.as_ref().map(|order| order.named());
    let comparator = named.transpose()?;
    let mut settings = Settings {
        create_if_missing: options.create_if_missing,
        error_if_exists: options.error_if_exists,
        write_buffer_bytes: options.write_buffer_bytes,
        cache_bytes: options.cache_bytes,
        block_bytes: options.block_bytes,
        table_bytes: options.table_bytes,
        comparator,
        ..Settings::default()
    };
    if let Some(Filter::Bloom { bits }) = options.filter {
        settings.filter_bits = Some(bits);
    }
    if let Ok(engine) = std::env::var(ENGINE_VARIABLE) {
        let known = settings.options.engines_used().find(&engine);
        known.map_err(in_engine_variable)?;
        settings.engine = engine;
    }
    if let Ok(assignments) = std::env::var(OPTIONS_VARIABLE) {
        for assignment in assignments.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = assignment.split_once('=').ok_or_else(|| {
                let what = format!("{OPTIONS_VARIABLE}: expected name=value, not {assignment:?}");
                Error::InvalidArgument(what)
            })?;
            let option = (name.to_string(), value.to_string());
            settings.engine_options.push(option);
        }
    }
    Ok(settings)
}

fn in_engine_variable(error: Error) -> Error {
    match error {
        Error::InvalidArgument(what) => {
            Error::InvalidArgument(format!("{ENGINE_VARIABLE}: {what}"))
        }
        other => other,
    }
}

/// Closes a database. Its iterators and snapshots answer errors from now on; they
/// are still to be destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_close(db: *mut leveldb_t) {
    quietly((), || match forget(&DATABASES, db) {
        Some(open) => open.database.close(),
        None => Ok(()),
    });
}

/// How safe a write is when it is answered: LevelDB's log is with the operating
/// system, or on the device.
fn durability(options: *const leveldb_writeoptions_t) -> Result<Durability> {
    let options = look_up(&WRITE_OPTIONS, options)?;
    let sync = lock(&options).sync;
    Ok(match sync {
        true => Durability::Synced,
        false => Durability::Written,
    })
}

/// Gives a key a value.
///
/// # Safety
/// As `leveldb/c.h` has it: pointers with their lengths, and `errptr` as of
/// [`leveldb_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_put(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    report(errptr, (), || {
        let open = look_up(&DATABASES, db)?;
        let key = input!(key, keylen, "key")?;
        let value = input!(val, vallen, "value")?;
        open.database.put(key, value, durability(options)?)
    });
}

/// Takes a key away; no error where it is not there.
///
/// # Safety
/// As of [`leveldb_put`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_delete(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) {
    report(errptr, (), || {
        let open = look_up(&DATABASES, db)?;
        let key = input!(key, keylen, "key")?;
        open.database.delete(key, durability(options)?)
    });
}

/// Writes a batch, whole or not at all. The batch stays as it is.
///
/// # Safety
/// `errptr` as of [`leveldb_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_write(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    batch: *mut leveldb_writebatch_t,
    errptr: *mut *mut c_char,
) {
    report(errptr, (), || {
        let open = look_up(&DATABASES, db)?;
        let batch = lock(&*look_up(&BATCHES, batch)?).clone();
        open.database.write(batch, durability(options)?)
    });
}

/// The snapshot that read options name, if they name one.
pub fn snapshot_of(options: *const leveldb_readoptions_t) -> Result<Option<Arc<View>>> {
    let options = look_up(&READ_OPTIONS, options)?;
    let snapshot = lock(&options).snapshot;
    if snapshot == 0 {
        return Ok(None);
    }
    let handle: *const leveldb_snapshot_t = std::ptr::without_provenance(snapshot);
    look_up(&SNAPSHOTS, handle).map(Some)
}

fn read(
    open: &OpenDatabase,
    options: *const leveldb_readoptions_t,
    key: &[u8],
) -> Result<Option<Value>> {
    let found = match snapshot_of(options)? {
        Some(view) => view.get(key)?,
        None => open.database.get(key)?,
    };
    let holds = || {
        open.filter
            .as_ref()
            .is_none_or(|filter| filter.may_hold(key))
    };
    Ok(found.filter(|_| holds()))
}

/// The value of a key in memory from `malloc`, its length in `*vallen`, or null.
///
/// # Safety
/// As of [`leveldb_put`]; `vallen` is null or a place for the length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_get(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
    key: *const c_char,
    keylen: usize,
    vallen: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    output!(vallen, 0);
    report(errptr, std::ptr::null_mut(), || {
        let open = look_up(&DATABASES, db)?;
        let key = input!(key, keylen, "key")?;
        let Some(value) = read(&open, options, key)? else {
            return Ok(std::ptr::null_mut());
        };
        output!(vallen, value.len());
        Ok(c::allocate(&value))
    })
}

/// The state now, until it is released; null for a database that is closed.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_snapshot(db: *mut leveldb_t) -> *const leveldb_snapshot_t {
    quietly(std::ptr::null(), || {
        let open = look_up(&DATABASES, db)?;
        let handle: *mut leveldb_snapshot_t = keep(&SNAPSHOTS, open.database.view()?);
        Ok(handle.cast_const())
    })
}

/// Lets a snapshot go.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_release_snapshot(
    _db: *mut leveldb_t,
    snapshot: *const leveldb_snapshot_t,
) {
    quietly((), || {
        forget(&SNAPSHOTS, snapshot);
        Ok(())
    });
}

/// A property by name, in memory from `malloc`, or null where it is unknown.
///
/// # Safety
/// `propname` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_property_value(
    db: *mut leveldb_t,
    propname: *const c_char,
) -> *mut c_char {
    quietly(std::ptr::null_mut(), || {
        let open = look_up(&DATABASES, db)?;
        // SAFETY: leveldb/c.h: the name ends with a zero.
        let name = unsafe { c::text(propname, "name of a property") }?;
        let value = open.database.property(name)?;
        Ok(value.map_or(std::ptr::null_mut(), |text| c::allocate(text.as_bytes())))
    })
}

/// About how many bytes on disk each of several ranges takes; 0 after an error.
///
/// # Safety
/// As `leveldb/c.h` has it: the arrays have `num_ranges` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_approximate_sizes(
    db: *mut leveldb_t,
    num_ranges: c_int,
    range_start_key: *const *const c_char,
    range_start_key_len: *const usize,
    range_limit_key: *const *const c_char,
    range_limit_key_len: *const usize,
    sizes: *mut u64,
) {
    let arrays = [range_start_key, range_limit_key];
    let lengths = [range_start_key_len, range_limit_key_len];
    let missing = arrays.iter().any(|array| array.is_null())
        || lengths.iter().any(|array| array.is_null())
        || sizes.is_null();
    if missing {
        return;
    }
    for index in 0..usize::try_from(num_ranges).unwrap_or(0) {
        let size = quietly(0, || {
            let open = look_up(&DATABASES, db)?;
            // SAFETY: leveldb/c.h: the array has so many elements; it is not null.
            let start = unsafe { range_start_key.wrapping_add(index).read() };
            // SAFETY: as above.
            let start_length = unsafe { range_start_key_len.wrapping_add(index).read() };
            // SAFETY: as above.
            let limit = unsafe { range_limit_key.wrapping_add(index).read() };
            // SAFETY: as above.
            let limit_length = unsafe { range_limit_key_len.wrapping_add(index).read() };
            let from = input!(start, start_length, "start of a range")?;
            let to = input!(limit, limit_length, "limit of a range")?;
            open.database.approximate_size(from, to)
        });
        output!(sizes.wrapping_add(index), size);
    }
}

/// Gives space back, wherever it pays.
///
/// # Safety
/// As `leveldb/c.h` has it: pointers with their lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_compact_range(
    db: *mut leveldb_t,
    _start_key: *const c_char,
    _start_key_len: usize,
    _limit_key: *const c_char,
    _limit_key_len: usize,
) {
    quietly((), || look_up(&DATABASES, db)?.database.compact());
}

/// Takes a database off the disk; does nothing where none is.
///
/// # Safety
/// As of [`leveldb_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_destroy_db(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    report(errptr, (), || {
        with_path(options, name, |path| {
            remove::remove(&cambium::Options::new(), path)
        })
    });
}

/// Brings a damaged database back to what can be read.
///
/// # Safety
/// As of [`leveldb_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_repair_db(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    report(errptr, (), || {
        with_path(options, name, |path| {
            cambium::Options::new().repair(path).map(drop)
        })
    });
}

fn with_path(
    options: *const leveldb_options_t,
    name: *const c_char,
    call: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    look_up(&OPTIONS, options)?;
    // SAFETY: leveldb/c.h: the name ends with a zero.
    call(unsafe { c::path(name) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_engine_is_an_invalid_argument_once() {
        let error = cambium::engines().find("bogus").err().unwrap();
        let text = crate::report::status_text(&in_engine_variable(error));
        let expected = "Invalid argument: CAMBIUM_LEVELDB_ENGINE: engine \"bogus\": expected ";
        assert!(text.starts_with(expected), "{text}");
    }
}
