//! Merging the data files by sequence number.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use cambium_api::{Change, ChangeBatch, ChangeFeed, ChangeOptions, KeyRange, Operation};
use cambium_base::{Error, Result, SequenceNumber, Value};
use cambium_io::sync::atomic::Ordering;
use cambium_storage::record::RecordHeader;

use super::reader::FileReader;
use crate::bucket::Bucket;
use crate::catalog::DataEntry;
use crate::core::{CellState, Core, lock, read};
use crate::data_file::DataFile;
use crate::format::{FLAG_SPLIT, kind, range_bounds};
use crate::options::Keys;
use crate::recovery::SEQUENCE_EPOCH;
use crate::seeded_bug::SeededBug;

/// A feed over the store's data files.
pub(super) struct Feed {
    core: Arc<Core>,
    options: ChangeOptions,
    /// By the number of the data file.
    readers: HashMap<u64, FileReader>,
    /// The next entry of each reader: its sequence number and its file.
    heads: BinaryHeap<Reverse<(u64, u64)>>,
    /// Heads are entries up to here.
    limit: u64,
    /// The last entry that was read.
    read: u64,
    /// The batch that entry belongs to, as far as it was read.
    begun: Option<Begun>,
    /// Nothing was read yet: `read` may lie within a batch.
    at_begin: bool,
}

/// A batch that is being read.
struct Begun {
    first: u64,
    changes: Vec<Change>,
    is_whole: bool,
}

/// A data file that may hold entries the feed has not read.
struct Source {
    file: u64,
    table: u64,
    place: u32,
    opened: Opened,
}

enum Opened {
    /// It belongs to an open table.
    Open(Arc<DataFile>),
    /// Nothing is written to it.
    Closed(DataEntry),
}

impl ChangeFeed for Feed {
    fn next(&mut self) -> Result<Option<ChangeBatch>> {
        self.core.check_open()?;
        loop {
            if let Some(batch) = self.next_up_to_limit()? {
                return Ok(Some(batch));
            }
            if !self.look_again()? {
                return Ok(None);
            }
        }
    }

    fn looks_again(&self) -> bool {
        self.read >= self.limit
    }
}

impl Feed {
    /// A feed of what follows entry `after`.
    pub fn new(core: Arc<Core>, after: u64, options: ChangeOptions) -> Result<Feed> {
        let mut feed = Feed {
            core,
            options,
            readers: HashMap::new(),
            heads: BinaryHeap::new(),
            limit: after,
            read: after,
            begun: None,
            at_begin: true,
        };
        // From now on a compaction cannot take these files away.
        feed.meet_files()?;
        Ok(feed)
    }

    /// Up to which number batches may be shown now. Batches end at it.
    fn shown_through(&self) -> u64 {
        let visible = self.core.visible.load(Ordering::Acquire);
        let synced_only =
            self.options.synced_only && !self.core.has_bug(SeededBug::UnsyncedChangesShown);
        match synced_only {
            true => visible.min(self.core.synced.load(Ordering::Acquire)),
            false => visible,
        }
    }

    /// Reads on where there are new entries; false if there are none.
    fn look_again(&mut self) -> Result<bool> {
        // Before the files are asked for their ends: entries up to here lie before them.
        let limit = self.shown_through();
        if limit <= self.read {
            return Ok(false);
        }
        self.meet_files()?;
        for (&file, reader) in &mut self.readers {
            reader.look_again();
            let loaded = load(&mut self.heads, file, reader, limit);
            if loaded.is_err() {
                self.forget_heads();
                return loaded.map(|()| false);
            }
        }
        self.limit = limit;
        Ok(true)
    }

    /// After a failed read: the next call reads the heads again.
    fn forget_heads(&mut self) {
        self.heads.clear();
        self.readers.values_mut().for_each(FileReader::forget_head);
        self.limit = self.read;
    }

    /// The next batch up to the limit that changes anything.
    fn next_up_to_limit(&mut self) -> Result<Option<ChangeBatch>> {
        loop {
            if let Some(batch) = self.whole_batch() {
                match batch.changes.is_empty() {
                    true => continue,
                    false => return Ok(Some(batch)),
                }
            }
            if self.read >= self.limit {
                return Ok(None);
            }
            let Some(&Reverse((sequence, file))) = self.heads.peek() else {
                self.require_no_gap(self.limit + 1)?;
                self.read = self.limit;
                return Ok(None);
            };
            self.require_no_gap(sequence)?;
            self.take(file)?;
        }
    }

