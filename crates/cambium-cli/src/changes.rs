//! `cambium changes` and `cambium consumers`: the batches that were committed, in order.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use cambium::{ChangeBatch, ChangeOptions, Error, SequenceNumber, Store};
use clap::Args;

use crate::failure::{Failure, Status};
use crate::lines::{Format, Lines};
use crate::notation::write_escaped;
use crate::output::Output;
use crate::stores::{Stores, with_progress};

/// Time between two looks at a store that is followed.
const PAUSE: Duration = Duration::from_millis(200);
/// Batches between two positions that a consumer keeps.
const ACKNOWLEDGED_AT_ONCE: u64 = 1_000;

/// What changes look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ChangesFormat {
    /// One JSON object for each batch, a line each
    Jsonl,
    /// One line for each change: number, operation, namespace, key, value, escaped
    Text,
}

#[derive(Debug, Args)]
pub struct ChangesArguments {
    /// The store
    pub path: PathBuf,
    /// Begin behind this sequence number, else at the store's first change
    #[arg(long, value_name = "NUMBER")]
    pub after: Option<u64>,
    /// Go on with what is written later, until interrupted
    #[arg(long)]
    pub follow: bool,
    /// Leave out what a crash could take back
    #[arg(long)]
    pub synced: bool,
    /// Begin where this consumer is, and move it; it is made if there is none
    #[arg(long, value_name = "NAME")]
    pub consumer: Option<String>,
    /// How to write changes
    #[arg(long, value_enum, default_value_t = ChangesFormat::Jsonl)]
    pub format: ChangesFormat,
}

#[derive(Debug, Args)]
pub struct ConsumersArguments {
    /// The store
    pub path: PathBuf,
    /// Take this one away, instead
    #[arg(long, value_name = "NAME")]
    pub remove: Option<String>,
}

/// Lists consumers, or takes one away.
pub fn consumers(store: &Store, arguments: &ConsumersArguments) -> Result<Status, Failure> {
    if let Some(name) = &arguments.remove {
        store.existing_consumer(name)?.remove()?;
        return Ok(Status::Done);
    }
    let mut output = Output::standard()?;
    let reader = output.reader();
    for (name, position) in store.consumers()? {
        write_escaped(&mut output, reader, name.as_bytes())
            .and_then(|()| writeln!(output, "\t{position}"))
            .map_err(Failure::output)?;
    }
    output.finish()?;
    Ok(Status::Done)
}

/// Writes changes, once or for ever.
pub fn run(stores: &Stores, arguments: &ChangesArguments) -> Result<Status, Failure> {
    let mut reading = Reading {
        arguments,
        after: arguments.after.map(SequenceNumber),
        output: Output::standard()?,
    };
    if arguments.follow {
        stores.outside_of_shell("changes --follow")?;
        reading.follow()?;
    } else {
        stores.using(arguments.access(), &arguments.path, |store| {
            reading.show(store, false)
        })?;
    }
    reading.output.finish()?;
    Ok(Status::Done)
}

impl ChangesArguments {
    fn access(&self) -> crate::stores::Access {
        match self.consumer {
            Some(_) => crate::stores::Access::Maintain,
            None => crate::stores::Access::Read,
        }
    }
}

/// A reader of changes, across openings of the store.
struct Reading<'a> {
    arguments: &'a ChangesArguments,
    after: Option<SequenceNumber>,
    output: Output,
}

impl Reading<'_> {
    /// Follows a store. One that is only read, and that others can write meanwhile, stays open.
    /// Any other is opened whenever its folder has changed, and closed between two looks, so
    /// that other programs can write it.
    fn follow(&mut self) -> Result<(), Failure> {
        let path = &self.arguments.path;
        let mut seen = None;
        loop {
            let now = files_of(path);
            if seen.as_ref() != Some(&now) {
                let options = with_progress();
                let opened = match self.arguments.consumer {
                    Some(_) => options.open(path),
                    None => options.open_read_only(path),
                };
                match opened {
                    Ok(store) => {
                        let shown = self.show(&store, self.stays_open(&store));
                        let closed = store.close();
                        shown?;
                        closed?;
                        seen = Some(files_of(path));
                    }
                    // Its writer is at work.
                    Err(Error::Locked { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            thread::sleep(PAUSE);
        }
    }

    fn stays_open(&self, store: &Store) -> bool {
        self.arguments.consumer.is_none() && store.capabilities().readers_beside_writer
    }

    /// Writes what an open store has behind the position, and with `forever` what comes later.
    fn show(&mut self, store: &Store, forever: bool) -> Result<Status, Failure> {
        let arguments = self.arguments;
        let consumer = match &arguments.consumer {
            Some(name) => Some(store.consumer(name)?),
            None => None,
        };
        let after = match (self.after, &consumer) {
            (Some(after), _) => after,
            (None, Some(consumer)) => consumer.position()?,
            (None, None) => SequenceNumber::ZERO,
        };
        self.after = Some(after);
        let options = ChangeOptions {
            synced_only: arguments.synced,
        };
        let mut changes = store.changes_with(after, options)?;
        let mut shown = 0;
        loop {
            let batch = changes.try_next()?;
            if let Some(batch) = &batch {
                self.write(store, batch).map_err(Failure::output)?;
                self.after = Some(batch.last);
                shown += 1;
            }
            // What is acknowledged was handed over before.
            if batch.is_none() || shown % ACKNOWLEDGED_AT_ONCE == 0 {
                self.output.flush().map_err(Failure::output)?;
                if let (Some(consumer), Some(after)) = (&consumer, self.after) {
                    if consumer.position()? != after {
                        consumer.acknowledge(after)?;
                    }
                }
            }
            match batch {
                None if forever => {
                    thread::sleep(PAUSE);
                    store.refresh()?;
                }
                None => return Ok(Status::Done),
                Some(_) => {}
            }
        }
    }

    fn write(&mut self, store: &Store, batch: &ChangeBatch) -> std::io::Result<()> {
        let lines = Lines {
            format: match self.arguments.format {
                ChangesFormat::Jsonl => Format::Json,
                ChangesFormat::Text => Format::Text,
            },
            keys: store.capabilities().keys,
            reader: self.output.reader(),
        };
        lines.write_batch(&mut self.output, batch)
    }
}

/// Names, sizes and times of a store's files: what differs when it was written.
fn files_of(path: &Path) -> BTreeMap<PathBuf, (u64, Option<SystemTime>)> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        Some((entry.path(), (metadata.len(), metadata.modified().ok())))
    });
    files.collect()
}
