//! Which files of segments are open: a bound, however many segments there are.
//!
//! A [`SegmentFile`] is opened when it is used and stays open, so that using it again
//! costs a look at a pointer. When more than the bound are open, a hand goes round: a
//! file that was used since it last passed is passed over, another is closed. Who uses
//! one just then keeps it open as long as it needs.
//!
//! Two kinds of files are *kept* open, beyond the bound where it must be:
//!
//! - those with bytes that no sync covers yet: a sync through another handle might not
//!   be told of a write that failed meanwhile;
//! - those whose name is gone, for readers that were there before.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use cambium_base::Result;
use cambium_io::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use cambium_io::sync::{Mutex, lock};
use cambium_io::{Advice, Alignment, AppendWindow, DirectFile, File, FileSystem, OpenOptions};

/// More than a file has, bytes.
const WHOLE: u64 = u64::MAX >> 1;

/// The hand, and what it passes.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    most: usize,
    ring: Mutex<VecDeque<Weak<SegmentFile>>>,
    /// See [`SegmentFile::count_read`].
    bytes_read: AtomicU64,
}

impl OpenFiles {
    /// Keeps about `most` files open.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(OpenFiles {
            most: most.max(1),
            ring: Mutex::default(),
            bytes_read: AtomicU64::new(0),
        })
    }

    fn add(&self, file: &Arc<SegmentFile>) {
        lock(&self.ring).push_back(Arc::downgrade(file));
        self.close_some();
    }

    /// Closes what is beyond the bound, if it may be.
    fn close_some(&self) {
        let mut ring = lock(&self.ring);
        // Twice round at most: the first round clears the marks.
        let mut left = ring.len() * 2;
        while ring.len() > self.most && left > 0 {
            left -= 1;
            let Some(oldest) = ring.pop_front() else {
                return;
            };
            let Some(file) = oldest.upgrade() else {
                continue;
            };
            // One lock for both: what is kept from now on stays.
            let kept = lock(&file.kept);
            if *kept || file.used.swap(false, Ordering::Relaxed) {
                ring.push_back(oldest);
            } else {
                file.handles.store(None);
            }
        }
    }

    /// Bytes that were read of all of them for lookups and cursors.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// How many are open, those included that are kept.
    pub fn count(&self) -> usize {
        let mut ring = lock(&self.ring);
        ring.retain(|file| file.strong_count() > 0);
        ring.len()
    }
}

/// How an open file is read and written.
#[derive(Debug)]
struct Handles {
    /// At any place.
    file: Arc<dyn File>,
    /// By queues: the same, or the direct handle below it.
    batched: Arc<dyn File>,
}

/// The file of a segment, open or not.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    this: Weak<SegmentFile>,
    files: Arc<OpenFiles>,
    file_system: Arc<dyn FileSystem>,
    path: PathBuf,
    /// How it is opened again.
    options: OpenOptions,
    /// What reads by queues must keep to.
    alignment: Alignment,
    handles: ArcSwapOption<Handles>,
    /// Used since the hand last passed.
    used: AtomicBool,
    /// It is not closed.
    kept: Mutex<bool>,
    /// Who goes through it in order.
    walks: AtomicU32,
}

/// While this is there the operating system reads ahead in a segment's file.
#[derive(Debug)]
pub(crate) struct Walk(Arc<SegmentFile>);

impl Walk {
    /// Announces a reader that goes through a good part of a file in order. The first
    /// such reader of a file costs a system call.
    pub fn begin(file: &Arc<SegmentFile>) -> Walk {
        if file.walks.fetch_add(1, Ordering::AcqRel) == 0 {
            file.advise_if_open(Advice::Normal);
        }
        Walk(file.clone())
    }

    /// True of the file that it is in.
    pub fn is_in(&self, file: &Arc<SegmentFile>) -> bool {
        Arc::ptr_eq(&self.0, file)
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        // Two who come and go at once may leave the other's advice: it is advice.
        if self.0.walks.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.advise_if_open(Advice::Random);
        }
    }
}

