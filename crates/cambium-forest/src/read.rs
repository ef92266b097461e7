//! Reading: buffers, then the sorted run, then known addresses or the trie, then one read
//! of the document, verified.
//!
//! Readers take no lock that is held across I/O, and never wait for a writer.
//! A lookup in the tries answers at most one document; its fingerprint says
//! mostly whether it is the right one before it is read, and its key says so for
//! certain afterwards. The length class in its address bounds the read, so a
//! document of any length is one read.
//!
//! Several keys are looked up together: the tries level by level, each level's
//! missing nodes in one batch, then all documents in one batch.

use std::sync::Arc;

use cambium_base::{Result, Value};
use cambium_index::NodeAddress;
use cambium_io::cache::{Block, CachedFile};
use cambium_io::spans::{self, Span};
use cambium_io::sync::atomic::Ordering;
use cambium_io::{AlignedBuffer, BatchOptions, ReadRequest};

use crate::blocks::{BLOCK_BYTES, Missing};
use crate::buffer::Lookup;
use crate::core::Core;
use crate::database::{Database, Document, DocumentBytes};
use crate::document::DocumentAddress;
use crate::seeded_bug::SeededBug;
use crate::sorted_run::Hit;
use crate::view::{Pin, View};

/// What buffers say of a key.
enum Buffered {
    /// Nothing: the trie knows.
    Unknown,
    /// A version, or that the key was removed.
    Known(Option<DocumentAddress>),
    /// The newest version is younger than the moment.
    Younger,
}

fn buffered(view: &View, namespace: u16, key: &[u8], sequence: u64) -> Buffered {
    for buffer in view.buffers() {
        match buffer.get(namespace, key, sequence) {
            Lookup::Unknown => {}
            Lookup::Found(version) => return Buffered::Known(version.document),
            Lookup::Younger => return Buffered::Younger,
        }
    }
    Buffered::Unknown
}

/// The same at a moment of which nothing is dropped.
fn buffered_at(view: &View, namespace: u16, key: &[u8], sequence: u64) -> Buffered {
    let mut buffers = view.buffers();
    let version = buffers.find_map(|buffer| buffer.get_at(namespace, key, sequence));
    version.map_or(Buffered::Unknown, |version| {
        Buffered::Known(version.document)
    })
}

/// Makes a span begin and end at blocks, as far as the file is written.
pub(crate) fn widen(span: &mut Span, written_end: u64) {
    span.start -= span.start % BLOCK_BYTES;
    let end = span.end.next_multiple_of(BLOCK_BYTES);
    span.end = span.end.max(end.min(written_end));
}

/// Documents no further apart than this are read together: about what the
/// device moves in the time of a read of its own.
pub(crate) const LARGEST_GAP: u64 = 4 << 10;
/// Most bytes of a read of several documents.
pub(crate) const LARGEST_SPAN: u64 = 256 << 10;

/// Blocks with documents of so many bytes on average are worth their place in the cache for a
/// walk.
const MOST_OF_KEPT: u64 = 512;

/// Joins wanted documents, which are in the order of their offsets.
pub(crate) fn spans_of(
    database: &Database,
    addresses: &[DocumentAddress],
    wanted: &[usize],
) -> Vec<Span> {
    let places = wanted.iter().map(|&place| {
        let start = addresses[place].offset();
        ((), start..start + database.most_to_read(addresses[place]))
    });
    spans::join(places, LARGEST_GAP, LARGEST_SPAN)
}

impl Core {
    /// The newest value of a key.
    pub fn get_latest(&self, namespace: u16, key: &[u8]) -> Result<Option<Value>> {
        self.counters.gets.fetch_add(1, Ordering::Relaxed);
        loop {
            let view = self.view.load();
            view.check_namespace(namespace)?;
            let sequence = self.visible.load(Ordering::Acquire);
            let mut found = buffered(&view, namespace, key, sequence);
            if self.has_bug(SeededBug::PassedVersionsFound) {
                found = buffered_at(&view, namespace, key, sequence);
            }
            if let Buffered::Younger = found {
                found = buffered_at(&view, namespace, key, sequence);
                // Only while nothing else has become visible nothing that was visible has
                // been dropped: then what is younger is a write under way.
                if self.visible.load(Ordering::Acquire) != sequence {
                    continue;
                }
            }
            return match found {
                Buffered::Known(document) => self.value_of(&view, document, key),
                _ => self.value_below(&view, namespace, key, sequence),
            };
        }
    }

