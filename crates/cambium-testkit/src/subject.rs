//! What is under test: an engine, its options, and what is broken on purpose.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    CheckReport, Durability, Engine, EngineKind, IterationOrder, OptionValues, Result,
};
use cambium_io::Environment;
use cambium_io::simulated::{Generator, SimulatedDisk};

use crate::broken::{Breakage, BrokenFileSystem};

/// Where suites put their store.
pub(crate) fn store_path() -> &'static Path {
    Path::new("/store")
}

/// A repair of a store.
pub type Repair = fn(&dyn EngineKind, &Environment, &Path) -> Result<CheckReport>;

/// An engine with the options it is tested under.
#[derive(Clone)]
pub struct Subject {
    kind: &'static dyn EngineKind,
    /// The engine below the value layer, where `kind` has the layer.
    pub(crate) below: Option<&'static dyn EngineKind>,
    creation: OptionValues,
    opening: OptionValues,
    /// Options with the values that runs draw from, and whether they are of creation.
    drawn: Vec<(&'static str, &'static [&'static str], bool)>,
    breakage: Option<Breakage>,
    /// The engine's own repair, or one with a defect.
    pub(crate) repair: Repair,
    /// Most runs of threads make few kinds of calls on few keys.
    pub(crate) focused: bool,
    /// The space of deletes comes back while the store is idle.
    pub(crate) frees_space: bool,
    /// Crash suites let operations of recoveries fail.
    pub(crate) recoveries_fail: bool,
    /// Block devices: path, bytes, bytes of a sector.
    devices: Vec<(&'static str, u64, u32)>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {:?} {:?}",
            self.kind.name(),
            self.creation,
            self.opening
        )
    }
}

impl Subject {
    /// An engine with its own defaults.
    pub fn new(kind: &'static dyn EngineKind) -> Self {
        Subject {
            kind,
            below: None,
            creation: OptionValues::default(),
            opening: OptionValues::default(),
            drawn: Vec::new(),
            breakage: None,
            repair: |kind, environment, path| {
                kind.repair(environment, path, &Default::default(), &())
            },
            focused: false,
            frees_space: false,
            recoveries_fail: true,
            devices: Vec::new(),
        }
    }

    /// Says that the kind is the value layer above this engine.
    #[must_use]
    pub fn layer_above(mut self, engine: &'static dyn EngineKind) -> Self {
        self.below = Some(engine);
        self
    }

    /// Gives each simulated disk a block device, for an option of the engine.
    #[must_use]
    pub fn device(
        mut self,
        option: &str,
        path: &'static str,
        bytes: u64,
        sector_bytes: u32,
    ) -> Self {
        self.devices.push((path, bytes, sector_bytes));
        self.creation(option, path)
    }

    /// A new disk, with the devices if there are to be some.
    pub(crate) fn disk(&self, seed: u64) -> SimulatedDisk {
        let disk = SimulatedDisk::new(seed);
        for &(path, bytes, sector_bytes) in &self.devices {
            disk.add_device(Path::new(path), bytes, sector_bytes);
        }
        disk
    }

    /// Sets an option that is fixed at creation.
    #[must_use]
    pub fn creation(mut self, name: &str, value: &str) -> Self {
        self.creation.set(name, value);
        self
    }

    /// Sets an option of each opening, creation included.
    #[must_use]
    pub fn opening(mut self, name: &str, value: &str) -> Self {
        self.opening.set(name, value);
        self
    }

    /// Lets runs of threads draw an option's value: of creation once a run, of opening
    /// for each session.
    #[must_use]
    pub fn any(
        mut self,
        name: &'static str,
        values: &'static [&'static str],
        of_creation: bool,
    ) -> Self {
        self.drawn.push((name, values, of_creation));
        self
    }

    /// The same subject with drawn values of its options of creation, or of opening.
    pub(crate) fn draw(&self, generator: &mut Generator, of_creation: bool) -> Self {
        let mut subject = self.clone();
        for &(name, values, creation) in &self.drawn {
            if creation == of_creation {
                let options = match creation {
                    true => &mut subject.creation,
                    false => &mut subject.opening,
                };
                let value: &&str = generator.pick(values);
                options.set(name, value);
            }
        }
        subject
    }

    /// Puts a file system below the engine that breaks its contract.
    #[must_use]
    pub fn broken(mut self, breakage: Breakage) -> Self {
        self.breakage = Some(breakage);
        self
    }

    /// The engine.
    pub fn kind(&self) -> &'static dyn EngineKind {
        self.kind
    }

    /// Options for `create`: those of creation and of opening.
    pub(crate) fn create_options(&self) -> OptionValues {
        let mut options = self.creation.clone();
        for (name, value) in self.opening.iter() {
            options.set(name, value);
        }
        options
    }

    /// Options for `open`.
    pub(crate) fn open_options(&self) -> &OptionValues {
        &self.opening
    }

    /// A simulated world over a disk, with the breakage in between.
    pub(crate) fn environment(&self, disk: &SimulatedDisk, seed: u64) -> Environment {
        self.break_environment(Environment::simulated(disk, seed))
    }

    /// Puts the breakage below a world.
    pub(crate) fn break_environment(&self, mut environment: Environment) -> Environment {
        if let Some(breakage) = self.breakage {
            let below = environment.file_system.clone();
            environment.file_system = BrokenFileSystem::above(below, breakage);
        }
        environment
    }

    pub(crate) fn create(&self, environment: &Environment) -> Result<Arc<dyn Engine>> {
        self.kind
            .create(environment, store_path(), &self.create_options())
    }

    pub(crate) fn open(&self, environment: &Environment) -> Result<Arc<dyn Engine>> {
        self.kind
            .open(environment, store_path(), &self.opening, &())
    }

    pub(crate) fn open_read_only(&self, environment: &Environment) -> Result<Arc<dyn Engine>> {
        self.kind
            .open_read_only(environment, store_path(), &self.opening, &())
    }

    pub(crate) fn check(&self, environment: &Environment) -> Result<CheckReport> {
        self.kind
            .check(environment, store_path(), &self.opening, &())
    }

    pub(crate) fn repair(&self, environment: &Environment) -> Result<CheckReport> {
        (self.repair)(self.kind, environment, store_path())
    }
}

/// Repairs a store, and then deletes its first entry.
pub(crate) fn repair_and_lose(
    kind: &dyn EngineKind,
    environment: &Environment,
    path: &Path,
) -> Result<CheckReport> {
    let report = kind.repair(environment, path, &Default::default(), &())?;
    let store = kind.open(environment, path, &OptionValues::default(), &())?;
    let first = store
        .iterate(IterationOrder::Any, None)?
        .next_key()?
        .map(|key| key.to_vec());
    if let Some(key) = first {
        store.delete(&key, Durability::Synced)?;
    }
    store.close()?;
    Ok(report)
}
