//! Reading: a slot, then one read of the entry, verified.
//!
//! Readers take no lock that is held across I/O, and never wait for a writer.
//! A reader without a snapshot takes the slot's entry. A snapshot at sequence V
//! takes it if its sequence number is at most V, and else what
//! [`crate::history`] kept.

use std::collections::BTreeSet;
use std::sync::Arc;

use cambium_base::{Result, Value};
use cambium_index::Slot;
use cambium_io::spans;
use cambium_io::sync::atomic::Ordering;
use cambium_io::{AlignedBuffer, BatchOptions, ReadRequest};
use cambium_storage::log::Parsed;

use crate::core::{Core, lock};
use crate::data_file::ReadEntry;
use crate::options::Keys;
use crate::seeded_bug::SeededBug;
use crate::table::{Location, SlotHome};

/// Entries that lie within so many bytes are read together.
const LONGEST_STRETCH: u64 = 64 << 10;

/// What a lookup without I/O on entries found.
pub(crate) enum Candidate {
    Absent,
    At(Location),
}

impl Core {
    /// The newest value of an integer key.
    pub fn read_latest(&self, key: u64) -> Result<Option<Value>> {
        if let Some(value) = self.cache.newest(key) {
            return Ok(Some(value));
        }
        Ok(self.read_version(key, None)?.map(|entry| entry.value))
    }

    /// The entry of a key as of a sequence number, or the newest.
    pub fn read_version(&self, key: u64, at: Option<u64>) -> Result<Option<ReadEntry>> {
        if let Some(entry) = at.and_then(|at| self.cache.version(key, at)) {
            return Ok(Some(entry));
        }
        if let Candidate::At(location) = self.candidate(key)? {
            let entry = self.read_at(&location, key)?;
            // A slot points at a visible entry: writers publish under the lock of its piece.
            if at.is_none_or(|at| entry.sequence.0 <= at) {
                self.keep_cached(&location, key, &entry);
                return Ok(Some(entry));
            }
        }
        // The key was replaced or removed after the snapshot, or has no entry.
        match at.and_then(|at| self.history.version_at(key, at)) {
            Some(Some(old)) => self.read_at(&old, key).map(Some),
            _ => Ok(None),
        }
    }

    /// Where the slot of a key points.
    pub fn candidate(&self, key: u64) -> Result<Candidate> {
        let Some(table) = self.table_of(key)? else {
            return Ok(Candidate::Absent);
        };
        Ok(match table.locate(key)? {
            Some(location) => Candidate::At(location),
            None => Candidate::Absent,
        })
    }

    /// Reads an entry; a bucket from the cache if it is there.
    fn read_at(&self, location: &Location, key: u64) -> Result<ReadEntry> {
        let Location { file, position, .. } = location;
        if let Some(entry) = self.cache.get(file, *position) {
            return Ok(entry);
        }
        if self.has_bug(SeededBug::NoChecksum) {
            return file.read_unverified(*position);
        }
        if self.reads_neighbours(file)
            && let Some(entry) = self.read_with_neighbours(location, key)?
        {
            return Ok(entry);
        }
        let entry = file.read_entry(*position, key, self.tuning.read_guess_bytes)?;
        self.counters.entry_reads.fetch_add(1, Ordering::Relaxed);
        self.cache.put(file, *position, &entry);
        Ok(entry)
    }

    /// Keeps the value of an integer key that every reader sees now, if the
    /// slot still points at it.
    fn keep_cached(&self, location: &Location, key: u64, entry: &ReadEntry) {
        if self.shape.keys == Keys::String {
            return;
        }
        let home = SlotHome {
            generation: location.generation,
            file: location.file.file.number.0,
        };
        let pointed_at = (Slot::Position(location.position), home);
        self.with_open_table(key, |table| {
            table.with_slot(key, |slot, home| {
                if (slot, home) == pointed_at {
                    self.cache.fill(key, entry);
                }
            })
        });
    }

