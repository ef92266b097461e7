//! Reading: a look at the index, then one read of the entry, verified.
//!
//! No lock is held across the read, so what the index said may be gone by then:
//! overwritten, freed and written over. A reader that finds something else than it
//! came for looks again as a snapshot does: what that sees stays where it is.
//! Lookups find in memory what others have read lately ([`crate::kept`]).

use std::ops::Range;
use std::sync::Arc;

use cambium_base::{Error, Extent, Result, Value};
use cambium_index::cuckoo::SlotKey;
use cambium_io::batch::read_all;
use cambium_io::cache::Moment;
use cambium_io::sync::Mutex;
use cambium_io::sync::atomic::Ordering;
use cambium_io::{AlignedBuffer, ReadQueue, ReadRequest};

use crate::core::{Core, lock, read, write};
use crate::format::{self, EntryHeader, EntryKind};
use crate::kept::Known;
use crate::pack::{self, Row};
use crate::place::Place;
use crate::seeded_bug::SeededBug;
use crate::state::KeyName;
use crate::volume::buffer;

/// A verified entry.
#[derive(Clone, Debug)]
pub(crate) struct StoredEntry {
    pub key: Value,
    pub value: Value,
}

/// The verified bytes of an entry, or of a pack of them.
#[derive(Debug)]
pub(crate) struct Opened {
    header: EntryHeader,
    bytes: Arc<AlignedBuffer>,
    key: Range<usize>,
    value: Range<usize>,
}

impl Opened {
    /// The entries of a pack: what each is called, its key and its value, if it is no
    /// tombstone. Ends at the first that is none.
    pub fn packed(&self) -> impl Iterator<Item = (KeyName, &[u8], Option<&[u8]>)> {
        let contents = &self.bytes[self.value.clone()];
        let table = match self.header.kind {
            EntryKind::Pack => &self.bytes[self.key.clone()],
            _ => &[],
        };
        pack::rows(table, contents.len()).map_while(move |row| {
            let Row { name, key, value } = row?;
            Some((name, &contents[key], value.map(|value| &contents[value])))
        })
    }

    /// The entry of a place; `None` if another one is there.
    fn entry(&self, place: Place, slot: SlotKey) -> Option<StoredEntry> {
        if let Some(number) = place.number() {
            let (name, key, value) = self.packed().nth(number)?;
            // Copied, so that a small value does not hold the memory of a pack.
            let value = value.filter(|_| name.slot == slot)?;
            return Some(StoredEntry {
                key: Value::from(key.to_vec()),
                value: Value::from(value.to_vec()),
            });
        }
        self.alone().filter(|_| self.header.slot_key == slot)
    }

    /// The entry, if it is one alone.
    pub fn alone(&self) -> Option<StoredEntry> {
        (self.header.kind == EntryKind::Value).then(|| StoredEntry {
            key: Value::share(self.bytes.clone(), self.key.clone()),
            value: Value::share(self.bytes.clone(), self.value.clone()),
        })
    }
}

/// Cuts entries into runs that lie in the same blocks.
pub(crate) fn by_extent(places: &[(SlotKey, Place)]) -> impl Iterator<Item = &[(SlotKey, Place)]> {
    places.chunk_by(|(_, one), (_, next)| one.extent() == next.extent())
}

/// Where a key's entry can be, and what is kept of that.
type Candidate = (Place, Known);

/// Read queues between two uses: making one costs system calls.
#[derive(Debug, Default)]
pub(crate) struct ReadQueues {
    idle: Mutex<Vec<Box<dyn ReadQueue>>>,
}

/// Queues that are kept.
const IDLE_QUEUES: usize = 8;

