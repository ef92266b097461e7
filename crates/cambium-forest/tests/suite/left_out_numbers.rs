//! A recovery leaves numbers of writes out. A compaction that reads across the place finds
//! that no write is missing there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cambium_api::{CompactOptions, Durability, Engine, OptionValues, Progress, ProgressSink};
use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_testkit::stores;

/// Documents that lie in the trie.
const FLUSHED: u32 = 5_000;

fn open(disk: &SimulatedDisk) -> Arc<dyn Engine> {
    let environment = Environment::simulated(disk, 2);
    stores::open(&Forest, &environment, &OptionValues::default())
}

/// A store of which a crash left the log of a namespace, and nothing to flush.
fn crashed(dropped: bool) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let options = OptionValues::default();
    let store = stores::create(&Forest, &environment, &options);
    for number in 0..FLUSHED {
        let key = number.to_be_bytes();
        store.put(&key, &[7; 300], Durability::Buffered).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let store = open(&disk);
    let trees = store.namespace("trees").unwrap();
    if dropped {
        trees.put(b"oak", b"gone", Durability::Written).unwrap();
        store.drop_namespace("trees").unwrap();
    }
    store.sync().unwrap();
    disk.crash(CrashStyle::NothingUnsynced, 1)
}

#[test]
fn a_compaction_right_after_a_recovery_of_namespaces_alone_ends() {
    for dropped in [false, true] {
        let store = open(&crashed(dropped));
        store.compact(&CompactOptions::default(), &()).unwrap();
        assert_eq!(
            store.list_namespaces().unwrap().len(),
            2 - usize::from(dropped)
        );
    }
}

/// Writes to a store whenever it is told of progress.
struct Writes(Arc<dyn Engine>, AtomicU32);

impl ProgressSink for Writes {
    fn report(&self, _progress: Progress) {
        let number = self.1.fetch_add(1, Ordering::Relaxed);
        let key = number.to_be_bytes();
        self.0.put(&key, b"meanwhile", Durability::Written).unwrap();
    }
}

#[test]
fn writes_beside_a_compaction_right_after_a_recovery_are_carried_over() {
    let disk = crashed(false);
    let store = open(&disk);
    let writes = Writes(store.namespace("trees").unwrap(), AtomicU32::new(0));
    store.compact(&CompactOptions::default(), &writes).unwrap();
    let written = writes.1.load(Ordering::Relaxed);
    assert!(written > 0, "nothing was written meanwhile");
    store.close().unwrap();
    drop((writes, store));
    let trees = open(&disk).namespace("trees").unwrap();
    for number in 0..written {
        let found = trees.get(&number.to_be_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&b"meanwhile"[..]));
    }
}
