//! Copying: windows of documents are searched for, read, and placed in the new file
//! ([`super::place`]).
//!
//! Three windows are on their way at a time: one is written, the next one is
//! read, and the one after that has been searched for, so that the reads need
//! not wait for the search. With `overlap=off` it is one after the other, as
//! published. Where documents lie scattered they are dealt out to the windows
//! first ([`super::deal`]).

use std::collections::VecDeque;

use cambium_base::Result;
use cambium_io::sync::atomic::Ordering;

use super::Compaction;
use super::deal::Dealing;
use super::endings::Ending;
use super::fetch::{BUFFER_UNIT, Fetcher, Window};
use super::place::Writing;
use super::plan::{Plan, Source, WindowFill, next_plan};
use super::proof::Account;
use super::scratch::Scratch;
use super::settings::Settings;
use crate::core::Core;
use crate::database::Database;
use crate::format::NamespaceRoot;
use crate::index::IndexCursor;

/// A tree on its way into the new file.
#[derive(Debug)]
pub(super) struct Tree {
    /// `None` for the newest state, else the snapshot's place in the list.
    pub snapshot: Option<usize>,
    pub namespace: u16,
    /// What the old header says of it.
    pub old: NamespaceRoot,
    pub source: Source,
    /// What was written of it.
    pub placed: Account,
    /// The key written last.
    pub(super) last_key: Option<Vec<u8>>,
}

impl Tree {
    pub fn new(
        snapshot: Option<usize>,
        namespace: u16,
        old: NamespaceRoot,
        cursor: IndexCursor,
    ) -> Self {
        Tree {
            snapshot,
            namespace,
            old,
            source: Source::new(cursor),
            placed: Account::default(),
            last_key: None,
        }
    }
}

/// Everything that is copied.
#[derive(Debug)]
pub(super) struct Copying {
    pub(super) fetcher: Fetcher,
    trees: Vec<Tree>,
    /// The tree that is searched.
    searched: usize,
    /// The tree of the last window that was found.
    searched_last: usize,
    /// The window that is planned next; windows of all trees are counted.
    pub(super) next_window: u32,
    /// `None` where nothing is dealt out, or nothing any more.
    pub(super) dealing: Option<Dealing>,
    planned: Option<Plan>,
    written: Option<Writing>,
    /// Trees whose documents are all written.
    endings: VecDeque<Ending>,
}

impl Copying {
    pub fn new(fetcher: Fetcher, trees: Vec<Tree>) -> Self {
        Copying {
            fetcher,
            trees,
            searched: 0,
            searched_last: 0,
            next_window: 0,
            dealing: None,
            planned: None,
            written: None,
            endings: VecDeque::new(),
        }
    }

    /// Deals the documents of the newest trees out, in a scratch file.
    pub fn deal(&mut self, scratch: Scratch, settings: &Settings, from: &Database) {
        let newest = self.trees.iter().filter(|tree| tree.snapshot.is_none());
        let roots = newest.filter_map(|tree| tree.old.root).collect();
        let fill = WindowFill::new(settings, 1);
        self.dealing = Some(Dealing::new(settings, scratch, from, roots, fill));
    }

    /// True while documents are dealt out and nothing is copied.
    pub fn is_dealing(&self) -> bool {
        let dealing = self.dealing.as_ref();
        dealing.is_some_and(|dealing| dealing.lacks(self.next_window))
    }

    /// True if that comes next: what was dealt before is written.
    fn deals_now(&self) -> bool {
        let began = self.dealing.as_ref().is_some_and(Dealing::is_dealing);
        let copies = self.planned.is_some() || self.written.is_some() || self.fetcher.is_busy();
        began || self.is_dealing() && !copies
    }

    /// Waits for the reads under way, and drops what they fetched.
    pub fn end(self) {
        drop(self.fetcher);
        if let Some(dealing) = self.dealing {
            dealing.end();
        }
    }

    /// Documents of all trees.
    pub fn documents(&self) -> u64 {
        self.trees.iter().map(|tree| tree.old.documents).sum()
    }

    /// Bytes of the documents of all trees.
    pub fn document_bytes(&self) -> u64 {
        self.trees.iter().map(|tree| tree.old.document_bytes).sum()
    }
}

impl Core {
    /// Does a piece of copying; in the end there is nothing left of it.
    pub(super) fn copy(&self, compaction: &mut Compaction, budget: u64) -> Result<()> {
        let Some(mut copying) = compaction.copying.take() else {
            return Ok(());
        };
        let more = self.copy_piece(compaction, &mut copying, budget);
        match more {
            Ok(false) => {
                copying.end();
                self.end_copying(compaction)
            }
            more => {
                compaction.copying = Some(copying);
                more.map(|_| ())
            }
        }
    }

    /// What follows was written just now, and is read most: through the page
    /// cache.
    fn end_copying(&self, compaction: &mut Compaction) -> Result<()> {
        let log = &compaction.database.log;
        if let Some(past_cache) = &compaction.past_cache {
            log.flush()?;
            past_cache.end()?;
            compaction.unhurried = log.end();
        }
        compaction.pace.end_copying();
        Ok(())
    }

