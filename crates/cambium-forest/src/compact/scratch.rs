//! A scratch file of many buckets that are filled at the same time, and read one
//! after the other.
//!
//! Each bucket gathers in a chunk of memory. Full chunks of all buckets go to the
//! end of the file together, in large writes:
//!
//! ```text
//! memory   bucket 0 ▒▒▒▒░░░░   bucket 1 ▒░░░░░░░   bucket 2 ▒▒▒▒▒▒░░
//! outgoing bucket 1 ▒▒▒▒▒▒▒▒   bucket 0 ▒▒▒▒▒▒▒▒   ░░░░░░░░ ...
//! file     bucket 2 │ bucket 0 │ bucket 2 │ bucket 1 │ ...
//! ```
//!
//! A chunk holds whole entries, one after the other; zeros end it:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | whose entry it is, never 0 |
//! | 4 | length of what follows |
//! | length | the entry |
//!
//! Nothing here outlives the one who made it: the file is removed at its end,
//! and one that a crash left is removed by the next opening. What is read back
//! is not believed: entries carry checksums of their own, or are numbers that
//! are checked against what is known otherwise.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::coding::{u32_at, u64_at};
use cambium_base::{Error, FileNumber, Result};
use cambium_io::{AlignedBuffer, Environment, File, OpenOptions};

use super::behind::WriteBehind;
use super::settings::Settings;
use crate::format;

/// Bytes of an entry before its content.
pub(super) const ENTRY_OVERHEAD: usize = 12;

/// A chunk of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Bytes from the start of the file.
    pub offset: u64,
    pub bytes: usize,
}

/// The file.
#[derive(Debug)]
pub(super) struct Scratch {
    environment: Environment,
    path: PathBuf,
    file: Arc<dyn File>,
    writer: WriteBehind,
}

impl Scratch {
    /// Makes a scratch file beside a database file that is on its way. Where the
    /// file system has no direct I/O, it goes through the page cache.
    pub fn create(
        environment: &Environment,
        folder: &Path,
        number: FileNumber,
        settings: &Settings,
        direct: bool,
    ) -> Result<Scratch> {
        let path = format::scratch_path(folder, number);
        let options = OpenOptions {
            truncate: true,
            ..OpenOptions::CREATE
        };
        let file_system = &environment.file_system;
        let file = match direct.then(|| file_system.open(&path, options.direct())) {
            Some(Ok(file)) => file,
            _ => file_system.open(&path, options)?,
        };
        let place = (0, settings.written_bytes());
        let overlap = settings.tuning.overlap;
        Ok(Scratch {
            environment: environment.clone(),
            path,
            writer: WriteBehind::new(environment, file.clone(), overlap, place),
            file,
        })
    }

    /// What chunks are read from.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// What chunks' sizes and places are multiples of.
    pub fn unit(&self) -> usize {
        self.writer.unit()
    }

    /// Adds a chunk, which is whole units.
    fn append(&mut self, chunk: &[u8]) -> Result<Chunk> {
        let place = Chunk {
            offset: self.writer.end(),
            bytes: chunk.len(),
        };
        self.writer.append(chunk)?;
        Ok(place)
    }

    /// Brings everything that was added into the file.
    pub fn settle(&mut self) -> Result<()> {
        self.writer.write_all()
    }

    /// Removes the file. What cannot be removed now the next opening removes.
    pub fn remove(self) {
        drop(self.writer);
        _ = self.environment.file_system.remove(&self.path);
    }
}

/// Buckets of a scratch file.
#[derive(Debug)]
pub(super) struct Buckets {
    chunk_bytes: usize,
    /// The chunk that each one fills.
    filling: Vec<Vec<u8>>,
    /// Those in the file.
    chunks: Vec<Vec<Chunk>>,
}

impl Buckets {
    /// Buckets that take about `memory` bytes while they are filled, and have
    /// chunks of no more than `most` bytes.
    pub fn new(scratch: &Scratch, count: usize, memory: u64, most: usize) -> Buckets {
        let unit = scratch.unit();
        let fair = usize::try_from(memory).unwrap_or(usize::MAX) / count.max(1);
        let chunk_bytes = fair.min(most) / unit * unit;
        Buckets {
            chunk_bytes: chunk_bytes.max(least_chunk(unit)),
            filling: vec![Vec::new(); count],
            chunks: vec![Vec::new(); count],
        }
    }

    /// The longest entry's content that these take.
    pub fn longest(&self) -> usize {
        self.chunk_bytes - ENTRY_OVERHEAD
    }

    /// Adds an entry to a bucket.
    pub fn push(
        &mut self,
        scratch: &mut Scratch,
        bucket: usize,
        whose: u64,
        content: &[u8],
    ) -> Result<()> {
        if self.filling[bucket].len() + ENTRY_OVERHEAD + content.len() > self.chunk_bytes {
            self.hand_over(scratch, bucket, self.chunk_bytes)?;
        }
        let chunk = &mut self.filling[bucket];
        if chunk.is_empty() {
            chunk.reserve_exact(self.chunk_bytes);
        }
        chunk.extend_from_slice(&whose.to_le_bytes());
        chunk.extend_from_slice(&(content.len() as u32).to_le_bytes());
        chunk.extend_from_slice(content);
        Ok(())
    }

