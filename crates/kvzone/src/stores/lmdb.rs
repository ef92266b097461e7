//! LMDB 0.9, through `lmdb.h`.
//!
//! # Durability
//! | asked for | what is set | what it means |
//! |---|---|---|
//! | `buffered` | refused | a commit hands its pages to the operating system; there is nothing weaker |
//! | `written` | `MDB_NOSYNC` | pages are written, not synced |
//! | `synced` | nothing, as shipped | data and then the root are synced before a commit returns |
//!
//! `MDB_NOSYNC` is the peer's like of `written`, and weaker than ours: pages may
//! reach the device in any order, so that a power cut may cost the whole
//! database and not the last writes alone. `MDB_WRITEMAP`, with which dirty
//! pages are written in place of being copied, is a setting, on when `tuned`.
//!
//! # Settings
//! | setting | `default` | `equal` | `tuned` |
//! |---|---|---|---|
//! | `map_bytes` | what is expected, with room: it has no use for less, and 10 MiB as shipped would end every run | the same | the same |
//! | `nosync` | by durability | by durability | by durability |
//! | `writemap` | off | off | on |
//! | `no_read_ahead` | off | off | off |
//! | `max_readers` | 126, or as many as there are threads and 16 | the same | the same |
//!
//! It has no cache of its own but the operating system's, so `--cache` means
//! nothing to it, and no compression.
//!
//! # How it is called
//! The environment is opened with `MDB_NOTLS`, so that a read transaction
//! belongs to a session and not to a thread. A session keeps one, which it
//! renews for each get and resets after it: a transaction kept would see old
//! values, and keep old pages from being used again. A value is found without a
//! copy, and copied into the caller's buffer before the reset. A put, a delete
//! and a batch are each a write transaction; writers wait for one another.
//! Keys are of 1 to 511 bytes.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, OnceLock};

use cambium::Durability;
use kvzone_core::adapter::{
    Adapter, Availability, Capabilities, Change, DurabilityName, OpenRequest, OpenStore, Profile,
    Session, Visit,
};
use kvzone_core::error::{Error, Result};

use super::library::{Handle, Library, Wanted, availability, bytes, functions, text, unfit};
use super::settings::Settings;

const NAME: &str = "lmdb";

const WANTED: Wanted = Wanted {
    store: NAME,
    stems: &["liblmdb.so"],
    names: &["liblmdb.so.0", "liblmdb.so"],
    companions: &[],
    remedy: "make peers (Debian package liblmdb0)",
};

/// Flags of `mdb_env_open`.
const NO_SYNC: c_uint = 0x1_0000;
const WRITE_MAP: c_uint = 0x8_0000;
const NO_THREAD_LOCAL: c_uint = 0x20_0000;
const NO_READ_AHEAD: c_uint = 0x80_0000;

/// Flag of `mdb_txn_begin`.
const READ_ONLY: c_uint = 0x2_0000;

/// Operations of `mdb_cursor_get`.
const FIRST: c_uint = 0;
const NEXT: c_uint = 8;
const SET_RANGE: c_uint = 17;

/// Answer for a key that is not there.
const NOT_FOUND: c_int = -30798;

/// Room beside the entries, and how often they may be there: pages are half
/// full after random inserts, an old version of each may be kept, and a value
/// of half a page takes a whole one.
const MAP_ROOM_BYTES: u64 = 1 << 30;
const MAP_FACTOR: u64 = 6;
/// Bytes that an entry takes beside its key and value, roughly.
const ENTRY_BYTES: u64 = 64;
/// The map's size is a multiple of a page.
const PAGE_BYTES: u64 = 4096;

/// `MDB_val`.
#[repr(C)]
pub(super) struct Piece {
    length: usize,
    start: *mut c_void,
}

impl Piece {
    fn new(bytes: &[u8]) -> Self {
        Piece {
            length: bytes.len(),
            // Only read: LMDB's one type serves both ways.
            start: bytes.as_ptr().cast_mut().cast(),
        }
    }

    fn empty() -> Self {
        Piece {
            length: 0,
            start: ptr::null_mut(),
        }
    }
}

type Object = *mut c_void;
type Database = c_uint;