fn open(file_system: &dyn FileSystem, path: &Path, options: OpenOptions) -> Result<Handles> {
    let opened = file_system.open(path, options)?;
    // Most reads are of one value each; who wants more asks for more.
    opened.advise(0, WHOLE, Advice::Random);
    Ok(match options.direct {
        false => Handles {
            batched: opened.clone(),
            file: opened,
        },
        true => Handles {
            file: Arc::new(DirectFile::new(opened.clone())),
            batched: opened,
        },
    })
}

impl SegmentFile {
    /// Opens a file. One that is made here is kept.
    pub fn open(
        files: &Arc<OpenFiles>,
        file_system: &Arc<dyn FileSystem>,
        path: PathBuf,
        options: OpenOptions,
    ) -> Result<Arc<Self>> {
        let handles = open(&**file_system, &path, options)?;
        let file = Arc::new_cyclic(|this| SegmentFile {
            this: this.clone(),
            files: files.clone(),
            file_system: file_system.clone(),
            path,
            options: OpenOptions {
                create: false,
                create_new: false,
                ..options
            },
            alignment: handles.batched.alignment(),
            handles: ArcSwapOption::from_pointee(handles),
            used: AtomicBool::new(false),
            kept: Mutex::new(options.create_new),
            walks: AtomicU32::new(0),
        });
        files.add(&file);
        Ok(file)
    }

    fn handles(&self) -> Result<Arc<Handles>> {
        if let Some(handles) = self.handles.load_full() {
            if !self.used.load(Ordering::Relaxed) {
                self.used.store(true, Ordering::Relaxed);
            }
            return Ok(handles);
        }
        let handles = match open(&*self.file_system, &self.path, self.options) {
            Ok(handles) => Arc::new(handles),
            // Its name may have gone since it was looked at; then it was kept before.
            Err(error) => return self.handles.load_full().ok_or(error),
        };
        let before = self.handles.swap(Some(handles.clone()));
        if let (None, Some(this)) = (before, self.this.upgrade()) {
            self.files.add(&this);
        }
        Ok(handles)
    }

    /// Works with the open file.
    fn with<R>(&self, work: impl FnOnce(&dyn File) -> Result<R>) -> Result<R> {
        work(&*self.handles()?.file)
    }

