//! Reading one data file for the feed: forward, in large pieces.
//!
//! The file is still written to. A reader looks at entries up to a limit, the last sequence
//! number that was visible before it asked where the file ends. Bytes behind the first
//! higher number may be taken back by their writer, so they are not kept.

use std::sync::Arc;

use cambium_base::{Error, Result};
use cambium_storage::record::{MOST_RECORD_HEADER_BYTES, NotARecord, RecordHeader};

use crate::data_file::DataFile;
use crate::format::{ENTRY_PREFIX_BYTES, entry_key, kind};

/// Bytes that are read at once, where there are so many.
const PIECE_BYTES: usize = 128 << 10;
/// Bytes in which a search looks for a record.
const PROBE_BYTES: usize = 64 << 10;

/// A position in a data file.
#[derive(Debug)]
pub(super) struct FileReader {
    pub file: Arc<DataFile>,
    /// Ranges of the file that do not count.
    cuts: Vec<(u64, u64)>,
    /// Entries up to this number are copies, or come before the feed's begin.
    after: u64,
    /// The next record to look at; with a head, the head's.
    offset: u64,
    /// Records are looked at up to here.
    end: u64,
    /// How often the log had given up bytes when `end` was taken.
    log_cuts: u64,
    /// Bytes of the file from `piece_start` on.
    piece: Vec<u8>,
    piece_start: u64,
    head: Option<RecordHeader>,
}

impl FileReader {
    /// Begins with the first entry after `after`.
    pub fn new(file: Arc<DataFile>, cuts: Vec<(u64, u64)>, after: u64) -> Result<FileReader> {
        let after = after.max(file.copies_through());
        let mut reader = FileReader {
            cuts,
            after,
            offset: file.log.geometry().first_offset,
            end: 0,
            log_cuts: 0,
            piece: Vec::new(),
            piece_start: 0,
            head: None,
            file,
        };
        reader.offset = reader.find(after)?;
        Ok(reader)
    }

    /// The next entry, if it is loaded.
    pub fn head(&self) -> Option<&RecordHeader> {
        self.head.as_ref()
    }

    /// Reads the next entry again when it is asked for.
    pub fn forget_head(&mut self) {
        self.head = None;
        self.let_go();
    }

    /// True if nothing lies before the file's end.
    pub fn is_at_end(&self) -> bool {
        self.head.is_none() && self.offset >= self.file.log.end()
    }

    /// Key and value of the next entry.
    pub fn entry(&self) -> Result<(u64, &[u8])> {
        let payload = self.head.and_then(|head| head.payload_in(self.bytes()));
        let payload = payload.unwrap_or_default();
        match entry_key(payload) {
            Some(key) => Ok((key, &payload[ENTRY_PREFIX_BYTES..])),
            None => Err(self.damage("an entry without a key")),
        }
    }

    /// Passes over the next entry.
    pub fn pass(&mut self) {
        if let Some(head) = self.head.take() {
            self.offset += head.total_bytes(self.file.log.geometry().alignment);
        }
    }

    /// Looks where the file ends now. The caller has taken its limit before.
    pub fn look_again(&mut self) {
        self.log_cuts = self.file.log.cuts();
        self.end = self.file.log.end();
    }

    /// Makes the next entry the head, if there is one up to `limit`.
    pub fn load(&mut self, limit: u64) -> Result<()> {
        let geometry = *self.file.log.geometry();
        while self.head.is_none() {
            self.leave_cut();
            self.fill(MOST_RECORD_HEADER_BYTES)?;
            let bytes = self.bytes();
            if bytes.is_empty() {
                break;
            }
            let next_block = (self.offset + 1).next_multiple_of(geometry.block);
            let to_block = bytes.len().min((next_block - self.offset) as usize);
            let header = match RecordHeader::decode(bytes, self.file.log.seed(), self.offset) {
                Ok(header) => header,
                Err(_)
                    if bytes[..to_block.min(MOST_RECORD_HEADER_BYTES)]
                        .iter()
                        .all(|&b| b == 0) =>
                {
                    if !self.was_cut() {
                        self.offset = next_block;
                    }
                    continue;
                }
                Err(_) if self.was_cut() => continue,
                Err(reason) => return self.refuse(reason),
            };
            let is_entry = kind::is_entry(header.kind);
            if is_entry && header.sequence.0 > limit {
                break;
            }
            if !is_entry || header.sequence.0 <= self.after {
                self.offset += header.total_bytes(geometry.alignment);
                continue;
            }
            self.fill(header.end())?;
            let payload = header.payload_in(self.bytes());
            match payload.map(|payload| header.check_payload(payload)) {
                Some(Ok(())) => self.head = Some(header),
                _ if self.was_cut() => {}
                Some(Err(reason)) => return self.refuse(reason),
                None => return self.refuse(NotARecord::TooShort),
            }
        }
        if self.head.is_none() {
            self.let_go();
        }
        Ok(())
    }

    /// True if a write was taken back since the reader looked where the file ends: the bytes
    /// in memory may be that write's. The reader looks again, and reads them again. Entries up
    /// to the limit are in front of what was taken back, so none may be left out.
    fn was_cut(&mut self) -> bool {
        let log = &self.file.log;
        let was_cut = log.cuts() != self.log_cuts || log.end() < self.end;
        if was_cut {
            self.let_go();
            self.look_again();
        }
        was_cut
    }

