//! A handle of a file that is kept in segments.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use cambium_base::{Error, Result};

use super::row::{Row, Segment};
use super::{Defect, is_missing, segment_path};
use crate::file_system::{
    Advice, Alignment, AppendWindow, File, FilePart, FileSystem, OpenOptions,
};
use crate::sync::atomic::Ordering;

#[derive(Debug)]
pub(super) struct SegmentedFile {
    below: Arc<dyn FileSystem>,
    row: Arc<Row>,
    path: PathBuf,
    /// How a segment is opened that is there.
    options: OpenOptions,
    parts: ArcSwap<Parts>,
}

/// The segments as this handle has them open.
#[derive(Debug)]
struct Parts {
    /// The row's version that these are of.
    version: u64,
    parts: Vec<Part>,
    /// Where the last segment has to end.
    limit: u64,
    /// Where the empty segment behind it begins: what is written there would be hidden.
    empty_from: u64,
}

#[derive(Clone, Debug)]
struct Part {
    segment: Arc<Segment>,
    file: Arc<dyn File>,
    /// Where the next one begins.
    next: u64,
    /// Bytes of the file; of the last segment any number, as it grows.
    length: u64,
    /// The row's version that this is of.
    version: u64,
}

impl Part {
    fn is_last(&self) -> bool {
        self.next == u64::MAX
    }

    fn within(&self, offset: u64) -> u64 {
        offset - self.segment.start
    }
}

impl Parts {
    fn place(&self, offset: u64) -> usize {
        let behind = |part: &Part| part.segment.start <= offset;
        self.parts.partition_point(behind).saturating_sub(1)
    }

    fn at(&self, offset: u64) -> &Part {
        &self.parts[self.place(offset)]
    }

    fn last(&self) -> &Part {
        self.parts.last().expect("the first segment stays")
    }

    /// The segment that has all bytes of a range, and where, if one has.
    fn of_one(&self, offset: u64, length: usize) -> Option<(&Part, u64)> {
        let part = self.at(offset);
        let within = part.within(offset);
        let is_in_it = within.saturating_add(length as u64) <= part.length;
        is_in_it.then_some((part, within))
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if let Some((part, within)) = self.of_one(offset, buffer.len()) {
            return part.file.read_at(buffer, within);
        }
        let mut done = 0;
        for (part, range) in self.within(offset, buffer.len() as u64) {
            let piece = &mut buffer[done..done + (range.end - range.start) as usize];
            let there = part
                .length
                .saturating_sub(range.start)
                .min(piece.len() as u64);
            let count = part
                .file
                .read_at(&mut piece[..there as usize], range.start)?;
            if part.is_last() {
                return Ok(done + count);
            }
            // It is too short, or was removed: a hole.
            piece[count..].fill(0);
            done += piece.len();
        }
        Ok(done)
    }

    /// Segments that have bytes of a range, and which of their own bytes.
    fn within(&self, offset: u64, length: u64) -> impl Iterator<Item = (&Part, Range<u64>)> {
        let end = offset.saturating_add(length);
        self.parts[self.place(offset)..]
            .iter()
            .take_while(move |part| part.segment.start < end)
            .map(move |part| {
                let from = offset.max(part.segment.start);
                (part, part.within(from)..part.within(end.min(part.next)))
            })
    }
}

impl SegmentedFile {
    /// A handle of a file whose first segment was opened.
    pub fn new(
        row: Arc<Row>,
        below: Arc<dyn FileSystem>,
        path: &Path,
        options: OpenOptions,
        first: Arc<dyn File>,
    ) -> Result<Self> {
        let options = OpenOptions {
            create: false,
            create_new: false,
            truncate: false,
            ..options
        };
        if options.write {
            row.is_written.store(true, Ordering::Release);
        }
        let segment = row.state().used()[0].clone();
        let part = Part {
            segment,
            file: first,
            next: u64::MAX,
            length: u64::MAX,
            version: u64::MAX,
        };
        let file = SegmentedFile {
            below,
            row,
            path: path.to_path_buf(),
            options,
            parts: ArcSwap::from_pointee(Parts {
                version: u64::MAX,
                parts: vec![part],
                limit: 0,
                empty_from: u64::MAX,
            }),
        };
        file.refresh()?;
        Ok(file)
    }

    fn parts(&self) -> Result<Guard<Arc<Parts>>> {
        let parts = self.parts.load();
        if parts.version == self.row.version() {
            return Ok(parts);
        }
        drop(parts);
        self.refresh()?;
        Ok(self.parts.load())
    }

