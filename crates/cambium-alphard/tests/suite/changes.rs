//! The change feed of stores with history: it shows what was committed through reopening, scans
//! and reuse of space, and consumers keep what they have not read.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use cambium_alphard::Alphard;
use cambium_api::{
    ChangeBatch, ChangeOptions, CompactOptions, Durability, Engine, EngineKind, Error, Operation,
    OptionValues, SequenceNumber, WriteBatch,
};
use cambium_io::Environment;
use cambium_io::simulated::{
    ErrorNumber, Fault, FaultRule, Generator, OperationClass, SimulatedDisk,
};
use cambium_io::sync::schedule::Schedule;
use cambium_io::sync::{scheduler, thread};
use cambium_testkit::counted::Counted;
use cambium_testkit::stores;

const FOLDER: &str = "/store";
const START: SequenceNumber = SequenceNumber(0);
const SYNCED: ChangeOptions = ChangeOptions { synced_only: true };

fn creation(more: &[(&str, &str)]) -> OptionValues {
    let small = [
        ("history", "on"),
        ("size", "16MiB"),
        ("block_bytes", "512"),
        ("extend_bytes", "16384"),
    ];
    stores::options(&[&small, more])
}

fn create(environment: &Environment, more: &[(&str, &str)]) -> Arc<dyn Engine> {
    stores::create(&Alphard, environment, &creation(more))
}

fn open(environment: &Environment, options: &[(&str, &str)]) -> Arc<dyn Engine> {
    stores::open(&Alphard, environment, &OptionValues::from(options))
}

fn changes_after(store: &dyn Engine, after: SequenceNumber) -> Vec<ChangeBatch> {
    let mut feed = store.changes(after, ChangeOptions::default()).unwrap();
    std::iter::from_fn(|| feed.next().unwrap()).collect()
}

fn oldest_change(store: &dyn Engine) -> SequenceNumber {
    SequenceNumber(store.stats().unwrap().number("oldest_change").unwrap())
}

/// Batches that were written: the last number, and the last operation of each key.
struct Writing {
    random: Generator,
    keys: BTreeSet<Vec<u8>>,
    written: Vec<(SequenceNumber, Vec<Operation>)>,
}

impl Writing {
    fn new(seed: u64) -> Self {
        Writing {
            random: Generator::new(seed),
            keys: BTreeSet::new(),
            written: Vec::new(),
        }
    }

