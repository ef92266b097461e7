//! Reads a trace, operation by operation.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_io::{Environment, File, OpenOptions};

use super::Traced;
use super::format::{
    self, CHUNK_HEADER_BYTES, ChunkHeader, HEADER_BYTES, MAGIC, MOST_CHUNK_BYTES, VERSION,
};
use crate::error::{Error, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub thread: u32,
    /// When it began: nanoseconds since the trace did.
    pub at: u64,
    pub operation: Traced<'a>,
}

#[derive(Debug)]
pub struct TraceReader {
    path: PathBuf,
    file: Arc<dyn File>,
    length: u64,
    /// Where the next chunk begins.
    offset: u64,
    number: u64,
    /// Records of whole chunks so far.
    total: u64,
    payload: Vec<u8>,
    /// Where the next record begins, and where the chunk does, in the file.
    position: usize,
    payload_start: u64,
    left: u32,
    before: u64,
    ended: bool,
}

impl TraceReader {
    /// Opens a trace.
    ///
    /// # Errors
    /// The file is not there, or is no trace, or one of a version that is not read
    /// here.
    pub fn open(path: &Path) -> Result<TraceReader> {
        let file = Environment::real()
            .file_system
            .open(path, OpenOptions::READ)?;
        let mut header = [0; HEADER_BYTES];
        let read = file.read_at(&mut header, 0)?;
        let refused = |what: String| Error::Usage(format!("{}: {what}", path.display()));
        if read < HEADER_BYTES || &header[..8] != MAGIC {
            return Err(refused(
                "no trace: it does not begin with \"kvztrace\"; \
                 `kvzone trace import` makes one of text"
                    .to_string(),
            ));
        }
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if version != VERSION {
            return Err(refused(format!(
                "a trace of version {version}; this kvzone reads version {VERSION}"
            )));
        }
        if header != format::header() {
            return Err(cambium_base::Error::corruption(
                path,
                12,
                "the checksum of the trace's header is wrong",
            )
            .into());
        }
        Ok(TraceReader {
            path: path.to_path_buf(),
            length: file.length()?,
            file,
            offset: HEADER_BYTES as u64,
            number: 0,
            total: 0,
            payload: Vec::new(),
            position: 0,
            payload_start: 0,
            left: 0,
            before: 0,
            ended: false,
        })
    }

    /// The next operation; none at the trace's end.
    ///
    /// # Errors
    /// Damage, with file and offset. Everything before it was handed out.
    // An iterator cannot lend what it holds.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        while self.left == 0 {
            if self.ended {
                return Ok(None);
            }
            self.read_chunk()?;
        }
        let mut rest = &self.payload[self.position..];
        let offset = self.payload_start + self.position as u64;
        let Some((thread, at, operation)) = format::decode(&mut rest, self.before) else {
            return Err(self.damage(offset, "these bytes are no operation of a trace"));
        };
        self.position = self.payload.len() - rest.len();
        self.left -= 1;
        self.before = at;
        if self.left == 0 && self.position != self.payload.len() {
            let offset = self.payload_start + self.position as u64;
            let words = "bytes after the last operation of a chunk";
            return Err(damage(&self.path, offset, self.total, words));
        }
        Ok(Some(Record {
            thread,
            at,
            operation,
        }))
    }

    fn damage(&self, offset: u64, what: &str) -> Error {
        damage(&self.path, offset, self.total, what)
    }

    fn read_chunk(&mut self) -> Result<()> {
        let start = self.offset;
        let mut header = [0; CHUNK_HEADER_BYTES];
        if self.file.read_at(&mut header, start)? < CHUNK_HEADER_BYTES {
            return Err(self.damage(
                start,
                "the trace was cut off here; expected another chunk, or the end",
            ));
        }
        let found = ChunkHeader::decode(&header)
            .ok_or_else(|| self.damage(start, "no header of a chunk"))?;
        let bytes = found.payload_bytes as usize;
        let payload_start = start + CHUNK_HEADER_BYTES as u64;
        let there = self.length.saturating_sub(payload_start);
        if bytes > MOST_CHUNK_BYTES || bytes as u64 > there {
            let what = format!("a chunk of {bytes} bytes; {there} are left in the file");
            return Err(self.damage(start, &what));
        }
        self.payload.resize(bytes, 0);
        self.file.read_exact_at(&mut self.payload, payload_start)?;
        if !found.is_whole(&header, &self.payload) {
            return Err(self.damage(start, "the checksum of a chunk is wrong"));
        }
        if found.number != self.number {
            let what = format!("chunk {}; expected chunk {}", found.number, self.number);
            return Err(self.damage(start, &what));
        }
        self.offset = payload_start + bytes as u64;
        self.number += 1;
        self.payload_start = payload_start;
        self.position = 0;
        self.before = 0;
        self.left = found.records;
        if found.records == 0 {
            return self.end(start);
        }
        self.total += u64::from(found.records);
        Ok(())
    }

    fn end(&mut self, start: u64) -> Result<()> {
        let counted = self.payload.as_slice() == self.total.to_le_bytes();
        if !counted {
            return Err(self.damage(start, "the end counts other operations than there are"));
        }
        if self.offset != self.length {
            return Err(self.damage(self.offset, "bytes after the trace's end"));
        }
        self.ended = true;
        Ok(())
    }
}

fn damage(path: &Path, offset: u64, total: u64, what: &str) -> Error {
    let words = match total {
        0 => format!("{what}; no operation before it is in a whole chunk"),
        _ => format!(
            "{what}; {total} operations before it are in whole chunks, and \
             `kvzone trace rescue` keeps them"
        ),
    };
    cambium_base::Error::corruption(path, offset, words).into()
}
