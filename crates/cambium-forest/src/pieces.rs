//! What goes into a trie: sorted changes, in pieces of bounded memory.

use cambium_base::Result;

use crate::buffer::{Buffer, CHANGE_BYTES};
use crate::document::DocumentAddress;
use crate::index::Keys;
use crate::sorted_run::{RunEntry, SortedRun};

/// A key and its newest document, or `None` where it was removed.
pub(crate) type KeyChange = (Vec<u8>, Option<DocumentAddress>);

/// Where changes come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'s> {
    Buffer(&'s Buffer),
    Run(&'s SortedRun),
}

impl<'s> Source<'s> {
    /// True for a run.
    pub fn is_run(self) -> bool {
        matches!(self, Source::Run(_))
    }

    /// Namespaces that it has changes of.
    pub fn namespaces(self) -> Vec<u16> {
        match self {
            Source::Buffer(buffer) => buffer.namespaces(),
            Source::Run(run) => run.namespaces().collect(),
        }
    }

    /// The changes of a namespace, each piece of so many bytes of memory at most, or of
    /// one change.
    pub fn pieces(self, namespace: u16, most_bytes: u64) -> Pieces<'s> {
        Pieces {
            way: match self {
                Source::Buffer(buffer) => Way::Buffer {
                    buffer,
                    namespace,
                    last: None,
                },
                Source::Run(run) => {
                    let entries: Entries<'s> = Box::new(run.walk(namespace));
                    Way::Run(entries.peekable())
                }
            },
            most_bytes,
        }
    }
}

type Entries<'s> = Box<dyn Iterator<Item = RunEntry> + 's>;

/// Changes of a namespace that are still to come.
pub(crate) struct Pieces<'s> {
    way: Way<'s>,
    most_bytes: u64,
}

enum Way<'s> {
    Buffer {
        buffer: &'s Buffer,
        namespace: u16,
        last: Option<Vec<u8>>,
    },
    Run(std::iter::Peekable<Entries<'s>>),
}

impl Pieces<'_> {
    /// The next piece; empty after the last. Keys that a run has cut are read of their
    /// documents, together.
    pub fn next(&mut self, keys: &Keys<'_>) -> Result<Vec<KeyChange>> {
        match &mut self.way {
            Way::Buffer {
                buffer,
                namespace,
                last,
            } => {
                let piece = buffer.newest_behind(*namespace, last.as_deref(), self.most_bytes);
                if let Some((key, _)) = piece.last() {
                    *last = Some(key.clone());
                }
                let change =
                    |(key, version): (Vec<u8>, crate::buffer::Version)| (key, version.document);
                Ok(piece.into_iter().map(change).collect())
            }
            Way::Run(entries) => {
                let mut piece = Vec::new();
                let mut bytes = 0;
                while let Some(entry) = entries.peek() {
                    bytes += memory_of(entry);
                    if bytes > self.most_bytes && !piece.is_empty() {
                        break;
                    }
                    piece.extend(entries.next());
                }
                whole(piece, keys)
            }
        }
    }
}

/// What a change takes once its key is whole; of one that is cut no more is known than
/// what its document has.
fn memory_of(entry: &RunEntry) -> u64 {
    let key_bytes = match (entry.is_whole, entry.document) {
        (false, Some(address)) => address.most_bytes().min(u64::from(u16::MAX)),
        _ => entry.known.len() as u64,
    };
    key_bytes + CHANGE_BYTES
}

/// Changes of entries, their keys whole.
fn whole(entries: Vec<RunEntry>, keys: &Keys<'_>) -> Result<Vec<KeyChange>> {
    let cut = entries.iter().filter(|entry| !entry.is_whole);
    let documents: Vec<DocumentAddress> = cut.filter_map(|entry| entry.document).collect();
    let mut read = keys.of(&documents)?.into_iter();
    let change = |entry: RunEntry| {
        let key = match entry.is_whole {
            true => entry.known,
            false => read.next().unwrap_or(entry.known),
        };
        (key, entry.document)
    };
    Ok(entries.into_iter().map(change).collect())
}
