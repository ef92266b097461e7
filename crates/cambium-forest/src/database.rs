//! A database file: the log of documents, nodes and headers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::Seeded;
use cambium_base::{Error, FileIdentity, Result, SequenceNumber, StoreId, Value};
use cambium_index::NodeAddress;
use cambium_io::cache::CachedFile;
use cambium_io::sync::OnceLock;
use cambium_io::sync::atomic::AtomicU64;
use cambium_io::{
    Alignment, BlockCache, DirectFile, Environment, File, FileLock, FileSystem, OpenOptions,
};
use cambium_storage::file_header::FileHeader;
use cambium_storage::log::{LogFile, Parsed, Record};
use cambium_storage::record::{MOST_RECORD_HEADER_BYTES, RecordHeader};

use crate::cleaning::Marks;
use crate::document::{DocumentAddress, OFFSET_LIMIT, PACKED_BLOCK_BYTES};
use crate::format::{self, FORMAT_VERSION, FileRef, MAGIC, kind};
use crate::node_space::NodeSpace;
use crate::options::{Shape, Tuning};
use crate::packed_block::PackedBlock;
use crate::seeded_bug::SeededBug;

/// The message where an address leads to no document.
pub(crate) const NO_DOCUMENT: &str = "the index points here, and this is no document";

/// Where a store's files are, and whether they may be changed.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub file_system: Arc<dyn FileSystem>,
    pub folder: PathBuf,
    pub store: StoreId,
    /// False for a check, which opens nothing for writing.
    pub writable: bool,
    /// Where blocks of its files are cached.
    pub cache: Arc<BlockCache>,
}

impl Home {
    /// The files of a store in a folder.
    pub fn new(
        environment: &Environment,
        folder: &Path,
        store: StoreId,
        writable: bool,
        tuning: &Tuning,
    ) -> Home {
        Home {
            file_system: environment.file_system.clone(),
            folder: folder.to_path_buf(),
            store,
            writable,
            cache: tuning.cache_of(environment),
        }
    }

    /// A file's identity in this store.
    pub fn identity(&self, file: FileRef) -> FileIdentity {
        FileIdentity {
            store: self.store,
            number: file.number,
            salt: file.salt,
        }
    }
}

/// An open database file. Views hold it, so that a snapshot goes on reading it
/// when a compaction has taken its name away.
#[derive(Debug)]
pub(crate) struct Database {
    /// Its records.
    pub log: LogFile,
    /// What batched reads are sent to; they keep to what it demands.
    pub batched: Arc<dyn File>,
    /// Its number and salt.
    pub file: FileRef,
    /// What was fixed when the store was made.
    pub shape: Shape,
    /// Its nodes that are cached, by their addresses.
    pub nodes: CachedFile,
    /// Its blocks with documents that are cached.
    pub documents: CachedFile,
    /// Payloads of its packed blocks that are cached, by their numbers.
    pub packed: CachedFile,
    /// Places where a cleaning may end.
    pub marks: Marks,
    /// Blocks that the next flush writes its nodes to.
    pub node_space: NodeSpace,
    /// Where the newest header lies; 0 while there is none.
    pub newest_header: AtomicU64,
    /// The log has every change after this write.
    pub changes_from: AtomicU64,
    /// The last write in it, once another file has taken its place.
    last_write: OnceLock<u64>,
    /// Where the store was opened for reading alone: while it is held, the process that
    /// writes the store gives no part of the file back.
    pub reader_lock: OnceLock<Box<dyn FileLock>>,
    pub seeded_bug: Seeded<SeededBug>,
}

/// The blocks of a run of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunExtent {
    pub first: NodeAddress,
    pub count: u32,
}

/// A document that was read and verified.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub namespace: u16,
    /// The write that made it.
    pub sequence: u64,
    pub key: Value,
    pub value: Value,
}

impl Document {
    /// The same where it lies.
    pub fn bytes(&self) -> DocumentBytes<'_> {
        DocumentBytes {
            namespace: self.namespace,
            sequence: self.sequence,
            key: &self.key,
            value: &self.value,
        }
    }
}

/// A verified document where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DocumentBytes<'b> {
    pub namespace: u16,
    /// The write that made it.
    pub sequence: u64,
    pub key: &'b [u8],
    pub value: &'b [u8],
}

impl DocumentBytes<'_> {
    /// True for a version of a key that there was at a moment.
    pub fn is_of(&self, namespace: u16, key: &[u8], sequence: u64) -> bool {
        self.namespace == namespace && self.sequence <= sequence && self.key == key
    }
}

