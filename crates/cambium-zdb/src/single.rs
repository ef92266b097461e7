//! One put, the shortest way.
//!
//! A put that needs no sync, whose table and piece of the
//! index are in memory, needs no request, no queue and no plan: it takes the
//! writer lock, appends its record, points its slot at it and is done. What it
//! does, and in which order, is what [`crate::commit`] does for a group of one;
//! whatever is out of the ordinary is left to it.

use std::sync::Arc;

use cambium_api::Written;
use cambium_base::{Durability, Result, SequenceNumber};
use cambium_index::Slot;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::record::{RecordHeader, most_record_bytes};

use crate::core::{Core, Writer, lock};
use crate::data_file::DataFile;
use crate::format::{ENTRY_PREFIX_BYTES, entry_prefix, kind};
use crate::table::Table;

impl Core {
    /// Puts a value of an integer key; `None` where the ordinary way is needed,
    /// and nothing was done.
    pub fn put_directly(
        &self,
        key: u64,
        value: &[u8],
        durability: Durability,
    ) -> Option<Result<SequenceNumber>> {
        if durability == Durability::Synced || !self.session_begun.load(Ordering::Acquire) {
            return None;
        }
        let answer = {
            let mut writer = lock(&self.writer);
            if writer.any_buffered && durability == Durability::Written {
                return None;
            }
            if self.history.open_snapshots() > 0 {
                return None;
            }
            // No reference is counted: the counts lie in lines that every
            // writer would have to fetch from the one before. Only
            // a holder of the writer lock closes the table or switches the file.
            self.with_open_table(key, |table| {
                table.is_prepared(key).then(|| {
                    table.with_current_file(table.place_of(key), |file| {
                        self.put_locked(&mut writer, (table, file), (key, value), durability)
                    })
                })
            })??
        };
        if self.checkpoint_due.load(Ordering::Acquire) {
            self.on_checkpoint_due();
        }
        Some(answer)
    }

    fn put_locked(
        &self,
        writer: &mut Writer,
        (table, file): (&Table, &Arc<DataFile>),
        (key, value): (u64, &[u8]),
        durability: Durability,
    ) -> Result<SequenceNumber> {
        self.check_writable()?;
        let payload_bytes = (ENTRY_PREFIX_BYTES + value.len()) as u64;
        let bytes = most_record_bytes(payload_bytes, self.shape.alignment);
        let sequence = writer.next_sequence;
        let header = RecordHeader {
            kind: kind::PUT,
            attempt: writer.attempt,
            sequence: SequenceNumber(sequence),
            synced_through: SequenceNumber(writer.synced_through),
            session: writer.session,
            ..RecordHeader::default()
        };
        let prefix = entry_prefix(self.environment.clock.wall_nanoseconds(), key);
        let payload = [&prefix[..], value];
        let limit = self.shape.slots.max_position();
        let stored = match durability {
            Durability::Buffered => None,
            _ => file
                .log
                .append_to_window(&header, &payload, limit)
                .map(|place| place.start),
        };
        let position = match stored {
            Some(position) => {
                self.mark_dirty(writer, file, false);
                position
            }
            None => self.append_one(writer, file, (&header, &payload), durability)?,
        };
        writer.next_sequence = sequence + 1;
        self.apply_put(table, file, (key, value), (sequence, position));
        self.note_progress(writer, bytes, (8 + value.len()) as u64);
        Ok(SequenceNumber(sequence))
    }

    /// Appends a record where no window takes it, and hands it over as the
    /// durability asks.
    fn append_one(
        &self,
        writer: &mut Writer,
        file: &Arc<DataFile>,
        (header, payload): (&RecordHeader, &[&[u8]]),
        durability: Durability,
    ) -> Result<u64> {
        let payload_bytes = payload.iter().map(|part| part.len() as u64).sum();
        let bytes = most_record_bytes(payload_bytes, self.shape.alignment);
        self.reserve_in(file, bytes)?;
        self.mark_dirty(writer, file, false);
        let position = file.log.append(header, payload).start;
        let full = file.log.buffered_bytes() > self.tuning.buffer_bytes;
        let buffered = durability == Durability::Buffered;
        writer.any_buffered |= buffered;
        if !buffered || full {
            if let Err(error) = file.log.flush() {
                return Err(self.take_back(writer, vec![(file.clone(), position)], error));
            }
        }
        Ok(position)
    }

    fn apply_put(
        &self,
        table: &Table,
        file: &DataFile,
        (key, value): (u64, &[u8]),
        (sequence, position): (u64, u64),
    ) {
        let _applying = lock(&self.apply);
        self.recent.note([(sequence, Written::IntegerKey(key))]);
        // A snapshot may have begun since it was asked for, but before this:
        // then what is replaced must be kept.
        if self.history.open_snapshots() > 0 {
            let before = table.locate(key).unwrap_or_default();
            self.history.keep(key, sequence, before);
        }
        // It is about to be visible; nothing that comes before it is not.
        table.set_slot(key, Slot::Position(position), || {
            self.cache.update(key, value);
        });
        file.entries.fetch_add(1, Ordering::Relaxed);
        self.visible.fetch_max(sequence, Ordering::AcqRel);
    }
}
