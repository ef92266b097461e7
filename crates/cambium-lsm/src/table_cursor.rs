//! Reading a table in order.

use std::sync::Arc;

use cambium_base::Result;
use cambium_io::File;

use crate::block::{Block, BlockCursor};
use crate::entry::{EntryRef, Source};
use crate::format::BlockHandle;
use crate::table::Table;

/// Most that a streaming cursor reads at once.
const STREAM_BYTES: usize = 256 << 10;

/// How blocks are read.
#[derive(Clone, Debug)]
pub(crate) enum Blocks {
    /// One by one, through the cache: lookups and iterators.
    Cached,
    /// Many at once, past the cache: jobs, which read everything once.
    Streamed(Stream),
}

/// A window of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    start: u64,
    bytes: Vec<u8>,
}

impl Stream {
    /// `length` bytes at `offset`, where blocks end at `blocks_end`.
    fn stored(
        &mut self,
        file: &dyn File,
        (offset, length): (u64, usize),
        blocks_end: u64,
    ) -> Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        if offset < self.start || offset + length as u64 > end {
            // A small table's rest is less than a window.
            let rest = blocks_end.saturating_sub(offset).min(STREAM_BYTES as u64);
            self.bytes.resize(length.max(rest as usize), 0);
            let count = file.read_at(&mut self.bytes, offset)?;
            self.bytes.truncate(count);
            self.start = offset;
        }
        let from = (offset - self.start) as usize;
        let to = (from + length).min(self.bytes.len());
        Ok(&self.bytes[from..to])
    }
}

/// Stands at an entry of a table, or outside.
#[derive(Debug)]
pub(crate) struct TableCursor {
    table: Arc<Table>,
    blocks: Blocks,
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
            top,
            index: None,
            data: None,
        }
    }

    fn block(&mut self, handle: BlockHandle) -> Result<Block> {
        match &mut self.blocks {
            Blocks::Cached => self.table.block(handle),
            Blocks::Streamed(stream) => {
                let length = self.table.stored_bytes(handle)?;
                let file = self.table.file().as_ref();
                let blocks_end = self.table.footer.index.offset;
                let place = (handle.offset, length);
                let stored = stream.stored(file, place, blocks_end)?;
                self.table.unpack(handle, stored)
            }
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
        let block = self.block(handle)?;
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
        let block = self.block(handle)?;
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
