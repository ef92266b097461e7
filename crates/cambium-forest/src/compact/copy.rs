//! Copying: windows of documents go into the new file, and their addresses into
//! the new index.
//!
//! Three windows are on their way at a time: one is written, the next one is
//! read, and the one after that has been searched for, so that the reads need
//! not wait for the search. With `overlap=off` it is one after the other, as
//! published. Where documents lie scattered they are dealt out to the windows
//! first ([`super::deal`]).

use std::collections::VecDeque;

use cambium_base::{Result, SequenceNumber};
use cambium_io::Advice;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::record::{RecordHeader, record_bytes};

use super::Compaction;
use super::deal::Dealing;
use super::endings::Ending;
use super::fetch::{BUFFER_UNIT, Fetcher, Window};
use super::plan::{Plan, Source, WindowFill, next_plan};
use super::proof::Account;
use super::scratch::Scratch;
use super::settings::Settings;
use crate::core::Core;
use crate::database::{Database, DocumentBytes};
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress};
use crate::format::{FLAG_MOVED, NamespaceRoot, document_auxiliary, kind};
use crate::index::{Change, IndexCursor};
use crate::nodes::{NodeRuns, Nodes, PassingNodes};
use crate::seeded_bug::SeededBug;

/// What is appended is handed to the operating system when this much has
/// gathered; the log keeps no larger buffer.
const HANDED_OVER_BYTES: u64 = 1 << 20;
/// The same where that is a copy into another buffer: it stays in the
/// processor's cache.
const COPIED_BYTES: u64 = 128 << 10;
/// And brought to the device without waiting for it when this much has.
const HURRIED_BYTES: u64 = 8 << 20;

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
    last_key: Option<Vec<u8>>,
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

