//! The disk itself: names, locks and handles.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cambium_base::{Error, Result};

use super::control::{Moment, Probe, Sharing};
use super::events::{Event, Events};
use super::faults::{ErrorNumber, Fault};
use super::file::SimulatedFile;
use super::image::CHUNK_BYTES;
use super::lock::{SimulatedLock, locked, opened_for_lock};
use super::node::{Change, Fate, NameAction};
use super::random::Generator;
use super::state::{State, fail_sync};
use super::tree::{Entry, normalize, parent, refuse};
use crate::batch::{BatchOptions, ReadQueue};
use crate::file_system::{
    DirectoryEntry, File, FileKind, FileLock, FileSystem, LockMode, Metadata, OpenOptions, Space,
};
use crate::inline_queue::InlineReadQueue;

/// The process id simulated owners write into lock files: a real one would
/// make images differ from run to run.
const SIMULATED_PROCESS: &str = "1";

/// A disk in memory that can be crashed. Clones are handles of one disk;
/// [`SimulatedDisk::fork`], [`SimulatedDisk::crash`] and
/// [`SimulatedDisk::process_crash`] make new ones.
///
/// ```
/// use cambium_io::simulated::{CrashStyle, SimulatedDisk};
/// use cambium_io::{FileSystem, OpenOptions};
/// # fn main() -> cambium_base::Result<()> {
/// let disk = SimulatedDisk::new(1);
/// let file = disk.open("/a".as_ref(), OpenOptions::CREATE)?;
/// disk.sync_directory("/".as_ref())?;
/// file.write_at(b"synced", 0)?;
/// file.sync_data()?;
/// file.write_at(b"lost!!", 0)?;
///
/// let after = disk.crash(CrashStyle::NothingUnsynced, 7);
/// assert_eq!(after.contents("/a".as_ref()).as_deref(), Some(&b"synced"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    pub(super) shared: Arc<Shared>,
}

/// What the handles of one disk share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) probe: Mutex<Probe>,
}

impl Shared {
    /// A panic elsewhere cannot leave the state torn: every change is one call.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimulatedDisk {
    /// An empty disk; its faults, short transfers and read orders follow from
    /// `seed`.
    pub fn new(seed: u64) -> Self {
        Self::from_state(State::new(seed, Arc::new(Events::default())))
    }

    /// Files in memory alone, for examples and quick tests: there is no device below the
    /// cache, so a sync has nothing to do and no change is kept for a crash.
    pub fn memory() -> Self {
        let mut state = State::new(0, Arc::new(Events::default()));
        state.cache_only = true;
        Self::from_state(state)
    }

    pub(super) fn from_state(state: State) -> Self {
        SimulatedDisk {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                probe: Mutex::default(),
            }),
        }
    }

    /// Files whose bytes are kept, with a name or without.
    #[cfg(test)]
    pub(super) fn kept_files(&self) -> usize {
        self.shared.lock().nodes.len()
    }

    /// Runs a change of names between its probe, its faults and the trace.
    fn name_operation(
        &self,
        event: Event,
        operation: &'static str,
        path: &Path,
        run: impl FnOnce(&mut State) -> Result<()>,
    ) -> Result<()> {
        self.probe(Moment::BeforeOperation);
        let mut state = self.shared.lock();
        state.admit(event, operation, path)?;
        run(&mut state)
    }

    /// The file of a path, and the state under whose lock it was found or made.
    fn open_node(&self, path: &Path, options: OpenOptions) -> Result<(u64, MutexGuard<'_, State>)> {
        let mut state = self.shared.lock();
        let makes = options.create || options.create_new;
        if makes && state.cached_names.get(path).is_none() {
            drop(state);
            self.probe(Moment::BeforeOperation);
            state = self.shared.lock();
        }
        let node = match state.cached_names.get(path) {
            Some(Entry::Directory) => Err(refuse("open", path, ErrorKind::IsADirectory)),
            Some(Entry::File(_)) if options.create_new => {
                Err(refuse("open", path, ErrorKind::AlreadyExists))
            }
            Some(Entry::File(node)) => Ok(node),
            None if makes => {
                state.cached_names.check_parent("create", path)?;
                state.admit(Event::Create, "create", path)?;
                Ok(state.link(path))
            }
            None => Err(refuse("open", path, ErrorKind::NotFound)),
        };
        Ok((node?, state))
    }
}

