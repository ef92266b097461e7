//! Compaction: what is live goes into a new file, in key order, and the old file
//! goes away. Readers and writers go on; writers wait for the switch alone.
//!
//! 1. **Begin.** The write buffer is flushed; the roots then hold every write up
//!    to a number, and the log behind a place holds the rest.
//! 2. **Copy.** Namespace by namespace the trie is walked, documents are read in
//!    batches and appended to the new file, and each batch goes into the new trie.
//!    Since it comes in key order, full nodes are left behind. Then the same for
//!    named snapshots, whose documents are shared with what was copied before.
//! 3. **Catch up.** What writers appended to the old log meanwhile is read from
//!    there and goes the same way, until little is left.
//! 4. **Switch.** Under the writer lock the rest follows. The live documents of
//!    old and new index are compared. The new file gets a header, is synced, and
//!    its name too; both copies of the superblock point to it; readers get a view
//!    of it. Then the old file's name is removed; whoever reads it still can.
//!
//! A crash before 4 leaves a file that no superblock names, which the next open
//! removes. A step does a bounded piece of this, so that a test can do anything
//! in between.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cambium_api::{CompactOptions, CompactReport, Progress, ProgressSink};
use cambium_base::{Error, FileNumber, Result, SequenceNumber};
use cambium_io::{BatchOptions, StepOutcome};
use cambium_storage::record::{RecordHeader, record_bytes};
use cambium_storage::scan::{LogScanner, Scanned, SessionRule};

use crate::core::{Core, Maintenance, Writer, lock};
use crate::database::{Database, Document};
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress};
use crate::format::{
    DatabaseHeader, FLAG_MOVED, FileRef, NamedSnapshot, NamespaceRoot, document_auxiliary,
    header_record, kind, namespace_and_key,
};
use crate::index::{Change, IndexCursor};
use crate::nodes::{NodeRuns, Nodes};
use crate::options::{ENGINE, OPTIONS};
use crate::seeded_bug::SeededBug;
use crate::view::{Pin, Roots, View};

/// Documents read together.
const BATCH_DOCUMENTS: usize = 256;
/// When no more than this is left to catch up with, writers are made to wait.
const LAST_ROUND_BYTES: u64 = 1 << 20;

/// One tree to be copied: a namespace's, or one of a named snapshot.
#[derive(Debug)]
struct Source {
    /// `None` for the newest state, else the snapshot's place in the list.
    snapshot: Option<usize>,
    namespace: u16,
    cursor: IndexCursor,
    documents: u64,
    begun: bool,
}

/// A compaction that is going on.
#[derive(Debug)]
pub(crate) struct Compaction {
    /// Keeps the roots that are copied.
    source: Pin,
    database: Arc<Database>,
    roots: BTreeMap<u16, NamespaceRoot>,
    snapshots: Vec<NamedSnapshot>,
    queue: VecDeque<Source>,
    /// Where documents went, if named snapshots share them.
    moved: Option<HashMap<u64, u64>>,
    /// The old log up to here is in the new file.
    caught_up: u64,
    session: u32,
    reading: BatchOptions,
    report: CompactReport,
    /// A copy of the superblock may name the new file: it must stay.
    named: bool,
}

impl Core {
    /// Goes on with a compaction, or begins one if enough is stale.
    pub fn compaction_step(self: &Arc<Self>, budget: u64) -> Result<StepOutcome> {
        let mut running = lock(&self.compaction);
        if running.is_none() {
            if !self.is_compaction_due() {
                return Ok(StepOutcome::Idle);
            }
            *running = Some(self.begin_compaction(&CompactOptions::default())?);
        }
        self.advance(&mut running, budget)
    }

