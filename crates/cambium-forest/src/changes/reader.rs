//! Reads the records of one database file in log order.

use std::sync::Arc;

use cambium_base::{Error, Result, Value};
use cambium_storage::record::{MOST_RECORD_HEADER_BYTES, RecordHeader};

use crate::database::Database;
use crate::document::DOCUMENT_ALIGNMENT;
use crate::format::{kind, namespace_and_key};

/// Bytes of a read of the device, where the log has so many.
const WINDOW_BYTES: usize = 256 << 10;

/// A cursor over the records of a log. Memory: one window, or one longer record.
#[derive(Debug)]
pub(super) struct LogReader {
    pub database: Arc<Database>,
    /// Where the next record may begin.
    position: u64,
    /// Records of lower sessions are remains of a tail that a recovery cut off.
    highest_session: u32,
    window: Vec<u8>,
    window_start: u64,
    /// The payload of the record that was met last, unless it lies in the window.
    buffered: Option<Value>,
    /// That payload in the window.
    payload: (usize, usize),
    /// The first bytes since the last record that are no record.
    fault: Option<Error>,
}

impl LogReader {
    pub fn new(database: Arc<Database>, position: u64, session: u32) -> Self {
        LogReader {
            database,
            position,
            highest_session: session,
            window: Vec::new(),
            window_start: 0,
            buffered: None,
            payload: (0, 0),
            fault: None,
        }
    }

    /// Where the next record may begin.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes on at an offset where a record begins.
    pub fn skip_to(&mut self, position: u64) {
        self.position = position;
        self.fault = None;
    }

    /// Forgets what was read ahead: a write that was taken back may have been in it.
    pub fn forget_window(&mut self) {
        self.window.clear();
    }

    /// The payload of the record that was met last.
    pub fn payload(&self) -> &[u8] {
        match &self.buffered {
            Some(payload) => payload,
            None => &self.window[self.payload.0..self.payload.1],
        }
    }

    /// The next record, with its payload verified; `None` at the end of the log.
    ///
    /// # Errors
    /// `Corruption` where the log ends and bytes before its end are no record; those of the
    /// file system.
    pub fn next(&mut self) -> Result<Option<RecordHeader>> {
        loop {
            let written = self.database.log.written_end();
            let met = match self.position < written {
                true => self.next_written(written)?,
                false if self.position < self.database.log.end() => self.next_buffered()?,
                false => match self.fault.take() {
                    Some(fault) => return Err(fault),
                    None => return Ok(None),
                },
            };
            let Some(header) = met else { continue };
            if header.session < self.highest_session {
                self.position = self.next_block(self.position);
                continue;
            }
            self.highest_session = header.session;
            self.position += header.total_bytes(DOCUMENT_ALIGNMENT);
            if let kind @ (kind::NODES | kind::MOVED) = header.kind {
                let (database, count) = (&self.database, header.auxiliary);
                self.position = database.blocks_behind(kind, self.position, count).1;
            }
            return Ok(Some(header));
        }
    }

    /// The name of a namespace that is dropped behind the position.
    pub fn name_of_dropped(&self, number: u16) -> Result<Option<Vec<u8>>> {
        let database = self.database.clone();
        let mut ahead = LogReader::new(database, self.position, self.highest_session);
        while let Some(header) = ahead.next()? {
            let of = namespace_and_key(&header).map(|(namespace, _)| namespace);
            if header.kind == kind::NAMESPACE_DROPPED && of == Some(number) {
                return Ok(Some(ahead.payload().to_vec()));
            }
        }
        Ok(None)
    }

    /// Where the first bytes lie that are missing, for a message.
    pub fn damage(&mut self, what: String) -> Error {
        let place = self.position;
        let fault = self.fault.take();
        fault.unwrap_or_else(|| self.database.damage(place, what))
    }

    /// The record at the position in what writers have buffered.
    fn next_buffered(&mut self) -> Result<Option<RecordHeader>> {
        let record = self
            .database
            .log
            .read(self.position, MOST_RECORD_HEADER_BYTES)?;
        self.buffered = Some(record.payload);
        Ok(Some(record.header))
    }

    /// The record at the position in the file; `None` where the position has moved instead.
    fn next_written(&mut self, written: u64) -> Result<Option<RecordHeader>> {
        self.buffered = None;
        let offset = self.position;
        let to_block = (self.next_block(offset) - offset) as usize;
        self.fill(MOST_RECORD_HEADER_BYTES, written)?;
        let bytes = self.at_position();
        match RecordHeader::decode(bytes, self.database.log.seed(), offset) {
            Ok(header) => self.verified(header, written),
            // Padding may be shorter than a header.
            Err(_) if bytes[..bytes.len().min(to_block)].iter().all(|&b| b == 0) => {
                self.position = self.next_block(offset);
                Ok(None)
            }
            Err(reason) => {
                self.step_over(reason.to_string());
                Ok(None)
            }
        }
    }

    /// The same where a sound header was found.
    fn verified(&mut self, header: RecordHeader, written: u64) -> Result<Option<RecordHeader>> {
        let whole = header.end();
        if self.position.saturating_add(whole as u64) > written {
            self.step_over("a record runs past the log's end".to_string());
            return Ok(None);
        }
        self.fill(whole, written)?;
        let start = (self.position - self.window_start) as usize;
        self.payload = (start + usize::from(header.header_bytes), start + whole);
        let sound = self
            .window
            .get(self.payload.0..self.payload.1)
            .map(|payload| header.check_payload(payload));
        match sound {
            Some(Ok(())) => {
                self.fault = None;
                Ok(Some(header))
            }
            Some(Err(reason)) => {
                self.step_over(reason.to_string());
                Ok(None)
            }
            None => Err(self.database.damage(self.position, "the file ends here")),
        }
    }

    /// Goes on at the next block behind bytes that are no record: what a recovery cut off
    /// may lie there. Whether anything is missing, the next record's number shows.
    fn step_over(&mut self, reason: String) {
        let place = self.position;
        let fault = || self.database.damage(place, reason);
        self.fault = Some(self.fault.take().unwrap_or_else(fault));
        self.position = self.next_block(place);
    }

    fn next_block(&self, offset: u64) -> u64 {
        (offset + 1).next_multiple_of(self.database.log.geometry().block)
    }

    fn at_position(&self) -> &[u8] {
        let start = (self.position - self.window_start) as usize;
        self.window.get(start..).unwrap_or(&[])
    }

    /// Has at least `bytes` from the position on in the window, unless the file ends before.
    fn fill(&mut self, bytes: usize, written: u64) -> Result<()> {
        let end = self.window_start + self.window.len() as u64;
        let left = usize::try_from(written - self.position).unwrap_or(usize::MAX);
        let needed = bytes.min(left);
        if self.position >= self.window_start && self.position + needed as u64 <= end {
            return Ok(());
        }
        self.window.resize(WINDOW_BYTES.max(needed).min(left), 0);
        self.window_start = self.position;
        let file = self.database.log.file();
        let read = file.read_at(&mut self.window, self.position);
        // After a failure nothing of the window counts.
        self.window.truncate(*read.as_ref().unwrap_or(&0));
        read.map(|_| ())
    }
}
