//! The file of batches: header, batches, end.
//!
//! Each part is followed by a CRC-32C that goes on from the one before it, so that a part
//! that is missing, repeated or moved is noticed where it happens. The end proves that
//! nothing was cut off.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{Change, ChangeBatch, KeyRange, Operation, UnixMillis};
use cambium_base::checksum::crc32c_append;
use cambium_base::coding::{Decoder, u32_at, u64_at};
use cambium_base::layout::{Layout, field};
use cambium_base::varint::{put_varint, put_varint_prefixed};
use cambium_base::{Error, Result, SequenceNumber, StoreId};
use cambium_io::{File, FileSystem, OpenOptions};

const MAGIC: [u8; 8] = *b"CMBMchng";
const FORMAT_VERSION: u32 = 1;
const TAG_BATCH: u8 = 1;
const TAG_END: u8 = 2;
const CHECKSUM_BYTES: usize = 4;
/// Handed over, or read, at once.
const PIECE_BYTES: usize = 1 << 20;

const HAS_NAMESPACE: u8 = 1;
const HAS_EXPIRY: u8 = 2;
const HAS_FROM: u8 = 4;
const HAS_TO: u8 = 8;

/// The header's layout.
pub(crate) const HEADER: Layout = Layout {
    name: "Archive of changes: header",
    about: "At offset 0 of a file `NUMBER-AFTER-THROUGH.changes` in a place of backups. A CRC-32C (4) follows each part of the file; it goes on from the one before.",
    fields: &[
        field(0, 8, "magic", "`CMBMchng`"),
        field(8, 4, "format_version", "a newer one is refused"),
        field(12, 16, "place_id", "of the place that the archive belongs to"),
        field(28, 4, "number", "of the backup"),
        field(32, 8, "after", "the sequence number after which the archive begins"),
    ],
    size: 40,
}
.checked();

/// The layout of a batch.
pub(crate) const BATCH: Layout = Layout {
    name: "Archive of changes: batch",
    about: "Followed by its changes: each a kind (1: put, 2: delete, 3: delete of a range), flags (1; bit 0: a namespace, 1: an expiry, 2: a first key of a range, 3: a key at which a range ends), then the namespace's name, the expiry in milliseconds since 1970 (8), the key and the value, or both ends of the range, as far as there are such. Texts, keys and values are preceded by their lengths as varints.",
    fields: &[
        field(0, 1, "tag", "1"),
        field(1, 8, "first", "the number of its first entry"),
        field(9, 8, "last", "the number of its last entry"),
        field(17, 8, "bytes", "of the changes"),
    ],
    size: 25,
}
.checked();

/// The end's layout.
pub(crate) const END: Layout = Layout {
    name: "Archive of changes: end",
    about: "Behind the last batch; nothing follows its checksum.",
    fields: &[
        field(0, 1, "tag", "2"),
        field(1, 8, "through", "the last sequence number in the archive"),
        field(9, 8, "taken", "milliseconds since 1970"),
        field(17, 8, "batches", "how many there are"),
    ],
    size: 25,
}
.checked();

/// What an archive's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub place: StoreId,
    pub number: u32,
    pub after: SequenceNumber,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.place.0);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.after.0.to_le_bytes());
        bytes
    }
}

/// Writes an archive.
pub(crate) struct ArchiveWriter {
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    written: u64,
    checksum: u32,
    batches: u64,
    through: SequenceNumber,
}

impl ArchiveWriter {
    pub fn create(files: &dyn FileSystem, path: &Path, header: &Header) -> Result<Self> {
        let file = files.open(
            path,
            OpenOptions {
                truncate: true,
                ..OpenOptions::CREATE
            },
        )?;
        let mut writer = ArchiveWriter {
            file,
            buffer: Vec::new(),
            written: 0,
            checksum: 0,
            batches: 0,
            through: header.after,
        };
        writer.part(&header.encode())?;
        Ok(writer)
    }

    /// The last sequence number in it.
    pub fn through(&self) -> SequenceNumber {
        self.through
    }

    /// True while it has no batch.
    pub fn is_empty(&self) -> bool {
        self.batches == 0
    }

    pub fn add(&mut self, batch: &ChangeBatch) -> Result<()> {
        let mut changes = Vec::new();
        for change in &batch.changes {
            encode_change(&mut changes, change);
        }
        let mut bytes = vec![TAG_BATCH];
        bytes.extend_from_slice(&batch.first.0.to_le_bytes());
        bytes.extend_from_slice(&batch.last.0.to_le_bytes());
        bytes.extend_from_slice(&(changes.len() as u64).to_le_bytes());
        bytes.append(&mut changes);
        self.through = batch.last;
        self.batches += 1;
        self.part(&bytes)
    }

