//! What tests do to a disk besides using it: faults, probes, traces, rot, and
//! a look at its bytes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use super::disk::SimulatedDisk;
use super::events::Event;
use super::faults::{ArmedRule, FaultRule};
use super::image::{CHUNK_BYTES, Image};
use super::node::Node;
use super::state::State;
use super::tree::{Entry, normalize};

/// How files of a simulated disk share bytes; each step includes the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// Nothing.
    Nothing,
    /// A file can have several names.
    Names,
    /// Files can share blocks.
    Blocks,
}

/// When a probe is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before a sync of a file or folder takes effect.
    BeforeSync,
    /// After a successful one.
    AfterSync,
    /// Before a write, a change of length or space, or a change of names.
    BeforeOperation,
}

/// Which moments a probe is called at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbePoints {
    /// Before and after each sync.
    Syncs,
    /// Also before each operation that changes anything.
    Operations,
}

/// A moment at which the machine could have stopped.
#[derive(Debug)]
pub struct CrashPoint {
    /// Operations the disk had done.
    pub operation: u64,
    /// What was about to happen, or had.
    pub moment: Moment,
    /// The disk as it was then, pending changes included: a fork to crash.
    pub disk: SimulatedDisk,
}

type Callback = Box<dyn FnMut(CrashPoint) + Send>;

/// What is called at crash points, if anything is.
#[derive(Default)]
pub(super) struct Probe {
    callback: Option<(ProbePoints, Callback)>,
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Probe(set: {})", self.callback.is_some())
    }
}

impl SimulatedDisk {
    /// Plugs in a block device of `bytes`, all zeros: its length never changes, its
    /// cache is volatile until a sync, and a crash tears writes at its sectors. It has
    /// space of its own, apart from the disk's.
    ///
    /// ```
    /// use cambium_io::simulated::SimulatedDisk;
    /// use cambium_io::{FileKind, FileSystem, OpenOptions};
    /// let disk = SimulatedDisk::new(1);
    /// disk.add_device("/device".as_ref(), 1 << 20, 4096);
    /// let found = disk.metadata("/device".as_ref())?.expect("it is there");
    /// assert_eq!((found.kind, found.length), (FileKind::BlockDevice, 1 << 20));
    /// let device = disk.open("/device".as_ref(), OpenOptions::WRITE.direct())?;
    /// assert_eq!(device.alignment().offset, 4096);
    /// assert!(device.set_length(2 << 20).is_err());
    /// # Ok::<(), cambium_base::Error>(())
    /// ```
    pub fn add_device(&self, path: &Path, bytes: u64, sector_bytes: u32) {
        let mut image = Image::default();
        image.set_length(bytes);
        let mut device = Node::settled(image);
        device.sector_bytes = sector_bytes;
        let mut state = self.shared.lock();
        let number = state.next_node;
        state.next_node += 1;
        state.nodes.insert(number, Arc::new(device));
        let path = normalize(path);
        Arc::make_mut(&mut state.cached_names).set(&path, Entry::File(number));
        Arc::make_mut(&mut state.durable_names).set(&path, Entry::File(number));
    }

    /// An independent disk in the same state, pending changes included; no
    /// locks, handles, faults or probes.
    pub fn fork(&self) -> SimulatedDisk {
        let mut state = self.shared.lock().clone();
        state.locks.clear();
        state.handles.clear();
        state.rules.clear();
        SimulatedDisk::from_state(state)
    }

    /// What `kill -9` leaves: everything written is there, synced or not, and
    /// stays as it was on a later power cut. Only locks and handles go.
    pub fn process_crash(&self) -> SimulatedDisk {
        let disk = self.fork();
        disk.shared.lock().events.add(Event::ProcessCrash);
        disk
    }

    /// Adds a rule. Rules count independently; the first that meets an
    /// operation decides.
    pub fn inject(&self, rule: FaultRule) {
        self.shared.lock().rules.push(ArmedRule { rule, seen: 0 });
    }

    /// Takes all rules away.
    pub fn clear_faults(&self) {
        self.shared.lock().rules.clear();
    }

