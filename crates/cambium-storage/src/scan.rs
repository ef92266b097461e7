//! Reading a log from start to end.
//!
//! Three outcomes are kept apart: a *record*; a *fault*, which is a torn tail
//! or damage (only the store, which knows what was promised, can tell); and a
//! *read error*, which fails the scan. After a fault the scan goes on at the
//! next block boundary, where a sync may have begun a new run of records
//! ([`crate::log`], invariant 2): a later record that says `synced_through`
//! proves that what is missing before it was promised.

use cambium_base::checksum::{ChecksumSeed, crc32c, crc32c_append};
use cambium_base::{Error, Result};
use cambium_io::File;

use crate::log::{LogFile, LogGeometry};
use crate::record::{MOST_RECORD_HEADER_BYTES, NotARecord, RecordHeader};

/// Bytes of a payload that come with a scanned record.
pub const PREFIX_BYTES: usize = 32;

/// Which sessions' records count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRule {
    /// Only this one's: replay after a checkpoint. Others are remains of a
    /// tail that an earlier recovery cut off.
    Only(u32),
    /// Any, but along the file never one lower than before: a whole log.
    NeverLower,
}

/// A sound record met by a scan.
#[derive(Clone, Copy, Debug)]
pub struct ScannedRecord {
    /// Where it begins.
    pub offset: u64,
    /// Its header.
    pub header: RecordHeader,
    prefix: [u8; PREFIX_BYTES],
}

impl ScannedRecord {
    /// The first bytes of the payload, up to [`PREFIX_BYTES`].
    pub fn prefix(&self) -> &[u8] {
        &self.prefix[..PREFIX_BYTES.min(self.header.payload_bytes as usize)]
    }

    /// Where its payload begins.
    pub fn payload_offset(&self) -> u64 {
        self.offset + u64::from(self.header.header_bytes)
    }
}

/// Bytes that are no record where one was expected.
#[derive(Clone, Copy, Debug)]
pub struct ScanFault {
    /// Where.
    pub offset: u64,
    /// Why.
    pub reason: NotARecord,
}

/// One step of a scan.
#[derive(Clone, Copy, Debug)]
pub enum Scanned {
    /// A sound record.
    Record(ScannedRecord),
    /// A torn tail or damage; the scan goes on after it.
    Fault(ScanFault),
}

/// A scan of one log. Memory: one window of 256 KiB, whatever the records'
/// sizes.
#[derive(Debug)]
pub struct LogScanner<'a> {
    file: &'a dyn File,
    seed: ChecksumSeed,
    geometry: LogGeometry,
    rule: SessionRule,
    highest_session: u32,
    first_remains: Option<u64>,
    position: u64,
    until: u64,
    window: Vec<u8>,
    window_start: u64,
    window_bytes: usize,
    thorough: bool,
    until_zeros: bool,
    /// Start and end of ranges that are stepped over, the next one last.
    holes: Vec<(u64, u64)>,
}

const WINDOW_BYTES: usize = 256 << 10;
/// Of a window after a place that was skipped; doubled with each read.
const LEAST_WINDOW_BYTES: usize = 4 << 10;

impl LogFile {
    /// Scans what the file has of the log, by whichever sessions, from `from`, a record's start
    /// or a block boundary, to `until` or the end of the file.
    pub fn scan(&self, from: u64, until: u64) -> Result<LogScanner<'_>> {
        let rule = SessionRule::NeverLower;
        LogScanner::new(
            &**self.file(),
            *self.seed(),
            *self.geometry(),
            rule,
            from,
            until,
        )
    }
}

impl<'a> LogScanner<'a> {
    /// Scans from `from`, a record's start or a block boundary, to `until` or
    /// the end of the file.
    pub fn new(
        file: &'a dyn File,
        seed: ChecksumSeed,
        geometry: LogGeometry,
        rule: SessionRule,
        from: u64,
        until: u64,
    ) -> Result<Self> {
        let until = until.min(file.length()?);
        Ok(LogScanner {
            file,
            seed,
            geometry,
            rule,
            highest_session: 0,
            first_remains: None,
            position: from,
            until,
            window: Vec::new(),
            thorough: false,
            until_zeros: false,
            holes: Vec::new(),
            window_start: 0,
            window_bytes: WINDOW_BYTES
                .min((until.saturating_sub(from)) as usize)
                .max(512),
        })
    }

