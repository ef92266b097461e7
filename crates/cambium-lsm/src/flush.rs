//! Flush: the oldest sealed memtable becomes a table of level 0. One that is empty
//! becomes an edit with its note alone.
//!
//! What the memtable holds of a key beside the newest entry of each span goes at
//! once ([`crate::retain`]), so writing a key again and again costs no table
//! anything. Memtables are flushed in the order of their seals, one at a time:
//! level 0 stays ordered by age.

use std::sync::Arc;

use cambium_base::Result;

use crate::entry::Source;
use crate::manifest::Edit;
use crate::owner::{DropObserver, JobKind};
use crate::retain::Retainer;
use crate::run::RunSource;
use crate::table_writer::TableWriter;
use crate::tree::{Sealed, Tree, lock};
use crate::version::{KeyRange, Version};

/// A flush under way.
#[derive(Debug)]
pub(crate) struct FlushJob {
    sealed: Arc<Sealed>,
    version: Arc<Version>,
    retainer: Retainer,
    observer: Box<dyn DropObserver>,
    source: Option<RunSource>,
    writer: Option<TableWriter>,
    largest_sequence: u64,
}

impl FlushJob {
    /// Begins to flush the oldest sealed memtable, if there is one.
    pub fn begin(tree: &Tree) -> Option<Self> {
        let view = tree.view.load();
        let sealed = view.sealed.last()?.clone();
        let moments = tree.owner.protected_moments();
        Some(FlushJob {
            largest_sequence: sealed.memtable.largest_sequence(),
            retainer: Retainer::new(moments, sealed.memtable.ranges())
                .with_bug(tree.context.options.seeded_bug),
            observer: tree.owner.begin_job(JobKind::Flush),
            version: view.version.clone(),
            sealed,
            source: None,
            writer: None,
        })
    }

    /// Gives up; the memtable is still there.
    pub fn abandon(self) {
        if let Some(writer) = self.writer {
            writer.abandon();
        }
    }

    /// Writes about `budget` bytes. True when everything is in the table.
    pub fn write(&mut self, tree: &Tree, budget: u64) -> Result<bool> {
        let Some(source) = &mut self.source else {
            // Sorting is a step of its own.
            let mut source = RunSource::new(self.sealed.memtable.one_run());
            source.seek_first()?;
            self.source = Some(source);
            return Ok(false);
        };
        let mut bytes = 0;
        while let Some(entry) = source.entry() {
            if bytes >= budget {
                tree.context.environment.pay_for_background(bytes);
                return Ok(false);
            }
            bytes += (entry.key.len() + entry.value.len() + 16) as u64;
            let nothing_below = |key: &[u8]| nothing_in(&self.version, &KeyRange::of_key(key));
            if self.retainer.keeps(&entry, nothing_below) {
                let writer = match &mut self.writer {
                    Some(writer) => writer,
                    none => none.insert(TableWriter::create(&tree.context)?),
                };
                writer.add(entry)?;
            } else {
                self.observer.dropped(entry);
            }
            source.next()?;
        }
        tree.context.environment.pay_for_background(bytes);
        Ok(true)
    }

    /// Finishes the table and commits it.
    pub fn finish(self: Box<Self>, tree: &Tree) -> Result<()> {
        let notes = std::slice::from_ref(&self.sealed.note);
        if let Err(error) = tree.owner.before_flush(notes) {
            // A retry begins another table.
            self.abandon();
            return Err(error);
        }
        let tombstones = self
            .retainer
            .kept_tombstones(|range| nothing_in(&self.version, range));
        let writer = match self.writer {
            None if !tombstones.is_empty() => Some(TableWriter::create(&tree.context)?),
            writer => writer,
        };
        let mut edit = Edit {
            flushed: self.largest_sequence,
            ..Edit::default()
        };
        if let Some(writer) = writer {
            let table = tree.finish_table(writer, &tombstones)?;
            edit.added.push((0, table));
        }
        let (observer, sealed) = (self.observer, self.sealed);
        // Locked until the edit is made: a caller that gives up waits for it.
        let mut keep = lock(&sealed.keep);
        let mut note = sealed.note.clone();
        if let Some(keep) = &*keep {
            edit.keep = Some(keep.name.clone());
            note.extend_from_slice(&keep.note);
        }
        tree.commit_tables(edit, 1, || observer.into_note(&[note]))?;
        *keep = None;
        Ok(())
    }
}

/// True if no table can hold any key of a range.
fn nothing_in(version: &Version, range: &KeyRange) -> bool {
    version.overlapping(0, range).is_empty() && version.nothing_below(0, range)
}
