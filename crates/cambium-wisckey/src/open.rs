//! Making and opening stores.
//!
//! A store is made from the inside out: the tree, the superblock, the folder
//! synced, and the marker last. A crash before that leaves a folder that is no
//! store, which `create` takes over ([`cambium_storage::creation`]). The first segment comes with the first write.
//!
//! Opening reads the marker, the superblock, the manifest of the tree with its
//! notes, and the header of each segment. After a clean close that is all, however
//! large the store is; otherwise recovery runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use cambium_api::{OptionValues, ProgressSink, RecentWrites};
use cambium_base::{Error, Result, StoreId};
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use cambium_io::sync::{Mutex, OnceLock, RwLock};
use cambium_io::{Environment, FileKind, FileLock, FileSystem, LockMode, OpenOptions};
use cambium_lsm::Tree;
use cambium_storage::commit_queue::CommitQueue;
use cambium_storage::consumers::Consumers;
use cambium_storage::creation::{self, Creation, Making};
use cambium_storage::health::Health;
use cambium_storage::marker::Marker;
use cambium_storage::store_lock::lock_store;
use cambium_storage::superblock::{self, Superblock};
use cambium_storage::synced_mark::{SYNCED_NAME, SyncedMark};

use crate::collect::Collector;
use crate::core::{Core, Maintenance, lock};
use crate::format::{self, FORMAT_VERSION, Root, SegmentKind};
use crate::ledger::{Ledger, LedgerState};
use crate::names::Names;
use crate::note::{Head, Traffic};
use crate::options::{ENGINE, OPTIONS, Shape, Tuning};
use crate::reserve::{RESERVE_NAME, Reserve};
use crate::seeded_bug::SeededBug;
use crate::segment::{Home, Segment, Segments, check_unit};
use crate::stats::Counters;
use crate::value_log::Writer;

/// The engine, and the newest version of its format.
pub(crate) const FORMAT: (&str, u32) = (ENGINE, FORMAT_VERSION);

/// The lock file's name.
pub(crate) const LOCK_NAME: &str = "LOCK";

/// Makes everything of a store but its marker, durable when it returns, and opens it.
pub(crate) fn make(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
) -> Result<Making<Arc<Core>>> {
    let mut options = options.clone();
    let memory = crate::memory::plan(environment, &mut options)?;
    let shape = Shape::take(&mut options)?;
    let tuning = Tuning::take(&mut options)?.within(&memory);
    options.finish(ENGINE, OPTIONS)?;
    let marker = Marker::of_new(environment, ENGINE, FORMAT_VERSION);
    let store = marker.store;
    let file_system = &environment.file_system;
    let (creation, held) = Creation::begin(file_system, path, marker, is_ours)?;
    let filled = fill(environment, path, shape, tuning, (store, held));
    let filled = filled.inspect(|core| _ = core.memory.set(memory));
    Ok(Making { creation, filled })
}

/// Makes everything that belongs into the folder of a new store, and opens it.
fn fill(
    environment: &Environment,
    path: &Path,
    shape: Shape,
    tuning: Tuning,
    (store, held): (StoreId, Box<dyn FileLock>),
) -> Result<Arc<Core>> {
    let root = Root::default();
    let keys = path.join(root.tree_folder());
    let tree_options = tuning.tree_options(environment);
    let cache = &tree_options.block_cache;
    let home = Home::new(&environment.file_system, path, store, &tuning, cache, true);
    let first = LedgerState {
        head: Head {
            segment: 1,
            ..Head::default()
        },
        next_file: 1,
        namespaces: BTreeMap::from([(0, String::new())]),
        ..LedgerState::default()
    };
    let ledger = Ledger::new(keys.clone(), first, tuning.hole_rule(&shape));
    let tree = Tree::create(
        environment,
        &keys,
        home.store,
        &tree_options,
        ledger.clone(),
    )?;
    let superblock = Superblock::create(
        &environment.file_system,
        path,
        home.store,
        FORMAT_VERSION,
        &shape_and_root(&shape, &root),
    )?;
    if tuning.direct {
        // Before there is a store, not by its first segment.
        let path = superblock::copy_path(path, 0);
        let options = OpenOptions::READ.direct();
        let file = environment.file_system.open(&path, options)?;
        check_unit(
            &path,
            file.alignment(),
            format::geometry(&shape, &tuning).block,
        )?;
    }
    let parts = Parts {
        consumers: Consumers::read(&*environment.file_system, path, store)?,
        home,
        shape,
        tuning,
        tree,
        ledger,
        segments: Segments::new(),
        maintenance: Maintenance {
            root,
            superblock,
            cut_unflushed: false,
        },
        held,
    };
    Ok(assemble(environment, parts))
}

