//! Searching a node, and getting a value from a tree: the hottest read path of
//! the engine. It allocates nothing.
//!
//! A node is searched by the first 8 bytes of what its keys do not share, as
//! one number each, eight ways at a time. Only keys that tie there are compared
//! in full.

use std::cmp::Ordering;

use cambium_base::Result;

use crate::node_store::{Node, NodeAddress, NodeReader};

use super::layout::HEAD_MOST_BYTES;
use super::node::{Heads, NodeView, wrong_level};

/// Where a key belongs among the keys of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    /// How many keys of the node are smaller.
    pub position: usize,
    /// Whether the key itself is there, at that position.
    pub found: bool,
}

/// One step of a descent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Go on in this node.
    Child(NodeAddress),
    /// The key's value.
    Found(u64),
    /// The tree does not hold the key.
    Missing,
}

/// A descent from a root that is driven from outside, node by node, so that
/// many of them can go to the device together. It sees that levels fall from
/// node to node, so it ends in a damaged tree as well.
///
/// ```
/// use cambium_index::btree::{self, Descent, KeyLayout, Step, TreeOptions};
/// use cambium_index::{MemoryNodes, NodeReader};
/// let mut nodes = MemoryNodes::new(512);
/// let options = TreeOptions::new(KeyLayout::Variable);
/// let entries = (0..1000u32).map(|n| Ok((n.to_be_bytes().to_vec(), u64::from(n))));
/// let root = btree::build(&mut nodes, &options, b"", &mut { entries }).unwrap().unwrap();
///
/// let (mut descent, mut address) = (Descent::default(), root);
/// let value = loop {
///     let node = nodes.read(address).unwrap();
///     match descent.step(&node, &77u32.to_be_bytes()).unwrap() {
///         Step::Child(child) => address = child,
///         Step::Found(value) => break Some(value),
///         Step::Missing => break None,
///     }
/// };
/// assert_eq!(value, Some(77));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Descent {
    /// The level of the next node, once a node was seen.
    level: Option<u8>,
}

impl Descent {
    /// Looks for `key` in the next node of the way down.
    ///
    /// # Errors
    /// What in the node cannot be.
    #[inline(always)]
    pub fn step(&mut self, node: &Node, key: &[u8]) -> Result<Step, String> {
        let view = self.enter(node)?;
        Ok(step_in(&view, key))
    }
}

/// The last entry at or before a key, where the key begins with the entry's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloorEntry {
    /// Bytes of the entry's key.
    pub key_bytes: usize,
    /// Its value.
    pub value: u64,
}

/// One step of a descent to the last entry at or before a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloorStep {
    /// Go on in this node.
    Child(NodeAddress),
    /// The entry; the key begins with its key.
    Entry(FloorEntry),
    /// There is none, or the key begins otherwise.
    Missing,
}

impl Descent {
    /// Looks, in the next node of the way down, for the last entry at or before
    /// `key`, for a tree in which keys stand for all that begin with them. It is
    /// found if no separator of the tree begins with that entry's key, which whoever
    /// writes such entries takes care of with [`apart()`]. Allocates nothing.
    ///
    /// # Errors
    /// What in the node cannot be.
    #[inline]
    pub fn step_to_floor(&mut self, node: &Node, key: &[u8]) -> Result<FloorStep, String> {
        let view = self.enter(node)?;
        let rank = rank(&view, key);
        let behind = rank.position + usize::from(rank.found);
        if view.level() > 0 {
            return Ok(FloorStep::Child(view.child(behind)));
        }
        let floor = behind.checked_sub(1);
        let entry = floor.and_then(|at| {
            let key_bytes = view.bytes_if_prefix(at, key)?;
            let value = view.value(at);
            Some(FloorEntry { key_bytes, value })
        });
        Ok(entry.map_or(FloorStep::Missing, FloorStep::Entry))
    }

    #[inline(always)]
    fn enter<'n>(&mut self, node: &'n Node) -> Result<NodeView<'n>, String> {
        let view = NodeView::parse(node)?;
        match self.level {
            Some(level) if level != view.level() => Err(wrong_level(level, view.level())),
            _ => {
                self.level = Some(view.level().wrapping_sub(1));
                Ok(view)
            }
        }
    }
}

