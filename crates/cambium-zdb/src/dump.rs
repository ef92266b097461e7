//! A store as text for people: its structure ([`dump`]) and its files
//! ([`inspect`]).

use std::io::Write;
use std::path::Path;

use cambium_api::OptionValues;
use cambium_base::hexdump::hexdump;
use cambium_base::{Error, Result};
use cambium_io::sync::atomic::Ordering;
use cambium_io::{Environment, LockMode};
use cambium_storage::file_header::HEADER_BYTES;
use cambium_storage::scan::Scanned;
use cambium_storage::store_lock::lock_store;

use crate::core::{Core, lock};
use crate::data_file::DataFile;
use crate::format::{entry_key, kind};
use crate::open::{FORMAT, attach};
use crate::options::Tuning;

/// Records that are listed of each file.
const LISTED_RECORDS: usize = 24;

fn text_failed(source: std::io::Error) -> Error {
    Error::io("write", "the output", source)
}

/// Writes tables, pieces and data files of an open store.
pub(crate) fn dump(core: &Core, to: &mut dyn Write) -> Result<()> {
    core.check_open()?;
    let shape = &core.shape;
    writeln!(
        to,
        "zdb store {} · {:?} keys · slots of {} bytes · {} keys a table · {} data files a table",
        core.home.store,
        shape.keys,
        shape.slots.bytes(),
        shape.keys_per_table,
        shape.data_files
    )
    .map_err(text_failed)?;
    for number in core.table_numbers() {
        let Some(table) = core.table(number)? else {
            continue;
        };
        let last = table.first_key.saturating_add(table.slot_count() - 1);
        writeln!(to, "└─ table {number}: keys {} to {last}", table.first_key)
            .map_err(text_failed)?;
        for piece in 0..table.piece_count() {
            let state = table.piece(piece);
            if !state.may_have_entries() {
                continue;
            }
            let memory = if state.slots.is_some() {
                "in memory"
            } else {
                "not touched"
            };
            let changed = if state.dirty { ", changed" } else { "" };
            writeln!(
                to,
                "   ├─ piece {piece}: generation {}, copy {}, {memory}{changed}",
                state.on_disk >> 1,
                state.on_disk & 1
            )
            .map_err(text_failed)?;
        }
        for file in table.current_files() {
            writeln!(
                to,
                "   ├─ data file {} (place {}): {} of {} entries live, {} bytes",
                file.file.number,
                file.place,
                file.live.load(Ordering::Relaxed),
                file.entries.load(Ordering::Relaxed),
                file.log.end()
            )
            .map_err(text_failed)?;
        }
    }
    for kept in &lock(&core.past).kept {
        writeln!(
            to,
            "└─ data file {} (table {}, place {}) is kept for consumers: changes {} to {}, {} bytes",
            kept.file.number,
            kept.table,
            kept.place,
            kept.copies_through + 1,
            kept.through,
            kept.end
        )
        .map_err(text_failed)?;
    }
    Ok(())
}

/// Describes the files of a store that no process has open for writing.
pub(crate) fn inspect(environment: &Environment, path: &Path, to: &mut dyn Write) -> Result<()> {
    let file_system = &*environment.file_system;
    let (marker, held) = lock_store(file_system, path, FORMAT, LockMode::Shared)?;
    let tuning = Tuning::take(&mut OptionValues::default())?;
    let core = attach(environment, path, marker.store, tuning, (held, false))?;
    let catalog = lock(&core.maintenance).catalog.clone();
    let generation = lock(&core.maintenance).superblock.generation();
    writeln!(
        to,
        "store {}: engine {}, format {}\nsuperblock: generation {generation}, {}, session {} (highest {}), replay behind entry {}, durable to {}",
        marker.store,
        marker.engine,
        marker.format_version,
        if catalog.clean { "closed cleanly" } else { "not closed cleanly" },
        catalog.session,
        catalog.last_session,
        catalog.replay_sequence,
        catalog.durable_sequence
    )
    .map_err(text_failed)?;
    dump(&core, to)?;
    for number in core.table_numbers() {
        let Some(table) = core.table(number)? else {
            continue;
        };
        for file in table.current_files() {
            inspect_file(&file, to)?;
        }
    }
    for (number, log) in lock(&core.writer).commit_logs.iter().enumerate() {
        writeln!(to, "\ncommit log {number}: {}", log.log.path().display()).map_err(text_failed)?;
        list_records(&log.log, log.log.geometry().first_offset, to)?;
    }
    Ok(())
}

fn inspect_file(file: &DataFile, to: &mut dyn Write) -> Result<()> {
    writeln!(to, "\n{}: header", file.log.path().display()).map_err(text_failed)?;
    let mut header = [0; HEADER_BYTES];
    file.log.file().read_exact_at(&mut header, 0)?;
    to.write_all(hexdump(&header, 0).as_bytes())
        .map_err(text_failed)?;
    writeln!(to, "replay begins at {}", file.log.end()).map_err(text_failed)?;
    list_records(&file.log, file.log.geometry().first_offset, to)
}

fn list_records(log: &cambium_storage::log::LogFile, from: u64, to: &mut dyn Write) -> Result<()> {
    let mut scanner = log.scan(from, u64::MAX)?;
    let (mut listed, mut count) = (0, 0u64);
    while let Some(scanned) = scanner.next()? {
        count += 1;
        if listed == LISTED_RECORDS {
            continue;
        }
        listed += 1;
        match scanned {
            Scanned::Fault(fault) => {
                writeln!(to, "{:>12}  {}", fault.offset, fault.reason).map_err(text_failed)?;
            }
            Scanned::Record(record) => {
                let header = &record.header;
                let what = match header.kind {
                    kind::PUT => "put",
                    kind::DELETE => "delete",
                    kind::FRAME => "frame",
                    kind::CUT => "cut",
                    kind::DELETE_RANGE => "delete range",
                    kind::KEYS => "keys of the commit log",
                    _ => "unknown",
                };
                let key = entry_key(record.prefix()).filter(|_| kind::is_entry(header.kind));
                writeln!(
                    to,
                    "{:>12}  {what:<7} entry {:<8} session {} batch {}+{} payload {} bytes{}",
                    record.offset,
                    header.sequence,
                    header.session,
                    header.batch_index,
                    header.batch_remaining,
                    header.payload_bytes,
                    key.map_or(String::new(), |key| format!(" key {key}"))
                )
                .map_err(text_failed)?;
            }
        }
    }
    if count > LISTED_RECORDS as u64 {
        writeln!(to, "{:>12}  … {} records in all", "", count).map_err(text_failed)?;
    }
    Ok(())
}
