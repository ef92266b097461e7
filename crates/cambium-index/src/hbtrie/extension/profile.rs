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

use super::super::grow::common_prefix;
use super::super::options::TrieOptions;
use crate::node_store::NODE_TRAILER_BYTES;

/// Share of a node that is filled, in the long run.
const FILL: f64 = 0.69;
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
const REGION: usize = 6;

/// Nodes and node reads a lookup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub nodes: f64,
    pub height: f64,
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
}

/// What one more chunk tells apart.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// Where the chunk ends, behind the tree's position.
    end: usize,
    /// Share of entries that are told apart from both neighbours up to here.
    alone: f64,
    /// Different prefixes up to here.
    branches: f64,
}

impl Profile {
    /// A tree of `entries` keys with `key_bytes` together.
    pub fn new(options: &TrieOptions, node_bytes: usize, entries: u64, key_bytes: u64) -> Self {
        Profile {
            entries: entries as f64,
            key_bytes: key_bytes as f64 / entries.max(1) as f64,
            chunk: options.chunk_bytes,
            room: node_bytes as f64 - NODE_TRAILER_BYTES as f64 - HEADER_BYTES,
            lengths: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// Adds a sorted sample of shortest separators. Each was chosen as the shortest of
    /// `choices`, so it falls between two branches more often than chance.
    pub fn with_separators(mut self, separators: &[&[u8]], choices: f64) -> Self {
        self.lengths = separators.iter().map(|one| one.len()).collect();
        self.lengths.sort_unstable();
        let (Some(first), Some(last)) = (separators.first(), separators.last()) else {
            return self;
        };
        let longest = self.lengths.last().copied().unwrap_or(0);
        let shared = common_prefix(first, last);
        let mut end = shared - shared % self.chunk;
        let mut least = 1.0;
        while self.levels.len() < LEVELS && end < longest {
            end += self.chunk;
            let (told_apart, alone) = told_apart(separators, end, choices);
            let seen = seen_and_unseen(separators, end);
            let branches = seen
                .max(told_apart * self.entries)
                .clamp(least, self.entries.max(1.0));
            least = branches;
            self.levels.push(Level {
                end,
                alone,
                branches,
            });
        }
        self
    }

    /// Whether trie trees are no worse in space and height, and better in one of them.
    pub fn extends(&self) -> bool {
        let now = self.leaf(self.entries, 0);
        if now.nodes <= 1.0 {
            return false;
        }
        (1..=self.levels.len()).any(|depth| {
            let then = self.extended(depth);
            let no_worse = then.nodes <= now.nodes && then.height <= now.height + 0.01;
            let smaller = then.nodes < now.nodes * (1.0 - GAIN);
            let lower = then.height < now.height * (1.0 - GAIN);
            no_worse && (smaller || lower)
        })
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
        let mut level = entries * entry / self.room;
        let mut cost = Cost {
            nodes: 1.0,
            height: 1.0,
        };
        if level <= 1.0 {
            return cost;
        }
        level /= FILL;
        let fanout = (self.room * FILL / separator).max(2.0);
        while level > 1.0 {
            cost.nodes += level;
            cost.height += 1.0;
            level = if level * separator <= self.room {
                1.0
            } else {
                level / fanout
            };
        }
        cost
    }

    /// Trie trees for the first `depth` levels of chunks, leaf trees below.
    fn extended(&self, depth: usize) -> Cost {
        let mut sum = Cost {
            nodes: 0.0,
            height: 0.0,
        };
        let mut trees = 1.0;
        let mut above = 0.0;
        let mut documents = self.entries;
        let mut alone = 0.0;
        let mut passed = 0;
        for level in &self.levels[..depth] {
            let branches = (level.branches - alone).max(trees);
            passed = level.end;
            if branches < trees * 1.02 && documents > branches * 1.02 {
                // Nothing branches here: the chunk is skipped.
                continue;
            }
            let one = self.trie(branches / trees);
            let now_alone = self.entries * level.alone;
            let leaving = (now_alone - alone).clamp(0.0, documents);
            sum.nodes += trees * one.nodes;
            above += one.height;
            sum.height += above * leaving / self.entries;
            documents -= leaving;
            alone += leaving;
            trees = (level.branches - alone).max(0.0);
            if documents < 1.0 || trees < 0.5 {
                sum.height += above * documents / self.entries;
                return sum;
            }
        }
        let below = self.leaf(documents / trees, passed);
        sum.nodes += trees * below.nodes;
        sum.height += (above + below.height) * documents / self.entries;
        sum
    }
}

/// The share of neighbours that differ within `end` bytes, and the share of entries that
/// differ so from both neighbours.
fn told_apart(separators: &[&[u8]], end: usize, choices: f64) -> (f64, f64) {
    let (mut one_side, mut both_sides) = (0.0, 0.0);
    for region in separators.chunks(REGION) {
        let within = region.iter().filter(|one| one.len() <= end).count();
        let share = within as f64 / region.len() as f64;
        let share = 1.0 - (1.0 - share).powf(1.0 / choices);
        one_side += share * region.len() as f64;
        both_sides += share * share * region.len() as f64;
    }
    let count = separators.len().max(1) as f64;
    (one_side / count, both_sides / count)
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
            .with_separators(&separators, 1.0)
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
