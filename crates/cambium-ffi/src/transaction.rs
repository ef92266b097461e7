//! Transactions.

use std::ffi::{c_char, c_void};
use std::sync::Mutex;

use cambium::{Direction, Error, Result, Savepoint, Store, Transaction, TransactionView};

use crate::error::{answer_or, cambium_code, done};
use crate::iterator::give_pass;
use crate::objects::{
    TRANSACTIONS, cambium_iterator, cambium_store, cambium_transaction, forget, input, keep, lock,
    look_up, output, plain, text,
};
use crate::store::{durability, give_value, range};

/// Most calls of the program's function by `cambium_transact`; the header names the number.
const MOST_ATTEMPTS: u32 = 64;

/// A transaction, until its commit, and the namespace that its calls go to.
pub struct Begun {
    transaction: Option<Transaction>,
    view: TransactionView,
    savepoints: Vec<Savepoint>,
}

impl Begun {
    fn on(store: &Store) -> Result<Mutex<Begun>> {
        let begun = store.transaction()?;
        Ok(Mutex::new(Begun {
            view: TransactionView::clone(&begun),
            transaction: Some(begun),
            savepoints: Vec::new(),
        }))
    }
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
        let begun = Begun::on(&plain(store)?)?;
        output!(transaction, keep(&TRANSACTIONS, begun)?);
        Ok(())
    })
}

/// `cambium_transact` calls this: it reads and writes through the transaction, which it neither
/// commits nor frees. It answers `CAMBIUM_OK` (0) for a commit; anything else, be it a number of
/// the program's own, ends the transaction, and nothing is written. It keeps nothing of an
/// earlier call, and does not unwind.
pub type cambium_work = Option<
    unsafe extern "C" fn(argument: *mut c_void, transaction: *mut cambium_transaction) -> i32,
>;

/// Calls `work` with a transaction and commits it, as safe as `durable` says. After a conflict
/// it calls `work` again with another transaction, after a pause, up to 64 times in all; one
/// that has lost several times goes before those that begin. Answers what `work` answered, if
/// that is not `CAMBIUM_OK`, or else the code of the last commit.
///
/// # Safety
/// `work` may be called with `argument`, on this thread, until this call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transact(
    store: *mut cambium_store,
    work: cambium_work,
    argument: *mut c_void,
    durable: i32,
) -> i32 {
    let mut worked = 0;
    let committed = done(|| {
        let work = work.ok_or_else(|| {
            Error::InvalidArgument("there is no function to call: a null pointer".to_string())
        })?;
        let (store, durable) = (plain(store)?, durability(durable)?);
        store.repeat(MOST_ATTEMPTS, || {
            let transaction = keep(&TRANSACTIONS, Begun::on(&store)?)?;
            // SAFETY: cambium.h: the function takes its argument and a transaction.
            worked = unsafe { work(argument, transaction) };
            let begun = end(transaction);
            forget(&TRANSACTIONS, transaction);
            match worked {
                0 => begun?.with_durability(durable).commit().map(drop),
                _ => Ok(()),
            }
        })
    });
    match worked {
        0 => committed as i32,
        _ => worked,
    }
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
        let begun = end(transaction)?.with_durability(durable);
        begun.commit().map(drop)
    })
}

/// Takes out the transaction of a handle, which has ended then.
fn end(transaction: *mut cambium_transaction) -> Result<Transaction> {
    let begun = look_up(&TRANSACTIONS, transaction)?;
    let begun = lock(&begun).transaction.take();
    begun.ok_or_else(|| Error::InvalidArgument("the transaction has ended".to_string()))
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
    give_pass(iterator, || {
        let direction = match backwards {
            0 => Direction::Forward,
            _ => Direction::Reverse,
        };
        let range = range(from, from_length, to, to_length)?;
        let mut entries = view(transaction)?.scan(range)?;
        Ok(std::iter::from_fn(move || direction.advance(&mut entries)))
    })
}

/// A pass over every entry, in the order that is cheapest for the engine, with the writes of
/// this transaction so far; works on every engine. `cambium_iterator_next` moves it. The whole
/// namespace counts as read.
///
/// # Safety
/// As of `cambium_pass_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_transaction_pass(
    transaction: *mut cambium_transaction,
    iterator: *mut *mut cambium_iterator,
) -> cambium_code {
    give_pass(iterator, || view(transaction)?.iterate())
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
