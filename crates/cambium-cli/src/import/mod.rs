//! `cambium import`: entries from files, lines or a dump into a store.
//!
//! An import is puts, so doing it again gives the same store. Entries go in by
//! batches; every 10,000 entries or 64 MiB the store is synced, the place in
//! the source is kept durably beside it ([`position`]) and told on standard
//! error: what was told survives whatever happens then, and `--resume` goes on
//! behind it. A broken entry ends the import; everything before it is in and
//! synced. Memory is bounded by one batch and one entry.
//!
//! | module | what it holds |
//! |---|---|
//! | [`source`] | what every source is, and how one is named |
//! | [`files`] | a tree of files |
//! | [`lines`] | JSON lines and tab-separated lines |
//! | [`dumps`] | a dump |
//! | [`position`] | where an interrupted import goes on |

mod dumps;
mod files;
mod lines;
mod position;
mod source;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use cambium::{Durability, Error, ErrorClass, KeyKind, Operation, Store, WriteBatch};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Status};
use crate::import::position::{Kept, PositionFile};
use crate::import::source::{Item, Source, SourceName};
use crate::notation::shown_key;
use crate::progress::{Meter, Unit};
use crate::reports::human_bytes;
use crate::stores::{Access, Stores, with_progress};

/// Entries, and bytes of keys and values, between two syncs: the contract.
const SYNC_ENTRIES: u64 = 10_000;
const SYNC_BYTES: u64 = 64 << 20;
/// Entries and bytes in a batch: large enough that its cost is not felt.
const BATCH_ENTRIES: usize = 1000;
const BATCH_BYTES: u64 = 4 << 20;

#[derive(Debug, Args)]
pub struct ImportArguments {
    /// The store
    pub path: PathBuf,
    /// files:DIR, jsonl:FILE, tsv:FILE or dump:FILE
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

fn bytes(text: &str) -> Result<u64, String> {
    cambium::parse_bytes(text).ok_or_else(|| "expected a number, with KiB, MiB or GiB".to_string())
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
        store,
        positions,
        meter: Meter::new(Unit::Bytes),
        batch: WriteBatch::new(),
        namespace: arguments.namespace.as_deref().map(Into::into),
        done: Amount::default(),
        synced: Amount::default(),
        written: 0,
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
            "{count} of the files could not be read and were left out; they are named above"
        ))),
    }
}

/// How much was imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Amount {
    entries: u64,
    /// Bytes of keys and values.
    bytes: u64,
}

/// An import under way.
struct Import<'a> {
    store: &'a Store,
    positions: PositionFile,
    meter: Meter,
    batch: WriteBatch,
    /// Where entries go that name no namespace; `None` is the default one.
    namespace: Option<Arc<str>>,
    /// Taken from the source, by earlier runs of this import too.
    done: Amount,
    /// Of that, what is on the device.
    synced: Amount,
    /// Entries that this run has put.
    written: u64,
}

