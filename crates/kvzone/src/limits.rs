//! A limit on the memory of a worker process, its page cache included.
//!
//! A store that reads through the operating system's cache has as much memory
//! as the machine; one with a cache of its own has what it was given. Only a
//! control group makes them equal, and makes data larger than memory possible
//! on any machine. Both versions of the kernel's interface are in the field:
//!
//! | | version 1 | version 2 |
//! |---|---|---|
//! | folder | the hierarchy with `memory`, `/kvzone-PID-N` | below the root, or below our own group where that was delegated |
//! | limit | `memory.limit_in_bytes` | `memory.max`, `memory` enabled in `cgroup.subtree_control` of the parent |
//! | peak | `memory.max_usage_in_bytes` | `memory.peak` |
//! | killed for it | `oom_kill` in `memory.oom_control` | `oom_kill` in `memory.events` |
//!
//! The group is removed when it is dropped. One that a killed KVZone left is
//! removed by the next: its name says whose it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// The interface's version, and the folders in which a group may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    version: Version,
    parents: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A control group of ours, without a process at first; removed when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
}

impl Group {
    /// Makes one, and removes those whose KVZone is no more.
    pub(crate) fn create_in(parent: &Path) -> Result<Group, String> {
        remove_leftovers(parent);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("kvzone-{}-{number}", std::process::id()));
        fs::create_dir(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        Ok(Group { folder })
    }

    /// Puts a process into the group; what it does from now on counts.
    pub(crate) fn admit(&self, process: u32) -> Result<(), String> {
        self.write("cgroup.procs", &process.to_string())
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that was just killed may be on its way out still.
        for _ in 0..100 {
            match fs::remove_dir(&self.folder) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    thread::sleep(Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct MemoryGroup {
    version: Version,
    pub(crate) group: Group,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryUse {
    /// Most bytes at once, page cache included.
    pub(crate) peak_bytes: Option<u64>,
    pub(crate) killed: u64,
}

/// Tells apart the groups of one process.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl Hierarchy {
    /// Finds out which interface this machine has, or why none.
    pub(crate) fn detect() -> Result<Hierarchy, String> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Hierarchy::of(&read("/proc/self/mounts"), &read("/proc/self/cgroup"))
            .ok_or_else(|| "this machine has no control groups for memory".to_string())
    }

    /// `mounts` as in `/proc/self/mounts`, `own` as in `/proc/self/cgroup`.
    fn of(mounts: &str, own: &str) -> Option<Hierarchy> {
        let mounted = |kind: &str, option: &str| mount_of(mounts, kind, option);
        if let Some(root) = mounted("cgroup", "memory") {
            return Some(Hierarchy {
                version: Version::One,
                parents: vec![root],
            });
        }
        let root = mounted("cgroup2", "")?;
        let below = own.lines().find_map(|line| line.strip_prefix("0::/"));
        let mut parents = vec![root.clone()];
        parents.extend(
            below
                .filter(|name| !name.is_empty())
                .map(|name| root.join(name)),
        );
        Some(Hierarchy {
            version: Version::Two,
            parents,
        })
    }
}

/// Where a hierarchy of a kind is mounted, with an option if that is not empty.
pub(crate) fn mount_of(mounts: &str, kind: &str, option: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, folder, found, options, ..] = fields[..] else {
            return None;
        };
        let fits =
            found == kind && (option.is_empty() || options.split(',').any(|one| one == option));
        fits.then(|| PathBuf::from(folder))
    })
}

impl MemoryGroup {
    /// Makes a group limited to `bytes`, or says why that cannot be.
    pub(crate) fn create(hierarchy: &Hierarchy, bytes: u64) -> Result<MemoryGroup, String> {
        let mut reasons = Vec::new();
        for parent in &hierarchy.parents {
            match MemoryGroup::create_in(parent, hierarchy.version, bytes) {
                Ok(group) => return Ok(group),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(reasons.join("; "))
    }

    fn create_in(parent: &Path, version: Version, bytes: u64) -> Result<MemoryGroup, String> {
        if version == Version::Two {
            // For the counts of crate::device_reads; a group without them is
            // as good a limit.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+io");
            enable_memory(parent)?;
        }
        let group = MemoryGroup {
            version,
            group: Group::create_in(parent)?,
        };
        group.group.write(group.limit_file(), &bytes.to_string())?;
        Ok(group)
    }

    pub(crate) fn usage(&self) -> MemoryUse {
        let (peak, events) = match self.version {
            Version::One => ("memory.max_usage_in_bytes", "memory.oom_control"),
            Version::Two => ("memory.peak", "memory.events"),
        };
        let read =
            |name: &str| fs::read_to_string(self.group.folder.join(name)).unwrap_or_default();
        let killed = read(events)
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
        MemoryUse {
            peak_bytes: read(peak).trim().parse().ok(),
            killed: killed.unwrap_or(0),
        }
    }

    fn limit_file(&self) -> &'static str {
        match self.version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        }
    }
}

