//! Where a command gets its store from: opened for the one command and closed
//! behind it, or kept open by `cambium shell` for many.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use cambium::{Durability, Error, Options, Store, comparator};

use crate::failure::{Failure, Status};
use crate::progress::{Meter, Unit};

/// The stores of a run of the program.
#[derive(Debug)]
pub enum Stores {
    /// Each command opens its own.
    Opened,
    /// A shell keeps this one open, for reading alone if opening it to write failed so.
    Kept(Store, Option<Error>),
}

/// How a command uses its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads: a store that cannot be written, or that another process writes, is opened
    /// for reading alone.
    Read,
    /// It writes entries, names of snapshots or namespaces: a store with a comparator is refused.
    Write,
    /// It writes, but no keys: their order does not matter.
    Maintain,
}

type Outcome = Result<Status, Failure>;

impl Stores {
    /// Runs a command on the store of a path.
    pub fn using(
        &self,
        access: Access,
        path: &Path,
        command: impl FnOnce(&Store) -> Outcome,
    ) -> Outcome {
        self.with(access, || Ok(with_progress()), path, command)
    }

    /// Runs a command on a store that is opened with these options, unless it is
    /// open already.
    pub fn with(
        &self,
        access: Access,
        options: impl FnOnce() -> Result<Options, Failure>,
        path: &Path,
        command: impl FnOnce(&Store) -> Outcome,
    ) -> Outcome {
        let command = |store: &Store| {
            if access == Access::Write {
                comparator::refuse(&*defaults().environment_used().file_system, store.path())?;
            }
            command(store)
        };
        if let Stores::Kept(store, refused) = self {
            return match refused {
                Some(error) if access != Access::Read => Err(error.clone().into()),
                _ => command(store),
            };
        }
        let options = options()?;
        let store = match access {
            Access::Read => open_for_reading(&options, path)?.0,
            Access::Write | Access::Maintain => when_free(|| options.open(path))?,
        };
        closing(&store, command(&store))
    }

    /// Refuses what a shell cannot do, since its store is open or its input is
    /// the commands: it says what to do instead.
    pub fn outside_of_shell(&self, what: &str) -> Result<(), Failure> {
        match self {
            Stores::Opened => Ok(()),
            Stores::Kept(..) => Err(Failure::usage(format!(
                "{what}: not in a shell; leave it with `exit`, and call `cambium` with it"
            ))),
        }
    }

    /// True in a shell: every answer ends its line.
    pub fn in_shell(&self) -> bool {
        matches!(self, Stores::Kept(..))
    }
}

/// Closes the store of a command. A failure of the command comes before one of the close,
/// which may only repeat it.
pub fn closing(store: &Store, outcome: Outcome) -> Outcome {
    let closed = store.close();
    let status = outcome?;
    closed?;
    Ok(status)
}

/// Options at their defaults, which share the memory of the command.
pub fn defaults() -> Options {
    BOUNDED.get().cloned().unwrap_or_default()
}

/// Bounds the memory of all stores that the command opens from now on.
pub fn bound_memory(bytes: u64) {
    _ = BOUNDED.set(Options::new().memory_budget(bytes));
}

static BOUNDED: OnceLock<Options> = OnceLock::new();

/// Options whose long work shows a bar on a terminal, and whose writes are synced.
pub fn with_progress() -> Options {
    defaults()
        .progress(Arc::new(Meter::new(Unit::Steps)))
        .durability(Durability::Synced)
}

/// Opens a store to read it: for reading alone where it cannot be written, another process
/// writes it, or the disk has no room for a recovery; answers that error too.
pub fn open_for_reading(options: &Options, path: &Path) -> cambium::Result<(Store, Option<Error>)> {
    when_free(|| or_reading_alone(options, path, options.open(path)))
}

/// The same for a shell, which may write: if another process writes the store, waits as long as
/// `--wait` says before it reads alone.
pub fn open_for_shell(options: &Options, path: &Path) -> cambium::Result<(Store, Option<Error>)> {
    or_reading_alone(options, path, when_free(|| options.open(path)))
}

/// A store that was opened, or one for reading alone where it cannot be written.
fn or_reading_alone(
    options: &Options,
    path: &Path,
    opened: cambium::Result<Store>,
) -> cambium::Result<(Store, Option<Error>)> {
    match opened {
        Err(error) if is_unwritable(&error) => Ok((options.open_read_only(path)?, Some(error))),
        opened => Ok((opened?, None)),
    }
}

/// Opens a store that another process has open once it is free, for as long as `--wait` says.
pub fn when_free<T>(mut open: impl FnMut() -> cambium::Result<T>) -> cambium::Result<T> {
    let begun = Instant::now();
    let most = WAIT.get().copied().unwrap_or_default();
    loop {
        match open() {
            Err(Error::Locked { .. }) if begun.elapsed() < most => thread::sleep(PAUSE),
            opened => return opened,
        }
    }
}

/// Lets the commands wait for stores that others have open.
pub fn wait_for_others(most: Duration) {
    _ = WAIT.set(most);
}

static WAIT: OnceLock<Duration> = OnceLock::new();
/// Between two looks at a store that another process has open.
const PAUSE: Duration = Duration::from_millis(10);

fn is_unwritable(error: &Error) -> bool {
    if matches!(error, Error::Locked { .. }) || error.is_no_space() {
        return true;
    }
    let Some(source) = error.os_error() else {
        return false;
    };
    matches!(
        source.kind(),
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
    )
}
