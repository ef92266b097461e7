//! The value layer above each engine, on a simulated disk and clock: compression, expiry,
//! merging.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cambium::engines;
use cambium_api::{
    CompactOptions, Durability, Engine, EngineKind, Error, Expiry, IterationOrder, MergeOperator,
    OptionValues, Precondition, Result, Transaction, UnixMillis, WriteBatch,
};
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_io::{Environment, StepOutcome};

const SECOND: Expiry = Expiry::After(Duration::from_secs(1));

/// An engine on a disk of its own.
struct World {
    kind: Arc<dyn EngineKind>,
    disk: SimulatedDisk,
    environment: Environment,
}

/// Runs a test in a world of each engine.
fn on_each_engine(test: impl Fn(World)) {
    for kind in engines().iter() {
        test(World::new(kind.clone()));
    }
}

impl World {
    fn new(kind: Arc<dyn EngineKind>) -> Self {
        World::on(kind, SimulatedDisk::new(1))
    }

    fn on(kind: Arc<dyn EngineKind>, disk: SimulatedDisk) -> Self {
        let environment = Environment::simulated(&disk, 1);
        World {
            kind,
            disk,
            environment,
        }
    }

    /// The same store with what was synced, and nothing else.
    fn after_power_failure(&self) -> Self {
        let disk = self.disk.crash(CrashStyle::NothingUnsynced, 1);
        World::on(self.kind.clone(), disk)
    }

    fn create(&self, options: &[(&str, &str)]) -> Arc<dyn Engine> {
        let options = OptionValues::from(options);
        self.kind
            .create(&self.environment, path(), &options)
            .unwrap()
    }

    fn open(&self, options: &[(&str, &str)]) -> Arc<dyn Engine> {
        let options = OptionValues::from(options);
        self.kind
            .open(&self.environment, path(), &options, &())
            .unwrap()
    }

    fn pass(&self, time: Duration) {
        self.environment.clock.sleep(time);
    }
}

fn path() -> &'static Path {
    Path::new("/store")
}

fn get(store: &dyn Engine, key: &str) -> Option<Vec<u8>> {
    store
        .get(key.as_bytes())
        .unwrap()
        .map(|value| value.to_vec())
}

fn keys(store: &dyn Engine) -> Vec<String> {
    let mut cursor = store.iterate(IterationOrder::Any, None).unwrap();
    let mut keys = Vec::new();
    while let Some(key) = cursor.next_key().unwrap() {
        keys.push(String::from_utf8(key.to_vec()).unwrap());
    }
    keys.sort();
    keys
}

/// Values that compress, do not, and end with each byte.
fn values() -> Vec<Vec<u8>> {
    let mut values: Vec<Vec<u8>> = (0..=255u8).map(|last| vec![b'v', last]).collect();
    values.push(Vec::new());
    values.push(b"leaf and root, ".repeat(100));
    values
}

#[test]
fn every_value_comes_back_by_every_call_with_and_without_compression() {
    for compression in ["none", "lz4"] {
        on_each_engine(|world| {
            let store = world.create(&[("compression", compression)]);
            let mut batch = WriteBatch::new();
            for (number, value) in values().iter().enumerate() {
                let key = (number as u32).to_be_bytes();
                match number % 2 {
                    0 => _ = store.put(&key, value, Durability::Written).unwrap(),
                    _ => _ = batch.put(&key, value),
                }
            }
            store.write(batch, Durability::Synced).unwrap();
            store.close().unwrap();
            // What was written stays readable without the option.
            let store = world.open(&[]);
            let snapshot = store.snapshot().unwrap();
            let mut buffer = Vec::new();
            for (number, value) in values().iter().enumerate() {
                let key = (number as u32).to_be_bytes();
                assert_eq!(store.get(&key).unwrap().as_deref(), Some(&value[..]));
                assert!(store.get_into(&key, &mut buffer).unwrap() && buffer == *value);
                assert_eq!(
                    snapshot.multi_get(&[&key]).unwrap()[0].as_deref(),
                    Some(&value[..])
                );
            }
            let mut cursor = store.iterate(IterationOrder::Any, None).unwrap();
            while let Some(entry) = cursor.next().unwrap() {
                let number = u32::from_be_bytes(entry.key[..].try_into().unwrap());
                assert_eq!(entry.value, values()[number as usize][..]);
            }
            store.close().unwrap();
        });
    }
}