functions! {
    /// Declarations of `lmdb.h` 0.9.24.
    struct Functions, prefix "mdb_" {
        version(*mut c_int, *mut c_int, *mut c_int) -> *const c_char;
        strerror(c_int) -> *const c_char;
        env_create(*mut Object) -> c_int;
        env_open(Object, *const c_char, c_uint, c_uint) -> c_int;
        env_close(Object);
        env_set_mapsize(Object, usize) -> c_int;
        env_set_maxreaders(Object, c_uint) -> c_int;
        env_sync(Object, c_int) -> c_int;
        txn_begin(Object, Object, c_uint, *mut Object) -> c_int;
        txn_commit(Object) -> c_int;
        txn_abort(Object);
        txn_reset(Object);
        txn_renew(Object) -> c_int;
        dbi_open(Object, *const c_char, c_uint, *mut Database) -> c_int;
        get(Object, Database, *mut Piece, *mut Piece) -> c_int;
        put(Object, Database, *mut Piece, *mut Piece, c_uint) -> c_int;
        del(Object, Database, *mut Piece, *mut Piece) -> c_int;
        cursor_open(Object, Database, *mut Object) -> c_int;
        cursor_close(Object);
        cursor_renew(Object, Object) -> c_int;
        cursor_get(Object, *mut Piece, *mut Piece, c_uint) -> c_int;
    }
}

impl Functions {
    /// 0 is success.
    fn answer(&self, call: &'static str, answer: c_int) -> Result<()> {
        if answer == 0 {
            return Ok(());
        }
        // SAFETY: takes any number.
        let words = unsafe { (self.strerror)(answer) };
        // SAFETY: a constant C string, or one of the C library.
        Err(Error::store(NAME, call, unsafe { text(words) }))
    }

    /// As `answer`, but a key that is not there is false.
    fn found(&self, call: &'static str, answer: c_int) -> Result<bool> {
        if answer == NOT_FOUND {
            return Ok(false);
        }
        self.answer(call, answer).map(|()| true)
    }
}

struct Loaded {
    functions: Functions,
    version: String,
    path: PathBuf,
}

/// Found and resolved once a process.
fn load() -> Result<&'static Loaded> {
    static LOADED: OnceLock<Result<Loaded>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let library = Library::load(&WANTED)?;
        let functions = Functions::resolve(library).map_err(|what| unfit(&WANTED, what))?;
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: three places for numbers.
        unsafe { (functions.version)(&mut major, &mut minor, &mut patch) };
        Ok(Loaded {
            functions,
            version: format!("{major}.{minor}.{patch}"),
            path: library.path.clone(),
        })
    });
    loaded.as_ref().map_err(Clone::clone)
}

/// Every setting, decided.
struct Plan {
    map_bytes: u64,
    max_readers: c_uint,
    flags: c_uint,
    printed: BTreeMap<String, String>,
}

fn plan(request: &OpenRequest) -> Result<Plan> {
    if request.durability == DurabilityName::Buffered {
        return Err(Error::Unsupported {
            store: NAME.to_string(),
            what: "buffered writes: a commit hands its pages to the operating system".to_string(),
        });
    }
    let mut settings = Settings::new(NAME, request);
    let unsynced = request.durability == DurabilityName::Written;
    settings.state("nosync", if unsynced { "on" } else { "off" });
    settings.state("compression", "off");
    let entry = request.expected_value_bytes + u64::from(request.key_bytes) + ENTRY_BYTES;
    let expected = request.expected_keys.saturating_mul(entry);
    let map_bytes = expected
        .saturating_mul(MAP_FACTOR)
        .saturating_add(MAP_ROOM_BYTES);
    let map_bytes = settings.number("map_bytes", map_bytes / PAGE_BYTES * PAGE_BYTES)?;
    let readers = u64::from(request.threads).saturating_add(16).max(126);
    let max_readers = settings.number("max_readers", readers)?;
    let mut flags = NO_THREAD_LOCAL;
    for (on, flag) in [
        (unsynced, NO_SYNC),
        (
            settings.flag("writemap", request.profile == Profile::Tuned)?,
            WRITE_MAP,
        ),
        (settings.flag("no_read_ahead", false)?, NO_READ_AHEAD),
    ] {
        if on {
            flags |= flag;
        }
    }
    Ok(Plan {
        map_bytes,
        max_readers: c_uint::try_from(max_readers).unwrap_or(c_uint::MAX),
        flags,
        printed: settings.finish()?,
    })
}

/// See the essay.
pub(super) struct Lmdb;

