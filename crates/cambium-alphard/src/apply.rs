//! Applying a planned write: its entries are encoded, shown to readers, and wait to be
//! written.

use std::sync::Arc;

use cambium_api::Written;
use cambium_base::Extent;

use crate::change_log::LoggedChange;
use crate::core::{Core, Writer, read, write};
use crate::format::{self, EntryHeader, EntryKind};
use crate::outgoing::{LARGE_BYTES, PendingEntry, Piece, START_BYTES};
use crate::plan::Planned;
use crate::seeded_bug::SeededBug;

impl Core {
    /// Encodes a request's entries, and shows them to readers, who wait only while the index
    /// changes.
    pub fn apply(&self, writer: &mut Writer, planned: &[Planned<'_>]) -> u64 {
        let first = writer.next_sequence;
        let keys = planned.iter().map(|entry| Written::Key(0, entry.key));
        self.recent.note((first..).zip(keys));
        let encoded = self.encode_all(writer, planned);
        let mut state = write(&self.state);
        for (sequence, entry) in (first..).zip(planned) {
            let change = (entry.before, entry.after());
            let seen = state.change(entry.key, entry.name.slot, change, sequence);
            if let Some(obsolete) = seen {
                writer.allocator.free_after(obsolete, sequence);
            }
            let is_first = sequence == first;
            if let (Some(log), Some(place)) = (&mut state.log, entry.after().or(entry.before)) {
                log.push(LoggedChange::new(place, entry.value.is_none(), is_first));
            }
        }
        // Before the index is let go: who finds an extent there must find its bytes.
        write(&self.pending).extend(encoded);
        drop(state);
        self.keep_written(planned);
        writer.next_sequence - 1
    }

    /// Encodes entries, those that lie together in one buffer, to be written.
    fn encode_all(&self, writer: &mut Writer, planned: &[Planned<'_>]) -> Vec<(u32, PendingEntry)> {
        // Only who has the writer lock changes it.
        let mut live_digest = read(&self.state).live_digest;
        let mut encoded = Vec::with_capacity(planned.len());
        let mut rest = planned;
        while !rest.is_empty() {
            let (run, others) = rest.split_at(self.in_one_piece(rest));
            let bytes = run.iter().map(|entry| self.bytes_of(entry)).sum();
            let mut buffer = self.flights.buffer(bytes, self.volume.memory_alignment());
            let mut ranges = Vec::with_capacity(run.len());
            let mut at = 0;
            for (number, entry) in run.iter().enumerate() {
                let remaining = others.len() + run.len() - number - 1;
                let begins_batch = remaining + 1 == planned.len();
                let end = at + self.bytes_of(entry);
                live_digest ^= entry.changes_digest_by();
                let place = (begins_batch, remaining, live_digest);
                self.encode(writer, entry, place, &mut buffer[at..end]);
                ranges.push((entry.extent.block, at..end));
                at = end;
            }
            let piece = Piece {
                block: run[0].extent.block,
                entries: run.len() as u64,
                bytes: Arc::new(buffer),
            };
            encoded.extend(ranges.into_iter().map(|(block, range)| {
                let piece = piece.clone();
                (block, PendingEntry { piece, range })
            }));
            writer.pending_bytes += bytes;
            writer.outgoing.push(piece);
            rest = others;
        }
        writer.stating = writer.synced_through;
        encoded
    }

    /// Drops the cached copies of the places that entries will take. No lookup finds these
    /// places in the index now, and earlier lookups have read the cached copies already.
    pub fn forget_kept(&self, planned: &[Planned<'_>]) {
        if !self.has_bug(SeededBug::CacheServesOverwritten) {
            for entry in planned {
                self.kept.remove(entry.extent.block);
            }
        }
    }

    /// Offers the cache what was written, and lets go what that replaces: readers of the
    /// index need not wait for it, and no other entry comes to these places meanwhile.
    fn keep_written(&self, planned: &[Planned<'_>]) {
        for entry in planned {
            // Snapshots that see it read it again; for all others it would be garbage.
            let replaced = |before: Extent| self.kept.remove(before.block);
            let replaced = entry.before.is_some_and(replaced);
            if let Some(value) = entry.value {
                self.kept
                    .take_written(entry.extent, entry.key, value, replaced);
            }
        }
    }

    /// What an entry takes on the device.
    fn bytes_of(&self, entry: &Planned<'_>) -> usize {
        entry.extent.blocks as usize * self.block_bytes as usize
    }

    /// How many of the first entries lie together and share a buffer; a large one has
    /// its own.
    fn in_one_piece(&self, planned: &[Planned<'_>]) -> usize {
        let most = START_BYTES.min(self.tuning.coalesce_bytes);
        let mut bytes = self.bytes_of(&planned[0]);
        let is_large = |entry: &Planned<'_>| self.bytes_of(entry) >= LARGE_BYTES;
        let pairs = planned.windows(2);
        1 + pairs
            .take_while(|pair| {
                let [one, next] = [pair[0].extent, pair[1].extent];
                bytes += self.bytes_of(&pair[1]);
                one.block + one.blocks == next.block && bytes <= most && !pair.iter().any(is_large)
            })
            .count()
    }

    /// Gives an entry its number and encodes it: whether it begins its batch, how many more of
    /// the batch follow, and the digest of all that is live with it.
    fn encode(
        &self,
        writer: &mut Writer,
        entry: &Planned<'_>,
        (begins_batch, remaining, live_digest): (bool, usize, u64),
        into: &mut [u8],
    ) {
        let sequence = writer.next_sequence;
        writer.next_sequence += 1;
        let after = entry.after();
        writer.stale.cover(entry.extent, sequence);
        if let Some(before) = entry.before {
            writer.stale.add(sequence, before.block);
        }
        if after.is_some() && !entry.name.slot.is_exact() {
            let checks = &mut writer.key_checks;
            checks.insert(entry.extent.block, entry.name.check);
        }
        if after.is_none() {
            writer.tombstones.push_back((sequence, entry.extent.block));
        }
        let header = EntryHeader {
            kind: match after {
                Some(_) => EntryKind::Value,
                None => EntryKind::Tombstone,
            },
            key_bytes: after.map_or(0, |_| entry.key.len() as u16),
            value_bytes: entry.value.map_or(0, |value| value.len() as u32),
            sequence,
            synced_through: writer.synced_through,
            live_digest,
            slot_key: entry.name.slot,
            key_check: entry.name.check,
            epoch: writer.superblock.epoch,
            remaining: remaining as u32,
            begins_batch,
            block: entry.extent.block,
        };
        let key = if after.is_some() { entry.key } else { &[] };
        let value = entry.value.unwrap_or_default();
        format::encode_entry(into, &header, key, value, self.block_bytes, self.seed);
        if after.is_none() && self.has_bug(SeededBug::NoTombstone) {
            into.fill(0);
        }
    }
}
