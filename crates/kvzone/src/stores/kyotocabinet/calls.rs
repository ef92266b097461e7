//! The functions of Kyoto Cabinet that are used, as `kclangc.h` 1.2.79
//! declares them.

use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use kvzone_core::error::Result;

use super::NAME;
use cambium_foreign::functions;
use cambium_foreign::library::{Library, Wanted, text, unfit};

const WANTED: Wanted = Wanted {
    store: NAME,
    stems: &["libkyotocabinet.so"],
    names: &["libkyotocabinet.so.16", "libkyotocabinet.so"],
    companions: &["liblzo2.so.2"],
    remedy: "make peers (Debian package libkyotocabinet16v5)",
};

/// Error code of a key that is not there.
pub(super) const NO_RECORD: i32 = 7;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Text {
    pub(super) start: *const c_char,
    pub(super) length: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Record {
    pub(super) key: Text,
    pub(super) value: Text,
}

pub(super) type Object = *mut c_void;

functions! {
    /// Declarations of `kclangc.h` 1.2.79.
    pub(super) struct Functions, prefix "kc" {
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
        dbsync(Object, i32, Object, Object) -> i32;
        dbcount(Object) -> i64;
    }
}

pub(super) struct Loaded {
    pub(super) functions: Functions,
    pub(super) version: String,
    pub(super) path: PathBuf,
}

pub(super) fn load() -> Result<&'static Loaded> {
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