impl Import<'_> {
    fn resume(&mut self, source: &mut dyn Source) -> Result<(), Failure> {
        match self.positions.read()? {
            Some(kept) => {
                self.meter
                    .say(&format!("going on behind {}", kept.position));
                source.resume(&kept.position)?;
                self.done = kept.imported;
                self.synced = kept.imported;
            }
            None => self
                .meter
                .say("no interrupted import of this source: beginning at its start"),
        }
        Ok(())
    }

    fn take_all(&mut self, source: &mut dyn Source, limit: Amount) -> Result<(), Failure> {
        while self.done.entries < limit.entries {
            let item = match source.next_item(&self.meter) {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(broken) => {
                    // What came before the broken place is in, and stays.
                    self.sync(source)?;
                    return Err(broken);
                }
            };
            let bytes = (item.key.len() + item.value.len()) as u64;
            if self.done.bytes.saturating_add(bytes) > limit.bytes {
                break;
            }
            self.take(item)?;
            self.done.entries += 1;
            self.done.bytes += bytes;
            if self.batch.is_empty() {
                let text = format!("{} entries", self.done.entries);
                self.meter.set(self.done.bytes, text);
            }
            if self.done.entries - self.synced.entries >= SYNC_ENTRIES
                || self.done.bytes - self.synced.bytes >= SYNC_BYTES
            {
                self.sync(source)?;
            }
        }
        self.sync(source)
    }

    fn take(&mut self, item: Item) -> Result<(), Failure> {
        let capabilities = self.store.capabilities();
        if let Some(name) = item.namespace.as_ref().filter(|name| !name.is_empty()) {
            if !capabilities.namespaces {
                self.write_batch()?;
                self.store.sync()?;
                return Err(Failure::usage(format!(
                    "the entry of key {} is of namespace {name:?}, and engine {} has no \
                     namespaces: import it into a store of engine forest; everything before it is in",
                    shown_key(capabilities.keys, &item.key),
                    capabilities.engine
                )));
            }
        }
        let operation = Operation::Put {
            key: item.key,
            value: item.value,
        };
        let namespace = item.namespace.or_else(|| self.namespace.clone());
        self.batch.push(namespace, operation);
        if self.batch.len() >= BATCH_ENTRIES || self.batch.bytes() >= BATCH_BYTES {
            self.write_batch()?;
        }
        Ok(())
    }

    fn write_batch(&mut self) -> Result<(), Failure> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        let entries = batch.len() as u64;
        // An engine may refuse an integer that lies far from all others, and
        // with it the batch; written one by one, what came before it is kept
        // and it is named. Keys of bytes were checked already: no copy.
        let copy = (self.store.capabilities().keys == KeyKind::Integer).then(|| batch.clone());
        match (self.store.write(batch, Durability::Buffered), copy) {
            (Ok(_), _) => {
                self.written += entries;
                Ok(())
            }
            (Err(error), Some(copy)) if error.class() == ErrorClass::Usage => {
                self.write_singly(copy)
            }
            (Err(error), _) if error.is_no_space() => Err(self.full(&error)),
            (Err(error), _) => Err(error.into()),
        }
    }

    /// What is said where the store has no room for a batch: how much is in without it.
    fn full(&self, error: &Error) -> Failure {
        let durable = match self.store.sync() {
            Ok(()) => "durable",
            Err(_) => "not all of them durable",
        };
        Failure::from_status_of(
            error,
            format!(
                "{error}; {} entries of this import are in, {durable}: make room, and --resume \
                 goes on",
                self.written
            ),
        )
    }

    fn write_singly(&mut self, batch: WriteBatch) -> Result<(), Failure> {
        for (namespace, operation) in batch.into_operations() {
            let key = match &operation {
                Operation::Put { key, .. } => key.clone(),
                _ => Vec::new(),
            };
            let mut single = WriteBatch::new();
            single.push(namespace, operation);
            if let Err(error) = self.store.write(single, Durability::Buffered) {
                if error.is_no_space() {
                    return Err(self.full(&error));
                }
                self.store.sync()?;
                let key = shown_key(KeyKind::Integer, &key);
                return Err(Failure::failed(format!(
                    "the entry of key {key} was refused: {error}; everything before it is in"
                )));
            }
            self.written += 1;
        }
        Ok(())
    }

    /// Brings everything taken so far onto the device, then keeps and tells
    /// the place: in this order, so that no place is told that could be lost.
    fn sync(&mut self, source: &dyn Source) -> Result<(), Failure> {
        self.write_batch()?;
        self.store.sync()?;
        if self.done == self.synced {
            return Ok(());
        }
        let Some(position) = source.position() else {
            return Ok(());
        };
        let kept = Kept {
            imported: self.done,
            position,
        };
        self.positions.write(&kept)?;
        self.synced = self.done;
        self.meter.say(&format!(
            "synced {} entries, {} bytes, through {}",
            self.done.entries, self.done.bytes, kept.position
        ));
        Ok(())
    }

    fn finish(&self) -> Result<(), Failure> {
        self.positions.remove()?;
        self.meter.finish();
        self.meter.say(&format!(
            "imported {} entries, {}",
            self.done.entries,
            human_bytes(self.done.bytes)
        ));
        Ok(())
    }
}
