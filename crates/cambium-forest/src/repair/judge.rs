//! Which of a key's writes counts, by the index of a header that the superblock
//! vouches for.
//!
//! The log alone does not tell: a compaction leaves out tombstones while a named
//! snapshot keeps the document, and what lies in a damaged place may have been the
//! newest write, or a stale one. Where a node of the index is damaged, the trees of an older
//! header tell of what was written before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_base::{Error, Result};

use super::Trusted;
use super::salvage::{Salvaged, Version};
use crate::core::Core;
use crate::document::DocumentAddress;

/// What is to be done with a key.
pub(super) enum Verdict {
    /// This document is its value; none if it has none.
    Counts(Option<DocumentAddress>),
    /// Its newest value cannot be read; there may be an older one.
    Lost {
        offset: u64,
        instead: Option<DocumentAddress>,
    },
}

pub(super) struct Judge<'a> {
    core: &'a Arc<Core>,
    salvaged: &'a Salvaged,
    /// Keys that the index has, by namespace.
    met: BTreeMap<u16, u64>,
    unsure: bool,
}

impl<'a> Judge<'a> {
    pub fn new(core: &'a Arc<Core>, salvaged: &'a Salvaged) -> Self {
        Judge {
            core,
            salvaged,
            met: BTreeMap::new(),
            unsure: false,
        }
    }

    /// Judges a key by its writes that were found.
    pub fn verdict(&mut self, namespace: u16, key: &[u8], versions: &[Version]) -> Result<Verdict> {
        let newest = versions.iter().max_by_key(|version| version.sequence);
        let overlooked = |version: &&Version| self.salvaged.overlooked.contains(&version.offset);
        let overlooked = versions.iter().find(overlooked);
        let by_log = overlooked.or(newest).and_then(|version| version.document);
        let Some(trusted) = &self.salvaged.trusted else {
            return Ok(Verdict::Counts(by_log));
        };
        let Some((indexed, through)) = self.look_up(trusted, namespace, key)? else {
            return Ok(Verdict::Counts(by_log));
        };
        let later = newest.is_some_and(|version| version.sequence > through);
        // Only the newest header's account tells whether anything is missing.
        let is_exact = through == trusted.header.sequence;
        self.unsure |= !is_exact;
        let indexed = match indexed {
            None => Verdict::Counts(None),
            Some(address) => self.indexed((namespace, is_exact), key, versions, address)?,
        };
        Ok(match indexed {
            _ if later || overlooked.is_some() => Verdict::Counts(by_log),
            Verdict::Lost { offset, .. } => Verdict::Lost {
                offset,
                instead: by_log,
            },
            verdict => verdict,
        })
    }

    /// The document to which the newest whole way of an index leads, if any, and the last write
    /// that this index knows; `None` where no way is whole.
    fn look_up(
        &mut self,
        trusted: &Trusted,
        namespace: u16,
        key: &[u8],
    ) -> Result<Option<(Option<DocumentAddress>, u64)>> {
        let nodes = self.core.nodes(&self.salvaged.database);
        for header in std::iter::once(&trusted.header).chain(&trusted.older) {
            let mut roots = header.namespaces.iter();
            let root = roots.find(|(number, ..)| *number == namespace);
            let Some(address) = root.and_then(|(_, _, root)| root.root) else {
                return Ok(Some((None, header.sequence)));
            };
            match self.core.index.find(&nodes, address, key) {
                Ok(found) => return Ok(Some((found, header.sequence))),
                Err(Error::Corruption { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.unsure = true;
        Ok(None)
    }

    /// The index leads to a document: this key's, or another's that the trie
    /// cannot tell from it.
    fn indexed(
        &mut self,
        (namespace, is_exact): (u16, bool),
        key: &[u8],
        versions: &[Version],
        address: DocumentAddress,
    ) -> Result<Verdict> {
        let known = versions.iter().any(|version| {
            let document = version.document;
            document.is_some_and(|document| document.offset() == address.offset())
        });
        let verdict = match known {
            true => Verdict::Counts(Some(address)),
            false => match self.salvaged.database.read_document(address) {
                Ok(document) if document.key == *key => Verdict::Counts(Some(address)),
                Ok(_) => return Ok(Verdict::Counts(None)),
                Err(Error::Corruption { .. }) => Verdict::Lost {
                    offset: address.offset(),
                    instead: None,
                },
                Err(error) => return Err(error),
            },
        };
        *self.met.entry(namespace).or_insert(0) += u64::from(is_exact);
        Ok(verdict)
    }

    /// True if the index told of every key that it has.
    pub fn is_exact(&self) -> bool {
        self.salvaged.trusted.is_some() && !self.unsure
    }

    /// Entries that the index has and of which the log has nothing at all.
    pub fn missing(&self) -> Vec<(u64, String)> {
        let Some(trusted) = &self.salvaged.trusted else {
            return Vec::new();
        };
        let lacking = trusted.header.namespaces.iter().filter_map(|(number, name, root)| {
            let met = self.met.get(number).copied().unwrap_or(0);
            let lacking = root.documents.saturating_sub(met);
            let sure = match self.unsure {
                true => "at most ",
                false => "",
            };
            (lacking > 0).then(|| {
                let what = format!(
                    "of namespace {name:?} {sure}{lacking} entries are lost with their keys: the header says {}, and {met} were found",
                    root.documents
                );
                (trusted.offset, what)
            })
        });
        lacking.collect()
    }
}