    /// The batch that was begun, if all of it was read.
    fn whole_batch(&mut self) -> Option<ChangeBatch> {
        let begun = self.begun.take_if(|begun| begun.is_whole)?;
        Some(ChangeBatch {
            first: SequenceNumber(begun.first),
            last: SequenceNumber(self.read),
            synced: self.read <= self.core.synced.load(Ordering::Acquire),
            changes: begun.changes,
        })
    }

    /// Adds the next entry of a file, which comes next of all, to the batch.
    fn take(&mut self, file: u64) -> Result<()> {
        let Some(reader) = self.readers.get_mut(&file) else {
            return Ok(());
        };
        let Some(&header) = reader.head() else {
            return Ok(());
        };
        if self.begun.is_none() && header.batch_index > 0 && self.at_begin {
            self.begin_at(header.batch_first().0.saturating_sub(1));
            return Ok(());
        }
        self.at_begin = false;
        let begun = self.begun.get_or_insert_with(|| Begun {
            first: header.sequence.0,
            changes: Vec::new(),
            is_whole: false,
        });
        if begun.first != header.batch_first().0 {
            return Err(damaged_batch(&reader.file, &header));
        }
        let (key, value) = reader.entry()?;
        match self.core.shape.keys {
            Keys::Integer => {
                let change = integer_change(&header, key, value)
                    .ok_or_else(|| damaged_batch(&reader.file, &header))?;
                // Each data file has an entry for its keys of a range.
                if header.kind != kind::DELETE_RANGE || begun.changes.last() != Some(&change) {
                    begun.changes.push(change);
                }
            }
            Keys::String => string_changes(&header, value, &mut begun.changes)
                .ok_or_else(|| damaged_batch(&reader.file, &header))?,
        }
        let half = self.core.has_bug(SeededBug::ChangesSplit);
        begun.is_whole = header.batch_remaining == 0 || half;
        self.read = header.sequence.0;
        self.heads.pop();
        reader.pass();
        let loaded = load(&mut self.heads, file, reader, self.limit);
        if loaded.is_err() {
            self.forget_heads();
        }
        loaded
    }

    /// Begins anew after an entry.
    fn begin_at(&mut self, after: u64) {
        self.readers.clear();
        self.heads.clear();
        (self.read, self.limit) = (after, after);
    }

    /// Refuses to go on with entry `next` where others should come before it.
    fn require_no_gap(&self, next: u64) -> Result<()> {
        if next == self.read + 1 {
            return Ok(());
        }
        let lost = lock(&self.core.past).lost;
        if lost > self.read {
            return Err(Error::HistoryLost {
                oldest: SequenceNumber(lost),
            });
        }
        // After a crash, numbers go on with the next epoch.
        let is_epoch = next > self.read && (next - 1) % SEQUENCE_EPOCH == 0;
        if is_epoch && self.begun.is_none() {
            return Ok(());
        }
        Err(Error::corruption(
            &self.core.path,
            0,
            format!(
                "entry {} is in no data file, and entry {next} is the next one; `cambium check` lists the damage",
                self.read + 1
            ),
        ))
    }
}

/// Makes a reader's next entry up to `limit` a head.
fn load(
    heads: &mut BinaryHeap<Reverse<(u64, u64)>>,
    file: u64,
    reader: &mut FileReader,
    limit: u64,
) -> Result<()> {
    reader.load(limit)?;
    if let Some(head) = reader.head() {
        heads.push(Reverse((head.sequence.0, file)));
    }
    Ok(())
}

fn damaged_batch(file: &DataFile, header: &RecordHeader) -> Error {
    let what = format!("entry {} does not fit into its batch", header.sequence);
    Error::corruption(file.log.path(), 0, what)
}

