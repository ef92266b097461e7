//! History: the data files that compactions replaced and that consumers still need, and
//! what else the catalog says of the log for the feed.

use std::path::{Path, PathBuf};

use cambium_base::FileNumber;
use cambium_base::coding::Decoder;

use crate::catalog::{Catalog, DataEntry, decode_file, encode_file};
use crate::core::{Core, lock};
use crate::data_file::DataFile;
use crate::format::{self, FileRef};
use crate::seeded_bug::SeededBug;

/// What the log still has of the past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Changes up to here may be gone; the log has all later ones.
    pub lost: u64,
    /// Replaced data files that are still there, in the order of `through`.
    pub kept: Vec<KeptFile>,
    /// Ranges of data files that recoveries cut off.
    pub cuts: Vec<Cut>,
}

/// A data file that a compaction replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptFile {
    /// Its table.
    pub table: u64,
    /// Its place in the table.
    pub place: u32,
    /// Its number and salt.
    pub file: FileRef,
    /// Its entries up to this number are copies.
    pub copies_through: u64,
    /// No entry of it has a higher number.
    pub through: u64,
    /// Where its records end.
    pub end: u64,
}

/// Bytes of a data file whose records do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub file: FileNumber,
    /// The first byte.
    pub from: u64,
    /// The byte after the last one.
    pub to: u64,
}

impl KeptFile {
    /// Its path.
    pub fn path(&self, folder: &Path) -> PathBuf {
        format::data_path(folder, self.table, self.place, self.file.number)
    }

    /// The entry with which the file is opened.
    pub fn as_entry(&self) -> DataEntry {
        DataEntry {
            copies_through: self.copies_through,
            last_sequence: self.through,
            ..DataEntry::of_new(self.file, self.end)
        }
    }
}

impl Past {
    /// Bytes of the files that are kept.
    pub fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(|file| file.end).sum()
    }

    /// The ranges of a file that do not count, in ascending order.
    pub fn cuts_of(&self, file: FileNumber) -> Vec<(u64, u64)> {
        let cuts = self.cuts.iter().filter(|cut| cut.file == file);
        let mut ranges: Vec<_> = cuts.map(|cut| (cut.from, cut.to)).collect();
        ranges.sort_unstable();
        ranges
    }

    /// How many of the kept files, oldest first, go: those that all consumers have passed,
    /// and those beyond the limit.
    fn obsolete(&self, consumers: Option<u64>, limit: u64) -> usize {
        let mut bytes = self.kept_bytes();
        let mut count = 0;
        for file in &self.kept {
            let passed = consumers.is_none_or(|oldest| oldest >= file.through);
            if !passed && bytes <= limit && file.through > self.lost {
                break;
            }
            bytes -= file.end;
            count += 1;
        }
        count
    }

    /// Appends it to the superblock's payload.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.lost.to_le_bytes());
        into.extend_from_slice(&(self.kept.len() as u32).to_le_bytes());
        for kept in &self.kept {
            encode_file(&kept.file, into);
            let place = u64::from(kept.place);
            let numbers = [
                kept.table,
                place,
                kept.copies_through,
                kept.through,
                kept.end,
            ];
            for number in numbers {
                into.extend_from_slice(&number.to_le_bytes());
            }
        }
        into.extend_from_slice(&(self.cuts.len() as u32).to_le_bytes());
        for cut in &self.cuts {
            for number in [cut.file.0, cut.from, cut.to] {
                into.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    /// Reads it back, or `None` where it makes no sense.
    pub fn decode(decoder: &mut Decoder<'_>) -> Option<Past> {
        let mut past = Past {
            lost: decoder.u64()?,
            ..Past::default()
        };
        for _ in 0..decoder.u32()? {
            past.kept.push(KeptFile {
                file: decode_file(decoder)?,
                table: decoder.u64()?,
                place: u32::try_from(decoder.u64()?).ok()?,
                copies_through: decoder.u64()?,
                through: decoder.u64()?,
                end: decoder.u64()?,
            });
        }
        for _ in 0..decoder.u32()? {
            past.cuts.push(Cut {
                file: FileNumber(decoder.u64()?),
                from: decoder.u64()?,
                to: decoder.u64()?,
            });
        }
        Some(past)
    }
}

impl Core {
    /// Up to which number all consumers are done; `None` without consumers.
    fn consumers_through(&self) -> Option<u64> {
        match self.has_bug(SeededBug::ConsumersForgotten) {
            true => None,
            false => self.consumers.oldest().map(|oldest| oldest.0),
        }
    }

    /// True if a file is kept that may go.
    pub fn has_obsolete_history(&self) -> bool {
        let consumers = self.consumers_through();
        lock(&self.past).obsolete(consumers, self.tuning.history_bytes) > 0
    }

    /// Keeps a data file that is about to be replaced after entry `through`. It is in this
    /// list before it is no longer current, so that every feed finds it in one of the two.
    pub fn keep_replaced_file(&self, old: &DataFile, through: u64) {
        lock(&self.past).kept.push(KeptFile {
            table: old.table,
            place: old.place,
            file: old.file,
            copies_through: old.copies_through(),
            through,
            end: old.log.end(),
        });
    }

    /// Takes what may go out of the list, and notes the rest in the catalog. Answers the
    /// paths of the files to be removed once no copy of the superblock names them.
    pub fn settle_past(&self, catalog: &mut Catalog) -> Vec<PathBuf> {
        let consumers = self.consumers_through();
        let mut past = lock(&self.past);
        let count = past.obsolete(consumers, self.tuning.history_bytes);
        let obsolete: Vec<KeptFile> = past.kept.drain(..count).collect();
        for file in &obsolete {
            past.lost = past.lost.max(file.through);
        }
        past.cuts
            .retain(|cut| obsolete.iter().all(|file| file.file.number != cut.file));
        catalog.past = past.clone();
        obsolete.iter().map(|file| file.path(&self.path)).collect()
    }
}
