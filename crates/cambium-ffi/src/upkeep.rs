//! What keeps stores in shape: syncing, compaction, statistics, checks, snapshots under a
//! name.

use std::ffi::{c_char, c_void};

use cambium::{CheckReport, CompactOptions, Options};
use cambium_bindings::{c, properties};

use crate::error::{cambium_code, done};
use crate::objects::{cambium_store, folder, output, plain, text, whole};
use crate::store::range;

/// Raises everything written so far to `CAMBIUM_SYNCED`.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_sync(store: *mut cambium_store) -> cambium_code {
    done(|| whole(store)?.sync())
}

/// Takes the newest moment of a store that was opened for reading alone beside a process that
/// writes. Snapshots and iterators keep their moments. Every other store shows its newest
/// state already.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_refresh(store: *mut cambium_store) -> cambium_code {
    done(|| whole(store)?.refresh())
}

/// Rewrites what is live and gives space back; reads and writes go on.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_compact(store: *mut cambium_store) -> cambium_code {
    done(|| {
        let store = whole(store)?;
        store.compact(&CompactOptions::default(), &()).map(drop)
    })
}

/// About how many bytes on disk the entries of a range take, in `*bytes`: from a hundred
/// entries on within a factor of 1.5 as a rule, and never more for a part than for the whole.
///
/// # Safety
/// The pointers are ones to as many bytes as their lengths say, null for an open
/// bound; `bytes` is null or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_approximate_size(
    store: *mut cambium_store,
    from: *const c_void,
    from_length: usize,
    to: *const c_void,
    to_length: usize,
    bytes: *mut u64,
) -> cambium_code {
    output!(bytes, 0);
    done(|| {
        let range = range(from, from_length, to, to_length)?;
        let store = match range.is_all() {
            true => whole(store)?,
            false => plain(store)?,
        };
        output!(bytes, store.approximate_size(&range)?);
        Ok(())
    })
}

/// The store's statistics, a name and a value a line, in `*words`; to be given back
/// by `cambium_free`.
///
/// # Safety
/// `words` is null or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_statistics(
    store: *mut cambium_store,
    words: *mut *mut c_char,
) -> cambium_code {
    output!(words, std::ptr::null_mut());
    done(|| {
        let statistics = whole(store)?.stats()?;
        let line = |statistic: &cambium::Statistic| {
            let value = properties::shown(&statistic.value);
            format!("{} {value}\n", statistic.name)
        };
        let all: String = statistics.entries.iter().map(line).collect();
        if !words.is_null() {
            output!(words, c::allocate(all.as_bytes()));
        }
        Ok(())
    })
}

/// Verifies all that a store reaches, which nobody has open, or all backups of a folder of
/// backups; damage is
/// `CAMBIUM_CORRUPTION`, and `cambium_error_message` tells of the first.
///
/// # Safety
/// The path ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_check(folder: *const c_char) -> cambium_code {
    done(|| sound(Options::new().check(folder!(folder)?)?))
}

/// Brings a damaged store back to what can be read; what was lost is
/// `CAMBIUM_CORRUPTION`, with the first loss in `cambium_error_message`.
///
/// # Safety
/// The path ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_repair(folder: *const c_char) -> cambium_code {
    done(|| sound(Options::new().repair(folder!(folder)?)?))
}

fn sound(report: CheckReport) -> cambium::Result<()> {
    if report.is_sound() {
        return Ok(());
    }
    let first = report.findings.into_iter().next();
    Err(first.map_or(cambium::Error::Cancelled, |finding| {
        cambium::Error::Corruption {
            file: finding.file,
            offset: finding.offset,
            what: finding.what,
        }
    }))
}

/// Keeps the state now under a name, where the engine can.
///
/// # Safety
/// The name ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_named_snapshot_create(
    store: *mut cambium_store,
    name: *const c_char,
) -> cambium_code {
    done(|| whole(store)?.create_named_snapshot(text!(name, "name")?))
}

/// Names of the states that are kept, in `*names`: each ends with a zero, one behind the
/// other, `*count` of them; to be given back by `cambium_free`.
///
/// # Safety
/// `names` and `count` are null or places for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_named_snapshots(
    store: *mut cambium_store,
    names: *mut *mut c_char,
    count: *mut usize,
) -> cambium_code {
    give_names(names, count, || {
        let kept = whole(store)?.list_named_snapshots()?;
        Ok(kept.into_iter().map(|(name, _)| name).collect())
    })
}

/// Names of all namespaces, as of `cambium_named_snapshots`; the default one, with an
/// empty name, is the first.
///
/// # Safety
/// As of `cambium_named_snapshots`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_namespaces(
    store: *mut cambium_store,
    names: *mut *mut c_char,
    count: *mut usize,
) -> cambium_code {
    give_names(names, count, || whole(store)?.namespaces())
}

/// Hands names to C in memory of its own.
pub(crate) fn give_names(
    names: *mut *mut c_char,
    count: *mut usize,
    all: impl FnOnce() -> cambium::Result<Vec<String>>,
) -> cambium_code {
    output!(names, std::ptr::null_mut());
    output!(count, 0);
    done(|| {
        let all = all()?;
        output!(count, all.len());
        if !names.is_null() {
            let ended: String = all.iter().map(|name| format!("{name}\0")).collect();
            output!(names, c::allocate(ended.as_bytes()));
        }
        Ok(())
    })
}

/// Lets a kept state go.
///
/// # Safety
/// The name ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_named_snapshot_drop(
    store: *mut cambium_store,
    name: *const c_char,
) -> cambium_code {
    done(|| whole(store)?.drop_named_snapshot(text!(name, "name")?))
}

/// Brings the store back to a kept state.
///
/// # Safety
/// The name ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cambium_rollback(
    store: *mut cambium_store,
    name: *const c_char,
) -> cambium_code {
    done(|| plain(store)?.rollback(text!(name, "name")?))
}

/// The name of a code, such as `CAMBIUM_OK`.
#[unsafe(no_mangle)]
pub extern "C" fn cambium_code_name(code: i32) -> *const c_char {
    let names = [
        c"CAMBIUM_OK",
        c"CAMBIUM_NOT_FOUND",
        c"CAMBIUM_INVALID_ARGUMENT",
        c"CAMBIUM_UNSUPPORTED",
        c"CAMBIUM_LIMIT_EXCEEDED",
        c"CAMBIUM_PRECONDITION_FAILED",
        c"CAMBIUM_CLOSED",
        c"CAMBIUM_LOCKED",
        c"CAMBIUM_NOT_A_STORE",
        c"CAMBIUM_ALREADY_EXISTS",
        c"CAMBIUM_UNKNOWN_FORMAT",
        c"CAMBIUM_CORRUPTION",
        c"CAMBIUM_IO",
        c"CAMBIUM_NO_SPACE",
        c"CAMBIUM_POISONED",
        c"CAMBIUM_SNAPSHOT_LIMIT",
        c"CAMBIUM_CANCELLED",
        c"CAMBIUM_OTHER",
        c"CAMBIUM_SYNC_FAILED",
        c"CAMBIUM_CONFLICT",
        c"CAMBIUM_HISTORY_LOST",
    ];
    let name = usize::try_from(code).ok().and_then(|code| names.get(code));
    name.copied().unwrap_or(c"CAMBIUM_OTHER").as_ptr()
}
