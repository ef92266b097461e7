//! Index structures side by side: space, height and node reads for the key patterns of
//! ForestDB 2016, as in its figures 12 and 13.
//!
//! ```text
//! cargo run --release -p kvzone-core --example index_shape [KEYS]
//! ```
//!
//! Each index is filled in random order, in batches of 4,096 as a write buffer flushes them,
//! with nodes of 4,096 bytes and chunks of 8. The paper measures the time of node reads on a
//! disk; the index decides their number, which is what is printed.

use std::collections::HashMap;

use cambium_base::{Error, Result};
use cambium_index::hbtrie::{self, Change, Documents, LeafRule, Shape, TrieOptions};
use cambium_index::{Node, NodeAddress, NodeReader, NodeWriter};
use kvzone_core::key_patterns::{KeyPattern, Keys};
use kvzone_core::permutation::Permutation;
use kvzone_core::report::grid::Grid;
use kvzone_core::report::text::{bytes, three_digits};

const SEED: u64 = 1;
const NODE_BYTES: usize = 4_096;
const BATCH: u64 = 4_096;

const fn trie(leaf_extension: LeafRule) -> Shape {
    Shape::HbTrie { leaf_extension }
}

const STRUCTURES: [(&str, Shape); 5] = [
    ("B+-tree", Shape::PlainBTree),
    ("prefix B+-tree", Shape::PrefixBTree),
    ("HB+-trie, no leaf trees", trie(LeafRule::Off)),
    ("HB+-trie, paper's rule", trie(LeafRule::Paper)),
    ("HB+-trie", trie(LeafRule::Mended)),
];

const PATTERNS: [KeyPattern; 9] = [
    KeyPattern::Random(8),
    KeyPattern::Random(16),
    KeyPattern::Random(32),
    KeyPattern::Random(64),
    KeyPattern::Random(128),
    KeyPattern::Random(256),
    KeyPattern::Worst,
    KeyPattern::Small,
    KeyPattern::TwoLevel,
];

struct IndexShape {
    /// Bytes of all live nodes.
    bytes: u64,
    /// Mean node reads of a lookup.
    node_reads: f64,
    /// Node reads of the longest lookup.
    height: u64,
}

/// Documents whose number is their key's number. The numbers carry bits at their upper end, as
/// a real store's do: a node could pack small ones.
struct Numbered(Keys);

const UPPER_BITS: u64 = 0x2a << 56;

impl Documents for Numbered {
    fn key(&self, document: u64) -> Result<Vec<u8>> {
        Ok(self.0.key(document & !UPPER_BITS))
    }
}

/// Live nodes in memory. A batch drops the nodes that it retired when it ends: a trie of
/// skewed keys without leaf trees writes many times what lives in the end.
#[derive(Debug, Default)]
struct LiveNodes {
    next: u64,
    nodes: HashMap<u64, Node>,
    retired: Vec<u64>,
}

impl NodeReader for LiveNodes {
    fn node_bytes(&self) -> usize {
        NODE_BYTES
    }

    fn read(&self, address: NodeAddress) -> Result<Node> {
        let node = self.nodes.get(&address.0).cloned();
        node.ok_or_else(|| self.corrupt(address, "no such node lives".to_string()))
    }

    fn corrupt(&self, address: NodeAddress, what: String) -> Error {
        Error::corruption("nodes in memory", address.0, what)
    }
}

impl NodeWriter for LiveNodes {
    fn append(&mut self, content: Vec<u8>) -> Result<NodeAddress> {
        self.next += 1;
        self.nodes.insert(self.next, content.into());
        Ok(NodeAddress(self.next))
    }

    fn retire(&mut self, address: NodeAddress) {
        self.retired.push(address.0);
    }
}

/// Builds an index, and checks it.
fn built(pattern: KeyPattern, count: u64, shape: Shape) -> Result<IndexShape> {
    let options = TrieOptions {
        chunk_bytes: 8,
        shape,
    };
    let keys = Keys::new(pattern, SEED);
    let documents = Numbered(keys);
    let order = Permutation::new(count, SEED);
    let mut nodes = LiveNodes::default();
    let mut root = None;
    for begin in (0..count).step_by(BATCH as usize) {
        let mut batch: Vec<(Vec<u8>, Change)> = (begin..count.min(begin + BATCH))
            .map(|place| order.apply(place))
            .map(|number| (keys.key(number), Change::Put(number | UPPER_BITS)))
            .collect();
        batch.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        root = hbtrie::apply(&mut nodes, &documents, &options, root, &batch, &mut |_| ())?;
        for address in std::mem::take(&mut nodes.retired) {
            nodes.nodes.remove(&address);
        }
    }
    let report = hbtrie::check(&nodes, None, &options, root)?;
    if let Some(finding) = report.findings.first() {
        return Err(nodes.corrupt(finding.node, finding.what.clone()));
    }
    let statistics = report.statistics;
    Ok(IndexShape {
        bytes: statistics.bytes(),
        node_reads: statistics.mean_node_reads(),
        height: statistics.height,
    })
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let count: u64 = match std::env::args().nth(1) {
        Some(count) => count.parse()?,
        None => 1_000_000,
    };
    let heads = [
        "keys",
        "index",
        "space",
        "bytes/key",
        "node reads",
        "height",
    ];
    let mut table = Grid {
        heads: heads.map(str::to_string).to_vec(),
        words: 2,
        rows: Vec::new(),
    };
    for pattern in PATTERNS {
        for (name, shape) in STRUCTURES {
            let found = built(pattern, count, shape)?;
            table.rows.push(vec![
                pattern.to_string(),
                name.to_string(),
                bytes(found.bytes as f64),
                three_digits(found.bytes as f64 / count as f64),
                three_digits(found.node_reads),
                found.height.to_string(),
            ]);
        }
    }
    print!("{}", table.markdown());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX_TREE: Shape = Shape::PrefixBTree;
    const MENDED: Shape = trie(LeafRule::Mended);

    fn shape(pattern: KeyPattern, shape: Shape) -> IndexShape {
        built(pattern, 60_000, shape).unwrap()
    }

    #[test]
    fn random_keys_cost_a_trie_the_same_whatever_their_length() {
        let shortest = shape(KeyPattern::Random(8), MENDED);
        for bytes in [64, 256] {
            let trie = shape(KeyPattern::Random(bytes), MENDED);
            let difference = trie.bytes as f64 / shortest.bytes as f64 - 1.0;
            assert!(difference.abs() < 0.05, "{bytes}: {difference}");
        }
        let ratio = |bytes, other| {
            let other = shape(KeyPattern::Random(bytes), other);
            shortest.bytes as f64 / other.bytes as f64
        };
        assert!(ratio(64, Shape::PlainBTree) <= 0.25);
        assert!(ratio(64, PREFIX_TREE) <= 0.35);
        assert!(ratio(256, Shape::PlainBTree) <= 0.08);
        assert!(ratio(256, PREFIX_TREE) <= 0.1);
    }

    #[test]
    fn skewed_keys_cost_a_trie_no_more_than_a_prefix_tree() {
        for (pattern, most) in [
            (KeyPattern::Worst, 1.1),
            (KeyPattern::TwoLevel, 1.0),
            (KeyPattern::Small, 0.5),
        ] {
            let (trie, tree) = (shape(pattern, MENDED), shape(pattern, PREFIX_TREE));
            let space = trie.bytes as f64 / tree.bytes as f64;
            let reads = trie.node_reads / tree.node_reads;
            assert!(space <= most, "{pattern}: {space} of the space");
            assert!(reads <= most.max(1.0), "{pattern}: {reads} of the reads");
        }
    }
}
