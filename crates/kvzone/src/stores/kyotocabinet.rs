//! Kyoto Cabinet 1.2, through its C interface (`kclangc.h`): the hash database
//! on a file, or its B+-tree on one.
//!
//! # Durability
//! | asked for | `type=hash` | `type=tree` |
//! |---|---|---|
//! | `buffered` | refused: a write goes into a mapping of the file or to the operating system at once | dirty pages stay in its cache |
//! | `written` | as it is by default: survives the process; a power cut may leave a file that it has to reorganize | `OAUTOTRAN`: each write is a transaction of its own |
//! | `synced` | `kcdbsync` with hard synchronization after each write or batch | the same |
//!
//! That is the peer's like of `written`, and weaker than ours: it promises no
//! prefix of the writes after a power cut.
//!
//! # Settings
//! | setting | `default` | `equal` | `tuned` |
//! |---|---|---|---|
//! | `type` | `hash` | `hash` | `hash` |
//! | `buckets` (`#bnum`) | as shipped: 1,048,583, and 65,536 in a tree | twice the expected entries, no fewer than shipped; in a tree a tenth of them | as `equal` |
//! | `mapped_bytes` (`#msiz`) | as shipped: 64 MiB | the cache asked for | as `equal` |
//! | `page_cache_bytes` (`#pccap`, tree) | as shipped: 64 MiB | the cache asked for | as `equal` |
//! | `linear` (`#opts=l`) | off | off | on: chains are lists, not trees, as its documents advise where there are buckets enough |
//! | `batch` | `bulk` | `bulk` | `bulk` |
//!
//! A hash database falls off a cliff when there are many more entries than
//! buckets, which are fixed when the file is made. Its cache is the mapping of
//! the file's beginning, which is page cache; compression is never on.
//!
//! A batch is `kcdbsetbulk` and `kcdbremovebulk`, in runs of one kind; other
//! threads see each run whole, but a crash may leave half of it. With
//! `batch=transaction` it is one transaction, whole after a crash too.
//!
//! Calls answer 0 (or -1) for a failure; code and words are then asked for, on
//! the same thread, and belong to the database.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, OnceLock};

use cambium::Durability;
use kvzone_core::adapter::{
    Adapter, Availability, Capabilities, Change, DurabilityName, OpenRequest, OpenStore, Profile,
    Session, Visit, no_scan,
};
use kvzone_core::error::{Error, Result};

use super::library::{Handle, Library, Wanted, availability, bytes, functions, text, unfit};
use super::settings::Settings;

const NAME: &str = "kyotocabinet";

const WANTED: Wanted = Wanted {
    store: NAME,
    stems: &["libkyotocabinet.so"],
    names: &["libkyotocabinet.so.16", "libkyotocabinet.so"],
    companions: &["liblzo2.so.2"],
    remedy: "make peers (Debian package libkyotocabinet16v5)",
};

/// Modes of `kcdbopen`.
const WRITER: u32 = 1 << 1;
const CREATE: u32 = 1 << 2;
const AUTO_TRANSACTION: u32 = 1 << 4;

/// Error code of a key that is not there.
const NO_RECORD: i32 = 7;

/// As shipped.
const HASH_BUCKETS: u64 = 1_048_583;
const TREE_BUCKETS: u64 = 64 << 10;
const MAPPED_BYTES: u64 = 64 << 20;

/// `KCSTR`: bytes of the caller.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Text {
    start: *const c_char,
    length: usize,
}

/// `KCREC`: a key and a value of the caller.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Record {
    key: Text,
    value: Text,
}

type Object = *mut c_void;

