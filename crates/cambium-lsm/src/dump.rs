//! A tree made readable: its tables, and what lies in them.

use std::sync::Arc;

use cambium_base::Result;

use crate::entry::{EntryRef, Source};
use crate::table_cursor::{Blocks, TableCursor};
use crate::tree::Tree;

/// One line of a dump, in the order of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpItem<'a> {
    /// A table; its content follows.
    Table {
        /// Its level.
        level: usize,
        /// Its number: the file is `table-` and this with six digits or more.
        number: u64,
        /// Length of the file.
        bytes: u64,
        /// Entries in it.
        entries: u64,
        /// Data blocks, and index blocks below the top one.
        blocks: (u64, u64),
        /// Lowest and highest sequence number.
        sequences: (u64, u64),
        /// The filter policy; empty for none.
        filter: &'a str,
    },
    /// A range tombstone.
    RangeTombstone {
        /// First key.
        from: &'a [u8],
        /// Exclusive end; `None` for no end.
        to: Option<&'a [u8]>,
        /// Hides what has a lower number.
        sequence: u64,
    },
    /// An entry.
    Entry(EntryRef<'a>),
}

impl Tree {
    /// Hands every table, range tombstone and entry to `out`, from the newest
    /// table to the lowest level. Reads everything, past the caches.
    ///
    /// # Errors
    /// Damage and errors of reading, and whatever `out` answers.
    pub fn dump(&self, out: &mut dyn FnMut(DumpItem<'_>) -> Result<()>) -> Result<()> {
        self.check_open()?;
        let view = self.view.load_full();
        for (level, file) in view.version.files() {
            let table = self.context.table(file)?;
            let (metadata, properties) = (&file.metadata, &table.properties);
            out(DumpItem::Table {
                level,
                number: metadata.number,
                bytes: metadata.bytes,
                entries: metadata.entries,
                blocks: (properties.data_blocks, properties.index_blocks),
                sequences: (metadata.smallest_sequence, metadata.largest_sequence),
                filter: &properties.filter,
            })?;
            for (from, fragment) in table.tombstones.iter() {
                for &sequence in &fragment.sequences {
                    out(DumpItem::RangeTombstone {
                        from,
                        to: fragment.to.as_deref(),
                        sequence,
                    })?;
                }
            }
            let blocks = Blocks::Streamed;
            let mut cursor = TableCursor::new(Arc::clone(&table), blocks);
            cursor.seek_first()?;
            while let Some(entry) = cursor.entry() {
                out(DumpItem::Entry(entry))?;
                cursor.next()?;
            }
        }
        Ok(())
    }
}
