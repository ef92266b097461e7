//! A store's device as text: superblocks, a map, extents.

use std::io::Write;
use std::path::Path;

use cambium_api::OptionValues;
use cambium_base::{Error, Result};
use cambium_io::{Environment, LockMode, OpenOptions};
use cambium_storage::consumers::Consumers;
use cambium_storage::store_lock::lock_store;

use crate::core::{Core, lock, read};
use crate::members::attach;
use crate::open::{FORMAT, assemble, load};
use crate::options;
use crate::volume::{MemberState, Volume};

/// Characters of the map.
const MAP_CELLS: u64 = 64;
/// Extents that are listed one by one.
const MOST_LISTED: usize = 1_000;

/// Describes a store that no process has open for writing; writes nothing to it.
pub(crate) fn inspect(environment: &Environment, path: &Path, to: &mut dyn Write) -> Result<()> {
    let file_system = &*environment.file_system;
    let (marker, held) = lock_store(file_system, path, FORMAT, LockMode::Shared)?;
    let tuning = options::tuning(OptionValues::default())?;
    let access = OpenOptions::READ;
    let mut attached = attach(file_system, path, &marker, &tuning, access, false)?;
    attached.locks.push(held);
    let unsound = std::mem::take(&mut attached.unsound);
    let place = (&attached.volume, &attached.superblock);
    let recovered = load(environment, path, place, &tuning, &())?;
    let how = if recovered.from_image {
        "index image"
    } else {
        "scan"
    };
    let dead = recovered.dead.len();
    let findings = recovered.findings.clone();
    let core = assemble(environment, path, tuning, attached, recovered, false);
    let attached = core.attach_consumers();
    dump(&core, to)?;
    let mut text = format!("read by           {how}\n");
    if dead > 0 {
        text += &format!("cut off           {dead} entries, erased at the next opening\n");
    }
    for (member, offset) in unsound {
        let place = match core.volume.is_mirrored() {
            true => format!(" of member {}", member + 1),
            false => String::new(),
        };
        text += &format!("not sound         the superblock at byte {offset}{place}\n");
    }
    if let Err(error) = attached {
        text += &format!("not sound         the consumers of changes: {error}\n");
    }
    for finding in findings {
        text += &format!(
            "{:?} at byte {}: {}\n",
            finding.kind, finding.offset, finding.what
        );
    }
    put(to, &text)
}

/// Describes an open store.
pub(crate) fn dump(core: &Core, to: &mut dyn Write) -> Result<()> {
    let writer = lock(&core.writer);
    let state = read(&core.state);
    let superblock = &writer.superblock;
    let unit = u64::from(core.block_bytes);
    let (total, limit) = (superblock.total_blocks, writer.allocator.limit());
    let mut text = format!(
        "alphard store {}\n{}blocks            {total} of {unit} bytes, {limit} in use since the store was made\nsuperblock        generation {}, epoch {}, {}\nlast write        {} ({} durable)\n",
        superblock.store,
        members_text(&core.volume),
        superblock.generation,
        superblock.epoch,
        if superblock.clean {
            "closed cleanly"
        } else {
            "not closed"
        },
        writer.next_sequence - 1,
        writer.synced_through,
    );
    let runs: Vec<u64> = writer
        .allocator
        .free_extents()
        .map(|run| u64::from(run.blocks))
        .collect();
    let free: u64 = runs.iter().sum();
    let largest = runs.iter().max().copied().unwrap_or(0);
    text += &format!(
        "entries           {}\npacks             {}\ntombstones        {}\nstale headers     {}\nfree in between   {free} blocks in {} runs, the longest of {largest}\nfragmentation     {}\n",
        state.index.len(),
        writer.packs.len(),
        writer.tombstones.len(),
        writer.stale.len(),
        runs.len(),
        match free {
            0 => "none: nothing is free in between".to_string(),
            _ => format!(
                "{:.0} % of that lies outside the longest run",
                100.0 * (free - largest) as f64 / free as f64
            ),
        }
    );
    if let Some(log) = &state.log {
        text += &format!(
            "history           {} changes after write {}\n",
            log.len(),
            log.lost()
        );
    }
    for (name, position) in core.consumers.get().map_or(Vec::new(), Consumers::list) {
        text += &format!("consumer          {name:?} has read up to write {position}\n");
    }
    text += &format!(
        "map               {}\n",
        map(&core_map(&writer.allocator, total), total)
    );
    text += "                  # full, + partly, . free, space never used\n";
    put(to, &text)?;
    let mut places = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let (page, next) = state.live_page(at);
        from = next;
        places.extend(page.into_iter().map(|(_, slot, place)| (place, slot)));
    }
    places.sort_unstable();
    put(to, "\n     block  blocks  in pack  slot key\n")?;
    for (place, slot) in places.iter().take(MOST_LISTED) {
        let number = place.number().map_or("-".to_string(), |at| at.to_string());
        let line = format!(
            "{:>10}  {:>6}  {number:>7}  {:016x}\n",
            place.block,
            place.extent().blocks,
            slot.bits()
        );
        put(to, &line)?;
    }
    if places.len() > MOST_LISTED {
        put(to, &format!("… and {} more\n", places.len() - MOST_LISTED))?;
    }
    Ok(())
}

/// A line for each member; of a pair with its state.
fn members_text(volume: &Volume) -> String {
    let lines = (0..volume.member_count()).map(|member| {
        let path = volume.member_path(member).display();
        let state = match (volume.is_mirrored(), volume.state(member)) {
            (false, _) => "",
            (true, MemberState::Current) => ", current",
            (true, MemberState::Stale) => {
                ", stale: it lacks entries, and is brought up to date while the store is open"
            }
            (true, MemberState::Lost) => ", missing or failed",
        };
        format!("member            {path}{state}\n")
    });
    lines.collect()
}

/// How many blocks are free in each cell, or `None` after what is in use.
fn core_map(allocator: &cambium_storage::allocator::Allocator, total: u32) -> Vec<Option<u64>> {
    let total = u64::from(total);
    let limit = u64::from(allocator.limit());
    let mut cells: Vec<Option<u64>> = (0..MAP_CELLS)
        .map(|cell| (cell * total / MAP_CELLS < limit).then_some(0))
        .collect();
    for run in allocator.free_extents() {
        for (number, cell) in cells.iter_mut().enumerate() {
            let (start, end) = cell_range(number as u64, total);
            let inside = run
                .end()
                .min(end)
                .saturating_sub(u64::from(run.block).max(start));
            if let Some(free) = cell {
                *free += inside;
            }
        }
    }
    cells
}

fn cell_range(cell: u64, total: u64) -> (u64, u64) {
    (cell * total / MAP_CELLS, (cell + 1) * total / MAP_CELLS)
}

fn map(cells: &[Option<u64>], total: u32) -> String {
    let cells = cells.iter().enumerate().map(|(number, cell)| {
        let (start, end) = cell_range(number as u64, u64::from(total));
        match cell {
            None => ' ',
            Some(0) => '#',
            Some(free) if *free >= end - start => '.',
            Some(_) => '+',
        }
    });
    format!("│{}│", cells.collect::<String>())
}

fn put(to: &mut dyn Write, text: &str) -> Result<()> {
    to.write_all(text.as_bytes())
        .map_err(|error| Error::io("write", "the description", error))
}