/// How a database file is read and written.
struct Handles {
    /// At any place.
    file: Arc<dyn File>,
    /// By queues: the same, or the direct handle below it.
    batched: Arc<dyn File>,
}

impl Handles {
    fn open(home: &Home, path: &Path, options: OpenOptions, tuning: &Tuning) -> Result<Handles> {
        if !tuning.direct {
            let file = home.file_system.open(path, options)?;
            return Ok(Handles {
                batched: file.clone(),
                file,
            });
        }
        let direct = home.file_system.open(path, options.direct())?;
        Ok(Handles {
            file: Arc::new(DirectFile::new(direct.clone())),
            batched: direct,
        })
    }
}

impl Database {
    /// Makes a new file with its header, not yet synced.
    pub fn create(home: &Home, file: FileRef, shape: &Shape, tuning: &Tuning) -> Result<Database> {
        let path = format::database_path(&home.folder, file.number);
        Self::create_at(home, &path, file, shape, tuning)
    }

    /// The same under another name.
    pub fn create_at(
        home: &Home,
        path: &Path,
        file: FileRef,
        shape: &Shape,
        tuning: &Tuning,
    ) -> Result<Database> {
        let identity = home.identity(file);
        let mut header = FileHeader::new(MAGIC, FORMAT_VERSION, shape.block_bytes, identity);
        header.parameters = [shape.pack(), 0];
        let options = OpenOptions {
            truncate: true,
            ..OpenOptions::CREATE
        };
        let handles = Handles::open(home, path, options, tuning)?;
        let mut block = vec![0; shape.first_offset() as usize];
        let bytes = header.encode();
        block[..bytes.len()].copy_from_slice(&bytes);
        handles.file.write_at(&block, 0)?;
        Self::around(home, handles, file, shape, tuning, shape.first_offset())
    }

    /// The same file, written and read through another handle of it.
    pub fn through(self, home: &Home, handle: Arc<dyn File>) -> Result<Database> {
        let geometry = *self.log.geometry();
        let identity = home.identity(self.file);
        Ok(Database {
            log: LogFile::new(handle.clone(), &identity, geometry, self.log.end())?,
            batched: handle,
            ..self
        })
    }

    /// Opens a file that is there; its log goes on at `end`, or after the
    /// whole file until recovery knows better. With a shape known from elsewhere
    /// the file's first block may be damaged.
    pub fn open(
        home: &Home,
        file: FileRef,
        tuning: &Tuning,
        end: Option<u64>,
        shape: Option<Shape>,
    ) -> Result<Database> {
        let path = format::database_path(&home.folder, file.number);
        Self::open_at(home, &path, file, tuning, (end, shape))
    }

    /// The same under another name.
    pub fn open_at(
        home: &Home,
        path: &Path,
        file: FileRef,
        tuning: &Tuning,
        (end, shape): (Option<u64>, Option<Shape>),
    ) -> Result<Database> {
        let access = if home.writable {
            OpenOptions::WRITE
        } else {
            OpenOptions::READ
        };
        let handles = Handles::open(home, path, access, tuning)?;
        let handle = &handles.file;
        let identity = home.identity(file);
        let read = FileHeader::read(&**handle, MAGIC, FORMAT_VERSION).and_then(|header| {
            header.check_identity(path, &identity)?;
            shape_of(&header, path)
        });
        let shape = match (read, shape) {
            (Err(Error::Corruption { .. }), Some(shape)) => shape,
            (read, _) => read?,
        };
        let length = handle.length()?;
        let end = end.unwrap_or(length.max(shape.first_offset()));
        if length < end {
            return Err(Error::corruption(
                path,
                length,
                format!("the database file ends here; expected at least {end} bytes"),
            ));
        }
        Self::around(home, handles, file, &shape, tuning, end)
    }

    fn around(
        home: &Home,
        handles: Handles,
        file: FileRef,
        shape: &Shape,
        tuning: &Tuning,
        end: u64,
    ) -> Result<Database> {
        let geometry = format::geometry(shape, tuning);
        let unit = handles.batched.alignment().offset as u64;
        if geometry.block % unit != 0 {
            return Err(Error::InvalidArgument(format!(
                "option direct: {} takes direct I/O in units of {unit} bytes, and the store was \
                 made with block_bytes={}",
                handles.file.path().display(),
                geometry.block
            )));
        }
        Ok(Database {
            batched: handles.batched,
            log: LogFile::new(handles.file, &home.identity(file), geometry, end)?,
            file,
            shape: *shape,
            nodes: home.cache.file(),
            documents: home.cache.file(),
            packed: home.cache.file(),
            marks: Marks::default(),
            node_space: NodeSpace::default(),
            newest_header: AtomicU64::new(0),
            changes_from: AtomicU64::new(0),
            last_write: OnceLock::new(),
            reader_lock: OnceLock::new(),
            seeded_bug: tuning.seeded_bug,
        })
    }

