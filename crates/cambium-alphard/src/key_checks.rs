//! Second hashes of the keys of entries: which of the entries under a slot of the index is that
//! of a key that is written.
//!
//! The index holds one hash of a key. A key that is written over is compared by a second one,
//! which the header of its entry has, and memory for entries that were written lately. The headers
//! that a group of writes needs are read together.

use std::collections::HashMap;

use cambium_base::{Extent, Result};

use crate::core::{Core, Writer, read};
use crate::format;
use crate::pack;
use crate::place::Place;
use crate::state::KeyName;

/// A bounded cache of second hashes. Only who holds the writer lock adds to it: a
/// reader could add what is overwritten by then.
pub(crate) type KeyChecks = quick_cache::unsync::Cache<u64, u64>;

/// Bytes that an entry of that cache takes, about.
pub(crate) const KEY_CHECK_BYTES: u64 = 50;

/// The most headers of one read.
const HEADERS_TOGETHER: usize = 1024;

/// Second hashes that were read from headers, by the ids of places.
pub(crate) type ReadChecks = HashMap<u64, u64>;

/// A key that is written, and the entries that may be its own.
pub(crate) struct Sought {
    pub name: KeyName,
    candidates: Vec<Place>,
}

impl Core {
    /// Looks a key up in the index.
    pub fn seek(&self, key: &[u8]) -> Sought {
        let state = read(&self.state);
        let name = state.name(key);
        let candidates = state.find(name.slot).collect();
        Sought { name, candidates }
    }

    /// Finds the place of a key among those under its slot. One that is whole in its
    /// slot needs no look; a longer one is compared by its second hash, which the
    /// entry's header has if memory has it no more.
    pub fn choose(
        &self,
        writer: &mut Writer,
        sought: &Sought,
        checks: &ReadChecks,
    ) -> Result<Option<Place>> {
        if sought.name.slot.is_exact() {
            return Ok(sought.candidates.first().copied());
        }
        for &place in &sought.candidates {
            let id = place.id();
            let known = writer.key_checks.get(&id).or_else(|| checks.get(&id));
            let check = known.map_or_else(|| self.key_check_at(place), |&known| Ok(known))?;
            if check == sought.name.check {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Reads the headers that [`Core::choose`] needs for several keys, each block once.
    /// [`Core::choose`] reads again what could not be read here.
    pub fn read_key_checks(&self, writer: &Writer, sought: &[Sought]) -> ReadChecks {
        let mut checks = ReadChecks::new();
        if sought.len() < 2 {
            return checks;
        }
        let unknown = sought.iter().filter(|sought| !sought.name.slot.is_exact());
        let unknown = unknown.flat_map(|sought| &sought.candidates);
        let is_unknown = |place: &&Place| writer.key_checks.peek(&place.id()).is_none();
        let mut unknown: Vec<Place> = unknown.filter(is_unknown).copied().collect();
        unknown.sort_unstable_by_key(|place| place.block);
        let packs = unknown.chunk_by(|one, next| one.block == next.block);
        for packs in packs.collect::<Vec<_>>().chunks(HEADERS_TOGETHER) {
            let extents: Vec<Extent> = packs.iter().map(|pack| first_block(pack[0])).collect();
            let Ok(heads) = self.read_many(&extents) else {
                return checks;
            };
            for (pack, head) in packs.iter().zip(heads) {
                let Ok(head) = head else { continue };
                checks.extend(pack.iter().filter_map(|&place| {
                    let check = self.key_check_in(&head, place)?;
                    Some((place.id(), check))
                }));
            }
        }
        checks
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