/// How many bytes of `key` tell it from the keys of a node between which it stands,
/// one of which it may begin with: one more than it shares with either. Along a way
/// down, the most of all nodes: so many bytes lie on the same side of all entries and
/// all separators as the whole key does.
///
/// # Errors
/// What in the node cannot be.
pub fn apart(node: &Node, key: &[u8]) -> Result<usize, String> {
    let view = NodeView::parse(node)?;
    let rank = rank(&view, key);
    let behind = rank.position + usize::from(rank.found);
    let neighbours = [behind.checked_sub(1), Some(behind)].into_iter().flatten();
    let there = neighbours.filter(|&at| at < view.keys());
    let apart = there.map(|at| view.bytes_shared(at, key) + 1);
    Ok(apart.max().unwrap_or(0))
}

/// Looks for `key` in one node. Nothing bounds the steps of a caller who
/// follows children through a damaged tree by this alone: see [`Descent`].
///
/// # Errors
/// What in the node cannot be.
pub fn step(node: &Node, key: &[u8]) -> Result<Step, String> {
    Ok(step_in(&NodeView::parse(node)?, key))
}

#[inline(always)]
fn step_in(view: &NodeView<'_>, key: &[u8]) -> Step {
    let rank = rank(view, key);
    if view.level() > 0 {
        return Step::Child(view.child(rank.position + usize::from(rank.found)));
    }
    if rank.found {
        Step::Found(view.value(rank.position))
    } else {
        Step::Missing
    }
}

/// The value of `key` in the tree under `root`: one node read a level, no
/// allocation.
///
/// # Errors
/// What the reader answers; `Corruption` for a node that cannot be.
///
/// ```
/// use cambium_index::MemoryNodes;
/// use cambium_index::btree::{self, KeyLayout, TreeOptions};
/// let mut nodes = MemoryNodes::new(4096);
/// let options = TreeOptions::new(KeyLayout::Variable);
/// let mut entries = [("ash", 1), ("oak", 2)].map(|(key, value)| Ok((key.into(), value))).into_iter();
/// let root = btree::build(&mut nodes, &options, b"", &mut entries).unwrap().unwrap();
/// assert_eq!(btree::get(&nodes, root, b"oak").unwrap(), Some(2));
/// assert_eq!(btree::get(&nodes, root, b"elm").unwrap(), None);
/// ```
pub fn get<R: NodeReader + ?Sized>(
    reader: &R,
    root: NodeAddress,
    key: &[u8],
) -> Result<Option<u64>> {
    let mut descent = Descent::default();
    let mut address = root;
    loop {
        let node = reader.read(address)?;
        match descent.step(&node, key) {
            Ok(Step::Child(child)) => address = child,
            Ok(Step::Found(value)) => return Ok(Some(value)),
            Ok(Step::Missing) => return Ok(None),
            Err(what) => return Err(reader.corrupt(address, what)),
        }
    }
}

/// How many keys of the node are smaller than `key`, and whether it is there.
#[inline(always)]
pub(super) fn rank(view: &NodeView<'_>, key: &[u8]) -> Rank {
    let prefix = view.prefix();
    let Some(tail) = strip_prefix(key, prefix) else {
        return missing(if key < prefix { 0 } else { view.keys() });
    };
    let head_bytes = view.stride().min(HEAD_MOST_BYTES);
    if head_bytes == 0 {
        return rank_in_full(view, tail, 0, view.keys());
    }
    let heads = view.heads(head_bytes);
    let wanted = leading_word(key, tail.len()) >> heads.shift;
    let position = lower_bound(heads, wanted);
    if position >= heads.count || heads.word(position) != wanted {
        return missing(position);
    }
    let next = position + 1;
    let is_only = next >= heads.count || heads.word(next) != wanted;
    if !is_only || view.stride() > HEAD_MOST_BYTES {
        let ties_end = upper_bound(heads, wanted, next);
        return rank_in_full(view, tail, position, ties_end);
    }
    let Some(after) = tail.get(head_bytes..) else {
        // The key ends within the head, which goes on with zeros.
        return missing(position);
    };
    match view.behind_head(position).cmp(after) {
        Ordering::Less => missing(next),
        Ordering::Equal => Rank {
            position,
            found: true,
        },
        Ordering::Greater => missing(position),
    }
}