    /// Opens the segments that are new to this handle, and lets go of those that are gone.
    fn refresh(&self) -> Result<()> {
        let state = self.row.state();
        let version = self.row.version();
        let before = self.parts.load();
        let mut known = before.parts.iter().peekable();
        let mut parts: Vec<Part> = Vec::with_capacity(state.used().len());
        for segment in state.used() {
            while known
                .next_if(|part| part.segment.start < segment.start)
                .is_some()
            {}
            let known = known.next_if(|part| Arc::ptr_eq(&part.segment, segment));
            let known = known.map(|part| part.file.clone());
            let file = match known.or_else(|| segment.made(self.options)) {
                Some(file) => file,
                None => {
                    let path = segment_path(&state.path, segment.start);
                    match self.below.open(&path, self.options) {
                        // The process that writes the file has removed it.
                        Err(error) if is_missing(&error) && !self.options.write => continue,
                        opened => opened?,
                    }
                }
            };
            let length = file.length()?;
            if let Some(last) = parts.last_mut() {
                last.next = segment.start;
                last.length = last.length.min(last.within(segment.start));
            }
            parts.push(Part {
                segment: segment.clone(),
                file,
                next: u64::MAX,
                length,
                version,
            });
        }
        let last = parts.last_mut().expect("the first segment stays");
        let limit = state.limit(self.row.segment_bytes, last.length);
        last.length = u64::MAX;
        self.parts.store(Arc::new(Parts {
            version,
            parts,
            limit,
            empty_from: state.empty_from(),
        }));
        Ok(())
    }

    /// The segments to read from: where a new one cannot be opened, those from before, and why.
    fn readable(&self) -> (Guard<Arc<Parts>>, Option<Error>) {
        match self.parts() {
            Ok(parts) => (parts, None),
            Err(error) => (self.parts.load(), Some(error)),
        }
    }

    /// The segment that a write at an offset goes into, and how many bytes of it may.
    fn writable(&self, offset: u64) -> Result<(Part, u64)> {
        loop {
            let parts = self.parts()?;
            let part = parts.at(offset);
            let start = part.segment.start;
            if part.is_last() {
                let is_behind = || Result::Ok(offset >= start + part.file.length()?);
                let begins = offset >= parts.empty_from
                    || (offset >= parts.limit || part.segment.ends()) && is_behind()?;
                if begins && offset > start && self.begin(offset, &parts)? {
                    continue;
                }
            }
            if part.segment.is_shared() {
                self.row.own(start)?;
                continue;
            }
            let end = match part.is_last() {
                true if offset < parts.limit => parts.limit,
                true => parts.empty_from,
                false => part.next,
            };
            return Ok((part.clone(), end - offset));
        }
    }

    /// A segment was written up to a place in it. Handles that know it as shorter must look
    /// again. So must all where the row has changed meanwhile: another segment may have begun
    /// behind this one, and its length may have been taken before the write.
    fn note_length(&self, part: &Part, end: u64) {
        let is_of_before = self.row.has_changed_since(part.version);
        let is_unseen = is_of_before && !self.row.has(Defect::LateWriteUnseen);
        if end > part.length || is_unseen {
            self.row.resized();
        }
    }

    /// Goes on in another segment, which these do not have; false where none can begin there.
    fn begin(&self, offset: u64, parts: &Parts) -> Result<bool> {
        let seen = parts.version;
        self.row.begin((offset, seen), self.unit(), self.options)
    }

    fn unit(&self) -> u64 {
        let alignment = self.alignment();
        alignment.offset.max(alignment.memory) as u64
    }