impl Adapter for Lmdb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "copy-on-write B+-tree in a memory map; one writer, readers without locks"
    }

    fn probe(&self) -> Availability {
        availability(load().map(|loaded| (loaded.version.clone(), loaded.path.clone())))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            atomic_batches: true,
            concurrent_writers: false,
            durabilities: &[Durability::Written, Durability::Synced],
            sizes_its_cache: false,
            compacts: false,
            persistent: true,
        }
    }

    fn settings(&self, request: &OpenRequest) -> Result<BTreeMap<String, String>> {
        Ok(plan(request)?.printed)
    }

    fn open(&self, request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        let plan = plan(request)?;
        let functions = &load()?.functions;
        let mut environment = ptr::null_mut();
        // SAFETY: a place for the new object.
        let made = unsafe { (functions.env_create)(&mut environment) };
        functions.answer("env_create", made)?;
        let mut open = Open {
            functions,
            environment: Handle::new(environment, NAME, "env_create")?,
            database: 0,
        };
        open.configure(&plan, &request.folder)?;
        open.open_database()?;
        Ok(Arc::new(open))
    }
}

/// An open environment with its one database; closed when it is dropped.
struct Open {
    functions: &'static Functions,
    /// Documented as safe to use from several threads.
    environment: Handle,
    database: Database,
}

impl Open {
    fn configure(&self, plan: &Plan, folder: &Path) -> Result<()> {
        let (functions, environment) = (self.functions, self.environment.get());
        // SAFETY: an environment that is not open yet.
        let set = unsafe { (functions.env_set_mapsize)(environment, plan.map_bytes as usize) };
        functions.answer("env_set_mapsize", set)?;
        // SAFETY: as above.
        let set = unsafe { (functions.env_set_maxreaders)(environment, plan.max_readers) };
        functions.answer("env_set_maxreaders", set)?;
        let path = CString::new(folder.as_os_str().as_bytes())
            .map_err(|error| Error::store(NAME, "env_open", error))?;
        // SAFETY: as above; a C string, and permissions for new files.
        let opened = unsafe { (functions.env_open)(environment, path.as_ptr(), plan.flags, 0o644) };
        functions.answer("env_open", opened)
    }

    /// The unnamed database is always there; its number is asked for once.
    fn open_database(&mut self) -> Result<()> {
        let functions = self.functions;
        let transaction = self.begin(0)?;
        let mut database = 0;
        // SAFETY: a transaction of this thread; null for the unnamed database.
        let opened =
            unsafe { (functions.dbi_open)(transaction.get(), ptr::null(), 0, &mut database) };
        let committed = self.end(transaction, opened == 0);
        functions.answer("dbi_open", opened)?;
        self.database = database;
        committed
    }

    fn begin(&self, flags: c_uint) -> Result<Handle> {
        let mut transaction = ptr::null_mut();
        let (environment, parent) = (self.environment.get(), ptr::null_mut());
        // SAFETY: an open environment, no parent, a place for the new object.
        let begun =
            unsafe { (self.functions.txn_begin)(environment, parent, flags, &mut transaction) };
        self.functions.answer("txn_begin", begun)?;
        Handle::new(transaction, NAME, "txn_begin")
    }

    /// Commits or aborts; the transaction is gone either way.
    fn end(&self, transaction: Handle, commit: bool) -> Result<()> {
        if commit {
            // SAFETY: a transaction that is not used after this.
            let done = unsafe { (self.functions.txn_commit)(transaction.get()) };
            return self.functions.answer("txn_commit", done);
        }
        // SAFETY: a transaction that is not used after this.
        unsafe { (self.functions.txn_abort)(transaction.get()) };
        Ok(())
    }

    fn apply(&self, transaction: Handle, change: &Change<'_>) -> Result<()> {
        let (functions, transaction) = (self.functions, transaction.get());
        match *change {
            Change::Put { key, value } => {
                let (mut key, mut value) = (Piece::new(key), Piece::new(value));
                // SAFETY: a write transaction of this thread; bytes that stay.
                let put =
                    unsafe { (functions.put)(transaction, self.database, &mut key, &mut value, 0) };
                functions.answer("put", put)
            }
            Change::Delete { key } => {
                let mut key = Piece::new(key);
                let any = ptr::null_mut();
                // SAFETY: as above; null deletes whatever the value is.
                let deleted = unsafe { (functions.del)(transaction, self.database, &mut key, any) };
                functions.found("del", deleted).map(|_| ())
            }
        }
    }

