//! How much of the file named snapshots alone reach.
//!
//! Documents that a named snapshot keeps are not stale. Writers do not count their bytes
//! when they overwrite a document: whether a snapshot keeps it would need a look into each
//! snapshot's index. So it is found out when it matters, before a compaction
//! begins by itself: a walk through the indexes, no document read, of which a **sample**
//! by the hash of addresses is kept in memory. Sampling by address selects the same
//! addresses in each index, so the sample of what several of them reach together is a
//! sample of their union. It is thinned out when it grows too large, which bounds memory.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cambium_base::{Error, Result};
use cambium_index::{Node, NodeAddress, NodeReader};
use cambium_io::sync::Mutex;

use super::policy::LEAST_APART;
use super::proof::mix;
use crate::core::{Core, lock};
use crate::format::DatabaseHeader;
use crate::index::IndexCursor;
use crate::nodes::PassingNodes;
use crate::view::Pin;

/// Addresses of which a sample holds no more, 16 bytes each.
const MOST_SAMPLED: usize = 1 << 16;
/// Documents that a step walks past.
const WALKED_TOGETHER: u32 = 1 << 14;

/// What the newest state reaches, and what named snapshots reach beside it.
#[derive(Debug, Default)]
struct Sample {
    newest: HashSet<u64>,
    /// Bytes by address.
    kept: HashMap<u64, u32>,
    /// Of so many addresses, as a power of two, one is sampled.
    thinned: u32,
}

impl Sample {
    /// Takes in what a tree of the newest state reaches, all of them first, or one of a
    /// named snapshot. What several of those reach counts once.
    fn add(&mut self, address: u64, bytes: u64, is_newest: bool) {
        if mix(address).trailing_zeros() < self.thinned {
            return;
        }
        if is_newest {
            self.newest.insert(address);
        } else if !self.newest.contains(&address) {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.kept.insert(address, bytes);
        }
        while self.newest.len() + self.kept.len() > MOST_SAMPLED {
            self.thinned += 1;
            let stays = |address: &u64| mix(*address).trailing_zeros() >= self.thinned;
            self.newest.retain(stays);
            self.kept.retain(|address, _| stays(address));
        }
    }

    /// Bytes of what named snapshots alone reach, about.
    fn kept_bytes(&self) -> u64 {
        let sampled: u64 = self.kept.values().map(|&bytes| u64::from(bytes)).sum();
        sampled.saturating_mul(1 << self.thinned.min(63))
    }
}

/// A walk that is going on.
#[derive(Debug)]
pub(crate) struct Survey {
    pin: Pin,
    /// Trees of the newest state and, after those, of named snapshots.
    trees: Vec<NodeAddress>,
    newest: usize,
    next: usize,
    cursor: Option<IndexCursor>,
    documents: Sample,
    nodes: Sample,
    /// How often what was known had been forgotten when it began.
    generation: u64,
}

/// What is known of the bytes that named snapshots keep.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<KeptState>);

#[derive(Debug, Default)]
struct KeptState {
    /// Bytes of the file that only named snapshots reach, as they were seen last.
    bytes: u64,
    /// Where the log ended then; `None` where that is not known any more.
    seen_at: Option<u64>,
    /// Counts how often it was forgotten.
    generation: u64,
    survey: Option<Survey>,
}

impl Kept {
    pub(super) fn bytes(&self) -> u64 {
        lock(&self.0).bytes
    }

    /// So many bytes are kept of a file that ends at `end`.
    pub(super) fn note(&self, bytes: u64, end: u64) {
        let mut state = lock(&self.0);
        (state.bytes, state.seen_at) = (bytes, Some(end));
        state.survey = None;
    }

    /// Less is kept than was seen. A walk that is going on is not begun anew, or one that
    /// comes and goes would keep compactions from beginning: what it answers is no less.
    pub(super) fn note_less(&self) {
        let mut state = lock(&self.0);
        (state.bytes, state.seen_at) = (0, None);
    }

    /// Ends a walk that is going on, which would pin a moment of the store.
    pub(super) fn let_survey_go(&self) {
        let survey = lock(&self.0).survey.take();
        drop(survey);
    }

    /// Nothing is known any more: the newest state is another, or the store is let go.
    pub(crate) fn forget(&self) {
        let mut state = lock(&self.0);
        *state = KeptState {
            generation: state.generation + 1,
            ..KeptState::default()
        };
    }
}

/// Counts the nodes that a walk reads.
struct Counting<'a> {
    nodes: PassingNodes<'a>,
    read: Mutex<HashSet<u64>>,
}

impl NodeReader for Counting<'_> {
    fn node_bytes(&self) -> usize {
        self.nodes.node_bytes()
    }

    fn read(&self, address: NodeAddress) -> Result<Node> {
        lock(&self.read).insert(address.0);
        self.nodes.read(address)
    }

    fn corrupt(&self, address: NodeAddress, what: String) -> Error {
        self.nodes.corrupt(address, what)
    }
}