#[test]
fn preconditions_see_values() {
    on_each_engine(|world| {
        let store = world.create(&[("compression", "lz4")]);
        let long = b"leaf and root, ".repeat(100);
        for value in [&long[..], &[0xf4], b"oak"] {
            store.put(b"k", value, Durability::Written).unwrap();
            let equals = |value: &[u8]| Precondition::Equals {
                key: b"k".to_vec(),
                value: value.to_vec(),
            };
            let mut batch = WriteBatch::new();
            batch.put(b"hit", b"yes");
            let failed = store.write_if(&[equals(b"other")], batch.clone(), Durability::Written);
            assert!(matches!(
                failed,
                Err(Error::PreconditionFailed { index: 0 })
            ));
            store
                .write_if(&[equals(value)], batch, Durability::Written)
                .unwrap();
            assert_eq!(get(&*store, "hit").as_deref(), Some(&b"yes"[..]));
            store.delete(b"hit", Durability::Written).unwrap();
        }
        store.close().unwrap();
    });
}

#[test]
fn an_entry_is_there_until_it_expires_and_every_call_agrees() {
    on_each_engine(|world| {
        let store = world.create(&[]);
        store.put(b"stays", b"1", Durability::Written).unwrap();
        store
            .put_expiring(b"goes", b"2", SECOND, Durability::Synced)
            .unwrap();
        assert_eq!(get(&*store, "goes").as_deref(), Some(&b"2"[..]));
        assert!(store.expires_at(b"goes").unwrap().is_some());
        assert_eq!(store.expires_at(b"stays").unwrap(), None);
        let before = store.snapshot().unwrap();
        world.pass(Duration::from_secs(2));
        // Also after opening it again, which learns of expiring entries from the marker.
        for again in [false, true] {
            let store = match again {
                false => store.clone(),
                true => {
                    store.close().unwrap();
                    world.open(&[])
                }
            };
            assert_eq!(get(&*store, "goes"), None);
            assert_eq!(store.expires_at(b"goes").unwrap(), None);
            assert_eq!(store.multi_get(&[b"goes"]).unwrap(), [None]);
            assert!(!store.get_into(b"goes", &mut Vec::new()).unwrap());
            assert_eq!(keys(&*store), ["stays"]);
            assert!(
                !store
                    .set_expiry(b"goes", None, Durability::Written)
                    .unwrap()
            );
            if !again {
                let seen = before.get(b"goes").unwrap();
                assert_eq!(
                    seen.as_deref(),
                    Some(&b"2"[..]),
                    "a snapshot has its own moment"
                );
                continue;
            }
            let absent = [Precondition::Absent {
                key: b"goes".to_vec(),
            }];
            let present = [Precondition::Present {
                key: b"goes".to_vec(),
            }];
            let mut batch = WriteBatch::new();
            batch.put(b"goes", b"new");
            let failed = store.write_if(&present, batch.clone(), Durability::Written);
            assert!(matches!(
                failed,
                Err(Error::PreconditionFailed { index: 0 })
            ));
            store.write_if(&absent, batch, Durability::Written).unwrap();
            assert_eq!(get(&*store, "goes").as_deref(), Some(&b"new"[..]));
            store.close().unwrap();
        }
    });
}

#[test]
fn an_entry_can_be_made_to_stay_or_to_go_earlier() {
    on_each_engine(|world| {
        let store = world.create(&[]);
        store
            .put_expiring(b"a", b"1", SECOND, Durability::Written)
            .unwrap();
        store.put(b"b", b"2", Durability::Written).unwrap();
        assert!(store.set_expiry(b"a", None, Durability::Written).unwrap());
        assert!(
            store
                .set_expiry(b"b", Some(SECOND), Durability::Written)
                .unwrap()
        );
        assert!(!store.set_expiry(b"c", None, Durability::Written).unwrap());
        world.pass(Duration::from_secs(2));
        assert_eq!(keys(&*store), ["a"]);
        let past = Expiry::At(UnixMillis(1));
        store
            .put_expiring(b"a", b"3", past, Durability::Written)
            .unwrap();
        assert_eq!(keys(&*store), Vec::<String>::new());
        store.close().unwrap();
    });
}

