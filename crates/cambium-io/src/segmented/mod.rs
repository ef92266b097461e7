//! One long file kept as a row of shorter ones, its *segments*.
//!
//! A log that is appended to for years, whose beginning is given back, and which a
//! checkpoint shares, is best no single file: a file system without holes gives only whole
//! files back, and a hard link shares only whole files. [`SegmentedFileSystem`] stands above
//! another file system and makes such files of the names that it is told. Above it they look
//! like any other file: one name, one length, one row of offsets.
//!
//! ```text
//! 000001.forest           bytes 0 to 0x8000000
//! 000001.forest.8000000   bytes from 0x8000000 on, up to where the next segment begins
//! 000001.forest.f3a7000   ...
//! ```
//!
//! # Names
//! The first segment has the file's name, each other one also the offset of its first byte,
//! in hexadecimal digits. The names alone say where bytes lie: nothing else is written.
//! A segment reaches up to where the next one begins. What it is too short for reads as
//! zeros, and so does the place of a segment that was removed.
//!
//! # Promises
//! - *A new segment* begins where a write or an allocation passes the length that segments
//!   have; offsets that were written before never move.
//! - *Durability* is that of [`File`]: a sync makes all segments durable that were written
//!   since the last one, and their names.
//! - *A hole* removes the segments that lie in it, and is a hole in those that reach out of it.
//! - *A segment that has another name* ([`FileSystem::link`]) is never changed, and no part
//!   of it is given back: what is appended begins a new segment, and a write into it first
//!   gives the file a copy of its own. So [`FileSystem::clone_file`] shares a file of any
//!   length in the time of one link a segment, also where the file system shares no blocks.
//! - One thread at a time writes, cuts, or allocates in a segment that is shared, and at a
//!   place of any other; readers wait for none of that. After a segment came or went, a
//!   handle opens and closes files at its next call, under a lock that creating, removing
//!   and copying a segment holds, and syncs do not.
//!
//! After a crash, any of the names that were not synced may be missing, as any of the bytes
//! may. Where a segment is missing, zeros are read, and a log ends there. A process that reads
//! the file beside the one that writes it looks for new segments when it reads past the last.

mod file;
mod row;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use cambium_base::{Error, Result};

use crate::batch::{BatchOptions, ReadQueue};
use crate::file_system::{
    DirectoryEntry, File, FileLock, FileSystem, LockMode, Metadata, OpenOptions, Space,
};
use crate::sync::{Mutex, lock};
use file::SegmentedFile;
use row::Row;

/// Ends the name of the copy that a file gets of a segment, until the copy is whole.
const COPY_SUFFIX: &str = ".own";

/// The name of the file that a segment belongs to; of any other file, its own.
///
/// ```
/// use cambium_io::segmented::file_of;
/// assert_eq!(file_of("000001.forest.8000000"), "000001.forest");
/// assert_eq!(file_of("000001.forest"), "000001.forest");
/// ```
pub fn file_of(name: &str) -> &str {
    match segment_of(name) {
        Some((file, _)) => file,
        None => name,
    }
}

/// The segment that has an offset of a file, and the offset in it; the file itself where it has
/// no other segment. `below` is the file system that has the segments.
///
/// # Errors
/// Those of listing the folder.
pub fn place_in(below: &dyn FileSystem, path: &Path, offset: u64) -> Result<(PathBuf, u64)> {
    let mut starts = find(below, path)?.starts.into_iter();
    let start = starts.rfind(|&start| start <= offset).unwrap_or(0);
    Ok((segment_path(path, start), offset - start))
}

/// File and start of a segment that is not its file's first; a copy that is not whole has
/// none.
fn segment_of(name: &str) -> Option<(&str, Option<u64>)> {
    let (whole, is_copy) = match name.strip_suffix(COPY_SUFFIX) {
        Some(rest) => (rest, true),
        None => (name, false),
    };
    let found = whole.rsplit_once('.').and_then(|(file, digits)| {
        let start = u64::from_str_radix(digits, 16).ok()?;
        (start > 0 && format!("{start:x}") == digits).then_some((file, start))
    });
    match (found, is_copy) {
        (Some((file, start)), false) => Some((file, Some(start))),
        (Some((file, _)), true) => Some((file, None)),
        (None, true) => Some((whole, None)),
        (None, false) => None,
    }
}

