//! Operations of a trace, read ahead, so that reading them is in no latency.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::Result;
use crate::job::Replayed;
use crate::trace::{TraceReader, Traced};

/// Operations read ahead ...
const STEPS: usize = 256;
/// ... and about the most bytes of their keys.
const KEY_BYTES: usize = 4 << 20;
/// Versions of entries that the trace found without loading them begin here.
const MISSING: u64 = 1 << 48;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// The entry is there already: nothing is issued.
    Loaded,
    Put,
    Get,
    Delete,
    /// Of at most so many entries.
    Scan(u64),
    /// Of these changes.
    Batch(Range<usize>),
}

/// One operation. Of a batch, key and number are those of its first change.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) act: Act,
    /// When it began.
    pub(super) at: u64,
    /// Where its key stands.
    pub(super) key: Range<usize>,
    /// The key's hash.
    pub(super) number: u64,
    /// Of the value that it writes.
    pub(super) version: u64,
    pub(super) value_bytes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct StepChange {
    pub(super) key: Range<usize>,
    pub(super) number: u64,
    pub(super) version: u64,
    /// None for a deletion.
    pub(super) value_bytes: Option<u64>,
}

/// Operations, with the bytes of their keys.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) all: Vec<Step>,
    pub(super) changes: Vec<StepChange>,
    pub(super) keys: Vec<u8>,
}

impl Steps {
    fn clear(&mut self) {
        self.all.clear();
        self.changes.clear();
        self.keys.clear();
    }

    fn is_full(&self) -> bool {
        self.all.len() >= STEPS || self.keys.len() >= KEY_BYTES
    }

    fn key(&mut self, key: &[u8]) -> Range<usize> {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        start..self.keys.len()
    }
}

/// Where a thread's operations come from.
#[derive(Debug)]
pub(super) struct Source {
    reader: TraceReader,
    /// Read next: entries that the trace found.
    missing: Option<TraceReader>,
    /// Changes of the reader so far.
    versions: u64,
    /// Operations that are still to be read, others' among them.
    left: u64,
    loads_only: bool,
    thread: u64,
    threads: u64,
}

impl Source {
    pub(super) fn loads(trace: &Replayed) -> Result<Source> {
        Source::new(trace, true, (0, 1))
    }

    /// What a thread issues, with what it must know to be there.
    pub(super) fn operations(trace: &Replayed, thread: u64, threads: u64) -> Result<Source> {
        Source::new(trace, false, (thread, threads))
    }

    fn new(trace: &Replayed, loads_only: bool, (thread, threads): (u64, u64)) -> Result<Source> {
        let missing = trace
            .missing
            .as_deref()
            .map(TraceReader::open)
            .transpose()?;
        Ok(Source {
            reader: TraceReader::open(&trace.path)?,
            missing,
            versions: 0,
            left: trace.summary.operations,
            loads_only,
            thread,
            threads,
        })
    }

    /// Reads ahead; false when there is nothing any more.
    pub(super) fn fill(&mut self, steps: &mut Steps) -> Result<bool> {
        steps.clear();
        while !steps.is_full() {
            // What was found is there before the first operation.
            if let Some(missing) = &mut self.missing {
                let Some(record) = missing.next()? else {
                    self.missing = None;
                    self.versions = 0;
                    continue;
                };
                let own = (self.thread, self.threads);
                self.versions += 1;
                take(
                    steps,
                    &record.operation,
                    record.at,
                    MISSING + self.versions,
                    own,
                );
                continue;
            }
            if self.left == 0 {
                break;
            }
            let Some(record) = self.reader.next()? else {
                self.left = 0;
                break;
            };
            let loads = matches!(record.operation, Traced::Load { .. });
            self.left -= u64::from(!loads);
            let first = self.versions + 1;
            self.versions += match &record.operation {
                Traced::Batch(changes) => changes.len() as u64,
                _ => 1,
            };
            if loads || !self.loads_only {
                let own = (self.thread, self.threads);
                take(steps, &record.operation, record.at, first, own);
            }
        }
        Ok(!steps.all.is_empty())
    }
}

fn take(
    steps: &mut Steps,
    operation: &Traced<'_>,
    at: u64,
    first_version: u64,
    (thread, threads): (u64, u64),
) {
    let (key, act, value_bytes) = match operation {
        Traced::Load { key, value_bytes } => (*key, Act::Loaded, *value_bytes),
        Traced::Put { key, value_bytes } => (*key, Act::Put, *value_bytes),
        Traced::Get { key, .. } => (*key, Act::Get, 0),
        Traced::Delete { key } => (*key, Act::Delete, 0),
        Traced::Scan { from, limit, .. } => (*from, Act::Scan(*limit), 0),
        Traced::Batch(changes) => match changes.first() {
            Some(first) => (first.key, Act::Batch(0..0), 0),
            None => return,
        },
    };
    let number = xxh3_64(key);
    if threads > 1 && number % threads != thread {
        return;
    }
    let act = match operation {
        Traced::Batch(changes) => {
            let start = steps.changes.len();
            for (later, change) in changes.iter().enumerate() {
                let key = steps.key(change.key);
                steps.changes.push(StepChange {
                    key,
                    number: xxh3_64(change.key),
                    version: first_version + later as u64,
                    value_bytes: change.value_bytes,
                });
            }
            Act::Batch(start..steps.changes.len())
        }
        _ => act,
    };
    let key = match &act {
        Act::Batch(_) => 0..0,
        _ => steps.key(key),
    };
    steps.all.push(Step {
        act,
        at,
        key,
        number,
        version: first_version,
        value_bytes,
    });
}
