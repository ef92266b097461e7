//! Checking a tree: reads every byte of every table, and writes nothing.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use cambium_base::hexdump::readable;
use cambium_base::{Error, Result};

use crate::entry::{EntryKind, Source, compare};
use crate::format::table_name;
use crate::kept::KeptView;
use crate::level_source::{LevelSource, Tables};
use crate::merge::MergeSource;
use crate::table::Table;
use crate::table_cursor::{Blocks, TableCursor};
use crate::tree::Tree;
use crate::version::{TableFile, Version};

/// What a check went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Tables read.
    pub tables: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Findings reported.
    pub findings: u64,
}

impl Tree {
    /// Reads all tables: checksums, order, ranges, counts, that every key is in
    /// its table's filter, that tables below level 0 are disjoint, and that of one
    /// key no table holds an older entry above a newer one. Hands
    /// each finding to `report`, and goes on. The manifest was checked when the
    /// tree was opened.
    ///
    /// # Errors
    /// None for damage, which is reported; errors of reading end the check.
    pub fn check(&self, report: &mut dyn FnMut(Error)) -> Result<CheckSummary> {
        self.check_open()?;
        let version = self.view.load().version.clone();
        self.check_version(&version, |_| false, report)
    }

    /// The same of a kept version, without the tables that [`Tree::check`] reads.
    ///
    /// # Errors
    /// As there.
    pub fn check_kept(
        &self,
        kept: &KeptView,
        report: &mut dyn FnMut(Error),
    ) -> Result<CheckSummary> {
        self.check_open()?;
        let current = self.view.load().version.clone();
        let current = current.files().map(|(_, file)| file.metadata.number);
        let current: BTreeSet<u64> = current.collect();
        let is_current = |file: &TableFile| current.contains(&file.metadata.number);
        self.check_version(&kept.version(), is_current, report)
    }

    fn check_version(
        &self,
        version: &Version,
        is_checked: impl Fn(&TableFile) -> bool,
        report: &mut dyn FnMut(Error),
    ) -> Result<CheckSummary> {
        let mut summary = CheckSummary::default();
        for (level, file) in version.files().filter(|(_, file)| !is_checked(file)) {
            summary.tables += 1;
            summary.bytes += file.metadata.bytes;
            let found = match self.check_table(file) {
                Ok(entries) => {
                    summary.entries += entries;
                    continue;
                }
                Err(error @ (Error::Io { .. } | Error::NoSpace { .. })) => return Err(error),
                Err(error) => error,
            };
            summary.findings += 1;
            report(with_level(found, level));
        }
        for (what, file) in version.overlaps() {
            summary.findings += 1;
            report(Error::corruption(self.table_path(file), 0, what));
        }
        // Only sound tables can be merged.
        if summary.findings == 0 {
            let mut upside_down = |finding| {
                summary.findings += 1;
                report(finding);
            };
            self.check_ages(version, &mut upside_down)?;
        }
        Ok(summary)
    }

    /// Reports each key of which an older entry lies above a newer one: lookups, which end
    /// at the first entry, then answer the older one (crate essay, promise 1).
    fn check_ages(&self, version: &Version, report: &mut dyn FnMut(Error)) -> Result<()> {
        let mut tables: Vec<Vec<Arc<TableFile>>> = Vec::new();
        tables.extend(version.levels[0].iter().map(|file| vec![file.clone()]));
        tables.extend(version.levels[1..].iter().cloned());
        let sources = tables.iter().map(|files| {
            LevelSource::new(
                &self.context,
                Tables::Listed(files.clone()),
                Blocks::Streamed,
            )
        });
        let mut merged = MergeSource::new(sources.collect());
        merged.seek_first()?;
        // The key, its newest entry's number and rank, and whether it was reported.
        let (mut key, mut newest, mut reported) = (None::<Vec<u8>>, (0, 0), false);
        while let (Some(entry), Some(rank)) = (merged.entry(), merged.rank()) {
            if key.as_deref() != Some(entry.key) {
                let mut buffer = key.take().unwrap_or_default();
                buffer.clear();
                buffer.extend_from_slice(entry.key);
                (key, newest, reported) = (Some(buffer), (entry.sequence, rank), false);
            } else if rank < newest.1 && !reported {
                reported = true;
                let file = tables[rank]
                    .iter()
                    .find(|file| file.metadata.range.contains(entry.key));
                let file = file.map_or(self.context.folder.clone(), |file| self.table_path(file));
                let what = format!(
                    "an older entry of a key lies above a newer one: write {} above write {}; \
                     gets answer the older value (key {})",
                    entry.sequence,
                    newest.0,
                    readable(entry.key)
                );
                report(Error::corruption(file, 0, what));
            }
            newest = (newest.0, newest.1.max(rank));
            merged.next()?;
        }
        Ok(())
    }

