//! Trees over nodes of any content: the input is a few nodes, each behind a trailer
//! that matches, and a key.
#![no_main]

use std::sync::atomic::{AtomicU64, Ordering};

use cambium_base::{Error, Result};
use cambium_index::btree::{self, KeyLayout, TreeOptions};
use cambium_index::hbtrie::{self, Change, Documents, LeafRule, Shape, TrieOptions};
use cambium_index::{Node, NodeAddress, NodeReader, NodeWriter};
use libfuzzer_sys::fuzz_target;

const NODE: usize = 256;
/// No call on so few nodes reads as many, unless it loops.
const READS_MOST: u64 = 200_000;

struct Nodes {
    nodes: Vec<Node>,
    reads: AtomicU64,
}

impl NodeReader for Nodes {
    fn node_bytes(&self) -> usize {
        NODE
    }

    fn read(&self, address: NodeAddress) -> Result<Node> {
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        assert!(reads < READS_MOST, "it loops");
        let node = usize::try_from(address.0).ok().and_then(|at| self.nodes.get(at));
        node.cloned().ok_or_else(|| self.corrupt(address, "no such node".to_string()))
    }

    fn corrupt(&self, address: NodeAddress, what: String) -> Error {
        Error::corruption("nodes", address.0, what)
    }
}

impl NodeWriter for Nodes {
    fn append(&mut self, content: Vec<u8>) -> Result<NodeAddress> {
        self.nodes.push(content.into());
        Ok(NodeAddress(self.nodes.len() as u64 - 1))
    }

    fn retire(&mut self, _: NodeAddress) {}
}

/// Any number is a document, whose key is its number.
struct Numbers;

impl Documents for Numbers {
    fn key(&self, document: u64) -> Result<Vec<u8>> {
        Ok(document.to_be_bytes().to_vec())
    }
}

fn trees(nodes: &mut Nodes, root: NodeAddress, key: &[u8]) {
    let _ = btree::get(nodes, root, key);
    let mut cursor = btree::Cursor::new(Some(root));
    let _ = cursor.seek(nodes, key);
    let _ = cursor.previous(nodes);
    let mut cursor = btree::Cursor::new(Some(root));
    let mut steps = 0;
    while let (Ok(true), true) = (cursor.next(nodes), steps < 500) {
        steps += 1;
    }
    let options = TreeOptions::new(KeyLayout::Variable);
    let _ = btree::check(nodes, &options, Some(root), &mut |_, _| Ok(()));
}

fn tries(nodes: &mut Nodes, root: NodeAddress, key: &[u8]) {
    let options = TrieOptions {
        chunk_bytes: 4,
        shape: Shape::HbTrie { leaf_extension: LeafRule::Mended },
    };
    let _ = hbtrie::find(nodes, &options, root, key);
    let mut cursor = hbtrie::Cursor::new(&options, Some(root));
    let _ = cursor.seek(nodes, &Numbers, key);
    let mut steps = 0;
    while let (Ok(true), true) = (cursor.previous(nodes), steps < 500) {
        steps += 1;
    }
    let found = hbtrie::check(nodes, Some(&Numbers), &options, Some(root));
    assert!(!matches!(found, Err(Error::Corruption { .. })), "damage is a finding");
    let _ = hbtrie::dump(nodes, &options, Some(root), 3);
    let batch = [(key.to_vec(), Change::Put(7))];
    let _ = hbtrie::apply(nodes, &Numbers, &options, Some(root), &batch, &mut |_| ());
}

fuzz_target!(|data: &[u8]| {
    let Some((&key_bytes, rest)) = data.split_first() else { return };
    let (key, rest) = rest.split_at(rest.len().min(usize::from(key_bytes) % 40));
    let blocks = rest.chunks(NODE).map(|content| {
        let mut node = content.to_vec();
        node.resize(NODE, 0);
        Node::from(node)
    });
    let mut nodes = Nodes { nodes: blocks.take(16).collect(), reads: AtomicU64::new(0) };
    trees(&mut nodes, NodeAddress(0), key);
    nodes.reads = AtomicU64::new(0);
    tries(&mut nodes, NodeAddress(0), key);
});
