//! What a trace holds, found by one pass over it before it is replayed.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::{Answer, TraceReader, TraceWriter, Traced};
use crate::error::{Error, Result};

/// Bytes of a value of which a trace says nothing, where no other of it does
/// either.
const UNKNOWN_VALUE_BYTES: u64 = 100;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    pub entries: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Operations of the program: all but loads.
    pub operations: u64,
    pub gets: u64,
    pub puts: u64,
    pub deletes: u64,
    pub scans: u64,
    pub batches: u64,
    pub batched_changes: u64,
    pub threads: u64,
    /// When the first operation began: nanoseconds since the trace did.
    pub began: u64,
    /// From there to the beginning of the last, in nanoseconds.
    pub length: u64,
    pub keys: u64,
    pub longest_key: u64,
    pub largest_value: u64,
    /// Bytes of all keys and of all values that are named, each time.
    pub key_bytes: u64,
    pub value_bytes: u64,
    /// How many values are named.
    pub values: u64,
    /// What the trace says was there before it.
    pub loaded: Contents,
    /// What was read before it was written, and must have been there.
    pub found_first: Contents,
    pub at_end: Contents,
}

impl Summary {
    pub fn mean_key_bytes(&self) -> f64 {
        let named = self.operations - self.batches + self.batched_changes + self.loaded.entries;
        self.key_bytes as f64 / named.max(1) as f64
    }

    pub fn mean_value_bytes(&self) -> f64 {
        match self.values {
            0 => UNKNOWN_VALUE_BYTES as f64,
            values => self.value_bytes as f64 / values as f64,
        }
    }

    /// What replay loads before it begins.
    pub fn at_start(&self) -> Contents {
        Contents {
            entries: self.loaded.entries + self.found_first.entries,
            bytes: self.loaded.bytes + self.found_first.bytes,
        }
    }
}

/// Reads a trace up to so many operations. Entries that were read before they
/// were written are written to `missing`, a trace of nothing but loads, which is
/// made by the first of them; it takes about 40 bytes of memory a key.
///
/// # Errors
/// Damage; the error names file and offset. A trace without any operation.
pub fn summarize(path: &Path, most: u64, missing: Option<&Path>) -> Result<Summary> {
    let mut reader = TraceReader::open(path)?;
    let mut pass = Pass {
        missing,
        ..Pass::default()
    };
    let mut threads = std::collections::HashSet::new();
    while pass.summary.operations < most {
        let Some(record) = reader.next()? else { break };
        if !matches!(record.operation, Traced::Load { .. }) {
            let summary = &mut pass.summary;
            if summary.operations == 0 {
                summary.began = record.at;
            }
            summary.operations += 1;
            summary.length = summary.length.max(record.at.saturating_sub(summary.began));
            threads.insert(record.thread);
        }
        pass.take(&record.operation)?;
    }
    if pass.summary.operations == 0 {
        return Err(Error::Usage(format!(
            "{}: a trace without an operation",
            path.display()
        )));
    }
    if let Some(mut writer) = pass.writer {
        writer.finish()?;
    }
    let mut summary = pass.summary;
    summary.threads = threads.len() as u64;
    summary.keys = pass.entries.len() as u64;
    summary.at_end = pass.live;
    Ok(summary)
}

#[derive(Default)]
struct Pass<'a> {
    summary: Summary,
    /// Bytes of the value of each key that was named; none if it is not there.
    entries: HashMap<u64, Option<u64>>,
    live: Contents,
    missing: Option<&'a Path>,
    writer: Option<TraceWriter>,
}

impl Pass<'_> {
    fn take(&mut self, operation: &Traced<'_>) -> Result<()> {
        match operation {
            Traced::Load { key, value_bytes } => {
                self.put(key, *value_bytes);
                self.summary.loaded = self.live;
            }
            Traced::Put { key, value_bytes } => {
                self.summary.puts += 1;
                self.put(key, *value_bytes);
            }
            Traced::Delete { key } => {
                self.summary.deletes += 1;
                self.delete(key);
            }
            Traced::Get { key, answer } => {
                self.summary.gets += 1;
                self.name(key);
                self.get(key, *answer)?;
            }
            Traced::Scan { from, .. } => {
                self.summary.scans += 1;
                self.name(from);
            }
            Traced::Batch(changes) => {
                self.summary.batches += 1;
                self.summary.batched_changes += changes.len() as u64;
                for change in changes {
                    match change.value_bytes {
                        Some(bytes) => self.put(change.key, bytes),
                        None => self.delete(change.key),
                    }
                }
            }
        }
        Ok(())
    }

    fn name(&mut self, key: &[u8]) {
        let bytes = key.len() as u64;
        self.summary.key_bytes += bytes;
        self.summary.longest_key = self.summary.longest_key.max(bytes);
    }

    fn set(&mut self, key: &[u8], value: Option<u64>) {
        let bytes = |value: u64| key.len() as u64 + value;
        let before = self.entries.insert(xxh3_64(key), value);
        if let Some(Some(value)) = before {
            self.live.entries -= 1;
            self.live.bytes -= bytes(value);
        }
        if let Some(value) = value {
            self.live.entries += 1;
            self.live.bytes += bytes(value);
        }
    }

    fn put(&mut self, key: &[u8], value_bytes: u64) {
        self.name(key);
        self.summary.values += 1;
        self.summary.value_bytes += value_bytes;
        self.summary.largest_value = self.summary.largest_value.max(value_bytes);
        self.set(key, Some(value_bytes));
    }

    fn delete(&mut self, key: &[u8]) {
        self.name(key);
        self.set(key, None);
    }

    fn get(&mut self, key: &[u8], answer: Answer) -> Result<()> {
        if self.entries.contains_key(&xxh3_64(key)) {
            return Ok(());
        }
        let value_bytes = match answer {
            Answer::Absent => {
                self.set(key, None);
                return Ok(());
            }
            Answer::Found(bytes) => bytes,
            Answer::Unknown => self.summary.mean_value_bytes() as u64,
        };
        self.set(key, Some(value_bytes));
        let summary = &mut self.summary;
        summary.largest_value = summary.largest_value.max(value_bytes);
        summary.found_first.entries += 1;
        summary.found_first.bytes += key.len() as u64 + value_bytes;
        let Some(path) = self.missing else {
            return Ok(());
        };
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(TraceWriter::create(path)?),
        };
        writer.add(0, 0, &Traced::Load { key, value_bytes })
    }
}

