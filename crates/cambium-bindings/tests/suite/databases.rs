//! Databases against a model: a sorted map, walked both ways.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use cambium::{Direction, Durability, Error, WriteBatch};
use cambium_bindings::walker::Bounds;
use cambium_bindings::{Comparator, Database, RunWalker, Settings, Walker};

/// Upper and lower case are the same, and that is how keys are sorted.
struct IgnoringCase;

impl Comparator for IgnoringCase {
    fn name(&self) -> &str {
        "ignoring case"
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        left.to_ascii_lowercase().cmp(&right.to_ascii_lowercase())
    }
}

fn settings(engine: &str) -> Settings {
    Settings {
        engine: engine.to_string(),
        create_if_missing: true,
        ..Settings::default()
    }
}

/// Numbers that look random, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }

    /// A short key, or a long one that shares its beginning with others.
    fn key(&mut self) -> Vec<u8> {
        match self.below(5) {
            0 => {
                let mut key = vec![b'm'; 65_533 + self.below(6) as usize];
                key.push([0, b'm', 255][self.below(3) as usize]);
                key
            }
            _ => vec![b'a' + self.below(26) as u8; 1 + self.below(3) as usize],
        }
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn fill(database: &Database, model: &mut Model, numbers: &mut Numbers) {
    for round in 0..40_u8 {
        let mut batch = WriteBatch::new();
        for _ in 0..=numbers.below(4) {
            let key = numbers.key();
            if numbers.below(4) == 0 {
                batch.delete(&key);
                model.remove(&key);
            } else {
                batch.put(&key, &[round]);
                model.insert(key, vec![round]);
            }
        }
        database.write(batch, Durability::Written).unwrap();
    }
}

fn expect_at(walker: &Walker, model: Option<(&Vec<u8>, &Vec<u8>)>, what: &str) {
    let found = walker.entry().map(|entry| (&*entry.key, &*entry.value));
    let found = found.map(|(key, value)| (key.len(), key, value));
    let wanted = model.map(|(key, value)| (key.len(), &key[..], &value[..]));
    assert!(found == wanted, "{what}: not where the model is");
}

fn walk(database: &Database, model: &Model, bounds: &Bounds, numbers: &mut Numbers) {
    let all = model
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()));
    let range = bounds.range();
    let model: Model = all.filter(|(key, _)| range.contains(key)).collect();
    let mut walker = database.view().unwrap().walker(bounds);
    expect_at(&walker, None, "before the first move");
    let mut at: Option<Vec<u8>> = None;
    for _ in 0..200 {
        let next = match numbers.below(12) {
            0 => {
                walker.seek_to_first().unwrap();
                model.iter().next()
            }
            1 => {
                walker.seek_to_last().unwrap();
                model.iter().next_back()
            }
            2 | 3 => {
                let key = numbers.key();
                walker.seek(&key).unwrap();
                model.range(key..).next()
            }
            step => {
                let forward = step % 3 != 0;
                match forward {
                    true => walker.next().unwrap(),
                    false => walker.previous().unwrap(),
                }
                at.as_ref().and_then(|at| match forward {
                    true => model
                        .range::<[u8], _>((Bound::Excluded(&at[..]), Bound::Unbounded))
                        .next(),
                    false => model
                        .range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&at[..])))
                        .next_back(),
                })
            }
        };
        expect_at(&walker, next, "after a move");
        at = next.map(|(key, _)| key.clone());
    }
}

#[test]
fn a_walk_agrees_with_a_sorted_map_also_where_keys_are_long() {
    for engine in ["wisckey", "forest"] {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path(), &settings(engine)).unwrap();
        let mut numbers = Numbers(7);
        let mut model = Model::new();
        fill(&database, &mut model, &mut numbers);
        assert!(model.keys().any(|key| key.len() > 65_535));
        for (key, value) in &model {
            assert_eq!(database.get(key).unwrap().as_deref(), Some(&value[..]));
        }
        walk(&database, &model, &Bounds::default(), &mut numbers);
        for _ in 0..8 {
            let bounds = Bounds {
                from: Bound::Excluded(numbers.key()),
                to: Bound::Included(numbers.key()),
            };
            walk(&database, &model, &bounds, &mut numbers);
        }
        database.close().unwrap();
    }
}

