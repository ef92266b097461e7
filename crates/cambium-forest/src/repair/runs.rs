//! What a log holds of every key, sorted by key, within a fixed memory.
//!
//! Writes are gathered until they fill [`MEMORY_BYTES`]; then they are sorted and
//! appended to a scratch file as a *run*. Runs are merged, at most
//! [`MOST_MERGED`] at a time. A small log needs no file.
//!
//! ```text
//! run    = chunk*
//! chunk  = length (4) · CRC-32C of what follows (4) · write*
//! write  = namespace (2) · key's length (2) · sequence (8) · offset (8) · address (8) · key
//! ```
//!
//! The address is 0 for a tombstone. The file is removed when it is done with, and is of no use to anyone else.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::checksum::crc32c;
use cambium_base::coding::Decoder;
use cambium_base::{Error, Result};
use cambium_io::{File, FileSystem, OpenOptions};

/// The scratch file's name.
pub(crate) const SCRATCH_NAME: &str = "repair.scratch";

/// Memory for writes that are not in a run yet.
const MEMORY_BYTES: usize = 32 << 20;
/// Memory for a write beside its key, about.
const WRITE_OVERHEAD: usize = 64;
/// Bytes of a chunk, but for one longer key.
const CHUNK_BYTES: usize = 64 << 10;
/// Runs that are merged at once: so many chunks are in memory.
const MOST_MERGED: usize = 128;

/// A write that the log has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Met {
    pub namespace: u16,
    pub key: Vec<u8>,
    pub sequence: u64,
    /// Where its record lies.
    pub offset: u64,
    /// The document's address; 0 for a tombstone.
    pub document: u64,
}

/// Gathers writes in the order of the log.
pub(super) struct Sorter {
    file_system: Arc<dyn FileSystem>,
    path: PathBuf,
    memory_bytes: usize,
    gathered: Vec<Met>,
    gathered_bytes: usize,
    spilled: Option<Spilled>,
    count: u64,
}

/// The scratch file: gone with this.
struct Spilled {
    file_system: Arc<dyn FileSystem>,
    file: Arc<dyn File>,
    end: u64,
    /// Start and end of each run.
    runs: Vec<(u64, u64)>,
}

impl Drop for Spilled {
    fn drop(&mut self) {
        // If it stays, the next repair begins it anew.
        _ = self.file_system.remove(self.file.path());
    }
}

impl Sorter {
    /// With a scratch file in `folder`, if one is needed.
    pub fn new(file_system: Arc<dyn FileSystem>, folder: &Path) -> Self {
        Sorter {
            file_system,
            path: folder.join(SCRATCH_NAME),
            memory_bytes: MEMORY_BYTES,
            gathered: Vec::new(),
            gathered_bytes: 0,
            spilled: None,
            count: 0,
        }
    }

    /// Writes taken so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes a write.
    pub fn take(&mut self, met: Met) -> Result<()> {
        self.count += 1;
        self.gathered_bytes += met.key.len() + WRITE_OVERHEAD;
        self.gathered.push(met);
        if self.gathered_bytes > self.memory_bytes {
            self.spill()?;
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        self.gathered.sort_unstable();
        if self.spilled.is_none() {
            let options = OpenOptions {
                truncate: true,
                ..OpenOptions::CREATE
            };
            self.spilled = Some(Spilled {
                file_system: self.file_system.clone(),
                file: self.file_system.open(&self.path, options)?,
                end: 0,
                runs: Vec::new(),
            });
        }
        if let Some(spilled) = &mut self.spilled {
            let mut writer = RunWriter::new(spilled);
            for met in self.gathered.drain(..) {
                writer.append(&met)?;
            }
            writer.finish()?;
        }
        self.gathered_bytes = 0;
        Ok(())
    }

    /// All of them by namespace, key and sequence number.
    pub fn sorted(mut self) -> Result<Sorted> {
        if self.spilled.is_some() {
            self.spill()?;
        }
        let Some(mut spilled) = self.spilled.take() else {
            self.gathered.sort_unstable();
            return Ok(Sorted {
                gathered: self.gathered.into_iter(),
                merge: None,
                next: None,
            });
        };
        while spilled.runs.len() > MOST_MERGED {
            let few: Vec<(u64, u64)> = spilled.runs.drain(..MOST_MERGED).collect();
            let mut merge = Merge::new(&spilled.file, &few)?;
            let mut writer = RunWriter::new(&mut spilled);
            while let Some(met) = merge.next()? {
                writer.append(&met)?;
            }
            writer.finish()?;
        }
        let merge = Merge::new(&spilled.file, &spilled.runs)?;
        Ok(Sorted {
            gathered: Vec::new().into_iter(),
            merge: Some((merge, spilled)),
            next: None,
        })
    }
}

/// Appends a run to the scratch file.
struct RunWriter<'a> {
    spilled: &'a mut Spilled,
    start: u64,
    chunk: Vec<u8>,
}

