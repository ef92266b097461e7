//! An append-only B+-tree: byte strings to 64-bit values, over a node store.
//!
//! A tree is the address of its root; all calls are functions over roots, since
//! an HB+-trie keeps thousands of trees. Nodes are never changed: a batch
//! ([`apply()`]) appends the changed ones and answers the new root, while the
//! old root still shows the old tree (ForestDB 2016, sections 2.1 and 2.3;
//! Comer, "The ubiquitous B-tree", 1979).
//!
//! ```text
//!          root  ┌───────────────┐ metadata: a few bytes of the tree's owner
//!                │   c   │  dim  │
//!                └───┬───┬───┬───┘
//!          ┌─────────┘   │   └─────────┐
//!  ┌───────┴───────┐ ┌───┴───────┐ ┌───┴───────┐
//!  │ b: and ingo   │ │ car chalk │ │ d: ime og │   leaves: what all keys of
//!  │    lack       │ │ diary     │ │           │   a node share stands once
//!  └───────────────┘ └───────────┘ └───────────┘
//! ```
//!
//! What it promises:
//!
//! - A batch appends each node at most once, and retires exactly the nodes
//!   that the new root no longer reaches; a batch that changes nothing appends
//!   nothing.
//! - A get reads one node a level and allocates nothing.
//! - No bytes of a node, whatever they are, make it panic or loop.
//!
//! | module | what it holds |
//! |---|---|
//! | `layout` | the bytes of a node |
//! | `node` | a node as it is read |
//! | `search`, `search_many` | looking for a key in a node and in a tree, and for many at once |
//! | `encode` | the size of a node, and writing it |
//! | `run`, `cut` | entries on their way into nodes, and where a node ends |
//! | `levels`, `finish` | writing a tree from left to right, level by level; its right edge and root |
//! | `apply`, `build`, `retire` | a batch, a bulk load, the end of a tree |
//! | `cursor` | entries in order, both ways |
//! | `check` | every invariant, and statistics |

mod apply;
mod build;
mod check;
mod cursor;
mod cut;
mod encode;
mod finish;
mod layout;
mod levels;
mod node;
mod options;
mod retire;
mod run;
mod search;
mod search_many;

pub use apply::{Merge, apply};
pub use build::{Building, build};
pub use check::{Finding, Report, Statistics, check};
pub use cursor::Cursor;
pub(crate) use encode::room;
pub use layout::NODE_HEADER;
pub use node::NodeView;
pub use options::{KeyLayout, TreeOptions, max_key_bytes, max_metadata_bytes};
pub use retire::retire_all;
pub use search::{Descent, FloorEntry, FloorStep, Step, apart, get, step};
pub use search_many::get_many;

use crate::node_store::Node;

/// What the owner of a tree keeps in its root node.
///
/// # Errors
/// What in the node cannot be.
pub fn metadata(root: &Node) -> Result<&[u8], String> {
    NodeView::parse(root).map(|view| view.metadata())
}
