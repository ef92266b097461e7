//! Making and opening stores.
//!
//! A store is made from the inside out: database file with its first header,
//! superblock, folder synced, and the marker last. A crash before that leaves a
//! folder that is no store, which `create` takes over ([`cambium_storage::creation`]).
//!
//! Opening reads the marker, the superblock, the file's first block and the
//! newest header. After a clean close that is all, however large the store is;
//! otherwise recovery runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use cambium_api::{OptionValues, ProgressSink, RecentWrites};
use cambium_base::{Error, FileNumber, Result, StoreId};
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use cambium_io::sync::{Mutex, OnceLock};
use cambium_io::{Environment, FileLock, FileSystem, LockMode};
use cambium_storage::commit_queue::CommitQueue;
use cambium_storage::creation::{self, Creation, Making};
use cambium_storage::health::Health;
use cambium_storage::marker::{self, Marker};
use cambium_storage::store_lock::lock_store;
use cambium_storage::superblock::{self, Superblock};

use crate::addresses::Known;
use crate::buffer::Buffer;
use crate::changes::History;
use crate::core::{Core, Maintenance, Writer, lock};
use crate::counters::Counters;
use crate::database::{Database, Home};
use crate::document::DOCUMENT_ALIGNMENT;
use crate::format::{
    self, DatabaseHeader, FORMAT_VERSION, FileRef, KeptFile, NamespaceRoot, Root, header_record,
};
use crate::index::Index;
use crate::options::{ENGINE, OPTIONS, Shape, Tuning};
use crate::recovery::{FoundHeader, header_at};
use crate::repair::SCRATCH_NAME;
use crate::seeded_bug::SeededBug;
use crate::upkeep::PutOff;
use crate::view::{Roots, View};

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
    let tuning = Tuning::take(&mut options)?;
    options.finish(ENGINE, OPTIONS)?;
    let environment = &tuning.segmented(environment);
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
    let home = Home::new(environment, path, store, true, &tuning);
    let file = FileRef {
        number: FileNumber(1),
        salt: environment.randomness.next_u64(),
    };
    let made = begin_file(&home, file, &shape, &tuning)?;
    let superblock = Superblock::create(
        &environment.file_system,
        path,
        home.store,
        FORMAT_VERSION,
        &made.root.encode(),
    )?;
    let maintenance = Maintenance::new(made.root, superblock, made.header);
    assemble(
        environment,
        home,
        tuning,
        made.database,
        maintenance,
        Some(held),
    )
}

/// A first database file with an empty header, synced.
struct FirstFile {
    database: Database,
    root: Root,
    header: DatabaseHeader,
}

fn begin_file(home: &Home, file: FileRef, shape: &Shape, tuning: &Tuning) -> Result<FirstFile> {
    let database = Database::create(home, file, shape, tuning)?;
    let offset = shape.first_offset();
    let mut header = DatabaseHeader {
        next_namespace: 1,
        namespaces: vec![(0, String::new(), NamespaceRoot::default())],
        ..DatabaseHeader::default()
    };
    let record = header_record(0, 0, 0, false);
    let bytes = record.record_bytes(header.encode().len() as u64, DOCUMENT_ALIGNMENT);
    header.replay_from = (offset + bytes).next_multiple_of(database.log.geometry().block);
    database.log.append(&record, &[&header.encode()]);
    database.log.pad_to_block();
    database.log.flush()?;
    database.log.sync()?;
    let root = Root {
        file,
        next_file: file.number.0 + 1,
        header: offset,
        end: database.log.end(),
        session: 0,
        clean: true,
        spare_header: 0,
        synced_through: 0,
        keeps_damaged: false,
        may_be_older: false,
        shape: Some(*shape),
    };
    Ok(FirstFile {
        database,
        root,
        header,
    })
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
    let environment = &tuning.segmented(environment);
    let file_system = &*environment.file_system;
    let (marker, held) = lock_store(file_system, path, FORMAT, LockMode::Exclusive)?;
    creation::settle(file_system, path)?;
    let core = attach(environment, path, marker.store, tuning, (held, true))?;
    _ = core.memory.set(memory);
    fixed.check_fixed(&core.shape.as_options())?;
    make_ready(&core, false, progress)?;
    Ok(core)
}

/// Recovers a store that was attached for writing, where it was not closed. `is_synced` is
/// that of [`Core::recover`].
pub(crate) fn make_ready(core: &Core, is_synced: bool, progress: &dyn ProgressSink) -> Result<()> {
    let clean = lock(&core.maintenance).root.clean;
    if !clean {
        lock(&core.maintenance).superblock.confirm_named()?;
    }
    core.remove_leftovers()?;
    if !clean {
        core.recover(is_synced, progress)?;
    }
    core.owe_what_was_cleaned();
    Ok(())
}

