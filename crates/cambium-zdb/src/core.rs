//! The open store: what its parts share, and who may touch what.
//!
//! | lock | guards | held across I/O |
//! |---|---|---|
//! | `compaction` | the compaction that is going on | yes: only compactions wait for it |
//! | `maintenance` | catalog and superblock; checkpoints, compaction, new tables | yes: no reader or writer waits for it, but for a new table |
//! | `writer` | sequence numbers and the ends of the logs; the leader of a group holds it | yes: other writers wait in the queue anyway |
//! | `apply` | the moment in which slots change, and a snapshot begins | no |
//! | a table's pieces | slots | no |
//! | `past` | files kept for consumers, and how far back history reaches | no |
//!
//! They are taken in this order. Readers take only the pieces, and change feeds `past`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use cambium_api::{MemoryPlan, RecentWrites};
use cambium_base::{Error, Result, SequenceNumber};
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use cambium_io::sync::{Mutex, OnceLock, RwLock};
pub(crate) use cambium_io::sync::{lock, read, write};
use cambium_io::{Environment, FileLock};
use cambium_storage::commit_queue::CommitQueue;
use cambium_storage::consumers::Consumers;
use cambium_storage::health::Health;
use cambium_storage::log::LogFile;
use cambium_storage::superblock::Superblock;

use crate::cache::EntryCache;
use crate::catalog::{Catalog, TableEntry};
use crate::changes::past::Past;
use crate::commit::Target;
use crate::compact::Compaction;
use crate::data_file::{DataFile, Home};
use crate::format::FileRef;
use crate::format::FramedKey;
use crate::history::History;
use crate::options::{Shape, Tuning};
use crate::seeded_bug::SeededBug;
use crate::stats::Counters;
use crate::strings::Buckets;
use crate::table::Table;
use crate::write::WriteRequest;

/// The open store.
#[derive(Debug)]
pub(crate) struct Core {
    pub environment: Environment,
    pub path: PathBuf,
    pub home: Home,
    pub shape: Shape,
    pub tuning: Tuning,
    /// Reserved for as long as the store is open; a check or a repair reserves nothing.
    pub memory: OnceLock<MemoryPlan>,
    /// Replaced as a whole, under the maintenance lock, when a table is made.
    pub tables: ArcSwap<TableCells>,
    /// Every write up to here is seen by readers.
    pub visible: AtomicU64,
    /// Every write up to here survives any crash.
    pub synced: AtomicU64,
    /// What the log has of the past; the last lock to be taken.
    pub past: Mutex<Past>,
    /// Readers of the changes, whose history is kept.
    pub consumers: Consumers,
    pub history: History,
    pub apply: Mutex<()>,
    pub writer: Mutex<Writer>,
    pub queue: CommitQueue<WriteRequest, Result<SequenceNumber>>,
    pub maintenance: Mutex<Maintenance>,
    pub health: Health,
    /// Recent writes, for validating the commits of transactions.
    pub recent: RecentWrites,
    /// This opening has written its session to the superblock.
    pub session_begun: AtomicBool,
    pub cancelled: AtomicBool,
    pub buckets: Buckets,
    pub counters: Counters,
    pub cache: EntryCache,
    pub lock: Mutex<Option<Box<dyn FileLock>>>,
    pub clock_tick: AtomicU64,
    /// Tables in the state [`CellState::Open`].
    pub open_count: AtomicUsize,
    /// So much was written, or so many tables are open, that a step is to write the index.
    pub index_due: AtomicBool,
    /// A commit log is full: a step is to sync the data files.
    pub commit_log_due: AtomicBool,
    /// The last write that took space found little of it.
    pub is_scarce: AtomicBool,
    /// The compaction that is going on; its lock is taken before all others.
    pub compaction: Mutex<Option<Compaction>>,
    /// Notifies the background task, where one runs.
    pub background: OnceLock<Box<dyn cambium_io::step::BackgroundTask>>,
}

