//! A trie beside a model: nodes that know which of them live, documents that know
//! their keys, and everything that must hold after each batch.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cambium_base::{Error, Result};
use cambium_index::hbtrie::{self, Change, Cursor, Documents, TrieOptions};
use cambium_index::{MemoryNodes, Node, NodeAddress, NodeReader, NodeWriter};

/// Nodes that know which of them live, and which were read.
pub struct TrackedNodes {
    pub memory: MemoryNodes,
    pub live: HashSet<NodeAddress>,
    pub read: Mutex<HashSet<NodeAddress>>,
}

impl NodeReader for TrackedNodes {
    fn node_bytes(&self) -> usize {
        self.memory.node_bytes()
    }

    fn read(&self, address: NodeAddress) -> Result<Node> {
        self.read.lock().unwrap().insert(address);
        self.memory.read(address)
    }

    fn corrupt(&self, address: NodeAddress, what: String) -> Error {
        self.memory.corrupt(address, what)
    }
}

impl NodeWriter for TrackedNodes {
    fn append(&mut self, content: Vec<u8>) -> Result<NodeAddress> {
        let address = self.memory.append(content)?;
        assert!(self.live.insert(address));
        Ok(address)
    }

    fn retire(&mut self, address: NodeAddress) {
        assert!(self.live.remove(&address), "{address:?} is retired twice");
        self.memory.retire(address);
    }
}

/// Documents by number: the low bits count, two bits above are a poor fingerprint.
#[derive(Default)]
pub struct KeyShelf {
    keys: Vec<Vec<u8>>,
    pub asked: AtomicUsize,
}

const FINGERPRINT_AT: u32 = 40;

fn fingerprint(key: &[u8]) -> u64 {
    let sum = key.iter().fold(7u64, |sum, &byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    (sum >> 3) % 4
}

impl KeyShelf {
    pub fn add(&mut self, key: &[u8]) -> u64 {
        self.keys.push(key.to_vec());
        (self.keys.len() as u64 - 1) | fingerprint(key) << FINGERPRINT_AT
    }
}

impl Documents for KeyShelf {
    fn key(&self, document: u64) -> Result<Vec<u8>> {
        let number = document & ((1 << FINGERPRINT_AT) - 1);
        let key = self.keys.get(number as usize);
        key.cloned()
            .ok_or_else(|| Error::InvalidArgument(format!("no document {document}")))
    }

    fn keys(&self, documents: &[u64]) -> Result<Vec<Vec<u8>>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        documents.iter().map(|one| self.key(*one)).collect()
    }

    fn may_match(&self, document: u64, key: &[u8]) -> bool {
        document >> FINGERPRINT_AT == fingerprint(key)
    }
}

pub struct World {
    pub options: TrieOptions,
    pub nodes: TrackedNodes,
    pub shelf: KeyShelf,
    pub model: BTreeMap<Vec<u8>, u64>,
    pub root: Option<NodeAddress>,
}

impl World {
    pub fn new(options: TrieOptions, node_bytes: usize) -> Self {
        World {
            options,
            nodes: TrackedNodes {
                memory: MemoryNodes::new(node_bytes),
                live: HashSet::new(),
                read: Mutex::default(),
            },
            shelf: KeyShelf::default(),
            model: BTreeMap::new(),
            root: None,
        }
    }

    /// Puts (`true`) or removes keys, in trie and model.
    pub fn apply(&mut self, changes: BTreeMap<Vec<u8>, bool>) {
        let mut batch = Vec::new();
        let mut expected = BTreeSet::new();
        for (key, put) in changes {
            let change = match (put, self.model.get(&key)) {
                // Half of those that are there move, as when a document is rewritten.
                (true, Some(&from)) if from % 2 == 0 => Change::Move {
                    from,
                    to: self.shelf.add(&key),
                },
                (true, _) => Change::Put(self.shelf.add(&key)),
                (false, _) => Change::Remove,
            };
            let old = match change {
                Change::Put(document) | Change::Move { to: document, .. } => {
                    self.model.insert(key.clone(), document)
                }
                Change::Remove => self.model.remove(&key),
            };
            expected.extend(old);
            batch.push((key, change));
        }
        let mut replaced = BTreeSet::new();
        self.root = hbtrie::apply(
            &mut self.nodes,
            &self.shelf,
            &self.options,
            self.root,
            &batch,
            &mut |old| assert!(replaced.insert(old), "{old} is replaced twice"),
        )
        .unwrap();
        assert_eq!(replaced, expected, "the replaced documents");
    }

