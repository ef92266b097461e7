//! The kernel's read-ahead of a disk, which root may set, and which is brought back.

use std::fs;
use std::path::{Path, PathBuf};

use kvzone_core::error::{Error, Result};

use crate::output;
use crate::place::Disk;

/// The kernel's read-ahead, brought back when dropped.
pub(super) struct ReadAhead {
    file: PathBuf,
    before: String,
}

impl ReadAhead {
    pub(super) fn set(directory: &Path, kibibytes: u32) -> Result<ReadAhead> {
        let Some(file) = Disk::of(directory).read_ahead_file() else {
            let reason = "this disk has no read-ahead to set";
            return Err(Error::machine("set the read-ahead of", directory, reason));
        };
        let failed = |error| Error::machine("set the read-ahead (root may) in", &file, error);
        let before = fs::read_to_string(&file).map_err(failed)?;
        fs::write(&file, kibibytes.to_string()).map_err(failed)?;
        Ok(ReadAhead { file, before })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.file, self.before.trim()) {
            let path = self.file.display();
            output::complain(&format!("kvzone: {path} is not as it was: {error}"));
        }
    }
}