/// Copies what is whole of a damaged trace, up to the damage; answers how many
/// records that were, and what is wrong there.
///
/// # Errors
/// The disk's; a usage error if the file is no trace at all.
pub fn rescue(from: &Path, to: &Path) -> Result<(u64, Option<Error>)> {
    let mut reader = TraceReader::open(from)?;
    let mut writer = TraceWriter::create(to)?;
    let damage = loop {
        match reader.next() {
            Ok(Some(record)) => writer.add(record.thread, record.at, &record.operation)?,
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    writer.finish()?;
    Ok((writer.count(), damage))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{Tape, TracedChange};
    use super::*;
    use crate::adapter::Change;

    fn sample(path: &Path, rounds: u32) -> u64 {
        let tape = Tape::create(path).unwrap();
        tape.load(b"loaded", 10);
        for round in 0..rounds {
            let key = round.to_be_bytes();
            tape.put(&key, 100, || ());
            tape.get(b"loaded", || Some(10), |bytes| *bytes);
            tape.get(&key, || None::<usize>, |bytes| *bytes);
            tape.delete(&key, || ());
            tape.scan(&key, 5, || 3, |visited| Some(*visited));
            let changes = [
                Change::Put {
                    key: b"x",
                    value: b"yz",
                },
                Change::Delete { key: b"x" },
            ];
            tape.write(&changes, || ());
        }
        tape.finish().unwrap()
    }

    #[test]
    fn what_is_recorded_comes_back_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        assert_eq!(sample(&path, 3_000), 18_001);
        let mut reader = TraceReader::open(&path).unwrap();
        let mut last = 0;
        for index in 0.. {
            let Some(record) = reader.next().unwrap() else {
                assert_eq!(index, 18_001);
                break;
            };
            assert!(record.at >= last);
            last = record.at;
            if index == 6 {
                let changes = vec![
                    TracedChange {
                        key: b"x",
                        value_bytes: Some(2),
                    },
                    TracedChange {
                        key: b"x",
                        value_bytes: None,
                    },
                ];
                assert_eq!(record.operation, Traced::Batch(changes));
            }
        }
        let summary = summarize(&path, u64::MAX, None).unwrap();
        assert_eq!((summary.operations, summary.gets), (18_000, 6_000));
        assert_eq!((summary.loaded.entries, summary.loaded.bytes), (1, 16));
        assert_eq!(summary.at_end, summary.loaded);
        assert_eq!(summarize(&path, 7, None).unwrap().operations, 7);
    }

    #[test]
    fn what_was_read_before_it_was_written_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let (path, missing) = (folder.path().join("trace"), folder.path().join("missing"));
        let tape = Tape::create(&path).unwrap();
        for key in [b"a", b"b", b"a"] {
            tape.get(key, || Some(30), |bytes| *bytes);
        }
        tape.get(b"c", || None::<usize>, |bytes| *bytes);
        tape.finish().unwrap();
        let summary = summarize(&path, u64::MAX, Some(&missing)).unwrap();
        assert_eq!((summary.found_first.entries, summary.at_end.bytes), (2, 62));
        let mut reader = TraceReader::open(&missing).unwrap();
        let mut keys = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            if let Traced::Load { key, value_bytes } = record.operation {
                keys.push((key.to_vec(), value_bytes));
            }
        }
        assert_eq!(keys, [(b"a".to_vec(), 30), (b"b".to_vec(), 30)]);
    }

    #[test]
    fn every_damage_is_named_with_its_offset_and_what_is_before_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        sample(&path, 4_000);
        let whole = std::fs::read(&path).unwrap();
        let mut random = crate::random::Random::new(3);
        for round in 0..120 {
            let at = match round {
                0..40 => round,
                _ => random.below(whole.len() as u64) as usize,
            };
            let cut = round % 2 == 0;
            let mut bytes = whole.clone();
            match cut {
                true => bytes.truncate(at),
                false => bytes[at] ^= 1 << random.below(8),
            }
            std::fs::write(&path, &bytes).unwrap();
            let rescued = folder.path().join("rescued");
            match rescue(&path, &rescued) {
                Ok((count, damage)) => {
                    let words = damage.expect("damage is found").to_string();
                    assert!(words.contains("offset"), "{words}");
                    // No chunk before the damaged one may be lost.
                    assert!(count + 8_000 >= 24_001 * at as u64 / whole.len() as u64);
                    let again = rescue(&rescued, &folder.path().join("again")).unwrap();
                    assert_eq!((again.0, again.1.is_none()), (count, true));
                }
                Err(error) => {
                    assert!(at < 16, "{at}: {error}");
                    assert!(error.to_string().contains("trace"), "{error}");
                }
            }
        }
    }
}
