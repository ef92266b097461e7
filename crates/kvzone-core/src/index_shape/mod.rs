//! Index structures side by side: space, height and node reads for the key patterns of
//! ForestDB 2016, as in its figures 12 and 13.
//!
//! Each index is filled in random order, in batches as a write buffer flushes them, with
//! nodes in memory: what counts is how many nodes live in the end, and how many of them a
//! lookup reads. Figures 12b and 13b measure the time of those reads on a disk; their
//! number is what the index decides, and [`on_disk`] measures both: live nodes in a file
//! of their own, read past all caches.

pub mod on_disk;

use cambium_base::{Error, Result as IndexResult};
use cambium_index::hbtrie::{self, Change, Documents, LeafRule, Shape, TrieOptions};
use cambium_index::{Node, NodeAddress, NodeReader, NodeWriter};

use crate::key_patterns::{KeyPattern, Keys};
use crate::permutation::Permutation;

/// The structures of figures 12 and 13, and the paper's own leaf rule beside ours.
pub const STRUCTURES: [(&str, Shape); 5] = [
    ("B+-tree", Shape::PlainBTree),
    ("prefix B+-tree", Shape::PrefixBTree),
    (
        "HB+-trie, no leaf trees",
        Shape::HbTrie {
            leaf_extension: LeafRule::Off,
        },
    ),
    (
        "HB+-trie, paper's rule",
        Shape::HbTrie {
            leaf_extension: LeafRule::Paper,
        },
    ),
    (
        "HB+-trie",
        Shape::HbTrie {
            leaf_extension: LeafRule::Mended,
        },
    ),
];

/// What is built.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The keys.
    pub pattern: KeyPattern,
    /// How many.
    pub keys: u64,
    /// The structure.
    pub shape: Shape,
    /// Bytes of a node.
    pub node_bytes: usize,
    /// Bytes of a chunk.
    pub chunk_bytes: usize,
    /// Keys of a batch: 4,096 is the paper's write buffer.
    pub batch: u64,
    /// Where the keys come from.
    pub seed: u64,
}

/// The shape of the index in the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IndexShape {
    /// Bytes of all live nodes.
    pub bytes: u64,
    /// Mean node reads of a lookup.
    pub node_reads: f64,
    /// Node reads of the longest lookup.
    pub height: u64,
}

/// Documents whose number is their key's number.
///
/// An index of one million keys cannot tell a small number from a large one, but a node
/// could pack it; so numbers carry bits at their upper end, as a real store's do.
struct Numbered(Keys);

const UPPER_BITS: u64 = 0x2a << 56;

impl Documents for Numbered {
    fn key(&self, document: u64) -> IndexResult<Vec<u8>> {
        Ok(self.0.key(document & !UPPER_BITS))
    }
}

/// Nodes in memory. Retired ones are kept to the end of their batch, as a store keeps
/// them for its readers, and no longer: a naive trie of skewed keys writes many times
/// what lives in the end.
#[derive(Debug)]
struct LiveNodes {
    node_bytes: usize,
    nodes: Vec<Option<Node>>,
    retired: Vec<usize>,
}

impl LiveNodes {
    fn drop_retired(&mut self) {
        for at in self.retired.drain(..) {
            self.nodes[at] = None;
        }
    }
}

impl NodeReader for LiveNodes {
    fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    fn read(&self, address: NodeAddress) -> IndexResult<Node> {
        let index = usize::try_from(address.0).unwrap_or(usize::MAX);
        let node = index.checked_sub(1).and_then(|at| self.nodes.get(at));
        node.cloned()
            .flatten()
            .ok_or_else(|| self.corrupt(address, "no such node lives".to_string()))
    }

    fn corrupt(&self, address: NodeAddress, what: String) -> Error {
        let offset = address.0.saturating_mul(self.node_bytes as u64);
        Error::corruption("nodes in memory", offset, what)
    }
}

impl NodeWriter for LiveNodes {
    fn append(&mut self, content: Vec<u8>) -> IndexResult<NodeAddress> {
        self.nodes.push(Some(content.into()));
        Ok(NodeAddress(self.nodes.len() as u64))
    }

    fn retire(&mut self, address: NodeAddress) {
        let index = usize::try_from(address.0).unwrap_or(usize::MAX);
        self.retired
            .extend(index.checked_sub(1).filter(|&at| at < self.nodes.len()));
    }
}

/// An index in memory.
struct Built {
    nodes: LiveNodes,
    root: Option<NodeAddress>,
    options: TrieOptions,
    shape: IndexShape,
}

/// Builds an index, and checks it.
fn built(experiment: &Experiment) -> IndexResult<Built> {
    let options = TrieOptions {
        chunk_bytes: experiment.chunk_bytes,
        shape: experiment.shape,
    };
    let keys = Keys::new(experiment.pattern, experiment.seed);
    let documents = Numbered(keys);
    let order = Permutation::new(experiment.keys, experiment.seed);
    let mut nodes = LiveNodes {
        node_bytes: experiment.node_bytes,
        nodes: Vec::new(),
        retired: Vec::new(),
    };
    let mut root = None;
    let mut begin = 0;
    while begin < experiment.keys {
        let end = experiment.keys.min(begin + experiment.batch);
        let mut batch: Vec<(Vec<u8>, Change)> = (begin..end)
            .map(|place| order.apply(place))
            .map(|number| (keys.key(number), Change::Put(number | UPPER_BITS)))
            .collect();
        batch.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        root = hbtrie::apply(&mut nodes, &documents, &options, root, &batch, &mut |_| ())?;
        nodes.drop_retired();
        begin = end;
    }
    let report = hbtrie::check(&nodes, None, &options, root)?;
    if let Some(finding) = report.findings.first() {
        return Err(nodes.corrupt(finding.node, finding.what.clone()));
    }
    let statistics = report.statistics;
    let shape = IndexShape {
        bytes: statistics.bytes(),
        node_reads: statistics.mean_node_reads(),
        height: statistics.height,
    };
    Ok(Built {
        nodes,
        root,
        options,
        shape,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX_TREE: Shape = Shape::PrefixBTree;
    const MENDED: Shape = Shape::HbTrie {
        leaf_extension: LeafRule::Mended,
    };

    fn shape(pattern: KeyPattern, shape: Shape) -> IndexShape {
        built(&Experiment {
            pattern,
            keys: 60_000,
            shape,
            node_bytes: 4096,
            chunk_bytes: 8,
            batch: 4096,
            seed: 1,
        })
        .unwrap()
        .shape
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