    /// The path, for messages.
    pub fn path(&self) -> &Path {
        self.log.path()
    }

    /// Another file takes its place: no write after this one comes into it.
    pub fn end_with(&self, last_write: u64) {
        _ = self.last_write.set(last_write);
    }

    /// The last write in it, once another file has taken its place.
    pub fn last_write(&self) -> Option<u64> {
        self.last_write.get().copied()
    }

    /// True if it is never read or written through the page cache.
    pub fn is_direct(&self) -> bool {
        self.batched.alignment() != Alignment::NONE
    }

    /// Bytes of a node.
    pub fn node_bytes(&self) -> u64 {
        u64::from(self.shape.node_bytes)
    }

    /// Refuses to grow past what an address can hold.
    pub fn check_room(&self, bytes: u64) -> Result<()> {
        if self.log.end().saturating_add(bytes) < OFFSET_LIMIT {
            return Ok(());
        }
        Err(Error::LimitExceeded(format!(
            "{} would pass {OFFSET_LIMIT} bytes, the most that can be addressed; compact the store",
            self.path().display()
        )))
    }

    /// Takes space for `count` blocks in the log: a record of `kind` that says so, then the
    /// blocks, which the caller writes; answers where they begin. Called under the writer
    /// lock. A failure for lack of space takes nothing.
    pub fn take_blocks(&self, kind: u8, count: u32, sequence: u64, session: u32) -> Result<u64> {
        let unit = self.block_bytes_of(kind);
        let bytes = u64::from(count) * unit;
        self.check_room(bytes)?;
        self.log.reserve(self.bytes_of_run(kind, count))?;
        let end = self.log.end();
        let header = RecordHeader {
            kind,
            sequence: SequenceNumber(sequence),
            session,
            auxiliary: count,
            ..RecordHeader::default()
        };
        self.log.append(&header, &[]);
        self.log.leave_out(unit, bytes).map_err(|error| {
            match error.is_no_space() && self.log.cut_back(end).is_err() {
                // The record may be there, and is more than a lack of space.
                true => Error::poisoned_by(&error),
                false => error,
            }
        })
    }

    /// Bytes that so many blocks take in the log, with the record before them.
    pub fn bytes_of_run(&self, kind: u8, count: u32) -> u64 {
        (u64::from(count) + 1) * self.block_bytes_of(kind) + MOST_RECORD_HEADER_BYTES as u64
    }

    /// Bytes of the blocks that follow a record of this kind.
    fn block_bytes_of(&self, kind: u8) -> u64 {
        match kind {
            kind::MOVED => PACKED_BLOCK_BYTES,
            _ => self.node_bytes(),
        }
    }

    /// Where the blocks lie that follow a record of this kind, which ends at `record_end`.
    pub fn blocks_behind(&self, kind: u8, record_end: u64, count: u32) -> (u64, u64) {
        let unit = self.block_bytes_of(kind);
        let start = record_end.next_multiple_of(unit);
        (start, start.saturating_add(u64::from(count) * unit))
    }

    /// Keeps runs for the next flush whose nodes no header will ever name: a flush that
    /// fails again and again takes no more space than one.
    pub fn abandon_runs(&self, runs: &[RunExtent]) {
        for run in runs {
            let first = run.first.0;
            for node in first..first + u64::from(run.count) {
                self.nodes.remove(node);
            }
        }
        self.node_space.give(runs);
    }

    /// The document at an address: one read, verified.
    pub fn read_document(&self, address: DocumentAddress) -> Result<Document> {
        if let Some(slot) = address.slot() {
            return self.read_block(address.start())?.document(self, slot);
        }
        let (offset, most) = (address.offset(), self.most_to_read(address));
        if self.seeded_bug.is(SeededBug::NoChecksum) {
            return self.read_unverified(offset, most);
        }
        let record = self.log.read(offset, most as usize)?;
        self.document_of(offset, record)
    }

    /// How much to read for a document from its start on: what its address says, and no
    /// more than there is.
    pub fn most_to_read(&self, address: DocumentAddress) -> u64 {
        let (start, most) = match address.is_packed() {
            true => (address.start(), PACKED_BLOCK_BYTES),
            false => (address.offset(), address.most_bytes()),
        };
        // What is written is told without the lock of the end.
        if start.saturating_add(most) <= self.log.written_end() {
            return most;
        }
        most.min(self.log.end().saturating_sub(start))
    }