/// The path of the segment of a file that begins at an offset.
fn segment_path(path: &Path, start: u64) -> PathBuf {
    match start {
        0 => path.to_path_buf(),
        _ => with_suffix(path, &format!(".{start:x}")),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut whole = path.as_os_str().to_os_string();
    whole.push(suffix);
    PathBuf::from(whole)
}

/// The folder that a file lies in.
fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// A file system that keeps some files in segments. See the [module](self).
#[derive(Debug)]
pub struct SegmentedFileSystem {
    below: Arc<dyn FileSystem>,
    is_segmented: fn(&str) -> bool,
    segment_bytes: u64,
    defect: Option<Defect>,
    /// Files that are open, so that all handles see the same segments.
    rows: Mutex<HashMap<PathBuf, Weak<Row>>>,
}

/// Defects that tests switch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A sync leaves the names of new segments as they are.
    NamesUnsynced,
    /// Segments are written, and given back in part, that another file has too.
    SharedWritten,
    /// Handles do not look again at a segment that was written while another began behind it.
    LateWriteUnseen,
}

/// The names in a folder that belong to one file.
#[derive(Debug, Default)]
struct Found {
    /// Where segments behind the first begin, in order.
    starts: Vec<u64>,
    /// Copies that did not become whole.
    copies: Vec<PathBuf>,
}

impl SegmentedFileSystem {
    /// Keeps the files whose names `is_segmented` takes in segments of at most
    /// `segment_bytes`, a multiple of 4096. It may differ from one opening to the next.
    pub fn new(
        below: Arc<dyn FileSystem>,
        is_segmented: fn(&str) -> bool,
        segment_bytes: u64,
    ) -> Self {
        let segment_bytes = segment_bytes.next_multiple_of(4096).max(4096);
        SegmentedFileSystem {
            below,
            is_segmented,
            segment_bytes,
            defect: None,
            rows: Mutex::default(),
        }
    }

    /// The same with a defect that a suite must find.
    #[must_use]
    pub fn with_defect(self, defect: Option<Defect>) -> Self {
        SegmentedFileSystem { defect, ..self }
    }

    fn takes(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(self.is_segmented)
    }

    fn find(&self, path: &Path) -> Result<Found> {
        find(&*self.below, path)
    }

    /// The row of an open file, or a new one of what is there.
    fn row(&self, path: &Path) -> Result<Arc<Row>> {
        let mut rows = lock(&self.rows);
        if let Some(row) = rows.get(path).and_then(Weak::upgrade) {
            return Ok(row);
        }
        let row = Row::of(&self.below, path, (self.segment_bytes, self.defect))?;
        rows.retain(|_, row| row.strong_count() > 0);
        rows.insert(path.to_path_buf(), Arc::downgrade(&row));
        Ok(row)
    }

    /// Removes segments behind the first, and copies.
    fn remove_rest(&self, path: &Path) -> Result<bool> {
        let found = self.find(path)?;
        let segments = found.starts.iter().map(|&start| segment_path(path, start));
        let mut is_any = false;
        for rest in segments.chain(found.copies) {
            self.below.remove(&rest)?;
            is_any = true;
        }
        Ok(is_any)
    }
}

