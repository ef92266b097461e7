//! A store and its backup: what one of them does must never be seen in the other, also
//! where they share files, and a crash while a backup is made must leave all of it or
//! nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cambium_api::{CompactOptions, Durability, Engine, Error, KeyRange, Result, SequenceNumber};
use cambium_io::simulated::{CrashStyle, Generator, ProbePoints, Sharing, SimulatedDisk};
use cambium_io::{Environment, FileKind, FileSystem, StepOutcome};

use crate::subject::Subject;
use crate::workload::key;

/// Crash images that a run looks at.
const IMAGES: u64 = 40;
/// Keys that are written.
const KEYS: u64 = 40;
const LARGEST_VALUE: u64 = 20_000;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store that is written, and what it should hold.
struct Written {
    path: PathBuf,
    store: Arc<dyn Engine>,
    state: State,
}

/// A run in a folder that is there, of a file system of any kind.
struct Run<'a> {
    subject: &'a Subject,
    environment: Environment,
    folder: PathBuf,
    generator: Generator,
}

/// Makes backups of a store and of its backup, goes on with all of them, deletes the first,
/// and holds each against what it should be after each step.
///
/// # Errors
/// What was found, for a message.
pub fn stay_apart(
    subject: &Subject,
    environment: &Environment,
    folder: &Path,
    seed: u64,
) -> std::result::Result<(), String> {
    let mut run = Run {
        subject,
        environment: environment.clone(),
        folder: folder.to_path_buf(),
        generator: Generator::new(seed),
    };
    run.stay_apart()
        .map_err(|error| format!("seed {seed}: {error}"))
}

/// Backs up a store on a disk that is crashed while that is done: the store has all that was
/// synced, and at the destination there is a whole copy or none.
///
/// # Errors
/// What was found, for a message.
pub fn survive_crashes(
    subject: &Subject,
    sharing: Sharing,
    seed: u64,
) -> std::result::Result<(), String> {
    survive_crashes_of(subject, sharing, seed).map_err(|error| format!("seed {seed}: {error}"))
}

fn survive_crashes_of(subject: &Subject, sharing: Sharing, seed: u64) -> Result<()> {
    let disk = SimulatedDisk::new(seed);
    disk.set_sharing(sharing);
    let mut run = Run {
        subject,
        environment: subject.environment(&disk, seed),
        folder: PathBuf::from("/"),
        generator: Generator::new(seed),
    };
    let mut source = run.create("store")?;
    run.write(&mut source, 60)?;
    source.store.sync()?;
    let points: Arc<Mutex<Vec<SimulatedDisk>>> = Arc::default();
    let sink = points.clone();
    disk.set_crash_probe(ProbePoints::Operations, move |point| {
        let mut points = sink.lock().unwrap_or_else(PoisonError::into_inner);
        points.push(point.disk);
    });
    source.store.backup(&run.path("copy"), &())?;
    disk.clear_crash_probe();
    let points = std::mem::take(&mut *points.lock().unwrap_or_else(PoisonError::into_inner));
    let ended = points.len() as u64;
    for _ in 0..IMAGES {
        let at = run.generator.below(ended);
        let image = points[at as usize].crash(CrashStyle::Mixed, run.generator.next_u64());
        let mut after = Run {
            environment: subject.environment(&image, at),
            folder: run.folder.clone(),
            generator: Generator::new(run.generator.next_u64()),
            ..run
        };
        after.look_at_crash(&source.state).map_err(|error| {
            failed(&format!(
                "crashed at operation {at} of {ended} of the backup: {error}"
            ))
        })?;
    }
    source.store.close()
}

fn failed(what: &str) -> Error {
    Error::InvalidArgument(what.to_string())
}

impl Run<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn create(&self, name: &str) -> Result<Written> {
        let (path, options) = (self.path(name), self.subject.create_options());
        let kind = self.subject.kind();
        Ok(Written {
            store: kind.create(&self.environment, &path, &options)?,
            path,
            state: State::new(),
        })
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Engine>> {
        let kind = self.subject.kind();
        kind.open(&self.environment, path, self.subject.open_options(), &())
    }

    /// Backs a store up, and opens the copy.
    fn back_up(&self, from: &Written, name: &str) -> Result<Written> {
        let path = self.path(name);
        let before = from.store.snapshot()?.sequence();
        let last: SequenceNumber = from.store.backup(&path, &())?;
        if last < before {
            return Err(failed(&format!("a backup through {last} after {before}")));
        }
        let copy = Written {
            store: self.open(&path)?,
            path,
            state: from.state.clone(),
        };
        self.compare(&copy)?;
        Ok(copy)
    }

