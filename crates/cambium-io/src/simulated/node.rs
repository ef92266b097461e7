//! A file's two images, and the changes that lie between them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::SECTOR_BYTES;
use super::image::Image;
use super::tree::{Entry, Tree};

/// A change of a file's bytes or length.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { offset: u64, bytes: Arc<[u8]> },
    SetLength(u64),
    Allocate { offset: u64, length: u64 },
    Punch { offset: u64, length: u64 },
}

impl Change {
    pub(super) fn apply(&self, image: &mut Image) {
        match self {
            Change::Write { offset, bytes } => image.write(bytes, *offset),
            Change::SetLength(length) => image.set_length(*length),
            Change::Allocate { offset, length } => image.allocate(*offset, *length),
            Change::Punch { offset, length } => image.punch(*offset, *length),
        }
    }
}

/// What the device makes of a change once it is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// What it should.
    Kept,
    /// Nothing: the write is lost without a word.
    Lost,
    /// The write lands at this offset instead.
    Misdirected(u64),
}

/// A change that is cached and not durable.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// Its place among all pending changes of the disk.
    pub(super) order: u64,
    pub(super) change: Change,
    pub(super) fate: Fate,
}

impl Pending {
    /// Applies what reaches the device.
    pub(super) fn reach_device(&self, image: &mut Image) {
        match (self.fate, &self.change) {
            (Fate::Kept, change) => change.apply(image),
            (Fate::Lost, _) => {}
            (Fate::Misdirected(offset), Change::Write { bytes, .. }) => image.write(bytes, offset),
            (Fate::Misdirected(_), change) => change.apply(image),
        }
    }
}

impl Pending {
    /// What a write leaves pending once a range of bytes is durable: a part before it
    /// and one behind it.
    fn outside(self, range: &Range<u64>) -> Vec<Pending> {
        let Change::Write { offset, bytes } = &self.change else {
            return vec![self];
        };
        let end = offset + bytes.len() as u64;
        let parts = [
            (*offset, end.min(range.start)),
            ((*offset).max(range.end), end),
        ];
        let there = parts.into_iter().filter(|(start, end)| start < end);
        there
            .map(|(start, end)| Pending {
                change: Change::Write {
                    offset: start,
                    bytes: bytes[(start - offset) as usize..(end - offset) as usize].into(),
                },
                ..self
            })
            .collect()
    }
}

/// A file apart from its names.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) durable: Image,
    pub(super) cached: Image,
    pub(super) pending: Vec<Pending>,
    /// A write was lost or misdirected, or a failed sync left its pages clean:
    /// the cache holds what the device never will, so a sync goes change by
    /// change.
    pub(super) diverged: bool,
    /// Numbers of sectors that cannot be read until they are written whole.
    pub(super) unreadable: BTreeSet<u64>,
    /// Bytes that a block device writes whole or not at all; 0 for a file.
    pub(super) sector_bytes: u32,
}

impl Node {
    /// A file that was on the device when the disk came to be.
    pub(super) fn settled(image: Image) -> Self {
        Node {
            durable: image.clone(),
            cached: image,
            pending: Vec::new(),
            diverged: false,
            unreadable: BTreeSet::new(),
            sector_bytes: 0,
        }
    }

    /// Bytes that are written whole or not at all.
    pub(super) fn tears_at(&self) -> u64 {
        match self.sector_bytes {
            0 => SECTOR_BYTES,
            sector => u64::from(sector),
        }
    }

    /// Does a change in the cache.
    pub(super) fn change(&mut self, order: u64, change: Change, fate: Fate) {
        change.apply(&mut self.cached);
        self.heal(&change);
        let change = if self.diverged {
            self.whole_sectors(change)
        } else {
            change
        };
        self.diverged |= fate != Fate::Kept;
        self.pending.push(Pending {
            order,
            change,
            fate,
        });
    }

    /// A write to a part of a sector makes all of it dirty: what the cache holds
    /// of the rest goes to the device too, also where the device lacks it.
    fn whole_sectors(&self, change: Change) -> Change {
        let Change::Write { offset, bytes } = change else {
            return change;
        };
        let unit = self.tears_at();
        let end = (offset + bytes.len() as u64).next_multiple_of(unit);
        let start = offset / unit * unit;
        let mut whole = vec![0; (end.min(self.cached.length()) - start) as usize];
        self.cached.read(&mut whole, start);
        Change::Write {
            offset: start,
            bytes: whole.into(),
        }
    }

    /// Sectors that are written whole, cut off or given back can be read again.
    fn heal(&mut self, change: &Change) {
        if self.unreadable.is_empty() {
            return;
        }
        let unit = self.tears_at();
        let healed = match change {
            Change::Write { offset, bytes } => {
                offset.div_ceil(unit)..(offset + bytes.len() as u64) / unit
            }
            Change::SetLength(length) => length.div_ceil(unit)..u64::MAX,
            Change::Punch { offset, length } => {
                offset.div_ceil(unit)..offset.saturating_add(*length) / unit
            }
            Change::Allocate { .. } => return,
        };
        self.unreadable.retain(|sector| !healed.contains(sector));
    }