/// Lets children of a version 2 group have limits of memory.
fn enable_memory(parent: &Path) -> Result<(), String> {
    let read = |name: &str| fs::read_to_string(parent.join(name)).unwrap_or_default();
    let has = |text: &str| text.split_whitespace().any(|word| word == "memory");
    if has(&read("cgroup.subtree_control")) {
        return Ok(());
    }
    if !has(&read("cgroup.controllers")) {
        return Err(format!("{} does not control memory", parent.display()));
    }
    let path = parent.join("cgroup.subtree_control");
    fs::write(&path, "+memory").map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Removes groups whose KVZone is no more. A group with processes stays: the
/// kernel refuses.
fn remove_leftovers(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if crate::place::is_leftover(&entry.file_name()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION_1: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
        cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
        cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
    const VERSION_2: &str = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";

    #[test]
    fn both_versions_are_recognised() {
        let one = Hierarchy::of(VERSION_1, "0::/\n").unwrap();
        assert_eq!(one.version, Version::One);
        assert_eq!(one.parents, [PathBuf::from("/sys/fs/cgroup/memory")]);
        let two = Hierarchy::of(VERSION_2, "0::/user.slice/a.scope\n").unwrap();
        assert_eq!(two.version, Version::Two);
        let parents = ["/sys/fs/cgroup", "/sys/fs/cgroup/user.slice/a.scope"];
        assert_eq!(two.parents, parents.map(PathBuf::from));
        assert_eq!(Hierarchy::of("proc /proc proc rw 0 0\n", ""), None);
    }

    #[test]
    fn a_group_of_version_2_needs_the_memory_controller() {
        let parent = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy {
            version: Version::Two,
            parents: vec![parent.path().to_path_buf()],
        };
        let refused = MemoryGroup::create(&hierarchy, 1 << 20).unwrap_err();
        assert!(refused.contains("does not control memory"), "{refused}");
        fs::write(parent.path().join("cgroup.controllers"), "cpu memory io\n").unwrap();
        let group = MemoryGroup::create(&hierarchy, 1 << 20).unwrap();
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        let enabled = read(parent.path().join("cgroup.subtree_control"));
        assert_eq!(enabled, "+memory");
        assert_eq!(read(group.group.folder.join("memory.max")), "1048576");
        fs::write(group.group.folder.join("memory.peak"), "4096\n").unwrap();
        fs::write(
            group.group.folder.join("memory.events"),
            "oom 3\noom_kill 2\n",
        )
        .unwrap();
        let expected = MemoryUse {
            peak_bytes: Some(4096),
            killed: 2,
        };
        assert_eq!(group.usage(), expected);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_a_reason_and_no_failure() {
        let hierarchy = Hierarchy {
            version: Version::One,
            parents: vec![PathBuf::from("/proc/no-such-folder")],
        };
        let reason = MemoryGroup::create(&hierarchy, 1).unwrap_err();
        assert!(reason.contains("cannot make"), "{reason}");
    }

    #[test]
    fn a_real_group_limits_a_process_and_goes_away() {
        let group = Hierarchy::detect().and_then(|found| MemoryGroup::create(&found, 64 << 20));
        let group = match group {
            Ok(group) => group,
            Err(reason) => {
                println!("SKIPPED: no control group can be made here: {reason}");
                return;
            }
        };
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        group.group.admit(child.id()).unwrap();
        let members = fs::read_to_string(group.group.folder.join("cgroup.procs")).unwrap();
        assert_eq!(members.trim(), child.id().to_string());
        assert_eq!(group.usage().killed, 0);
        child.kill().unwrap();
        child.wait().unwrap();
        let folder = group.group.folder.clone();
        drop(group);
        assert!(!folder.exists());
    }
}
