//! The segments of one file, which all its handles share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::{Error, Result};

use super::{COPY_SUFFIX, Defect, find, folder_of, is_missing, segment_path, with_suffix};
use crate::file_system::{File, FileSystem, OpenOptions, copy_synced, has_other_names};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, lock};

/// How the copy of a segment is opened: a process that died may have left one.
const REPLACED: OpenOptions = OpenOptions {
    truncate: true,
    ..OpenOptions::CREATE
};
/// A segment begins at a multiple of this.
const UNIT: u64 = 512;
/// A whole block of any device: direct I/O goes up to the limit of a segment, and on behind it.
const BLOCK: u64 = 4096;

/// One segment.
#[derive(Debug)]
pub(super) struct Segment {
    /// Offset of its first byte in the file.
    pub start: u64,
    /// Another file may have it too: it is not changed.
    is_shared: AtomicBool,
    /// The next append begins another segment.
    is_closed: bool,
    /// It may hold bytes that no sync covers.
    is_dirty: AtomicBool,
    /// Its file, as the handle has it open that made it.
    made: Option<(OpenOptions, Arc<dyn File>)>,
}

impl Segment {
    fn new(start: u64, is_shared: bool) -> Segment {
        Segment {
            start,
            is_shared: AtomicBool::new(is_shared),
            is_closed: false,
            // Recovery writes again what a dead process may have left unsynced, but for this.
            is_dirty: AtomicBool::new(is_shared),
            made: None,
        }
    }

    pub fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }

    /// Another file has it too, or no more.
    fn share(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Ordering::Release);
    }

    /// True if what is appended goes into another segment.
    pub fn ends(&self) -> bool {
        self.is_closed || self.is_shared()
    }

    /// Bytes that were written into it are not synced.
    pub fn note_written(&self) {
        self.is_dirty.store(true, Ordering::Release);
    }

    /// Runs a sync of its file if it holds bytes that need one.
    pub fn sync(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        match self.is_dirty.swap(false, Ordering::AcqRel) {
            true => sync().inspect_err(|_| self.note_written()),
            false => Ok(()),
        }
    }

    /// Its file, if the handle that made it opened files in this way.
    pub fn made(&self, options: OpenOptions) -> Option<Arc<dyn File>> {
        let made = self.made.as_ref().filter(|(made, _)| *made == options);
        made.map(|(_, file)| file.clone())
    }
}

/// The segments of one file.
#[derive(Debug)]
pub(super) struct Row {
    below: Arc<dyn FileSystem>,
    /// Most bytes of a segment.
    pub segment_bytes: u64,
    defect: Option<Defect>,
    /// Changes with `segments`.
    version: AtomicU64,
    /// This process writes the file: it knows which segments are shared.
    pub is_written: AtomicBool,
    /// Held while segments and names are synced.
    syncing: Mutex<()>,
    state: Mutex<State>,
}

/// The state of a row, under its lock.
#[derive(Debug)]
pub(super) struct State {
    pub path: PathBuf,
    /// In order; the first begins at 0.
    segments: Vec<Arc<Segment>>,
    /// How many of them hold bytes of the file; the first counts always. Those behind are empty:
    /// a cut left them, and the file grows into them again.
    used: usize,
    /// Names came or went since the folder was synced.
    names_changed: bool,
}

impl State {
    /// Those that hold the file.
    pub fn used(&self) -> &[Arc<Segment>] {
        &self.segments[..self.used]
    }

    /// Where the file has to end, or go on in the next segment.
    pub fn limit(&self, segment_bytes: u64, last_bytes: u64) -> u64 {
        let last = self.used()[self.used - 1].start;
        let most = match last {
            0 => small_bytes(segment_bytes),
            _ => segment_bytes,
        };
        // A file that was cut ends anywhere; direct I/O goes on up to the limit.
        let is = last_bytes.next_multiple_of(BLOCK);
        last.saturating_add(most.max(is)).min(self.empty_from())
    }

    /// Where the first of the empty segments begins.
    pub fn empty_from(&self) -> u64 {
        let next = self.segments.get(self.used);
        next.map_or(u64::MAX, |next| next.start)
    }
}

impl Row {
    /// The segments that are there of a file; its first is.
    pub fn of(
        below: &Arc<dyn FileSystem>,
        path: &Path,
        (segment_bytes, defect): (u64, Option<Defect>),
    ) -> Result<Arc<Row>> {
        Ok(Arc::new(Row {
            below: below.clone(),
            segment_bytes,
            defect,
            version: AtomicU64::new(0),
            is_written: AtomicBool::new(false),
            syncing: Mutex::new(()),
            state: Mutex::new(state(&**below, path)?),
        }))
    }