    fn table_path(&self, file: &TableFile) -> PathBuf {
        self.context.folder.join(table_name(file.metadata.number))
    }

    fn check_table(&self, file: &TableFile) -> Result<u64> {
        // Anew, and past all caches: what lies on the device is in question.
        let table = Arc::new(Table::open(&self.context, &file.metadata)?);
        let wrong = |what: String| Error::corruption(self.table_path(file), 0, what);
        let metadata = &file.metadata;
        let properties = &table.properties;
        let told = (
            properties.entries,
            properties.deletes,
            properties.range_tombstones,
        );
        let known = (
            metadata.entries,
            metadata.deletes,
            metadata.range_tombstones,
        );
        if told != known {
            return Err(wrong(format!(
                "entries, deletes and range tombstones are {told:?} by the table and {known:?} by the manifest"
            )));
        }
        let mut cursor = TableCursor::new(table.clone(), Blocks::Streamed);
        cursor.seek_first()?;
        let (mut entries, mut deletes) = (0, 0);
        let mut before: Option<(Vec<u8>, u64)> = None;
        while let Some(entry) = cursor.entry() {
            entries += 1;
            deletes += u64::from(entry.kind == EntryKind::Delete);
            if let Some((key, sequence)) = &before {
                if compare((key, *sequence), entry.place()) != std::cmp::Ordering::Less {
                    return Err(wrong(format!(
                        "entry {entries} does not lie behind the one before"
                    )));
                }
            }
            if !metadata.range.contains(entry.key) {
                return Err(wrong(format!(
                    "entry {entries} is outside the table's range"
                )));
            }
            let sequences = metadata.smallest_sequence..=metadata.largest_sequence;
            if !sequences.contains(&entry.sequence) {
                return Err(wrong(format!(
                    "entry {entries} has sequence number {}; the table has {sequences:?}",
                    entry.sequence
                )));
            }
            if !table.may_contain(self.context.hash(entry.key)) {
                return Err(wrong(format!(
                    "the filter denies the key of entry {entries}"
                )));
            }
            before = Some((entry.key.to_vec(), entry.sequence));
            cursor.next()?;
        }
        if (entries, deletes) != (metadata.entries, metadata.deletes) {
            return Err(wrong(format!(
                "{entries} entries, {deletes} of them deletes; the manifest says {} and {}",
                metadata.entries, metadata.deletes
            )));
        }
        for (from, fragment) in table.tombstones.iter() {
            let inside = metadata.range.contains(from)
                && match (&fragment.to, &metadata.range.upper) {
                    (Some(to), upper) => {
                        !upper.ends_before(from) && {
                            use crate::version::UpperBound::Exclusive;
                            upper.further(&Exclusive(to.clone())) == upper
                        }
                    }
                    (None, upper) => *upper == crate::version::UpperBound::None,
                };
            if !inside {
                return Err(wrong(
                    "a range tombstone is outside the table's range".to_owned(),
                ));
            }
        }
        Ok(entries)
    }
}

fn with_level(error: Error, level: usize) -> Error {
    match error {
        Error::Corruption { file, offset, what } => Error::Corruption {
            file,
            offset,
            what: format!("{what} (level {level})"),
        },
        other => other,
    }
}
