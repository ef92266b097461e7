//! The value of an entry: a document, or the root of a sub-tree.
//!
//! ```text
//!   bit 63   0: document, bits 62..0 are its number
//!            1: sub-tree, bits 55..0 are its root's address, the rest is 0
//! ```

use crate::node_store::NodeAddress;

/// Documents are below this.
pub(super) const DOCUMENT_END: u64 = 1 << 63;

/// What hangs at a piece of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Document(u64),
    Tree(NodeAddress),
}

impl Link {
    /// What the 8 bytes mean; `None` for what no trie writes.
    pub(super) fn decode(bits: u64) -> Option<Link> {
        if bits < DOCUMENT_END {
            return Some(Link::Document(bits));
        }
        let address = bits - DOCUMENT_END;
        let possible = 1..=NodeAddress::MAX.0;
        possible
            .contains(&address)
            .then_some(Link::Tree(NodeAddress(address)))
    }

    /// The 8 bytes.
    pub(super) fn encode(self) -> u64 {
        match self {
            Link::Document(document) => document,
            Link::Tree(root) => root.0 | DOCUMENT_END,
        }
    }
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
        }
        assert_eq!(Link::decode(DOCUMENT_END), None, "address 0 is no node");
        assert_eq!(Link::decode(u64::MAX), None);
    }
}
