//! Nodes that say anything at all: never a panic, never a loop.

use std::collections::{BTreeMap, HashMap};

use cambium_base::{Error, Result};
use cambium_index::hbtrie::{
    self, Change, Cursor, Documents, LeafRule, Shape, TrieOptions, apply, check, dump, find,
};
use cambium_index::{MemoryNodes, Node, NodeAddress, NodeReader, NodeWriter};

use crate::hbtrie::families::FAMILIES;
use crate::hbtrie::world::World;
use crate::support::Random;

/// Nodes of which some are replaced, over nodes that are sound.
struct Damaged<'n> {
    sound: &'n dyn NodeReader,
    replaced: HashMap<NodeAddress, Node>,
    appended: MemoryNodes,
    reads: std::sync::atomic::AtomicU64,
}

/// Appended nodes are numbered from here.
const APPENDED: u64 = 1 << 40;

/// No operation on tries of this size reads as many nodes, unless it loops.
const READS_MOST: u64 = 2_000_000;

impl NodeReader for Damaged<'_> {
    fn node_bytes(&self) -> usize {
        self.sound.node_bytes()
    }

    fn read(&self, address: NodeAddress) -> Result<Node> {
        let reads = self
            .reads
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        assert!(reads < READS_MOST, "it loops");
        if let Some(number) = address.0.checked_sub(APPENDED) {
            return self.appended.read(NodeAddress(number));
        }
        match self.replaced.get(&address) {
            Some(node) => Ok(node.clone()),
            None => self.sound.read(address),
        }
    }

    fn corrupt(&self, address: NodeAddress, what: String) -> Error {
        self.sound.corrupt(address, what)
    }
}

impl NodeWriter for Damaged<'_> {
    fn append(&mut self, content: Vec<u8>) -> Result<NodeAddress> {
        let address = self.appended.append(content)?;
        Ok(NodeAddress(address.0 + APPENDED))
    }

    fn retire(&mut self, _: NodeAddress) {}
}

/// Documents that have a key whatever their number.
struct AnyKeys<'w>(&'w World);

impl Documents for AnyKeys<'_> {
    fn key(&self, document: u64) -> Result<Vec<u8>> {
        let known = self.0.shelf.key(document);
        Ok(known.unwrap_or_else(|_| document.to_be_bytes().to_vec()))
    }
}

/// One to three nodes get other bytes: flipped ones, those of another node, or noise.
fn damage(world: &World, random: &mut Random) -> HashMap<NodeAddress, Node> {
    let mut addresses: Vec<NodeAddress> = world.nodes.live.iter().copied().collect();
    addresses.sort();
    let mut replaced = HashMap::new();
    for _ in 0..1 + random.below(3) {
        let address = addresses[random.below(addresses.len())];
        let mut bytes = world.nodes.memory.read(address).unwrap().to_vec();
        match random.below(5) {
            0 => {
                let other = addresses[random.below(addresses.len())];
                bytes = world.nodes.memory.read(other).unwrap().to_vec();
            }
            1 => {
                let place = random.below(bytes.len());
                let count = (bytes.len() - place).min(1 + random.below(16));
                bytes[place..place + count].copy_from_slice(&random.bytes(count));
            }
            2 => {
                // Where heads, addresses and counts stand.
                let place = random.below(80);
                bytes[place] = random.next() as u8;
            }
            3 => {
                // The largest number there is, where a count may stand.
                let place = random.below(80);
                bytes[place..place + 8].fill(0xff);
            }
            _ => {
                let place = random.below(bytes.len());
                bytes[place] ^= 1 << random.below(8);
            }
        }
        replaced.insert(address, bytes.into());
    }
    replaced
}

fn use_all(world: &World, random: &mut Random, replaced: HashMap<NodeAddress, Node>) {
    let keys = AnyKeys(world);
    let options = world.options;
    let (name, family) = FAMILIES[random.below(FAMILIES.len())];
    let _ = name;
    let mut nodes = Damaged {
        sound: &world.nodes.memory,
        replaced,
        appended: MemoryNodes::new(world.nodes.node_bytes()),
        reads: 0.into(),
    };
    let root = world.root;
    let some: Vec<&Vec<u8>> = world.model.keys().collect();
    for _ in 0..5 {
        let key = some[random.below(some.len())];
        let _ = find(&nodes, &options, root.unwrap(), key);
        let mut cursor = Cursor::new(&options, root);
        let _ = cursor.seek(&nodes, &keys, key);
        for _ in 0..20 {
            let _ = cursor.next(&nodes);
        }
        let _ = cursor.seek_at_or_before(&nodes, &keys, key);
        for _ in 0..20 {
            let _ = cursor.previous(&nodes);
        }
    }
    let report = check(&nodes, Some(&keys), &options, root);
    assert!(
        !matches!(report, Err(Error::Corruption { .. })),
        "damage is a finding"
    );
    let _ = dump(&nodes, &options, root, 5, &|document| document.to_string());
    let mut changes = BTreeMap::new();
    for _ in 0..40 {
        changes.insert(family(random), random.below(2) == 0);
        changes.insert(some[random.below(some.len())].clone(), random.below(2) == 0);
    }
    let batch: Vec<(Vec<u8>, Change)> = changes
        .into_iter()
        .map(|(key, put)| (key, if put { Change::Put(1) } else { Change::Remove }))
        .collect();
    let _ = apply(&mut nodes, &keys, &options, root, &batch, &mut |_| ());
}

#[test]
fn damaged_nodes_never_panic_or_loop() {
    for leaf_extension in [LeafRule::Off, LeafRule::Paper, LeafRule::Mended] {
        for (number, (_, family)) in FAMILIES.iter().enumerate() {
            let options = TrieOptions {
                chunk_bytes: [1, 8][number % 2],
                shape: Shape::HbTrie { leaf_extension },
            };
            let mut random = Random::new(number as u64 + 77);
            let mut world = World::new(options, 512);
            world.apply((0..400).map(|_| (family(&mut random), true)).collect());
            for _ in 0..150 {
                let replaced = damage(&world, &mut random);
                use_all(&world, &mut random, replaced);
            }
        }
    }
}

#[test]
fn a_sub_tree_that_is_its_own_ancestor_is_an_error() {
    // Two keys share a chunk: a root and a sub-tree of one node each.
    let options = TrieOptions {
        chunk_bytes: 1,
        shape: Shape::HbTrie {
            leaf_extension: LeafRule::Off,
        },
    };
    let mut world = World::new(options, 512);
    let keys: [&[u8]; 3] = [b"ab", b"ac", b"b"];
    world.apply(keys.iter().map(|key| (key.to_vec(), true)).collect());
    let root = world.root.unwrap();
    let below = world.nodes.live.iter().copied().find(|&node| node != root);
    let looped = HashMap::from([(below.unwrap(), world.nodes.memory.read(root).unwrap())]);
    let nodes = Damaged {
        sound: &world.nodes.memory,
        replaced: looped,
        appended: MemoryNodes::new(512),
        reads: 0.into(),
    };
    let found = find(&nodes, &options, root, b"abababab");
    assert!(matches!(found, Err(Error::Corruption { .. })), "{found:?}");
    let report = hbtrie::check(&nodes, None, &options, Some(root)).unwrap();
    assert!(!report.findings.is_empty());
}
