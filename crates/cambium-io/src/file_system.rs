//! File systems and files as traits.
//!
//! Promises every implementation keeps, and the layers above rely on:
//!
//! - A write reports success only when every byte was taken; a short write is
//!   continued or becomes an error.
//! - A read is short only at the end of the file.
//! - Nothing is durable before [`File::sync_data`] (bytes, and the length that
//!   makes them reachable) or [`FileSystem::sync_directory`] (names) returned
//!   success.
//! - `EINTR` never comes through.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::{Error, Result};

use crate::batch::{BatchOptions, ReadQueue};
use crate::write_queue::{SyncWriteQueue, WriteQueue};

/// How a file is opened. A file is open in one mode at a time, buffered or
/// direct: the two see different caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Writing is allowed.
    pub write: bool,
    /// Make the file if it is not there.
    pub create: bool,
    /// Fail with `AlreadyExists` if the file is there; implies `create`.
    pub create_new: bool,
    /// Cut the file to length 0 while opening it.
    pub truncate: bool,
    /// Refuse a block device that is mounted, or that somebody else has opened in
    /// this way; nothing for a file.
    pub exclusive: bool,
    /// Bypass the operating system's cache: offsets, lengths and memory must
    /// then keep to [`File::alignment`].
    pub direct: bool,
}

impl OpenOptions {
    /// Reading only, buffered.
    pub const READ: OpenOptions = OpenOptions {
        write: false,
        create: false,
        create_new: false,
        truncate: false,
        exclusive: false,
        direct: false,
    };
    /// Reading and writing a file that is there, buffered.
    pub const WRITE: OpenOptions = OpenOptions {
        write: true,
        ..OpenOptions::READ
    };
    /// Reading and writing, made if it is not there, buffered.
    pub const CREATE: OpenOptions = OpenOptions {
        create: true,
        ..OpenOptions::WRITE
    };
    /// Reading and writing a file that must not be there yet, buffered.
    pub const CREATE_NEW: OpenOptions = OpenOptions {
        create_new: true,
        ..OpenOptions::WRITE
    };

    /// The same, bypassing the operating system's cache.
    #[must_use]
    pub const fn direct(self) -> Self {
        OpenOptions {
            direct: true,
            ..self
        }
    }
}

/// What a name in a folder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A block device.
    BlockDevice,
    /// Anything else: links, sockets, pipes.
    Other,
}

/// What is known of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub kind: FileKind,
    /// Bytes from start to end, holes included; a device's size.
    pub length: u64,
    /// Bytes that take space on the device.
    pub allocated: u64,
    /// Names that lead to the file ([`FileSystem::link`]); 1 where that is not known.
    pub links: u64,
}

/// One name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name alone, without the folder.
    pub name: PathBuf,
    /// What it stands for.
    pub kind: FileKind,
}

/// Space of the file system under a path, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Free for us.
    pub available: u64,
    /// In all.
    pub total: u64,
}

/// What direct I/O demands, in bytes; 1 where nothing is demanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Of the memory that is read into or written from.
    pub memory: usize,
    /// Of offsets and lengths in the file.
    pub offset: usize,
}

impl Alignment {
    /// No demands: buffered I/O.
    pub const NONE: Alignment = Alignment {
        memory: 1,
        offset: 1,
    };

    /// The least range of whole units that holds a range: where it starts, and
    /// its length.
    ///
    /// ```
    /// let sectors = cambium_io::Alignment { memory: 512, offset: 512 };
    /// assert_eq!(sectors.around(600, 1025), (512, 1024));
    /// assert_eq!(cambium_io::Alignment::NONE.around(600, 1025), (600, 425));
    /// ```
    pub fn around(self, start: u64, end: u64) -> (u64, usize) {
        let unit = self.offset as u64;
        let whole = start / unit * unit;
        (whole, (end.next_multiple_of(unit) - whole) as usize)
    }
}

