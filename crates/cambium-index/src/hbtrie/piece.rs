//! Which part of a key a tree sees, and how it sorts.
//!
//! A *trie tree* sees one chunk of `c` bytes. Its B+-tree's keys are all of one
//! length, so they need no lengths of their own:
//!
//! ```text
//!   ┌──────────────────────┬───────┐  count 0..=c: the key ends here, and has as many
//!   │ chunk, zero-padded   │ count │               real bytes in this chunk
//!   │ c bytes              │ 1 byte│  count c+1  : the key goes on after the chunk
//!   └──────────────────────┴───────┘
//! ```
//!
//! The count makes `a` and `a\0` differ, and sorts them: of two keys with the same
//! padded chunk the shorter is a prefix of the longer. A key that ends at the chunk's
//! end has an entry of its own beside that of all longer keys, so that fixed-length
//! keys of one chunk are known exactly and never have to be read to be told apart.
//!
//! A *leaf tree* sees up to `l` bytes, many chunks. Its keys are
//!
//! ```text
//!   ┌─────────────────────┐            ┌──────────────────────┬──────┐
//!   │ suffix, 0..=l bytes │ it ends    │ first l bytes of the │ 0x01 │ it goes on
//!   └─────────────────────┘            │ suffix               │      │
//!                                      └──────────────────────┴──────┘
//! ```
//!
//! so a piece that goes on sorts right behind the suffix that ends there. `l` is a
//! multiple of `c`, so a sub-tree that hangs at it is aligned to chunks.
//!
//! A *truncated leaf tree* sees as much, and keeps of it only what tells a key from
//! all others, see `truncation`. What [`View::piece`] answers for it is the longest
//! piece that the key can have; the tree holds that, or a part of its front:
//!
//! ```text
//!   ┌──────────────────────┐
//!   │ suffix, 0..=l bytes  │  the value says whether the key ends there
//!   └──────────────────────┘
//! ```

use super::head::Kind;
use super::link::{self, Link};
use super::options::CHUNK_BYTES_MAX;

/// Marks a suffix that was cut.
const GOES_ON: u8 = 1;

/// What one tree sees of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub kind: Kind,
    /// The first byte of a key that the tree sees.
    pub position: usize,
    /// How many it sees: a chunk, or the limit of leaf trees.
    pub width: usize,
}

/// A key of a B+-tree of the trie, without allocation but for cut suffixes.
#[derive(Clone, Debug)]
pub(super) enum Piece<'k> {
    Chunk([u8; CHUNK_BYTES_MAX + 1], usize),
    Suffix(&'k [u8]),
    Cut(Vec<u8>),
}

impl Piece<'_> {
    /// The bytes as the B+-tree holds them.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Piece::Chunk(bytes, length) => &bytes[..*length],
            Piece::Suffix(bytes) => bytes,
            Piece::Cut(bytes) => bytes,
        }
    }
}

impl View {
    /// Where a sub-tree of this tree begins at the earliest.
    pub fn end(&self) -> usize {
        self.position + self.width
    }

