//! When a leaf tree becomes a trie tree.
//!
//! A leaf tree is as good as a prefix B+-tree, and as bad: long suffixes fill its
//! nodes. A trie tree in its place holds one chunk a branch, with smaller leaf trees
//! below where a branch has several keys. That pays where keys branch widely, and costs
//! a node a branch where they don't (ForestDB 2016, section 3.2.2).
//!
//! Two rules decide, whenever a batch has added to a leaf tree, from its root node: the
//! number of entries and their bytes stand in its head, and its separators are keys at
//! near-regular intervals. (The mended one then makes sure with a few more nodes.)
//!
//! - [`LeafRule::Paper`] is section 3.2.3 to the letter, [`analysis`] its formulas: the
//!   separators' chunks behind their longest common prefix are counted, and the tree is
//!   extended if `n > b·fL` and `b >= fL`. Where every key is a branch of its own, `b`
//!   is near `n`, and the first condition never holds: random suffixes stay in leaf
//!   trees, though a trie tree would hold each in 16 bytes.
//! - [`LeafRule::Mended`] estimates space and height of what the extension leads to,
//!   several levels deep, see `profile`: it extends if neither gets worse and one of
//!   them better, branches of a single document counted as plain entries.
//!
//!   Where suffixes are so long that a node holds few of them, the paper's rule counts
//!   as well: a leaf tree of them takes about a node for each change, and one that is
//!   extended late has to be taken apart all at once, with every key in memory. A tree
//!   whose keys would take too much (`outcome`) is not extended any more.
//!
//! The same estimates choose the kind of a tree that is made anew, from a sample of its
//! keys.

pub mod analysis;
mod profile;

use cambium_base::Result;
use cambium_base::coding::common_prefix;

use crate::btree::NodeView;
use crate::node_store::{NodeAddress, NodeReader};

use super::grow::Item;
use super::head::{Head, Kind};
use super::options::{LeafRule, TrieOptions};
use super::trees;
use super::truncation::Truncation;
use analysis::Analysis;
use profile::{Apart, Profile};

/// Keys looked at to choose the kind of a new tree, at most.
const SAMPLE: usize = 1024;

/// A leaf tree whose nodes hold no more entries than this has long suffixes.
const LONG_SUFFIX_FANOUT: u64 = 16;

/// Separators that are too few to say anything.
const FEW_SEPARATORS: usize = 32;

/// Index nodes below a root that the mended rule looks at.
const INDEX_NODES_LOOKED_AT: usize = 4;

/// Runs of neighbours that are looked at to tell whether truncation pays, and how many
/// neighbours each has.
const RUNS_LOOKED_AT: usize = 16;
const NEIGHBOURS: usize = 64;

/// Leaves that it looks at.
const LEAVES_LOOKED_AT: usize = 8;

/// Entries among which a B+-tree looks for the shortest separator when it cuts a node:
/// a separator has so many chances to fall between two branches.
const SEPARATOR_CHOICES: f64 = 4.0;

