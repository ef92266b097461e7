//! Flushing: a write buffer, or the run that several were packed into ([`crate::pack`]),
//! goes into the tries.
//!
//! 1. **Seal.** Under the writer lock, everything buffered is handed to the
//!    operating system, the active buffer becomes the sealed one, and a new one
//!    takes its place. Where the log ends now, *replay* will begin. Writers go on.
//! 2. **Apply.** For each namespace, the newest versions of the buffer or the run go into
//!    the trie in key order, in pieces of bounded memory. Only changed nodes are
//!    written: to blocks that earlier flushes have left, then in runs between the documents
//!    that writers append meanwhile. Where too much of the file is stale, the flush moves
//!    documents as well ([`crate::cleaning`]).
//! 3. **Sync.** Every document that the new roots reach, and every node, is
//!    durable before anything points to them.
//! 4. **Header.** A database header with the new roots is appended at a block of
//!    its own, and synced.
//! 5. **Superblock.** The copy that does not count is pointed to the header, and
//!    synced: the flush counts from here.
//! 6. **Install.** Readers get a view with the new roots and without what went into them.
//!    Snapshots that began before keep theirs.
//!
//! A crash before 5 leaves the old header, whose nodes and documents nothing has
//! overwritten ([`crate::node_space`]); replay then begins at the old place.
//!
//! A flush that fails leaves the sealed buffer where it is. Damage in the index stops all
//! further writes: no later flush can succeed, and the log must not grow without end.
//! After a full disk, or a read that failed, the flush is tried again later; it then
//! writes its nodes to the runs that the failed one has taken.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use cambium_base::{Error, Result};
use cambium_index::NodeAddress;
use cambium_io::sync::atomic::Ordering;
use cambium_io::{LockMode, pipeline};

use crate::addresses::Known;
use crate::buffer::Buffer;
use crate::cleaning::{Moves, Tail};
use crate::core::{Core, Maintenance, Writer, lock};
use crate::database::{Database, RunExtent};
use crate::document::DocumentAddress;
use crate::format::{DatabaseHeader, NamespaceRoot, Root, header_record};
use crate::index::Change;
use crate::nodes::NodeRuns;
use crate::pieces::{MergedChanges, Source};
use crate::seeded_bug::SeededBug;
use crate::view::{Names, Roots, View};

/// How many copies of a header are appended: two where replay from the header
/// before it does not lead to the same state, so that a damaged copy undoes
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// A flush or a close: replay does as well.
    One,
    /// A rollback, named snapshots that came or went, a compaction's first header, the mark
    /// of a recovery's cut; and a cleaning, which gives back what earlier headers reach.
    Two,
}

/// A header that was appended, not yet synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    /// Where it, or its last copy, lies.
    pub offset: u64,
    /// The header that leads to the same state, as the superblock names it.
    pub spare: u64,
    /// Every write up to here lies before it.
    pub sequence: u64,
}

/// Where a buffer was sealed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SealPoint {
    /// The last write in it.
    pub sequence: u64,
    /// Where the log went on.
    pub replay_from: u64,
    /// The session of what follows.
    pub session: u32,
}

/// The nodes that a flush has written; no database header names them yet.
struct Applied {
    roots: Roots,
    /// Nodes that the new roots no longer reach.
    retired: Vec<NodeAddress>,
    /// The runs of nodes that it took.
    runs: Vec<RunExtent>,
    /// Blocks of its last run that it did not fill.
    rest: Option<RunExtent>,
    /// Blocks for nodes that the log has grown by.
    grown: u64,
    /// Bytes of documents that a cleaning moved.
    moved: u64,
}

impl Root {
    /// Makes a header the newest, once it is synced with all before it.
    pub(crate) fn name(&mut self, appended: &Appended, database: &Database) {
        self.header = appended.offset;
        let newest = &database.newest_header;
        newest.store(appended.offset, Ordering::Release);
        self.spare_header = appended.spare;
        self.synced_through = self.synced_through.max(appended.sequence);
    }
}

impl Core {
    /// Carries the active buffer into the tries, if anything is in it; `Closed` where a close
    /// came before.
    pub fn flush(&self) -> Result<()> {
        let mut maintenance = lock(&self.maintenance);
        self.health.check_open()?;
        self.flush_locked(&mut maintenance)
    }

