//! What the tests of the trees share: a random generator, families of keys
//! that are hard on trees, and a tree that is held beside its model.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use cambium_base::{Error, Result};
use cambium_index::btree::NodeView;
use cambium_index::btree::{self, Cursor, Statistics, TreeOptions, max_key_bytes};
use cambium_index::{MemoryNodes, Node, NodeAddress, NodeReader, NodeWriter};

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    /// A value of any width.
    pub fn value(&mut self) -> u64 {
        self.next() >> (8 * self.below(8))
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Ways to make keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// 8 random bytes.
    Integers,
    /// 8 bytes of a small range.
    Dense8,
    /// 3 bytes of a small range.
    Dense,
    /// A zero-padded chunk of 0 to 8 bytes, and its length.
    Chunks,
    /// A long common prefix, then one byte, or two, or none.
    LongShared,
    /// Short text of any length, the empty one included.
    Words,
    /// `b`, `bb`, `bbb`, ...: each the prefix of the next.
    Repeated,
    /// Few long prefixes, each with its own few keys; zeros and 0xff.
    Clustered,
    /// As long as keys may be, differing at the very end.
    Longest,
    /// Each key of one of the families whose keys have any length.
    Mixed,
}

impl Family {
    pub fn key(self, random: &mut Random, node_bytes: usize) -> Vec<u8> {
        let most = max_key_bytes(node_bytes);
        match self {
            Family::Integers => random.next().to_be_bytes().to_vec(),
            Family::Dense8 => (random.next() % 5000).to_be_bytes().to_vec(),
            Family::Dense => (random.next() % 20_000).to_be_bytes()[5..].to_vec(),
            Family::Chunks => {
                let length = 8usize.saturating_sub(random.below(20));
                let mut key = vec![0; 9];
                for byte in &mut key[..length] {
                    *byte = [0, 1, 255, b'a', b'b'][random.below(5)];
                }
                key[8] = length as u8;
                key
            }
            Family::LongShared => {
                let mut key = vec![b'x'; most - 2 - random.below(2)];
                let tail = random.next().to_be_bytes();
                key.extend_from_slice(&tail[..random.below(3)]);
                key
            }
            Family::Words => {
                let length = random.below(12);
                (0..length).map(|_| b'a' + random.below(4) as u8).collect()
            }
            Family::Repeated => vec![b'b'; random.below(most + 1)],
            Family::Clustered => {
                let cluster = random.below(40);
                let mut key = vec![cluster as u8; cluster];
                let tail = random.below(20);
                key.extend((0..tail).map(|_| [0u8, 0xff][random.below(2)]));
                key
            }
            Family::Longest => {
                let mut key = vec![0xff; most];
                let tail = random.below(1000) as u16;
                key[most - 2..].copy_from_slice(&tail.to_be_bytes());
                if random.below(2) == 0 {
                    key[0] = random.below(8) as u8;
                }
                key
            }
            Family::Mixed => {
                use Family::{Clustered, Integers, LongShared, Longest, Repeated, Words};
                let families = [Clustered, Integers, LongShared, Longest, Repeated, Words];
                families[random.below(families.len())].key(random, node_bytes)
            }
        }
    }
}

/// Nodes in memory that know which are live, and that each is retired once.
pub struct WatchedNodes {
    pub memory: MemoryNodes,
    pub live: BTreeSet<NodeAddress>,
}

impl WatchedNodes {
    pub fn new(node_bytes: usize) -> Self {
        WatchedNodes {
            memory: MemoryNodes::new(node_bytes),
            live: BTreeSet::new(),
        }
    }

    /// The nodes that a root reaches.
    pub fn reachable(&self, root: Option<NodeAddress>) -> BTreeSet<NodeAddress> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<_> = root.into_iter().collect();
        while let Some(address) = open.pop() {
            assert!(seen.insert(address), "{address:?} has two parents");
            let node = self.read(address).unwrap();
            let node = NodeView::parse(&node).unwrap();
            if node.level() > 0 {
                open.extend((0..node.values()).map(|position| node.child(position)));
            }
        }
        seen
    }
}

impl NodeReader for WatchedNodes {
    fn node_bytes(&self) -> usize {
        self.memory.node_bytes()
    }

    fn read(&self, address: NodeAddress) -> Result<Node> {
        self.memory.read(address)
    }

    fn corrupt(&self, address: NodeAddress, what: String) -> Error {
        self.memory.corrupt(address, what)
    }
}

impl NodeWriter for WatchedNodes {
    fn append(&mut self, content: Vec<u8>) -> Result<NodeAddress> {
        let address = self.memory.append(content)?;
        self.live.insert(address);
        Ok(address)
    }

    fn retire(&mut self, address: NodeAddress) {
        assert!(
            self.live.remove(&address),
            "{address:?} is retired and was not live"
        );
    }
}

/// A tree, its nodes, and what it must hold.
pub struct Subject {
    pub nodes: WatchedNodes,
    pub options: TreeOptions,
    pub root: Option<NodeAddress>,
    pub model: BTreeMap<Vec<u8>, u64>,
}

impl Subject {
    pub fn new(node_bytes: usize, options: TreeOptions) -> Self {
        Subject {
            nodes: WatchedNodes::new(node_bytes),
            options,
            root: None,
            model: BTreeMap::new(),
        }
    }

    pub fn some_key(&self, random: &mut Random) -> Option<Vec<u8>> {
        let count = self.model.len();
        (count > 0).then(|| self.model.keys().nth(random.below(count)).unwrap().clone())
    }

