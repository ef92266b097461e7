//! Damages copies of a closed store, one place each: a flipped bit, a zeroed sector, a
//! file cut short. Each answer of such a copy is right, or an error, or `check` has found
//! the damage. After a repair every key is right, unless the repair names a loss.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cambium::{Error, FindingKind, Options, Store};

use crate::content::{KeyId, Version, decode_version, describe, group_keys, is_value, value};
use crate::ledger::Base;
use crate::plan::Plan;
use crate::random::Random;
use crate::session;

/// Copies a folder with what is in it.
pub fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Damages `copies` copies of the store; the error is a violation.
pub fn run(folder: &Path, store: &Path, seed: u64, copies: u64) -> Result<String, String> {
    let plan = Plan::load(folder).map_err(|error| format!("the plan: {error}"))?;
    let base =
        Base::load(&folder.join("ledger")).map_err(|error| format!("the ledger: {error}"))?;
    let expected = expected(&base);
    let copy = folder.join("damaged");
    for number in 0..copies {
        let mut random = Random::part(seed, number);
        let again = |what: String| format!("copy {number} of seed {seed}: {what}");
        let failed = |error: io::Error| format!("copying the store: {error}");
        fresh(store, &copy).map_err(failed)?;
        let harm = harm(&copy, &mut random).map_err(failed)?;
        look(&plan, &copy, &expected).map_err(|what| again(format!("{harm}: {what}")))?;
        fresh(store, &copy).map_err(failed)?;
        self::harm(&copy, &mut Random::part(seed, number)).map_err(failed)?;
        mend(&plan, &copy, &expected).map_err(|what| again(format!("{harm}, repaired: {what}")))?;
    }
    _ = fs::remove_dir_all(&copy);
    Ok(format!("{copies} damaged copies"))
}

fn fresh(store: &Path, copy: &Path) -> io::Result<()> {
    _ = fs::remove_dir_all(copy);
    copy_folder(store, copy)
}

/// What each key has.
fn expected(base: &Base) -> Vec<(KeyId, Option<Version>)> {
    let mut expected = Vec::new();
    for (thread, own) in base.own.iter().enumerate() {
        expected.extend(
            own.iter()
                .enumerate()
                .map(|(id, version)| ((thread, id as u32), *version)),
        );
    }
    for (group, version) in base.groups.iter().enumerate() {
        expected.extend(group_keys(group).map(|key| (key, *version)));
    }
    expected
}

/// Harms one place of one file, and says which.
fn harm(copy: &Path, random: &mut Random) -> io::Result<String> {
    let mut files: Vec<(PathBuf, u64)> = Vec::new();
    for entry in fs::read_dir(copy)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.is_file() && about.len() > 0 {
            files.push((entry.path(), about.len()));
        }
    }
    files.sort();
    let (path, length) = random.pick(&files).clone();
    let offset = match random.below(4) {
        0 => random.below(length.min(4096)),
        1 => length - 1 - random.below(length.min(4096)),
        _ => random.below(length),
    };
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let file = File::options().read(true).write(true).open(&path)?;
    match random.below(20) {
        0..10 => {
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset)?;
            byte[0] ^= 1 << random.below(8);
            file.write_all_at(&byte, offset)?;
            Ok(format!("a bit of byte {offset} of {name} flipped"))
        }
        10..15 => {
            let sector = offset / 512 * 512;
            let count = (length - sector).min(512);
            file.write_all_at(&vec![0; count as usize], sector)?;
            Ok(format!("{count} bytes at {sector} of {name} zeroed"))
        }
        _ => {
            file.set_len(offset)?;
            Ok(format!("{name} cut from {length} to {offset} bytes"))
        }
    }
}

/// Checks and reads a damaged copy.
fn look(plan: &Plan, copy: &Path, expected: &[(KeyId, Option<Version>)]) -> Result<(), String> {
    let is_found = match Options::new().check(copy) {
        Ok(report) => report
            .findings
            .iter()
            .any(|finding| finding.kind == FindingKind::Damage),
        Err(_) => true,
    };
    let Ok(stores) = session::open(plan, copy) else {
        return Ok(());
    };
    let wrong = first_wrong(plan, &stores, expected, is_found, true);
    _ = stores[0].close();
    wrong.map_or(Ok(()), |what| {
        Err(format!(
            "{what}; check had {}",
            if is_found {
                "found damage"
            } else {
                "found nothing"
            }
        ))
    })
}

/// Repairs a damaged copy and reads it.
fn mend(plan: &Plan, copy: &Path, expected: &[(KeyId, Option<Version>)]) -> Result<(), String> {
    let Ok(report) = Options::new().repair(copy) else {
        return Ok(());
    };
    let is_lossy = !report.is_sound();
    let stores = session::open(plan, copy).map_err(|error| format!("opening: {error}"))?;
    let wrong = first_wrong(plan, &stores, expected, is_lossy, false);
    stores[0]
        .close()
        .map_err(|error| format!("closing: {error}"))?;
    match wrong {
        Some(what) => Err(format!(
            "{what}; the repair said {:?}",
            report
                .findings
                .iter()
                .map(|finding| &finding.what)
                .take(3)
                .collect::<Vec<_>>()
        )),
        None => Ok(()),
    }
}

/// The first answer that cannot be excused. `may_lose`: a key may be missing, or have an
/// older value. Bytes that never were a value of the key are never excused.
fn first_wrong(
    plan: &Plan,
    stores: &[Store],
    expected: &[(KeyId, Option<Version>)],
    may_lose: bool,
    may_fail: bool,
) -> Option<String> {
    for &(key, version) in expected {
        let found = stores[plan.shape.namespace(key)].get(plan.shape.key(key));
        let found = match found {
            Err(Error::Corruption { .. } | Error::Io { .. }) if may_fail => continue,
            Err(error) => return Some(format!("get of key {key:?} answers: {error}")),
            Ok(found) => found,
        };
        let bytes = found.as_deref();
        let is_right = match (version, bytes) {
            (None, None) => true,
            (Some(version), Some(bytes)) => is_value(key, version, bytes),
            _ => false,
        };
        let is_once_written = bytes.is_none_or(|bytes| {
            bytes.len() < 16
                || decode_version(bytes).is_some_and(|version| is_value(key, version, bytes))
        });
        let is_excused = may_lose && is_once_written;
        if !is_right && !is_excused {
            let expected = version.map(|version| value(key, version));
            return Some(format!(
                "key {key:?} has {}, expected {}",
                describe(bytes),
                describe(expected.as_deref())
            ));
        }
    }
    None
}
