//! What a repair writes: first every named snapshot that the old index can still
//! tell of, in the order in which they were, each as what differs from the one
//! before it; then the newest state, as what differs from the last of them.
//!
//! Whatever the store holds, memory is bounded: changes go into the new index in
//! pieces, and states are compared in key order.

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_api::{Direction, KeyRange, Progress, ProgressSink};
use cambium_base::{Error, Result};

use super::judge::{Judge, Verdict};
use super::runs::Sorter;
use super::salvage::Salvaged;
use super::{Repair, lost_value};
use crate::core::Core;
use crate::cursor::EntryCursor;
use crate::database::{Database, Document};
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress};
use crate::format::{
    DatabaseHeader, NamedSnapshot, NamespaceRoot, document_auxiliary, kind, moved_record,
};
use crate::index::Change;
use crate::named::pin_of;
use crate::nodes::{NodeRuns, OpenRun};
use crate::view::Pin;

/// Changes that go into the new index together.
const PIECE_CHANGES: usize = 4096;
/// Bytes of their keys at most, about.
const PIECE_BYTES: usize = 4 << 20;

/// The new file while it is written.
pub(super) struct Rewrite<'a> {
    core: &'a Arc<Core>,
    database: Arc<Database>,
    sequence: u64,
    session: u32,
    /// What is left of the last run of nodes.
    open_run: OpenRun,
    /// Of all namespaces, as far as they are written.
    pub roots: BTreeMap<u16, NamespaceRoot>,
    /// Named snapshots that are brought back.
    pub kept: Vec<NamedSnapshot>,
    namespace: u16,
    changes: Vec<(Vec<u8>, Change)>,
    bytes: usize,
}

impl<'a> Rewrite<'a> {
    pub fn new(core: &'a Arc<Core>, sequence: u64, session: u32) -> Self {
        Rewrite {
            core,
            database: core.view.load().database.clone(),
            sequence,
            session,
            open_run: OpenRun::default(),
            roots: BTreeMap::new(),
            kept: Vec::new(),
            namespace: 0,
            changes: Vec::new(),
            bytes: 0,
        }
    }

    /// Takes changes in the order of namespaces and keys.
    fn take(&mut self, namespace: u16, key: &[u8], change: Change) -> Result<()> {
        let full = self.changes.len() == PIECE_CHANGES || self.bytes > PIECE_BYTES;
        if namespace != self.namespace || full {
            self.apply()?;
            self.namespace = namespace;
        }
        self.bytes += key.len();
        self.changes.push((key.to_vec(), change));
        Ok(())
    }

    /// Takes what was gathered into the new index.
    fn apply(&mut self) -> Result<()> {
        self.bytes = 0;
        if self.changes.is_empty() {
            return Ok(());
        }
        let changes = std::mem::take(&mut self.changes);
        let root = self.roots.entry(self.namespace).or_default();
        let mut runs = NodeRuns::new(self.core, &self.database, changes.len() as u64)
            .exclusive(self.sequence, self.session)
            .continuing(std::mem::take(&mut self.open_run));
        self.core
            .apply_changes(&mut runs, &self.database, root, changes)?;
        runs.finish()?;
        self.open_run = runs.into_open().0;
        Ok(())
    }

    /// Copies a document, with the number of its write.
    fn put(&mut self, namespace: u16, document: &Document) -> Result<()> {
        let (key, value) = (&document.key, &document.value);
        let auxiliary = document_auxiliary(namespace, key.len());
        let header = moved_record(kind::PUT, self.session, document.sequence, auxiliary);
        let bytes = header.record_bytes((key.len() + value.len()) as u64, DOCUMENT_ALIGNMENT);
        self.database.log.reserve(bytes)?;
        let offset = self.database.log.append(&header, &[key, value]).start;
        if self.database.log.buffered_bytes() > 1 << 20 {
            self.database.log.flush()?;
        }
        let to = DocumentAddress::new(offset, bytes, key);
        self.take(namespace, key, Change::Put(to))
    }
}

