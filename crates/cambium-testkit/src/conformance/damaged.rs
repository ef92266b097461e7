//! One damaged record among synced ones, in a store whose process has died.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{Durability, Engine, EngineKind, OptionValues};
use cambium_io::{FileKind, FileSystem, OpenOptions};
use cambium_storage::compression::Compression;

use super::{Bench, Case, OrFail, Outcome, expect};
use crate::memory_engine::MemoryKind;

pub(super) const CASES: &[Case] = &[
    (
        "writes that were synced one by one are not cut off at a damaged one",
        synced_one_by_one,
    ),
    (
        "writes that were synced together are not cut off at a damaged one",
        synced_together,
    ),
    (
        "a repair keeps the writes behind a damaged one",
        kept_by_repairs,
    ),
];

const PATH: &str = "/damaged";
/// The first bytes of a file, which hold a few writes.
const MOST_BYTES: u64 = 16 << 20;
const WRITES: u64 = 40;
const DAMAGED: u64 = 17;

fn value(number: u64) -> Vec<u8> {
    format!("value {number:05}, ").repeat(25).into_bytes()
}

/// Writes and syncs, lets the process die, and damages the record of one write; false if the
/// engine keeps its values elsewhere than in files, or is this crate's own, whose log does not
/// say what was synced.
fn damage_one(bench: &Bench, durability: Durability) -> Result<bool, String> {
    let (kind, options) = (bench.subject().kind(), bench.subject().create_options());
    if kind.name() == MemoryKind.name() {
        return Ok(false);
    }
    let store = kind.create(&bench.environment, Path::new(PATH), &options);
    let store = store.or_fail("create")?;
    for number in 0..WRITES {
        let put = store.put(&bench.key(number), &value(number), durability);
        put.or_fail("put")?;
    }
    store.sync().or_fail("sync")?;
    drop(store);
    let files = &*bench.environment.file_system;
    flip_in(files, Path::new(PATH), &stored(bench, &value(DAMAGED))?)
}

/// The bytes that are stored for a value, without the tag that the value layer adds.
fn stored(bench: &Bench, value: &[u8]) -> Result<Vec<u8>, String> {
    let name = bench.subject().open_options().get("compression");
    let compression = match name.filter(|_| bench.has_layer()) {
        Some(name) => Compression::parse(name).or_fail("the option compression")?,
        None => Compression::None,
    };
    Ok(compression.compress(1, value).unwrap_or(value.to_vec()))
}

fn open(bench: &Bench) -> cambium_base::Result<Arc<dyn Engine>> {
    let (kind, options) = (bench.subject().kind(), bench.subject().open_options());
    kind.open(&bench.environment, Path::new(PATH), options, &())
}

/// Flips a bit in the middle of the bytes, in each of a folder's files that holds them.
fn flip_in(files: &dyn FileSystem, folder: &Path, bytes: &[u8]) -> Result<bool, String> {
    let mut found = false;
    for entry in files.list(folder).or_fail("list")? {
        let path = folder.join(&entry.name);
        if entry.kind == FileKind::Directory {
            found |= flip_in(files, &path, bytes)?;
            continue;
        }
        let file = files
            .open(&path, OpenOptions::WRITE)
            .or_fail("open a file")?;
        let length = file.length().or_fail("length")?.min(MOST_BYTES);
        let mut content = vec![0; length as usize];
        file.read_exact_at(&mut content, 0).or_fail("read a file")?;
        let mut places = content.windows(bytes.len());
        if let Some(place) = places.position(|window| window == bytes) {
            let at = place + bytes.len() / 2;
            file.write_at(&[content[at] ^ 1], at as u64)
                .or_fail("flip")?;
            found = true;
        }
    }
    Ok(found)
}

/// Numbers of the writes that are not there, of which nothing says that they are damaged.
fn gone(bench: &Bench, store: &dyn Engine) -> Result<Vec<u64>, String> {
    let mut gone = Vec::new();
    for number in 0..WRITES {
        match store.get(&bench.key(number)) {
            Ok(Some(found)) => expect("a value", &found[..], &value(number)[..])?,
            Ok(None) => gone.push(number),
            // Others lie in one block with it.
            Err(error) if error.is_corruption() => {}
            Err(error) => return Err(format!("get: {error}")),
        }
    }
    Ok(gone)
}

fn synced_one_by_one(bench: &Bench) -> Outcome {
    never_cut_off(bench, Durability::Synced)
}

fn synced_together(bench: &Bench) -> Outcome {
    never_cut_off(bench, Durability::Written)
}

fn never_cut_off(bench: &Bench, durability: Durability) -> Outcome {
    if !damage_one(bench, durability)? {
        return Ok(());
    }
    match open(bench) {
        Err(error) if error.is_corruption() => Ok(()),
        opened => {
            let gone = gone(bench, &*opened.or_fail("open")?)?;
            expect("writes that are gone without a word", gone, Vec::new())
        }
    }
}

fn kept_by_repairs(bench: &Bench) -> Outcome {
    if !damage_one(bench, Durability::Synced)? {
        return Ok(());
    }
    let kind = bench.subject().kind();
    let options = OptionValues::default();
    let report = kind.repair(&bench.environment, Path::new(PATH), &options, &());
    let report = report.or_fail("repair")?;
    let gone = gone(bench, &*open(bench).or_fail("open")?)?;
    if !gone.is_empty() && report.findings.is_empty() {
        return Err(format!("a repair without a finding has lost {gone:?}"));
    }
    // Some engines keep several in one block.
    if gone.contains(&(WRITES - 1)) || gone.len() as u64 > WRITES / 2 {
        return Err(format!(
            "a repair has lost {gone:?} where {DAMAGED} was damaged"
        ));
    }
    Ok(())
}
