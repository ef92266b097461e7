//! A trie as a readable drawing.
//!
//! ```text
//! trie tree at 0: 2 entries, 1 node
//!   "user" + leaf tree at 8 behind "name": 2 entries, 1 node
//!     "alice" = document 17
//!     "bob" = document 4
//!   "zone" = document 5
//! ```
//!
//! `+` says that the key goes on after the piece.

use std::fmt::Write;

use cambium_base::Result;

use crate::btree;
use crate::node_store::{NodeAddress, NodeReader};

use super::head::Kind;
use super::link::Link;
use super::options::TrieOptions;
use super::piece::View;
use super::trees::{self, TreeCursor};

/// Lines are indented for so many trees; deeper ones say how deep they are.
const INDENTED: usize = 30;

/// A tree that is being drawn.
struct Open {
    tree: TreeCursor,
    root: NodeAddress,
    view: View,
    shown: usize,
}

/// Draws the trie under `root`, of each tree at most `entries` entries; `describe`
/// says what a document is.
///
/// # Errors
/// What the reader answers; `Corruption`.
pub fn dump(
    reader: &dyn NodeReader,
    options: &TrieOptions,
    root: Option<NodeAddress>,
    entries: usize,
    describe: &dyn Fn(u64) -> String,
) -> Result<String> {
    let mut text = String::new();
    let Some(root) = root else {
        return Ok("an empty trie\n".to_string());
    };
    let mut open = Vec::new();
    enter(reader, options, &mut open, &mut text, root, 0)?;
    while let Some(top) = open.last_mut() {
        let Some((piece, bits)) = top.tree.entry() else {
            open.pop();
            continue;
        };
        let (piece, root, view) = (piece.to_vec(), top.root, top.view);
        top.shown += 1;
        let cut = top.shown > entries;
        top.tree.next(reader)?;
        indent(&mut text, open.len());
        if cut {
            text.push_str("...\n");
            open.pop();
            continue;
        }
        let (real, goes_on) = view.real(&piece, bits).unwrap_or((&piece, false));
        let _ = write!(
            text,
            "\"{}\"{}",
            real.escape_ascii(),
            if goes_on { " +" } else { "" }
        );
        match trees::link(reader, root, bits)? {
            Link::Document(document) => {
                let _ = writeln!(text, " = document {}", describe(document));
            }
            Link::Tree(below) => {
                text.push(' ');
                enter(reader, options, &mut open, &mut text, below, view.end())?;
            }
        }
    }
    Ok(text)
}

fn indent(text: &mut String, depth: usize) {
    text.push_str(&"  ".repeat(depth.min(INDENTED)));
    if depth > INDENTED {
        let _ = write!(text, "({depth}) ");
    }
}

/// Draws the line of a tree and goes to its first entry.
fn enter(
    reader: &dyn NodeReader,
    options: &TrieOptions,
    open: &mut Vec<Open>,
    text: &mut String,
    root: NodeAddress,
    start: usize,
) -> Result<()> {
    let node = reader.read(root)?;
    let head = trees::head_below(reader, root, &node, start)?;
    let kind = match head.kind {
        Kind::Trie => "trie tree",
        Kind::Leaf => "leaf tree",
        Kind::Truncated => "truncated leaf tree",
    };
    let _ = write!(text, "{kind} at {}", head.position);
    if head.position > start {
        let passed = start.saturating_sub(head.skip_from);
        let known = head.skip.get(passed..).unwrap_or_default();
        let more = if head.is_known(start) { "" } else { "..." };
        let _ = write!(text, " behind \"{}{more}\"", known.escape_ascii());
    }
    let tree_options = trees::tree_options(options, head.kind);
    let nodes = btree::check(reader, &tree_options, Some(root), &mut |_, _| Ok(()))?
        .statistics
        .nodes();
    let entries = plural(head.entries, "entry", "entries");
    let _ = writeln!(text, ": {entries}, {}", plural(nodes, "node", "nodes"));
    let mut tree = TreeCursor::new(Some(root));
    tree.seek_first(reader)?;
    open.push(Open {
        tree,
        root,
        view: trees::view(head, options.chunk_bytes, reader.node_bytes()),
        shown: 0,
    });
    Ok(())
}

fn plural(count: u64, one: &str, several: &str) -> String {
    let unit = if count == 1 { one } else { several };
    format!("{count} {unit}")
}
