//! `cambium import`: entries from files, lines, a dump or another store.
//!
//! An import is puts, so doing it again gives the same store. Entries go in by
//! batches; every 10,000 entries or 64 MiB the store is synced, the place in
//! the source is kept beside it ([`position`]) and told on standard error: what
//! was told survives whatever happens then, and `--resume` goes on behind it, or
//! after a power cut one sync before it. A broken entry ends the import; everything before it is in and
//! synced. Memory is bounded by one batch and one entry.
//!
//! | module | what it holds |
//! |---|---|
//! | [`source`] | what every source is, and how one is named |
//! | [`files`] | a tree of files |
//! | [`lines`] | JSON lines and tab-separated lines |
//! | [`dumps`] | a dump |
//! | [`foreign`], [`tables`], [`redis`] | stores of others |
//! | [`intake`] | entries on their way into a store |
//! | [`position`] | where an interrupted import goes on |

mod dumps;
mod files;
mod foreign;
mod intake;
mod lines;
mod position;
mod redis;
mod source;
mod tables;

pub use foreign::read_lmdb;
pub use intake::Intake;
pub use source::Item;

use std::ffi::OsString;
use std::path::PathBuf;

use cambium::Store;
use clap::Args;

use crate::arguments::bytes;
use crate::failure::{Failure, Status};
use crate::import::intake::Amount;
use crate::import::position::{Kept, PositionFile};
use crate::import::source::{Source, SourceName};
use crate::reports::human_bytes;
use crate::stores::{Access, Stores, with_progress};

#[derive(Debug, Args)]
pub struct ImportArguments {
    /// The store
    pub path: PathBuf,
    /// Where entries come from: KIND:PLACE, see below
    #[arg(long, value_name = "SOURCE")]
    pub from: OsString,
    /// Go on after the last synced position of an interrupted import
    #[arg(long)]
    pub resume: bool,
    /// Entries to stop after
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Bytes of keys and values to stop before passing; KiB, MiB, GiB multiply
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub limit_bytes: Option<u64>,
    /// Where entries go that name no namespace, made if it is not there
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// An option of the engine, for as long as the import takes
    #[arg(long, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
}

/// Imports.
pub fn run(stores: &Stores, arguments: &ImportArguments) -> Result<Status, Failure> {
    let name = SourceName::parse(&arguments.from)?;
    if !arguments.set.is_empty() {
        stores.outside_of_shell("import with --set")?;
    }
    if name.is_standard_input() {
        stores.outside_of_shell("import from standard input")?;
    }
    let mut options = with_progress();
    for assignment in &arguments.set {
        options = options.assign(assignment)?;
    }
    let file_system = options.environment_used().file_system.clone();
    stores.with(
        Access::Write,
        || Ok(options),
        &arguments.path,
        |store| {
            let positions = PositionFile::new(file_system, store.path(), &name);
            import(store, arguments, &name, positions)
        },
    )
}

fn import(
    store: &Store,
    arguments: &ImportArguments,
    name: &SourceName,
    positions: PositionFile,
) -> Result<Status, Failure> {
    let mut source = name.open(store)?;
    let mut import = Import {
        intake: Intake::new(
            store,
            arguments.namespace.as_deref(),
            "make room, and --resume goes on",
        ),
        positions,
    };
    if arguments.resume {
        import.resume(source.as_mut())?;
    } else {
        import.positions.remove()?;
    }
    if let Some(name) = &arguments.namespace {
        // Refused before anything is read where the engine has none.
        store.namespace(name)?;
    }
    let limit = Amount {
        entries: arguments.limit.unwrap_or(u64::MAX),
        bytes: arguments.limit_bytes.unwrap_or(u64::MAX),
    };
    import.take_all(source.as_mut(), limit)?;
    import.finish()?;
    match source.left_out() {
        0 => Ok(Status::Done),
        count => Err(Failure::failed(format!(
            "{count} could not be imported and were left out; what they are is said above"
        ))),
    }
}

/// An import under way.
struct Import {
    intake: Intake,
    positions: PositionFile,
}

impl Import {
    fn resume(&mut self, source: &mut dyn Source) -> Result<(), Failure> {
        let meter = &self.intake.meter;
        match self.positions.read()? {
            Some(kept) => {
                meter.say(&format!("going on behind {}", kept.position));
                source.resume(&kept.position)?;
                self.intake.done = kept.imported;
                self.intake.synced = kept.imported;
            }
            None => meter.say("no interrupted import of this source: beginning at its start"),
        }
        Ok(())
    }

    fn take_all(&mut self, source: &mut dyn Source, limit: Amount) -> Result<(), Failure> {
        while self.intake.done.entries < limit.entries {
            let item = match source.next_item(&self.intake.meter) {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(broken) => {
                    // What came before the broken place is in, and stays.
                    self.sync(source)?;
                    return Err(broken);
                }
            };
            let bytes = (item.key.len() + item.value.len()) as u64;
            if self.intake.done.bytes.saturating_add(bytes) > limit.bytes {
                break;
            }
            self.intake.take(item)?;
            if self.intake.is_sync_due() {
                self.sync(source)?;
            }
        }
        self.sync(source)
    }

    /// Brings everything taken so far onto the device, then keeps and tells
    /// the place: in this order, so that no place is told that could be lost.
    fn sync(&mut self, source: &dyn Source) -> Result<(), Failure> {
        let before = self.intake.synced;
        self.intake.sync()?;
        let done = self.intake.done;
        let Some(position) = source.position().filter(|_| done != before) else {
            return Ok(());
        };
        let kept = Kept {
            imported: done,
            position,
        };
        self.positions.write(&kept)?;
        self.intake.meter.say(&format!(
            "synced {} entries, {} bytes, through {}",
            done.entries, done.bytes, kept.position
        ));
        Ok(())
    }

    fn finish(&self) -> Result<(), Failure> {
        self.positions.remove()?;
        self.intake.meter.finish();
        self.intake.meter.say(&format!(
            "imported {} entries, {}",
            self.intake.done.entries,
            human_bytes(self.intake.done.bytes)
        ));
        Ok(())
    }
}