    /// Looks for the next record behind a fault at every place where one may
    /// begin, not at block boundaries alone: for a repair, which takes all it
    /// can get.
    #[must_use]
    pub fn thorough(mut self) -> Self {
        self.thorough = true;
        self
    }

    /// Ends the scan at the first block that begins with zeros: a log that a live process
    /// appends to has no such block before its end.
    #[must_use]
    pub fn until_zeros(mut self) -> Self {
        self.until_zeros = true;
        self
    }

    /// Steps over ranges of whole records, given by start and end in ascending
    /// order: what is in them is not looked at.
    pub fn step_over(&mut self, mut ranges: Vec<(u64, u64)>) {
        ranges.reverse();
        self.holes = ranges;
    }

    /// Goes on after a range that is stepped over, if it begins here.
    fn leave_hole(&mut self) {
        while let Some(&(start, end)) = self.holes.last() {
            if start > self.position {
                return;
            }
            self.position = self.position.max(end);
            self.holes.pop();
        }
    }

    /// The highest session met; see [`LogScanner::resume_sessions`].
    pub fn highest_session(&self) -> u32 {
        self.highest_session
    }

    /// Goes on after an earlier scan of the same log that met sessions up to
    /// `highest`.
    pub fn resume_sessions(&mut self, highest: u32) {
        self.highest_session = highest;
    }

    /// Where the first record lies that does not count, of a session that the
    /// rule leaves out.
    pub fn first_remains(&self) -> Option<u64> {
        self.first_remains
    }

    /// Where the scan stands.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes on at `position`, behind bytes that the last record says are no
    /// records.
    pub fn skip_to(&mut self, position: u64) {
        self.position = self.position.max(position);
        // There may be another such place close behind.
        self.window_bytes = self.window_bytes.min(LEAST_WINDOW_BYTES);
    }

    /// Up to `length` bytes at `offset`, fewer only at the scan's end.
    fn bytes_at(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        let available = usize::try_from(self.until.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = length.min(available);
        let window_end = self.window_start + self.window.len() as u64;
        if offset < self.window_start || offset + length as u64 > window_end {
            let size = self.window_bytes.max(length).min(available);
            self.window.resize(size, 0);
            let count = self.file.read_at(&mut self.window, offset)?;
            self.window.truncate(count);
            self.window_start = offset;
            self.window_bytes = (self.window_bytes * 2).min(WINDOW_BYTES);
        }
        let start = (offset - self.window_start) as usize;
        let end = (start + length).min(self.window.len());
        Ok(&self.window[start..end])
    }

    /// The next record or fault, or `None` at the end.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Scanned>> {
        loop {
            self.leave_hole();
            if self.position >= self.until {
                return Ok(None);
            }
            let offset = self.position;
            let seed = self.seed;
            let padding = (self.next_block(offset) - offset) as usize;
            let bytes = self.bytes_at(offset, MOST_RECORD_HEADER_BYTES)?;
            let to_block = &bytes[..bytes.len().min(padding)];
            match RecordHeader::decode(bytes, &seed, offset) {
                Ok(header) => match self.record(offset, header)? {
                    Some(scanned) => return Ok(Some(scanned)),
                    None => {
                        self.first_remains = self.first_remains.or(Some(offset));
                        self.position = self.next_block(offset);
                    }
                },
                // Padding may be shorter than a header: then the header's place
                // runs into the next block's first record.
                Err(_) if to_block.iter().all(|&byte| byte == 0) => {
                    if self.until_zeros && offset % self.geometry.block == 0 {
                        return Ok(None);
                    }
                    self.position = self.next_block(offset);
                }
                Err(reason) => {
                    self.position = self.behind_fault(offset)?;
                    return Ok(Some(Scanned::Fault(ScanFault { offset, reason })));
                }
            }
        }
    }

    fn next_block(&self, offset: u64) -> u64 {
        (offset + 1).next_multiple_of(self.geometry.block)
    }

    /// Where to go on after bytes that are no record.
    fn behind_fault(&mut self, offset: u64) -> Result<u64> {
        let block = self.next_block(offset);
        if !self.thorough {
            return Ok(block);
        }
        let seed = self.seed;
        let mut place = offset + self.geometry.alignment;
        while place < block.min(self.until) {
            let bytes = self.bytes_at(place, MOST_RECORD_HEADER_BYTES)?;
            if RecordHeader::decode(bytes, &seed, place).is_ok() {
                return Ok(place);
            }
            place += self.geometry.alignment;
        }
        Ok(block)
    }

