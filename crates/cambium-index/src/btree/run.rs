//! A run: keys in ascending order with their values, taken out of nodes and on
//! the way into new ones. The keys lie in one buffer, so that moving a node's
//! worth of entries costs copies and no allocations.

use super::node::NodeView;

/// Entries of a leaf level, or children of an index level, each of those under
/// the lower bound of its keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    keys: Vec<u8>,
    /// Where each key stops in `keys`.
    ends: Vec<usize>,
    values: Vec<u64>,
}

impl Run {
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Bytes that the entries would take whole and uncompressed.
    pub(super) fn raw_bytes(&self) -> usize {
        self.keys.len() + 8 * self.len()
    }

    fn start(&self, position: usize) -> usize {
        position
            .checked_sub(1)
            .map_or(0, |before| self.ends[before])
    }

    pub(super) fn key(&self, position: usize) -> &[u8] {
        &self.keys[self.start(position)..self.ends[position]]
    }

    pub(super) fn value(&self, position: usize) -> u64 {
        self.values[position]
    }

    /// Whether key `position` is larger than the one before it, if both are
    /// there.
    pub(super) fn is_in_order_at(&self, position: usize) -> bool {
        position == 0 || position >= self.len() || self.key(position - 1) < self.key(position)
    }

    pub(super) fn push(&mut self, key: &[u8], value: u64) {
        self.keys.extend_from_slice(key);
        self.close_key(value);
    }

    /// Appends entries `start..end` of a leaf.
    pub(super) fn extend_from_leaf(&mut self, leaf: &NodeView<'_>, start: usize, end: usize) {
        for position in start..end {
            leaf.append_key(position, &mut self.keys);
            self.close_key(leaf.value(position));
        }
    }

    fn close_key(&mut self, value: u64) {
        self.ends.push(self.keys.len());
        self.values.push(value);
    }

    /// Takes off the last entry's value and key.
    pub(super) fn pop(&mut self) -> Option<(Vec<u8>, u64)> {
        let value = self.values.pop()?;
        self.ends.pop();
        let start = self.ends.last().copied().unwrap_or(0);
        Some((self.keys.split_off(start), value))
    }

    pub(super) fn append(&mut self, other: &Run) {
        let offset = self.keys.len();
        self.keys.extend_from_slice(&other.keys);
        self.ends.extend(other.ends.iter().map(|end| end + offset));
        self.values.extend_from_slice(&other.values);
    }

    /// Drops the first `count` entries.
    pub(super) fn drop_front(&mut self, count: usize) {
        let start = self.start(count);
        self.keys.drain(..start);
        self.ends.drain(..count);
        self.ends.iter_mut().for_each(|end| *end -= start);
        self.values.drain(..count);
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.ends.clear();
        self.values.clear();
    }
}

/// How many bytes two strings have in common at their end.
pub(super) fn common_suffix(left: &[u8], right: &[u8]) -> usize {
    let both = left.iter().rev().zip(right.iter().rev());
    both.take_while(|(left, right)| left == right).count()
}
