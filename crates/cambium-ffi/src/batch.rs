//! Batches, and what must hold for them.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex};

use cambium::{Operation, Precondition, Result, Special};

use crate::error::{cambium_code, done};
use crate::objects::{
    BATCHES, Batch, STORES, cambium_batch, cambium_store, forget, input, keep, lock, look_up,
    output, text,
};
use crate::store::{durability, range};

/// An empty batch, in `*batch`.
///
/// # Safety
/// `batch` is null or a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_new(batch: *mut *mut cambium_batch) -> cambium_code {
    output!(batch, std::ptr::null_mut());
    done(|| {
        output!(batch, keep(&BATCHES, Mutex::default())?);
        Ok(())
    })
}

/// Lets a batch go.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_batch_free(batch: *mut cambium_batch) {
    forget(&BATCHES, batch);
}

fn change(
    batch: *mut cambium_batch,
    change: impl FnOnce(&mut Batch) -> Result<()>,
) -> cambium_code {
    done(|| change(&mut lock(&*look_up(&BATCHES, batch)?)))
}

/// Empties a batch, conditions too.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_batch_clear(batch: *mut cambium_batch) -> cambium_code {
    change(batch, |batch| {
        batch.changes.clear();
        batch.conditions.clear();
        Ok(())
    })
}

/// How many operations a batch has; 0 for a wrong handle.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_batch_count(batch: *const cambium_batch) -> usize {
    look_up(&BATCHES, batch).map_or(0, |batch| lock(&batch).changes.len())
}

/// Adds an operation, to the default namespace where no name is given.
pub fn push(
    batch: *mut cambium_batch,
    name: Option<*const c_char>,
    operation: impl FnOnce() -> Result<(Operation, Option<Special>)>,
) -> cambium_code {
    change(batch, |batch| {
        let name = name.map(|name| text!(name, "name").map(Arc::from));
        let (operation, special) = operation()?;
        batch.changes.push(name.transpose()?, operation);
        if let Some(special) = special {
            batch.changes.make_special(special);
        }
        Ok(())
    })
}

/// A put, as C has its bytes.
pub fn put_of(
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
) -> Result<Operation> {
    Ok(Operation::Put {
        key: input!(key, key_length, "key")?.to_vec(),
        value: input!(value, value_length, "value")?.to_vec(),
    })
}

fn delete_of(key: *const c_void, key_length: usize) -> Result<Operation> {
    let key = input!(key, key_length, "key")?.to_vec();
    Ok(Operation::Delete { key })
}

/// Adds a put.
///
/// # Safety
/// The pointers are ones to as many bytes as their lengths say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_put(
    batch: *mut cambium_batch,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
) -> cambium_code {
    push(batch, None, || {
        Ok((put_of(key, key_length, value, value_length)?, None))
    })
}

/// Adds a delete.
///
/// # Safety
/// As of `cambium_batch_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_delete(
    batch: *mut cambium_batch,
    key: *const c_void,
    key_length: usize,
) -> cambium_code {
    push(batch, None, || Ok((delete_of(key, key_length)?, None)))
}

/// Adds the deletion of a range; a null pointer is an open bound.
///
/// # Safety
/// As of `cambium_batch_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_delete_range(
    batch: *mut cambium_batch,
    from: *const c_void,
    from_length: usize,
    to: *const c_void,
    to_length: usize,
) -> cambium_code {
    push(batch, None, || {
        let range = range(from, from_length, to, to_length)?;
        Ok((Operation::DeleteRange { range }, None))
    })
}

/// Adds a put into a namespace of the store.
///
/// # Safety
/// As of `cambium_batch_put`; the name ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_put_into(
    batch: *mut cambium_batch,
    name: *const c_char,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
) -> cambium_code {
    push(batch, Some(name), || {
        Ok((put_of(key, key_length, value, value_length)?, None))
    })
}

/// Adds a delete in a namespace of the store.
///
/// # Safety
/// As of `cambium_batch_put_into`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_delete_into(
    batch: *mut cambium_batch,
    name: *const c_char,
    key: *const c_void,
    key_length: usize,
) -> cambium_code {
    push(batch, Some(name), || {
        Ok((delete_of(key, key_length)?, None))
    })
}

/// Adds the deletion of a range in a namespace of the store; a null pointer is an open bound.
///
/// # Safety
/// As of `cambium_batch_put_into`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_delete_range_into(
    batch: *mut cambium_batch,
    name: *const c_char,
    from: *const c_void,
    from_length: usize,
    to: *const c_void,
    to_length: usize,
) -> cambium_code {
    push(batch, Some(name), || {
        let range = range(from, from_length, to, to_length)?;
        Ok((Operation::DeleteRange { range }, None))
    })
}

/// Writes the batch only if the key is not there.
///
/// # Safety
/// As of `cambium_batch_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_require_absent(
    batch: *mut cambium_batch,
    key: *const c_void,
    key_length: usize,
) -> cambium_code {
    change(batch, |batch| {
        let key = input!(key, key_length, "key")?.to_vec();
        batch.conditions.push(Precondition::Absent { key });
        Ok(())
    })
}

/// Writes the batch only if the key is there, with any value.
///
/// # Safety
/// As of `cambium_batch_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_require_present(
    batch: *mut cambium_batch,
    key: *const c_void,
    key_length: usize,
) -> cambium_code {
    change(batch, |batch| {
        let key = input!(key, key_length, "key")?.to_vec();
        batch.conditions.push(Precondition::Present { key });
        Ok(())
    })
}

/// Writes the batch only if the key has this value.
///
/// # Safety
/// As of `cambium_batch_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_require_equal(
    batch: *mut cambium_batch,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
) -> cambium_code {
    change(batch, |batch| {
        let key = input!(key, key_length, "key")?.to_vec();
        let value = input!(value, value_length, "value")?.to_vec();
        batch.conditions.push(Precondition::Equals { key, value });
        Ok(())
    })
}

/// Writes a batch, whole or not at all; the batch stays as it is. Where one of its
/// conditions does not hold, `CAMBIUM_PRECONDITION_FAILED`.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_write(
    store: *mut cambium_store,
    batch: *const cambium_batch,
    durable: i32,
) -> cambium_code {
    done(|| {
        let store = look_up(&STORES, store)?;
        let batch = lock(&*look_up(&BATCHES, batch)?).clone();
        let durable = durability(durable)?;
        store.write(&batch.conditions, batch.changes, durable)
    })
}