    /// Compacts now.
    pub fn compact(
        self: &Arc<Self>,
        options: &CompactOptions,
        progress: &dyn ProgressSink,
    ) -> Result<CompactReport> {
        self.check_writable()?;
        options.settings.clone().finish(ENGINE, OPTIONS)?;
        if options.direct {
            return Err(Error::Unsupported {
                engine: ENGINE,
                what: "compaction past the operating system's cache",
                instead: "leave direct out",
            });
        }
        self.cancelled.store(false, Ordering::Release);
        let mut running = lock(&self.compaction);
        // One begun in the background began with other options.
        self.abandon(running.take());
        let started = self.environment.clock.monotonic();
        *running = Some(self.begin_compaction(options)?);
        loop {
            if self.cancelled.load(Ordering::Acquire) {
                self.abandon(running.take());
                return Err(Error::Cancelled);
            }
            if let Some(compaction) = &running.as_ref() {
                progress.report(Progress {
                    phase: "compact",
                    done: compaction.report.documents,
                    total: Some(compaction.total_documents()),
                });
            }
            match self.advance_once(&mut running, 4 << 20) {
                Ok(Some(mut report)) => {
                    let ended = self.environment.clock.monotonic();
                    report.total_seconds = (ended - started).as_secs_f64();
                    return Ok(report);
                }
                Ok(None) => {}
                Err(error) => {
                    self.abandon(running.take());
                    return Err(error);
                }
            }
        }
    }

    fn advance(
        self: &Arc<Self>,
        running: &mut Option<Compaction>,
        budget: u64,
    ) -> Result<StepOutcome> {
        match self.advance_once(running, budget) {
            Ok(_) => Ok(StepOutcome::Again),
            Err(error) => {
                self.abandon(running.take());
                Err(error)
            }
        }
    }

    /// Does a piece of work; answers the report when all is done.
    fn advance_once(
        self: &Arc<Self>,
        running: &mut Option<Compaction>,
        budget: u64,
    ) -> Result<Option<CompactReport>> {
        self.check_sound()?;
        let Some(compaction) = running else {
            return Ok(None);
        };
        if compaction.queue.front().is_some() {
            self.copy(compaction, budget)?;
            return Ok(None);
        }
        let left = self.catch_up(compaction)?;
        if left > LAST_ROUND_BYTES {
            return Ok(None);
        }
        let report = self.switch(compaction)?;
        *running = None;
        Ok(Some(report))
    }

    /// Lets a compaction go that is not done.
    pub fn abandon_compaction(&self) {
        let running = lock(&self.compaction).take();
        self.abandon(running);
    }

    fn abandon(&self, running: Option<Compaction>) {
        if let Some(compaction) = running.filter(|running| !running.named) {
            // If it cannot be removed now, the next open does.
            _ = self
                .environment
                .file_system
                .remove(compaction.database.path());
        }
    }

    fn is_compaction_due(&self) -> bool {
        if self.tuning.compaction_threshold >= 100 {
            return false;
        }
        let view = self.view.load();
        let written = view.database.log.end() - view.database.shape.first_offset();
        let (start, replay_from) = {
            let maintenance = lock(&self.maintenance);
            (maintenance.header.start, maintenance.header.replay_from)
        };
        // A fifth of new bytes at least since the last one, whatever is kept.
        if written < self.tuning.compaction_least_bytes || written < start + start / 5 {
            return false;
        }
        // What the indexes do not hold yet counts as live: nobody knows better.
        let behind = view.database.log.end().saturating_sub(replay_from);
        let live = self.live_bytes(&view) + behind;
        let stale = written.saturating_sub(live);
        stale > written / 100 * self.tuning.compaction_threshold
    }

    /// About how many bytes of the file the newest state takes.
    pub fn live_bytes(&self, view: &View) -> u64 {
        let node = view.database.node_bytes();
        view.roots
            .namespaces
            .values()
            .map(|root| root.document_bytes + root.nodes * node)
            .sum()
    }

