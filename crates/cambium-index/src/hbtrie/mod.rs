//! The HB+-trie: a patricia trie whose nodes are B+-trees.
//!
//! ForestDB 2016, section 3.1: a key is cut into chunks of a fixed size, and each
//! chunk is the key of one B+-tree. A document hangs at the first chunk that tells
//! it apart from all others; where several keys share a chunk, a *sub-tree* hangs
//! there. Long and random keys so cost one chunk each, however long they are.
//!
//! ```text
//!   keys: aaaabbbb... aaaacccc... xyz          (chunks of 4 bytes)
//!
//!              ┌──────────── trie tree, position 0 ─────────────┐
//!              │  "aaaa" + ▶ sub-tree          "xyz" 3 ▶ document │
//!              └─────┬──────────────────────────────────────────┘
//!                    ▼ position 4
//!              ┌───────────────────────────┐
//!              │ "bbbb" + ▶ document       │   + : the key goes on after the chunk
//!              │ "cccc" + ▶ document       │   3 : it ends there, with 3 real bytes
//!              └───────────────────────────┘
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`options`] | shape, leaf rule, chunk size, and their limits |
//! | [`documents`] | what the trie asks of whoever keeps the documents |
//! | `link` | the 8-byte value: a document or a sub-tree |
//! | `piece` | which part of a key a tree sees, and how it sorts |
//! | `head` | what a tree's root node says about the tree: kind, position, skipped prefix |
//! | `trees` | the B+-trees, as the trie uses them |
//! | [`lookup`] | finding the one document that can have a key |
//! | [`apply()`] | a sorted batch of changes in one pass |
//! | `plan`, `grow`, `delta`, `outcome` | its parts: what is there, new sub-trees, the entries that change, what is left of a tree |
//! | `truncation` | leaf trees that keep only what tells suffixes apart |
//! | [`bulk`] | a whole trie from sorted input |
//! | [`extension`] | when a leaf tree becomes a trie tree (section 3.2.3), and figure 10 |
//! | [`cursor`] | walking both ways in key order |
//! | [`check()`], [`dump()`] | every invariant, statistics, a readable drawing |
//!
//! # Invariants
//! 1. *Position*: a tree sees the bytes of a key from its position on. A sub-tree's
//!    position is at least that of the tree it hangs in plus what that one sees of a
//!    key; so a descent ends, whatever a damaged node says.
//! 2. *Skip*: all keys of a tree share their bytes before its position. Those behind
//!    what the parent saw are the skipped prefix.
//! 3. *Longer*: every key in a tree is longer than its position, except for the empty
//!    key, which only a root at position 0 holds. So what hangs where "the key goes on"
//!    does go on.
//! 4. *Branches*: a sub-tree has at least two entries. A root may have one.
//! 5. *Alignment*: positions are multiples of the chunk size.
//!
//! # Leaf trees
//! A *leaf tree* (section 3.2.1) sees the whole rest of the key: a prefix B+-tree of
//! suffixes. It holds them up to a limit (a quarter of a node or so); a longer suffix
//! is cut there, and where several keys share so long a piece, a sub-tree hangs, just
//! as at a chunk. A plain or a prefix B+-tree over whole keys is then nothing but a
//! trie whose root is a leaf tree that is never extended.
//!
//! Unlike the paper's, a root may have a skipped prefix, and under the mended rule it
//! begins as a leaf tree too: else every lookup would pay for a tree of two entries
//! where keys are skewed from their first byte on.

pub mod apply;
pub mod bulk;
pub mod check;
pub mod cursor;
mod delta;
pub mod documents;
pub mod dump;
pub mod extension;
mod grow;
mod head;
mod link;
pub mod lookup;
pub mod options;
mod outcome;
mod piece;
mod plan;
pub mod relocate;
mod trees;
mod truncation;

pub use apply::{Change, apply};
pub use bulk::build;
pub use check::{Finding, Statistics, check};
pub use cursor::Cursor;
pub use documents::Documents;
pub use dump::dump;
pub use head::TREE_HEAD;
pub use lookup::{Lookup, Progress, find};
pub use options::{LeafRule, Shape, TrieOptions};
pub use relocate::{Relocated, Relocation};
