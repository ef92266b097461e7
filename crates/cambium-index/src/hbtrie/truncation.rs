//! Leaf trees that keep of a suffix only what tells it from all others.
//!
//! A leaf tree of whole suffixes is as large as they are long, although a lookup ends
//! at a document that holds the whole key. A *truncated* leaf tree keeps the shortest
//! beginning of each suffix that no other key of the tree has (*suffix truncation*,
//! known for separators, here for the entries themselves), and a few bytes more:
//!
//! ```text
//!   suffixes                        pieces                  (with one byte more)
//!   oak/leaf/7f3a90c2...            oak/leaf/7f +
//!   oak/leaf/91b20d11...            oak/leaf/91 +
//!   oak/root                        oak/root                a whole one: it is short
//!   pine/needle/0c...               pi +                    + : the key goes on
//! ```
//!
//! So its size depends on how many keys there are and on what they share, not on how
//! long they are, as that of trie trees; and it never has a nearly empty node for each
//! branch, as trie trees have where keys branch little. What it costs: who replaces a
//! document has to read the key of the old one, as in trie trees.
//!
//! # Invariants
//! 1. No other key of the tree begins with a truncated piece.
//! 2. No separator of the tree's B+-tree begins with one.
//!
//! So the last entry at or before a key is the only one whose piece it can begin with,
//! and a descent by separators comes to the node that has it. A new key keeps 1 and 2
//! because it takes more bytes than it shares with the entries and separators between
//! which it stands ([`btree::apart`]). Where it begins with a truncated piece, the old
//! document's key is asked for, and both get longer pieces.

use std::borrow::Cow;

use cambium_base::coding::common_prefix;

use crate::btree::{self, FloorEntry, FloorStep};
use crate::node_store::Node;

use super::link::{self, Link};
use super::options::{LeafRule, TrieOptions};
use super::piece::{Piece, View};
use super::trees::{Descent, Step};

/// Bytes kept behind those that tell a key apart, so that few later keys meet it.
const MORE: usize = 2;

/// A suffix is kept whole unless truncation saves this much: whole ones are replaced
/// without reading the old document.
const SAVES: usize = 16;

/// A leaf tree is truncated if that saves this share of its entries' bytes.
const GAIN: f64 = 0.25;

/// Bytes of an entry beside its piece.
const ENTRY_BYTES: f64 = 10.0;

/// How suffixes are truncated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Truncation {
    /// Bytes that it must save.
    saves: usize,
}

impl Truncation {
    pub fn new(options: &TrieOptions) -> Self {
        let always = options.leaf_rule() == Some(LeafRule::Truncate);
        Truncation {
            saves: if always { 1 } else { SAVES },
        }
    }

    /// The piece of a key in a truncated leaf tree, and whether the key goes on after
    /// it. `apart` bytes of what the tree sees tell it from all others; of `known`, the
    /// key or its beginning, there are as many, or as many as the tree sees.
    pub fn piece<'k>(
        &self,
        view: View,
        known: &'k [u8],
        goes_on: bool,
        apart: usize,
    ) -> (Cow<'k, [u8]>, bool) {
        let rest = known.get(view.position..).unwrap_or_default();
        let kept = apart + MORE;
        let is_whole = !goes_on && rest.len() <= view.width;
        if is_whole && rest.len() < kept + self.saves {
            return (Cow::Borrowed(rest), false);
        }
        if kept > view.width || kept > rest.len() {
            let longest = view.piece_of(known, goes_on).as_bytes().to_vec();
            return (Cow::Owned(longest), !is_whole);
        }
        (Cow::Borrowed(&rest[..kept]), true)
    }

    /// Whether a tree of so many sorted suffixes is to be truncated, judged from some
    /// neighbours among them, each run of them a slice; their mean length is `mean`.
    pub fn pays(&self, neighbours: &[&[Vec<u8>]], mean: f64) -> bool {
        let (mut count, mut kept) = (0.0, 0.0);
        for run in neighbours {
            for at in 0..run.len() {
                let shared = |other: Option<&Vec<u8>>| {
                    other.map_or(0, |other| common_prefix(&run[at], other) + 1)
                };
                let before = shared(at.checked_sub(1).and_then(|before| run.get(before)));
                let apart = before.max(shared(run.get(at + 1)));
                count += 1.0;
                kept += (apart + MORE).min(run[at].len()) as f64;
            }
        }
        if count == 0.0 {
            return false;
        }
        let saved = mean - kept / count;
        saved >= self.saves as f64 && saved >= GAIN * (mean + ENTRY_BYTES)
    }
}

/// How many bytes, from a tree's position on, tell a key from its neighbours in order.
pub(super) fn apart_from<'k>(
    view: View,
    key: &[u8],
    neighbours: impl IntoIterator<Item = Option<&'k [u8]>>,
) -> usize {
    let shared = |other: &[u8]| common_prefix(&key[view.position..], &other[view.position..]);
    let neighbours = neighbours.into_iter().flatten();
    neighbours.map(|other| shared(other) + 1).max().unwrap_or(0)
}

/// Whether an entry, with whose piece a key begins, can be the key's own. `longest` is
/// the longest piece that the key can have.
pub(super) fn can_be(entry: FloorEntry, longest: &Piece<'_>) -> bool {
    let same = entry.key_bytes == longest.as_bytes().len();
    let goes_on = matches!(longest, Piece::Cut(_));
    match Link::decode(entry.value) {
        Some(Link::Document(_)) if link::is_marked(entry.value) => goes_on || !same,
        _ => same,
    }
}

/// What a change met in a node of a truncated leaf tree.
pub(super) struct Met {
    /// Where the way goes on, or what was found.
    pub step: Step,
    /// How many bytes tell the key from its neighbours in this node.
    pub bytes: usize,
    /// The length of the piece of what was found.
    pub piece_bytes: Option<usize>,
    /// Whether the key of the found document goes on after its piece.
    pub goes_on: bool,
}

/// One step of a change on its way down a truncated leaf tree. What is found is the
/// entry whose piece the key begins with, if that is truncated or the key's own.
pub(super) fn meet(descent: &mut Descent, node: &Node, longest: &Piece<'_>) -> Result<Met, String> {
    let mut met = Met {
        step: Step::Missing,
        bytes: btree::apart(node, longest.as_bytes())?,
        piece_bytes: None,
        goes_on: false,
    };
    match descent.step_to_floor(node, longest.as_bytes())? {
        FloorStep::Child(address) => met.step = Step::Child(address),
        FloorStep::Entry(entry) => {
            met.goes_on = link::is_marked(entry.value);
            if met.goes_on || entry.key_bytes == longest.as_bytes().len() {
                met.step = Step::Found(entry.value);
                met.piece_bytes = Some(entry.key_bytes);
            }
        }
        FloorStep::Missing => {}
    }
    Ok(met)
}

/// One step of a lookup in a truncated leaf tree.
pub(super) fn step(
    descent: &mut Descent,
    node: &Node,
    longest: &Piece<'_>,
) -> Result<Step, String> {
    Ok(match descent.step_to_floor(node, longest.as_bytes())? {
        FloorStep::Child(address) => Step::Child(address),
        FloorStep::Entry(entry) if can_be(entry, longest) => Step::Found(entry.value),
        FloorStep::Entry(_) | FloorStep::Missing => Step::Missing,
    })
}