    fn begin_compaction(self: &Arc<Self>, options: &CompactOptions) -> Result<Compaction> {
        let reading = BatchOptions {
            backend: options.backend.unwrap_or(self.tuning.backend),
            depth: options.batch.unwrap_or(self.tuning.batch),
        };
        reading.validate()?;
        let mut maintenance = lock(&self.maintenance);
        self.begin_session_locked(&mut maintenance)?;
        for _ in 0..2 {
            self.flush_locked(&mut maintenance)?;
        }
        let number = FileNumber(maintenance.root.next_file);
        maintenance.root.next_file += 1;
        let payload = maintenance.root.encode();
        maintenance
            .superblock
            .write(&payload)
            .map_err(|error| self.after_superblock_failure(error))?;
        let file = FileRef {
            number,
            salt: self.environment.randomness.next_u64(),
        };
        let source = self.pin()?;
        let database = Database::create(&self.home, file, &self.shape, &self.tuning)?;
        let header = &maintenance.header;
        let mut queue = VecDeque::new();
        let mut enqueue = |snapshot, namespace, root: &NamespaceRoot| {
            if let Some(address) = root.root {
                queue.push_back(Source {
                    snapshot,
                    namespace,
                    cursor: self.index.cursor(address),
                    documents: root.documents,
                    begun: false,
                });
            }
        };
        for (namespace, _, root) in &header.namespaces {
            enqueue(None, *namespace, root);
        }
        for (place, snapshot) in header.snapshots.iter().enumerate() {
            for (namespace, root) in &snapshot.namespaces {
                enqueue(Some(place), *namespace, root);
            }
        }
        let mut snapshots = header.snapshots.clone();
        for (_, root) in snapshots.iter_mut().flat_map(|kept| &mut kept.namespaces) {
            *root = NamespaceRoot::default();
        }
        Ok(Compaction {
            source,
            database: Arc::new(database),
            roots: BTreeMap::new(),
            moved: (!snapshots.is_empty()).then(HashMap::new),
            snapshots,
            queue,
            caught_up: header.replay_from,
            session: header.replay_session,
            reading,
            report: CompactReport {
                backend: reading.backend,
                batch: reading.depth,
                ..CompactReport::default()
            },
            named: false,
        })
    }

    /// Copies documents of the first tree in the queue.
    fn copy(self: &Arc<Self>, compaction: &mut Compaction, budget: u64) -> Result<()> {
        let Some(mut source) = compaction.queue.pop_front() else {
            return Ok(());
        };
        let clock = &self.environment.clock;
        let from = compaction.source.view.database.clone();
        let nodes = Nodes {
            core: self,
            database: &from,
        };
        if !source.begun {
            source.cursor.begin(&nodes, true)?;
            source.begun = true;
        }
        let mut changes: Vec<(Vec<u8>, Change)> = Vec::new();
        let mut bytes = 0;
        let mut ended = false;
        while !ended && bytes < budget {
            let began = clock.monotonic();
            let mut addresses: Vec<DocumentAddress> = Vec::with_capacity(BATCH_DOCUMENTS);
            let mut expected = 0;
            while addresses.len() < BATCH_DOCUMENTS && expected < budget.max(1) {
                match source.cursor.advance(&nodes, true)? {
                    Some(address) => {
                        expected += address.most_bytes();
                        addresses.push(address);
                    }
                    None => {
                        ended = true;
                        break;
                    }
                }
            }
            let searched = clock.monotonic();
            let (documents, reads) = self.documents_with(&from, &addresses, compaction.reading)?;
            let read = clock.monotonic();
            for (address, document) in addresses.iter().zip(documents) {
                bytes += address.most_bytes();
                let to = self.move_document(compaction, &source, *address, &document)?;
                changes.push((document.key.to_vec(), Change::Put(to)));
            }
            let written = clock.monotonic();
            let report = &mut compaction.report;
            report.phases.tree_search += (searched - began).as_secs_f64();
            report.phases.read += (read - searched).as_secs_f64();
            report.phases.write += (written - read).as_secs_f64();
            report.read_operations += reads;
            report.bytes_read += expected;
        }
        let began = clock.monotonic();
        let root = compaction.root(source.snapshot, source.namespace);
        let mut root = std::mem::take(root);
        self.apply_to(compaction, &mut root, changes)?;
        if ended && root.documents != source.documents {
            return Err(from.damage(
                0,
                format!(
                    "a compaction met {} documents of {}, and nothing was changed",
                    root.documents, source.documents
                ),
            ));
        }
        *compaction.root(source.snapshot, source.namespace) = root;
        compaction.report.phases.flush_and_commit += (clock.monotonic() - began).as_secs_f64();
        if !ended {
            compaction.queue.push_front(source);
        }
        Ok(())
    }

    /// Appends a document to the new file, unless it is there already.
    fn move_document(
        &self,
        compaction: &mut Compaction,
        source: &Source,
        address: DocumentAddress,
        document: &Document,
    ) -> Result<DocumentAddress> {
        if let Some(&to) = compaction
            .moved
            .as_ref()
            .and_then(|moved| moved.get(&address.0))
        {
            return Ok(DocumentAddress(to));
        }
        let to = append_moved(
            compaction,
            source.namespace,
            document.sequence,
            &document.key,
            &document.value,
        )?;
        if let Some(moved) = &mut compaction.moved {
            moved.insert(address.0, to.0);
        }
        compaction.report.documents += 1;
        Ok(to)
    }

