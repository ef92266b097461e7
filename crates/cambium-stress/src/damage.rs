//! Damages copies of a closed or killed store, one place each: a flipped bit, a zeroed
//! sector, a file cut short. Each answer of such a copy is right, or an error, or `check` has found
//! the damage. After a repair every key is right, unless the repair names a loss.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cambium::{Error, FindingKind, Store};
use serde::{Deserialize, Serialize};

use crate::content::{decode_version, describe, is_value, value};
use crate::ledger::{self, Base, Event, Level, Logged};
use crate::oracle::{self, Observed, Promise};
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

/// The supervisor's orders.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    /// The folder of the plan and the ledger.
    pub folder: PathBuf,
    pub store: PathBuf,
    pub seed: u64,
    pub copies: u64,
}

/// The expected state that copies of a store are compared with.
struct Case {
    plan: Plan,
    base: Base,
    logs: Vec<Vec<Logged>>,
    promise: Promise,
}

/// Damages copies of the store; the error is a violation.
pub fn run(orders: &Orders) -> Result<String, String> {
    let ledger = orders.folder.join("ledger");
    let plan = Plan::load(&orders.folder).map_err(|error| format!("the plan: {error}"))?;
    let base = Base::load(&ledger).map_err(|error| format!("the ledger: {error}"))?;
    let logs = ledger::read_all(&ledger, &base)?;
    let promise = match ledger::events(&ledger, base.generation)[..] {
        [] if logs.iter().any(|log| !log.is_empty()) => Promise::Nothing,
        [] | [Event::Closed] => Promise::Least(Level::Buffered),
        _ => return Ok("0 damaged copies: the store was brought back".to_string()),
    };
    let plan = plan.drawn(orders.seed);
    let case = Case {
        plan,
        base,
        logs,
        promise,
    };
    let copy = orders.folder.join("damaged");
    for number in 0..orders.copies {
        let again = |what: String| format!("copy {number} of seed {}: {what}", orders.seed);
        let harmed = || {
            fresh(&orders.store, &copy)?;
            harm(&copy, &mut Random::part(orders.seed, number))
        };
        let failed = |error: io::Error| format!("copying the store: {error}");
        let harm = harmed().map_err(failed)?;
        look(&case, &copy).map_err(|what| again(format!("{harm}: {what}")))?;
        harmed().map_err(failed)?;
        mend(&case, &copy).map_err(|what| again(format!("{harm}, repaired: {what}")))?;
    }
    _ = fs::remove_dir_all(&copy);
    Ok(format!("{} damaged copies", orders.copies))
}

fn fresh(store: &Path, copy: &Path) -> io::Result<()> {
    _ = fs::remove_dir_all(copy);
    copy_folder(store, copy)
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
fn look(case: &Case, copy: &Path) -> Result<(), String> {
    let is_found = match case.plan.options().check(copy) {
        Ok(report) => report
            .findings
            .iter()
            .any(|finding| finding.kind == FindingKind::Damage),
        Err(_) => true,
    };
    let Ok(stores) = session::open(&case.plan, copy) else {
        return Ok(());
    };
    let judged = judge(case, &stores, is_found, true);
    _ = stores[0].close();
    judged.map_err(|what| {
        let found = if is_found { "damage" } else { "nothing" };
        format!("{what}; check had found {found}")
    })
}

/// Repairs a damaged copy and reads it.
fn mend(case: &Case, copy: &Path) -> Result<(), String> {
    let Ok(report) = case.plan.options().repair(copy) else {
        return Ok(());
    };
    let stores = session::open(&case.plan, copy).map_err(|error| format!("opening: {error}"))?;
    let judged = judge(case, &stores, !report.is_sound(), false);
    stores[0]
        .close()
        .map_err(|error| format!("closing: {error}"))?;
    judged.map_err(|what| {
        let findings = report.findings.iter().map(|finding| &finding.what);
        format!(
            "{what}; the repair said {:?}",
            findings.take(3).collect::<Vec<_>>()
        )
    })
}

/// Compares all keys with the state that was verified. After a kill, a tail that damage
/// took looks like one that the kill took: any state since is right. `may_lose`: a key may
/// be missing, or have an older value. Bytes that never were a value of the key are never
/// excused.
fn judge(case: &Case, stores: &[Store], may_lose: bool, may_fail: bool) -> Result<(), String> {
    let mut observed = Observed::new();
    let mut has_failed = false;
    let shape = &case.plan.shape;
    for key in shape.all() {
        let bytes = match stores[shape.namespace(key)].get(shape.key(key)) {
            Err(Error::Corruption { .. } | Error::Io { .. }) if may_fail => {
                has_failed = true;
                // An error is no wrong answer.
                case.base.version(key).map(|version| value(key, version))
            }
            Err(error) => return Err(format!("get of key {key:?} answers: {error}")),
            Ok(found) => found.map(|bytes| bytes.to_vec()),
        };
        let Some(bytes) = bytes else { continue };
        let is_own = bytes.len() < 16
            || decode_version(&bytes).is_some_and(|version| is_value(key, version, &bytes));
        if !is_own {
            let what = describe(Some(&bytes));
            return Err(format!("key {key:?} has {what}, which it never had"));
        }
        observed.insert(key, bytes);
    }
    let was_killed = matches!(case.promise, Promise::Nothing);
    if may_lose || was_killed && has_failed {
        return Ok(());
    }
    oracle::verify(&case.base, &case.logs, case.promise, &observed).map(|_| ())
}