/// What the maintenance lock guards.
#[derive(Debug)]
pub(crate) struct Maintenance {
    pub catalog: Catalog,
    pub superblock: Superblock,
    /// One copy of it alone may name the images of the index that count.
    pub has_one_copy: bool,
    /// Places that a compaction has switched to a new file since the last
    /// checkpoint: the catalog names the old file until the next one.
    pub switched: Vec<Switched>,
    /// Replaced files, to be removed once no copy of the superblock names them.
    pub obsolete: Vec<PathBuf>,
    /// Why the opening could not use one copy of the superblock.
    pub other_copy: Option<Error>,
}

impl Maintenance {
    /// Writes the catalog to the copy of the superblock that does not count.
    pub fn write_catalog(&mut self) -> Result<()> {
        self.superblock.write(&self.catalog.encode())
    }

    /// The same to both copies: neither leads to an older state from then on.
    pub fn write_catalog_twice(&mut self) -> Result<()> {
        self.superblock.write_both(&self.catalog.encode())
    }
}

/// A place whose slots point into a new file that the catalog does not name.
#[derive(Clone, Debug)]
pub(crate) struct Switched {
    pub table: u64,
    pub place: u32,
    pub new: FileRef,
    /// Its entries up to this number are copies.
    pub copies_through: u64,
}

/// What the writer lock guards.
#[derive(Debug)]
pub(crate) struct Writer {
    pub next_sequence: u64,
    pub attempt: u16,
    pub synced_through: u64,
    pub session: u32,
    pub commit_logs: [CommitLog; 2],
    pub active_log: usize,
    /// Files with bytes that are not synced.
    pub dirty: Vec<Arc<DataFile>>,
    /// Some file may hold bytes that only this process has.
    pub any_buffered: bool,
    pub bytes_since_checkpoint: u64,
    /// Small synced entries that neither the index on the device has, nor a data file the keys of.
    pub framed: Vec<FramedKey>,
    /// Open tables that were written to, by number; let go where a table is closed or a
    /// data file is replaced.
    pub targets: BTreeMap<u64, Arc<Target>>,
}

/// One of the two commit logs.
#[derive(Debug)]
pub(crate) struct CommitLog {
    pub log: LogFile,
    /// Holds frames of which the data files may not have the entries on the device yet.
    pub in_use: bool,
    /// Sequence number of the last entry in it.
    pub last_sequence: u64,
}

/// All tables of a store by number.
pub(crate) type TableCells = BTreeMap<u64, Arc<TableCell>>;

/// A table, open or closed.
#[derive(Debug)]
pub(crate) struct TableCell {
    pub state: RwLock<CellState>,
}

#[derive(Debug)]
pub(crate) enum CellState {
    Open(Arc<Table>),
    /// As in the catalog, which nothing has changed since.
    Closed(TableEntry),
}

impl Core {
    /// Refuses calls after a close.
    pub fn check_open(&self) -> Result<()> {
        self.health.check_open()
    }

    /// Refuses writes after a close or a failure, and to a store that was opened for reading
    /// alone.
    pub fn check_writable(&self) -> Result<()> {
        self.health.check_writable()
    }

    pub fn has_bug(&self, bug: SeededBug) -> bool {
        self.tuning.seeded_bug.is(bug)
    }

    /// The number of the table that covers a key.
    pub fn table_number(&self, key: u64) -> u64 {
        key / self.shape.keys_per_table
    }

    fn cell(&self, number: u64) -> Option<Arc<TableCell>> {
        self.tables.load().get(&number).cloned()
    }

    /// Does something short with the table of a key, if it is open: no I/O,
    /// and no lock but those of its pieces.
    pub fn with_open_table<R>(&self, key: u64, work: impl FnOnce(&Arc<Table>) -> R) -> Option<R> {
        let tables = self.tables.load();
        let cell = tables.get(&self.table_number(key))?;
        let state = read(&cell.state);
        match &*state {
            CellState::Open(table) => {
                self.note_use(table);
                Some(work(table))
            }
            CellState::Closed(_) => None,
        }
    }

    pub fn note_use(&self, table: &Table) {
        let tick = self.clock_tick.load(Ordering::Relaxed);
        if table.last_used.load(Ordering::Relaxed) != tick {
            table.last_used.store(tick, Ordering::Relaxed);
        }
    }

