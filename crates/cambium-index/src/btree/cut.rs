//! Cutting a run into nodes.
//!
//! `full` fills each node and leaves what remains to the last: for appends
//! at the right end and for bulk loads. `even` makes as few nodes, about
//! equally full, so that each can take more: for everything else. Both may
//! move a cut a little to the left, to where the separator is shortest
//! (Bayer and Unterauer 1977, section 3: the interval of splitting).

use cambium_base::coding::common_prefix;

use super::encode::{Gauge, NodeForm};
use super::run::Run;

/// How the separators of a tree are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Separators {
    /// Shortest, or whole keys.
    pub shortest: bool,
    /// Bytes that a separator is filled up to with zeros.
    pub padded_to: Option<usize>,
}

impl Separators {
    /// The lower bound of a node that begins with `right`, next to one that
    /// ends with `left`, which is smaller: larger than `left`, at most `right`.
    ///
    /// Zeros at its end keep that true in a tree of fixed-length keys: `right`
    /// begins with what is padded, and no key is shorter than the padding.
    pub(super) fn between(self, left: &[u8], right: &[u8]) -> Vec<u8> {
        if !self.shortest {
            return right.to_vec();
        }
        let mut separator = right[..separator_bytes(left, right)].to_vec();
        if let Some(bytes) = self.padded_to {
            separator.resize(bytes, 0);
        }
        separator
    }
}

/// Bytes of the shortest separator between two keys.
fn separator_bytes(left: &[u8], right: &[u8]) -> usize {
    (common_prefix(left, right) + 1).min(right.len())
}

/// Room of the nodes that a run is cut into, and how far a cut may move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cutter {
    /// How the nodes are written.
    pub form: NodeForm,
    /// Bytes that each may take.
    pub capacity: usize,
}

impl Cutter {
    /// Where each node ends when each is as full as can be, and the bytes of
    /// all together.
    pub(super) fn full(&self, run: &Run) -> Vec<usize> {
        // A thirty-second of a node: a bulk load stays above 95 %.
        self.cut(run, self.capacity, 32).0
    }

    /// Where each node ends when as few nodes are about equally full.
    pub(super) fn even(&self, run: &Run) -> Vec<usize> {
        let (greedy, bytes) = self.cut(run, self.capacity, usize::MAX);
        let fewest = greedy.len();
        if fewest == 1 {
            return greedy;
        }
        // Rounding, and nodes that share less than the greedy ones, may need
        // one node more.
        for nodes in [fewest, fewest + 1] {
            if let Some(ends) = self.cut_into(run, nodes, bytes) {
                return ends;
            }
        }
        greedy
    }

    /// Cuts before the entry with which a node would take more than `limit`.
    /// The cut moves to the left by up to the `window`th part of the node.
    fn cut(&self, run: &Run, limit: usize, window: usize) -> (Vec<usize>, usize) {
        let mut ends = Vec::new();
        let mut bytes = 0;
        let mut start = 0;
        while start < run.len() {
            let (end, size) = self.fill(run, start, limit);
            let last = end == run.len();
            start = if last {
                end
            } else {
                self.shortest_near(run, start, end, window)
            };
            bytes += size;
            ends.push(start);
        }
        (ends, bytes)
    }

    /// The end of a node from `start` on that takes at most `limit`, but at
    /// least one entry (of an index level two), and its bytes.
    fn fill(&self, run: &Run, start: usize, limit: usize) -> (usize, usize) {
        let least = start + 1 + usize::from(self.form.is_index());
        let mut gauge = Gauge::new(self.form);
        let mut size = 0;
        for position in start..run.len() {
            gauge.push(run.key(position), run.value(position));
            let with_it = gauge.bytes();
            if with_it > self.capacity || (with_it > limit && position >= least) {
                return (position.max(start + 1), size);
            }
            size = with_it;
        }
        (run.len(), size)
    }

    /// Exactly `nodes` nodes of about the same part of `bytes`, if all fit.
    fn cut_into(&self, run: &Run, nodes: usize, mut bytes: usize) -> Option<Vec<usize>> {
        let mut ends = Vec::with_capacity(nodes);
        let mut start = 0;
        for left in (2..=nodes).rev() {
            // What rounding leaves over is shared out among those that follow.
            let (end, size) = self.fill(run, start, bytes / left);
            if end >= run.len() {
                return None;
            }
            bytes = bytes.saturating_sub(size);
            start = self.shortest_near(run, start, end, 16);
            ends.push(start);
        }
        let (end, _) = self.fill(run, start, self.capacity);
        ends.push(end);
        (end == run.len()).then_some(ends)
    }

    /// The cut in the last `window`th part of entries `start..end` that makes
    /// the shortest separator, the last one of those.
    fn shortest_near(&self, run: &Run, start: usize, end: usize, window: usize) -> usize {
        if !self.form.compressed {
            return end;
        }
        let width = (end - start) / window;
        (end - width..=end)
            .rev()
            .min_by_key(|&cut| self.separator_cost(run, cut))
            .unwrap_or(end)
    }

    /// Bytes of the separator if a node began with entry `cut`.
    fn separator_cost(&self, run: &Run, cut: usize) -> usize {
        if self.form.is_index() {
            let low = run.key(cut);
            low.len() - low.iter().rev().take_while(|byte| **byte == 0).count()
        } else {
            separator_bytes(run.key(cut - 1), run.key(cut))
        }
    }
}
