//! Reading a log: records that lie in the file, and those that are still
//! buffered.

use std::cell::RefCell;

use cambium_base::{Error, Result, Value};
use cambium_io::sync::atomic::Ordering;
use cambium_io::sync::with_taken;

use super::LogFile;
use crate::record::{MOST_RECORD_HEADER_BYTES, NotARecord, RecordHeader};

/// What is read at once through the scratch memory of a thread.
const LARGEST_SCRATCH: usize = 64 << 10;

/// A record that was read and verified.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its header.
    pub header: RecordHeader,
    /// Its payload.
    pub payload: Value,
}

/// What the first bytes of a record say.
#[derive(Debug)]
pub enum Parsed {
    /// All of it was there, and is sound.
    Complete(Record),
    /// The header is sound; the record takes this many bytes in all.
    NeedsBytes(RecordHeader, usize),
}

thread_local! {
    /// Small records are read here and copied out, which is cheaper than
    /// zeroing a block for each.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl LogFile {
    /// Fills `into` with the log's bytes from `offset` on, whole records or not: from the
    /// file, then from the buffer. Answers how many there were.
    pub fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            let rest = &mut into[filled..];
            let count = match self.copy_buffered(offset + filled as u64, rest) {
                Some(count) => count,
                None => self.read_written(offset + filled as u64, rest)?,
            };
            if count == 0 {
                break;
            }
            filled += count;
        }
        Ok(filled)
    }

    /// Copies buffered bytes; `None` where the offset lies in the file.
    fn copy_buffered(&self, offset: u64, into: &mut [u8]) -> Option<usize> {
        if offset < self.written_end() {
            return None;
        }
        let tail = self.tail_shared();
        let start = usize::try_from(offset.checked_sub(tail.start)?).ok()?;
        let bytes = tail.bytes.get(start..).unwrap_or_default();
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Some(count)
    }

    fn read_written(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let cuts = self.cuts();
        let left = self.written_end().saturating_sub(offset);
        let wanted = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut into[..wanted], offset)?;
        if self.cuts() != cuts {
            return Ok(count);
        }
        // Padding at the end of the file may be missing.
        into[count..wanted].fill(0);
        Ok(wanted)
    }

    /// Reads the record at `offset`: one read of up to `guess` bytes, and a
    /// second one for the rest of a longer record.
    pub fn read(&self, offset: u64, guess: usize) -> Result<Record> {
        if offset >= self.written_end.load(Ordering::Acquire) {
            if let Some(record) = self.read_buffered(offset)? {
                return Ok(record);
            }
        }
        if guess > LARGEST_SCRATCH {
            return self.read_large(offset, guess);
        }
        with_taken(&SCRATCH, |scratch| {
            let guess = guess.max(MOST_RECORD_HEADER_BYTES);
            if scratch.len() < guess {
                scratch.resize(guess, 0);
            }
            let count = self.file.read_at(&mut scratch[..guess], offset)?;
            match self.parse(offset, &scratch[..count])? {
                Parsed::Complete(record) => Ok(record),
                Parsed::NeedsBytes(header, _) => {
                    let first = &scratch[usize::from(header.header_bytes)..count];
                    self.read_rest(offset, header, first)
                }
            }
        })
    }

    /// A record of many bytes is read into memory of its own, which becomes the
    /// payload's.
    fn read_large(&self, offset: u64, guess: usize) -> Result<Record> {
        let left = usize::try_from(self.end().saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; guess.min(left)];
        let count = self.file.read_at(&mut bytes, offset)?;
        bytes.truncate(count);
        let header = RecordHeader::decode(&bytes, &self.seed, offset)
            .map_err(|reason| self.not_a_record(offset, reason))?;
        if header.end() > bytes.len() {
            let first = &bytes[usize::from(header.header_bytes)..];
            return self.read_rest(offset, header, first);
        }
        bytes.truncate(header.end());
        let payload = Value::from(bytes).slice(header.payload_range());
        self.complete(offset, header, payload)
    }

    fn read_buffered(&self, offset: u64) -> Result<Option<Record>> {
        let tail = self.tail_shared();
        if offset < tail.start {
            // Flushed since the caller looked.
            return Ok(None);
        }
        let position = usize::try_from(offset - tail.start).unwrap_or(usize::MAX);
        let bytes = tail.bytes.get(position..).unwrap_or(&[]);
        match self.parse(offset, bytes)? {
            Parsed::Complete(record) => Ok(Some(record)),
            Parsed::NeedsBytes(..) => Err(self.damage(offset, "a record runs past the log's end")),
        }
    }

    fn read_rest(&self, offset: u64, header: RecordHeader, first: &[u8]) -> Result<Record> {
        let length = header.payload_bytes as usize;
        let payload_offset = offset + u64::from(header.header_bytes);
        // The header is sound, yet nothing is allocated that the log cannot hold.
        if payload_offset + length as u64 > self.end() {
            return Err(self.damage(offset, "a record runs past the log's end"));
        }
        let mut payload = Vec::with_capacity(length);
        payload.extend_from_slice(first);
        payload.resize(length, 0);
        self.file.read_exact_at(
            &mut payload[first.len()..],
            payload_offset + first.len() as u64,
        )?;
        self.complete(offset, header, Value::from(payload))
    }

    /// Decodes the record at `offset` from its first bytes, which a batched
    /// read brought.
    pub fn parse(&self, offset: u64, bytes: &[u8]) -> Result<Parsed> {
        let header = RecordHeader::decode(bytes, &self.seed, offset)
            .map_err(|reason| self.not_a_record(offset, reason))?;
        match header.payload_in(bytes) {
            None => Ok(Parsed::NeedsBytes(header, header.end())),
            Some(payload) => self
                .complete(offset, header, Value::copy_of(payload))
                .map(Parsed::Complete),
        }
    }

    /// Header and payload of the record at `offset` in bytes that a batched
    /// read brought, verified and not copied; `None` if it is longer.
    #[inline]
    pub fn parse_borrowed<'b>(
        &self,
        offset: u64,
        bytes: &'b [u8],
    ) -> Result<Option<(RecordHeader, &'b [u8])>> {
        let header = RecordHeader::decode(bytes, &self.seed, offset)
            .map_err(|reason| self.not_a_record(offset, reason))?;
        let Some(payload) = header.payload_in(bytes) else {
            return Ok(None);
        };
        header
            .check_payload(payload)
            .map_err(|reason| self.not_a_record(offset, reason))?;
        Ok(Some((header, payload)))
    }

    fn complete(&self, offset: u64, header: RecordHeader, payload: Value) -> Result<Record> {
        header
            .check_payload(&payload)
            .map_err(|reason| self.not_a_record(offset, reason))?;
        Ok(Record { header, payload })
    }

    fn not_a_record(&self, offset: u64, reason: NotARecord) -> Error {
        self.damage(offset, &reason.to_string())
    }

    fn damage(&self, offset: u64, what: &str) -> Error {
        Error::corruption(self.path(), offset, what)
    }
}
