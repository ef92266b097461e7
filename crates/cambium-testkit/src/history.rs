//! The oracle: every state the store has been in, and which of them a crash
//! may leave.
//!
//! Writes make states S0, S1, ... Sn. `sent` is n: nothing newer can be found.
//! `synced` is the newest state that was acknowledged as `Synced`: nothing
//! older may be found after a power cut. `written` is the same for the death of
//! the process alone. What is recovered must equal one state in between.
//!
//! A write is anything that makes another state ([`Change`]): a batch, a
//! namespace that comes or goes, a named snapshot that does, a rollback.

use cambium_api::{Durability, Engine, Error, KeyRange, Reader, Result, SequenceNumber};

use crate::following::Mirror;
use crate::holding::{Change, Entries, Found, State, apply, brief};

/// Which states may be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) synced: usize,
    pub(crate) written: usize,
    pub(crate) sent: usize,
}

/// States, and how far each is safe.
#[derive(Clone, Debug)]
pub(crate) struct History {
    states: Vec<State>,
    /// The write that made each state; an empty one for the first.
    changes: Vec<Change>,
    /// Of the write that made each state; `None` where it is not known.
    sequences: Vec<Option<SequenceNumber>>,
    synced: usize,
    written: usize,
    /// The state at a consumer's position, if history behind it is kept.
    pub(crate) pinned: Option<Mirror>,
}

impl History {
    /// An empty store, durable.
    pub(crate) fn new() -> Self {
        History {
            states: vec![State::default()],
            changes: vec![Change::default()],
            sequences: vec![Some(SequenceNumber::ZERO)],
            synced: 0,
            written: 0,
            pinned: None,
        }
    }

    pub(crate) fn window(&self) -> Window {
        Window {
            synced: self.synced,
            written: self.written,
            sent: self.states.len() - 1,
        }
    }

    pub(crate) fn current(&self) -> &State {
        &self.states[self.states.len() - 1]
    }

    pub(crate) fn state(&self, index: usize) -> &State {
        &self.states[index]
    }

    /// The write that followed a state, if there was one.
    pub(crate) fn write_after(&self, index: usize) -> Option<Change> {
        self.changes.get(index + 1).cloned()
    }

    /// The newest known sequence number at or before a state.
    pub(crate) fn sequence_at(&self, index: usize) -> SequenceNumber {
        let known = self.sequences[..=index].iter().rev().flatten().next();
        known.copied().unwrap_or_default()
    }

    /// A write is on its way.
    pub(crate) fn send(&mut self, change: &Change) {
        if matches!(change, Change::Rollback(_)) {
            self.pinned = None;
        }
        let next = apply(self.current(), change);
        self.states.push(next);
        self.changes.push(change.clone());
        self.sequences.push(None);
    }

    /// The last write was acknowledged; not every write answers its number.
    pub(crate) fn acknowledge(&mut self, sequence: Option<SequenceNumber>, durability: Durability) {
        let last = self.states.len() - 1;
        self.sequences[last] = sequence;
        self.secure(durability);
    }

    /// Everything so far is at least this safe.
    pub(crate) fn secure(&mut self, durability: Durability) {
        let last = self.states.len() - 1;
        match durability {
            Durability::Buffered => {}
            Durability::Written => self.written = last,
            Durability::Synced => {
                self.written = last;
                self.synced = last;
            }
        }
    }

    /// Writes through a sequence number survive any crash.
    pub(crate) fn secure_through(&mut self, sequence: SequenceNumber) {
        let mut sequences = self.sequences.iter();
        let is_within = |known: &Option<SequenceNumber>| known.is_some_and(|at| at <= sequence);
        if let Some(index) = sequences.rposition(is_within) {
            self.synced = self.synced.max(index);
            self.written = self.written.max(index);
        }
    }

    /// The power was cut: what was only written may be gone.
    pub(crate) fn forget_written(&mut self) {
        self.written = self.synced;
    }

