//! The disk as a file system that other processes use, by FUSE.
//!
//! The kernel hands writes on at once; it keeps pages for reads and for mappings, which
//! go away with the mount. After a cut the file system is therefore mounted anew.
//!
//! With a real file system, the disk holds one file, which is a loop device: a flush of the
//! device is a sync of that file. A cut takes sectors that the file system has not flushed,
//! and the next mount replays its journal.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::disk::{About, Disk, Failure};
use crate::pages::{PAGE, SECTOR};
use crate::session::lock;

/// Only the kernel of this machine changes the disk while it is on.
const FOR_LONG: Duration = Duration::from_secs(3600);
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

/// Bytes that the disk writes whole. XFS verifies a checksum over each block of 4 KiB that its
/// journal changes, and does not mount if a cut tears one: it needs a disk with such sectors.
pub fn sector_bytes(file_system: Option<&str>) -> u64 {
    match file_system {
        Some("xfs") => PAGE,
        _ => SECTOR,
    }
}

/// Bytes of the file under a real file system; XFS takes no fewer.
const IMAGE_BYTES: u64 = 320 << 20;

/// A disk that is mounted; dropping this unmounts it.
pub struct Mounted {
    pub disk: Arc<Mutex<Disk>>,
    session: Option<BackgroundSession>,
    /// A real file system on the disk: where it is mounted, and its loop device.
    above: Option<(PathBuf, String)>,
}

impl Mounted {
    /// Mounts a disk at a folder that is made for it. An earlier mount there may take a
    /// moment to go, since processes that were killed still leave it.
    pub fn new(disk: Arc<Mutex<Disk>>, at: &Path, file_system: Option<&str>) -> io::Result<Self> {
        let own = match file_system {
            Some(_) => at.with_extension("device"),
            None => at.to_path_buf(),
        };
        let session = patiently(|| mount(disk.clone(), &own))?;
        let mut mounted = Mounted {
            disk,
            session: Some(session),
            above: None,
        };
        if let Some(file_system) = file_system {
            let image = own.join("image");
            if !image.exists() {
                make(file_system, &image)?;
                File::open(&own)?.sync_all()?;
            }
            let sector = sector_bytes(Some(file_system)).to_string();
            let words = ["--find", "--show", "--sector-size", &sector].map(OsStr::new);
            let device = run("losetup", &[&words[..], &[image.as_ref()]].concat())?;
            mounted.above = Some((at.to_path_buf(), device.clone()));
            std::fs::create_dir_all(at)?;
            let words = ["-t", file_system, "-o", "noatime", &device].map(OsStr::new);
            run("mount", &[&words[..], &[at.as_os_str()]].concat())?;
        }
        Ok(mounted)
    }

    /// The disk, for the supervisor.
    pub fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some((at, device)) = self.above.take() {
            _ = patiently(|| run("umount", &[at.as_os_str()]));
            _ = run("losetup", &["--detach".as_ref(), device.as_ref()]);
        }
        if let Some(session) = self.session.take() {
            _ = session.umount_and_join();
        }
    }
}

/// Makes a real file system in a file, durably.
fn make(file_system: &str, image: &Path) -> io::Result<()> {
    let file = File::create(image)?;
    file.set_len(IMAGE_BYTES)?;
    let words: &[&str] = match file_system {
        "xfs" => &[
            "-q",
            "-K",
            "--unsupported",
            "-s",
            "size=4096",
            "-l",
            "size=16m",
        ],
        _ => &["-q", "-F", "-E", "nodiscard,lazy_itable_init=1"],
    };
    let mut words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    words.push(image.as_os_str());
    run(&format!("mkfs.{file_system}"), &words)?;
    file.sync_all()
}

