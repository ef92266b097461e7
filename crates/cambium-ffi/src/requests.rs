//! Several keys at once, and calls that are answered later.

use std::ffi::c_void;

use cambium::{Error, Request, Response, Result, Value};
use cambium_bindings::c;

use crate::error::{answer, cambium_code, done};
use crate::objects::{
    BATCHES, SNAPSHOTS, STORES, cambium_batch, cambium_snapshot, cambium_store,
    cambium_transaction, input, lock, look_up, output, plain,
};
use crate::store::durability;
use crate::transaction::view;

/// Called once with the answer to a submitted request, on any thread: the argument that was
/// submitted, `CAMBIUM_OK`, `CAMBIUM_NOT_FOUND` or what went wrong, and the value of a get,
/// which is there until the call returns. `cambium_error_message()` has the words. It must
/// not wait for anything.
pub type cambium_completion = Option<
    unsafe extern "C" fn(
        argument: *mut c_void,
        code: cambium_code,
        value: *const c_void,
        value_length: usize,
    ),
>;

/// The program that waits for an answer.
struct Waiting {
    completion: unsafe extern "C" fn(*mut c_void, cambium_code, *const c_void, usize),
    argument: *mut c_void,
}

// SAFETY: cambium.h: the completion is called with its argument on any thread.
unsafe impl Send for Waiting {}

impl Waiting {
    fn complete(self, response: Result<Response>) {
        let value = match &response {
            Ok(Response::Value(Some(value))) => Some(value.clone()),
            _ => None,
        };
        let code = answer(|| match response? {
            Response::Value(None) => Ok(cambium_code::CAMBIUM_NOT_FOUND),
            _ => Ok(cambium_code::CAMBIUM_OK),
        });
        let (start, length) = match &value {
            Some(value) => (value.as_ptr().cast(), value.len()),
            None => (std::ptr::null(), 0),
        };
        // SAFETY: cambium.h: the completion takes these, once; the value lives until it
        // returns.
        unsafe { (self.completion)(self.argument, code, start, length) };
    }
}

fn submit(
    store: *mut cambium_store,
    completion: cambium_completion,
    argument: *mut c_void,
    request: impl FnOnce() -> Result<Request>,
) -> cambium_code {
    done(|| {
        let completion = completion.ok_or_else(|| {
            Error::InvalidArgument("there is no completion: a null pointer".to_string())
        })?;
        let waiting = Waiting {
            completion,
            argument,
        };
        let store = plain(store)?;
        store.submit(
            request()?,
            Box::new(move |response| waiting.complete(response)),
        );
        Ok(())
    })
}

/// Asks for the value of a key. `completion` is called once, unless this call itself fails;
/// the key is the caller's again when it returns. Requests that are submitted one after the
/// other are under way together, and keep their order for each key. Engine `alphard` answers
/// from threads of its own; others answer within this call.
///
/// # Safety
/// As of `cambium_put`; `completion` may be called with `argument` on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_submit_get(
    store: *mut cambium_store,
    key: *const c_void,
    key_length: usize,
    completion: cambium_completion,
    argument: *mut c_void,
) -> cambium_code {
    submit(store, completion, argument, || {
        let key = input!(key, key_length, "key")?.to_vec();
        Ok(Request::Get { key })
    })
}

/// Gives a key a value, answered as of `cambium_submit_get`.
///
/// # Safety
/// As of `cambium_submit_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_submit_put(
    store: *mut cambium_store,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    durable: i32,
    completion: cambium_completion,
    argument: *mut c_void,
) -> cambium_code {
    submit(store, completion, argument, || {
        Ok(Request::Put {
            key: input!(key, key_length, "key")?.to_vec(),
            value: input!(value, value_length, "value")?.to_vec(),
            durability: durability(durable)?,
        })
    })
}

/// Takes a key away, answered as of `cambium_submit_get`.
///
/// # Safety
/// As of `cambium_submit_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_submit_delete(
    store: *mut cambium_store,
    key: *const c_void,
    key_length: usize,
    durable: i32,
    completion: cambium_completion,
    argument: *mut c_void,
) -> cambium_code {
    submit(store, completion, argument, || {
        Ok(Request::Delete {
            key: input!(key, key_length, "key")?.to_vec(),
            durability: durability(durable)?,
        })
    })
}

