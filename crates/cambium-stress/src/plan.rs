//! The plan of a store and its load: drawn once from a seed, kept in `plan.json` beside the
//! store, read by each worker.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium::{
    CheckReport, Engine, EngineKind, Environment, OptionSpec, OptionValues, Options, ProgressSink,
    Result,
};
use serde::{Deserialize, Serialize};

use crate::content::KeyShape;

/// A store and its load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub engine: String,
    pub seed: u64,
    pub shape: KeyShape,
    /// Options of creation.
    pub creation: BTreeMap<String, String>,
    /// Options of an opening, and others that openings may have instead.
    pub opening: BTreeMap<String, String>,
    pub other_openings: Vec<BTreeMap<String, String>>,
    /// Most bytes of nearly all values.
    pub most_value: u32,
    /// Percent of changes that are buffered, and that are synced; the others are written.
    pub buffered: u64,
    pub synced: u64,
    /// Puts and gets of skewed keys alone, as programs that count on a store do.
    pub plain: bool,
    /// The keys of such a load are drawn uniformly.
    pub uniform: bool,
    /// A seeded bug of the engine.
    pub seeded_bug: Option<String>,
}

impl Plan {
    pub fn load(folder: &Path) -> std::io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(
            folder.join("plan.json"),
        )?)?)
    }

    pub fn store(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::write(folder.join("plan.json"), serde_json::to_vec_pretty(self)?)
    }

    /// The plan with the options that a seed draws for an opening.
    pub fn drawn(mut self, seed: u64) -> Self {
        let drawn = seed as usize % (self.other_openings.len() + 1);
        if let Some(other) = self.other_openings.get(drawn) {
            self.opening = other.clone();
        }
        self
    }

    /// The options of an opening.
    pub fn options(&self) -> Options {
        set_all(self.engines(Options::new()), &self.opening)
    }

    /// Options of creation and of the first opening.
    pub fn options_of_creation(&self) -> Options {
        set_all(self.options(), &self.creation)
    }

    fn engines(&self, options: Options) -> Options {
        let Some(bug) = &self.seeded_bug else {
            return options;
        };
        let engines = cambium::engines();
        match engines.get(&self.engine) {
            None => options,
            Some(kind) => options.engines(engines.with(Arc::new(Seeded {
                kind,
                bug: bug.clone(),
            }))),
        }
    }
}

fn set_all(options: Options, values: &BTreeMap<String, String>) -> Options {
    values
        .iter()
        .fold(options, |options, (name, value)| options.set(name, value))
}

/// An engine with a defect: the facade refuses the option that seeds it.
struct Seeded {
    kind: Arc<dyn EngineKind>,
    bug: String,
}

impl Seeded {
    fn seeded(&self, options: &OptionValues) -> OptionValues {
        let mut options = options.clone();
        options.set("seeded_bug", &self.bug);
        options
    }
}

impl EngineKind for Seeded {
    fn name(&self) -> &'static str {
        self.kind.name()
    }
    fn format_version(&self) -> u32 {
        self.kind.format_version()
    }
    fn summary(&self) -> &'static str {
        self.kind.summary()
    }
    fn options(&self) -> &'static [OptionSpec] {
        self.kind.options()
    }
    fn owns_file(&self, name: &str) -> bool {
        self.kind.owns_file(name)
    }
    fn kept_options(&self) -> &'static [&'static str] {
        self.kind.kept_options()
    }
    fn create(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
    ) -> Result<Arc<dyn Engine>> {
        self.kind.create(environment, path, &self.seeded(options))
    }
    fn open(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>> {
        self.kind
            .open(environment, path, &self.seeded(options), progress)
    }
    fn open_read_only(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>> {
        self.kind
            .open_read_only(environment, path, &self.seeded(options), progress)
    }
    fn check(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<CheckReport> {
        self.kind
            .check(environment, path, &self.seeded(options), progress)
    }
    fn inspect(
        &self,
        environment: &Environment,
        path: &Path,
        to: &mut dyn std::io::Write,
    ) -> Result<()> {
        self.kind.inspect(environment, path, to)
    }
    fn repair(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<CheckReport> {
        self.kind
            .repair(environment, path, &self.seeded(options), progress)
    }
}
