//! Compaction: tables of one level and what they overlap of the next become
//! tables of the next.
//!
//! Outputs are cut between keys, never between the entries of one: at the size
//! that options ask for, and where an output would overlap too much of the level
//! after the next, since it has to be merged with all of that one day. Range
//! tombstones are cut at the same keys, so the outputs are disjoint with them.

use std::sync::Arc;

use cambium_base::Result;

use crate::entry::Source;
use crate::level_source::{LevelSource, Tables};
use crate::manifest::Edit;
use crate::merge::MergeSource;
use crate::owner::{DropObserver, JobKind};
use crate::retain::Retainer;
use crate::seeded_bug::SeededBug;
use crate::table_cursor::Blocks;
use crate::table_writer::TableWriter;
use crate::tombstones::RangeTombstones;
use crate::tree::Tree;
use crate::version::{KeyRange, TableFile, TableMetadata, Version};

/// An output may overlap this many times its size of the level after the next.
pub(crate) const MOST_OVERLAP: u64 = 10;

/// What a compaction is to read and where it goes.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub version: Arc<Version>,
    pub level: usize,
    /// Of `level`; of level 0 newest first.
    pub upper: Vec<Arc<TableFile>>,
    pub output_level: usize,
    /// Of the output level; empty if both levels are the same.
    pub lower: Vec<Arc<TableFile>>,
    /// Of everything read.
    pub range: KeyRange,
    /// Written anew even where moving would do: for the sake of what it drops.
    pub rewrite: bool,
}

impl Plan {
    /// All inputs with their levels.
    pub fn inputs(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        let upper = self.upper.iter().map(|file| (self.level, file));
        upper.chain(self.lower.iter().map(|file| (self.output_level, file)))
    }

    fn grandparents(&self) -> Vec<Arc<TableFile>> {
        if self.output_level + 1 >= self.version.levels.len() {
            return Vec::new();
        }
        self.version.overlapping(self.output_level + 1, &self.range)
    }

    /// True if the tables can go down as they are.
    pub fn is_trivial_move(&self, table_bytes: u64) -> bool {
        if self.rewrite || !self.lower.is_empty() || self.level == self.output_level {
            return false;
        }
        let mut sorted: Vec<&KeyRange> =
            self.upper.iter().map(|file| &file.metadata.range).collect();
        sorted.sort_by(|one, other| one.smallest.cmp(&other.smallest));
        let disjoint = sorted.windows(2).all(|pair| !pair[0].overlaps(pair[1]));
        let below = crate::version::bytes_of(&self.grandparents());
        disjoint && below <= MOST_OVERLAP * table_bytes * self.upper.len() as u64
    }

    /// The edit of a trivial move.
    pub fn move_edit(&self) -> Edit {
        let mut edit = Edit::default();
        for file in &self.upper {
            edit.removed.push((self.level, file.metadata.number));
            edit.added.push((self.output_level, file.metadata.clone()));
        }
        edit
    }
}

/// A compaction under way.
#[derive(Debug)]
pub(crate) struct CompactionJob {
    plan: Plan,
    retainer: Retainer,
    observer: Box<dyn DropObserver>,
    source: Option<MergeSource<LevelSource>>,
    outputs: Outputs,
    /// Range tombstones of the outputs.
    tombstones: RangeTombstones,
}

impl CompactionJob {
    /// Begins; reads nothing yet.
    pub fn begin(tree: &Tree, plan: Plan) -> Self {
        let moments = tree.owner.protected_moments();
        CompactionJob {
            retainer: Retainer::new(moments, RangeTombstones::default())
                .with_bug(tree.context.options.seeded_bug),
            observer: tree.owner.begin_job(JobKind::Compaction),
            source: None,
            outputs: Outputs::new(&plan, tree.context.options.table_bytes),
            tombstones: RangeTombstones::default(),
            plan,
        }
    }

    /// Gives up; the inputs are still there.
    pub fn abandon(self) {
        self.outputs.abandon();
    }

    /// What the outputs are called, to be removed after a failure.
    pub fn finished_outputs(&self) -> Vec<u64> {
        self.outputs
            .finished
            .iter()
            .map(|table| table.number)
            .collect()
    }

    fn open(&mut self, tree: &Tree) -> Result<()> {
        let mut sources = Vec::new();
        let mut tombstones = RangeTombstones::default();
        for (_, file) in self.plan.inputs() {
            if file.metadata.range_tombstones > 0 {
                tombstones.add_all(&tree.context.table(file)?.tombstones);
            }
        }
        // Tables of level 0 overlap, so each is a source of its own.
        let together = match self.plan.level {
            0 => 1,
            _ => self.plan.upper.len().max(1),
        };
        let upper = self.plan.upper.chunks(together).map(<[_]>::to_vec);
        for files in upper.chain([self.plan.lower.clone()]) {
            let tables = Tables::Listed(files);
            sources.push(LevelSource::new(&tree.context, tables, Blocks::Streamed));
        }
        let mut source = MergeSource::new(sources);
        source.seek_first()?;
        self.retainer.set_tombstones(tombstones);
        let (version, level) = (&self.plan.version, self.plan.output_level);
        self.tombstones = self
            .retainer
            .kept_tombstones(|range| version.nothing_below(level, range));
        self.source = Some(source);
        Ok(())
    }

