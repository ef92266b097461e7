//! Cursors: what a moment sees, in order, forward and backward.

use std::sync::Arc;

use cambium_base::{Result, Value};

use crate::block::BlockCursor;
use crate::entry::{EntryKind, EntryRef, Moment, Source, leading, same_key};
use crate::level_source::{LevelSource, Tables};
use crate::merge::MergeSource;
use crate::run::RunSource;
use crate::table_cursor::Blocks;
use crate::tombstones::RangeTombstones;
use crate::tree::{Tree, View};
use crate::version::TableFile;

/// An entry that a cursor stands at.
#[derive(Clone, Copy, Debug)]
pub struct CursorEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The write's number.
    pub sequence: u64,
    /// The value.
    pub value: &'a [u8],
    held: Held<'a>,
}

/// The owner of an entry's value.
#[derive(Clone, Copy, Debug)]
enum Held<'a> {
    Run,
    Block(&'a BlockCursor),
    Cursor(&'a Value),
}

impl CursorEntry<'_> {
    /// The value from its byte `from` on. It shares the block that the entry lies in.
    #[inline]
    pub fn value_from(&self, from: usize) -> Value {
        match self.held {
            Held::Run => Value::copy_of(self.value.get(from..).unwrap_or_default()),
            Held::Block(block) => block.shared_value(from),
            Held::Cursor(value) => value.slice(from.min(value.len())..value.len()),
        }
    }
}

/// Stands at one entry of a range as of a moment, or outside. It keeps the
/// memtables and tables it was made over, whatever the tree does meanwhile;
/// the moment stays readable as long as the caller pins it.
#[derive(Debug)]
pub struct Cursor {
    merged: MergeSource<CursorSource>,
    tombstones: RangeTombstones,
    moment: Moment,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    /// Of `to`.
    to_leading: u128,
    standing: Standing,
    /// Going forward: the leading source's block ends before all other sources' entries and
    /// before the end of the range.
    leads: bool,
    /// Of the entry, or while going forward of the one before.
    key: Vec<u8>,
    /// Of the entry, while going backward.
    sequence: u64,
    value: Value,
    /// Keeps its tables from being removed.
    _view: Arc<View>,
}

/// What a cursor merges.
#[derive(Debug)]
enum CursorSource {
    Run(RunSource),
    Tables(Box<LevelSource>),
}

/// Calls a source by what it is: nothing is looked up for each entry.
macro_rules! of_either {
    ($source:expr, $inner:ident => $call:expr) => {
        match $source {
            CursorSource::Run($inner) => $call,
            CursorSource::Tables($inner) => $call,
        }
    };
}

impl CursorSource {
    /// A key that no entry lies behind of the block that it stands in, if it reads tables.
    #[inline]
    fn block_end(&self) -> Option<&[u8]> {
        match self {
            CursorSource::Run(_) => None,
            CursorSource::Tables(source) => source.table_cursor()?.block_end(),
        }
    }

    /// The entry that it stands at, with what holds its value.
    #[inline]
    fn standing(&self) -> Option<CursorEntry<'_>> {
        let (entry, held) = match self {
            CursorSource::Run(source) => (source.entry()?, Held::Run),
            CursorSource::Tables(source) => {
                let block = source.table_cursor()?.block_cursor()?;
                (block.entry()?, Held::Block(block))
            }
        };
        Some(CursorEntry {
            key: entry.key,
            sequence: entry.sequence,
            value: entry.value,
            held,
        })
    }
}

impl Source for CursorSource {
    fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        of_either!(self, source => source.seek(key, sequence))
    }

    fn seek_before(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        of_either!(self, source => source.seek_before(key, sequence))
    }

    fn seek_first(&mut self) -> Result<()> {
        of_either!(self, source => source.seek_first())
    }

    fn seek_last(&mut self) -> Result<()> {
        of_either!(self, source => source.seek_last())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        of_either!(self, source => source.next())
    }

    #[inline]
    fn previous(&mut self) -> Result<()> {
        of_either!(self, source => source.previous())
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        of_either!(self, source => source.entry())
    }
}

/// Where the merged sources stand, seen from the cursor's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The cursor is outside.
    Outside,
    /// At the entry: what there is of it is theirs.
    Forward,
    /// Before all entries of its key.
    Backward,
}

/// The end of a walk along the leading source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Led {
    /// To an entry with a value.
    Found,
    /// To the end of what it leads; an entry of the key there was the newest of its key.
    Decided,
    /// To the same; the moment sees an older entry of the key there, if any.
    Undecided,
}

impl Tree {
    /// A cursor over `[from, to)`, `None` for no bound, as of a moment that the
    /// caller has pinned. It stands outside until it is sought.
    ///
    /// Cost: a sort of what was written since the last cursor (about 0.1 µs an
    /// entry), and a look at each level.
    ///
    /// # Errors
    /// [`cambium_base::Error::Corruption`] and errors of reading.
    pub fn cursor(&self, from: Option<&[u8]>, to: Option<&[u8]>, moment: Moment) -> Result<Cursor> {
        self.check_open()?;
        self.cursor_over(self.view_at(moment), from, to, moment)
    }

