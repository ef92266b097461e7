//! Reading what is left of a damaged tree, for a repair.
//!
//! Each block has a checksum of its own, so damage in one block says nothing of the others.
//! A salvage hands out the entries of all sound blocks, and for each damaged one the keys
//! that may have been in it: the index names the last key of each block.

use std::sync::Arc;

use cambium_base::{Error, Result};

use crate::block::BlockCursor;
use crate::entry::EntryRef;
use crate::format::BlockHandle;
use crate::table::Table;
use crate::tree::Tree;
use crate::version::{TableFile, UpperBound};

/// A finding of a salvage.
#[derive(Debug)]
pub enum Salvaged<'a> {
    /// An entry of a sound block.
    Entry(EntryRef<'a>),
    /// A range tombstone.
    RangeTombstone {
        /// First key.
        from: &'a [u8],
        /// Exclusive end; `None` for no end.
        to: Option<&'a [u8]>,
        /// Hides what has a lower number.
        sequence: u64,
    },
    /// Damage: entries of keys in this range may be lost, range tombstones included.
    Lost {
        /// First key.
        from: &'a [u8],
        /// Inclusive end; `None` for no end.
        to: Option<&'a [u8]>,
        /// The error, with its place.
        error: Error,
    },
}

type Take<'a> = dyn FnMut(Salvaged<'_>) -> Result<()> + 'a;

impl Tree {
    /// Hands out everything that can be read of all tables, the oldest table first, and
    /// what cannot.
    ///
    /// # Errors
    /// Errors of reading, and whatever `take` answers.
    pub fn salvage(&self, take: &mut Take<'_>) -> Result<()> {
        self.check_open()?;
        let view = self.view.load_full();
        let [newest, below @ ..] = &view.version.levels;
        let below = below.iter().rev().flatten();
        for file in below.chain(newest.iter().rev()) {
            self.salvage_table(file, take)?;
        }
        Ok(())
    }

    fn salvage_table(&self, file: &Arc<TableFile>, take: &mut Take<'_>) -> Result<()> {
        let range = &file.metadata.range;
        let table = match Table::open(&self.context, &file.metadata) {
            Ok(table) => table,
            Err(error) if error.is_corruption() => {
                let to = match &range.upper {
                    UpperBound::Inclusive(key) | UpperBound::Exclusive(key) => Some(key.as_slice()),
                    UpperBound::None => None,
                };
                let from = &range.smallest;
                return take(Salvaged::Lost { from, to, error });
            }
            Err(error) => return Err(error),
        };
        for (from, fragment) in table.tombstones.iter() {
            for &sequence in &fragment.sequences {
                let to = fragment.to.as_deref();
                take(Salvaged::RangeTombstone { from, to, sequence })?;
            }
        }
        let mut before = range.smallest.clone();
        let mut top = BlockCursor::new(table.top().clone());
        walk(&table, table.footer.index, &mut top, &mut before, 2, take)
    }
}

/// Hands out what lies below a block of the index, `depth` levels above the entries.
/// `before`: the last key in front of it.
fn walk(
    table: &Table,
    handle: BlockHandle,
    cursor: &mut BlockCursor,
    before: &mut Vec<u8>,
    depth: usize,
    take: &mut Take<'_>,
) -> Result<()> {
    let bad = |bad| table.bad_block(handle, bad);
    cursor.seek_first().map_err(bad)?;
    while let Some(entry) = cursor.entry() {
        if depth == 0 {
            take(Salvaged::Entry(entry))?;
        } else {
            let below = table.handle_in(handle, &entry);
            let read = below.and_then(|below| Ok((below, table.read_block(below)?)));
            let walked = read.and_then(|(below, block)| {
                let mut cursor = BlockCursor::new(block);
                walk(table, below, &mut cursor, before, depth - 1, take)
            });
            match walked {
                Err(error) if error.is_corruption() => {
                    let (from, to) = (before.as_slice(), Some(entry.key));
                    take(Salvaged::Lost { from, to, error })?;
                }
                walked => walked?,
            }
            before.clear();
            before.extend_from_slice(entry.key);
        }
        cursor.next().map_err(bad)?;
    }
    Ok(())
}