    /// Reads about `budget` bytes. True when all is written.
    pub fn write(&mut self, tree: &Tree, budget: u64) -> Result<bool> {
        if self.source.is_none() {
            self.open(tree)?;
        }
        let Some(source) = &mut self.source else {
            return Ok(true);
        };
        let (version, level) = (&self.plan.version, self.plan.output_level);
        let mut bytes = 0;
        while let Some(entry) = source.entry() {
            if bytes >= budget {
                tree.context.environment.pay_for_background(2 * bytes);
                return Ok(false);
            }
            bytes += (entry.key.len() + entry.value.len() + 16) as u64;
            let nothing_below = |key: &[u8]| version.nothing_below(level, &KeyRange::of_key(key));
            if self.retainer.keeps(&entry, nothing_below) {
                if self.outputs.cuts_before(entry.key) {
                    self.outputs
                        .finish(tree, &self.tombstones, Some(entry.key))?;
                }
                self.outputs.writer(tree)?.add(entry)?;
            } else {
                self.observer.dropped(entry);
            }
            source.next()?;
        }
        self.outputs.finish(tree, &self.tombstones, None)?;
        // Each was read, and most were written.
        tree.context.environment.pay_for_background(2 * bytes);
        Ok(true)
    }

    /// Commits the outputs in place of the inputs.
    pub fn finish(self: Box<Self>, tree: &Tree) -> Result<()> {
        let mut edit = Edit::default();
        let mut written = 0;
        for (level, file) in self.plan.inputs() {
            edit.removed.push((level, file.metadata.number));
        }
        for table in self.outputs.finished {
            written += table.bytes;
            edit.added.push((self.plan.output_level, table));
        }
        if tree.context.options.has_bug(SeededBug::InputsRemovedEarly) {
            tree.remove_tables(edit.removed.iter().map(|&(_, number)| number));
        }
        let observer = self.observer;
        tree.commit_tables(edit, 0, || observer.into_note(&[]))?;
        cambium_io::events::compacted("wisckey", &tree.context.folder, written);
        Ok(())
    }
}

/// Tables that a compaction writes.
#[derive(Debug)]
struct Outputs {
    writer: Option<TableWriter>,
    finished: Vec<TableMetadata>,
    /// Where the current output's part of the range tombstones begins.
    lower: Option<Vec<u8>>,
    table_bytes: u64,
    /// Of the level after the output's.
    grandparents: Vec<Arc<TableFile>>,
    passed: usize,
    overlap: u64,
}

impl Outputs {
    fn new(plan: &Plan, table_bytes: u64) -> Self {
        Outputs {
            writer: None,
            finished: Vec::new(),
            lower: None,
            table_bytes,
            grandparents: plan.grandparents(),
            passed: 0,
            overlap: 0,
        }
    }

    /// True if the output should end before this key.
    fn cuts_before(&mut self, key: &[u8]) -> bool {
        let Some(writer) = self
            .writer
            .as_ref()
            .filter(|writer| writer.last_key() != key)
        else {
            return false;
        };
        while let Some(file) = self.grandparents.get(self.passed) {
            if !file.metadata.range.upper.ends_before(key) {
                break;
            }
            self.overlap += file.metadata.bytes;
            self.passed += 1;
        }
        writer.bytes() >= self.table_bytes || self.overlap > MOST_OVERLAP * self.table_bytes
    }

    fn writer(&mut self, tree: &Tree) -> Result<&mut TableWriter> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => TableWriter::create(&tree.context)?,
        };
        Ok(self.writer.insert(writer))
    }

    /// Ends the output before `upper`, or the last one.
    fn finish(
        &mut self,
        tree: &Tree,
        tombstones: &RangeTombstones,
        upper: Option<&[u8]>,
    ) -> Result<()> {
        let part = tombstones.clipped(self.lower.as_deref(), upper);
        self.lower = upper.map(<[u8]>::to_vec);
        self.overlap = 0;
        if self.writer.is_none() && part.is_empty() {
            return Ok(());
        }
        self.writer(tree)?;
        if let Some(writer) = self.writer.take() {
            self.finished.push(tree.finish_table(writer, &part)?);
        }
        Ok(())
    }

    fn abandon(self) {
        if let Some(writer) = self.writer {
            writer.abandon();
        }
    }
}
