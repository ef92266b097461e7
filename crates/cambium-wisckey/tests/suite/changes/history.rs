//! What consumers hold, and what goes.

use std::path::Path;

use cambium_api::{ChangeOptions, CompactOptions, Durability, EngineKind, Error, WriteBatch};
use cambium_io::simulated::SimulatedDisk;
use cambium_io::{Environment, OpenOptions};
use cambium_testkit::golden::contents;
use cambium_wisckey::Wisckey;

use super::support::*;

/// What a consumer at the start misses of overwritten values, if anything.
pub fn missed_by_a_consumer(changes: &[(&str, &str)]) -> Option<String> {
    let environment = Environment::memory();
    let store = create(&environment, &tiny(changes));
    store.move_consumer("slow", Some(FROM_THE_START)).unwrap();
    overwrite(&*store, 20);
    store.compact(&CompactOptions::default(), &()).unwrap();
    let mut following = store
        .changes(FROM_THE_START, ChangeOptions::default())
        .map_err(|error| error.to_string());
    let mut puts = 0;
    loop {
        match following.as_mut().map(|feed| feed.next()) {
            Ok(Ok(Some(_))) => puts += 1,
            Ok(Ok(None)) => break,
            Ok(Err(error)) => return Some(error.to_string()),
            Err(error) => return Some(error.clone()),
        }
    }
    (puts != 800).then(|| format!("{puts} of 800 puts"))
}

#[test]
fn collection_leaves_what_a_consumer_has_not_read_and_takes_it_afterwards() {
    assert_eq!(missed_by_a_consumer(&[]), None);
    for changes in [
        vec![],
        vec![("hole_bytes", "1"), ("segment_bytes", "32KiB")],
    ] {
        let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
        let options = tiny(&changes);
        let store = create(&environment, &options);
        store.move_consumer("slow", Some(FROM_THE_START)).unwrap();
        overwrite(&*store, 20);
        let held = number(&*store, "history_bytes");
        assert!(held > 19 * 40 * 100, "{held}");
        assert_eq!(number(&*store, "oldest_change"), 0);
        // Also in the next opening.
        store.close().unwrap();
        drop(store);
        let store = open(&environment, &options);
        work_until_idle(&*store);
        store.compact(&CompactOptions::default(), &()).unwrap();
        let all = changes_after(&*store, FROM_THE_START);
        assert_eq!(all.len(), 800);
        let mut shown = Vec::new();
        store.dump(&mut shown).unwrap();
        let shown = String::from_utf8(shown).unwrap();
        assert!(shown.contains("held for consumers"), "{shown}");
        assert!(shown.contains("consumer \"slow\""), "{shown}");
        // Half of it is not needed any more.
        let middle = all[400].last;
        store.move_consumer("slow", Some(middle)).unwrap();
        work_until_idle(&*store);
        assert_eq!(changes_after(&*store, middle).len(), 399);
        let lost = store.changes(FROM_THE_START, ChangeOptions::default());
        let Err(Error::HistoryLost { oldest }) = lost.map(drop) else {
            panic!("history is kept for nobody");
        };
        assert!(oldest > FROM_THE_START && oldest <= middle);
        assert_eq!(number(&*store, "oldest_change"), oldest.0);
        assert!(!changes_after(&*store, oldest).is_empty());
        let refused = store.move_consumer("late", Some(FROM_THE_START));
        assert!(matches!(refused, Err(Error::HistoryLost { .. })));
        // And then nothing.
        store.move_consumer("slow", None).unwrap();
        work_until_idle(&*store);
        assert_eq!(number(&*store, "history_bytes"), 0);
        store.compact(&CompactOptions::default(), &()).unwrap();
        let left = number(&*store, "value_log_garbage_bytes");
        assert!(left < 24 << 10, "{left} bytes of garbage are left");
        let report = Wisckey.check(&environment, Path::new(FOLDER), &Default::default(), &());
        assert!(report.is_err() || report.unwrap().is_sound());
    }
}

#[test]
fn a_feed_without_a_consumer_says_that_history_went_on_without_it() {
    let environment = Environment::memory();
    let store = create(&environment, &tiny(&[]));
    store.put(b"a", b"1", Durability::Written).unwrap();
    let mut behind = feed(&*store, FROM_THE_START);
    assert!(behind.next().unwrap().is_some());
    overwrite(&*store, 20);
    store.compact(&CompactOptions::default(), &()).unwrap();
    let Err(Error::HistoryLost { oldest }) = behind.next() else {
        panic!("everything was overwritten and collected");
    };
    let mut again = feed(&*store, oldest);
    drain(&mut *again);
    let put = store.put(b"a", b"2", Durability::Written).unwrap();
    assert_eq!(again.next().unwrap().unwrap().last, put);
    // History does not come back in the next opening.
    store.close().unwrap();
    drop(store);
    let store = open(&environment, &tiny(&[]));
    let lost = store.changes(FROM_THE_START, ChangeOptions::default());
    assert!(matches!(lost.map(drop), Err(Error::HistoryLost { .. })));
    assert!(!changes_after(&*store, oldest).is_empty());
}