/// Reads superblock and header, and nothing else; writes nothing. Used by
/// `open` and by what only reads.
pub(crate) fn attach(
    environment: &Environment,
    path: &Path,
    store: StoreId,
    tuning: Tuning,
    (held, writable): (Box<dyn FileLock>, bool),
) -> Result<Arc<Core>> {
    let (superblock, root) = read_root(environment, path, store)?;
    let home = Home::new(environment, path, store, writable, &tuning);
    let end = root.clean.then_some(root.end);
    // What only reads goes on without the file's first block; an opening does not.
    let shape = root.shape.filter(|_| !writable);
    let database = Database::open(&home, root.file, &tuning, end, shape)?;
    let maintenance = newest_state(&database, superblock, root)?;
    let mut tuning = tuning;
    if let Some(percent) = database
        .shape
        .compaction_threshold
        .filter(|_| !tuning.threshold_chosen)
    {
        tuning.compaction.threshold = u64::from(percent);
    }
    assemble(environment, home, tuning, database, maintenance, Some(held))
}

/// The superblock of a store, and what it says.
pub(crate) fn read_root(
    environment: &Environment,
    path: &Path,
    store: StoreId,
) -> Result<(Superblock, Root)> {
    let content = superblock::read(&*environment.file_system, path, &store, FORMAT_VERSION)?;
    let mut root = Root::decode(&content.payload).ok_or_else(|| {
        Error::corruption(
            superblock::copy_path(path, content.copy),
            superblock::SUPERBLOCK_HEADER_BYTES as u64,
            "the superblock's checksum matches, and its payload is of no format known here",
        )
    })?;
    root.may_be_older = content.other_copy.is_some();
    let superblock = Superblock::resume(
        &environment.file_system,
        path,
        store,
        FORMAT_VERSION,
        &content,
    );
    Ok((superblock, root))
}

/// What the newest header of a file says.
pub(crate) fn newest_state(
    database: &Database,
    superblock: Superblock,
    mut root: Root,
) -> Result<Maintenance> {
    root.shape = Some(database.shape);
    let (offset, record, mut header) = newest_header(database, &root)?;
    if offset != root.header || root.may_be_older {
        // A later flush may have written over what earlier trees reach.
        header.trees_from = offset;
    }
    if offset != root.header {
        // What follows the older header is replayed instead.
        root.clean = false;
        root.header = offset;
        root.spare_header = 0;
    }
    Ok(Maintenance {
        header_end: offset + record.total_bytes(database.log.geometry().alignment),
        read_to: root.end,
        ..Maintenance::new(root, superblock, header)
    })
}

/// The header that the superblock names, or the one that leads to the same
/// state. Any other may lack a rollback or a named snapshot.
fn newest_header(database: &Database, root: &Root) -> Result<FoundHeader> {
    if let Some(found) = header_at(database, root.header)? {
        return Ok(found);
    }
    let spare = match root.spare_header {
        0 => None,
        offset => header_at(database, offset)?,
    };
    spare.ok_or_else(|| {
        database.damage(
            root.header,
            "the newest database header does not match its checksum, and there is no other that leads to the same state",
        )
    })
}

/// The marker of a `forest` store of a version this program reads.
pub(crate) fn read_marker(file_system: &dyn FileSystem, path: &Path) -> Result<Marker> {
    marker::read_marker_of(file_system, path, ENGINE, FORMAT_VERSION)
}

/// True for names that a `forest` store gives to its files.
pub(crate) fn is_ours(name: &str) -> bool {
    name == LOCK_NAME
        || name == SCRATCH_NAME
        || superblock::is_copy(name)
        || format::is_database_or_scratch(name)
}

