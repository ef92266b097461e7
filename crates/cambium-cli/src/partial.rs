//! Files and folders that appear under their names when they are whole: they are
//! written beside, and renamed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Where it is written: its name with `.partial` behind it.
pub fn path_of(path: &Path) -> Result<PathBuf, Failure> {
    let Some(name) = path.file_name() else {
        return Err(Failure::usage(format!(
            "{}: expected the name of a file or folder",
            path.display()
        )));
    };
    let mut partial = name.to_os_string();
    partial.push(".partial");
    Ok(path.with_file_name(partial))
}

/// Gives it its name, durably; its content is synced already.
pub fn publish(partial: &Path, path: &Path) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::rename(partial, path)
        .and_then(|()| File::open(folder)?.sync_all())
        .map_err(|error| Failure::file(path, &error))
}
