//! A disk that is full, or a store that has reached its size: what is in stays, deletes go
//! through sooner or later, and the space of what was deleted takes new entries.

use std::collections::BTreeMap;
use std::time::Duration;

use cambium_api::{CompactOptions, Durability, Engine, WriteBatch};
use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_io::{Environment, StepOutcome};

use crate::stores::entries;
use crate::subject::Subject;

/// Bytes of the disk.
const CAPACITY: u64 = 32 << 20;
/// Bytes of a device's block.
const BLOCK_BYTES: u64 = 4096;
/// A refused delete is tried again so many times, each after the background had time.
const PATIENCE: u32 = 10;
/// The background has had its time after so many steps that did nothing.
const IDLE_STEPS: u32 = 8;
/// Within so many steps in all.
const MOST_STEPS: u32 = 20_000;
/// The key that each batch of deletes may write over.
const COUNTER: &[u8] = &[0; 8];

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// One way to fill a disk.
#[derive(Debug)]
struct Course {
    value_bytes: u64,
    /// Values have any length below that.
    lengths_vary: bool,
    puts: Durability,
    deletes: Durability,
    /// The store is full when so many puts in a row were refused.
    refusals: u32,
    /// Deletes go through the entries in no order.
    is_shuffled: bool,
    /// Deletes in a batch.
    together: usize,
    /// Each batch of deletes writes over a counter.
    counts: bool,
    /// One entry of so many stays.
    kept: usize,
    /// A refused delete is tried again so many times.
    patience: u32,
    /// A refused delete calls `compact`, and does not wait for the background.
    compacts: bool,
    /// Refused puts are tried again so many times.
    retries: u64,
    ending: Ending,
}

/// The full store goes on, is closed, or loses its process.
#[derive(Clone, Copy, Debug)]
enum Ending {
    GoesOn,
    Closes,
    /// The process dies, and the operating system lives on.
    Dies,
}

const ENDINGS: [Ending; 3] = [Ending::GoesOn, Ending::Closes, Ending::Dies];

impl Course {
    fn of_disk(generator: &mut Generator) -> Course {
        let durability = [Durability::Written, Durability::Synced];
        let value_bytes = *generator.pick(&[200, 1_000, 48_000]);
        let puts = *generator.pick(&durability);
        let deletes = *generator.pick(&durability);
        let ending = *generator.pick(&ENDINGS);
        let counts = generator.chance(1, 2);
        Course {
            value_bytes,
            lengths_vary: false,
            puts,
            refusals: 1,
            // Each that is synced by itself takes a block: small entries take no more.
            deletes: match value_bytes > 4 * BLOCK_BYTES {
                true => deletes,
                false => Durability::Written,
            },
            is_shuffled: generator.chance(1, 2),
            together: *generator.pick(&[1, 1, 100]),
            counts,
            kept: *generator.pick(&[3, 10]),
            patience: 0,
            compacts: generator.chance(1, 4),
            // Entries that are synced by themselves take a block each, and less when they were
            // moved: then fewer come than went.
            retries: match (ending, puts) {
                (Ending::GoesOn, Durability::Written) => 100,
                _ => 0,
            },
            ending,
        }
    }

    /// A store that may refuse deletes until its background has made room.
    fn of_disk_with_patience(generator: &mut Generator) -> Course {
        Course {
            together: 1,
            counts: false,
            patience: PATIENCE,
            ..Course::of_disk(generator)
        }
    }

    /// A store that has a size makes room at once, without its background.
    fn of_store_with_a_size(generator: &mut Generator) -> Course {
        let durability = [
            Durability::Buffered,
            Durability::Written,
            Durability::Synced,
        ];
        Course {
            value_bytes: *generator.pick(&[100, 3_000, 40_000]),
            lengths_vary: true,
            puts: *generator.pick(&durability),
            deletes: *generator.pick(&durability),
            // A large one is refused early, for lack of space in one piece.
            refusals: 11,
            is_shuffled: false,
            together: *generator.pick(&[1, 10, 1_000]),
            counts: generator.chance(1, 2),
            kept: *generator.pick(&[3, 10, usize::MAX]),
            patience: 0,
            compacts: false,
            retries: 0,
            ending: *generator.pick(&ENDINGS),
        }
    }
}