    /// Adds the chunk that a bucket fills to the file, as so many bytes.
    fn hand_over(&mut self, scratch: &mut Scratch, bucket: usize, bytes: usize) -> Result<()> {
        let chunk = &mut self.filling[bucket];
        chunk.resize(bytes, 0);
        self.chunks[bucket].push(scratch.append(chunk)?);
        chunk.clear();
        Ok(())
    }

    /// Brings everything into the file and lets the memory go.
    pub fn close(&mut self, scratch: &mut Scratch) -> Result<()> {
        for bucket in 0..self.filling.len() {
            let filled = self.filling[bucket].len();
            if filled > 0 {
                self.hand_over(scratch, bucket, filled.next_multiple_of(scratch.unit()))?;
            }
            self.filling[bucket] = Vec::new();
        }
        scratch.settle()
    }

    /// A bucket's chunks in the file.
    pub fn take(&mut self, bucket: usize) -> Vec<Chunk> {
        std::mem::take(&mut self.chunks[bucket])
    }

    /// Shows every entry of a bucket: first those in the file, which must have
    /// settled, then those in memory. They stay.
    pub fn visit(
        &self,
        scratch: &Scratch,
        bucket: usize,
        mut visit: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut show = |chunk: &[u8]| {
            entries(chunk, |whose, at, length| {
                visit(whose, &chunk[at..at + length])
            })
        };
        for chunk in &self.chunks[bucket] {
            let alignment = scratch.file.alignment().memory.max(1);
            let mut buffer = AlignedBuffer::new(chunk.bytes, alignment);
            let count = scratch.file.read_at(&mut buffer, chunk.offset)?;
            if count < chunk.bytes {
                return Err(damage(&scratch.path, chunk.offset + count as u64));
            }
            show(&buffer)?;
        }
        show(&self.filling[bucket])
    }
}

/// The least that a chunk has, where units are that small.
pub(super) fn least_chunk(unit: usize) -> usize {
    const LEAST: usize = 256;
    LEAST.next_multiple_of(unit.max(1))
}

/// Shows every entry of a chunk: whose it is, where its content lies and how
/// long that is. What is no entry ends it.
pub(super) fn entries(
    chunk: &[u8],
    mut show: impl FnMut(u64, usize, usize) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    while at + ENTRY_OVERHEAD <= chunk.len() {
        let (whose, length) = (u64_at(chunk, at), u32_at(chunk, at + 8) as usize);
        at += ENTRY_OVERHEAD;
        if whose == 0 || length > chunk.len() - at {
            break;
        }
        show(whose, at, length)?;
        at += length;
    }
    Ok(())
}

/// A scratch file that ends too early.
fn damage(path: &Path, offset: u64) -> Error {
    Error::corruption(path, offset, "a scratch file ends here; expected a chunk")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on has failed
mod tests {
    use super::*;
    use crate::compact::settings::CompactionTuning;

    #[test]
    fn buckets_hold_what_was_put_into_them_in_its_order() {
        let environment = Environment::memory();
        let folder = Path::new("/scratch");
        environment.file_system.create_directory(folder).unwrap();
        let settings = Settings {
            tuning: CompactionTuning::default(),
            reading: cambium_io::BatchOptions {
                backend: cambium_io::ReadBackend::Sync,
                depth: 1,
            },
            direct: true,
            background: false,
        };
        let mut scratch =
            Scratch::create(&environment, folder, FileNumber(7), &settings, true).unwrap();
        let mut buckets = Buckets::new(&scratch, 5, 5 * 300, 1 << 20);
        for number in 1..=200u64 {
            let content = vec![number as u8; (number as usize * 7) % 120];
            let bucket = (number % 4) as usize;
            buckets
                .push(&mut scratch, bucket, number, &content)
                .unwrap();
        }
        scratch.settle().unwrap();
        let mut met = 0;
        for bucket in 0..5 {
            let mut expected = (1..=200u64).filter(|number| number % 4 == bucket as u64);
            buckets
                .visit(&scratch, bucket, |whose, content| {
                    assert_eq!(Some(whose), expected.next());
                    assert_eq!(content, vec![whose as u8; (whose as usize * 7) % 120]);
                    met += 1;
                    Ok(())
                })
                .unwrap();
            assert!(expected.next().is_none() || bucket == 4);
        }
        assert_eq!(met, 200);
        buckets.close(&mut scratch).unwrap();
        let chunks = buckets.take(1);
        assert!(chunks.len() > 5 && buckets.take(4).is_empty());
        let memory = scratch.file().alignment().memory;
        let mut first = AlignedBuffer::new(chunks[0].bytes, memory);
        scratch
            .file()
            .read_at(&mut first, chunks[0].offset)
            .unwrap();
        let mut numbers = Vec::new();
        entries(&first, |whose, _, _| {
            numbers.push(whose);
            Ok(())
        })
        .unwrap();
        assert_eq!(numbers[..2], [1, 5]);
        scratch.remove();
        assert!(environment.file_system.list(folder).unwrap().is_empty());
    }
}
