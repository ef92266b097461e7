//! Writes a trace to a file, chunk by chunk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_io::{Environment, File, OpenOptions};

use super::Traced;
use super::format::{self, CHUNK_BYTES, ChunkHeader, MOST_CHUNK_BYTES};
use crate::error::{Error, Result};

/// A trace that is being written. What was not [finished](TraceWriter::finish)
/// lacks its end and up to one chunk, and can be read up to there.
#[derive(Debug)]
pub struct TraceWriter {
    path: PathBuf,
    file: Arc<dyn File>,
    offset: u64,
    payload: Vec<u8>,
    /// Of the chunk that is being filled.
    records: u32,
    number: u64,
    before: u64,
    /// Of all chunks.
    total: u64,
}

impl TraceWriter {
    /// Makes a trace; one that is there is replaced.
    pub fn create(path: &Path) -> Result<TraceWriter> {
        let options = OpenOptions {
            truncate: true,
            ..OpenOptions::CREATE
        };
        let file = Environment::real().file_system.open(path, options)?;
        let header = format::header();
        file.write_at(&header, 0)?;
        Ok(TraceWriter {
            path: path.to_path_buf(),
            file,
            offset: header.len() as u64,
            payload: Vec::with_capacity(CHUNK_BYTES * 2),
            records: 0,
            number: 0,
            before: 0,
            total: 0,
        })
    }

    /// Adds an operation that a thread began so many nanoseconds after the trace
    /// did.
    ///
    /// # Errors
    /// The disk's, when a chunk is full; a usage error if a batch has keys of more
    /// than 64 MiB.
    pub fn add(&mut self, thread: u32, at: u64, operation: &Traced<'_>) -> Result<()> {
        let start = self.payload.len();
        format::encode(&mut self.payload, (thread, at, self.before), operation)
            .map_err(|error| Error::machine("encode", &self.path, error))?;
        if self.payload.len() > MOST_CHUNK_BYTES {
            self.payload.truncate(start);
            return Err(Error::Usage(format!(
                "{}: an operation with keys of more than {MOST_CHUNK_BYTES} bytes together",
                self.path.display()
            )));
        }
        self.before = at;
        self.records += 1;
        if self.payload.len() >= CHUNK_BYTES {
            self.write_chunk()?;
        }
        Ok(())
    }

    pub fn count(&self) -> u64 {
        self.total + u64::from(self.records)
    }

    fn write_chunk(&mut self) -> Result<()> {
        let header = ChunkHeader::encode(&self.payload, self.records, self.number);
        self.file
            .write_vectored_at(&[&header, &self.payload], self.offset)?;
        self.offset += (header.len() + self.payload.len()) as u64;
        self.total += u64::from(self.records);
        self.number += 1;
        self.records = 0;
        self.before = 0;
        self.payload.clear();
        Ok(())
    }

    /// Writes what is left, and the end; synced.
    pub fn finish(&mut self) -> Result<()> {
        if self.records > 0 {
            self.write_chunk()?;
        }
        self.payload.extend_from_slice(&self.total.to_le_bytes());
        self.write_chunk()?;
        self.file.sync_data()?;
        Ok(())
    }
}
