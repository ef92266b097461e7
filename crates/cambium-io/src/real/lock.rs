//! Advisory locks on a file, with the owner's process id.
//!
//! The lock (`flock`, on Windows a lock on a byte far behind every file's end) belongs to
//! the open file, not to the process: two handles of one process exclude each other, and
//! closing an unrelated handle of the same file does not release the lock, as it would
//! with `fcntl` locks. A forked process has the open file too, at least until it runs
//! another program. So an explicit call releases the lock, for every copy of the handle,
//! and a forked process never makes that call.
//!
//! The lock file holds the process id of the exclusive owner as decimal text
//! and a line feed, for messages alone; the kernel's lock decides. It is
//! emptied before the lock is given back. After a crash the id stays; it is
//! reported only while such a process runs, so that a store held by readers is
//! not blamed on a process long gone. Between taking the lock and writing the id
//! a moment passes, so whoever is refused looks for the id a few times.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use cambium_base::{Error, Result};

#[cfg(unix)]
use super::flock as system;
use super::positioned;
#[cfg(windows)]
use super::windows as system;
use crate::file_system::{FileLock, LockMode};

/// How often whoever is refused looks for the owner's id, and the time between.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// How often a lock file that goes while it is being locked is opened anew.
const MOST_TRIES: u32 = 10;

/// A held lock.
#[derive(Debug)]
pub(super) struct RealLock {
    file: File,
    mode: LockMode,
    /// The process that took it.
    process: u32,
}

impl FileLock for RealLock {}

impl RealLock {
    /// Takes the lock without waiting.
    pub(super) fn acquire(path: &Path, mode: LockMode) -> Result<Self> {
        for _ in 0..MOST_TRIES {
            let held = Self::acquire_once(path, mode)?;
            if held.is_of(path) {
                return Ok(held);
            }
        }
        Err(Error::Locked {
            path: path.to_path_buf(),
            owner: None,
        })
    }

    /// True if the path still leads to what is locked: who gives a folder back removes the
    /// file, and somebody else may have made it anew.
    fn is_of(&self, path: &Path) -> bool {
        match (system::identity(&self.file), system::identity_of(path)) {
            (Ok(held), Ok(there)) => held == there,
            (_, Err(error)) if error.kind() == ErrorKind::NotFound => false,
            // Where that cannot be told it is taken for the same.
            _ => true,
        }
    }

    fn acquire_once(path: &Path, mode: LockMode) -> Result<Self> {
        let failed = |error| Error::io("lock", path, error);
        let file = open_lock_file(path, mode).map_err(failed)?;
        let is_exclusive = matches!(mode, LockMode::Exclusive | LockMode::Alone);
        if !system::try_lock(&file, is_exclusive).map_err(failed)? {
            return Err(Error::Locked {
                path: path.to_path_buf(),
                owner: match mode {
                    // A data file holds no process id.
                    LockMode::Alone | LockMode::SharedData => None,
                    _ => find_owner(&file),
                },
            });
        }
        if mode == LockMode::Exclusive {
            // Best effort: on a full disk the store must still open, so that
            // something can be deleted; only the message loses the id.
            let _ = write_owner(&file);
        }
        Ok(RealLock {
            file,
            mode,
            process: std::process::id(),
        })
    }
}

impl Drop for RealLock {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // Forked: the lock is the other process's.
            return;
        }
        if self.mode == LockMode::Exclusive {
            // A stale id is harmless, see above.
            let _ = self.file.set_len(0);
        }
        // The close would unlock as well, were it the only one.
        system::unlock(&self.file);
    }
}

fn open_lock_file(path: &Path, mode: LockMode) -> io::Result<File> {
    let reading = || OpenOptions::new().read(true).open(path);
    let writing = |create| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).open(path)
    };
    match mode {
        // Only who may write makes the file; who may only read takes the one that is there.
        LockMode::Shared => match reading() {
            Err(error) if error.kind() == ErrorKind::NotFound => system::create_for_reading(path),
            other => other,
        },
        LockMode::SharedData => reading(),
        LockMode::Exclusive => writing(true),
        // Over NFS only who may write can have it alone. A file of data that is gone is not
        // made anew.
        LockMode::Alone => match writing(false) {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                reading()
            }
            other => other,
        },
    }
}

