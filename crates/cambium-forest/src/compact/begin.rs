//! How a compaction begins: nothing is begun that cannot be ended.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cambium_api::CompactReport;
use cambium_base::{Error, FileNumber, Result};
use cambium_index::hbtrie::Relocated;
use cambium_io::OpenOptions;

use super::Compaction;
use super::behind::WriteBehind;
use super::catch_up::{Pending, Round};
use super::copy::{Copying, Tree};
use super::fetch::{self, Fetcher};
use super::pace::Pace;
use super::past_cache::PastCache;
use super::plan::WindowFill;
use super::scratch::Scratch;
use super::settings::{Settings, SnapshotRule, SortRule};
use crate::addresses::Known;
use crate::core::{Core, Maintenance, lock};
use crate::database::Database;
use crate::format::{DatabaseHeader, FileRef, NamespaceRoot};
use crate::nodes::{FARTHEST_BACK, OpenRun};
use crate::view::Pin;

impl Core {
    /// Bytes of the device that a compaction needs to be free: all documents
    /// that it carries over, their index, nodes that each window writes once more,
    /// and space taken ahead. Nothing of the old file comes back before the new one
    /// counts.
    pub fn compaction_needs(
        &self,
        header: &DatabaseHeader,
        behind: u64,
        settings: &Settings,
    ) -> u64 {
        let node = u64::from(self.shape.node_bytes);
        let of_snapshots = header.snapshots.iter().flat_map(|kept| &kept.namespaces);
        let newest = header.namespaces.iter().map(|(_, _, root)| root);
        let roots = newest.chain(of_snapshots.map(|(_, root)| root));
        let (mut bytes, mut rewritten) = (0, 0);
        let edge = match settings.window_bytes() < FARTHEST_BACK {
            true => EDGE_NODES,
            false => EDGE_NODES + UNFILLED_NODES,
        };
        for root in roots {
            bytes += root.document_bytes + root.nodes * node / 4 * 5;
            let windows = WindowFill::windows_of(root.documents, root.document_bytes, settings);
            // In the order of offsets a window changes nodes anywhere.
            let of_window = match settings.tuning.sort {
                SortRule::Global => root.nodes + edge,
                _ => edge,
            };
            rewritten += windows.saturating_mul(of_window).saturating_mul(node);
        }
        // Documents that named snapshots share are counted with each, and never
        // take more than they take now.
        let bytes = bytes.min(self.view.load().database.log.end()) + behind;
        let ahead = (bytes / 32).min(self.tuning.preallocate_bytes) + LEAST_ROOM;
        bytes.saturating_add(rewritten).saturating_add(ahead)
    }

    /// Refuses to begin where there is too little room to end.
    fn check_disk(&self, maintenance: &Maintenance, settings: &Settings) -> Result<()> {
        let end = self.view.load().database.log.end();
        let behind = end.saturating_sub(maintenance.header.replay_from);
        let needed = self.compaction_needs(&maintenance.header, behind, settings);
        let free = self.environment.file_system.space(&self.path)?.available;
        if needed <= free {
            return Ok(());
        }
        Err(Error::NoSpace {
            path: self.path.clone(),
            what: format!(
                "compact: it needs up to {needed} bytes beside the old file, and {free} are free"
            ),
        })
    }

    pub(super) fn begin_compaction(self: &Arc<Self>, settings: Settings) -> Result<Compaction> {
        let mut maintenance = lock(&self.maintenance);
        if settings.tuning.snapshots == SnapshotRule::Refuse {
            if let Some(kept) = maintenance.header.snapshots.first() {
                return Err(Error::InvalidArgument(format!(
                    "compaction_snapshots=refuse, and the store has the named snapshot {:?}: drop \
                     it, or have it carried over",
                    kept.name
                )));
            }
        }
        self.check_disk(&maintenance, &settings)?;
        self.begin_session_locked(&mut maintenance)?;
        for _ in 0..2 {
            self.flush_locked(&mut maintenance)?;
        }
        self.check_disk(&maintenance, &settings)?;
        let file = self.next_file(&mut maintenance)?;
        let source = self.pin()?;
        let database = Database::create(&self.home, file, &self.shape, &self.tuning)?;
        let made = self.prepare(settings, source, database, &maintenance);
        match &made {
            Ok(_) => self.note_begun(),
            Err(_) => {
                let path = crate::format::database_path(&self.path, file.number);
                _ = self.environment.file_system.remove(&path);
            }
        }
        made
    }

    /// A number that no file had, durably.
    fn next_file(&self, maintenance: &mut Maintenance) -> Result<FileRef> {
        let number = FileNumber(maintenance.root.next_file);
        maintenance.root.next_file += 1;
        maintenance
            .write_root()
            .map_err(|error| self.health.unless_full(error))?;
        Ok(FileRef {
            number,
            salt: self.environment.randomness.next_u64(),
        })
    }