    /// True if the rule counts records of this session here.
    fn counts(&self, header: &RecordHeader) -> bool {
        match self.rule {
            SessionRule::Only(session) => header.session == session,
            SessionRule::NeverLower => header.session >= self.highest_session,
        }
    }

    /// Judges a sound header: `None` for a remainder of an earlier session.
    fn record(&mut self, offset: u64, header: RecordHeader) -> Result<Option<Scanned>> {
        if !self.counts(&header) {
            return Ok(None);
        }
        let total = header.total_bytes(self.geometry.alignment);
        let payload_end = offset + header.end() as u64;
        let prefix = match payload_end <= self.until {
            true => self.verify_payload(offset, &header)?,
            false => None,
        };
        let Some(prefix) = prefix else {
            self.position = self.behind_damaged(offset, total)?;
            let reason = NotARecord::PayloadChecksum;
            return Ok(Some(Scanned::Fault(ScanFault { offset, reason })));
        };
        self.position = offset + total;
        self.highest_session = self.highest_session.max(header.session);
        Ok(Some(Scanned::Record(ScannedRecord {
            offset,
            header,
            prefix,
        })))
    }

    /// Where to go on after a record whose payload is damaged. If it is the
    /// torn end of a tail, a recovery went on at a block within its length; if
    /// it is not, the next record follows it. What a user's value holds at a
    /// block is no record of this file: nobody knows the salt in its checksums.
    fn behind_damaged(&mut self, offset: u64, total: u64) -> Result<u64> {
        let end = offset.saturating_add(total).min(self.until);
        let seed = self.seed;
        let mut block = self.next_block(offset);
        while block < end {
            let bytes = self.bytes_at(block, MOST_RECORD_HEADER_BYTES)?;
            if RecordHeader::decode(bytes, &seed, block).is_ok() {
                return Ok(block);
            }
            block += self.geometry.block;
        }
        Ok(end)
    }

    fn verify_payload(
        &mut self,
        offset: u64,
        header: &RecordHeader,
    ) -> Result<Option<[u8; PREFIX_BYTES]>> {
        let mut prefix = [0; PREFIX_BYTES];
        let mut checksum = crc32c(&[]);
        let mut position = offset + u64::from(header.header_bytes);
        let mut left = header.payload_bytes as usize;
        let mut first = true;
        while left > 0 {
            let piece = self.bytes_at(position, left.min(WINDOW_BYTES))?;
            if piece.is_empty() {
                return Ok(None);
            }
            if first {
                let count = piece.len().min(PREFIX_BYTES);
                prefix[..count].copy_from_slice(&piece[..count]);
                first = false;
            }
            checksum = crc32c_append(checksum, piece);
            position += piece.len() as u64;
            left -= piece.len();
        }
        Ok((checksum == header.payload_checksum).then_some(prefix))
    }

    /// The payload of the record that this scan met last, where it is: `None` if it
    /// is longer than what is kept in memory. It was verified.
    pub fn payload_at_hand(&self, record: &ScannedRecord) -> Option<&[u8]> {
        let start = record.payload_offset();
        let from = usize::try_from(start.checked_sub(self.window_start)?).ok()?;
        let to = from.checked_add(record.header.payload_bytes as usize)?;
        self.window.get(from..to)
    }

    /// The payload of a record this scan met.
    pub fn payload(&mut self, record: &ScannedRecord) -> Result<Vec<u8>> {
        let start = record.payload_offset();
        let length = record.header.payload_bytes as usize;
        let window_end = self.window_start + self.window.len() as u64;
        let payload = if start >= self.window_start && start + length as u64 <= window_end {
            let from = (start - self.window_start) as usize;
            self.window[from..from + length].to_vec()
        } else {
            let mut payload = vec![0; length];
            self.file.read_exact_at(&mut payload, start)?;
            payload
        };
        record.header.check_payload(&payload).map_err(|reason| {
            Error::corruption(self.file.path(), record.offset, reason.to_string())
        })?;
        Ok(payload)
    }
}
