//! Histories of concurrent operations, recorded and checked for linearizability.
//!
//! Threads put, write batches, compare and write, read one key and several, and
//! take snapshots, on few keys, while another does background work and compacts.
//! `CAMBIUM_HISTORY` says how many operations each thread does, 300 unless set.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cambium_api::{CompactOptions, Durability, Error, Precondition, Value, WriteBatch};
use cambium_io::simulated::Generator;

use super::{Bench, Case, OrFail, Outcome};
use crate::crash::number_from;
use crate::linearizability::{Observation, Operation, check};

pub(super) const CASES: &[Case] = &[(
    "concurrent operations happen at once, in the order of their numbers",
    concurrent_operations,
)];

const THREADS: u64 = 4;
const KEYS: u64 = 12;

/// One thread's view of the run.
struct Actor<'b> {
    bench: &'b Bench,
    clock: &'b AtomicU64,
    generator: Generator,
    /// Of the next value: no two writes write the same one.
    next_value: u64,
    seen: Vec<Operation>,
}

fn value_bytes(value: u64, generator: &mut Generator) -> Vec<u8> {
    let length = if generator.chance(1, 20) { 3_000 } else { 120 };
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(8 + generator.below(length) as usize, value as u8);
    bytes
}

fn value_of(bytes: &Value) -> Result<u64, String> {
    let first = bytes.first_chunk::<8>().ok_or("a value nobody wrote")?;
    Ok(u64::from_le_bytes(*first))
}

impl Actor<'_> {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn note(&mut self, start: u64, observation: Observation) {
        let time = start..self.tick();
        self.seen.push(Operation { time, observation });
    }

    fn some_key(&mut self) -> u64 {
        self.generator.below(KEYS)
    }

    fn fresh(&mut self) -> (u64, Vec<u8>) {
        self.next_value += 1;
        let bytes = value_bytes(self.next_value, &mut self.generator);
        (self.next_value, bytes)
    }

    fn durability(&mut self) -> Durability {
        match self.generator.below(12) {
            0 => Durability::Synced,
            1..=6 => Durability::Written,
            _ => Durability::Buffered,
        }
    }

    fn act(&mut self) -> Outcome {
        match self.generator.below(16) {
            0..=3 => self.put(),
            4..=5 => self.batch(),
            6..=8 => self.compare_and_write(),
            9..=12 => self.get(),
            13..=14 => self.multi_get(),
            _ => self.snapshot(),
        }
    }

    fn put(&mut self) -> Outcome {
        let (key, durability) = (self.some_key(), self.durability());
        let (value, bytes) = self.fresh();
        let start = self.tick();
        let written = self
            .bench
            .store
            .put(&self.bench.key(key), &bytes, durability);
        let sequence = written.or_fail("put")?.0;
        let changes = vec![(key, Some(value))];
        let saw = Vec::new();
        self.note(
            start,
            Observation::Wrote {
                sequence,
                changes,
                saw,
            },
        );
        Ok(())
    }

    /// Takes a key away and gives others a value.
    fn batch(&mut self) -> Outcome {
        let mut changes = BTreeMap::new();
        let mut batch = WriteBatch::new();
        let gone = self.some_key();
        batch.delete(&self.bench.key(gone));
        changes.insert(gone, None);
        for _ in 0..1 + self.generator.below(3) {
            let key = self.some_key();
            let (value, bytes) = self.fresh();
            batch.put(&self.bench.key(key), &bytes);
            changes.insert(key, Some(value));
        }
        let durability = self.durability();
        let start = self.tick();
        let written = self.bench.store.write(batch, durability);
        let sequence = written.or_fail("write")?.0;
        let changes = changes.into_iter().collect();
        let saw = Vec::new();
        self.note(
            start,
            Observation::Wrote {
                sequence,
                changes,
                saw,
            },
        );
        Ok(())
    }

    /// Reads a key, and replaces or deletes what it had, or makes it.
    fn compare_and_write(&mut self) -> Outcome {
        let number = self.some_key();
        let key = self.bench.key(number);
        let found = self.bench.store.get(&key).or_fail("get")?;
        let before = found.as_ref().map(value_of).transpose()?;
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
        let durability = self.durability();
        let start = self.tick();
        match self.bench.store.write_if(&[condition], batch, durability) {
            Ok(sequence) => {
                let observation = Observation::Wrote {
                    sequence: sequence.0,
                    changes: vec![(number, change)],
                    saw: vec![(number, before)],
                };
                self.note(start, observation);
            }
            Err(Error::PreconditionFailed { .. }) => {
                let refused = Observation::Refused {
                    key: number,
                    not: before,
                };
                self.note(start, refused);
            }
            Err(error) => return Err(format!("write_if: {error}")),
        }
        Ok(())
    }

    fn get(&mut self) -> Outcome {
        let number = self.some_key();
        let key = self.bench.key(number);
        let start = self.tick();
        let found = self.bench.store.get(&key).or_fail("get")?;
        let value = found.as_ref().map(value_of).transpose()?;
        let saw = vec![(number, value)];
        self.note(start, Observation::Read { saw });
        Ok(())
    }

    fn multi_get(&mut self) -> Outcome {
        let numbers: Vec<u64> = (0..4).map(|_| self.some_key()).collect();
        let keys: Vec<_> = numbers.iter().map(|&n| self.bench.key(n)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let start = self.tick();
        let found = self.bench.store.multi_get(&keys).or_fail("multi_get")?;
        let mut saw = Vec::new();
        for (number, value) in numbers.into_iter().zip(&found) {
            saw.push((number, value.as_ref().map(value_of).transpose()?));
        }
        self.note(start, Observation::Read { saw });
        Ok(())
    }

    fn snapshot(&mut self) -> Outcome {
        let start = self.tick();
        let snapshot = self.bench.store.snapshot().or_fail("snapshot")?;
        let end = self.tick();
        let mut entries = BTreeMap::new();
        for (key, value) in crate::holding::collect(&*snapshot).or_fail("iterate")? {
            let number = (0..KEYS).find(|&number| self.bench.key(number) == key);
            let number = number.ok_or_else(|| format!("a key nobody wrote: {key:?}"))?;
            entries.insert(number, value_of(&value)?);
        }
        let observation = Observation::Snapshot {
            sequence: snapshot.sequence().0,
            entries,
        };
        self.seen.push(Operation {
            time: start..end,
            observation,
        });
        Ok(())
    }
}