    /// Keys within their slots, keys that end in the first block, and keys that do not.
    fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(60);
        let length = *self.random.pick(&[3, 30, 443, 444, 445, 1500]);
        let mut key = format!("{number:02} ").into_bytes();
        key.resize(length, b'k');
        key
    }

    fn write(&mut self, store: &dyn Engine) {
        let mut batch = WriteBatch::new();
        let mut operations: Vec<Operation> = Vec::new();
        let mut used = BTreeSet::new();
        for _ in 0..1 + self.random.below(4) {
            let key = self.key();
            if !used.insert(key.clone()) {
                continue;
            }
            if self.random.chance(1, 3) {
                batch.delete(&key);
                if self.keys.remove(&key) {
                    operations.push(Operation::Delete { key });
                }
            } else {
                let length = *self.random.pick(&[0, 5, 100, 600, 5_000]);
                let value = vec![self.random.below(256) as u8; length];
                batch.put(&key, &value);
                self.keys.insert(key.clone());
                operations.push(Operation::Put { key, value });
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

    /// The batches after the first so many are shown, no more and no less.
    fn is_shown(&self, batches: &[ChangeBatch], skipped: usize) {
        let written = &self.written[skipped..];
        assert_eq!(batches.len(), written.len());
        for (batch, (last, operations)) in batches.iter().zip(written) {
            assert_eq!(batch.last, *last);
            assert_eq!(batch.first.0 + batch.changes.len() as u64 - 1, last.0);
            let shown = batch.changes.iter().map(|change| &change.operation);
            assert!(shown.eq(operations), "write {last}");
        }
    }
}

#[test]
fn every_batch_is_shown_as_it_was_written_through_reopening() {
    for (seed, more) in [(1, &[][..]), (2, &[("mirror", "mirror")]), (3, &[])] {
        let environment = Environment::simulated(&SimulatedDisk::new(seed), seed);
        let mut store = create(&environment, more);
        store.move_consumer("all", Some(START)).unwrap();
        let mut writing = Writing::new(seed);
        for round in 0..6 {
            // What a snapshot keeps when the store is closed is history too.
            let snapshot = store.snapshot().unwrap();
            for _ in 0..120 {
                writing.write(&*store);
            }
            if round == 3 {
                store.compact(&CompactOptions::default(), &()).unwrap();
            }
            let all = changes_after(&*store, START);
            writing.is_shown(&all, 0);
            for skipped in (0..all.len()).step_by(37) {
                let batch = &all[skipped];
                let before = SequenceNumber(batch.first.0 - 1);
                writing.is_shown(&changes_after(&*store, before), skipped);
                let within = SequenceNumber(batch.last.0 - 1);
                writing.is_shown(&changes_after(&*store, within), skipped);
                writing.is_shown(&changes_after(&*store, batch.last), skipped + 1);
            }
            match round % 2 {
                0 => store.close().unwrap(),
                // The next opening scans.
                _ => store.sync().unwrap(),
            }
            drop(snapshot);
            drop(store);
            store = open(&environment, &[]);
            let mut synced = store.changes(START, SYNCED).unwrap();
            let synced: Vec<_> = std::iter::from_fn(|| synced.next().unwrap()).collect();
            writing.is_shown(&synced, 0);
            assert!(store.check(&()).unwrap().is_sound());
        }
    }
}

#[test]
fn a_store_without_history_names_the_option() {
    let environment = Environment::memory();
    let store = create(&environment, &[("history", "off")]);
    for refused in [
        store.changes(START, SYNCED).map(drop),
        store.list_consumers().map(drop),
        store.move_consumer("c", None),
    ] {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("history=on"), "{text}");
    }
    assert!(!store.capabilities().changes);
}

#[test]
fn history_ends_at_its_limit_and_space_is_used_again() {
    let environment = Environment::memory();
    create(&environment, &[("size", "1MiB")]).close().unwrap();
    let store = open(&environment, &[("history_bytes", "131072")]);
    store.move_consumer("slow", Some(START)).unwrap();
    // Ten times what the store has room for.
    for number in 0..10_000u32 {
        let (key, value) = ((number % 50).to_be_bytes(), [number as u8; 900]);
        store.put(&key, &value, Durability::Written).unwrap();
    }
    let Err(Error::HistoryLost { oldest }) = store.changes(START, SYNCED).map(drop) else {
        panic!("more is kept than history_bytes");
    };
    assert_eq!(oldest, oldest_change(&*store));
    // An entry takes a KiB; the next write loses what the last one is too much.
    let kept = changes_after(&*store, oldest).len();
    assert!((100..=129).contains(&kept), "{kept}");
    let slow = store.move_consumer("slow", Some(START));
    assert!(matches!(slow, Err(Error::HistoryLost { .. })));
    store.close().unwrap();
    let mut text = Vec::new();
    let folder = Path::new(FOLDER);
    Alphard.inspect(&environment, folder, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("\"slow\" has read up to write 0"), "{text}");
    // The same through a reopening; less where less is to be kept.
    let store = open(&environment, &[("history_bytes", "131072")]);
    let again = changes_after(&*store, oldest_change(&*store)).len();
    assert!((kept - 1..=kept).contains(&again), "{again}");
    store.close().unwrap();
    let store = open(&environment, &[("history_bytes", "10240")]);
    store.put(b"one more", b"", Durability::Synced).unwrap();
    let kept = changes_after(&*store, oldest_change(&*store)).len();
    assert!((5..=10).contains(&kept), "{kept}");
}

#[test]
fn a_store_that_a_consumer_fills_says_so_and_goes_on_when_it_has_read() {
    let environment = Environment::memory();
    let store = create(&environment, &[("size", "1MiB")]);
    store.move_consumer("slow", Some(START)).unwrap();
    let put = |number: u32| {
        let (key, value) = (number % 50, [number as u8; 900]);
        store.put(&key.to_be_bytes(), &value, Durability::Written)
    };
    let refused = (0..10_000).find_map(|number| put(number).err()).unwrap();
    assert!(refused.is_no_space(), "{refused}");
    assert!(refused.to_string().contains("consumers"), "{refused}");
    let all = changes_after(&*store, START);
    assert!(all.len() > 900, "{}", all.len());
    let last = all[all.len() - 1].last;
    store.move_consumer("slow", Some(last)).unwrap();
    (0..900).for_each(|number| _ = put(number).unwrap());
    assert_eq!(changes_after(&*store, last).len(), 900);
    // Without a consumer all of them.
    store.move_consumer("slow", None).unwrap();
    (0..10_000).for_each(|number| _ = put(number).unwrap());
}

#[test]
fn a_reader_without_a_consumer_may_be_a_little_behind() {
    let environment = Environment::memory();
    let store = create(&environment, &[]);
    let mut after = START;
    for round in 0..100u8 {
        for key in 0..50u8 {
            store
                .put(&[key], &[round; 900], Durability::Synced)
                .unwrap();
        }
        let batches = changes_after(&*store, after);
        assert_eq!(batches.len(), 50, "round {round}");
        after = batches[49].last;
    }
    assert!(oldest_change(&*store) > START);
    store.compact(&CompactOptions::default(), &()).unwrap();
    assert!(store.changes(SequenceNumber(4_000), SYNCED).is_err());
}

/// What a recovery after a crash says of the change of an entry that was given back, and
/// discarded but for its header.
fn of_a_discarded_entry(bug: &[(&str, &str)]) -> Option<Error> {
    let environment = Environment::memory();
    let store = create(&environment, &[("discard_bytes", "4096")]);
    store.put(b"oak", b"Quercus", Durability::Synced).unwrap();
    let long = [7; 10_000];
    store.put(b"elm", &long, Durability::Synced).unwrap();
    store.put(b"elm", b"Ulmus", Durability::Synced).unwrap();
    store.compact(&CompactOptions::default(), &()).unwrap();
    assert!(store.stats().unwrap().number("discarded_bytes") > Some(0));
    drop(store);
    let store = open(&environment, bug);
    let mut feed = match store.changes(START, SYNCED) {
        Ok(feed) => feed,
        Err(error) => return Some(error),
    };
    std::iter::from_fn(|| feed.next().transpose()).find_map(Result::err)
}

#[test]
fn entries_that_are_not_whole_are_no_history() {
    let found = of_a_discarded_entry(&[]);
    let lost = |error: &Error| matches!(error, Error::HistoryLost { oldest } if oldest.0 >= 2);
    assert!(found.as_ref().is_some_and(lost), "{found:?}");
    let found = of_a_discarded_entry(&[("seeded_bug", "history_unverified")]);
    assert!(found.is_some_and(|error| error.is_corruption()));
}

#[test]
fn a_repair_that_loses_an_entry_ends_history() {
    let disk = SimulatedDisk::new(4);
    let environment = Environment::simulated(&disk, 4);
    let store = create(&environment, &[("size", "65536")]);
    store.move_consumer("all", Some(START)).unwrap();
    for key in 0..10u8 {
        store.put(&[key], &[key; 300], Durability::Synced).unwrap();
    }
    store.close().unwrap();
    let data = Path::new("/store/data");
    let mut bytes = disk.contents(data).unwrap();
    // In the value of the third entry.
    bytes[8192 + 2 * 512 + 200] ^= 1;
    assert!(disk.replace_contents(data, &bytes));
    let (folder, options) = (Path::new(FOLDER), OptionValues::default());
    let report = Alphard.repair(&environment, folder, &options, &()).unwrap();
    assert!(!report.is_sound());
    for _ in 0..2 {
        let store = open(&environment, &[]);
        assert_eq!(oldest_change(&*store), SequenceNumber(10));
        let all = store.changes(START, SYNCED).map(drop);
        assert!(matches!(all, Err(Error::HistoryLost { .. })));
        let mut feed = store.changes(SequenceNumber(10), SYNCED).unwrap();
        assert_eq!(feed.next().unwrap(), None);
    }
}

#[test]
fn a_damaged_list_of_consumers_is_named_and_a_repair_removes_it() {
    let environment = Environment::memory();
    let store = create(&environment, &[]);
    store.put(b"oak", b"Quercus", Durability::Synced).unwrap();
    store.move_consumer("all", Some(START)).unwrap();
    store.close().unwrap();
    let files = &environment.file_system;
    let list = files
        .open(
            Path::new("/store/CONSUMERS"),
            cambium_io::OpenOptions::WRITE,
        )
        .unwrap();
    list.write_at(b"X", 30).unwrap();
    let (folder, options) = (Path::new(FOLDER), OptionValues::default());
    let opened = Alphard.open(&environment, folder, &options, &()).map(drop);
    assert!(opened.unwrap_err().is_corruption());
    assert!(
        !Alphard
            .check(&environment, folder, &options, &())
            .unwrap()
            .is_sound()
    );
    Alphard.repair(&environment, folder, &options, &()).unwrap();
    let store = open(&environment, &[]);
    assert_eq!(store.list_consumers().unwrap(), []);
}

#[test]
fn damage_in_a_change_is_answered_and_found_by_a_check() {
    let disk = SimulatedDisk::new(4);
    let environment = Environment::simulated(&disk, 4);
    let store = create(&environment, &[("size", "65536")]);
    store.move_consumer("all", Some(START)).unwrap();
    for round in 0..2u8 {
        store
            .put(b"oak", &[round; 300], Durability::Synced)
            .unwrap();
    }
    let data = Path::new("/store/data");
    let mut bytes = disk.contents(data).unwrap();
    bytes[8192 + 200] ^= 1;
    assert!(disk.replace_contents(data, &bytes));
    let mut feed = store.changes(START, SYNCED).unwrap();
    assert!(feed.next().unwrap_err().is_corruption());
    assert!(!store.check(&()).unwrap().is_sound());
    assert_eq!(store.get(b"oak").unwrap().unwrap(), [1; 300]);
}

#[test]
fn a_feed_reads_each_entry_once_and_of_a_deleted_one_a_block() {
    let device = Counted::new();
    let store = create(&device.environment, &[]);
    store.move_consumer("all", Some(START)).unwrap();
    for key in 0..200u8 {
        let value = vec![key; 40_000];
        store.put(&[key], &value, Durability::Written).unwrap();
    }
    let last = store.put(b"last", b"", Durability::Synced).unwrap();
    for key in 0..200u8 {
        store.delete(&[key], Durability::Written).unwrap();
    }
    store.sync().unwrap();
    let entry_bytes = 79 * 512;
    let done = device.during(|| assert_eq!(changes_after(&*store, START).len(), 401));
    assert_eq!(done.bytes_read, 200 * entry_bytes + 201 * 512);
    let done = device.during(|| assert_eq!(changes_after(&*store, last).len(), 200));
    assert_eq!(
        (done.bytes_read, done.writes, done.syncs),
        (200 * 512, 0, 0)
    );
}

/// A follower of a store whose writes fail, beside its close; answers what is damaged.
fn follow_beside_a_close(seed: u64) -> Option<Error> {
    let disk = SimulatedDisk::new(seed);
    let store = create(&Environment::simulated(&disk, seed), &[]);
    let put = |at: u8| store.put(&[at; 20], &[at; 100], Durability::Buffered);
    (0..5).for_each(|at| _ = put(at).unwrap());
    disk.inject(FaultRule {
        class: OperationClass::Write,
        nth: 1,
        forever: true,
        fault: Fault::Error(ErrorNumber::InputOutput),
    });
    let follower = store.clone();
    let follower = thread::spawn(move || {
        let mut feed = follower.changes(START, ChangeOptions::default()).ok()?;
        loop {
            match feed.next() {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some(error),
            }
        }
    });
    _ = store.close();
    follower
        .join()
        .unwrap()
        .filter(|error| matches!(error, Error::Corruption { .. }))
}

#[test]
fn a_follower_beside_a_close_that_fails_meets_no_damage() {
    for seed in 0..200 {
        let run = scheduler::run(Schedule::random(seed), move || follow_beside_a_close(seed));
        let damage = run.outcome.unwrap();
        assert!(damage.is_none(), "seed {seed}: {damage:?}");
    }
}
