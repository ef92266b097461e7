//! The segments of one file, which all its handles share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::Result;

use super::{COPY_SUFFIX, Defect, find, folder_of, is_missing, segment_path, with_suffix};
use crate::file_system::{FileSystem, OpenOptions};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, lock};

/// Bytes that a copy of a segment reads at once.
const COPIED_BYTES: usize = 1 << 20;
/// A segment begins at a multiple of this.
const UNIT: u64 = 512;

/// One segment.
#[derive(Debug)]
pub(super) struct Segment {
    /// Offset of its first byte in the file.
    pub start: u64,
    /// Another file may have it too: it is not changed.
    pub is_shared: AtomicBool,
    /// Bytes were written that no sync covers. Of the last segment nobody asks.
    pub is_dirty: AtomicBool,
}

impl Segment {
    fn new(start: u64, is_shared: bool) -> Arc<Segment> {
        Arc::new(Segment {
            start,
            is_shared: AtomicBool::new(is_shared),
            // A process that died may have left it so.
            is_dirty: AtomicBool::new(true),
        })
    }

    pub fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }

    /// Another file has it too, or no more.
    fn share(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Ordering::Release);
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
    state: Mutex<State>,
}

/// What the lock of a row guards.
#[derive(Debug)]
pub(super) struct State {
    pub path: PathBuf,
    /// In order; the first begins at 0.
    segments: Vec<Arc<Segment>>,
    /// So many hold the file, one at least. The others are empty: a cut left them behind the
    /// file's end, and it grows into them.
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
        let limit = last.saturating_add(segment_bytes.max(last_bytes));
        let next = self.segments.get(self.used);
        next.map_or(limit, |next| limit.min(next.start))
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
            state: Mutex::new(state(&**below, path)?),
        }))
    }

    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn change(&self, state: &mut State) {
        state.names_changed = true;
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// The file was made anew: of its segments, the first alone is there.
    pub fn begin_anew(&self, removed: bool) {
        let mut state = self.state();
        state.segments = vec![Segment::new(0, false)];
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
                state.segments.insert(place, Segment::new(start, false));
                state.used += usize::from(place < state.used);
                is_any = true;
            }
        }
        let used = used(&*self.below, &state.path, &state.segments)?;
        is_any |= used > state.used;
        state.used = state.used.max(used);
        if is_any {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        Ok(is_any)
    }

    /// Goes on in the next segment, which begins at an offset behind the last one's start, if
    /// there is none; false where none can begin there, as it is no multiple of `unit`.
    pub fn begin(&self, offset: u64, unit: u64, options: OpenOptions) -> Result<bool> {
        let mut state = self.state();
        let next = state.segments.get(state.used);
        if next.is_some_and(|next| next.start <= offset) {
            state.used += 1;
            self.resized();
            return Ok(true);
        }
        if offset % unit.max(UNIT) != 0 {
            return Ok(false);
        }
        if state.used()[state.used - 1].start >= offset {
            return Ok(true);
        }
        let options = OpenOptions {
            create: true,
            truncate: true,
            ..options
        };
        // A crash between the two may leave the name, of an empty file.
        self.below
            .open(&segment_path(&state.path, offset), options)?;
        let place = state.used;
        state.segments.insert(place, Segment::new(offset, false));
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

    /// A segment that is not the last has grown, or was cut.
    pub fn resized(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes the names of segments durable.
    pub fn settle_names(&self) -> Result<()> {
        // Under the lock: whoever finds nothing to do comes after it was done.
        self.sync_names(&mut self.state())
    }

    fn sync_names(&self, state: &mut State) -> Result<()> {
        if state.names_changed && self.defect != Some(Defect::NamesUnsynced) {
            self.below.sync_directory(folder_of(&state.path))?;
            state.names_changed = false;
        }
        Ok(())
    }

    /// Makes names durable, and what was written into segments, but the last that is used.
    pub fn settle(&self) -> Result<()> {
        let mut state = self.state();
        self.sync_names(&mut state)?;
        let last = state.used - 1;
        for (place, segment) in state.segments.iter().enumerate() {
            if place != last && segment.is_dirty.swap(false, Ordering::AcqRel) {
                let path = segment_path(&state.path, segment.start);
                let file = self.below.open(&path, OpenOptions::READ);
                let synced = file.and_then(|file| file.sync_data());
                synced.inspect_err(|_| segment.is_dirty.store(true, Ordering::Release))?;
            }
        }
        Ok(())
    }

    /// Removes segments that lie within a range, but for the first and the last; answers
    /// whether a segment may have no hole, because another file has it too.
    pub fn remove_within(&self, start: u64, end: u64) -> Result<impl Fn(u64) -> bool + use<>> {
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
        let mut shared = Vec::new();
        for segment in state.used().iter().filter(|found| found.is_shared()) {
            // Its other name may have gone.
            let path = segment_path(&state.path, segment.start);
            let is_shared = has_other_names(&*self.below, &path)?;
            segment.share(is_shared);
            if is_shared {
                shared.push(segment.start);
            }
        }
        Ok(move |start| shared.contains(&start))
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
            copy_file(&*self.below, &path, &copy)?;
            self.below.rename(&copy, &path)?;
        }
        state.segments[place] = Segment::new(start, false);
        self.change(&mut state);
        Ok(())
    }

    /// Makes another file of the first `length` bytes: of clones, and from the first segment
    /// on that the file system clones not, of second names. False where there can be none:
    /// another process that writes the file would not know of the names.
    pub fn share_with(&self, to: &Path, length: u64, mut clones: bool) -> Result<bool> {
        let state = self.state();
        let within = |segment: &&Arc<Segment>| segment.start < length.max(1);
        for segment in state.used().iter().filter(within) {
            let from = segment_path(&state.path, segment.start);
            let to = segment_path(to, segment.start);
            let there = self.below.metadata(&from)?.map_or(0, |found| found.length);
            let wanted = there.min(length - segment.start);
            clones = clones && self.below.clone_file(&from, &to, wanted)?;
            if !clones {
                let may_link = self.is_written.load(Ordering::Acquire) && there == wanted;
                if !(may_link && self.below.link(&from, &to)?) {
                    return Ok(false);
                }
                segment.share(self.defect != Some(Defect::SharedWritten));
            }
        }
        Ok(true)
    }
}

fn state(below: &dyn FileSystem, path: &Path) -> Result<State> {
    let starts = find(below, path)?.starts;
    let segment = |start| {
        let is_shared = has_other_names(below, &segment_path(path, start))?;
        Ok(Segment::new(start, is_shared))
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

fn has_other_names(below: &dyn FileSystem, path: &Path) -> Result<bool> {
    Ok(below.metadata(path)?.is_some_and(|found| found.links > 1))
}

/// Copies a file and makes the copy durable, but for its name; holes stay holes.
fn copy_file(below: &dyn FileSystem, from: &Path, to: &Path) -> Result<()> {
    let source = below.open(from, OpenOptions::READ)?;
    let options = OpenOptions {
        truncate: true,
        ..OpenOptions::CREATE
    };
    let copy = below.open(to, options)?;
    let length = source.length()?;
    let mut piece = vec![0; COPIED_BYTES.min(length as usize)];
    let mut position = 0;
    while position < length {
        let count = source.read_at(&mut piece, position)?;
        if count == 0 {
            break;
        }
        if piece[..count].iter().any(|&byte| byte != 0) {
            copy.write_at(&piece[..count], position)?;
        }
        position += count as u64;
    }
    copy.set_length(length)?;
    copy.sync_data()
}
