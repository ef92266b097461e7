//! The functions of Tokyo Cabinet that are used, as `tchdb.h`, `tcbdb.h` and
//! `tcutil.h` 1.4.48 declare them.
//!
//! Hash database and B+-tree have functions of the same names and arguments but
//! for the prefix; what only one of them has stands in a list of its own.

use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use kvzone_core::error::Result;

use super::NAME;
use cambium_foreign::functions;
use cambium_foreign::library::{Library, Wanted, text, unfit};

const WANTED: Wanted = Wanted {
    store: NAME,
    stems: &["libtokyocabinet.so"],
    names: &["libtokyocabinet.so.9", "libtokyocabinet.so"],
    companions: &["libbz2.so.1.0", "libz.so.1"],
    remedy: "make peers (Debian package libtokyocabinet9)",
};

/// Error code of a key that is not there (`TCENOREC`).
pub(super) const NO_RECORD: i32 = 22;

pub(super) type Object = *mut c_void;
type Bytes = *const c_char;

functions! {
    /// What both kinds of database have: `tchdb` or `tcbdb` is put before.
    pub(super) struct Both, prefix of the caller {
        new() -> Object;
        del(Object);
        ecode(Object) -> i32;
        errmsg(i32) -> Bytes;
        setmutex(Object) -> bool;
        setxmsiz(Object, i64) -> bool;
        open(Object, Bytes, i32) -> bool;
        close(Object) -> bool;
        put(Object, Bytes, i32, Bytes, i32) -> bool;
        out(Object, Bytes, i32) -> bool;
        get(Object, Bytes, i32, *mut i32) -> *mut c_void;
        sync(Object) -> bool;
        rnum(Object) -> u64;
    }
}

functions! {
    /// What the hash database alone has, or has with other arguments.
    pub(super) struct HashOnly, prefix "tchdb" {
        tune(Object, i64, i8, i8, u8) -> bool;
        optimize(Object, i64, i8, i8, u8) -> bool;
    }
}

functions! {
    /// What the B+-tree alone has, or has with other arguments.
    pub(super) struct TreeOnly, prefix "tcbdb" {
        tune(Object, i32, i32, i64, i8, i8, u8) -> bool;
        optimize(Object, i32, i32, i64, i8, i8, u8) -> bool;
        setcache(Object, i32, i32) -> bool;
        memsync(Object, bool) -> bool;
        curnew(Object) -> Object;
        curdel(Object);
        curfirst(Object) -> bool;
        curjump(Object, Bytes, i32) -> bool;
        curnext(Object) -> bool;
        currec(Object, Object, Object) -> bool;
    }
}

functions! {
    /// Extensible strings, into which a cursor copies, and memory.
    pub(super) struct Memory, prefix "tc" {
        xstrnew() -> Object;
        xstrdel(Object);
        xstrptr(Object) -> *const c_void;
        xstrsize(Object) -> i32;
        xstrclear(Object);
        free(Object);
    }
}

pub(super) struct Loaded {
    pub(super) hash: Both,
    pub(super) tree: Both,
    pub(super) hash_only: HashOnly,
    pub(super) tree_only: TreeOnly,
    pub(super) memory: Memory,
    pub(super) version: String,
    pub(super) path: PathBuf,
}

pub(super) fn load() -> Result<&'static Loaded> {
    static LOADED: OnceLock<Result<Loaded>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let library = Library::load(&WANTED)?;
        Ok(resolve(library).map_err(|what| unfit(&WANTED, what))?)
    });
    loaded.as_ref().map_err(Clone::clone)
}

fn resolve(library: &Library) -> std::result::Result<Loaded, String> {
    // SAFETY: `extern const char *tcversion` of the header.
    let version = unsafe { library.symbol::<*const Bytes>("tcversion") }?;
    // SAFETY: a variable of the library, set before it was loaded.
    let version = unsafe { *version };
    Ok(Loaded {
        hash: Both::resolve(library, "tchdb")?,
        tree: Both::resolve(library, "tcbdb")?,
        hash_only: HashOnly::resolve(library)?,
        tree_only: TreeOnly::resolve(library)?,
        memory: Memory::resolve(library)?,
        // SAFETY: a constant C string.
        version: unsafe { text(version) },
        path: library.path.clone(),
    })
}
