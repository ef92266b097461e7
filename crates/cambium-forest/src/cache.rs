//! Caches of nodes and of documents.
//!
//! What lies at a place of a file never changes, so what is cached is never
//! wrong: it is only pushed out, or dropped when nothing reaches it any more.
//! Keys are (file number, place). Both caches are sharded and scan-resistant
//! (`quick_cache`) and bounded in bytes; they are two so that neither reading
//! many documents nor writing them pushes nodes out.

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use cambium_index::{Node, NodeAddress};

use crate::database::Document;
use crate::document::DocumentAddress;

/// Documents larger than this are not cached: reading them costs the device,
/// not the processor.
const LARGEST_DOCUMENT_BYTES: usize = 16 << 10;
/// What an entry costs beside its bytes.
const OVERHEAD_BYTES: u64 = 64;

/// File number and place.
type Key = (u64, u64);

#[derive(Clone, Debug)]
struct NodeWeight;

impl Weighter<Key, Node> for NodeWeight {
    fn weight(&self, _: &Key, node: &Node) -> u64 {
        node.len() as u64 + OVERHEAD_BYTES
    }
}

#[derive(Clone, Debug)]
struct DocumentWeight;

impl Weighter<Key, Document> for DocumentWeight {
    fn weight(&self, _: &Key, document: &Document) -> u64 {
        (document.key.len() + document.value.len()) as u64 + OVERHEAD_BYTES
    }
}

/// The caches of one store.
#[derive(Debug)]
pub(crate) struct Caches {
    nodes: Option<Cache<Key, Node, NodeWeight>>,
    documents: Option<Cache<Key, Document, DocumentWeight>>,
}

/// How a cache has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CacheCounts {
    pub bytes: u64,
    pub hits: u64,
    pub misses: u64,
}

impl Caches {
    /// Caches of so many bytes; 0 switches one off.
    pub fn new(node_cache_bytes: u64, document_cache_bytes: u64, node_bytes: u32) -> Self {
        let nodes = node_cache_bytes / u64::from(node_bytes);
        let documents = document_cache_bytes / 256;
        let estimated = |count: u64| count.clamp(16, 1 << 20) as usize;
        Caches {
            nodes: (node_cache_bytes > 0)
                .then(|| Cache::with_weighter(estimated(nodes), node_cache_bytes, NodeWeight)),
            documents: (document_cache_bytes > 0).then(|| {
                Cache::with_weighter(estimated(documents), document_cache_bytes, DocumentWeight)
            }),
        }
    }

    /// The node at an address, if it is cached.
    pub fn node(&self, file: u64, address: NodeAddress) -> Option<Node> {
        self.nodes.as_ref()?.get(&(file, address.0))
    }

    /// Offers a node.
    pub fn put_node(&self, file: u64, address: NodeAddress, node: &Node) {
        if let Some(nodes) = &self.nodes {
            nodes.insert((file, address.0), node.clone());
        }
    }

    /// Drops a node that the newest root does not reach.
    pub fn drop_node(&self, file: u64, address: NodeAddress) {
        if let Some(nodes) = &self.nodes {
            nodes.remove(&(file, address.0));
        }
    }

    /// The document at an address, if it is cached.
    pub fn document(&self, file: u64, address: DocumentAddress) -> Option<Document> {
        self.documents.as_ref()?.get(&(file, address.offset()))
    }

    /// Offers a document.
    pub fn put_document(&self, file: u64, address: DocumentAddress, document: &Document) {
        if let Some(documents) = &self.documents {
            if document.value.len() <= LARGEST_DOCUMENT_BYTES {
                documents.insert((file, address.offset()), document.clone());
            }
        }
    }

    /// How the node cache has done.
    pub fn node_counts(&self) -> CacheCounts {
        self.nodes
            .as_ref()
            .map_or_else(CacheCounts::default, |cache| CacheCounts {
                bytes: cache.weight(),
                hits: cache.hits(),
                misses: cache.misses(),
            })
    }

    /// How the document cache has done.
    pub fn document_counts(&self) -> CacheCounts {
        self.documents
            .as_ref()
            .map_or_else(CacheCounts::default, |cache| CacheCounts {
                bytes: cache.weight(),
                hits: cache.hits(),
                misses: cache.misses(),
            })
    }
}
