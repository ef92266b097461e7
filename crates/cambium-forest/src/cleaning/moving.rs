//! The live documents of a tail, on their way to the end of the log.
//!
//! A walk through a trie as it was before the flush finds the addresses that lie in the
//! tail, some at a time, and reads their documents together. Those that the flush does not
//! change are put side by side in memory, as packed blocks and records: a *parcel*. It is
//! written behind one record of kind `MOVED`, whose space is taken beside writers.

use std::collections::VecDeque;

use cambium_base::{Result, Value};
use cambium_index::NodeAddress;
use cambium_io::file_system::Advice;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::record::RecordHeader;

use super::Tail;
use crate::core::{Core, lock};
use crate::database::{Database, Document};
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress, PACKED_BLOCK_BYTES};
use crate::format::{NamespaceRoot, document_auxiliary, kind, moved_record};
use crate::index::IndexCursor;
use crate::nodes::PassingNodes;
use crate::packed_block::{Packer, Packing};
use crate::seeded_bug::SeededBug;

/// Documents that are read together, or written: so many, and of so many bytes.
const MOVED_TOGETHER: usize = 8 << 10;
const MOVED_BYTES: u64 = 1 << 20;
/// Brought to the device when the log has grown by so much.
const HURRIED_BYTES: u64 = 8 << 20;

/// The moves of one trie.
pub(crate) struct Moves<'a> {
    core: &'a Core,
    database: &'a Database,
    until: u64,
    cursor: Option<IndexCursor>,
    /// The way to the last document that was found.
    found: Vec<NodeAddress>,
    /// Documents that were read, in the order of their keys.
    read: VecDeque<(DocumentAddress, Document)>,
    /// Where the documents of the parcel lie.
    from: Vec<DocumentAddress>,
    parcel: Parcel,
    /// Bytes that moved documents take.
    pub bytes: u64,
    /// The kernel was told to bring the log before this place to the device.
    hurried: u64,
}

impl<'a> Moves<'a> {
    /// The moves of the trie under a root.
    pub fn new(
        core: &'a Core,
        database: &'a Database,
        root: &NamespaceRoot,
        tail: &Tail,
    ) -> Result<Self> {
        let mut moves = Moves {
            core,
            database,
            until: tail.until,
            cursor: None,
            found: Vec::new(),
            read: VecDeque::new(),
            from: Vec::new(),
            parcel: Parcel::of(lock(&core.writer).session),
            bytes: 0,
            hurried: database.log.end(),
        };
        if let Some(root) = root.root {
            let mut cursor = core.index.cursor(root);
            cursor.begin(&moves.nodes(), true)?;
            moves.cursor = Some(cursor);
        }
        Ok(moves)
    }

    fn nodes(&self) -> PassingNodes<'a> {
        self.core.nodes_in_passing(self.database)
    }

    /// The key of the next document; `None` after the last.
    pub fn peek(&mut self) -> Result<Option<&[u8]>> {
        while self.read.is_empty() && self.cursor.is_some() {
            self.read_some()?;
        }
        Ok(self.read.front().map(|(_, document)| &*document.key))
    }

    /// Leaves the next document where it is: it is replaced or removed.
    pub fn leave(&mut self) {
        self.read.pop_front();
    }

    /// Takes the next document into the parcel; answers its key.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let (address, document) = self.read.pop_front()?;
        let key = document.key.to_vec();
        self.from.push(address);
        self.parcel.add(document);
        Some(key)
    }

    /// True if the parcel should be written.
    pub fn is_parcel_full(&self) -> bool {
        self.from.len() >= MOVED_TOGETHER || self.parcel.end >= MOVED_BYTES
    }

    /// Writes the parcel; answers where its documents were, and where they are now.
    pub fn append(&mut self) -> Result<Vec<(DocumentAddress, DocumentAddress)>> {
        let from = std::mem::take(&mut self.from);
        let empty = Parcel::of(self.parcel.session);
        let mut parcel = std::mem::replace(&mut self.parcel, empty);
        parcel.close();
        if from.is_empty() {
            return Ok(Vec::new());
        }
        let (core, database) = (self.core, self.database);
        let blocks = parcel.end.div_ceil(PACKED_BLOCK_BYTES);
        let start = core.take_blocks(database, kind::MOVED, blocks as u32)?;
        let (bytes, to) = parcel.encode(database, start);
        database.log.file().write_at(&bytes, start)?;
        let counter = &core.counters.compaction_bytes;
        counter.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.bytes += bytes.len() as u64;
        self.hurry(start + bytes.len() as u64);
        let mut moved: Vec<_> = from.into_iter().zip(to).collect();
        if core.has_bug(SeededBug::CleaningLosesMove) {
            moved.pop();
        }
        Ok(moved)
    }

    /// The kernel begins to write what the log has grown by, and keeps it in memory, so that
    /// the sync at the end does not find all of it.
    fn hurry(&mut self, end: u64) {
        if end.saturating_sub(self.hurried) > HURRIED_BYTES {
            let file = self.database.log.file();
            file.advise(self.hurried, end - self.hurried, Advice::DontNeed);
            self.hurried = end;
        }
    }

    fn read_some(&mut self) -> Result<()> {
        let addresses = self.find_some()?;
        let documents = self.core.documents_in_passing(self.database, &addresses)?;
        for (address, document) in addresses.into_iter().zip(documents) {
            if !address.may_match(&document.key) {
                let offset = address.offset();
                return Err(self.database.damage(offset, "a document of another key"));
            }
            self.read.push_back((address, document));
        }
        Ok(())
    }

    /// Walks on to the next documents in the tail. Where a node on the way lies there, and
    /// no document below it, one of these is moved nevertheless, so that the node is
    /// written anew.
    fn find_some(&mut self) -> Result<Vec<DocumentAddress>> {
        let nodes = self.nodes();
        let (until, node_bytes) = (self.until, self.database.node_bytes());
        let mut wanted = Vec::new();
        let mut bytes = 0;
        let Some(cursor) = &mut self.cursor else {
            return Ok(wanted);
        };
        while wanted.len() < MOVED_TOGETHER && bytes < MOVED_BYTES {
            let before = wanted.len();
            let mut first = None;
            let more = cursor.advance_many(&nodes, true, |address| {
                first.get_or_insert(address);
                if address.start() < until {
                    bytes += address.most_bytes();
                    wanted.push(address);
                }
                true
            })?;
            if !more {
                self.cursor = None;
                break;
            }
            if wanted.len() == before {
                let found = &self.found;
                let in_tail =
                    |node: NodeAddress| node.0 * node_bytes < until && !found.contains(&node);
                let is_any = cursor.nodes_on_way().any(in_tail);
                wanted.extend(first.filter(|_| is_any));
            }
            if wanted.len() > before {
                self.found.clear();
                self.found.extend(cursor.nodes_on_way());
            }
        }
        Ok(wanted)
    }
}

