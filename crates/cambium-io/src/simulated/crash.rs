//! What a power cut leaves.
//!
//! A [`CrashStyle`] decides which pending changes of bytes, lengths and names
//! reached the device. Writes are torn at sectors, which disks write whole: of 512
//! bytes, or what a block device has; a part of a sector that one write covers survives or not with it.
//! Within one file, changes that survive are applied in their order: leaving
//! out the later of two writes to a sector shows the same bytes as their
//! having swapped.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::disk::SimulatedDisk;
use super::events::{Event, Events};
use super::image::Image;
use super::node::{Change, Fate, NameChange, Node, drop_unreachable};
use super::random::Generator;
use super::state::State;
use super::tree::{Entry, Tree};

/// Which unsynced changes survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrashStyle {
    /// None.
    NothingUnsynced,
    /// All.
    Everything,
    /// All up to a random one in the order in which they were made, over all
    /// files and folders; a write at the cut is torn.
    Prefix,
    /// Any subset of the sectors of each file; names: any of these styles.
    Sectors,
    /// Files have their new lengths, and zeros where the data should be.
    LengthsWithoutData,
    /// Data within the old lengths is there; the files did not grow.
    DataWithoutLengths,
    /// Any subset of the changes of names; each file has all of its changes
    /// or none.
    Names,
    /// All, but each punched hole only in part.
    Holes,
    /// One of the above, by the seed.
    Mixed,
}

impl CrashStyle {
    /// The styles that [`CrashStyle::Mixed`] chooses from.
    pub const ALL: [CrashStyle; 8] = [
        CrashStyle::NothingUnsynced,
        CrashStyle::Everything,
        CrashStyle::Prefix,
        CrashStyle::Sectors,
        CrashStyle::LengthsWithoutData,
        CrashStyle::DataWithoutLengths,
        CrashStyle::Names,
        CrashStyle::Holes,
    ];

    fn event(self) -> Event {
        match self {
            CrashStyle::NothingUnsynced => Event::CrashNothingUnsynced,
            CrashStyle::Everything => Event::CrashEverything,
            CrashStyle::Prefix => Event::CrashPrefix,
            CrashStyle::Sectors | CrashStyle::Mixed => Event::CrashSectors,
            CrashStyle::LengthsWithoutData => Event::CrashLengthsWithoutData,
            CrashStyle::DataWithoutLengths => Event::CrashDataWithoutLengths,
            CrashStyle::Names => Event::CrashNames,
            CrashStyle::Holes => Event::CrashHoles,
        }
    }
}

impl SimulatedDisk {
    /// The disk after a power cut now. This one stays as it is; the new one
    /// has no locks, handles, faults or probes, and nothing pending.
    pub fn crash(&self, style: CrashStyle, seed: u64) -> SimulatedDisk {
        let state = self.shared.lock();
        let mut generator = Generator::new(seed);
        let style = match style {
            CrashStyle::Mixed => *generator.pick(&CrashStyle::ALL),
            chosen => chosen,
        };
        state.events.add(style.event());
        let cut = random_cut(&state, &mut generator);
        let names = Arc::new(surviving_names(&state, style, cut, &mut generator));
        let mut nodes = BTreeMap::new();
        for (_, entry) in names.iter() {
            let Entry::File(number) = entry else { continue };
            if nodes.contains_key(number) {
                // It has several names, and one fate.
                continue;
            }
            let Some(node) = state.nodes.get(number) else {
                continue;
            };
            let survivor = if node.pending.is_empty() && !node.diverged {
                node.clone()
            } else {
                let image = surviving_image(node, style, cut, &mut generator, &state.events);
                let mut settled = Node::settled(image);
                settled.sector_bytes = node.sector_bytes;
                settled.unreadable = node.unreadable.clone();
                Arc::new(settled)
            };
            nodes.insert(*number, survivor);
        }
        let mut after = State::new(generator.next_u64(), state.events.clone());
        after.next_node = state.next_node;
        after.capacity = state.capacity;
        after.short_transfers = state.short_transfers;
        after.shares = state.shares;
        after.nodes = nodes;
        after.cached_names = names.clone();
        after.durable_names = names;
        SimulatedDisk::from_state(after)
    }
}

/// A place in the order of changes, from before the oldest that is pending to
/// behind the newest, each as likely.
fn random_cut(state: &State, generator: &mut Generator) -> u64 {
    let changes = state.nodes.values().filter_map(|node| node.pending.first());
    let names = state.name_changes.first().map(|change| change.order);
    let oldest = changes.map(|pending| pending.order).chain(names).min();
    let behind = state.next_order + 1;
    let first = oldest.unwrap_or(behind);
    first + generator.below(behind - first + 1)
}

fn surviving_names(state: &State, style: CrashStyle, cut: u64, generator: &mut Generator) -> Tree {
    let style = match style {
        CrashStyle::Sectors => *generator.pick(&[
            CrashStyle::NothingUnsynced,
            CrashStyle::Everything,
            CrashStyle::Names,
        ]),
        other => other,
    };
    match style {
        CrashStyle::NothingUnsynced => some_names(state, |_| false),
        CrashStyle::Names => {
            let events = &state.events;
            some_names(state, |_| {
                let kept = generator.chance(1, 2);
                if !kept {
                    events.add(Event::NameLost);
                }
                kept
            })
        }
        CrashStyle::Prefix => some_names(state, |change| change.order < cut),
        _ => (*state.cached_names).clone(),
    }
}