    /// Carries a sealed buffer, or a run, into the tries, and the header with them to the
    /// device. Readers have it there from then on.
    pub fn flush_source(
        &self,
        maintenance: &mut Maintenance,
        source: Source<'_>,
        point: SealPoint,
    ) -> Result<()> {
        let tail = self.plan_cleaning(maintenance, &self.view.load())?;
        self.flush_cleaning(maintenance, source, point, tail)
    }

    /// The same, with a tail to clean.
    pub fn flush_cleaning(
        &self,
        maintenance: &mut Maintenance,
        source: Source<'_>,
        point: SealPoint,
        tail: Option<Tail>,
    ) -> Result<()> {
        self.begin_carrying(source.keys());
        let outcome = self.apply_and_name(maintenance, source, point, tail);
        self.end_carrying();
        outcome
    }

    fn apply_and_name(
        &self,
        maintenance: &mut Maintenance,
        source: Source<'_>,
        point: SealPoint,
        tail: Option<Tail>,
    ) -> Result<()> {
        let view = self.view.load_full();
        let known = match source.empties_any() {
            true => Known::for_documents(source.keys(), &self.home.cache, self.hash_seed),
            false => view.known.next_era(),
        };
        let unfinished = &self.cleaning.unfinished;
        unfinished.fetch_or(tail.is_some(), Ordering::Relaxed);
        self.free_nodes(maintenance, &view.database, tail.as_ref());
        let applied = self
            .apply_source(&view, &known, (source, tail.as_ref()), point.sequence)
            .inspect_err(|_| {
                if tail.is_some() {
                    self.put_cleaning_off();
                }
            })?;
        let mut roots = applied.roots;
        if let Some(tail) = tail.filter(|_| self.has_bug(SeededBug::TailFreedEarly)) {
            self.punch(&view.database, tail.until)?;
        }
        // Before the sync: that may take long.
        self.note_replaced(&view, &roots, &maintenance.header, point.replay_from);
        self.sync_through(&view.database, point.sequence)?;
        let header = DatabaseHeader {
            sequence: point.sequence,
            replay_from: point.replay_from,
            replay_session: point.session,
            ..maintenance.header.clone()
        };
        let header = tail.iter().fold(header, |header, tail| tail.mark(header));
        let copies = match tail.is_some() && !self.has_bug(SeededBug::CleaningNamedOnce) {
            true => Copies::Two,
            false => Copies::One,
        };
        let database = &view.database;
        let named = self
            .append_roots(maintenance, database, header, &roots, copies)
            .inspect_err(|_| self.abandon_runs(database, &applied.runs))?;
        self.name_header(maintenance, database, named, copies)?;
        unfinished.store(false, Ordering::Relaxed);
        if !source.is_run() {
            maintenance.sealed_at = None;
        }
        if source.is_run() || !self.has_bug(SeededBug::PackedPlaceKept) {
            maintenance.packed_at = None;
        }
        let larger = known.outgrown_by(roots.documents(), &self.home.cache, self.hash_seed);
        {
            let _writer = lock(&self.writer);
            let lost = self.has_bug(SeededBug::FlushDropsActive);
            self.change_view(|view| {
                // One that was dropped meanwhile is gone.
                roots.namespaces.retain(|number, _| view.names.has(*number));
                View {
                    active: match lost {
                        true => Arc::default(),
                        false => view.active.clone(),
                    },
                    sealed: view.sealed.clone().filter(|_| source.is_run()),
                    run: Arc::default(),
                    roots: Arc::new(roots),
                    known: larger.unwrap_or(known),
                    era: view.era.next(),
                    ..view.clone()
                }
            });
        }
        let grown = source.logged() + applied.grown * database.node_bytes();
        let cleaned = (tail.as_ref(), applied.moved);
        self.note_cleaned(cleaned, (&maintenance.header, &view), grown);
        for address in &applied.retired {
            database.nodes.remove(address.0);
        }
        self.leave_nodes(maintenance, &view, applied.rest, applied.retired);
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        cambium_io::events::flushed("forest", &self.path);
        Ok(())
    }

