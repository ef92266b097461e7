//! Backups: checkpoints, incremental backups, and stores restored from them.

use std::ffi::c_char;

use cambium::{Backup, BackupKind, Options};
use cambium_bindings::c;

use crate::error::{cambium_code, done};
use crate::objects::{cambium_options, cambium_store, folder, output, whole};
use crate::options::given;

/// One backup of a folder of backups.
#[repr(C)]
#[derive(Debug)]
pub struct cambium_backup_entry {
    /// Its number in the folder, from 1 on.
    pub number: u64,
    /// 1 for a full copy, 0 for an archive of what was written since the backup before.
    pub full: u64,
    /// The sequence number where it begins.
    pub after: u64,
    /// The sequence number of the last write in it.
    pub through: u64,
    /// When it was taken, in milliseconds since 1970.
    pub taken: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// 1 if it cannot be restored, as its end or description shows; `cambium_check` reads all.
    pub damaged: u64,
}

/// Copies the state now into a folder that is empty or not there, durable when it
/// returns; reads and writes go on. On the same file system the copy shares files or
/// blocks with the store, where engine and file system can.
///
/// # Safety
/// The path ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_backup(
    store: *mut cambium_store,
    destination: *const c_char,
) -> cambium_code {
    done(|| whole(store)?.backup(folder!(destination)?, &()))
}

/// Takes a backup into a folder of backups, which is made if it is not there: a full copy
/// the first time, then archives of what was written since the last backup. Durable when it
/// returns. `*number` is that of the folder's newest backup, `*is_new` is 0 if nothing was
/// written since it.
///
/// # Safety
/// The path ends with a zero; `number` and `is_new` are null or places for the answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_backup_incremental(
    store: *mut cambium_store,
    place: *const c_char,
    number: *mut u64,
    is_new: *mut i32,
) -> cambium_code {
    output!(number, 0);
    output!(is_new, 0);
    done(|| {
        let taken = whole(store)?.backup_into(folder!(place)?, &())?;
        output!(number, u64::from(taken.backup.number));
        output!(is_new, i32::from(taken.is_new));
        Ok(())
    })
}

/// The backups of a folder, oldest first, `*count` of them in
/// `*backups`; to be given back by `cambium_free`. `cambium_check` verifies such a folder.
///
/// # Safety
/// The path ends with a zero; `backups` and `count` are null or places for the answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_backup_list(
    place: *const c_char,
    backups: *mut *mut cambium_backup_entry,
    count: *mut usize,
) -> cambium_code {
    output!(backups, std::ptr::null_mut());
    output!(count, 0);
    done(|| {
        let listed = Options::new().backups(folder!(place)?)?;
        output!(count, listed.len());
        if !backups.is_null() {
            let bytes: Vec<u8> = listed.iter().flat_map(entry_bytes).collect();
            output!(backups, c::allocate(&bytes).cast());
        }
        Ok(())
    })
}

/// The bytes of a [`cambium_backup_entry`]: its fields are of one size, without gaps.
fn entry_bytes(backup: &Backup) -> Vec<u8> {
    let fields = [
        u64::from(backup.number),
        u64::from(backup.kind == BackupKind::Full),
        backup.after.0,
        backup.through.0,
        backup.taken.0,
        backup.bytes,
        u64::from(backup.damage.is_some()),
    ];
    fields.into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// Makes a store in `target`, a folder that is empty or not there, of the backup with a
/// number, or of the newest one if the number is 0. Durable when it returns. `options` are
/// those of opening the store, and may be null.
///
/// # Safety
/// The paths end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_backup_restore(
    place: *const c_char,
    target: *const c_char,
    number: u64,
    options: *const cambium_options,
) -> cambium_code {
    done(|| {
        let number = (number > 0).then(|| u32::try_from(number).unwrap_or(u32::MAX));
        let (options, target) = (given(options)?.options, folder!(target)?);
        options.restore(folder!(place)?, target, number).map(drop)
    })
}

/// Removes the oldest backups of a folder: those before the newest `chains` full copies, of
/// which there must be one or more. `*removed` is how many went.
///
/// # Safety
/// The path ends with a zero; `removed` is null or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_backup_keep(
    place: *const c_char,
    chains: usize,
    removed: *mut usize,
) -> cambium_code {
    output!(removed, 0);
    done(|| {
        let gone = Options::new().keep_backups(folder!(place)?, chains)?;
        output!(removed, gone.len());
        Ok(())
    })
}
