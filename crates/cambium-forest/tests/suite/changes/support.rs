//! What the tests of the change feed have in common.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    ChangeFeed, ChangeOptions, Durability, Engine, EngineKind, Error, KeyRange, Operation, Result,
    SequenceNumber, WriteBatch,
};
use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_io::simulated::Generator;
pub use cambium_testkit::following::{Contents as Model, apply, contents, drain, lead_to};
use cambium_testkit::stores;

pub const PATH: &str = "/store";

/// So small that each path is met: many headers, runs of nodes between documents, and
/// compactions of many steps.
pub const TINY: [(&str, &str); 7] = [
    ("node_bytes", "512"),
    ("block_bytes", "512"),
    ("write_buffer_entries", "8"),
    ("preallocate_bytes", "4096"),
    ("segment_bytes", "16KiB"),
    ("compaction_threshold", "100"),
    ("compaction_memory_bytes", "8192"),
];

pub fn create(environment: &Environment, besides: &[(&str, &str)]) -> Arc<dyn Engine> {
    stores::create(&Forest, environment, &stores::options(&[&TINY, besides]))
}

pub fn try_open(environment: &Environment, besides: &[(&str, &str)]) -> Result<Arc<dyn Engine>> {
    let all = stores::options(&[&TINY, besides]);
    Forest.open(environment, Path::new(PATH), &all, &())
}

pub fn open(environment: &Environment, besides: &[(&str, &str)]) -> Arc<dyn Engine> {
    try_open(environment, besides).unwrap()
}

pub fn compact(store: &dyn Engine) {
    store.compact(&Default::default(), &()).unwrap();
}

/// A feed of everything after a number.
pub fn feed(store: &dyn Engine, after: u64) -> Box<dyn ChangeFeed> {
    let after = SequenceNumber(after);
    store.changes(after, ChangeOptions::default()).unwrap()
}

pub fn synced_feed(store: &dyn Engine, after: u64) -> Box<dyn ChangeFeed> {
    let options = ChangeOptions { synced_only: true };
    store.changes(SequenceNumber(after), options).unwrap()
}

/// The number from which history is whole, of an answer that says so.
pub fn lost<T>(answer: Result<T>) -> u64 {
    match answer {
        Err(Error::HistoryLost { oldest }) => oldest.0,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("history is there"),
    }
}

/// The newest number.
pub fn newest(store: &dyn Engine) -> u64 {
    store.snapshot().unwrap().sequence().0
}

/// Does a random thing to a store.
pub fn change(store: &dyn Engine, random: &mut Generator) {
    let durability = *random.pick(&[
        Durability::Buffered,
        Durability::Buffered,
        Durability::Written,
        Durability::Synced,
    ]);
    let key = |random: &mut Generator| format!("{:03}", random.below(200)).into_bytes();
    let value = |random: &mut Generator| {
        let bytes = *random.pick(&[3, 40, 700, 3000]);
        vec![random.next_u64() as u8; bytes]
    };
    match random.below(20) {
        0 => _ = store.delete(&key(random), durability).unwrap(),
        1 => {
            let from = key(random);
            let mut to = from.clone();
            to.push(b'~');
            let range = KeyRange {
                from: Some(from),
                to: Some(to),
            };
            store.delete_range(range, durability).unwrap();
        }
        2 if store.list_namespaces().unwrap().iter().any(|n| n == "side") => {
            store.drop_namespace("side").unwrap();
        }
        3..=5 => {
            let side = store.namespace("side").unwrap();
            side.put(&key(random), &value(random), durability).unwrap();
        }
        6..=9 => {
            let mut batch = WriteBatch::new();
            for _ in 0..random.below(6) + 2 {
                let operation = Operation::Put {
                    key: key(random),
                    value: value(random),
                };
                let name = (random.below(3) == 0).then(|| Arc::from("beside"));
                batch.push(name, operation);
            }
            store.write(batch, durability).unwrap();
        }
        _ => _ = store.put(&key(random), &value(random), durability).unwrap(),
    }
}
