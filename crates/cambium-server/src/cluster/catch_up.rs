//! Frames that have left the window, from the store's change feed, and copies of partitions.
//!
//! The change feed is the store's own log, so a batch of it has the entries and the records of
//! all partitions that it changed: their frames. One feed serves all partitions that a link
//! has to bring up. It begins at a *mark*, a number of the store at which the positions of the
//! partitions were noted; where no mark is old enough, at the store's consumer, which keeps
//! the log behind it while members are away (option `history_bytes`).

use std::sync::Arc;
use std::time::Duration;

use cambium::{ChangeOptions, Changes, Entries, Error, Operation, Result, Store};
use cambium_api::SequenceNumber;
use cambium_io::sync::atomic::{AtomicBool, Ordering};
use cambium_io::sync::{Mutex, lock};

use crate::keyspace::Keyspace;
use crate::keyspace::layout;
use crate::keyspace::partitions::{Frame, Record};

/// The consumer of the store that keeps its log.
const CONSUMER: &str = "cluster";
/// Time between two marks.
pub const MARK_INTERVAL: Duration = Duration::from_secs(2);
/// Marks that are kept while all members serve, and while one is away.
const MARKS: usize = 30;
const MOST_MARKS: usize = 4096;

/// The positions of all partitions at a sequence number of the store.
#[derive(Debug)]
struct Mark {
    sequence: SequenceNumber,
    numbers: Vec<u64>,
}

/// The batches that the window does not have any more.
#[derive(Debug)]
pub struct History {
    store: Store,
    partitions: u8,
    /// Batches count when they are synced.
    synced_only: bool,
    /// Marks are pushed and removed in one step each.
    marks: Mutex<Vec<Mark>>,
    /// Every member of every chain of this node serves: old log may go.
    pub all_serve: AtomicBool,
}

impl History {
    /// The history of a node's store.
    pub fn new(store: Store, partitions: u8, synced_only: bool) -> History {
        History {
            store,
            partitions,
            synced_only,
            marks: Mutex::default(),
            all_serve: AtomicBool::new(false),
        }
    }

    /// How far this node's copy of a partition has come.
    ///
    /// # Errors
    /// Those of the store.
    pub fn record(&self, partition: u8) -> Result<Record> {
        Keyspace::record_in(&self.store.snapshot()?, partition)
    }

    /// Notes where the partitions are, and lets go of log that is not needed.
    ///
    /// # Errors
    /// Those of the store.
    pub fn mark(&self) -> Result<()> {
        if !self.store.capabilities().changes {
            return Ok(());
        }
        let snapshot = self.store.snapshot()?;
        let number = |partition| {
            let record = Keyspace::record_in(&snapshot, partition)?;
            Ok(record.position.number)
        };
        let mark = Mark {
            sequence: snapshot.sequence(),
            numbers: (0..self.partitions).map(number).collect::<Result<_>>()?,
        };
        let mut marks = lock(&self.marks);
        marks.push(mark);
        let most = match self.all_serve.load(Ordering::Relaxed) {
            true => MARKS,
            false => MOST_MARKS,
        };
        let excess = marks.len().saturating_sub(most);
        marks.drain(..excess);
        let oldest = marks[0].sequence;
        drop(marks);
        let consumer = self.store.consumer(CONSUMER)?;
        match consumer.position() {
            // At first it stays where the last start of the node has left it: members that
            // were away meanwhile need that part of the log.
            Ok(position) if excess == 0 || position >= oldest => Ok(()),
            _ => consumer.acknowledge(oldest),
        }
    }