pub(crate) fn assemble(
    environment: &Environment,
    home: Home,
    tuning: Tuning,
    database: Database,
    maintenance: Maintenance,
    held: Option<Box<dyn FileLock>>,
) -> Result<Arc<Core>> {
    let header = &maintenance.header;
    let database = Arc::new(database);
    let newest = maintenance.root.header;
    database.newest_header.store(newest, Ordering::Release);
    database.log.begin_at(header.begin);
    let changes_from = header.changes_from;
    database.changes_from.store(changes_from, Ordering::Release);
    let history = History::open(&home, header, database.clone())?;
    let last = header.sequence;
    let shape = database.shape;
    let hash_seed = environment.randomness.next_u64();
    let view = view_of(header, database, &home, hash_seed);
    let nodes_of_tries = AtomicU64::new(view.roots.nodes());
    Ok(Arc::new(Core {
        environment: environment.clone(),
        path: home.folder.clone(),
        shape,
        memory: OnceLock::new(),
        index: Index::new(&shape),
        view: ArcSwap::from_pointee(view),
        hash_seed,
        visible: AtomicU64::new(last),
        synced_through: AtomicU64::new(last),
        history,
        pins: Mutex::new(BTreeMap::new()),
        compaction: Mutex::new(None),
        writer: Mutex::new(Writer {
            next_sequence: last + 1,
            attempt: 0,
            session: maintenance.root.session,
            unsynced: false,
            mark: None,
            next_namespace: header.next_namespace,
            tombstones: 0,
        }),
        queue: CommitQueue::default(),
        health: Health::of(ENGINE, home.writable)
            .forgetting(tuning.seeded_bug.is(SeededBug::SyncRetried)),
        recent: RecentWrites::default(),
        syncing: Mutex::default(),
        handed_over: AtomicU64::new(0),
        session_begun: AtomicBool::new(false),
        cancellations: AtomicU64::new(0),
        flush_due: AtomicBool::new(false),
        flush_put_off: PutOff::default(),
        nodes_of_tries,
        bytes_of_tries: AtomicU64::new(0),
        cleaning: crate::cleaning::Cleaning::default(),
        carrying: crate::carrying::Carrying::default(),
        pressure: crate::compact::Pressure::default(),
        kept: crate::compact::Kept::default(),
        meanwhile: crate::compact::Meanwhile::default(),
        counters: Counters {
            before: header.traffic,
            ..Counters::default()
        },
        lock: Mutex::new(held),
        background: OnceLock::new(),
        maintenance: Mutex::new(maintenance),
        home,
        tuning,
    }))
}

/// What readers see of a header's state, with empty buffers.
pub(crate) fn view_of(
    header: &DatabaseHeader,
    database: Arc<Database>,
    home: &Home,
    hash_seed: u64,
) -> View {
    let all = header.namespaces.iter();
    let names = all.clone().map(|(number, name, _)| (name.clone(), *number));
    let roots = Roots {
        sequence: header.sequence,
        namespaces: all.map(|(number, _, root)| (*number, *root)).collect(),
    };
    View {
        database,
        active: Arc::new(Buffer::new(hash_seed, 0)),
        sealed: None,
        run: Arc::default(),
        known: Known::for_documents(roots.documents(), &home.cache, hash_seed),
        roots: Arc::new(roots),
        names: Arc::new(names.collect()),
        era: Arc::default(),
    }
}

/// A file that the store needs no more: its path, and under which it is kept, if it is.
pub(crate) type Leftover = (PathBuf, Option<PathBuf>);

/// Files of the store that a superblock with this content does not name, but for those that
/// are kept.
pub(crate) fn leftovers(
    file_system: &dyn FileSystem,
    folder: &Path,
    root: &Root,
    kept: &[KeptFile],
) -> Result<Vec<Leftover>> {
    let mut leftovers = Vec::new();
    for entry in file_system.list(folder)? {
        let name = entry.name.to_string_lossy();
        let number = format::database_number(&name);
        let is_ours = format::is_database_or_scratch(&name) || name == SCRATCH_NAME;
        let is_kept = kept.iter().any(|kept| Some(kept.file.number) == number);
        if !is_ours || is_kept || number == Some(root.file.number) {
            continue;
        }
        let is_older = number.is_some_and(|number| number < root.file.number);
        let kept = (root.keeps_damaged && is_older)
            .then(|| folder.join(format!("{name}{}", format::KEPT_SUFFIX)));
        leftovers.push((folder.join(&entry.name), kept));
    }
    Ok(leftovers)
}

/// Removes files that the superblock does not name, or gives them the name under which they are kept.
pub(crate) fn put_away(file_system: &dyn FileSystem, leftovers: &[Leftover]) -> Result<()> {
    leftovers.iter().try_for_each(|(path, kept)| match kept {
        Some(kept) => file_system.rename(path, kept),
        None => file_system.remove(path),
    })
}

impl Core {
    /// Removes database files that the superblock does not name, and scratch
    /// files: what a crash left of a compaction, or a repair that did not come
    /// to its end.
    fn remove_leftovers(&self) -> Result<()> {
        let file_system = &*self.environment.file_system;
        let kept = self.history.kept_files();
        let root = lock(&self.maintenance).root;
        let mut leftovers = leftovers(file_system, &self.path, &root, &kept)?;
        // A file that another process reads is removed later.
        leftovers.retain(|(path, kept)| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let number = format::database_number(&name).filter(|_| kept.is_none());
            let read = number.filter(|_| {
                let locked = file_system.lock(path, LockMode::Alone);
                matches!(locked, Err(Error::Locked { .. }))
            });
            read.inspect(|&number| self.history.discard(number))
                .is_none()
        });
        if leftovers.is_empty() {
            return Ok(());
        }
        lock(&self.maintenance).superblock.confirm_named()?;
        let mut maintenance = lock(&self.maintenance);
        // The other copy may name a file that goes now.
        maintenance.write_root()?;
        drop(maintenance);
        put_away(file_system, &leftovers)
    }
}
