//! Measures how long a checkpoint takes, and what it adds to the file system:
//! `cargo run --release --package cambium --example checkpoint_time -- FOLDER ENGINE BYTES`
//!
//! Fills a store in FOLDER with values of 64 KiB that do not compress, closes and opens it,
//! makes a checkpoint, overwrites and deletes a twentieth, makes another, and holds both
//! against what they should have. FOLDER must be empty or not there; it stays.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::time::Instant;

use cambium::prelude::*;

const VALUE_BYTES: usize = 64 << 10;
/// Every so many entries are changed between the checkpoints.
const CHANGED: u64 = 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, engine, bytes] = arguments.as_slice() else {
        return Err("expected FOLDER ENGINE BYTES, such as /mnt/xfs/c wisckey 10GiB".into());
    };
    let bytes = cambium::parse_bytes(bytes).ok_or("BYTES: expected a number, such as 10GiB")?;
    let folder = PathBuf::from(folder);
    std::fs::create_dir_all(&folder)?;
    run(&folder, engine, (bytes / VALUE_BYTES as u64).max(1))?;
    Ok(())
}

fn run(folder: &Path, engine: &str, count: u64) -> cambium::Result<()> {
    let options = Options::new();
    let path = folder.join("store");
    let store = cambium::create(&path, engine, &options)?;
    for number in 0..count {
        store.put(key(number), value(number, 1))?;
    }
    store.close()?;
    let store = cambium::open(&path)?;
    checkpoint(&store, &folder.join("first"))?;
    for number in (0..count).step_by(CHANGED as usize) {
        match number % (2 * CHANGED) {
            0 => store.put(key(number), value(number, 2))?,
            _ => store.delete(key(number))?,
        };
    }
    checkpoint(&store, &folder.join("second"))?;
    store.close()?;
    verify(&folder.join("first"), count, false)?;
    verify(&folder.join("second"), count, true)
}

fn checkpoint(store: &Store, to: &Path) -> cambium::Result<()> {
    let before = available(store)?;
    let began = Instant::now();
    store.backup(to, &())?;
    let seconds = began.elapsed().as_secs_f64();
    let added = before.saturating_sub(available(store)?) >> 20;
    println!(
        "{}: {seconds:.3} s, {added} MiB less are free",
        to.display()
    );
    Ok(())
}

/// Bytes that are free where the store lies.
fn available(store: &Store) -> cambium::Result<u64> {
    let environment = Options::new().environment_used().clone();
    Ok(environment.file_system.space(store.path())?.available)
}

fn verify(path: &Path, count: u64, changed: bool) -> cambium::Result<()> {
    let store = cambium::open(path)?;
    let mut entries = 0;
    for number in 0..count {
        let expected = match number % (2 * CHANGED) {
            0 if changed => Some(value(number, 2)),
            CHANGED if changed => None,
            _ => Some(value(number, 1)),
        };
        let found = store.get(key(number))?;
        let found = found.as_ref().map(|value| &value[..]);
        assert!(found == expected.as_deref(), "entry {number} differs");
        entries += u64::from(found.is_some());
    }
    println!("{}: {entries} entries, as expected", path.display());
    store.close()
}

fn key(number: u64) -> String {
    format!("key {number:012}")
}

/// Bytes that do not compress: xorshift from a seed.
fn value(number: u64, round: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (round << 60) | 1;
    let mut bytes = Vec::with_capacity(VALUE_BYTES);
    while bytes.len() < VALUE_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}
