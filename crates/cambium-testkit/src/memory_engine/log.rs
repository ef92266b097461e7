//! The log of batches.
//!
//! ```text
//! header   magic 8 │ version 4 │ store id 16 │ file number 8 │ salt 8 │ carried 8 │ base 8 │ crc 4
//! record   crc 4 │ length 4 │ first sequence 8 │ count 4 │ change × count
//! change   kind 1 (1 put, 2 delete) │ key length 4 │ key │ [value length 4 │ value]
//! ```
//!
//! Numbers are little-endian. A record's checksum covers everything behind it
//! and is seeded by the file's identity and the record's offset, so that no
//! copy of a record, in a value or in an older log, is ever taken for one. The
//! count keeps a record from being all zeros.
//!
//! Records up to `carried` are the entries that a compaction found, one each; those behind it
//! are batches. `base` is where the records end that were there when the log got its name:
//! they were synced before, so one of them that does not verify is damage.
//! Behind it, the first record that does not verify is the torn tail.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{Error, Result, SequenceNumber, Value};
use cambium_base::checksum::{ChecksumSeed, crc32c};
use cambium_base::coding::{Decoder, put_length_prefixed};
use cambium_base::{FileIdentity, FileNumber, StoreId};
use cambium_io::{Environment, File, OpenOptions};

use super::Bug;
use super::history::History;
use super::state::{Change, Moment};

const MAGIC: &[u8; 8] = b"cambmem\n";
/// The format this code writes and reads.
pub(super) const FORMAT_VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const RECORD_HEADER_BYTES: usize = 8;
const PUT: u8 = 1;
const DELETE: u8 = 2;

/// The name of the live log in a store's folder.
pub(super) const LOG_NAME: &str = "data.log";
/// The name of a log that is not live yet.
pub(super) const NEW_NAME: &str = "data.new";

/// An open log.
#[derive(Debug)]
pub(super) struct Log {
    file: Arc<dyn File>,
    identity: FileIdentity,
    seed: ChecksumSeed,
    /// Where the next record goes.
    end: u64,
    /// Records not handed to the operating system yet.
    buffer: Vec<u8>,
    bug: Option<Bug>,
}

/// What reading a log found.
pub(super) struct Recovered {
    pub(super) log: Log,
    pub(super) moment: Moment,
    /// How far the file was synced when it got its name.
    pub(super) base: u64,
    /// Where the file ends, past what was valid.
    pub(super) length: u64,
    pub(super) history: History,
}

fn encode_header(identity: &FileIdentity, carried: u64, base: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    header.extend_from_slice(&identity.store.0);
    header.extend_from_slice(&identity.number.0.to_le_bytes());
    header.extend_from_slice(&identity.salt.to_le_bytes());
    header.extend_from_slice(&carried.to_le_bytes());
    header.extend_from_slice(&base.to_le_bytes());
    let checksum = crc32c(&header);
    header.extend_from_slice(&checksum.to_le_bytes());
    header
}

fn decode_header(path: &Path, header: &[u8]) -> Result<(FileIdentity, u64, u64)> {
    let not_a_store = |what: &str| Error::NotAStore {
        path: path.to_path_buf(),
        what: what.to_string(),
    };
    if header.len() < HEADER_BYTES || header[..8] != MAGIC[..] {
        return Err(not_a_store("the log does not begin with the magic"));
    }
    let damaged = || Error::corruption(path, 0, "the header does not match its checksum");
    let mut fields = Decoder::new(&header[8..HEADER_BYTES]);
    let mut read = || {
        let version = fields.u32()?;
        let store = StoreId(fields.bytes(16)?.try_into().ok()?);
        let number = FileNumber(fields.u64()?);
        let salt = fields.u64()?;
        let carried = fields.u64()?;
        let base = fields.u64()?;
        let checksum = fields.u32()?;
        let identity = FileIdentity {
            store,
            number,
            salt,
        };
        Some((version, identity, carried, base, checksum))
    };
    let (version, identity, carried, base, checksum) = read().ok_or_else(damaged)?;
    if checksum != crc32c(&header[..HEADER_BYTES - 4]) {
        return Err(damaged());
    }
    if version > FORMAT_VERSION {
        return Err(Error::UnsupportedVersion {
            path: path.to_path_buf(),
            found: version,
            supported: FORMAT_VERSION,
        });
    }
    Ok((identity, carried, base))
}

fn encode_changes(first: SequenceNumber, changes: &[Change]) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.extend_from_slice(&first.0.to_le_bytes());
    payload.extend_from_slice(&(changes.len() as u32).to_le_bytes());
    for change in changes {
        payload.push(if change.value.is_some() { PUT } else { DELETE });
        put_length_prefixed(&mut payload, &change.key);
        if let Some(value) = &change.value {
            put_length_prefixed(&mut payload, value);
        }
    }
    payload
}

