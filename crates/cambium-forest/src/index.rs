//! The index over keys, as the engine uses it: the tries of `cambium-index` with
//! this engine's documents below.
//!
//! The tries hold chunks and suffixes of keys, and 8 bytes a document. Where two
//! keys must be told apart they ask for a document's key ([`Keys`]); for one batch
//! of changes once, so that the reads go to the device together.

use cambium_base::{Error, Result};
use cambium_index::hbtrie::{
    self, Change as TrieChange, Cursor, Documents, LeafRule, Lookup, Progress, TrieOptions,
};
use cambium_index::{NodeAddress, NodeReader, NodeWriter};

use crate::core::Core;
use crate::database::Database;
use crate::document::DocumentAddress;
use crate::options::{IndexShape, LeafExtension, Shape};

/// What happens to a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Put(DocumentAddress),
    /// Its document lies at another place.
    Move {
        from: DocumentAddress,
        to: DocumentAddress,
    },
    Remove,
}

impl Change {
    /// What the key has afterwards.
    pub fn document(self) -> Option<DocumentAddress> {
        match self {
            Change::Put(address) | Change::Move { to: address, .. } => Some(address),
            Change::Remove => None,
        }
    }
}

impl From<Option<DocumentAddress>> for Change {
    fn from(document: Option<DocumentAddress>) -> Self {
        document.map_or(Change::Remove, Change::Put)
    }
}

/// Documents of a database file, asked for by the tries. One is looked at for a
/// cursor, which goes on to those beside it; many are for a flush, which asks for
/// what its changes make stale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys<'a> {
    pub core: &'a Core,
    pub database: &'a Database,
}

impl Core {
    /// The keys of a database file's documents.
    pub fn keys<'a>(&'a self, database: &'a Database) -> Keys<'a> {
        Keys {
            core: self,
            database,
        }
    }
}

impl Keys<'_> {
    /// The keys of documents, which are read together.
    pub fn of(&self, addresses: &[DocumentAddress]) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::with_capacity(addresses.len());
        // A piece at a time: their values are not kept.
        let mut rest = addresses;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(read_together(rest));
            rest = behind;
            let documents = self.core.documents_in_passing(self.database, piece)?;
            keys.extend(documents.into_iter().map(|document| document.key.to_vec()));
        }
        Ok(keys)
    }
}

impl Documents for Keys<'_> {
    fn key(&self, document: u64) -> Result<Vec<u8>> {
        let address = DocumentAddress(document);
        let document = self.core.document(self.database, address)?;
        Ok(document.key.to_vec())
    }

    fn keys(&self, documents: &[u64]) -> Result<Vec<Vec<u8>>> {
        let addresses: Vec<DocumentAddress> = documents
            .iter()
            .map(|&bits| DocumentAddress(bits))
            .collect();
        self.of(&addresses)
    }

    fn may_match(&self, document: u64, key: &[u8]) -> bool {
        DocumentAddress(document).may_match(key)
    }
}

/// What a check found.
#[derive(Debug, Default)]
pub(crate) struct IndexReport {
    /// What cannot be; empty for a sound index.
    pub problems: Vec<Error>,
    pub statistics: hbtrie::Statistics,
    /// How many documents could be reached.
    pub documents: u64,
}

/// The index over keys of one store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index {
    options: TrieOptions,
}

/// Documents that are read together for their keys or ahead of a cursor: so
/// many, and of so many bytes; at least one.
const DOCUMENTS_READ_TOGETHER: usize = 1_024;
const BYTES_READ_TOGETHER: u64 = 1 << 20;

/// Documents that a check is handed together: in the order of the file they are read
/// faster, and 8 bytes each are no burden.
const DOCUMENTS_CHECKED_TOGETHER: usize = 1 << 16;

/// How many of the first of these documents shall be read together.
fn read_together(documents: &[DocumentAddress]) -> usize {
    let mut bytes = 0;
    documents
        .iter()
        .take(DOCUMENTS_READ_TOGETHER)
        .take_while(|address| {
            let first = bytes == 0;
            bytes += address.most_bytes();
            first || bytes <= BYTES_READ_TOGETHER
        })
        .count()
        .max(1)
}

/// Entries of a tree that a dump shows.
const DUMPED_ENTRIES: usize = 1_000;

