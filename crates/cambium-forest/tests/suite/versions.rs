//! No get answers an older version of a key than the last put of it that was answered:
//! beside flushes, packing, compactions that begin by themselves or are called, and after
//! reopening, whether the store was closed or not.
//!
//! Each value carries the version of its key. Every writer has keys of its own, so the
//! last version that was acknowledged is known to all threads. Keys are drawn evenly or
//! skewed; values have all lengths from none to 64 KiB, many of them right beside a
//! threshold of the engine. `CAMBIUM_ROUNDS` sets how often each case runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cambium_api::{
    CompactOptions, Direction, Durability, Engine, EngineKind, KeyRange, OptionValues,
};
use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_io::sync::schedule::Schedule;
use cambium_io::sync::{scheduler, thread};

const WRITERS: u64 = 3;
/// Bytes of a version at the beginning of a value.
const VERSION_BYTES: usize = 8;
/// Lengths beside which the engine does something else: a copied value, a block, a
/// document that is not cached, a small write, the largest write through a window.
const THRESHOLDS: [usize; 6] = [64, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10];

/// How keys are drawn.
#[derive(Clone, Copy, Debug)]
enum Draw {
    Evenly,
    /// By the fourth power of an even number: few keys are written again and again.
    Skewed,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    /// Options of the creation.
    shape: &'static [(&'static str, &'static str)],
    /// Options of each opening.
    tuning: &'static [(&'static str, &'static str)],
    keys: u64,
    operations: u64,
    draw: Draw,
    /// Lengths of values: from the first, up to the second.
    lengths: (usize, usize),
    /// `compact` is called again and again.
    compacts: bool,
}

/// The last acknowledged version of each key.
type Acknowledged = Vec<AtomicU64>;

fn key(number: u64) -> Vec<u8> {
    format!("key {number:012}").into_bytes()
}

fn value(version: u64, length: usize) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.resize(VERSION_BYTES + length, version as u8);
    value
}

fn version(value: &[u8]) -> u64 {
    let (version, rest) = value.split_first_chunk::<VERSION_BYTES>().unwrap();
    let version = u64::from_le_bytes(*version);
    assert!(rest.iter().all(|&byte| byte == version as u8), "torn");
    version
}

impl Case {
    fn draw(&self, generator: &mut Generator) -> u64 {
        match self.draw {
            Draw::Evenly => generator.below(self.keys),
            Draw::Skewed => {
                let even = generator.below(1 << 20) as f64 / f64::from(1 << 20);
                (even.powi(4) * self.keys as f64) as u64
            }
        }
    }

    fn length(&self, generator: &mut Generator) -> usize {
        let (least, most) = self.lengths;
        let near = THRESHOLDS[generator.below(THRESHOLDS.len() as u64) as usize];
        let beside = near.saturating_sub(96) + generator.below(128) as usize;
        let length = match generator.below(4) {
            0 => beside,
            _ => least + generator.below((most - least + 1) as u64) as usize,
        };
        length.clamp(least, most)
    }

    /// Writes the keys of one writer, and reads those of all.
    fn write(&self, store: &dyn Engine, acknowledged: &Acknowledged, writer: u64, seed: u64) {
        let mut generator = Generator::new(seed * WRITERS + writer);
        for _ in 0..self.operations {
            let drawn = self.draw(&mut generator);
            if generator.below(2) == 0 {
                self.read(store, acknowledged, drawn, &mut generator);
                continue;
            }
            let own = drawn / WRITERS * WRITERS + writer;
            let Some(last) = acknowledged.get(own as usize) else {
                continue;
            };
            let next = last.load(Ordering::Relaxed) + 1;
            let value = value(next, self.length(&mut generator));
            store.put(&key(own), &value, Durability::Written).unwrap();
            last.store(next, Ordering::Release);
        }
    }

