//! Following what is written: changes and consumers.

use std::ffi::{c_char, c_void};
use std::sync::Mutex;
use std::time::Duration;

use cambium::{Change, ChangeBatch, ChangeOptions, Operation, SequenceNumber};

use crate::error::{answer, cambium_code, done};
use crate::objects::{
    CHANGES, SNAPSHOTS, cambium_changes, cambium_snapshot, cambium_store, forget, keep, lock,
    look_up, output, text, whole,
};
use crate::upkeep::give_names;
use crate::values::CAMBIUM_NEVER;

/// What a change did.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum cambium_operation {
    /// It gave a key a value.
    CAMBIUM_PUT = 0,
    /// It took a key away.
    CAMBIUM_DELETE = 1,
    /// It took all keys of a range away.
    CAMBIUM_DELETE_RANGE = 2,
}

/// A change of a committed batch. Its pointers hold until the next call of
/// `cambium_changes_next`, or until the changes are freed.
#[repr(C)]
#[derive(Debug)]
pub struct cambium_change {
    /// What was done.
    pub operation: cambium_operation,
    /// The namespace, without a zero at its end; the default one's length is 0.
    pub namespace_name: *const c_char,
    /// Bytes of that name.
    pub namespace_length: usize,
    /// The key; of a range its first one, or null where it is open.
    pub key: *const c_void,
    /// Bytes of the key.
    pub key_length: usize,
    /// The value of a put; of a range the key behind its last one, or null where it is open.
    pub value: *const c_void,
    /// Bytes of the value.
    pub value_length: usize,
    /// When the entry that was put expires, in milliseconds since 1970, or `CAMBIUM_NEVER`.
    pub expires_at: u64,
}

/// A reader of changes, and the batch that it stands at.
pub struct Following {
    changes: cambium::Changes,
    batch: Option<ChangeBatch>,
}

/// The last write that a snapshot sees, in `*sequence`: changes after it fit without a gap.
///
/// # Safety
/// `sequence` is null or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_snapshot_sequence(
    snapshot: *mut cambium_snapshot,
    sequence: *mut u64,
) -> cambium_code {
    output!(sequence, 0);
    done(|| {
        output!(sequence, look_up(&SNAPSHOTS, snapshot)?.sequence().0);
        Ok(())
    })
}

/// A reader of the batches that were committed after a sequence number, of all namespaces,
/// in order; 0 begins with the store's first. Unless `synced_only` is 0, batches that a crash
/// could take back are left out until they are synced. `CAMBIUM_HISTORY_LOST` where the log no
/// longer has what came right after the number: begin again with a snapshot.
///
/// # Safety
/// `changes` is null or a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_changes_new(
    store: *mut cambium_store,
    after: u64,
    synced_only: i32,
    changes: *mut *mut cambium_changes,
) -> cambium_code {
    output!(changes, std::ptr::null_mut());
    done(|| {
        let options = ChangeOptions {
            synced_only: synced_only != 0,
        };
        let store = whole(store)?;
        let following = Following {
            changes: store.changes_with(SequenceNumber(after), options)?,
            batch: None,
        };
        output!(changes, keep(&CHANGES, Mutex::new(following))?);
        Ok(())
    })
}

/// Lets a reader of changes go.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_changes_free(changes: *mut cambium_changes) {
    forget(&CHANGES, changes);
}

/// Goes to the next batch, waiting up to so many milliseconds for it, or for ever if they are
/// negative; `CAMBIUM_NOT_FOUND` where none came. A close of the store ends the wait.
/// `*last` is where `cambium_changes_new` goes on behind the batch.
///
/// # Safety
/// `first`, `last`, `synced` and `count` are null or places for the answers: the numbers of
/// the batch's first and last entry, whether it survives any crash, and how many changes it
/// has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_changes_next(
    changes: *mut cambium_changes,
    wait_milliseconds: i64,
    first: *mut u64,
    last: *mut u64,
    synced: *mut i32,
    count: *mut usize,
) -> cambium_code {
    output!(first, 0);
    output!(last, 0);
    output!(synced, 0);
    output!(count, 0);
    answer(|| {
        let changes = look_up(&CHANGES, changes)?;
        let mut following = lock(&changes);
        following.batch = None;
        let most = u64::try_from(wait_milliseconds).map_or(Duration::MAX, Duration::from_millis);
        following.batch = following.changes.next_timeout(most)?;
        let Some(batch) = &following.batch else {
            return Ok(cambium_code::CAMBIUM_NOT_FOUND);
        };
        output!(first, batch.first.0);
        output!(last, batch.last.0);
        output!(synced, i32::from(batch.synced));
        output!(count, batch.changes.len());
        Ok(cambium_code::CAMBIUM_OK)
    })
}