/// The kind of a new tree for several documents with whole keys, which share all before
/// `shared`, a multiple of the chunk size.
pub(super) fn kind_for(
    options: &TrieOptions,
    node_bytes: usize,
    items: &[Item<'_>],
    start: usize,
    shared: usize,
    is_root: bool,
) -> Kind {
    let first = options.first_kind(is_root);
    let Some(rule) = options.leaf_rule() else {
        return first;
    };
    if first != Kind::Leaf {
        return first;
    }
    let most = trees::leaf_bytes(node_bytes, options.chunk_bytes);
    let bytes = |item: &Item<'_>| (item.known.len() - start.min(item.known.len())).min(most);
    let total: usize = items.iter().map(bytes).sum();
    let extends = match rule {
        LeafRule::Off => true,
        LeafRule::Truncate => false,
        LeafRule::Paper => {
            let analysis =
                Analysis::new(node_bytes, options.chunk_bytes, total / items.len().max(1));
            // Counting branches costs a pass; few entries never fill the condition.
            let entries = items.len() as u64;
            entries > analysis.leaf_fanout() * analysis.leaf_fanout()
                && analysis.extends(entries, branches(items, shared + options.chunk_bytes))
        }
        LeafRule::Mended => {
            let separators = sample(items, start);
            let separators: Vec<&[u8]> = separators.iter().map(|s| s.as_slice()).collect();
            Profile::new(options, node_bytes, items.len() as u64, total as u64)
                .with_sample(&separators, &Apart::all(&separators, 1.0))
                .extends()
        }
    };
    if extends {
        return Kind::Trie;
    }
    let pays = rule == LeafRule::Mended
        && total > node_bytes
        && truncation_pays(options, items, start, total);
    if pays { Kind::Truncated } else { Kind::Leaf }
}

/// Whether a new leaf tree of these items is to be truncated, of which runs of
/// neighbours are looked at.
fn truncation_pays(options: &TrieOptions, items: &[Item<'_>], start: usize, total: usize) -> bool {
    let count = (items.len() / NEIGHBOURS).clamp(1, RUNS_LOOKED_AT);
    let runs: Vec<Vec<Vec<u8>>> = (0..count)
        .map(|at| {
            let from = at * items.len() / count;
            let run = items[from..].iter().take(NEIGHBOURS);
            run.map(|item| item.known[start.min(item.known.len())..].to_vec())
                .collect()
        })
        .collect();
    let runs: Vec<&[Vec<u8>]> = runs.iter().map(|run| run.as_slice()).collect();
    let mean = total as f64 / items.len().max(1) as f64;
    Truncation::new(options).pays(&runs, mean)
}

/// How many different prefixes of `end` bytes sorted items have.
fn branches(items: &[Item<'_>], end: usize) -> u64 {
    let cut = |item: &Item<'_>| item.known[..item.known.len().min(end)].to_vec();
    let changes = items
        .windows(2)
        .filter(|pair| common_prefix(&pair[0].known, &pair[1].known) < end)
        .filter(|pair| cut(&pair[0]) != cut(&pair[1]));
    1 + changes.count() as u64
}

/// The shortest separators between neighbours at regular intervals, behind `start`.
fn sample(items: &[Item<'_>], start: usize) -> Vec<Vec<u8>> {
    let gaps = items.len().saturating_sub(1);
    let count = gaps.min(SAMPLE);
    (0..count)
        .map(|at| {
            let right = 1 + at * gaps / count;
            let (left, right) = (&items[right - 1].known, &items[right].known);
            let end = (common_prefix(left, right) + 1).min(right.len());
            right[start.min(end)..end].to_vec()
        })
        .collect()
}

/// The root's level and children of a leaf tree: what [`is_due`] wants to know of it
/// before a batch.
pub(super) fn size(reader: &dyn NodeReader, root: NodeAddress) -> Result<(u8, usize)> {
    let node = reader.read(root)?;
    let view = trees::root_view(reader, root, &node)?;
    Ok((view.level(), view.values()))
}

/// What is to become of a leaf tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Extension,
    Truncation,
}

/// What is to become of a leaf tree, which had the size `before`.
///
/// The paper's rule looks at its root node alone. The mended one first too, and where the
/// root has index nodes below at a few of these, if there is a child more than before.
/// Separators are hopeful: each is the shortest of several, so it falls between two
/// branches where it can. Only if they speak for an extension, or are too few to say
/// anything, a few leaves are read, where all neighbours count.
pub(super) fn is_due(
    reader: &dyn NodeReader,
    options: &TrieOptions,
    before: (u8, usize),
    root: NodeAddress,
) -> Result<Due> {
    let node = reader.read(root)?;
    let view = trees::root_view(reader, root, &node)?;
    let head = trees::head(reader, root, &node)?;
    let rule = options.leaf_rule().unwrap_or(LeafRule::Off);
    // A tree of one node cannot get smaller or lower.
    if head.kind != Kind::Leaf || rule == LeafRule::Off || view.level() == 0 {
        return Ok(Due::Nothing);
    }
    let due = |extends| {
        if extends {
            Due::Extension
        } else {
            Due::Nothing
        }
    };
    if rule == LeafRule::Paper {
        let keys = separators(&view);
        return Ok(due(paper_is_due(options, reader.node_bytes(), head, &keys)));
    }
    let (level, children) = before;
    if level == view.level() && children >= view.values() {
        return Ok(Due::Nothing);
    }
    if mended_is_due(reader, options, &view, head)? {
        return Ok(Due::Extension);
    }
    let leaves = sample_level(reader, &view, 0, LEAVES_LOOKED_AT)?;
    let leaves: Vec<&[Vec<u8>]> = leaves.iter().map(|keys| keys.as_slice()).collect();
    let mean = head.key_bytes as f64 / head.entries.max(1) as f64;
    if Truncation::new(options).pays(&leaves, mean) {
        return Ok(Due::Truncation);
    }
    // What is left has long suffixes that their neighbours share.
    let is_long =
        analysis_of(options, reader.node_bytes(), head).leaf_fanout() <= LONG_SUFFIX_FANOUT;
    Ok(due(is_long
        && paper_is_due(
            options,
            reader.node_bytes(),
            head,
            &separators(&view),
        )))
}

/// The mended rule for a tree of several nodes.
fn mended_is_due(
    reader: &dyn NodeReader,
    options: &TrieOptions,
    view: &NodeView<'_>,
    head: Head<'_>,
) -> Result<bool> {
    let mut keys = if view.level() == 1 {
        separators(view)
    } else {
        sample_level(reader, view, 1, INDEX_NODES_LOOKED_AT)?.concat()
    };
    let profile = |keys: &[Vec<u8>], apart: Option<&[Apart]>| {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
        let hopeful = Apart::all(&keys, SEPARATOR_CHOICES);
        Profile::new(options, reader.node_bytes(), head.entries, head.key_bytes)
            .with_sample(&keys, apart.unwrap_or(&hopeful))
            .with_height(u32::from(view.level()) + 1)
            .extends()
    };
    let are_few = keys.len() < FEW_SEPARATORS;
    if !are_few && !profile(&keys, None) {
        return Ok(false);
    }
    let leaves = sample_level(reader, view, 0, LEAVES_LOOKED_AT)?;
    let between: Vec<Vec<u8>> = leaves.iter().flat_map(|keys| shortest(keys)).collect();
    let ends: Vec<&[u8]> = between.iter().map(|key| key.as_slice()).collect();
    let apart = Apart::all(&ends, 1.0);
    if are_few {
        keys = between;
    }
    Ok(profile(&keys, Some(&apart)))
}

/// The keys of up to `count` nodes of a level below a root, evenly spread, in order.
fn sample_level(
    reader: &dyn NodeReader,
    view: &NodeView<'_>,
    level: u8,
    count: usize,
) -> Result<Vec<Vec<Vec<u8>>>> {
    let children = view.values();
    let count = children.min(count);
    let mut addresses: Vec<NodeAddress> = (0..count)
        .map(|at| view.child(at * children / count))
        .collect();
    let mut at_level = view.level();
    loop {
        let nodes = reader.read_many(&addresses)?;
        at_level = at_level.saturating_sub(1);
        let mut keys = Vec::new();
        for (address, node) in addresses.iter_mut().zip(&nodes) {
            let child = trees::root_view(reader, *address, node)?;
            if child.level() != at_level {
                let what = format!("a node of level {}, expected {at_level}", child.level());
                return Err(reader.corrupt(*address, what));
            }
            keys.push(separators(&child));
            if at_level > level {
                *address = child.child(child.values() / 2);
            }
        }
        if at_level <= level {
            return Ok(keys);
        }
    }
}

/// The shortest separators between sorted keys.
fn shortest(keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let between = |pair: &[Vec<u8>]| {
        let end = (common_prefix(&pair[0], &pair[1]) + 1).min(pair[1].len());
        pair[1][..end].to_vec()
    };
    keys.windows(2).map(between).collect()
}

/// The keys of a node.
fn separators(view: &NodeView<'_>) -> Vec<Vec<u8>> {
    (0..view.keys())
        .map(|at| {
            let mut key = Vec::new();
            view.append_key(at, &mut key);
            key
        })
        .collect()
}

fn paper_is_due(
    options: &TrieOptions,
    node_bytes: usize,
    head: Head<'_>,
    keys: &[Vec<u8>],
) -> bool {
    let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
        return false;
    };
    let chunk = options.chunk_bytes;
    let shared = common_prefix(first, last);
    let end = shared - shared % chunk + chunk;
    let cut = |key: &[u8]| key[..key.len().min(end)].to_vec();
    let changes = keys
        .windows(2)
        .filter(|pair| cut(&pair[0]) != cut(&pair[1]));
    let branches = 1 + changes.count() as u64;
    analysis_of(options, node_bytes, head).extends(head.entries, branches)
}

/// The paper's formulas for a leaf tree.
fn analysis_of(options: &TrieOptions, node_bytes: usize, head: Head<'_>) -> Analysis {
    let mean = head.key_bytes / head.entries.max(1);
    let mean = usize::try_from(mean).unwrap_or(usize::MAX);
    Analysis::new(node_bytes, options.chunk_bytes, mean)
}
