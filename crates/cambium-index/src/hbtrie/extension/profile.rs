//! The mended rule: what would a leaf tree's entries cost as tries?
//!
//! From a sample of shortest separators, each one byte longer than what the two
//! neighbouring keys share, two numbers are estimated for each further chunk:
//!
//! - the share of neighbours that the chunk tells apart. If all are told apart, all
//!   branches have one document, which hangs as a plain entry;
//! - the number of branches: that share of all entries, or the number of different
//!   chunks in the sample, corrected for those that it cannot have seen (Chao 1984).
//!
//! With them, the space in nodes and the mean height of the leaf tree are compared with
//! those of trie trees 1, 2, 3 ... levels deep with leaf trees below. One level alone
//! often gains nothing, and the second all: keys with a hundred common prefixes and
//! random rests (the paper's pattern `small`) first branch into a hundred leaf trees,
//! each of which is then extended.
//!
//! An extension is for good, so it must not be a loss later: with few keys a chunk may
//! tell nearly all of them apart, and yet have only 200 values, each of which becomes a
//! sub-tree with a node of its own (pattern `2-level`). Where some neighbours share
//! their chunk, the number of its values can be told from how many do, as the number of
//! days in a year from birthdays, and so what more keys would do.
//!
//! Heights are estimated by logarithms and rounded up. What the estimate lacks for the
//! tree as it is, of which the height is known, is added for the leaf trees below.

use cambium_base::coding::common_prefix;

use super::super::options::TrieOptions;
use crate::btree::room;

/// Share of a node that is filled, in the long run.
const FILL: f64 = 0.9;
/// Bytes of a node's header and of what trees keep in it.
const HEADER_BYTES: f64 = 24.0;
/// Bytes of a value or pointer.
const VALUE_BYTES: f64 = 8.0;
/// Bytes of a pointer to a node, mostly.
const POINTER_BYTES: f64 = 4.0;
/// Bytes that a key of varying length costs beside its own.
const END_BYTES: f64 = 2.0;
/// Levels of trie trees looked at.
const LEVELS: usize = 12;
/// An extension has to save this share of the space, or height.
const GAIN: f64 = 0.05;
/// Neighbouring separators from which a share is estimated: keys differ from place to
/// place, and documents that are alone in their branch come in regions.
const REGION: usize = 16;
/// By how much the tree may grow and the extension must still be no loss.
const GROWTH: [f64; 3] = [4.0, 16.0, 64.0];

/// Nodes, and node reads a lookup; of a single tree the latter are not rounded up yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub nodes: f64,
    pub height: f64,
}

/// Two neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Apart {
    /// Bytes that tell them apart.
    pub bytes: usize,
    /// They were chosen among so many for being told apart by the fewest bytes, so they
    /// stand in different branches more often than chance.
    pub choices: f64,
}

impl Apart {
    /// What separators between neighbours say.
    pub fn all(separators: &[&[u8]], choices: f64) -> Vec<Apart> {
        let one = |separator: &&[u8]| Apart {
            bytes: separator.len(),
            choices,
        };
        separators.iter().map(one).collect()
    }
}

/// What is known of a leaf tree's keys, or of those that a tree is to be made for.
pub(super) struct Profile {
    entries: f64,
    /// Mean bytes of a key, behind the tree's position.
    key_bytes: f64,
    chunk: usize,
    room: f64,
    /// Bytes that tell neighbours apart, ascending.
    lengths: Vec<usize>,
    levels: Vec<Level>,
    /// How much higher than estimated the tree is.
    height_error: f64,
}

/// What one more chunk tells apart.
#[derive(Clone, Debug)]
struct Level {
    /// Where the chunk ends, behind the tree's position.
    end: usize,
    /// Different prefixes up to here, at least.
    seen: f64,
    /// For each region of the sample, entries for each possible prefix; 0 if there is
    /// no end to them.
    crowds: Vec<f64>,
}

/// A level when the tree has so many entries.
#[derive(Clone, Copy, Debug)]
struct Branching {
    end: usize,
    /// Entries that no other shares the prefix with.
    alone: f64,
    /// Different prefixes.
    branches: f64,
}

impl Level {
    fn at(&self, entries: f64, growth: f64) -> Branching {
        let regions = self.crowds.len().max(1) as f64;
        let mean = |of: &dyn Fn(f64) -> f64| {
            self.crowds
                .iter()
                .map(|crowd| of(crowd * growth))
                .sum::<f64>()
                / regions
        };
        Branching {
            end: self.end,
            alone: entries * mean(&|crowd| (-crowd).exp()),
            branches: (entries * mean(&told_apart_when))
                .max(self.seen)
                .min(entries),
        }
    }
}

/// The share of different ones among entries of which `crowd` fall on each possibility:
/// `(1 - e^-x) / x`.
fn told_apart_when(crowd: f64) -> f64 {
    if crowd < 1e-6 {
        return 1.0;
    }
    (1.0 - (-crowd).exp()) / crowd
}