/// Background work and compactions, until everybody is done.
fn upkeep(bench: &Bench, done: &AtomicBool) -> Outcome {
    let mut rounds = 0u64;
    while !done.load(Ordering::Acquire) {
        bench.store.step(1 << 16).or_fail("step")?;
        rounds += 1;
        if rounds % 64 == 0 {
            let options = CompactOptions::default();
            match bench.store.compact(&options, &()) {
                Ok(_) | Err(Error::Unsupported { .. }) => {}
                Err(error) => return Err(format!("compact: {error}")),
            }
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn concurrent_operations(bench: &Bench) -> Outcome {
    let count = number_from("CAMBIUM_HISTORY").unwrap_or(300);
    let clock = AtomicU64::new(1);
    let done = AtomicBool::new(false);
    let act = |thread: u64| -> Result<Vec<Operation>, String> {
        let mut actor = Actor {
            bench,
            clock: &clock,
            generator: Generator::new(thread),
            next_value: thread << 32,
            seen: Vec::new(),
        };
        for _ in 0..count {
            actor.act()?;
        }
        Ok(actor.seen)
    };
    let (histories, background) = std::thread::scope(|scope| {
        let background = scope.spawn(|| upkeep(bench, &done));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || act(thread + 1)))
            .collect();
        let histories: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::Release);
        (histories, background.join())
    });
    let panicked = |_| "a thread panicked".to_string();
    background.map_err(panicked)??;
    let mut history = Vec::new();
    for operations in histories {
        let operations: Result<Vec<_>, String> = operations.map_err(panicked)?;
        history.extend(operations?);
    }
    check(&history)
}