/// A window that is being written.
#[derive(Debug)]
struct Writing {
    window: Window,
    next: usize,
    changes: Vec<(Vec<u8>, Change)>,
    change_bytes: u64,
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
                Some(window) => Writing {
                    window,
                    next: 0,
                    changes: Vec::new(),
                    change_bytes: 0,
                },
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
        if writing.next < writing.window.plan.documents.len() {
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
        let nodes = PassingNodes(Nodes {
            core: self,
            database: from,
        });
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

    /// Appends documents of a window, and takes them into the index when there
    /// are no more of it, or when their keys take much memory.
    fn write_documents(
        &self,
        compaction: &mut Compaction,
        tree: &mut Tree,
        writing: &mut Writing,
        budget: u64,
    ) -> Result<()> {
        let clock = &self.environment.clock;
        let from = compaction.source.view.database.clone();
        let sorted = compaction.settings.tuning.sort != super::settings::SortRule::Global;
        let began = clock.monotonic();
        let mut bytes = 0;
        let count = writing.window.plan.documents.len();
        while writing.next < count && bytes < budget.max(1) {
            let (address, span) = writing.window.plan.documents[writing.next];
            let content = writing.window.content(address, span);
            writing.next += 1;
            if self.has_bug(SeededBug::CompactionDropsDocument) && writing.next == 3 {
                continue;
            }
            let DocumentBytes {
                sequence,
                key,
                value,
                ..
            } = from.document_in(address, content)?;
            if !address.may_match(key) {
                return Err(from.damage(address.offset(), "a document of another key"));
            }
            let last = writing.changes.last().map(|(key, _)| key);
            let misplaced = last
                .or(tree.last_key.as_ref())
                .is_some_and(|last| key <= last);
            if sorted && misplaced {
                let what = "a document whose key is not behind the one before it";
                return Err(from.damage(address.offset(), what));
            }
            let end = compaction.database.log.end();
            let to = place_document(compaction, tree.namespace, address, sequence, key, value)?;
            tree.placed.add_place(to);
            bytes += address.most_bytes();
            compaction
                .pace
                .note(address.most_bytes(), (key.len() + value.len()) as u64);
            if tree.snapshot.is_some() {
                compaction.kept += compaction.database.log.end() - end;
                // It gets its index of the old one.
                tree.last_key = Some(key.to_vec());
                continue;
            }
            writing.change_bytes += key.len() as u64;
            writing.changes.push((key.to_vec(), Change::Put(to)));
        }
        let written = clock.monotonic();
        compaction.report.phases.write += (written - began).as_secs_f64();
        let many = writing.change_bytes > compaction.settings.keys_bytes();
        if tree.snapshot.is_none() && (writing.next == count || many) {
            let mut changes = std::mem::take(&mut writing.changes);
            writing.change_bytes = 0;
            tree.last_key = changes.last().map(|(key, _)| key.clone());
            if !sorted {
                changes.sort_unstable_by(|one, other| one.0.cmp(&other.0));
            }
            compaction.note_known(tree.namespace, &changes);
            let mut root = std::mem::take(compaction.root(None, tree.namespace));
            self.apply_to(compaction, &mut root, changes)?;
            *compaction.root(None, tree.namespace) = root;
            compaction.report.phases.flush_and_commit +=
                (clock.monotonic() - written).as_secs_f64();
        }
        Ok(())
    }

    /// Applies sorted changes to a tree of the new file.
    pub(super) fn apply_to(
        &self,
        compaction: &mut Compaction,
        root: &mut NamespaceRoot,
        changes: Vec<(Vec<u8>, Change)>,
    ) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let database = &*compaction.database;
        let mut runs = NodeRuns::new(self, database, changes.len() as u64)
            .exclusive(compaction.source.sequence, compaction.session)
            .continuing(std::mem::take(&mut compaction.open_run));
        self.apply_changes(&mut runs, database, root, changes)?;
        runs.finish()?;
        let (open, retired) = runs.into_open();
        compaction.open_run = open;
        for address in retired {
            database.nodes.remove(address.0);
        }
        Ok(())
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

/// Appends a document to the new file, unless it is there already: documents
/// that named snapshots share are copied once.
fn place_document(
    compaction: &mut Compaction,
    namespace: u16,
    address: DocumentAddress,
    sequence: u64,
    key: &[u8],
    value: &[u8],
) -> Result<DocumentAddress> {
    let known = compaction.moved.as_ref();
    if let Some(&to) = known.and_then(|moved| moved.get(&address.0)) {
        return Ok(DocumentAddress(to));
    }
    let to = append_moved(compaction, namespace, sequence, key, value)?;
    if let Some(moved) = &mut compaction.moved {
        moved.insert(address.0, to.0);
    }
    compaction.report.documents += 1;
    Ok(to)
}

/// Appends a document to the new file with the sequence number it had.
pub(super) fn append_moved(
    compaction: &mut Compaction,
    namespace: u16,
    sequence: u64,
    key: &[u8],
    value: &[u8],
) -> Result<DocumentAddress> {
    let database = &compaction.database;
    let bytes = record_bytes((key.len() + value.len()) as u64, DOCUMENT_ALIGNMENT);
    database.check_room(bytes)?;
    let gathers = match &compaction.past_cache {
        Some(_) => COPIED_BYTES,
        None => HANDED_OVER_BYTES,
    };
    if database.log.buffered_bytes() as u64 + bytes > gathers {
        database.log.flush()?;
    }
    database.log.reserve(bytes)?;
    let header = RecordHeader {
        kind: kind::PUT,
        flags: FLAG_MOVED,
        sequence: SequenceNumber(sequence),
        session: compaction.session,
        auxiliary: document_auxiliary(namespace, key.len()),
        ..RecordHeader::default()
    };
    let offset = database.log.append(&header, &[key, value]);
    let cached = compaction.past_cache.is_none() || compaction.pace.has_copied();
    if cached && offset - compaction.unhurried > HURRIED_BYTES {
        // The kernel begins to write what is told not to be needed, and keeps
        // it until that is done: so no sync finds much to do at once.
        let start = if compaction.settings.direct {
            compaction.unhurried.saturating_sub(HURRIED_BYTES)
        } else {
            compaction.unhurried
        };
        let file = database.log.file();
        file.advise(start, offset - start, Advice::DontNeed);
        compaction.unhurried = offset;
    }
    Ok(DocumentAddress::new(offset, bytes, key))
}