    /// The piece of a key that is in this tree.
    pub fn piece<'k>(&self, key: &'k [u8]) -> Piece<'k> {
        self.piece_of(key, false)
    }

    /// The piece of a key of which only the beginning is known: `goes_on` if there is
    /// more behind `known`. What is known must reach the end of this tree's view then.
    pub fn piece_of<'k>(&self, known: &'k [u8], goes_on: bool) -> Piece<'k> {
        let rest = known.get(self.position..).unwrap_or_default();
        let goes_on = goes_on || rest.len() > self.width;
        let real = rest.len().min(self.width);
        match self.kind {
            Kind::Trie => {
                let mut bytes = [0; CHUNK_BYTES_MAX + 1];
                bytes[..real].copy_from_slice(&rest[..real]);
                let count = if goes_on { self.width + 1 } else { real };
                bytes[self.width] = u8::try_from(count).unwrap_or(u8::MAX);
                Piece::Chunk(bytes, self.width + 1)
            }
            Kind::Leaf | Kind::Truncated if goes_on => {
                let mut bytes = Vec::with_capacity(real + 1);
                bytes.extend_from_slice(&rest[..real]);
                bytes.push(GOES_ON);
                Piece::Cut(bytes)
            }
            Kind::Leaf | Kind::Truncated => Piece::Suffix(rest),
        }
    }

    /// How many of the next keys, which are sorted and in this tree, have the piece of
    /// the first: found by doubling, then halving, so that long runs cost little.
    pub fn run_length<'k>(&self, count: usize, key: impl Fn(usize) -> (&'k [u8], bool)) -> usize {
        let same = |at: usize| {
            let (first, first_goes_on) = key(0);
            let (other, other_goes_on) = key(at);
            self.same_piece(first, first_goes_on, other, other_goes_on)
        };
        let (mut inside, mut step) = (0, 1);
        while inside + step < count && same(inside + step) {
            inside += step;
            step *= 2;
        }
        let mut outside = count.min(inside + step);
        while outside - inside > 1 {
            let middle = inside + (outside - inside) / 2;
            if same(middle) {
                inside = middle;
            } else {
                outside = middle;
            }
        }
        inside + 1
    }

    fn same_piece(&self, one: &[u8], one_goes_on: bool, two: &[u8], two_goes_on: bool) -> bool {
        let (one, two) = (&one[self.position..], &two[self.position..]);
        let one_goes_on = one_goes_on || one.len() > self.width;
        let two_goes_on = two_goes_on || two.len() > self.width;
        one_goes_on == two_goes_on
            && one[..one.len().min(self.width)] == two[..two.len().min(self.width)]
    }

    /// The real bytes of a key in a B+-tree of the trie, and whether the key goes on
    /// behind them; `None` for a piece that no key has with such a value.
    pub fn real<'p>(&self, piece: &'p [u8], bits: u64) -> Option<(&'p [u8], bool)> {
        match self.kind {
            Kind::Trie => {
                let (&count, chunk) = piece.split_last()?;
                let count = usize::from(count);
                if chunk.len() != self.width || count > self.width + 1 {
                    return None;
                }
                let (real, padding) = chunk.split_at(count.min(self.width));
                padding
                    .iter()
                    .all(|&byte| byte == 0)
                    .then_some((real, count > self.width))
            }
            Kind::Leaf if piece.len() <= self.width => Some((piece, false)),
            Kind::Truncated if piece.len() <= self.width => {
                let is_tree = matches!(Link::decode(bits), Some(Link::Tree(_)));
                (!is_tree).then_some((piece, link::is_marked(bits)))
            }
            Kind::Leaf | Kind::Truncated => {
                let (real, marker) = piece.split_at(self.width);
                (marker == [GOES_ON]).then_some((real, true))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn views() -> [View; 4] {
        [
            (Kind::Trie, 2, 0),
            (Kind::Trie, 2, 2),
            (Kind::Leaf, 4, 0),
            (Kind::Leaf, 4, 2),
        ]
        .map(|(kind, width, position)| View {
            kind,
            position,
            width,
        })
    }

    /// Every key of up to 6 bytes over a small alphabet, sorted.
    fn keys() -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new()];
        let mut begin = 0;
        for _ in 0..6 {
            let end = all.len();
            for at in begin..end {
                for byte in [0, 1, 255] {
                    let mut key = all[at].clone();
                    key.push(byte);
                    all.push(key);
                }
            }
            begin = end;
        }
        all.sort();
        all
    }

    #[test]
    fn pieces_sort_as_keys_and_tell_ends_apart() {
        for view in views() {
            let keys: Vec<Vec<u8>> = keys()
                .into_iter()
                .filter(|key| {
                    key.len() >= view.position && key[..view.position].iter().all(|b| *b == 1)
                })
                .collect();
            for pair in keys.windows(2) {
                let one = view.piece(&pair[0]);
                let two = view.piece(&pair[1]);
                let rest = |key: &[u8]| key.len() - view.position;
                let cut = |key: &[u8]| (rest(key) > view.width).then(|| key[..view.end()].to_vec());
                let same = cut(&pair[0]).is_some() && cut(&pair[0]) == cut(&pair[1]);
                assert_eq!(one.as_bytes() == two.as_bytes(), same, "{view:?} {pair:?}");
                assert!(one.as_bytes() <= two.as_bytes(), "{view:?} {pair:?}");
                let (real, goes_on) = view.real(one.as_bytes(), 0).unwrap();
                assert!(pair[0][view.position..].starts_with(real));
                assert_eq!(goes_on, rest(&pair[0]) > real.len());
            }
        }
    }

    #[test]
    fn runs_end_where_the_piece_changes() {
        for view in views() {
            let keys: Vec<Vec<u8>> = keys()
                .into_iter()
                .filter(|key| {
                    key.len() >= view.position && key[..view.position].iter().all(|b| *b == 1)
                })
                .collect();
            let mut at = 0;
            while at < keys.len() {
                let run = view.run_length(keys.len() - at, |i| (keys[at + i].as_slice(), false));
                let first = view.piece(&keys[at]);
                let slow = keys[at..]
                    .iter()
                    .take_while(|key| view.piece(key).as_bytes() == first.as_bytes())
                    .count();
                assert_eq!(run, slow, "{view:?} at {:?}", keys[at]);
                at += run;
            }
        }
    }

    #[test]
    fn impossible_pieces_are_refused() {
        let [trie, _, leaf, _] = views();
        assert_eq!(trie.real(&[1, 2, 4], 0), None, "count past the chunk");
        assert_eq!(trie.real(&[1, 2, 1], 0), None, "padding that is not zero");
        assert_eq!(trie.real(&[1, 2], 0), None, "too short");
        assert_eq!(trie.real(&[], 0), None);
        assert_eq!(leaf.real(&[1, 2, 3, 4, 0], 0), None, "not the marker");
        assert_eq!(leaf.real(&[1, 2, 3, 4, 1, 1], 0), None, "too long");
    }
}
