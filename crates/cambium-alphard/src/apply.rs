//! Applying a planned write: its entries are encoded, shown to readers, and wait to be
//! written.

use std::sync::Arc;

use crate::change_log::LoggedChange;
use crate::core::{Core, Writer, read, write};
use crate::format::{self, EntryHeader, EntryKind};
use crate::outgoing::{LARGE_BYTES, PendingEntry, Piece, START_BYTES};
use crate::pack::{self, Pack};
use crate::plan::{Planned, units};
use crate::seeded_bug::SeededBug;
use crate::state::KeyName;

impl Core {
    /// Encodes the entries of a plan, and shows them to readers, who wait only while the index
    /// changes.
    pub fn apply(&self, writer: &mut Writer, planned: &[Planned<'_>]) {
        let first = writer.next_sequence;
        let encoded = self.encode_all(writer, planned);
        let mut state = write(&self.state);
        for (sequence, entry) in (first..).zip(planned) {
            let change = (entry.before, entry.after());
            let seen = state.change(entry.key, entry.name.slot, change, sequence);
            if let Some(obsolete) = seen {
                if self.has_bug(SeededBug::PackFreedEarly) {
                    writer.packs.need_one(obsolete.block);
                }
                writer.lose(obsolete, sequence);
            }
            let is_first = sequence == first;
            if let (Some(log), Some(place)) = (&mut state.log, entry.after().or(entry.before)) {
                log.push(LoggedChange::new(
                    place.extent(),
                    entry.value.is_none(),
                    is_first,
                ));
            }
        }
        // Before the index is let go: who finds an extent there must find its bytes.
        write(&self.pending).extend(encoded);
        drop(state);
        self.keep_written(planned);
    }

    /// Encodes entries, those that lie together in one buffer, to be written.
    fn encode_all(&self, writer: &mut Writer, planned: &[Planned<'_>]) -> Vec<(u32, PendingEntry)> {
        // Only who has the writer lock changes it.
        let mut live_digest = read(&self.state).live_digest;
        let mut encoded = Vec::with_capacity(planned.len());
        let units: Vec<&[Planned<'_>]> = units(planned).collect();
        let mut remaining = planned.len();
        let mut rest = units.as_slice();
        while !rest.is_empty() {
            let (run, others) = rest.split_at(self.in_one_piece(rest));
            let bytes = run.iter().map(|unit| self.bytes_of(unit)).sum();
            let mut buffer = self.flights.buffer(bytes, self.volume.memory_alignment());
            let mut ranges = Vec::with_capacity(run.len());
            let mut at = 0;
            for unit in run {
                let begins_batch = remaining == planned.len();
                remaining -= unit.len();
                let end = at + self.bytes_of(unit);
                let changes = unit.iter().map(Planned::changes_digest_by);
                live_digest = changes.fold(live_digest, |digest, change| digest ^ change);
                let place = (begins_batch, remaining, live_digest);
                self.encode(writer, unit, place, &mut buffer[at..end]);
                ranges.push((unit[0].place.block, at..end));
                at = end;
            }
            let piece = Piece {
                block: run[0][0].place.block,
                entries: run.iter().map(|unit| unit.len() as u64).sum(),
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
                self.kept.remove(entry.place);
            }
        }
    }

    /// Offers the cache what was written, and lets go what that replaces: readers of the
    /// index need not wait for it, and no other entry comes to these places meanwhile.
    fn keep_written(&self, planned: &[Planned<'_>]) {
        for entry in planned {
            // Snapshots that see it read it again; for all others it would be garbage.
            let replaced = entry.before.is_some_and(|before| self.kept.remove(before));
            if let Some(value) = entry.value {
                self.kept
                    .take_written(entry.place, entry.key, value, replaced);
            }
        }
    }

    /// Bytes of a unit on the device.
    fn bytes_of(&self, unit: &[Planned<'_>]) -> usize {
        unit[0].place.extent().blocks as usize * self.block_bytes as usize
    }

    /// Counts the first units that lie together and share a buffer; a large one has
    /// its own.
    fn in_one_piece(&self, units: &[&[Planned<'_>]]) -> usize {
        let most = START_BYTES.min(self.tuning.coalesce_bytes);
        let mut bytes = self.bytes_of(units[0]);
        let is_large = |unit: &&[Planned<'_>]| self.bytes_of(unit) >= LARGE_BYTES;
        let pairs = units.windows(2);
        1 + pairs
            .take_while(|pair| {
                let [one, next] = [pair[0][0].place.extent(), pair[1][0].place.extent()];
                bytes += self.bytes_of(pair[1]);
                one.end() == next.block.into() && bytes <= most && !pair.iter().any(is_large)
            })
            .count()
    }

    /// Gives the entries of a unit their numbers and encodes it: whether it begins its batch,
    /// how many more of the batch follow, and the digest of all that is live with it.
    fn encode(
        &self,
        writer: &mut Writer,
        unit: &[Planned<'_>],
        (begins_batch, remaining, live_digest): (bool, usize, u64),
        into: &mut [u8],
    ) {
        let extent = unit[0].place.extent();
        for entry in unit {
            self.note(writer, entry, writer.next_sequence);
            writer.next_sequence += 1;
        }
        let sequence = writer.next_sequence - 1;
        writer.stale.cover(extent, sequence);
        let mut pack = Pack::default();
        let (kind, name, key, value) = match (unit[0].place.number(), unit[0].value) {
            (Some(_), _) => {
                for entry in unit {
                    pack.push(entry.name, entry.key, entry.value);
                }
                let made = (unit[0].value.is_none(), sequence);
                writer.packs.add(extent, unit.len(), made);
                let name = KeyName {
                    slot: format::PACK_SLOT_KEY,
                    check: pack::table_check(&pack.table),
                };
                (EntryKind::Pack, name, &pack.table[..], &pack.contents[..])
            }
            (None, Some(value)) => (EntryKind::Value, unit[0].name, unit[0].key, value),
            (None, None) => (EntryKind::Tombstone, unit[0].name, &[][..], &[][..]),
        };
        let header = EntryHeader {
            kind,
            key_bytes: key.len() as u16,
            value_bytes: value.len() as u32,
            sequence,
            synced_through: writer.synced_through,
            live_digest,
            slot_key: name.slot,
            key_check: name.check,
            epoch: writer.superblock.epoch,
            remaining: remaining as u32,
            begins_batch,
            block: extent.block,
        };
        format::encode_entry(into, &header, key, value, self.block_bytes, self.seed);
        if unit[0].value.is_none() && self.has_bug(SeededBug::NoTombstone) {
            into.fill(0);
        }
    }

    /// Takes note of what an entry makes obsolete, and of what a later write asks about it.
    fn note(&self, writer: &mut Writer, entry: &Planned<'_>, sequence: u64) {
        if let Some(before) = entry.before {
            writer.stale.add(sequence, before.block);
            if !entry.name.slot.is_exact() {
                writer.key_checks.remove(&before.id());
            }
        }
        match entry.after() {
            Some(after) => {
                writer.packs.gain(after);
                if !entry.name.slot.is_exact() {
                    writer.key_checks.insert(after.id(), entry.name.check);
                }
            }
            None => writer.tombstones.push_back((sequence, entry.place)),
        }
    }
}