/// A change of the batch that the reader stands at, by its place from 0, in `*change`;
/// `CAMBIUM_NOT_FOUND` past the last one.
///
/// # Safety
/// `change` is null or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_changes_get(
    changes: *mut cambium_changes,
    place: usize,
    change: *mut cambium_change,
) -> cambium_code {
    answer(|| {
        let changes = look_up(&CHANGES, changes)?;
        let following = lock(&changes);
        let batch = following.batch.as_ref();
        let Some(found) = batch.and_then(|batch| batch.changes.get(place)) else {
            return Ok(cambium_code::CAMBIUM_NOT_FOUND);
        };
        output!(change, shown(found));
        Ok(cambium_code::CAMBIUM_OK)
    })
}

fn shown(change: &Change) -> cambium_change {
    let edge = |key: &Option<Vec<u8>>| match key {
        Some(key) => (key.as_ptr(), key.len()),
        None => (std::ptr::null(), 0),
    };
    let bytes = |bytes: &[u8]| (bytes.as_ptr(), bytes.len());
    let (operation, key, value) = match &change.operation {
        Operation::Put { key, value } => (cambium_operation::CAMBIUM_PUT, bytes(key), bytes(value)),
        Operation::Delete { key } => (
            cambium_operation::CAMBIUM_DELETE,
            bytes(key),
            (std::ptr::null(), 0),
        ),
        Operation::DeleteRange { range } => (
            cambium_operation::CAMBIUM_DELETE_RANGE,
            edge(&range.from),
            edge(&range.to),
        ),
    };
    let namespace = change.namespace.as_deref().unwrap_or_default();
    cambium_change {
        operation,
        namespace_name: namespace.as_ptr().cast(),
        namespace_length: namespace.len(),
        key: key.0.cast(),
        key_length: key.1,
        value: value.0.cast(),
        value_length: value.1,
        expires_at: change.expires.map_or(CAMBIUM_NEVER, |moment| moment.0),
    }
}

/// The last change that a consumer is done with, in `*position`; `CAMBIUM_NOT_FOUND` where
/// the store has none of that name.
///
/// # Safety
/// The name ends with a zero; `position` is null or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_consumer_position(
    store: *mut cambium_store,
    name: *const c_char,
    position: *mut u64,
) -> cambium_code {
    output!(position, 0);
    done(|| {
        let store = whole(store)?;
        let found = store.existing_consumer(text!(name, "name")?)?;
        output!(position, found.position()?.0);
        Ok(())
    })
}

/// Makes a consumer, or moves it: it is done with all changes up to a sequence number, and the
/// store keeps the log behind it, up to the option history_bytes. Durable when it returns.
///
/// # Safety
/// The name ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_consumer_acknowledge(
    store: *mut cambium_store,
    name: *const c_char,
    through: u64,
) -> cambium_code {
    done(|| {
        let store = whole(store)?;
        let through = SequenceNumber(through);
        store.consumer(text!(name, "name")?)?.acknowledge(through)
    })
}

/// Takes a consumer away: the store keeps no history for it.
///
/// # Safety
/// The name ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_consumer_remove(
    store: *mut cambium_store,
    name: *const c_char,
) -> cambium_code {
    done(|| {
        let store = whole(store)?;
        store.existing_consumer(text!(name, "name")?)?.remove()
    })
}

/// Names of all consumers, as of `cambium_named_snapshots`.
///
/// # Safety
/// As of `cambium_named_snapshots`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_consumers(
    store: *mut cambium_store,
    names: *mut *mut c_char,
    count: *mut usize,
) -> cambium_code {
    give_names(names, count, || {
        let consumers = whole(store)?.consumers()?;
        Ok(consumers.into_iter().map(|(name, _)| name).collect())
    })
}
