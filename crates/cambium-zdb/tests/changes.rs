//! The change feed of `zdb`: over both kinds of keys, many files and tables, crashes,
//! compactions and threads, with defaults and with options so small that every path is met.
//! Each seeded bug of the feed must be found by one of these programs.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    ChangeBatch, ChangeFeed, ChangeOptions, CompactOptions, Durability, Engine, EngineKind, Error,
    IterationOrder, Operation, OptionValues, Reader, SequenceNumber, WriteBatch,
};
use cambium_io::Environment;
use cambium_io::simulated::{CrashStyle, Generator, SimulatedDisk};
use cambium_testkit::counted::Counted;
use cambium_zdb::Zdb;

const PATH: &str = "/store";
const ALL: ChangeOptions = ChangeOptions { synced_only: false };
const SYNCED: ChangeOptions = ChangeOptions { synced_only: true };
const KINDS: [&str; 2] = ["integer", "string"];

const DURABILITIES: [Durability; 3] = [
    Durability::Buffered,
    Durability::Written,
    Durability::Synced,
];

type Outcome = Result<(), String>;
type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Tables of 64 keys in 3 files each, splits after 2 keys, checkpoints every 4 KiB.
const SMALL: [(&str, &str); 9] = [
    ("keys_per_table", "64"),
    ("piece_bytes", "256"),
    ("block_bytes", "256"),
    ("data_files", "3"),
    ("commit_log_bytes", "2048"),
    ("buckets", "2"),
    ("open_tables", "2"),
    ("compaction_least_bytes", "0"),
    ("checkpoint_bytes", "4096"),
];
/// Of those, the ones of an opening.
const SMALL_OPENING: usize = 6;

#[derive(Clone, Copy)]
struct Setting {
    keys: &'static str,
    is_small: bool,
    bug: Option<&'static str>,
}

impl Setting {
    fn opening(&self) -> OptionValues {
        let small = match self.is_small {
            true => &SMALL[SMALL_OPENING..],
            false => &[],
        };
        let mut options = OptionValues::from(small);
        options.set("sparse_tables", "100000");
        if let Some(bug) = self.bug {
            options.set("seeded_bug", bug);
        }
        options
    }

    fn create(&self, environment: &Environment) -> Arc<dyn Engine> {
        let mut options = self.opening();
        options.set("keys", self.keys);
        if self.is_small {
            for (name, value) in &SMALL[..SMALL_OPENING] {
                options.set(name, value);
            }
        }
        Zdb.create(environment, Path::new(PATH), &options).unwrap()
    }

    fn open(&self, environment: &Environment) -> Result<Arc<dyn Engine>, String> {
        let opened = Zdb.open(environment, Path::new(PATH), &self.opening(), &());
        opened.map_err(|error| format!("open: {error}"))
    }

    fn key(&self, number: u64) -> Vec<u8> {
        match self.keys {
            "integer" => number.to_be_bytes().to_vec(),
            _ => format!("key {number}").into_bytes(),
        }
    }
}

/// All settings without a bug.
fn settings() -> impl Iterator<Item = Setting> {
    KINDS.into_iter().flat_map(|keys| {
        [true, false].map(|is_small| Setting {
            keys,
            is_small,
            bug: None,
        })
    })
}

