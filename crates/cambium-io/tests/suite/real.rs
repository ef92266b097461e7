//! The operating system's files, with all that it offers.

const FS: cambium_io::RealFileSystem = cambium_io::RealFileSystem;

#[path = "files.rs"]
mod files;
