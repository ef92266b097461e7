//! Libraries of foreign stores, loaded while the program runs.
//!
//! Programs build and run where none of them is installed, and none of their
//! licences reaches them. [`Library::load`] looks, in this order, for a file whose
//! name begins as the library's does,
//!
//! 1. in the folders of the environment variable `KVZONE_PEER_LIBS` (several are
//!    separated by colons), and below them;
//! 2. in a folder `peers` beside the executable or above it, where `make peers`
//!    puts them: `target/peers` for `target/release/kvzone`;
//! 3. by plain names, which the system's loader looks up.
//!
//! A library may need others that lie in the same folder and in none that the
//! system's loader knows; those are loaded before it: the loader recognizes them
//! by their names. Everything is bound at once and stays apart
//! (`RTLD_NOW | RTLD_LOCAL`), so that a missing function is found at the
//! beginning, and two libraries with a function of one name do not meet.
//!
//! A library is never unloaded. C++ libraries leave threads and destructors of
//! thread-local objects behind, and a function pointer can so be held without
//! asking how long the library lives.
//!
//! `functions!` turns a list of C declarations into a struct of function
//! pointers that is resolved once. A declaration that does not agree with the
//! library's header would be undefined behaviour that nothing here can notice:
//! each list says which header, of which version, it was taken from.

use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};

use crate::error::{Error, Result};

/// Names the folder to look into first.
pub const FOLDERS_VARIABLE: &str = "KVZONE_PEER_LIBS";

/// How deep below a folder libraries are looked for: an unpacked Debian
/// package has them at `usr/lib/x86_64-linux-gnu`.
const MOST_FOLDERS_DEEP: usize = 4;

/// What to look for.
pub struct Wanted {
    /// The store's name, for errors.
    pub store: &'static str,
    /// What file names begin with, best first: `libleveldb.so`.
    pub stems: &'static [&'static str],
    /// Names for the system's loader, best first.
    pub names: &'static [&'static str],
    /// Libraries that it needs and that may lie beside it.
    pub companions: &'static [&'static str],
    /// How to get it.
    pub remedy: &'static str,
}

/// A library that is loaded, until the process ends.
pub struct Library {
    loaded: Loaded,
    /// Where it really is.
    pub path: PathBuf,
}

impl Library {
    /// Finds and loads it.
    ///
    /// # Errors
    /// [`Error::Missing`], with what was tried and the loader's own words.
    pub fn load(wanted: &Wanted) -> Result<&'static Library> {
        let mut tried = Vec::new();
        for folder in folders() {
            for file in matching(&folder, wanted.stems) {
                load_companions(&file, wanted.companions);
                match open(&file) {
                    Ok(loaded) => return Ok(keep(loaded, file)),
                    Err(words) => tried.push(words),
                }
            }
        }
        for name in wanted.names {
            match open(Path::new(name)) {
                Ok(loaded) => {
                    let path = mapped(wanted.stems).unwrap_or_else(|| PathBuf::from(name));
                    return Ok(keep(loaded, path));
                }
                Err(words) => tried.push(words),
            }
        }
        Err(Error::Missing {
            store: wanted.store,
            what: tried.join("; "),
            remedy: wanted.remedy,
        })
    }

    /// The address of a function or variable.
    ///
    /// # Safety
    /// `T` must be a function pointer of the C declaration of the symbol, or a
    /// pointer to the variable.
    pub unsafe fn symbol<T: Copy>(&self, name: &str) -> std::result::Result<T, String> {
        // SAFETY: the caller says that T is the symbol's type.
        let symbol = unsafe { self.loaded.get::<T>(name.as_bytes()) };
        match symbol {
            Ok(symbol) => Ok(*symbol),
            Err(error) => Err(format!("{}: {error}", self.path.display())),
        }
    }
}

fn keep(loaded: Loaded, path: PathBuf) -> &'static Library {
    let path = std::fs::canonicalize(&path).unwrap_or(path);
    Box::leak(Box::new(Library { loaded, path }))
}