fn sorted(database: &Database) -> Vec<String> {
    let mut walker = database.view().unwrap().walker(&Bounds::default());
    walker.seek_to_first().unwrap();
    let mut keys = Vec::new();
    while let Some(key) = walker.key() {
        keys.push(String::from_utf8(key.to_vec()).unwrap());
        walker.next().unwrap();
    }
    keys
}

fn ignoring_case(path: &Path) -> cambium::Result<Database> {
    let comparator: Option<Arc<dyn Comparator>> = Some(Arc::new(IgnoringCase));
    Database::open(
        path,
        &Settings {
            comparator,
            ..settings("wisckey")
        },
    )
}

#[test]
fn keys_that_a_comparator_holds_equal_are_one_key() {
    let folder = tempfile::tempdir().unwrap();
    let database = ignoring_case(folder.path()).unwrap();
    for key in ["aaa", "BBB", "ccc"] {
        database
            .put(key.as_bytes(), b"", Durability::Written)
            .unwrap();
    }
    let then = database.view().unwrap();
    assert_eq!(sorted(&database), ["aaa", "BBB", "ccc"]);
    let mut batch = WriteBatch::new();
    batch
        .put(b"bbb", b"1")
        .delete(b"CCC")
        .put(b"Ccc", b"2")
        .put(b"AAA", b"3")
        .delete(b"aAa");
    database.write(batch, Durability::Written).unwrap();
    assert_eq!(sorted(&database), ["bbb", "Ccc"]);
    assert_eq!(database.get(b"BBB").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(database.get(b"aaa").unwrap(), None);
    assert_eq!(then.get(b"CCC").unwrap().as_deref(), Some(&b""[..]));
    let bounds = Bounds {
        from: Bound::Excluded(b"BBB".to_vec()),
        to: Bound::Unbounded,
    };
    let mut walker = database.view().unwrap().walker(&bounds);
    walker.seek(b"A").unwrap();
    assert_eq!(walker.key().map(|key| &**key), Some(&b"Ccc"[..]));
    walker.previous().unwrap();
    assert!(walker.key().is_none());
    database.close().unwrap();
    drop((database, walker, then));

    let again = ignoring_case(folder.path()).unwrap();
    assert_eq!(sorted(&again), ["bbb", "Ccc"]);
    again.close().unwrap();
    drop(again);
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy");
    cambium::backup(folder.path(), &copy).unwrap();
    for path in [folder.path(), &copy] {
        let plain = Database::open(path, &settings("wisckey"));
        assert!(
            matches!(plain, Err(Error::InvalidArgument(text)) if text.contains("ignoring case"))
        );
    }
    let copy = ignoring_case(&copy).unwrap();
    assert_eq!(sorted(&copy), ["bbb", "Ccc"]);
    copy.close().unwrap();
}

#[test]
fn what_is_closed_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), &settings("wisckey")).unwrap();
    database.put(b"oak", b"", Durability::Written).unwrap();
    let view = database.view().unwrap();
    let mut walker = view.walker(&Bounds::default());
    walker.seek_to_first().unwrap();
    database.close().unwrap();
    assert!(matches!(database.get(b"oak"), Err(Error::Closed)));
    assert!(matches!(view.get(b"oak"), Err(Error::Closed)));
    assert!(matches!(walker.next(), Err(Error::Closed)));
    assert!(matches!(walker.seek_to_last(), Err(Error::Closed)));
    assert!(walker.key().is_none());
}