functions! {
    /// Declarations of `kclangc.h` 1.2.79.
    struct Functions, prefix "kc" {
        dbnew() -> Object;
        dbdel(Object);
        dbopen(Object, *const c_char, u32) -> i32;
        dbclose(Object) -> i32;
        dbecode(Object) -> i32;
        dbemsg(Object) -> *const c_char;
        dbset(Object, *const c_char, usize, *const c_char, usize) -> i32;
        dbremove(Object, *const c_char, usize) -> i32;
        dbgetbuf(Object, *const c_char, usize, *mut c_char, usize) -> i32;
        dbsetbulk(Object, *const Record, usize, i32) -> i64;
        dbremovebulk(Object, *const Text, usize, i32) -> i64;
        dbbegintran(Object, i32) -> i32;
        dbendtran(Object, i32) -> i32;
        dbsync(Object, i32, Object, Object) -> i32;
        dbcount(Object) -> i64;
        dbcursor(Object) -> Object;
        curdel(Object);
        curjumpkey(Object, *const c_char, usize) -> i32;
        curget(Object, *mut usize, *mut *const c_char, *mut usize, i32) -> *mut c_char;
        free(Object);
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
        // SAFETY: `const char* const KCVERSION` of the header.
        let version = unsafe { library.symbol::<*const *const c_char>("KCVERSION") };
        let version = version.map_err(|what| unfit(&WANTED, what))?;
        // SAFETY: a variable of the library, set before it was loaded.
        let version = unsafe { *version };
        Ok(Loaded {
            functions,
            // SAFETY: a constant C string.
            version: unsafe { text(version) },
            path: library.path.clone(),
        })
    });
    loaded.as_ref().map_err(Clone::clone)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchForm {
    Bulk,
    Transaction,
}

/// Every setting, decided.
struct Plan {
    tree: bool,
    buckets: u64,
    mapped_bytes: u64,
    page_cache_bytes: u64,
    linear: bool,
    batch: BatchForm,
    /// Each write is followed by a hard synchronization.
    sync: bool,
    mode: u32,
    printed: BTreeMap<String, String>,
}

fn is_tree(request: &OpenRequest) -> bool {
    request.overrides.get("type").is_some_and(|it| it == "tree")
}

fn durabilities(tree: bool) -> &'static [Durability] {
    let all = &[
        Durability::Buffered,
        Durability::Written,
        Durability::Synced,
    ];
    if tree { all } else { &all[1..] }
}

fn plan(request: &OpenRequest) -> Result<Plan> {
    let mut settings = Settings::new(NAME, request);
    let tree = settings.word("type", "hash", &["hash", "tree"])? == "tree";
    if request.durability == DurabilityName::Buffered && !tree {
        return Err(Error::Unsupported {
            store: NAME.to_string(),
            what: "buffered writes in a hash database: none stays in the process".to_string(),
        });
    }
    let shipped = request.profile == Profile::Default;
    let mode = match request.durability {
        DurabilityName::Written if tree => WRITER | CREATE | AUTO_TRANSACTION,
        _ => WRITER | CREATE,
    };
    let sync = request.durability == DurabilityName::Synced;
    settings.state("auto_transaction", on_or_off(mode & AUTO_TRANSACTION != 0));
    settings.state("sync_after_each_write", on_or_off(sync));
    settings.state("compression", "off");
    let (least, wanted) = if tree {
        (TREE_BUCKETS, request.expected_keys / 10)
    } else {
        (HASH_BUCKETS, request.expected_keys.saturating_mul(2))
    };
    let buckets = if shipped { least } else { wanted.max(least) };
    let cache = if shipped {
        MAPPED_BYTES
    } else {
        request.cache_bytes
    };
    let page_cache_bytes = match tree {
        true => settings.number("page_cache_bytes", cache)?,
        false => 0,
    };
    let tuned = request.profile == Profile::Tuned;
    let batch = settings.word("batch", "bulk", &["bulk", "transaction"])?;
    Ok(Plan {
        tree,
        buckets: settings.number("buckets", buckets)?,
        mapped_bytes: settings.number("mapped_bytes", cache)?,
        page_cache_bytes,
        linear: settings.flag("linear", tuned)?,
        batch: match batch {
            "transaction" => BatchForm::Transaction,
            _ => BatchForm::Bulk,
        },
        sync,
        mode,
        printed: settings.finish()?,
    })
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Path and tuning as one string: `/folder/store.kch#bnum=...#msiz=...`.
fn tuned_path(plan: &Plan, folder: &Path) -> Result<CString> {
    let folder = folder.to_str().filter(|text| !text.contains('#'));
    let Some(folder) = folder else {
        let words = "a folder for it has no # in its name, and is UTF-8: it reads settings there";
        return Err(Error::Usage(format!("{NAME}: {words}")));
    };
    let kind = if plan.tree { "kct" } else { "kch" };
    let mut path = format!(
        "{folder}/store.{kind}#bnum={}#msiz={}",
        plan.buckets, plan.mapped_bytes
    );
    if plan.tree {
        path.push_str(&format!("#pccap={}", plan.page_cache_bytes));
    }
    if plan.linear {
        path.push_str("#opts=l");
    }
    CString::new(path).map_err(|error| Error::store(NAME, "dbopen", error))
}

/// See the essay.
pub(super) struct KyotoCabinet;

impl Adapter for KyotoCabinet {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "hash table in a mapped file (type=hash), or a B+-tree over it (type=tree)"
    }

    fn probe(&self) -> Availability {
        availability(load().map(|loaded| (loaded.version.clone(), loaded.path.clone())))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: false,
            atomic_batches: false,
            concurrent_writers: true,
            durabilities: durabilities(false),
            sizes_its_cache: true,
            compacts: false,
            persistent: true,
        }
    }

    fn capabilities_for(&self, request: &OpenRequest) -> Capabilities {
        let batch = request.overrides.get("batch");
        Capabilities {
            ordered: is_tree(request),
            atomic_batches: batch.is_some_and(|form| form == "transaction"),
            durabilities: durabilities(is_tree(request)),
            ..self.capabilities()
        }
    }

    fn settings(&self, request: &OpenRequest) -> Result<BTreeMap<String, String>> {
        Ok(plan(request)?.printed)
    }

    fn open(&self, request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        let plan = plan(request)?;
        let path = tuned_path(&plan, &request.folder)?;
        let functions = &load()?.functions;
        // SAFETY: takes nothing, answers a new object.
        let database = Handle::new(unsafe { (functions.dbnew)() }, NAME, "dbnew")?;
        let mut open = Open {
            functions,
            database,
            is_open: false,
            plan,
        };
        // SAFETY: a new database, a C string.
        let opened = unsafe { (functions.dbopen)(database.get(), path.as_ptr(), open.plan.mode) };
        open.answer("dbopen", opened)?;
        open.is_open = true;
        Ok(Arc::new(open))
    }
}

