//! How stores are made, opened and mended: a builder, and the calls that take
//! a path.
//!
//! Options of engines are text, as on the command line: `cambium options`
//! lists them with unit, default and effect, and so does
//! [`EngineKind::options`].

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    CheckReport, Durability, Engine, EngineKind, Error, Finding, FindingKind, OptionValues,
    ProgressSink, Result,
    options::{invalid_option, parse_bytes},
};
use cambium_backup::is_place;
use cambium_io::sync::OnceLock;
use cambium_io::{Environment, events};
use cambium_storage::marker::{MARKER_NAME, Marker, read_marker};

use crate::engines::{Engines, engines};
use crate::store::Store;

/// Settings for making and opening stores.
///
/// What an engine can be told it lists by itself, with unit, default and effect:
///
/// ```
/// for option in cambium::engines().find("forest")?.options() {
///     println!("{} = {} ({})\n    {}", option.name, option.default, option.unit, option.effect);
/// }
/// # Ok::<(), cambium::Error>(())
/// ```
///
/// A name or value that the engine does not know is an error that says which are:
///
/// ```
/// use cambium::Options;
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// let options = Options::new().set("keys", "integer").set("data_files", 2);
/// let store = options.create(folder.path().join("years"), "zdb")?;
///
/// let mistaken = Options::new().set("data_fiels", 2);
/// let error = mistaken.create(folder.path().join("other"), "zdb").unwrap_err();
/// assert!(error.to_string().contains("did you mean data_files?"), "{error}");
/// # store.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) values: OptionValues,
    pub(crate) environment: Environment,
    engines: Engines,
    pub(crate) progress: Arc<dyn ProgressSink>,
    durability: Durability,
}

impl Default for Options {
    fn default() -> Self {
        Options::new()
    }
}

/// The option, of no engine, that sets [`Options::memory_budget`] as text: from the command
/// line, from C and from Python.
pub const MEMORY_BUDGET: &str = "memory_budget";

/// One real environment for all stores of the process: its cache is one, so that two
/// stores do not take twice as much.
fn shared_environment() -> Environment {
    static SHARED: OnceLock<Environment> = OnceLock::new();
    SHARED.get_or_init(Environment::real).clone()
}

impl Options {
    /// Every option at its default, in the real environment.
    pub fn new() -> Self {
        Options {
            values: OptionValues::default(),
            environment: shared_environment(),
            engines: engines(),
            progress: Arc::new(()),
            durability: Durability::default(),
        }
    }

