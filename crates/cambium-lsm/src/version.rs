//! Versions: which tables make up the tree, and at which level.
//!
//! A version never changes; an edit makes a new one. Readers hold the one they
//! began with, and with it every table of it: a table that an edit took out is
//! removed when the last version that names it is gone.
//!
//! | level | tables |
//! |---|---|
//! | 0 | one a flush, newest first; their ranges overlap |
//! | 1 to 6 | disjoint, by key |

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use cambium_base::{FileIdentity, FileNumber, StoreId};
use cambium_io::sync::atomic::{AtomicBool, Ordering};
use cambium_io::sync::{Mutex, lock};

use crate::format::LEVELS;
use crate::table::Table;

/// Where a range of keys ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpperBound {
    /// With this key.
    Inclusive(Vec<u8>),
    /// Before this key.
    Exclusive(Vec<u8>),
    /// Nowhere: a range tombstone without end.
    None,
}

impl UpperBound {
    /// True if everything within lies before `key`.
    pub fn ends_before(&self, key: &[u8]) -> bool {
        match self {
            UpperBound::Inclusive(last) => last.as_slice() < key,
            UpperBound::Exclusive(end) => end.as_slice() <= key,
            UpperBound::None => false,
        }
    }

    /// A number that is higher the further the bound lies, for equal keys.
    fn rank(&self) -> (bool, Option<&[u8]>, bool) {
        match self {
            UpperBound::Exclusive(end) => (false, Some(end), false),
            UpperBound::Inclusive(last) => (false, Some(last), true),
            UpperBound::None => (true, None, true),
        }
    }

    /// The further of two.
    pub fn further<'a>(&'a self, other: &'a UpperBound) -> &'a UpperBound {
        if self.rank() >= other.rank() {
            self
        } else {
            other
        }
    }
}

/// From a key to a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub smallest: Vec<u8>,
    pub upper: UpperBound,
}

impl KeyRange {
    /// One key.
    pub fn of_key(key: &[u8]) -> Self {
        KeyRange {
            smallest: key.to_vec(),
            upper: UpperBound::Inclusive(key.to_vec()),
        }
    }

    /// True if the two share a key, or could.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        !self.upper.ends_before(&other.smallest) && !other.upper.ends_before(&self.smallest)
    }

    /// True if a key lies within.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.smallest.as_slice() <= key && !self.upper.ends_before(key)
    }

    /// True if anything within may lie in `[from, to)`.
    pub fn touches(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> bool {
        from.is_none_or(|from| !self.upper.ends_before(from))
            && to.is_none_or(|to| self.smallest.as_slice() < to)
    }

    /// The range over both.
    pub fn and(&self, other: &KeyRange) -> KeyRange {
        KeyRange {
            smallest: self.smallest.clone().min(other.smallest.clone()),
            upper: self.upper.further(&other.upper).clone(),
        }
    }
}

/// What the manifest says of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableMetadata {
    pub number: u64,
    pub salt: u64,
    /// Length of the file.
    pub bytes: u64,
    pub entries: u64,
    /// Of the entries, those that are tombstones.
    pub deletes: u64,
    /// Fragments of range tombstones.
    pub range_tombstones: u64,
    pub smallest_sequence: u64,
    pub largest_sequence: u64,
    /// Of entries and range tombstones.
    pub range: KeyRange,
    /// Some key has two entries in it, or more.
    pub has_versions: bool,
}

impl TableMetadata {
    /// What the file's checksums are seeded with.
    pub fn identity(&self, store: StoreId) -> FileIdentity {
        FileIdentity {
            store,
            number: FileNumber(self.number),
            salt: self.salt,
        }
    }
}

/// Which tables somebody may still read, and those that nobody does any more.
#[derive(Debug, Default)]
pub(crate) struct Graveyard {
    /// To be removed.
    numbers: Mutex<Vec<u64>>,
    /// Held by a version, by whatever reader.
    held: Mutex<BTreeSet<u64>>,
}

impl Graveyard {
    /// Takes what is in it.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *lock(&self.numbers))
    }

    /// Puts numbers in, or back.
    pub fn put(&self, numbers: impl IntoIterator<Item = u64>) {
        lock(&self.numbers).extend(numbers);
    }

    /// True if a version that somebody reads has the table.
    pub fn is_held(&self, number: u64) -> bool {
        lock(&self.held).contains(&number)
    }

    /// True if there is nothing to remove.
    pub fn is_empty(&self) -> bool {
        lock(&self.numbers).is_empty()
    }
}

/// A table of a version; opened when it is first read.
#[derive(Debug)]
pub(crate) struct TableFile {
    pub metadata: TableMetadata,
    /// The open table, while the table cache holds it.
    pub open: ArcSwapOption<Table>,
    /// Read since the table cache last looked.
    pub used: AtomicBool,
    obsolete: AtomicBool,
    graveyard: Arc<Graveyard>,
}