    fn compare(&self, written: &Written) -> Result<()> {
        let found = crate::conformance::contents(&*written.store).map_err(|what| failed(&what))?;
        let found: State = found.into_iter().collect();
        if found == written.state {
            return Ok(());
        }
        let differs = |(key, value): (&Vec<u8>, &Vec<u8>)| found.get(key) != Some(value);
        let changed = written
            .state
            .iter()
            .filter(|&(k, v)| differs((k, v)))
            .count();
        Err(failed(&format!(
            "{}: {} keys are there of {}, {changed} differ",
            written.path.display(),
            found.len(),
            written.state.len()
        )))
    }

    fn check(&self, written: &Written) -> Result<()> {
        let report = written.store.check(&())?;
        match report.findings.first() {
            None => Ok(()),
            Some(finding) => Err(failed(&format!("{}: {finding:?}", written.path.display()))),
        }
    }

    /// Writes and deletes, and has background work done in between.
    fn write(&mut self, into: &mut Written, operations: u64) -> Result<()> {
        let kind = into.store.capabilities().keys;
        for _ in 0..operations {
            let key = key(kind, self.generator.below(KEYS));
            if self.generator.chance(1, 6) {
                into.store.delete(&key, Durability::Written)?;
                into.state.remove(&key);
            } else {
                let mut value = self.generator.next_u64().to_le_bytes().to_vec();
                let length = 8 + self.generator.below(LARGEST_VALUE) as usize;
                value.resize(length, self.generator.below(256) as u8);
                into.store.put(&key, &value, Durability::Written)?;
                into.state.insert(key, value);
            }
            if self.generator.chance(1, 5) {
                into.store.step(64 << 10)?;
            }
        }
        while into.store.step(1 << 20)? == StepOutcome::Again {}
        Ok(())
    }

    /// Goes on with a store in every way that changes its files.
    fn go_on(&mut self, with: &mut Written) -> Result<()> {
        self.write(with, 60)?;
        match self.generator.below(4) {
            0 => _ = with.store.compact(&CompactOptions::default(), &())?,
            1 => {
                with.store.close()?;
                with.store = self.open(&with.path)?;
            }
            2 if with.store.capabilities().ordered => {
                with.store
                    .delete_range(KeyRange::all(), Durability::Written)?;
                with.state.clear();
                self.write(with, 20)?;
            }
            _ => with.store.sync()?,
        }
        Ok(())
    }

    fn stay_apart(&mut self) -> Result<()> {
        let mut first = self.create("first")?;
        self.write(&mut first, 100)?;
        let mut second = self.back_up(&first, "second")?;
        for _ in 0..2 {
            self.go_on(&mut first)?;
            self.compare(&second)?;
            self.go_on(&mut second)?;
            self.compare(&first)?;
        }
        let mut third = self.back_up(&second, "third")?;
        self.go_on(&mut second)?;
        let mut fourth = self.back_up(&first, "fourth")?;
        self.go_on(&mut first)?;
        for store in [&first, &second, &third, &fourth] {
            self.compare(store)?;
            self.check(store)?;
        }
        first.store.close()?;
        drop(first);
        self.remove("first")?;
        for store in [&mut second, &mut third, &mut fourth] {
            store.store.close()?;
            store.store = self.open(&store.path)?;
            self.compare(store)?;
            self.go_on(store)?;
            self.compare(store)?;
            self.check(store)?;
        }
        for store in [second, third, fourth] {
            store.store.close()?;
            let (kind, options) = (self.subject.kind(), self.subject.open_options());
            let report = kind.check(&self.environment, &store.path, options, &())?;
            if let Some(finding) = report.findings.first() {
                return Err(failed(&format!("{}: {finding:?}", store.path.display())));
            }
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        remove_folder(&*self.environment.file_system, &self.path(name))
    }

    /// After a crash: the store is whole, the copy is whole or not there, and a backup can
    /// be made in its place.
    fn look_at_crash(&mut self, state: &State) -> Result<()> {
        let mut source = Written {
            path: self.path("store"),
            store: self.open(&self.path("store"))?,
            state: state.clone(),
        };
        self.compare(&source)?;
        let copy = self.path("copy");
        let mut copy = match self.open(&copy) {
            Ok(store) => Written {
                path: copy,
                store,
                state: state.clone(),
            },
            Err(Error::NotAStore { .. } | Error::Io { .. }) => self.back_up(&source, "copy")?,
            Err(error) => return Err(error),
        };
        self.compare(&copy)?;
        self.go_on(&mut source)?;
        self.compare(&copy)?;
        self.go_on(&mut copy)?;
        self.compare(&source)?;
        self.check(&source)?;
        self.check(&copy)
    }
}

fn remove_folder(files: &dyn FileSystem, folder: &Path) -> Result<()> {
    for entry in files.list(folder)? {
        let path = folder.join(&entry.name);
        match entry.kind {
            FileKind::Directory => remove_folder(files, &path)?,
            _ => files.remove(&path)?,
        }
    }
    files.remove_directory(folder)
}