    fn copy_piece(
        &self,
        compaction: &mut Compaction,
        copying: &mut Copying,
        budget: u64,
    ) -> Result<bool> {
        if let Some(ending) = copying.endings.pop_front() {
            let rest = self.end_tree(compaction, &copying.trees[ending.tree], ending)?;
            if let Some(rest) = rest {
                copying.endings.push_front(rest);
            }
            return Ok(true);
        }
        if copying.deals_now() {
            return self.deal_piece(compaction, copying).map(|()| true);
        }
        let overlap = compaction.settings.tuning.overlap;
        let mut writing = match copying.written.take() {
            Some(writing) => writing,
            None => match self.next_window(compaction, copying)? {
                None => return Ok(false),
                Some(window) => Writing::new(window),
            },
        };
        if overlap {
            // The device has something to do while this is written ...
            self.keep_reading(compaction, copying, false)?;
        }
        let tree = &mut copying.trees[writing.window.plan.tree];
        self.write_documents(compaction, tree, &mut writing, budget)?;
        if overlap && copying.planned.is_none() {
            // ... and it is known what comes then.
            copying.planned = self.search(compaction, copying, false)?;
        }
        if !writing.is_done() {
            copying.written = Some(writing);
            return Ok(true);
        }
        if writing.window.plan.ends_tree {
            let tree = writing.window.plan.tree;
            let ending = Ending::new(self, tree, &copying.trees[tree]);
            copying.endings.push_back(ending);
        }
        copying.fetcher.recycle(writing.window);
        if !overlap {
            self.bring_to_device(compaction)?;
        }
        Ok(true)
    }

    /// The window that comes next; `None` after the last.
    fn next_window(
        &self,
        compaction: &mut Compaction,
        copying: &mut Copying,
    ) -> Result<Option<Window>> {
        self.keep_reading(compaction, copying, true)?;
        let window = copying.fetcher.take()?;
        if let Some(window) = &window {
            self.note_read(compaction, window);
        }
        Ok(window)
    }

    /// Counts what a window or a pass has read.
    pub(super) fn note_read(&self, compaction: &mut Compaction, window: &Window) {
        let report = &mut compaction.report;
        report.phases.read += window.seconds;
        report.read_operations += window.operations;
        report.bytes_read += window.bytes;
        report.backend = window.backend;
        self.counters
            .document_reads
            .fetch_add(window.operations, Ordering::Relaxed);
    }

    /// Has the next window read, unless one is; `is_idle` where none is written either.
    fn keep_reading(
        &self,
        compaction: &mut Compaction,
        copying: &mut Copying,
        is_idle: bool,
    ) -> Result<()> {
        if copying.fetcher.is_busy() {
            return Ok(());
        }
        let plan = match copying.planned.take() {
            Some(plan) => Some(plan),
            None => self.search(compaction, copying, is_idle)?,
        };
        if let Some(plan) = plan {
            copying.fetcher.want(plan);
        }
        Ok(())
    }

    /// Searches for the next window; `is_idle` where none is on its way.
    fn search(
        &self,
        compaction: &mut Compaction,
        copying: &mut Copying,
        is_idle: bool,
    ) -> Result<Option<Plan>> {
        let searched = copying.searched;
        let Some(tree) = copying.trees.get_mut(searched) else {
            return Ok(None);
        };
        // What a named snapshot shares with the trees before it is not read again once
        // it is known where that went.
        if tree.snapshot.is_some() && !is_idle && copying.searched_last != searched {
            return Ok(None);
        }
        copying.searched_last = searched;
        let from = &compaction.source.view.database;
        let settings = &compaction.settings;
        // What is dealt out, and what lies in order, takes no unit of its own.
        let unit = match copying.dealing {
            Some(_) => 1,
            // A buffer of its own is filled up too.
            None => copying.fetcher.unit().max(BUFFER_UNIT as u64 / 2),
        };
        let fill = WindowFill::new(settings, unit);
        let window = copying.next_window;
        let dealt = match &mut copying.dealing {
            // It is dealt to before.
            Some(dealing) if dealing.lacks(window) => return Ok(None),
            Some(dealing) => Some((dealing, window)),
            None => None,
        };
        let moved = compaction.moved.as_ref();
        let moved = moved.filter(|_| tree.snapshot.is_some());
        let nodes = self.nodes_in_passing(from);
        let (plan, search, sort) = next_plan(
            nodes,
            settings,
            fill,
            searched,
            &mut tree.source,
            dealt,
            moved,
        )?;
        tree.placed.add_places_of(&plan.shared);
        let left = compaction
            .total_documents
            .saturating_sub(plan.shared.documents);
        compaction.total_documents = left;
        compaction.pace.leave_out(plan.shared.bytes);
        copying.next_window += u32::from(!plan.documents.is_empty());
        compaction.report.phases.tree_search += search;
        compaction.report.phases.sort += sort;
        if plan.ends_tree {
            copying.searched += 1;
            let met = tree.source.account.documents;
            if met != tree.old.documents {
                return Err(from.damage(
                    0,
                    format!(
                        "a compaction met {met} documents of {}, and nothing was changed",
                        tree.old.documents
                    ),
                ));
            }
        }
        Ok(Some(plan))
    }

    /// Brings what is written to the device and waits for it: part of writing,
    /// where phases are measured one by one.
    fn bring_to_device(&self, compaction: &mut Compaction) -> Result<()> {
        let clock = &self.environment.clock;
        let began = clock.monotonic();
        compaction.database.log.flush()?;
        compaction.database.log.sync()?;
        compaction.report.phases.write += (clock.monotonic() - began).as_secs_f64();
        Ok(())
    }
}