impl TableFile {
    /// A table that an edit brought.
    pub fn new(metadata: TableMetadata, graveyard: &Arc<Graveyard>) -> Arc<Self> {
        lock(&graveyard.held).insert(metadata.number);
        Arc::new(TableFile {
            metadata,
            open: ArcSwapOption::empty(),
            used: AtomicBool::new(false),
            obsolete: AtomicBool::new(false),
            graveyard: graveyard.clone(),
        })
    }

    /// Says whether the tree's version is without the table: then the file goes when no
    /// reader and no kept version has it any more.
    pub fn set_obsolete(&self, is_obsolete: bool) {
        self.obsolete.store(is_obsolete, Ordering::Release);
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        lock(&self.graveyard.held).remove(&self.metadata.number);
        if *self.obsolete.get_mut() {
            self.graveyard.put([self.metadata.number]);
        }
    }
}

/// The tables of one level.
pub(crate) type Level = Vec<Arc<TableFile>>;

/// All tables.
#[derive(Debug, Default)]
pub(crate) struct Version {
    pub levels: [Level; LEVELS],
    /// Which levels have tables with range tombstones.
    deleting: [bool; LEVELS],
}

impl Version {
    /// A version of these levels; sorts them.
    pub fn new(mut levels: [Level; LEVELS]) -> Self {
        let (first, rest) = levels.split_at_mut(1);
        first[0].sort_by_key(|file| std::cmp::Reverse(file.metadata.number));
        for level in rest {
            level.sort_by(|one, other| {
                let key = |file: &Arc<TableFile>| file.metadata.range.smallest.clone();
                key(one).cmp(&key(other))
            });
        }
        let deletes = |file: &Arc<TableFile>| file.metadata.range_tombstones > 0;
        let deleting = std::array::from_fn(|level| levels[level].iter().any(deletes));
        Version { levels, deleting }
    }

    /// True if tables of a level have range tombstones.
    pub fn has_range_tombstones(&self, level: usize) -> bool {
        self.deleting[level]
    }

    /// The places of a level's tables, below level 0, that may have something in
    /// `[from, to)`.
    pub fn touching(&self, level: usize, from: Option<&[u8]>, to: Option<&[u8]>) -> Range<usize> {
        let files = &self.levels[level];
        let first = from.map_or(0, |from| {
            files.partition_point(|file| file.metadata.range.upper.ends_before(from))
        });
        let behind = to.map_or(files.len(), |to| {
            files.partition_point(|file| file.metadata.range.smallest.as_slice() < to)
        });
        first..behind.max(first)
    }

    /// All tables with their levels.
    pub fn files(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        let levels = self.levels.iter().enumerate();
        levels.flat_map(|(level, files)| files.iter().map(move |file| (level, file)))
    }

    /// The tables that a key may lie in, from the newest of level 0 down.
    pub fn files_over<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = &'a Arc<TableFile>> {
        let levels = self.levels.iter().enumerate();
        let files = levels.flat_map(move |(level, files)| match level {
            0 => files.as_slice(),
            // One at most.
            _ => {
                let ends_before =
                    |file: &Arc<TableFile>| file.metadata.range.upper.ends_before(key);
                let at = files.partition_point(ends_before);
                files.get(at..=at).unwrap_or_default()
            }
        });
        files.filter(move |file| file.metadata.range.contains(key))
    }

    /// Tables that overlap the one before them, in a level below 0, each with a line for people.
    pub fn overlaps(&self) -> impl Iterator<Item = (String, &Arc<TableFile>)> {
        let levels = self.levels.iter().enumerate().skip(1);
        let pairs = levels.flat_map(|(level, files)| {
            let pairs = files.windows(2);
            pairs.map(move |pair| (level, &pair[0], &pair[1]))
        });
        let overlap = pairs.filter(|(_, one, other)| {
            let (one, other) = (&one.metadata, &other.metadata);
            one.range.overlaps(&other.range)
        });
        overlap.map(|(level, one, other)| {
            let (first, second) = (one.metadata.number, other.metadata.number);
            let what = format!("tables {first} and {second} of level {level} overlap");
            (what, other)
        })
    }

    /// The tables of a level that overlap a range.
    pub fn overlapping(&self, level: usize, range: &KeyRange) -> Vec<Arc<TableFile>> {
        let files = &self.levels[level];
        if level == 0 {
            let overlaps = |file: &&Arc<TableFile>| file.metadata.range.overlaps(range);
            return files.iter().filter(overlaps).cloned().collect();
        }
        let ends_before =
            |file: &Arc<TableFile>| file.metadata.range.upper.ends_before(&range.smallest);
        let first = files.partition_point(ends_before);
        let overlaps = |file: &&Arc<TableFile>| file.metadata.range.overlaps(range);
        files[first..]
            .iter()
            .take_while(overlaps)
            .cloned()
            .collect()
    }

    /// Bytes of a level.
    pub fn level_bytes(&self, level: usize) -> u64 {
        bytes_of(&self.levels[level])
    }

    /// True if no table below `level` can hold anything of the range.
    pub fn nothing_below(&self, level: usize, range: &KeyRange) -> bool {
        (level + 1..LEVELS).all(|below| self.overlapping(below, range).is_empty())
    }
}