/// What will be done with a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Ordinary reads.
    Normal,
    /// Reads at random places: do not read ahead.
    Random,
    /// Reads from start to end: read far ahead.
    Sequential,
    /// Will be read soon: fetch it.
    WillNeed,
    /// Will not be read soon: drop it from the cache.
    DontNeed,
}

/// Shared or exclusive, of a whole store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Beside other readers.
    Shared,
    /// Beside other readers, of a file that holds data: a file that is gone is not made.
    SharedData,
    /// Alone.
    Exclusive,
    /// Alone, of a file that holds data: no process id is written into it.
    Alone,
}

/// A lock that is held until it is dropped (or the process ends).
pub trait FileLock: Send + Sync + fmt::Debug {}

/// Folders, names and locks.
pub trait FileSystem: Send + Sync + fmt::Debug {
    /// Opens a file. `NotFound` and `AlreadyExists` are kinds of the source of
    /// [`Error::Io`]. A new name is durable after [`FileSystem::sync_directory`].
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>>;

    /// Makes one folder; its parent must be there.
    fn create_directory(&self, path: &Path) -> Result<()>;

    /// Removes an empty folder.
    fn remove_directory(&self, path: &Path) -> Result<()>;

    /// The names in a folder, sorted by their bytes.
    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>>;

    /// What stands at a path, links followed, or `None` where nothing does.
    fn metadata(&self, path: &Path) -> Result<Option<Metadata>>;

    /// Gives a file another name, replacing what had it, atomically. Durable
    /// after the folder is synced.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file's name; open handles keep working. Durable after the
    /// folder is synced.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Gives a file a second name. Both names lead to the same bytes: a write through one
    /// is seen through the other. Durable after the folder of the new name is synced.
    /// False where the file system cannot do it, or `to` is on another file system; there
    /// is nothing at `to` then.
    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        _ = (from, to);
        Ok(false)
    }

    /// Makes a new file that holds the first `length` bytes of another one and shares
    /// their blocks with it, until one of the two is written. The new file is durable
    /// after it and its folder are synced. False where the file system cannot share
    /// blocks, or `to` is on another file system; there is nothing at `to` then.
    fn clone_file(&self, from: &Path, to: &Path, length: u64) -> Result<bool> {
        _ = (from, to, length);
        Ok(false)
    }

    /// Makes the names in a folder durable.
    fn sync_directory(&self, path: &Path) -> Result<()>;

    /// Locks a file against other processes and other handles of this one. The file is made
    /// if it is not there, unless it holds data. An exclusive lock writes the process id into
    /// the file; a refused one answers [`Error::Locked`] with the id found there.
    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>>;

    /// Space under a path.
    fn space(&self, path: &Path) -> Result<Space>;

    /// The file system below, where this one stands above another; queues of that one read
    /// the files of this one ([`File::part_at`]).
    fn below(&self) -> Option<&Arc<dyn FileSystem>> {
        None
    }

    /// A queue for batched reads of this file system's files. A back end that
    /// the kernel refuses is replaced by [`crate::ReadBackend::Sync`];
    /// [`ReadQueue::backend`] says which one serves.
    fn read_queue(&self, options: BatchOptions) -> Result<Box<dyn ReadQueue>>;

    /// A queue for several writes at once. Where the back end cannot do that, each
    /// is done when it is taken; [`WriteQueue::backend`] says so.
    fn write_queue(&self, options: BatchOptions) -> Result<Box<dyn WriteQueue>> {
        _ = options;
        Ok(Box::new(SyncWriteQueue::default()))
    }
}

/// Where a byte of a file lies that is made of others.
#[derive(Clone, Debug)]
pub struct FilePart {
    /// The file that holds it.
    pub file: Arc<dyn File>,
    /// Where, in that file.
    pub offset: u64,
    /// So many bytes from there on lie in that file one after the other.
    pub length: u64,
    /// Where the next part begins, in the file that is made of them; `u64::MAX` after the last.
    pub next: u64,
}

