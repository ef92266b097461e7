//! Text for people: ledger and tree of an open store, and the records of a closed
//! one.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use cambium_api::OptionValues;
use cambium_base::hexdump::readable;
use cambium_base::{Error, Result};
use cambium_io::{Environment, LockMode};
use cambium_lsm::{DumpItem, EntryKind};
use cambium_storage::record::RecordHeader;
use cambium_storage::scan::Scanned;
use cambium_storage::store_lock::lock_store;
use cambium_storage::superblock;

use crate::core::Core;
use crate::format::{self, FLAG_MOVED, FORMAT_VERSION, PREFIX_BYTES, SegmentKind, Stored, kind};
use crate::ledger::LedgerState;
use crate::open::{FORMAT, attach, decode_root};
use crate::options::Tuning;
use crate::segment::{Home, Segment};

fn write_failed(error: std::io::Error) -> Error {
    Error::io("write", "the dump", error)
}

/// A full key for people.
fn shown_key(full_key: &[u8]) -> String {
    match full_key.split_at_checked(PREFIX_BYTES) {
        Some((&[0, 0], key)) => readable(key),
        Some((prefix, key)) => format!(
            "{} of namespace {}",
            readable(key),
            u16::from_be_bytes([prefix[0], prefix[1]])
        ),
        None => readable(full_key),
    }
}

/// What the tree holds for a key, for people.
fn shown_value(stored: &[u8]) -> String {
    match Stored::decode(stored) {
        Some(Stored::Inline(value)) => format!("inline, {} bytes", value.len()),
        Some(Stored::Pointer(pointer)) => format!(
            "{} bytes at {} of segment {}",
            pointer.value_bytes, pointer.offset, pointer.segment
        ),
        None => "of no format known here".to_string(),
    }
}

/// A line of the tree's dump, for people.
fn shown_item(item: &DumpItem<'_>) -> String {
    match *item {
        DumpItem::Table {
            level,
            number,
            bytes,
            entries,
            sequences: (first, last),
            ..
        } => format!(
            "level {level}: table {number}, {bytes} bytes, {entries} entries of writes {first} to {last}"
        ),
        DumpItem::RangeTombstone { from, to, sequence } => format!(
            "  range before write {sequence}: from {} to {}",
            shown_key(from),
            to.map_or_else(|| "the end".to_string(), shown_key)
        ),
        DumpItem::Entry(entry) => {
            let what = match entry.kind {
                EntryKind::Delete => " is deleted".to_string(),
                EntryKind::Value => format!(", {}", shown_value(entry.value)),
            };
            format!("  {}: {}{what}", entry.sequence, shown_key(entry.key))
        }
    }
}

/// Writes segments, namespaces and the tree of an open store.
pub(crate) fn dump(core: &Arc<Core>, to: &mut dyn Write) -> Result<()> {
    core.check_open()?;
    let mut line = |text: String| writeln!(to, "{text}").map_err(write_failed);
    line(format!(
        "wisckey store {}: newest write {}",
        core.home.store,
        core.ledger.visible()
    ))?;
    dump_ledger(core, &mut line)?;
    for (name, number) in core.namespaces() {
        line(format!("namespace {number} {name:?}"))?;
    }
    dump_tree(core, &mut line)
}

/// What a segment gave back, for people.
fn shown_holes(state: &LedgerState, number: u32) -> String {
    match state.holes.of(number) {
        None => String::new(),
        Some(holes) => format!(
            ", {} in {} holes given back",
            state.holes.given_back(number),
            holes.count()
        ),
    }
}

fn dump_ledger(core: &Core, line: &mut dyn FnMut(String) -> Result<()>) -> Result<()> {
    let state = core.ledger.state().clone();
    line(format!(
        "tables hold writes up to {}, the log goes on at {} of segment {}",
        state.head.sequence, state.head.offset, state.head.segment
    ))?;
    let held = core.held_history(&state);
    for (number, account) in &state.segments {
        line(format!(
            "segment {number}, {}: {} bytes, {} live{}{}",
            match account.kind {
                SegmentKind::Written => format!("written up to write {}", account.last),
                SegmentKind::Moved => "moved".to_string(),
            },
            account.end,
            account.live_bytes(),
            shown_holes(&state, *number),
            match (held.has(account), state.is_kept(*number)) {
                (true, true) => ", held for consumers of changes and for snapshots",
                (true, false) => ", held for consumers of changes",
                (false, true) => ", held for snapshots",
                (false, false) => "",
            }
        ))?;
    }
    line(format!(
        "the log has every change after write {}",
        state.newest_lost()
    ))?;
    for (name, kept) in &state.kept {
        line(format!(
            "snapshot {name:?} of write {}: {} bytes of {} segments",
            kept.sequence,
            kept.segments.values().sum::<u64>(),
            kept.segments.len()
        ))?;
    }
    for (name, position) in core.consumers.list() {
        line(format!("consumer {name:?} has read up to write {position}"))?;
    }
    Ok(())
}

