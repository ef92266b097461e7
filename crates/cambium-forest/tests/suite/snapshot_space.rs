//! What named snapshots keep is no stale space: it starts no compaction that
//! would only carry it over once more, and comes back when the snapshot goes.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{CompactOptions, Durability, Engine, EngineKind, KeyRange, OptionValues};
use cambium_forest::Forest;
use cambium_io::{Environment, StepOutcome};
use cambium_testkit::stores::{self, number};

const MIB: u64 = 1 << 20;

fn options(threshold: &str) -> OptionValues {
    OptionValues::from([
        // So that the index knows soon what was deleted.
        ("write_buffer_entries", "64"),
        ("preallocate_bytes", "65536"),
        ("segment_bytes", "16KiB"),
        ("compaction_threshold", threshold),
        ("compaction_least_bytes", "65536"),
    ])
}

fn store() -> Arc<dyn Engine> {
    let options = options("50");
    let environment = Environment::memory();
    let store = stores::create(&Forest, &environment, &options);
    // 8 MiB under a snapshot, and all of it deleted.
    fill(&*store, 0..1024);
    store.create_named_snapshot("full").unwrap();
    let all = KeyRange::all();
    store.delete_range(all, Durability::Written).unwrap();
    store
}

/// Puts 8 KiB a key, the background at work in between.
fn fill(store: &dyn Engine, keys: impl Iterator<Item = u32>) {
    for key in keys {
        let value = vec![key as u8; 8 << 10];
        store
            .put(&key.to_be_bytes(), &value, Durability::Written)
            .unwrap();
        while store.step(MIB).unwrap() == StepOutcome::Again {}
    }
}

#[test]
fn a_snapshot_is_not_carried_over_again_and_again() {
    let store = store();
    // 6 MiB more, always the same few keys: less than what is kept.
    fill(&*store, (0..768).map(|round| 5000 + round % 16));
    assert_eq!(number(&*store, "compactions"), 0);
    assert!(number(&*store, "snapshot_bytes") >= 7 * MIB);
    let (stale, file) = (
        number(&*store, "stale_bytes"),
        number(&*store, "file_bytes"),
    );
    assert!(stale < file / 2, "{stale} of {file}");
    // More than is kept: now half of the file is stale.
    fill(&*store, (0..1100).map(|round| 5000 + round % 16));
    assert_eq!(number(&*store, "compactions"), 1);
    // The compaction has seen how much only the snapshot reaches.
    let kept = number(&*store, "snapshot_bytes");
    assert!((8 * MIB..9 * MIB).contains(&kept), "{kept}");
    store.rollback("full").unwrap();
    assert_eq!(store.get(&7u32.to_be_bytes()).unwrap().unwrap().len(), 8192);
}

#[test]
fn the_space_of_a_snapshot_is_stale_when_it_is_gone() {
    let store = store();
    fill(&*store, 5000..5016);
    assert_eq!(number(&*store, "compactions"), 0);
    store.drop_named_snapshot("full").unwrap();
    assert_eq!(number(&*store, "snapshot_bytes"), 0);
    assert!(number(&*store, "stale_bytes") > 7 * MIB);
    fill(&*store, 5000..5001);
    // Nothing is written any more.
    while store.step(MIB).unwrap() == StepOutcome::Again {}
    assert_eq!(number(&*store, "compactions"), 0);
    assert!(number(&*store, "cleanings") > 0);
    assert!(number(&*store, "file_bytes") < MIB);
}

#[test]
fn two_snapshots_of_the_same_state_count_once() {
    let store = store();
    store.rollback("full").unwrap();
    store.create_named_snapshot("again").unwrap();
    store.compact(&CompactOptions::default(), &()).unwrap();
    // All but their own trees is what the newest state has.
    assert!(number(&*store, "snapshot_bytes") < MIB / 2);
    assert!(number(&*store, "stale_bytes") < MIB);
}

