//! Reading a level in order: one disjoint table after the other.

use std::ops::Range;
use std::sync::Arc;

use cambium_base::Result;

use crate::entry::{EntryRef, Source};
use crate::table_cursor::{Blocks, TableCursor};
use crate::tombstones::Stretch;
use crate::tree::Context;
use crate::version::{TableFile, Version};

/// Disjoint tables in key order.
#[derive(Debug)]
pub(crate) enum Tables {
    /// These.
    Listed(Vec<Arc<TableFile>>),
    /// Those at some places of a level.
    OfLevel(Arc<Version>, usize, Range<usize>),
}

impl Tables {
    fn files(&self) -> &[Arc<TableFile>] {
        match self {
            Tables::Listed(files) => files,
            Tables::OfLevel(version, level, range) => {
                version.levels[*level].get(range.clone()).unwrap_or(&[])
            }
        }
    }
}

/// Tables in key order, read as one; each is opened when it is reached.
#[derive(Debug)]
pub(crate) struct LevelSource {
    context: Arc<Context>,
    tables: Tables,
    blocks: Blocks,
    at: usize,
    cursor: Option<TableCursor>,
}

impl LevelSource {
    /// Outside.
    pub fn new(context: &Arc<Context>, tables: Tables, blocks: Blocks) -> Self {
        LevelSource {
            context: context.clone(),
            tables,
            blocks,
            at: 0,
            cursor: None,
        }
    }

    /// Opens the table at a position; false if there is none.
    fn open(&mut self, at: usize) -> Result<bool> {
        self.cursor = None;
        let Some(file) = self.tables.files().get(at) else {
            return Ok(false);
        };
        let table = self.context.table(file)?;
        self.at = at;
        self.cursor = Some(TableCursor::new(table, self.blocks));
        Ok(true)
    }

    /// The cursor of the table that is open.
    #[inline]
    pub fn table_cursor(&self) -> Option<&TableCursor> {
        self.cursor.as_ref()
    }

    /// As [`TableCursor::next_within`].
    #[inline]
    pub fn next_within(&mut self) -> Option<bool> {
        self.cursor.as_mut()?.next_within()
    }

    /// Seeks past a deleted range, the way that the source goes, as far as tables follow one
    /// another that are older than the deletion. False if it stands in one that is not.
    pub fn pass(&mut self, deleted: &Stretch<'_>, forward: bool) -> Result<bool> {
        let mut passed = false;
        while let Some(file) = self.tables.files().get(self.at) {
            let table = &file.metadata;
            let is_older = table.largest_sequence < deleted.deleted_by;
            if self.cursor.is_none() || !is_older {
                break;
            }
            passed = true;
            let within = match forward {
                true => deleted.to.filter(|to| !table.range.upper.ends_before(to)),
                false => Some(deleted.from).filter(|from| table.range.smallest.as_slice() < *from),
            };
            match (within, forward) {
                (Some(to), true) => self.go(|cursor| cursor.seek(to, u64::MAX))?,
                (Some(from), false) => self.go(|cursor| cursor.seek_before(from, u64::MAX))?,
                (None, true) if self.open(self.at + 1)? => self.go(Source::seek_first)?,
                (None, false) if self.at > 0 && self.open(self.at - 1)? => {
                    self.go(Source::seek_last)?;
                }
                (None, _) => self.cursor = None,
            }
            if within.is_some() {
                break;
            }
        }
        match forward {
            true => self.skip_forward()?,
            false => self.skip_backward()?,
        }
        Ok(passed)
    }

    fn go(&mut self, go: impl FnOnce(&mut TableCursor) -> Result<()>) -> Result<()> {
        self.cursor.as_mut().map_or(Ok(()), go)
    }

    /// True if it stands outside of the table that is open.
    fn is_between_tables(&self) -> bool {
        self.cursor
            .as_ref()
            .is_some_and(|cursor| !cursor.is_placed())
    }

    fn skip_forward(&mut self) -> Result<()> {
        while self.is_between_tables() {
            if self.open(self.at + 1)? {
                self.go(Source::seek_first)?;
            }
        }
        Ok(())
    }

    fn skip_backward(&mut self) -> Result<()> {
        while self.is_between_tables() {
            match self.at.checked_sub(1) {
                Some(before) => {
                    self.open(before)?;
                    self.go(Source::seek_last)?;
                }
                None => self.cursor = None,
            }
        }
        Ok(())
    }
}

impl Source for LevelSource {
    fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        let ends_before = |file: &Arc<TableFile>| file.metadata.range.upper.ends_before(key);
        let at = self.tables.files().partition_point(ends_before);
        self.open(at)?;
        self.go(|cursor| cursor.seek(key, sequence))?;
        self.skip_forward()
    }

    fn seek_before(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        let starts_before = |file: &Arc<TableFile>| file.metadata.range.smallest.as_slice() <= key;
        let before = self.tables.files().partition_point(starts_before);
        let Some(at) = before.checked_sub(1) else {
            self.cursor = None;
            return Ok(());
        };
        self.open(at)?;
        self.go(|cursor| cursor.seek_before(key, sequence))?;
        self.skip_backward()
    }

    fn seek_first(&mut self) -> Result<()> {
        self.open(0)?;
        self.go(Source::seek_first)?;
        self.skip_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        let Some(last) = self.tables.files().len().checked_sub(1) else {
            return Ok(());
        };
        self.open(last)?;
        self.go(Source::seek_last)?;
        self.skip_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(());
        };
        cursor.next()?;
        if cursor.is_placed() {
            return Ok(());
        }
        self.skip_forward()
    }

    fn previous(&mut self) -> Result<()> {
        self.go(Source::previous)?;
        self.skip_backward()
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.cursor.as_ref()?.entry()
    }
}
