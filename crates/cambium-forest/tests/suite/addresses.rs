//! What is kept of documents' addresses never answers anything but what the trie would:
//! beside flushes, compactions, snapshots, rollbacks, and namespaces with the same keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cambium_api::{CompactOptions, Durability, Engine, OptionValues, Reader, Snapshot};
use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_io::simulated::Generator;
use cambium_testkit::stores;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const NAMES: [&str; 2] = ["people", "places"];

fn create(bug: Option<&str>) -> Arc<dyn Engine> {
    let mut options = OptionValues::from([
        ("node_bytes", "512"),
        ("block_bytes", "512"),
        ("write_buffer_entries", "12"),
        ("cache_bytes", "262144"),
    ]);
    if let Some(bug) = bug {
        options.set("seeded_bug", bug);
    }
    let environment = Environment::memory();
    stores::create(&Forest, &environment, &options)
}

fn key(draw: &mut Generator) -> Vec<u8> {
    format!("key {}", draw.below(60)).into_bytes()
}

/// Some keys, one by one and together, are what the model says.
fn agrees(reader: &dyn Reader, model: &Model, draw: &mut Generator) -> bool {
    let keys: Vec<Vec<u8>> = (0..6).map(|_| key(draw)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let expected: Vec<Option<&[u8]>> = keys
        .iter()
        .map(|&key| model.get(key).map(Vec::as_slice))
        .collect();
    let together = reader.multi_get(&keys).unwrap();
    let one_by_one: Vec<_> = keys.iter().map(|key| reader.get(key).unwrap()).collect();
    let same = |found: &[Option<cambium_api::Value>]| {
        let found: Vec<Option<&[u8]>> = found.iter().map(|value| value.as_deref()).collect();
        found == expected
    };
    same(&together) && same(&one_by_one)
}

/// A snapshot of a namespace, and what it holds.
type Kept = (Arc<dyn Snapshot>, usize, Model);

/// Does many things to a store; true if it always answered what a map would.
fn conforms(seed: u64, bug: Option<&str>) -> bool {
    let store = create(bug);
    let spaces = NAMES.map(|name| store.namespace(name).unwrap());
    let mut models = [Model::new(), Model::new()];
    let mut named: Option<[Model; 2]> = None;
    let mut snapshots: Vec<Kept> = Vec::new();
    let mut draw = Generator::new(seed);
    for number in 0..1_500u64 {
        let space = draw.below(2) as usize;
        let key = key(&mut draw);
        match draw.below(200) {
            0 => store
                .compact(&CompactOptions::default(), &())
                .map(|_| ())
                .unwrap(),
            1 => {
                let whole = store.snapshot().unwrap();
                let snapshot = whole.namespace(NAMES[space]).unwrap().unwrap();
                snapshots.push((snapshot, space, models[space].clone()));
                if snapshots.len() > 3 {
                    snapshots.remove(0);
                }
            }
            2 if named.is_none() => {
                store.create_named_snapshot("kept").unwrap();
                named = Some(models.clone());
            }
            3 => {
                if let Some(kept) = named.take() {
                    store.rollback("kept").unwrap();
                    store.drop_named_snapshot("kept").unwrap();
                    models = kept;
                }
            }
            4..40 => {
                spaces[space].delete(&key, Durability::Written).unwrap();
                models[space].remove(&key);
            }
            40..140 => {
                let value = format!("{number}").into_bytes();
                spaces[space]
                    .put(&key, &value, Durability::Written)
                    .unwrap();
                models[space].insert(key, value);
            }
            _ => {
                if !agrees(&*spaces[space], &models[space], &mut draw) {
                    return false;
                }
                for (snapshot, _, model) in &snapshots {
                    if !agrees(&**snapshot, model, &mut draw) {
                        return false;
                    }
                }
            }
        }
    }
    let by_address = store.stats().unwrap().number("lookups_by_address");
    assert!(by_address.unwrap() > 300, "hardly any: {by_address:?}");
    true
}

#[test]
fn known_addresses_change_no_answer() {
    for seed in 0..20 {
        assert!(conforms(seed, None), "seed {seed}");
    }
}

#[test]
fn a_flush_that_leaves_them_as_they_were_is_found() {
    assert!((0..20).any(|seed| !conforms(seed, Some("flush_keeps_addresses"))));
}

/// Values count up; whoever has seen one sees none that is older.
#[test]
fn no_reader_goes_back_beside_flushes_and_compactions() {
    const KEYS: u64 = 40;
    let store = create(None);
    let put = |key: u64, round: u64| {
        let (key, value) = (format!("key {key}"), format!("{round}"));
        store
            .put(key.as_bytes(), value.as_bytes(), Durability::Written)
            .unwrap();
    };
    (0..KEYS).for_each(|key| put(key, 0));
    let written: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (store, written, done) = (&store, &written, &done);
            scope.spawn(move || {
                let mut draw = Generator::new(reader);
                let mut seen = vec![0; KEYS as usize];
                while !done.load(Ordering::Acquire) {
                    let key = draw.below(KEYS);
                    let least = written[key as usize].load(Ordering::Acquire);
                    let value = store.get(format!("key {key}").as_bytes()).unwrap();
                    let value = String::from_utf8(value.unwrap().to_vec()).unwrap();
                    let round: u64 = value.parse().unwrap();
                    let seen = &mut seen[key as usize];
                    assert!(round >= least && round >= *seen, "key {key}: {round}");
                    *seen = round;
                }
            });
        }
        for round in 1..150 {
            for key in 0..KEYS {
                put(key, round);
                written[key as usize].store(round, Ordering::Release);
            }
            if round % 30 == 0 {
                store.compact(&CompactOptions::default(), &()).unwrap();
            }
        }
        done.store(true, Ordering::Release);
    });
}
