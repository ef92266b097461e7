//! An empty cache, and the proof that it is one.
//!
//! Every file of the store is synced (dirty pages cannot be dropped), the
//! kernel is advised to drop its pages, and asked what it kept. What stayed is
//! told: a phase that begins with a third of the data in memory is not cold,
//! whatever the command line said.

use std::path::PathBuf;

use cambium_io::{Advice, FileSystem, OpenOptions, RealFileSystem, resident_pages};
use kvzone_core::error::Result;
use serde::Serialize;

use crate::place::files_below;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Dropped {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Bytes of them still cached; `None` where the kernel cannot say.
    pub(crate) resident_bytes: Option<u64>,
}

impl Dropped {
    pub(crate) fn note(self) -> Option<String> {
        match self.resident_bytes {
            None => Some(
                "the cache was dropped, but this kernel cannot prove it (cachestat needs Linux 6.5)"
                    .to_string(),
            ),
            Some(0) => None,
            Some(left) => Some(format!(
                "not quite cold: {} of {} stayed in the page cache",
                kvzone_core::size::display(left),
                kvzone_core::size::display(self.bytes)
            )),
        }
    }
}

/// Syncs and drops every file at and below the paths.
pub(crate) fn drop_caches(paths: &[PathBuf]) -> Result<Dropped> {
    let page_bytes = rustix::param::page_size() as u64;
    let mut dropped = Dropped {
        resident_bytes: Some(0),
        ..Dropped::default()
    };
    for path in files_below(paths) {
        let file = match RealFileSystem.open(&path, OpenOptions::READ) {
            Ok(file) => file,
            // A store's thread may have removed it since.
            Err(_) if !path.exists() => continue,
            Err(error) => return Err(error.into()),
        };
        let length = file.length()?;
        file.sync_data()?;
        file.advise(0, length, Advice::DontNeed);
        let resident = resident_pages(&*file)?.map(|pages| pages * page_bytes);
        dropped.files += 1;
        dropped.bytes += length;
        dropped.resident_bytes = dropped
            .resident_bytes
            .zip(resident)
            .map(|(sum, bytes)| sum + bytes);
    }
    Ok(dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_files_are_proven_cold() {
        // Beside the sources: a file system in memory never drops anything.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        std::fs::write(folder.path().join("deep/a"), vec![1; 300_000]).unwrap();
        std::fs::write(folder.path().join("b"), vec![2; 10]).unwrap();
        let dropped = drop_caches(&[folder.path().to_path_buf()]).unwrap();
        assert_eq!((dropped.files, dropped.bytes), (2, 300_010));
        match dropped.resident_bytes {
            None => println!("SKIPPED: this kernel has no cachestat"),
            Some(bytes) => assert_eq!(bytes, 0),
        }
    }

    #[test]
    fn what_stayed_is_told() {
        let of = |resident_bytes| Dropped {
            files: 1,
            bytes: 8192,
            resident_bytes,
        };
        assert_eq!(of(Some(0)).note(), None);
        assert!(of(Some(4096)).note().unwrap().contains("4 KiB of 8 KiB"));
        assert!(of(None).note().unwrap().contains("cannot prove"));
    }
}
