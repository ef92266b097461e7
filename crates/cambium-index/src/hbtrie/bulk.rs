//! A whole trie from sorted input, for compaction.
//!
//! The input is applied in large batches. Each goes to the right edge of what is there,
//! where B+-trees leave full nodes behind, so but for the right edge's nodes every node
//! is written once, children first, in key order. Memory is bounded by a batch.

use cambium_base::Result;

use crate::node_store::{NodeAddress, NodeWriter};

use super::apply::{Change, apply};
use super::documents::Documents;
use super::options::TrieOptions;

/// Entries of a batch, at most.
const BATCH_ENTRIES: usize = 65_536;

/// Bytes of keys at which a batch is full.
const BATCH_BYTES: usize = 16 << 20;

/// Makes a trie of `(key, document)` in ascending order of keys; `None` if there are
/// none. The key of a document is only asked for where a leaf tree with suffixes too
/// long for it is extended.
///
/// # Errors
/// As [`apply`], and what `entries` answer.
pub fn build<W: NodeWriter>(
    writer: &mut W,
    documents: &dyn Documents,
    options: &TrieOptions,
    entries: &mut dyn Iterator<Item = Result<(Vec<u8>, u64)>>,
) -> Result<Option<NodeAddress>> {
    let mut root = None;
    let mut last = None;
    loop {
        let batch = next_batch(entries)?;
        if batch.is_empty() {
            return Ok(root);
        }
        if batch.first().map(|(key, _)| key) <= last.as_ref().map(|(key, _)| key) {
            return Err(cambium_base::Error::InvalidArgument(
                "the entries of a trie are not in ascending order".to_string(),
            ));
        }
        let remembering = Remembering { documents, last };
        root = apply(writer, &remembering, options, root, &batch, &mut |_| ())?;
        last = batch.into_iter().next_back();
    }
}

fn next_batch(
    entries: &mut dyn Iterator<Item = Result<(Vec<u8>, u64)>>,
) -> Result<Vec<(Vec<u8>, Change)>> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while batch.len() < BATCH_ENTRIES && bytes < BATCH_BYTES {
        let Some(entry) = entries.next() else {
            break;
        };
        let (key, document) = entry?;
        bytes += key.len();
        batch.push((key, Change::Put(document)));
    }
    Ok(batch)
}

/// Documents, of which the one applied last is known: it is the only one that a later
/// key can meet.
struct Remembering<'d> {
    documents: &'d dyn Documents,
    last: Option<(Vec<u8>, Change)>,
}

impl Documents for Remembering<'_> {
    fn key(&self, document: u64) -> Result<Vec<u8>> {
        match &self.last {
            Some((key, Change::Put(last))) if *last == document => Ok(key.clone()),
            _ => self.documents.key(document),
        }
    }

    fn keys(&self, documents: &[u64]) -> Result<Vec<Vec<u8>>> {
        match documents {
            [one] => Ok(vec![self.key(*one)?]),
            several => self.documents.keys(several),
        }
    }

    fn may_match(&self, document: u64, key: &[u8]) -> bool {
        self.documents.may_match(document, key)
    }
}
