//! Every invariant of a trie, and its statistics.
//!
//! Reads all nodes of all trees, and with documents at hand their keys too. Damage is a
//! finding; what lies below it is left out.

use std::collections::HashSet;

use cambium_base::{Error, Result};

use crate::btree;
use crate::node_store::{NodeAddress, NodeReader};

use super::documents::Documents;
use super::head::{Head, Kind};
use super::link::{self, Link};
use super::options::TrieOptions;
use super::piece::View;
use super::trees;

pub use crate::btree::Finding;

/// Documents whose keys are read together.
const READ_TOGETHER: usize = 4096;

/// The trees of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindStatistics {
    /// Trees.
    pub trees: u64,
    /// Their nodes.
    pub nodes: u64,
    /// Bytes in use in their nodes.
    pub used_bytes: u64,
    /// Their entries, sub-trees and documents.
    pub entries: u64,
}

/// The shape of a trie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Trees that see one chunk.
    pub trie_trees: KindStatistics,
    /// Trees that see the rest of the key.
    pub leaf_trees: KindStatistics,
    /// Documents.
    pub documents: u64,
    /// Node reads of all lookups, one for each document.
    pub node_reads: u64,
    /// Node reads of the longest lookup: the trie's height.
    pub height: u64,
    /// Trees on the longest way.
    pub depth: u64,
    /// Bytes of every node.
    pub node_bytes: u64,
}

impl Statistics {
    /// All nodes.
    pub fn nodes(&self) -> u64 {
        self.trie_trees.nodes + self.leaf_trees.nodes
    }

    /// Bytes of all nodes on the device.
    pub fn bytes(&self) -> u64 {
        self.nodes() * self.node_bytes
    }

    /// Mean node reads of a lookup of a document that is there.
    pub fn mean_node_reads(&self) -> f64 {
        self.node_reads as f64 / self.documents.max(1) as f64
    }
}

/// What [`check`] saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What cannot be; empty for a sound trie.
    pub findings: Vec<Finding>,
    /// The shape of what could be read.
    pub statistics: Statistics,
}

/// A tree that is to be looked at.
struct Task {
    root: NodeAddress,
    start: usize,
    /// Node reads before this tree's root.
    reads: u64,
    depth: u64,
    /// What all keys below begin with, as far as it was learnt.
    path: Vec<u8>,
}

/// A document and what its key must look like.
struct Claim {
    document: u64,
    tree: NodeAddress,
    path: Vec<u8>,
    goes_on: bool,
}

struct Checker<'c> {
    reader: &'c dyn NodeReader,
    documents: Option<&'c dyn Documents>,
    options: &'c TrieOptions,
    report: Report,
    tasks: Vec<Task>,
    claims: Vec<Claim>,
    seen: HashSet<NodeAddress>,
}

/// Looks at every node of the trie under `root`, and with `documents` at every
/// document's key, and reports what does not hold. Cost: reads everything once.
///
/// # Errors
/// What the reader and `documents` answer but `Corruption`.
pub fn check(
    reader: &dyn NodeReader,
    documents: Option<&dyn Documents>,
    options: &TrieOptions,
    root: Option<NodeAddress>,
) -> Result<Report> {
    let mut checker = Checker {
        reader,
        documents,
        options,
        report: Report::default(),
        tasks: Vec::new(),
        claims: Vec::new(),
        seen: HashSet::new(),
    };
    checker.report.statistics.node_bytes = reader.node_bytes() as u64;
    checker.tasks.extend(root.map(|root| Task {
        root,
        start: 0,
        reads: 0,
        depth: 1,
        path: Vec::new(),
    }));
    while let Some(task) = checker.tasks.pop() {
        let root = task.root;
        match checker.tree(task) {
            Err(Error::Corruption { what, .. }) => checker.find(root, what),
            other => other?,
        }
    }
    checker.settle_claims()?;
    Ok(checker.report)
}

