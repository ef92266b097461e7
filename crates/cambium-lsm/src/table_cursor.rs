//! Reading a table in order.

use std::sync::Arc;

use cambium_base::Result;
use cambium_io::File;

use crate::block::{Block, BlockCursor};
use crate::entry::{EntryRef, Source};
use crate::format::BlockHandle;
use crate::table::Table;

/// Most that a job reads at once.
const JOB_WINDOW: usize = 256 << 10;
/// Most that an iterator reads at once. A value that a caller holds keeps all of it in memory.
const LARGEST_WINDOW: usize = 64 << 10;
/// The least that an iterator reads at once, in blocks, where it is more than one.
const FEWEST_BLOCKS: usize = 4;
/// Between two data blocks of a walk: an index block at most.
const LARGEST_GAP: u64 = 8 << 10;

/// How blocks are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// Through the cache: lookups and iterators. A walk that misses block after block reads
    /// several at once, past the cache.
    Cached,
    /// Many at once, past the cache: jobs, which read everything once.
    Streamed,
}

/// A part of the file that was read at once.
#[derive(Debug, Default)]
struct ReadWindow {
    start: u64,
    length: usize,
    bytes: Option<Arc<[u8]>>,
    /// Bytes that the last read should have been, by the walk before it.
    wanted: usize,
    /// Start and end of the block that the walk came to last.
    last: (u64, u64),
}

impl ReadWindow {
    /// The window's bytes, and where a part of the file is in them.
    fn part(&self, offset: u64, length: usize) -> Option<(&Arc<[u8]>, usize)> {
        let start = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.as_ref()?;
        (start + length <= self.length).then_some((bytes, start))
    }

    /// Reads a part of the file. The memory is used again where nobody has a block of it.
    fn read(&mut self, file: &dyn File, start: u64, length: usize) -> Result<()> {
        let free = self.bytes.as_mut().and_then(Arc::get_mut);
        if free.is_none_or(|room| room.len() < length) {
            self.bytes = Some(std::iter::repeat_n(0, length).collect());
        }
        self.length = 0;
        if let Some(room) = self.bytes.as_mut().and_then(Arc::get_mut) {
            self.length = file.read_at(&mut room[..length], start)?;
        }
        self.start = start;
        Ok(())
    }

    /// The walk came to a block; true if it lies beside the one before.
    fn come_to(&mut self, offset: u64, end: u64) -> bool {
        let (start, before) = std::mem::replace(&mut self.last, (offset, end));
        offset.wrapping_sub(before) <= LARGEST_GAP || start.wrapping_sub(end) <= LARGEST_GAP
    }
}

/// Stands at an entry of a table, or outside.
#[derive(Debug)]
pub(crate) struct TableCursor {
    table: Arc<Table>,
    blocks: Blocks,
    window: ReadWindow,
    top: BlockCursor,
    /// An index block and where it lies.
    index: Option<(BlockCursor, BlockHandle)>,
    data: Option<(BlockCursor, BlockHandle)>,
}

impl TableCursor {
    /// Outside the table.
    pub fn new(table: Arc<Table>, blocks: Blocks) -> Self {
        let top = BlockCursor::new(table.top().clone());
        TableCursor {
            table,
            blocks,
            window: ReadWindow::default(),
            top,
            index: None,
            data: None,
        }
    }

    /// An index block: it lies behind all data blocks that it names.
    fn index_block(&self, handle: BlockHandle) -> Result<Block> {
        match self.blocks {
            Blocks::Cached => self.table.block(handle),
            Blocks::Streamed => self.table.read_block(handle),
        }
    }

    fn data_block(&mut self, handle: BlockHandle) -> Result<Block> {
        let (table, window) = (&self.table, &mut self.window);
        let length = table.stored_bytes(handle)?;
        let (start, end) = (handle.offset, handle.offset + length as u64);
        let goes_back = start < window.last.0;
        let goes_on = window.come_to(start, end);
        if self.blocks == Blocks::Cached {
            if let Some(block) = table.cached_block(handle) {
                return Ok(block);
            }
        }
        if window.part(start, length).is_none() {
            window.wanted = match (self.blocks, goes_on) {
                (Blocks::Streamed, _) => JOB_WINDOW.max(length),
                (_, true) => (window.wanted * 2).min(LARGEST_WINDOW).max(length),
                (_, false) => length,
            };
            if self.blocks == Blocks::Cached && window.wanted < FEWEST_BLOCKS * length {
                return table.read_uncached(handle);
            }
            let wanted = window.wanted as u64;
            let from = match goes_back {
                true => end.saturating_sub(wanted),
                false => start,
            };
            // A small table's rest is less than a window.
            let blocks_end = table.footer.index.offset.max(end);
            let to = (from + wanted).min(blocks_end);
            let read = window.read(&**table.file(), from, (to - from) as usize);
            if self.blocks == Blocks::Cached {
                if read.is_err() {
                    // It may be of another block's place.
                    return table.read_uncached(handle);
                }
                table.count_read(window.length);
            }
            read?;
        }
        match window.part(start, length) {
            Some((bytes, at)) => table.block_in(handle, bytes, at),
            None => Err(table.ends_early(handle)),
        }
    }

