//! The manifest: a log of edits, each of which makes a new version.
//!
//! ```text
//! ┌ header block ┬ base edit │ padding ┬ edit │ padding ┬ edit │ padding ┬ zeros …
//! └──────────────┴─────────────────────┴────────────────┴────────────────┘
//! ```
//!
//! It is a log of `cambium_storage::log` with one record an edit. Every edit is
//! synced before the next one is written, and before anybody believes it; the
//! tables that it names were synced before, and their folder. The record's
//! sequence number counts edits; each says that all before it are durable, so a
//! hole is damage and never a torn end.
//!
//! A manifest is written by one opening alone. The first edit of another one
//! begins a new manifest with a *base*: everything that the old one came to, and
//! the owner's full note. Then the superblock names the new one, in both copies,
//! and only then the old one goes. A manifest that has grown is replaced in the
//! same way.
//!
//! The end of a manifest can be torn, and damage there looks the same. So before
//! anything is done that cannot be taken back (a table is removed), the
//! superblock says how many edits there are ([`Manifest::confirm`]). It says so too after an
//! edit that keeps, releases or installs a version, which no log can repeat.

use std::path::Path;
use std::sync::Arc;

use cambium_base::coding::Decoder;
use cambium_base::varint::{put_varint, put_varint_prefixed};
use cambium_base::{Error, FileIdentity, FileNumber, Result, SequenceNumber};
use cambium_io::OpenOptions;
use cambium_storage::file_header::FileHeader;
use cambium_storage::log::{LogFile, LogGeometry};
use cambium_storage::record::RecordHeader;
use cambium_storage::superblock::Superblock;

use crate::format::{EDIT, FORMAT_VERSION, LEVELS, MANIFEST_MAGIC, Root, manifest_name};
use crate::seeded_bug::SeededBug;
use crate::tree::Context;
use crate::version::{KeyRange, TableMetadata, UpperBound};

/// The kind of an edit's record.
pub(crate) const EDIT_RECORD: u8 = 1;
/// The session of every record: a manifest is written by one opening.
pub(crate) const SESSION: u32 = 1;
const BLOCK_BYTES: u64 = 4096;
/// A manifest that is smaller is never replaced while it is written.
const LEAST_REPLACED_BYTES: u64 = 4 << 20;

/// The units of a manifest.
pub(crate) const GEOMETRY: LogGeometry = LogGeometry {
    alignment: 8,
    block: BLOCK_BYTES,
    first_offset: BLOCK_BYTES,
    least_growth: 16 << 10,
    most_growth: 1 << 20,
    window: 0,
};

/// One change of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    /// Everything before is forgotten.
    pub base: bool,
    pub next_file: u64,
    pub flushed: u64,
    pub comparator: Option<String>,
    pub filter: Option<String>,
    /// Level and table.
    pub added: Vec<(usize, TableMetadata)>,
    /// Level and number.
    pub removed: Vec<(usize, u64)>,
    /// The kept version of this name becomes the tree's.
    pub installed: Option<String>,
    /// The version that the edit makes is kept under this name.
    pub keep: Option<String>,
    /// The kept version of this name is no longer kept.
    pub released: Option<String>,
    /// Kept versions, by name: those that a base begins with.
    pub kept: Vec<(String, Vec<(usize, TableMetadata)>)>,
    pub note: Vec<u8>,
}

impl Edit {
    /// True if it changes which versions are kept, or goes back to one.
    pub fn changes_kept(&self) -> bool {
        self.installed.is_some() || self.keep.is_some() || self.released.is_some()
    }