    /// The value of a key at a pinned moment.
    pub fn get_at(&self, pin: &Pin, namespace: u16, key: &[u8]) -> Result<Option<Value>> {
        match buffered_at(&pin.view, namespace, key, pin.sequence) {
            Buffered::Known(document) => self.value_of(&pin.view, document, key),
            _ => self.value_below(&pin.view, namespace, key, pin.sequence),
        }
    }

    fn value_of(
        &self,
        view: &View,
        document: Option<DocumentAddress>,
        key: &[u8],
    ) -> Result<Option<Value>> {
        let Some(address) = document else {
            return Ok(None);
        };
        let document = self.document(&view.database, address)?;
        if *document.key == *key {
            return Ok(Some(document.value));
        }
        // The buffer has the whole key, so this is damage.
        Err(view.database.damage(
            address.offset(),
            "a document has another key than the index says",
        ))
    }

    /// The value of a key that no buffer has, at a moment of the view.
    fn value_below(
        &self,
        view: &View,
        namespace: u16,
        key: &[u8],
        sequence: u64,
    ) -> Result<Option<Value>> {
        if let Some(hit) = view.run.find(namespace, key) {
            let Some(address) = hit.document else {
                return Ok(None);
            };
            if hit.is_whole {
                return self.value_of(view, Some(address), key);
            }
            let value = self.value_if(&view.database, address, |found| found.key == key)?;
            if value.is_some() {
                return Ok(value);
            }
        }
        let Some(root) = view.root(namespace).root else {
            return Ok(None);
        };
        let known = view.known.find(namespace, key);
        let by_address =
            known.and_then(|address| self.value_if_it_is(view, address, namespace, key, sequence));
        if by_address.is_some() {
            self.counters.by_address.add(1);
            return Ok(by_address);
        }
        self.value_in_trie(view, root, namespace, key)
    }

    /// The value of a document that may be the newest one of a key. What cannot be read
    /// is the trie's to tell.
    fn value_if_it_is(
        &self,
        view: &View,
        address: DocumentAddress,
        namespace: u16,
        key: &[u8],
        sequence: u64,
    ) -> Option<Value> {
        let is_it = |found: &DocumentBytes<'_>| found.is_of(namespace, key, sequence);
        let found = self.value_if(&view.database, address, is_it);
        found.ok().flatten()
    }

