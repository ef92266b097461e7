//! Writers of batches, and what their feeds must show.

use std::sync::Arc;

use cambium_api::{
    ChangeBatch, ChangeFeed, ChangeOptions, Durability, Engine, KeyRange, Operation, OptionValues,
    SequenceNumber, WriteBatch,
};
use cambium_io::Environment;
use cambium_io::simulated::Generator;
pub use cambium_testkit::following::{drain, lead_to};
use cambium_testkit::stores;
use cambium_wisckey::Wisckey;

use crate::support::options_of;
pub use crate::support::{number, work_until_idle};

pub const FOLDER: &str = "/store";
pub const FROM_THE_START: SequenceNumber = SequenceNumber(0);

/// Constants so small that each path is met.
pub const TINY: [(&str, &str); 9] = [
    ("block_bytes", "512"),
    ("segment_bytes", "4096"),
    ("replay_bytes", "2048"),
    ("inline_bytes", "4"),
    ("preallocate_bytes", "4096"),
    ("table_bytes", "2048"),
    ("table_block_bytes", "512"),
    ("level_base_bytes", "4096"),
    ("space_limit", "120"),
];

pub fn options(changes: &[(&str, &str)]) -> OptionValues {
    options_of(&[], changes)
}

pub fn tiny(changes: &[(&str, &str)]) -> OptionValues {
    options(&[&TINY[..], changes].concat())
}

pub fn create(environment: &Environment, options: &OptionValues) -> Arc<dyn Engine> {
    stores::create(&Wisckey, environment, options)
}

pub fn open(environment: &Environment, options: &OptionValues) -> Arc<dyn Engine> {
    stores::open(&Wisckey, environment, options)
}

pub fn feed(store: &dyn Engine, after: SequenceNumber) -> Box<dyn ChangeFeed> {
    store.changes(after, ChangeOptions::default()).unwrap()
}

pub fn changes_after(store: &dyn Engine, after: SequenceNumber) -> Vec<ChangeBatch> {
    drain(&mut *feed(store, after))
}

/// Every batch comes once, in the order of numbers.
pub fn is_in_order(batches: &[ChangeBatch]) {
    for batch in batches {
        assert!(batch.first <= batch.last && !batch.changes.is_empty());
    }
    for pair in batches.windows(2) {
        assert!(pair[0].last < pair[1].first, "{pair:?}");
    }
}

pub type Operations = Vec<(Option<String>, Operation)>;

/// Writes batches of every kind; keeps what each has.
pub struct Writing {
    pub random: Generator,
    /// The last number of each batch, and what is in it.
    written: Vec<(SequenceNumber, Operations)>,
}

impl Writing {
    pub fn new(seed: u64) -> Self {
        Writing {
            random: Generator::new(seed),
            written: Vec::new(),
        }
    }

    pub fn key(&mut self) -> Vec<u8> {
        format!("key {:03}", self.random.below(150)).into_bytes()
    }

    pub fn operation(&mut self) -> Operation {
        let key = self.key();
        match self.random.below(20) {
            0 => {
                let (from, to) = (Some(key), Some(self.key()));
                let chosen = self.random.below(20);
                let range = match chosen {
                    0 => KeyRange::all(),
                    1 => KeyRange { from, to: None },
                    2 => KeyRange { from: None, to },
                    _ => KeyRange { from, to },
                };
                Operation::DeleteRange { range }
            }
            1..=4 => Operation::Delete { key },
            _ => {
                let length = self.random.below(300) as usize;
                let value = vec![self.random.below(256) as u8; length];
                Operation::Put { key, value }
            }
        }
    }

    /// Writes a batch; how durable is up to chance.
    pub fn write(&mut self, store: &dyn Engine) {
        let mut batch = WriteBatch::new();
        let mut operations = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let name = self.random.chance(1, 3).then(|| {
                let names = ["people", "trees"];
                (*self.random.pick(&names)).to_string()
            });
            let operation = self.operation();
            // A range with nothing in it is no change.
            let is_nothing = match &operation {
                Operation::DeleteRange { range } => {
                    matches!((&range.from, &range.to), (Some(from), Some(to)) if from >= to)
                }
                _ => false,
            };
            batch.push(name.as_deref().map(Into::into), operation.clone());
            if !is_nothing {
                operations.push((name, operation));
            }
        }
        let durability = match self.random.below(8) {
            0 => Durability::Synced,
            1..=3 => Durability::Buffered,
            _ => Durability::Written,
        };
        let last = store.write(batch, durability).unwrap();
        if !operations.is_empty() {
            self.written.push((last, operations));
        }
    }

    /// The feed shows what was written from a place on, no more and no less.
    pub fn is_shown(&self, batches: &[ChangeBatch], skipped: usize) {
        is_in_order(batches);
        let written = &self.written[skipped..];
        assert_eq!(batches.len(), written.len());
        for (batch, (last, operations)) in batches.iter().zip(written) {
            assert_eq!(batch.last, *last);
            let shown = batch.changes.iter().map(|change| {
                let name = change.namespace.as_deref().map(str::to_string);
                (name, change.operation.clone())
            });
            assert!(shown.eq(operations.iter().cloned()), "write {last}");
        }
    }
}

/// Overwrites the same keys in rounds, each followed by background work.
pub fn overwrite(store: &dyn Engine, rounds: u64) {
    for round in 0..rounds {
        for key in 0..40u64 {
            let value = vec![round as u8; 100 + key as usize];
            let key = format!("key {key:02}");
            store
                .put(key.as_bytes(), &value, Durability::Written)
                .unwrap();
        }
        work_until_idle(store);
    }
}