    fn read(
        &self,
        store: &dyn Engine,
        acknowledged: &Acknowledged,
        drawn: u64,
        generator: &mut Generator,
    ) {
        let few: Vec<u64> = (0..4).map(|_| self.draw(generator)).collect();
        match generator.below(16) {
            0 => {
                let least: Vec<u64> = few.iter().map(|&of| known(acknowledged, of)).collect();
                let keys: Vec<Vec<u8>> = few.iter().map(|&number| key(number)).collect();
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let found = store.multi_get(&keys).unwrap();
                for ((number, least), found) in few.into_iter().zip(least).zip(found) {
                    expect(self, number, least, found.as_deref());
                }
            }
            1 => {
                let least = known(acknowledged, drawn);
                let range = KeyRange {
                    from: Some(key(drawn)),
                    to: Some(key(drawn + 1)),
                };
                let mut cursor = store.scan(&range, Direction::Forward).unwrap();
                let found = cursor.next().unwrap();
                expect(
                    self,
                    drawn,
                    least,
                    found.as_ref().map(|entry| &*entry.value),
                );
            }
            _ => {
                let least = known(acknowledged, drawn);
                let found = store.get(&key(drawn)).unwrap();
                expect(self, drawn, least, found.as_deref());
            }
        }
    }

    /// Lives of a store: the first ends as if the process died, the others by a close.
    fn run(&self, seed: u64) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let environment = Environment::real();
        let tuning = OptionValues::from(self.tuning);
        let mut all = tuning.clone();
        for (name, value) in self.shape {
            all.set(name, value);
        }
        let acknowledged: Acknowledged = (0..self.keys).map(|_| AtomicU64::new(0)).collect();
        let mut store = Forest.create(&environment, &path, &all).unwrap();
        for life in 0..3 {
            self.live(&store, &acknowledged, seed * 3 + life);
            if life > 0 {
                store.close().unwrap();
            }
            drop(store);
            store = Forest.open(&environment, &path, &tuning, &()).unwrap();
            for number in 0..self.keys {
                let last = known(&acknowledged, number);
                let found = store.get(&key(number)).unwrap();
                let found = found.as_deref().map_or(0, version);
                assert_eq!(found, last, "key {number} after reopening, of {self:?}");
            }
        }
        assert!(store.check(&()).unwrap().is_sound());
    }

    fn live(&self, store: &Arc<dyn Engine>, acknowledged: &Acknowledged, seed: u64) {
        let written = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if self.compacts {
                scope.spawn(|| {
                    while !written.load(Ordering::Relaxed) {
                        store.compact(&CompactOptions::default(), &()).unwrap();
                    }
                });
            }
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| scope.spawn(move || self.write(&**store, acknowledged, writer, seed)))
                .collect();
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            written.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|ended| ended.unwrap());
        });
    }
}

fn known(acknowledged: &Acknowledged, number: u64) -> u64 {
    acknowledged[number as usize].load(Ordering::Acquire)
}

fn expect(case: &Case, number: u64, least: u64, found: Option<&[u8]>) {
    let found = found.map_or(0, version);
    assert!(
        found >= least,
        "key {number} has version {found}, and {least} was acknowledged, of {case:?}"
    );
}