#[test]
fn flags_and_removal_mean_what_they_mean_for_leveldb() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database");
    let none = Database::open(&path, &Settings::default());
    assert!(matches!(none, Err(Error::NotAStore { .. })));
    let database = Database::open(&path, &settings("wisckey")).unwrap();
    let options = cambium::Options::new();
    let removed = cambium_bindings::remove::remove(&options, &path);
    assert!(matches!(removed, Err(Error::Locked { .. })));
    database.close().unwrap();
    drop(database);
    let strict = Settings {
        error_if_exists: true,
        ..settings("forest")
    };
    let there = Database::open(&path, &strict);
    assert!(matches!(there, Err(Error::AlreadyExists { .. })));
    cambium_bindings::remove::remove(&options, &path).unwrap();
    assert!(!path.exists());
    cambium_bindings::remove::remove(&options, &path).unwrap();
}

#[test]
fn properties_are_leveldbs() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), &settings("wisckey")).unwrap();
    let property = |name: &str| database.property(name).unwrap();
    assert_eq!(property("leveldb.nothing"), None);
    assert_eq!(property("stats"), None);
    assert_eq!(
        property("leveldb.num-files-at-level0").as_deref(),
        Some("0")
    );
    assert_eq!(property("leveldb.num-files-at-level7"), None);
    assert!(
        property("leveldb.stats")
            .unwrap()
            .contains("engine wisckey")
    );
    assert!(property("leveldb.sstables").is_some());
    assert!(property("leveldb.approximate-memory-usage").is_some());
    database.close().unwrap();
}

/// Keys of a walk that reads ahead, beside those of one that does not.
fn expect_alike(ahead: &RunWalker, plain: &Walker, keys_only: bool, what: &str) {
    let wanted = plain.entry().map(|entry| match keys_only {
        true => (entry.key.to_vec(), Vec::new()),
        false => (entry.key.to_vec(), entry.value.to_vec()),
    });
    let found = ahead.entry();
    let found = found.map(|(key, value)| (key.to_vec(), value.to_vec()));
    let short = |(key, value): &(Vec<u8>, Vec<u8>)| (key.len(), key.last().copied(), value.clone());
    let (found_at, wanted_at) = (found.as_ref().map(short), wanted.as_ref().map(short));
    assert!(
        found == wanted,
        "{what}: {found_at:?}, a plain walk is at {wanted_at:?}"
    );
}

#[test]
fn a_walk_that_reads_ahead_goes_where_a_plain_one_goes() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), &settings("forest")).unwrap();
    let mut numbers = Numbers(11);
    fill(&database, &mut Model::new(), &mut numbers);
    let view = database.view().unwrap();
    fill(&database, &mut Model::new(), &mut numbers);
    for keys_only in [false, true] {
        let mut ahead = RunWalker::new(&view, &Bounds::default(), keys_only);
        let mut plain = view.walker(&Bounds::default());
        let mut asked_nothing = 0;
        for step in 0..2_000 {
            match numbers.below(40) {
                0 => {
                    ahead.seek_to_first().unwrap();
                    plain.seek_to_first().unwrap();
                }
                1 => {
                    ahead.seek_to_last().unwrap();
                    plain.seek_to_last().unwrap();
                }
                2 => {
                    let key = numbers.key();
                    ahead.seek(&key).unwrap();
                    plain.seek(&key).unwrap();
                }
                step if step % 5 == 0 => {
                    asked_nothing += u32::from(ahead.can_step(Direction::Reverse));
                    ahead.step(Direction::Reverse).unwrap();
                    plain.previous().unwrap();
                }
                _ => {
                    asked_nothing += u32::from(ahead.can_step(Direction::Forward));
                    ahead.step(Direction::Forward).unwrap();
                    plain.next().unwrap();
                }
            }
            expect_alike(
                &ahead,
                &plain,
                keys_only,
                &format!("keys only {keys_only}, step {step}"),
            );
        }
        assert!(asked_nothing > 500, "{asked_nothing}");
    }
    let mut ahead = RunWalker::new(&view, &Bounds::default(), false);
    ahead.seek_to_first().unwrap();
    for _ in 0..4 {
        ahead.step(Direction::Forward).unwrap();
    }
    assert!(ahead.can_step(Direction::Forward));
    database.close().unwrap();
    assert!(!ahead.can_step(Direction::Forward));
    let closed = ahead.step(Direction::Forward);
    assert!(matches!(closed, Err(Error::Closed)));
}

