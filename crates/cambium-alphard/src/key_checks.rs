//! Second hashes of the keys of entries: which of the entries under a slot of the index is that
//! of a key that is written.
//!
//! The index holds one hash of a key. A key that is written over is compared by a second one,
//! which the header of its entry has, and memory for entries that were written lately. The headers
//! that a group of writes needs are read together.

use cambium_api::Operation;
use cambium_base::{Extent, Result};

use crate::core::{Core, Writer, read};
use crate::format;
use crate::pack;
use crate::place::Place;
use crate::state::KeyName;
use crate::write::WriteRequest;

/// A bounded cache of second hashes. Only who holds the writer lock adds to it: a
/// reader could add what is overwritten by then.
pub(crate) type KeyChecks = quick_cache::unsync::Cache<u64, u64>;

/// Bytes that an entry of that cache takes, about.
pub(crate) const KEY_CHECK_BYTES: u64 = 50;

/// So many headers are read together.
const HEADERS_TOGETHER: usize = 1024;

impl Core {
    /// Finds the place of a key among those under its slot. One that is whole in its
    /// slot needs no look; a longer one is compared by its second hash, which the
    /// entry's header has if memory has it no more.
    pub fn choose(
        &self,
        writer: &mut Writer,
        name: KeyName,
        candidates: &[Place],
    ) -> Result<Option<Place>> {
        if name.slot.is_exact() {
            return Ok(candidates.first().copied());
        }
        for &place in candidates {
            let known = writer.key_checks.get(&place.id()).copied();
            let check = known.map_or_else(|| self.key_check_at(place), Ok)?;
            if check == name.check {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Reads the headers that [`Core::choose`] will ask for, together. It reads again what could
    /// not be read, alone.
    pub fn learn_key_checks(&self, writer: &mut Writer, requests: &[&WriteRequest]) {
        let operations = requests.iter().flat_map(|request| &request.operations);
        if operations.clone().nth(1).is_none() {
            return;
        }
        let mut unknown = Vec::new();
        {
            let state = read(&self.state);
            for key in operations.filter_map(key_of) {
                let slot = state.name(key).slot;
                let places = state.find(slot).filter(|_| !slot.is_exact());
                unknown
                    .extend(places.filter(|place| writer.key_checks.peek(&place.id()).is_none()));
            }
        }
        // A pack has one header for all of its entries.
        unknown.sort_unstable_by_key(|place| place.block);
        let packs: Vec<&[Place]> = (unknown.as_slice())
            .chunk_by(|one, next| one.block == next.block)
            .collect();
        for packs in packs.chunks(HEADERS_TOGETHER) {
            let extents: Vec<Extent> = packs.iter().map(|pack| first_block(pack[0])).collect();
            let Ok(heads) = self.read_many(&extents) else {
                return;
            };
            for (pack, head) in packs.iter().zip(heads) {
                let Ok(head) = head else {
                    continue;
                };
                for &place in *pack {
                    if let Some(check) = self.key_check_in(&head, place) {
                        writer.key_checks.insert(place.id(), check);
                    }
                }
            }
        }
    }

    /// The second hash of the key whose entry lies at a place, which cannot go
    /// away now. With the first it makes 120 bits under a secret: two keys that
    /// agree in them are taken for one, here as in recovery.
    fn key_check_at(&self, place: Place) -> Result<u64> {
        let first = first_block(place);
        let head = self.read_extent(first)?;
        let mut members = self.volume.readable();
        let check = self.key_check_in(&head, place).or_else(|| {
            // Damaged on one member: perhaps not on the other.
            members.find_map(|member| {
                let head = self.volume.read_from(member, first).ok()?;
                self.key_check_in(&head, place)
            })
        });
        check.ok_or_else(|| self.no_header(place.block))
    }

    /// The same in the first block of the place.
    fn key_check_in(&self, head: &[u8], place: Place) -> Option<u64> {
        let header = format::decode_header(head, place.block, self.block_bytes, self.seed)?;
        let Some(number) = place.number() else {
            return Some(header.key_check);
        };
        let table = pack::table(&header, head)?;
        let mut rows = pack::rows(table, header.value_bytes as usize);
        rows.nth(number)?.map(|row| row.name.check)
    }
}

/// The first of the blocks of a place.
fn first_block(place: Place) -> Extent {
    Extent {
        blocks: 1,
        ..place.extent()
    }
}

/// The key of an operation; a range has none.
pub(crate) fn key_of(operation: &Operation) -> Option<&[u8]> {
    match operation {
        Operation::Put { key, .. } | Operation::Delete { key } => Some(key),
        Operation::DeleteRange { .. } => None,
    }
}