fn rounds() -> u64 {
    let rounds = std::env::var("CAMBIUM_ROUNDS").ok();
    rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

fn seed() -> u64 {
    let seed = std::env::var("CAMBIUM_SEED").ok();
    seed.and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

const DEFAULTS: Case = Case {
    shape: &[],
    tuning: &[],
    keys: 20_000,
    operations: 20_000,
    draw: Draw::Skewed,
    lengths: (0, 200),
    compacts: false,
};

/// Every path is met within a few thousand operations.
const TINY: Case = Case {
    shape: &[("node_bytes", "512"), ("block_bytes", "512")],
    tuning: &[
        ("write_buffer_entries", "32"),
        ("preallocate_bytes", "4096"),
        ("segment_bytes", "16KiB"),
        ("compaction_least_bytes", "8192"),
        ("compaction_memory_bytes", "12288"),
        ("cache_bytes", "65536"),
    ],
    keys: 400,
    operations: 3_000,
    ..DEFAULTS
};

fn runs(cases: &[Case]) {
    for round in 0..rounds() {
        for case in cases {
            case.run(seed() + round);
        }
    }
}

#[test]
fn no_get_goes_back_with_the_defaults() {
    runs(&[
        DEFAULTS,
        Case {
            draw: Draw::Evenly,
            ..DEFAULTS
        },
        Case {
            keys: 300,
            operations: 1_500,
            lengths: (0, 64 << 10),
            ..DEFAULTS
        },
        Case {
            compacts: true,
            tuning: &[
                ("cache_bytes", "1MiB"),
                ("compaction_threshold", "5"),
                ("compaction_least_bytes", "0"),
            ],
            ..DEFAULTS
        },
    ]);
}

#[test]
fn no_get_goes_back_with_tiny_constants() {
    let packed: &[(&str, &str)] = &[
        ("write_buffer_entries", "200"),
        ("preallocate_bytes", "4096"),
        ("segment_bytes", "16KiB"),
        ("compaction_least_bytes", "8192"),
        ("cache_bytes", "20000"),
        ("sort", "deal"),
    ];
    runs(&[
        TINY,
        Case {
            draw: Draw::Evenly,
            ..TINY
        },
        Case {
            compacts: true,
            ..TINY
        },
        Case {
            tuning: packed,
            keys: 4_000,
            ..TINY
        },
        Case {
            tuning: packed,
            keys: 4_000,
            compacts: true,
            ..TINY
        },
        Case {
            operations: 600,
            lengths: (0, 64 << 10),
            compacts: true,
            ..TINY
        },
        Case {
            tuning: &[
                ("write_buffer_entries", "32"),
                ("preallocate_bytes", "4096"),
                ("segment_bytes", "16KiB"),
                ("compaction_least_bytes", "8192"),
                ("direct", "on"),
                ("cache_bytes", "65536"),
            ],
            operations: 1_000,
            compacts: true,
            ..TINY
        },
    ]);
}

/// Whether a get goes back while a snapshot keeps older versions, in an interleaving that
/// the seed decides.
fn a_get_goes_back(seed: u64, bug: Option<&'static str>) -> bool {
    let program = move || {
        let disk = SimulatedDisk::new(seed);
        let environment = Environment::simulated(&disk, seed);
        let mut options = OptionValues::from([("preallocate_bytes", "4096")]);
        bug.into_iter()
            .for_each(|bug| _ = options.set("seeded_bug", bug));
        let path = Path::new("/store");
        let store = Forest.create(&environment, path, &options).unwrap();
        let put = |store: &dyn Engine, next: u64| {
            store
                .put(b"key", &value(next, 0), Durability::Written)
                .unwrap();
        };
        put(&*store, 1);
        let snapshot = store.snapshot().unwrap();
        let (other, acknowledged) = (store.clone(), Arc::new(AtomicU64::new(1)));
        let last = acknowledged.clone();
        let writer = thread::spawn(move || {
            for next in 2..20 {
                put(&*other, next);
                last.store(next, Ordering::Release);
            }
        });
        let mut goes_back = false;
        for _ in 0..20 {
            let least = acknowledged.load(Ordering::Acquire);
            let found = store.get(b"key").unwrap();
            goes_back |= version(&found.unwrap()) < least;
        }
        writer.join().unwrap();
        assert_eq!(version(&snapshot.get(b"key").unwrap().unwrap()), 1);
        goes_back
    };
    let run = scheduler::run(Schedule::random(seed), program);
    run.outcome
        .unwrap_or_else(|failure| panic!("seed {seed}: {failure}"))
}

#[test]
fn no_get_goes_back_to_what_a_snapshot_keeps() {
    assert!(!(0..60).any(|seed| a_get_goes_back(seed, None)));
    let bug = Some("passed_versions_found");
    assert!((0..60).any(|seed| a_get_goes_back(seed, bug)));
}
