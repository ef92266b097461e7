//! The B+-trees, as the trie uses them: each with a head as its metadata.

use std::borrow::Cow;

use cambium_base::Result;

use crate::btree::{self, KeyLayout, NodeView, TreeOptions};
use crate::node_store::{Node, NodeAddress, NodeReader, NodeWriter};

use super::head::{Head, Kind, OwnedHead};
use super::link::Link;
use super::options::{Shape, TrieOptions};
use super::piece::View;

pub(super) use crate::btree::{Cursor as TreeCursor, Descent, Step};

/// An entry that a tree gets (`Some`) or loses (`None`).
pub(super) type Update = (Vec<u8>, Option<u64>);

/// How many bytes of a key leaf trees see: as many whole chunks as a B+-tree takes,
/// less a byte that marks a cut suffix.
pub(super) fn leaf_bytes(node_bytes: usize, chunk_bytes: usize) -> usize {
    let most = btree::max_key_bytes(node_bytes) - 1;
    (most - most % chunk_bytes).max(chunk_bytes)
}

/// What a tree of that head sees.
pub(super) fn view(head: Head<'_>, chunk_bytes: usize, node_bytes: usize) -> View {
    View {
        kind: head.kind,
        position: head.position,
        width: match head.kind {
            Kind::Trie => chunk_bytes,
            Kind::Leaf | Kind::Truncated => leaf_bytes(node_bytes, chunk_bytes),
        },
    }
}

/// How the trees of a kind are written.
pub(super) fn tree_options(options: &TrieOptions, kind: Kind) -> TreeOptions {
    match (kind, options.shape) {
        (Kind::Trie, _) => TreeOptions::new(KeyLayout::Fixed(options.chunk_bytes + 1)),
        (Kind::Leaf, Shape::PlainBTree) => TreeOptions::plain(KeyLayout::Variable),
        (Kind::Leaf | Kind::Truncated, _) => TreeOptions::new(KeyLayout::Variable),
    }
}

/// A root node's columns.
pub(super) fn root_view<'n, R: NodeReader + ?Sized>(
    reader: &R,
    address: NodeAddress,
    node: &'n Node,
) -> Result<NodeView<'n>> {
    NodeView::parse(node).map_err(|what| reader.corrupt(address, what))
}

/// The head in a root node.
pub(super) fn head<'n, R: NodeReader + ?Sized>(
    reader: &R,
    address: NodeAddress,
    node: &'n Node,
) -> Result<Head<'n>> {
    let view = root_view(reader, address, node)?;
    Head::decode(view.metadata()).map_err(|what| reader.corrupt(address, what))
}

/// The head of a sub-tree that hangs where its parent's view ends at `start`: it must
/// not reach back, or a damaged node could lead in circles.
pub(super) fn head_below<'n, R: NodeReader + ?Sized>(
    reader: &R,
    address: NodeAddress,
    node: &'n Node,
    start: usize,
) -> Result<Head<'n>> {
    let head = head(reader, address, node)?;
    if head.position < start {
        let what = format!(
            "a sub-tree at position {}, below a tree that sees keys up to {start}",
            head.position
        );
        return Err(reader.corrupt(address, what));
    }
    Ok(head)
}

/// What an entry's value means.
pub(super) fn link<R: NodeReader + ?Sized>(
    reader: &R,
    address: NodeAddress,
    bits: u64,
) -> Result<Link> {
    Link::decode(bits).ok_or_else(|| {
        let what = format!("an entry with value {bits:#x}, neither document nor sub-tree");
        reader.corrupt(address, what)
    })
}

/// The number of entries at an entry's value: one, or those of a sub-tree.
pub(super) fn entries_at(reader: &dyn NodeReader, address: NodeAddress, bits: u64) -> Result<f64> {
    match link(reader, address, bits)? {
        Link::Document(_) => Ok(1.0),
        Link::Tree(root) => Ok(head(reader, root, &reader.read(root)?)?.entries as f64),
    }
}

/// The last document, in key order, of the trie under `root`.
pub(super) fn last_document(reader: &dyn NodeReader, root: NodeAddress) -> Result<u64> {
    let mut address = root;
    let mut start = 0;
    loop {
        let node = reader.read(address)?;
        let head = head_below(reader, address, &node, start)?;
        let mut cursor = TreeCursor::new(Some(address));
        cursor.seek_last(reader)?;
        let Some((_, bits)) = cursor.entry() else {
            return Err(reader.corrupt(address, "a sub-tree without entries".to_string()));
        };
        match link(reader, address, bits)? {
            Link::Document(document) => return Ok(document),
            Link::Tree(below) => {
                address = below;
                start = head.position + 1;
            }
        }
    }
}

/// Applies sorted updates to a tree and gives it a new head.
pub(super) fn update<W: NodeWriter + ?Sized>(
    writer: &mut W,
    options: &TrieOptions,
    root: NodeAddress,
    head: &OwnedHead,
    updates: Vec<Update>,
) -> Result<Option<NodeAddress>> {
    let mut keys = Vec::with_capacity(updates.len());
    let mut values = Vec::with_capacity(updates.len());
    for (key, value) in updates {
        keys.push(key);
        values.push(value);
    }
    let mut values = values.into_iter();
    btree::apply(
        writer,
        &tree_options(options, head.kind),
        Some(root),
        &head.encode(),
        &mut keys.into_iter().map(Cow::Owned),
        &mut |_, _, found| Ok(values.next().unwrap_or(found)),
    )
}

/// Gives a tree another head; its entries stay.
pub(super) fn set_head<W: NodeWriter + ?Sized>(
    writer: &mut W,
    options: &TrieOptions,
    root: NodeAddress,
    head: &OwnedHead,
) -> Result<NodeAddress> {
    let made = update(writer, options, root, head, Vec::new())?;
    made.ok_or_else(|| writer.corrupt(root, "a sub-tree without entries".to_string()))
}

/// Makes a tree of sorted entries.
pub(super) fn make<W: NodeWriter + ?Sized>(
    writer: &mut W,
    options: &TrieOptions,
    head: &OwnedHead,
    entries: &mut dyn Iterator<Item = Result<(Vec<u8>, u64)>>,
) -> Result<Option<NodeAddress>> {
    btree::build(
        writer,
        &tree_options(options, head.kind),
        &head.encode(),
        entries,
    )
}
