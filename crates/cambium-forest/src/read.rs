//! Reading: buffers, then the trie, then one read of the document, verified.
//!
//! Readers take no lock that is held across I/O, and never wait for a writer.
//! A lookup in the tries answers at most one document; its fingerprint says
//! mostly whether it is the right one before it is read, and its key says so for
//! certain afterwards. The length class in its address bounds the read, so a
//! document of any length is one read.
//!
//! Several keys are looked up together: the tries level by level, each level's
//! missing nodes in one batch, then all documents in one batch.

use std::sync::atomic::Ordering;

use cambium_base::{Result, Value};
use cambium_io::{AlignedBuffer, BatchOptions, ReadRequest};

use crate::buffer::Lookup;
use crate::core::Core;
use crate::database::{Database, Document};
use crate::document::DocumentAddress;
use crate::nodes::Nodes;
use crate::view::{Pin, View};

/// What buffers say of a key.
enum Buffered {
    /// Nothing: the trie knows.
    Unknown,
    /// A version, or that the key was removed.
    Known(Option<DocumentAddress>),
    /// It may just have been dropped: look again with a later moment.
    Again,
}

fn buffered(view: &View, namespace: u16, key: &[u8], sequence: u64) -> Buffered {
    for buffer in view.buffers() {
        match buffer.get(namespace, key, sequence) {
            Lookup::Unknown => {}
            Lookup::Found(version) => return Buffered::Known(version.document),
            Lookup::Younger => return Buffered::Again,
        }
    }
    Buffered::Unknown
}

/// The same at a pinned moment, for which nothing is dropped.
fn buffered_at(view: &View, namespace: u16, key: &[u8], sequence: u64) -> Buffered {
    for buffer in view.buffers() {
        if let Lookup::Found(version) = buffer.get(namespace, key, sequence) {
            return Buffered::Known(version.document);
        }
    }
    Buffered::Unknown
}

impl Core {
    /// The newest value of a key.
    pub fn get_latest(&self, namespace: u16, key: &[u8]) -> Result<Option<Value>> {
        self.counters.gets.fetch_add(1, Ordering::Relaxed);
        loop {
            let view = self.view.load();
            let sequence = self.visible.load(Ordering::Acquire);
            match buffered(&view, namespace, key, sequence) {
                Buffered::Known(document) => return self.value_of(&view, document, key),
                Buffered::Unknown => return self.value_in_trie(&view, namespace, key),
                Buffered::Again => {}
            }
            // While nothing has become visible since, nothing that was visible
            // has been dropped: what is younger is a write under way.
            if self.visible.load(Ordering::Acquire) == sequence {
                return match buffered_at(&view, namespace, key, sequence) {
                    Buffered::Known(document) => self.value_of(&view, document, key),
                    _ => self.value_in_trie(&view, namespace, key),
                };
            }
        }
    }