#[test]
fn a_sweep_deletes_what_has_expired_and_nothing_else() {
    on_each_engine(|world| {
        let store = world.create(&[]);
        for number in 0..100u32 {
            let expiry = Expiry::After(Duration::from_secs(1 + u64::from(number % 2) * 1_000));
            store
                .put_expiring(
                    &number.to_be_bytes(),
                    &[7; 100],
                    expiry,
                    Durability::Written,
                )
                .unwrap();
        }
        world.pass(Duration::from_secs(2));
        // One is written anew after it expired, and stays.
        store
            .put(&0u32.to_be_bytes(), b"new", Durability::Written)
            .unwrap();
        let mut steps = 0;
        while store.step(1_000).unwrap() == StepOutcome::Again {
            steps += 1;
        }
        assert!(steps > 5, "in steps: {steps}");
        // Before a rest is over, a compaction sweeps too.
        store
            .put_expiring(b"late", b"1", SECOND, Durability::Written)
            .unwrap();
        world.pass(Duration::from_secs(1));
        store.compact(&CompactOptions::default(), &()).unwrap();
        assert_eq!(
            store.stats().unwrap().number("expired_entries_deleted"),
            Some(50)
        );
        assert_eq!(keys_of_numbers(&*store), 51);
        store.close().unwrap();
    });
}

#[test]
fn a_reader_deletes_no_entry_that_expires_and_shows_none() {
    on_each_engine(|world| {
        let store = world.create(&[]);
        let put = store.put_expiring(b"goes", b"1", SECOND, Durability::Written);
        put.unwrap();
        store.put(b"stays", b"2", Durability::Written).unwrap();
        store.close().unwrap();
        world.pass(Duration::from_secs(2));
        let options = OptionValues::default();
        let opened = world
            .kind
            .open_read_only(&world.environment, path(), &options, &());
        let store = opened.unwrap();
        assert_eq!(store.step(1 << 20).unwrap(), StepOutcome::Idle);
        assert_eq!(keys(&*store), ["stays"]);
        store.close().unwrap();
    });
}