    /// Sets one option of the engine, or [`MEMORY_BUDGET`]. A name or value that the engine
    /// does not know is refused when the store is made or opened.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl ToString) -> Self {
        let value = value.to_string();
        match parse_bytes(&value).filter(|_| name == MEMORY_BUDGET) {
            Some(bytes) => self.memory_budget(bytes),
            None => {
                self.values.set(name, &value);
                self
            }
        }
    }

    /// Bounds the memory of all stores that these options, and clones of them, make and open
    /// from now on: caches, write buffers, open tables and working memory of compaction share
    /// `bytes`. Options of the engine that are not set shrink to fit. Call this after
    /// [`Options::environment`].
    ///
    /// ```
    /// use cambium::Options;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// let options = Options::new().memory_budget(256 << 20);
    /// let store = options.create(folder.path().join("trees"), "forest")?;
    /// let statistics = store.stats()?;
    /// assert!(statistics.number("memory_reserved_bytes") <= Some(256 << 20));
    ///
    /// let small = Options::new().memory_budget(1 << 20);
    /// let error = small.create(folder.path().join("other"), "forest").unwrap_err();
    /// assert!(error.to_string().contains("bytes would do"), "{error}");
    /// # store.close()
    /// # }
    /// ```
    #[must_use]
    pub fn memory_budget(mut self, bytes: u64) -> Self {
        self.environment = self.environment.with_memory(bytes);
        self
    }

    /// Sets one option from `name=value`.
    ///
    /// # Errors
    /// `InvalidArgument` where there is no `=`.
    ///
    /// ```
    /// use cambium::Options;
    /// assert!(Options::new().assign("cache_bytes=64MiB").is_ok());
    /// assert!(Options::new().assign("cache_bytes").is_err());
    /// ```
    pub fn assign(self, assignment: &str) -> Result<Self> {
        let mut assigned = OptionValues::default();
        assigned.set_assignment(assignment)?;
        let options = assigned.iter();
        Ok(options.fold(self, |all, (name, value)| all.set(name, value)))
    }

    /// Runs stores in this environment (a simulated disk, a memory budget)
    /// and not in the one that the process shares.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Looks engines up in this list.
    #[must_use]
    pub fn engines(mut self, engines: Engines) -> Self {
        self.engines = engines;
        self
    }

    /// Tells this sink how far long work (recovery, check, repair, backup)
    /// has come.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use cambium::{Options, Progress, ProgressSink};
    ///
    /// struct Told;
    /// impl ProgressSink for Told {
    ///     fn report(&self, progress: Progress) {
    ///         eprintln!("{progress:?}");
    ///     }
    /// }
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # cambium::create(folder.path(), "forest", &Options::new())?.close()?;
    /// let report = Options::new().progress(Arc::new(Told)).check(folder.path())?;
    /// # assert!(report.is_sound());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn progress(mut self, progress: Arc<dyn ProgressSink>) -> Self {
        self.progress = progress;
        self
    }

    /// How safe writes are when they return, where nothing else is said: `Written` if
    /// this is not called. [`Store::with_durability`] says otherwise for single writes.
    /// It is no property of the store: each opening has its own.
    ///
    /// ```
    /// use cambium::{Durability, Options};
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// let options = Options::new().durability(Durability::Synced);
    /// let store = options.create(folder.path(), "forest")?;
    /// store.put("oak", "survives a power cut")?;
    /// # store.close()
    /// # }
    /// ```
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Makes a store in a folder that is empty or not there (its parent must
    /// be), durable when it returns, and opens it.
    ///
    /// # Errors
    /// `InvalidArgument` for an engine or option that does not exist,
    /// `AlreadyExists` where something is in the way, and what the disk says.
    ///
    /// ```
    /// use cambium::{Error, Options};
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let path = folder.path().join("trees");
    /// let store = Options::new().create(&path, "wisckey")?;
    /// let again = Options::new().create(&path, "wisckey");
    /// assert!(matches!(again, Err(Error::AlreadyExists { .. })));
    /// # store.close()
    /// # }
    /// ```
    pub fn create(&self, path: impl AsRef<Path>, engine: &str) -> Result<Store> {
        let kind = self.engines.find(engine)?;
        self.refuse_unlisted(&*kind)?;
        let path = path.as_ref();
        self.opened(path, || kind.create(&self.environment, path, &self.values))
    }

    /// Opens a store for reading and writing. One that was not closed is
    /// recovered first, which may take a while: see [`Options::progress`].
    ///
    /// # Errors
    /// `NotAStore`, `Locked` by another owner, `UnsupportedVersion` or
    /// `UnknownEngine` for a store of a newer program, `Corruption`,
    /// `InvalidArgument` for an option that does not exist or is fixed at
    /// creation, and what the disk says.
    ///
    /// ```
    /// use cambium::{Error, Options};
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let path = folder.path().join("trees");
    /// # cambium::create(&path, "forest", &Options::new())?.close()?;
    /// let store = Options::new().set("cache_bytes", "1MiB").open(&path)?;
    /// assert!(matches!(cambium::open(&path), Err(Error::Locked { .. })));
    /// # store.close()
    /// # }
    /// ```
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store> {
        let path = path.as_ref();
        let (kind, _) = self.kind_of(path)?;
        self.refuse_unlisted(&*kind)?;
        let progress = &*self.progress;
        self.opened(path, || {
            kind.open(&self.environment, path, &self.values, progress)
        })
    }

    /// Opens the store in a folder, or makes it there with `engine` if there is none.
    /// Two programs may call this at once.
    ///
    /// # Errors
    /// `InvalidArgument` for a store of another engine; otherwise as of
    /// [`Options::open`] and [`Options::create`].
    ///
    /// ```
    /// use cambium::Options;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let path = folder.path().join("trees");
    /// for visits in ["1", "2"] {
    ///     let store = Options::new().open_or_create(&path, "wisckey")?;
    ///     assert_eq!(store.get("visits")?.is_some(), visits == "2");
    ///     store.put("visits", visits)?;
    ///     store.close()?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn open_or_create(&self, path: impl AsRef<Path>, engine: &str) -> Result<Store> {
        let path = path.as_ref();
        let found = match self.marker(path) {
            Err(Error::NotAStore { .. }) => match self.create(path, engine) {
                // Another program made it since.
                Err(Error::AlreadyExists { .. }) if self.marker(path).is_ok() => self.marker(path),
                made => return made,
            },
            marker => marker,
        };
        let found = found?.engine;
        if found != engine {
            return Err(Error::InvalidArgument(format!(
                "{} is a store of engine {found}, not {engine}: name that engine, or open it \
                 without naming one",
                path.display()
            )));
        }
        self.open(path)
    }

    /// Opens a store for reading alone: its data are not changed, and nothing at
    /// all is written where the folder cannot be; writes answer `Unsupported`. Others may read
    /// beside it. A store of engine `forest` may have a process that writes it, too: the reader
    /// shows the moment at which it was opened, until [`Store::refresh`]. Stores of other
    /// engines are `Locked` for one another. What a crash left is taken
    /// into memory at each such opening, and stays there until the store is closed: how much
    /// that is, `docs/durability.md` says for each engine.
    ///
    /// # Errors
    /// As of [`Options::open`].
    ///
    /// ```
    /// use cambium::{Durability, Options};
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// let store = Options::new().create(folder.path(), "forest")?;
    /// store.put("oak", "Quercus")?;
    /// store.close()?;
    /// let store = Options::new().open_read_only(folder.path())?;
    /// assert!(store.get("oak")?.is_some());
    /// assert!(store.put("elm", "Ulmus").is_err());
    /// # store.close()
    /// # }
    /// ```
    pub fn open_read_only(&self, path: impl AsRef<Path>) -> Result<Store> {
        let path = path.as_ref();
        let (kind, _) = self.kind_of(path)?;
        self.refuse_unlisted(&*kind)?;
        let progress = &*self.progress;
        self.opened(path, || {
            kind.open_read_only(&self.environment, path, &self.values, progress)
        })
    }

    fn opened(&self, path: &Path, open: impl FnOnce() -> Result<Arc<dyn Engine>>) -> Result<Store> {
        let clock = &self.environment.clock;
        let began = clock.monotonic();
        let engine = open()?;
        let elapsed = clock.monotonic() - began;
        events::opened(engine.capabilities().engine, path, elapsed);
        Ok(Store::new(engine, path, self.durability, &self.environment))
    }

    /// Refuses options that an engine has for its own tests alone.
    fn refuse_unlisted(&self, kind: &dyn EngineKind) -> Result<()> {
        if let Some(value) = self.values.get(MEMORY_BUDGET) {
            return Err(invalid_option(MEMORY_BUDGET, value, "a number of bytes"));
        }
        let listed = |name: &str| kind.options().iter().any(|option| option.name == name);
        let mut unlisted = OptionValues::default();
        for (name, value) in self.values.iter().filter(|(name, _)| !listed(name)) {
            unlisted.set(name, value);
        }
        unlisted.finish(kind.name(), kind.options())
    }

    /// What a store says it is: engine, format version and id. Reads one
    /// small file; works beside an owner.
    ///
    /// # Errors
    /// `NotAStore`, `Corruption`, and what the disk says.
    ///
    /// ```
    /// use cambium::Options;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// let store = Options::new().create(folder.path(), "zdb")?;
    /// assert_eq!(Options::new().marker(folder.path())?.engine, "zdb");
    /// # store.close()
    /// # }
    /// ```
    pub fn marker(&self, path: impl AsRef<Path>) -> Result<Marker> {
        read_marker(&*self.environment.file_system, path.as_ref())
    }

    /// Verifies everything that a store reaches, nobody having it open, and
    /// writes nothing. Bytes that nothing reads any more need not be looked at.
    /// What a crash left and recovery would drop is a note, no damage. The options
    /// are those of [`Options::open`]. Of a folder of backups, all of them are verified.
    ///
    /// # Errors
    /// `NotAStore`, `Locked`, `UnsupportedVersion`, `InvalidArgument` for an option
    /// that does not exist, and what the disk says.
    /// Damage is no error: it stands in the report.
    pub fn check(&self, path: impl AsRef<Path>) -> Result<CheckReport> {
        let path = path.as_ref();
        if is_place(&*self.environment.file_system, path)? {
            return self.check_backups(path);
        }
        let found = self.kind_of(path).and_then(|(kind, _)| {
            self.refuse_unlisted(&*kind)?;
            kind.check(&self.environment, path, &self.values, &*self.progress)
        });
        match found {
            // Damage that left nothing to look at further, such as a marker
            // that names no engine any more, is what a check is to find.
            Err(Error::Corruption { file, offset, what }) => Ok(CheckReport {
                findings: vec![Finding {
                    kind: FindingKind::Damage,
                    file,
                    offset,
                    what,
                }],
                ..CheckReport::default()
            }),
            other => other,
        }
    }

    /// Writes the layout of a store's files as text for people; writes
    /// nothing to the store.
    ///
    /// # Errors
    /// As of [`Options::check`], and those of the writer.
    pub fn inspect(&self, path: impl AsRef<Path>, to: &mut dyn Write) -> Result<()> {
        let path = path.as_ref();
        let (kind, _) = self.kind_of(path)?;
        kind.inspect(&self.environment, path, to)
    }

    /// Brings a damaged store back to what can be read, durably. Each loss is
    /// a finding of the report. Copy the folder first if the data matter.
    ///
    /// # Errors
    /// As of [`Options::open`].
    pub fn repair(&self, path: impl AsRef<Path>) -> Result<CheckReport> {
        let path = path.as_ref();
        if is_place(&*self.environment.file_system, path)? {
            return Err(Error::InvalidArgument(format!(
                "{} is a folder of backups, which no repair mends; remove a damaged archive or full \
                 copy in it, and the next backup is a full copy; the next backup also writes a \
                 damaged or missing `BACKUPS` anew",
                path.display()
            )));
        }
        let unknown = match self.kind_of(path) {
            Ok((kind, _)) => return self.repair_as(&*kind, path),
            // Its marker may be what is missing.
            Err(error @ (Error::Corruption { .. } | Error::NotAStore { .. })) => error,
            Err(error) => return Err(error),
        };
        let kinds = match self.kinds_by_files(path) {
            Err(Error::Io { source, .. })
                if matches!(
                    source.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory
                ) =>
            {
                return Err(unknown);
            }
            kinds => kinds?,
        };
        let mut unproven = None;
        for kind in kinds {
            match self.repair_as(&*kind, path) {
                // Nothing proves that it is of this engine, which has written nothing.
                Err(error) if is_unproven(&error) => _ = unproven.get_or_insert(error),
                repaired => return repaired,
            }
        }
        Err(unproven.unwrap_or(unknown))
    }

    fn repair_as(&self, kind: &dyn EngineKind, path: &Path) -> Result<CheckReport> {
        self.refuse_unlisted(kind)?;
        kind.repair(&self.environment, path, &self.values, &*self.progress)
    }

    /// Opens a store, copies its state into `destination` (a folder that is
    /// empty or not there), durable when it returns, and closes it. An open
    /// store is backed up by [`Store::backup`].
    ///
    /// # Errors
    /// As of [`Options::open`] and [`Options::create`].
    pub fn backup(&self, path: impl AsRef<Path>, destination: impl AsRef<Path>) -> Result<()> {
        let store = self.open(path)?;
        store.backup(destination, &*self.progress)?;
        store.close()
    }

    /// The file system and the rest of the environment that stores run in.
    pub fn environment_used(&self) -> &Environment {
        &self.environment
    }

    /// The engines that stores are looked up in.
    pub fn engines_used(&self) -> &Engines {
        &self.engines
    }

    /// The engines that give such names to files as lie in a folder without a marker that
    /// can be read.
    fn kinds_by_files(&self, path: &Path) -> Result<Vec<Arc<dyn EngineKind>>> {
        let entries = self.environment.file_system.list(path)?;
        let owners = self.engines.iter().filter(|kind| {
            let mut names = entries.iter().map(|entry| entry.name.to_string_lossy());
            names.any(|name| kind.owns_file(&name))
        });
        Ok(owners.cloned().collect())
    }

    pub(crate) fn kind_of(&self, path: &Path) -> Result<(Arc<dyn EngineKind>, Marker)> {
        let marker = self.marker(path)?;
        let kind = self
            .engines
            .get(&marker.engine)
            .ok_or_else(|| Error::UnknownEngine {
                path: path.to_path_buf(),
                engine: marker.engine.clone(),
                known: self.engines.names(),
            })?;
        if marker.format_version > kind.format_version() {
            return Err(Error::UnsupportedVersion {
                path: path.to_path_buf(),
                found: marker.format_version,
                supported: kind.format_version(),
            });
        }
        Ok((kind, marker))
    }
}

/// True for the error of a repair that finds no proof of an engine.
fn is_unproven(error: &Error) -> bool {
    match error {
        Error::NotAStore { .. } => true,
        Error::Corruption { file, .. } => file.ends_with(MARKER_NAME),
        _ => false,
    }
}