    /// Applies to tree and model; `merge` must be shown what the model has.
    pub fn apply(&mut self, changes: &BTreeMap<Vec<u8>, Option<u64>>, what: &str) {
        let mut keys = changes.keys().map(|key| Cow::Borrowed(key.as_slice()));
        let mut asked = Vec::new();
        let model = &self.model;
        let (appended, live) = (self.nodes.memory.appended(), self.nodes.live.clone());
        let root = btree::apply(
            &mut self.nodes,
            &self.options,
            self.root,
            b"owner",
            &mut keys,
            &mut |_, key, old| {
                assert_eq!(old, model.get(key).copied(), "{what}: {key:02x?}");
                asked.push(key.to_vec());
                Ok(changes[key])
            },
        );
        self.root = root.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(
            asked.iter().eq(changes.keys()),
            "{what}: each key is asked for once"
        );
        let written = self.nodes.memory.appended() - appended;
        let new = self.nodes.live.difference(&live).count() as u64;
        assert_eq!(
            written, new,
            "{what}: what a batch appends, it does not retire"
        );
        for (key, value) in changes {
            match value {
                Some(value) => self.model.insert(key.clone(), *value),
                None => self.model.remove(key),
            };
        }
    }

    /// Every invariant, gets of present and absent keys, cursors both ways.
    pub fn check(&self, random: &mut Random, what: &str) -> Statistics {
        let mut expected = self.model.iter();
        let report = btree::check(&self.nodes, &self.options, self.root, &mut |key, value| {
            assert_eq!(expected.next(), Some((&key.to_vec(), &value)), "{what}");
            Ok(())
        });
        let report = report.unwrap();
        assert_eq!(report.findings, [], "{what}");
        assert!(expected.next().is_none(), "{what}");
        let reachable = self.nodes.reachable(self.root);
        assert_eq!(reachable, self.nodes.live, "{what}: live nodes");
        assert_eq!(report.statistics.nodes(), reachable.len() as u64, "{what}");
        let keys: Vec<_> = (0..20).map(|_| self.near_key(random)).collect();
        if let Some(root) = self.root {
            let asked: Vec<_> = keys.iter().map(Vec::as_slice).collect();
            let expected: Vec<_> = keys
                .iter()
                .map(|key| self.model.get(key).copied())
                .collect();
            let found = btree::get_many(&self.nodes, root, &asked).unwrap();
            assert_eq!(found, expected, "{what}");
        }
        for key in keys {
            let found = self
                .root
                .and_then(|root| btree::get(&self.nodes, root, &key).unwrap());
            assert_eq!(found, self.model.get(&key).copied(), "{what}: {key:02x?}");
            self.walk(&key, random, what);
        }
        report.statistics
    }

    /// A key that is there, or hardly differs from one.
    fn near_key(&self, random: &mut Random) -> Vec<u8> {
        let mut key = self.some_key(random).unwrap_or_default();
        match random.below(4) {
            0 => drop(key.pop()),
            1 => key.push([0, 1, 255][random.below(3)]),
            2 => {
                if let Some(byte) = key.last_mut() {
                    *byte = byte.wrapping_add(1);
                }
            }
            _ => (),
        }
        key
    }

    /// Seeks, and takes steps in both directions.
    fn walk(&self, key: &[u8], random: &mut Random, what: &str) {
        let mut cursor = Cursor::new(self.root);
        let there = cursor.seek(&self.nodes, key).unwrap();
        let mut behind = self.model.range(key.to_vec()..);
        let mut expected = behind.next();
        assert_eq!(there, expected.is_some(), "{what}");
        for _ in 0..random.below(30) {
            let shown = cursor.entry();
            assert_eq!(
                shown,
                expected.map(|(key, value)| (key.as_slice(), *value)),
                "{what}"
            );
            let at = cursor.key().map(<[u8]>::to_vec);
            if random.below(5) < 2 {
                let before = match &at {
                    Some(key) => self.model.range(..key.clone()).next_back(),
                    None => self.model.iter().next_back(),
                };
                assert_eq!(
                    cursor.previous(&self.nodes).unwrap(),
                    before.is_some(),
                    "{what}"
                );
                expected = before;
                if before.is_none() {
                    assert!(!cursor.previous(&self.nodes).unwrap());
                    expected = self.model.iter().next();
                    assert_eq!(cursor.next(&self.nodes).unwrap(), expected.is_some());
                    if expected.is_none() {
                        return;
                    }
                }
            } else if let Some(at) = at {
                use std::ops::Bound::{Excluded, Unbounded};
                expected = self.model.range((Excluded(at), Unbounded)).next();
                assert_eq!(
                    cursor.next(&self.nodes).unwrap(),
                    expected.is_some(),
                    "{what}"
                );
            }
        }
    }

    /// Deletes in random halves until nothing is left.
    pub fn delete_all(&mut self, what: &str) {
        let mut random = Random::new(5);
        while !self.model.is_empty() {
            let some: BTreeSet<_> = self.model.keys().cloned().collect();
            let some = some.into_iter().filter(|_| random.below(2) == 0);
            let batch = some.map(|key| (key, None)).collect();
            self.apply(&batch, what);
            self.check(&mut random, what);
        }
        assert_eq!(self.root, None, "{what}");
        assert!(self.nodes.live.is_empty(), "{what}");
    }
}