fn open(file: &Path) -> std::result::Result<Loaded, String> {
    // SAFETY: the libraries' initializers (C++ static objects) ask for nothing
    // from the program that loads them.
    let loaded = unsafe { Loaded::open(Some(file), RTLD_NOW | RTLD_LOCAL) };
    loaded.map_err(|error| {
        // The source has the loader's words; the error itself names only dlopen.
        let source = std::error::Error::source(&error).map(ToString::to_string);
        source.unwrap_or_else(|| format!("{}: {error}", file.display()))
    })
}

/// Loads what a library needs from the folder it lies in, or below one of the
/// folders searched; what is not there the system's loader may still know.
fn load_companions(file: &Path, companions: &[&str]) {
    let folders = folders();
    for name in companions {
        let mut candidates: Vec<PathBuf> = Vec::new();
        candidates.extend(file.parent().map(|folder| folder.join(name)));
        for folder in &folders {
            candidates.extend(matching(folder, &[name]));
        }
        let loaded = candidates.iter().find_map(|file| open(file).ok());
        // Kept for ever, as the library that needs it.
        std::mem::forget(loaded);
    }
}

/// The folders to look into, in order.
fn folders() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = match std::env::var_os(FOLDERS_VARIABLE) {
        Some(named) => std::env::split_paths(&named)
            .filter(|folder| !folder.as_os_str().is_empty())
            .collect(),
        None => Vec::new(),
    };
    if let Ok(executable) = std::env::current_exe() {
        // target/peers from target/release/kvzone and target/debug/deps/test.
        let above = executable.ancestors().skip(1).take(3);
        found.extend(above.map(|folder| folder.join("peers")));
    }
    found.retain(|folder| folder.is_dir());
    found
}

/// Files below a folder whose names begin with a stem: by stem, then by name.
fn matching(folder: &Path, stems: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    list(folder, MOST_FOLDERS_DEEP, &mut files);
    files.sort();
    stems
        .iter()
        .flat_map(|stem| files.iter().filter(move |file| begins(file, stem)))
        .cloned()
        .collect()
}

fn begins(file: &Path, stem: &str) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(stem))
}

fn list(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if !path.is_dir() {
            files.push(path);
        } else if depth > 0 {
            list(&path, depth - 1, files);
        }
    }
}

/// Where the system's loader found a library: the file that is mapped into
/// this process.
fn mapped(stems: &[&str]) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().find_map(|line| {
        let path = Path::new(line.get(line.find('/')?..)?);
        stems.iter().any(|stem| begins(path, stem)).then_some(path)
    });
    path.map(Path::to_path_buf)
}

/// A library that is there and lacks a function that is needed.
pub fn unfit(wanted: &Wanted, what: String) -> Error {
    Error::Missing {
        store: wanted.store,
        what,
        remedy: wanted.remedy,
    }
}

/// An opaque object of a C library.
///
/// Which of them may be shared between threads stands where one is kept: all
/// libraries here let an object be used by another thread than made it, one at
/// a time; an object that several may use at once (a database) is documented
/// so by its library, and anything else is held by one session, behind `&mut`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Handle(NonNull<c_void>);

// SAFETY: see above: no library here ties an object to the thread that made it.
unsafe impl Send for Handle {}
// SAFETY: see above: a shared handle is only used for calls that its library
// documents as safe from several threads.
unsafe impl Sync for Handle {}

impl Handle {
    /// What a C call returned, or the error of a call that returned nothing.
    pub fn new(pointer: *mut c_void, store: &'static str, call: &'static str) -> Result<Self> {
        NonNull::new(pointer)
            .map(Handle)
            .ok_or_else(|| Error::store(store, call, "answered a null pointer: no memory?"))
    }

    /// For calling C.
    pub fn get(self) -> *mut c_void {
        self.0.as_ptr()
    }
}

/// A C string as text; empty for null.
///
/// # Safety
/// `text` must be null or point to a string that ends with a zero byte.
pub unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the caller says that it ends.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// Bytes that C owns, as a slice; empty where the length is 0.
///
/// # Safety
/// `start` must point to `length` bytes that nobody changes for `'a`, unless
/// `length` is 0.
pub unsafe fn bytes<'a>(start: *const c_void, length: usize) -> &'a [u8] {
    if length == 0 || start.is_null() {
        return &[];
    }
    // SAFETY: the caller says that so many bytes are there, and stay.
    unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) }
}