/// Runs a command; answers its first line.
fn run(command: &str, words: &[&OsStr]) -> io::Result<String> {
    let output = Command::new(command).args(words).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{command} {words:?}: {said}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Tries again for two seconds.
fn patiently<T>(mut step: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..100 {
        if let Ok(done) = step() {
            return Ok(done);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    step()
}

fn mount(disk: Arc<Mutex<Disk>>, at: &Path) -> io::Result<BackgroundSession> {
    std::fs::create_dir_all(at)?;
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("cambium-stress".to_string())];
    config.n_threads = Some(2);
    fuser::spawn_mount(Mount { disk }, at, &config)
}

struct Mount {
    disk: Arc<Mutex<Disk>>,
}

impl Mount {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }
}

fn errno(failure: Failure) -> Errno {
    match failure {
        Failure::Broken => Errno::EIO,
        Failure::Full => Errno::ENOSPC,
        Failure::Missing => Errno::ENOENT,
        Failure::Exists => Errno::EEXIST,
        Failure::NotEmpty => Errno::ENOTEMPTY,
    }
}

fn attributes(about: &About) -> FileAttr {
    FileAttr {
        ino: INodeNo(about.node),
        size: about.length,
        blocks: about.blocks,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if about.is_folder {
            FileType::Directory
        } else {
            FileType::RegularFile
        },
        perm: if about.is_folder { 0o755 } else { 0o644 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn entry(found: Result<About, Failure>, reply: ReplyEntry) {
    match found {
        Ok(about) => reply.entry(&FOR_LONG, &attributes(&about), Generation(0)),
        Err(failure) => reply.error(errno(failure)),
    }
}

fn empty(done: Result<(), Failure>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(failure) => reply.error(errno(failure)),
    }
}

impl Filesystem for Mount {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.disk().find(parent.0, name), reply);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.disk().about(node.0) {
            Ok(about) => reply.attr(&FOR_LONG, &attributes(&about)),
            Err(failure) => reply.error(errno(failure)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut disk = self.disk();
        let done = size.map_or(Ok(()), |size| disk.set_length(node.0, size));
        match done.and_then(|()| disk.about(node.0)) {
            Ok(about) => reply.attr(&FOR_LONG, &attributes(&about)),
            Err(failure) => reply.error(errno(failure)),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        entry(self.disk().create(parent.0, name, true), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.disk().remove(parent.0, name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.disk().remove(parent.0, name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        empty(self.disk().rename(parent.0, name, to_parent.0, to), reply);
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.disk().create(parent.0, name, false) {
            Ok(about) => {
                let attributes = attributes(&about);
                reply.created(
                    &FOR_LONG,
                    &attributes,
                    Generation(0),
                    FileHandle(0),
                    FopenFlags::empty(),
                );
            }
            Err(failure) => reply.error(errno(failure)),
        }
    }

    fn open(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let disk = self.disk();
        let flags = if disk.keeps_cache() {
            FopenFlags::FOPEN_KEEP_CACHE
        } else {
            FopenFlags::empty()
        };
        match disk.about(node.0) {
            Ok(_) => reply.opened(FileHandle(0), flags),
            Err(failure) => reply.error(errno(failure)),
        }
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.disk().read(node.0, offset, u64::from(size));
        match read {
            Ok(data) => reply.data(&data),
            Err(failure) => reply.error(errno(failure)),
        }
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.disk().write(node.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(failure) => reply.error(errno(failure)),
        }
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(self.disk().sync(node.0), reply);
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(self.disk().sync(node.0), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = match self.disk().list(node.0) {
            Ok(listed) => listed,
            Err(failure) => return reply.error(errno(failure)),
        };
        for (at, (name, about)) in listed.iter().enumerate().skip(offset as usize) {
            let kind = attributes(about).kind;
            if reply.add(INodeNo(about.node), at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mut disk = self.disk();
        let extends = mode & KEEP_SIZE == 0;
        let done = if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
            let zeroed = disk.punch(node.0, offset, length);
            zeroed.and_then(|()| {
                disk.allocate(node.0, if extends { offset + length } else { 0 }, extends)
            })
        } else {
            disk.allocate(node.0, offset + length, extends)
        };
        empty(done, reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (all, free) = self.disk().room();
        reply.statfs(all, free, free, 1 << 20, 1 << 20, 4096, 255, 4096);
    }
}
