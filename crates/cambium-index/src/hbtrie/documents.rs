//! What the trie asks of whoever keeps the documents.
//!
//! A document is a number below 2^62 to the trie; what it means (where the document
//! lies, how long it is, a fingerprint of its key) is its keeper's business. The trie
//! holds only chunks and suffixes, so it has to ask for a full key where two keys must
//! be told apart. That may be a device read: a batch of changes asks once, for all.

use cambium_base::Result;

/// The keeper of the documents.
pub trait Documents {
    /// The full key of a document.
    ///
    /// # Errors
    /// Whatever reading it meets.
    fn key(&self, document: u64) -> Result<Vec<u8>>;

    /// The keys of several documents, in their order; reads go to the device together.
    ///
    /// # Errors
    /// Whatever reading them meets.
    fn keys(&self, documents: &[u64]) -> Result<Vec<Vec<u8>>> {
        documents
            .iter()
            .map(|&document| self.key(document))
            .collect()
    }

    /// Whether the document may have this key, judged from its number alone (a
    /// fingerprint in it); `false` is certain.
    fn may_match(&self, _document: u64, _key: &[u8]) -> bool {
        true
    }
}
