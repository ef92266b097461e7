//! A store that is dropped without a close lets everything go, whatever it was at.

use std::path::Path;

use cambium_api::{Durability, EngineKind, OptionValues};
use cambium_forest::Forest;
use cambium_io::Environment;

#[test]
fn a_store_dropped_amid_a_compaction_can_be_opened_again() {
    let environment = Environment::memory();
    let path = Path::new("/store");
    let options = OptionValues::from([
        ("write_buffer_entries", "50"),
        ("preallocate_bytes", "4096"),
        ("segment_bytes", "16KiB"),
        ("compaction_threshold", "10"),
        ("compaction_least_bytes", "1000"),
        ("cleaning", "off"),
        ("compaction_memory_bytes", "8192"),
    ]);
    let store = Forest.create(&environment, path, &options).unwrap();
    for round in 0..4u8 {
        for number in 0..200u32 {
            let value = [round; 300];
            store
                .put(&number.to_be_bytes(), &value, Durability::Synced)
                .unwrap();
        }
    }
    let files = || {
        let all = environment.file_system.list(path).unwrap();
        let named = all.iter().map(|file| file.name.to_string_lossy());
        named.filter(|name| name.ends_with(".forest")).count()
    };
    // The new file is there: the compaction has begun, and is not done.
    while files() == 1 {
        store.step(100).unwrap();
    }
    assert_eq!(store.stats().unwrap().number("compactions"), Some(0));
    drop(store);
    let store = Forest.open(&environment, path, &options, &()).unwrap();
    assert_eq!(
        store.get(&7u32.to_be_bytes()).unwrap().as_deref(),
        Some(&[3; 300][..])
    );
    assert_eq!(files(), 1, "the file of the compaction is removed");
    store.close().unwrap();
}