/// What a long walk shows, from where it stands to its end.
fn rest_of(walk: &mut RunWalker, direction: Direction) -> Vec<u32> {
    let mut rest = Vec::new();
    while let Some((key, value)) = walk.entry() {
        assert!(value.iter().all(|byte| *byte == key[3]));
        rest.push(u32::from_be_bytes(<[u8; 4]>::try_from(key).unwrap()));
        walk.step(direction).unwrap();
    }
    rest
}

#[test]
fn long_walks_are_read_ahead_and_go_where_they_would() {
    let count = 12_000_u32;
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), &settings("forest")).unwrap();
    let mut batch = WriteBatch::new();
    for number in 0..count {
        batch.put(&number.to_be_bytes(), &[number as u8; 20]);
    }
    database.write(batch, Durability::Written).unwrap();
    let view = database.view().unwrap();
    let walk = || RunWalker::new(&view, &Bounds::default(), false);
    let all: Vec<u32> = (0..count).collect();

    // Several at once: the thread is at one of them.
    let mut walks = [walk(), walk(), walk()];
    for walk in &mut walks {
        walk.seek_to_first().unwrap();
        for number in 0..4_000 {
            let (key, _) = walk.entry().unwrap();
            assert_eq!(key, u32::to_be_bytes(number));
            walk.step(Direction::Forward).unwrap();
        }
        assert!(walk.is_read_ahead());
    }
    let [mut on, mut back, mut elsewhere] = walks;
    assert_eq!(rest_of(&mut on, Direction::Forward), all[4_000..]);
    let backwards = rest_of(&mut back, Direction::Reverse);
    assert!(backwards.iter().eq(all[..=4_000].iter().rev()));
    elsewhere.seek(&7_u32.to_be_bytes()).unwrap();
    assert!(!elsewhere.is_read_ahead());
    assert_eq!(rest_of(&mut elsewhere, Direction::Forward), all[7..]);
    // Ended: the thread has left it.
    assert!(elsewhere.entry().is_none());
    elsewhere.seek_to_last().unwrap();
    assert_eq!(rest_of(&mut elsewhere, Direction::Reverse).len(), all.len());

    // The last hold on a store goes where it is dropped.
    let mut last = walk();
    last.seek_to_first().unwrap();
    while !last.is_read_ahead() {
        last.step(Direction::Forward).unwrap();
    }
    drop((on, back, elsewhere, view, database));
    last.step(Direction::Forward).unwrap();
    drop(last);
    let database = Database::open(folder.path(), &settings("forest")).unwrap();
    let view = database.view().unwrap();
    let mut closed = RunWalker::new(&view, &Bounds::default(), false);
    closed.seek_to_first().unwrap();
    while !closed.is_read_ahead() {
        closed.step(Direction::Forward).unwrap();
    }
    database.close().unwrap();
    let step = closed.step(Direction::Forward);
    assert!(matches!(step, Err(Error::Closed)));
    assert!(closed.entry().is_none());
}

#[test]
fn an_engine_without_comparators_is_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    for engine in ["zdb", "alphard"] {
        let path = folder.path().join(engine);
        let compared = Settings {
            comparator: Some(Arc::new(IgnoringCase)),
            ..settings(engine)
        };
        let error = Database::open(&path, &compared).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("comparator"), "{error}");
        assert!(!path.exists());
    }
}