    /// The value of a key at a pinned moment.
    pub fn get_at(&self, pin: &Pin, namespace: u16, key: &[u8]) -> Result<Option<Value>> {
        match buffered_at(&pin.view, namespace, key, pin.sequence) {
            Buffered::Known(document) => self.value_of(&pin.view, document, key),
            _ => self.value_in_trie(&pin.view, namespace, key),
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

    fn value_in_trie(&self, view: &View, namespace: u16, key: &[u8]) -> Result<Option<Value>> {
        let Some(root) = view.root(namespace).root else {
            return Ok(None);
        };
        let nodes = Nodes {
            core: self,
            database: &view.database,
        };
        let Some(address) = self.index.find(&nodes, root, key)? else {
            return Ok(None);
        };
        if !address.may_match(key) {
            return Ok(None);
        }
        let document = self.document(&view.database, address)?;
        Ok((*document.key == *key).then_some(document.value))
    }

    /// A document, from the cache or by one read.
    pub fn document(&self, database: &Database, address: DocumentAddress) -> Result<Document> {
        let number = database.file.number.0;
        if let Some(document) = self.caches.document(number, address) {
            return Ok(document);
        }
        let document = database.read_document(address)?;
        self.counters.document_reads.fetch_add(1, Ordering::Relaxed);
        self.caches.put_document(number, address, &document);
        Ok(document)
    }

    /// Several documents in their order; the reads go to the device together.
    pub fn documents(
        &self,
        database: &Database,
        addresses: &[DocumentAddress],
    ) -> Result<Vec<Document>> {
        self.documents_with(database, addresses, self.reading())
    }

    /// How batched reads are done, unless otherwise asked for.
    fn reading(&self) -> BatchOptions {
        BatchOptions {
            backend: self.tuning.backend,
            depth: self.tuning.batch,
        }
    }

    /// The same by a back end and depth of the caller's choosing.
    pub fn documents_with(
        &self,
        database: &Database,
        addresses: &[DocumentAddress],
        reading: BatchOptions,
    ) -> Result<Vec<Document>> {
        let number = database.file.number.0;
        let mut found: Vec<Option<Document>> = vec![None; addresses.len()];
        let mut wanted: Vec<usize> = Vec::new();
        for (place, &address) in addresses.iter().enumerate() {
            if let Some(document) = self.caches.document(number, address) {
                found[place] = Some(document);
            } else if address.offset() < database.log.written_end() {
                wanted.push(place);
            } else {
                found[place] = Some(self.document(database, address)?);
            }
        }
        if wanted.len() < 2 {
            for place in wanted {
                found[place] = Some(self.document(database, addresses[place])?);
            }
        } else {
            // Neighbours on the device together.
            wanted.sort_unstable_by_key(|&place| addresses[place].offset());
            let places: Vec<(u64, usize)> = wanted
                .iter()
                .map(|&place| {
                    let address = addresses[place];
                    (address.offset(), database.most_to_read(address) as usize)
                })
                .collect();
            self.read_together_with(database, &places, reading, |number_read, bytes| {
                let place = wanted[number_read];
                let document = if self.has_bug(crate::seeded_bug::SeededBug::NoChecksum) {
                    database.read_document(addresses[place])?
                } else {
                    database.parse_document(addresses[place], bytes)?
                };
                self.caches
                    .put_document(number, addresses[place], &document);
                found[place] = Some(document);
                Ok(())
            })?;
            self.counters
                .document_reads
                .fetch_add(wanted.len() as u64, Ordering::Relaxed);
        }
        let found: Option<Vec<Document>> = found.into_iter().collect();
        Ok(found.expect("every document was cached or read"))
    }

    /// Reads places (offset, length) of a file, many at once, and hands each
    /// to `take` with its number; short only at the file's end.
    pub fn read_together(
        &self,
        database: &Database,
        places: &[(u64, usize)],
        take: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.read_together_with(database, places, self.reading(), take)
    }

    fn read_together_with(
        &self,
        database: &Database,
        places: &[(u64, usize)],
        reading: BatchOptions,
        mut take: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let options = BatchOptions {
            depth: reading.depth.min(places.len()).max(1),
            ..reading
        };
        let mut queue = self.environment.file_system.read_queue(options)?;
        let requests = places
            .iter()
            .enumerate()
            .map(|(tag, &(offset, length))| ReadRequest {
                file: database.log.file().clone(),
                offset,
                buffer: AlignedBuffer::new(length, 8),
                tag: tag as u64,
            });
        cambium_io::batch::read_all(&mut *queue, requests, |completion| {
            let count = completion.result?;
            take(completion.tag as usize, &completion.buffer[..count])
        })
    }

    /// The values of several keys at a pinned moment.
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
        let mut places: Vec<usize> = Vec::with_capacity(keys.len());
        let mut addresses: Vec<DocumentAddress> = Vec::with_capacity(keys.len());
        let mut in_trie: Vec<usize> = Vec::new();
        for (place, key) in keys.iter().enumerate() {
            match buffered_at(view, namespace, key, pin.sequence) {
                Buffered::Known(None) => {}
                Buffered::Known(Some(address)) => {
                    places.push(place);
                    addresses.push(address);
                }
                _ => in_trie.push(place),
            }
        }
        if let Some(root) = view.root(namespace).root {
            let nodes = Nodes {
                core: self,
                database: &view.database,
            };
            let wanted: Vec<&[u8]> = in_trie.iter().map(|&place| keys[place]).collect();
            let found = self.index.find_many(&nodes, root, &wanted)?;
            for (&place, address) in in_trie.iter().zip(found) {
                if let Some(address) = address.filter(|address| address.may_match(keys[place])) {
                    places.push(place);
                    addresses.push(address);
                }
            }
        }
        let documents = self.documents(&view.database, &addresses)?;
        let mut values: Vec<Option<Value>> = vec![None; keys.len()];
        for (place, document) in places.into_iter().zip(documents) {
            if *document.key == *keys[place] {
                values[place] = Some(document.value);
            }
        }
        Ok(values)
    }
}
