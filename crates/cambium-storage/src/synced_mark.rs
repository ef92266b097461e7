//! The file `SYNCED`: up to which write a store was synced, told without a sync of its own.
//!
//! Each record says up to where the log was synced when it was written, so nothing says it of
//! the writes that a sync has just covered. If the process dies then, and one of them is
//! damaged later, a recovery would take the damage for a torn tail and drop what was promised.
//! So the number goes into a small file after the sync. It reaches the device when the
//! operating system likes: it outlives the process, and where a power cut takes it away
//! nothing is lost but the proof. Every failure to write it is passed over.
//!
//! ```text
//! 0   magic, 8 bytes: CAMSYNC1
//! 8   id of the store, 16 bytes
//! 24  session, 4 bytes
//! 28  CRC-32C of the other fields, 4 bytes
//! 32  every write up to here was synced, 8 bytes
//! ```

use std::path::Path;
use std::sync::Arc;

use cambium_base::checksum::{crc32c, crc32c_append};
use cambium_base::coding::{u32_at, u64_at};
use cambium_base::{Result, StoreId};
use cambium_io::sync::OnceLock;
use cambium_io::{File, FileSystem, OpenOptions};

/// The file's name.
pub const SYNCED_NAME: &str = "SYNCED";
const MAGIC: &[u8; 8] = b"CAMSYNC1";
const BYTES: usize = 40;

/// The file of an open store; made with the first sync.
#[derive(Debug, Default)]
pub struct SyncedMark(OnceLock<Option<Arc<dyn File>>>);

impl SyncedMark {
    /// Tells that every write up to a number is on the device, in a session. One write of 40
    /// bytes, and no sync.
    pub fn write(
        &self,
        (file_system, folder): (&dyn FileSystem, &Path),
        (store, session): (StoreId, u32),
        through: u64,
    ) {
        let path = folder.join(SYNCED_NAME);
        let open = || file_system.open(&path, OpenOptions::CREATE).ok();
        if let Some(file) = self.0.get_or_init(open) {
            _ = file.write_at(&encode(store, session, through), 0);
        }
    }
}

/// Up to which write a store was synced, in a session or before; 0 if the file does not say: it
/// is a proof beside the data, and they may be whole without it. What a later session has
/// written there is not this store's: older files were put in its folder.
///
/// # Errors
/// I/O errors of the device. An opening takes them for 0; a repair, which gives up what was not
/// synced, must not.
pub fn synced_through(
    file_system: &dyn FileSystem,
    folder: &Path,
    (store, session): (StoreId, u32),
) -> Result<u64> {
    let path = folder.join(SYNCED_NAME);
    if file_system.metadata(&path)?.is_none() {
        return Ok(0);
    }
    let mut bytes = [0; BYTES];
    let file = file_system.open(&path, OpenOptions::READ)?;
    let is_whole = file.read_at(&mut bytes, 0)? == BYTES;
    let (of, through) = (u32_at(&bytes, 24), u64_at(&bytes, 32));
    let is_ours = is_whole && bytes == encode(store, of, through) && of <= session;
    Ok(if is_ours { through } else { 0 })
}

fn encode(store: StoreId, session: u32, through: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..24].copy_from_slice(&store.0);
    bytes[24..28].copy_from_slice(&session.to_le_bytes());
    bytes[32..].copy_from_slice(&through.to_le_bytes());
    let checksum = crc32c_append(crc32c(&bytes[..28]), &bytes[32..]);
    bytes[28..32].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use cambium_io::Environment;

    #[test]
    fn a_mark_holds_for_its_store_from_its_session_on() {
        let environment = Environment::memory();
        let (files, folder) = (&*environment.file_system, Path::new("/"));
        let (own, other) = (StoreId([7; 16]), StoreId([8; 16]));
        let read = |id| synced_through(files, folder, id).unwrap();
        assert_eq!(read((own, 5)), 0);
        SyncedMark::default().write((files, folder), (own, 5), 42);
        assert_eq!([read((own, 5)), read((own, 6))], [42, 42]);
        assert_eq!([read((own, 4)), read((other, 5))], [0, 0]);
        let path = folder.join(SYNCED_NAME);
        let file = files.open(&path, OpenOptions::WRITE).unwrap();
        file.write_at(&[1], 33).unwrap();
        assert_eq!(read((own, 5)), 0, "torn");
    }
}
