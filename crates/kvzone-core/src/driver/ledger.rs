//! What a store acknowledged, kept where the death of its process leaves it.
//!
//! A folder `ledger` beside the store's, of files that hold notes of 12 bytes:
//!
//! ```text
//!  number of a key, u64 LE │ its state, u32 LE (crate::versions)
//! ```
//!
//! | file | notes |
//! |---|---|
//! | `before` | every key that was written, when the last writes begin |
//! | `thread-N` | one before each call of that thread, and one after it, for each key in it |
//!
//! A note is handed to the operating system before the call begins, or after it
//! returned, so what is known here is never more than was acknowledged, and never
//! less than was asked. A key has one writer, so the order in its thread's file is
//! the order of its writes. A note that the end cut off counts as not written: its
//! call had not begun, or is taken for one that had not returned.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_io::{Environment, File, OpenOptions};

use crate::error::Result;

const NOTE_BYTES: usize = 12;

/// Bytes that are written, and read, at once.
const CHUNK_BYTES: usize = 64 << 10;

/// The folder's name inside a run's own.
fn folder(run: &Path) -> PathBuf {
    run.join("ledger")
}

/// The file of what was acknowledged before the last writes.
pub fn before(run: &Path) -> PathBuf {
    folder(run).join("before")
}

pub fn of_thread(run: &Path, thread: u64) -> PathBuf {
    folder(run).join(format!("thread-{thread}"))
}

pub fn prepare(run: &Path) -> Result<()> {
    let files = Environment::real().file_system;
    if files.metadata(&folder(run))?.is_none() {
        files.create_directory(&folder(run))?;
    }
    Ok(())
}

#[derive(Debug)]
pub struct Notes {
    file: Arc<dyn File>,
    offset: u64,
    gathered: Vec<u8>,
}

impl Notes {
    pub fn create(path: &Path) -> Result<Notes> {
        let options = OpenOptions {
            truncate: true,
            ..OpenOptions::CREATE
        };
        Ok(Notes {
            file: Environment::real().file_system.open(path, options)?,
            offset: 0,
            gathered: Vec::new(),
        })
    }

    /// Adds a note; the operating system has it after [`Notes::hand_over`].
    pub fn add(&mut self, number: u64, state: u32) -> Result<()> {
        self.gathered.extend_from_slice(&number.to_le_bytes());
        self.gathered.extend_from_slice(&state.to_le_bytes());
        if self.gathered.len() >= CHUNK_BYTES {
            self.hand_over()?;
        }
        Ok(())
    }

    pub fn hand_over(&mut self) -> Result<()> {
        self.file.write_at(&self.gathered, self.offset)?;
        self.offset += self.gathered.len() as u64;
        self.gathered.clear();
        Ok(())
    }
}

/// Visits the whole notes of a file in their order; a file that is not there has
/// none.
pub fn read(path: &Path, visit: &mut dyn FnMut(u64, u32)) -> Result<()> {
    let files = Environment::real().file_system;
    if files.metadata(path)?.is_none() {
        return Ok(());
    }
    let file = files.open(path, OpenOptions::READ)?;
    let length = file.length()? / NOTE_BYTES as u64 * NOTE_BYTES as u64;
    let most = (CHUNK_BYTES / NOTE_BYTES * NOTE_BYTES) as u64;
    let mut offset = 0;
    while offset < length {
        let bytes = file.read_vec_at(offset, most.min(length - offset) as usize)?;
        for note in bytes.chunks_exact(NOTE_BYTES) {
            let (number, state) = note.split_at(8);
            let number = number.try_into().map_or(0, u64::from_le_bytes);
            visit(number, state.try_into().map_or(0, u32::from_le_bytes));
        }
        offset += bytes.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_notes_come_back_in_order_and_a_cut_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path()).unwrap();
        let path = of_thread(folder.path(), 3);
        let mut notes = Notes::create(&path).unwrap();
        let many = 2 * (CHUNK_BYTES / NOTE_BYTES) as u64 + 5;
        for number in 0..many {
            notes.add(number, number as u32 ^ 7).unwrap();
        }
        notes.hand_over().unwrap();
        let found = || {
            let mut found = Vec::new();
            read(&path, &mut |number, state| found.push((number, state))).unwrap();
            found
        };
        let all: Vec<(u64, u32)> = (0..many).map(|n| (n, n as u32 ^ 7)).collect();
        assert_eq!(found(), all);
        let cut = std::fs::metadata(&path).unwrap().len() - 1;
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(cut).unwrap();
        assert_eq!(found(), all[..all.len() - 1]);
        read(&before(folder.path()), &mut |_, _| panic!("not there")).unwrap();
    }
}