impl FileSystem for SimulatedDisk {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        let plain = normalize(path);
        let (node, mut state) = self.open_node(&plain, options)?;
        let length = state.node(node).map_or(0, |node| node.cached.length());
        if options.truncate && length > 0 && state.sector_bytes(node) == 0 {
            state.admit(Event::SetLength, "truncate", &plain)?;
            state.change(node, Change::SetLength(0), Fate::Kept);
        }
        *state.handles.entry(node).or_default() += 1;
        drop(state);
        let disk = self.clone();
        Ok(Arc::new(SimulatedFile::new(disk, node, path, options)))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        let path = normalize(path);
        self.name_operation(Event::CreateDirectory, "create folder", &path, |state| {
            state.cached_names.check_create_directory(&path)?;
            let action = NameAction::MakeDirectory { path: path.clone() };
            state.rename_in_cache(parent(&path), action);
            Ok(())
        })
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let path = normalize(path);
        self.name_operation(Event::RemoveDirectory, "remove folder", &path, |state| {
            state.cached_names.check_remove_directory(&path)?;
            let action = NameAction::Unlink { path: path.clone() };
            state.rename_in_cache(parent(&path), action);
            Ok(())
        })
    }

    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        let path = normalize(path);
        self.shared.lock().cached_names.list("list", &path)
    }

    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        let state = self.shared.lock();
        let entry = state.cached_names.get(&normalize(path));
        Ok(entry.map(|entry| match entry {
            Entry::Directory => Metadata {
                kind: FileKind::Directory,
                length: 0,
                allocated: 0,
                links: 1,
            },
            Entry::File(node) => Metadata {
                kind: match state.sector_bytes(node) {
                    0 => FileKind::File,
                    _ => FileKind::BlockDevice,
                },
                length: state.node(node).map_or(0, |node| node.cached.length()),
                allocated: state
                    .node(node)
                    .map_or(0, |node| node.cached.allocated_bytes()),
                links: state
                    .cached_names
                    .files()
                    .filter(|&other| other == node)
                    .count() as u64,
            },
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (normalize(from), normalize(to));
        self.name_operation(Event::Rename, "rename", &to, |state| {
            state.cached_names.check_rename(&from, &to)?;
            let (source, target) = (from.clone(), to.clone());
            let action = match state.cached_names.get(&from) {
                Some(Entry::File(node)) => NameAction::RenameFile {
                    from: source,
                    to: target,
                    node,
                },
                _ => NameAction::Rename {
                    from: source,
                    to: target,
                },
            };
            state.rename_in_cache(parent(&to), action);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let path = normalize(path);
        self.name_operation(Event::Remove, "remove", &path, |state| {
            state.cached_names.file("remove", &path)?;
            let action = NameAction::Unlink { path: path.clone() };
            state.rename_in_cache(parent(&path), action);
            Ok(())
        })
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        let (from, to) = (normalize(from), normalize(to));
        if self.shared.lock().shares < Sharing::Names {
            return Ok(false);
        }
        self.name_operation(Event::Link, "link", &to, |state| {
            let node = state.cached_names.file("link", &from)?;
            state.cached_names.check_new("link", &to)?;
            let path = to.clone();
            state.rename_in_cache(parent(&to), NameAction::Link { path, node });
            Ok(())
        })?;
        Ok(true)
    }

    fn clone_file(&self, from: &Path, to: &Path, length: u64) -> Result<bool> {
        let (from, to) = (normalize(from), normalize(to));
        if self.shared.lock().shares < Sharing::Blocks {
            return Ok(false);
        }
        self.name_operation(Event::CloneFile, "clone", &to, |state| {
            let node = state.cached_names.file("clone", &from)?;
            state.cached_names.check_new("clone", &to)?;
            let mut bytes = vec![0; length as usize];
            let image = state.node(node).map(|node| node.cached.clone());
            let count = image.map_or(0, |image| image.read(&mut bytes, 0));
            bytes.truncate(count);
            let copy = state.link(&to);
            if state.room(copy, 0, length) < length {
                state.events.add(Event::DiskFull);
                let action = NameAction::Unlink { path: to.clone() };
                state.rename_in_cache(parent(&to), action);
                return Err(full("clone", &to));
            }
            let bytes = bytes.into();
            state.change(copy, Change::Write { offset: 0, bytes }, Fate::Kept);
            state.change(copy, Change::SetLength(length), Fate::Kept);
            Ok(())
        })?;
        Ok(true)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        let path = normalize(path);
        self.probe(Moment::BeforeSync);
        {
            let mut state = self.shared.lock();
            let fault = state.admit(Event::SyncDirectory, "sync folder", &path)?;
            if !state.cached_names.is_directory(&path) {
                return Err(refuse("sync folder", &path, ErrorKind::NotFound));
            }
            match fault {
                Some(Fault::SyncLies) => state.events.add(Event::SyncLied),
                Some(Fault::SyncDropsPages(number) | Fault::SyncKeepsPages(number)) => {
                    state.events.add(Event::ErrorInjected);
                    return Err(fail_sync("sync folder", &path, number));
                }
                _ => state.sync_names(&path),
            }
        }
        self.probe(Moment::AfterSync);
        Ok(())
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        let plain = normalize(path);
        let (node, mut state) = self.open_node(&plain, opened_for_lock(mode))?;
        if !state.locks.entry(node).or_default().take(mode) {
            return Err(locked(path, state.node(node).map(|node| &node.cached)));
        }
        if mode == LockMode::Exclusive {
            if state.room(node, 0, 1) == 0 {
                // A full disk keeps the lock and loses only the owner's name.
                state.events.add(Event::DiskFull);
            } else {
                let bytes = SIMULATED_PROCESS.as_bytes().into();
                state.change(node, Change::SetLength(0), Fate::Kept);
                state.change(node, Change::Write { offset: 0, bytes }, Fate::Kept);
            }
        }
        drop(state);
        Ok(Box::new(SimulatedLock {
            disk: self.clone(),
            node,
            mode,
        }))
    }

    fn space(&self, _path: &Path) -> Result<Space> {
        let state = self.shared.lock();
        let total = state.capacity.unwrap_or(1 << 30);
        let free = total.saturating_sub(state.used_chunks());
        Ok(Space {
            available: free * CHUNK_BYTES as u64,
            total: total * CHUNK_BYTES as u64,
        })
    }

    fn read_queue(&self, options: BatchOptions) -> Result<Box<dyn ReadQueue>> {
        let seed = self.shared.lock().generator.next_u64();
        let generator = Generator::new(seed);
        Ok(Box::new(InlineReadQueue::new(options, Some(generator))?))
    }
}

/// The refusal of a disk that is full.
pub(super) fn full(operation: &'static str, path: &Path) -> Error {
    Error::io(operation, path, ErrorNumber::NoSpace.to_error())
}
