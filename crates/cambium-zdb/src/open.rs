//! Making and opening stores.
//!
//! A store is made from the inside out: commit logs, superblock, folder synced,
//! and the marker last. A crash before that leaves a folder that is no store,
//! which `create` takes over ([`cambium_storage::creation`]).
//!
//! Opening reads the marker, the superblock and the headers of the commit
//! logs. After a clean close that is all: tables are opened when they are asked
//! for, pieces of the index when they are touched. Otherwise recovery runs.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use cambium_api::{OptionValues, ProgressSink, RecentWrites};
use cambium_base::{Error, FileIdentity, Result, StoreId};
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use cambium_io::sync::{Mutex, OnceLock, RwLock};
use cambium_io::{Environment, FileLock, FileSystem, LockMode, OpenOptions};
use cambium_storage::commit_queue::CommitQueue;
use cambium_storage::consumers::Consumers;
use cambium_storage::creation::{self, Creation, Making};
use cambium_storage::file_header::FileHeader;
use cambium_storage::health::Health;
use cambium_storage::log::LogFile;
use cambium_storage::marker::Marker;
use cambium_storage::store_lock::lock_store;
use cambium_storage::superblock::{self, Superblock};

use crate::cache::EntryCache;
use crate::catalog::{Catalog, Traffic, UNCOUNTED};
use crate::changes::past::Past;
use crate::core::{CellState, CommitLog, Core, Maintenance, TableCell, Writer};
use crate::data_file::Home;
use crate::format::{self, COMMIT_MAGIC, FORMAT_VERSION, FileRef};
use crate::history::History;
use crate::options::{ENGINE, OPTIONS, Shape, Tuning};
use crate::seeded_bug::SeededBug;
use crate::stats::Counters;
use crate::strings::Buckets;

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
    let shape = Shape::take(&mut options)?;
    let memory = crate::memory::plan(environment, &shape, &mut options)?;
    let tuning = Tuning::take(&mut options)?;
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
    let file_system = &*environment.file_system;
    let mut catalog = Catalog {
        shape,
        clean: true,
        session: 0,
        last_session: 0,
        next_file: 1,
        replay_sequence: 0,
        durable_sequence: 0,
        hash_seed: environment.randomness.next_u64() as u32,
        buckets: shape.buckets,
        string_keys: 0,
        traffic: Traffic::default(),
        past: Past::default(),
        commit_logs: [FileRef::default(); 2],
        tables: BTreeMap::new(),
    };
    for log in 0..2 {
        let file = catalog.new_file(environment.randomness.next_u64());
        catalog.commit_logs[log] = file;
        let identity = FileIdentity {
            store,
            number: file.number,
            salt: file.salt,
        };
        let log_path = format::commit_path(path, log);
        let access = OpenOptions {
            truncate: true,
            ..OpenOptions::CREATE
        };
        write_commit_header(
            file_system,
            (&log_path, access),
            &shape,
            catalog.hash_seed,
            identity,
        )?;
    }
    let superblock = Superblock::create(
        &environment.file_system,
        path,
        store,
        FORMAT_VERSION,
        &catalog.encode(),
    )?;
    let maintenance = Maintenance {
        catalog,
        superblock,
        has_one_copy: false,
        switched: Vec::new(),
        obsolete: Vec::new(),
        other_copy: None,
    };
    assemble(environment, path, store, tuning, maintenance, (held, true))
}

/// Writes the first block of a commit log: its header, and a copy of the shape.
pub(crate) fn write_commit_header(
    file_system: &dyn FileSystem,
    (path, access): (&Path, OpenOptions),
    shape: &Shape,
    hash_seed: u32,
    identity: FileIdentity,
) -> Result<()> {
    let header = FileHeader::new(COMMIT_MAGIC, FORMAT_VERSION, shape.block_bytes, identity);
    let mut block = header.encode().to_vec();
    block.extend_from_slice(&format::encode_shape(shape, hash_seed));
    block.resize(format::first_offset(shape) as usize, 0);
    let file = file_system.open(path, access)?;
    file.write_at(&block, 0)?;
    file.sync_data()
}