/// The change of an entry; `None` where its value is no range.
fn integer_change(header: &RecordHeader, key: u64, value: &[u8]) -> Option<Change> {
    let key = key.to_be_bytes().to_vec();
    Some(change_of(match header.kind {
        kind::PUT => Operation::Put {
            key,
            value: value.to_vec(),
        },
        kind::DELETE_RANGE => {
            let (from, to) = range_bounds(value)?;
            Operation::DeleteRange {
                range: KeyRange {
                    from: Some(from.to_vec()),
                    to: to.map(<[u8]>::to_vec),
                },
            }
        }
        _ => Operation::Delete { key },
    }))
}

/// The keys that the write of a bucket changed; `None` where the value is no bucket.
fn string_changes(header: &RecordHeader, value: &[u8], changes: &mut Vec<Change>) -> Option<()> {
    if header.flags & FLAG_SPLIT != 0 {
        return Some(());
    }
    let bucket = Bucket::decode(&Value::copy_of(value))?;
    for (key, value) in bucket.put_pairs() {
        let (key, value) = (key.to_vec(), value.to_vec());
        changes.push(change_of(Operation::Put { key, value }));
    }
    for key in bucket.deleted_keys() {
        let key = key.to_vec();
        changes.push(change_of(Operation::Delete { key }));
    }
    Some(())
}

fn change_of(operation: Operation) -> Change {
    Change {
        namespace: None,
        operation,
        expires: None,
    }
}

impl Feed {
    /// Has a reader for each file that holds entries which were not read, or may get some
    /// before the feed looks again.
    fn meet_files(&mut self) -> Result<()> {
        let sources = self.sources();
        let mut met = HashSet::with_capacity(sources.len());
        for source in sources {
            met.insert(source.file);
            if let Err(error) = self.meet(&source) {
                // Removed since it was listed: the gap that it leaves is found.
                if lock(&self.core.past).lost <= self.read {
                    return Err(error);
                }
            }
        }
        // Others were replaced and removed, and can still be read.
        self.readers
            .retain(|file, reader| met.contains(file) || !reader.is_at_end());
        Ok(())
    }

    /// The files of open tables, and those of others with entries that were not read. Of
    /// what is closed and was read, no file stays open.
    fn sources(&mut self) -> Vec<Source> {
        let mut sources = Vec::new();
        for (&table, cell) in self.core.tables.load().iter() {
            let state = read(&cell.state);
            match &*state {
                CellState::Open(table) => {
                    let files = table.current_files().into_iter();
                    sources.extend(files.map(|file| Source {
                        file: file.file.number.0,
                        table: file.table,
                        place: file.place,
                        opened: Opened::Open(file),
                    }));
                }
                CellState::Closed(entry) => {
                    for (place, data) in entry.files.iter().enumerate() {
                        if data.last_sequence <= self.read {
                            self.readers.remove(&data.file.number.0);
                            continue;
                        }
                        sources.push(Source {
                            file: data.file.number.0,
                            table,
                            place: place as u32,
                            opened: Opened::Closed(*data),
                        });
                    }
                }
            }
        }
        // After the tables: a file is kept before it is replaced.
        for kept in &lock(&self.core.past).kept {
            if kept.through > self.read {
                sources.push(Source {
                    file: kept.file.number.0,
                    table: kept.table,
                    place: kept.place,
                    opened: Opened::Closed(kept.as_entry()),
                });
            }
        }
        sources
    }

    /// Makes a reader for a file, or gives the one that there is the file as it is open now.
    fn meet(&mut self, source: &Source) -> Result<()> {
        let known = self.readers.get_mut(&source.file);
        let file = match (&source.opened, &known) {
            (Opened::Open(file), _) => file.clone(),
            (Opened::Closed(data), Some(reader)) if reader.file.log.end() >= data.replay_from => {
                return Ok(());
            }
            (Opened::Closed(data), _) => {
                let place = (source.table, source.place);
                Arc::new(DataFile::open(&self.core.home, data, place)?)
            }
        };
        match known {
            Some(reader) => reader.file = file,
            None => {
                let cuts = match self.core.has_bug(SeededBug::CutChangesShown) {
                    true => Vec::new(),
                    false => lock(&self.core.past).cuts_of(file.file.number),
                };
                let reader = FileReader::new(file, cuts, self.read)?;
                self.readers.insert(source.file, reader);
            }
        }
        Ok(())
    }
}