fn write_owner(file: &File) -> io::Result<()> {
    let text = format!("{}\n", std::process::id());
    file.set_len(0)?;
    // A few bytes at the start of a file are never written short, and a torn
    // id would only spoil a message.
    positioned::write(file, text.as_bytes(), 0)?;
    Ok(())
}

/// The process that holds the lock, waited for while it has not said so yet.
fn find_owner(file: &File) -> Option<u32> {
    for _ in 1..LOOKS {
        if let Some(owner) = read_owner(file) {
            return Some(owner);
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    read_owner(file)
}

/// The process id in a lock file, if that process runs.
fn read_owner(file: &File) -> Option<u32> {
    let mut text = [0; 16];
    let count = positioned::read(file, &mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..count)?).ok()?;
    let owner: u32 = text.strip_suffix('\n')?.parse().ok()?;
    // Other systems do not list processes as folders; the id is reported as it is.
    let processes = Path::new("/proc");
    let is_listed = cfg!(target_os = "linux") && processes.join("self").exists();
    let runs = !is_listed || processes.join(owner.to_string()).exists();
    runs.then_some(owner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot go on has failed

    use super::*;

    #[test]
    fn a_copy_of_the_open_file_in_another_process_does_not_keep_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("LOCK");
        let take = || RealLock::acquire(&path, LockMode::Exclusive);
        let lock = take().unwrap();
        // What a process has that was forked meanwhile.
        let copy = lock.file.try_clone().unwrap();
        assert!(matches!(take(), Err(Error::Locked { .. })));
        drop(lock);
        drop(take().unwrap());
        drop(copy);
    }

    #[test]
    fn a_file_of_data_is_locked_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, b"entries").unwrap();
        let take = |mode| RealLock::acquire(&path, mode);
        let lock = take(LockMode::Alone).unwrap();
        for mode in [LockMode::Alone, LockMode::SharedData] {
            assert!(matches!(take(mode), Err(Error::Locked { owner: None, .. })));
        }
        drop(lock);
        let readers = [(); 2].map(|()| take(LockMode::SharedData).unwrap());
        assert!(matches!(take(LockMode::Alone), Err(Error::Locked { .. })));
        drop(readers);
        assert_eq!(std::fs::read(&path).unwrap(), b"entries");
        std::fs::remove_file(&path).unwrap();
        for mode in [LockMode::Alone, LockMode::SharedData] {
            assert!(matches!(take(mode), Err(Error::Io { .. })));
        }
        assert!(!path.exists(), "made anew");
    }

    #[test]
    fn an_owner_that_is_about_to_write_its_id_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("LOCK");
        let lock = RealLock::acquire(&path, LockMode::Exclusive).unwrap();
        lock.file.set_len(0).unwrap();
        let refused = RealLock::acquire(&path, LockMode::Exclusive);
        assert!(matches!(refused, Err(Error::Locked { owner: None, .. })));
        // The id may be written at any time: found at once, after a look, or never.
        let id = std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                loop {
                    if let Some(owner) = find_owner(&lock.file) {
                        break owner;
                    }
                }
            });
            write_owner(&lock.file).unwrap();
            looking.join().unwrap()
        });
        assert_eq!(id, std::process::id());
        drop(lock);
    }

    #[test]
    fn a_forked_process_does_not_give_the_lock_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("LOCK");
        let lock = RealLock::acquire(&path, LockMode::Exclusive).unwrap();
        let forked = RealLock {
            file: lock.file.try_clone().unwrap(),
            mode: LockMode::Exclusive,
            process: std::process::id() + 1,
        };
        drop(forked);
        let again = RealLock::acquire(&path, LockMode::Exclusive);
        assert!(matches!(again, Err(Error::Locked { owner: Some(_), .. })));
        drop(lock);
    }
}