/// The entries of a moment, by namespace and key.
struct Entries {
    pin: Pin,
    /// Those still to come, the next one last.
    namespaces: Vec<u16>,
    cursor: Option<(u16, EntryCursor)>,
    head: Option<(u16, Document)>,
}

impl Entries {
    fn of(pin: &Pin) -> Result<Self> {
        let mut namespaces: Vec<u16> = pin.view.names.numbers().collect();
        namespaces.reverse();
        let mut entries = Entries {
            pin: pin.again()?,
            namespaces,
            cursor: None,
            head: None,
        };
        entries.advance()?;
        Ok(entries)
    }

    fn place(&self) -> Option<(u16, &[u8])> {
        let (namespace, document) = self.head.as_ref()?;
        Some((*namespace, &document.key))
    }

    /// Goes on to the next one; answers the one before it.
    fn advance(&mut self) -> Result<Option<(u16, Document)>> {
        let before = self.head.take();
        loop {
            if let Some((namespace, cursor)) = &mut self.cursor {
                if let Some(document) = cursor.next_document()? {
                    self.head = Some((*namespace, document));
                    return Ok(before);
                }
            }
            let Some(next) = self.namespaces.pop() else {
                return Ok(before);
            };
            let (pin, all) = (self.pin.again()?, KeyRange::all());
            let cursor = EntryCursor::new(pin, next, all, Direction::Forward);
            self.cursor = Some((next, cursor));
        }
    }
}

impl Repair<'_> {
    /// Brings back the named snapshots that a trusted header names, as far as their
    /// indexes and documents are sound; answers the last one's moment.
    pub(super) fn copy_snapshots(
        &mut self,
        rewrite: &mut Rewrite<'_>,
        old: Option<&Arc<Core>>,
        header: &DatabaseHeader,
        progress: &dyn ProgressSink,
    ) -> Result<Option<Pin>> {
        let mut last: Option<Pin> = None;
        let mut snapshots: Vec<&NamedSnapshot> = header.snapshots.iter().collect();
        snapshots.sort_by_key(|snapshot| snapshot.sequence);
        for snapshot in snapshots {
            progress.report(Progress {
                phase: "repair: named snapshots",
                done: rewrite.kept.len() as u64,
                total: Some(header.snapshots.len() as u64),
            });
            let before = rewrite.roots.clone();
            let outcome = match old {
                Some(old) => copy_snapshot(rewrite, old, (header, snapshot), last.as_ref()),
                None => Err(Error::corruption("", 0, "the old index cannot be read")),
            };
            match outcome {
                Ok(moment) => last = Some(moment),
                Err(Error::Corruption { offset, what, .. }) => {
                    rewrite.roots = before;
                    rewrite.changes.clear();
                    let what = format!("snapshot {:?} is lost: {what}", snapshot.name);
                    let path = super::path_of(&self.home, old);
                    self.lose(&path, offset, what);
                }
                Err(error) => return Err(error),
            }
        }
        // As the old header had them.
        let place = |name: &str| header.snapshots.iter().position(|one| one.name == name);
        rewrite.kept.sort_by_key(|one| place(&one.name));
        Ok(last)
    }

    /// Writes the newest state as what differs from `before`.
    pub(super) fn copy_newest(
        &mut self,
        rewrite: &mut Rewrite<'_>,
        (salvaged, sorter): (&Salvaged, Sorter),
        before: Option<Pin>,
        progress: &dyn ProgressSink,
    ) -> Result<()> {
        rewrite
            .roots
            .retain(|number, _| salvaged.names.contains_key(number));
        let mut before = before.as_ref().map(Entries::of).transpose()?;
        let core = rewrite.core;
        let mut judge = Judge::new(core, salvaged);
        let total = sorter.count();
        let mut done = 0;
        let mut keys = sorter.sorted()?;
        while let Some(met) = keys.next_key()? {
            done += met.len() as u64;
            if done % 4096 < met.len() as u64 {
                progress.report(Progress {
                    phase: "repair: write",
                    done,
                    total: Some(total),
                });
            }
            let (namespace, key) = (met[0].namespace, met[0].key.clone());
            if !salvaged.names.contains_key(&namespace) {
                continue;
            }
            let versions = salvaged.versions_of(&met);
            let address = match judge.verdict(namespace, &key, &versions)? {
                Verdict::Counts(address) => address,
                Verdict::Lost { offset, instead } => {
                    self.lose(salvaged.database.path(), offset, lost_value(&key, instead));
                    instead
                }
            };
            let Some(address) = address else {
                continue;
            };
            let document = salvaged.database.read_document(address)?;
            let same = remove_up_to(rewrite, &mut before, salvaged, (namespace, &key))?;
            if same != Some(document.sequence) {
                rewrite.put(namespace, &document)?;
            }
        }
        if let Some(rest) = &mut before {
            while let Some((namespace, document)) = rest.advance()? {
                remove(rewrite, salvaged, namespace, &document)?;
            }
        }
        rewrite.apply()?;
        let missing = judge.missing();
        self.take_faults(salvaged, judge.is_exact());
        for (offset, what) in missing {
            self.lose(salvaged.database.path(), offset, what);
        }
        Ok(())
    }
}

