//! A thread that does random things to a store and writes down what it saw.
//!
//! Every value is written once, so a reader can tell which write it saw.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cambium_api::{
    Capabilities, CompactOptions, Direction, Durability, Engine, Error, KeyRange, Precondition,
    WriteBatch,
};
use cambium_io::simulated::Generator;

use super::short::Call;
use crate::linearizability::{Observation, Operation};
use crate::walking::walk;
use crate::workload::key;

/// Keys that actors use.
pub(crate) const KEYS: u64 = 12;

/// Calls of an actor, and how often it makes each.
const MIX: [(Call, usize); 9] = [
    (Call::Put, 9),
    (Call::Batch, 3),
    (Call::CompareAndWrite, 4),
    (Call::Get, 9),
    (Call::MultiGet, 3),
    (Call::Snapshot, 1),
    (Call::Scan, 1),
    (Call::Sync, 1),
    (Call::Range, 1),
];

/// A write, for the oracle.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// When it was called, and when it returned.
    pub(crate) time: Range<u64>,
    /// `None` if it answered an error: it may have happened or not.
    pub(crate) sequence: Option<u64>,
    pub(crate) batch: WriteBatch,
    pub(crate) durability: Durability,
}

/// The calls and answers of an actor.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) operations: Vec<Operation>,
    pub(crate) writes: Vec<Written>,
    /// Calls of `sync` that answered Ok.
    pub(crate) syncs: Vec<Range<u64>>,
}

/// Why an actor stops.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The store answered an error; the caller knows whether it may.
    Refused(Error),
    /// An answer that no store may give.
    Wrong(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Refused(error)
    }
}

/// One thread's hold on a store.
pub(crate) struct Actor {
    store: Arc<dyn Engine>,
    capabilities: Capabilities,
    clock: Arc<AtomicU64>,
    generator: Generator,
    /// The number of the last value.
    number: u64,
    sizes: &'static [u64],
    keys: u64,
    /// Calls to choose from; frequent ones are in it several times.
    calls: Vec<Call>,
    /// Makes few kinds of calls.
    focused: bool,
    pub(crate) record: Record,
}

type Outcome = Result<(), Stop>;

/// Keys and their values.
type Seen = Vec<(u64, Option<u64>)>;

impl Actor {
    /// An actor; `number` differs between the actors of one store, and `clock` is one
    /// for all.
    pub(crate) fn new(
        store: Arc<dyn Engine>,
        clock: Arc<AtomicU64>,
        number: u64,
        seed: u64,
        sizes: &'static [u64],
    ) -> Self {
        Actor {
            capabilities: store.capabilities(),
            store,
            clock,
            generator: Generator::new(seed),
            number: number << 32,
            sizes,
            keys: KEYS,
            calls: MIX
                .iter()
                .flat_map(|&(call, often)| std::iter::repeat_n(call, often))
                .collect(),
            focused: false,
            record: Record::default(),
        }
    }

    /// The same actor on fewer keys.
    pub(super) fn with_keys(self, keys: u64) -> Self {
        Actor { keys, ..self }
    }

    /// The same actor with one to three of the calls: two calls meet more often without
    /// all others (Groce et al., *Swarm Testing*, ISSTA 2012). It writes while it has a
    /// snapshot; with many keys and calls the versions kept would fill small devices.
    pub(super) fn with_few_calls(mut self) -> Self {
        self.focused = true;
        let kinds: Vec<Call> = MIX
            .iter()
            .map(|(call, _)| *call)
            .chain([Call::Neighbors])
            .collect();
        let count = 1 + self.generator.below(3);
        self.calls = (0..count).map(|_| *self.generator.pick(&kinds)).collect();
        self
    }