/// Records side by side.
struct Parcel {
    /// The session that the records name.
    session: u32,
    items: Vec<Item>,
    packer: Packer,
    /// Where the last one ends, from the first one's beginning.
    end: u64,
}

struct Item {
    /// From the beginning of the first one.
    at: u64,
    header: RecordHeader,
    what: What,
}

enum What {
    Record(Document),
    Block(Packer, Vec<u8>),
}

impl Parcel {
    fn of(session: u32) -> Parcel {
        Parcel {
            session,
            items: Vec::new(),
            packer: Packer::default(),
            end: 0,
        }
    }

    fn add(&mut self, document: Document) {
        let mut packing = self.packer.offer(&document.bytes());
        if packing == Packing::Full {
            self.close();
            packing = self.packer.offer(&document.bytes());
        }
        if packing == Packing::Apart {
            // In the order of keys: so are the places.
            self.close();
            self.add_record(document);
        }
    }

    fn add_record(&mut self, document: Document) {
        let payload = (document.key.len() + document.value.len()) as u64;
        let auxiliary = document_auxiliary(document.namespace, document.key.len());
        let header = moved_record(kind::PUT, self.session, document.sequence, auxiliary);
        self.push(self.end, header, payload, What::Record(document));
    }

    fn push(&mut self, at: u64, header: RecordHeader, payload: u64, what: What) {
        self.end = at + header.record_bytes(payload, DOCUMENT_ALIGNMENT);
        self.items.push(Item { at, header, what });
    }

    /// Ends the block that is open.
    fn close(&mut self) {
        let packer = std::mem::take(&mut self.packer);
        if !packer.is_worth_a_block() {
            for document in packer.documents() {
                self.add_record(Document {
                    namespace: document.namespace,
                    sequence: document.sequence,
                    key: Value::copy_of(document.key),
                    value: Value::copy_of(document.value),
                });
            }
            return;
        }
        let payload = packer.encode();
        let at = self.end.next_multiple_of(PACKED_BLOCK_BYTES);
        let auxiliary = document_auxiliary(packer.namespace(), 0);
        let header = moved_record(kind::PACKED, self.session, packer.lowest(), auxiliary);
        let bytes = payload.len() as u64;
        self.push(at, header, bytes, What::Block(packer, payload));
    }

    /// The bytes as they lie from `start` on, and where the documents are.
    fn encode(&self, database: &Database, start: u64) -> (Vec<u8>, Vec<DocumentAddress>) {
        let seed = database.log.seed();
        let whole = self.end.next_multiple_of(PACKED_BLOCK_BYTES) as usize;
        let mut bytes = Vec::with_capacity(whole);
        let mut places = Vec::new();
        for item in &self.items {
            bytes.resize(item.at as usize, 0);
            let offset = start + item.at;
            let mut encode = |payload: &[&[u8]]| {
                item.header
                    .encode(seed, offset, payload, DOCUMENT_ALIGNMENT, &mut bytes)
            };
            match &item.what {
                What::Record(document) => {
                    let (key, value) = (&*document.key, &*document.value);
                    let taken = encode(&[key, value]);
                    places.push(DocumentAddress::new(offset, taken, key));
                }
                What::Block(packer, payload) => {
                    encode(&[payload]);
                    places.extend(packer.addresses(offset));
                }
            }
        }
        bytes.resize(whole, 0);
        (bytes, places)
    }
}
