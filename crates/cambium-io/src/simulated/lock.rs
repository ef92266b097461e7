//! Locks of files.

use std::path::Path;

use cambium_base::Error;

use super::disk::SimulatedDisk;
use super::image::Image;
use crate::file_system::{FileLock, LockMode, OpenOptions};

/// The holders of a lock on a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holders {
    exclusive: bool,
    shared: u32,
}

impl Holders {
    /// Takes the lock, or answers false.
    pub(super) fn take(&mut self, mode: LockMode) -> bool {
        match mode {
            LockMode::Shared | LockMode::SharedData if self.exclusive => return false,
            LockMode::Shared | LockMode::SharedData => self.shared += 1,
            _ if self.exclusive || self.shared > 0 => return false,
            LockMode::Exclusive | LockMode::Alone => self.exclusive = true,
        }
        true
    }

    /// Gives the lock back.
    fn release(&mut self, mode: LockMode) {
        match mode {
            LockMode::Exclusive | LockMode::Alone => self.exclusive = false,
            LockMode::Shared | LockMode::SharedData => {
                self.shared = self.shared.saturating_sub(1);
            }
        }
    }
}

/// A lock that is held.
#[derive(Debug)]
pub(super) struct SimulatedLock {
    pub(super) disk: SimulatedDisk,
    pub(super) node: u64,
    pub(super) mode: LockMode,
}

impl FileLock for SimulatedLock {}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut state = self.disk.shared.lock();
        if let Some(holders) = state.locks.get_mut(&self.node) {
            holders.release(self.mode);
        }
    }
}

/// The access with which a lock opens its file; a missing file of data is not made.
pub(super) fn opened_for_lock(mode: LockMode) -> OpenOptions {
    match mode {
        LockMode::Alone | LockMode::SharedData => OpenOptions::READ,
        _ => OpenOptions::CREATE,
    }
}

/// The refusal of a lock that another handle holds; `image` is of the lock file, which
/// holds a process id.
pub(super) fn locked(path: &Path, image: Option<&Image>) -> Error {
    let text = image.and_then(|image| String::from_utf8(image.to_vec()).ok());
    Error::Locked {
        path: path.to_path_buf(),
        owner: text.and_then(|text| text.trim().parse().ok()),
    }
}