    /// Counts bytes that a lookup or a cursor reads; reads of collection, recovery and
    /// checks are not counted.
    pub fn count_read(&self, bytes: u64) {
        self.files.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// For reads by queues, which keep to [`SegmentFile::batched_alignment`].
    pub fn batched(&self) -> Result<Arc<dyn File>> {
        Ok(self.handles()?.batched.clone())
    }

    /// What reads by queues must keep to.
    pub fn batched_alignment(&self) -> Alignment {
        self.alignment
    }

    /// Opens it, and keeps it open.
    pub fn keep(&self) -> Result<()> {
        *lock(&self.kept) = true;
        self.handles().map(|_| ())
    }

    /// It may be closed when others need the room.
    pub fn release(&self) {
        *lock(&self.kept) = false;
        self.files.close_some();
    }

    /// How all of it will be read. Once it is closed and opened again it is not known.
    fn advise_if_open(&self, advice: Advice) {
        if let Some(handles) = self.handles.load_full() {
            handles.file.advise(0, WHOLE, advice);
        }
    }
}

impl File for SegmentFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.with(|file| file.read_at(buffer, offset))
    }

    fn read_vec_at(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.with(|file| file.read_vec_at(offset, length))
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        match self.handles() {
            Ok(handles) => handles.file.read_cached_at(buffer, offset),
            Err(_) => 0,
        }
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.with(|file| file.write_at(buffer, offset))
    }

    fn write_vectored_at(&self, buffers: &[&[u8]], offset: u64) -> Result<()> {
        self.with(|file| file.write_vectored_at(buffers, offset))
    }

    fn sync_data(&self) -> Result<()> {
        self.with(|file| file.sync_data())
    }

    fn length(&self) -> Result<u64> {
        self.with(|file| file.length())
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.with(|file| file.set_length(length))
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.with(|file| file.allocate(offset, length))
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.with(|file| file.punch_hole(offset, length))
    }

    fn advise(&self, offset: u64, length: u64, advice: Advice) {
        if let Ok(handles) = self.handles() {
            handles.file.advise(offset, length, advice);
        }
    }

    fn allocated_bytes(&self) -> Result<u64> {
        self.with(|file| file.allocated_bytes())
    }

    fn alignment(&self) -> Alignment {
        Alignment::NONE
    }

    fn open_window(&self, end: u64, length: u64) -> Result<Option<Box<dyn AppendWindow>>> {
        self.with(|file| file.open_window(end, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_io::{Environment, RecordingFileSystem};

    fn files(most: usize, count: usize) -> (Arc<OpenFiles>, Vec<Arc<SegmentFile>>) {
        let table = OpenFiles::new(most);
        let file_system = Environment::memory().file_system;
        let make = |number: usize| {
            let path = PathBuf::from(format!("{number}"));
            let file =
                SegmentFile::open(&table, &file_system, path, OpenOptions::CREATE_NEW).unwrap();
            file.write_at(&[number as u8], 0).unwrap();
            file
        };
        let made = (0..count).map(make).collect();
        (table, made)
    }

    fn first_byte(file: &SegmentFile) -> u8 {
        let mut byte = [0];
        file.read_exact_at(&mut byte, 0).unwrap();
        byte[0]
    }

    #[test]
    fn files_that_need_not_be_kept_are_closed_and_opened_again() {
        let (table, made) = files(3, 10);
        assert_eq!(table.count(), 10, "new ones are kept");
        made.iter().for_each(|file| file.release());
        for _ in 0..3 {
            for (number, file) in made.iter().enumerate() {
                assert_eq!(first_byte(file), number as u8);
            }
        }
        assert!(table.count() <= 3, "{} are open", table.count());
    }

    #[test]
    fn a_file_without_a_name_stays_open() {
        let (table, made) = files(2, 6);
        made.iter().for_each(|file| file.release());
        made[0].keep().unwrap();
        made[0].file_system.remove(&made[0].path).unwrap();
        for _ in 0..3 {
            made[1..].iter().for_each(|file| _ = first_byte(file));
        }
        assert_eq!(first_byte(&made[0]), 0);
        assert!(table.count() <= 3, "{} are open", table.count());
    }

    #[test]
    fn the_system_reads_ahead_while_somebody_walks() {
        let inner = Environment::memory().file_system;
        let (file_system, recorder) = RecordingFileSystem::new(inner, Path::new("/"));
        let file_system: Arc<dyn FileSystem> = Arc::new(file_system);
        let table = OpenFiles::new(8);
        let path = PathBuf::from("/segment");
        let file = SegmentFile::open(&table, &file_system, path, OpenOptions::CREATE_NEW).unwrap();
        let advised = || {
            let taken = recorder.take();
            let advice = taken
                .lines()
                .filter_map(|line| line.strip_prefix("advise-"));
            let first_word = |line: &str| line.split(' ').next().map(str::to_string);
            advice.filter_map(first_word).collect::<Vec<_>>()
        };
        assert_eq!(advised(), ["random"], "as it is opened");
        let first = Walk::begin(&file);
        let second = Walk::begin(&file);
        assert_eq!(advised(), ["normal"]);
        drop(first);
        assert!(advised().is_empty(), "another walks on");
        drop(second);
        assert_eq!(advised(), ["random"]);
        *lock(&file.kept) = false;
        file.handles.store(None);
        drop(Walk::begin(&file));
        assert!(advised().is_empty(), "it is not opened for advice");
    }

    #[test]
    fn what_is_dropped_is_not_counted() {
        let (table, made) = files(8, 5);
        drop(made);
        assert_eq!(table.count(), 0);
    }
}