/// An open database; closed when it is dropped.
struct Open {
    functions: &'static Functions,
    /// Documented as safe to use from several threads.
    database: Handle,
    is_open: bool,
    plan: Plan,
}

impl Open {
    /// 0 is a failure, of which the database knows more.
    fn answer(&self, call: &'static str, answer: i32) -> Result<()> {
        if answer != 0 {
            return Ok(());
        }
        Err(self.failure(call))
    }

    fn failure(&self, call: &'static str) -> Error {
        // SAFETY: a database, asked on the thread that made the call.
        let words = unsafe { (self.functions.dbemsg)(self.database.get()) };
        // SAFETY: a C string that the database holds until the next call.
        Error::store(NAME, call, unsafe { text(words) })
    }

    /// True if the call before, on this thread, failed for want of the key.
    fn was_missing(&self) -> bool {
        // SAFETY: a database, asked on the thread that made the call.
        unsafe { (self.functions.dbecode)(self.database.get()) == NO_RECORD }
    }

    fn synchronize(&self) -> Result<()> {
        let nothing = ptr::null_mut();
        // SAFETY: an open database; hard, without a callback.
        let done = unsafe { (self.functions.dbsync)(self.database.get(), 1, nothing, nothing) };
        self.answer("dbsync", done)
    }

    /// What a write promises beyond being done.
    fn after_write(&self) -> Result<()> {
        if self.plan.sync {
            return self.synchronize();
        }
        Ok(())
    }

    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (from, key_bytes) = (start(key), key.len());
        // SAFETY: an open database; bytes that stay for the call.
        let done = unsafe {
            (self.functions.dbset)(
                self.database.get(),
                from,
                key_bytes,
                start(value),
                value.len(),
            )
        };
        self.answer("dbset", done)
    }

    fn remove(&self, key: &[u8]) -> Result<()> {
        // SAFETY: an open database; bytes that stay for the call.
        let done = unsafe { (self.functions.dbremove)(self.database.get(), start(key), key.len()) };
        if done == 0 && !self.was_missing() {
            return Err(self.failure("dbremove"));
        }
        Ok(())
    }
}