/// A store on a disk that has no more room than it takes.
struct Full {
    subject: Subject,
    disk: SimulatedDisk,
    /// Bytes of the disk.
    capacity: Option<u64>,
    environment: Environment,
    state: State,
    /// Of the next key.
    next: u64,
    course: Course,
}

/// Fills a disk, deletes most, and fills it again, in as many ways as there are seeds. No delete
/// is refused.
///
/// # Errors
/// The seeds, and what did not hold.
pub fn fill_and_empty(subject: &Subject, seeds: impl Iterator<Item = u64>) -> Result<(), String> {
    in_each_way(subject, Some(CAPACITY), Course::of_disk, seeds)
}

/// The same of a store that may refuse deletes until its background has made room.
///
/// # Errors
/// The seeds, and what did not hold.
pub fn fill_and_empty_with_patience(
    subject: &Subject,
    seeds: impl Iterator<Item = u64>,
) -> Result<(), String> {
    in_each_way(
        subject,
        Some(CAPACITY),
        Course::of_disk_with_patience,
        seeds,
    )
}

/// The same of a store that has a size, on a disk that is larger. Deletes are never refused,
/// and the background is not needed.
///
/// # Errors
/// The seeds, and what did not hold.
pub fn fill_and_empty_to_size(
    subject: &Subject,
    seeds: impl Iterator<Item = u64>,
) -> Result<(), String> {
    in_each_way(subject, None, Course::of_store_with_a_size, seeds)
}

fn in_each_way(
    subject: &Subject,
    capacity: Option<u64>,
    course: fn(&mut Generator) -> Course,
    seeds: impl Iterator<Item = u64>,
) -> Result<(), String> {
    let mut failures = Vec::new();
    for seed in seeds {
        let mut generator = Generator::new(seed);
        let subject = subject.draw(&mut generator, true);
        let disk = subject.disk(seed);
        disk.set_capacity(capacity);
        let mut full = Full {
            environment: subject.environment(&disk, seed),
            subject,
            disk,
            capacity,
            state: State::new(),
            next: 1,
            course: course(&mut generator),
        };
        let outcome = full.run(&mut generator);
        if let Err(what) = outcome {
            failures.push(format!("seed {seed}, {:?}: {what}", full.course));
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.join("\n")),
    }
}

impl Full {
    fn run(&mut self, generator: &mut Generator) -> Result<(), String> {
        let store = self.subject.create(&self.environment);
        let store = store.map_err(|error| format!("create: {error}"))?;
        if self.course.counts {
            let counter = vec![0; 8];
            let put = store.put(COUNTER, &counter, Durability::Written);
            put.map_err(|error| format!("put the counter: {error}"))?;
            self.state.insert(COUNTER.to_vec(), counter);
        }
        self.fill(&*store, generator)?;
        // Whoever is refused tries again: that takes nothing of what deletes need.
        for _ in 0..self.course.retries {
            self.rest(&*store)?;
            self.fill(&*store, generator)?;
        }
        if let Ending::Closes = self.course.ending {
            store
                .close()
                .map_err(|error| format!("close when full: {error}"))?;
        }
        if let Ending::Dies = self.course.ending {
            if self.course.puts == Durability::Buffered {
                // Buffered writes would die with the process.
                let synced = store.sync();
                synced.map_err(|error| format!("sync when full: {error}"))?;
            }
            self.disk = self.disk.process_crash();
            self.disk.set_capacity(self.capacity);
            self.environment = self.subject.environment(&self.disk, generator.next_u64());
        }
        let store = match self.course.ending {
            Ending::GoesOn => store,
            Ending::Closes | Ending::Dies => {
                drop(store);
                let opened = self.subject.open(&self.environment);
                opened.map_err(|error| format!("open when full: {error}"))?
            }
        };
        self.same(&*store)?;
        let before = self.state.len();
        self.delete_most(&*store, generator)?;
        self.same(&*store)?;
        let left = self.state.len();
        // A put that is refused wakes the background.
        for _ in 0..2 {
            if self.capacity.is_some() {
                self.rest(&*store)?;
            }
            self.fill(&*store, generator)?;
        }
        let came = self.state.len() - left;
        if came < (before - left) / 2 {
            return Err(format!(
                "of {before} entries {left} were left, and {came} came"
            ));
        }
        self.same(&*store)?;
        store.close().map_err(|error| format!("close: {error}"))?;
        drop(store);
        let report = self.subject.check(&self.environment);
        let report = report.map_err(|error| format!("check: {error}"))?;
        if !report.is_sound() {
            return Err(format!("{report:?}"));
        }
        let store = self.subject.open(&self.environment);
        let store = store.map_err(|error| format!("open: {error}"))?;
        self.same(&*store)
    }