    /// The entries of several keys as of one sequence number; the first reads
    /// of all of them go to the device together, those of `open_tables` tables at a time:
    /// a location keeps its data file open.
    pub fn read_versions(&self, keys: &[u64], at: u64) -> Result<Vec<Option<ReadEntry>>> {
        let mut answers: Vec<Option<ReadEntry>> = vec![None; keys.len()];
        let mut wanted: Vec<(usize, Location)> = Vec::new();
        let mut tables = BTreeSet::new();
        for (place, &key) in keys.iter().enumerate() {
            if let Some(entry) = self.cache.version(key, at) {
                answers[place] = Some(entry);
                continue;
            }
            match self.candidate(key)? {
                Candidate::At(location) if self.is_on_device(&location) => {
                    tables.insert(location.file.table);
                    wanted.push((place, location));
                    if tables.len() >= self.tuning.open_tables {
                        self.read_batch(keys, at, std::mem::take(&mut wanted), &mut answers)?;
                        tables.clear();
                    }
                }
                _ => answers[place] = self.read_version(key, Some(at))?,
            }
        }
        self.read_batch(keys, at, wanted, &mut answers)?;
        Ok(answers)
    }

    fn is_on_device(&self, location: &Location) -> bool {
        self.cache.get(&location.file, location.position).is_none()
            && location.position < location.file.log.written_end()
    }

    fn read_batch(
        &self,
        keys: &[u64],
        at: u64,
        mut wanted: Vec<(usize, Location)>,
        answers: &mut [Option<ReadEntry>],
    ) -> Result<()> {
        if wanted.len() < 2 {
            for (place, _) in wanted {
                answers[place] = self.read_version(keys[place], Some(at))?;
            }
            return Ok(());
        }
        // Neighbours on the device together.
        wanted.sort_by_key(|(_, location)| (location.file.file.number, location.position));
        let options = BatchOptions {
            backend: self.tuning.backend,
            depth: self.tuning.batch,
        };
        let guess = self.tuning.read_guess_bytes as u64;
        // Joined where the reads overlap or follow each other.
        let ranges = wanted.iter().map(|(_, location)| {
            let position = location.position;
            (location.file.file.number, position..position + guess)
        });
        let stretches = spans::join(ranges, 0, LONGEST_STRETCH + guess);
        let requests = stretches.iter().enumerate().map(|(tag, stretch)| {
            let (offset, bytes) = stretch.place();
            ReadRequest {
                file: wanted[stretch.members.start].1.file.log.file().clone(),
                offset,
                buffer: AlignedBuffer::new(bytes, 8),
                tag: tag as u64,
            }
        });
        let mut again = Vec::new();
        let file_system = &self.environment.file_system;
        cambium_io::read_all_kept(file_system, options, requests, |completion| {
            let read = &completion.buffer[..completion.result?];
            let stretch = &stretches[completion.tag as usize];
            for (place, location) in &wanted[stretch.members.clone()] {
                let Location { file, position, .. } = location;
                let from = (position - stretch.start) as usize;
                let bytes = read.get(from..).unwrap_or_default();
                match file.log.parse(*position, bytes)? {
                    Parsed::NeedsBytes(..) => again.push(*place),
                    Parsed::Complete(record) => {
                        let entry = file.entry_of(record, *position, keys[*place])?;
                        self.counters.entry_reads.fetch_add(1, Ordering::Relaxed);
                        if entry.sequence.0 <= at {
                            self.cache.put(file, *position, &entry);
                            self.keep_cached(location, keys[*place], &entry);
                            answers[*place] = Some(entry);
                        } else {
                            again.push(*place);
                        }
                    }
                }
            }
            Ok(())
        })?;
        for place in again {
            answers[place] = self.read_version(keys[place], Some(at))?;
        }
        Ok(())
    }

    /// Begins a snapshot of what is visible now.
    pub fn pin(self: &Arc<Self>) -> Result<Pin> {
        self.check_open()?;
        // Between two changes: no writer is applying.
        let _between = lock(&self.apply);
        let sequence = self.visible.load(Ordering::Acquire);
        self.history.open_snapshot(sequence);
        Ok(Pin {
            core: self.clone(),
            sequence,
            buckets: self.buckets.count(),
        })
    }
}

/// A moment that is kept: dropping it lets it go.
#[derive(Debug)]
pub(crate) struct Pin {
    pub core: Arc<Core>,
    pub sequence: u64,
    /// How many buckets there were.
    pub buckets: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.core.history.close_snapshot(self.sequence);
    }
}

impl Pin {
    /// Keeps the same moment once more.
    pub fn again(&self) -> Result<Pin> {
        self.core.check_open()?;
        self.core.history.open_snapshot(self.sequence);
        Ok(Pin {
            core: self.core.clone(),
            sequence: self.sequence,
            buckets: self.buckets,
        })
    }
}