impl<'a> RunWriter<'a> {
    fn new(spilled: &'a mut Spilled) -> Self {
        RunWriter {
            start: spilled.end,
            spilled,
            chunk: Vec::new(),
        }
    }

    fn append(&mut self, met: &Met) -> Result<()> {
        self.chunk.extend_from_slice(&met.namespace.to_le_bytes());
        // Keys have up to 65,535 bytes.
        let length = met.key.len() as u16;
        self.chunk.extend_from_slice(&length.to_le_bytes());
        for number in [met.sequence, met.offset, met.document] {
            self.chunk.extend_from_slice(&number.to_le_bytes());
        }
        self.chunk.extend_from_slice(&met.key);
        if self.chunk.len() >= CHUNK_BYTES {
            self.write_chunk()?;
        }
        Ok(())
    }

    fn write_chunk(&mut self) -> Result<()> {
        let mut bytes = (self.chunk.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&crc32c(&self.chunk).to_le_bytes());
        bytes.append(&mut self.chunk);
        self.spilled.file.write_at(&bytes, self.spilled.end)?;
        self.spilled.end += bytes.len() as u64;
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        if !self.chunk.is_empty() {
            self.write_chunk()?;
        }
        self.spilled.runs.push((self.start, self.spilled.end));
        Ok(())
    }
}

/// Reads a run from its start.
struct RunReader {
    file: Arc<dyn File>,
    position: u64,
    end: u64,
    chunk: Vec<u8>,
    /// How much of the chunk is read.
    at: usize,
}

impl RunReader {
    fn next(&mut self) -> Result<Option<Met>> {
        if self.at == self.chunk.len() {
            if self.position == self.end {
                return Ok(None);
            }
            self.read_chunk()?;
        }
        let mut decoder = Decoder::new(&self.chunk[self.at..]);
        let met = decode(&mut decoder);
        self.at = self.chunk.len() - decoder.remaining();
        met.map(Some).ok_or_else(|| self.damage())
    }

    fn read_chunk(&mut self) -> Result<()> {
        let mut head = [0; 8];
        let count = self.file.read_at(&mut head, self.position)?;
        let mut decoder = Decoder::new(&head[..count]);
        let (Some(length), Some(checksum)) = (decoder.u32(), decoder.u32()) else {
            return Err(self.damage());
        };
        let behind = self.position + 8 + u64::from(length);
        if behind > self.end {
            return Err(self.damage());
        }
        self.chunk.resize(length as usize, 0);
        let count = self.file.read_at(&mut self.chunk, self.position + 8)?;
        if count != self.chunk.len() || crc32c(&self.chunk) != checksum {
            return Err(self.damage());
        }
        self.position = behind;
        self.at = 0;
        Ok(())
    }

    fn damage(&self) -> Error {
        let what = "a scratch file does not hold what was written to it";
        Error::corruption(self.file.path(), self.position, what)
    }
}

fn decode(decoder: &mut Decoder<'_>) -> Option<Met> {
    let namespace = decoder.u16()?;
    let length = decoder.u16()?;
    let (sequence, offset, document) = (decoder.u64()?, decoder.u64()?, decoder.u64()?);
    let key = decoder.bytes(usize::from(length))?.to_vec();
    Some(Met {
        namespace,
        key,
        sequence,
        offset,
        document,
    })
}