impl FilePart {
    /// A byte of a file that only watches another one.
    pub fn whole(file: &Arc<dyn File>, offset: u64) -> Self {
        FilePart {
            file: file.clone(),
            offset,
            length: u64::MAX,
            next: u64::MAX,
        }
    }
}

/// An open file. Calls take `&self`: any number of threads may read and write
/// at places of their own.
pub trait File: Send + Sync + fmt::Debug {
    /// The path it was opened by, for messages.
    fn path(&self) -> &Path;

    /// Reads into `buffer` from `offset`; the count is short only at the end
    /// of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;

    /// Writes all of `buffer` at `offset`, or fails. After an error any part
    /// of it may have been written.
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()>;

    /// Writes several buffers one after the other from `offset`.
    fn write_vectored_at(&self, buffers: &[&[u8]], offset: u64) -> Result<()> {
        let mut position = offset;
        for buffer in buffers {
            self.write_at(buffer, position)?;
            position += buffer.len() as u64;
        }
        Ok(())
    }

    /// Makes everything written so far durable, with the length. A failure is
    /// final: what was not synced may be gone from the cache, and a second
    /// sync that succeeds proves nothing.
    fn sync_data(&self) -> Result<()>;

    /// Makes what was written to some ranges of bytes durable, with the length that they
    /// need. Of all else, nothing may become durable, or everything, as by
    /// [`File::sync_data`]: nobody may rely on it. Failures are as final.
    fn sync_ranges(&self, ranges: &[Range<u64>]) -> Result<()> {
        _ = ranges;
        self.sync_data()
    }

    /// [`File::write_vectored_at`], durable as by [`File::sync_ranges`] of what it wrote when
    /// it answers; where a file can do that with fewer requests to its device, it does. A
    /// failure may be that of the sync, and is as final.
    fn write_synced_at(&self, buffers: &[&[u8]], offset: u64) -> Result<()> {
        write_buffers(self, buffers, offset)?;
        let length: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let range = offset..offset.saturating_add(length as u64);
        self.sync_ranges(std::slice::from_ref(&range))
    }

    /// Bytes from start to end.
    fn length(&self) -> Result<u64>;

    /// Cuts the file, or extends it with zeros.
    fn set_length(&self, length: u64) -> Result<()>;

    /// Takes space for a range, so that writing into it cannot fail for lack
    /// of it; extends the file where the range passes its end. What was there
    /// stays; what is new reads as zeros. After an error the file is as long as before,
    /// and takes no space past that: nobody may extend it meanwhile.
    fn allocate(&self, offset: u64, length: u64) -> Result<()>;

    /// Gives a range's space back; it reads as zeros afterwards.
    fn punch_hole(&self, offset: u64, length: u64) -> Result<()>;

    /// Says that nobody needs what a range holds: a device may use the place for
    /// other things, a file gives its space back. Afterwards the range reads as
    /// zeros, as it did before, or as neither: this erases nothing. False where
    /// nothing of the kind is known; nothing was done then.
    fn discard(&self, offset: u64, length: u64) -> Result<bool> {
        self.punch_hole(offset, length).map(|()| true)
    }

    /// Tells the operating system what will be done; never fails visibly.
    fn advise(&self, offset: u64, length: u64, advice: Advice);

    /// Bytes that take space on the device.
    fn allocated_bytes(&self) -> Result<u64>;

    /// What this handle demands of offsets, lengths and memory.
    fn alignment(&self) -> Alignment;

    /// The operating system's number for the open file, where there is one.
    fn raw_descriptor(&self) -> Option<i32> {
        None
    }

    /// The file below that holds a byte, where this one is made of others, or watches
    /// another; `None` for one that is made of none.
    fn part_at(&self, offset: u64) -> Option<FilePart> {
        _ = offset;
        None
    }

    /// Up to where the bytes from an offset on are shared with another file, so that writing
    /// one of them costs a copy of what lies around it; the offset itself if they are not.
    fn shared_until(&self, offset: u64) -> u64 {
        offset
    }

