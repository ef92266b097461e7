//! A disk that is full: what is in stays, deletes go through sooner or later, and the space
//! of what was deleted takes new entries.

use std::collections::BTreeMap;
use std::time::Duration;

use cambium_api::{CompactOptions, Durability, Engine};
use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_io::{Environment, StepOutcome};

use crate::stores::entries;
use crate::subject::Subject;

/// Bytes of the disk.
const CAPACITY: u64 = 32 << 20;
/// Bytes of a device's block.
const BLOCK_BYTES: usize = 4096;
/// A refused delete is tried again so many times, each after the background had time.
const PATIENCE: u32 = 10;
/// The background has had its time after so many steps that did nothing.
const IDLE_STEPS: u32 = 8;
/// Within so many steps in all.
const MOST_STEPS: u32 = 20_000;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// One way to fill a disk.
#[derive(Debug)]
struct Course {
    value_bytes: usize,
    puts: Durability,
    deletes: Durability,
    /// Deletes go through the entries in no order.
    is_shuffled: bool,
    /// One entry of so many stays.
    kept: usize,
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

impl Course {
    fn drawn(generator: &mut Generator) -> Course {
        let durability = [Durability::Written, Durability::Synced];
        let value_bytes = *generator.pick(&[200, 1_000, 48_000]);
        let puts = *generator.pick(&durability);
        let deletes = *generator.pick(&durability);
        let ending = *generator.pick(&[Ending::GoesOn, Ending::Closes, Ending::Dies]);
        Course {
            value_bytes,
            puts,
            // Each that is synced by itself takes a block: small entries take no more.
            deletes: match value_bytes > 4 * BLOCK_BYTES {
                true => deletes,
                false => Durability::Written,
            },
            is_shuffled: generator.chance(1, 2),
            kept: *generator.pick(&[3, 10]),
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
}

/// A store on a disk that has no more room than it takes.
struct Full<'s> {
    subject: &'s Subject,
    disk: SimulatedDisk,
    environment: Environment,
    state: State,
    /// Of the next key.
    next: u64,
    course: Course,
}

/// Fills a disk, deletes most, and fills it again, in as many ways as there are seeds.
///
/// # Errors
/// The seeds, and what did not hold.
pub fn fill_and_empty(subject: &Subject, seeds: impl Iterator<Item = u64>) -> Result<(), String> {
    let mut failures = Vec::new();
    for seed in seeds {
        let mut generator = Generator::new(seed);
        let disk = subject.disk(seed);
        disk.set_capacity(Some(CAPACITY));
        let mut full = Full {
            subject,
            environment: subject.environment(&disk, seed),
            disk,
            state: State::new(),
            next: 0,
            course: Course::drawn(&mut generator),
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

impl Full<'_> {
    fn run(&mut self, generator: &mut Generator) -> Result<(), String> {
        let store = self.subject.create(&self.environment);
        let store = store.map_err(|error| format!("create: {error}"))?;
        self.fill(&*store)?;
        // Whoever is refused tries again: that takes nothing of what deletes need.
        for _ in 0..self.course.retries {
            self.rest(&*store)?;
            self.fill(&*store)?;
        }
        if let Ending::Closes = self.course.ending {
            store
                .close()
                .map_err(|error| format!("close when full: {error}"))?;
        }
        if let Ending::Dies = self.course.ending {
            self.disk = self.disk.process_crash();
            self.disk.set_capacity(Some(CAPACITY));
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
            self.rest(&*store)?;
            self.fill(&*store)?;
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
        let store = self.subject.open(&self.environment);
        let store = store.map_err(|error| format!("open: {error}"))?;
        self.same(&*store)
    }

    /// Puts until one is refused.
    fn fill(&mut self, store: &dyn Engine) -> Result<(), String> {
        loop {
            let number = self.next;
            self.next += 1;
            let mut value = vec![number as u8; self.course.value_bytes];
            value[..8].copy_from_slice(&number.to_le_bytes());
            let key = number.to_be_bytes().to_vec();
            match store.put(&key, &value, self.course.puts) {
                Ok(_) => _ = self.state.insert(key, value),
                Err(error) if error.is_no_space() => return Ok(()),
                Err(error) => return Err(format!("put {number}: {error}")),
            }
        }
    }

    fn delete_most(&mut self, store: &dyn Engine, generator: &mut Generator) -> Result<(), String> {
        let all = self.state.keys().enumerate();
        let doomed = all.filter(|(place, _)| place % self.course.kept != 0);
        let mut doomed: Vec<Vec<u8>> = doomed.map(|(_, key)| key.clone()).collect();
        if self.course.is_shuffled {
            for last in (1..doomed.len()).rev() {
                doomed.swap(last, generator.below(last as u64 + 1) as usize);
            }
        }
        for (count, key) in doomed.iter().enumerate() {
            self.delete(store, key)
                .map_err(|error| format!("delete {count} of {}: {error}", doomed.len()))?;
        }
        Ok(())
    }

    fn delete(&mut self, store: &dyn Engine, key: &[u8]) -> Result<(), String> {
        let mut refused = 0;
        while let Err(error) = store.delete(key, self.course.deletes) {
            refused += 1;
            if !error.is_no_space() || refused > PATIENCE {
                return Err(error.to_string());
            }
            match self.course.compacts {
                true => _ = store.compact(&CompactOptions::default(), &()),
                false => self.rest(store)?,
            }
        }
        self.state.remove(key);
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