fn some_names(state: &State, mut keep: impl FnMut(&NameChange) -> bool) -> Tree {
    let mut names = (*state.durable_names).clone();
    for change in &state.name_changes {
        if keep(change) {
            change.apply(&mut names);
        }
    }
    drop_unreachable(&mut names);
    names
}

fn surviving_image(
    node: &Node,
    style: CrashStyle,
    cut: u64,
    generator: &mut Generator,
    events: &Events,
) -> Image {
    let mut image = node.durable.clone();
    match style {
        CrashStyle::NothingUnsynced => {}
        CrashStyle::Everything | CrashStyle::Mixed => apply_all(node, &mut image),
        CrashStyle::Prefix => apply_prefix(node, &mut image, cut, generator, events),
        CrashStyle::Sectors => apply_sectors(node, &mut image, generator, events),
        CrashStyle::LengthsWithoutData => image.set_length(node.cached.length()),
        CrashStyle::DataWithoutLengths => {
            let length = image.length();
            apply_all(node, &mut image);
            // A file that was cut keeps its old end, with what is left before it.
            image.set_length(length);
        }
        CrashStyle::Names => {
            if generator.chance(1, 2) {
                apply_all(node, &mut image);
            }
        }
        CrashStyle::Holes => {
            for pending in &node.pending {
                match pending.change {
                    Change::Punch { offset, length } => {
                        events.add(Event::HoleHalfDone);
                        punch_sectors(&mut image, (offset, length), node.tears_at(), generator);
                    }
                    _ => pending.reach_device(&mut image),
                }
            }
        }
    }
    image
}

fn apply_all(node: &Node, image: &mut Image) {
    for pending in &node.pending {
        pending.reach_device(image);
    }
}

fn apply_prefix(
    node: &Node,
    image: &mut Image,
    cut: u64,
    generator: &mut Generator,
    events: &Events,
) {
    for pending in &node.pending {
        if pending.order < cut {
            pending.reach_device(image);
        } else if pending.order == cut {
            if let (Change::Write { offset, bytes }, Fate::Kept) = (&pending.change, pending.fate) {
                let sectors = sector_count(*offset, bytes.len() as u64, node.tears_at());
                let kept = generator.below(sectors + 1);
                write_sectors(image, *offset, bytes, node.tears_at(), |sector| {
                    sector < kept
                });
                if kept > 0 && kept < sectors {
                    events.add(Event::TornWrite);
                }
            }
        }
    }
}

/// Each sector of each write survives with one chance for the whole file, so
/// that some files keep nearly all and some nearly nothing.
fn apply_sectors(node: &Node, image: &mut Image, generator: &mut Generator, events: &Events) {
    let chance = *generator.pick(&[0, 1, 5, 9, 10]);
    let unit = node.tears_at();
    for pending in &node.pending {
        match (&pending.change, pending.fate) {
            (Change::Write { offset, bytes }, Fate::Kept) => {
                let mut kept = 0;
                let sectors = write_sectors(image, *offset, bytes, unit, |_| {
                    let keep = generator.chance(chance, 10);
                    kept += u64::from(keep);
                    keep
                });
                if kept == 0 && sectors > 0 {
                    events.add(Event::WriteLost);
                } else if kept < sectors {
                    events.add(Event::TornWrite);
                }
            }
            (Change::Punch { offset, length }, _) => {
                punch_sectors(image, (*offset, *length), unit, generator);
            }
            _ => {
                if generator.chance(1, 2) {
                    pending.reach_device(image);
                }
            }
        }
    }
    // The new length may be there whichever data is.
    if generator.chance(1, 2) && image.length() < node.cached.length() {
        image.set_length(node.cached.length());
    }
}

fn sector_count(offset: u64, length: u64, unit: u64) -> u64 {
    if length == 0 {
        return 0;
    }
    (offset + length).div_ceil(unit) - offset / unit
}

/// Writes the sectors of a write that `keep` answers true for; counts all.
fn write_sectors(
    image: &mut Image,
    offset: u64,
    bytes: &[u8],
    unit: u64,
    mut keep: impl FnMut(u64) -> bool,
) -> u64 {
    let mut start = 0usize;
    let mut sector = 0;
    while start < bytes.len() {
        let position = offset + start as u64;
        let to_border = (unit - position % unit) as usize;
        let end = bytes.len().min(start + to_border);
        if keep(sector) {
            image.write(&bytes[start..end], position);
        }
        sector += 1;
        start = end;
    }
    sector
}

fn punch_sectors(
    image: &mut Image,
    (offset, length): (u64, u64),
    unit: u64,
    generator: &mut Generator,
) {
    let end = offset + length.min(image.length().saturating_sub(offset));
    let mut position = offset;
    while position < end {
        let next = ((position / unit + 1) * unit).min(end);
        if generator.chance(1, 2) {
            image.punch(position, next - position);
        }
        position = next;
    }
}