#[test]
fn what_is_overwritten_under_a_snapshot_starts_no_compaction_in_this_opening_or_the_next() {
    let options = options("30");
    let environment = Environment::memory();
    let path = Path::new("/store");
    let mut store = Forest.create(&environment, path, &options).unwrap();
    fill(&*store, 0..1024);
    store.create_named_snapshot("full").unwrap();
    // Each key once more: what it had is the snapshot's, half of the file.
    fill(&*store, 0..1024);
    assert_eq!(number(&*store, "compactions"), 0);
    // As much as there was of it when it was looked at last.
    let kept = number(&*store, "snapshot_bytes");
    assert!((3 * MIB..9 * MIB).contains(&kept), "{kept}");
    drop(store);
    let mut tuning = options.clone();
    tuning.take("preallocate_bytes").unwrap();
    store = Forest.open(&environment, path, &tuning, &()).unwrap();
    fill(&*store, (0..300).map(|round| 5000 + round % 16));
    assert_eq!(number(&*store, "compactions"), 0);
    let kept = number(&*store, "snapshot_bytes");
    assert!((7 * MIB..9 * MIB).contains(&kept), "{kept}");
    // What nobody keeps is stale all the same.
    fill(&*store, (0..1400).map(|round| 5000 + round % 16));
    assert_eq!(number(&*store, "compactions"), 1);
    store.rollback("full").unwrap();
    assert_eq!(store.get(&7u32.to_be_bytes()).unwrap().unwrap().len(), 8192);
}

#[test]
fn what_snapshots_share_is_read_and_written_once() {
    let environment = Environment::memory();
    let options = options("100");
    let store = stores::create(&Forest, &environment, &options);
    fill(&*store, 0..512);
    for round in 0..8u32 {
        store
            .create_named_snapshot(&format!("round {round}"))
            .unwrap();
        // A few keys of each round go or come.
        fill(&*store, 64 * round..64 * round + 4);
        store
            .delete(&(64 * round + 9).to_be_bytes(), Durability::Written)
            .unwrap();
        fill(&*store, 9000 + round..9001 + round);
    }
    let documents = 512 + 8 * 5;
    let report = store.compact(&CompactOptions::default(), &()).unwrap();
    assert_eq!(report.documents, documents);
    let bytes = documents * (8 << 10);
    assert!(report.bytes_read < bytes * 5 / 4, "{}", report.bytes_read);
    assert!(
        report.bytes_written < bytes * 5 / 4,
        "{}",
        report.bytes_written
    );
    assert_eq!(store.check(&()).unwrap().findings, []);
    for round in [5u32, 0, 7] {
        store.rollback(&format!("round {round}")).unwrap();
        let there = |key: u32| store.get(&key.to_be_bytes()).unwrap().is_some();
        assert!((0..512).all(|key| there(key) == (key % 64 != 9 || key / 64 >= round)));
        assert!((0..8).all(|other| there(9000 + other) == (other < round)));
    }
}

#[test]
fn a_store_that_is_empty_but_for_a_snapshot_comes_to_rest() {
    let environment = Environment::memory();
    let options = options("30");
    let store = stores::create(&Forest, &environment, &options);
    let gone = store.namespace("gone").unwrap();
    for round in 0..5u32 {
        for key in 0..256u32 {
            let value = vec![round as u8; 8 << 10];
            gone.put(&key.to_be_bytes(), &value, Durability::Written)
                .unwrap();
        }
    }
    store.create_named_snapshot("full").unwrap();
    drop(gone);
    store.drop_namespace("gone").unwrap();
    // Nothing is live, and a fifth is kept: looked at once, and compacted once.
    let again = |_: &u32| store.step(MIB).unwrap() == StepOutcome::Again;
    let steps = (0..20_000u32).take_while(again).count();
    assert!(steps < 20_000, "it never comes to rest");
    for _ in 0..20 {
        // A compaction nobody writes beside goes at its own pace.
        std::thread::sleep(std::time::Duration::from_millis(5));
        (0..20_000u32).take_while(again).count();
    }
    assert_eq!(number(&*store, "compactions"), 1);
    assert!(number(&*store, "file_bytes") < 3 * MIB);
}

#[test]
fn snapshots_that_come_and_go_do_not_keep_compactions_from_beginning() {
    let environment = Environment::memory();
    let options = options("30");
    let store = stores::create(&Forest, &environment, &options);
    store.create_named_snapshot("0").unwrap();
    // Between any two steps of the background one is dropped.
    for round in 1..1500u32 {
        for key in 0..8u32 {
            let key = (round * 8 + key) % 1024;
            store
                .put(&key.to_be_bytes(), &[7; 4096], Durability::Written)
                .unwrap();
        }
        store.create_named_snapshot(&round.to_string()).unwrap();
        store.drop_named_snapshot(&(round - 1).to_string()).unwrap();
        store.step(MIB).unwrap();
    }
    assert!(number(&*store, "compactions") > 0);
    assert!(number(&*store, "file_bytes") < 40 * MIB);
}