/// The inverse.
fn crowd_when(told_apart: f64) -> f64 {
    if told_apart >= 1.0 {
        return 0.0;
    }
    let (mut low, mut high): (f64, f64) = (1e-9, 1e9);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if told_apart_when(middle) > told_apart {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

impl Profile {
    /// A tree of `entries` keys with `key_bytes` together.
    pub fn new(options: &TrieOptions, node_bytes: usize, entries: u64, key_bytes: u64) -> Self {
        Profile {
            entries: entries.max(1) as f64,
            key_bytes: key_bytes as f64 / entries.max(1) as f64,
            chunk: options.chunk_bytes,
            room: room(node_bytes) as f64 - HEADER_BYTES,
            lengths: Vec::new(),
            levels: Vec::new(),
            height_error: 0.0,
        }
    }

    /// Adds a sorted sample of shortest separators, and how many bytes tell neighbours
    /// apart, of neighbours in the same order: of `separators` where all are as good as
    /// chosen by chance.
    pub fn with_sample(mut self, separators: &[&[u8]], apart: &[Apart]) -> Self {
        self.lengths = apart.iter().map(|one| one.bytes).collect();
        self.lengths.sort_unstable();
        let (Some(first), Some(last)) = (separators.first(), separators.last()) else {
            return self;
        };
        let longest = self.lengths.last().copied().unwrap_or(0);
        let shared = common_prefix(first, last);
        let mut end = shared - shared % self.chunk;
        while self.levels.len() < LEVELS && end < longest {
            end += self.chunk;
            let crowd = |region: &[Apart]| {
                let within = region.iter().filter(|one| one.bytes <= end).count();
                let share = within as f64 / region.len() as f64;
                let choices = region.first().map_or(1.0, |one| one.choices);
                crowd_when(1.0 - (1.0 - share).powf(1.0 / choices))
            };
            self.levels.push(Level {
                end,
                seen: seen_and_unseen(separators, end),
                crowds: apart.chunks(REGION).map(crowd).collect(),
            });
        }
        self
    }

    /// Corrects the estimated height by that of the tree as it is.
    pub fn with_height(mut self, levels: u32) -> Self {
        let estimated = self.leaf(self.entries, 0).height;
        let actual = f64::from(levels);
        self.height_error = estimated.clamp(actual - 0.95, actual) - estimated;
        self
    }

    /// Whether trie trees are no worse in space and height, and better in one of them,
    /// and take no more space when there are more keys.
    pub fn extends(&self) -> bool {
        if self.leaf(self.entries, 0).nodes <= 1.0 {
            return false;
        }
        (1..=self.levels.len()).any(|depth| self.gains(depth) && self.lasts(depth))
    }

    fn gains(&self, depth: usize) -> bool {
        let now = self.leaf(self.entries, 0);
        let height = self.leaf_height(now);
        let then = self.extended(depth, 1.0);
        let smaller = then.nodes < now.nodes * (1.0 - GAIN);
        let lower = then.height < height * (1.0 - GAIN);
        let no_worse = then.nodes <= now.nodes && then.height <= height + 0.01;
        no_worse && (smaller || lower)
    }

    fn lasts(&self, depth: usize) -> bool {
        GROWTH.iter().all(|&growth| {
            let now = self.leaf(self.entries * growth, 0);
            self.extended(depth, growth).nodes <= now.nodes
        })
    }

    /// Node reads in a leaf tree.
    fn leaf_height(&self, cost: Cost) -> f64 {
        (cost.height + self.height_error).max(1.0).ceil()
    }

    /// A leaf tree for `entries` keys behind their first `passed` bytes.
    fn leaf(&self, entries: f64, passed: usize) -> Cost {
        let lengths = &self.lengths[self.lengths.partition_point(|&length| length <= passed)..];
        let passed = passed as f64;
        let key = (self.key_bytes - passed).max(1.0);
        let mut in_node = self.room / (key + VALUE_BYTES);
        let mut entry = key;
        for _ in 0..3 {
            let shared = shared_among(lengths, in_node.min(entries)) - passed;
            entry = (key - shared.max(0.0)).max(1.0) + END_BYTES + VALUE_BYTES;
            in_node = self.room / entry;
        }
        let mean = lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64;
        let shared = shared_among(lengths, (in_node * in_node).min(entries));
        let separator = (mean - shared).max(1.0) + END_BYTES + POINTER_BYTES;
        self.tree(entries, entry, separator)
    }

    /// A trie tree of `entries`.
    fn trie(&self, entries: f64) -> Cost {
        let entry = self.chunk as f64 + VALUE_BYTES;
        self.tree(entries, entry, self.chunk as f64 / 2.0 + POINTER_BYTES)
    }

    fn tree(&self, entries: f64, entry: f64, separator: f64) -> Cost {
        let leaves = entries * entry / self.room;
        if leaves <= 1.0 {
            return Cost {
                nodes: 1.0,
                height: 1.0,
            };
        }
        let leaves = leaves / FILL;
        let fanout = (self.room * FILL / separator).max(2.0);
        Cost {
            nodes: leaves + (leaves / (fanout - 1.0)).max(1.0),
            height: 1.0 + (leaves.ln() / fanout.ln()).max(0.05),
        }
    }

    /// Trie trees for the first `depth` levels of chunks, leaf trees below, when the
    /// tree has grown.
    fn extended(&self, depth: usize, growth: f64) -> Cost {
        let entries = self.entries * growth;
        let mut sum = Cost {
            nodes: 0.0,
            height: 0.0,
        };
        let (mut trees, mut above, mut alone, mut passed) = (1.0, 0.0, 0.0, 0);
        for level in &self.levels[..depth] {
            let level = level.at(entries, growth);
            let documents = entries - alone;
            let branches = (level.branches - alone).max(trees);
            passed = level.end;
            if branches < trees * 1.02 && documents > branches * 1.02 {
                // Nothing branches here: the chunk is skipped.
                continue;
            }
            let one = self.trie(branches / trees);
            sum.nodes += trees * one.nodes;
            above += one.height.ceil();
            let leaving = (level.alone - alone).clamp(0.0, documents);
            sum.height += above * leaving / entries;
            alone += leaving;
            trees = (level.branches - alone).max(0.0);
            let left = entries - alone;
            if left < 1.0 || trees < 0.5 {
                sum.height += above * left / entries;
                return sum;
            }
        }
        let documents = entries - alone;
        let below = self.leaf(documents / trees, passed);
        sum.nodes += trees * below.nodes;
        sum.height += (above + self.leaf_height(below)) * documents / entries;
        sum
    }
}

/// Bytes that `entries` neighbours share: of so many differences, each drawn from the
/// sample, the earliest.
fn shared_among(lengths: &[usize], entries: f64) -> f64 {
    if lengths.is_empty() || entries < 2.0 {
        return lengths.first().map_or(0.0, |&length| length as f64);
    }
    let at = (lengths.len() as f64 / entries) as usize;
    lengths[at.min(lengths.len() - 1)].saturating_sub(1) as f64
}

/// Different prefixes of up to `end` bytes, those included that a sample so small has
/// not met: Chao's estimate from how many were met once and twice.
fn seen_and_unseen(separators: &[&[u8]], end: usize) -> f64 {
    let cut = |one: &[u8]| one.len().min(end);
    let (mut seen, mut once, mut twice) = (0.0, 0.0, 0.0);
    let mut at = 0;
    while at < separators.len() {
        let first = &separators[at][..cut(separators[at])];
        let same = separators[at..]
            .iter()
            .take_while(|one| &one[..cut(one)] == first)
            .count();
        seen += 1.0;
        once += f64::from(u8::from(same == 1));
        twice += f64::from(u8::from(same == 2));
        at += same;
    }
    seen + once * (once - 1.0).max(0.0) / (2.0 * (twice + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Separators of `count` keys at regular intervals of a pattern: `key(i)` for the
    /// `i`-th key in order.
    fn profile(entries: u64, key_bytes: u64, key: impl Fn(u64) -> Vec<u8>) -> Profile {
        let mut keys: Vec<Vec<u8>> = (0..entries).map(&key).collect();
        keys.sort();
        let separators: Vec<Vec<u8>> = (1..149)
            .map(|at| {
                let right = (at * keys.len() / 149).max(1);
                let shared = common_prefix(&keys[right - 1], &keys[right]);
                keys[right][..shared + 1].to_vec()
            })
            .collect();
        let separators: Vec<&[u8]> = separators.iter().map(|one| one.as_slice()).collect();
        Profile::new(&TrieOptions::default(), 4096, entries, entries * key_bytes)
            .with_sample(&separators, &Apart::all(&separators, 1.0))
    }

    fn scramble(number: u64) -> u64 {
        let mut x = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^= x >> 29;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^ x >> 32
    }

    fn random_rest(prefix: &[u8], number: u64, bytes: usize) -> Vec<u8> {
        let mut key = prefix.to_vec();
        let mut part = 0;
        while key.len() < bytes {
            key.extend(scramble(number ^ part << 40).to_be_bytes());
            part += 1;
        }
        key.truncate(bytes);
        key
    }

    #[test]
    fn random_keys_become_a_trie_whatever_their_length() {
        for bytes in [8, 16, 64, 256] {
            let random = profile(20_000, bytes, |i| random_rest(b"", i, bytes as usize));
            assert!(random.extends(), "{bytes} bytes");
        }
    }

    #[test]
    fn a_hundred_prefixes_with_random_rests_become_tries_of_two_levels() {
        let key = |i: u64| random_rest(&random_rest(b"", i % 100 + (1 << 41), 10), i, 65);
        let small = profile(100_000, 65, key);
        assert!(small.extends());
        let few = profile(1_000, 65, key);
        assert!(!few.extends(), "ten keys a prefix would cost a node each");
    }

    #[test]
    fn two_branches_a_level_stay_a_leaf_tree() {
        let key = |i: u64| {
            let mut key = Vec::new();
            for level in 0..17 {
                let prefix = i >> (16 - level);
                key.extend(random_rest(b"", prefix + (level << 50), 10));
            }
            key
        };
        assert!(!profile(1 << 16, 170, key).extends());
    }
}