/// Makes a struct of function pointers, and `resolve`, which looks all of them
/// up in a [`Library`]; it answers the first that is not there.
#[macro_export]
macro_rules! functions {
    (
        $(#[$about:meta])*
        $visibility:vis struct $name:ident, prefix $prefix:literal {
            $($function:ident($($argument:ty),* $(,)?) $(-> $answer:ty)?;)*
        }
    ) => {
        $(#[$about])*
        $visibility struct $name {
            $(#[allow(missing_docs)] $visibility $function: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
        }

        impl $name {
            #[allow(missing_docs)]
            $visibility fn resolve(
                library: &$crate::library::Library,
            ) -> std::result::Result<Self, String> {
                Ok($name {
                    $($function: {
                        let name = concat!($prefix, stringify!($function));
                        // SAFETY: the declaration is that of the header named
                        // where the list stands.
                        unsafe { library.symbol(name) }?
                    },)*
                })
            }
        }
    };
    // The same for libraries that have one list of functions under several
    // prefixes: the prefix is an argument of `resolve`.
    (
        $(#[$about:meta])*
        $visibility:vis struct $name:ident, prefix of the caller {
            $($function:ident($($argument:ty),* $(,)?) $(-> $answer:ty)?;)*
        }
    ) => {
        $(#[$about])*
        $visibility struct $name {
            $(#[allow(missing_docs)] $visibility $function: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
        }

        impl $name {
            #[allow(missing_docs)]
            $visibility fn resolve(
                library: &$crate::library::Library,
                prefix: &str,
            ) -> std::result::Result<Self, String> {
                Ok($name {
                    $($function: {
                        let name = format!("{prefix}{}", stringify!($function));
                        // SAFETY: as above.
                        unsafe { library.symbol(&name) }?
                    },)*
                })
            }
        }
    };
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_stem_below_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("usr/lib/triplet");
        std::fs::create_dir_all(&deep).unwrap();
        for name in ["libx.so.1", "liby.so.2", "libx.so.1.2"] {
            std::fs::write(deep.join(name), "").unwrap();
        }
        let found = matching(folder.path(), &["liby.so", "libx.so"]);
        let names: Vec<_> = found.iter().filter_map(|file| file.file_name()).collect();
        assert_eq!(names, ["liby.so.2", "libx.so.1", "libx.so.1.2"]);
    }

    #[test]
    fn what_is_missing_names_what_was_tried_and_the_remedy() {
        let wanted = Wanted {
            store: "nothing",
            stems: &["libnothing-of-that-name.so"],
            names: &["libnothing-of-that-name.so.9"],
            companions: &[],
            remedy: "wait",
        };
        let Err(Error::Missing { what, remedy, .. }) = Library::load(&wanted) else {
            panic!("there is no such library");
        };
        assert!(what.contains("libnothing-of-that-name.so.9"), "{what}");
        assert_eq!(remedy, "wait");
    }

    #[test]
    fn a_library_of_the_system_is_loaded_and_its_path_known() {
        let wanted = Wanted {
            store: "libc",
            stems: &["libc.so"],
            names: &["libc.so.6"],
            companions: &[],
            remedy: "",
        };
        let library = Library::load(&wanted).unwrap();
        assert!(library.path.is_absolute(), "{}", library.path.display());
        // SAFETY: `long labs(long)` of stdlib.h.
        let absolute: unsafe extern "C" fn(std::ffi::c_long) -> std::ffi::c_long =
            unsafe { library.symbol("labs") }.unwrap();
        // SAFETY: it takes any number but the smallest.
        assert_eq!(unsafe { absolute(-7) }, 7);
        // SAFETY: nothing is called through it.
        let nothing = unsafe { library.symbol::<*const c_void>("no_such_function") };
        assert!(nothing.is_err());
    }
}
