//! The bytes of a node: one source for the offsets, checked at compile time.
//!
//! A node is a column store of its keys and values, so that a search touches
//! keys only, and a get touches one value:
//!
//! ```text
//!  0        16       +prefix  +suffix   +keys x stride  +values x width
//!  ┌────────┬────────┬────────┬─────────┬───────────────┬────────────┬───────┬──────────┬──────┬─────────┐
//!  │ header │ prefix │ suffix │ heads   │ values        │ ends (u16) │ rests │ metadata │ free │ trailer │
//!  └────────┴────────┴────────┴─────────┴───────────────┴────────────┴───────┴──────────┴──────┴─────────┘
//! ```
//!
//! A key of the node is `prefix + head + rest + suffix`. Two forms, whichever
//! the node's keys allow:
//!
//! - **same length** (flag 1): every key has one length. The head is all that
//!   the keys do not share, the stride its length, and there are neither ends
//!   nor rests. `suffix` is what they share at their end: the count byte of
//!   the trie's chunks, or the zeros that pad the separators of a tree of
//!   fixed-length keys.
//! - **varied length**: the head is as many bytes as the shortest key has
//!   beyond the prefix, at most 8; what is left of key `i` lies in `rests` and
//!   stops at `ends[i]`. There is no suffix. No key needs a length of its own.
//!
//! A leaf has as many keys as values. An index node has one key fewer than it
//! has values, its children: key `i` separates child `i` (all keys below it)
//! from child `i + 1` (the key itself and all above it).
//!
//! Values take as many bytes as the node's largest one needs; the addresses of
//! children in a young file take 2 or 3, not 8.
//!
//! Example, a leaf of a tree with keys of 3 bytes that holds `aXz -> 1`,
//! `aYz -> 2`: prefix `a`, suffix `z`, heads `XY`, values `01 02`:
//!
//! ```text
//! b1 00 01 01  02 00  01 00  01 00  01 00  00 00  00 00 | 61 | 7a | 58 59 | 01 02 | 0 ...
//! ```

use cambium_base::layout::{Layout, field};

/// Bytes of the header, where the prefix begins.
pub(super) const HEADER_BYTES: usize = 16;

/// The first byte of a node: this format, version 1.
pub(super) const NODE_TAG: u8 = 0xb1;

/// Flag: all keys of the node have the same length.
pub(super) const FLAG_SAME_LENGTH: u8 = 1;

/// Heads longer than this are only found in nodes whose keys have one length.
pub(super) const HEAD_MOST_BYTES: usize = 8;

/// Levels above the leaves, at most: with the smallest fanout of 2 and 2^48
/// leaves. A root that says more is damaged.
pub(super) const MOST_LEVELS: u8 = 48;

pub(super) const TAG_AT: usize = 0;
pub(super) const LEVEL_AT: usize = 1;
pub(super) const FLAGS_AT: usize = 2;
pub(super) const VALUE_BYTES_AT: usize = 3;
pub(super) const VALUES_AT: usize = 4;
pub(super) const PREFIX_AT: usize = 6;
pub(super) const SUFFIX_AT: usize = 8;
pub(super) const STRIDE_AT: usize = 10;
pub(super) const RESTS_AT: usize = 12;
pub(super) const METADATA_AT: usize = 14;

/// The header of a node.
pub const NODE_HEADER: Layout = Layout {
    name: "Header of a B+-tree node",
    about: "At the start of every node of the trees of engine `forest`. The order of the columns \
            behind it, and the two forms of keys, are drawn in \
            `crates/cambium-index/src/btree/layout.rs`. The last 16 bytes of the block belong to \
            the node store.",
    fields: &[
        field(
            TAG_AT,
            1,
            "tag",
            "0xb1: a node in this format; any other block is none",
        ),
        field(
            LEVEL_AT,
            1,
            "level",
            "0 for a leaf; a child's is one less, so that a descent ends",
        ),
        field(
            FLAGS_AT,
            1,
            "flags",
            "bit 0: all keys have the same length; other bits are 0",
        ),
        field(
            VALUE_BYTES_AT,
            1,
            "value_bytes",
            "bytes of each value, 1 to 8",
        ),
        field(
            VALUES_AT,
            2,
            "values",
            "values of a leaf, or children; at least 1",
        ),
        field(
            PREFIX_AT,
            2,
            "prefix_bytes",
            "bytes that all keys begin with",
        ),
        field(
            SUFFIX_AT,
            2,
            "suffix_bytes",
            "bytes that all keys end with; 0 unless bit 0 of `flags`",
        ),
        field(STRIDE_AT, 2, "stride", "bytes of each head"),
        field(RESTS_AT, 2, "rest_bytes", "bytes of all rests together"),
        field(
            METADATA_AT,
            2,
            "metadata_bytes",
            "what the owner of the tree keeps in its root",
        ),
    ],
    size: HEADER_BYTES,
}
.checked();
