//! Ranges, directions, cursors and resume tokens.

use std::ops::{
    Bound, ControlFlow, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo,
    RangeToInclusive,
};

use cambium_base::{Error, Result, Value};

use crate::expiry::UnixMillis;
use crate::limits;

/// Keys from `from` (inclusive) to `to` (exclusive); `None` is open.
///
/// Rust's ranges of anything that is bytes convert into it, and so do pairs of
/// [`Bound`]s. A range that ends before it begins is empty.
///
/// ```
/// use cambium_api::KeyRange;
/// let trees = KeyRange::from("ash".."elm");
/// assert!(trees.contains(b"ash") && !trees.contains(b"elm"));
/// assert!(KeyRange::from("ash"..="elm").contains(b"elm"));
/// assert!(KeyRange::from(7u64.to_be_bytes()..).contains(&8u64.to_be_bytes()));
/// assert!(KeyRange::from(..).is_all());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key, or the very first there is.
    pub from: Option<Vec<u8>>,
    /// The key behind the last, or none.
    pub to: Option<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self::default()
    }

    /// From `from` up to, not including, `to`.
    pub fn between(from: &[u8], to: &[u8]) -> Self {
        KeyRange {
            from: Some(from.to_vec()),
            to: Some(to.to_vec()),
        }
    }

    /// Keys that begin with `prefix`.
    ///
    /// ```
    /// use cambium_api::KeyRange;
    /// let range = KeyRange::prefix(b"a\xff");
    /// assert!(range.contains(b"a\xff\xff\x00") && !range.contains(b"b"));
    /// ```
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        let prefix = prefix.as_ref();
        KeyRange {
            from: Some(prefix.to_vec()),
            to: behind_prefix(prefix),
        }
    }

    /// True if there is no bound on either side.
    pub fn is_all(&self) -> bool {
        self.from.as_ref().is_none_or(Vec::is_empty) && self.to.is_none()
    }

    /// True if the key lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.from.as_deref().is_none_or(|from| key >= from)
            && self.to.as_deref().is_none_or(|to| key < to)
    }

    /// Refuses bounds longer than any key.
    pub fn check_limits(&self) -> Result<()> {
        self.from
            .iter()
            .chain(&self.to)
            .try_for_each(|bound| limits::check_key(bound))
    }
}

/// The first key behind all keys that begin with `prefix`, or `None` if there is none.
fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut behind = prefix[..=kept].to_vec();
    behind[kept] += 1;
    Some(behind)
}

/// The first key behind `key`, or `None` if there is none.
fn behind(key: &[u8]) -> Option<Vec<u8>> {
    if key.len() >= limits::MAX_KEY_BYTES {
        // No key is longer, so the next one differs in these bytes.
        return behind_prefix(key);
    }
    Some([key, &[0]].concat())
}

impl KeyRange {
    fn of(range: &impl RangeBounds<[u8]>) -> Self {
        let mut to = match range.end_bound() {
            Bound::Included(key) => behind(key),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        let from = match range.start_bound() {
            Bound::Included(key) => Some(key.to_vec()),
            Bound::Excluded(key) => Some(behind(key).unwrap_or_else(|| {
                // No key is left: an empty range at the last key there can be.
                to = Some(key.to_vec());
                key.to_vec()
            })),
            Bound::Unbounded => None,
        };
        KeyRange { from, to }
    }
}

impl From<&KeyRange> for KeyRange {
    fn from(range: &KeyRange) -> Self {
        range.clone()
    }
}

impl From<RangeFull> for KeyRange {
    fn from(_: RangeFull) -> Self {
        KeyRange::all()
    }
}

macro_rules! from_ranges {
    ($($range:ident)*) => {$(
        impl<K: AsRef<[u8]>> From<$range<K>> for KeyRange {
            fn from(range: $range<K>) -> Self {
                let start = range.start_bound().map(AsRef::as_ref);
                KeyRange::of(&(start, range.end_bound().map(AsRef::as_ref)))
            }
        }
    )*};
}

from_ranges!(Range RangeInclusive RangeFrom RangeTo RangeToInclusive);

impl<K: AsRef<[u8]>> From<(Bound<K>, Bound<K>)> for KeyRange {
    fn from((start, end): (Bound<K>, Bound<K>)) -> Self {
        let start = start.as_ref().map(AsRef::as_ref);
        KeyRange::of(&(start, end.as_ref().map(AsRef::as_ref)))
    }
}

/// Which way a cursor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Direction {
    /// From small keys to large ones.
    #[default]
    Forward,
    /// From large keys to small ones.
    Reverse,
}