    /// The edit's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.base)];
        bytes.extend_from_slice(&self.next_file.to_le_bytes());
        bytes.extend_from_slice(&self.flushed.to_le_bytes());
        debug_assert_eq!(bytes.len(), EDIT.size);
        for (tag, name) in [(1, &self.comparator), (2, &self.filter)] {
            if let Some(name) = name {
                bytes.push(tag);
                put_varint_prefixed(&mut bytes, name.as_bytes());
            }
        }
        for (level, table) in &self.added {
            bytes.push(3);
            put_varint(&mut bytes, *level as u64);
            encode_table(&mut bytes, table);
        }
        for (level, number) in &self.removed {
            bytes.push(4);
            put_varint(&mut bytes, *level as u64);
            put_varint(&mut bytes, *number);
        }
        if self.base || !self.note.is_empty() {
            bytes.push(5);
            put_varint_prefixed(&mut bytes, &self.note);
        }
        let names = [(6, &self.installed), (7, &self.keep), (8, &self.released)];
        for (tag, name) in names {
            if let Some(name) = name {
                bytes.push(tag);
                put_varint_prefixed(&mut bytes, name.as_bytes());
            }
        }
        for (name, tables) in &self.kept {
            bytes.push(9);
            put_varint_prefixed(&mut bytes, name.as_bytes());
            put_varint(&mut bytes, tables.len() as u64);
            for (level, table) in tables {
                put_varint(&mut bytes, *level as u64);
                encode_table(&mut bytes, table);
            }
        }
        bytes
    }

    /// Decodes an edit; `None` if the bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let mut edit = Edit {
            base: match decoder.u8()? {
                0 => false,
                1 => true,
                _ => return None,
            },
            next_file: decoder.u64()?,
            flushed: decoder.u64()?,
            ..Edit::default()
        };
        while decoder.remaining() > 0 {
            match decoder.u8()? {
                1 => edit.comparator = Some(decode_name(&mut decoder)?),
                2 => edit.filter = Some(decode_name(&mut decoder)?),
                3 => {
                    let level = decode_level(&mut decoder)?;
                    edit.added.push((level, decode_table(&mut decoder)?));
                }
                4 => {
                    let level = decode_level(&mut decoder)?;
                    edit.removed.push((level, decoder.varint()?));
                }
                5 => edit.note = decoder.varint_prefixed()?.to_vec(),
                6 => edit.installed = Some(decode_name(&mut decoder)?),
                7 => edit.keep = Some(decode_name(&mut decoder)?),
                8 => edit.released = Some(decode_name(&mut decoder)?),
                9 => {
                    let name = decode_name(&mut decoder)?;
                    edit.kept.push((name, decode_tables(&mut decoder)?));
                }
                _ => return None,
            }
        }
        Some(edit)
    }
}

