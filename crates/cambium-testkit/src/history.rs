//! The oracle: every state the store has been in, and which of them a crash
//! may leave.
//!
//! Writes make states S0, S1, ... Sn. `sent` is n: nothing newer can be found.
//! `synced` is the newest state that was acknowledged as `Synced`: nothing
//! older may be found after a power cut. `written` is the same for the death of
//! the process alone. What is recovered must equal one state in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_api::{
    Durability, Error, IterationOrder, KeyRange, Operation, Reader, Result, SequenceNumber, Value,
    WriteBatch,
};

/// A state: every key and its value.
pub(crate) type State = Arc<BTreeMap<Vec<u8>, Value>>;

/// The state after a batch.
pub(crate) fn apply(state: &State, batch: &WriteBatch) -> State {
    let mut next = BTreeMap::clone(state);
    for (_, operation) in batch.operations() {
        match operation {
            Operation::Put { key, value } => {
                next.insert(key.clone(), Value::copy_of(value));
            }
            Operation::Delete { key } => {
                next.remove(key);
            }
            Operation::DeleteRange { range } => next.retain(|key, _| !range.contains(key)),
        }
    }
    Arc::new(next)
}

/// All a reader holds; a key that comes twice is damage.
pub(crate) fn collect(reader: &dyn Reader) -> Result<BTreeMap<Vec<u8>, Value>> {
    let mut cursor = reader.iterate(IterationOrder::Any, None)?;
    let mut found = BTreeMap::new();
    while let Some(entry) = cursor.next()? {
        if found.insert(entry.key.to_vec(), entry.value).is_some() {
            let key = cambium_base::hexdump::readable(&entry.key);
            let what = format!("one pass visited {key} twice");
            return Err(Error::corruption("", 0, what));
        }
    }
    Ok(found)
}

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
    /// The write that made each state; empty for the first.
    batches: Vec<WriteBatch>,
    /// Of the write that made each state; `None` where it is not known.
    sequences: Vec<Option<SequenceNumber>>,
    synced: usize,
    written: usize,
}

impl History {
    /// An empty store, durable.
    pub(crate) fn new() -> Self {
        History {
            states: vec![State::default()],
            batches: vec![WriteBatch::new()],
            sequences: vec![Some(SequenceNumber::ZERO)],
            synced: 0,
            written: 0,
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
    pub(crate) fn write_after(&self, index: usize) -> Option<WriteBatch> {
        self.batches.get(index + 1).cloned()
    }

    /// The newest known sequence number at or before a state.
    pub(crate) fn sequence_at(&self, index: usize) -> SequenceNumber {
        let known = self.sequences[..=index].iter().rev().flatten().next();
        known.copied().unwrap_or_default()
    }

    /// A write is on its way.
    pub(crate) fn send(&mut self, batch: &WriteBatch) {
        let next = apply(self.current(), batch);
        self.states.push(next);
        self.batches.push(batch.clone());
        self.sequences.push(None);
    }

    /// The last write was acknowledged.
    pub(crate) fn acknowledge(&mut self, sequence: SequenceNumber, durability: Durability) {
        let last = self.states.len() - 1;
        self.sequences[last] = Some(sequence);
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

    /// The power was cut: what was only written may be gone.
    pub(crate) fn forget_written(&mut self) {
        self.written = self.synced;
    }

    /// The last write did not happen.
    pub(crate) fn take_back(&mut self) {
        if self.states.len() > 1 {
            self.states.pop();
            self.batches.pop();
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
        self.batches.truncate(index + 1);
        self.sequences.truncate(index + 1);
        self.written = index.max(self.synced);
    }

    /// The newest state of `low..=high` that equals what was found.
    pub(crate) fn find(
        &self,
        found: &BTreeMap<Vec<u8>, Value>,
        low: usize,
        high: usize,
    ) -> Result<usize, String> {
        let matching = (low..=high).rev().find(|&at| *self.states[at] == *found);
        matching.ok_or_else(|| self.explain(found, low, high))
    }

    fn explain(&self, found: &BTreeMap<Vec<u8>, Value>, low: usize, high: usize) -> String {
        let expected = format!("expected one of the states {low} to {high}");
        if let Some(at) = self.states.iter().position(|state| **state == *found) {
            return format!("found state {at}; {expected}");
        }
        let nearest = (low..=high).min_by_key(|&at| difference(&self.states[at], found).len());
        let nearest = nearest.unwrap_or(high);
        let differences = difference(&self.states[nearest], found);
        let shown: Vec<String> = differences.into_iter().take(6).collect();
        format!(
            "found no state there ever was; {expected}; the nearest, {nearest}, differs in: {}",
            shown.join("; ")
        )
    }
}

fn brief(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_string(),
        Some(value) => {
            let start = cambium_base::hexdump::readable(&value[..value.len().min(24)]);
            format!("{start} ({} bytes)", value.len())
        }
    }
}

/// One line for each key that differs.
fn difference(expected: &State, found: &BTreeMap<Vec<u8>, Value>) -> Vec<String> {
    let mut keys: Vec<&Vec<u8>> = expected.keys().chain(found.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter()
        .filter(|key| expected.get(*key) != found.get(*key))
        .map(|key| {
            format!(
                "key {} has {}, expected {}",
                cambium_base::hexdump::readable(&key[..key.len().min(24)]),
                brief(found.get(key)),
                brief(expected.get(key))
            )
        })
        .collect()
}

/// Holds gets, a batch of gets and a scan against a state.
pub(crate) fn compare_reads(
    reader: &dyn Reader,
    state: &State,
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