    /// A cursor over a view.
    pub(crate) fn cursor_over(
        &self,
        view: Arc<View>,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        moment: Moment,
    ) -> Result<Cursor> {
        let mut sources = Vec::new();
        let mut tombstones = view.active.ranges();
        for memtable in view.memtables() {
            for run in memtable.runs() {
                sources.push(CursorSource::Run(RunSource::new(run)));
            }
        }
        for sealed in &view.sealed {
            tombstones.add_all(&sealed.memtable.ranges());
        }
        let version = &view.version;
        let mut add = |tables| {
            let source = LevelSource::new(&self.context, tables, Blocks::Cached);
            sources.push(CursorSource::Tables(Box::new(source)));
        };
        for (level, files) in version.levels.iter().enumerate() {
            // Tables of level 0 overlap, so each is a source of its own.
            let range = match level {
                0 => 0..files.len(),
                _ => version.touching(level, from, to),
            };
            let touches = |file: &&Arc<TableFile>| file.metadata.range.touches(from, to);
            if version.has_range_tombstones(level) {
                let deleting = |file: &&Arc<TableFile>| file.metadata.range_tombstones > 0;
                let touching = files[range.clone()].iter().filter(touches);
                for file in touching.filter(deleting) {
                    let table = self.context.table(file)?;
                    tombstones.add_all(&table.tombstones.clipped(from, to));
                }
            }
            match level {
                0 => {
                    for file in files.iter().filter(touches) {
                        add(Tables::Listed(vec![file.clone()]));
                    }
                }
                _ if range.is_empty() => {}
                _ => add(Tables::OfLevel(version.clone(), level, range)),
            }
        }
        Ok(Cursor {
            merged: MergeSource::new(sources),
            tombstones,
            moment,
            from: from.map(<[u8]>::to_vec),
            to: to.map(<[u8]>::to_vec),
            to_leading: to.map_or(0, leading),
            standing: Standing::Outside,
            leads: false,
            key: Vec::new(),
            sequence: 0,
            value: Value::copy_of(&[]),
            _view: view,
        })
    }
}

