//! Where a tail may end that a flush cleans:
//!
//! - at a header, or where its replay begins;
//! - at a place that this opening has marked ([`super::marks`]);
//! - at any record that a compaction wrote;
//! - else at a batch of another opening before which the log has no tombstone.

use cambium_base::Result;
use cambium_storage::scan::Scanned;

use super::Tail;
use crate::core::{Core, Maintenance, lock};
use crate::database::Database;
use crate::document::DOCUMENT_ALIGNMENT;
use crate::format::{FLAG_MOVED, FLAG_RECOVERED, kind};
use crate::recovery::header_at;

impl Core {
    /// The tail of about so many bytes.
    pub fn tail_of(
        &self,
        maintenance: &Maintenance,
        database: &Database,
        wanted: u64,
    ) -> Result<Option<Tail>> {
        let begin = database.log.begin();
        let end = database.log.end();
        let needed_after = self.history.needed_after();
        let tail = |until: u64, changes_from: u64| {
            let bytes = until.saturating_sub(begin);
            let is_kept_too_long = end.saturating_sub(until) > self.tuning.history_bytes;
            let is_needed = needed_after.is_some_and(|needed| changes_from > needed);
            let may_go = bytes >= self.least_tail() && (is_kept_too_long || !is_needed);
            may_go.then_some(Tail {
                until,
                changes_from,
                bytes,
                is_kept_too_long,
            })
        };
        // From the newest header back: each place is nearer to the beginning.
        let mut found: Option<Tail> = None;
        let (mut offset, mut newer) = (maintenance.root.header, None);
        while let Some((.., header)) = header_at(database, offset)? {
            let behind = newer.and_then(|sequence| tail(offset, sequence));
            // The first header of a file lies before the place where its replay begins.
            let before = tail(header.replay_from.min(offset), header.sequence);
            for place in [behind, before].into_iter().flatten() {
                if found.is_none() || place.bytes >= wanted {
                    found = Some(place);
                }
            }
            let is_near = header.replay_from <= begin + wanted;
            if is_near || header.previous >= offset || header.previous < begin {
                break;
            }
            newer = (header.replay_from >= header.previous).then_some(header.sequence);
            offset = header.previous;
        }
        let is_near = |tail: &Tail| tail.bytes <= wanted / 4 * 5;
        if found.as_ref().is_some_and(is_near) {
            return Ok(found);
        }
        let place = database
            .marks
            .find(begin + wanted, maintenance.header.replay_from);
        let marked = place.and_then(|place| tail(place.offset, place.sequence));
        if marked.as_ref().is_some_and(is_near) {
            return Ok(marked);
        }
        let compacted = self.tail_of_compacted(maintenance, database, wanted)?;
        if compacted.is_some() {
            return Ok(compacted);
        }
        let farther = [marked, found].into_iter().flatten();
        let farther = farther.min_by_key(|tail| tail.bytes);
        let most = farther.map_or(maintenance.header.replay_from, |tail| tail.until);
        let state = (begin, maintenance.root.header, needed_after);
        if *lock(&self.cleaning.searched) == Some(state) {
            return Ok(farther);
        }
        let place = self.place_behind_writes(database, begin + wanted, most)?;
        let written = place.and_then(|(until, from)| tail(until, from));
        if written.is_none() {
            *lock(&self.cleaning.searched) = Some(state);
        }
        Ok(written.or(farther))
    }

    /// A tail in the part of the file that a compaction wrote: it has neither tombstones nor
    /// changes for feeds, so any record in it may be the log's first.
    fn tail_of_compacted(
        &self,
        maintenance: &Maintenance,
        database: &Database,
        wanted: u64,
    ) -> Result<Option<Tail>> {
        let begin = database.log.begin();
        let place = (begin + wanted).next_multiple_of(database.log.geometry().block);
        let end = maintenance.header.start;
        if place >= end {
            return Ok(None);
        }
        let mut scanner = database.log.scan(place, end)?;
        while let Some(scanned) = scanner.next()? {
            if let Scanned::Record(record) = scanned {
                return Ok(Some(Tail {
                    until: record.offset,
                    changes_from: self.history.current_from(),
                    bytes: record.offset - begin,
                    is_kept_too_long: false,
                }));
            }
        }
        Ok(None)
    }

    /// The first batch from `wanted` to `most`, and the last number before it, if neither a
    /// tombstone nor an end of an opening lies before it in the log: a tail may end there.
    /// Reads the log that far: for what another opening has written, of which no marks are in
    /// memory.
    fn place_behind_writes(
        &self,
        database: &Database,
        wanted: u64,
        most: u64,
    ) -> Result<Option<(u64, u64)>> {
        let mut scanner = database.log.scan(database.log.begin(), most)?;
        let mut next = None;
        let mut found = None;
        while let Some(Scanned::Record(record)) = scanner.next()? {
            let header = &record.header;
            let sequence = header.sequence.0;
            match header.kind {
                kind @ (kind::NODES | kind::MOVED) => {
                    let end = record.offset + header.total_bytes(DOCUMENT_ALIGNMENT);
                    scanner.skip_to(database.blocks_behind(kind, end, header.auxiliary).1);
                }
                kind::HEADER if header.flags & FLAG_RECOVERED == 0 => {}
                kind::SYNCED | kind::PACKED => {}
                kind::PUT | kind::NAMESPACE if header.flags & FLAG_MOVED != 0 => {}
                kind::PUT | kind::NAMESPACE => {
                    // A recovery cuts off records behind a gap, and parts of batches.
                    if header.attempt != 0 || next.is_some_and(|next| sequence != next) {
                        return Ok(None);
                    }
                    next = Some(sequence + 1);
                    if header.batch_index == 0 && record.offset >= wanted {
                        found = Some((record.offset, sequence - 1));
                    }
                    if found.is_some() && header.batch_remaining == 0 {
                        return Ok(found);
                    }
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }
}