    /// Does what a short program says.
    pub(super) fn call(&mut self, call: Call) -> Outcome {
        match call {
            Call::Put => self.put(),
            Call::Batch => self.batch(),
            Call::Neighbors => self.neighbors(),
            Call::CompareAndWrite => self.compare_and_write(),
            Call::Get => self.get(),
            Call::MultiGet => self.multi_get(),
            Call::Scan => self.scan(),
            Call::Snapshot => self.snapshot(),
            Call::Sync => self.sync(),
            Call::Range => self.range(),
            Call::Step => Ok(self.store.step(1 << 16).map(|_| ())?),
            Call::Compact => Ok(self
                .store
                .compact(&CompactOptions::default(), &())
                .map(|_| ())?),
        }
    }

    fn key(&self, number: u64) -> Vec<u8> {
        key(self.capabilities.keys, number)
    }

    fn some_key(&mut self) -> u64 {
        // Half of all accesses are to a quarter of the keys.
        let hot = self.generator.chance(1, 2);
        self.generator.below(if hot {
            self.keys.div_ceil(4)
        } else {
            self.keys
        })
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn note(&mut self, start: u64, observation: Observation) {
        let time = start..self.tick();
        self.record.operations.push(Operation { time, observation });
    }

    /// A value that no other write has.
    fn fresh(&mut self) -> (u64, Vec<u8>) {
        self.number += 1;
        let mut bytes = self.number.to_le_bytes().to_vec();
        let size = *self.generator.pick(self.sizes);
        bytes.resize(
            8 + self.generator.below(size + 1) as usize,
            self.number as u8,
        );
        (self.number, bytes)
    }

    fn durability(&mut self) -> Durability {
        match self.generator.below(12) {
            0..=2 => Durability::Synced,
            3..=7 => Durability::Written,
            _ => Durability::Buffered,
        }
    }

    /// Does one thing.
    pub(crate) fn act(&mut self) -> Outcome {
        let call = *self.generator.pick(&self.calls);
        self.call(call)
    }

    fn write(
        &mut self,
        batch: WriteBatch,
        changes: Seen,
        condition: Option<(Precondition, Seen)>,
    ) -> Outcome {
        let durability = self.durability();
        let start = self.tick();
        let (conditions, saw) = condition.unzip();
        let answer = match &conditions {
            Some(condition) => {
                let conditions = std::slice::from_ref(condition);
                self.store.write_if(conditions, batch.clone(), durability)
            }
            None => write_as_users_do(&*self.store, &batch, durability),
        };
        let saw: Vec<_> = saw.unwrap_or_default();
        if let (Err(Error::PreconditionFailed { .. }), [(key, not)]) = (&answer, &saw[..]) {
            self.note(
                start,
                Observation::Refused {
                    key: *key,
                    not: *not,
                },
            );
            return Ok(());
        }
        let sequence = answer.as_ref().ok().map(|sequence| sequence.0);
        if let Some(sequence) = sequence {
            let wrote = Observation::Wrote {
                sequence,
                changes,
                saw,
            };
            self.note(start, wrote);
        }
        let time = start..self.tick();
        self.record.writes.push(Written {
            time,
            sequence,
            batch,
            durability,
        });
        answer.map(|_| ()).map_err(Stop::from)
    }

    fn put(&mut self) -> Outcome {
        let number = self.some_key();
        let (value, bytes) = self.fresh();
        let mut batch = WriteBatch::new();
        batch.put(&self.key(number), &bytes);
        self.write(batch, vec![(number, Some(value))], None)
    }

    /// Takes a key away and gives others a value.
    fn batch(&mut self) -> Outcome {
        let mut changes = BTreeMap::new();
        let mut batch = WriteBatch::new();
        let gone = self.some_key();
        batch.delete(&self.key(gone));
        changes.insert(gone, None);
        for _ in 0..1 + self.generator.below(3) {
            let number = self.some_key();
            let (value, bytes) = self.fresh();
            batch.put(&self.key(number), &bytes);
            changes.insert(number, Some(value));
        }
        self.write(batch, changes.into_iter().collect(), None)
    }

    /// Gives two to four neighboring keys a value.
    fn neighbors(&mut self) -> Outcome {
        let first = self.some_key().min(self.keys.saturating_sub(2));
        let end = self.keys.min(first + 2 + self.generator.below(3));
        let mut changes = Vec::new();
        let mut batch = WriteBatch::new();
        for number in first..end {
            let (value, bytes) = self.fresh();
            batch.put(&self.key(number), &bytes);
            changes.push((number, Some(value)));
        }
        self.write(batch, changes, None)
    }

    /// Takes a range away and gives a key a value, at once.
    fn range(&mut self) -> Outcome {
        if !self.capabilities.ordered {
            return self.put();
        }
        let range = self.some_range();
        let one_more = self.some_key();
        let mut batch = WriteBatch::new();
        batch.delete_range(range.clone());
        let within = (0..KEYS).filter(|&number| range.contains(&self.key(number)));
        let mut changes: BTreeMap<u64, Option<u64>> = within.map(|number| (number, None)).collect();
        let (value, bytes) = self.fresh();
        batch.put(&self.key(one_more), &bytes);
        changes.insert(one_more, Some(value));
        self.write(batch, changes.into_iter().collect(), None)
    }

    /// Reads a key, and replaces or deletes what it had, or makes it.
    fn compare_and_write(&mut self) -> Outcome {
        let number = self.some_key();
        let key = self.key(number);
        let found = self.store.get(&key)?;
        let before = found.as_deref().map(value_of).transpose()?;
        let condition = match &found {
            Some(value) => Precondition::Equals {
                key: key.clone(),
                value: value.to_vec(),
            },
            None => Precondition::Absent { key: key.clone() },
        };
        let mut batch = WriteBatch::new();
        let change = if found.is_some() && self.generator.chance(1, 3) {
            batch.delete(&key);
            None
        } else {
            let (value, bytes) = self.fresh();
            batch.put(&key, &bytes);
            Some(value)
        };
        let saw = vec![(number, before)];
        self.write(batch, vec![(number, change)], Some((condition, saw)))
    }

    fn get(&mut self) -> Outcome {
        let number = self.some_key();
        let key = self.key(number);
        let start = self.tick();
        let found = self.store.get(&key)?;
        let value = found.as_deref().map(value_of).transpose()?;
        let saw = vec![(number, value)];
        self.note(start, Observation::Read { saw });
        Ok(())
    }

    fn multi_get(&mut self) -> Outcome {
        let numbers: Vec<u64> = (0..4).map(|_| self.some_key()).collect();
        let keys: Vec<_> = numbers.iter().map(|&number| self.key(number)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let start = self.tick();
        let found = self.store.multi_get(&keys)?;
        let mut saw = Vec::new();
        for (number, value) in numbers.into_iter().zip(&found) {
            saw.push((number, value.as_deref().map(value_of).transpose()?));
        }
        self.note(start, Observation::Read { saw });
        Ok(())
    }

    fn snapshot(&mut self) -> Outcome {
        let start = self.tick();
        let snapshot = self.store.snapshot()?;
        let end = self.tick();
        self.write_beside()?;
        let mut entries = BTreeMap::new();
        for (key, value) in crate::holding::collect(&*snapshot)? {
            let number = (0..KEYS).find(|&number| self.key(number) == key);
            let number =
                number.ok_or_else(|| Stop::Wrong(format!("key {key:?} was never written")))?;
            entries.insert(number, value_of(&value)?);
        }
        let observation = Observation::Snapshot {
            sequence: snapshot.sequence().0,
            entries,
        };
        let time = start..end;
        self.record.operations.push(Operation { time, observation });
        Ok(())
    }

    fn some_range(&mut self) -> KeyRange {
        let (one, other) = (
            self.generator.below(self.keys + 1),
            self.generator.below(self.keys + 1),
        );
        let (one, other) = (self.key(one), self.key(other));
        KeyRange::between((&one).min(&other), (&one).max(&other))
    }

    /// How often a focused thread does more while it has a snapshot or a cursor.
    fn few(&mut self) -> u64 {
        match self.focused {
            true => self.generator.below(3),
            false => 0,
        }
    }

    /// Writes while the thread has a snapshot or a cursor.
    fn write_beside(&mut self) -> Outcome {
        for _ in 0..self.few() {
            match self.generator.below(4) {
                0..=1 => self.put()?,
                2 => self.batch()?,
                _ => self.neighbors()?,
            }
        }
        Ok(())
    }

    /// Walks a range either way, or the part of it behind a key: a cursor sees the
    /// moment of its creation.
    fn scan(&mut self) -> Outcome {
        if !self.capabilities.ordered {
            return self.snapshot();
        }
        let range = self.some_range();
        let direction = *self
            .generator
            .pick(&[Direction::Forward, Direction::Reverse]);
        let start = self.tick();
        let mut cursor = self.store.scan(&range, direction)?;
        let end = self.tick();
        self.write_beside()?;
        let mut from = None;
        for _ in 0..self.few() {
            cursor.next()?;
            let number = self.generator.below(self.keys);
            cursor.seek(from.insert(self.key(number)))?;
        }
        let is_ahead = |key: &Vec<u8>| match (&from, direction) {
            (None, _) => true,
            (Some(from), Direction::Forward) => key >= from,
            (Some(from), Direction::Reverse) => key <= from,
        };
        let mut found: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut last: Option<Vec<u8>> = None;
        let mut entries = Vec::new();
        walk(&mut *cursor, |key, value| {
            entries.push((key.to_vec(), value.to_vec()))
        })?;
        for (key, value) in entries {
            let in_order = last.as_ref().is_none_or(|last| match direction {
                Direction::Forward => *last < key,
                Direction::Reverse => *last > key,
            });
            if !in_order || !range.contains(&key) || !is_ahead(&key) {
                let what =
                    format!("a scan of {range:?} from {from:?} visits {key:?} after {last:?}");
                return Err(Stop::Wrong(what));
            }
            found.insert(key.clone(), value_of(&value)?);
            last = Some(key);
        }
        let within = (0..KEYS).map(|number| (number, self.key(number)));
        let within = within.filter(|(_, key)| range.contains(key) && is_ahead(key));
        let saw = within.map(|(number, key)| (number, found.get(&key).copied()));
        let observation = Observation::Read { saw: saw.collect() };
        let time = start..end;
        self.record.operations.push(Operation { time, observation });
        Ok(())
    }

    fn sync(&mut self) -> Outcome {
        let start = self.tick();
        self.store.sync()?;
        let time = start..self.tick();
        self.record.syncs.push(time);
        Ok(())
    }
}

/// Single operations go through their own calls, as users' do.
fn write_as_users_do(
    store: &dyn Engine,
    batch: &WriteBatch,
    durability: Durability,
) -> Result<cambium_api::SequenceNumber, Error> {
    use cambium_api::Operation::{Delete, DeleteRange, Put};
    match batch.operations() {
        [(None, Put { key, value })] => store.put(key, value, durability),
        [(None, Delete { key })] => store.delete(key, durability),
        [(None, DeleteRange { range })] => store.delete_range(range.clone(), durability),
        _ => store.write(batch.clone(), durability),
    }
}

/// The number of the write that a value comes from.
pub(crate) fn value_of(bytes: &[u8]) -> Result<u64, Stop> {
    let first = bytes
        .first_chunk::<8>()
        .map(|first| u64::from_le_bytes(*first));
    let number = first.ok_or_else(|| Stop::Wrong("a value that was never written".to_string()))?;
    if bytes[8..].iter().any(|&byte| byte != number as u8) {
        return Err(Stop::Wrong(format!(
            "bytes of another value in value {number}"
        )));
    }
    Ok(number)
}