    /// Bytes that are no record.
    fn refuse(&mut self, reason: NotARecord) -> Result<()> {
        self.let_go();
        Err(self.damage(&reason.to_string()))
    }

    fn damage(&self, what: &str) -> Error {
        Error::corruption(self.file.log.path(), self.offset, what)
    }

    fn let_go(&mut self) {
        self.piece = Vec::new();
    }

    /// The bytes at the offset that are in memory.
    fn bytes(&self) -> &[u8] {
        let start = self.offset.checked_sub(self.piece_start);
        let start = start.and_then(|start| usize::try_from(start).ok());
        start
            .and_then(|start| self.piece.get(start..))
            .unwrap_or_default()
    }

    /// Has so many bytes at the offset in memory, fewer only at the end.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        let have = self.bytes().len();
        let left = usize::try_from(self.end.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        if have >= wanted.min(left) {
            return Ok(());
        }
        let rest = self.piece.len() - have;
        self.piece.drain(..rest);
        self.piece_start = self.offset;
        self.piece.resize(wanted.max(PIECE_BYTES).min(left), 0);
        let log = &self.file.log;
        let read = log.read_bytes(self.offset + have as u64, &mut self.piece[have..])?;
        self.piece.truncate(have + read);
        Ok(())
    }

    fn leave_cut(&mut self) {
        for &(from, to) in &self.cuts {
            if (from..to).contains(&self.offset) {
                self.offset = to;
            }
        }
    }
}

impl FileReader {
    /// An offset before which all entries have numbers up to `after`: a search by halves,
    /// since numbers ascend along the file.
    fn find(&self, after: u64) -> Result<u64> {
        let log = &self.file.log;
        let (settled, last) = self.file.settled();
        let (mut low, mut high) = match last <= after {
            true => (settled, log.written_end()),
            false => (self.offset, settled),
        };
        while high.saturating_sub(low) > PROBE_BYTES as u64 {
            let middle = low + (high - low) / 2;
            let middle = middle.next_multiple_of(log.geometry().alignment);
            match self.probe(middle, high)? {
                Some((offset, sequence)) if sequence <= after => low = offset,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// Offset and number of the first entry that begins between two offsets. Its checksums
    /// say that it is one.
    fn probe(&self, from: u64, to: u64) -> Result<Option<(u64, u64)>> {
        let log = &self.file.log;
        let mut bytes = vec![0; PROBE_BYTES];
        let mut offset = from;
        while offset < to {
            let count = log.read_bytes(offset, &mut bytes)?;
            if count == 0 {
                return Ok(None);
            }
            let start = offset;
            // A header may go on behind what was read, unless the log ends there.
            let cut_off = match count == PROBE_BYTES {
                true => MOST_RECORD_HEADER_BYTES,
                false => 0,
            };
            let end = start + (count - cut_off) as u64;
            while offset < end.min(to) {
                let here = &bytes[(offset - start) as usize..count];
                if let Ok(header) = RecordHeader::decode(here, log.seed(), offset) {
                    let is_cut = |&(from, to): &(u64, u64)| (from..to).contains(&offset);
                    let is_entry = kind::is_entry(header.kind);
                    let counts = is_entry && !self.cuts.iter().any(is_cut);
                    if counts && log.read(offset, 4096).is_ok() {
                        return Ok(Some((offset, header.sequence.0)));
                    }
                }
                offset += log.geometry().alignment;
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::PathBuf;

    use cambium_api::{OptionValues, Seeded};
    use cambium_base::{FileNumber, SequenceNumber, StoreId};
    use cambium_io::FileSystem;
    use cambium_io::simulated::SimulatedDisk;

    use super::*;
    use crate::data_file::Home;
    use crate::format::{FileRef, entry_prefix};
    use crate::options::Shape;

    fn data_file() -> Arc<DataFile> {
        let files = SimulatedDisk::memory();
        let folder = PathBuf::from("store");
        files.create_directory(&folder).unwrap();
        let home = Home {
            file_system: Arc::new(files),
            folder,
            store: StoreId([3; 16]),
            shape: Shape::take(&mut OptionValues::default()).unwrap(),
            writable: true,
            seeded_bug: Seeded::default(),
        };
        let file = FileRef {
            number: FileNumber(1),
            salt: 2,
        };
        Arc::new(DataFile::create(&home, file, (0, 0)).unwrap())
    }

    fn append(file: &DataFile, sequence: u64) -> u64 {
        let header = RecordHeader {
            kind: kind::PUT,
            sequence: SequenceNumber(sequence),
            ..RecordHeader::default()
        };
        file.log.reserve(100).unwrap();
        let start = file
            .log
            .append(&header, &[&entry_prefix(0, 5), b"value"])
            .start;
        file.log.flush().unwrap();
        start
    }

    #[test]
    fn a_write_that_is_taken_back_hides_no_entry_in_front_of_it() {
        let file = data_file();
        append(&file, 1);
        file.log.pad_to_block();
        append(&file, 2);
        let mut reader = FileReader::new(file.clone(), Vec::new(), 0).unwrap();
        reader.look_again();
        reader.load(2).unwrap();
        reader.pass();
        let taken_back = append(&file, 3);
        file.log.cut_back(taken_back).unwrap();
        reader.load(2).unwrap();
        let head = reader.head().map(|head| head.sequence.0);
        assert_eq!(head, Some(2), "behind the zeros of a sync");
    }
}
