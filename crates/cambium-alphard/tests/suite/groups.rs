//! Requests that are planned together: what their entries take, what each is answered, and what
//! a crash leaves of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use cambium_alphard::Alphard;
use cambium_api::{Durability, Engine, EngineKind, OptionValues, Request, Response, Result};
use cambium_io::Environment;
use cambium_io::simulated::{CrashStyle, Generator, SimulatedDisk};
use cambium_testkit::stores::{self, entries as contents, number};

use crate::by_hand::ByHand;

const KEYS: u64 = 80;

/// A store whose requests wait until a worker is told to take them.
struct Grouped {
    hand: ByHand,
    store: Arc<dyn Engine>,
    answers: Arc<Mutex<Vec<Result<Response>>>>,
}

impl Grouped {
    fn new(disk: &SimulatedDisk, seed: u64, key_cache_bytes: &str) -> Self {
        Grouped::with_blocks(disk, seed, key_cache_bytes, "512")
    }

    fn with_blocks(
        disk: &SimulatedDisk,
        seed: u64,
        key_cache_bytes: &str,
        block_bytes: &str,
    ) -> Self {
        let hand = ByHand::default();
        let environment = Environment {
            executor: Arc::new(hand.clone()),
            ..Environment::simulated(disk, seed)
        };
        let options = OptionValues::from([
            ("size", "1MiB"),
            ("block_bytes", block_bytes),
            ("queues", "1"),
            ("key_cache_bytes", key_cache_bytes),
        ]);
        Grouped {
            hand,
            store: stores::create(&Alphard, &environment, &options),
            answers: Arc::default(),
        }
    }

    fn submit(&self, key: &[u8], value: Option<&[u8]>, durability: Durability) {
        let key = key.to_vec();
        let request = match value.map(<[u8]>::to_vec) {
            Some(value) => Request::Put {
                key,
                value,
                durability,
            },
            None => Request::Delete { key, durability },
        };
        let answers = self.answers.clone();
        let completion = Box::new(move |answer| answers.lock().unwrap().push(answer));
        self.store.submit(request, completion);
    }

    /// Lets a worker take all requests as one group; answers what each was answered.
    fn work(&self) -> Vec<Result<Response>> {
        self.hand.work();
        self.hand.answer();
        std::mem::take(&mut *self.answers.lock().unwrap())
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:012}").into_bytes()
}

/// Random groups, in which keys come twice, and a crash after each; answers the number of packs.
fn any_crash_leaves_a_prefix_of_groups(seed: u64) -> u64 {
    let mut random = Generator::new(seed);
    let key_cache = if random.below(2) == 0 { "0" } else { "16MiB" };
    let disk = SimulatedDisk::new(seed);
    let grouped = Grouped::new(&disk, seed, key_cache);
    let mut states = vec![BTreeMap::new()];
    let mut durable = 0;
    for group in 0..30 {
        let before = states.len();
        let level = match random.below(3) {
            0 => Durability::Buffered,
            1 => Durability::Written,
            _ => Durability::Synced,
        };
        for step in 0..1 + random.below(60) {
            let key = key(random.below(KEYS));
            let mut state = states.last().unwrap().clone();
            if random.below(4) == 0 {
                grouped.submit(&key, None, level);
                state.remove(&key);
            } else {
                let bytes = [100, 100, 100, 3_000][random.below(4) as usize];
                let value = vec![(group * 64 + step) as u8; bytes];
                grouped.submit(&key, Some(&value), level);
                state.insert(key, value);
            }
            states.push(state);
        }
        let mut last = 0;
        let answers = grouped.work();
        assert_eq!(answers.len(), states.len() - before);
        for answer in answers {
            let Response::Written(sequence) = answer.unwrap() else {
                panic!("another answer")
            };
            assert!(sequence.0 >= last, "{sequence:?} after {last}");
            last = sequence.0;
        }
        assert_eq!(last, number(&*grouped.store, "sequence"));
        if level == Durability::Synced {
            durable = states.len() - 1;
        }
        let now = states.last().unwrap().clone();
        assert!(contents(&*grouped.store).into_iter().eq(now));
        let crashed = disk.crash(CrashStyle::Mixed, seed << 8 | group);
        let environment = Environment::simulated(&crashed, seed);
        let options = OptionValues::from([("io", "sync")]);
        let opened = Alphard.open(&environment, Path::new("/store"), &options, &());
        let left: BTreeMap<_, _> = contents(&*opened.unwrap()).into_iter().collect();
        let is_prefix = states[durable..].contains(&left);
        assert!(is_prefix, "group {group}: {} entries", left.len());
    }
    number(&*grouped.store, "packs")
}

#[test]
fn any_crash_leaves_a_prefix_of_what_groups_wrote() {
    let packs: u64 = (0..20).map(any_crash_leaves_a_prefix_of_groups).sum();
    assert!(packs > 100, "{packs}");
}

#[test]
fn small_entries_of_one_group_share_blocks() {
    let grouped = Grouped::new(&SimulatedDisk::new(1), 1, "0");
    let before = number(&*grouped.store, "free_bytes");
    for at in 0..200 {
        grouped.submit(&key(at), Some(&[1; 100]), Durability::Synced);
    }
    assert!(grouped.work().iter().all(Result::is_ok));
    let taken = before - number(&*grouped.store, "free_bytes");
    assert!(taken < 200 * 116 * 4 / 3, "{taken}");
    assert_eq!(number(&*grouped.store, "entries"), 200);
}

/// Groups of few writers make packs that are short; cleaning lays these together.
#[test]
fn a_store_takes_as_many_entries_from_small_groups_as_from_large_ones() {
    for block_bytes in ["512", "4096"] {
        for group in [1, 4, 5, 8, 16, 64] {
            let grouped = Grouped::with_blocks(&SimulatedDisk::new(1), 1, "0", block_bytes);
            let mut count = 0;
            loop {
                for at in count..count + group {
                    grouped.submit(&key(at), Some(&[1; 100]), Durability::Written);
                }
                if grouped.work().iter().any(Result::is_err) {
                    break;
                }
                count += group;
            }
            assert!(count > 5_000, "{count} in groups of {group}, {block_bytes}");
        }
    }
}

/// Requests without space take none of the others with them.
#[test]
fn each_request_of_a_group_has_its_own_answer() {
    let grouped = Grouped::new(&SimulatedDisk::new(1), 1, "0");
    let fill = |at: u64| {
        grouped
            .store
            .put(&key(at), &[2; 3_000], Durability::Written)
    };
    let filled = (100..).find(|at| fill(*at).is_err()).unwrap();
    let deleted = |at: u64| at.is_multiple_of(4);
    for at in 0..200 {
        match deleted(at) {
            true => grouped.submit(&key(filled - 1 - at), None, Durability::Written),
            false => grouped.submit(&key(1_000 + at), Some(&[1; 3_000]), Durability::Written),
        }
    }
    let answers = grouped.work();
    assert_eq!(answers.len(), 200);
    let refused: Vec<u64> = (0..200)
        .filter(|at| answers[*at as usize].is_err())
        .collect();
    assert!(refused.iter().all(|at| !deleted(*at)), "{refused:?}");
    assert!(!refused.is_empty() && refused.len() < 150, "{refused:?}");
    for at in (0..200).filter(|at| !deleted(*at)) {
        let found = grouped.store.get(&key(1_000 + at)).unwrap();
        assert_eq!(found.is_none(), refused.contains(&at), "{at}");
    }
}
