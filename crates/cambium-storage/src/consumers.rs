//! The file `CONSUMERS`: readers of a store's changes, and how far each has come.
//!
//! It is text, replaced in one step whenever a consumer moves, and not there while a store has
//! no consumer:
//!
//! ```text
//! cambium consumers
//! store 00112233445566778899aabbccddeeff
//! 1024 6d6972726f72
//! checksum 0badcafe
//! ```
//!
//! A line is a sequence number and the consumer's name in hexadecimal digits. The checksum is
//! CRC-32C over the lines before it. Copies and backups of a store have no consumers.
//!
//! ```
//! use std::path::Path;
//! use cambium_base::{SequenceNumber, StoreId};
//! use cambium_io::Environment;
//! use cambium_storage::consumers::Consumers;
//!
//! let files = Environment::memory().file_system;
//! files.create_directory(Path::new("/store")).unwrap();
//! let consumers = Consumers::read(&*files, Path::new("/store"), StoreId([1; 16])).unwrap();
//! assert_eq!(consumers.oldest(), None);
//! consumers.set(&*files, "mirror", Some(SequenceNumber(7))).unwrap();
//! assert_eq!(consumers.oldest(), Some(SequenceNumber(7)));
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use cambium_base::checksum::crc32c;
use cambium_base::{Error, Result, SequenceNumber, StoreId, hexdump};
use cambium_io::sync::{Mutex, MutexGuard};
use cambium_io::{FileSystem, OpenOptions};

use crate::marker::replace_file;

/// The file's name in the store's folder.
pub const CONSUMERS_NAME: &str = "CONSUMERS";
/// That file while it is written.
pub(crate) const CONSUMERS_DRAFT_NAME: &str = "CONSUMERS.draft";
const FIRST_LINE: &str = "cambium consumers";
const MOST_NAME_BYTES: usize = 255;
/// More than a thousand consumers need; bounds what is read.
const MOST_BYTES: u64 = 1 << 20;

/// The consumers of an open store.
#[derive(Debug)]
pub struct Consumers {
    folder: PathBuf,
    store: StoreId,
    positions: Mutex<BTreeMap<String, SequenceNumber>>,
}

impl Consumers {
    /// Those that a store's folder says; none where it says nothing.
    ///
    /// # Errors
    /// `Corruption` where the file is damaged; those of the file system.
    pub fn read(file_system: &dyn FileSystem, folder: &Path, store: StoreId) -> Result<Consumers> {
        let path = folder.join(CONSUMERS_NAME);
        let mut positions = BTreeMap::new();
        if file_system.metadata(&path)?.is_some() {
            let file = file_system.open(&path, OpenOptions::READ)?;
            let length = file.length()?.min(MOST_BYTES);
            let mut bytes = vec![0; length as usize];
            file.read_exact_at(&mut bytes, 0)?;
            let text = std::str::from_utf8(&bytes).ok();
            positions = text.and_then(|text| decode(text, store)).ok_or_else(|| {
                Error::corruption(
                    path,
                    0,
                    "the list of consumers does not match its checksum or its store: remove the file, and let each consumer begin again with a snapshot",
                )
            })?;
        }
        Ok(Consumers {
            folder: folder.to_path_buf(),
            store,
            positions: Mutex::new(positions),
        })
    }

    /// Names in order, with the last change that each consumer is done with.
    pub fn list(&self) -> Vec<(String, SequenceNumber)> {
        let positions = self.positions();
        positions.iter().map(|(n, at)| (n.clone(), *at)).collect()
    }

    /// The number behind which every change is still needed; `None` without consumers.
    pub fn oldest(&self) -> Option<SequenceNumber> {
        self.positions().values().min().copied()
    }

    /// Makes, moves or (`None`) takes away a consumer, durably.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that cannot be one, `NotFound` for one to take away that
    /// is not there, those of the file system; the consumer is as it was then.
    pub fn set(
        &self,
        file_system: &dyn FileSystem,
        name: &str,
        to: Option<SequenceNumber>,
    ) -> Result<()> {
        if name.is_empty() || name.len() > MOST_NAME_BYTES {
            return Err(Error::InvalidArgument(format!(
                "a consumer's name of {} bytes: names have 1 to {MOST_NAME_BYTES}",
                name.len()
            )));
        }
        // Held while the file is written, so that a later position is never replaced by an
        // earlier one.
        let mut positions = self.positions();
        let mut next = positions.clone();
        match to {
            Some(to) => _ = next.insert(name.to_string(), to),
            None if next.remove(name).is_none() => {
                return Err(Error::NotFound {
                    kind: "consumer",
                    name: name.to_string(),
                });
            }
            None => {}
        }
        let text = encode(&next, self.store);
        if text.len() as u64 > MOST_BYTES {
            return Err(Error::LimitExceeded(format!(
                "a list of consumers of {} bytes: it has up to {MOST_BYTES}",
                text.len()
            )));
        }
        let (draft, name) = (CONSUMERS_DRAFT_NAME, CONSUMERS_NAME);
        replace_file(file_system, &self.folder, draft, name, text.as_bytes())?;
        *positions = next;
        Ok(())
    }

    fn positions(&self) -> MutexGuard<'_, BTreeMap<String, SequenceNumber>> {
        self.positions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn encode(positions: &BTreeMap<String, SequenceNumber>, store: StoreId) -> String {
    let mut text = format!("{FIRST_LINE}\nstore {store}\n");
    for (name, at) in positions {
        text += &format!("{at} {}\n", hexdump::to_hex(name.as_bytes()));
    }
    text += &format!("checksum {:08x}\n", crc32c(text.as_bytes()));
    text
}

fn decode(text: &str, store: StoreId) -> Option<BTreeMap<String, SequenceNumber>> {
    let (body, checksum) = text.trim_end().rsplit_once("checksum ")?;
    if crc32c(body.as_bytes()) != u32::from_str_radix(checksum, 16).ok()? {
        return None;
    }
    let lines = body.strip_prefix(&format!("{FIRST_LINE}\nstore {store}\n"))?;
    lines
        .lines()
        .map(|line| {
            let (at, name) = line.split_once(' ')?;
            let name = String::from_utf8(hexdump::from_hex(name)?).ok()?;
            Some((name, SequenceNumber(at.parse().ok()?)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_io::Environment;

    const STORE: StoreId = StoreId([7; 16]);

    #[test]
    fn consumers_read_back_and_any_changed_byte_is_noticed() {
        let files = Environment::memory().file_system;
        let folder = Path::new("/store");
        files.create_directory(folder).unwrap();
        let consumers = Consumers::read(&*files, folder, STORE).unwrap();
        consumers
            .set(&*files, "a b\n", Some(SequenceNumber(9)))
            .unwrap();
        consumers
            .set(&*files, "c", Some(SequenceNumber(4)))
            .unwrap();
        consumers
            .set(&*files, "d", Some(SequenceNumber(1)))
            .unwrap();
        consumers.set(&*files, "d", None).unwrap();
        assert!(consumers.set(&*files, "d", None).is_err());
        assert!(consumers.set(&*files, "", Some(SequenceNumber(1))).is_err());

        let again = Consumers::read(&*files, folder, STORE).unwrap();
        assert_eq!(again.list(), consumers.list());
        assert_eq!(again.oldest(), Some(SequenceNumber(4)));
        assert!(Consumers::read(&*files, folder, StoreId([8; 16])).is_err());

        let text = encode(&consumers.positions(), STORE);
        for position in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[position] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(decode(&changed, STORE), None, "byte {position}");
        }
    }
}
