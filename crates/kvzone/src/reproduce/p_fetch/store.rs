//! The store that is compacted again and again: made once for each size, of
//! which a random half is stale.
//!
//! A compaction leaves the old file as it was and takes its name away. So the
//! store is brought back by linking that file again, beside copies of the small
//! ones: every measurement begins with the very same bytes.

use std::fs;
use std::path::{Path, PathBuf};

use cambium::{Options, WriteBatch};
use kvzone_core::error::{Error, Result};
use kvzone_core::random::Random;

/// Of a key; with the value a document has 4 KiB, as in the paper.
pub(super) const KEY_BYTES: usize = 16;
pub(super) const DOCUMENT_BYTES: usize = 4096;
/// Documents of a batch while the store is made.
const BATCH: u64 = 256;

/// Bytes of documents of so many keys.
pub(super) fn keys_of(bytes: f64) -> u64 {
    ((bytes / DOCUMENT_BYTES as f64) as u64).max(64)
}

/// The n-th key.
pub(super) fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"document00000000";
    let digits = format!("{number:08}");
    // Eight digits number more documents than fit on the disks of today.
    key[KEY_BYTES - 8..].copy_from_slice(&digits.as_bytes()[digits.len() - 8..]);
    key
}

/// Bytes that no device compresses away, different for each number.
pub(super) fn value_of(number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    let mut value = Vec::with_capacity(DOCUMENT_BYTES);
    while value.len() < DOCUMENT_BYTES {
        value.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    value
}

/// A store to begin with.
#[derive(Debug)]
pub(super) struct Base {
    folder: PathBuf,
    /// Keys in it.
    pub(super) keys: u64,
}

impl Base {
    /// Makes it: every key once, then a random half of them again.
    pub(super) fn make(folder: &Path, bytes: f64, seed: u64) -> Result<Base> {
        let keys = keys_of(bytes);
        let folder = folder.to_path_buf();
        let store = Options::new()
            .set("compaction_threshold", 100)
            .create(&folder, "forest")?;
        let mut batch = WriteBatch::new();
        let mut random = Random::stream(seed, 1);
        let again = (0..keys).filter(|_| random.below(2) == 0);
        let mut order: Vec<u64> = again.collect();
        for place in (1..order.len()).rev() {
            order.swap(place, random.below(place as u64 + 1) as usize);
        }
        for (count, number) in (0..keys).chain(order).enumerate() {
            let value = value_of(seed ^ count as u64);
            batch.put(&key_of(number), &value[KEY_BYTES..]);
            if batch.len() as u64 == BATCH {
                store.write(std::mem::take(&mut batch))?;
            }
        }
        store.write(batch)?;
        store.sync()?;
        store.close()?;
        Ok(Base { folder, keys })
    }

    /// Its database file.
    pub(super) fn database(&self) -> Result<PathBuf> {
        let failed = |error| Error::machine("list", &self.folder, error);
        let entries = fs::read_dir(&self.folder).map_err(failed)?;
        let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let found = paths.find(|path| path.extension().is_some_and(|kind| kind == "forest"));
        found.ok_or_else(|| Error::machine("list", &self.folder, "no database file"))
    }

    /// The same store at another path.
    pub(super) fn again(&self, path: &Path) -> Result<()> {
        let failed = |error| Error::machine("bring back", path, error);
        if path.exists() {
            fs::remove_dir_all(path).map_err(failed)?;
        }
        fs::create_dir(path).map_err(failed)?;
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let from = entry.map_err(failed)?.path();
            let Some(name) = from.file_name() else {
                continue;
            };
            let to = path.join(name);
            if from.extension().is_some_and(|kind| kind == "forest") {
                fs::hard_link(&from, &to).map_err(failed)?;
            } else {
                fs::copy(&from, &to).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// The same with a file of its own, for what writes to it.
    pub(super) fn copy(&self, path: &Path) -> Result<()> {
        self.again(path)?;
        let failed = |error| Error::machine("copy", path, error);
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let from = entry.map_err(failed)?.path();
            if let Some(name) = from.file_name() {
                let to = path.join(name);
                fs::remove_file(&to).map_err(failed)?;
                fs::copy(&from, &to).map_err(failed)?;
            }
        }
        // What the copy has left in the page cache, and the removal of the last run's
        // store to the device, would be written while the next run is measured.
        let folder = fs::File::open(path).map_err(failed)?;
        rustix::fs::syncfs(&folder).map_err(|error| failed(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_brought_back_after_a_compaction() {
        let folder = tempfile::tempdir().unwrap();
        let base = Base::make(&folder.path().join("base"), 400_000.0, 3).unwrap();
        let path = folder.path().join("again");
        let mut sizes = Vec::new();
        for _ in 0..2 {
            base.again(&path).unwrap();
            let store = Options::new().open(&path).unwrap();
            let before = store.stats().unwrap();
            let stale = before.number("stale_bytes").unwrap();
            let report = store.compact(&Default::default(), &()).unwrap();
            assert_eq!(report.documents, base.keys);
            assert!(stale > base.keys * 1000, "{stale}");
            sizes.push((stale, report.bytes_read));
            store.close().unwrap();
        }
        assert_eq!(sizes[0], sizes[1]);
    }
}
