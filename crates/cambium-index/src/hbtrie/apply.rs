//! A sorted batch of changes in one pass.
//!
//! First everything that the batch meets is read (`plan`), the keys of old documents
//! that must be known with one call of [`Documents::keys`]. Then the trees that changes
//! pass through are settled one by one, children before parents (`outcome`): each is
//! updated by one pass of its B+-tree, taken away where it is empty or a single entry is
//! left, put under a new tree where keys leave its skipped prefix, or extended. Only
//! changed nodes are appended.
//!
//! An old document is never read for its length, and for its key only where it hangs at
//! a piece behind which keys go on, and a change has the same piece: a put (the document
//! is replaced if it is the same key, else the two need a sub-tree), or a removal that
//! [`Documents::may_match`] does not rule out.

use cambium_base::{Error, Result};

use crate::node_store::{NodeAddress, NodeWriter};

use super::documents::Documents;
use super::grow::{Grower, Item};
use super::link::{DOCUMENT_END, Link};
use super::options::{KEY_BYTES_MAX, TrieOptions};
use super::outcome::Settler;
use super::plan::{KeyChange, Planner};

/// What happens to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key has this document now, a number below 2^62.
    Put(u64),
    /// The same where the key is known to have had the document `from`: that is not asked
    /// for its key.
    Move {
        /// The document that it had.
        from: u64,
        /// The one that it has now.
        to: u64,
    },
    /// The key has none.
    Remove,
}

impl Change {
    /// The document that the key has now.
    pub(super) fn document(self) -> Option<u64> {
        match self {
            Change::Put(document) | Change::Move { to: document, .. } => Some(document),
            Change::Remove => None,
        }
    }

    /// True if it leaves a document where it is.
    pub(super) fn keeps(self, document: u64) -> bool {
        self.document() == Some(document)
    }
}

/// Applies changes in ascending order of their keys, each key once, and answers the new
/// root; `None` if the trie is empty now. `replaced` is told every document that is no
/// longer reached. Durability is the node store's business, and nothing of the old trie
/// is changed: `root` stays a valid snapshot of it.
///
/// # Errors
/// `InvalidArgument` for keys out of order or a document of 2^62 or more,
/// `LimitExceeded` for a key over 65,535 bytes, both before anything is written; what
/// reader, writer and `documents` answer; `Corruption` for nodes that cannot be. After an
/// error the nodes appended so far belong to no trie.
///
/// ```
/// use cambium_index::MemoryNodes;
/// use cambium_index::hbtrie::{self, Change, Documents, TrieOptions};
///
/// struct Keys(Vec<&'static str>); // document i has key i
/// impl Documents for Keys {
///     fn key(&self, document: u64) -> cambium_base::Result<Vec<u8>> {
///         Ok(self.0[document as usize].into())
///     }
/// }
/// let keys = Keys(vec!["ash", "oak", "oak"]);
/// let (mut nodes, options) = (MemoryNodes::new(4096), TrieOptions::default());
/// let puts = [("ash", Change::Put(0)), ("oak", Change::Put(1))];
/// let root = hbtrie::apply(&mut nodes, &keys, &options, None, &puts, &mut |_| ()).unwrap();
///
/// let mut replaced = Vec::new();
/// let again = [("oak", Change::Put(2))];
/// let root = hbtrie::apply(&mut nodes, &keys, &options, root, &again, &mut |old| {
///     replaced.push(old);
/// });
/// let root = root.unwrap().expect("two documents are left");
/// assert_eq!(hbtrie::find(&nodes, &options, root, b"oak").unwrap(), Some(2));
/// assert_eq!(replaced, [1]);
/// ```
pub fn apply<K: AsRef<[u8]>, W: NodeWriter>(
    writer: &mut W,
    documents: &dyn Documents,
    options: &TrieOptions,
    root: Option<NodeAddress>,
    changes: &[(K, Change)],
    replaced: &mut dyn FnMut(u64),
) -> Result<Option<NodeAddress>> {
    options.validate()?;
    let changes: Vec<KeyChange<'_>> = changes
        .iter()
        .map(|(key, change)| KeyChange {
            key: key.as_ref(),
            change: *change,
        })
        .collect();
    check_changes(&changes)?;
    let Some(root) = root else {
        return first(writer, options, &changes);
    };
    let plan = Planner {
        reader: writer,
        documents,
        chunk_bytes: options.chunk_bytes,
        changes: &changes,
    }
    .plan(root)?;
    Settler {
        writer,
        documents,
        options,
        changes: &changes,
        replaced,
    }
    .settle_all(root, plan)
}

fn check_changes(changes: &[KeyChange<'_>]) -> Result<()> {
    for pair in changes.windows(2) {
        if pair[0].key >= pair[1].key {
            return Err(Error::InvalidArgument(
                "changes of a trie come in ascending order, each key once".to_string(),
            ));
        }
    }
    for change in changes {
        if change.key.len() > KEY_BYTES_MAX {
            return Err(Error::LimitExceeded(format!(
                "a key of {} bytes; keys have up to {KEY_BYTES_MAX}",
                change.key.len()
            )));
        }
        if change.change.document() >= Some(DOCUMENT_END) {
            return Err(Error::InvalidArgument(
                "documents are numbers below 2^62".to_string(),
            ));
        }
    }
    Ok(())
}

/// The puts among changes, as items.
pub(super) fn puts<'c>(changes: &[KeyChange<'c>]) -> Vec<Item<'c>> {
    let put = |change: &KeyChange<'c>| {
        let document = change.change.document();
        document.map(|document| Item::document(change.key, document))
    };
    changes.iter().filter_map(put).collect()
}

/// The first trie.
fn first<W: NodeWriter>(
    writer: &mut W,
    options: &TrieOptions,
    changes: &[KeyChange<'_>],
) -> Result<Option<NodeAddress>> {
    let items = puts(changes);
    if items.is_empty() {
        return Ok(None);
    }
    let made = Grower {
        writer,
        options,
        items: &items,
    }
    .grow(0, true)?;
    Ok(match made {
        Link::Tree(root) => Some(root),
        Link::Document(_) => None,
    })
}