    /// Opens a window for appending by plain memory stores. `end` is where the
    /// file's data ends; everything from there to `end + length` must be free.
    /// It is filled with zeros first, so that a full disk is an error here and
    /// not a signal later.
    ///
    /// What is stored is with the operating system at once (it survives the
    /// process, as a write does), is seen by reads of the file, and becomes
    /// durable by [`File::sync_data`]. `None` where the file system is not
    /// known to take stores into written space without failing.
    fn open_window(&self, end: u64, length: u64) -> Result<Option<Box<dyn AppendWindow>>> {
        _ = (end, length);
        Ok(None)
    }

    /// Up to `length` bytes at `offset` in memory of their own, fewer only at the
    /// file's end. Where it can, it spares zeroing them first.
    fn read_vec_at(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let count = self.read_at(&mut bytes, offset)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Reads what is in memory already: the bytes of the range up to the first that
    /// would have to come from a device, which may be none of them. Never waits for a
    /// device, and keeps errors to itself: a read that must be answered tells them.
    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        _ = (buffer, offset);
        0
    }

    /// Reads exactly `buffer.len()` bytes; a file that ends before is damage.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let count = self.read_at(buffer, offset)?;
        if count == buffer.len() {
            return Ok(());
        }
        Err(Error::corruption(
            self.path(),
            offset + count as u64,
            format!(
                "the file ends here; expected {} bytes from offset {offset}",
                buffer.len()
            ),
        ))
    }
}

/// Bytes that a copy reads at once.
const COPIED_BYTES: usize = 1 << 20;

/// Copies the first `most` bytes of a file, or all if it has fewer, and makes the copy durable
/// but for its name; `options` opens the copy. Pieces of zeros become holes. Answers how many
/// bytes were copied.
///
/// # Errors
/// Those of the file system.
pub fn copy_synced(
    files: &dyn FileSystem,
    from: &Path,
    to: &Path,
    options: OpenOptions,
    most: u64,
) -> Result<u64> {
    let source = files.open(from, OpenOptions::READ)?;
    let copy = files.open(to, options)?;
    let length = source.length()?.min(most);
    let mut piece = vec![0; COPIED_BYTES.min(length as usize)];
    let mut position = 0;
    while position < length {
        let wanted = piece.len().min((length - position) as usize);
        let count = source.read_at(&mut piece[..wanted], position)?;
        if count == 0 {
            break;
        }
        if piece[..count].iter().any(|&byte| byte != 0) {
            copy.write_at(&piece[..count], position)?;
        }
        position += count as u64;
    }
    copy.set_length(position)?;
    copy.sync_data()?;
    Ok(position)
}

/// True if a file may have another name than this one.
///
/// # Errors
/// Those of the file system.
pub fn has_other_names(files: &dyn FileSystem, path: &Path) -> Result<bool> {
    Ok(files.metadata(path)?.is_none_or(|found| found.links > 1))
}

/// Writes several buffers one after the other, one alone as such.
pub(crate) fn write_buffers<F: File + ?Sized>(
    file: &F,
    buffers: &[&[u8]],
    offset: u64,
) -> Result<()> {
    match buffers {
        [alone] => file.write_at(alone, offset),
        several => file.write_vectored_at(several, offset),
    }
}

/// A part of a file that is written by storing into memory. Drop it before the
/// file is cut.
pub trait AppendWindow: Send + Sync + fmt::Debug {
    /// Where it ends, in bytes from the file's start.
    fn end(&self) -> u64;

    /// Stores parts, one after the other, at an offset of the file, within the
    /// window. One thread at a time stores. False if they are not within it, or the
    /// operating system refuses: any part may be there, and the caller writes the same
    /// bytes by [`File::write_at`], which says what is wrong.
    #[must_use]
    fn store(&mut self, parts: &[&[u8]], offset: u64) -> bool;
}
