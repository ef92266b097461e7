//! Transactions.

use std::ffi::{c_char, c_void};
use std::sync::Mutex;

use cambium::{Direction, Error, Result, Savepoint, Transaction, TransactionView};

use crate::error::{answer_or, cambium_code, done};
use crate::objects::{
    ITERATORS, Iteration, TRANSACTIONS, cambium_iterator, cambium_store, cambium_transaction,
    forget, input, keep, lock, look_up, output, plain, text,
};
use crate::store::{durability, give_value, range};

/// A transaction, until its commit, and the namespace that its calls go to.
pub struct Begun {
    transaction: Option<Transaction>,
    view: TransactionView,
    savepoints: Vec<Savepoint>,
}

/// Begins a transaction, in `*transaction`. It reads the state of this moment and its own
/// writes. Its commit fails with `CAMBIUM_CONFLICT`, and writes nothing, if anything that
/// it read was changed since.
///
/// # Safety
/// `transaction` is null or a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_new(
    store: *mut cambium_store,
    transaction: *mut *mut cambium_transaction,
) -> cambium_code {
    output!(transaction, std::ptr::null_mut());
    done(|| {
        let begun = plain(store)?.transaction()?;
        let begun = Begun {
            view: TransactionView::clone(&begun),
            transaction: Some(begun),
            savepoints: Vec::new(),
        };
        output!(transaction, keep(&TRANSACTIONS, Mutex::new(begun))?);
        Ok(())
    })
}

/// Lets a transaction go; what it wrote and did not commit is forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_transaction_free(transaction: *mut cambium_transaction) {
    forget(&TRANSACTIONS, transaction);
}

/// The namespace that calls of a transaction go to now.
pub fn view(transaction: *mut cambium_transaction) -> Result<TransactionView> {
    Ok(lock(&*look_up(&TRANSACTIONS, transaction)?).view.clone())
}

/// Makes all writes visible together, as safe as `durable` says. The transaction has ended
/// then, whatever the answer; its handle is still to be freed. `CAMBIUM_CONFLICT`: begin
/// another one, and do the same again.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_transaction_commit(
    transaction: *mut cambium_transaction,
    durable: i32,
) -> cambium_code {
    done(|| {
        let durable = durability(durable)?;
        let begun = lock(&*look_up(&TRANSACTIONS, transaction)?)
            .transaction
            .take();
        let ended = || Error::InvalidArgument("the transaction has ended".to_string());
        let begun = begun.ok_or_else(ended)?.with_durability(durable);
        begun.commit().map(drop)
    })
}

/// The namespace that later calls of this transaction go to, made if it is not there; an
/// empty name is the default one.
///
/// # Safety
/// The name ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_namespace(
    transaction: *mut cambium_transaction,
    name: *const c_char,
) -> cambium_code {
    done(|| {
        let begun = look_up(&TRANSACTIONS, transaction)?;
        let mut begun = lock(&begun);
        if let Some(transaction) = &begun.transaction {
            begun.view = transaction.namespace(text!(name, "name")?)?;
        }
        Ok(())
    })
}

/// As `cambium_get`, as this transaction sees it. The key counts as read, also where it is
/// not there.
///
/// # Safety
/// As of `cambium_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_get(
    transaction: *mut cambium_transaction,
    key: *const c_void,
    key_length: usize,
    value: *mut *mut c_void,
    value_length: *mut usize,
) -> cambium_code {
    give_value(value, value_length, || {
        view(transaction)?.get(input!(key, key_length, "key")?)
    })
}

/// Puts a key when the transaction commits.
///
/// # Safety
/// As of `cambium_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_put(
    transaction: *mut cambium_transaction,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
) -> cambium_code {
    done(|| {
        let key = input!(key, key_length, "key")?;
        view(transaction)?.put(key, input!(value, value_length, "value")?)
    })
}

/// Takes a key away when the transaction commits.
///
/// # Safety
/// As of `cambium_delete`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_delete(
    transaction: *mut cambium_transaction,
    key: *const c_void,
    key_length: usize,
) -> cambium_code {
    done(|| view(transaction)?.delete(input!(key, key_length, "key")?))
}

/// Takes a range away when the transaction commits; a null pointer is an open bound.
///
/// # Safety
/// As of `cambium_batch_delete_range`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_delete_range(
    transaction: *mut cambium_transaction,
    from: *const c_void,
    from_length: usize,
    to: *const c_void,
    to_length: usize,
) -> cambium_code {
    done(|| view(transaction)?.delete_range(&range(from, from_length, to, to_length)?))
}

/// A pass over the keys from `from` up to, not including, `to` (null is open), in order,
/// or backwards if `backwards` is not 0, as this transaction sees them.
/// `cambium_iterator_next` moves it. What it has passed counts as read.
///
/// # Safety
/// As of `cambium_iterator_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_scan(
    transaction: *mut cambium_transaction,
    from: *const c_void,
    from_length: usize,
    to: *const c_void,
    to_length: usize,
    backwards: i32,
    iterator: *mut *mut cambium_iterator,
) -> cambium_code {
    output!(iterator, std::ptr::null_mut());
    done(|| {
        let direction = match backwards {
            0 => Direction::Forward,
            _ => Direction::Reverse,
        };
        let range = range(from, from_length, to, to_length)?;
        let mut entries = view(transaction)?.scan(range)?;
        let entries = std::iter::from_fn(move || direction.advance(&mut entries));
        let iteration = Iteration::Pass(Box::new(entries), None);
        output!(iterator, keep(&ITERATORS, Mutex::new(iteration))?);
        Ok(())
    })
}

/// Marks the writes so far.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_transaction_savepoint(
    transaction: *mut cambium_transaction,
) -> cambium_code {
    done(|| {
        let begun = look_up(&TRANSACTIONS, transaction)?;
        let mut begun = lock(&begun);
        let savepoint = begun.view.savepoint()?;
        begun.savepoints.push(savepoint);
        Ok(())
    })
}

/// Forgets the writes since the last savepoint, and that savepoint;
/// `CAMBIUM_NOT_FOUND` where there is none.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_transaction_roll_back(
    transaction: *mut cambium_transaction,
) -> cambium_code {
    answer_or(c"the transaction has no savepoint", || {
        let begun = look_up(&TRANSACTIONS, transaction)?;
        let mut begun = lock(&begun);
        let Some(savepoint) = begun.savepoints.pop() else {
            return Ok(cambium_code::CAMBIUM_NOT_FOUND);
        };
        begun.view.roll_back_to(savepoint)?;
        Ok(cambium_code::CAMBIUM_OK)
    })
}
