//! The disk as a file system that other processes use, by FUSE.
//!
//! The kernel hands writes on at once; it keeps pages for reads and for mappings, which
//! go away with the mount. After a cut the file system is therefore mounted anew.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::disk::{About, Disk, Failure};

/// Nobody but the kernel of this machine changes the disk while it is on.
const FOR_LONG: Duration = Duration::from_secs(3600);
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

/// A disk that is mounted; dropping this unmounts it.
pub struct Mounted {
    pub disk: Arc<Mutex<Disk>>,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts a disk at a folder that is made for it. An earlier mount there may take a
    /// moment to go, since processes that were killed still leave it.
    pub fn new(disk: Arc<Mutex<Disk>>, at: &Path) -> io::Result<Self> {
        let mut tries = 0;
        let session = loop {
            let error = match mount(disk.clone(), at) {
                Ok(session) => break session,
                Err(error) => error,
            };
            tries += 1;
            if tries == 100 {
                return Err(error);
            }
            _ = Command::new("umount")
                .arg("--lazy")
                .arg(at)
                .stderr(Stdio::null())
                .status();
            std::thread::sleep(Duration::from_millis(20));
        };
        Ok(Mounted {
            disk,
            session: Some(session),
        })
    }

    /// The disk, for the supervisor.
    pub fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn mount(disk: Arc<Mutex<Disk>>, at: &Path) -> io::Result<BackgroundSession> {
    std::fs::create_dir_all(at)?;
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("cambium-stress".to_string())];
    config.n_threads = Some(2);
    fuser::spawn_mount(Mount { disk }, at, &config)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            _ = session.umount_and_join();
        }
    }
}

struct Mount {
    disk: Arc<Mutex<Disk>>,
}

impl Mount {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
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
