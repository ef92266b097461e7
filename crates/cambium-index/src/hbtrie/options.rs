//! Shape, leaf rule and chunk size of a trie.
//!
//! Every tree says in its root node what it is, so a trie may be opened with another
//! leaf rule than it was made with; the chunk size and the node size stay for life.

use cambium_base::{Error, Result};

use super::head::Kind;

/// The largest chunk, in bytes.
pub const CHUNK_BYTES_MAX: usize = 32;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;

/// When a leaf tree becomes a trie tree with smaller leaf trees below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafRule {
    /// No leaf trees: a sub-tree a chunk, the naive trie of section 3.1.
    Off,
    /// The two conditions of section 3.2.3: `n > b·fL` and `b >= fL`, with `b`
    /// estimated from the root node alone. The root is always a trie tree.
    Paper,
    /// When neither the estimated space nor the estimated height gets worse, and one
    /// of them better; branches of one document count as plain entries. Leaf trees
    /// whose suffixes are longer than what tells them apart are truncated.
    Mended,
    /// Never; leaf trees are always truncated, however little that saves. For tests and
    /// measurements of what truncation does by itself.
    Truncate,
}

/// What the index is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The HB+-trie.
    HbTrie {
        /// When leaf trees are extended.
        leaf_extension: LeafRule,
    },
    /// One B+-tree over whole keys, uncompressed (figure 12's baseline).
    PlainBTree,
    /// One prefix B+-tree over whole keys.
    PrefixBTree,
}

/// The options of a trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrieOptions {
    /// Bytes of a chunk, from 1 to [`CHUNK_BYTES_MAX`].
    pub chunk_bytes: usize,
    /// What the index is made of.
    pub shape: Shape,
}

impl Default for TrieOptions {
    fn default() -> Self {
        TrieOptions {
            chunk_bytes: 8,
            shape: Shape::HbTrie {
                leaf_extension: LeafRule::Mended,
            },
        }
    }
}

impl TrieOptions {
    /// Whether a trie can be made so.
    ///
    /// # Errors
    /// `InvalidArgument` that names the limits.
    pub fn validate(&self) -> Result<()> {
        if (1..=CHUNK_BYTES_MAX).contains(&self.chunk_bytes) {
            return Ok(());
        }
        Err(Error::InvalidArgument(format!(
            "chunk_bytes is {}; it must be from 1 to {CHUNK_BYTES_MAX}",
            self.chunk_bytes
        )))
    }

    /// The rule for leaf trees, where trie trees may take their place at all.
    pub(super) fn leaf_rule(&self) -> Option<LeafRule> {
        match self.shape {
            Shape::HbTrie { leaf_extension } => Some(leaf_extension),
            Shape::PlainBTree | Shape::PrefixBTree => None,
        }
    }

    /// What a tree is when it is first made, before anything speaks for another kind.
    pub(super) fn first_kind(&self, is_root: bool) -> Kind {
        match self.leaf_rule() {
            Some(LeafRule::Off) => Kind::Trie,
            Some(LeafRule::Paper) if is_root => Kind::Trie,
            Some(LeafRule::Truncate) => Kind::Truncated,
            _ => Kind::Leaf,
        }
    }
}