impl Cursor {
    /// The entry it stands at; `None` outside the range.
    #[inline]
    pub fn entry(&self) -> Option<CursorEntry<'_>> {
        match self.standing {
            Standing::Outside => None,
            Standing::Forward => self.merged.lead()?.standing(),
            Standing::Backward => Some(CursorEntry {
                key: &self.key,
                sequence: self.sequence,
                value: &self.value,
                held: Held::Cursor(&self.value),
            }),
        }
    }

    /// To the first entry of the range.
    ///
    /// # Errors
    /// As every move: damage and errors of reading; the cursor is outside then.
    pub fn seek_first(&mut self) -> Result<()> {
        self.leave();
        match &self.from {
            Some(from) => self.merged.seek(from, u64::MAX)?,
            None => self.merged.seek_first()?,
        }
        self.settle_forward()
    }

    /// To the last entry of the range.
    pub fn seek_last(&mut self) -> Result<()> {
        self.leave();
        match &self.to {
            Some(to) => self.merged.seek_before(to, u64::MAX)?,
            None => self.merged.seek_last()?,
        }
        self.settle_backward()
    }

    /// To the first entry whose key is `key` or behind it.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.from.as_deref().is_some_and(|from| key <= from) {
            return self.seek_first();
        }
        self.leave();
        self.merged.seek(key, u64::MAX)?;
        self.settle_forward()
    }

    /// To the last entry whose key is before `key`.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        if self.to.as_deref().is_some_and(|to| key >= to) {
            return self.seek_last();
        }
        self.leave();
        self.merged.seek_before(key, u64::MAX)?;
        self.settle_backward()
    }

    /// To the next entry; outside it stays outside.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        let led = self.next_of_lead();
        match led {
            Led::Found => Ok(()),
            _ => self.next_of_all(led),
        }
    }

    /// Goes to the next entry, from where the walk along the leading source ended.
    #[inline(never)]
    fn next_of_all(&mut self, led: Led) -> Result<()> {
        match self.leave() {
            Standing::Outside => return Ok(()),
            Standing::Forward if led == Led::Undecided => self.merged.next()?,
            Standing::Forward => self.skip_key_forward()?,
            Standing::Backward => self.merged.seek(&self.key, 0)?,
        }
        self.settle_forward()
    }

    /// To the entry before; outside it stays outside.
    pub fn previous(&mut self) -> Result<()> {
        match self.leave() {
            Standing::Outside => return Ok(()),
            Standing::Forward => {
                self.copy_key();
                self.merged.seek_before(&self.key, u64::MAX)?;
            }
            Standing::Backward => {}
        }
        self.settle_backward()
    }

    /// To the next entry of the leading source's block, where no other source has to be
    /// looked at.
    #[inline]
    fn next_of_lead(&mut self) -> Led {
        let mut came_to = Led::Decided;
        if !self.leads {
            return came_to;
        }
        let Some(CursorSource::Tables(lead)) = self.merged.lead_mut() else {
            return came_to;
        };
        while let Some(repeats) = lead.next_within() {
            if repeats && came_to == Led::Decided {
                continue;
            }
            came_to = Led::Undecided;
            let Some(entry) = lead.entry() else {
                break;
            };
            if entry.sequence <= self.moment {
                came_to = Led::Decided;
                if is_live(&entry, &self.tombstones, self.moment) {
                    return Led::Found;
                }
            }
        }
        self.leads = false;
        came_to
    }

    /// Goes outside, where it stays if the sources fail; answers where it stood.
    fn leave(&mut self) -> Standing {
        self.leads = false;
        std::mem::replace(&mut self.standing, Standing::Outside)
    }

    /// Finds out whether the block that the leading source stands in can be walked alone.
    #[inline]
    fn note_lead(&mut self) {
        let end = self.merged.lead().and_then(CursorSource::block_end);
        let leads = |end: &[u8]| self.merged.leads_to(end) && !self.is_behind_range(end);
        self.leads = end.is_some_and(leads);
    }

    /// Copies the key at which the merged sources stand.
    fn copy_key(&mut self) {
        self.key.clear();
        if let Some(entry) = self.merged.entry() {
            self.key.extend_from_slice(entry.key);
        }
    }

    /// From an entry to the next one of another key.
    fn skip_key_forward(&mut self) -> Result<()> {
        self.copy_key();
        self.merged.next()?;
        while self
            .merged
            .entry()
            .is_some_and(|entry| same_key(entry.key, &self.key))
        {
            self.merged.next()?;
        }
        Ok(())
    }

    /// True if a key is not before the end of the range.
    #[inline]
    fn is_behind_range(&self, key: &[u8]) -> bool {
        // The numbers mostly tell.
        self.to
            .as_deref()
            .is_some_and(|to| leading(key) >= self.to_leading && key >= to)
    }

    /// Seeks past a deleted range, if the merged sources stand in one. Entries of newer tables
    /// and of write buffers within it are walked past one by one.
    fn pass_deleted(&mut self) -> Result<bool> {
        let Some(entry) = self.merged.entry().filter(|_| !self.tombstones.is_empty()) else {
            return Ok(false);
        };
        let Some(deleted) = self.tombstones.stretch_over(&entry, self.moment) else {
            return Ok(false);
        };
        let passed = self.merged.move_lead(|lead, forward| match lead {
            CursorSource::Run(_) => Ok(false),
            CursorSource::Tables(tables) => tables.pass(&deleted, forward),
        })?;
        Ok(passed == Some(true))
    }

    /// From where the merged sources stand to the first key with a value.
    fn settle_forward(&mut self) -> Result<()> {
        self.leave();
        loop {
            while self.pass_deleted()? {}
            let Some(entry) = self.merged.entry() else {
                return Ok(());
            };
            if self.is_behind_range(entry.key) {
                return Ok(());
            }
            if entry.sequence > self.moment {
                self.merged.next()?;
                continue;
            }
            // The newest that the moment sees: it decides for its key.
            if is_live(&entry, &self.tombstones, self.moment) {
                self.standing = Standing::Forward;
                self.note_lead();
                return Ok(());
            }
            self.skip_key_forward()?;
        }
    }

    /// From where the merged sources stand backward to a key with a value.
    fn settle_backward(&mut self) -> Result<()> {
        self.leave();
        loop {
            while self.pass_deleted()? {}
            let Some(entry) = self.merged.entry() else {
                return Ok(());
            };
            if self.from.as_deref().is_some_and(|from| entry.key < from) {
                return Ok(());
            }
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            let mut live = false;
            // From the oldest entry of the key to the newest that is seen.
            while let Some(entry) = self.merged.entry().filter(|entry| entry.key == self.key) {
                if entry.sequence <= self.moment {
                    live = is_live(&entry, &self.tombstones, self.moment);
                    self.sequence = entry.sequence;
                    let standing = self.merged.lead().and_then(CursorSource::standing);
                    self.value = standing.map_or(Value::copy_of(&[]), |entry| entry.value_from(0));
                }
                self.merged.previous()?;
            }
            if live {
                self.standing = Standing::Backward;
                return Ok(());
            }
        }
    }
}

#[inline]
fn is_live(entry: &EntryRef<'_>, tombstones: &RangeTombstones, moment: Moment) -> bool {
    entry.kind == EntryKind::Value
        && (tombstones.is_empty() || tombstones.newest_over(entry.key, moment) <= entry.sequence)
}
