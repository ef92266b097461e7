//! Text for people: the trie of an open store, and the blocks of a closed one.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use cambium_api::OptionValues;
use cambium_base::hexdump::readable;
use cambium_base::{Error, Result};
use cambium_io::{Environment, LockMode};
use cambium_storage::scan::Scanned;
use cambium_storage::store_lock::lock_store;
use cambium_storage::superblock;

use crate::core::Core;
use crate::database::{Database, Home};
use crate::document::DOCUMENT_ALIGNMENT;
use crate::format::{
    FLAG_MOVED, FLAG_RECOVERED, FORMAT_VERSION, KeptFile, Root, kind, namespace_and_key,
};
use crate::open::FORMAT;
use crate::options::{Shape, Tuning};
use crate::packed_block::PackedBlock;
use crate::recovery::header_at;

fn write_failed(error: std::io::Error) -> Error {
    Error::io("write", "the dump", error)
}

/// What was fixed when a store was made.
fn shape_words(shape: &Shape) -> String {
    let (index, extension) = shape.index_words();
    let extension = extension.map_or_else(String::new, |extension| {
        format!(" (leaf extension {extension})")
    });
    format!(
        "index {index}{extension}, nodes of {} bytes, chunks of {}",
        shape.node_bytes, shape.chunk_bytes
    )
}

/// Writes header, namespaces and tries of an open store.
pub(crate) fn dump(core: &Arc<Core>, to: &mut dyn Write) -> Result<()> {
    core.check_open()?;
    let (pin, header) = core.pin_with_header()?;
    let snapshots = &header.snapshots;
    let view = &pin.view;
    let mut line = |text: String| writeln!(to, "{text}").map_err(write_failed);
    line(format!(
        "forest store {}: {}",
        core.home.store,
        shape_words(&core.shape)
    ))?;
    line(format!(
        "file {}, log ends at {}, newest write {}, index holds writes up to {}",
        view.database.path().display(),
        view.database.log.end(),
        pin.sequence,
        view.roots.sequence
    ))?;
    history_lines(&core.history.kept_files(), &mut line)?;
    for buffer in view.buffers() {
        line(format!("write buffer: {} writes", buffer.len()))?;
    }
    if !view.run.is_empty() {
        line(format!("packed write buffers: {} keys", view.run.entries()))?;
    }
    for snapshot in snapshots {
        line(format!(
            "snapshot {:?} at write {}",
            snapshot.name, snapshot.sequence
        ))?;
    }
    for (name, number) in core.namespaces() {
        let root = view.root(number);
        line(format!(
            "namespace {number} {name:?}: {} documents of at most {} bytes, {} nodes",
            root.documents, root.document_bytes, root.nodes
        ))?;
        if let Some(address) = root.root {
            let nodes = core.nodes(&view.database);
            line(core.index.dump(&nodes, address)?)?;
        }
    }
    Ok(())
}

/// The files that are kept for consumers.
fn history_lines(kept: &[KeptFile], line: &mut dyn FnMut(String) -> Result<()>) -> Result<()> {
    kept.iter().try_for_each(|kept| {
        line(format!(
            "file {} is kept for consumers: changes after write {} up to {}, offsets {} to {}",
            kept.file.number, kept.from, kept.to, kept.start, kept.end
        ))
    })
}

/// Writes what lies in a closed store's files, block by block.
pub(crate) fn inspect(environment: &Environment, path: &Path, to: &mut dyn Write) -> Result<()> {
    let tuning = Tuning::take(&mut OptionValues::default())?;
    let environment = &tuning.segmented(environment);
    let file_system = &*environment.file_system;
    let (marker, _held) = lock_store(file_system, path, FORMAT, LockMode::Shared)?;
    let mut line = |text: String| writeln!(to, "{text}").map_err(write_failed);
    line(format!(
        "engine forest, format {}, store {}",
        marker.format_version, marker.store
    ))?;
    let content = superblock::read(file_system, path, &marker.store, FORMAT_VERSION)?;
    let root = Root::decode(&content.payload).ok_or_else(|| {
        Error::corruption(
            superblock::copy_path(path, content.copy),
            48,
            "the superblock's payload is of no format known here",
        )
    })?;
    line(format!(
        "superblock-{} counts: generation {}, file {}, header at {}, session {}, {}",
        content.copy,
        content.generation,
        root.file.number,
        root.header,
        root.session,
        if root.clean {
            format!("closed, ends at {}", root.end)
        } else {
            "not closed".to_string()
        }
    ))?;
    if let Some(damage) = content.other_copy {
        line(format!("the other copy: {damage}"))?;
    }
    let home = Home::new(environment, path, marker.store, false, &tuning);
    let database = Database::open(&home, root.file, &tuning, None, root.shape)?;
    line(format!(
        "{}: {}, blocks of {}, {} bytes allocated",
        database.path().display(),
        shape_words(&database.shape),
        database.shape.block_bytes,
        database.log.file().allocated_bytes()?
    ))?;
    if let Some((.., header)) = header_at(&database, root.header)? {
        database.log.begin_at(header.begin);
        history_lines(&header.kept_files, &mut line)?;
    }
    let begin = database.log.begin();
    if begin > database.shape.first_offset() {
        line(format!("the log begins at {begin}"))?;
    }
    inspect_log((&database, begin), &root, &mut line)
}

