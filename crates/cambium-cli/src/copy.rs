//! `cambium copy`: all entries of a store into a new one, of any engine and options.
//!
//! The new store is made beside its place, in a folder with `.partial` behind the
//! name, and marked there as unfinished; when it is whole, synced and closed, the mark
//! goes and the folder gets its name. So no copy that was cut off is taken for a
//! whole one, and the next `copy` to the same place begins anew.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cambium::{Error, KeyKind, Store, comparator};
use clap::Args;

use crate::backup::refuse_inside;
use crate::create::Plan;
use crate::failure::{Failure, Status, talk};
use crate::import::{Intake, Item};
use crate::partial;
use crate::parts::Parts;
use crate::reports::human_bytes;
use crate::stores::defaults;

/// The mark of a copy that is not whole, a file in its folder.
const UNFINISHED: &str = "COPY-UNFINISHED";

#[derive(Debug, Args)]
pub struct CopyArguments {
    /// The store
    pub path: PathBuf,
    /// The folder of the new store, empty or not there
    pub destination: PathBuf,
    /// The engine of the new store; without it, that of the old one
    #[arg(long)]
    pub engine: Option<String>,
    /// An option of the new store
    #[arg(long, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
    /// This namespace alone, into the default one
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// Copies.
pub fn run(store: &Store, arguments: &CopyArguments) -> Result<Status, Failure> {
    let destination = &arguments.destination;
    refuse_inside(store.path(), destination)?;
    refuse_full(destination)?;
    let capabilities = store.capabilities();
    let mut plan = Plan::of(
        arguments.engine.as_deref(),
        &arguments.set,
        capabilities.engine,
    )?;
    plan.keep_integer_keys(capabilities.keys, &arguments.set)?;
    let parts = Parts::of(store, arguments.namespace.as_deref())?;
    let partial = partial::path_of(destination)?;
    remove_unfinished(&partial)?;
    let target = plan.options.create(&partial, &plan.engine)?;
    let mark = partial.join(UNFINISHED);
    let copied = fs::write(&mark, "")
        .map_err(|error| Failure::file(&mark, &error))
        .and_then(|()| refuse_unfit(store, &target, &parts))
        .and_then(|()| keep_comparator(store, &target))
        .and_then(|()| fill(&target, capabilities.keys, &parts));
    let closed = target.close();
    let finished = copied.and_then(|text| {
        closed?;
        fs::remove_file(&mark).map_err(|error| Failure::file(&mark, &error))?;
        partial::publish(&partial, destination)?;
        Ok(text)
    });
    match finished {
        Ok(text) => talk(&text),
        Err(failure) => {
            // The first failure is what is told.
            _ = fs::remove_dir_all(&partial);
            return Err(failure);
        }
    }
    plan.name_what_does_not_stay(&arguments.set)?;
    Ok(Status::Done)
}

/// Refuses a place where something is, before any work.
fn refuse_full(destination: &Path) -> Result<(), Failure> {
    match fs::read_dir(destination).map(|mut names| names.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::usage(format!(
            "{}: there is something in this folder; expected an empty one, or none",
            destination.display()
        ))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::file(destination, &error)),
    }
}

/// Takes away what an earlier copy to the same place left, if it is that.
fn remove_unfinished(partial: &Path) -> Result<(), Failure> {
    if fs::symlink_metadata(partial).is_err() {
        return Ok(());
    }
    if !partial.join(UNFINISHED).is_file() {
        return Err(Failure::failed(format!(
            "{}: this is no unfinished copy, and its name is needed for one; move or remove it",
            partial.display()
        )));
    }
    match defaults().open(partial) {
        Err(error @ Error::Locked { .. }) => return Err(error.into()),
        // Whatever else an unfinished store answers, it goes.
        opened => drop(opened),
    }
    talk(&format!(
        "{}: an earlier copy was cut off; beginning anew",
        partial.display()
    ));
    fs::remove_dir_all(partial).map_err(|error| Failure::file(partial, &error))
}

/// Refuses a new store that cannot have what the old one has.
fn refuse_unfit(store: &Store, target: &Store, parts: &Parts) -> Result<(), Failure> {
    let (from, to) = (store.capabilities(), target.capabilities());
    // Integers are 8 bytes, so a store of byte strings takes them, in the same order.
    if to.keys == KeyKind::Integer && from.keys != KeyKind::Integer {
        return Err(Failure::usage(
            "the store has keys of bytes, and the new one would have integer keys: leave --set keys=integer away",
        ));
    }
    let names = parts.names();
    if !to.namespaces && names.iter().any(|name| !name.is_empty()) {
        return Err(Failure::usage(format!(
            "namespaces {names:?} have entries, and engine {} has no namespaces: choose another engine, or one of them with --namespace",
            to.engine
        )));
    }
    Ok(())
}

/// Gives the new store the name of the old one's comparator, so that a program with that
/// comparator opens it, and no other writes it.
fn keep_comparator(store: &Store, target: &Store) -> Result<(), Failure> {
    let options = defaults();
    let file_system = &*options.environment_used().file_system;
    let Some(name) = comparator::stored_name(file_system, store.path())? else {
        return Ok(());
    };
    let to = target.capabilities();
    if !to.ordered {
        return Err(Failure::usage(format!(
            "the store has the comparator {name:?}, and the keys of engine {} have no order: choose forest or wisckey",
            to.engine
        )));
    }
    Ok(comparator::store_name(file_system, target.path(), &name)?)
}

/// Puts everything, synced; answers what to say.
fn fill(target: &Store, keys: KeyKind, parts: &Parts) -> Result<String, Failure> {
    let mut intake = Intake::new(
        target,
        None,
        "none of them is kept; make room and copy again",
    );
    for name in parts.names() {
        let mut entries = parts.entries(name)?;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            intake.take(Item {
                namespace: (!name.is_empty()).then(|| name.into()),
                key: entry.key.to_vec(),
                value: entry.value.to_vec(),
                expires: entries.expires_at(),
            })?;
            if intake.is_sync_due() {
                intake.sync()?;
            }
        }
    }
    intake.sync()?;
    let (entries, bytes) = (intake.done.entries, human_bytes(intake.done.bytes));
    let note = match (keys, target.capabilities().keys) {
        (KeyKind::Integer, KeyKind::Bytes) => "; its keys are the numbers as 8 bytes, big-endian",
        _ => "",
    };
    Ok(format!("copied {entries} entries, {bytes}{note}"))
}
