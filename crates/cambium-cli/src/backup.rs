//! `cambium backup`, `backups` and `restore`: copies of stores, and archives of what was
//! written since.

use std::io::Write;
use std::path::{Path, PathBuf};

use cambium::{Backup, Error, Store, UnixMillis};
use clap::Args;
use serde_json::{Value, json};

use crate::failure::{Failure, Status};
use crate::output::{Output, print_json};
use crate::progress::{Meter, Unit};
use crate::reports::finding_text;
use crate::stores::with_progress;

#[derive(Debug, Args)]
pub struct BackupArguments {
    /// The store
    pub path: PathBuf,
    /// The folder of the copy, empty or not there; with --incremental, the folder of backups
    pub destination: PathBuf,
    /// Write what is new since the last backup in the folder; the first one is a full copy
    #[arg(long)]
    pub incremental: bool,
    /// Then remove all but the newest N full backups and what follows them
    #[arg(long, value_name = "N", requires = "incremental", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,
}

#[derive(Debug, Args)]
pub struct BackupsArguments {
    /// The folder of backups
    pub place: PathBuf,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// The folder of backups
    pub place: PathBuf,
    /// The folder of the restored store, empty or not there
    pub target: PathBuf,
    /// The number of the backup, as `backups` lists it; the newest if it is not given
    #[arg(long, value_name = "N")]
    pub number: Option<u32>,
}

/// Copies, or archives what is new.
pub fn run(store: &Store, arguments: &BackupArguments) -> Result<Status, Failure> {
    let meter = Meter::new(Unit::Steps);
    if !arguments.incremental {
        store.backup(&arguments.destination, &meter)?;
        return Ok(Status::Done);
    }
    let place = &arguments.destination;
    let taken = store.backup_into(place, &meter);
    let taken = taken.map_err(|error| of_place(place, error))?;
    drop(meter);
    let mut output = Output::standard()?;
    write_line(&mut output, &taken.backup)?;
    output.finish()?;
    if let Some(chains) = arguments.keep {
        let kept = with_progress().keep_backups(place, chains as usize);
        kept.map_err(|error| of_place(place, error))?;
    }
    Ok(Status::Done)
}

/// Lists the backups, and why one cannot be restored.
pub fn list(arguments: &BackupsArguments) -> Result<Status, Failure> {
    let backups = with_progress().backups(&arguments.place);
    let backups = backups.map_err(|error| of_place(&arguments.place, error))?;
    if arguments.json {
        let all: Vec<Value> = backups.iter().map(backup_json).collect();
        print_json(&json!(all))?;
        return Ok(Status::Done);
    }
    let mut output = Output::standard()?;
    for backup in &backups {
        write_line(&mut output, backup)?;
    }
    output.finish()?;
    Ok(Status::Done)
}

/// Makes a store of a backup.
pub fn restore(arguments: &RestoreArguments) -> Result<Status, Failure> {
    let place = &arguments.place;
    let restored = with_progress().restore(place, &arguments.target, arguments.number);
    restored.map_err(|error| of_place(place, error))?;
    Ok(Status::Done)
}

/// The remedy for damage in a folder of backups: no repair mends it.
pub const DAMAGED_PLACE: &str = "`cambium backups` lists what can be restored; remove a damaged \
                                 archive or full copy, and the next backup is a full copy";

/// An error of a folder of backups, with the remedy for damage. Where the folder cannot be
/// listed, the error says all there is to do.
pub fn of_place(place: &Path, error: Error) -> Failure {
    match &error {
        Error::Corruption { file, .. } if file.starts_with(place) => {
            let remedy = match with_progress().backups(place) {
                Ok(_) => format!("; {DAMAGED_PLACE}"),
                Err(_) => String::new(),
            };
            Failure::from_status_of(&error, format!("{error}{remedy}"))
        }
        _ => error.into(),
    }
}

fn write_line(output: &mut Output, backup: &Backup) -> Result<(), Failure> {
    let Backup {
        number,
        kind,
        through,
        bytes,
        ..
    } = backup;
    let taken = taken(backup).unwrap_or_else(|| "-".to_string());
    write!(output, "{number}\t{kind}\t{taken}\t{through}\t{bytes}").map_err(Failure::output)?;
    let damage = damage(backup).map_or_else(String::new, |what| format!("\tdamage: {what}"));
    writeln!(output, "{damage}").map_err(Failure::output)
}

fn backup_json(backup: &Backup) -> Value {
    json!({
        "number": backup.number,
        "kind": backup.kind.to_string(),
        "taken": taken(backup),
        "after": backup.after.0,
        "through": backup.through.0,
        "bytes": backup.bytes,
        "damage": damage(backup),
    })
}

fn taken(backup: &Backup) -> Option<String> {
    (backup.taken.0 > 0).then(|| utc(backup.taken))
}

fn damage(backup: &Backup) -> Option<String> {
    backup.damage.as_ref().map(finding_text)
}

/// A moment as people and programs read it: `2026-11-24T08:30:00Z`.
pub fn utc(moment: UnixMillis) -> String {
    let seconds = moment.0 / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March end with the day that leap years have: Howard Hinnant,
    // "chrono-Compatible Low-Level Date Algorithms".
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let second = second % 60;
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Refuses a destination inside the store, links followed.
pub fn refuse_inside(store: &Path, destination: &Path) -> Result<(), Failure> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_as_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_795_478_586, "2026-11-24T00:03:06Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(utc(UnixMillis(seconds * 1000)), text);
        }
    }
}