    /// True if a test has switched this defect on.
    pub fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// True if it is another one by now. Who has written before this call either sees a change
    /// here, or is seen by all that comes after the change: both sides add to the version.
    pub fn has_changed_since(&self, version: u64) -> bool {
        self.version.fetch_add(0, Ordering::AcqRel) != version
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn change(&self, state: &mut State) {
        state.names_changed = true;
        self.resized();
    }

    /// The file was made anew: of its segments, the first alone is there.
    pub fn begin_anew(&self, removed: bool) {
        let mut state = self.state();
        state.segments = vec![Arc::new(Segment::new(0, false))];
        state.used = 1;
        self.change(&mut state);
        // The name of the first is its maker's to sync, as of any file.
        state.names_changed = removed;
    }

    pub fn renamed(&self, to: &Path) {
        self.state().path = to.to_path_buf();
    }

    /// Takes segments that another process has added; false where there are none. Those that
    /// it has removed can be read for as long as they are open here.
    pub fn look_again(&self) -> Result<bool> {
        let mut state = self.state();
        let mut is_any = false;
        for start in find(&*self.below, &state.path)?.starts {
            let known = |segment: &Arc<Segment>| segment.start.cmp(&start);
            if let Err(place) = state.segments.binary_search_by(known) {
                state
                    .segments
                    .insert(place, Arc::new(Segment::new(start, false)));
                state.used += usize::from(place < state.used);
                is_any = true;
            }
        }
        let used = used(&*self.below, &state.path, &state.segments)?;
        is_any |= used > state.used;
        state.used = state.used.max(used);
        if is_any {
            self.resized();
        }
        Ok(is_any)
    }

    /// Goes on in the next segment, which begins at an offset behind the last one's start, if
    /// there is none; false where none can begin there, as it is no multiple of `unit`. Does
    /// nothing if the row has changed since the version for which it was found to be due:
    /// another thread may have written behind the offset.
    pub fn begin(
        &self,
        (offset, version): (u64, u64),
        unit: u64,
        options: OpenOptions,
    ) -> Result<bool> {
        let mut state = self.state();
        if version != self.version() {
            return Ok(true);
        }
        let next = state.segments.get(state.used);
        if next.is_some_and(|next| next.start <= offset) {
            state.used += 1;
            self.resized();
            return Ok(true);
        }
        if offset % unit.max(UNIT) != 0 {
            return Ok(false);
        }
        let creating = OpenOptions {
            create: true,
            truncate: true,
            ..options
        };
        let path = segment_path(&state.path, offset);
        let segment = Segment {
            made: Some((options, self.below.open(&path, creating)?)),
            ..Segment::new(offset, false)
        };
        let place = state.used;
        state.segments.insert(place, Arc::new(segment));
        state.used += 1;
        self.change(&mut state);
        Ok(true)
    }

    /// The file ends in the segment that begins at an offset; those behind it are empty.
    pub fn end_in(&self, start: u64) {
        let mut state = self.state();
        let used = state
            .segments
            .partition_point(|segment| segment.start <= start);
        state.used = state.used.min(used);
        self.resized();
    }

    /// Has handles look at the segments and their lengths again.
    pub fn resized(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes the names of segments durable, then runs a sync of what they hold. One at a time:
    /// whoever finds nothing to do comes after it was done.
    pub fn sync(&self, contents: impl FnOnce() -> Result<()>) -> Result<()> {
        let _one = lock(&self.syncing);
        let folder = {
            let mut state = self.state();
            let is_due = std::mem::take(&mut state.names_changed);
            let is_due = is_due && !self.has(Defect::NamesUnsynced);
            is_due.then(|| folder_of(&state.path).to_path_buf())
        };
        if let Some(folder) = folder {
            let synced = self.below.sync_directory(&folder);
            synced.inspect_err(|_| self.state().names_changed = true)?;
        }
        contents()
    }

    /// Removes segments that lie within a range, but for the first and the last, and finds out
    /// which of those that were shared still are.
    pub fn remove_within(&self, start: u64, end: u64) -> Result<()> {
        let mut state = self.state();
        let mut place = 1;
        while place + 1 < state.used {
            let (from, to) = (state.segments[place].start, state.segments[place + 1].start);
            match from >= start && to <= end {
                true => {
                    self.remove(&mut state, place)?;
                    state.used -= 1;
                }
                false => place += 1,
            }
        }
        for segment in state.used().iter().filter(|found| found.is_shared()) {
            let path = segment_path(&state.path, segment.start);
            segment.share(has_other_names(&*self.below, &path)?);
        }
        Ok(())
    }

    fn remove(&self, state: &mut State, place: usize) -> Result<()> {
        let path = segment_path(&state.path, state.segments[place].start);
        match self.below.remove(&path) {
            Err(error) if !is_missing(&error) => return Err(error),
            _ => {}
        }
        state.segments.remove(place);
        self.change(state);
        Ok(())
    }

    /// Gives the file a copy of its own of a segment that another file has too.
    pub fn own(&self, start: u64) -> Result<()> {
        let mut state = self.state();
        let found = |segment: &Arc<Segment>| segment.start == start && segment.is_shared();
        let Some(place) = state.segments.iter().position(found) else {
            return Ok(());
        };
        let path = segment_path(&state.path, start);
        if has_other_names(&*self.below, &path)? {
            let copy = with_suffix(&path, COPY_SUFFIX);
            copy_synced(&*self.below, &path, &copy, REPLACED, u64::MAX)?;
            self.below.rename(&copy, &path)?;
        }
        // Another process that reads the file has the shared one open: it finds what is
        // appended in a segment that it does not know yet.
        let segment = Segment {
            is_closed: true,
            ..Segment::new(start, false)
        };
        segment.note_written();
        state.segments[place] = Arc::new(segment);
        self.change(&mut state);
        Ok(())
    }

    /// Makes another file of the first `length` bytes. Segments are cloned or, where the file
    /// system does not clone, get second names; small ones are copied. False where neither can
    /// be done: a process that does not write the file must not give names, since the writer
    /// would not know of them.
    pub fn share_with(&self, to: &Path, length: u64, mut clones: bool) -> Result<bool> {
        let is_written = self.is_written.load(Ordering::Acquire);
        if !is_written {
            self.look_again()?;
        }
        let state = self.state();
        let within = |segment: &&Arc<Segment>| segment.start < length.max(1);
        for segment in state.used().iter().filter(within) {
            let from = segment_path(&state.path, segment.start);
            let to = segment_path(to, segment.start);
            let there = self.below.metadata(&from)?.map_or(0, |found| found.length);
            let wanted = there.min(length - segment.start);
            clones = clones && self.below.clone_file(&from, &to, wanted)?;
            if clones {
                continue;
            }
            if wanted <= small_bytes(self.segment_bytes) {
                let copied = copy_synced(&*self.below, &from, &to, REPLACED, wanted)?;
                if copied < wanted {
                    let what = format!("the segment ends before the {wanted} bytes to be copied");
                    return Err(Error::corruption(from, copied, what));
                }
                continue;
            }
            let may_link = is_written && there == wanted;
            if !(may_link && self.below.link(&from, &to)?) {
                return Ok(false);
            }
            segment.share(!self.has(Defect::SharedWritten));
        }
        Ok(true)
    }
}

fn state(below: &dyn FileSystem, path: &Path) -> Result<State> {
    let starts = find(below, path)?.starts;
    let segment = |start| {
        let is_shared = has_other_names(below, &segment_path(path, start))?;
        Ok(Arc::new(Segment::new(start, is_shared)))
    };
    let segments: Result<Vec<_>> = std::iter::once(0).chain(starts).map(segment).collect();
    let segments = segments?;
    Ok(State {
        path: path.to_path_buf(),
        used: used(below, path, &segments)?,
        segments,
        names_changed: false,
    })
}

/// How many segments there are up to the last that is not empty.
fn used(below: &dyn FileSystem, path: &Path, segments: &[Arc<Segment>]) -> Result<usize> {
    for (place, segment) in segments.iter().enumerate().skip(1).rev() {
        let found = below.metadata(&segment_path(path, segment.start))?;
        if found.is_some_and(|found| found.length > 0) {
            return Ok(place + 1);
        }
    }
    Ok(1)
}

/// Most bytes of a file's first segment, and of any that a checkpoint copies. So the first is
/// never shared, which processes lock that read the file, and frequent checkpoints do not
/// leave a row of tiny segments.
fn small_bytes(segment_bytes: u64) -> u64 {
    (segment_bytes / 128 / BLOCK * BLOCK).clamp(BLOCK, 1 << 20)
}