fn dump_tree(core: &Core, line: &mut dyn FnMut(String) -> Result<()>) -> Result<()> {
    core.tree.dump(&mut |item| line(shown_item(&item)))
}

/// Writes what lies in a closed store's files.
pub(crate) fn inspect(environment: &Environment, path: &Path, to: &mut dyn Write) -> Result<()> {
    let file_system = &*environment.file_system;
    let (marker, held) = lock_store(file_system, path, FORMAT, LockMode::Shared)?;
    let mut line = |text: String| writeln!(to, "{text}").map_err(write_failed);
    line(format!(
        "engine wisckey, format {}, store {}",
        marker.format_version, marker.store
    ))?;
    let content = superblock::read(file_system, path, &marker.store, FORMAT_VERSION)?;
    let (shape, root) = decode_root(&content.payload).ok_or_else(|| {
        Error::corruption(
            superblock::copy_path(path, content.copy),
            48,
            "the superblock's payload is of no format known here",
        )
    })?;
    line(format!(
        "superblock-{} counts: generation {}, session {}, {}",
        content.copy,
        content.generation,
        root.session,
        if root.clean { "closed" } else { "not closed" }
    ))?;
    if let Some(damage) = content.other_copy {
        line(format!("the other copy: {damage}"))?;
    }
    let tuning = Tuning::take(&mut OptionValues::default())?;
    let (file_system, cache) = (&environment.file_system, &environment.cache);
    let home = Home::new(file_system, path, marker.store, &tuning, cache, false);
    let attached = attach(
        environment,
        path,
        marker.store,
        tuning.clone(),
        (held, false),
        None,
    );
    for number in home.segment_numbers()? {
        let holes = match &attached {
            Ok(core) => core.ledger.holes_of(number),
            Err(_) => Vec::new(),
        };
        match Segment::open(&home, number, &shape, &tuning, None) {
            Ok(segment) => inspect_segment(&segment, &holes, &mut line)?,
            Err(error) => line(format!("segment {number}: {error}"))?,
        }
    }
    let core = attached?;
    dump_ledger(&core, &mut line)?;
    dump_tree(&core, &mut line)
}

fn inspect_segment(
    segment: &Segment,
    holes: &[(u64, u64)],
    line: &mut dyn FnMut(String) -> Result<()>,
) -> Result<()> {
    line(format!(
        "segment {}, {:?}: {} bytes allocated",
        segment.number,
        segment.kind,
        segment.log.file().allocated_bytes()?
    ))?;
    let mut scanner = segment.scan(0, u64::MAX)?;
    scanner.step_over(holes.to_vec());
    let mut holes = holes.iter().peekable();
    while let Some(scanned) = scanner.next()? {
        while let Some((start, end)) = holes.next_if(|(_, end)| *end <= scanner.position()) {
            line(format!(
                "{start:>12}  hole      {} bytes of freed values",
                end - start
            ))?;
        }
        match scanned {
            Scanned::Fault(fault) => {
                line(format!("{:>12}  ?         {}", fault.offset, fault.reason))?;
            }
            Scanned::Record(record) => {
                let what = shown_record(&record.header, record.prefix());
                line(format!("{:>12}  {what}", record.offset))?;
            }
        }
    }
    line(format!("{:>12}  end of file", scanner.position()))
}

fn shown_record(header: &RecordHeader, prefix: &[u8]) -> String {
    let first_bytes = match header.kind {
        kind::PUT | kind::DELETE_RANGE | kind::NAMESPACE_DROPPED => header.auxiliary as usize,
        _ => header.payload_bytes as usize,
    };
    let shown = prefix.len().min(first_bytes);
    let more = if shown < first_bytes { "…" } else { "" };
    let value_bytes = (header.payload_bytes as usize).saturating_sub(first_bytes);
    match header.kind {
        kind::PUT => format!(
            "value     {}, key {}{more}, {value_bytes} bytes{}",
            header.sequence,
            shown_key(&prefix[..shown]),
            if header.flags & FLAG_MOVED != 0 {
                ", moved"
            } else {
                ""
            }
        ),
        kind::DELETE => format!(
            "tombstone {}, key {}{more}",
            header.sequence,
            shown_key(&prefix[..shown])
        ),
        kind::DELETE_RANGE => format!(
            "range     {} is removed, from key {}{more}",
            header.sequence,
            shown_key(&prefix[..shown])
        ),
        kind::NAMESPACE => format!(
            "namespace {} number {}, {}",
            header.sequence,
            header.auxiliary,
            readable(&prefix[..shown])
        ),
        kind::NAMESPACE_DROPPED => format!(
            "namespace {} number {} is dropped",
            header.sequence,
            format::namespace_of(prefix)
        ),
        other => format!("kind {other}"),
    }
}
