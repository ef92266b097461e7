//! What a tree's root node says about the tree.
//!
//! It is the metadata that the B+-tree keeps in its root node, [`TREE_HEAD`] and behind
//! it the skipped prefix:
//!
//! ```text
//!   ┌──────┬──────────┬───────────┬─────────┬───────────┬────────────────┐
//!   │ kind │ position │ skip_from │ entries │ key_bytes │ skipped prefix │
//!   └──────┴──────────┴───────────┴─────────┴───────────┴────────────────┘
//! ```
//!
//! All little-endian. The position is the paper's chunk number, in bytes. `entries` and
//! `key_bytes` are exact, so that leaf extension can estimate from the root node alone.
//!
//! The skipped prefix may reach further to the front than the parent asks for (when a
//! new tree was put between the two, it is not worth rewriting this one). It may also
//! end before the position: a prefix beyond [`skip_limit`] is not kept. Then lookups
//! pass unchecked, since the document's full key is compared on arrival, and a change
//! or a cursor that has to know reads the key of any document below.

use std::cmp::Ordering;

use cambium_base::coding::Decoder;
use cambium_base::layout::{Layout, field};

/// What a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Sees one chunk.
    Trie,
    /// Sees the rest of the key.
    Leaf,
    /// Sees the rest of the key, and keeps of it what tells it apart.
    Truncated,
}

/// Bytes before the skipped prefix.
const FIXED_BYTES: usize = 21;

/// The head of a tree of the HB+-trie.
pub const TREE_HEAD: Layout = Layout {
    name: "Head of a tree of the HB+-trie",
    about: "The metadata in the root node of each B+-tree of an HB+-trie. Behind it, to the \
            metadata's end, stands the skipped prefix: bytes of the key from `skip_from` on. \
            What the trees' keys and values mean is drawn in `piece.rs` and `link.rs` of \
            `crates/cambium-index/src/hbtrie`.",
    fields: &[
        field(
            0,
            1,
            "kind",
            "0: a trie tree, sees one chunk; 1: a leaf tree, sees the rest; \
             2: a truncated leaf tree, keeps of the rest what tells it apart",
        ),
        field(
            1,
            2,
            "position",
            "the first byte of a key that the tree sees",
        ),
        field(
            3,
            2,
            "skip_from",
            "the byte of a key with which the skipped prefix begins",
        ),
        field(
            5,
            8,
            "entries",
            "entries of this tree, a sub-tree counted as one",
        ),
        field(13, 8, "key_bytes", "the lengths of all its keys together"),
    ],
    size: FIXED_BYTES,
}
.checked();

/// How many bytes of a skipped prefix a root node keeps.
pub(super) fn skip_limit(node_bytes: usize) -> usize {
    (node_bytes / 16).min(256)
}

/// A head as it stands in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head<'n> {
    pub kind: Kind,
    pub position: usize,
    pub entries: u64,
    pub key_bytes: u64,
    pub skip_from: usize,
    pub skip: &'n [u8],
}

/// A head of its own memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnedHead {
    pub kind: Kind,
    pub position: usize,
    pub entries: u64,
    pub key_bytes: u64,
    pub skip_from: usize,
    pub skip: Vec<u8>,
}

impl<'n> Head<'n> {
    /// Reads a head; answers what cannot be.
    pub fn decode(metadata: &'n [u8]) -> Result<Head<'n>, String> {
        let mut decoder = Decoder::new(metadata);
        let fields = (|| {
            let kind = decoder.u8()?;
            let position = usize::from(decoder.u16()?);
            let skip_from = usize::from(decoder.u16()?);
            let entries = decoder.u64()?;
            Some((kind, position, skip_from, entries, decoder.u64()?))
        })();
        let Some((kind, position, skip_from, entries, key_bytes)) = fields else {
            return Err(format!(
                "a trie's root node has {} bytes of metadata; it needs {FIXED_BYTES}",
                metadata.len()
            ));
        };
        let kind = match kind {
            0 => Kind::Trie,
            1 => Kind::Leaf,
            2 => Kind::Truncated,
            other => return Err(format!("a tree of kind {other}; kinds are 0 to 2")),
        };
        let skip = &metadata[FIXED_BYTES..];
        if skip_from + skip.len() > position {
            return Err(format!(
                "a skipped prefix up to byte {} in a tree at position {position}",
                skip_from + skip.len()
            ));
        }
        Ok(Head {
            kind,
            position,
            entries,
            key_bytes,
            skip_from,
            skip,
        })
    }

    /// The bytes of the skipped prefix from `start` on, as far as they are known.
    fn known(&self, start: usize) -> &'n [u8] {
        match start.checked_sub(self.skip_from) {
            Some(passed) => self.skip.get(passed..).unwrap_or_default(),
            None => &[],
        }
    }

    /// Whether the whole skipped prefix behind `start` is known.
    pub fn is_known(&self, start: usize) -> bool {
        start >= self.position
            || (start >= self.skip_from && self.skip_from + self.skip.len() == self.position)
    }

    /// True if the key is certainly not in this tree; all before `start` is known to
    /// agree. Costs no read: what is not known passes.
    pub fn excludes(&self, key: &[u8], start: usize) -> bool {
        if key.len() <= self.position {
            return self.position > 0 || !key.is_empty();
        }
        let known = self.known(start);
        key[start..start + known.len()] != *known
    }

