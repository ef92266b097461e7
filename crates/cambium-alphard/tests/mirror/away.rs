//! File systems below a store in which one of its members is away, or fails from
//! some moment on; and the engine, opened so that it often is.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cambium_alphard::Alphard;
use cambium_alphard::format::Superblock;
use cambium_api::{
    CheckReport, Engine, EngineKind, Error, OptionSpec, OptionValues, ProgressSink, Result,
};
use cambium_io::{Environment, File, FileSystem, Metadata, OpenOptions};
use cambium_testkit::layer::{FileLayer, FileSystemLayer, Layered};

/// A file system in which one path fails after some operations on it.
#[derive(Debug)]
pub struct Away {
    below: Arc<dyn FileSystem>,
    path: PathBuf,
    left: Arc<AtomicU64>,
}

/// A world in which `path` fails after `operations` on it; at once is not there.
pub fn without(environment: &Environment, path: &Path, operations: u64) -> Environment {
    Environment {
        file_system: Arc::new(Layered(Away {
            below: environment.file_system.clone(),
            path: path.to_path_buf(),
            left: Arc::new(AtomicU64::new(operations)),
        })),
        ..environment.clone()
    }
}

/// Counts an operation; fails when none is left.
fn spend(left: &AtomicU64, path: &Path) -> Result<()> {
    let spent = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        left.checked_sub(1)
    });
    match spent {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::io("use", path, std::io::Error::from_raw_os_error(5))),
    }
}

impl FileSystemLayer for Away {
    fn below(&self) -> &dyn FileSystem {
        &*self.below
    }

    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        if path != self.path {
            return self.below.open(path, options);
        }
        spend(&self.left, path)?;
        Ok(Arc::new(Layered(AwayFile {
            below: self.below.open(path, options)?,
            left: self.left.clone(),
        })))
    }

    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        if path == self.path && self.left.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        self.below.metadata(path)
    }
}

#[derive(Debug)]
struct AwayFile {
    below: Arc<dyn File>,
    left: Arc<AtomicU64>,
}

impl AwayFile {
    fn spend(&self) -> Result<&dyn File> {
        spend(&self.left, self.below.path())?;
        Ok(&*self.below)
    }
}

impl FileLayer for AwayFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.spend()?.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.spend()?.write_at(buffer, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.spend()?.sync_data()
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.spend()?.set_length(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.spend()?.allocate(offset, length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.spend()?.punch_hole(offset, length)
    }
}

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

    fn check(
        &self,
        environment: &Environment,
        path: &Path,
        progress: &dyn ProgressSink,
    ) -> Result<CheckReport> {
        Alphard.check(environment, path, progress)
    }

    fn inspect(&self, environment: &Environment, path: &Path, to: &mut dyn Write) -> Result<()> {
        Alphard.inspect(environment, path, to)
    }

    fn repair(
        &self,
        environment: &Environment,
        path: &Path,
        progress: &dyn ProgressSink,
    ) -> Result<CheckReport> {
        Alphard.repair(environment, path, progress)
    }
}