    /// Puts until the store is full.
    fn fill(&mut self, store: &dyn Engine, generator: &mut Generator) -> Result<(), String> {
        let mut refused = 0;
        while refused < self.course.refusals {
            let number = self.next;
            self.next += 1;
            let bytes = match self.course.lengths_vary {
                true => generator.below(self.course.value_bytes),
                false => self.course.value_bytes,
            };
            let mut value = vec![number as u8; bytes as usize];
            if let Some(start) = value.first_chunk_mut() {
                *start = number.to_le_bytes();
            }
            let key = number.to_be_bytes().to_vec();
            match store.put(&key, &value, self.course.puts) {
                Ok(_) => {
                    self.state.insert(key, value);
                    refused = 0;
                }
                Err(error) if error.is_no_space() => refused += 1,
                Err(error) => return Err(format!("put {number}: {error}")),
            }
        }
        Ok(())
    }

    fn delete_most(&mut self, store: &dyn Engine, generator: &mut Generator) -> Result<(), String> {
        let all = self.state.keys().filter(|key| *key != COUNTER).enumerate();
        let doomed = all.filter(|(place, _)| place % self.course.kept != 0);
        let mut doomed: Vec<Vec<u8>> = doomed.map(|(_, key)| key.clone()).collect();
        if self.course.is_shuffled {
            for last in (1..doomed.len()).rev() {
                doomed.swap(last, generator.below(last as u64 + 1) as usize);
            }
        }
        for (count, keys) in doomed.chunks(self.course.together).enumerate() {
            self.delete(store, keys)
                .map_err(|error| format!("batch {count} of {} deletes: {error}", doomed.len()))?;
        }
        Ok(())
    }

    /// Deletes keys in one batch, or half of them after the other where there is no room.
    fn delete(&mut self, store: &dyn Engine, keys: &[Vec<u8>]) -> Result<(), String> {
        let mut refused = 0;
        let count = (self.state.len() as u64).to_le_bytes();
        loop {
            let mut batch = WriteBatch::new();
            keys.iter().for_each(|key| _ = batch.delete(key));
            if self.course.counts {
                batch.put(COUNTER, &count);
            }
            let Err(error) = store.write(batch, self.course.deletes) else {
                break;
            };
            if error.is_no_space() && keys.len() > 1 {
                let (some, others) = keys.split_at(keys.len() / 2);
                self.delete(store, some)?;
                return self.delete(store, others);
            }
            refused += 1;
            if !error.is_no_space() || refused > self.course.patience {
                return Err(error.to_string());
            }
            match self.course.compacts {
                true => _ = store.compact(&CompactOptions::default(), &()),
                false => self.rest(store)?,
            }
        }
        keys.iter().for_each(|key| _ = self.state.remove(key));
        if self.course.counts {
            self.state.insert(COUNTER.to_vec(), count.to_vec());
        }
        Ok(())
    }

    /// Lets the background work until it has nothing more to do.
    fn rest(&self, store: &dyn Engine) -> Result<(), String> {
        let mut rested = 0;
        for _ in 0..MOST_STEPS {
            if rested == IDLE_STEPS {
                return Ok(());
            }
            match store.step(1 << 20) {
                Ok(StepOutcome::Again) => {}
                Err(error) if !error.is_no_space() => return Err(format!("step: {error}")),
                _ => {
                    rested += 1;
                    self.environment.clock.sleep(Duration::from_secs(2));
                }
            }
        }
        Err(format!(
            "after {MOST_STEPS} steps the background has more to do"
        ))
    }

    fn same(&self, store: &dyn Engine) -> Result<(), String> {
        let found = entries(store);
        match found == self.state {
            true => Ok(()),
            false => Err(format!(
                "{} entries are there, and {} should be",
                found.len(),
                self.state.len()
            )),
        }
    }
}
