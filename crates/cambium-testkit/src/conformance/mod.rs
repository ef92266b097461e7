//! One suite that every engine passes.
//!
//! [`Conformance`] holds an engine against the promises of `cambium-api`, case
//! by case. What an engine cannot do it says in `capabilities()`, and the suite
//! checks that it then answers `Unsupported`; everything else must hold.
//!
//! Keys are made for the engine: 8 bytes big-endian where keys are integers,
//! awkward byte strings elsewhere.
//!
//! ```
//! use cambium_testkit::{Conformance, memory_engine::MemoryKind};
//! Conformance::new(&MemoryKind).run();
//! ```

mod batches;
mod changes;
mod compression;
mod consumers;
mod cursors;
mod damaged;
mod expiry;
mod followers;
mod histories;
mod kept;
mod lifecycle;
mod merging;
mod reading;
mod sizes;
mod threads;
mod transactions;
mod values;

pub use sizes::{check_sizes, write_random_values};

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    Capabilities, Durability, Engine, EngineKind, Error, KeyKind, Reader, Result, Value,
};
use cambium_io::Environment;

use crate::holding::collect;
use crate::subject::{Subject, store_path};

/// What a case answers: nothing, or what does not hold.
pub(crate) type Outcome = std::result::Result<(), String>;

type Case = (&'static str, fn(&Bench) -> Outcome);

/// The suite for one engine and one set of options.
#[derive(Clone, Debug)]
pub struct Conformance {
    subject: Subject,
    environment: fn() -> Environment,
    /// A word of the cases that are run.
    only: &'static str,
}

impl Conformance {
    /// The suite for an engine with its defaults, in memory.
    pub fn new(kind: &'static dyn EngineKind) -> Self {
        Conformance {
            subject: Subject::new(kind),
            environment: Environment::memory,
            only: "",
        }
    }

    /// Says that the kind is the value layer above this engine: entries expire, values merge
    /// and are compressed. Without it the suite checks that all of it is refused.
    #[must_use]
    pub fn layer_above(mut self, engine: &'static dyn EngineKind) -> Self {
        self.subject = self.subject.layer_above(engine);
        self
    }

    /// Sets an option that is fixed at creation.
    #[must_use]
    pub fn creation(mut self, name: &str, value: &str) -> Self {
        self.subject = self.subject.creation(name, value);
        self
    }

    /// Sets an option of each opening, creation included.
    #[must_use]
    pub fn opening(mut self, name: &str, value: &str) -> Self {
        self.subject = self.subject.opening(name, value);
        self
    }

    /// Runs in other worlds than [`Environment::memory`]; each case asks for
    /// one of its own.
    #[must_use]
    pub fn environment(mut self, make: fn() -> Environment) -> Self {
        self.environment = make;
        self
    }

    /// Puts a file system below the engine that breaks its contract.
    #[must_use]
    pub fn broken(mut self, breakage: crate::Breakage) -> Self {
        self.subject = self.subject.broken(breakage);
        self
    }

    /// Runs the cases alone whose name has these words.
    #[must_use]
    pub fn only(mut self, words: &'static str) -> Self {
        self.only = words;
        self
    }

    /// Runs every case.
    ///
    /// # Panics
    /// If any does not hold, naming all that do not.
    pub fn run(&self) {
        let failures = self.failures();
        assert!(
            failures.is_empty(),
            "{} does not conform:\n{}",
            self.subject.kind().name(),
            failures.join("\n")
        );
    }

    /// Runs every case; answers one line for each that does not hold.
    pub fn failures(&self) -> Vec<String> {
        let cases = [
            values::CASES,
            batches::CASES,
            cursors::CASES,
            lifecycle::CASES,
            damaged::CASES,
            threads::CASES,
            histories::CASES,
            kept::CASES,
            transactions::CASES,
            reading::CASES,
            sizes::CASES,
            changes::CASES,
            consumers::CASES,
            followers::CASES,
            expiry::CASES,
            merging::CASES,
            compression::CASES,
        ];
        let cases = cases.into_iter().flatten();
        let cases = cases.filter(|(name, _)| name.contains(self.only));
        cases
            .filter_map(|(name, case)| {
                let outcome = self.bench().and_then(|bench| case(&bench));
                outcome.err().map(|what| format!("  {name}: {what}"))
            })
            .collect()
    }

    fn bench(&self) -> std::result::Result<Bench, String> {
        let environment = self.subject.break_environment((self.environment)());
        let store = self.subject.create(&environment).or_fail("create")?;
        Ok(Bench {
            subject: self.subject.clone(),
            environment,
            capabilities: store.capabilities(),
            store,
        })
    }
}

/// A fresh store for one case.
pub(crate) struct Bench {
    subject: Subject,
    pub(crate) environment: Environment,
    pub(crate) capabilities: Capabilities,
    pub(crate) store: Arc<dyn Engine>,
}

/// Entries as plain bytes.
pub(crate) type Plain = BTreeMap<Vec<u8>, Vec<u8>>;

impl Bench {
    /// The n-th key, in key order.
    pub(crate) fn key(&self, number: u64) -> Vec<u8> {
        match self.capabilities.keys {
            KeyKind::Integer => (1_000 + number).to_be_bytes().to_vec(),
            KeyKind::Bytes => format!("key {number:08}").into_bytes(),
        }
    }

    pub(crate) fn put(&self, number: u64, value: &[u8]) -> Outcome {
        self.store
            .put(&self.key(number), value, Durability::Written)
            .or_fail("put")
            .map(|_| ())
    }

    /// Puts keys 0 to `count`, each with its number as text.
    pub(crate) fn fill(&self, count: u64) -> std::result::Result<Plain, String> {
        let mut entries = Plain::new();
        for number in 0..count {
            let value = format!("value {number}").into_bytes();
            self.put(number, &value)?;
            entries.insert(self.key(number), value);
        }
        Ok(entries)
    }

    pub(crate) fn open(&self) -> Result<Arc<dyn Engine>> {
        self.subject.open(&self.environment)
    }

    /// True if the store has the value layer.
    pub(crate) fn has_layer(&self) -> bool {
        self.subject.below.is_some()
    }

    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    pub(crate) fn path(&self) -> &'static Path {
        store_path()
    }

    /// Closes the store and opens it again.
    pub(crate) fn reopened(&self) -> std::result::Result<Arc<dyn Engine>, String> {
        self.store.close().or_fail("close")?;
        self.open().or_fail("open after close")
    }

    /// Lets the background do what it would.
    pub(crate) fn settle(&self) -> Outcome {
        for _ in 0..50 {
            self.store.step(1 << 20).or_fail("step")?;
        }
        Ok(())
    }
}

