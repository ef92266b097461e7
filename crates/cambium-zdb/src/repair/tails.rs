//! The entries after the last checkpoint of a store that was not closed.
//!
//! The repair writes them into the copies of their data files, and names a closed
//! store in the superblock. A recovery after the switch would append to those files
//! in place, over the only copy of records after a hole: a kill would lose them.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use cambium_api::{CheckReport, Progress, ProgressSink};
use cambium_base::{Error, Result};
use cambium_io::OpenOptions;
use cambium_storage::log::LogFile;

use super::Repair;
use super::catalog::SavedEntry;
use super::place::what_is_lost;
use crate::catalog::{Catalog, DataEntry};
use crate::data_file::Home;
use crate::format::{self, FLAG_SPLIT, FileRef, FramedKey, kind};
use crate::options::Keys;
use crate::recovery::{Accepted, SEQUENCE_EPOCH, whole_batch};
use crate::tails::{Fault, Found, Source, Tails};

/// A data file of a store that was not closed.
#[derive(Default)]
pub(super) struct PlaceTail {
    /// The file is gone, and the report says so.
    pub is_gone: bool,
    /// Anything that does not count lies after the replay offset.
    pub untidy: bool,
    /// The entries that count, in the order of their sequence numbers.
    pub entries: Vec<TailEntry>,
}

/// An entry after the replay offsets.
pub(super) struct TailEntry {
    pub found: Found,
    /// `None` where the entry lies in its own data file.
    pub saved: Option<SavedEntry>,
}

/// The tails by table and place.
pub(super) type PlaceTails = BTreeMap<(u64, u32), PlaceTail>;

impl Repair<'_> {
    /// Reads and accepts the tails. Afterwards the catalog names a closed store,
    /// whose sequence numbers lie above all that were ever given out.
    pub(super) fn accepted_tails(
        &mut self,
        home: &Home,
        catalog: &mut Catalog,
        progress: &dyn ProgressSink,
    ) -> Result<PlaceTails> {
        let (tails, mut places) = self.read_tails(home, catalog, progress)?;
        let mut accepted = tails.accept_whole_batches(false);
        if accepted.cut < accepted.promised {
            let known = |found: &Found| catalog.tables.contains_key(&table_of(home, found.key));
            let place = (self.path, catalog.shape.keys == Keys::String);
            accepted = accept_across_gaps(&tails, known, place, &mut self.report)?;
        }
        for found in accepted.entries {
            let table = table_of(home, found.key);
            let place = (found.key % u64::from(home.shape.data_files)) as u32;
            if !catalog.tables.contains_key(&table) {
                let what = format!("entry {} is of table {table}", found.sequence);
                self.note(self.path, 0, format!("{what}, and there is no such table"));
                continue;
            }
            if found.flags & FLAG_SPLIT != 0 {
                catalog.buckets = catalog.buckets.max(found.key + 1);
            }
            let change = i64::from(found.auxiliary as i32);
            catalog.string_keys = catalog.string_keys.saturating_add_signed(change);
            let saved = saved_entry(&tails, &found);
            let entries = &mut places.entry((table, place)).or_default().entries;
            entries.push(TailEntry { found, saved });
        }
        let last = accepted.cut.max(catalog.durable_sequence);
        catalog.name_closed(last);
        Ok(places)
    }

    /// Reads what lies after the replay offsets, and the commit logs.
    fn read_tails(
        &mut self,
        home: &Home,
        catalog: &Catalog,
        progress: &dyn ProgressSink,
    ) -> Result<(Tails, PlaceTails)> {
        let mut tails = Tails::behind(catalog, true);
        let mut places = PlaceTails::new();
        for (done, (&number, entry)) in catalog.tables.iter().enumerate() {
            progress.report(Progress {
                phase: "read what was written last",
                done: done as u64,
                total: Some(catalog.tables.len() as u64),
            });
            for (place, data) in entry.files.iter().enumerate() {
                let at = (number, place as u32);
                // One file is open at a time: a store may have more than a process may open.
                let file = self.open_place(home, data, at)?;
                let mut tail = PlaceTail {
                    is_gone: file.is_none(),
                    ..PlaceTail::default()
                };
                if let Some(file) = &file {
                    // Each entry belongs to one file, so the number is of no use here.
                    tail.untidy = tails.read_log(&file.log, data.replay_from, Some(0))?;
                }
                if let Some(successor) = data.successor {
                    self.read_successor(&mut tails, home, successor, at)?;
                }
                places.insert(at, tail);
            }
        }
        let geometry = format::commit_geometry(&catalog.shape);
        for (log, &file_ref) in catalog.commit_logs.iter().enumerate() {
            let path = format::commit_path(self.path, log);
            let file = home.file_system.open(&path, OpenOptions::READ)?;
            let identity = home.identity(file_ref);
            let log = LogFile::new(file, &identity, geometry, geometry.first_offset)?;
            tails.read_log(&log, geometry.first_offset, None)?;
        }
        Ok((tails, places))
    }

    /// Reads what was appended to a compacted file after it took over.
    fn read_successor(
        &mut self,
        tails: &mut Tails,
        home: &Home,
        (file, from): (FileRef, u64),
        at: (u64, u32),
    ) -> Result<()> {
        let path = format::data_path(&home.folder, at.0, at.1, file.number);
        if home.file_system.metadata(&path)?.is_none() {
            return Ok(());
        }
        let entry = DataEntry::of_new(file, from);
        if let Some(opened) = self.open_place(home, &entry, at)? {
            tails.read_log(&opened.log, from, None)?;
        }
        Ok(())
    }
}