    /// Numbers of all tables, in order.
    pub fn table_numbers(&self) -> Vec<u64> {
        self.tables.load().keys().copied().collect()
    }

    /// A table, opened if need be; `None` if there is none of that number.
    pub fn table(&self, number: u64) -> Result<Option<Arc<Table>>> {
        let Some(cell) = self.cell(number) else {
            return Ok(None);
        };
        {
            let state = read(&cell.state);
            if let CellState::Open(table) = &*state {
                self.note_use(table);
                return Ok(Some(table.clone()));
            }
        }
        let mut state = write(&cell.state);
        let table = match &*state {
            CellState::Open(table) => table.clone(),
            CellState::Closed(entry) => {
                let table = Arc::new(Table::open(&self.home, number, entry)?);
                *state = CellState::Open(table.clone());
                self.open_count.fetch_add(1, Ordering::Relaxed);
                let tick = self.clock_tick.fetch_add(1, Ordering::Relaxed);
                table.last_used.store(tick + 1, Ordering::Relaxed);
                table
            }
        };
        drop(state);
        self.close_tables_without_waiting();
        Ok(Some(table))
    }

    /// The table of a key.
    pub fn table_of(&self, key: u64) -> Result<Option<Arc<Table>>> {
        self.table(self.table_number(key))
    }

    /// All tables that are open now.
    pub fn open_tables(&self) -> Vec<Arc<Table>> {
        self.tables
            .load()
            .values()
            .filter_map(|cell| {
                let state = read(&cell.state);
                match &*state {
                    CellState::Open(table) => Some(table.clone()),
                    CellState::Closed(_) => None,
                }
            })
            .collect()
    }

