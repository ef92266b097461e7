//! A sorted run: what several write buffers held, packed, until it goes into the tries.
//!
//! A flush of a small buffer into a large trie writes a node for every few keys. So
//! buffers are first merged into a run, which takes a fraction of their memory, and the
//! trie is changed once for many of them. The run is of the kind of the trie's roots: a
//! view has one, it never changes, and it holds the newest version of each key up to a
//! moment that no reader of the view precedes.
//!
//! ```text
//! active buffer ─ sealed ─▶ sorted run ─ when it is full ─▶ tries
//!
//! part of a namespace │ block │ block │ …             16 entries each
//! block               │ entry │ entry │ …             the first shares nothing
//! entry               │ shared varint │ rest and kind varint │ rest │ address, 8 bytes │
//!                          bytes of the entry before    bit 0 whole, 1 removed: no address
//! ```
//!
//! Of a long key it has no more than tells it from its neighbours: the document has the
//! rest. Such a *cut* key can be another that begins alike, so a lookup that finds one reads
//! the document; the fingerprint in its address tells nearly all of them before. A
//! removal has no document, and keeps its whole key.
//!
//! It is memory alone: a crash loses it, and recovery reads the log from where the
//! newest header says, as for the buffers.

mod block;
mod merge;
#[cfg(test)]
mod tests;

use cambium_base::Result;
use cambium_base::coding::common_prefix;
use cambium_io::sync::OnceLock;

use crate::document::DocumentAddress;
use block::Step;
pub(crate) use merge::Merge;

/// Entries of a block.
const BLOCK_ENTRIES: usize = 16;
/// What a block takes beside its bytes: its place in the part, and the allocator's.
const BLOCK_OVERHEAD: u64 = 32;
/// A key is cut where that leaves out this much, at least: who changes a trie needs the
/// whole key, and reads it of the document.
const LEAST_CUT: usize = 64;

/// Entries of all namespaces, packed and sorted.
#[derive(Debug, Default)]
pub(crate) struct SortedRun {
    /// By namespace, ascending.
    parts: Vec<Part>,
    entries: u64,
    bytes: u64,
    pub made_of: MadeOf,
}

/// What the buffers counted that a run is made of: what recovery would read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MadeOf {
    /// Writes, those included that later ones have replaced.
    pub writes: u64,
    /// Memory that the buffers took.
    pub bytes: u64,
    /// Bytes of the log.
    pub logged: u64,
}

#[derive(Debug)]
struct Part {
    namespace: u16,
    blocks: Vec<Box<[u8]>>,
    /// How many keys more there are by it than by the trie below it.
    added: OnceLock<i64>,
}

/// What a run has of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunEntry {
    /// The key, or what it begins with and no other key of the run does.
    pub known: Vec<u8>,
    pub is_whole: bool,
    /// `None` for a removal.
    pub document: Option<DocumentAddress>,
}

impl RunEntry {
    pub fn whole(key: Vec<u8>, document: Option<DocumentAddress>) -> Self {
        RunEntry {
            known: key,
            is_whole: true,
            document,
        }
    }

    /// True if its key may be `key` or lie on either side of it.
    pub fn is_unclear_beside(&self, key: &[u8]) -> bool {
        !self.is_whole && key.starts_with(&self.known)
    }
}

/// What a lookup finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    /// `None` for a removal.
    pub document: Option<DocumentAddress>,
    /// False where the document may have another key.
    pub is_whole: bool,
}

impl SortedRun {
    /// How many keys it has.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Namespaces that have entries, ascending.
    pub fn namespaces(&self) -> impl Iterator<Item = u16> {
        self.parts.iter().map(|part| part.namespace)
    }

    fn part(&self, namespace: u16) -> Option<&Part> {
        let place = self
            .parts
            .binary_search_by_key(&namespace, |part| part.namespace);
        place.ok().map(|place| &self.parts[place])
    }

    /// What it has of a key: the only entry that can be the key's.
    pub fn find(&self, namespace: u16, key: &[u8]) -> Option<Hit> {
        self.candidate(namespace, key).filter(|hit| {
            let document = hit.document;
            document.is_none_or(|address| address.may_match(key))
        })
    }

    /// The same, where the fingerprint says that it is another one's too.
    fn candidate(&self, namespace: u16, key: &[u8]) -> Option<Hit> {
        let part = self.part(namespace)?;
        let block = part.block_of(key)?;
        // The last entry at or before the key, and what they share. One that shares less
        // with the entry before it than that does with the key lies after the key.
        let (mut last, mut common): (Option<Step<'_>>, usize) = (None, 0);
        for step in block::steps(&part.blocks[block]) {
            if step.shared < common {
                break;
            }
            if step.shared == common {
                let more = common_prefix(step.rest, &key[common..]);
                let behind = match (step.rest.get(more), key.get(common + more)) {
                    (Some(one), Some(other)) => one > other,
                    (there, _) => there.is_some(),
                };
                if behind {
                    break;
                }
                common += more;
            }
            last = Some(step);
        }
        let step = last?;
        let known_bytes = step.shared + step.rest.len();
        let is_it = known_bytes == common && (!step.is_whole || common == key.len());
        is_it.then_some(Hit {
            document: step.document,
            is_whole: step.is_whole,
        })
    }

    /// The block in which a key would lie; `None` where the namespace has no entries.
    pub fn block_of(&self, namespace: u16, key: &[u8]) -> Option<usize> {
        let part = self.part(namespace)?;
        Some(part.block_of(key).unwrap_or(0))
    }

    /// Blocks of a namespace.
    pub fn blocks(&self, namespace: u16) -> usize {
        self.part(namespace).map_or(0, |part| part.blocks.len())
    }

    /// The entries of a block, ascending.
    pub fn block(&self, namespace: u16, number: usize) -> Vec<RunEntry> {
        let part = self.part(namespace);
        let block = part.and_then(|part| part.blocks.get(number));
        block.map_or_else(Vec::new, |block| block::entries(block))
    }

    /// How many keys more a namespace has by the run than by the trie that it lies over
    /// for as long as there is either. Counted when somebody asks first.
    pub fn count_added(&self, namespace: u16, count: impl FnOnce() -> Result<i64>) -> Result<i64> {
        let Some(part) = self.part(namespace) else {
            return Ok(0);
        };
        if let Some(&added) = part.added.get() {
            return Ok(added);
        }
        let counted = count()?;
        Ok(*part.added.get_or_init(|| counted))
    }

    /// All entries of a namespace, ascending.
    pub fn walk(&self, namespace: u16) -> impl Iterator<Item = RunEntry> {
        let blocks = self.part(namespace).into_iter();
        blocks.flat_map(|part| part.blocks.iter().flat_map(|block| block::entries(block)))
    }
}

impl Part {
    /// The last block that begins at or before a key.
    fn block_of(&self, key: &[u8]) -> Option<usize> {
        let behind = |block: &[u8]| block::first_key(block) <= key;
        self.blocks
            .partition_point(|block| behind(block))
            .checked_sub(1)
    }
}