impl Checker<'_> {
    fn find(&mut self, node: NodeAddress, what: String) {
        self.report.findings.push(Finding { node, what });
    }

    fn tree(&mut self, task: Task) -> Result<()> {
        if !self.seen.insert(task.root) {
            self.find(task.root, "two entries have this sub-tree".to_string());
            return Ok(());
        }
        let node = self.reader.read(task.root)?;
        let head = trees::head_below(self.reader, task.root, &node, task.start)?;
        let view = trees::view(head, self.options.chunk_bytes, self.reader.node_bytes());
        self.head(&task, head);
        let path = self.path(&task, head)?;
        let height = trees::root_view(self.reader, task.root, &node)?.level() + 1;
        let reads = task.reads + u64::from(height);
        let (mut entries, mut entry_bytes) = (0, 0);
        let mut truncated: Option<Vec<u8>> = None;
        let (reader, options) = (self.reader, trees::tree_options(self.options, head.kind));
        let report = btree::check(reader, &options, Some(task.root), &mut |piece, bits| {
            entries += 1;
            entry_bytes += piece.len() as u64;
            if truncated
                .as_ref()
                .is_some_and(|before| piece.starts_with(before))
            {
                let what = format!("an entry {piece:?} that begins with a truncated one before");
                self.find(task.root, what);
            }
            truncated = link::is_marked(bits).then(|| piece.to_vec());
            self.entry(&task, view, &path, reads, piece, bits)
        })?;
        self.report.findings.extend(report.findings);
        self.count(head, &report.statistics, (entries, entry_bytes), task.root);
        Ok(())
    }

    fn head(&mut self, task: &Task, head: Head<'_>) {
        if head.position % self.options.chunk_bytes != 0 {
            let what = format!(
                "a tree at position {}, not a multiple of the chunk",
                head.position
            );
            self.find(task.root, what);
        }
        if head.entries < 2 && task.depth > 1 {
            let what = format!("a sub-tree of {} entries; it needs two", head.entries);
            self.find(task.root, what);
        }
    }

    fn count(
        &mut self,
        head: Head<'_>,
        tree: &btree::Statistics,
        found: (u64, u64),
        root: NodeAddress,
    ) {
        let stated = (head.entries, head.key_bytes);
        if stated != found {
            let what = format!("entries and their bytes are {found:?}, the root says {stated:?}");
            self.find(root, what);
        }
        let statistics = &mut self.report.statistics;
        let kind = match head.kind {
            Kind::Trie => &mut statistics.trie_trees,
            Kind::Leaf | Kind::Truncated => &mut statistics.leaf_trees,
        };
        kind.trees += 1;
        kind.nodes += tree.nodes();
        kind.used_bytes += tree.used_bytes();
        kind.entries += found.0;
    }

    /// What all keys of the tree begin with. Asks for a document's key where the root
    /// does not keep it; without documents, zeros stand for what is not known.
    fn path(&mut self, task: &Task, head: Head<'_>) -> Result<Vec<u8>> {
        let mut path = task.path.clone();
        if head.is_known(task.start) {
            let passed = task.start.saturating_sub(head.skip_from);
            path.extend_from_slice(head.skip.get(passed..).unwrap_or_default());
        } else if let Some(documents) = self.documents {
            let last = trees::last_document(self.reader, task.root)?;
            let key = documents.key(last)?;
            if head.excludes(&key, task.start) || !key.starts_with(&task.path) {
                let what = "the last document's key does not begin as its place says";
                self.find(task.root, what.to_string());
            }
            path = key;
        }
        path.resize(head.position, 0);
        Ok(path)
    }

    fn entry(
        &mut self,
        task: &Task,
        view: View,
        path: &[u8],
        reads: u64,
        piece: &[u8],
        bits: u64,
    ) -> Result<()> {
        let Some((real, goes_on)) = view.real(piece, bits) else {
            self.find(
                task.root,
                format!("an entry {piece:?} that is no piece of a key"),
            );
            return Ok(());
        };
        if real.is_empty() && view.position > 0 {
            self.find(
                task.root,
                "a key that ends at its tree's position".to_string(),
            );
        }
        let path = [path, real].concat();
        match trees::link(self.reader, task.root, bits)? {
            Link::Document(document) => {
                let statistics = &mut self.report.statistics;
                statistics.documents += 1;
                statistics.node_reads += reads;
                statistics.height = statistics.height.max(reads);
                statistics.depth = statistics.depth.max(task.depth);
                if self.documents.is_some() {
                    self.claims.push(Claim {
                        document,
                        tree: task.root,
                        path,
                        goes_on,
                    });
                    if self.claims.len() == READ_TOGETHER {
                        self.settle_claims()?;
                    }
                }
            }
            Link::Tree(_) if !goes_on => {
                self.find(task.root, "a sub-tree where a key ends".to_string());
            }
            Link::Tree(root) => self.tasks.push(Task {
                root,
                start: view.end(),
                reads,
                depth: task.depth + 1,
                path,
            }),
        }
        Ok(())
    }

    /// Holds documents' keys against where they hang.
    fn settle_claims(&mut self) -> Result<()> {
        let claims = std::mem::take(&mut self.claims);
        let Some(documents) = self.documents else {
            return Ok(());
        };
        let numbers: Vec<u64> = claims.iter().map(|claim| claim.document).collect();
        let keys = documents.keys(&numbers)?;
        for (claim, key) in claims.iter().zip(keys) {
            let goes_on = key.len() > claim.path.len();
            if !key.starts_with(&claim.path) || goes_on != claim.goes_on {
                let what = format!(
                    "document {} has another key than its place says",
                    claim.document
                );
                self.find(claim.tree, what);
            }
        }
        Ok(())
    }
}