    /// A feed for partitions from a number each on. It is certain to have every batch if a
    /// mark was old enough; otherwise it has what the log has.
    ///
    /// # Errors
    /// Those of the store, but for history that is lost: that is no feed.
    pub fn feed(&self, wanted: &[(u8, u64)]) -> Result<Option<Feed>> {
        if !self.store.capabilities().changes {
            return Ok(None);
        }
        let is_before = |mark: &&Mark| {
            wanted
                .iter()
                .all(|(partition, next)| mark.numbers[usize::from(*partition)] < *next)
        };
        let after = lock(&self.marks)
            .iter()
            .rev()
            .find(is_before)
            .map(|mark| mark.sequence);
        let is_certain = after.is_some();
        let after = match after {
            Some(after) => after,
            None => match self.store.consumer(CONSUMER)?.position() {
                Ok(position) => position,
                Err(_) => return Ok(None),
            },
        };
        let options = ChangeOptions {
            synced_only: self.synced_only,
        };
        match self.store.changes_with(after, options) {
            Ok(changes) => Ok(Some(Feed {
                changes,
                is_certain,
            })),
            Err(Error::HistoryLost { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A copy of a partition as of now.
    ///
    /// # Errors
    /// Those of the store.
    pub fn copy(&self, partition: u8) -> Result<Copy> {
        let snapshot = self.store.snapshot()?;
        if self.synced_only {
            self.store.sync()?;
        }
        let record = Keyspace::record_in(&snapshot, partition)?;
        let is_ordered = self.store.capabilities().ordered;
        let entries = match is_ordered {
            true => snapshot.scan(layout::database(partition))?,
            false => snapshot.iterate()?,
        };
        Ok(Copy {
            partition,
            about: record.count.keys * (1 + u64::from(is_ordered)) + record.count.expiring,
            copied: 0,
            record,
            entries,
        })
    }
}

/// Frames of all partitions, from the store's log.
#[derive(Debug)]
pub struct Feed {
    changes: Changes,
    /// It has every batch that was asked for, or will have it.
    pub is_certain: bool,
}

impl Feed {
    /// The frames of the next batch; `None` at the end of the log.
    ///
    /// # Errors
    /// `HistoryLost`, and those of the store.
    pub fn next(&mut self) -> Result<Option<Vec<Frame>>> {
        let Some(batch) = self.changes.try_next()? else {
            return Ok(None);
        };
        let operations: Vec<Operation> = batch
            .changes
            .into_iter()
            .map(|change| change.operation)
            .collect();
        let records = operations.iter().filter_map(|operation| match operation {
            Operation::Put { key, value } => {
                Some((layout::partition_of_record(key)?, Record::decode(value)?))
            }
            _ => None,
        });
        let frame = |(partition, record): (u8, Record)| {
            let own = operations.iter().filter(|operation| {
                let key = match operation {
                    Operation::Put { key, .. } | Operation::Delete { key } => Some(key),
                    Operation::DeleteRange { range } => range.from.as_ref(),
                };
                key.is_some_and(|key| key.first() == Some(&partition))
            });
            Frame::new(partition, &record, own)
        };
        // A copy is no batch of its partition: it is found as a gap.
        let frames = records.filter(|(_, record)| record.is_whole).map(frame);
        Ok(Some(frames.collect()))
    }
}

/// A copy of a partition.
#[derive(Debug)]
pub struct Copy {
    /// The partition.
    pub partition: u8,
    /// How far it had come.
    pub record: Record,
    /// Entries so far.
    copied: u64,
    /// About how many there are. The fields of hashes are not counted before they are copied.
    about: u64,
    entries: Entries,
}

impl Copy {
    /// Entries so far, and about how many there are.
    pub fn progress(&self) -> (u64, u64) {
        (self.copied, self.about.max(self.copied))
    }

    /// About so many bytes of entries; none at the end.
    ///
    /// # Errors
    /// Those of the store.
    pub fn next(&mut self, most_bytes: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (mut few, mut bytes) = (Vec::new(), 0);
        while bytes < most_bytes {
            let Some(entry) = self.entries.next().transpose()? else {
                break;
            };
            if entry.key.first() == Some(&self.partition) {
                bytes += entry.key.len() + entry.value.len() + 16;
                few.push((entry.key.to_vec(), entry.value.to_vec()));
            }
        }
        self.copied += few.len() as u64;
        Ok(few)
    }
}

/// Marks until the server stops.
pub fn keep(history: &Arc<History>, sleep: &dyn Fn(Duration), is_over: &dyn Fn() -> bool) {
    while !is_over() {
        if let Err(error) = history.mark() {
            tracing::warn!(%error, "members that come back may have to be copied to");
        }
        sleep(MARK_INTERVAL);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on has failed
mod tests {
    use cambium_cluster::position::Position;
    use cambium_io::environment::MemoryBudget;

    use super::*;
    use crate::keyspace::partitions::Partitions;

    /// The last part of a copy has the number of the last batch, and not what it wrote.
    #[test]
    fn a_copy_is_no_batch_of_the_feed() {
        let position = Position::default().next(1).next(1).next(1);
        let record = Record {
            first: position.number,
            position: position.clone(),
            ..Record::of_nothing()
        };
        for parts in [2, 1] {
            let folder = tempfile::tempdir().unwrap();
            let store = cambium::open_or_create(folder.path().join("store")).unwrap();
            let history = History::new(store.clone(), 1, false);
            history.mark().unwrap();
            let memory = MemoryBudget::unlimited();
            let mut keyspace = Keyspace::open(store.clone(), 1, false, 0, memory).unwrap();
            keyspace.partitions = Some(Partitions::load(&store, 1, "n", 1).unwrap());
            keyspace.begin_copy(0).unwrap();
            keyspace.copy_entry(layout::entry_key(0, b"oak"), b"Quercus".to_vec());
            if parts == 2 {
                keyspace.commit(1, 0).unwrap();
            }
            keyspace.end_copy(0, record.clone());
            keyspace.commit(2, 0).unwrap();
            let next = Record {
                first: 4,
                position: position.next(1),
                ..record.clone()
            };
            keyspace.apply_frame(0, b"", next, Vec::new());
            keyspace.commit(3, 0).unwrap();
            let mut feed = history.feed(&[(0, 1)]).unwrap().unwrap();
            let mut numbers = Vec::new();
            while let Some(frames) = feed.next().unwrap() {
                numbers.extend(frames.iter().map(|frame| frame.numbers));
            }
            let batches = numbers.iter().filter(|(first, last)| first <= last);
            assert_eq!(batches.collect::<Vec<_>>(), [&(4, 4)], "{numbers:?}");
        }
    }
}