impl Index {
    pub fn new(shape: &Shape) -> Self {
        let leaf_extension = |extension| match extension {
            LeafExtension::Off => LeafRule::Off,
            LeafExtension::Paper => LeafRule::Paper,
            LeafExtension::Mended => LeafRule::Mended,
        };
        Index {
            options: TrieOptions {
                chunk_bytes: usize::from(shape.chunk_bytes),
                shape: match shape.index {
                    IndexShape::HbTrie(extension) => hbtrie::Shape::HbTrie {
                        leaf_extension: leaf_extension(extension),
                    },
                    IndexShape::PrefixBTree => hbtrie::Shape::PrefixBTree,
                    IndexShape::BTree => hbtrie::Shape::PlainBTree,
                },
            },
        }
    }

    /// The only document that can have a key, if any.
    pub fn find<R: NodeReader>(
        &self,
        nodes: &R,
        root: NodeAddress,
        key: &[u8],
    ) -> Result<Option<DocumentAddress>> {
        let found = hbtrie::find(nodes, &self.options, root, key)?;
        Ok(found.map(DocumentAddress))
    }

    /// The same for several keys: each level's nodes are read together.
    pub fn find_many<R: NodeReader>(
        &self,
        nodes: &R,
        root: NodeAddress,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<DocumentAddress>>> {
        let mut answers = vec![None; keys.len()];
        let mut under_way: Vec<(usize, Lookup)> = (0..keys.len())
            .map(|place| (place, Lookup::new(&self.options, root)))
            .collect();
        while !under_way.is_empty() {
            let addresses: Vec<NodeAddress> = under_way
                .iter()
                .map(|(_, lookup)| lookup.address())
                .collect();
            let read = nodes.read_many(&addresses)?;
            let mut next = Vec::with_capacity(under_way.len());
            for ((place, mut lookup), node) in under_way.into_iter().zip(read) {
                match lookup.feed(nodes, &node, keys[place])? {
                    Progress::Node(_) => next.push((place, lookup)),
                    Progress::Document(document) => {
                        answers[place] = Some(DocumentAddress(document));
                    }
                    Progress::Missing => {}
                }
            }
            under_way = next;
        }
        Ok(answers)
    }

    /// Applies changes in ascending order of their keys; `replaced` is told
    /// every document that is no longer reached.
    pub fn apply<W: NodeWriter>(
        &self,
        writer: &mut W,
        documents: &Keys<'_>,
        root: Option<NodeAddress>,
        changes: Vec<(Vec<u8>, Change)>,
        replaced: &mut dyn FnMut(DocumentAddress),
    ) -> Result<Option<NodeAddress>> {
        let changes: Vec<(Vec<u8>, TrieChange)> = changes
            .into_iter()
            .map(|(key, change)| match change {
                Change::Put(address) => (key, TrieChange::Put(address.0)),
                Change::Move { from, to } => {
                    let (from, to) = (from.0, to.0);
                    (key, TrieChange::Move { from, to })
                }
                Change::Remove => (key, TrieChange::Remove),
            })
            .collect();
        hbtrie::apply(
            writer,
            documents,
            &self.options,
            root,
            &changes,
            &mut |document| replaced(DocumentAddress(document)),
        )
    }

    /// An index on its way to where its documents are.
    pub fn relocation(&self, root: NodeAddress) -> hbtrie::Relocation {
        hbtrie::Relocation::new(&self.options, root)
    }

    /// A cursor over an index.
    pub fn cursor(&self, root: NodeAddress) -> IndexCursor {
        IndexCursor {
            cursor: Cursor::new(&self.options, Some(root)),
            fresh: false,
        }
    }

    /// Every invariant of an index, and what it reaches: `look` is handed the
    /// documents in key order, some at a time. Does not read them.
    pub fn check(
        &self,
        nodes: &dyn NodeReader,
        root: NodeAddress,
        mut look: impl FnMut(&mut Vec<DocumentAddress>, &IndexReport) -> Result<()>,
    ) -> Result<IndexReport> {
        let found = hbtrie::check(nodes, None, &self.options, Some(root))?;
        let mut report = IndexReport {
            statistics: found.statistics,
            ..IndexReport::default()
        };
        for finding in found.findings {
            let problem = nodes.corrupt(finding.node, finding.what);
            report.problems.push(problem);
        }
        let mut cursor = self.cursor(root);
        let mut begun = false;
        let mut next = || {
            if !std::mem::replace(&mut begun, true) {
                cursor.begin(nodes, true)?;
            }
            cursor.advance(nodes, true)
        };
        let mut some = Vec::new();
        let mut ended = false;
        while !ended {
            match next() {
                Ok(Some(document)) => some.push(document),
                Ok(None) => ended = true,
                Err(error) if !error.is_corruption() => return Err(error),
                // A damaged node ends the walk; it is among the findings.
                Err(error) => {
                    ended = true;
                    if report.problems.is_empty() {
                        report.problems.push(error);
                    }
                }
            }
            if ended || some.len() == DOCUMENTS_CHECKED_TOGETHER {
                report.documents += some.len() as u64;
                look(&mut some, &report)?;
                some.clear();
            }
        }
        Ok(report)
    }

    /// The shape of an index. Reads every node.
    pub fn statistics(
        &self,
        nodes: &dyn NodeReader,
        root: NodeAddress,
    ) -> Result<hbtrie::Statistics> {
        Ok(hbtrie::check(nodes, None, &self.options, Some(root))?.statistics)
    }

    /// A drawing of an index, its documents as places and bounds of their lengths.
    pub fn dump(&self, nodes: &dyn NodeReader, root: NodeAddress) -> Result<String> {
        hbtrie::dump(
            nodes,
            &self.options,
            Some(root),
            DUMPED_ENTRIES,
            &|document| {
                let address = DocumentAddress(document);
                let (offset, bytes) = (address.offset(), address.most_bytes());
                format!("at {offset}, at most {bytes} bytes")
            },
        )
    }
}

/// Walks an index in key order, either way.
#[derive(Debug)]
pub(crate) struct IndexCursor {
    cursor: Cursor,
    /// It stands at a document that has not been answered yet.
    fresh: bool,
}

impl IndexCursor {
    /// The nodes on the way to the document that was answered last.
    pub fn nodes_on_way(&self) -> impl Iterator<Item = NodeAddress> {
        self.cursor.nodes_on_way()
    }