impl Direction {
    /// The next item of an iterator in this direction, for a direction that is known only
    /// while the program runs.
    ///
    /// ```
    /// use cambium_api::Direction;
    /// let mut trees = ["ash", "elm", "oak"].into_iter();
    /// assert_eq!(Direction::Reverse.advance(&mut trees), Some("oak"));
    /// assert_eq!(Direction::Forward.advance(&mut trees), Some("ash"));
    /// ```
    pub fn advance<I: DoubleEndedIterator>(self, iterator: &mut I) -> Option<I::Item> {
        match self {
            Direction::Forward => iterator.next(),
            Direction::Reverse => iterator.next_back(),
        }
    }
}

/// The order `iterate` visits entries in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IterationOrder {
    /// Whatever is cheapest for the engine.
    #[default]
    Any,
    /// By key, where the engine keeps an order.
    Key,
    /// In the order of the entries' sequence numbers, as far as the engine
    /// says (`zdb`: within each flat table).
    Insertion,
}

/// Where an iteration goes on: opaque, made by a cursor, understood by the
/// same engine only, also in another process and after other writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeToken(Vec<u8>);

impl ResumeToken {
    /// Wraps an engine's bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        ResumeToken(bytes)
    }

    /// The engine's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Value,
    /// The value.
    pub value: Value,
}

/// Called with key and value of an entry; goes on to the next one or breaks off.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Walks entries of the state at the cursor's creation. It holds its engine
/// and pins its version; after the store's `close` it answers `Closed`.
pub trait Cursor: Send {
    /// The next entry in the cursor's direction, or `None` at the end.
    fn next(&mut self) -> Result<Option<Entry>>;

    /// Hands key and value of one entry after the other to `visit`, until it breaks off or
    /// there are no more: says which. An engine shows entries where they lie, without the
    /// copies and counts that keep an [`Entry`] alive.
    ///
    /// # Errors
    /// Those of [`Cursor::next`], behind the entries before it.
    fn visit(&mut self, visit: &mut Visit<'_>) -> Result<ControlFlow<()>> {
        while let Some(entry) = self.next()? {
            if visit(&entry.key, &entry.value).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The key of the next entry alone. An engine that knows keys without their
    /// values reads no values for it.
    fn next_key(&mut self) -> Result<Option<Value>> {
        Ok(self.next()?.map(|entry| entry.key))
    }

    /// Moves so that `next` answers the first entry at or behind `key`, in
    /// the cursor's direction. Ordered cursors only.
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let _ = key;
        Err(unordered_pass("of this cursor"))
    }

    /// Another cursor at this one's moment, before the first entry of a range. Ordered
    /// cursors only.
    fn another(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        _ = (range, direction);
        Err(unordered_pass("of this cursor"))
    }

    /// The moment at which the entry that [`Cursor::next`] answered last expires; `None` if
    /// it does not.
    fn expires_at(&self) -> Option<UnixMillis> {
        None
    }

    /// Where to go on after the last entry answered, or `None` where the
    /// cursor cannot be resumed.
    fn resume_token(&self) -> Option<ResumeToken>;
}

/// The error of seeking, or going backward, where entries come in no order.
pub fn unordered_pass(engine: &'static str) -> Error {
    Error::Unsupported {
        engine,
        what: "seeking in an unordered pass, or reading it from its back",
        instead: "use scan on an engine that keeps keys in order",
    }
}

impl std::fmt::Debug for dyn Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cursor")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_all_ones_is_open_above() {
        let range = KeyRange::prefix(&[0xff, 0xff]);
        assert_eq!(range.to, None);
        assert!(range.contains(&[0xff, 0xff, 0xff]) && !range.contains(&[0xff]));
        assert!(KeyRange::prefix(b"").is_all());
    }

    #[test]
    fn ranges_of_rust_become_half_open_ranges() {
        let range = |from: Option<&str>, to: Option<&str>| KeyRange {
            from: from.map(|key| key.as_bytes().to_vec()),
            to: to.map(|key| key.as_bytes().to_vec()),
        };
        assert_eq!(KeyRange::from("a".."b"), range(Some("a"), Some("b")));
        assert_eq!(KeyRange::from("a"..="b"), range(Some("a"), Some("b\0")));
        assert_eq!(KeyRange::from("a".to_string()..), range(Some("a"), None));
        assert_eq!(KeyRange::from(..b"b"), range(None, Some("b")));
        assert_eq!(KeyRange::from(..=b"b".to_vec()), range(None, Some("b\0")));
        let behind = (Bound::Excluded("a"), Bound::Unbounded);
        assert_eq!(KeyRange::from(behind), range(Some("a\0"), None));
    }

    #[test]
    fn a_bound_at_the_longest_key_is_no_longer_than_a_key() {
        let longest = vec![7; limits::MAX_KEY_BYTES];
        let range = KeyRange::from(..=&longest);
        range.check_limits().unwrap();
        assert!(range.contains(&longest));
        let last = vec![0xff; limits::MAX_KEY_BYTES];
        assert_eq!(KeyRange::from(..=&last).to, None);
        let none = KeyRange::from((Bound::Excluded(&last), Bound::Unbounded));
        assert!(!none.contains(&last) && !none.contains(b""));
    }
}