/// Bytes of tables together.
pub(crate) fn bytes_of(files: &[Arc<TableFile>]) -> u64 {
    files.iter().map(|file| file.metadata.bytes).sum()
}

/// The range over all of some tables; `None` of none.
pub(crate) fn range_of(files: &[Arc<TableFile>]) -> Option<KeyRange> {
    let mut ranges = files.iter().map(|file| &file.metadata.range);
    let first = ranges.next()?.clone();
    Some(ranges.fold(first, |all, range| all.and(range)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(smallest: &str, upper: UpperBound) -> KeyRange {
        KeyRange {
            smallest: smallest.as_bytes().to_vec(),
            upper,
        }
    }

    fn inclusive(key: &str) -> UpperBound {
        UpperBound::Inclusive(key.as_bytes().to_vec())
    }

    fn exclusive(key: &str) -> UpperBound {
        UpperBound::Exclusive(key.as_bytes().to_vec())
    }

    #[test]
    fn an_exclusive_end_leaves_its_key_to_the_neighbour() {
        let left = range("a", exclusive("m"));
        let right = range("m", inclusive("z"));
        assert!(!left.overlaps(&right) && !right.overlaps(&left));
        assert!(range("a", inclusive("m")).overlaps(&right));
        assert!(range("a", UpperBound::None).overlaps(&right));
        assert!(!left.contains(b"m") && right.contains(b"m") && right.contains(b"z"));
        assert!(left.touches(Some(b"l"), None) && !left.touches(Some(b"m"), None));
        assert!(!right.touches(None, Some(b"m")) && right.touches(None, Some(b"n")));
    }

    #[test]
    fn the_range_over_both_ends_with_the_further_bound() {
        let both = |one, other| range("b", one).and(&range("a", other));
        assert_eq!(
            both(exclusive("m"), inclusive("m")),
            range("a", inclusive("m"))
        );
        assert_eq!(
            both(exclusive("n"), inclusive("m")),
            range("a", exclusive("n"))
        );
        assert_eq!(
            both(UpperBound::None, inclusive("z")).upper,
            UpperBound::None
        );
    }

    #[test]
    fn a_table_is_found_by_every_key_of_its_range_and_no_other() {
        let graveyard = Arc::new(Graveyard::default());
        let file = |number, range| {
            let metadata = TableMetadata {
                number,
                salt: 0,
                bytes: 10,
                entries: 1,
                deletes: 0,
                range_tombstones: 0,
                smallest_sequence: 1,
                largest_sequence: 1,
                range,
                has_versions: false,
            };
            TableFile::new(metadata, &graveyard)
        };
        let mut levels = <[Level; LEVELS]>::default();
        levels[1] = vec![
            file(2, range("m", inclusive("p"))),
            file(1, range("a", exclusive("m"))),
            file(3, range("x", UpperBound::None)),
        ];
        let version = Version::new(levels);
        let with = |key: &[u8]| {
            version
                .files_over(key)
                .next()
                .map(|file| file.metadata.number)
        };
        assert_eq!(
            (with(b""), with(b"a"), with(b"lz")),
            (None, Some(1), Some(1))
        );
        assert_eq!(
            (with(b"m"), with(b"p"), with(b"p\0")),
            (Some(2), Some(2), None)
        );
        assert_eq!((with(b"x"), with(b"zzz")), (Some(3), Some(3)));
        let overlapping = |range| version.overlapping(1, &range).len();
        assert_eq!(overlapping(range("b", inclusive("n"))), 2);
        assert_eq!(overlapping(range("q", inclusive("w"))), 0);
        assert!(version.nothing_below(1, &range("a", UpperBound::None)));
        assert!(!version.nothing_below(0, &range("a", UpperBound::None)));
    }

    #[test]
    fn an_obsolete_table_is_buried_when_the_last_version_lets_go() {
        let graveyard = Arc::new(Graveyard::default());
        let metadata = TableMetadata {
            number: 7,
            salt: 0,
            bytes: 0,
            entries: 0,
            deletes: 0,
            range_tombstones: 0,
            smallest_sequence: 0,
            largest_sequence: 0,
            range: range("a", UpperBound::None),
            has_versions: false,
        };
        let file = TableFile::new(metadata, &graveyard);
        let held = file.clone();
        file.set_obsolete(true);
        drop(file);
        assert!(graveyard.is_empty());
        drop(held);
        assert_eq!(graveyard.take(), [7]);
    }
}