impl Core {
    /// The value that a key has now.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.check_open()?;
        let (name, candidates) = self.candidates(key);
        if candidates.is_empty() {
            return Ok(None);
        }
        let outcome = self.search(key, name, candidates);
        if let Ok(Some(_)) = outcome {
            return outcome;
        }
        // What the index said may be gone by now. Once more, with everything held.
        let moment = write(&self.state).pin();
        let outcome = self.get_at(key, moment);
        self.unpin(moment);
        outcome
    }

    fn candidates(&self, key: &[u8]) -> (KeyName, Vec<Candidate>) {
        let state = read(&self.state);
        let name = state.name(key);
        let places = state.find(name.slot);
        (
            name,
            places.map(|place| self.candidate(place, key)).collect(),
        )
    }

    /// A place with what is kept of it: only who has the lock on the state looks, so that
    /// both are of one moment.
    fn candidate(&self, place: Place, key: &[u8]) -> Candidate {
        (place, self.kept.find(place, key))
    }

    /// The value that a key had at a moment that is held.
    pub fn get_at(&self, key: &[u8], moment: u64) -> Result<Option<Value>> {
        let (name, candidates) = self.candidates_at(key, moment)?;
        self.search(key, name, candidates)
    }

    fn candidates_at(&self, key: &[u8], moment: u64) -> Result<(KeyName, Vec<Candidate>)> {
        let state = read(&self.state);
        // A close lets all moments go.
        self.check_open()?;
        let name = state.name(key);
        let places: Vec<Place> = match state.at(key, name.slot, moment) {
            Ok(seen) => seen.into_iter().collect(),
            Err(candidates) => candidates,
        };
        let candidates = places.into_iter();
        let candidates = candidates.map(|place| self.candidate(place, key));
        Ok((name, candidates.collect()))
    }

    /// Looks for a key at the extents that can be its.
    fn search(
        &self,
        key: &[u8],
        name: KeyName,
        candidates: Vec<Candidate>,
    ) -> Result<Option<Value>> {
        for (place, known) in candidates {
            let since = match known {
                Known::Value(value) => return Ok(Some(value)),
                Known::Nothing(since) => since,
            };
            let entry = self.open_read(self.read_extent(place.extent()), place, name.slot)?;
            if entry.key == key {
                self.keep_read(place, &entry, since);
                return Ok(Some(entry.value));
            }
        }
        Ok(None)
    }

    /// The values of several keys as of a moment that is held; the reads go to the
    /// device together.
    pub fn multi_get_at(&self, keys: &[&[u8]], moment: u64) -> Result<Vec<Option<Value>>> {
        let mut wanted = Vec::with_capacity(keys.len());
        let mut values = vec![None; keys.len()];
        for (number, key) in keys.iter().enumerate() {
            let (name, candidates) = self.candidates_at(key, moment)?;
            for (place, known) in candidates {
                match known {
                    Known::Value(value) => values[number] = Some(value),
                    Known::Nothing(since) => wanted.push((number, name.slot, place, since)),
                }
            }
        }
        // A pack is read once for all of its entries.
        wanted.sort_unstable_by_key(|(_, _, place, _)| place.block);
        let places = wanted.iter().map(|(_, slot, place, _)| (*slot, *place));
        let places: Vec<(SlotKey, Place)> = places.collect();
        let entries = self.read_entries(&places)?;
        for ((number, _, place, since), entry) in wanted.into_iter().zip(entries) {
            let entry = entry?;
            if entry.key == keys[number] {
                self.keep_read(place, &entry, since);
                values[number] = Some(entry.value);
            }
        }
        Ok(values)
    }

    /// Offers the cache what was read at a place after a moment.
    fn keep_read(&self, place: Place, entry: &StoredEntry, since: Option<Moment>) {
        let since = match self.has_bug(SeededBug::CacheTakesLateReads) {
            true => self.kept.moment(place),
            false => since,
        };
        self.kept.take_read(place, &entry.key, &entry.value, since);
    }

    /// Reads entries that stay where they are, together; a pack once for those that follow one
    /// another.
    pub fn read_entries(&self, places: &[(SlotKey, Place)]) -> Result<Vec<Result<StoredEntry>>> {
        let extents: Vec<Extent> = by_extent(places).map(|pack| pack[0].1.extent()).collect();
        let mut entries = Vec::with_capacity(places.len());
        for (pack, answer) in by_extent(places).zip(self.read_many(&extents)?) {
            match self.open_pack(answer, pack) {
                Ok(opened) => entries.extend(opened),
                Err(error) => entries.extend(pack.iter().map(|_| Err(error.clone()))),
            }
        }
        Ok(entries)
    }

    /// The entry of a place, of what was read there.
    pub fn entry_of(&self, opened: &Opened, place: Place, slot: SlotKey) -> Result<StoredEntry> {
        let entry = opened.entry(place, slot);
        entry.ok_or_else(|| self.another_entry(place.block))
    }

    fn another_entry(&self, block: u32) -> Error {
        self.volume
            .damage(block, "the index points here, and the entry is another one")
    }

    /// The damage of an entry whose header cannot be read.
    pub fn no_header(&self, block: u32) -> Error {
        self.volume.damage(
            block,
            "the index points here, and no entry header matches its checksum",
        )
    }

    /// Reads extents that stay where they are, together.
    pub fn read_many(&self, extents: &[Extent]) -> Result<Vec<Result<AlignedBuffer>>> {
        let alone = |extent: &Extent| self.read_extent(*extent);
        if extents.len() < 2 {
            return Ok(extents.iter().map(alone).collect());
        }
        self.read_many_from(None, extents)
    }

    /// Reads extents from one member, together: a given one, or any that has every entry.
    pub fn read_many_from(
        &self,
        member: Option<usize>,
        extents: &[Extent],
    ) -> Result<Vec<Result<AlignedBuffer>>> {
        let mut found: Vec<Option<Result<AlignedBuffer>>> = Vec::with_capacity(extents.len());
        {
            let pending = read(&self.pending);
            found.extend(extents.iter().map(|extent| {
                let waiting = pending.get(&extent.block)?;
                let mut bytes = buffer(waiting.len());
                bytes.copy_from_slice(waiting);
                Some(Ok(bytes))
            }));
        }
        let missing: Vec<usize> = (0..extents.len())
            .filter(|&at| found[at].is_none())
            .collect();
        self.counters
            .reads
            .fetch_add(missing.len() as u64, Ordering::Relaxed);
        // Chosen after the look at what is on its way: a member that lacks what was is lost
        // before that is let go.
        let member = member.unwrap_or_else(|| self.volume.next_reader());
        let file = self.volume.file_of(member)?.clone();
        let requests = missing.into_iter().map(|at| ReadRequest {
            file: file.clone(),
            offset: self.volume.offset(extents[at].block),
            buffer: buffer(extents[at].blocks as usize * self.block_bytes as usize),
            tag: at as u64,
        });
        let mut queue = self.queues.take(self)?;
        read_all(&mut *queue, requests, |completion| {
            let at = completion.tag as usize;
            let whole = completion.buffer.len();
            found[at] = Some(completion.result.and_then(|count| {
                if count == whole {
                    return Ok(completion.buffer);
                }
                Err(self
                    .volume
                    .damage(extents[at].block, "the device ends within an entry"))
            }));
            Ok(())
        })?;
        self.queues.give_back(queue);
        // Every request has had its completion.
        Ok(found.into_iter().flatten().collect())
    }

    /// Verifies what was read at an extent.
    pub fn open_extent(&self, mut bytes: AlignedBuffer, extent: Extent) -> Result<Opened> {
        let damage = |what: &str| Err(self.volume.damage(extent.block, what));
        let (block, unit) = (extent.block, self.block_bytes);
        let Some(header) = format::decode_header(&bytes, block, unit, self.seed) else {
            return Err(self.no_header(block));
        };
        let whole = bytes.len() == extent.blocks as usize * unit as usize;
        if !whole || header.extent(unit) != extent {
            return Err(self.another_entry(block));
        }
        if !format::body_is_sound(&bytes, block, unit, self.seed)
            && !self.has_bug(SeededBug::NoChecksum)
        {
            return damage("the entry's key and value do not match their checksum");
        }
        let Some((key, value)) = format::restore(&mut bytes, &header, unit) else {
            return damage("the entry's lengths do not fit its blocks");
        };
        Ok(Opened {
            header,
            bytes: Arc::new(bytes),
            key,
            value,
        })
    }
}

impl ReadQueues {
    fn take(&self, core: &Core) -> Result<Box<dyn ReadQueue>> {
        if let Some(queue) = lock(&self.idle).pop() {
            return Ok(queue);
        }
        let file_system = &core.environment.file_system;
        file_system.read_queue(core.tuning.read_queue)
    }

    /// Keeps a queue that nothing is under way in.
    fn give_back(&self, queue: Box<dyn ReadQueue>) {
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_QUEUES && queue.pending() == 0 {
            idle.push(queue);
        }
    }
}
