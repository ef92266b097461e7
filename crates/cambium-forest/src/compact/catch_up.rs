//! Catching up: what writers appended to the old log goes the same way.
//!
//! A round is what came during the one before it. Its log is read in slices, of
//! each of which the newest version of every key goes into the new file. Rounds
//! shrink as long as copying is faster than writing; where they do not, writers
//! are slowed until they do. When a round leaves little, the new file is synced
//! without anyone waiting for it, and what came during that is left to the
//! switch.
//!
//! Writes are numbered without a gap, so the numbers prove that none was missed. Where a
//! store was recovered numbers are left out, and the header there says which.

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_base::Result;
use cambium_storage::scan::Scanned;

use super::Compaction;
use super::place::Appending;
use crate::buffer::{CHANGE_BYTES, DeletedRange};
use crate::core::{Core, Writer, lock};
use crate::database::DocumentBytes;
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress};
use crate::format::{FLAG_MOVED, FLAG_RECOVERED, kind, namespace_and_key};
use crate::index::Change;
use crate::pieces::{MergedChanges, Source};
use crate::ranges::RangeSet;
use crate::seeded_bug::SeededBug;
use crate::sorted_run::SortedRun;

/// When no more than this is left to catch up with, writers are made to wait.
const LAST_ROUND_BYTES: u64 = 1 << 20;
/// Writers are slowed to no less than so many halves of what they may do while
/// rounds shrink.
const MOST_HALVES: u32 = 8;

/// What comes after a round.
enum Next {
    /// Another one.
    Round,
    /// Nothing, until a snapshot is made.
    Held,
    /// The switch.
    Switch,
}

/// What is being caught up with.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Where it ends; `None` between two. Snapshots stop it on the way.
    end: Option<u64>,
    /// What is read before the next stop.
    until: u64,
    bytes: u64,
    slower: u32,
}

impl Round {
    /// How often what writers may do is to be halved: rounds did not shrink.
    pub fn slower(&self) -> u32 {
        self.slower
    }

    /// What comes next is not measured by what came before.
    fn restart(&mut self) {
        self.end = None;
    }

    /// What lies before the next stop is read; a round ends where the log ended when it
    /// began, however many stops there are.
    fn go_on(&mut self, from: u64, until: u64, end: u64) {
        self.until = until;
        if self.end.is_some_and(|end| from < end) {
            return;
        }
        let bytes = end.saturating_sub(from);
        if self.end.is_some() && bytes > self.bytes / 2 {
            self.slower = (self.slower + 1).min(MOST_HALVES);
        }
        self.bytes = bytes;
        self.end = Some(end);
    }
}

/// Addresses that the new index does not hold yet. Writes that are caught up with
/// come in any order of keys: the more go into the index together, the fewer of
/// its nodes are written again and again.
#[derive(Debug, Default)]
pub(super) struct Pending {
    changes: BTreeMap<u16, BTreeMap<Vec<u8>, Change>>,
    bytes: u64,
}

/// Memory for a change beside its key, about, while it waits.
const CHANGE_OVERHEAD: u64 = 96;

impl Pending {
    fn insert_all(&mut self, namespace: u16, placed: Vec<(Vec<u8>, DocumentAddress)>) {
        for (key, to) in placed {
            self.insert(namespace, key, Change::Put(to));
        }
    }

    fn insert(&mut self, namespace: u16, key: Vec<u8>, change: Change) {
        let bytes = key.len() as u64 + CHANGE_OVERHEAD;
        let of_namespace = self.changes.entry(namespace).or_default();
        if of_namespace.insert(key, change).is_none() {
            self.bytes += bytes;
        }
    }
}

/// What a slice of the log holds: for each key the newest version.
type Newest = BTreeMap<u16, BTreeMap<Vec<u8>, Option<(u64, Vec<u8>)>>>;

impl Core {
    /// Carries a slice over; true when it is time for the switch.
    pub(super) fn catch_up(
        self: &Arc<Self>,
        compaction: &mut Compaction,
        budget: u64,
    ) -> Result<bool> {
        let began = self.environment.clock.monotonic();
        let ready = self.catch_up_piece(compaction, budget);
        let spent = self.environment.clock.monotonic() - began;
        compaction.report.phases.flush_and_commit += spent.as_secs_f64();
        ready
    }

