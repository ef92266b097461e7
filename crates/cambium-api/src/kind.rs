//! An engine's kind as a table of its functions.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use cambium_base::Result;
use cambium_io::Environment;

use crate::engine::{Engine, EngineKind};
use crate::options::{OptionSpec, OptionValues};
use crate::report::{CheckReport, ProgressSink};

/// As [`EngineKind::open`] and its like.
type With<T> = fn(&Environment, &Path, &OptionValues, &dyn ProgressSink) -> Result<T>;

/// A kind that has no state: each field is the answer, or the function, of the method of
/// [`EngineKind`] with its name.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the methods have the same names
pub struct Kind {
    pub name: &'static str,
    pub format_version: u32,
    pub summary: &'static str,
    pub options: &'static [OptionSpec],
    pub owns_file: fn(&str) -> bool,
    pub kept_options: &'static [&'static str],
    pub create: fn(&Environment, &Path, &OptionValues) -> Result<Arc<dyn Engine>>,
    pub open: With<Arc<dyn Engine>>,
    pub open_read_only: With<Arc<dyn Engine>>,
    pub check: With<CheckReport>,
    pub inspect: fn(&Environment, &Path, &mut dyn Write) -> Result<()>,
    pub repair: With<CheckReport>,
}

impl EngineKind for Kind {
    fn name(&self) -> &'static str {
        self.name
    }

    fn format_version(&self) -> u32 {
        self.format_version
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn options(&self) -> &'static [OptionSpec] {
        self.options
    }

    fn owns_file(&self, name: &str) -> bool {
        (self.owns_file)(name)
    }

    fn kept_options(&self) -> &'static [&'static str] {
        self.kept_options
    }

    fn create(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
    ) -> Result<Arc<dyn Engine>> {
        (self.create)(environment, path, options)
    }

    fn open(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>> {
        (self.open)(environment, path, options, progress)
    }

    fn open_read_only(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>> {
        (self.open_read_only)(environment, path, options, progress)
    }

    fn check(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<CheckReport> {
        (self.check)(environment, path, options, progress)
    }

    fn inspect(&self, environment: &Environment, path: &Path, to: &mut dyn Write) -> Result<()> {
        (self.inspect)(environment, path, to)
    }

    fn repair(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<CheckReport> {
        (self.repair)(environment, path, options, progress)
    }
}