    /// Does something with the file of each segment that a range goes into.
    pub(super) fn for_each_writable(
        &self,
        offset: u64,
        length: u64,
        mut work: impl FnMut(&dyn File, Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let mut position = offset;
        let end = offset.saturating_add(length);
        while position < end {
            let (part, room) = self.writable(position)?;
            let until = end.min(position.saturating_add(room));
            let range = part.within(position)..part.within(until);
            let done = work(&*part.file, range.clone());
            part.segment.note_written();
            self.note_length(&part, range.end);
            done?;
            position = until;
        }
        Ok(())
    }
}

impl File for SegmentedFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let (parts, missing) = self.readable();
        let count = parts.read(buffer, offset)?;
        if count == buffer.len() {
            return Ok(count);
        }
        if let Some(error) = missing {
            return Err(error);
        }
        // Another process may have gone on in a new segment.
        if self.options.write || !self.row.look_again()? {
            return Ok(count);
        }
        drop(parts);
        self.read_at(buffer, offset)
    }

    fn read_vec_at(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let (parts, _) = self.readable();
        if let Some((part, within)) = parts.of_one(offset, length) {
            let bytes = part.file.read_vec_at(within, length)?;
            if bytes.len() == length {
                return Ok(bytes);
            }
        }
        drop(parts);
        let mut bytes = vec![0; length];
        let count = self.read_at(&mut bytes, offset)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        let (parts, _) = self.readable();
        let part = parts.at(offset);
        let within = part.within(offset);
        let there = part.length.saturating_sub(within);
        let most = there.min(buffer.len() as u64) as usize;
        part.file.read_cached_at(&mut buffer[..most], within)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let mut rest = buffer;
        self.for_each_writable(offset, buffer.len() as u64, |file, range| {
            let (piece, behind) = rest.split_at((range.end - range.start) as usize);
            rest = behind;
            file.write_at(piece, range.start)
        })
    }

    fn sync_data(&self) -> Result<()> {
        let parts = self.parts()?;
        self.row.sync(|| {
            parts.parts.iter().try_for_each(|part| {
                let sync = || part.file.sync_data();
                // A handle that only reads does not know what other processes have written.
                match self.options.write {
                    true => part.segment.sync(sync),
                    false => sync(),
                }
            })
        })
    }

    fn length(&self) -> Result<u64> {
        if !self.options.write {
            self.row.look_again()?;
        }
        let parts = self.parts()?;
        let last = parts.last();
        Ok(last.segment.start + last.file.length()?)
    }

    /// Segments behind the end become empty and keep their names: a process that reads the
    /// file meets what is appended later in the files that it has open.
    fn set_length(&self, length: u64) -> Result<()> {
        let parts = self.parts()?;
        if length > parts.empty_from && self.begin(parts.empty_from, &parts)? {
            drop(parts);
            return self.set_length(length);
        }
        let ends = parts.place(length.saturating_sub(1));
        for (place, part) in parts.parts.iter().enumerate().skip(ends).rev() {
            let wanted = length.saturating_sub(part.segment.start);
            let there = part.file.length()?;
            // The file ends in this one from now on: it has to be as long as it says, also
            // where it was shorter than the place of the next.
            if place == ends && wanted > there || wanted < there {
                if part.segment.is_shared() {
                    self.row.own(part.segment.start)?;
                    drop(parts);
                    return self.set_length(length);
                }
                part.segment.note_written();
                part.file.set_length(wanted)?;
                if wanted == 0 {
                    // Once nothing of the file is in it, no sync comes to it.
                    part.segment.sync(|| part.file.sync_data())?;
                }
            }
        }
        self.row.end_in(parts.parts[ends].segment.start);
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        let before = self.length()?.max(offset);
        let allocated = self.for_each_writable(offset, length, |file, range| {
            file.allocate(range.start, range.end - range.start)
        });
        // Below the offset another thread may be writing.
        if allocated.is_err() && self.length()? > before {
            self.set_length(before)?;
        }
        allocated
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        let end = offset.saturating_add(length);
        self.row.remove_within(offset, end)?;
        let parts = self.parts()?;
        for (part, range) in parts.within(offset, length) {
            let end = range.end.min(part.file.length()?);
            if !part.segment.is_shared() && range.start < end {
                part.file.punch_hole(range.start, end - range.start)?;
                part.segment.note_written();
            }
        }
        Ok(())
    }

    fn shared_until(&self, offset: u64) -> u64 {
        let (parts, _) = self.readable();
        let shared = parts.parts[parts.place(offset)..].iter();
        let shared = shared.take_while(|part| part.segment.is_shared());
        shared.last().map_or(offset, |part| part.next)
    }

    fn advise(&self, offset: u64, length: u64, advice: Advice) {
        let (parts, _) = self.readable();
        for (part, range) in parts.within(offset, length) {
            let length = range.end - range.start;
            part.file.advise(range.start, length, advice);
        }
    }

    fn allocated_bytes(&self) -> Result<u64> {
        let parts = self.parts()?;
        let bytes = parts.parts.iter().map(|part| part.file.allocated_bytes());
        bytes.sum()
    }

    fn alignment(&self) -> Alignment {
        self.parts.load().last().file.alignment()
    }

    fn part_at(&self, offset: u64) -> Option<FilePart> {
        let (parts, _) = self.readable();
        let part = parts.at(offset);
        let within = part.within(offset);
        Some(FilePart {
            file: part.file.clone(),
            offset: within,
            length: part.length.saturating_sub(within),
            next: part.next,
        })
    }

    fn open_window(&self, end: u64, length: u64) -> Result<Option<Box<dyn AppendWindow>>> {
        let parts = self.parts()?;
        let part = parts.at(end);
        let most = if part.is_last() {
            parts.limit
        } else {
            part.next
        };
        let length = length.min(most.saturating_sub(end));
        if part.segment.is_shared() || length == 0 {
            return Ok(None);
        }
        let opened = part.file.open_window(part.within(end), length)?;
        Ok(opened.map(|window| -> Box<dyn AppendWindow> {
            Box::new(SegmentWindow {
                window,
                segment: part.segment.clone(),
            })
        }))
    }
}

/// A window of a segment.
#[derive(Debug)]
struct SegmentWindow {
    window: Box<dyn AppendWindow>,
    segment: Arc<Segment>,
}

impl AppendWindow for SegmentWindow {
    fn end(&self) -> u64 {
        self.segment.start + self.window.end()
    }

    fn store(&mut self, parts: &[&[u8]], offset: u64) -> bool {
        let within = offset.checked_sub(self.segment.start);
        let is_stored = within.is_some_and(|within| self.window.store(parts, within));
        self.segment.note_written();
        is_stored
    }
}