fn decode_changes(payload: &[u8]) -> Option<(SequenceNumber, Vec<Change>)> {
    let mut fields = Decoder::new(payload);
    let first = SequenceNumber(fields.u64()?);
    let count = fields.u32()?;
    let mut changes = Vec::new();
    for _ in 0..count {
        let kind = fields.u8()?;
        let key = fields.length_prefixed()?.to_vec();
        let value = match kind {
            PUT => Some(Value::copy_of(fields.length_prefixed()?)),
            DELETE => None,
            _ => return None,
        };
        changes.push(Change { key, value });
    }
    (count > 0 && fields.remaining() == 0).then_some((first, changes))
}

impl Log {
    /// Makes a log beside the live one, holding a moment and the batches behind it,
    /// durable but for its name; `store` is the id of the store, or a new one.
    pub(super) fn create(
        environment: &Environment,
        folder: &Path,
        previous: Option<&Log>,
        history: &History,
        bug: Option<Bug>,
    ) -> Result<Log> {
        let mut store = StoreId::default();
        environment.randomness.fill(&mut store.0);
        let identity = FileIdentity {
            store: previous.map_or(store, |log| log.identity.store),
            number: FileNumber(previous.map_or(1, |log| log.identity.number.0 + 1)),
            salt: environment.randomness.next_u64(),
        };
        let path = folder.join(NEW_NAME);
        let options = OpenOptions {
            truncate: true,
            ..OpenOptions::CREATE
        };
        let file = environment.file_system.open(&path, options)?;
        let mut log = Log {
            file,
            seed: ChecksumSeed::new(&identity),
            identity,
            end: HEADER_BYTES as u64,
            buffer: Vec::new(),
            bug,
        };
        // In the order of their writes, so that insertion order survives;
        // each under the number it always had.
        let moment = &history.start;
        let mut entries: Vec<_> = moment.map.iter().collect();
        entries.sort_by_key(|(_, slot)| slot.sequence);
        for (key, slot) in entries {
            let change = Change {
                key: key.clone(),
                value: Some(slot.value.clone()),
            };
            log.push_record(slot.sequence, std::slice::from_ref(&change));
        }
        // The last number may belong to a delete, which leaves no entry: an
        // entry that was never there is deleted under it.
        if moment.sequence > SequenceNumber::ZERO {
            let absent = absent_key(moment);
            log.push_record(moment.sequence, &[absent]);
        }
        let carried = log.end + log.buffer.len() as u64;
        for batch in &history.batches {
            log.push_record(batch.first, &batch.changes);
        }
        let base = log.end + log.buffer.len() as u64;
        let header = encode_header(&identity, carried, base);
        log.file.write_at(&header, 0)?;
        log.flush()?;
        if bug != Some(Bug::RenameBeforeSync) {
            log.file.sync_data()?;
        }
        Ok(log)
    }

    /// Gives the new log its live name, durably.
    pub(super) fn install(&self, environment: &Environment, folder: &Path) -> Result<()> {
        let files = &environment.file_system;
        files.rename(&folder.join(NEW_NAME), &folder.join(LOG_NAME))?;
        if self.bug != Some(Bug::FolderUnsynced) {
            files.sync_directory(folder)?;
        }
        Ok(())
    }

    /// Reads the live log up to its first record that is not valid.
    pub(super) fn read(
        environment: &Environment,
        folder: &Path,
        write: bool,
        bug: Option<Bug>,
    ) -> Result<Recovered> {
        let path: PathBuf = folder.join(LOG_NAME);
        if environment.file_system.metadata(&path)?.is_none() {
            return Err(Error::NotAStore {
                path: folder.to_path_buf(),
                what: format!("there is no {LOG_NAME}"),
            });
        }
        let options = OpenOptions {
            write,
            ..OpenOptions::READ
        };
        let file = environment.file_system.open(&path, options)?;
        let length = file.length()?;
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let (identity, carried, base) = decode_header(&path, &bytes)?;
        let mut recovered = Recovered {
            log: Log {
                file,
                seed: ChecksumSeed::new(&identity),
                identity,
                end: HEADER_BYTES as u64,
                buffer: Vec::new(),
                bug,
            },
            moment: Moment::default(),
            base,
            length,
            history: History::default(),
        };
        while recovered.log.end < carried && recovered.read_record(&bytes).is_some() {}
        recovered.history = History::beginning(recovered.moment.clone());
        while let Some((first, changes)) = recovered.read_record(&bytes) {
            recovered.history.add(first, changes);
            if recovered.log.end <= base {
                recovered.history.synced = recovered.moment.sequence;
            }
        }
        let end = recovered.log.end;
        if end < base {
            let what = format!("no valid record, in a log whose first {base} bytes were synced");
            return Err(Error::corruption(&path, end, what));
        }
        if bug == Some(Bug::TornTailKept) {
            recovered.log.end = length;
        }
        Ok(recovered)
    }

