//! Where stores are put: the folder of a run, its disk, and its room.
//!
//! Each run has a folder of its own below `DIR/kvzone-PID-N`, which goes away
//! with the run. What a killed KVZone left there is removed by the next one.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use cambium_io::{FileSystem, RealFileSystem};
use kvzone_core::error::{Error, Result};
use kvzone_core::size;
use serde::Serialize;

use crate::counters::field;

/// A folder that goes away when it is dropped.
#[derive(Debug)]
pub(crate) struct RunFolder(PathBuf);

impl RunFolder {
    pub(crate) fn create(directory: &Path, name: &str) -> Result<RunFolder> {
        let path = directory.join(format!("kvzone-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| Error::machine("make folder", &path, error))?;
        Ok(RunFolder(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A name as part of a file's: a workload's may hold a path.
pub(crate) fn file_name(name: &str) -> String {
    let kept = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let safe = |letter| if kept(letter) { letter } else { '-' };
    let all: Vec<char> = name.chars().map(safe).collect();
    // Of a long path its end tells most.
    all[all.len().saturating_sub(80)..].iter().collect()
}

/// True for `kvzone-PID-...` of a process that is no more.
pub(crate) fn is_leftover(name: &OsStr) -> bool {
    let process = name
        .to_str()
        .and_then(|name| name.strip_prefix("kvzone-")?.split_once('-'))
        .and_then(|(process, _)| process.parse::<u32>().ok());
    process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists())
}

/// Makes the folder where it is not there, and removes what a killed KVZone
/// left in it.
pub(crate) fn prepare(directory: &Path) -> Result<PathBuf> {
    let failed = |error| Error::machine("use folder", directory, error);
    fs::create_dir_all(directory).map_err(failed)?;
    let directory = directory.canonicalize().map_err(failed)?;
    for entry in fs::read_dir(&directory).map_err(failed)?.flatten() {
        if is_leftover(&entry.file_name()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(directory)
}

pub(crate) fn check_room(directory: &Path, needed: u64) -> Result<()> {
    let space = RealFileSystem.space(directory)?;
    if space.available >= needed {
        return Ok(());
    }
    Err(Error::machine(
        "make room in",
        directory,
        format!(
            "the largest store may need {} and {} are free; use fewer keys, smaller values, or --dir on a larger disk",
            size::display(needed),
            size::display(space.available)
        ),
    ))
}

/// Refuses a run that the machine has no memory for: a store that is paged out
/// while it is measured shows the swap device.
pub(crate) fn check_memory(needed: u64) -> Result<()> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match available_memory(&text) {
        Some(available) if available < needed => Err(Error::machine(
            "find memory in",
            "this machine",
            format!(
                "a store's memory and KVZone's own tables take {}, and {} are available; use a smaller --budget or fewer --keys",
                size::display(needed),
                size::display(available)
            ),
        )),
        _ => Ok(()),
    }
}

/// Bytes that can be had without swapping, of `/proc/meminfo`.
fn available_memory(text: &str) -> Option<u64> {
    field(text, "MemAvailable:").map(|kibibytes| kibibytes * 1024)
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Disk {
    /// `ext4`, `tmpfs`.
    pub(crate) file_system: Option<String>,
    /// `/dev/vda`.
    pub(crate) device: Option<String>,
    /// `8:1`, as in `/sys/dev/block`.
    #[serde(skip)]
    pub(crate) number: Option<String>,
}

impl Disk {
    /// Asks `/proc/self/mountinfo`.
    pub(crate) fn of(directory: &Path) -> Disk {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Disk::find(&mounts, directory)
    }

    /// The mount whose folder is the longest above `directory`; of several on
    /// one folder the last, which hides the others.
    fn find(mounts: &str, directory: &Path) -> Disk {
        let mut best = (0, Disk::default());
        for line in mounts.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let left: Vec<&str> = left.split(' ').collect();
            let right: Vec<&str> = right.split(' ').collect();
            let (Some(number), Some(folder)) = (left.get(2), left.get(4)) else {
                continue;
            };
            // Spaces in names are written as \040.
            let folder = folder.replace("\\040", " ");
            if directory.starts_with(&folder) && folder.len() >= best.0 {
                let disk = Disk {
                    file_system: right.first().map(ToString::to_string),
                    device: right.get(1).map(ToString::to_string),
                    number: Some(number.to_string()),
                };
                best = (folder.len(), disk);
            }
        }
        best.1
    }

    /// Files that never reach a disk.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.file_system.as_deref(), Some("tmpfs" | "ramfs"))
    }

    /// Bytes read from and written to the whole disk since the machine
    /// started, by everybody.
    pub(crate) fn traffic(&self) -> Option<(u64, u64)> {
        let path = format!("/sys/dev/block/{}/stat", self.number.as_ref()?);
        parse_traffic(&fs::read_to_string(path).ok()?)
    }

    /// How far the kernel reads ahead on the disk, in KiB, as text; a file.
    pub(crate) fn read_ahead_file(&self) -> Option<PathBuf> {
        let number = self.number.as_ref()?;
        let path = PathBuf::from(format!("/sys/class/bdi/{number}/read_ahead_kb"));
        path.exists().then_some(path)
    }
}

/// The third and seventh field of a block device's `stat`, in sectors of 512.
fn parse_traffic(stat: &str) -> Option<(u64, u64)> {
    let fields: Vec<u64> = stat
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    Some((fields.get(2)? * 512, fields.get(6)? * 512))
}

/// All regular files at and below some paths; a path that is not there has
/// none.
pub(crate) fn files_below(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = paths.to_vec();
    while let Some(path) = open.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            open.extend(entries.map(|entry| entry.path()));
        } else if metadata.is_file() {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Bytes that the files take on the disk: blocks, not lengths.
pub(crate) fn space_of(paths: &[PathBuf]) -> u64 {
    use std::os::unix::fs::MetadataExt;
    files_below(paths)
        .iter()
        .filter_map(|path| fs::metadata(path).ok())
        .map(|metadata| metadata.blocks() * 512)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_refused() {
        let text = "MemTotal: 100 kB\nMemAvailable:   40 kB\nSwapTotal: 0 kB\n";
        assert_eq!(available_memory(text), Some(40 << 10));
        assert_eq!(available_memory(""), None);
        assert!(check_memory(1).is_ok());
        assert!(check_memory(u64::MAX).is_err());
    }

    #[test]
    fn the_mount_nearest_above_a_folder_is_its_disk() {
        let mounts = "20 1 254:0 / / rw - ext4 /dev/vda rw\n\
            21 20 0:40 / /tmp rw shared:1 - tmpfs tmpfs rw\n\
            22 20 8:1 / /tmp/my\\040disk rw - xfs /dev/sda1 rw\n";
        let of = |path: &str| Disk::find(mounts, Path::new(path));
        assert_eq!(of("/home/a").device.as_deref(), Some("/dev/vda"));
        assert!(of("/tmp/a").is_memory());
        assert_eq!(of("/tmp/my disk/a").number.as_deref(), Some("8:1"));
        assert!(!of("/tmpfile").is_memory(), "a name is no folder");
    }

    #[test]
    fn traffic_is_counted_in_sectors() {
        let stat = "  117  0  10  5  200  0  20  9  0  0  0\n";
        assert_eq!(parse_traffic(stat), Some((5120, 10_240)));
        assert_eq!(parse_traffic("1 2"), None);
    }

    #[test]
    fn what_a_dead_process_left_is_known_by_its_name() {
        let ours = format!("kvzone-{}-1", std::process::id());
        assert!(!is_leftover(ours.as_ref()));
        assert!(is_leftover("kvzone-4194999-run".as_ref()), "above any pid");
        assert!(!is_leftover("kvzone-results".as_ref()));
        assert!(!is_leftover("other".as_ref()));
    }

    #[test]
    fn space_is_blocks_below_all_folders() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("a/b"), [1; 5000]).unwrap();
        let sparse = fs::File::create(folder.path().join("c")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        let space = space_of(&[folder.path().to_path_buf()]);
        assert!((5000..1 << 20).contains(&space), "{space}");
        assert_eq!(files_below(&[folder.path().join("none")]).len(), 0);
    }

    #[test]
    fn too_little_room_names_both_numbers() {
        let error = check_room(Path::new("/"), u64::MAX)
            .unwrap_err()
            .to_string();
        assert!(error.contains("are free"), "{error}");
        assert!(check_room(Path::new("/"), 1).is_ok());
    }
}