impl Catalog {
    /// Names a store that was closed after entry `last`.
    pub(super) fn name_closed(&mut self, last: u64) {
        self.replay_sequence = (last / SEQUENCE_EPOCH + 1) * SEQUENCE_EPOCH;
        self.durable_sequence = self.replay_sequence;
        self.clean = true;
    }
}

fn table_of(home: &Home, key: u64) -> u64 {
    key / home.shape.keys_per_table
}

fn saved_entry(tails: &Tails, found: &Found) -> Option<SavedEntry> {
    let Source::Saved { value, .. } = found.source else {
        return None;
    };
    let (time, value) = tails.values.get(value)?;
    Some(SavedEntry {
        sequence: found.sequence,
        key: found.key,
        kind: found.kind,
        flags: found.flags,
        time: *time,
        value: value.clone(),
    })
}

/// Accepts, up to the promise, the whole batches on both sides of each gap, and of a batch
/// that a commit log had all that is left. The gaps are losses; a key whose entry is known to
/// be lost is removed, so that no older value comes back.
fn accept_across_gaps(
    tails: &Tails,
    known: impl Fn(&Found) -> bool,
    (path, strings): (&Path, bool),
    losses: &mut CheckReport,
) -> Result<Accepted> {
    let found = tails.found_to_replay();
    let promised = tails.promised();
    let mut lose =
        |file: &Path, offset: u64, what: String| losses.take(Error::corruption(file, offset, what));
    for Fault { file, fault } in &tails.faults {
        lose(file, fault.offset, fault.reason.to_string())?;
    }
    let mut entries: Vec<Found> = Vec::new();
    let mut expected = tails.replay_sequence + 1;
    let mut rest = &found[..];
    while let Some(first) = rest.first() {
        if first.sequence > expected.max(promised) {
            break;
        }
        let is_framed = first.sequence <= promised && tails.framed.contains_key(&first.sequence);
        let was_framed = || is_framed.then_some(1);
        let size = whole_batch(rest, first.sequence).or_else(was_framed);
        let batch = size.map(|size| &rest[..size]);
        let Some(batch) = batch.filter(|batch| batch.iter().all(&known)) else {
            rest = &rest[1..];
            continue;
        };
        if first.sequence > expected {
            let last = first.sequence - 1;
            lose(path, 0, format!("writes {expected} to {last} are lost"))?;
        }
        entries.extend_from_slice(batch);
        expected = first.sequence + batch.len() as u64;
        rest = &rest[batch.len()..];
    }
    if expected <= promised {
        let what = format!("writes {expected} to {promised} are lost");
        lose(path, 0, what)?;
    }
    let cut = promised.max(expected - 1);
    let removed = lost_keys(tails, &entries, cut);
    for entry in &removed {
        lose(path, 0, what_is_lost(entry.key, strings))?;
    }
    entries.extend(removed);
    entries.sort_by_key(|found| found.sequence);
    Ok(Accepted {
        cut,
        promised,
        entries,
    })
}

/// Removals in place of the entries that a commit log had and that are not there, up to a
/// sequence number.
fn lost_keys(tails: &Tails, there: &[Found], cut: u64) -> Vec<Found> {
    let there: HashSet<u64> = there.iter().map(|found| found.sequence).collect();
    let is_lost = |key: &&FramedKey| {
        (tails.replay_sequence + 1..=cut).contains(&key.sequence) && !there.contains(&key.sequence)
    };
    let lost = tails.framed.values().filter(is_lost);
    lost.map(|key| Found {
        sequence: key.sequence,
        key: key.key,
        last: key.last,
        batch_index: 0,
        batch_remaining: 0,
        auxiliary: 0,
        attempt: 0,
        kind: match key.key == key.last {
            true => kind::DELETE,
            false => kind::DELETE_RANGE,
        },
        flags: 0,
        source: Source::Saved {
            value: usize::MAX,
            behind_hole: None,
        },
    })
    .collect()
}
