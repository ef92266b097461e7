//! How long an opening takes after a kill, beside the time to read the log that it
//! replays, both from the device (`docs/benchmarks.md`).
//!
//! ```text
//! cargo run --release -p cambium-wisckey --example recovery_time -- FOLDER [MIB] [VALUE_BYTES] [ROUNDS]
//! ```
//!
//! `FOLDER` is made and removed again. A second process puts so many mebibytes of new keys
//! and ends without a word, before its write buffer is flushed; the default nearly fills
//! the default write buffer. Then the files are pushed out of the page cache, the log is
//! read once from start to end in pieces of 1 MiB, pushed out again, and the store is
//! opened.

use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use cambium_api::{Durability, EngineKind, OptionValues};
use cambium_io::{Advice, Environment, OpenOptions};
use cambium_wisckey::Wisckey;

type Outcome<T> = Result<T, Box<dyn Error>>;

const KEY_BYTES: usize = 16;
const PIECE_BYTES: usize = 1 << 20;

/// A well-spread number for each number.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}

/// Nothing but the write buffer itself asks for a flush.
fn options() -> OptionValues {
    let mut options = OptionValues::default();
    options.set("space_limit", "1000");
    options
}

/// Puts new keys, and ends as if it were killed.
fn fill(folder: &Path, bytes: u64, value_bytes: usize) -> Outcome<()> {
    let store = Wisckey.create(&Environment::real(), folder, &options())?;
    let mut value: Vec<u8> = (0..value_bytes as u64).map(|at| mix(at) as u8).collect();
    for number in 0..bytes / (KEY_BYTES + value_bytes) as u64 {
        value[..8].copy_from_slice(&number.to_le_bytes());
        let mut key = [0; KEY_BYTES];
        key[..8].copy_from_slice(&mix(number).to_be_bytes());
        store.put(&key, &value, Durability::Written)?;
    }
    if store.stats()?.number("tree_tables") != Some(0) {
        return Err("the write buffer was flushed: ask for less".into());
    }
    std::process::abort()
}

/// The segments of the value log.
fn log_files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "values")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Brings files to the device, and out of the page cache.
fn push_out(files: &[PathBuf]) -> Outcome<()> {
    let file_system = Environment::real().file_system;
    for path in files {
        let file = file_system.open(path, OpenOptions::WRITE)?;
        file.sync_data()?;
        file.advise(0, file.length()?, Advice::DontNeed);
    }
    Ok(())
}

fn read_all(files: &[PathBuf]) -> Outcome<u64> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut bytes = 0;
    for path in files {
        let mut file = std::fs::File::open(path)?;
        loop {
            let count = file.read(&mut piece)?;
            if count == 0 {
                break;
            }
            bytes += count as u64;
        }
    }
    Ok(bytes)
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("name a folder that is not there")?);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (mib, value_bytes, rounds) = (number(440)?, number(1024)?.max(8), number(1)?);
    if rounds == 0 {
        return fill(&folder, mib << 20, value_bytes as usize);
    }
    for _ in 0..rounds {
        let program = std::env::current_exe()?;
        let sizes = [mib.to_string(), value_bytes.to_string(), "0".to_string()];
        let status = Command::new(program).arg(&folder).args(sizes).status()?;
        if status.code().is_some() {
            return Err(format!("the filling process: {status}").into());
        }
        let files = log_files(&folder)?;
        push_out(&files)?;
        let started = Instant::now();
        let bytes = read_all(&files)?;
        let reading = started.elapsed().as_secs_f64();
        push_out(&files)?;
        let started = Instant::now();
        let store = Wisckey.open(&Environment::real(), &folder, &options(), &())?;
        let opening = started.elapsed().as_secs_f64();
        let replayed = store.stats()?.number("replayed_writes").unwrap_or(0);
        store.close()?;
        std::fs::remove_dir_all(&folder)?;
        println!(
            "{bytes} bytes of log, {replayed} writes: read in {reading:.2} s, opened in \
             {opening:.2} s: {:.2} times",
            opening / reading
        );
    }
    Ok(())
}