/// Opens a store, recovering it where it was not closed.
pub(crate) fn open(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<Arc<Core>> {
    // Refused before the folder is looked at.
    let (_, fixed) = Tuning::of_opening(options)?;
    let file_system = &*environment.file_system;
    let (marker, held) = lock_store(file_system, path, FORMAT, LockMode::Exclusive)?;
    creation::settle(file_system, path)?;
    let found = read_catalog(file_system, path, marker.store)?;
    let mut options = options.clone();
    let memory = crate::memory::plan(environment, &found.1.shape, &mut options)?;
    let (tuning, _) = Tuning::of_opening(&options)?;
    let core = attach_to(
        environment,
        path,
        (marker.store, found),
        tuning,
        (held, true),
    )?;
    _ = core.memory.set(memory);
    fixed.check_fixed(&core.shape.as_options(core.shape.buckets))?;
    make_ready(&core, progress)?;
    if core.buckets.keys() == UNCOUNTED {
        crate::repair::count_string_keys(&core)?;
    }
    Ok(core)
}

/// Recovers a store that was attached for writing, where it was not closed.
pub(crate) fn make_ready(core: &Core, progress: &dyn ProgressSink) -> Result<()> {
    core.settle_other_copy()?;
    let clean = crate::core::lock(&core.maintenance).catalog.clean;
    if !clean {
        crate::core::lock(&core.maintenance)
            .superblock
            .confirm_named()?;
    }
    core.remove_leftovers()?;
    let missing = core.tables_without_index()?;
    if !missing.is_empty() {
        core.rebuild_tables(&missing, progress)?;
    }
    if !clean {
        core.recover(progress)?;
    }
    if core.has_obsolete_history() {
        core.index_due.store(true, Ordering::Release);
    }
    Ok(())
}

/// Opens a store for reading alone, and changes no data. Other readers may do the
/// same, and no process writes meanwhile. The entries after the last checkpoint go into the index in memory, each
/// time again.
pub(crate) fn open_read_only(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<Arc<Core>> {
    // Refused before the folder is looked at.
    let (_, fixed) = Tuning::of_opening(options)?;
    let file_system = &*environment.file_system;
    let (marker, held) = lock_store(file_system, path, FORMAT, LockMode::Shared)?;
    let found = read_catalog(file_system, path, marker.store)?;
    let mut options = options.clone();
    let memory = crate::memory::plan(environment, &found.1.shape, &mut options)?;
    let (tuning, _) = Tuning::of_opening(&options)?;
    let core = attach_to(
        environment,
        path,
        (marker.store, found),
        tuning,
        (held, false),
    )?;
    _ = core.memory.set(memory);
    fixed.check_fixed(&core.shape.as_options(core.shape.buckets))?;
    let clean = crate::core::lock(&core.maintenance).catalog.clean;
    if !clean {
        core.recover_in_memory(progress)?;
    }
    if core.buckets.keys() == UNCOUNTED {
        crate::repair::count_for_reading(&core)?;
    }
    Ok(core)
}

/// Reads superblock and commit logs, and nothing else; writes nothing. Used
/// by openings and by the check.
pub(crate) fn attach(
    environment: &Environment,
    path: &Path,
    store: StoreId,
    tuning: Tuning,
    (held, writable): (Box<dyn FileLock>, bool),
) -> Result<Arc<Core>> {
    let found = read_catalog(&*environment.file_system, path, store)?;
    attach_to(environment, path, (store, found), tuning, (held, writable))
}

/// The superblock that counts, and the catalog in it.
type FoundCatalog = (superblock::SuperblockContent, Catalog);

fn read_catalog(file_system: &dyn FileSystem, path: &Path, store: StoreId) -> Result<FoundCatalog> {
    let content = superblock::read_either(file_system, path, &store, FORMAT_VERSION)?;
    let catalog = Catalog::decode(&content.payload).ok_or_else(|| {
        Error::corruption(
            superblock::copy_path(path, content.copy),
            superblock::SUPERBLOCK_HEADER_BYTES as u64,
            "the superblock's checksum matches, and its payload is no catalog of this format",
        )
    })?;
    Ok((content, catalog))
}

fn attach_to(
    environment: &Environment,
    path: &Path,
    (store, (content, catalog)): (StoreId, FoundCatalog),
    tuning: Tuning,
    (held, writable): (Box<dyn FileLock>, bool),
) -> Result<Arc<Core>> {
    let superblock = Superblock::resume(
        &environment.file_system,
        path,
        store,
        FORMAT_VERSION,
        &content,
    );
    let maintenance = Maintenance {
        catalog,
        superblock,
        has_one_copy: false,
        switched: Vec::new(),
        obsolete: Vec::new(),
        other_copy: content.other_copy,
    };
    assemble(
        environment,
        path,
        store,
        tuning,
        maintenance,
        (held, writable),
    )
}

/// True for names that a `zdb` store gives to its files.
pub(crate) fn is_ours(name: &str) -> bool {
    name == LOCK_NAME || superblock::is_copy(name) || is_of_zdb_alone(name)
}

/// True for those that no other engine gives.
pub(crate) fn is_of_zdb_alone(name: &str) -> bool {
    format::is_data_or_index(name) || format::is_commit(name)
}

fn assemble(
    environment: &Environment,
    path: &Path,
    store: StoreId,
    tuning: Tuning,
    maintenance: Maintenance,
    (held, writable): (Box<dyn FileLock>, bool),
) -> Result<Arc<Core>> {
    let catalog = &maintenance.catalog;
    let shape = catalog.shape;
    let home = Home {
        file_system: environment.file_system.clone(),
        folder: path.to_path_buf(),
        store,
        shape,
        writable,
        seeded_bug: tuning.seeded_bug,
    };
    let open_log = |log: usize| -> Result<CommitLog> {
        let log_path = format::commit_path(path, log);
        let file = environment.file_system.open(&log_path, home.access())?;
        let identity = home.identity(catalog.commit_logs[log]);
        FileHeader::read(&*file, COMMIT_MAGIC, FORMAT_VERSION)?
            .check_identity(&log_path, &identity)?;
        let geometry = format::commit_geometry(&shape);
        Ok(CommitLog {
            log: LogFile::new(file, &identity, geometry, geometry.first_offset)?,
            in_use: false,
            last_sequence: 0,
        })
    };
    let cells = catalog.tables.iter().map(|(&number, entry)| {
        let cell = TableCell {
            state: RwLock::new(CellState::Closed(entry.clone())),
        };
        (number, Arc::new(cell))
    });
    let last = catalog.durable_sequence;
    Ok(Arc::new(Core {
        environment: environment.clone(),
        path: path.to_path_buf(),
        shape,
        tables: ArcSwap::from_pointee(cells.collect()),
        visible: AtomicU64::new(last),
        synced: AtomicU64::new(last),
        past: Mutex::new(catalog.past.clone()),
        consumers: Consumers::read(&*environment.file_system, path, store)?,
        history: History::default(),
        apply: Mutex::new(()),
        writer: Mutex::new(Writer {
            next_sequence: last + 1,
            attempt: 0,
            synced_through: last,
            session: catalog.session,
            commit_logs: [open_log(0)?, open_log(1)?],
            active_log: 0,
            dirty: Vec::new(),
            any_buffered: false,
            bytes_since_checkpoint: 0,
            framed: Vec::new(),
            targets: BTreeMap::new(),
        }),
        queue: CommitQueue::default(),
        health: Health::of(ENGINE, writable)
            .forgetting(tuning.seeded_bug.is(SeededBug::SyncRetried)),
        recent: RecentWrites::default(),
        session_begun: AtomicBool::new(false),
        cancelled: AtomicBool::new(false),
        buckets: Buckets::new(catalog.hash_seed, catalog.buckets, catalog.string_keys),
        counters: Counters {
            before: catalog.traffic,
            ..Counters::default()
        },
        cache: EntryCache::new(tuning.cache_bytes, shape.keys),
        lock: Mutex::new(Some(held)),
        clock_tick: AtomicU64::new(0),
        open_count: AtomicUsize::new(0),
        index_due: AtomicBool::new(false),
        commit_log_due: AtomicBool::new(false),
        is_scarce: AtomicBool::new(false),
        background: OnceLock::new(),
        compaction: Mutex::new(None),
        memory: OnceLock::new(),
        home,
        tuning,
        maintenance: Mutex::new(maintenance),
    }))
}

impl Core {
    /// Makes sure that nothing follows from a copy of the superblock that could not be
    /// used. It may have been the newer one: then a recovery may have begun one more
    /// session. A copy that could not be read is written anew before anything else is
    /// changed, for a later read of it may succeed.
    fn settle_other_copy(&self) -> Result<()> {
        let mut maintenance = crate::core::lock(&self.maintenance);
        let Some(error) = &maintenance.other_copy else {
            return Ok(());
        };
        let is_unread = superblock::is_failed_read(error);
        maintenance.catalog.last_session += 1;
        if is_unread {
            maintenance.superblock.confirm()?;
            let payload = maintenance.catalog.encode();
            maintenance.superblock.renew(&payload)?;
        }
        Ok(())
    }

    /// Removes files of ours that no catalog names: what a crash left of a new
    /// table, a compaction, or a rebuild.
    ///
    /// Where only one copy of the superblock is sound, the other may have been the
    /// newer one: then no file is removed, and no number of a file given out again.
    fn remove_leftovers(&self) -> Result<()> {
        let named = self.named_files();
        let mut leftovers = Vec::new();
        let mut highest = 0;
        for entry in self.environment.file_system.list(&self.path)? {
            let name = entry.name.to_string_lossy();
            highest = highest.max(format::number_of(&name).unwrap_or(0));
            if format::is_data_or_index(&name) && !named.contains(&*name) {
                leftovers.push(self.path.join(&entry.name));
            }
        }
        {
            let mut maintenance = crate::core::lock(&self.maintenance);
            let next_file = &mut maintenance.catalog.next_file;
            *next_file = (*next_file).max(highest + 1);
            if maintenance.other_copy.is_some() {
                return Ok(());
            }
        }
        if !leftovers.is_empty() {
            crate::core::lock(&self.maintenance)
                .superblock
                .confirm_named()?;
        }
        leftovers
            .iter()
            .try_for_each(|path| self.environment.file_system.remove(path))
    }

    /// Names of all files in the catalog.
    pub fn named_files(&self) -> HashSet<String> {
        let maintenance = crate::core::lock(&self.maintenance);
        let name_of = |path: std::path::PathBuf| {
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned())
        };
        let mut names = HashSet::new();
        for (&table, entry) in &maintenance.catalog.tables {
            names.extend(name_of(format::index_path(
                &self.path,
                table,
                entry.index.number,
            )));
            for (place, data) in entry.files.iter().enumerate() {
                let files = [Some(data.file), data.successor.map(|(file, _)| file)];
                for file in files.into_iter().flatten() {
                    let path = format::data_path(&self.path, table, place as u32, file.number);
                    names.extend(name_of(path));
                }
            }
        }
        let kept = maintenance.catalog.past.kept.iter();
        names.extend(kept.filter_map(|file| name_of(file.path(&self.path))));
        names
    }

    /// Tables whose index file is not there.
    fn tables_without_index(&self) -> Result<Vec<u64>> {
        let present: HashSet<String> = self
            .environment
            .file_system
            .list(&self.path)?
            .into_iter()
            .map(|entry| entry.name.to_string_lossy().into_owned())
            .collect();
        let maintenance = crate::core::lock(&self.maintenance);
        let missing = maintenance.catalog.tables.iter().filter(|(table, entry)| {
            let path = format::index_path(&self.path, **table, entry.index.number);
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            name.is_some_and(|name| !present.contains(&name))
        });
        Ok(missing.map(|(&table, _)| table).collect())
    }
}