/// Where bytes begin. Of an empty slice Rust may say address 1, which is what
/// Kyoto Cabinet's visitors mean by "remove this record": it gets a real one.
fn start(bytes: &[u8]) -> *const c_char {
    if bytes.is_empty() {
        return c"".as_ptr();
    }
    bytes.as_ptr().cast()
}

fn piece(bytes: &[u8]) -> Text {
    Text {
        start: start(bytes),
        length: bytes.len(),
    }
}

impl OpenStore for Open {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(OneThread {
            open: self,
            puts: Pieces(Vec::new()),
            deletes: Pieces(Vec::new()),
        }))
    }

    fn sync(&self) -> Result<()> {
        self.synchronize()
    }

    /// Nothing is put off.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        Err(Error::Unsupported {
            store: NAME.to_string(),
            what: "compaction: its C interface has none".to_string(),
        })
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        // SAFETY: an open database.
        let entries = unsafe { (self.functions.dbcount)(self.database.get()) };
        BTreeMap::from([("entries".to_string(), entries as f64)])
    }

    fn close(self: Arc<Self>) -> Result<()> {
        let Some(mut open) = Arc::into_inner(self) else {
            return Err(Error::store(NAME, "close", "a session is still open"));
        };
        open.is_open = false;
        // SAFETY: an open database that nobody else uses.
        let closed = unsafe { (open.functions.dbclose)(open.database.get()) };
        open.answer("dbclose", closed)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.is_open {
            // SAFETY: an open database that nobody else uses.
            unsafe { (self.functions.dbclose)(self.database.get()) };
        }
        // SAFETY: made by `dbnew`, closed or never opened, not used after this.
        unsafe { (self.functions.dbdel)(self.database.get()) };
    }
}

/// Pointers to the changes of one call, kept for their memory alone: empty
/// between calls.
struct Pieces<T>(Vec<T>);

// SAFETY: it is empty whenever a session goes to another thread.
unsafe impl<T> Send for Pieces<T> {}

struct OneThread {
    open: Arc<Open>,
    puts: Pieces<Record>,
    deletes: Pieces<Text>,
}

impl OneThread {
    fn flush_puts(&mut self) -> Result<()> {
        let (records, count) = (self.puts.0.as_ptr(), self.puts.0.len());
        self.puts.0.clear();
        if count == 0 {
            return Ok(());
        }
        let open = &*self.open;
        // SAFETY: an open database and so many records, whose memory a cleared
        // vector keeps, pointing to bytes of the caller's changes.
        let done = unsafe { (open.functions.dbsetbulk)(open.database.get(), records, count, 1) };
        if done < 0 {
            return Err(open.failure("dbsetbulk"));
        }
        Ok(())
    }

    fn flush_deletes(&mut self) -> Result<()> {
        let (keys, count) = (self.deletes.0.as_ptr(), self.deletes.0.len());
        self.deletes.0.clear();
        if count == 0 {
            return Ok(());
        }
        let open = &*self.open;
        // SAFETY: as in `flush_puts`.
        let done = unsafe { (open.functions.dbremovebulk)(open.database.get(), keys, count, 1) };
        if done < 0 {
            return Err(open.failure("dbremovebulk"));
        }
        Ok(())
    }