    /// Where a key that agrees with this tree's keys before `start` stands to all of
    /// them: `Equal` if it belongs among them. `None` if that needs a document's key.
    pub fn compare(&self, key: &[u8], start: usize) -> Option<Ordering> {
        if self.position == 0 {
            return Some(Ordering::Equal);
        }
        let known = self.known(start);
        let rest = key.get(start..).unwrap_or_default();
        let both = known.len().min(rest.len());
        match rest[..both].cmp(&known[..both]) {
            Ordering::Equal if rest.len() <= both => Some(Ordering::Less),
            Ordering::Equal if !self.is_known(start) => None,
            Ordering::Equal if key.len() <= self.position => Some(Ordering::Less),
            decided => Some(decided),
        }
    }

    /// A copy.
    pub fn to_owned(self) -> OwnedHead {
        OwnedHead {
            kind: self.kind,
            position: self.position,
            entries: self.entries,
            key_bytes: self.key_bytes,
            skip_from: self.skip_from,
            skip: self.skip.to_vec(),
        }
    }
}

/// Where a key stands to all keys that begin with `path` and are longer: `Equal` among
/// them. The sure form of [`Head::compare`].
pub(super) fn compare_with_path(key: &[u8], path: &[u8]) -> Ordering {
    let both = key.len().min(path.len());
    match key[..both].cmp(&path[..both]) {
        Ordering::Equal if key.len() <= path.len() && !path.is_empty() => Ordering::Less,
        decided => decided,
    }
}

impl OwnedHead {
    /// As it stands in a node.
    #[cfg(test)]
    pub fn borrowed(&self) -> Head<'_> {
        Head {
            kind: self.kind,
            position: self.position,
            entries: self.entries,
            key_bytes: self.key_bytes,
            skip_from: self.skip_from,
            skip: &self.skip,
        }
    }

    /// Takes the skipped prefix behind `start` from a path, as much of it as the path
    /// has and a node of that size keeps.
    pub fn set_skip(&mut self, path: &[u8], start: usize, node_bytes: usize) {
        let kept = start + skip_limit(node_bytes);
        let end = self.position.min(kept).min(path.len());
        self.skip_from = start.min(end);
        self.skip = path[self.skip_from..end].to_vec();
    }

    /// The bytes for the root node.
    pub fn encode(&self) -> Vec<u8> {
        let short = |value: usize| u16::try_from(value).unwrap_or(u16::MAX).to_le_bytes();
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.skip.len());
        bytes.push(match self.kind {
            Kind::Trie => 0,
            Kind::Leaf => 1,
            Kind::Truncated => 2,
        });
        bytes.extend_from_slice(&short(self.position));
        bytes.extend_from_slice(&short(self.skip_from));
        bytes.extend_from_slice(&self.entries.to_le_bytes());
        bytes.extend_from_slice(&self.key_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.skip);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(position: usize, skip_from: usize, skip: &[u8]) -> OwnedHead {
        OwnedHead {
            kind: Kind::Trie,
            position,
            entries: 3,
            key_bytes: 27,
            skip_from,
            skip: skip.to_vec(),
        }
    }

    #[test]
    fn heads_come_back_and_damage_is_named() {
        let whole = head(8, 4, b"skip");
        let bytes = whole.encode();
        assert_eq!(Head::decode(&bytes).unwrap().to_owned(), whole);
        for cut in 0..FIXED_BYTES {
            assert!(Head::decode(&bytes[..cut]).is_err(), "{cut} bytes");
        }
        let mut unknown_kind = bytes.clone();
        unknown_kind[0] = 3;
        assert!(Head::decode(&unknown_kind).is_err());
        let mut longer = bytes;
        longer.push(0);
        assert!(Head::decode(&longer).is_err(), "a skip past the position");
    }

    #[test]
    fn a_known_prefix_decides_and_an_unknown_one_says_so() {
        let known = head(8, 4, b"mmmm");
        let known = known.borrowed();
        let at = |key: &[u8]| known.compare(key, 4);
        assert_eq!(at(b"....mmmmx"), Some(Ordering::Equal));
        assert_eq!(at(b"....mmmm"), Some(Ordering::Less), "not longer");
        assert_eq!(at(b"....mm"), Some(Ordering::Less));
        assert_eq!(at(b"....mz"), Some(Ordering::Greater));
        assert_eq!(at(b"....mmmazz"), Some(Ordering::Less));
        let cut = head(12, 4, b"mmmm");
        let cut = cut.borrowed();
        assert_eq!(cut.compare(b"....mmmmmmmmx", 4), None);
        assert_eq!(cut.compare(b"....mmmm", 4), Some(Ordering::Less));
        assert_eq!(cut.compare(b"....mmn", 4), Some(Ordering::Greater));
        assert_eq!(cut.compare(b"....mmn", 0), None, "the front is not kept");
        assert!(cut.excludes(b"....mmnmmmmmmmm", 4));
        assert!(!cut.excludes(b"....mmmmmmmmx", 4));
        assert!(!cut.excludes(b"....mmnmmmmmmm", 0));
    }

    #[test]
    fn a_long_prefix_is_kept_up_to_its_limit() {
        let mut long = head(600, 0, b"");
        long.set_skip(&[7; 700], 8, 512);
        assert_eq!((long.skip_from, long.skip.len()), (8, skip_limit(512)));
        assert!(!long.borrowed().is_known(8));
        long.position = 24;
        long.set_skip(&[7; 700], 8, 512);
        assert!(long.borrowed().is_known(8) && long.borrowed().is_known(16));
        assert!(!long.borrowed().is_known(0));
    }
}
