//! Small values are read a block at a time.
//!
//! A record of a value of up to 8 bytes takes a few tens of bytes of a data file, and reading
//! it costs as much as reading 4 KiB. So a read of a small value reads 4 KiB. The second read
//! that begins in a block of the file caches the small values that follow as well; the first
//! does not, since verifying all of them costs several reads. The cache must have a line of
//! its own for each key of the store: values that no caller asked for then push out none.
//!
//! The rule of the cache holds for these values too: a reader caches a value under the lock of
//! the key's piece, while the slot points at its record.

use cambium_base::{Result, Value};
use cambium_index::Slot;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::log::Record;

use crate::core::Core;
use crate::data_file::{DataFile, ReadEntry};
use crate::format::{ENTRY_PREFIX_BYTES, entry_key, kind};
use crate::options::Keys;
use crate::small_values::LONGEST_BYTES;
use crate::table::{Location, SlotHome};

/// Bytes of a read.
const BLOCK: usize = 4096;
/// Records of a file of small values have so many bytes on average, and fewer.
const SMALL_RECORD: u64 = 256;

impl Core {
    /// True if the records of a data file are small, and values that no caller asked for push
    /// none out of the cache.
    pub fn reads_neighbours(&self, file: &DataFile) -> bool {
        let most = SMALL_RECORD.saturating_mul(file.entries.load(Ordering::Relaxed));
        if self.shape.keys == Keys::String || file.log.written_end() > most {
            return false;
        }
        let tables = self.tables.load();
        let last = tables.last_key_value().map_or(0, |(number, _)| *number);
        let keys = last
            .saturating_add(1)
            .saturating_mul(self.shape.keys_per_table);
        self.cache.has_lines_for(keys)
    }

    /// Reads the entry of `key`, and caches the small values that follow it in its block.
    /// `None` where the entry is still buffered, or longer than a block.
    pub fn read_with_neighbours(&self, location: &Location, key: u64) -> Result<Option<ReadEntry>> {
        let Location { file, position, .. } = location;
        let left = file.log.written_end().saturating_sub(*position);
        let wanted = BLOCK.min(self.tuning.read_guess_bytes).min(left as usize);
        if wanted == 0 {
            return Ok(None);
        }
        let cuts = file.log.cuts();
        let mut block = [0; BLOCK];
        let count = file.log.file().read_at(&mut block[..wanted], *position)?;
        let bytes = &block[..count];
        let Some((header, payload)) = file.log.parse_borrowed(*position, bytes)? else {
            return Ok(None);
        };
        let payload = Value::copy_of(payload);
        let entry = file.entry_of(Record { header, payload }, *position, key)?;
        self.counters.entry_reads.fetch_add(1, Ordering::Relaxed);
        if entry.value.len() <= LONGEST_BYTES
            && self.cache.meets_again(file, position / BLOCK as u64)
        {
            let first = header.total_bytes(self.shape.alignment);
            self.cache_neighbours(location, cuts, bytes, first);
        }
        Ok(Some(entry))
    }

    /// Caches the small values of a block from an offset in it on, up to the first record
    /// that is not whole.
    fn cache_neighbours(&self, location: &Location, cuts: u64, block: &[u8], first: u64) {
        let Location { file, position, .. } = location;
        let home = SlotHome {
            generation: location.generation,
            file: file.file.number.0,
        };
        let first_key = file.table.saturating_mul(self.shape.keys_per_table);
        self.with_open_table(first_key, |table| {
            let mut at = first;
            while let Some(bytes) = block.get(at as usize..).filter(|rest| !rest.is_empty())
                && let Ok(Some((header, payload))) = file.log.parse_borrowed(position + at, bytes)
            {
                let here = (Slot::Position(position + at), home);
                at += header.total_bytes(self.shape.alignment);
                let (Some(key), kind::PUT) = (entry_key(payload), header.kind) else {
                    continue;
                };
                let value = &payload[ENTRY_PREFIX_BYTES..];
                if value.len() <= LONGEST_BYTES && self.table_number(key) == file.table {
                    table.with_slot(key, |slot, home| {
                        // A write that was taken back may have left the record that was
                        // read, and another write of the key have come to its place.
                        if (slot, home) == here && file.log.cuts() == cuts {
                            self.cache.fill_small(key, value);
                        }
                    });
                }
            }
        });
    }
}