    /// Bytes of data that fit, rounded down to 4 KiB; `None` is no limit. What
    /// is stored already stays.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        let mut state = self.shared.lock();
        state.capacity = bytes.map(|bytes| bytes / CHUNK_BYTES as u64);
    }

    /// Bytes that files take, in whole chunks of 4 KiB.
    pub fn used_bytes(&self) -> u64 {
        self.shared.lock().used_chunks() * CHUNK_BYTES as u64
    }

    /// Sets how files share bytes; at first in each way.
    pub fn set_sharing(&self, sharing: Sharing) {
        self.shared.lock().shares = sharing;
    }

    /// Does long reads and writes in two parts each, so that a crash finds
    /// more borders.
    pub fn set_short_transfers(&self, on: bool) {
        self.shared.lock().short_transfers = on;
    }

    /// Calls `callback` at crash points from now on, before the operation goes
    /// on; it may use the fork it is given, not this disk.
    pub fn set_crash_probe(
        &self,
        points: ProbePoints,
        callback: impl FnMut(CrashPoint) + Send + 'static,
    ) {
        let mut probe = self
            .shared
            .probe
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        probe.callback = Some((points, Box::new(callback)));
    }

    /// Calls nothing any more.
    pub fn clear_crash_probe(&self) {
        let mut probe = self
            .shared
            .probe
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        probe.callback = None;
    }

    /// Calls the probe, if it wants this moment.
    pub(super) fn probe(&self, moment: Moment) {
        crate::sync::point();
        let mut probe = self
            .shared
            .probe
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some((points, callback)) = &mut probe.callback else {
            return;
        };
        if *points == ProbePoints::Syncs && moment == Moment::BeforeOperation {
            return;
        }
        let disk = self.fork();
        callback(CrashPoint {
            operation: self.operation_count(),
            moment,
            disk,
        });
    }

    /// Operations done so far, reads and failed ones included.
    pub fn operation_count(&self) -> u64 {
        self.shared.lock().operations
    }

    /// How often something happened to this disk, to those it was made from
    /// and to those made from it.
    pub fn event_count(&self, event: Event) -> u64 {
        self.shared.lock().events.count(event)
    }

    /// The bytes of a file as a reader sees them, or `None` where there is none.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.shared.lock();
        let node = file_at(&state, path)?;
        state.node(node).map(|node| node.cached.to_vec())
    }

    /// Paths of all files, sorted, from the root.
    pub fn files(&self) -> Vec<PathBuf> {
        let files = self.shared.lock().files();
        let rooted = files.into_iter().map(|(path, _)| Path::new("/").join(path));
        rooted.collect()
    }

    /// Puts a file on the disk behind everybody's back, durable; its folder
    /// must be there. False if it is not.
    pub fn replace_contents(&self, path: &Path, bytes: &[u8]) -> bool {
        let mut state = self.shared.lock();
        let Some(node) = file_at(&state, path) else {
            return false;
        };
        let mut image = Image::default();
        image.write(bytes, 0);
        state.nodes.insert(node, Arc::new(Node::settled(image)));
        true
    }

    /// Flips one bit, in the cache and on the device. False if the file does
    /// not reach so far.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u32) -> bool {
        self.damage(path, offset, |byte| byte ^ (1 << (bit % 8)))
    }

    /// Changes one byte, in the cache and on the device. False if the file
    /// does not reach so far.
    pub fn damage(&self, path: &Path, offset: u64, change: impl Fn(u8) -> u8) -> bool {
        let mut state = self.shared.lock();
        let Some(number) = file_at(&state, path) else {
            return false;
        };
        let node = state.node_mut(number);
        for image in [&mut node.durable, &mut node.cached] {
            let mut byte = [0];
            if image.read(&mut byte, offset) == 1 {
                image.write(&[change(byte[0])], offset);
            }
        }
        let reached = offset < node.cached.length();
        if reached {
            state.events.add(Event::BitFlipped);
        }
        reached
    }

    /// Makes the sector that holds `offset` one that cannot be read: reads of it
    /// answer an I/O error until it is written whole. Crash images keep it so.
    /// False if the file does not reach so far.
    pub fn make_unreadable(&self, path: &Path, offset: u64) -> bool {
        let mut state = self.shared.lock();
        let Some(number) = file_at(&state, path) else {
            return false;
        };
        let node = state.node_mut(number);
        let reached = offset < node.cached.length();
        if reached {
            let sector = offset / node.tears_at();
            node.unreadable.insert(sector);
        }
        reached
    }
}

fn file_at(state: &State, path: &Path) -> Option<u64> {
    match state.cached_names.get(&normalize(path)) {
        Some(Entry::File(node)) => Some(node),
        _ => None,
    }
}