    /// One write transaction over these changes.
    fn write(&self, changes: &[Change<'_>]) -> Result<()> {
        let transaction = self.begin(0)?;
        let mut changes = changes.iter();
        let applied = changes.try_for_each(|change| self.apply(transaction, change));
        let ended = self.end(transaction, applied.is_ok());
        applied.and(ended)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: sessions, which alone hold transactions, keep a counted
        // reference to this, so there are none.
        unsafe { (self.functions.env_close)(self.environment.get()) };
    }
}

impl OpenStore for Open {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        let reading = self.begin(READ_ONLY)?;
        let mut cursor = ptr::null_mut();
        // SAFETY: a transaction and its database, a place for the new object.
        let opened =
            unsafe { (self.functions.cursor_open)(reading.get(), self.database, &mut cursor) };
        let opened = self.functions.answer("cursor_open", opened);
        let cursor = opened.and_then(|()| Handle::new(cursor, NAME, "cursor_open"));
        let cursor = match cursor {
            Ok(cursor) => cursor,
            Err(error) => {
                self.end(reading, false)?;
                return Err(error);
            }
        };
        // SAFETY: a read transaction.
        unsafe { (self.functions.txn_reset)(reading.get()) };
        Ok(Box::new(OneThread {
            reading,
            cursor,
            open: self,
        }))
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: an open environment; 1 for a sync whatever the flags say.
        let synced = unsafe { (self.functions.env_sync)(self.environment.get(), 1) };
        self.functions.answer("env_sync", synced)
    }

    /// Nothing is put off.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        Err(Error::Unsupported {
            store: NAME.to_string(),
            what: "compaction in place: it can only copy itself".to_string(),
        })
    }

    fn close(self: Arc<Self>) -> Result<()> {
        match Arc::into_inner(self) {
            Some(open) => {
                drop(open);
                Ok(())
            }
            None => Err(Error::store(NAME, "close", "a session is still open")),
        }
    }
}

/// A session: its read transaction, reset between calls, and a cursor of it.
struct OneThread {
    reading: Handle,
    cursor: Handle,
    open: Arc<Open>,
}

impl OneThread {
    fn renew(&self) -> Result<()> {
        let functions = self.open.functions;
        // SAFETY: a read transaction that is reset.
        let renewed = unsafe { (functions.txn_renew)(self.reading.get()) };
        functions.answer("txn_renew", renewed)
    }

    fn reset(&self) {
        // SAFETY: a read transaction that is renewed.
        unsafe { (self.open.functions.txn_reset)(self.reading.get()) };
    }

    fn get_renewed(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let functions = self.open.functions;
        let (mut key, mut answer) = (Piece::new(key), Piece::empty());
        // SAFETY: a read transaction and its database; bytes that stay.
        let got = unsafe {
            (functions.get)(
                self.reading.get(),
                self.open.database,
                &mut key,
                &mut answer,
            )
        };
        if !functions.found("get", got)? {
            return Ok(false);
        }
        // SAFETY: bytes of the map, which stay until the transaction is reset.
        value.extend_from_slice(unsafe { bytes(answer.start, answer.length) });
        Ok(true)
    }

    fn scan_renewed(&self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let functions = self.open.functions;
        let cursor = self.cursor.get();
        // SAFETY: a cursor of the transaction that was renewed.
        let renewed = unsafe { (functions.cursor_renew)(self.reading.get(), cursor) };
        functions.answer("cursor_renew", renewed)?;
        let (mut key, mut value) = (Piece::new(from), Piece::empty());
        // No key is empty, and LMDB takes none that is.
        let mut operation = if from.is_empty() { FIRST } else { SET_RANGE };
        let mut visited = 0;
        while visited < limit {
            // SAFETY: a cursor of a live transaction; bytes that stay.
            let moved = unsafe { (functions.cursor_get)(cursor, &mut key, &mut value, operation) };
            if !functions.found("cursor_get", moved)? {
                break;
            }
            // SAFETY: bytes of the map, which stay until the transaction is reset.
            let found = unsafe { bytes(key.start, key.length) };
            // SAFETY: as above.
            visit(found, unsafe { bytes(value.start, value.length) });
            visited += 1;
            operation = NEXT;
        }
        Ok(visited)
    }
}

impl Session for OneThread {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        self.renew()?;
        let found = self.get_renewed(key, value);
        self.reset();
        found
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.open.write(&[Change::Put { key, value }])
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.open.write(&[Change::Delete { key }])
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        self.open.write(changes)
    }

    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        self.renew()?;
        let visited = self.scan_renewed(from, limit, visit);
        self.reset();
        visited
    }
}

impl Drop for OneThread {
    fn drop(&mut self) {
        // SAFETY: made by `cursor_open`; a cursor of a read transaction is
        // closed by whoever opened it, before the transaction ends.
        unsafe { (self.open.functions.cursor_close)(self.cursor.get()) };
        // SAFETY: made by `txn_begin`, and not used after this.
        unsafe { (self.open.functions.txn_abort)(self.reading.get()) };
    }
}
