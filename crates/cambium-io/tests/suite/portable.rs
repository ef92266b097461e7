//! The operating system's files through the standard library.

const FS: cambium_io::PortableFileSystem = cambium_io::PortableFileSystem;

#[allow(clippy::duplicate_mod)] // the same tests
#[path = "files.rs"]
mod files;