    /// Everything that must hold between batches.
    pub fn verify(&self) -> hbtrie::check::Report {
        self.nodes.read.lock().unwrap().clear();
        let report = hbtrie::check(&self.nodes, Some(&self.shelf), &self.options, self.root);
        let report = report.unwrap();
        if !report.findings.is_empty() {
            let text = hbtrie::dump(&self.nodes, &self.options, self.root, 12, &|document| {
                document.to_string()
            })
            .unwrap();
            panic!("{:#?}\n{text}", report.findings);
        }
        assert_eq!(report.statistics.documents, self.model.len() as u64);
        assert_eq!(
            *self.nodes.read.lock().unwrap(),
            self.nodes.live,
            "live nodes"
        );
        assert_eq!(report.statistics.nodes(), self.nodes.live.len() as u64);
        assert_eq!(self.root.is_none(), self.model.is_empty());
        report
    }

    pub fn find(&self, key: &[u8]) -> Option<u64> {
        let root = self.root?;
        let found = hbtrie::find(&self.nodes, &self.options, root, key).unwrap()?;
        (self.shelf.key(found).unwrap() == key).then_some(found)
    }

    pub fn verify_lookup(&self, key: &[u8]) {
        assert_eq!(self.find(key), self.model.get(key).copied(), "{key:?}");
    }

    /// Seeks and walks from a key, both ways.
    pub fn verify_walk(&self, key: &[u8], steps: usize) {
        let reader = &self.nodes;
        let mut cursor = Cursor::new(&self.options, self.root);
        let at_or_behind = (Bound::Included(key), Bound::Unbounded);
        let before = (Bound::Unbounded, Bound::Excluded(key));
        cursor.seek(reader, &self.shelf, key).unwrap();
        for (_, document) in self.model.range::<[u8], _>(at_or_behind).take(steps) {
            assert_eq!(cursor.document(), Some(*document), "from {key:?} on");
            cursor.next(reader).unwrap();
        }
        cursor.seek_before(reader, &self.shelf, key).unwrap();
        for (_, document) in self.model.range::<[u8], _>(before).rev().take(steps) {
            assert_eq!(cursor.document(), Some(*document), "back from {key:?}");
            cursor.previous(reader).unwrap();
        }
        let at_or_before = (Bound::Unbounded, Bound::Included(key));
        let last = self.model.range::<[u8], _>(at_or_before).next_back();
        let there = cursor.seek_at_or_before(reader, &self.shelf, key).unwrap();
        assert_eq!(there, last.is_some());
        assert_eq!(cursor.document(), last.map(|(_, document)| *document));
        // Turn around: the next is the one behind.
        let behind = (Bound::Excluded(key), Bound::Unbounded);
        let next = self.model.range::<[u8], _>(behind).next();
        cursor.next(reader).unwrap();
        assert_eq!(cursor.document(), next.map(|(_, document)| *document));
    }

    /// The whole trie, both ways.
    pub fn verify_all(&self) {
        let reader = &self.nodes;
        let mut cursor = Cursor::new(&self.options, self.root);
        for document in self.model.values() {
            assert!(cursor.next(reader).unwrap());
            assert_eq!(cursor.document(), Some(*document));
        }
        assert!(!cursor.next(reader).unwrap());
        for document in self.model.values().rev() {
            assert!(cursor.previous(reader).unwrap());
            assert_eq!(cursor.document(), Some(*document));
        }
        assert!(!cursor.previous(reader).unwrap());
    }
}
