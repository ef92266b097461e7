//! The keys of what commit logs had, for a repair.
//!
//! A full commit log is written anew once the data files are synced, and the index on the
//! device stays as it is (`checkpoint.rs`). Of an entry that is damaged in its data file
//! afterwards, nothing else would say which key it had: an older value of the key would come
//! back. So a data file gets these keys, in records of the kind [`kind::KEYS`]. The splits of
//! buckets are among them: they are not synced on their own, and what is synced builds on them.

use cambium_base::{Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;
use cambium_storage::record::RecordHeader;

use crate::commit::Entry;
use crate::core::{Core, Writer};
use crate::format::{FLAG_SPLIT, FRAMED_KEY_BYTES, FramedKey, kind};

/// Most keys of a record.
const KEYS_A_RECORD: usize = 2048;

/// True if entries split a bucket.
pub(crate) fn splits_bucket(entries: &[Entry<'_>]) -> bool {
    entries.iter().any(|entry| entry.flags & FLAG_SPLIT != 0)
}

/// Notes the keys of a group.
pub(crate) fn note_keys(writer: &mut Writer, entries: &[Entry<'_>], first: u64) {
    let keys = (first..).zip(entries).map(|(sequence, entry)| FramedKey {
        sequence,
        key: entry.key,
        last: entry.last,
    });
    writer.framed.extend(keys);
}

impl Core {
    /// Appends the keys that were noted since the last time, and since the index was written.
    pub(crate) fn append_framed_keys(&self, writer: &mut Writer) -> Result<()> {
        if writer.framed.is_empty() {
            return Ok(());
        }
        // Not the first unsynced file: a compaction may have replaced that one.
        let tables = self.open_tables();
        let Some(file) = tables.first().map(|table| table.current_file(0)) else {
            return Ok(());
        };
        self.mark_dirty(writer, &file, false);
        // A damaged block does not take an entry and its key.
        file.log.pad_to_block();
        let header = RecordHeader {
            kind: kind::KEYS,
            attempt: writer.attempt,
            sequence: SequenceNumber(writer.next_sequence - 1),
            synced_through: SequenceNumber(writer.synced_through),
            session: writer.session,
            ..RecordHeader::default()
        };
        for keys in writer.framed.chunks(KEYS_A_RECORD) {
            let mut payload = Vec::with_capacity(keys.len() * FRAMED_KEY_BYTES);
            keys.iter().for_each(|key| key.encode(&mut payload));
            let bytes = header.record_bytes(payload.len() as u64, self.shape.alignment);
            file.log.reserve_last(bytes)?;
            file.log.append(&header, &[&payload]);
            self.counters.log_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        writer.framed.clear();
        Ok(())
    }
}