    fn prepare(
        &self,
        settings: Settings,
        source: Pin,
        database: Database,
        maintenance: &Maintenance,
    ) -> Result<Compaction> {
        // So that the switch need not wait for it.
        self.environment.file_system.sync_directory(&self.path)?;
        let header = &maintenance.header;
        let trees = self.trees_of(header);
        let mut snapshots = header.snapshots.clone();
        for (_, root) in snapshots.iter_mut().flat_map(|kept| &mut kept.namespaces) {
            *root = NamespaceRoot::default();
        }
        let from = &source.view.database;
        let past_cache = self.past_cache(&database, from, &settings)?;
        let database = match &past_cache {
            Some(past_cache) => database.through(&self.home, past_cache.clone())?,
            None => database,
        };
        let reader = Fetcher::new(&self.environment, from, &settings, past_cache.is_some())?;
        let mut copying = Copying::new(reader, trees);
        let mut pace = Pace::new(self, &source.view, copying.document_bytes(), &settings);
        let is_uncached = past_cache.is_some() || from.is_direct();
        let documents = source.view.roots.documents();
        let known = Known::for_documents(documents, &self.home.cache, self.hash_seed);
        let number = database.file.number;
        if let Some(scratch) = self.scratch(&settings, maintenance, (number, from), is_uncached)? {
            pace.expect_dealing(newest_bytes(header));
            copying.deal(scratch, &settings, from);
        }
        Ok(Compaction {
            total_documents: copying.documents(),
            pace,
            copying: Some(copying),
            source,
            database: Arc::new(database),
            past_cache,
            roots: BTreeMap::new(),
            open_run: OpenRun::default(),
            known,
            moved: (!snapshots.is_empty()).then(HashMap::new),
            relocated: Relocated::default(),
            snapshots,
            passed: Vec::new(),
            kept: 0,
            caught_up: header.replay_from,
            caught_up_sequence: header.sequence,
            met_writes: false,
            round: Round::default(),
            pending: Pending::default(),
            session: header.replay_session,
            report: CompactReport {
                backend: settings.reading.backend,
                batch: settings.reading.depth,
                direct: settings.direct,
                ..CompactReport::default()
            },
            unhurried: 0,
            turn: None,
            settings,
            named: false,
        })
    }

    /// A scratch file to deal documents out in; `None` if that is not asked for,
    /// not worth it, or there is no room.
    fn scratch(
        &self,
        settings: &Settings,
        maintenance: &Maintenance,
        (number, from): (FileNumber, &Database),
        is_uncached: bool,
    ) -> Result<Option<Scratch>> {
        let is_wanted = match settings.tuning.sort {
            SortRule::Deal => true,
            // Who has each document read by itself wants it so.
            SortRule::Auto => {
                settings.tuning.coalesce_bytes > 1
                    && (is_uncached || !fetch::is_mostly_cached(from))
            }
            SortRule::Window | SortRule::None | SortRule::Global => false,
        };
        if !is_wanted {
            return Ok(None);
        }
        let header = &maintenance.header;
        let needed = self.compaction_needs(header, 0, settings) + newest_bytes(header);
        let space = self.environment.file_system.space(&self.path)?;
        if needed > space.available {
            return Ok(None);
        }
        match Scratch::create(&self.environment, &self.path, number, settings, is_uncached) {
            Err(error) if error.is_no_space() => Ok(None),
            made => made.map(Some),
        }
    }

    /// The way past the page cache. What begins by itself takes it where little
    /// of the old file is in the cache: so it takes no memory that the readers'
    /// documents have. Some file systems have no such way.
    fn past_cache(
        &self,
        new: &Database,
        from: &Database,
        settings: &Settings,
    ) -> Result<Option<Arc<PastCache>>> {
        if new.is_direct() {
            return Ok(None);
        }
        let by_itself = settings.background && !fetch::is_mostly_cached(from);
        if !(settings.direct || by_itself) {
            return Ok(None);
        }
        let options = OpenOptions::WRITE.direct();
        let direct = match self.environment.file_system.open(new.path(), options) {
            Ok(direct) => direct,
            Err(error) if settings.direct => return Err(error),
            Err(_) => return Ok(None),
        };
        let (cached, end) = (new.log.file().clone(), new.log.end());
        if end % direct.alignment().offset as u64 != 0 {
            return Ok(None);
        }
        let place = (end, settings.written_bytes());
        let writer = WriteBehind::new(&self.environment, direct, settings.tuning.overlap, place);
        Ok(Some(Arc::new(PastCache::new(cached, writer))))
    }

    /// What there is to copy: the newest state of each namespace, then those
    /// that named snapshots keep.
    fn trees_of(&self, header: &DatabaseHeader) -> Vec<Tree> {
        let mut trees = Vec::new();
        let mut add = |snapshot, namespace, root: &NamespaceRoot| {
            if let Some(address) = root.root {
                let cursor = self.index.cursor(address);
                trees.push(Tree::new(snapshot, namespace, *root, cursor));
            }
        };
        let names = self.view.load().names.clone();
        for (namespace, _, root) in &header.namespaces {
            if names.has(*namespace) {
                add(None, *namespace, root);
            }
        }
        for (place, snapshot) in header.snapshots.iter().enumerate() {
            for (namespace, root) in &snapshot.namespaces {
                add(Some(place), *namespace, root);
            }
        }
        trees
    }
}

/// Bytes of the documents of all namespaces as they are now.
fn newest_bytes(header: &DatabaseHeader) -> u64 {
    let roots = header.namespaces.iter().map(|(_, _, root)| root);
    roots.map(|root| root.document_bytes).sum()
}

/// Nodes at the right edge of a tree, at most about: each window writes them once more.
const EDGE_NODES: u64 = 4;
/// The unfilled rest of their run, where the next window is too far to go on with it.
const UNFILLED_NODES: u64 = 3;

/// Room for headers and padding.
const LEAST_ROOM: u64 = 64 << 10;