    /// The value of the document at an address, if it is the right one. Where it is
    /// cached, it is looked at where it lies.
    fn value_if(
        &self,
        database: &Database,
        address: DocumentAddress,
        is_it: impl Fn(&DocumentBytes<'_>) -> bool,
    ) -> Result<Option<Value>> {
        let resident = database.with_document(address, Missing::GiveUp, |found| {
            is_it(&found.document).then(|| found.value())
        });
        if let Some(value) = resident {
            return Ok(value);
        }
        let document = self.document_from_file(database, address)?;
        Ok(is_it(&document.bytes()).then_some(document.value))
    }

    fn value_in_trie(
        &self,
        view: &View,
        root: NodeAddress,
        namespace: u16,
        key: &[u8],
    ) -> Result<Option<Value>> {
        let nodes = self.nodes(&view.database);
        let Some(address) = self.index.find(&nodes, root, key)? else {
            return Ok(None);
        };
        if !address.may_match(key) {
            return Ok(None);
        }
        let value = self.value_if(&view.database, address, |found| found.key == key)?;
        if value.is_some() {
            view.known.learn(namespace, key, address);
        }
        Ok(value)
    }

    /// A document, from the cache or by one read.
    pub fn document(&self, database: &Database, address: DocumentAddress) -> Result<Document> {
        if let Some(document) = database.document_in_blocks(address, Missing::GiveUp) {
            return Ok(document);
        }
        self.document_from_file(database, address)
    }

    fn document_from_file(
        &self,
        database: &Database,
        address: DocumentAddress,
    ) -> Result<Document> {
        self.count_document_reads(1);
        if !self.has_bug(SeededBug::NoChecksum) {
            if let Some(document) = database.document_in_blocks(address, Missing::Read) {
                return Ok(document);
            }
        }
        database.read_document(address)
    }

    /// Several documents in their order, from the cache; the reads of those that
    /// are missing go to the device together, in whole blocks.
    pub fn documents(
        &self,
        database: &Database,
        addresses: &[DocumentAddress],
    ) -> Result<Vec<Document>> {
        self.documents_with(database, addresses, true)
    }

    /// The same for who looks at them once: blocks that are read are not kept, and
    /// push nothing out.
    pub fn documents_in_passing(
        &self,
        database: &Database,
        addresses: &[DocumentAddress],
    ) -> Result<Vec<Document>> {
        self.documents_with(database, addresses, false)
    }

    /// The same for a walk. The blocks of large documents are kept only where the operating
    /// system keeps none: such a block has little beside the document, and its copy in the cache
    /// costs more than the read that it may save.
    pub fn documents_of_walk(
        &self,
        database: &Database,
        addresses: &[DocumentAddress],
    ) -> Result<Vec<Document>> {
        let bytes = addresses.iter().map(|address| address.most_bytes());
        let are_small = bytes.sum::<u64>() <= addresses.len() as u64 * MOST_OF_KEPT;
        self.documents_with(database, addresses, are_small || database.is_direct())
    }

    fn documents_with(
        &self,
        database: &Database,
        addresses: &[DocumentAddress],
        keep: bool,
    ) -> Result<Vec<Document>> {
        if let ([address], true) = (addresses, keep) {
            return Ok(vec![self.document(database, *address)?]);
        }
        let mut open = None;
        let mut found: Vec<Option<Document>> = addresses
            .iter()
            .map(|&address| database.document_at_hand(address, &mut open))
            .collect();
        let missing = (0..found.len()).filter(|&place| found[place].is_none());
        let mut missing: Vec<usize> = missing.collect();
        if !missing.is_empty() {
            missing.sort_unstable_by_key(|&place| addresses[place].offset());
            let is_packed = |place: &usize| addresses[*place].is_packed();
            let (packed, others): (Vec<usize>, _) = missing.into_iter().partition(is_packed);
            self.read_packed(database, addresses, &packed, &mut found, keep)?;
            self.read_documents(database, addresses, &others, &mut found, keep)?;
        }
        let found: Option<Vec<Document>> = found.into_iter().collect();
        Ok(found.expect("every document was cached or read"))
    }

    /// Reads the documents of some places, which are in the order of the file, into
    /// `found`; the blocks that they lie in are kept, or not.
    fn read_documents(
        &self,
        database: &Database,
        addresses: &[DocumentAddress],
        places: &[usize],
        found: &mut [Option<Document>],
        keep: bool,
    ) -> Result<()> {
        let keep = keep && !database.documents.is_off();
        let written_end = database.log.written_end();
        let mut wanted: Vec<usize> = Vec::new();
        for &place in places {
            if addresses[place].offset() < written_end {
                wanted.push(place);
            } else {
                found[place] = Some(self.document(database, addresses[place])?);
            }
        }
        if let ([place], true) = (&wanted[..], keep) {
            let place = *place;
            found[place] = Some(self.document(database, addresses[place])?);
            return Ok(());
        }
        let mut spans = spans_of(database, addresses, &wanted);
        if keep {
            spans.iter_mut().for_each(|span| widen(span, written_end));
        }
        let ranges: Vec<(u64, usize)> = spans.iter().map(Span::place).collect();
        self.read_together(database, &ranges, |number_read, bytes| {
            let span = &spans[number_read];
            if keep {
                database.offer_blocks(span.start, bytes, written_end);
            }
            for &place in &wanted[span.members.clone()] {
                let document = self.document_in(database, addresses[place], span, bytes)?;
                found[place] = Some(document);
            }
            Ok(())
        })?;
        self.count_document_reads(spans.len());
        Ok(())
    }

    pub fn count_document_reads(&self, reads: usize) {
        self.counters
            .document_reads
            .fetch_add(reads as u64, Ordering::Relaxed);
    }

    fn document_in(
        &self,
        database: &Database,
        address: DocumentAddress,
        span: &Span,
        bytes: &[u8],
    ) -> Result<Document> {
        if self.has_bug(SeededBug::NoChecksum) {
            return database.read_document(address);
        }
        let start = (address.offset() - span.start) as usize;
        database.parse_document(address, bytes.get(start..).unwrap_or_default())
    }

    /// Reads places (offset, length) of a file, many at once, and hands each
    /// to `take` with its number; short only at the file's end.
    pub fn read_together(
        &self,
        database: &Database,
        places: &[(u64, usize)],
        mut take: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let options = BatchOptions {
            backend: self.tuning.backend,
            depth: self.tuning.batch,
        };
        let alignment = database.batched.alignment();
        let requests = places.iter().enumerate().map(|(tag, &(offset, length))| {
            let (start, whole) = alignment.around(offset, offset + length as u64);
            ReadRequest {
                file: database.batched.clone(),
                offset: start,
                buffer: AlignedBuffer::new(whole, alignment.memory.max(8)),
                tag: tag as u64,
            }
        });
        let file_system = &self.environment.file_system;
        cambium_io::read_all_kept(file_system, options, requests, |completion| {
            let count = completion.result?;
            let (offset, length) = places[completion.tag as usize];
            let (start, _) = alignment.around(offset, offset);
            let skipped = (offset - start) as usize;
            let found = completion.buffer[..count].get(skipped..).unwrap_or(&[]);
            take(completion.tag as usize, &found[..found.len().min(length)])
        })
    }

    /// Reads places (offset, length) of a file into blocks, many at once. The blocks take memory
    /// that its part of the cache has pushed out.
    pub fn read_places(
        &self,
        database: &Database,
        cache: &CachedFile,
        places: &[(u64, usize)],
    ) -> Result<Vec<Block>> {
        if let [(offset, length)] = *places {
            let mut block = cache.block_to_fill(length);
            if let Some(bytes) = Arc::get_mut(&mut block) {
                database.log.file().read_exact_at(bytes, offset)?;
            }
            return Ok(vec![block]);
        }
        let mut read = vec![None; places.len()];
        self.read_together(database, places, |number, bytes| {
            read[number] = Some(cache.block_of(bytes));
            Ok(())
        })?;
        Ok(read.into_iter().flatten().collect())
    }

    /// The values of several keys at a pinned moment: first of those that buffers and
    /// known addresses tell, then of those that the trie is asked for.
    pub fn multi_get_at(
        &self,
        pin: &Pin,
        namespace: u16,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Value>>> {
        self.counters
            .gets
            .fetch_add(keys.len() as u64, Ordering::Relaxed);
        let view = &pin.view;
        let (mut places, mut addresses) = (Vec::with_capacity(keys.len()), Vec::new());
        let mut below: Vec<usize> = Vec::new();
        for (place, key) in keys.iter().enumerate() {
            match buffered_at(view, namespace, key, pin.sequence) {
                Buffered::Known(None) => {}
                Buffered::Known(Some(address)) => {
                    places.push(place);
                    addresses.push(address);
                }
                _ => match view.run.find(namespace, key) {
                    Some(Hit { document: None, .. }) => {}
                    Some(Hit {
                        document: Some(address),
                        is_whole,
                    }) => {
                        places.push(place);
                        addresses.push(address);
                        if !is_whole {
                            below.push(place);
                        }
                    }
                    None => below.push(place),
                },
            }
        }
        let buffered = places.len();
        let root = view.root(namespace).root;
        for &place in below.iter().filter(|_| root.is_some()) {
            if let Some(address) = view.known.find(namespace, keys[place]) {
                places.push(place);
                addresses.push(address);
            }
        }
        let documents = match self.documents(&view.database, &addresses) {
            // What cannot be read of a guess is the trie's to tell.
            Err(_) if buffered < addresses.len() => {
                self.documents(&view.database, &addresses[..buffered])?
            }
            read => read?,
        };
        let mut values: Vec<Option<Value>> = vec![None; keys.len()];
        for (place, document) in places.into_iter().zip(documents) {
            let is_it = document.bytes().is_of(namespace, keys[place], pin.sequence);
            if is_it && values[place].is_none() {
                values[place] = Some(document.value);
            }
        }
        let asked = below.len();
        below.retain(|&place| values[place].is_none());
        self.counters.by_address.add((asked - below.len()) as u64);
        if let (Some(root), false) = (root, below.is_empty()) {
            self.values_in_trie(view, root, namespace, (keys, &below), &mut values)?;
        }
        Ok(values)
    }

    /// The values of the keys at some places, by the trie.
    fn values_in_trie(
        &self,
        view: &View,
        root: NodeAddress,
        namespace: u16,
        (keys, places): (&[&[u8]], &[usize]),
        values: &mut [Option<Value>],
    ) -> Result<()> {
        let nodes = self.nodes(&view.database);
        let wanted: Vec<&[u8]> = places.iter().map(|&place| keys[place]).collect();
        let found = self.index.find_many(&nodes, root, &wanted)?;
        let mut sure: Vec<usize> = Vec::with_capacity(places.len());
        let mut addresses: Vec<DocumentAddress> = Vec::with_capacity(places.len());
        for (&place, address) in places.iter().zip(found) {
            if let Some(address) = address.filter(|address| address.may_match(keys[place])) {
                sure.push(place);
                addresses.push(address);
            }
        }
        let documents = self.documents(&view.database, &addresses)?;
        for ((place, address), document) in sure.into_iter().zip(addresses).zip(documents) {
            if *document.key == *keys[place] {
                values[place] = Some(document.value);
                view.known.learn(namespace, keys[place], address);
            }
        }
        Ok(())
    }
}