fn keys_of_numbers(store: &dyn Engine) -> usize {
    let mut cursor = store.iterate(IterationOrder::Any, None).unwrap();
    let mut count = 0;
    while cursor.next_key().unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn a_crash_after_the_first_expiring_write_keeps_its_expiry() {
    on_each_engine(|world| {
        let store = world.create(&[]);
        store
            .put_expiring(b"goes", b"2", SECOND, Durability::Synced)
            .unwrap();
        let world = world.after_power_failure();
        world.pass(Duration::from_secs(2));
        let store = world.open(&[]);
        assert_eq!(keys(&*store), Vec::<String>::new());
        store.close().unwrap();
    });
}

#[test]
fn a_synced_write_without_changes_syncs_what_came_before() {
    on_each_engine(|world| {
        let store = world.create(&[]);
        store
            .put_expiring(b"goes", b"1", SECOND, Durability::Synced)
            .unwrap();
        store.put(b"k", b"2", Durability::Buffered).unwrap();
        let present = [Precondition::Present { key: b"k".to_vec() }];
        store
            .write_if(&present, WriteBatch::new(), Durability::Synced)
            .unwrap();
        let world = world.after_power_failure();
        let store = world.open(&[]);
        assert_eq!(get(&*store, "k").as_deref(), Some(&b"2"[..]));
        store.close().unwrap();
    });
}

struct Longest;

impl MergeOperator for Longest {
    fn name(&self) -> &str {
        "longest"
    }

    fn merge(&self, _: &[u8], current: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>> {
        let current = current.unwrap_or_default();
        let longest = if operand.len() > current.len() {
            operand
        } else {
            current
        };
        Ok(longest.to_vec())
    }
}

#[test]
fn merges_make_the_next_value_of_the_current_one() {
    on_each_engine(|world| {
        let store = world.create(&[("compression", "lz4")]);
        for _ in 0..3 {
            store
                .merge("add", b"visitors", &2i64.to_le_bytes(), Durability::Written)
                .unwrap();
        }
        assert_eq!(get(&*store, "visitors"), Some(6i64.to_le_bytes().to_vec()));
        let error = store
            .merge("longest", b"k", b"oak", Durability::Written)
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("registered are add, append, maximum"),
            "{error}"
        );
        store.register_operator(Arc::new(Longest)).unwrap();
        let mut batch = WriteBatch::new();
        // Later operations of a batch see earlier ones.
        batch
            .merge("longest", b"k", b"maple")
            .merge("longest", b"k", b"oak")
            .put(b"p", b"1")
            .merge("append", b"p", b"2")
            .delete(b"visitors")
            .merge("add", b"visitors", &1i64.to_le_bytes());
        store.write(batch, Durability::Written).unwrap();
        assert_eq!(get(&*store, "k").as_deref(), Some(&b"maple"[..]));
        assert_eq!(get(&*store, "p").as_deref(), Some(&b"12"[..]));
        assert_eq!(get(&*store, "visitors"), Some(1i64.to_le_bytes().to_vec()));
        // A merge that fails takes its whole batch with it.
        let mut batch = WriteBatch::new();
        batch
            .put(b"p", b"lost")
            .merge("add", b"k", &1i64.to_le_bytes());
        assert!(store.write(batch, Durability::Written).is_err());
        assert_eq!(get(&*store, "p").as_deref(), Some(&b"12"[..]));
        store.close().unwrap();
    });
}

#[test]
fn a_merge_keeps_the_moment_at_which_an_entry_expires() {
    on_each_engine(|world| {
        let store = world.create(&[]);
        store
            .put_expiring(b"k", b"1", SECOND, Durability::Written)
            .unwrap();
        store
            .merge("append", b"k", b"2", Durability::Written)
            .unwrap();
        assert_eq!(get(&*store, "k").as_deref(), Some(&b"12"[..]));
        world.pass(Duration::from_secs(2));
        store
            .merge("append", b"k", b"3", Durability::Written)
            .unwrap();
        assert_eq!(get(&*store, "k").as_deref(), Some(&b"3"[..]));
        store.close().unwrap();
    });
}

#[test]
fn threads_that_merge_lose_no_count() {
    on_each_engine(|world| {
        let store = world.create(&[]);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for _ in 0..100 {
                        let one = 1i64.to_le_bytes();
                        store
                            .merge("add", b"k", &one, Durability::Buffered)
                            .unwrap();
                        // A plain writer beside.
                        store
                            .put(b"other", &[thread], Durability::Buffered)
                            .unwrap();
                    }
                });
            }
        });
        assert_eq!(get(&*store, "k"), Some(400i64.to_le_bytes().to_vec()));
        store.close().unwrap();
    });
}

#[test]
fn transactions_see_values_and_commit_forms() {
    on_each_engine(|world| {
        let store = world.create(&[("compression", "lz4")]);
        let long = b"leaf and root, ".repeat(100);
        store.put(b"a", &long, Durability::Written).unwrap();
        let transaction = Transaction::begin(&store, Durability::Written, None).unwrap();
        let value = transaction.get(b"a").unwrap().unwrap();
        assert_eq!(value, long[..]);
        transaction.put(b"b", &value).unwrap();
        transaction.commit().unwrap();
        assert_eq!(get(&*store, "b"), Some(long));
        let saved = store.stats().unwrap();
        let before = saved.number("values_before_compression");
        assert_eq!(before, Some(3_000));
        assert!(saved.number("values_after_compression") < Some(300));
        store.close().unwrap();
    });
}