#[inline]
fn missing(position: usize) -> Rank {
    Rank {
        position,
        found: false,
    }
}

/// As the method of slices, without a call where there is no prefix.
#[inline]
fn strip_prefix<'k>(key: &'k [u8], prefix: &[u8]) -> Option<&'k [u8]> {
    match prefix {
        [] => Some(key),
        [only] => key
            .split_first()
            .and_then(|(first, tail)| (first == only).then_some(tail)),
        _ => key.strip_prefix(prefix),
    }
}

/// The first 8 of the last `tail` bytes of a key, as a number that orders as
/// they do, with zeros for those behind its end.
#[inline]
fn leading_word(key: &[u8], tail: usize) -> u64 {
    if let Some(word) = key[key.len() - tail..].first_chunk::<8>() {
        return u64::from_be_bytes(*word);
    }
    // Fewer than 8 bytes; if there are none, the shift is that of the type.
    let shift = 64 - 8 * tail as u32;
    if let Some(word) = key.last_chunk::<8>() {
        return u64::from_be_bytes(*word).checked_shl(shift).unwrap_or(0);
    }
    let mut word = 0;
    for &byte in &key[key.len() - tail..] {
        word = word << 8 | u64::from(byte);
    }
    word.checked_shl(shift).unwrap_or(0)
}

/// Parts that a search cuts the heads into at each step.
const WAYS: usize = 8;

/// How many heads are smaller than `wanted`.
///
/// Seven heads are looked at together, not one after the other: their cache
/// lines come together, and counting needs no branch that nothing could
/// predict (Schlegel, Gemulla and Lehner, "k-ary search on modern processors",
/// DaMoN 2009).
#[inline(always)]
fn lower_bound(heads: Heads<'_>, wanted: u64) -> usize {
    let (mut start, mut length) = (0, heads.count);
    while length > WAYS {
        let part = length / WAYS;
        let mut smaller = 0;
        for way in 1..WAYS {
            smaller += usize::from(heads.word(start + way * part - 1) < wanted);
        }
        start += smaller * part;
        // The part between two of the heads, or what follows the last one.
        length -= (WAYS - 1) * part;
    }
    let mut smaller = 0;
    for position in start..start + length {
        smaller += usize::from(heads.word(position) < wanted);
    }
    start + smaller
}

/// Where the heads that equal `wanted`, of which `from` is behind one, end.
fn upper_bound(heads: Heads<'_>, wanted: u64, from: usize) -> usize {
    let (mut start, mut end) = (from, heads.count);
    while start < end {
        let middle = start + (end - start) / 2;
        if heads.word(middle) <= wanted {
            start = middle + 1;
        } else {
            end = middle;
        }
    }
    start
}

/// The rank among keys `start..end`, each compared in full; all before are
/// smaller, all behind larger.
fn rank_in_full(view: &NodeView<'_>, tail: &[u8], mut start: usize, mut end: usize) -> Rank {
    while start < end {
        let middle = start + (end - start) / 2;
        match compare(view, middle, tail) {
            Ordering::Less => start = middle + 1,
            Ordering::Greater => end = middle,
            Ordering::Equal => {
                return Rank {
                    position: middle,
                    found: true,
                };
            }
        }
    }
    Rank {
        position: start,
        found: false,
    }
}

/// Key `position` without the node's prefix, against `tail`.
fn compare(view: &NodeView<'_>, position: usize, tail: &[u8]) -> Ordering {
    let head = view.head(position);
    let Some((start, after)) = tail.split_at_checked(head.len()) else {
        // The tail ends within the head: equal so far means it is smaller.
        return head.cmp(tail);
    };
    head.cmp(start)
        .then_with(|| view.behind_head(position).cmp(after))
}

/// Key `position` against `key`.
pub(super) fn compare_whole(view: &NodeView<'_>, position: usize, key: &[u8]) -> Ordering {
    match key.strip_prefix(view.prefix()) {
        Some(tail) => compare(view, position, tail),
        None => view.prefix().cmp(key),
    }
}
