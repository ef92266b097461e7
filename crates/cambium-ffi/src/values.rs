//! Entries that expire, and merging.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use cambium::{Error, Expiry, Operation, Result, Special, UnixMillis};
use cambium_bindings::c::{ProgramOperator, State};

use crate::batch::{push, put_of};
use crate::error::{cambium_code, done};
use crate::objects::{
    cambium_batch, cambium_store, cambium_transaction, input, output, plain, text,
};
use crate::options::cambium_destructor;
use crate::store::durability;
use crate::transaction::view;

/// The entry never expires.
pub const CAMBIUM_NEVER: u64 = u64::MAX;

/// A change that a batch takes in, with what is special of it.
type Change = (Operation, Option<Special>);
type Bytes = (*const c_void, usize);

/// A put that expires, as C has its bytes.
fn expiring((key, key_length): Bytes, (value, length): Bytes, moment: u64) -> Result<Change> {
    let put = put_of(key, key_length, value, length)?;
    Ok((put, expiry(moment).map(Special::Expires)))
}

/// A merge, as C has its operator and bytes.
fn merging(
    operator: *const c_char,
    (key, key_length): Bytes,
    (operand, length): Bytes,
) -> Result<Change> {
    let operator = text!(operator, "operator")?;
    let put = put_of(key, key_length, operand, length)?;
    Ok((put, Some(Special::Merge(Arc::from(operator)))))
}

/// A moment that C names in milliseconds since 1970.
fn expiry(moment: u64) -> Option<Expiry> {
    (moment != CAMBIUM_NEVER).then_some(Expiry::At(UnixMillis(moment)))
}

/// Gives a key a value that expires at `moment`, in milliseconds since 1970
/// (`CAMBIUM_NEVER`: it does not). From then on the entry is not there.
///
/// # Safety
/// The pointers are ones to as many bytes as their lengths say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_put_expiring(
    store: *mut cambium_store,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    moment: u64,
    durable: i32,
) -> cambium_code {
    done(|| {
        let key = input!(key, key_length, "key")?;
        let value = input!(value, value_length, "value")?;
        let store = plain(store)?;
        let (engine, durability) = (store.engine(), durability(durable)?);
        let written = match expiry(moment) {
            Some(expiry) => engine.put_expiring(key, value, expiry, durability),
            None => engine.put(key, value, durability),
        };
        written.map(drop)
    })
}

/// Adds a put of an entry that expires at `moment`, in milliseconds since 1970
/// (`CAMBIUM_NEVER`: it does not).
///
/// # Safety
/// As of `cambium_put_expiring`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_put_expiring(
    batch: *mut cambium_batch,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    moment: u64,
) -> cambium_code {
    push(batch, None, || {
        expiring((key, key_length), (value, value_length), moment)
    })
}

/// As `cambium_batch_put_expiring`, in a namespace of the store.
///
/// # Safety
/// As of `cambium_batch_put_into`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_put_expiring_into(
    batch: *mut cambium_batch,
    name: *const c_char,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    moment: u64,
) -> cambium_code {
    push(batch, Some(name), || {
        expiring((key, key_length), (value, value_length), moment)
    })
}

/// The moment at which a key's entry expires, in milliseconds since 1970, in `*moment`;
/// `CAMBIUM_NEVER` if it does not, or is not there.
///
/// # Safety
/// As of `cambium_put_expiring`; `moment` is null or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_expires_at(
    store: *mut cambium_store,
    key: *const c_void,
    key_length: usize,
    moment: *mut u64,
) -> cambium_code {
    output!(moment, CAMBIUM_NEVER);
    done(|| {
        let key = input!(key, key_length, "key")?;
        if let Some(UnixMillis(at)) = plain(store)?.expires_at(key)? {
            output!(moment, at);
        }
        Ok(())
    })
}

/// Lets an entry expire at `moment`, in milliseconds since 1970, or stay
/// (`CAMBIUM_NEVER`). `CAMBIUM_NOT_FOUND` if the key is not there.
///
/// # Safety
/// As of `cambium_put_expiring`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_set_expiry(
    store: *mut cambium_store,
    key: *const c_void,
    key_length: usize,
    moment: u64,
    durable: i32,
) -> cambium_code {
    done(|| {
        let key = input!(key, key_length, "key")?;
        let store = plain(store)?;
        let engine = store.engine();
        match engine.set_expiry(key, expiry(moment), durability(durable)?)? {
            true => Ok(()),
            false => Err(Error::NotFound {
                kind: "key",
                name: String::from_utf8_lossy(key).into_owned(),
            }),
        }
    })
}