    /// The document in bytes that a batched read brought.
    pub fn parse_document(&self, address: DocumentAddress, bytes: &[u8]) -> Result<Document> {
        let offset = address.offset();
        match self.log.parse(offset, bytes)? {
            Parsed::Complete(record) => self.document_of(offset, record),
            // Longer than its address says, or cut off by the file's end.
            Parsed::NeedsBytes(..) => Err(self.damage(offset, "a document runs past its bounds")),
        }
    }

    /// The document at an address in bytes that a batched read brought, not copied.
    pub fn document_in<'b>(
        &self,
        address: DocumentAddress,
        bytes: &'b [u8],
    ) -> Result<DocumentBytes<'b>> {
        let offset = address.start();
        let Some((header, payload)) = self.log.parse_borrowed(offset, bytes)? else {
            return Err(self.damage(offset, "a document runs past its bounds"));
        };
        if let Some(slot) = address.slot() {
            self.require_packed(offset, header.kind)?;
            return Ok(self.document_of_block(offset, payload, slot)?.0);
        }
        match (header.kind, format::namespace_and_key(&header)) {
            (kind::PUT, Some((namespace, key_bytes))) => {
                let (key, value) = payload.split_at(key_bytes);
                Ok(DocumentBytes {
                    namespace,
                    sequence: header.sequence.0,
                    key,
                    value,
                })
            }
            _ => Err(self.damage(offset, NO_DOCUMENT)),
        }
    }

    /// The document at an address of a packed block in bytes of which
    /// [`Database::document_in`] has verified another's.
    pub fn document_in_verified<'b>(
        &self,
        address: DocumentAddress,
        bytes: &'b [u8],
    ) -> Result<DocumentBytes<'b>> {
        let header = RecordHeader::verified_before(bytes);
        let payload = header.and_then(|header| header.payload_in(bytes));
        let (payload, slot) = (payload.unwrap_or_default(), address.slot().unwrap_or(0));
        Ok(self.document_of_block(address.start(), payload, slot)?.0)
    }

    /// Refuses a record that is no packed block.
    pub fn require_packed(&self, start: u64, kind: u8) -> Result<()> {
        match kind {
            kind::PACKED => Ok(()),
            _ => Err(self.damage(start, NO_DOCUMENT)),
        }
    }

    /// A document of the packed block at `start` by its number, and where its value ends in
    /// the block's payload.
    pub fn document_of_block<'b>(
        &self,
        start: u64,
        payload: &'b [u8],
        slot: usize,
    ) -> Result<(DocumentBytes<'b>, usize)> {
        let found = PackedBlock::of(payload).and_then(|block| block.document(slot));
        found.ok_or_else(|| self.damage(start, NO_DOCUMENT))
    }

    /// The document that a record is.
    pub fn document_of(&self, offset: u64, record: Record) -> Result<Document> {
        let parts = format::namespace_and_key(&record.header);
        match (record.header.kind, parts) {
            (kind::PUT, Some((namespace, key_bytes))) => {
                let whole = record.payload.len();
                Ok(Document {
                    namespace,
                    sequence: record.header.sequence.0,
                    key: record.payload.slice(0..key_bytes),
                    value: record.payload.slice(key_bytes..whole),
                })
            }
            _ => Err(self.damage(offset, NO_DOCUMENT)),
        }
    }

    /// What [`crate::seeded_bug::SeededBug::NoChecksum`] reads.
    fn read_unverified(&self, offset: u64, most: u64) -> Result<Document> {
        let mut bytes = vec![0; most as usize];
        let count = if offset >= self.log.written_end() {
            return self
                .log
                .read(offset, most as usize)
                .and_then(|record| self.document_of(offset, record));
        } else {
            self.log.file().read_at(&mut bytes, offset)?
        };
        let header = RecordHeader::verified_before(&bytes[..count]).unwrap_or_default();
        let payload = header.payload_in(&bytes[..count]);
        match (payload, format::namespace_and_key(&header)) {
            (Some(payload), Some((namespace, key_bytes))) => Ok(Document {
                namespace,
                sequence: 0,
                key: Value::copy_of(&payload[..key_bytes]),
                value: Value::copy_of(&payload[key_bytes..]),
            }),
            _ => Err(self.damage(offset, "no document")),
        }
    }

    /// Damage at a place of this file.
    pub fn damage(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(self.path(), offset, what)
    }
}

/// The shape in a file's header.
pub(crate) fn shape_of(header: &FileHeader, path: &Path) -> Result<Shape> {
    Shape::unpack(header.parameters[0], header.block_bytes).ok_or_else(|| {
        Error::corruption(path, 72, "the file header holds no shape of a forest store")
    })
}