/// Removes the entries that come before a place; answers the number of the write
/// that the entry at the place has, if there is one.
fn remove_up_to(
    rewrite: &mut Rewrite<'_>,
    before: &mut Option<Entries>,
    salvaged: &Salvaged,
    place: (u16, &[u8]),
) -> Result<Option<u64>> {
    let Some(before) = before else {
        return Ok(None);
    };
    while before.place().is_some_and(|there| there < place) {
        if let Some((namespace, document)) = before.advance()? {
            remove(rewrite, salvaged, namespace, &document)?;
        }
    }
    if before.place() != Some(place) {
        return Ok(None);
    }
    Ok(before.advance()?.map(|(_, document)| document.sequence))
}

fn remove(
    rewrite: &mut Rewrite<'_>,
    salvaged: &Salvaged,
    namespace: u16,
    document: &Document,
) -> Result<()> {
    // One that was dropped has no root any more.
    if !salvaged.names.contains_key(&namespace) {
        return Ok(());
    }
    rewrite.take(namespace, &document.key, Change::Remove)
}

/// Brings the new file to the state that a named snapshot keeps, and keeps it.
fn copy_snapshot(
    rewrite: &mut Rewrite<'_>,
    old: &Arc<Core>,
    (header, snapshot): (&DatabaseHeader, &NamedSnapshot),
    before: Option<&Pin>,
) -> Result<Pin> {
    let names = header.names_of(snapshot).into_iter().collect();
    let moment = pin_of(old, &old.pin()?, snapshot, names)?;
    let mut there = before.map(Entries::of).transpose()?;
    let mut wanted = Entries::of(&moment)?;
    loop {
        let head = there.as_ref().and_then(Entries::place);
        let order = match (head, wanted.place()) {
            (None, None) => break,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(old), Some(new)) => old.cmp(&new),
        };
        let gone = match &mut there {
            Some(there) if order.is_le() => there.advance()?,
            _ => None,
        };
        let came = match order.is_ge() {
            true => wanted.advance()?,
            false => None,
        };
        match (gone, came) {
            (Some((_, old)), Some((_, new))) if old.sequence == new.sequence => {}
            (_, Some((namespace, document))) => rewrite.put(namespace, &document)?,
            (Some((namespace, document)), None) => {
                rewrite.take(namespace, &document.key, Change::Remove)?;
            }
            (None, None) => {}
        }
    }
    rewrite.apply()?;
    let root = |number| rewrite.roots.get(&number).copied().unwrap_or_default();
    let numbers = snapshot.namespaces.iter().map(|(number, _)| *number);
    let namespaces = numbers.map(|number| (number, root(number))).collect();
    rewrite.kept.push(NamedSnapshot {
        name: snapshot.name.clone(),
        sequence: snapshot.sequence,
        namespaces,
    });
    Ok(moment)
}