/// Opens a store, recovering it where it was not closed.
pub(crate) fn open(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<Arc<Core>> {
    let mut options = options.clone();
    let memory = crate::memory::plan(environment, &mut options)?;
    let (tuning, fixed) = Tuning::of_opening(&options)?;
    let tuning = tuning.within(&memory);
    let file_system = &*environment.file_system;
    let (marker, held) = lock_store(file_system, path, FORMAT, LockMode::Exclusive)?;
    creation::settle(file_system, path)?;
    let core = attach(environment, path, marker.store, tuning, (held, true), None)?;
    _ = core.memory.set(memory);
    fixed.check_fixed(&core.shape.as_options())?;
    core.find_reserve()?;
    let clean = lock(&core.maintenance).root.clean;
    if clean {
        core.go_on_where_closed()?;
    } else {
        lock(&core.maintenance).superblock.confirm_named()?;
        core.recover(progress, None)?;
    }
    core.remove_leftovers()?;
    if lock(&core.maintenance).cut_unflushed {
        // Those may have been what the disk was full of. If not, the store is
        // open for reading.
        let settled = core.begin_session();
        settled.or_else(|error| {
            if error.is_no_space() {
                Ok(())
            } else {
                Err(error)
            }
        })?;
    }
    Ok(core)
}

/// Opens a store for reading alone, and changes no data. Other readers may do the
/// same, and no process writes meanwhile. The writes in the log that no table has go into the memtable, each time
/// again.
pub(crate) fn open_read_only(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<Arc<Core>> {
    let mut options = options.clone();
    let memory = crate::memory::plan(environment, &mut options)?;
    let (tuning, fixed) = Tuning::of_opening(&options)?;
    let tuning = tuning.within(&memory);
    let file_system = &*environment.file_system;
    let (marker, held) = lock_store(file_system, path, FORMAT, LockMode::Shared)?;
    let core = attach(environment, path, marker.store, tuning, (held, false), None)?;
    _ = core.memory.set(memory);
    fixed.check_fixed(&core.shape.as_options())?;
    if !lock(&core.maintenance).root.clean {
        core.recover_in_memory(progress)?;
    }
    Ok(core)
}

/// Opens a store as far as it can be: what is damaged goes into `lost`.
pub(crate) fn open_damaged(
    environment: &Environment,
    path: &Path,
    (store, tuning): (StoreId, Tuning),
    held: Box<dyn FileLock>,
    lost: &mut Vec<Error>,
    progress: &dyn ProgressSink,
) -> Result<Arc<Core>> {
    let core = attach(environment, path, store, tuning, (held, true), Some(lost))?;
    let clean = lock(&core.maintenance).root.clean;
    if clean {
        core.go_on_where_closed()?;
    } else {
        core.recover(progress, Some(lost))?;
    }
    Ok(core)
}

/// Reads superblock, manifest and segments' headers, and nothing else; writes
/// nothing. Used by openings and by the check. Segments that cannot be
/// opened fail it, or go into `lost`.
pub(crate) fn attach(
    environment: &Environment,
    path: &Path,
    store: StoreId,
    tuning: Tuning,
    (held, writable): (Box<dyn FileLock>, bool),
    lost: Option<&mut Vec<Error>>,
) -> Result<Arc<Core>> {
    let content = superblock::read(&*environment.file_system, path, &store, FORMAT_VERSION)?;
    let (shape, root) = decode_root(&content.payload).ok_or_else(|| {
        Error::corruption(
            superblock::copy_path(path, content.copy),
            superblock::SUPERBLOCK_HEADER_BYTES as u64,
            "the superblock's checksum matches, and its payload is of no format known here",
        )
    })?;
    let superblock = Superblock::resume(
        &environment.file_system,
        path,
        store,
        FORMAT_VERSION,
        &content,
    );
    let tree_options = tuning.tree_options(environment);
    let cache = &tree_options.block_cache;
    let file_system = &environment.file_system;
    let home = Home::new(file_system, path, store, &tuning, cache, writable);
    let keys = path.join(root.tree_folder());
    let rule = tuning.hole_rule(&shape);
    let ledger = Ledger::new(keys.clone(), LedgerState::default(), rule);
    let tree = Tree::open(environment, &keys, store, &tree_options, ledger.clone())?;
    let segments = open_known_segments(&home, &ledger, &shape, &tuning, lost)?;
    let consumers = Consumers::read(&*environment.file_system, path, store)?;
    ledger.state().needed_after = consumers.oldest().map(|oldest| oldest.0);
    let parts = Parts {
        consumers,
        home,
        shape,
        tuning,
        tree,
        ledger,
        segments,
        maintenance: Maintenance {
            root,
            superblock,
            cut_unflushed: false,
        },
        held,
    };
    Ok(assemble(environment, parts))
}

/// Opens the segments that the manifest knows.
fn open_known_segments(
    home: &Home,
    ledger: &Ledger,
    shape: &Shape,
    tuning: &Tuning,
    mut lost: Option<&mut Vec<Error>>,
) -> Result<Segments> {
    let accounts = ledger.state().segments.clone();
    let mut segments = Segments::new();
    for (number, account) in accounts {
        let opened = Segment::open(home, number, shape, tuning, Some(account.end));
        let segment = match (opened, &mut lost) {
            (Ok(segment), _) => segment,
            (Err(error), Some(lost)) => {
                lost.push(error);
                continue;
            }
            (Err(error), None) => return Err(error),
        };
        segment
            .value_bytes
            .store(account.value_bytes, Ordering::Relaxed);
        segment.last_sequence.store(account.last, Ordering::Relaxed);
        segments.insert(number, Arc::new(segment));
    }
    Ok(segments)
}

/// Removes the files of a folder, if it is there, and the folder.
pub(crate) fn remove_files(file_system: &dyn FileSystem, folder: &Path) -> Result<()> {
    if file_system.metadata(folder)?.is_none() {
        return Ok(());
    }
    for entry in file_system.list(folder)? {
        if entry.kind == FileKind::File {
            file_system.remove(&folder.join(&entry.name))?;
        }
    }
    file_system.remove_directory(folder)
}

/// True for names that a `wisckey` store gives to its files.
pub(crate) fn is_ours(name: &str) -> bool {
    name == LOCK_NAME
        || name == RESERVE_NAME
        || name == SYNCED_NAME
        || format::TREE_FOLDERS.contains(&name)
        || superblock::is_copy(name)
        || is_file_of_tree(name)
        || format::segment_number(name).is_some()
}

/// True for files in a folder of the tree.
fn is_file_of_tree(name: &str) -> bool {
    let within = name
        .split_once('/')
        .filter(|(folder, _)| format::TREE_FOLDERS.contains(folder));
    within.is_some_and(|(_, name)| superblock::is_copy(name) || cambium_lsm::is_file_of_tree(name))
}

struct Parts {
    consumers: Consumers,
    home: Home,
    shape: Shape,
    tuning: Tuning,
    tree: Arc<Tree>,
    ledger: Arc<Ledger>,
    segments: Segments,
    maintenance: Maintenance,
    held: Box<dyn FileLock>,
}

fn assemble(environment: &Environment, parts: Parts) -> Arc<Core> {
    let (ledger, tree, tuning) = (parts.ledger, parts.tree, parts.tuning);
    let (writer, names, traffic) = {
        let state = ledger.state();
        let writer = Writer {
            next_sequence: state.head.sequence + 1,
            synced_through: state.head.sequence,
            session: parts.maintenance.root.session,
            next_namespace: state.next_namespace.max(1),
            next_file: state.next_file,
            ..Writer::default()
        };
        let names = Names::of(&state);
        ledger.visible.store(state.head.sequence, Ordering::Release);
        ledger.synced.store(state.head.sequence, Ordering::Release);
        (writer, names, state.traffic)
    };
    let table_bytes = tree.statistics().table_bytes();
    let health = Health::of(ENGINE, parts.home.writable)
        .forgetting(tuning.seeded_bug.is(SeededBug::SyncRetried));
    let core = Arc::new(Core {
        environment: environment.clone(),
        path: parts.home.folder.clone(),
        home: parts.home,
        shape: parts.shape,
        memory: OnceLock::new(),
        tuning,
        tree,
        ledger,
        segments: ArcSwap::from_pointee(parts.segments),
        names: ArcSwap::from_pointee(names),
        collection: Mutex::new(Collector::default()),
        maintenance: Mutex::new(parts.maintenance),
        writer: Mutex::new(writer),
        queue: CommitQueue::default(),
        gone: Mutex::default(),
        sharing: Mutex::default(),
        log_sync: Mutex::default(),
        syncing: Mutex::default(),
        health,
        consumers: parts.consumers,
        moving_consumer: Mutex::default(),
        recent: RecentWrites::default(),
        reserve: Reserve::default(),
        synced_mark: SyncedMark::default(),
        stuck: Mutex::new(None),
        collection_waits: AtomicBool::new(false),
        session_begun: AtomicBool::new(false),
        cancels: AtomicU64::new(0),
        stepping: RwLock::default(),
        counters: Counters {
            before: Traffic {
                // A flush notes what was written before itself.
                tree_bytes: traffic.tree_bytes.max(table_bytes),
                ..traffic
            },
            ..Counters::default()
        },
        lock: Mutex::new(Some(parts.held)),
        range_pool: OnceLock::new(),
        background: OnceLock::new(),
    });
    _ = core.ledger.core.set(Arc::downgrade(&core));
    core.set_pace(&mut lock(&core.writer), 0);
    core
}

impl Core {
    /// The log goes on where the close left it.
    fn go_on_where_closed(&self) -> Result<()> {
        let head = self.ledger.state().head;
        let mut writer = lock(&self.writer);
        if let Some(segment) = self.segment(head.segment) {
            if segment.kind == SegmentKind::Written && segment.log.end() == head.offset {
                segment.file.keep()?;
                segment.last_sequence.store(0, Ordering::Release);
                writer.active = Some(segment);
            }
        }
        Ok(())
    }

    /// Removes files that nothing points into: what a crash left of a collection,
    /// and segments that were dropped. The one at the head stays, also without a header: a
    /// disk that is full may keep recovery from moving the head.
    fn remove_leftovers(&self) -> Result<()> {
        let head = self.ledger.state().head.segment;
        for number in self.home.segment_numbers()? {
            if self.segment(number).is_none() && number != head {
                let path = format::segment_path(&self.path, number);
                self.environment.file_system.remove(&path)?;
            }
            let mut writer = lock(&self.writer);
            writer.next_file = writer.next_file.max(number.saturating_add(1));
        }
        self.tree.remove_unknown_files()?;
        // A repair that was killed may leave the tree that the store does not use.
        let root = lock(&self.maintenance).root;
        let other = self.path.join(root.other_tree().tree_folder());
        remove_files(&*self.environment.file_system, &other)
    }

    /// The superblock's payload.
    pub fn root_payload(&self, root: &Root) -> Vec<u8> {
        shape_and_root(&self.shape, root)
    }
}

fn shape_and_root(shape: &Shape, root: &Root) -> Vec<u8> {
    Root {
        block_bytes: shape.block_bytes,
        ..*root
    }
    .encode()
    .to_vec()
}

/// Shape and root of the superblock's payload.
pub(crate) fn decode_root(payload: &[u8]) -> Option<(Shape, Root)> {
    let root = Root::decode(payload)?;
    let block_bytes = root.block_bytes;
    Some((Shape { block_bytes }, root))
}