fn text<T>(result: cambium_api::Result<T>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn apply(contents: &mut Contents, batch: &ChangeBatch) {
    for change in &batch.changes {
        match &change.operation {
            Operation::Put { key, value } => _ = contents.insert(key.clone(), value.clone()),
            Operation::Delete { key } => _ = contents.remove(key),
            Operation::DeleteRange { .. } => panic!("zdb reports ranges as their keys"),
        }
    }
}

/// Everything that a feed has now, in order.
fn drain(feed: &mut dyn ChangeFeed) -> Result<Vec<ChangeBatch>, String> {
    let mut batches: Vec<ChangeBatch> = Vec::new();
    while let Some(batch) = text(feed.next())? {
        let before = batches.last().map_or(0, |batch| batch.last.0);
        if batch.first.0 <= before || batch.last < batch.first {
            return Err(format!(
                "batch {}..{} after {before}",
                batch.first, batch.last
            ));
        }
        batches.push(batch);
    }
    Ok(batches)
}

fn changes(store: &dyn Engine, after: u64) -> Result<Vec<ChangeBatch>, String> {
    drain(&mut *text(store.changes(SequenceNumber(after), ALL))?)
}

fn contents(store: &dyn Reader) -> Result<Contents, String> {
    let mut cursor = text(store.iterate(IterationOrder::Any, None))?;
    let mut contents = Contents::new();
    while let Some(entry) = text(cursor.next())? {
        contents.insert(entry.key.to_vec(), entry.value.to_vec());
    }
    Ok(contents)
}

/// The batches without the mark of what is synced, which changes.
fn unmarked(batches: &[ChangeBatch]) -> Vec<ChangeBatch> {
    let unmarked = |batch: &ChangeBatch| ChangeBatch {
        synced: false,
        ..batch.clone()
    };
    batches.iter().map(unmarked).collect()
}

fn compact(store: &dyn Engine) -> Outcome {
    text(store.compact(&CompactOptions::default(), &())).map(|_| ())
}

/// Writes a random batch of puts and deletes, over several tables and files; answers its
/// last number and the final change of each key.
fn write_random(
    setting: &Setting,
    store: &dyn Engine,
    random: &mut Generator,
    (keys, durabilities): (u64, &[Durability]),
) -> Result<(u64, Contents), String> {
    let mut batch = WriteBatch::new();
    let mut expected = Contents::new();
    for _ in 0..1 + random.below(6) {
        let key = setting.key(random.below(keys));
        if random.chance(1, 4) {
            batch.delete(&key);
            expected.insert(key, b"deleted".to_vec());
        } else {
            let value = vec![random.below(256) as u8; random.below(90) as usize];
            batch.put(&key, &value);
            expected.insert(key, [b"put", &value[..]].concat());
        }
    }
    let last = text(store.write(batch, *random.pick(durabilities)))?;
    Ok((last.0, expected))
}

/// The final change of each key of a batch.
fn final_changes(batch: &ChangeBatch) -> Contents {
    let changes = batch.changes.iter().map(|change| match &change.operation {
        Operation::Put { key, value } => (key.clone(), [b"put", &value[..]].concat()),
        Operation::Delete { key } => (key.clone(), b"deleted".to_vec()),
        Operation::DeleteRange { .. } => panic!("zdb reports ranges as their keys"),
    });
    changes.collect()
}

/// Random batches, with compactions, steps and reopenings between them, read by a feed that
/// stays and by feeds from anywhere.
fn followed(setting: Setting, seed: u64) -> Outcome {
    let environment = Environment::memory();
    let mut random = Generator::new(seed);
    let mut store = setting.create(&environment);
    text(store.move_consumer("test", Some(SequenceNumber::ZERO)))?;
    let mut written: BTreeMap<u64, Contents> = BTreeMap::new();
    let mut feed = text(store.changes(SequenceNumber::ZERO, ALL))?;
    let mut shown = Vec::new();
    for _ in 0..120 {
        let (last, expected) = write_random(&setting, &*store, &mut random, (300, &DURABILITIES))?;
        written.entry(last).or_insert(expected);
        match random.below(12) {
            0 => compact(&*store)?,
            1 => _ = text(store.step(1 << 20))?,
            2 => {
                text(store.close())?;
                store = setting.open(&environment)?;
                let at = shown.last().map_or(0, |batch: &ChangeBatch| batch.last.0);
                feed = text(store.changes(SequenceNumber(at), ALL))?;
            }
            3..6 => shown.extend(drain(&mut *feed)?),
            _ => {}
        }
    }
    shown.extend(drain(&mut *feed)?);
    for batch in &shown {
        // Deletes of keys that are not there are no changes.
        let changes = final_changes(batch);
        let of_write = written
            .get(&batch.last.0)
            .ok_or("a batch that nobody wrote")?;
        let missing = of_write
            .iter()
            .filter(|(key, _)| !changes.contains_key(*key));
        if missing.into_iter().any(|(_, change)| change != b"deleted")
            || changes
                .iter()
                .any(|(key, change)| of_write.get(key) != Some(change))
        {
            return Err(format!(
                "batch {}..{} is another one",
                batch.first, batch.last
            ));
        }
    }
    let mut applied = Contents::new();
    shown.iter().for_each(|batch| apply(&mut applied, batch));
    if applied != contents(&*store)? {
        return Err("the changes make other contents".to_string());
    }
    for _ in 0..20 {
        let after = random.below(shown.last().map_or(0, |batch| batch.last.0) + 1);
        let rest = shown.iter().filter(|batch| batch.last.0 > after);
        let rest: Vec<ChangeBatch> = rest.cloned().collect();
        if unmarked(&changes(&*store, after)?) != unmarked(&rest) {
            return Err(format!("other changes after {after}"));
        }
    }
    Ok(())
}

#[test]
fn batches_come_whole_and_in_order_through_compactions_and_reopenings() {
    for setting in settings() {
        for seed in 1..=12 {
            let outcome = followed(setting, seed);
            assert_eq!(
                outcome,
                Ok(()),
                "{} {} {seed}",
                setting.keys,
                setting.is_small
            );
        }
    }
}

/// Crashes everywhere: what a feed of synced batches showed stays, and the feed of the
/// recovered store shows what is in it and nothing else.
fn crashed(setting: Setting, seed: u64) -> Outcome {
    let mut random = Generator::new(seed);
    let mut disk = SimulatedDisk::new(seed);
    let mut store = setting.create(&Environment::simulated(&disk, seed));
    text(store.move_consumer("test", Some(SequenceNumber::ZERO)))?;
    let mut shown: Vec<ChangeBatch> = Vec::new();
    for round in 0..6 {
        let at = shown.last().map_or(0, |batch| batch.last.0);
        let mut feed = text(store.changes(SequenceNumber(at), SYNCED))?;
        // Of entries that are synced in a commit log alone, a crash may leave any in the
        // data files. The fewer there are, the more of the entries each holds.
        let durabilities = &DURABILITIES[random.below(2) as usize * 2..];
        let drawn = (*random.pick(&[12, 300]), durabilities);
        for _ in 0..random.below(25) {
            write_random(&setting, &*store, &mut random, drawn)?;
            match random.below(12) {
                0 => compact(&*store)?,
                1 => _ = text(store.step(1 << 20))?,
                _ => shown.extend(drain(&mut *feed)?),
            }
        }
        disk = match random.chance(1, 4) {
            true => disk.process_crash(),
            false => disk.crash(CrashStyle::Mixed, random.next_u64()),
        };
        store = setting.open(&Environment::simulated(&disk, seed + round))?;
        let recovered = changes(&*store, 0)?;
        let known = recovered.get(..shown.len()).unwrap_or_default();
        if unmarked(known) != unmarked(&shown) {
            return Err("a crash took back what was shown as synced".to_string());
        }
        if recovered.iter().any(|batch| !batch.synced) {
            return Err("a recovered batch is not synced".to_string());
        }
        let mut applied = Contents::new();
        recovered
            .iter()
            .for_each(|batch| apply(&mut applied, batch));
        if applied != contents(&*store)? {
            return Err("the changes make other contents than recovery".to_string());
        }
        shown = recovered;
    }
    Ok(())
}

#[test]
fn a_feed_shows_nothing_that_recovery_drops() {
    for keys in KINDS {
        let (is_small, bug) = (true, None);
        for seed in 1..=150 {
            let outcome = crashed(
                Setting {
                    keys,
                    is_small,
                    bug,
                },
                seed,
            );
            assert_eq!(outcome, Ok(()), "{keys} keys, seed {seed}");
        }
    }
}

#[test]
fn a_store_opened_for_reading_after_a_crash_shows_the_same_changes() {
    for keys in KINDS {
        let (is_small, bug) = (true, None);
        let setting = Setting {
            keys,
            is_small,
            bug,
        };
        for seed in 1..=40 {
            let mut random = Generator::new(seed);
            let disk = SimulatedDisk::new(seed);
            let store = setting.create(&Environment::simulated(&disk, seed));
            store
                .move_consumer("test", Some(SequenceNumber::ZERO))
                .unwrap();
            for _ in 0..30 {
                write_random(&setting, &*store, &mut random, (300, &DURABILITIES)).unwrap();
            }
            let crashed = disk.crash(CrashStyle::Mixed, seed);
            let (folder, options) = (Path::new(PATH), setting.opening());
            let environment = Environment::simulated(&crashed, seed);
            let reader = Zdb
                .open_read_only(&environment, folder, &options, &())
                .unwrap();
            let seen = changes(&*reader, 0).unwrap();
            reader.close().unwrap();
            let recovered = setting.open(&environment).unwrap();
            let recovered = changes(&*recovered, 0).unwrap();
            assert_eq!(
                unmarked(&seen),
                unmarked(&recovered),
                "{keys} keys, seed {seed}"
            );
        }
    }
}

/// What the writers of [`several_writers`] put into each batch.
const KEYS_OF_BATCH: u64 = 5;
const WRITERS: u64 = 4;

/// Threads write batches, each over several tables and with one stamp, while a feed follows
/// them and the background compacts.
fn several_writers(setting: Setting, batches: u64) -> Outcome {
    let environment = Environment {
        executor: Environment::real().executor,
        ..Environment::memory()
    };
    let store = setting.create(&environment);
    text(store.move_consumer("test", Some(SequenceNumber::ZERO)))?;
    let write = |writer: u64| -> Outcome {
        let mut random = Generator::new(writer);
        for number in 0..batches {
            let stamp = [writer.to_le_bytes(), number.to_le_bytes()].concat();
            let mut batch = WriteBatch::new();
            for place in 0..KEYS_OF_BATCH {
                // No two writers share a key: each key tells its last batch.
                let key = place * 60 + random.below(10) * WRITERS + writer;
                batch.put(&setting.key(key), &stamp);
            }
            text(store.write(batch, *random.pick(&DURABILITIES)))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let writers = (0..WRITERS).map(|writer| scope.spawn(move || write(writer)));
        let writers: Vec<_> = writers.collect();
        let outcome = follow_writers(&*store, batches);
        for writer in writers {
            writer.join().unwrap()?;
        }
        outcome
    })
}

fn follow_writers(store: &dyn Engine, batches: u64) -> Outcome {
    let mut feed = text(store.changes(SequenceNumber::ZERO, ALL))?;
    let mut next = [0u64; WRITERS as usize];
    while next.iter().any(|&number| number < batches) {
        let Some(batch) = text(feed.next())? else {
            std::thread::yield_now();
            continue;
        };
        let stamps = batch.changes.iter().map(|change| match &change.operation {
            Operation::Put { value, .. } => value.clone(),
            other => panic!("nobody did {other:?}"),
        });
        let stamps: Vec<Vec<u8>> = stamps.collect();
        let writer = u64::from_le_bytes(stamps[0][..8].try_into().unwrap()) as usize;
        let number = u64::from_le_bytes(stamps[0][8..].try_into().unwrap());
        let is_one = stamps.iter().all(|stamp| *stamp == stamps[0]);
        if !is_one || stamps.len() as u64 != KEYS_OF_BATCH || number != next[writer] {
            return Err(format!("{batch:?} is no batch, or not the next one"));
        }
        next[writer] += 1;
        if number % 50 == 0 {
            text(store.move_consumer("test", Some(batch.last)))?;
        }
    }
    Ok(())
}

#[test]
fn several_writers_are_followed_batch_by_batch() {
    for setting in settings() {
        let outcome = several_writers(setting, 400);
        assert_eq!(outcome, Ok(()), "{} {}", setting.keys, setting.is_small);
    }
}

/// Names of the store's data files.
fn data_files(environment: &Environment) -> Vec<String> {
    let entries = environment.file_system.list(Path::new(PATH)).unwrap();
    let names = entries
        .into_iter()
        .map(|entry| entry.name.to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("data-")).collect();
    names.sort();
    names
}

fn put_all(setting: &Setting, store: &dyn Engine, value: &[u8]) -> Outcome {
    for number in 0..30 {
        text(store.put(&setting.key(number), value, Durability::Written))?;
    }
    Ok(())
}

/// A compaction keeps what a consumer needs, also after a reopening, and no longer.
fn kept_for_a_consumer(setting: Setting) -> Outcome {
    let environment = Environment::memory();
    let store = setting.create(&environment);
    put_all(&setting, &*store, b"first")?;
    text(store.move_consumer("test", Some(SequenceNumber::ZERO)))?;
    let before = changes(&*store, 0)?;
    compact(&*store)?;
    put_all(&setting, &*store, b"second")?;
    compact(&*store)?;
    let all = changes(&*store, 0)?;
    if all.len() != 60 || unmarked(&all[..30]) != unmarked(&before) {
        return Err(format!("{} of 60 batches", all.len()));
    }
    text(store.close())?;
    let report = text(Zdb.check(&environment, Path::new(PATH), &setting.opening(), &()))?;
    if !report.is_sound() {
        return Err(format!("{report:?}"));
    }
    let kept = data_files(&environment).len();
    let store = setting.open(&environment)?;
    if changes(&*store, 0)? != all {
        return Err("other changes after the reopening".to_string());
    }
    if text(store.stats())?.number("history_bytes") == Some(0) {
        return Err("no history is counted".to_string());
    }
    // Not the first write of this opening: the store is closed again without one.
    text(store.move_consumer("test", Some(all[59].last)))?;
    for _ in 0..3 {
        text(store.step(1 << 20))?;
    }
    if data_files(&environment).len() >= kept {
        return Err("the consumer has passed, and the files stay".to_string());
    }
    match store.changes(SequenceNumber(1), ALL).map(|_| ()) {
        Err(Error::HistoryLost { oldest }) if oldest <= all[59].last => {}
        other => return Err(format!("changes that are gone: {other:?}")),
    }
    changes(&*store, all[59].last.0).map(|_| ())
}

#[test]
fn a_compaction_keeps_history_for_consumers_and_no_longer() {
    for setting in settings() {
        assert_eq!(kept_for_a_consumer(setting), Ok(()), "{}", setting.keys);
    }
}

#[test]
fn without_consumers_a_compaction_ends_history_but_not_the_feed_that_follows() {
    for setting in settings() {
        let environment = Environment::memory();
        let store = setting.create(&environment);
        put_all(&setting, &*store, b"first").unwrap();
        let mut feed = store.changes(SequenceNumber::ZERO, ALL).unwrap();
        assert_eq!(drain(&mut *feed).unwrap().len(), 30);
        put_all(&setting, &*store, b"second").unwrap();
        let files = data_files(&environment);
        compact(&*store).unwrap();
        assert_eq!(data_files(&environment).len(), files.len());
        assert_ne!(data_files(&environment), files);
        put_all(&setting, &*store, b"third").unwrap();
        // It has the old files open.
        assert_eq!(drain(&mut *feed).unwrap().len(), 60);
        let lost = store.changes(SequenceNumber(3), ALL).map(|_| ());
        let Err(Error::HistoryLost { oldest }) = lost else {
            panic!("{lost:?}");
        };
        assert!(!changes(&*store, oldest.0).unwrap().is_empty());
        assert_eq!(
            store.stats().unwrap().number("oldest_change"),
            Some(oldest.0)
        );
        // One that read nothing while its files were replaced twice has lost them.
        let mut late = store.changes(oldest, ALL).unwrap();
        for value in [b"fourth", b"fifth."] {
            put_all(&setting, &*store, value).unwrap();
            compact(&*store).unwrap();
        }
        let read = drain(&mut *late);
        assert!(read.is_err_and(|error| error.contains("no longer has")));
    }
}

#[test]
fn history_ends_at_its_limit() {
    for keys in KINDS {
        let (is_small, bug) = (true, None);
        let setting = Setting {
            keys,
            is_small,
            bug,
        };
        let environment = Environment::memory();
        setting.create(&environment).close().unwrap();
        let mut options = setting.opening();
        options.set("history_bytes", "100000");
        let store = Zdb
            .open(&environment, Path::new(PATH), &options, &())
            .unwrap();
        store
            .move_consumer("test", Some(SequenceNumber::ZERO))
            .unwrap();
        for _ in 0..20 {
            put_all(&setting, &*store, &[7; 100]).unwrap();
            compact(&*store).unwrap();
            let kept = store.stats().unwrap().number("history_bytes").unwrap();
            assert!(kept <= 100_000, "{kept} bytes");
        }
        let lost = store.changes(SequenceNumber::ZERO, ALL).map(|_| ());
        let Err(Error::HistoryLost { oldest }) = lost else {
            panic!("{lost:?}");
        };
        assert!(changes(&*store, oldest.0).unwrap().len() > 30);
        let stays = store.move_consumer("test", Some(SequenceNumber::ZERO));
        assert!(matches!(stays, Err(Error::HistoryLost { .. })));
    }
}

#[test]
fn a_follower_reads_large_pieces_and_finds_its_place_without_reading_all() {
    let device = Counted::new();
    for keys in KINDS {
        let (is_small, bug) = (false, None);
        let setting = Setting {
            keys,
            is_small,
            bug,
        };
        let folder = Path::new("/").join(keys);
        let mut options = setting.opening();
        options.set("keys", keys);
        let store = Zdb.create(&device.environment, &folder, &options).unwrap();
        for number in 0..60_000 {
            let value = [number as u8; 100];
            store
                .put(&setting.key(number), &value, Durability::Written)
                .unwrap();
        }
        let log_bytes = store.stats().unwrap().number("data_file_bytes").unwrap();
        let mut batches = 0;
        let done = device.during(|| batches = changes(&*store, 0).unwrap().len());
        assert_eq!(batches, 60_000);
        assert!(
            done.reads <= log_bytes / (64 << 10) + 8,
            "{done:?} of {log_bytes}"
        );
        assert_eq!((done.writes, done.syncs), (0, 0));
        let last = store.snapshot().unwrap().sequence().0;
        let done = device.during(|| batches = changes(&*store, last - 100).unwrap().len());
        assert!((1..=100).contains(&batches), "{batches}");
        assert!(done.bytes_read < 4 << 20, "{done:?} of {log_bytes}");
    }
}

#[test]
fn values_longer_than_a_piece_are_shown() {
    for keys in KINDS {
        let (is_small, bug) = (false, None);
        let setting = Setting {
            keys,
            is_small,
            bug,
        };
        let store = setting.create(&Environment::memory());
        let values: Vec<Vec<u8>> = (0..12).map(|n| vec![n; 1 << (2 * n)]).collect();
        for (number, value) in values.iter().enumerate() {
            let durability = [Durability::Buffered, Durability::Synced][number % 2];
            store
                .put(&setting.key(number as u64), value, durability)
                .unwrap();
        }
        for after in 0..12 {
            let shown = changes(&*store, after).unwrap();
            let shown = shown.iter().map(|batch| match &batch.changes[0].operation {
                Operation::Put { value, .. } => value,
                other => panic!("nobody did {other:?}"),
            });
            assert!(shown.eq(&values[after as usize..]), "after {after}");
        }
    }
}

#[test]
fn every_seeded_bug_of_the_feed_is_found() {
    let found = |bug: &'static str, program: &dyn Fn(Setting) -> Outcome| {
        let (is_small, bug) = (true, Some(bug));
        let failures = KINDS.map(|keys| {
            program(Setting {
                keys,
                is_small,
                bug,
            })
        });
        assert!(failures.iter().any(Result::is_err), "{bug:?}");
    };
    let anywhere = |program: fn(Setting, u64) -> Outcome| {
        move |setting| (1..=150).try_for_each(|seed| program(setting, seed))
    };
    found("changes_split", &anywhere(followed));
    found("changes_split", &|setting| several_writers(setting, 20));
    found("unsynced_changes_shown", &anywhere(crashed));
    found("cut_changes_shown", &anywhere(crashed));
    found("consumers_forgotten", &kept_for_a_consumer);
}