    /// Ends the archive, and makes it durable but for its name. Answers its bytes.
    pub fn finish(mut self, taken: UnixMillis) -> Result<u64> {
        let mut bytes = vec![TAG_END];
        for number in [self.through.0, taken.0, self.batches] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.part(&bytes)?;
        self.hand_over()?;
        self.file.sync_data()?;
        Ok(self.written)
    }

    fn part(&mut self, bytes: &[u8]) -> Result<()> {
        self.checksum = crc32c_append(self.checksum, bytes);
        self.buffer.extend_from_slice(bytes);
        self.buffer.extend_from_slice(&self.checksum.to_le_bytes());
        match self.buffer.len() >= PIECE_BYTES {
            true => self.hand_over(),
            false => Ok(()),
        }
    }

    fn hand_over(&mut self) -> Result<()> {
        self.file.write_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

fn encode_change(to: &mut Vec<u8>, change: &Change) {
    let (kind, range_flags) = match &change.operation {
        Operation::Put { .. } => (1, 0),
        Operation::Delete { .. } => (2, 0),
        Operation::DeleteRange { range } => {
            let from = range.from.as_ref().map_or(0, |_| HAS_FROM);
            (3, from | range.to.as_ref().map_or(0, |_| HAS_TO))
        }
    };
    let namespace = change.namespace.as_ref().map_or(0, |_| HAS_NAMESPACE);
    let expiry = change.expires.map_or(0, |_| HAS_EXPIRY);
    to.extend_from_slice(&[kind, namespace | expiry | range_flags]);
    if let Some(name) = &change.namespace {
        put_varint_prefixed(to, name.as_bytes());
    }
    if let Some(expires) = change.expires {
        to.extend_from_slice(&expires.0.to_le_bytes());
    }
    match &change.operation {
        Operation::Put { key, value } => {
            put_varint_prefixed(to, key);
            put_varint(to, value.len() as u64);
            to.extend_from_slice(value);
        }
        Operation::Delete { key } => put_varint_prefixed(to, key),
        Operation::DeleteRange { range } => {
            for end in [&range.from, &range.to].into_iter().flatten() {
                put_varint_prefixed(to, end);
            }
        }
    }
}

fn decode_change(decoder: &mut Decoder<'_>) -> Option<Change> {
    let (kind, flags) = (decoder.u8()?, decoder.u8()?);
    let has = |flag: u8| flags & flag != 0;
    let namespace = match has(HAS_NAMESPACE) {
        true => Some(std::str::from_utf8(decoder.varint_prefixed()?).ok()?.into()),
        false => None,
    };
    let expires = match has(HAS_EXPIRY) {
        true => Some(UnixMillis(decoder.u64()?)),
        false => None,
    };
    let operation = match kind {
        1 => Operation::Put {
            key: decoder.varint_prefixed()?.to_vec(),
            value: decoder.varint_prefixed()?.to_vec(),
        },
        2 => Operation::Delete {
            key: decoder.varint_prefixed()?.to_vec(),
        },
        3 => {
            let mut end = |flag: u8| -> Option<Option<Vec<u8>>> {
                match has(flag) {
                    true => Some(Some(decoder.varint_prefixed()?.to_vec())),
                    false => Some(None),
                }
            };
            let (from, to) = (end(HAS_FROM)?, end(HAS_TO)?);
            Operation::DeleteRange {
                range: KeyRange { from, to },
            }
        }
        _ => return None,
    };
    Some(Change {
        namespace,
        operation,
        expires,
    })
}

/// Reads an archive from start to end.
pub(crate) struct ArchiveReader {
    file: Arc<dyn File>,
    length: u64,
    /// Bytes from `start` on.
    buffer: Vec<u8>,
    start: u64,
    position: u64,
    checksum: u32,
    batches: u64,
    through: SequenceNumber,
}

impl ArchiveReader {
    /// Opens an archive, and verifies its header.
    pub fn open(files: &dyn FileSystem, path: &Path, expected: &Header) -> Result<Self> {
        let file = files.open(path, OpenOptions::READ)?;
        let length = file.length()?;
        let mut reader = ArchiveReader {
            file,
            length,
            buffer: Vec::new(),
            start: 0,
            position: 0,
            checksum: 0,
            batches: 0,
            through: expected.after,
        };
        let bytes = reader.part(HEADER.size as u64)?;
        let version = u32_at(&bytes, 8);
        if bytes[..8] == MAGIC && version > FORMAT_VERSION {
            let what = format!(
                "format version {version}; this program reads versions up to {FORMAT_VERSION}"
            );
            return Err(Error::InvalidArgument(format!(
                "{}: {what}",
                path.display()
            )));
        }
        if bytes != expected.encode() {
            return Err(reader.damage(0, "the header is of another archive"));
        }
        Ok(reader)
    }

    /// The next batch; `None` at the end, which was verified then.
    pub fn next(&mut self) -> Result<Option<ChangeBatch>> {
        let at = self.position;
        let tag = self.ahead(1)?.first().copied();
        match tag {
            Some(TAG_BATCH) => self.batch().map(Some),
            Some(TAG_END) => self.end(at).map(|()| None),
            _ => Err(self.damage(at, "expected a batch, or the end")),
        }
    }

    fn batch(&mut self) -> Result<ChangeBatch> {
        let at = self.position;
        let head = self.ahead(BATCH.size as u64)?;
        let (first, last) = (u64_at(head, 1), u64_at(head, 9));
        let bytes = u64_at(head, 17);
        let whole = bytes.checked_add(BATCH.size as u64);
        let whole = whole.filter(|&whole| whole <= self.length);
        let Some(whole) = whole else {
            return Err(self.damage(at, "the archive ends within a batch"));
        };
        let part = self.part(whole)?;
        if first <= self.through.0 || last < first {
            return Err(self.damage(at, "a batch that does not follow the one before"));
        }
        let mut decoder = Decoder::new(&part[BATCH.size..]);
        let mut changes = Vec::new();
        while decoder.remaining() > 0 {
            let Some(change) = decode_change(&mut decoder) else {
                return Err(self.damage(at, "a batch of no format known here"));
            };
            changes.push(change);
        }
        self.through = SequenceNumber(last);
        self.batches += 1;
        Ok(ChangeBatch {
            first: SequenceNumber(first),
            last: self.through,
            synced: true,
            changes,
        })
    }

    fn end(&mut self, at: u64) -> Result<()> {
        let part = self.part(END.size as u64)?;
        let is_it = u64_at(&part, 1) == self.through.0 && u64_at(&part, 17) == self.batches;
        match is_it && self.position == self.length {
            true => Ok(()),
            false => Err(self.damage(at, "the end is not that of these batches")),
        }
    }

    /// The next part, verified.
    fn part(&mut self, bytes: u64) -> Result<Vec<u8>> {
        let at = self.position;
        let part = self.ahead(bytes)?.to_vec();
        self.position += bytes;
        let stored = u32_at(self.ahead(CHECKSUM_BYTES as u64)?, 0);
        self.position += CHECKSUM_BYTES as u64;
        self.checksum = crc32c_append(self.checksum, &part);
        match self.checksum == stored {
            true => Ok(part),
            false => Err(self.damage(at, "a part that does not match its checksum")),
        }
    }

    /// Bytes from here on.
    fn ahead(&mut self, bytes: u64) -> Result<&[u8]> {
        if self.position + bytes > self.length {
            return Err(self.damage(self.length, "the archive ends here, and its end is missing"));
        }
        if self.position + bytes > self.start + self.buffer.len() as u64 {
            let wanted = bytes.max(PIECE_BYTES as u64) as usize;
            self.buffer = self.file.read_vec_at(self.position, wanted)?;
            self.start = self.position;
        }
        let from = (self.position - self.start) as usize;
        let path = self.file.path();
        let ahead = self.buffer.get(from..from + bytes as usize);
        ahead.ok_or_else(|| Error::corruption(path, self.length, "the archive became shorter"))
    }

    fn damage(&self, offset: u64, what: &str) -> Error {
        Error::corruption(self.file.path(), offset, what)
    }
}

/// When an archive was taken, as its end says; the end's checksum is verified with the rest.
pub(crate) fn read_taken(
    files: &dyn FileSystem,
    path: &Path,
    through: SequenceNumber,
) -> Result<UnixMillis> {
    let file = files.open(path, OpenOptions::READ)?;
    let length = file.length()?;
    let end = (END.size + CHECKSUM_BYTES) as u64;
    let mut bytes = vec![0; END.size];
    let at = length.saturating_sub(end);
    file.read_exact_at(&mut bytes, at)?;
    if bytes[0] != TAG_END || u64_at(&bytes, 1) != through.0 {
        return Err(Error::corruption(path, at, "the archive has no end"));
    }
    Ok(UnixMillis(u64_at(&bytes, 9)))
}
