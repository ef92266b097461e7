//! What reads and writes cost, as `stats` tells it.

use cambium_api::{
    Direction, Durability, Engine, EngineKind, KeyRange, OptionValues, StatisticValue,
};
use cambium_io::Environment;
use cambium_wisckey::Wisckey;

const KEYS: u64 = 400;

fn read_amplification(store: &dyn Engine) -> Option<f64> {
    let statistics = store.stats().unwrap();
    let found = statistics
        .entries
        .iter()
        .find(|entry| entry.name == "read_amplification");
    match found.map(|entry| &entry.value) {
        Some(StatisticValue::Ratio(ratio)) => Some(*ratio),
        _ => None,
    }
}

#[test]
fn bytes_read_are_told_by_bytes_answered() {
    let mut options = OptionValues::default();
    // Nothing is kept: each lookup is a read.
    options.set("cache_bytes", "0");
    let environment = Environment::memory();
    let path = std::path::Path::new("/store");
    let store = Wisckey.create(&environment, path, &options).unwrap();
    for number in 0..KEYS {
        let value = vec![number as u8; 1000];
        store
            .put(&number.to_be_bytes(), &value, Durability::Written)
            .unwrap();
    }
    assert_eq!(read_amplification(&*store), None, "nobody has read");
    for number in 0..KEYS {
        let value = store.get(&number.to_be_bytes()).unwrap().unwrap();
        assert_eq!(value.len(), 1000);
    }
    // A record is its key and value, a header, and padding.
    let looked_up = read_amplification(&*store).unwrap();
    assert!((1.01..1.05).contains(&looked_up), "{looked_up}");
    let range = KeyRange::all();
    let mut cursor = store.scan(&range, Direction::Forward).unwrap();
    cursor.next().unwrap().unwrap();
    drop(cursor);
    // One entry of a walk, and the stretch that came along.
    let walked = read_amplification(&*store).unwrap();
    assert!(walked > looked_up && walked < 2.0, "{walked}");
    store.close().unwrap();
}

#[test]
fn bytes_written_count_padding_and_what_a_close_flushed() {
    let environment = Environment::memory();
    let path = std::path::Path::new("/store");
    let number = |store: &dyn Engine, name: &str| store.stats().unwrap().number(name).unwrap();
    let mut options = OptionValues::default();
    options.set("collection", "off");
    let store = Wisckey.create(&environment, path, &options).unwrap();
    for number in 0..7u32 {
        store
            .put(&number.to_be_bytes(), b"a value", Durability::Synced)
            .unwrap();
    }
    // Each of them has a block to itself.
    let log = number(&*store, "log_bytes_written");
    assert_eq!(log, 7 * 4096);
    store.close().unwrap();
    let store = Wisckey.open(&environment, path, &options, &()).unwrap();
    assert_eq!(number(&*store, "log_bytes_written"), log);
    let tree = number(&*store, "tree_bytes_written");
    assert!(tree >= number(&*store, "tree_bytes") && tree > 0, "{tree}");
    store.close().unwrap();
}