fn decode_name(decoder: &mut Decoder<'_>) -> Option<String> {
    let bytes = decoder.varint_prefixed()?;
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

fn decode_level(decoder: &mut Decoder<'_>) -> Option<usize> {
    let level = usize::try_from(decoder.varint()?).ok()?;
    (level < LEVELS).then_some(level)
}

fn decode_tables(decoder: &mut Decoder<'_>) -> Option<Vec<(usize, TableMetadata)>> {
    let count = decoder.varint()?;
    let mut tables = Vec::new();
    for _ in 0..count {
        let level = decode_level(decoder)?;
        tables.push((level, decode_table(decoder)?));
    }
    Some(tables)
}

fn encode_table(bytes: &mut Vec<u8>, table: &TableMetadata) {
    put_varint(bytes, table.number);
    bytes.extend_from_slice(&table.salt.to_le_bytes());
    for number in [
        table.bytes,
        table.entries,
        table.deletes,
        table.range_tombstones,
        table.smallest_sequence,
        table.largest_sequence,
    ] {
        put_varint(bytes, number);
    }
    bytes.push(u8::from(table.has_versions) << 1);
    put_varint_prefixed(bytes, &table.range.smallest);
    let (kind, key): (u8, &[u8]) = match &table.range.upper {
        UpperBound::Inclusive(key) => (0, key),
        UpperBound::Exclusive(key) => (1, key),
        UpperBound::None => (2, &[]),
    };
    bytes.push(kind);
    put_varint_prefixed(bytes, key);
}

fn decode_table(decoder: &mut Decoder<'_>) -> Option<TableMetadata> {
    let (number, salt) = (decoder.varint()?, decoder.u64()?);
    let (bytes, entries, deletes) = (decoder.varint()?, decoder.varint()?, decoder.varint()?);
    let range_tombstones = decoder.varint()?;
    let (smallest_sequence, largest_sequence) = (decoder.varint()?, decoder.varint()?);
    let flags = decoder.u8().filter(|flags| *flags < 4)?;
    let smallest = decoder.varint_prefixed()?.to_vec();
    let kind = decoder.u8()?;
    let key = decoder.varint_prefixed()?.to_vec();
    let upper = match kind {
        0 => UpperBound::Inclusive(key),
        1 => UpperBound::Exclusive(key),
        2 => UpperBound::None,
        _ => return None,
    };
    Some(TableMetadata {
        number,
        salt,
        bytes,
        entries,
        deletes,
        range_tombstones,
        smallest_sequence,
        largest_sequence,
        range: KeyRange { smallest, upper },
        has_versions: flags & 2 != 0,
    })
}

/// Decodes any bytes as an edit; for tests of decoders.
#[doc(hidden)]
pub fn decode_edit_bytes(bytes: &[u8]) -> bool {
    Edit::decode(bytes).is_some_and(|edit| Edit::decode(&edit.encode()) == Some(edit))
}

/// The manifest that edits go to.
#[derive(Debug)]
pub(crate) struct Manifest {
    superblock: Superblock,
    /// What the superblock says.
    root: Root,
    /// The log, once this opening has begun one.
    log: Option<Arc<LogFile>>,
    /// Edits in it.
    edits: u64,
    /// Bytes of it when it had its base alone.
    base_end: u64,
    /// Numbers of manifests that do not count any more.
    old: Vec<u64>,
}

impl Manifest {
    /// Goes on from what the superblock says; begins a new manifest with the
    /// first edit.
    pub fn resume(superblock: Superblock, root: Root, edits: u64) -> Self {
        Manifest {
            superblock,
            root,
            log: None,
            edits,
            base_end: 0,
            old: Vec::new(),
        }
    }

    /// The first manifest of a tree, with its superblock.
    pub fn create(context: &Context, base: &Edit) -> Result<Self> {
        let (log, root) = begin(context, base)?;
        let superblock = Superblock::create(
            &context.environment.file_system,
            &context.folder,
            context.store,
            FORMAT_VERSION,
            &root.encode(),
        )?;
        context
            .environment
            .file_system
            .sync_directory(&context.folder)?;
        Ok(Manifest {
            superblock,
            root,
            base_end: log.end(),
            log: Some(log),
            edits: 1,
            old: Vec::new(),
        })
    }

    /// The number of the manifest that counts.
    pub fn number(&self) -> u64 {
        self.root.manifest
    }

    /// True if the next edit should be preceded by a new manifest.
    pub fn needs_base(&self) -> bool {
        match &self.log {
            None => true,
            Some(log) => log.end() > LEAST_REPLACED_BYTES.max(self.base_end * 4),
        }
    }

    /// Begins a new manifest with a base. A full disk changes nothing.
    pub fn replace(&mut self, context: &Context, base: &Edit) -> Result<(), AppendFailure> {
        let (log, root) = begin(context, base).map_err(AppendFailure::of)?;
        // Both copies: neither may name the old one when it goes. After an error,
        // lack of space included, a copy may name the new manifest and count: the
        // tree must neither go on with the old one nor remove the new one.
        if let Err(error) = self.superblock.write_both(&root.encode()) {
            if !context.options.has_bug(SeededBug::NamedManifestRemoved) {
                return Err(AppendFailure::Final(error));
            }
            _ = context.environment.file_system.remove(log.path());
            return Err(AppendFailure::of(error));
        }
        self.old.push(self.root.manifest);
        self.root = root;
        self.edits = 1;
        self.base_end = log.end();
        self.log = Some(log);
        let file_system = &context.environment.file_system;
        // What cannot be removed is unknown to the tree from now on, and goes
        // with other such files.
        for number in std::mem::take(&mut self.old) {
            _ = file_system.remove(&context.folder.join(manifest_name(number)));
        }
        Ok(())
    }

    /// Appends an edit and syncs it (`synced` is false for a seeded bug): it
    /// counts when this returns. `NoSpace` of anything but a sync changes
    /// nothing.
    pub fn append(&mut self, edit: &Edit, synced: bool) -> Result<(), AppendFailure> {
        let Some(log) = self.log.clone() else {
            let what = "an edit without a manifest of this opening".to_owned();
            return Err(AppendFailure::Final(Error::InvalidArgument(what)));
        };
        let payload = edit.encode();
        let before = log.end();
        log.reserve(payload.len() as u64 + BLOCK_BYTES)
            .map_err(AppendFailure::of)?;
        append_record(&log, self.edits + 1, &payload);
        if let Err(error) = log.flush() {
            return Err(match log.cut_back(before) {
                Ok(()) => AppendFailure::of(error),
                Err(_) => AppendFailure::Final(error),
            });
        }
        if synced {
            log.sync().map_err(AppendFailure::Final)?;
        }
        self.edits += 1;
        Ok(())
    }

    /// Has the superblock say how many edits there are: from then on a manifest
    /// with fewer is damaged.
    pub fn confirm(&mut self) -> Result<()> {
        match self.root.edits == self.edits {
            true => Ok(()),
            false => self.confirm_by(Superblock::write),
        }
    }

    /// As [`Manifest::confirm`], in both copies: at a clean end.
    pub fn confirm_both(&mut self) -> Result<()> {
        self.confirm_by(Superblock::write_both)
    }

    fn confirm_by(&mut self, write: fn(&mut Superblock, &[u8]) -> Result<()>) -> Result<()> {
        if self.log.is_none() {
            return Ok(());
        }
        let root = Root {
            edits: self.edits,
            ..self.root
        };
        write(&mut self.superblock, &root.encode())?;
        self.root = root;
        Ok(())
    }
}

/// Why an edit was not appended.
#[derive(Debug)]
pub(crate) enum AppendFailure {
    /// The disk is full; nothing was changed.
    Full(Error),
    /// What the manifest holds is not known any more.
    Final(Error),
}

impl AppendFailure {
    fn of(error: Error) -> Self {
        if error.is_no_space() {
            AppendFailure::Full(error)
        } else {
            AppendFailure::Final(error)
        }
    }
}

fn append_record(log: &LogFile, number: u64, payload: &[u8]) {
    let header = RecordHeader {
        kind: EDIT_RECORD,
        sequence: SequenceNumber(number),
        synced_through: SequenceNumber(number - 1),
        session: SESSION,
        ..RecordHeader::default()
    };
    log.append(&header, &[payload]);
    log.pad_to_block();
}

/// Writes a new manifest with a base, and makes it and its name durable.
fn begin(context: &Context, base: &Edit) -> Result<(Arc<LogFile>, Root)> {
    let number = context.new_file_number();
    let base = Edit {
        next_file: base.next_file.max(number + 1),
        ..base.clone()
    };
    let path = context.folder.join(manifest_name(number));
    let result = write_base(context, number, &path, &base);
    if result.is_err() {
        _ = context.environment.file_system.remove(&path);
    }
    result
}

fn write_base(
    context: &Context,
    number: u64,
    path: &Path,
    base: &Edit,
) -> Result<(Arc<LogFile>, Root)> {
    let file_system = &context.environment.file_system;
    let identity = FileIdentity {
        store: context.store,
        number: FileNumber(number),
        salt: context.environment.randomness.next_u64(),
    };
    let file = file_system.open(path, OpenOptions::CREATE_NEW)?;
    let header = FileHeader::new(MANIFEST_MAGIC, FORMAT_VERSION, BLOCK_BYTES as u32, identity);
    let mut first_block = header.encode().to_vec();
    first_block.resize(BLOCK_BYTES as usize, 0);
    file.write_at(&first_block, 0)?;
    let log = LogFile::new(file, &identity, GEOMETRY, GEOMETRY.first_offset)?;
    let payload = base.encode();
    log.reserve(payload.len() as u64 + BLOCK_BYTES)?;
    append_record(&log, 1, &payload);
    log.flush()?;
    log.sync()?;
    file_system.sync_directory(&context.folder)?;
    let root = Root {
        manifest: number,
        salt: identity.salt,
        edits: 1,
    };
    Ok((Arc::new(log), root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_reads_back_and_a_cut_one_is_refused_or_shorter() {
        let table = |number, upper| TableMetadata {
            number,
            salt: 99,
            bytes: 1 << 40,
            entries: 5,
            deletes: 1,
            range_tombstones: 2,
            smallest_sequence: 3,
            largest_sequence: u64::MAX,
            range: KeyRange {
                smallest: b"a".to_vec(),
                upper,
            },
            has_versions: number == 2,
        };
        let edit = Edit {
            base: true,
            next_file: 12,
            flushed: 77,
            comparator: Some("bytes".to_owned()),
            filter: Some(String::new()),
            added: vec![
                (0, table(1, UpperBound::None)),
                (6, table(2, UpperBound::Inclusive(b"z".to_vec()))),
                (3, table(2, UpperBound::Exclusive(Vec::new()))),
            ],
            removed: vec![(1, 8)],
            installed: Some("monday".to_owned()),
            keep: Some("tuesday".to_owned()),
            released: Some("sunday".to_owned()),
            kept: vec![
                ("monday".to_owned(), vec![(5, table(3, UpperBound::None))]),
                ("empty".to_owned(), Vec::new()),
            ],
            note: b"note".to_vec(),
        };
        let bytes = edit.encode();
        assert_eq!(Edit::decode(&bytes), Some(edit.clone()));
        for length in 0..bytes.len() {
            assert_ne!(Edit::decode(&bytes[..length]), Some(edit.clone()));
        }
        let mut wrong = bytes.clone();
        wrong[0] = 2;
        assert_eq!(Edit::decode(&wrong), None);
    }
}