    /// Runs of puts and of deletes, in their order.
    fn write_bulk(&mut self, changes: &[Change<'_>]) -> Result<()> {
        for change in changes {
            match *change {
                Change::Put { key, value } => {
                    self.flush_deletes()?;
                    self.puts.0.push(Record {
                        key: piece(key),
                        value: piece(value),
                    });
                }
                Change::Delete { key } => {
                    self.flush_puts()?;
                    self.deletes.0.push(piece(key));
                }
            }
        }
        self.flush_deletes()?;
        self.flush_puts()
    }

    fn write_transaction(&self, changes: &[Change<'_>]) -> Result<()> {
        let open = &*self.open;
        let hard = i32::from(open.plan.sync);
        // SAFETY: an open database.
        let begun = unsafe { (open.functions.dbbegintran)(open.database.get(), hard) };
        open.answer("dbbegintran", begun)?;
        let applied = changes.iter().try_for_each(|change| match *change {
            Change::Put { key, value } => open.set(key, value),
            Change::Delete { key } => open.remove(key),
        });
        let commit = i32::from(applied.is_ok());
        // SAFETY: an open database, in a transaction of this thread.
        let ended = unsafe { (open.functions.dbendtran)(open.database.get(), commit) };
        applied?;
        open.answer("dbendtran", ended)
    }
}

impl Session for OneThread {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let open = &*self.open;
        loop {
            // SAFETY: an open database, key bytes that stay, and room for so
            // many bytes as are named.
            let length = unsafe {
                (open.functions.dbgetbuf)(
                    open.database.get(),
                    start(key),
                    key.len(),
                    value.as_mut_ptr().cast(),
                    value.capacity(),
                )
            };
            let Ok(length) = usize::try_from(length) else {
                if open.was_missing() {
                    return Ok(false);
                }
                return Err(open.failure("dbgetbuf"));
            };
            if length <= value.capacity() {
                // SAFETY: the library wrote so many bytes, within the capacity.
                unsafe { value.set_len(length) };
                return Ok(true);
            }
            value.reserve_exact(length);
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.open.set(key, value)?;
        self.open.after_write()
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.open.remove(key)?;
        self.open.after_write()
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        match self.open.plan.batch {
            BatchForm::Bulk => {
                let written = self.write_bulk(changes);
                self.puts.0.clear();
                self.deletes.0.clear();
                written?;
            }
            BatchForm::Transaction => self.write_transaction(changes)?,
        }
        self.open.after_write()
    }

    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        if !self.open.plan.tree {
            return Err(no_scan(NAME));
        }
        let walk = Walk::new(&self.open)?;
        if limit == 0 || !walk.jump(from)? {
            return Ok(0);
        }
        let mut visited = 0;
        while visited < limit && walk.visit(visit)? {
            visited += 1;
        }
        Ok(visited)
    }
}

/// A cursor, deleted when it is dropped.
struct Walk<'a> {
    open: &'a Open,
    cursor: Handle,
}

impl<'a> Walk<'a> {
    fn new(open: &'a Open) -> Result<Self> {
        // SAFETY: an open database.
        let cursor = unsafe { (open.functions.dbcursor)(open.database.get()) };
        Ok(Walk {
            open,
            cursor: Handle::new(cursor, NAME, "dbcursor")?,
        })
    }

    /// To the first key from this one on; false if there is none.
    fn jump(&self, from: &[u8]) -> Result<bool> {
        let jump = self.open.functions.curjumpkey;
        // SAFETY: a live cursor; bytes that stay for the call.
        let found = unsafe { jump(self.cursor.get(), start(from), from.len()) };
        if found == 0 && !self.open.was_missing() {
            return Err(self.open.failure("curjumpkey"));
        }
        Ok(found != 0)
    }

    /// Visits the entry there and steps on; false if there is none.
    fn visit(&self, visit: &mut Visit<'_>) -> Result<bool> {
        let (mut key_bytes, mut value, mut value_bytes) = (0, ptr::null(), 0);
        // SAFETY: a live cursor, and places for what it answers.
        let region = unsafe {
            (self.open.functions.curget)(
                self.cursor.get(),
                &mut key_bytes,
                &mut value,
                &mut value_bytes,
                1,
            )
        };
        if region.is_null() {
            if self.open.was_missing() {
                return Ok(false);
            }
            return Err(self.open.failure("curget"));
        }
        // SAFETY: the region begins with so many bytes of key, and is ours.
        let key = unsafe { bytes(region.cast(), key_bytes) };
        // SAFETY: the value lies in the same region.
        let value = unsafe { bytes(value.cast(), value_bytes) };
        visit(key, value);
        // SAFETY: the region came from the library, and is not used after this.
        unsafe { (self.open.functions.free)(region.cast()) };
        Ok(true)
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `dbcursor`, and not used after this.
        unsafe { (self.open.functions.curdel)(self.cursor.get()) };
    }
}
