//! Looking up one key.
//!
//! Sources are asked from the newest to the oldest; the first entry that is old
//! enough ends the search, since newer lies above (crate essay, promise 1). On
//! the way the newest range tombstone over the key is remembered: if it is newer
//! than the entry found, the key is deleted.

use std::sync::Arc;

use cambium_base::{Result, Value};

use crate::block::Block;
use crate::entry::{EntryKind, EntryRef, Lookup, Moment};
use crate::format::BlockHandle;
use crate::table::{BlockProvider, Probe, Table};
use crate::tree::{Context, Tree, View};
use crate::version::TableFile;

/// Reads what the cache does not have, at once.
pub(crate) struct ReadThrough;

impl BlockProvider for ReadThrough {
    fn block(&mut self, table: &Arc<Table>, handle: BlockHandle) -> Result<Option<Block>> {
        table.block(handle).map(Some)
    }
}

/// An entry that was found, on its own.
#[derive(Clone, Debug)]
pub(crate) struct FoundEntry {
    pub kind: EntryKind,
    pub sequence: u64,
    pub value: Value,
}

fn taken(entry: EntryRef<'_>) -> FoundEntry {
    FoundEntry {
        kind: entry.kind,
        sequence: entry.sequence,
        value: Value::copy_of(entry.value),
    }
}

fn answer(found: Option<FoundEntry>, tombstone: u64) -> Lookup {
    match found {
        Some(entry) if entry.sequence >= tombstone => match entry.kind {
            EntryKind::Value => Lookup::Found {
                sequence: entry.sequence,
                value: entry.value,
            },
            EntryKind::Delete => Lookup::Deleted {
                sequence: entry.sequence,
            },
        },
        _ if tombstone > 0 => Lookup::Deleted {
            sequence: tombstone,
        },
        _ => Lookup::Absent,
    }
}

/// A lookup on its way down.
pub(crate) struct Search<'a> {
    pub context: &'a Context,
    pub key: &'a [u8],
    pub hash: u64,
    pub moment: Moment,
}

impl Search<'_> {
    /// Asks all sources of a view. `None`: a block must be fetched first.
    pub fn run(&self, view: &View, blocks: &mut dyn BlockProvider) -> Result<Option<Lookup>> {
        let mut tombstone = 0;
        for memtable in view.memtables() {
            if memtable.is_empty() {
                continue;
            }
            // The tombstones after the entry: one that was added between is
            // newer than any moment that both belong to.
            let found = memtable.get(self.hash, self.key, self.moment, taken);
            tombstone = tombstone.max(memtable.newest_range_over(self.key, self.moment));
            if found.is_some() {
                return Ok(Some(answer(found, tombstone)));
            }
        }
        for file in view.version.files_over(self.key) {
            match self.in_table(file, &mut tombstone, blocks)? {
                Probe::Waits => return Ok(None),
                Probe::Found(entry) => return Ok(Some(answer(Some(entry), tombstone))),
                Probe::Absent => {}
            }
        }
        Ok(Some(answer(None, tombstone)))
    }

    fn in_table(
        &self,
        file: &Arc<TableFile>,
        tombstone: &mut u64,
        blocks: &mut dyn BlockProvider,
    ) -> Result<Probe<FoundEntry>> {
        let table = self.context.table(file)?;
        if file.metadata.range_tombstones > 0 {
            let newest = table.tombstones.newest_over(self.key, self.moment);
            *tombstone = newest.max(*tombstone);
        }
        match table.may_contain(self.hash) {
            true => table.find(self.key, self.moment, blocks, taken),
            false => Ok(Probe::Absent),
        }
    }
}

impl Tree {
    /// What a moment sees of a key; the caller has pinned the moment.
    ///
    /// Cost: a memory lookup a memtable, a filter a level, and of the level that
    /// has the key two blocks at most from the device.
    ///
    /// # Errors
    /// [`cambium_base::Error::Corruption`] and errors of reading.
    pub fn get(&self, key: &[u8], moment: Moment) -> Result<Lookup> {
        self.check_open()?;
        self.look_up(&self.view_at(moment), key, moment)
    }

    /// What is visible now of a key, for a reader that pins nothing: `visible`
    /// answers the newest visible sequence number. It is asked again if a seal
    /// came between, so that number and memtables belong together.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn get_current(&self, key: &[u8], visible: impl Fn() -> Moment) -> Result<Lookup> {
        self.check_open()?;
        let (view, moment) = self.current_view(visible);
        self.look_up(&view, key, moment)
    }

    /// Whether a put or delete of a key would hide a value, as far as memory tells:
    /// write buffers tell exactly, tables by their filters, which are wrong about
    /// absent keys once in a hundred times. `None`: a table that has to be asked is
    /// not open, or has no filter. Never reads. For estimates.
    pub fn probably_has(&self, key: &[u8]) -> Option<bool> {
        let view = self.view.load();
        let hash = self.context.hash(key);
        for memtable in view.memtables() {
            if let Some(kind) = memtable.get(hash, key, Moment::MAX, |entry| entry.kind) {
                return Some(kind == EntryKind::Value);
            }
        }
        for file in view.version.files_over(key) {
            let table = file.open.load_full().filter(|table| table.has_filter())?;
            if table.may_contain(hash) {
                return Some(true);
            }
        }
        Some(false)
    }

    /// A view and a moment that belong together: every write up to the moment
    /// is in the view, and no job dropped what the moment sees.
    pub(crate) fn current_view(
        &self,
        visible: impl Fn() -> Moment,
    ) -> (arc_swap::Guard<Arc<View>>, Moment) {
        loop {
            let view = self.view.load();
            let moment = visible();
            if Arc::ptr_eq(&view.active, &self.view.load().active) {
                return (view, moment);
            }
        }
    }

    pub(crate) fn look_up(&self, view: &View, key: &[u8], moment: Moment) -> Result<Lookup> {
        let search = Search {
            context: &self.context,
            key,
            hash: self.context.hash(key),
            moment,
        };
        // A provider that reads through never makes a search wait.
        Ok(search
            .run(view, &mut ReadThrough)?
            .unwrap_or(Lookup::Absent))
    }
}