fn inspect_log(
    (database, begin): (&Database, u64),
    root: &Root,
    line: &mut dyn FnMut(String) -> Result<()>,
) -> Result<()> {
    let mut scanner = database.log.scan(begin, u64::MAX)?;
    while let Some(scanned) = scanner.next()? {
        let record = match scanned {
            Scanned::Fault(fault) => {
                line(format!("{:>12}  ?         {}", fault.offset, fault.reason))?;
                continue;
            }
            Scanned::Record(record) => record,
        };
        let header = &record.header;
        let end = record.offset + header.total_bytes(DOCUMENT_ALIGNMENT);
        let what = match header.kind {
            kind::PUT | kind::DELETE => {
                let (namespace, key_bytes) = namespace_and_key(header).unwrap_or_default();
                let shown = record.prefix().len().min(key_bytes);
                format!(
                    "{:<9} {} of namespace {namespace}, key {}{}, {} bytes{}",
                    if header.kind == kind::PUT {
                        "document"
                    } else {
                        "tombstone"
                    },
                    header.sequence,
                    readable(&record.prefix()[..shown]),
                    if shown < key_bytes { "…" } else { "" },
                    end - record.offset,
                    if header.flags & FLAG_MOVED != 0 {
                        ", moved"
                    } else {
                        ""
                    }
                )
            }
            kind::PACKED => {
                let payload = scanner.payload(&record)?;
                let block = PackedBlock::of(&payload);
                let count = block.map_or(0, |block| block.count());
                let namespace = header.auxiliary >> 16;
                let bytes = end - record.offset;
                format!("block     {count} documents of namespace {namespace}, {bytes} bytes")
            }
            kind::RANGE_DELETED => {
                let (namespace, from_bytes) = namespace_and_key(header).unwrap_or_default();
                let payload = scanner.payload(&record)?;
                let (from, to) = payload.split_at(from_bytes);
                format!(
                    "range     {} of namespace {namespace}, deleted from {} to {}",
                    header.sequence,
                    readable(from),
                    if to.is_empty() {
                        "the end".to_string()
                    } else {
                        readable(to)
                    }
                )
            }
            kind::SYNCED => format!("synced    through write {}", header.synced_through),
            kind::NAMESPACE | kind::NAMESPACE_DROPPED => format!(
                "{} {} number {}, {}",
                match header.kind {
                    kind::NAMESPACE => "namespace",
                    _ => "dropped  ",
                },
                header.sequence,
                header.auxiliary >> 16,
                readable(record.prefix())
            ),
            kind::NODES => {
                let extent = database.blocks_behind(kind::NODES, end, header.auxiliary);
                let (start, extent_end) = extent;
                scanner.skip_to(extent_end);
                format!("nodes     {} at {start}", header.auxiliary)
            }
            kind::MOVED => format!("moved     {} blocks follow", header.auxiliary),
            kind::HEADER => format!(
                "header    at write {}, session {}{}{}",
                header.sequence,
                header.session,
                if header.flags & FLAG_RECOVERED != 0 {
                    ", a recovery cut here"
                } else {
                    ""
                },
                if record.offset == root.header {
                    ", the newest"
                } else {
                    ""
                }
            ),
            other => format!("kind {other}"),
        };
        line(format!("{:>12}  {what}", record.offset))?;
    }
    line(format!("{:>12}  end of file", scanner.position()))
}