    /// The last write did not happen.
    pub(crate) fn take_back(&mut self) {
        if self.states.len() > 1 {
            self.states.pop();
            self.changes.pop();
            self.sequences.pop();
        }
    }

    /// A recovery settled on a state at or after `low`: what came after never
    /// was. Which of several equal states it is cannot be told, so the lowest
    /// of their sequence numbers is the one that has to be passed.
    pub(crate) fn settle(&mut self, index: usize, low: usize) {
        let equal = (low..=index).filter(|&at| self.states[at] == self.states[index]);
        let lowest = equal.map(|at| self.sequence_at(at)).min();
        self.sequences[index] = lowest;
        self.states.truncate(index + 1);
        self.changes.truncate(index + 1);
        self.sequences.truncate(index + 1);
        self.written = index.max(self.synced);
    }

    /// The newest state of `low..=high` that equals what was found.
    pub(crate) fn find(&self, found: &Found, low: usize, high: usize) -> Result<usize, String> {
        let matching = (low..=high).rev().find(|&at| self.states[at].is(found));
        matching.ok_or_else(|| self.explain(found, low, high))
    }

    fn explain(&self, found: &Found, low: usize, high: usize) -> String {
        let expected = format!("expected one of the states {low} to {high}");
        if let Some(at) = self.states.iter().position(|state| state.is(found)) {
            return format!("found state {at}; {expected}");
        }
        let differences = |at: usize| self.states[at].differences(found);
        let nearest = (low..=high).min_by_key(|&at| differences(at).len());
        let nearest = nearest.unwrap_or(high);
        let shown: Vec<String> = differences(nearest).into_iter().take(6).collect();
        format!(
            "found no state there ever was; {expected}; the nearest, {nearest}, differs in: {}",
            shown.join("; ")
        )
    }
}

/// Holds gets, a batch of gets and a scan against a state.
pub(crate) fn compare_reads(
    reader: &dyn Reader,
    state: &Entries,
    keys: &[Vec<u8>],
    ordered: bool,
) -> Result<(), String> {
    let fail = |error: Error| format!("a read failed: {error}");
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let together = reader.multi_get(&slices).map_err(fail)?;
    for (key, several) in keys.iter().zip(together) {
        let one = reader.get(key).map_err(fail)?;
        if one.as_ref() != state.get(key) || several != one {
            return Err(format!(
                "key {}: get answers {}, multi_get {}, expected {}",
                cambium_base::hexdump::readable(&key[..key.len().min(24)]),
                brief(one.as_ref()),
                brief(several.as_ref()),
                brief(state.get(key))
            ));
        }
    }
    if ordered {
        let mut cursor = reader
            .scan(&KeyRange::all(), cambium_api::Direction::Reverse)
            .map_err(fail)?;
        let mut expected = state.iter().rev();
        loop {
            let entry = cursor.next().map_err(fail)?;
            let pair = entry.map(|entry| (entry.key.to_vec(), entry.value));
            let wanted = expected.next();
            if pair.as_ref().map(|(key, value)| (key, value)) != wanted {
                return Err(format!("a scan answers {pair:?}, expected {wanted:?}"));
            }
            if wanted.is_none() {
                break;
            }
        }
    }
    Ok(())
}

/// The same for every namespace of a store, where it has some.
pub(crate) fn compare_all_reads(
    store: &dyn Engine,
    state: &State,
    keys: &[Vec<u8>],
    ordered: bool,
) -> Result<(), String> {
    compare_reads(store, state.entries(), keys, ordered)?;
    for (name, entries) in state.spaces.iter().filter(|(name, _)| !name.is_empty()) {
        let space = store
            .namespace(name)
            .map_err(|error| format!("a read failed: {error}"))?;
        compare_reads(&*space, entries, keys, ordered)
            .map_err(|what| format!("in namespace {name}: {what}"))?;
    }
    Ok(())
}
