//! Ranges, directions, cursors and resume tokens.

use cambium_base::{Error, Result, Value};

use crate::limits;

/// Keys from `from` (inclusive) to `to` (exclusive); `None` is open.
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
    pub fn prefix(prefix: &[u8]) -> Self {
        let mut after = prefix.to_vec();
        while after.last() == Some(&0xff) {
            after.pop();
        }
        if let Some(last) = after.last_mut() {
            *last += 1;
        }
        KeyRange {
            from: Some(prefix.to_vec()),
            to: (!after.is_empty()).then_some(after),
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

/// Which way a cursor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Direction {
    /// From small keys to large ones.
    #[default]
    Forward,
    /// From large keys to small ones.
    Reverse,
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

/// Walks entries of the state at the cursor's creation. It holds its engine
/// and pins its version; after the store's `close` it answers `Closed`.
pub trait Cursor: Send {
    /// The next entry in the cursor's direction, or `None` at the end.
    fn next(&mut self) -> Result<Option<Entry>>;

    /// The key of the next entry alone. An engine that knows keys without their
    /// values reads no values for it.
    fn next_key(&mut self) -> Result<Option<Value>> {
        Ok(self.next()?.map(|entry| entry.key))
    }

    /// Moves so that `next` answers the first entry at or behind `key`, in
    /// the cursor's direction. Ordered cursors only.
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let _ = key;
        Err(Error::Unsupported {
            engine: "of this cursor",
            what: "seeking in an unordered pass",
            instead: "use scan on an engine that keeps keys in order",
        })
    }

    /// Where to go on after the last entry answered, or `None` where the
    /// cursor cannot be resumed.
    fn resume_token(&self) -> Option<ResumeToken>;
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
}