    /// True if a range touches a sector that cannot be read.
    pub(super) fn is_unreadable(&self, offset: u64, length: u64) -> bool {
        let unit = self.tears_at();
        let end = offset.saturating_add(length).min(self.cached.length());
        offset < end
            && self
                .unreadable
                .range(offset / unit..end.div_ceil(unit))
                .next()
                .is_some()
    }

    /// True if a write changes a part of a sector that cannot be read: the rest of
    /// it would have to be read first.
    pub(super) fn needs_unreadable(&self, offset: u64, length: u64) -> bool {
        let unit = self.tears_at();
        let end = offset.saturating_add(length);
        let is_partial = |edge: u64| edge % unit != 0 && self.is_unreadable(edge / unit * unit, 1);
        !self.unreadable.is_empty() && length > 0 && (is_partial(offset) || is_partial(end))
    }

    /// The bytes that a direct read sees. The read writes dirty pages back first, and
    /// does not see clean pages.
    pub(super) fn device_image(&self) -> Image {
        let mut image = self.durable.clone();
        for pending in &self.pending {
            pending.reach_device(&mut image);
        }
        image
    }

    /// Makes everything durable.
    pub(super) fn sync(&mut self) {
        if self.diverged {
            self.durable = self.device_image();
        } else {
            self.durable = self.cached.clone();
        }
        self.pending.clear();
    }

    /// Makes what was written to some ranges durable, and no other write. What changed
    /// lengths or space goes with a journal that knows no ranges: then all is durable.
    pub(super) fn sync_ranges(&mut self, ranges: &[Range<u64>]) {
        let is_write = |pending: &Pending| matches!(pending.change, Change::Write { .. });
        if self.diverged || !self.pending.iter().all(is_write) {
            return self.sync();
        }
        for range in ranges {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            let count = self.cached.read(&mut bytes, range.start);
            self.durable.write(&bytes[..count], range.start);
            let pending = std::mem::take(&mut self.pending);
            self.pending = pending
                .into_iter()
                .flat_map(|pending| pending.outside(range))
                .collect();
        }
    }

    /// Forgets what a failed sync should have written: bytes are again what
    /// the device holds; the length stays, as the inode keeps it.
    pub(super) fn drop_pages(&mut self, order: u64) {
        let length = self.cached.length();
        self.cached = self.durable.clone();
        self.pending.clear();
        self.diverged = false;
        if length != self.cached.length() {
            self.change(order, Change::SetLength(length), Fate::Kept);
        }
    }

    /// Takes what a failed sync should have written for written: the cache keeps
    /// it, no later sync writes it, and a power cut loses it. Lengths and space go
    /// with the journal, and stay pending.
    pub(super) fn keep_pages(&mut self, order: u64) {
        self.pending
            .retain(|pending| !matches!(pending.change, Change::Write { .. }));
        self.diverged = true;
        let length = self.cached.length();
        if length != self.durable.length() {
            self.change(order, Change::SetLength(length), Fate::Kept);
        }
    }
}

/// What happened to a name.
#[derive(Clone, Debug)]
pub(super) enum NameAction {
    Link {
        path: PathBuf,
        node: u64,
    },
    MakeDirectory {
        path: PathBuf,
    },
    Unlink {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    RenameFile {
        from: PathBuf,
        to: PathBuf,
        node: u64,
    },
}

impl NameAction {
    /// True if a file may have a name less afterwards.
    pub(super) fn may_remove(&self) -> bool {
        !matches!(
            self,
            NameAction::Link { .. } | NameAction::MakeDirectory { .. }
        )
    }
}

/// A change of a name that is pending until `folder` is synced.
#[derive(Clone, Debug)]
pub(super) struct NameChange {
    pub(super) order: u64,
    pub(super) folder: PathBuf,
    pub(super) action: NameAction,
}

impl NameChange {
    pub(super) fn apply(&self, names: &mut Tree) {
        match &self.action {
            NameAction::Link { path, node } => names.set(path, Entry::File(*node)),
            NameAction::MakeDirectory { path } => names.set(path, Entry::Directory),
            NameAction::Unlink { path } => {
                names.clear(path);
            }
            NameAction::Rename { from, to } => names.rename(from, to),
            // A file is named by its number here: the new name can survive
            // where the creation of the old one did not.
            NameAction::RenameFile { from, to, node } => {
                names.clear(from);
                names.set(to, Entry::File(*node));
            }
        }
    }
}

/// Takes away names whose folder is not there.
pub(super) fn drop_unreachable(names: &mut Tree) {
    let mut folders: Vec<PathBuf> = Vec::new();
    // Folders sort before what they hold, so one pass is enough.
    names.retain(|path, entry| {
        let holder = path.parent().unwrap_or(Path::new(""));
        let reachable =
            holder.as_os_str().is_empty() || folders.iter().any(|folder| folder == holder);
        if reachable && matches!(entry, Entry::Directory) {
            folders.push(path.clone());
        }
        reachable
    });
}