/// Lets a merge operator make a key's next value of its current one and an operand,
/// atomically: `add` (signed numbers of 8 bytes, little-endian), `append`, `maximum`, or one of
/// `cambium_register_operator`.
///
/// # Safety
/// As of `cambium_put_expiring`; the text ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_merge(
    store: *mut cambium_store,
    merge_operator: *const c_char,
    key: *const c_void,
    key_length: usize,
    operand: *const c_void,
    operand_length: usize,
    durable: i32,
) -> cambium_code {
    done(|| {
        let operator = text!(merge_operator, "operator")?;
        let key = input!(key, key_length, "key")?;
        let operand = input!(operand, operand_length, "operand")?;
        let store = plain(store)?;
        let merged = store
            .engine()
            .merge(operator, key, operand, durability(durable)?);
        merged.map(drop)
    })
}

/// Adds a merge, as of `cambium_merge`.
///
/// # Safety
/// As of `cambium_merge`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_merge(
    batch: *mut cambium_batch,
    merge_operator: *const c_char,
    key: *const c_void,
    key_length: usize,
    operand: *const c_void,
    operand_length: usize,
) -> cambium_code {
    push(batch, None, || {
        merging(merge_operator, (key, key_length), (operand, operand_length))
    })
}

/// Adds a merge in a namespace of the store, as of `cambium_merge`.
///
/// # Safety
/// As of `cambium_merge`; the name ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_batch_merge_into(
    batch: *mut cambium_batch,
    name: *const c_char,
    merge_operator: *const c_char,
    key: *const c_void,
    key_length: usize,
    operand: *const c_void,
    operand_length: usize,
) -> cambium_code {
    push(batch, Some(name), || {
        merging(merge_operator, (key, key_length), (operand, operand_length))
    })
}

/// Puts a key when the transaction commits, of an entry that expires at `moment`, as of
/// `cambium_put_expiring`.
///
/// # Safety
/// As of `cambium_put_expiring`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_put_expiring(
    transaction: *mut cambium_transaction,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    moment: u64,
) -> cambium_code {
    done(|| {
        let key = input!(key, key_length, "key")?;
        let value = input!(value, value_length, "value")?;
        let view = view(transaction)?;
        match expiry(moment) {
            Some(expiry) => view.put_expiring(key, value, expiry),
            None => view.put(key, value),
        }
    })
}

/// Merges into what this transaction sees, as of `cambium_merge`. The key counts as read.
///
/// # Safety
/// As of `cambium_merge`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_merge(
    transaction: *mut cambium_transaction,
    merge_operator: *const c_char,
    key: *const c_void,
    key_length: usize,
    operand: *const c_void,
    operand_length: usize,
) -> cambium_code {
    done(|| {
        let operator = text!(merge_operator, "operator")?;
        let key = input!(key, key_length, "key")?;
        let operand = input!(operand, operand_length, "operand")?;
        view(transaction)?.merge(operator, key, operand)
    })
}

/// Makes the next value of a key's current one, null where the key is not there, and an operand:
/// puts it, in memory from `malloc` that the library frees, into `*value`, and its length into
/// `*value_length`. Answers 0, or anything else where it cannot use them: then the write answers
/// `CAMBIUM_INVALID_ARGUMENT`, and nothing is written. `state` is that of
/// `cambium_register_operator`.
pub type cambium_merge_function = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        current: *const c_char,
        current_length: usize,
        operand: *const c_char,
        operand_length: usize,
        value: *mut *mut c_char,
        value_length: *mut usize,
    ) -> c_int,
>;

/// Knows a merge operator by its name from now on, for all namespaces, until the store is closed;
/// one of the same name goes. A write may call the function more than once, so the same current
/// value and operand make the same value.
///
/// `destructor` may be null. It is called with the state when the function is used no more; at
/// once if this call fails.
///
/// # Safety
/// The name ends with a zero. `merge` may be called on any thread, several times at once. It
/// keeps no pointer, and neither function calls anything of this library or unwinds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_register_operator(
    store: *mut cambium_store,
    name: *const c_char,
    state: *mut c_void,
    merge: cambium_merge_function,
    destructor: cambium_destructor,
) -> cambium_code {
    // SAFETY: cambium.h: the functions take the state from any thread.
    let state = unsafe { State::new(state, destructor) };
    done(move || {
        let name = text!(name, "name")?.to_string();
        let merge = merge.ok_or_else(|| {
            Error::InvalidArgument("there is no function that merges: a null pointer".to_string())
        })?;
        // SAFETY: cambium.h: the function takes the state, two values, and places for its answer.
        let operator = unsafe { ProgramOperator::new(name, state, merge) };
        plain(store)?.register_operator(Arc::new(operator))
    })
}
