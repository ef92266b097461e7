//! Write batches.

use std::ffi::{c_char, c_void};
use std::sync::Mutex;

use cambium::{Operation, Result, WriteBatch};

use crate::objects::{BATCHES, forget, keep, leveldb_writebatch_t, lock, look_up};
use crate::report::{input, quietly};

/// Told of a put: state, key and length, value and length.
pub type leveldb_put_callback_t =
    Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize)>;
/// Told of a delete: state, key and length.
pub type leveldb_deleted_callback_t =
    Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize)>;

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_create() -> *mut leveldb_writebatch_t {
    keep(&BATCHES, Mutex::new(WriteBatch::new()))
}

/// Lets a batch go.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_destroy(batch: *mut leveldb_writebatch_t) {
    quietly((), || {
        forget(&BATCHES, batch);
        Ok(())
    });
}

fn change(batch: *mut leveldb_writebatch_t, change: impl FnOnce(&mut WriteBatch) -> Result<()>) {
    quietly((), || change(&mut lock(&*look_up(&BATCHES, batch)?)));
}

/// Empties a batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_clear(batch: *mut leveldb_writebatch_t) {
    change(batch, |batch| {
        batch.clear();
        Ok(())
    });
}

/// Adds a put.
///
/// # Safety
/// As `leveldb/c.h` has it: pointers with their lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_put(
    batch: *mut leveldb_writebatch_t,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
) {
    change(batch, |batch| {
        batch.put(input!(key, klen, "key")?, input!(val, vlen, "value")?);
        Ok(())
    });
}

/// Adds a delete.
///
/// # Safety
/// As of [`leveldb_writebatch_put`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_delete(
    batch: *mut leveldb_writebatch_t,
    key: *const c_char,
    klen: usize,
) {
    change(batch, |batch| {
        batch.delete(input!(key, klen, "key")?);
        Ok(())
    });
}

/// Tells the callbacks of each operation, in order. They may use the batch.
///
/// # Safety
/// The callbacks take `state`, and pointers with their lengths that they do not
/// keep.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_iterate(
    batch: *const leveldb_writebatch_t,
    state: *mut c_void,
    put: leveldb_put_callback_t,
    deleted: leveldb_deleted_callback_t,
) {
    quietly((), || {
        let batch = lock(&*look_up(&BATCHES, batch)?).clone();
        for (_, operation) in batch.operations() {
            match (operation, put, deleted) {
                (Operation::Put { key, value }, Some(put), _) => {
                    let (k, v) = (key.as_ptr().cast(), value.as_ptr().cast());
                    // SAFETY: the caller's own state and function, two slices.
                    unsafe { put(state, k, key.len(), v, value.len()) };
                }
                (Operation::Delete { key }, _, Some(deleted)) => {
                    // SAFETY: the caller's own state and function, a slice.
                    unsafe { deleted(state, key.as_ptr().cast(), key.len()) };
                }
                _ => {}
            }
        }
        Ok(())
    });
}

/// Adds the operations of another batch, which stays as it is.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_append(
    destination: *mut leveldb_writebatch_t,
    source: *const leveldb_writebatch_t,
) {
    quietly((), || {
        // A copy first: it may be the same batch.
        let source = lock(&*look_up(&BATCHES, source)?).clone();
        change(destination, |batch| {
            for (namespace, operation) in source.into_operations() {
                batch.push(namespace, operation);
            }
            Ok(())
        });
        Ok(())
    });
}