/// Several runs as one.
struct Merge {
    readers: Vec<RunReader>,
    heads: BinaryHeap<Reverse<(Met, usize)>>,
}

impl Merge {
    fn new(file: &Arc<dyn File>, runs: &[(u64, u64)]) -> Result<Self> {
        let mut merge = Merge {
            readers: Vec::new(),
            heads: BinaryHeap::new(),
        };
        for &(start, end) in runs {
            merge.readers.push(RunReader {
                file: file.clone(),
                position: start,
                end,
                chunk: Vec::new(),
                at: 0,
            });
            merge.refill(merge.readers.len() - 1)?;
        }
        Ok(merge)
    }

    fn refill(&mut self, reader: usize) -> Result<()> {
        if let Some(met) = self.readers[reader].next()? {
            self.heads.push(Reverse((met, reader)));
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Met>> {
        let Some(Reverse((met, reader))) = self.heads.pop() else {
            return Ok(None);
        };
        self.refill(reader)?;
        Ok(Some(met))
    }
}

/// Writes in order.
pub(super) struct Sorted {
    gathered: std::vec::IntoIter<Met>,
    merge: Option<(Merge, Spilled)>,
    /// Read already, and of the next key.
    next: Option<Met>,
}

impl Sorted {
    fn next_met(&mut self) -> Result<Option<Met>> {
        if let Some(met) = self.next.take() {
            return Ok(Some(met));
        }
        match &mut self.merge {
            Some((merge, _)) => merge.next(),
            None => Ok(self.gathered.next()),
        }
    }

    /// All writes of the next key, in the order of their numbers; of the same
    /// number the one that was written last.
    pub fn next_key(&mut self) -> Result<Option<Vec<Met>>> {
        let Some(first) = self.next_met()? else {
            return Ok(None);
        };
        let mut all = vec![first];
        while let Some(met) = self.next_met()? {
            let last = &mut all[0];
            if (met.namespace, &met.key) != (last.namespace, &last.key) {
                self.next = Some(met);
                break;
            }
            match all.last_mut() {
                Some(last) if last.sequence == met.sequence => *last = met,
                _ => all.push(met),
            }
        }
        Ok(Some(all))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on has failed
mod tests {
    use super::*;
    use cambium_io::Environment;
    use cambium_io::simulated::Generator;

    fn sorter(memory_bytes: usize) -> (Arc<dyn FileSystem>, Sorter) {
        let file_system = Environment::memory().file_system;
        let folder = Path::new("/s");
        file_system.create_directory(folder).unwrap();
        let mut sorter = Sorter::new(file_system.clone(), folder);
        sorter.memory_bytes = memory_bytes;
        (file_system, sorter)
    }

    #[test]
    fn runs_in_any_number_come_to_the_same_order() {
        let mut seen = Vec::new();
        // In memory; in a few runs; in so many that they are merged twice.
        for memory_bytes in [1 << 20, 20_000, 600] {
            let (file_system, mut sorter) = sorter(memory_bytes);
            let mut generator = Generator::new(5);
            for number in 0..2_000u64 {
                let longest = if number % 500 == 0 { 65_536 } else { 9 };
                let key = vec![generator.below(3) as u8; generator.below(longest) as usize];
                let met = Met {
                    namespace: generator.below(2) as u16,
                    key,
                    sequence: generator.below(900),
                    offset: number * 8,
                    document: number % 3,
                };
                sorter.take(met).unwrap();
            }
            let mut sorted = sorter.sorted().unwrap();
            let mut keys = Vec::new();
            while let Some(all) = sorted.next_key().unwrap() {
                assert!(all.windows(2).all(|two| two[0].sequence < two[1].sequence));
                keys.push(all);
            }
            drop(sorted);
            let left = file_system.list(Path::new("/s")).unwrap();
            assert!(left.is_empty(), "the scratch file is gone");
            seen.push(keys);
        }
        assert!(seen[0].len() > 30);
        assert_eq!(seen[0], seen[1]);
        assert_eq!(seen[0], seen[2]);
    }
}