#[test]
fn transactions_expire_and_merge() {
    on_each_engine(|world| {
        let store = world.create(&[]);
        let begin = || Transaction::begin(&store, Durability::Written, None).unwrap();
        let later = Expiry::After(Duration::from_secs(60));
        store
            .put_expiring(b"kept", b"1", later, Durability::Written)
            .unwrap();
        let transaction = begin();
        transaction.put_expiring(b"own", b"1", SECOND).unwrap();
        let mark = transaction.savepoint().unwrap();
        transaction.put(b"own", b"2").unwrap();
        transaction.roll_back_to(mark).unwrap();
        for key in [&b"own"[..], b"kept", b"new"] {
            transaction.merge("append", key, b"+").unwrap();
        }
        assert_eq!(transaction.get(b"own").unwrap().unwrap(), b"1+"[..]);
        // The time is counted from the commit.
        world.pass(Duration::from_secs(2));
        transaction.commit().unwrap();
        assert_eq!(get(&*store, "own").as_deref(), Some(&b"1+"[..]));
        assert_eq!(get(&*store, "kept").as_deref(), Some(&b"1+"[..]));
        assert_eq!(get(&*store, "new").as_deref(), Some(&b"+"[..]));

        // A merge has read its key.
        let (one, other) = (begin(), begin());
        one.merge("append", b"new", b"a").unwrap();
        other.merge("append", b"new", b"b").unwrap();
        one.commit().unwrap();
        assert!(matches!(other.commit(), Err(Error::Conflict { .. })));
        let refused = begin().merge("none", b"new", b"c");
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));

        // An entry that a transaction read has expired since: read singly, together, by a scan
        // or pass, or as a key alone.
        type Read = fn(&Transaction) -> Result<()>;
        let reads: [Read; 4] = [
            |it| it.get(b"own").map(drop),
            |it| it.multi_get(&[b"new", b"own"]).map(drop),
            |it| it.iterate()?.try_for_each(|entry| entry.map(drop)),
            |it| it.namespace("")?.get(b"own").map(drop),
        ];
        let begun = reads.map(|read| {
            let transaction = begin();
            read(&transaction).unwrap();
            transaction.put(b"by", b"one that read").unwrap();
            transaction
        });
        let other = begin();
        assert!(other.get(b"kept").unwrap().is_some());
        other.put(b"by", b"another").unwrap();
        world.pass(Duration::from_secs(2));
        for transaction in begun {
            let conflict = transaction.commit().unwrap_err();
            assert!(conflict.to_string().contains("own"), "{conflict}");
        }
        other.commit().unwrap();
        store.delete(b"by", Durability::Written).unwrap();
        assert_eq!(get(&*store, "own"), None);
        assert_eq!(get(&*store, "kept").as_deref(), Some(&b"1+"[..]));
        world.pass(Duration::from_secs(60));
        assert_eq!(keys(&*store), ["new"]);
        assert_eq!(get(&*store, "new").as_deref(), Some(&b"+a"[..]));
        store.close().unwrap();
    });
}

#[test]
fn an_engine_without_the_layer_refuses_what_it_cannot_keep() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let options = OptionValues::default();
    let store = cambium_forest::Forest
        .create(&environment, path(), &options)
        .unwrap();
    let expiring = store.put_expiring(b"k", b"v", SECOND, Durability::Written);
    assert!(expiring.is_err());
    assert!(store.merge("add", b"k", b"v", Durability::Written).is_err());
    assert_eq!(store.get(b"k").unwrap(), None);
    store.close().unwrap();
}

#[test]
fn options_are_checked_and_listed_once() {
    on_each_engine(|world| {
        let create = |options: &[(&str, &str)]| {
            let options = OptionValues::from(options);
            let error = world.kind.create(&world.environment, path(), &options);
            error
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        assert!(create(&[("compression", "gzip")]).contains("none, lz4 or zstd"));
        assert!(create(&[("compression_level", "20")]).contains("-7 to 19"));
        let names = world.kind.options().iter().map(|option| option.name);
        assert_eq!(names.filter(|name| *name == "compression").count(), 1);
    });
}
