//! A pack: small entries that share blocks.
//!
//! A header takes 68 bytes and a block 512 or 4,096: alone, a value of 100 bytes takes five
//! or forty times as much. In a pack it takes 20 bytes more than its key and value. The
//! small values of a batch, or of a group of writers, are written as packs; entries that came one
//! by one are packed when many have gathered ([`crate::cleaning`]).
//!
//! On the device a pack is an entry of kind 3. A table stands in place of its key, and the
//! entries' keys and values, one after another, in place of its value:
//!
//! ```text
//!  table, for each entry: slot key 8 │ key check 8 │ key bytes 2 │ value bytes 2
//!  contents:              key │ value │ key │ value │ …
//! ```
//!
//! A tombstone has `ffff` in place of the length of a value, and nothing in the contents.
//!
//! The entries have the numbers up to the one in the pack's header. They are of one batch, or of
//! several that recovery takes for one, and keeps whole or not at all. The table lies in the
//! pack's first block, and has a checksum of its own: recovery reads no more, and believes it even
//! where the contents are damaged. So nothing older comes back for one of its keys.

use std::ops::Range;

use cambium_base::checksum::crc32c;
use cambium_base::coding::{u16_at, u64_at};
use cambium_base::layout::{Layout, field};
use cambium_index::cuckoo::SlotKey;

use crate::format::{ENTRY_HEADER_BYTES, EntryHeader};
use crate::state::KeyName;

/// Bytes of an entry in the table.
pub const ROW_BYTES: usize = 20;
/// In place of the length of a value: a tombstone.
const TOMBSTONE: u16 = u16::MAX;
/// Most blocks of a pack, where they are of 512 bytes.
const MOST_BLOCKS: u32 = 8;
/// The same of blocks of 4,096 bytes.
const MOST_LARGE_BLOCKS: u32 = 4;

/// An entry in the table.
pub const ROW_LAYOUT: Layout = Layout {
    name: "Entry in the table of a pack",
    about: "One after another behind the header of a pack, all in its first block. The entries' keys and values follow in the same order.",
    fields: &[
        field(0, 8, "slot_key", "the key as the index holds it"),
        field(8, 8, "key_check", "a second hash of the key"),
        field(16, 2, "key_bytes", "length of the key; 0 in a tombstone"),
        field(18, 2, "value_bytes", "length of the value; `ffff` in a tombstone"),
    ],
    size: ROW_BYTES,
}
.checked();

/// Bytes that an entry takes in a pack.
pub fn entry_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    ROW_BYTES + key_bytes + value_bytes
}

/// Most blocks of a pack.
pub fn most_blocks(block_bytes: u32) -> u32 {
    match block_bytes {
        4096.. => MOST_LARGE_BLOCKS,
        _ => MOST_BLOCKS,
    }
}

/// Most entries of a pack.
pub fn most_entries(block_bytes: u32) -> usize {
    (block_bytes as usize - ENTRY_HEADER_BYTES) / ROW_BYTES
}

/// Bytes of table and contents that so many blocks have room for.
pub fn room(blocks: u32, block_bytes: u32) -> usize {
    blocks as usize * (block_bytes as usize - 1) - ENTRY_HEADER_BYTES
}

/// An entry as the table has it, with its key and value within the contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub name: KeyName,
    pub key: Range<usize>,
    /// `None` in a tombstone.
    pub value: Option<Range<usize>>,
}

/// A pack that is put together.
#[derive(Debug, Default)]
pub(crate) struct Pack {
    pub table: Vec<u8>,
    pub contents: Vec<u8>,
}

impl Pack {
    /// Adds an entry, or without a value a tombstone.
    pub fn push(&mut self, name: KeyName, key: &[u8], value: Option<&[u8]>) {
        self.table
            .extend_from_slice(&name.slot.bits().to_le_bytes());
        self.table.extend_from_slice(&name.check.to_le_bytes());
        let Some(value) = value else {
            self.table.extend_from_slice(&[0; 2]);
            self.table.extend_from_slice(&TOMBSTONE.to_le_bytes());
            return;
        };
        for part in [key, value] {
            // No entry of a pack is longer than the pack.
            self.table
                .extend_from_slice(&(part.len() as u16).to_le_bytes());
            self.contents.extend_from_slice(part);
        }
    }
}

/// The table of a pack, from its first block; `None` if it does not match its checksum.
pub fn table<'a>(header: &EntryHeader, first_block: &'a [u8]) -> Option<&'a [u8]> {
    let table = first_block.get(ENTRY_HEADER_BYTES..)?;
    let table = table.get(..usize::from(header.key_bytes))?;
    (table_check(table) == header.key_check).then_some(table)
}

/// The checksum of a table, for the pack's header.
pub fn table_check(table: &[u8]) -> u64 {
    u64::from(crc32c(table))
}

/// The entries of a table, in order. The last is `None` where the bytes are not a table's.
pub(crate) fn rows(table: &[u8], contents_bytes: usize) -> impl Iterator<Item = Option<Row>> + '_ {
    let mut at = 0;
    table.chunks(ROW_BYTES).map(move |row| {
        if row.len() < ROW_BYTES {
            return None;
        }
        let name = KeyName {
            slot: SlotKey::from_bits(u64_at(row, 0))?,
            check: u64_at(row, 8),
        };
        let key = at..at + usize::from(u16_at(row, 16));
        let value = match u16_at(row, 18) {
            TOMBSTONE => None,
            bytes => Some(key.end..key.end + usize::from(bytes)),
        };
        at = value.as_ref().map_or(key.end, |value| value.end);
        (at <= contents_bytes).then_some(Row { name, key, value })
    })
}
