//! Thousands of namespaces of a few keys: their tries share the runs of nodes, so that
//! a file that was compacted is live but for little, and none is begun again.

use std::sync::Arc;

use cambium_api::{CompactOptions, Durability, Engine, OptionValues};
use cambium_forest::Forest;
use cambium_io::{Environment, StepOutcome};
use cambium_testkit::stores::{self, number};

const NAMESPACES: u32 = 1500;
const NODE: u64 = 4096;

fn name(number: u32) -> String {
    format!("tenant-{number:04}")
}

fn store(environment: &Environment) -> Arc<dyn Engine> {
    let options = OptionValues::from([
        ("preallocate_bytes", "65536"),
        ("segment_bytes", "16KiB"),
        ("compaction_least_bytes", "65536"),
    ]);
    let store = stores::create(&Forest, environment, &options);
    for number in 0..NAMESPACES {
        let namespace = store.namespace(&name(number)).unwrap();
        for key in 0..3u32 {
            let durability = Durability::Written;
            namespace
                .put(&key.to_be_bytes(), b"a few bytes", durability)
                .unwrap();
        }
    }
    store
}

#[test]
fn a_compacted_file_of_small_namespaces_is_live() {
    let environment = Environment::memory();
    let store = store(&environment);
    store.compact(&CompactOptions::default(), &()).unwrap();
    let (file, stale) = (
        number(&*store, "file_bytes"),
        number(&*store, "stale_bytes"),
    );
    // A node each, documents of some 80 bytes, and the header with all names.
    let most = u64::from(NAMESPACES) * (NODE + 600);
    assert!(file <= most, "{file}, and at most {most} are expected");
    assert!(stale * 10 < file, "{stale} of {file}");
    let compactions = number(&*store, "compactions");
    while store.step(1 << 20).unwrap() == StepOutcome::Again {}
    assert_eq!(number(&*store, "compactions"), compactions);
    // And what lies in shared runs reads back, in this opening and in another.
    drop(store);
    let store = stores::open(&Forest, &environment, &OptionValues::default());
    assert_eq!(store.check(&()).unwrap().findings, []);
    for number in 0..NAMESPACES {
        let namespace = store.namespace(&name(number)).unwrap();
        let value = namespace.get(&2u32.to_be_bytes()).unwrap();
        assert_eq!(value.as_deref(), Some(&b"a few bytes"[..]));
    }
}

#[test]
fn a_flush_of_many_namespaces_shares_runs() {
    let environment = Environment::memory();
    let store = store(&environment);
    store.create_named_snapshot("flushed").unwrap();
    let before = number(&*store, "file_bytes");
    for number in 0..NAMESPACES {
        let namespace = store.namespace(&name(number)).unwrap();
        namespace
            .put(b"key", b"value", Durability::Written)
            .unwrap();
    }
    store.create_named_snapshot("flushed again").unwrap();
    let added = number(&*store, "file_bytes") - before;
    let most = u64::from(NAMESPACES) * (NODE + 600);
    assert!(added <= most, "{added}, and at most {most} are expected");
}