impl Core {
    /// Goes on finding out what named snapshots keep, if that may have changed by much
    /// since it was seen; true while there is more to do. A node that cannot be read ends
    /// it: a compaction will say so.
    pub(super) fn survey_kept(self: &Arc<Self>) -> Result<bool> {
        let going_on = lock(&self.kept.0).survey.take();
        let mut survey = match going_on {
            Some(survey) => survey,
            None => match self.begin_survey()? {
                Some(survey) => survey,
                None => return Ok(false),
            },
        };
        // Writers are not slowed for this: how long it takes is not in their hands.
        self.hold_nobody();
        let walked = survey.walk(self);
        let end = survey.pin.view.database.log.end();
        let mut state = lock(&self.kept.0);
        if state.generation != survey.generation {
            // What it has seen is not there any more.
            return Ok(true);
        }
        match walked {
            Ok(true) => {
                let documents = self.filled_bytes(survey.documents.kept_bytes());
                state.bytes = documents.saturating_add(survey.nodes.kept_bytes());
                state.seen_at = Some(end);
            }
            Ok(false) => state.survey = Some(survey),
            // What was known stays.
            Err(_) => state.seen_at = Some(end),
        }
        Ok(state.survey.is_some())
    }

    fn begin_survey(self: &Arc<Self>) -> Result<Option<Survey>> {
        let (generation, seen_at, kept) = {
            let state = lock(&self.kept.0);
            (state.generation, state.seen_at, state.bytes)
        };
        let view = self.view.load();
        let apart = ((self.live_bytes(&view) + kept) / 8).max(LEAST_APART);
        let end = view.database.log.end();
        // So that where all that is overwritten is kept it does not walk all the time.
        if seen_at.is_some_and(|seen_at| end < seen_at.saturating_add(apart)) {
            return Ok(None);
        }
        drop(view);
        let (pin, header) = self.pin_with_header()?;
        Ok(Survey::new(pin, &header, generation))
    }
}

impl Survey {
    /// `None` where there are no named snapshots.
    fn new(pin: Pin, header: &DatabaseHeader, generation: u64) -> Option<Survey> {
        if header.snapshots.is_empty() {
            return None;
        }
        let newest = pin.view.roots.namespaces.values();
        let mut trees: Vec<NodeAddress> = newest.filter_map(|root| root.root).collect();
        let newest = trees.len();
        let kept = header.snapshots.iter().flat_map(|one| &one.namespaces);
        trees.extend(kept.filter_map(|(_, root)| root.root));
        // One that did not change since has the same root.
        let mut seen: HashSet<NodeAddress> = trees[..newest].iter().copied().collect();
        let mut place = 0;
        trees.retain(|root| {
            place += 1;
            place <= newest || seen.insert(*root)
        });
        Some(Survey {
            pin,
            trees,
            newest,
            next: 0,
            cursor: None,
            documents: Sample::default(),
            nodes: Sample::default(),
            generation,
        })
    }

    /// Walks on; true after the last document.
    fn walk(&mut self, core: &Core) -> Result<bool> {
        let database = self.pin.view.database.clone();
        let counting = Counting {
            nodes: core.nodes_in_passing(&database),
            read: Mutex::default(),
        };
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => {
                let Some(&root) = self.trees.get(self.next) else {
                    return Ok(true);
                };
                self.next += 1;
                let mut cursor = core.index.cursor(root);
                cursor.begin(&counting, true)?;
                cursor
            }
        };
        let is_newest = self.next <= self.newest;
        let mut ended = false;
        for _ in 0..WALKED_TOGETHER {
            let Some(address) = cursor.advance(&counting, true)? else {
                ended = true;
                break;
            };
            let bytes = address.most_bytes();
            self.documents.add(address.0, bytes, is_newest);
        }
        for address in lock(&counting.read).drain() {
            self.nodes.add(address, database.node_bytes(), is_newest);
        }
        self.cursor = (!ended).then_some(cursor);
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_counts_what_is_kept_beside_the_newest_state_once() {
        // Three quarters of what two snapshots have is the newest state's.
        for count in [1_000u64, 4_000_000] {
            let mut sample = Sample::default();
            (0..count).for_each(|address| sample.add(8 * address, 100, true));
            for _ in 0..2 {
                (0..count).for_each(|at| sample.add(8 * (at + count / 4), 100, false));
            }
            let (kept, expected) = (sample.kept_bytes(), count / 4 * 100);
            assert!(
                kept.abs_diff(expected) * 30 <= expected,
                "{kept} of {expected}"
            );
            assert!(sample.newest.len() + sample.kept.len() <= MOST_SAMPLED);
        }
    }
}