/// The segments of a file behind its first.
fn find(below: &dyn FileSystem, path: &Path) -> Result<Found> {
    let mut found = Found::default();
    for entry in below.list(folder_of(path))? {
        let name = entry.name.to_str().and_then(segment_of);
        let Some((file, start)) = name else {
            continue;
        };
        if path.file_name() == Some(file.as_ref()) {
            match start {
                Some(start) => found.starts.push(start),
                None => found.copies.push(folder_of(path).join(&entry.name)),
            }
        }
    }
    found.starts.sort_unstable();
    Ok(found)
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

impl FileSystem for SegmentedFileSystem {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        if !self.takes(path) {
            return self.below.open(path, options);
        }
        let creates = options.create || options.create_new;
        let is_new = options.truncate || creates && self.below.metadata(path)?.is_none();
        let first = self.below.open(path, options)?;
        let removed = is_new && self.remove_rest(path)?;
        let row = self.row(path)?;
        if is_new {
            row.begin_anew(removed);
        } else if options.write {
            for copy in self.find(path)?.copies {
                self.below.remove(&copy)?;
            }
        }
        let below = self.below.clone();
        let file = SegmentedFile::new(row, below, path, options, first)?;
        Ok(Arc::new(file))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.below.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.below.remove_directory(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        let mut names = BTreeSet::new();
        let mut entries = self.below.list(path)?;
        for entry in &mut entries {
            let file = entry.name.to_str().map(file_of);
            if let Some(file) = file.filter(|file| (self.is_segmented)(file)) {
                entry.name = PathBuf::from(file);
            }
        }
        entries.retain(|entry| names.insert(entry.name.clone()));
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        let Some(mut all) = self.below.metadata(path)? else {
            return Ok(None);
        };
        if self.takes(path) {
            for start in self.find(path)?.starts {
                // It may have gone since the folder was listed.
                if let Some(segment) = self.below.metadata(&segment_path(path, start))? {
                    all.allocated += segment.allocated;
                    if segment.length > 0 {
                        all.length = start + segment.length;
                    }
                }
            }
        }
        Ok(Some(all))
    }

    /// Renames the first segment last, when the other names are durable: whoever finds a file
    /// of the new name finds all of it.
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut is_left = false;
        if self.takes(from) {
            // Without a first one, the others are of this rename, which was interrupted.
            if self.below.metadata(to)?.is_some() {
                self.remove_rest(to)?;
            }
            let starts = self.find(from)?.starts;
            for &start in &starts {
                let (from, to) = (segment_path(from, start), segment_path(to, start));
                self.below.rename(&from, &to)?;
            }
            if !starts.is_empty() {
                self.below.sync_directory(folder_of(to))?;
                // A crash may have left these, and not the first.
                is_left = self.below.metadata(from)?.is_none();
            }
            let mut rows = lock(&self.rows);
            if let Some(row) = rows.remove(from) {
                if let Some(row) = row.upgrade() {
                    row.renamed(to);
                }
                rows.insert(to.to_path_buf(), row);
            }
        }
        match is_left {
            true => Ok(()),
            false => self.below.rename(from, to),
        }
    }

    /// Removes the first segment durably before the others: whoever finds the file after a
    /// crash finds all of it.
    fn remove(&self, path: &Path) -> Result<()> {
        if !self.takes(path) {
            return self.below.remove(path);
        }
        lock(&self.rows).remove(path);
        let found = self.find(path)?;
        let is_alone = found.starts.is_empty() && found.copies.is_empty();
        match self.below.remove(path) {
            // A crash may have left the others, and not this one.
            Err(error) if !is_alone && is_missing(&error) => {}
            done => done?,
        }
        if is_alone {
            return Ok(());
        }
        self.below.sync_directory(folder_of(path))?;
        self.remove_rest(path).map(|_| ())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        match self.takes(from) {
            // Only one of the two names would lead to segments that come later.
            true => Ok(false),
            false => self.below.link(from, to),
        }
    }

    /// Where the file system does not clone, gives segments second names and copies small
    /// ones. `length` must then be that of the file. What is appended to either file begins a
    /// segment of its own.
    fn clone_file(&self, from: &Path, to: &Path, length: u64) -> Result<bool> {
        if !self.takes(from) {
            return self.below.clone_file(from, to, length);
        }
        let cloned = self.row(from)?.share_with(to, length, true);
        if !matches!(cloned, Ok(true)) {
            self.remove_rest(to)?;
            match self.below.remove(to) {
                Err(error) if !is_missing(&error) => return Err(error),
                _ => {}
            }
        }
        cloned
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.below.sync_directory(path)
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        self.below.lock(path, mode)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.below.space(path)
    }

    fn read_queue(&self, options: BatchOptions) -> Result<Box<dyn ReadQueue>> {
        self.below.read_queue(options)
    }

    fn below(&self) -> Option<&Arc<dyn FileSystem>> {
        Some(&self.below)
    }
}