    fn catch_up_piece(&self, compaction: &mut Compaction, budget: u64) -> Result<bool> {
        let began_at = compaction.caught_up;
        // As many stops as the budget lets pass: they might come as fast as steps.
        while compaction.caught_up - began_at < budget.max(1) {
            let until = compaction.round.until;
            if compaction.caught_up < until {
                let slice = compaction.settings.slice_bytes().min(budget.max(1));
                self.catch_up_slice(compaction, until, slice)?;
                continue;
            }
            match self.next_round(compaction)? {
                Next::Round => {}
                Next::Held => return Ok(false),
                Next::Switch => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Behind the end of a round.
    fn next_round(&self, compaction: &mut Compaction) -> Result<Next> {
        let end = {
            let writer = lock(&self.writer);
            self.end_of_writes(compaction, &writer)?
        };
        let until = self.pass_stops(compaction, end)?;
        if until <= compaction.caught_up && until < end {
            compaction.round.restart();
            return Ok(Next::Held);
        }
        if until < end {
            compaction.round.go_on(compaction.caught_up, until, end);
            return Ok(Next::Round);
        }
        let left = until - compaction.caught_up;
        if left > LAST_ROUND_BYTES {
            compaction.round.go_on(compaction.caught_up, until, end);
            return Ok(Next::Round);
        }
        self.apply_pending(compaction)?;
        // What is synced here the switch need not wait for.
        compaction.database.log.flush()?;
        compaction.database.log.sync()?;
        let log = &compaction.source.view.database.log;
        let left = log.end().saturating_sub(compaction.caught_up);
        Ok(match left <= 2 * LAST_ROUND_BYTES {
            true => Next::Switch,
            false => Next::Round,
        })
    }

    /// Hands everything over, and answers where the log ends.
    pub(super) fn end_of_writes(&self, compaction: &Compaction, _: &Writer) -> Result<u64> {
        let log = &compaction.source.view.database.log;
        self.flush_log(log)?;
        Ok(log.end())
    }

    /// Carries over everything up to a place.
    pub(super) fn catch_up_to(&self, compaction: &mut Compaction, until: u64) -> Result<()> {
        loop {
            let stop = self.pass_stops(compaction, until)?;
            if compaction.caught_up >= stop {
                return Ok(());
            }
            while compaction.caught_up < stop {
                let slice = compaction.settings.slice_bytes();
                self.catch_up_slice(compaction, stop, slice)?;
            }
        }
    }

    /// Carries over about so many bytes of the log.
    fn catch_up_slice(&self, compaction: &mut Compaction, until: u64, slice: u64) -> Result<()> {
        if self.has_bug(SeededBug::CompactionWithoutCatchUp) {
            compaction.caught_up = until;
            return Ok(());
        }
        let (newest, deleted) = self.read_slice(compaction, until, slice)?;
        for (namespace, documents) in newest {
            let mut appending = Appending::default();
            for (key, version) in documents {
                let Some((sequence, value)) = version else {
                    compaction.pending.insert(namespace, key, Change::Remove);
                    continue;
                };
                let document = DocumentBytes {
                    namespace,
                    sequence,
                    key: &key,
                    value: &value,
                };
                let placed = appending.append(compaction, &document, key.clone())?;
                compaction.pending.insert_all(namespace, placed);
            }
            let placed = appending.close(compaction)?;
            compaction.pending.insert_all(namespace, placed);
        }
        if deleted.is_some() || compaction.pending.bytes > compaction.settings.pending_bytes() {
            self.apply_pending(compaction)?;
        }
        match deleted {
            Some(deleted) => self.remove_range(compaction, &deleted),
            None => Ok(()),
        }
    }

    /// Removes the keys of a range that the new index has.
    fn remove_range(&self, compaction: &mut Compaction, deleted: &DeletedRange) -> Result<()> {
        let ranges = RangeSet::from(&deleted.range);
        let root = *compaction.root(None, deleted.namespace);
        let database = compaction.database.clone();
        let nothing = SortedRun::default();
        let most = compaction.settings.applied_bytes();
        let pieces = Source::Run(&nothing).pieces(deleted.namespace, most);
        let pieces = pieces.removing(self.covered_keys(&database, &root, &ranges));
        let mut removals = MergedChanges::new(pieces, None);
        loop {
            let piece = removals.next(&self.keys(&database))?;
            if piece.is_empty() {
                return Ok(());
            }
            self.apply_to_newest(compaction, deleted.namespace, piece)?;
        }
    }

    /// Takes everything that was caught up with into the new index, in pieces: one
    /// lies after the other, so no leaf but those at their ends is written twice.
    pub(super) fn apply_pending(&self, compaction: &mut Compaction) -> Result<()> {
        let pending = std::mem::take(&mut compaction.pending);
        let most = compaction.settings.applied_bytes();
        for (namespace, changes) in pending.changes {
            let mut changes = changes.into_iter().peekable();
            while changes.peek().is_some() {
                let mut bytes = 0;
                let piece = std::iter::from_fn(|| {
                    let is_first = bytes == 0;
                    bytes += changes.peek()?.0.len() as u64 + CHANGE_BYTES;
                    (is_first || bytes <= most)
                        .then(|| changes.next())
                        .flatten()
                });
                let piece: Vec<(Vec<u8>, Change)> = piece.collect();
                self.apply_to_newest(compaction, namespace, piece)?;
            }
        }
        Ok(())
    }

    /// Reads about so many bytes of the log, up to the next deleted range, and counts on.
    fn read_slice(
        &self,
        compaction: &mut Compaction,
        until: u64,
        slice: u64,
    ) -> Result<(Newest, Option<DeletedRange>)> {
        let from = compaction.source.view.database.clone();
        let mut scanner = from.log.scan(compaction.caught_up, until)?;
        scanner.resume_sessions(compaction.session);
        let names = self.view.load().names.clone();
        let mut newest = Newest::new();
        let mut deleted = None;
        let mut taken = 0;
        while taken < slice && deleted.is_none() {
            let record = match scanner.next()? {
                None => {
                    compaction.caught_up = until;
                    break;
                }
                // An old header, or the end that a recovery cut off: from here on the numbers
                // of writes must follow each other, so none can be missing.
                Some(Scanned::Fault(_)) => {
                    compaction.met_writes = true;
                    continue;
                }
                Some(Scanned::Record(record)) => record,
            };
            let end = record.offset + record.header.total_bytes(DOCUMENT_ALIGNMENT);
            compaction.caught_up = end;
            match record.header.kind {
                kind @ (kind::NODES | kind::MOVED) => {
                    let behind = from.blocks_behind(kind, end, record.header.auxiliary).1;
                    scanner.skip_to(behind);
                    compaction.caught_up = behind;
                }
                // A crash has lost the record before the blocks that a cleaning wrote.
                _ if record.header.flags & FLAG_MOVED != 0 => {}
                kind::PUT
                | kind::DELETE
                | kind::RANGE_DELETED
                | kind::NAMESPACE
                | kind::NAMESPACE_DROPPED => {
                    let sequence = record.header.sequence.0;
                    // What a flush carried may end at numbers that a recovery left out.
                    let expected = match compaction.met_writes {
                        true => sequence == compaction.caught_up_sequence + 1,
                        false => sequence > compaction.caught_up_sequence,
                    };
                    if !expected {
                        let (met, last) = (sequence, compaction.caught_up_sequence);
                        return Err(from.damage(
                            record.offset,
                            format!(
                                "write {met} follows write {last}: a compaction would lose one"
                            ),
                        ));
                    }
                    compaction.caught_up_sequence = sequence;
                    compaction.met_writes = true;
                    let is_document = matches!(
                        record.header.kind,
                        kind::PUT | kind::DELETE | kind::RANGE_DELETED
                    );
                    let parts = namespace_and_key(&record.header).filter(|_| is_document);
                    // Leave out the documents of a namespace that was dropped.
                    let Some((namespace, key_bytes)) = parts
                        .filter(|(number, _)| names.has(*number) || self.meanwhile.keeps(*number))
                    else {
                        continue;
                    };
                    let payload = scanner.payload(&record)?;
                    taken += payload.len() as u64;
                    let (key, value) = payload.split_at(key_bytes);
                    if record.header.kind == kind::RANGE_DELETED {
                        deleted = Some(DeletedRange::of(namespace, sequence, key, value));
                        continue;
                    }
                    let version =
                        (record.header.kind == kind::PUT).then(|| (sequence, value.to_vec()));
                    newest
                        .entry(namespace)
                        .or_default()
                        .insert(key.to_vec(), version);
                }
                kind::HEADER if record.header.flags & FLAG_RECOVERED != 0 => {
                    let (cut, base) = (record.header.synced_through.0, record.header.sequence.0);
                    let met = compaction.caught_up_sequence;
                    // The second copy of the same header says nothing new.
                    if met == cut || !compaction.met_writes && met < cut {
                        compaction.caught_up_sequence = base;
                        // The next one follows it at once.
                        compaction.met_writes = true;
                    }
                }
                _ => {}
            }
        }
        compaction.session = compaction.session.max(scanner.highest_session());
        Ok((newest, deleted))
    }
}