#[test]
fn consumers_cost_no_more_than_history_bytes() {
    const MOST: u64 = 30 << 10;
    let environment = Environment::memory();
    let options = tiny(&[("history_bytes", "30720")]);
    let store = create(&environment, &options);
    store.move_consumer("slow", Some(FROM_THE_START)).unwrap();
    let mut following = feed(&*store, FROM_THE_START);
    for _ in 0..10 {
        overwrite(&*store, 5);
        let held = number(&*store, "history_bytes");
        assert!(held <= MOST, "{held}");
    }
    let garbage = number(&*store, "value_log_garbage_bytes");
    assert!(garbage < MOST * 2, "{garbage}");
    let Err(Error::HistoryLost { oldest }) = following.next() else {
        panic!("more than history_bytes is held");
    };
    let newest = store.snapshot().unwrap().sequence();
    assert!(newest.0 - oldest.0 > 100, "{oldest} to {newest}");
    assert!(!changes_after(&*store, oldest).is_empty());
    store.move_consumer("slow", Some(oldest)).unwrap();
    work_until_idle(&*store);
    assert!(!changes_after(&*store, oldest).is_empty());
}

#[test]
fn a_repair_removes_damaged_consumers_and_ends_history_with_the_tree() {
    let environment = Environment::memory();
    let folder = Path::new(FOLDER);
    let store = create(&environment, &tiny(&[]));
    store.move_consumer("c", Some(FROM_THE_START)).unwrap();
    overwrite(&*store, 3);
    store.close().unwrap();
    drop(store);
    let files = &environment.file_system;
    let list = folder.join("CONSUMERS");
    let file = files.open(&list, OpenOptions::WRITE).unwrap();
    file.write_at(b"x", 3).unwrap();
    assert!(
        Wisckey
            .open(&environment, folder, &options(&[]), &())
            .is_err()
    );
    let report = Wisckey.check(&environment, folder, &options(&[]), &());
    assert!(!report.unwrap().is_sound());
    let report = Wisckey.repair(&environment, folder, &options(&[]), &());
    assert!(format!("{report:?}").contains("the repair removes it"));
    let store = open(&environment, &tiny(&[]));
    assert_eq!(store.list_consumers().unwrap(), []);
    let all = changes_after(&*store, FROM_THE_START);
    assert!(lead_to(&all, &*store));
    store.close().unwrap();
    drop(store);
    // A tree from the log alone may have what was deleted.
    for entry in files.list(&folder.join("keys")).unwrap() {
        files.remove(&folder.join("keys").join(entry.name)).unwrap();
    }
    let report = Wisckey.repair(&environment, folder, &options(&[]), &());
    assert!(!report.unwrap().findings.is_empty());
    let store = open(&environment, &tiny(&[]));
    let newest = store.snapshot().unwrap().sequence();
    match store.changes(FROM_THE_START, ChangeOptions::default()) {
        Err(Error::HistoryLost { oldest }) => assert!(oldest <= newest),
        other => panic!("{}", other.is_ok()),
    }
    let mut following = feed(&*store, newest);
    let put = store.put(b"a", b"2", Durability::Written).unwrap();
    assert_eq!(following.next().unwrap().unwrap().last, put);
}

#[test]
fn damage_of_held_history_is_found_and_a_repair_ends_history_there() {
    let environment = Environment::memory();
    let folder = Path::new(FOLDER);
    let store = create(&environment, &tiny(&[]));
    store.move_consumer("c", Some(FROM_THE_START)).unwrap();
    overwrite(&*store, 5);
    let entries = contents(&*store);
    store.close().unwrap();
    drop(store);
    let files = &environment.file_system;
    let segment = folder.join("00000001.values");
    let file = files.open(&segment, OpenOptions::WRITE).unwrap();
    file.write_at(b"damage", 2000).unwrap();
    let check = || Wisckey.check(&environment, folder, &options(&[]), &());
    assert!(!check().unwrap().is_sound());
    let report = Wisckey.repair(&environment, folder, &options(&[]), &());
    assert_eq!(report.unwrap().findings.len(), 1);
    assert!(check().unwrap().is_sound());
    let store = open(&environment, &tiny(&[]));
    assert_eq!(contents(&*store), entries);
    let newest = store.snapshot().unwrap().sequence();
    let lost = store.changes(FROM_THE_START, ChangeOptions::default());
    match lost.map(drop) {
        Err(Error::HistoryLost { oldest }) => assert_eq!(oldest, newest),
        other => panic!("{other:?}"),
    }
}

/// Blocks of older writes go back before the consumer comes, in the segment in which the
/// next opening goes on.
#[test]
fn a_consumer_reads_on_behind_what_was_given_back_before_it_came() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let large = [("replay_bytes", "1MiB"), ("segment_bytes", "1MiB")];
    let options = tiny(&[&large[..], &[("hole_bytes", "1"), ("space_limit", "1000")]].concat());
    let store = create(&environment, &options);
    // The middle of a batch is overwritten, and goes.
    let mut batch = WriteBatch::new();
    for number in 0..40u8 {
        batch.put([number], [number; 200]);
    }
    store.write(batch, Durability::Written).unwrap();
    for number in 10..30u8 {
        store.put(&[number], b"", Durability::Written).unwrap();
    }
    overwrite(&*store, 3);
    store.close().unwrap();
    let store = open(&environment, &options);
    work_until_idle(&*store);
    assert!(number(&*store, "value_log_hole_bytes") > 4096);
    let newest = store.snapshot().unwrap().sequence();
    store.move_consumer("late", Some(newest)).unwrap();
    overwrite(&*store, 1);
    assert_eq!(changes_after(&*store, newest).len(), 40);
    store.close().unwrap();
    // The manifest counts all of the segment by now.
    let store = open(&environment, &options);
    assert_eq!(changes_after(&*store, newest).len(), 40);
    assert!(store.check(&()).unwrap().is_sound());
}