    /// About which share of the documents lies before the place, from 0 to 1.
    pub fn share_before(&self, nodes: &dyn NodeReader) -> Result<f64> {
        self.cursor.share_before(nodes)
    }

    /// The document that the cursor was put at.
    pub fn document(&self) -> Option<DocumentAddress> {
        self.cursor.document().map(DocumentAddress)
    }

    /// Before the first document, or after the last.
    pub fn begin(&mut self, nodes: &dyn NodeReader, forward: bool) -> Result<()> {
        self.fresh = true;
        if forward {
            self.cursor.seek_first(nodes)?;
        } else {
            self.cursor.seek_last(nodes)?;
        }
        Ok(())
    }

    /// Goes to the nearest document at or after a key, in a direction.
    pub fn seek(
        &mut self,
        nodes: &dyn NodeReader,
        documents: &Keys<'_>,
        key: &[u8],
        forward: bool,
    ) -> Result<()> {
        self.fresh = true;
        if forward {
            self.cursor.seek(nodes, documents, key)?;
        } else {
            self.cursor.seek_at_or_before(nodes, documents, key)?;
        }
        Ok(())
    }

    /// The next documents in a direction, of one leaf, as long as `take` accepts them, as
    /// it must the first. False behind the last document.
    pub fn advance_many(
        &mut self,
        nodes: &dyn NodeReader,
        forward: bool,
        mut take: impl FnMut(DocumentAddress) -> bool,
    ) -> Result<bool> {
        let Some(first) = self.advance(nodes, forward)? else {
            return Ok(false);
        };
        if take(first) {
            let take = |document| take(DocumentAddress(document));
            self.cursor.go_on_in_leaf(nodes, forward, take)?;
        }
        Ok(true)
    }

    /// The next document in a direction.
    pub fn advance(
        &mut self,
        nodes: &dyn NodeReader,
        forward: bool,
    ) -> Result<Option<DocumentAddress>> {
        if !std::mem::take(&mut self.fresh) {
            if forward {
                self.cursor.next(nodes)?;
            } else {
                self.cursor.previous(nodes)?;
            }
        }
        Ok(self.document())
    }
}