    fn record(&self, offset: u64, payload: &[u8]) -> Vec<u8> {
        let mut record = Vec::with_capacity(RECORD_HEADER_BYTES + payload.len());
        record.extend_from_slice(&[0; 4]);
        record.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        record.extend_from_slice(payload);
        let checksum = self.seed.at(offset, &record[4..]);
        record[..4].copy_from_slice(&checksum.to_le_bytes());
        record
    }

    fn push_record(&mut self, first: SequenceNumber, changes: &[Change]) {
        let offset = self.end + self.buffer.len() as u64;
        let record = self.record(offset, &encode_changes(first, changes));
        self.buffer.extend_from_slice(&record);
    }

    /// Adds a batch to the buffer.
    pub(super) fn append(&mut self, first: SequenceNumber, changes: &[Change]) {
        match self.bug {
            Some(Bug::BatchSplit) => {
                for (place, change) in changes.iter().enumerate() {
                    let sequence = SequenceNumber(first.0 + place as u64);
                    self.push_record(sequence, std::slice::from_ref(change));
                }
            }
            Some(Bug::DeleteUnlogged) => {
                let kept: Vec<Change> = changes
                    .iter()
                    .filter(|change| change.value.is_some())
                    .cloned()
                    .collect();
                if !kept.is_empty() {
                    self.push_record(first, &kept);
                }
            }
            _ => self.push_record(first, changes),
        }
    }

    /// Forgets the buffer's bytes from `length` on: a batch that was refused.
    pub(super) fn forget_from(&mut self, length: usize) {
        self.buffer.truncate(length);
    }

    /// Bytes in the buffer.
    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Hands the buffer to the operating system. After an error the file is
    /// cut back to its last good end if that can be done, and the buffer kept.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.file.write_at(&self.buffer, self.end)?;
        self.end += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Takes away what a failed write may have left behind the end.
    pub(super) fn cut_back(&self) -> Result<()> {
        self.file.set_length(self.end)
    }

    /// Writes what the log holds from `base` on once more, and answers whether it
    /// holds anything there. A sync may have failed in an earlier process: then the
    /// page cache can hold records that the device lacks and no sync writes.
    pub(super) fn rewrite(&self, base: u64) -> Result<bool> {
        if self.end <= base || self.bug == Some(Bug::CacheTrusted) {
            return Ok(false);
        }
        let mut bytes = vec![0; (self.end - base) as usize];
        self.file.read_exact_at(&mut bytes, base)?;
        self.file.write_at(&bytes, base)?;
        Ok(true)
    }

    /// Makes everything that was flushed durable.
    pub(super) fn sync(&self) -> Result<()> {
        if self.bug == Some(Bug::SyncSkipped) {
            return Ok(());
        }
        self.file.sync_data()
    }

    /// The store's id.
    pub(super) fn store(&self) -> StoreId {
        self.identity.store
    }

    /// Bytes of valid records and header.
    pub(super) fn end(&self) -> u64 {
        self.end
    }
}

/// A delete that changes nothing in `moment`.
fn absent_key(moment: &Moment) -> Change {
    let mut key = b"\0".to_vec();
    while moment.map.contains_key(&key) {
        key.push(0);
    }
    Change { key, value: None }
}

impl Recovered {
    /// Reads the record at the end so far, if there is one.
    fn read_record(&mut self, bytes: &[u8]) -> Option<(SequenceNumber, Vec<Change>)> {
        let offset = self.log.end as usize;
        let mut fields = Decoder::new(bytes.get(offset..).unwrap_or_default());
        let (checksum, payload) = (fields.u32()?, fields.length_prefixed()?);
        let end = offset + RECORD_HEADER_BYTES + payload.len();
        let valid = checksum == self.log.seed.at(offset as u64, &bytes[offset + 4..end]);
        if !valid && self.log.bug != Some(Bug::NoChecksum) {
            return None;
        }
        let (first, changes) = decode_changes(payload)?;
        // A rewritten log has gaps where entries were overwritten, never a
        // number that goes back.
        self.moment.sequence = SequenceNumber(first.0.saturating_sub(1));
        for change in &changes {
            self.moment.apply(change);
        }
        self.log.end = end as u64;
        Some((first, changes))
    }
}