    /// Applies sorted changes to a tree of the new file.
    fn apply_to(
        &self,
        compaction: &Compaction,
        root: &mut NamespaceRoot,
        changes: Vec<(Vec<u8>, Change)>,
    ) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let database = &compaction.database;
        let mut runs = NodeRuns::new(self, database, changes.len() as u64)
            .exclusive(compaction.source.sequence, compaction.session);
        self.apply_changes(&mut runs, database, root, changes)?;
        runs.finish()
    }

    /// Carries over what was appended to the old log since the last time;
    /// answers how many bytes came meanwhile.
    fn catch_up(self: &Arc<Self>, compaction: &mut Compaction) -> Result<u64> {
        let until = {
            let writer = lock(&self.writer);
            self.end_of_writes(compaction, &writer)?
        };
        self.catch_up_to(compaction, until)?;
        let log_end = compaction.source.view.database.log.end();
        Ok(log_end.saturating_sub(until))
    }

    /// Hands everything over, and answers where the log ends.
    fn end_of_writes(&self, compaction: &Compaction, _: &Writer) -> Result<u64> {
        let log = &compaction.source.view.database.log;
        log.flush().map_err(|error| self.unless_full(error))?;
        Ok(log.end())
    }

    fn catch_up_to(&self, compaction: &mut Compaction, until: u64) -> Result<()> {
        if until <= compaction.caught_up || self.has_bug(SeededBug::CompactionWithoutCatchUp) {
            compaction.caught_up = until;
            return Ok(());
        }
        let from = compaction.source.view.database.clone();
        let mut scanner = LogScanner::new(
            &**from.log.file(),
            *from.log.seed(),
            *from.log.geometry(),
            SessionRule::NeverLower,
            compaction.caught_up,
            until,
        )?;
        scanner.resume_sessions(compaction.session);
        let mut newest: BTreeMap<u16, BTreeMap<Vec<u8>, Change>> = BTreeMap::new();
        while let Some(scanned) = scanner.next()? {
            let record = match scanned {
                // Writers have just written this: it cannot be torn.
                Scanned::Fault(fault) => {
                    return Err(from.damage(fault.offset, fault.reason.to_string()));
                }
                Scanned::Record(record) => record,
            };
            let end = record.offset + record.header.total_bytes(DOCUMENT_ALIGNMENT);
            match record.header.kind {
                kind::NODES => {
                    scanner.skip_to(from.run_extent(end, record.header.auxiliary).1);
                }
                kind::PUT | kind::DELETE => {
                    let parts = namespace_and_key(&record.header);
                    let payload = scanner.payload(&record)?;
                    let Some((namespace, key_bytes)) = parts else {
                        continue;
                    };
                    let (key, value) = payload.split_at(key_bytes);
                    let change = if record.header.kind == kind::PUT {
                        let sequence = record.header.sequence.0;
                        Change::Put(append_moved(compaction, namespace, sequence, key, value)?)
                    } else {
                        Change::Remove
                    };
                    newest
                        .entry(namespace)
                        .or_default()
                        .insert(key.to_vec(), change);
                }
                _ => {}
            }
        }
        compaction.session = compaction.session.max(scanner.highest_session());
        for (namespace, changes) in newest {
            let mut root = std::mem::take(compaction.root(None, namespace));
            self.apply_to(compaction, &mut root, changes.into_iter().collect())?;
            *compaction.root(None, namespace) = root;
        }
        compaction.caught_up = until;
        Ok(())
    }

    /// Makes the new file the store's.
    fn switch(self: &Arc<Self>, compaction: &mut Compaction) -> Result<CompactReport> {
        let began = self.environment.clock.monotonic();
        let mut maintenance = lock(&self.maintenance);
        let mut writer = lock(&self.writer);
        let names = |snapshots: &[NamedSnapshot]| -> Vec<(String, u64)> {
            let names = snapshots.iter();
            names
                .map(|kept| (kept.name.clone(), kept.sequence))
                .collect()
        };
        if names(&maintenance.header.snapshots) != names(&compaction.snapshots) {
            // Named snapshots came or went since it began.
            return Err(Error::Cancelled);
        }
        let until = self.end_of_writes(compaction, &writer)?;
        self.catch_up_to(compaction, until)?;
        let old = self.view.load_full();
        let database = compaction.database.clone();
        database
            .log
            .flush()
            .map_err(|error| self.unless_full(error))?;
        database.log.sync().map_err(|error| self.poisoned(error))?;
        let roots = Roots {
            sequence: writer.next_sequence - 1,
            namespaces: std::mem::take(&mut compaction.roots),
        };
        let header = DatabaseHeader {
            sequence: roots.sequence,
            replay_from: database.log.end(),
            replay_session: writer.session,
            start: database.log.end(),
            snapshots: std::mem::take(&mut compaction.snapshots),
            ..maintenance.header.clone()
        };
        self.counters
            .compaction_bytes
            .fetch_add(database.log.end(), Ordering::Relaxed);
        let mut header = self.complete(header, &maintenance, &roots, writer.next_namespace);
        header.previous = 0;
        let record = header_record(roots.sequence, roots.sequence, writer.session, false);
        let offset = self.append_header(&database, &header, &record)?;
        self.sync_header(&database)?;
        if self.has_bug(SeededBug::OldFileRemovedEarly) {
            self.environment.file_system.remove(old.database.path())?;
        }
        compaction.named = true;
        self.point_to(&mut maintenance, &database, offset)?;
        maintenance.header = header;
        maintenance.sealed_at = None;
        writer.unsynced = false;
        writer.synced_through = roots.sequence;
        let roots = Arc::new(roots);
        self.change_view(|_| View {
            database: database.clone(),
            active: Arc::default(),
            sealed: None,
            roots,
        });
        drop(writer);
        drop(maintenance);
        if !self.has_bug(SeededBug::OldFileRemovedEarly) {
            // If it stays, the next open removes it.
            _ = self.environment.file_system.remove(old.database.path());
        }
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        compaction.report.bytes_written = database.log.end();
        compaction.report.phases.flush_and_commit +=
            (self.environment.clock.monotonic() - began).as_secs_f64();
        Ok(compaction.report.clone())
    }

    /// Points both copies of the superblock to a header of a new file.
    fn point_to(
        &self,
        maintenance: &mut Maintenance,
        database: &Database,
        offset: u64,
    ) -> Result<()> {
        self.environment
            .file_system
            .sync_directory(&self.path)
            .map_err(|error| self.poisoned(error))?;
        maintenance.root.file = database.file;
        maintenance.root.header = offset;
        let payload = maintenance.root.encode();
        // Both copies: an older one must not bring the old file back. After a
        // failure nobody knows which file the next open takes: no more writes.
        maintenance
            .superblock
            .write_both(&payload)
            .map_err(|error| self.poisoned(error))
    }
}