    /// Opens the index block that the top stands at.
    fn load_index(&mut self) -> Result<bool> {
        self.data = None;
        self.index = None;
        let Some(entry) = self.top.entry() else {
            return Ok(false);
        };
        let handle = self.table.handle_in(self.table.footer.index, &entry)?;
        let block = self.index_block(handle)?;
        self.index = Some((BlockCursor::new(block), handle));
        Ok(true)
    }

    /// Opens the data block that the index block stands at.
    fn load_data(&mut self) -> Result<bool> {
        self.data = None;
        let Some((index, index_handle)) = &self.index else {
            return Ok(false);
        };
        let Some(entry) = index.entry() else {
            return Ok(false);
        };
        let handle = self.table.handle_in(*index_handle, &entry)?;
        let block = self.data_block(handle)?;
        self.data = Some((BlockCursor::new(block), handle));
        Ok(true)
    }

    fn in_top(&mut self, go: impl FnOnce(&mut BlockCursor) -> Outcome) -> Result<()> {
        let handle = self.table.footer.index;
        go(&mut self.top).map_err(|bad| self.table.bad_block(handle, bad))
    }

    fn in_index(&mut self, go: impl FnOnce(&mut BlockCursor) -> Outcome) -> Result<()> {
        match &mut self.index {
            Some((index, handle)) => go(index).map_err(|bad| self.table.bad_block(*handle, bad)),
            None => Ok(()),
        }
    }

    #[inline]
    fn in_data(&mut self, go: impl FnOnce(&mut BlockCursor) -> Outcome) -> Result<()> {
        match &mut self.data {
            Some((data, handle)) => go(data).map_err(|bad| self.table.bad_block(*handle, bad)),
            None => Ok(()),
        }
    }

    /// True if it stands at an entry.
    #[inline]
    pub fn is_placed(&self) -> bool {
        self.data.as_ref().is_some_and(|(data, _)| data.is_placed())
    }

    /// As [`BlockCursor::next_within`], of the data block that is open.
    #[inline]
    pub fn next_within(&mut self) -> Option<bool> {
        self.data.as_mut()?.0.next_within()
    }

    /// A key that no entry of the data block lies behind.
    pub fn block_end(&self) -> Option<&[u8]> {
        Some(self.index.as_ref()?.0.entry()?.key)
    }

    /// The cursor over the data block that is open.
    #[inline]
    pub fn block_cursor(&self) -> Option<&BlockCursor> {
        Some(&self.data.as_ref()?.0)
    }

    /// True if it stands outside of the data block that is open.
    fn is_between_blocks(&self) -> bool {
        self.data
            .as_ref()
            .is_some_and(|(data, _)| !data.is_placed())
    }

    /// Goes to the first entry of the next block that has one, if it stands
    /// after the last entry of a block.
    fn skip_forward(&mut self) -> Result<()> {
        while self.is_between_blocks() {
            self.in_index(BlockCursor::next)?;
            if !self.load_data()? {
                self.in_top(BlockCursor::next)?;
                if !self.load_index()? {
                    return Ok(());
                }
                self.in_index(BlockCursor::seek_first)?;
                self.load_data()?;
            }
            self.in_data(BlockCursor::seek_first)?;
        }
        Ok(())
    }

    fn skip_backward(&mut self) -> Result<()> {
        while self.is_between_blocks() {
            self.in_index(BlockCursor::previous)?;
            if !self.load_data()? {
                self.in_top(BlockCursor::previous)?;
                if !self.load_index()? {
                    return Ok(());
                }
                self.in_index(BlockCursor::seek_last)?;
                self.load_data()?;
            }
            self.in_data(BlockCursor::seek_last)?;
        }
        Ok(())
    }
}

type Outcome = std::result::Result<(), crate::block::BadBlock>;

impl Source for TableCursor {
    fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.in_top(|top| top.seek(key, sequence))?;
        if !self.load_index()? {
            return Ok(());
        }
        self.in_index(|index| index.seek(key, sequence))?;
        self.load_data()?;
        self.in_data(|data| data.seek(key, sequence))?;
        self.skip_forward()
    }

    fn seek_before(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.seek(key, sequence)?;
        match self.entry() {
            Some(_) => self.previous(),
            None => self.seek_last(),
        }
    }

    fn seek_first(&mut self) -> Result<()> {
        self.in_top(BlockCursor::seek_first)?;
        self.load_index()?;
        self.in_index(BlockCursor::seek_first)?;
        self.load_data()?;
        self.in_data(BlockCursor::seek_first)?;
        self.skip_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.in_top(BlockCursor::seek_last)?;
        self.load_index()?;
        self.in_index(BlockCursor::seek_last)?;
        self.load_data()?;
        self.in_data(BlockCursor::seek_last)?;
        self.skip_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.is_placed() {
            return Ok(());
        }
        self.in_data(BlockCursor::next)?;
        // Nearly always there is another in the same block.
        if self.is_placed() {
            return Ok(());
        }
        self.skip_forward()
    }

    fn previous(&mut self) -> Result<()> {
        if !self.is_placed() {
            return Ok(());
        }
        self.in_data(BlockCursor::previous)?;
        self.skip_backward()
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.data.as_ref()?.0.entry()
    }
}