/// All a reader holds, as plain bytes.
pub(crate) fn contents(reader: &dyn Reader) -> std::result::Result<Plain, String> {
    let found = collect(reader).or_fail("iterate")?;
    let plain = found.into_iter().map(|(key, value)| (key, value.to_vec()));
    Ok(plain.collect())
}

/// Holds if the reader has exactly these entries.
pub(crate) fn expect_contents(reader: &dyn Reader, expected: &Plain) -> Outcome {
    expect_entries(&contents(reader)?, expected)
}

/// Holds if these are exactly the entries that were expected.
pub(crate) fn expect_entries(found: &Plain, expected: &Plain) -> Outcome {
    if found == expected {
        return Ok(());
    }
    let lost = expected.keys().filter(|key| !found.contains_key(*key));
    let added = found.keys().filter(|key| !expected.contains_key(*key));
    let changed = expected.iter().filter_map(|(key, value)| {
        let other = found.get(key).filter(|other| *other != value)?;
        Some((key, String::from_utf8_lossy(other)))
    });
    Err(format!(
        "{} entries, expected {}: lost {:?}, added {:?}, changed {:?}",
        found.len(),
        expected.len(),
        lost.take(3).collect::<Vec<_>>(),
        added.take(3).collect::<Vec<_>>(),
        changed.take(3).collect::<Vec<_>>()
    ))
}

/// Holds if a key has this value, whichever way it is asked for.
pub(crate) fn expect_value(reader: &dyn Reader, key: &[u8], expected: Option<&[u8]>) -> Outcome {
    let found = reader.get(key).or_fail("get")?;
    let mut buffer = b"left over".to_vec();
    let there = reader.get_into(key, &mut buffer).or_fail("get_into")?;
    let together = reader.multi_get(&[key]).or_fail("multi_get")?;
    let same = found.as_ref().map(Value::as_slice) == expected
        && there == expected.is_some()
        && buffer == expected.unwrap_or_default()
        && together.len() == 1
        && together[0] == found;
    if same {
        return Ok(());
    }
    let length = |value: &Option<Value>| value.as_ref().map(|value| value.len());
    Err(format!(
        "a key of {} bytes: get answers {:?} bytes, get_into {there} and {}, multi_get {:?}; expected {:?}",
        key.len(),
        length(&found),
        buffer.len(),
        together.first().map(length),
        expected.map(<[u8]>::len)
    ))
}

/// Holds if a call answered an error of a kind.
pub(crate) fn expect_error<T>(
    what: &str,
    result: Result<T>,
    is_right: impl Fn(&Error) -> bool,
) -> Outcome {
    match result {
        Err(error) if is_right(&error) => Ok(()),
        Err(error) => Err(format!("{what} answers another error: {error}")),
        Ok(_) => Err(format!("{what} succeeds; it must be refused")),
    }
}

/// Holds if two things are the same.
pub(crate) fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Outcome {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what}: {found:?}, expected {wanted:?}"))
}

/// Errors of calls that must succeed, as text.
pub(crate) trait OrFail<T> {
    fn or_fail(self, what: &str) -> std::result::Result<T, String>;
}

impl<T> OrFail<T> for Result<T> {
    fn or_fail(self, what: &str) -> std::result::Result<T, String> {
        self.map_err(|error| format!("{what}: {error}"))
    }
}