    /// Seals the active buffer, or answers the one whose flush failed before.
    pub fn seal(&self, maintenance: &mut Maintenance) -> Result<Option<(Arc<Buffer>, SealPoint)>> {
        let writer = lock(&self.writer);
        let view = self.view.load_full();
        if let (Some(sealed), Some(point)) = (&view.sealed, maintenance.sealed_at) {
            return Ok(Some((sealed.clone(), point)));
        }
        if view.active.is_empty() {
            return Ok(None);
        }
        let point = self.seal_point(&writer, &view.database)?;
        self.change_view(|view| View {
            active: Arc::default(),
            sealed: Some(view.active.clone()),
            ..view.clone()
        });
        maintenance.sealed_at = Some(point);
        Ok(Some((view.active.clone(), point)))
    }

    /// The place at which a flush begins: the log's end, with everything before it handed over.
    pub fn seal_point(&self, writer: &Writer, database: &Database) -> Result<SealPoint> {
        self.flush_log(&database.log)?;
        let end = database.log.end();
        database.marks.note_flush(writer.place(end));
        Ok(SealPoint {
            sequence: writer.next_sequence - 1,
            replay_from: end,
            session: writer.session,
        })
    }

    /// Applies changes to the tries, and moves what lives in the tail.
    fn apply_source(
        &self,
        view: &View,
        known: &Known,
        (source, tail): (Source<'_>, Option<&Tail>),
        sequence: u64,
    ) -> Result<Applied> {
        let mut roots = Roots {
            sequence,
            namespaces: view.roots.namespaces.clone(),
        };
        let mut namespaces: BTreeSet<u16> = source.namespaces().into_iter().collect();
        if tail.is_some() {
            namespaces.extend(roots.namespaces.keys());
        }
        namespaces.retain(|namespace| view.names.has(*namespace));
        let mut runs = NodeRuns::new(self, &view.database, 0).reusing();
        let mut moved = 0;
        let apply = || {
            for namespace in namespaces {
                let root = roots.namespaces.entry(namespace).or_default();
                let deleted = source.deleted(namespace);
                if deleted.is_everything() {
                    *root = NamespaceRoot::default();
                }
                let moves = tail.map(|tail| Moves::new(self, &view.database, root, tail));
                let pieces = source.pieces(namespace, self.tuning.flush_bytes);
                let covered = self.covered_keys(&view.database, root, &deleted);
                let pieces = pieces.removing(covered);
                let mut changes = MergedChanges::new(pieces, moves.transpose()?);
                self.apply_pieces(&mut runs, known, root, namespace, &mut changes)?;
                moved += changes.moved_bytes();
            }
            runs.finish()
        };
        if let Err(error) = apply() {
            self.abandon_runs(&view.database, &runs.taken);
            return Err(self.after_apply_failure(error));
        }
        Ok(Applied {
            roots,
            rest: runs.rest(),
            grown: runs.grown,
            retired: runs.retired,
            runs: runs.taken,
            moved,
        })
    }

    /// Frees blocks for the nodes of this flush, none of them in the tail that it cleans.
    fn free_nodes(&self, maintenance: &Maintenance, database: &Database, tail: Option<&Tail>) {
        let begin = tail.map_or(maintenance.header.begin, |tail| tail.until);
        let begin = NodeAddress(begin.div_ceil(database.node_bytes()));
        let is_read_elsewhere = || {
            let files = &self.environment.file_system;
            files.lock(database.path(), LockMode::Alone).is_err()
        };
        let may_overwrite = |node: NodeAddress| {
            let offset = node.0 * database.node_bytes();
            database.log.file().shared_until(offset) == offset
        };
        let space = &database.node_space;
        space.free_unread(begin, is_read_elsewhere, may_overwrite);
    }

    /// Leaves blocks to later flushes: those that this one did not fill, and those of nodes that
    /// its roots no longer reach. Where several nodes lie in a block of the device, writing one
    /// could tear its neighbours.
    fn leave_nodes(
        &self,
        maintenance: &Maintenance,
        before: &View,
        rest: Option<RunExtent>,
        retired: Vec<NodeAddress>,
    ) {
        let database = &before.database;
        if database.shape.node_bytes < database.shape.block_bytes {
            return;
        }
        database.node_space.give(rest.as_slice());
        if !maintenance.header.snapshots.is_empty() {
            return;
        }
        let readers = match self.has_bug(SeededBug::NodesReusedBesideReaders) {
            true => Weak::new(),
            false => Arc::downgrade(&before.era),
        };
        database.node_space.retire(retired, readers);
        if self.has_bug(SeededBug::NodesReusedEarly) {
            database.node_space.header_named();
        }
    }

    fn abandon_runs(&self, database: &Database, runs: &[RunExtent]) {
        if !self.has_bug(SeededBug::FlushLeavesRuns) {
            database.abandon_runs(runs);
        }
    }

    /// Applies the changes of one namespace, in pieces that bound what is in memory
    /// beside their source. While one is applied, the documents that go into the next are read,
    /// moved and written. Neighbouring pieces share only the nodes on the way to
    /// where they meet.
    fn apply_pieces(
        &self,
        runs: &mut NodeRuns<'_>,
        known: &Known,
        root: &mut NamespaceRoot,
        namespace: u16,
        changes: &mut MergedChanges<'_>,
    ) -> Result<()> {
        let database = runs.database;
        let keys = self.keys(database);
        let make = || {
            let piece = changes.next(&keys)?;
            if !self.has_bug(SeededBug::FlushKeepsAddresses) {
                let changes = piece.iter();
                let changes = changes.map(|(key, change)| (key.as_slice(), change.document()));
                known.change_all(namespace, changes);
            }
            Ok(Some(piece).filter(|piece| !piece.is_empty()))
        };
        let mut is_first = true;
        let take = |mut piece: Vec<(Vec<u8>, Change)>| {
            if std::mem::take(&mut is_first) {
                runs.expect(piece.len() as u64);
            }
            if self.has_bug(SeededBug::FlushLosesEntry) && piece.len() > 1 {
                piece.remove(0);
            }
            let is_own = |(_, change): &&(Vec<u8>, Change)| !matches!(change, Change::Move { .. });
            let own = piece.iter().filter(is_own).count() as u64;
            self.apply_changes(runs, database, root, piece)?;
            self.carried(own);
            Ok(())
        };
        pipeline(&*self.environment.executor, "forest-flush", make, take)
    }

    /// Applies sorted changes to one namespace, and keeps its account.
    pub fn apply_changes(
        &self,
        runs: &mut NodeRuns<'_>,
        database: &Database,
        root: &mut NamespaceRoot,
        changes: Vec<(Vec<u8>, Change)>,
    ) -> Result<()> {
        let (mut added, mut added_bytes) = (0u64, 0u64);
        for (_, change) in &changes {
            if let Some(address) = change.document() {
                added += 1;
                added_bytes += address.most_bytes();
            }
        }
        let (mut lost, mut lost_bytes) = (0u64, 0u64);
        let mut replaced = |address: DocumentAddress| {
            lost += 1;
            lost_bytes += address.most_bytes();
        };
        let (appended, retired) = (runs.appended, runs.retired.len() as u64);
        let keys = self.keys(database);
        root.root = self
            .index
            .apply(runs, &keys, root.root, changes, &mut replaced)?;
        root.documents = (root.documents + added).saturating_sub(lost);
        root.document_bytes = (root.document_bytes + added_bytes).saturating_sub(lost_bytes);
        let appended = runs.appended - appended;
        let retired = runs.retired.len() as u64 - retired;
        root.nodes = (root.nodes + appended).saturating_sub(retired);
        Ok(())
    }

    /// A read that failed and a full disk may be over when the flush is tried again.
    /// Anything else stops all writes; what is in the log stays readable.
    fn after_apply_failure(&self, error: Error) -> Error {
        match error {
            Error::Io {
                operation: "read", ..
            }
            | Error::NoSpace { .. } => error,
            Error::Corruption { .. } if self.has_bug(SeededBug::FlushRetriesDamage) => error,
            other => self.health.poison(other),
        }
    }

    /// Syncs the log, which holds every write up to a number.
    pub fn sync_through(&self, database: &Database, sequence: u64) -> Result<()> {
        if self.has_bug(SeededBug::HeaderAheadOfNodes) {
            return Ok(());
        }
        self.sync_log(database)?;
        self.synced_through.fetch_max(sequence, Ordering::AcqRel);
        Ok(())
    }

    /// Appends a header with these roots, syncs it, and points the superblock
    /// to it.
    pub fn publish(
        &self,
        maintenance: &mut Maintenance,
        database: &Database,
        header: DatabaseHeader,
        roots: &Roots,
        copies: Copies,
    ) -> Result<()> {
        let named = self.append_roots(maintenance, database, header, roots, copies)?;
        self.name_header(maintenance, database, named, copies)
    }

    /// Appends a header with these roots. After a failure there is none in the log.
    fn append_roots(
        &self,
        maintenance: &Maintenance,
        database: &Database,
        header: DatabaseHeader,
        roots: &Roots,
        copies: Copies,
    ) -> Result<(DatabaseHeader, Appended)> {
        let writer = lock(&self.writer);
        let header = self.complete(header, maintenance, roots, writer.next_namespace);
        let record = header_record(
            writer.next_sequence - 1,
            self.synced_through.load(Ordering::Acquire),
            writer.session,
            false,
        );
        let appended = self.append_header(database, &header, &record, copies)?;
        Ok((header, appended))
    }

    /// Syncs a header that was appended, and points the superblock to it.
    fn name_header(
        &self,
        maintenance: &mut Maintenance,
        database: &Database,
        (header, appended): (DatabaseHeader, Appended),
        copies: Copies,
    ) -> Result<()> {
        self.sync_header(database)?;
        self.synced_through
            .fetch_max(appended.sequence, Ordering::AcqRel);
        let before = maintenance.root;
        maintenance.root.name(&appended, database);
        let written = match copies {
            Copies::One => maintenance.write_root(),
            // No replay brings back what it says: the older copy must lead there too.
            Copies::Two => maintenance.write_root_twice(),
        };
        if let Err(error) = written {
            maintenance.root = before;
            return Err(self.health.unless_full(error));
        }
        maintenance.header = header;
        database.node_space.header_named();
        Ok(())
    }

    /// Syncs a header, its nodes included where they were not before.
    pub fn sync_header(&self, database: &Database) -> Result<()> {
        if self.has_bug(SeededBug::HeaderAheadOfNodes) {
            return Ok(());
        }
        self.sync_log(database)
    }

    /// Fills what a header says beside where replay begins.
    pub fn complete(
        &self,
        header: DatabaseHeader,
        maintenance: &Maintenance,
        roots: &Roots,
        next_namespace: u32,
    ) -> DatabaseHeader {
        let names = self.view.load().names.clone();
        self.complete_with(header, maintenance, (roots, &names), next_namespace)
    }

    /// The same where the namespaces will be others.
    pub fn complete_with(
        &self,
        mut header: DatabaseHeader,
        maintenance: &Maintenance,
        (roots, names): (&Roots, &Names),
        next_namespace: u32,
    ) -> DatabaseHeader {
        header.previous = maintenance.root.header;
        if !self.view.load().database.node_space.is_empty() {
            // The next flush writes over no node of this header's trees, nor of those of the
            // one before it.
            header.trees_from = header.previous;
        }
        header.rolled_back_to = None;
        header.traffic = self.counters.traffic();
        header.next_namespace = next_namespace;
        let root = |number| roots.namespaces.get(&number).copied().unwrap_or_default();
        header.namespaces = names
            .iter()
            .map(|(name, number)| (number, name.to_string(), root(number)))
            .collect();
        header.namespaces.sort_by_key(|(number, ..)| *number);
        header.dropped = maintenance.header.dropped_but_kept(&header);
        header
    }

    /// Appends a header at a block of its own, or two copies of it, and hands
    /// them over. Called under the writer lock.
    pub fn append_header(
        &self,
        database: &Database,
        header: &DatabaseHeader,
        record: &cambium_storage::record::RecordHeader,
        copies: Copies,
    ) -> Result<Appended> {
        let mut header = header.clone();
        let block = database.log.geometry().block;
        if self.has_bug(SeededBug::ReplayFromHeader) {
            header.replay_from = database.log.end().next_multiple_of(block);
        }
        // This header and the superblock that will point to it count too.
        let count = if copies == Copies::Two { 2 } else { 1 };
        let bytes = count * header.encode().len() as u64 + block;
        header.traffic.headers += bytes;
        let payload = header.encode();
        let most = count * (payload.len() as u64 + 2 * block);
        self.reserve(database, most)?;
        let end = database.log.end();
        let (mut offset, mut spare) = (0, header.previous);
        for copy in 0..count {
            if copy > 0 {
                spare = offset;
            }
            database.log.pad_to_block();
            offset = database.log.append(record, &[&payload]).start;
        }
        database.log.pad_to_block();
        if let Err(error) = database.log.flush() {
            if error.is_no_space() && database.log.cut_back(end).is_ok() {
                return Err(error);
            }
            return Err(self.health.poison(error));
        }
        self.counters
            .header_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        Ok(Appended {
            offset,
            spare,
            sequence: record.sequence.0,
        })
    }
}
