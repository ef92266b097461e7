//! The value of an entry: a document, or the root of a sub-tree.
//!
//! ```text
//!   bit 63   0: document, bits 61..0 are its number
//!               bit 62   1: its key goes on after the entry's piece; only in
//!                           truncated leaf trees, whose pieces don't say so
//!            1: sub-tree, bits 55..0 are its root's address, the rest is 0
//! ```

use crate::node_store::NodeAddress;

/// Documents are below this.
pub(super) const DOCUMENT_END: u64 = GOES_ON;

const TREE: u64 = 1 << 63;
const GOES_ON: u64 = 1 << 62;

/// What hangs at a piece of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Document(u64),
    Tree(NodeAddress),
}

impl Link {
    /// What the 8 bytes mean; `None` for what no trie writes.
    pub(super) fn decode(bits: u64) -> Option<Link> {
        if bits < TREE {
            return Some(Link::Document(bits & !GOES_ON));
        }
        let address = bits - TREE;
        let possible = 1..=NodeAddress::MAX.0;
        possible
            .contains(&address)
            .then_some(Link::Tree(NodeAddress(address)))
    }

    /// The 8 bytes.
    pub(super) fn encode(self) -> u64 {
        match self {
            Link::Document(document) => document,
            Link::Tree(root) => root.0 | TREE,
        }
    }
}

/// The 8 bytes of a document in a truncated leaf tree.
pub(super) fn encode_document(document: u64, goes_on: bool) -> u64 {
    document | if goes_on { GOES_ON } else { 0 }
}

/// Whether the value is that of a document whose key goes on after its piece.
pub(super) fn is_marked(bits: u64) -> bool {
    bits & (TREE | GOES_ON) == GOES_ON
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_come_back_and_what_is_none_is_refused() {
        for link in [
            Link::Document(0),
            Link::Document(DOCUMENT_END - 1),
            Link::Tree(NodeAddress(1)),
            Link::Tree(NodeAddress::MAX),
        ] {
            assert_eq!(Link::decode(link.encode()), Some(link));
            assert!(!is_marked(link.encode()));
        }
        assert_eq!(Link::decode(TREE), None, "address 0 is no node");
        assert_eq!(Link::decode(u64::MAX), None);
    }

    #[test]
    fn a_document_keeps_the_mark_apart_from_its_number() {
        for document in [0, 17, DOCUMENT_END - 1] {
            let marked = encode_document(document, true);
            assert!(is_marked(marked) && !is_marked(encode_document(document, false)));
            assert_eq!(Link::decode(marked), Some(Link::Document(document)));
        }
        assert!(!is_marked(Link::Tree(NodeAddress::MAX).encode() | GOES_ON));
    }
}