    /// Makes everything durable that was handed over to a data file. Only one
    /// thread at a time syncs a file: the operating system reports a byte that it
    /// could not write to one sync alone, and the next one would answer Ok.
    pub fn sync_file(&self, file: &DataFile) -> Result<()> {
        let _alone = match self.has_bug(SeededBug::SyncErrorTaken) {
            true => None,
            false => Some(lock(&file.syncing)),
        };
        self.health.check_sound()?;
        file.log.sync().map_err(|error| self.health.poison(error))?;
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes this opening's session to the superblock before its first
    /// record: from then on the store is not clean, and records of the
    /// session count in replay.
    pub fn begin_session(&self) -> Result<()> {
        if self.session_begun.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut maintenance = lock(&self.maintenance);
        self.health.check_open()?;
        self.begin_session_locked(&mut maintenance)
    }

    pub fn begin_session_locked(&self, maintenance: &mut Maintenance) -> Result<()> {
        if self.session_begun.load(Ordering::Acquire) {
            return Ok(());
        }
        let catalog = &mut maintenance.catalog;
        let before = (catalog.session, catalog.clean);
        catalog.last_session += 1;
        catalog.session = catalog.last_session;
        catalog.clean = false;
        let session = catalog.session;
        let payload = catalog.encode();
        if let Err(error) = maintenance.superblock.begin_session(&payload) {
            (maintenance.catalog.session, maintenance.catalog.clean) = before;
            return Err(self.health.unless_unopened(error));
        }
        lock(&self.writer).session = session;
        self.session_begun.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes the table of a key where there is none. Its files and names are
    /// durable, and in the superblock, before the first entry is written.
    pub fn ensure_table(&self, key: u64) -> Result<()> {
        let number = self.table_number(key);
        if self.cell(number).is_some() {
            return Ok(());
        }
        let mut maintenance = lock(&self.maintenance);
        if self.cell(number).is_some() {
            return Ok(());
        }
        self.check_writable()?;
        self.check_density(key)?;
        self.begin_session_locked(&mut maintenance)?;
        let catalog = &mut maintenance.catalog;
        let randomness = &self.environment.randomness;
        let (table, entry) = Table::create(&self.home, number, || {
            catalog.new_file(randomness.next_u64())
        })?;
        if !self.has_bug(SeededBug::TableUnregistered) {
            self.sync_new_table(&table)?;
        }
        maintenance.catalog.tables.insert(number, entry);
        if !self.has_bug(SeededBug::TableUnregistered) {
            // Both copies: one that does not name the table must never count.
            let named = match self.has_bug(SeededBug::TableInOneCopy) {
                true => maintenance.write_catalog(),
                false => maintenance.write_catalog_twice(),
            };
            if let Err(error) = named {
                maintenance.catalog.tables.remove(&number);
                return Err(self.health.unless_full(error));
            }
        }
        let cell = TableCell {
            state: RwLock::new(CellState::Open(Arc::new(table))),
        };
        let mut tables = TableCells::clone(&self.tables.load());
        tables.insert(number, Arc::new(cell));
        self.tables.store(Arc::new(tables));
        self.open_count.fetch_add(1, Ordering::Relaxed);
        drop(maintenance);
        self.close_tables_beyond_limit();
        Ok(())
    }

    fn sync_new_table(&self, table: &Table) -> Result<()> {
        let synced = (|| {
            table.index_file.sync_data()?;
            for file in table.current_files() {
                file.log.sync()?;
            }
            self.environment.file_system.sync_directory(&self.path)
        })();
        synced.map_err(|error| self.health.poison(error))
    }

    /// Tables that are open beyond the option `open_tables`.
    pub fn excess_tables(&self) -> usize {
        let open = self.open_count.load(Ordering::Relaxed);
        open.saturating_sub(self.tuning.open_tables)
    }

    /// Closes the least recently used tables that nothing has changed since
    /// the last checkpoint and that no thread uses: there is never more than one
    /// [`Table`] of a number. Called after checkpoints and after a table was made.
    pub fn close_tables_beyond_limit(&self) {
        if self.excess_tables() > 0 {
            let maintenance = lock(&self.maintenance);
            self.close_tables(&maintenance.catalog, &mut lock(&self.writer));
        }
    }

    /// Closes tables after one was opened, unless another thread holds the locks for it:
    /// readers do not wait for those. A later opening or checkpoint closes the tables then.
    fn close_tables_without_waiting(&self) {
        if self.excess_tables() == 0 {
            return;
        }
        if let Ok(maintenance) = self.maintenance.try_lock() {
            if let Ok(mut writer) = self.writer.try_lock() {
                self.close_tables(&maintenance.catalog, &mut writer);
            }
        }
    }

    /// An eighth of the limit is closed ahead, since each call looks at all tables.
    fn close_tables(&self, catalog: &Catalog, writer: &mut Writer) {
        let mut open: Vec<(u64, u64)> = self
            .open_tables()
            .iter()
            .map(|table| (table.last_used.load(Ordering::Relaxed), table.number))
            .collect();
        open.sort_unstable();
        let limit = self.tuning.open_tables;
        let mut excess = open.len().saturating_sub(limit - limit / 8);
        let mut changed = false;
        for (_, number) in open {
            let entry = catalog.tables.get(&number);
            let (Some(entry), Some(cell)) = (entry, self.cell(number)) else {
                continue;
            };
            if excess == 0 {
                break;
            }
            writer.targets.remove(&number);
            let mut state = write(&cell.state);
            let CellState::Open(table) = &*state else {
                continue;
            };
            if !is_unchanged(table, entry) {
                changed = true;
            } else if Arc::strong_count(table) == 1 || self.has_bug(SeededBug::TableClosedInUse) {
                *state = CellState::Closed(entry.clone());
                self.open_count.fetch_sub(1, Ordering::Relaxed);
                excess -= 1;
            }
        }
        // The next checkpoint makes the rest the same as on the device. Tables
        // in use are closed by a later call.
        if self.excess_tables() > 0 && changed {
            self.index_due.store(true, Ordering::Release);
        }
    }

    /// Wakes the background task.
    pub fn notify_background(&self) {
        if let Some(task) = self.background.get() {
            task.notify();
        }
    }
}

/// True if the catalog says all there is to know of a table.
fn is_unchanged(table: &Table, entry: &TableEntry) -> bool {
    !table.has_dirty_pieces()
        && table
            .current_files()
            .iter()
            .zip(&entry.files)
            .all(|(file, entry)| {
                file.file == entry.file
                    && !file.dirty.load(Ordering::Acquire)
                    && file.log.end() == entry.replay_from
                    && file.live.load(Ordering::Relaxed) == entry.live
            })
}
