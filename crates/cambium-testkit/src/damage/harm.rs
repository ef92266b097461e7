//! Harm: the changes that the suite makes to the files of a store.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cambium_io::FileSystem;
use cambium_io::simulated::SimulatedDisk;

use crate::crash::number_from;
use crate::subject::store_path;

/// Bytes of the smaller sectors that are zeroed or fail.
pub(super) const SECTOR_BYTES: usize = 512;
/// Sizes of the sectors that are zeroed.
const ZEROED_BYTES: [usize; 2] = [SECTOR_BYTES, 4096];
/// Bytes that other suites zero.
const STRETCH_BYTES: usize = 64;
/// In sectors of zeros, one byte of so many of those that the stride names is
/// flipped.
const PADDING_STRIDE: usize = 16;

/// Damage to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    Cut {
        path: PathBuf,
        at: usize,
    },
    Flip {
        path: PathBuf,
        at: usize,
    },
    Zero {
        path: PathBuf,
        at: usize,
        bytes: usize,
    },
    Unreadable {
        path: PathBuf,
        at: usize,
    },
    Gone {
        path: PathBuf,
    },
}

impl Harm {
    /// The file, and the range of bytes that is not what was written.
    pub(super) fn place(&self) -> (&Path, std::ops::Range<usize>) {
        match self {
            Harm::Cut { path, at } => (path, *at..usize::MAX),
            Harm::Flip { path, at } => (path, *at..at + 1),
            Harm::Zero { path, at, bytes } => (path, *at..at + bytes),
            Harm::Unreadable { path, .. } => (path, 0..0),
            Harm::Gone { path } => (path, 0..usize::MAX),
        }
    }

    pub(super) fn apply(&self, disk: &SimulatedDisk) {
        match self {
            Harm::Cut { path, at } => {
                let mut bytes = disk.contents(path).unwrap_or_default();
                bytes.truncate(*at);
                disk.replace_contents(path, &bytes);
            }
            Harm::Flip { path, at } => {
                disk.flip_bit(path, *at as u64, (*at % 8) as u32);
            }
            Harm::Zero { path, at, bytes } => {
                let mut contents = disk.contents(path).unwrap_or_default();
                let end = contents.len().min(at + bytes);
                contents[*at..end].fill(0);
                disk.replace_contents(path, &contents);
            }
            Harm::Unreadable { path, at } => {
                disk.make_unreadable(path, *at as u64);
            }
            Harm::Gone { path } => {
                // The path comes from the disk itself, and nothing is armed to fail.
                _ = disk.remove(path);
                _ = disk.sync_directory(path.parent().unwrap_or(store_path()));
            }
        }
    }
}

fn stride_or(own: usize) -> usize {
    number_from("CAMBIUM_STRIDE").map_or(own, |given| given.max(1) as usize)
}

/// Cuts and flips at every `stride`-th byte, stretches of zeros, and each file gone.
pub(super) fn harms(disk: &SimulatedDisk, stride: usize) -> Vec<Harm> {
    let stride = stride_or(stride);
    let mut harms = Vec::new();
    for path in disk.files() {
        let length = disk.contents(&path).unwrap_or_default().len();
        for at in (0..length).step_by(stride) {
            harms.push(Harm::Cut {
                path: path.clone(),
                at,
            });
            harms.push(Harm::Flip {
                path: path.clone(),
                at,
            });
        }
        for at in (0..length).step_by(stride.max(STRETCH_BYTES)) {
            harms.push(Harm::Zero {
                path: path.clone(),
                at,
                bytes: STRETCH_BYTES,
            });
        }
        harms.push(Harm::Gone { path });
    }
    harms
}

/// Flips at every `stride`-th byte, cuts at those and at every sector's border,
/// every sector zeroed and every sector unreadable, and each file gone. Sectors of
/// zeros are met less often: most of them lie behind the end of a log.
pub(super) fn strict_harms(disk: &SimulatedDisk, stride: usize) -> Vec<Harm> {
    let stride = stride_or(stride);
    let mut harms = Vec::new();
    for path in disk.files() {
        let contents = disk.contents(&path).unwrap_or_default();
        let blank: Vec<bool> = contents
            .chunks(SECTOR_BYTES)
            .map(|sector| sector.iter().all(|&byte| byte == 0))
            .collect();
        let mut cuts: BTreeSet<usize> = (0..contents.len()).step_by(SECTOR_BYTES).collect();
        for (number, at) in (0..contents.len()).step_by(stride).enumerate() {
            if !blank[at / SECTOR_BYTES] || number % PADDING_STRIDE == 0 {
                harms.push(Harm::Flip {
                    path: path.clone(),
                    at,
                });
                cuts.insert(at);
            }
        }
        // One cut within a run of zeros is enough: the others leave the same store.
        let is_distinct = |at: &usize| !blank[at / SECTOR_BYTES] || at % 4096 == 0;
        let cut = |at| Harm::Cut {
            path: path.clone(),
            at,
        };
        harms.extend(cuts.into_iter().filter(is_distinct).map(cut));
        for bytes in ZEROED_BYTES {
            for at in (0..contents.len()).step_by(bytes) {
                let end = contents.len().min(at + bytes);
                if contents[at..end].iter().any(|&byte| byte != 0) {
                    harms.push(Harm::Zero {
                        path: path.clone(),
                        at,
                        bytes,
                    });
                }
            }
        }
        for at in (0..contents.len()).step_by(SECTOR_BYTES) {
            if !blank[at / SECTOR_BYTES] {
                harms.push(Harm::Unreadable {
                    path: path.clone(),
                    at,
                });
            }
        }
        harms.push(Harm::Gone { path });
    }
    harms
}