impl Compaction {
    fn root(&mut self, snapshot: Option<usize>, namespace: u16) -> &mut NamespaceRoot {
        let Some(place) = snapshot else {
            return self.roots.entry(namespace).or_default();
        };
        let namespaces = &mut self.snapshots[place].namespaces;
        let known = namespaces
            .iter()
            .position(|(number, _)| *number == namespace);
        let at = known.unwrap_or_else(|| {
            namespaces.push((namespace, NamespaceRoot::default()));
            namespaces.len() - 1
        });
        &mut namespaces[at].1
    }

    fn total_documents(&self) -> u64 {
        let roots = &self.source.view.roots.namespaces;
        roots.values().map(|root| root.documents).sum()
    }
}

/// Appends a document to the new file with the sequence number it had.
fn append_moved(
    compaction: &Compaction,
    namespace: u16,
    sequence: u64,
    key: &[u8],
    value: &[u8],
) -> Result<DocumentAddress> {
    const HANDED_OVER_BYTES: usize = 1 << 20;
    let database = &compaction.database;
    let bytes = record_bytes((key.len() + value.len()) as u64, DOCUMENT_ALIGNMENT);
    database.check_room(bytes)?;
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
    if database.log.buffered_bytes() > HANDED_OVER_BYTES {
        database.log.flush()?;
    }
    Ok(DocumentAddress::new(offset, bytes, key))
}
