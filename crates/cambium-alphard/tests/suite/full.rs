//! A store without free space: deletes empty it, also beside a counter that each batch writes
//! over, and their space takes new entries.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_alphard::Alphard;
use cambium_api::{Durability, Engine, EngineKind, OptionValues, WriteBatch};
use cambium_io::Environment;
use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_testkit::stores::entries;

const PATH: &str = "/store";
const COUNTER: &[u8] = b"counter";

type State = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Copy, Debug)]
enum Ending {
    GoesOn,
    Closes,
    /// The process dies, and the operating system lives on.
    Dies,
}

/// One way to fill and to empty a store.
#[derive(Debug)]
struct Course {
    block_bytes: &'static str,
    /// Most bytes of a value.
    value_bytes: u64,
    puts: Durability,
    deletes: Durability,
    /// Deletes in a batch.
    together: usize,
    /// Each batch writes over the counter.
    counts: bool,
    /// One entry of so many stays.
    kept: usize,
    ending: Ending,
}

impl Course {
    fn drawn(generator: &mut Generator) -> Course {
        let durability = [
            Durability::Buffered,
            Durability::Written,
            Durability::Synced,
        ];
        Course {
            block_bytes: generator.pick::<&str>(&["512", "4096"]),
            value_bytes: *generator.pick(&[100, 3_000, 40_000]),
            puts: *generator.pick(&durability),
            deletes: *generator.pick(&durability),
            together: *generator.pick(&[1, 10, 1_000]),
            counts: generator.chance(1, 2),
            kept: *generator.pick(&[3, 10, usize::MAX]),
            ending: *generator.pick(&[Ending::GoesOn, Ending::Closes, Ending::Dies]),
        }
    }
}

struct Full {
    disk: SimulatedDisk,
    state: State,
    course: Course,
    seed: u64,
}

impl Full {
    fn environment(&self) -> Environment {
        Environment::simulated(&self.disk, self.seed)
    }

    fn open(&self) -> Arc<dyn Engine> {
        let opened = Alphard.open(
            &self.environment(),
            Path::new(PATH),
            &OptionValues::default(),
            &(),
        );
        opened.unwrap()
    }

    fn run(&mut self, generator: &mut Generator) {
        let options = OptionValues::from([
            ("size", "1MiB"),
            ("block_bytes", self.course.block_bytes),
            ("extend_bytes", "65536"),
        ]);
        let created = Alphard.create(&self.environment(), Path::new(PATH), &options);
        let mut store = created.unwrap();
        if self.course.counts {
            store.put(COUNTER, &[0; 8], Durability::Written).unwrap();
            self.state.insert(COUNTER.to_vec(), vec![0; 8]);
        }
        self.fill(&*store, 0, generator);
        let before = self.state.len();
        match self.course.ending {
            Ending::GoesOn => {}
            Ending::Closes => {
                store.close().unwrap();
                drop(store);
                store = self.open();
            }
            Ending::Dies => {
                // Buffered writes would die with the process.
                store.sync().unwrap();
                self.disk = self.disk.process_crash();
                store = self.open();
            }
        }
        self.delete_most(&*store);
        assert_eq!(entries(&*store), self.state);
        let left = self.state.len();
        self.fill(&*store, 1 << 32, generator);
        let came = self.state.len() - left;
        assert!(
            came >= (before - left) / 2,
            "of {before} entries {left} were left, and {came} came"
        );
        store.close().unwrap();
        drop(store);
        let report = Alphard.check(
            &self.environment(),
            Path::new(PATH),
            &OptionValues::default(),
            &(),
        );
        assert!(report.unwrap().is_sound());
        assert_eq!(entries(&*self.open()), self.state);
    }

    /// Puts until several in a row are refused: a large one is refused early, for lack of space
    /// in one piece.
    fn fill(&mut self, store: &dyn Engine, from: u64, generator: &mut Generator) {
        let mut refused = 0;
        for number in from.. {
            let bytes = generator.below(self.course.value_bytes) as usize;
            let (key, value) = (number.to_be_bytes().to_vec(), vec![number as u8; bytes]);
            match store.put(&key, &value, self.course.puts) {
                Ok(_) => {
                    self.state.insert(key, value);
                    refused = 0;
                }
                Err(error) if error.is_no_space() && refused == 10 => return,
                Err(error) if error.is_no_space() => refused += 1,
                Err(error) => panic!("put {number}: {error}"),
            }
        }
    }

    fn delete_most(&mut self, store: &dyn Engine) {
        let all = self.state.keys().filter(|key| *key != COUNTER).enumerate();
        let kept = self.course.kept;
        let doomed = all.filter(|(place, _)| (place + 1) % kept != 0);
        let doomed: Vec<Vec<u8>> = doomed.map(|(_, key)| key.clone()).collect();
        for keys in doomed.chunks(self.course.together) {
            self.delete(store, keys);
        }
    }

    /// Deletes keys in one batch, or half of them after the other where there is no room.
    fn delete(&mut self, store: &dyn Engine, keys: &[Vec<u8>]) {
        let mut batch = WriteBatch::new();
        keys.iter().for_each(|key| _ = batch.delete(key));
        let count = (self.state.len() as u64).to_le_bytes();
        if self.course.counts {
            batch.put(COUNTER, &count);
        }
        match store.write(batch, self.course.deletes) {
            Ok(_) => {
                keys.iter().for_each(|key| _ = self.state.remove(key));
                if self.course.counts {
                    self.state.insert(COUNTER.to_vec(), count.to_vec());
                }
            }
            Err(error) if error.is_no_space() && keys.len() > 1 => {
                let (some, others) = keys.split_at(keys.len() / 2);
                self.delete(store, some);
                self.delete(store, others);
            }
            Err(error) => panic!("delete of {}: {error}", keys.len()),
        }
    }
}

#[test]
fn a_full_store_is_emptied_and_filled_again() {
    for seed in 0..60 {
        let mut generator = Generator::new(seed);
        let mut full = Full {
            disk: SimulatedDisk::new(seed),
            state: State::new(),
            course: Course::drawn(&mut generator),
            seed,
        };
        println!("seed {seed}, {:?}", full.course);
        full.run(&mut generator);
    }
}

/// A write over an entry of the same size gives back as much as it takes.
#[test]
fn a_full_store_takes_writes_over_what_is_there() {
    for block_bytes in ["512", "4096"] {
        let disk = SimulatedDisk::new(1);
        let environment = Environment::simulated(&disk, 1);
        let options = OptionValues::from([("size", "256KiB"), ("block_bytes", block_bytes)]);
        let store = Alphard
            .create(&environment, Path::new(PATH), &options)
            .unwrap();
        let mut count = 0u32;
        while store
            .put(&count.to_be_bytes(), &[1; 100], Durability::Written)
            .is_ok()
        {
            count += 1;
        }
        for round in 0..3u8 {
            for number in 0..count {
                store
                    .put(&number.to_be_bytes(), &[round; 100], Durability::Written)
                    .unwrap();
            }
            let new = store.put(b"new", b"", Durability::Written);
            assert!(new.unwrap_err().is_no_space());
        }
        assert_eq!(entries(&*store).len(), count as usize);
    }
}
