//! What each command does, in the order of the help; the larger ones have a
//! module each.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;

use cambium::{
    DEFAULT_ENGINE, Durability, EngineKind, Error, OptionSpec, Options, Store, engines, limits,
};
use clap::CommandFactory;

use crate::arguments::{
    Arguments, BackupArguments, Command, CompletionsArguments, CreateArguments, KeyArguments,
    OptionsArguments, PutArguments, RollbackArguments, SnapshotAction, SnapshotArguments,
};
use crate::failure::{Failure, Status, talk};
use crate::notation::{bytes_argument, key_argument, shown_key, write_escaped};
use crate::output::{Output, print};
use crate::progress::{Meter, Unit};
use crate::{export, import, namespaces, reports, scan};

/// Runs a command; the answer is the exit status.
pub fn run(command: Command) -> Result<Status, Failure> {
    match command {
        Command::Create(arguments) => create(&arguments),
        Command::Put(arguments) => put(&arguments),
        Command::Get(arguments) => get(&arguments),
        Command::Delete(arguments) => delete(&arguments),
        Command::Scan(arguments) => scan::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Namespaces(arguments) => namespaces::list_or_drop(&arguments),
        Command::Snapshot(arguments) => snapshot(&arguments),
        Command::Rollback(arguments) => rollback(&arguments),
        Command::Dump(arguments) => reports::dump(&arguments),
        Command::Stats(arguments) => reports::stats(&arguments),
        Command::Check(arguments) => reports::check(&arguments),
        Command::Inspect(arguments) => reports::inspect(&arguments),
        Command::Compact(arguments) => reports::compact(&arguments),
        Command::Backup(arguments) => backup(&arguments),
        Command::Repair(arguments) => reports::repair(&arguments),
        Command::Options(arguments) => options(&arguments),
        Command::Completions(arguments) => completions(&arguments),
    }
}

/// Settings whose long work shows a bar on a terminal.
pub fn with_progress() -> Options {
    Options::new().progress(Arc::new(Meter::new(Unit::Steps)))
}

/// Opens a store; a recovery that takes long shows a bar.
pub fn open(path: &Path) -> cambium::Result<Store> {
    with_progress().open(path)
}

/// Opens a store to read it: for reading alone where it cannot be written.
pub fn open_for_reading(path: &Path) -> cambium::Result<Store> {
    open_for_reading_with(&with_progress(), path)
}

/// The same, with these settings.
pub fn open_for_reading_with(options: &Options, path: &Path) -> cambium::Result<Store> {
    let refused = match options.open(path) {
        Err(error) if is_unwritable(&error) => error,
        opened => return opened,
    };
    match options.open_read_only(path) {
        // The engine cannot: what keeps it from writing is what is to be told.
        Err(Error::Unsupported { .. }) => Err(refused),
        opened => opened,
    }
}

fn is_unwritable(error: &Error) -> bool {
    let Some(source) = error.os_error() else {
        return false;
    };
    matches!(
        source.kind(),
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
    )
}

fn create(arguments: &CreateArguments) -> Result<Status, Failure> {
    let mut options = Options::new();
    for assignment in &arguments.set {
        options = options.assign(assignment)?;
    }
    let engine = match &arguments.engine {
        Some(engine) => engine.clone(),
        None => engine_of(&arguments.set),
    };
    options.create(&arguments.path, &engine)?.close()?;
    let kind = options.engines_used().find(&engine)?;
    for assignment in &arguments.set {
        let name = assignment.split('=').next().unwrap_or_default().trim();
        let spec = kind.options().iter().find(|option| option.name == name);
        let stays = kind.kept_options().contains(&name);
        if spec.is_some_and(|option| !option.at_creation && !stays) {
            talk(&format!(
                "option {name} is of each opening and does not stay with the store: set it where the store is opened"
            ));
        }
    }
    Ok(Status::Done)
}

/// The default engine, or the only one that has all of these options: whoever
/// asks for `keys=integer` means the engine that has integer keys.
fn engine_of(assignments: &[String]) -> String {
    let has_all = |kind: &dyn EngineKind| {
        assignments.iter().all(|assignment| {
            let name = assignment.split('=').next().unwrap_or_default().trim();
            kind.options().iter().any(|option| option.name == name)
        })
    };
    let engines = engines();
    let default = engines
        .get(DEFAULT_ENGINE)
        .is_some_and(|kind| has_all(&*kind));
    let mut others = engines.iter().filter(|kind| has_all(&***kind));
    match (default, others.next(), others.next()) {
        (false, Some(only), None) => only.name().to_string(),
        _ => DEFAULT_ENGINE.to_string(),
    }
}

fn put(arguments: &PutArguments) -> Result<Status, Failure> {
    let value = bytes_argument(arguments.hex, "value", &arguments.value)?;
    limits::check_value(&value)?;
    let store = open(&arguments.path)?;
    let key = key_argument(store.capabilities().keys, arguments.hex, &arguments.key)?;
    let store = match &arguments.namespace {
        Some(name) => store.namespace(name)?,
        None => store,
    };
    store.put(&key, &value, Durability::Synced)?;
    store.close()?;
    Ok(Status::Done)
}

