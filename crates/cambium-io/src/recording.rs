//! A file system that writes down, and counts, what is done to another one.
//!
//! Golden traces are made of its text: open, commit, rotate and compact become
//! lines that a review can read, so that a lost directory sync is a visible
//! difference. Its counters say how many reads a `get` costs and how many
//! bytes reach the device for each byte of a user.
//!
//! One line an operation, in the order of completion (batched reads: in the
//! order of submission). Paths are relative to a root; ranges are
//! `offset+length`; `-> n` is a short read, `-> failed: ...` an error:
//!
//! ```text
//! open 000001.log write create-new
//! allocate 000001.log 0+1048576
//! write 000001.log 0+64
//! write 000001.log 64+4032 in 3 buffers
//! sync 000001.log
//! sync-directory .
//! rename CURRENT.new CURRENT
//! read 000001.log 0+4096 -> 64
//! batched-read 000001.log 8192+4096
//! ```
//!
//! Questions that neither change anything nor read data (`metadata`, `length`,
//! `space`, `alignment`, `allocated_bytes`) leave no line.

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use cambium_base::Result;

use crate::batch::{
    BatchOptions, ReadBackend, ReadCompletion, ReadQueue, ReadQueueStatistics, ReadRequest,
};
use crate::file_system::{
    Advice, Alignment, AppendWindow, DirectoryEntry, File, FileLock, FilePart, FileSystem,
    LockMode, Metadata, OpenOptions, Space,
};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// What has reached the wrapped file system so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// Reads that were answered, batched ones included.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Writes that succeeded; a vectored one counts once.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs of files, failed ones included.
    pub syncs: u64,
    /// Syncs of folders, failed ones included.
    pub directory_syncs: u64,
}

impl IoCounters {
    /// What came since an earlier look.
    #[must_use]
    pub fn since(self, earlier: IoCounters) -> IoCounters {
        IoCounters {
            reads: self.reads.saturating_sub(earlier.reads),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            writes: self.writes.saturating_sub(earlier.writes),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
            syncs: self.syncs.saturating_sub(earlier.syncs),
            directory_syncs: self.directory_syncs.saturating_sub(earlier.directory_syncs),
        }
    }
}

/// The handle to what was recorded. Clones see the same record.
#[derive(Clone, Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
}

impl Recorder {
    /// The lines since the last call. Empty where only counters are kept.
    pub fn take(&self) -> String {
        self.shared
            .text()
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// The counters since the start; [`IoCounters::since`] gives differences.
    pub fn counters(&self) -> IoCounters {
        let counters = &self.shared.counters;
        IoCounters {
            reads: counters.reads.load(Ordering::Relaxed),
            bytes_read: counters.bytes_read.load(Ordering::Relaxed),
            writes: counters.writes.load(Ordering::Relaxed),
            bytes_written: counters.bytes_written.load(Ordering::Relaxed),
            syncs: counters.syncs.load(Ordering::Relaxed),
            directory_syncs: counters.directory_syncs.load(Ordering::Relaxed),
        }
    }
}

#[derive(Debug, Default)]
struct AtomicCounters {
    reads: AtomicU64,
    bytes_read: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
    syncs: AtomicU64,
    directory_syncs: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    /// `None` where only counters are kept.
    text: Mutex<Option<String>>,
    counters: AtomicCounters,
}

impl Shared {
    /// Lines are appended whole, so that a panic elsewhere leaves none half.
    fn text(&self) -> MutexGuard<'_, Option<String>> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a line, with the error of an operation that failed.
    fn line<T>(&self, result: &Result<T>, operation: fmt::Arguments<'_>) {
        if let Some(text) = self.text().as_mut() {
            // Writing into a `String` cannot fail.
            let _ = match result {
                Ok(_) => writeln!(text, "{operation}"),
                Err(error) => writeln!(text, "{operation} -> failed: {error}"),
            };
        }
    }

    fn read(&self, result: &Result<usize>) {
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        if let Ok(count) = result {
            add(&self.counters.bytes_read, *count as u64);
        }
    }

    fn written(&self, result: &Result<()>, bytes: u64) {
        if result.is_ok() {
            add(&self.counters.writes, 1);
            add(&self.counters.bytes_written, bytes);
        }
    }

