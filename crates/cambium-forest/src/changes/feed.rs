//! A feed: the committed batches after a number.

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_api::batch::Namespace;
use cambium_api::{
    Change, ChangeBatch, ChangeFeed, ChangeOptions, CheckReport, KeyRange, Operation,
};
use cambium_base::{Error, Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;
use cambium_storage::record::RecordHeader;

use super::history::not_given_out;
use super::reader::LogReader;
use crate::core::Core;
use crate::database::Database;
use crate::format::{DatabaseHeader, FLAG_MOVED, FLAG_RECOVERED, kind, namespace_and_key};
use crate::planned::range_of;
use crate::recovery::header_at;
use crate::seeded_bug::SeededBug;

/// A reader of committed batches.
#[derive(Debug)]
pub(crate) struct Feed {
    core: Arc<Core>,
    options: ChangeOptions,
    /// Batches up to here are left out.
    after: u64,
    /// Every number up to here was met.
    last: u64,
    /// Numbers up to here may be read of the window.
    limit: u64,
    reader: LogReader,
    /// Names of namespaces, as of `last`.
    names: BTreeMap<u16, Namespace>,
    /// The batch of which a part was read.
    partial: Option<ChangeBatch>,
}

impl Core {
    /// A feed of the batches after a number.
    pub fn changes(self: &Arc<Self>, after: u64, options: ChangeOptions) -> Result<Feed> {
        self.check_open()?;
        let newest = self.visible.load(Ordering::Acquire);
        if after > newest {
            return Err(not_given_out("changes after write", after, newest));
        }
        let start = self.start_after(after)?;
        Ok(Feed {
            core: self.clone(),
            options,
            after,
            last: start.last,
            limit: 0,
            reader: start.reader,
            names: start.names,
            partial: None,
        })
    }

    /// Where a feed of what came after a number begins.
    fn start_after(&self, after: u64) -> Result<Start> {
        let (mut database, mut newest) = self.history.file_after(self, after)?;
        loop {
            let begin = database.log.begin();
            let error = match Start::find(&database, newest, after) {
                Ok(start) => return Ok(start),
                Err(error) => error,
            };
            // A cleaning may have given the place back meanwhile, and that of the header, too.
            if after < self.history.oldest() {
                return Err(lost(self.history.oldest()));
            }
            let before = newest;
            (database, newest) = self.history.file_after(self, after)?;
            if (newest, database.log.begin()) == (before, begin) {
                return Err(error);
            }
        }
    }
}

/// Where a feed begins.
struct Start {
    reader: LogReader,
    /// Every number up to here lies before it.
    last: u64,
    names: BTreeMap<u16, Namespace>,
}

impl Start {
    /// Begins behind the newest header that holds no write after a number, searched for from
    /// another one on; or where the log begins, if that holds no earlier header.
    fn find(database: &Arc<Database>, newest: u64, after: u64) -> Result<Start> {
        let begin = database.log.begin();
        let from = database.changes_from.load(Ordering::Acquire);
        let may_begin_there = begin > database.shape.first_offset() && after >= from;
        let mut offset = newest;
        loop {
            let Some((_, _, header)) = header_at(database, offset)? else {
                let what = "the change feed needs the database header here";
                return Err(database.damage(offset, what));
            };
            let is_before = header.sequence <= after;
            let start = |position, session, last| Start {
                reader: LogReader::new(database.clone(), position, session),
                last,
                names: names_of(&header),
            };
            if is_before && (header.replay_from >= begin || !may_begin_there) {
                let (position, session) = (header.replay_from, header.replay_session);
                return Ok(start(position, session, header.sequence));
            }
            let previous = header.previous;
            let is_oldest = previous == 0 || previous >= offset || previous < begin;
            if may_begin_there && (is_before || is_oldest) {
                return Ok(start(begin, 0, from));
            }
            if previous == 0 || previous >= offset {
                let what = format!("no database header leads to the changes after write {after}");
                return Err(database.damage(offset, what));
            }
            offset = previous;
        }
    }
}

fn names_of(header: &DatabaseHeader) -> BTreeMap<u16, Namespace> {
    let there = header.namespaces.iter().map(|(n, name, _)| (*n, name));
    there
        .map(|(number, name)| (number, namespace(name)))
        .collect()
}

fn namespace(name: &str) -> Namespace {
    (!name.is_empty()).then(|| Arc::from(name))
}

impl ChangeFeed for Feed {
    fn next(&mut self) -> Result<Option<ChangeBatch>> {
        loop {
            self.core.check_open()?;
            if self.looks_again() && !self.raise_limit()? {
                return Ok(None);
            }
            self.core.history.refuse_rolled_back(self.last)?;
            let begin = self.reader.database.log.begin();
            if self.reader.position() < begin {
                if self.begin_behind_hole()? {
                    continue;
                }
                // The feed has shown the changes before that.
                self.reader.skip_to(begin);
            }
            match self.read_on() {
                Ok(None) => {}
                Ok(batch) => return Ok(batch),
                // A cleaning may have made a hole of what was read.
                Err(_) if self.begin_behind_hole()? => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn looks_again(&self) -> bool {
        self.last >= self.limit
    }
}

impl Feed {
    /// Sees how far the feed may read now; false if no further.
    fn raise_limit(&mut self) -> Result<bool> {
        let visible = self.core.visible.load(Ordering::Acquire);
        let synced = self.core.synced_through.load(Ordering::Acquire);
        let only_synced =
            self.options.synced_only && !self.core.has_bug(SeededBug::ChangesBeforeSync);
        let limit = match only_synced {
            true => visible.min(synced),
            false => visible,
        };
        // After `visible`: it becomes a rollback's number after the rollback is noted.
        self.core.history.refuse_rolled_back(self.last)?;
        // At once: the next file may be replaced too before there is more to read.
        while self.is_at_end_of_file() {
            self.enter_next_file()?;
        }
        if limit <= self.last {
            return Ok(false);
        }
        let end = self.reader.database.last_write();
        self.limit = end.map_or(limit, |end| limit.min(end));
        // What was read ahead of the last limit may have been taken back since.
        self.reader.forget_window();
        Ok(true)
    }

    /// Begins at a newer header where a cleaning has given back changes that the feed leaves
    /// out; false where it has given back none that come next.
    ///
    /// # Errors
    /// `HistoryLost` where the feed would have shown them.
    fn begin_behind_hole(&mut self) -> Result<bool> {
        let from = &self.reader.database.changes_from;
        let from = from.load(Ordering::Acquire);
        if self.last >= from {
            return Ok(false);
        }
        if self.after < from {
            return Err(lost(self.core.history.oldest()));
        }
        self.read_after(self.after)?;
        self.limit = 0;
        Ok(true)
    }

    /// Takes the next record; answers the batch that it completes.
    fn read_on(&mut self) -> Result<Option<ChangeBatch>> {
        match self.reader.next()? {
            Some(header) => self.take(&header),
            None => Err(self.missing()),
        }
    }

    fn is_at_end_of_file(&self) -> bool {
        let end = self.reader.database.last_write();
        end.is_some_and(|end| self.last >= end)
    }

    fn enter_next_file(&mut self) -> Result<()> {
        let shown = self.last;
        self.read_after(shown)?;
        self.after = self.after.max(shown);
        Ok(())
    }

    /// Reads on at the newest header that is not past a number.
    fn read_after(&mut self, number: u64) -> Result<()> {
        let start = self.core.start_after(number)?;
        self.reader = start.reader;
        self.names = start.names;
        self.last = start.last;
        self.partial = None;
        Ok(())
    }

    fn missing(&mut self) -> Error {
        let (next, limit) = (self.last + 1, self.limit);
        let what = format!("write {next} is missing in the log, and write {limit} is the last");
        self.reader.damage(what)
    }

    /// Takes a record; answers the batch that it completes.
    fn take(&mut self, header: &RecordHeader) -> Result<Option<ChangeBatch>> {
        let sequence = header.sequence.0;
        match header.kind {
            kind::NODES | kind::MOVED | kind::SYNCED => return Ok(None),
            kind::HEADER => return self.take_header(header).map(|()| None),
            // A crash has lost the record before the blocks that a cleaning wrote.
            _ if header.flags & FLAG_MOVED != 0 => return Ok(None),
            _ => {}
        }
        if sequence <= self.last {
            return Ok(None);
        }
        if sequence != self.last + 1 {
            return Err(self.missing());
        }
        let Some((number, key_bytes)) = namespace_and_key(header) else {
            return Err(self.strange());
        };
        self.last = sequence;
        self.take_name(header, number);
        if sequence + u64::from(header.batch_remaining) <= self.after {
            return Ok(None);
        }
        if header.batch_index == 0 || self.partial.is_none() {
            self.partial = Some(ChangeBatch {
                first: header.sequence,
                last: header.sequence,
                synced: false,
                changes: Vec::new(),
            });
        }
        let operation = self.operation(header.kind, key_bytes)?;
        let namespace = self.name_of(number, header.kind)?;
        if header.kind == kind::NAMESPACE_DROPPED {
            self.names.remove(&number);
        }
        self.add(header, operation.zip(namespace))
    }

    /// Adds an operation to the batch; answers the batch with its last one.
    fn add(
        &mut self,
        header: &RecordHeader,
        change: Option<(Operation, Namespace)>,
    ) -> Result<Option<ChangeBatch>> {
        let Some(batch) = &mut self.partial else {
            return Ok(None);
        };
        batch.last = header.sequence;
        if let Some((operation, namespace)) = change {
            batch.changes.push(Change {
                namespace,
                operation,
                expires: None,
            });
        }
        let halved = self.core.has_bug(SeededBug::ChangesHalveBatch) && batch.changes.len() == 2;
        if header.batch_remaining > 0 && !halved {
            return Ok(None);
        }
        let batch = self
            .partial
            .take()
            .filter(|batch| !batch.changes.is_empty());
        Ok(batch.map(|batch| ChangeBatch {
            synced: batch.last.0 <= self.core.synced_through.load(Ordering::Acquire),
            ..batch
        }))
    }

    /// A recovery's header says which numbers it left out.
    fn take_header(&mut self, header: &RecordHeader) -> Result<()> {
        if header.flags & FLAG_RECOVERED == 0 {
            return Ok(());
        }
        let (cut, base) = (header.synced_through.0, header.sequence.0);
        if self.last < cut {
            return Err(self.missing());
        }
        self.last = self.last.max(base);
        self.partial = None;
        Ok(())
    }

    fn take_name(&mut self, header: &RecordHeader, number: u16) {
        if header.kind == kind::NAMESPACE {
            let name = String::from_utf8_lossy(self.reader.payload());
            self.names.insert(number, namespace(&name));
        }
    }

    /// The name of a namespace; `None` if there is none of that number.
    fn name_of(&mut self, number: u16, of: u8) -> Result<Option<Namespace>> {
        if !self.names.contains_key(&number) {
            // The header where this feed began was written after the namespace was dropped,
            // and says what was before: so the drop lies ahead, with the name.
            let name = match of {
                kind::NAMESPACE_DROPPED => Some(self.reader.payload().to_vec()),
                _ => self.reader.name_of_dropped(number)?,
            };
            if let Some(name) = name {
                let name = String::from_utf8_lossy(&name);
                self.names.insert(number, namespace(&name));
            }
        }
        Ok(self.names.get(&number).cloned())
    }

    /// What a record does; `None` for the creation of a namespace.
    fn operation(&mut self, of: u8, key_bytes: usize) -> Result<Option<Operation>> {
        let (key, value) = self.reader.payload().split_at(key_bytes);
        Ok(Some(match of {
            kind::PUT => Operation::Put {
                key: key.to_vec(),
                value: value.to_vec(),
            },
            kind::DELETE => Operation::Delete { key: key.to_vec() },
            kind::RANGE_DELETED => Operation::DeleteRange {
                range: range_of(key, value),
            },
            kind::NAMESPACE_DROPPED => Operation::DeleteRange {
                range: KeyRange::all(),
            },
            kind::NAMESPACE => return Ok(None),
            _ => return Err(self.strange()),
        }))
    }

    fn strange(&mut self) -> Error {
        let what = "a record whose checksums match is nothing of this format";
        self.reader.damage(what.to_string())
    }
}

/// Reads what consumers have before them, for a check.
pub(crate) fn check_history(core: &Arc<Core>, report: &mut CheckReport) -> Result<()> {
    let Some(after) = core.history.needed_after() else {
        return Ok(());
    };
    let read_all = || -> Result<()> {
        let mut feed = core.changes(after, ChangeOptions::default())?;
        while feed.next()?.is_some() {}
        Ok(())
    };
    match read_all() {
        // Given back, or rolled back, since the check began.
        Err(Error::HistoryLost { .. }) | Ok(()) => Ok(()),
        Err(error) => report.take(error),
    }
}

/// `SequenceNumber` of a number, for errors.
pub(super) fn lost(oldest: u64) -> Error {
    Error::HistoryLost {
        oldest: SequenceNumber(oldest),
    }
}