fn get(arguments: &KeyArguments) -> Result<Status, Failure> {
    let store = namespaces::open(&arguments.path, arguments.namespace.as_deref())?;
    let keys = store.capabilities().keys;
    let key = key_argument(keys, arguments.hex, &arguments.key)?;
    let Some(value) = store.get(&key)? else {
        return Err(Failure::Stop {
            status: Status::Negative,
            message: format!("key {} has no value", shown_key(keys, &key)),
        });
    };
    let mut output = Output::standard()?;
    let written = if arguments.hex {
        output.write_all(cambium::hexdump::to_hex(&value).as_bytes())
    } else {
        output.write_all(&value)
    };
    written.map_err(Failure::output)?;
    output.finish()?;
    store.close()?;
    Ok(Status::Done)
}

fn delete(arguments: &KeyArguments) -> Result<Status, Failure> {
    let store = open(&arguments.path)?;
    let store = namespaces::within(store, arguments.namespace.as_deref())?;
    let key = key_argument(store.capabilities().keys, arguments.hex, &arguments.key)?;
    store.delete(&key, Durability::Synced)?;
    store.close()?;
    Ok(Status::Done)
}

fn snapshot(arguments: &SnapshotArguments) -> Result<Status, Failure> {
    let store = match arguments.action {
        SnapshotAction::List => open_for_reading(&arguments.path)?,
        _ => open(&arguments.path)?,
    };
    match &arguments.action {
        SnapshotAction::Create { name } => store.create_named_snapshot(name)?,
        SnapshotAction::Delete { name } => store.drop_named_snapshot(name)?,
        SnapshotAction::List => {
            let mut text = Vec::new();
            for (name, sequence) in store.list_named_snapshots()? {
                // Writing to memory cannot fail.
                _ = write_escaped(&mut text, name.as_bytes());
                _ = writeln!(text, "\t{sequence}");
            }
            print(&String::from_utf8_lossy(&text))?;
        }
    }
    store.close()?;
    Ok(Status::Done)
}

fn rollback(arguments: &RollbackArguments) -> Result<Status, Failure> {
    let store = open(&arguments.path)?;
    store.rollback(&arguments.name)?;
    store.close()?;
    Ok(Status::Done)
}

fn backup(arguments: &BackupArguments) -> Result<Status, Failure> {
    refuse_inside(&arguments.path, &arguments.destination)?;
    let store = open_for_reading(&arguments.path)?;
    store.backup(&arguments.destination, &Meter::new(Unit::Steps))?;
    store.close()?;
    Ok(Status::Done)
}

/// Refuses a destination inside the store, links followed.
fn refuse_inside(store: &Path, destination: &Path) -> Result<(), Failure> {
    let Ok(store) = std::fs::canonicalize(store) else {
        // Opening it says what is wrong.
        return Ok(());
    };
    let there = destination
        .ancestors()
        .map(|folder| Path::new(".").join(folder))
        .find_map(|folder| std::fs::canonicalize(folder).ok());
    if there.is_some_and(|there| there.starts_with(&store)) {
        return Err(Failure::usage(format!(
            "{}: this is inside the store; expected a folder elsewhere",
            destination.display()
        )));
    }
    Ok(())
}

fn options(arguments: &OptionsArguments) -> Result<Status, Failure> {
    let engines = engines();
    let mut text = String::new();
    match &arguments.engine {
        Some(name) => describe(&mut text, &*engines.find(name)?),
        None => engines.iter().for_each(|kind| describe(&mut text, &**kind)),
    }
    print(&text)?;
    Ok(Status::Done)
}

fn describe(text: &mut String, kind: &dyn EngineKind) {
    // Writing to a string cannot fail.
    _ = writeln!(
        text,
        "engine {}, format version {}: {}",
        kind.name(),
        kind.format_version(),
        kind.summary()
    );
    for (at_creation, heading) in [
        (
            true,
            "fixed when the store is made (create --set OPTION=VALUE)",
        ),
        (false, "of each opening"),
    ] {
        let specs: Vec<&OptionSpec> = kind
            .options()
            .iter()
            .filter(|spec| spec.at_creation == at_creation)
            .collect();
        if specs.is_empty() {
            continue;
        }
        _ = writeln!(text, "\n {heading}:");
        for spec in specs {
            _ = writeln!(
                text,
                "\n  {}\n      unit:    {}\n      default: {}\n      effect:  {}",
                spec.name, spec.unit, spec.default, spec.effect
            );
        }
    }
}

fn completions(arguments: &CompletionsArguments) -> Result<Status, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::command(),
        "cambium",
        &mut script,
    );
    let mut output = Output::standard()?;
    output.write_all(&script).map_err(Failure::output)?;
    output.finish()?;
    Ok(Status::Done)
}
