//! Damaged nodes behind a valid trailer: whatever is asked of such a tree, it
//! answers something or an error; it never panics and never loops.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cambium_base::{Error, Result};
use cambium_index::btree::{self, Cursor, KeyLayout, TreeOptions};
use cambium_index::{NODE_TRAILER_BYTES, Node, NodeAddress, NodeReader, NodeWriter};

use crate::support::{Family, Random, Subject};

/// Nodes that are what a test says, over others; too many reads are a loop.
struct DamagedNodes<'n> {
    sound: &'n crate::support::WatchedNodes,
    damaged: BTreeMap<NodeAddress, Node>,
    added: Vec<Node>,
    reads: std::sync::atomic::AtomicU64,
}

/// Trees here have fewer than 200 nodes, and no call visits one often.
const MOST_READS: u64 = 20_000;

impl NodeReader for DamagedNodes<'_> {
    fn node_bytes(&self) -> usize {
        self.sound.node_bytes()
    }

    fn read(&self, address: NodeAddress) -> Result<Node> {
        let reads = self
            .reads
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        assert!(reads < MOST_READS, "a damaged tree is walked without end");
        if let Some(node) = self.damaged.get(&address) {
            return Ok(node.clone());
        }
        let added = address.0.checked_sub(1 << 40);
        match added.and_then(|added| self.added.get(added as usize)) {
            Some(node) => Ok(node.clone()),
            None => self.sound.read(address),
        }
    }

    fn corrupt(&self, address: NodeAddress, what: String) -> Error {
        self.sound.corrupt(address, what)
    }
}

impl NodeWriter for DamagedNodes<'_> {
    fn append(&mut self, content: Vec<u8>) -> Result<NodeAddress> {
        self.added.push(content.into());
        Ok(NodeAddress((1 << 40) + self.added.len() as u64 - 1))
    }

    fn retire(&mut self, _: NodeAddress) {}
}

/// Asks everything there is of the tree.
fn exercise(nodes: &mut DamagedNodes<'_>, subject: &Subject, random: &mut Random) {
    let root = subject.root.unwrap();
    let again = |nodes: &mut DamagedNodes<'_>| *nodes.reads.get_mut() = 0;
    for _ in 0..10 {
        again(nodes);
        let key = subject.some_key(random).unwrap();
        let _ = btree::get(nodes, root, &key);
        let mut cursor = Cursor::new(Some(root));
        let _ = cursor.seek(nodes, &key);
        for _ in 0..5 {
            let _ = cursor.previous(nodes);
            let _ = cursor.next(nodes);
            let _ = cursor.next(nodes);
        }
    }
    again(nodes);
    let keys: Vec<_> = (0..10).map(|_| subject.some_key(random).unwrap()).collect();
    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let _ = btree::get_many(nodes, root, &keys);
    again(nodes);
    let mut cursor = Cursor::new(Some(root));
    while let Ok(true) = cursor.next(nodes) {}
    again(nodes);
    let mut cursor = Cursor::new(Some(root));
    let mut more = cursor.seek_last(nodes);
    while let Ok(true) = more {
        more = cursor.previous(nodes);
    }
    again(nodes);
    btree::check(nodes, &subject.options, Some(root), &mut |_, _| Ok(())).unwrap();
    again(nodes);
    let _ = btree::retire_all(nodes, root);
    again(nodes);
    let keys: std::collections::BTreeSet<_> =
        (0..20).map(|_| subject.some_key(random).unwrap()).collect();
    let mut keys = keys.iter().map(|key| Cow::Borrowed(key.as_slice()));
    let mut merge = |_: &mut DamagedNodes<'_>, key: &[u8], _: Option<u64>| {
        Ok((key.last().copied().unwrap_or(0) % 2 == 0).then_some(u64::MAX))
    };
    let _ = btree::apply(
        nodes,
        &subject.options,
        Some(root),
        b"",
        &mut keys,
        &mut merge,
    );
}

fn subjects() -> Vec<Subject> {
    let cases = [
        (Family::Integers, KeyLayout::Fixed(8)),
        (Family::Words, KeyLayout::Variable),
        (Family::LongShared, KeyLayout::Variable),
        (Family::Clustered, KeyLayout::Variable),
    ];
    let make = |(number, (family, keys)): (usize, (Family, KeyLayout))| {
        let mut random = Random::new(number as u64);
        let mut subject = Subject::new(512, TreeOptions::new(keys));
        for _ in 0..4 {
            let batch = (0..500)
                .map(|_| (family.key(&mut random, 512), Some(random.value())))
                .collect();
            subject.apply(&batch, "damage");
        }
        subject
    };
    cases.into_iter().enumerate().map(make).collect()
}

#[test]
fn damaged_nodes_never_panic_and_never_loop() {
    // More than are run always: TREE_SEEDS=1000 cargo test -p cambium-index
    let rounds = std::env::var("TREE_SEEDS").map_or(1, |seeds| seeds.parse().unwrap());
    let mut random = Random::new(rounds);
    for subject in (0..rounds).flat_map(|_| subjects()) {
        let live: Vec<_> = subject.nodes.live.iter().copied().collect();
        for _ in 0..1500 {
            let mut damaged = BTreeMap::new();
            for _ in 0..1 + random.below(3) {
                // The root and its neighbours are hit more often than others.
                let newest = 1 + random.below(live.len());
                let target = live[live.len() - 1 - random.below(newest)];
                let node = subject.nodes.read(target).unwrap();
                damaged.insert(target, damage(&node, &live, &subject, &mut random));
            }
            let mut nodes = DamagedNodes {
                sound: &subject.nodes,
                damaged,
                added: Vec::new(),
                reads: 0.into(),
            };
            exercise(&mut nodes, &subject, &mut random);
        }
    }
}

fn damage(node: &Node, live: &[NodeAddress], subject: &Subject, random: &mut Random) -> Node {
    let mut bytes = node.to_vec();
    let room = bytes.len() - NODE_TRAILER_BYTES;
    match random.below(5) {
        0 => (0..1 + random.below(4)).for_each(|_| bytes[random.below(16)] = random.next() as u8),
        1 => {
            (0..1 + random.below(8)).for_each(|_| bytes[random.below(room)] ^= 1 << random.below(8))
        }
        2 => bytes[1..room].fill_with(|| random.next() as u8),
        3 => {
            // Sound sizes, random content.
            bytes[16..room].fill_with(|| random.next() as u8);
        }
        _ => return subject.nodes.read(live[random.below(live.len())]).unwrap(),
    }
    bytes.into()
}

#[test]
fn check_names_a_node_in_another_ones_place() {
    let mut found = 0;
    for subject in subjects() {
        let live: Vec<_> = subject.nodes.live.iter().copied().collect();
        for pair in live.windows(2) {
            let mut nodes = DamagedNodes {
                sound: &subject.nodes,
                damaged: BTreeMap::new(),
                added: Vec::new(),
                reads: 0.into(),
            };
            let other = subject.nodes.read(pair[1]).unwrap();
            nodes.damaged.insert(pair[0], other);
            let report = btree::check(&nodes, &subject.options, subject.root, &mut |_, _| Ok(()));
            assert!(!report.unwrap().findings.is_empty(), "{pair:?}");
            found += 1;
        }
    }
    assert!(found > 50);
}