    /// The path as it stands in the text.
    fn name(&self, path: &Path) -> String {
        match path.strip_prefix(&self.root) {
            Ok(rest) if rest.as_os_str().is_empty() => ".".to_string(),
            Ok(rest) => rest.display().to_string(),
            Err(_) => path.display().to_string(),
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Passes everything on to another file system, and records it.
///
/// ```
/// use std::sync::Arc;
/// use cambium_io::{FileSystem, OpenOptions, RealFileSystem, RecordingFileSystem};
/// # fn main() -> cambium_base::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// let (files, recorder) = RecordingFileSystem::new(Arc::new(RealFileSystem), folder.path());
/// let file = files.open(&folder.path().join("a"), OpenOptions::CREATE_NEW)?;
/// file.write_at(b"abc", 0)?;
/// file.sync_data()?;
/// assert_eq!(recorder.take(), "open a write create-new\nwrite a 0+3\nsync a\n");
/// assert_eq!(recorder.counters().bytes_written, 3);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct RecordingFileSystem {
    inner: Arc<dyn FileSystem>,
    shared: Arc<Shared>,
}

impl RecordingFileSystem {
    /// Records and counts. Paths below `root` are written relative to it. The
    /// text grows until it is taken.
    pub fn new(inner: Arc<dyn FileSystem>, root: &Path) -> (Self, Recorder) {
        Self::with_text(inner, root, Some(String::new()))
    }

    /// Counts alone: a few atomic additions an operation, no memory.
    pub fn counting(inner: Arc<dyn FileSystem>) -> (Self, Recorder) {
        Self::with_text(inner, Path::new(""), None)
    }

    fn with_text(
        inner: Arc<dyn FileSystem>,
        root: &Path,
        text: Option<String>,
    ) -> (Self, Recorder) {
        let shared = Arc::new(Shared {
            root: root.to_path_buf(),
            text: Mutex::new(text),
            counters: AtomicCounters::default(),
        });
        let recorder = Recorder {
            shared: shared.clone(),
        };
        (RecordingFileSystem { inner, shared }, recorder)
    }

    /// Records an operation on one path.
    fn done<T>(&self, result: Result<T>, operation: &str, path: &Path) -> Result<T> {
        let name = self.shared.name(path);
        self.shared
            .line(&result, format_args!("{operation} {name}"));
        result
    }
}

impl RecordingFileSystem {
    /// Records an operation on two paths.
    fn done_both<T>(
        &self,
        result: Result<T>,
        operation: &str,
        from: &Path,
        to: &Path,
    ) -> Result<T> {
        let (from, to) = (self.shared.name(from), self.shared.name(to));
        self.shared
            .line(&result, format_args!("{operation} {from} {to}"));
        result
    }
}

impl FileSystem for RecordingFileSystem {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        let result = self.inner.open(path, options);
        let name = self.shared.name(path);
        let words = OptionWords(options);
        self.shared
            .line(&result, format_args!("open {name}{words}"));
        Ok(Arc::new(RecordingFile {
            inner: result?,
            name,
            shared: self.shared.clone(),
        }))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.done(self.inner.create_directory(path), "create-directory", path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.done(self.inner.remove_directory(path), "remove-directory", path)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.done(self.inner.list(path), "list", path)
    }

    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        self.inner.metadata(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.done_both(self.inner.rename(from, to), "rename", from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        self.done_both(self.inner.link(from, to), "link", from, to)
    }

    fn clone_file(&self, from: &Path, to: &Path, length: u64) -> Result<bool> {
        self.done_both(self.inner.clone_file(from, to, length), "clone", from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.done(self.inner.remove(path), "remove", path)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        add(&self.shared.counters.directory_syncs, 1);
        self.done(self.inner.sync_directory(path), "sync-directory", path)
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        let operation = match mode {
            LockMode::Shared => "lock-shared",
            LockMode::Exclusive => "lock",
            LockMode::Alone => "lock-alone",
            LockMode::SharedData => "lock-shared-data",
        };
        self.done(self.inner.lock(path, mode), operation, path)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.inner.space(path)
    }

    fn read_queue(&self, options: BatchOptions) -> Result<Box<dyn ReadQueue>> {
        Ok(Box::new(RecordingReadQueue {
            inner: self.inner.read_queue(options)?,
            shared: self.shared.clone(),
        }))
    }
}

struct OptionWords(OpenOptions);

impl fmt::Display for OptionWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = self.0;
        let create = options.create && !options.create_new;
        for (set, word) in [
            (!options.write, "read"),
            (options.write, "write"),
            (create, "create"),
            (options.create_new, "create-new"),
            (options.truncate, "truncate"),
            (options.direct, "direct"),
        ] {
            if set {
                write!(f, " {word}")?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct RecordingFile {
    inner: Arc<dyn File>,
    name: String,
    shared: Arc<Shared>,
}

/// A window whose stores are recorded, and counted as writes.
#[derive(Debug)]
struct RecordingWindow {
    inner: Box<dyn AppendWindow>,
    name: String,
    shared: Arc<Shared>,
}

impl AppendWindow for RecordingWindow {
    fn end(&self) -> u64 {
        self.inner.end()
    }

    fn store(&mut self, parts: &[&[u8]], offset: u64) -> bool {
        if !self.inner.store(parts, offset) {
            return false;
        }
        let length = parts.iter().map(|part| part.len() as u64).sum();
        self.shared.written(&Ok(()), length);
        self.shared.line(
            &Ok(()),
            format_args!("store {} {offset}+{length}", self.name),
        );
        true
    }
}

impl RecordingFile {
    /// Records an operation on a range.
    fn range<T>(&self, result: Result<T>, operation: &str, offset: u64, length: u64) -> Result<T> {
        let name = &self.name;
        self.shared.line(
            &result,
            format_args!("{operation} {name} {offset}+{length}"),
        );
        result
    }
}

impl File for RecordingFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let wanted = buffer.len();
        let result = self.inner.read_at(buffer, offset);
        self.shared.read(&result);
        let name = &self.name;
        match &result {
            Ok(count) if *count < wanted => {
                self.shared.line(
                    &result,
                    format_args!("read {name} {offset}+{wanted} -> {count}"),
                );
            }
            _ => {
                self.shared
                    .line(&result, format_args!("read {name} {offset}+{wanted}"));
            }
        }
        result
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let result = self.inner.write_at(buffer, offset);
        self.shared.written(&result, buffer.len() as u64);
        self.range(result, "write", offset, buffer.len() as u64)
    }

    fn write_vectored_at(&self, buffers: &[&[u8]], offset: u64) -> Result<()> {
        let result = self.inner.write_vectored_at(buffers, offset);
        let bytes = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        self.shared.written(&result, bytes);
        let (name, count) = (&self.name, buffers.len());
        self.shared.line(
            &result,
            format_args!("write {name} {offset}+{bytes} in {count} buffers"),
        );
        result
    }

    fn sync_data(&self) -> Result<()> {
        add(&self.shared.counters.syncs, 1);
        let result = self.inner.sync_data();
        self.shared
            .line(&result, format_args!("sync {}", self.name));
        result
    }

    fn length(&self) -> Result<u64> {
        self.inner.length()
    }

    fn set_length(&self, length: u64) -> Result<()> {
        let result = self.inner.set_length(length);
        self.shared
            .line(&result, format_args!("set-length {} {length}", self.name));
        result
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.range(
            self.inner.allocate(offset, length),
            "allocate",
            offset,
            length,
        )
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        let result = self.inner.punch_hole(offset, length);
        self.range(result, "punch-hole", offset, length)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool> {
        let result = self.inner.discard(offset, length);
        self.range(result, "discard", offset, length)
    }

    fn open_window(&self, end: u64, length: u64) -> Result<Option<Box<dyn AppendWindow>>> {
        let opened = self.inner.open_window(end, length);
        if let Ok(None) = opened {
            return opened;
        }
        self.shared
            .written(&opened.as_ref().map(|_| ()).map_err(Clone::clone), length);
        let inner = self.range(opened, "open-window", end, length)?;
        Ok(inner.map(|inner| {
            Box::new(RecordingWindow {
                inner,
                name: self.name.clone(),
                shared: self.shared.clone(),
            }) as Box<dyn AppendWindow>
        }))
    }

    fn advise(&self, offset: u64, length: u64, advice: Advice) {
        self.inner.advise(offset, length, advice);
        let operation = match advice {
            Advice::Normal => "advise-normal",
            Advice::Random => "advise-random",
            Advice::Sequential => "advise-sequential",
            Advice::WillNeed => "advise-will-need",
            Advice::DontNeed => "advise-dont-need",
        };
        let _ = self.range(Ok(()), operation, offset, length);
    }

    fn allocated_bytes(&self) -> Result<u64> {
        self.inner.allocated_bytes()
    }

    fn alignment(&self) -> Alignment {
        self.inner.alignment()
    }

    fn raw_descriptor(&self) -> Option<i32> {
        self.inner.raw_descriptor()
    }

    fn part_at(&self, offset: u64) -> Option<FilePart> {
        Some(FilePart::whole(&self.inner, offset))
    }
}

#[derive(Debug)]
struct RecordingReadQueue {
    inner: Box<dyn ReadQueue>,
    shared: Arc<Shared>,
}

impl ReadQueue for RecordingReadQueue {
    fn backend(&self) -> ReadBackend {
        self.inner.backend()
    }

    fn fallback_note(&self) -> Option<&str> {
        self.inner.fallback_note()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn pending(&self) -> usize {
        self.inner.pending()
    }

    fn submit(&mut self, mut request: ReadRequest) {
        let name = self.shared.name(request.file.path());
        let (offset, length) = (request.offset, request.buffer.len());
        self.shared.line(
            &Ok(()),
            format_args!("batched-read {name} {offset}+{length}"),
        );
        // The queue below may read through the file; that is this read, and
        // must not be recorded a second time.
        if let Some(part) = request.file.part_at(request.offset) {
            request.file = part.file;
        }
        self.inner.submit(request);
    }

    fn wait(&mut self, at_least: usize, completions: &mut Vec<ReadCompletion>) -> Result<()> {
        let before = completions.len();
        let result = self.inner.wait(at_least, completions);
        for completion in &completions[before..] {
            self.shared.read(&completion.result);
        }
        result
    }

    fn statistics(&self) -> ReadQueueStatistics {
        self.inner.statistics()
    }
}
