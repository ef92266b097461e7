//! The engine, opened so that one of its members is often away, or fails from some moment on.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use cambium_alphard::Alphard;
use cambium_alphard::format::Superblock;
use cambium_api::{
    CheckReport, Engine, EngineKind, Error, OptionSpec, OptionValues, ProgressSink, Result,
};
use cambium_io::{Environment, FileSystem, OpenOptions};
use cambium_testkit::ending::without;

/// The engine over `/one` and `/two`; about every second opening is without one of
/// them, where the store can do without: both have everything, or this one has not.
#[derive(Debug)]
pub struct Forsaken;

/// Paths of the members in all tests here.
pub const MEMBERS: [&str; 2] = ["/one", "/two"];

/// What a member's newest superblock says of who is current.
fn said_by(file_system: &dyn FileSystem, path: &Path) -> Option<(u64, u32)> {
    let file = file_system.open(path, OpenOptions::READ).ok()?;
    let mut bytes = vec![0; 8192];
    file.read_at(&mut bytes, 0).ok()?;
    let copies = bytes.chunks(4096);
    let sound = copies.filter_map(|copy| Superblock::decode(copy, path).ok().flatten());
    sound.map(|found| (found.generation, found.current)).max()
}

impl EngineKind for Forsaken {
    fn name(&self) -> &'static str {
        Alphard.name()
    }

    fn format_version(&self) -> u32 {
        Alphard.format_version()
    }

    fn summary(&self) -> &'static str {
        Alphard.summary()
    }

    fn options(&self) -> &'static [OptionSpec] {
        Alphard.options()
    }

    fn create(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
    ) -> Result<Arc<dyn Engine>> {
        Alphard.create(environment, path, options)
    }

    fn open(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>> {
        let said = MEMBERS.map(|member| said_by(&*environment.file_system, Path::new(member)));
        let chance = environment.randomness.next_u64();
        // Both must say so: one alone may lack the moment in which that became true.
        let member = match said.map(|said| said.map(|(_, current)| current)) {
            [Some(0b11), Some(0b11)] => chance as usize >> 1 & 1,
            [Some(0b01), _] => 1,
            [_, Some(0b10)] => 0,
            _ => return Alphard.open(environment, path, options, progress),
        };
        // Some fail at once, some a little later.
        let operations = match chance >> 2 & 3 {
            0 | 1 => u64::MAX,
            2 => 0,
            _ => chance >> 4 & 31,
        };
        let environment = without(environment, Path::new(MEMBERS[member]), operations);
        Alphard.open(&environment, path, options, progress)
    }

    /// Refused: the opening that follows may lose another member, or lose it later, and rightly
    /// come to another state.
    fn open_read_only(
        &self,
        _: &Environment,
        _: &Path,
        _: &OptionValues,
        _: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>> {
        Err(Error::Unsupported {
            engine: self.name(),
            what: "opening a store for reading alone while members fail",
            instead: "open it to write",
        })
    }

    fn check(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<CheckReport> {
        Alphard.check(environment, path, options, progress)
    }

    fn inspect(&self, environment: &Environment, path: &Path, to: &mut dyn Write) -> Result<()> {
        Alphard.inspect(environment, path, to)
    }

    fn repair(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<CheckReport> {
        Alphard.repair(environment, path, options, progress)
    }
}