/// Writes a batch without conditions, answered as of `cambium_submit_get`. The batch may be
/// changed and freed when this call returns.
///
/// # Safety
/// As of `cambium_submit_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_submit_write(
    store: *mut cambium_store,
    batch: *const cambium_batch,
    durable: i32,
    completion: cambium_completion,
    argument: *mut c_void,
) -> cambium_code {
    submit(store, completion, argument, || {
        let batch = lock(&*look_up(&BATCHES, batch)?).clone();
        if !batch.conditions.is_empty() {
            return Err(Error::InvalidArgument(
                "a batch with conditions cannot be submitted: write it with cambium_write"
                    .to_string(),
            ));
        }
        Ok(Request::Write {
            batch: batch.changes,
            durability: durability(durable)?,
        })
    })
}

/// Raises everything written so far to `CAMBIUM_SYNCED`, answered as of `cambium_submit_get`.
///
/// # Safety
/// As of `cambium_submit_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_submit_sync(
    store: *mut cambium_store,
    completion: cambium_completion,
    argument: *mut c_void,
) -> cambium_code {
    submit(store, completion, argument, || Ok(Request::Sync))
}

/// The values of `count` keys as of one moment, each in memory of its own, in `values` and
/// `value_lengths`; null for a key that is not there. The reads go to the device together.
///
/// # Safety
/// `keys` and `key_lengths` point to `count` keys and their lengths, `values` and
/// `value_lengths` to places for as many answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_multi_get(
    store: *mut cambium_store,
    count: usize,
    keys: *const *const c_void,
    key_lengths: *const usize,
    values: *mut *mut c_void,
    value_lengths: *mut usize,
) -> cambium_code {
    give_values(
        count,
        (keys, key_lengths),
        (values, value_lengths),
        |keys| look_up(&STORES, store)?.multi_get(keys),
    )
}

/// As `cambium_multi_get`, as of the snapshot.
///
/// # Safety
/// As of `cambium_multi_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_snapshot_multi_get(
    snapshot: *mut cambium_snapshot,
    count: usize,
    keys: *const *const c_void,
    key_lengths: *const usize,
    values: *mut *mut c_void,
    value_lengths: *mut usize,
) -> cambium_code {
    give_values(
        count,
        (keys, key_lengths),
        (values, value_lengths),
        |keys| look_up(&SNAPSHOTS, snapshot)?.multi_get(keys),
    )
}

/// As `cambium_multi_get`, as this transaction sees the keys. They count as read.
///
/// # Safety
/// As of `cambium_multi_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_multi_get(
    transaction: *mut cambium_transaction,
    count: usize,
    keys: *const *const c_void,
    key_lengths: *const usize,
    values: *mut *mut c_void,
    value_lengths: *mut usize,
) -> cambium_code {
    give_values(
        count,
        (keys, key_lengths),
        (values, value_lengths),
        |keys| view(transaction)?.multi_get(keys),
    )
}

/// Hands the values of several keys to C, each in memory of its own.
fn give_values(
    count: usize,
    (keys, key_lengths): (*const *const c_void, *const usize),
    (values, value_lengths): (*mut *mut c_void, *mut usize),
    get: impl FnOnce(&[&[u8]]) -> Result<Vec<Option<Value>>>,
) -> cambium_code {
    done(|| {
        if count > 0 && (values.is_null() || value_lengths.is_null()) {
            let what = "there is no place for the values: a null pointer";
            return Err(Error::InvalidArgument(what.to_string()));
        }
        // SAFETY: cambium.h: as many pointers.
        let starts = unsafe { c::list(keys, count, "list of keys") }?;
        // SAFETY: cambium.h: as many lengths.
        let lengths = unsafe { c::list(key_lengths, count, "list of lengths") }?;
        for place in 0..count {
            output!(values.wrapping_add(place), std::ptr::null_mut());
            output!(value_lengths.wrapping_add(place), 0);
        }
        let keys = starts.iter().zip(lengths);
        let keys: Vec<&[u8]> = keys
            .map(|(start, length)| input!(*start, *length, "key"))
            .collect::<Result<_>>()?;
        let found = get(&keys)?;
        for (place, value) in found.iter().enumerate() {
            if let Some(value) = value {
                output!(values.wrapping_add(place), c::allocate(value).cast());
                output!(value_lengths.wrapping_add(place), value.len());
            }
        }
        Ok(())
    })
}
