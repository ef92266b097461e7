//! Databases as replicated partitions of a cluster.
//!
//! In a cluster a partition is a database of the store, so a node's store holds all of its
//! partitions, and a round stays one batch. Beside the entries of a partition stands its
//! *record*: how far this copy has come, written with each batch that changes the partition.
//!
//! A *frame* is what one batch did to one partition. The head makes it when a round is
//! written; the members behind apply it as it is, and hand it on. As bytes:
//!
//! ```text
//! length of record · record ·  1 · length · key · length · value     put
//!                              2 · length · key                      delete
//!                              3 · length · from · length · to       delete a range
//! ```
//!
//! with lengths as varints, and keys as the store has them. The record:
//!
//! ```text
//! is whole 1 · first batch 8 · next number of a hash 8 · keys 8 · expiring keys 8 · position
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cambium::{Error, KeyRange, Operation, Result, Store, Value, WriteBatch};
use cambium_base::coding::Decoder;
use cambium_base::varint::put_varint_prefixed;
use cambium_cluster::position::Position;
use cambium_cluster::replica::Replica;
use foldhash::fast::RandomState;

use super::Keyspace;
use super::layout::{self, Count};

/// In place of a key's hash: any key of the partition may have changed.
pub const WHOLE: u64 = 0;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_RANGE: u8 = 3;

/// How far a copy of a partition has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// False while a copy is under way.
    pub is_whole: bool,
    /// The first batch that was written with this record; the last is in the position, and
    /// before the first where there is none.
    pub first: u64,
    /// At least the number of the next hash.
    pub next_number: u64,
    /// Keys of the partition.
    pub count: Count,
    /// How far it has come.
    pub position: Position,
}

impl Record {
    /// The record of a copy that has nothing.
    pub fn of_nothing() -> Record {
        Record {
            is_whole: true,
            ..Record::default()
        }
    }

    /// The record of a partition as the store has it. Where there is none, the copy has nothing,
    /// and that is all of it: a chain without batches is copied as any other.
    fn stored(stored: Option<Value>, partition: u8) -> Result<Record> {
        match stored {
            None => Ok(Record::of_nothing()),
            Some(stored) => Record::decode(&stored).ok_or_else(|| {
                let text =
                    format!("the record of partition {partition} is not one of this version");
                Error::InvalidArgument(text)
            }),
        }
    }

    /// Writes the record; see the module.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.is_whole)];
        let numbers = [
            self.first,
            self.next_number,
            self.count.keys,
            self.count.expiring,
        ];
        for number in numbers {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.position.encode(&mut bytes);
        bytes
    }

    /// Reads a record; `None` if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let mut decoder = Decoder::new(bytes);
        let is_whole = decoder.u8()? == 1;
        let (first, next_number) = (decoder.u64()?, decoder.u64()?);
        let (keys, expiring) = (decoder.u64()?, decoder.u64()?);
        let position = Position::decode(&mut decoder)?;
        (decoder.remaining() == 0).then_some(Record {
            is_whole,
            first,
            next_number,
            count: Count { keys, expiring },
            position,
        })
    }
}

/// The changes that one batch made to one partition.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The partition.
    pub partition: u8,
    /// The first and the last batch of the partition that are in it.
    pub numbers: (u64, u64),
    /// The epoch in which the last one was made.
    pub epoch: u64,
    /// As it travels.
    pub bytes: Arc<[u8]>,
}

impl Frame {
    /// True for what stands for a part of a copy: it is not handed on.
    pub fn is_copy(&self) -> bool {
        self.bytes.is_empty()
    }

    /// A frame of a record as it is stored, and of what was done beside it.
    pub fn new<'a>(
        partition: u8,
        record: &Record,
        operations: impl Iterator<Item = &'a Operation>,
    ) -> Frame {
        let mut bytes = Vec::new();
        put_varint_prefixed(&mut bytes, &record.encode());
        for operation in operations {
            match operation {
                Operation::Put { key, value } => {
                    bytes.push(PUT);
                    put_varint_prefixed(&mut bytes, key);
                    put_varint_prefixed(&mut bytes, value);
                }
                Operation::Delete { key } => {
                    bytes.push(DELETE);
                    put_varint_prefixed(&mut bytes, key);
                }
                Operation::DeleteRange { range } => {
                    bytes.push(DELETE_RANGE);
                    put_varint_prefixed(&mut bytes, range.from.as_deref().unwrap_or_default());
                    put_varint_prefixed(&mut bytes, range.to.as_deref().unwrap_or_default());
                }
            }
        }
        Frame {
            partition,
            numbers: (record.first, record.position.number),
            epoch: record.position.epoch(),
            bytes: bytes.into(),
        }
    }

    /// Reads a frame of a partition; `None` if it is none.
    pub fn decode(partition: u8, bytes: &[u8]) -> Option<(Record, Vec<Operation>)> {
        let mut decoder = Decoder::new(bytes);
        let record = Record::decode(decoder.varint_prefixed()?)?;
        let mut operations = Vec::new();
        while let Some(kind) = decoder.u8() {
            let key = decoder.varint_prefixed()?.to_vec();
            if key.first() != Some(&partition) {
                return None;
            }
            operations.push(match kind {
                PUT => {
                    let value = decoder.varint_prefixed()?.to_vec();
                    Operation::Put { key, value }
                }
                DELETE => Operation::Delete { key },
                DELETE_RANGE => {
                    let to = decoder.varint_prefixed()?.to_vec();
                    let range = KeyRange {
                        from: Some(key),
                        to: Some(to),
                    };
                    let all = layout::database(partition);
                    if range.to > all.to {
                        return None;
                    }
                    Operation::DeleteRange { range }
                }
                _ => return None,
            });
        }
        Some((record, operations))
    }
}

/// The partitions of a node.
#[derive(Debug)]
pub struct Partitions {
    /// By partition: what this node is in its chain.
    pub replicas: Vec<Replica>,
    /// Frames of the batches that are written, which nobody has taken yet.
    pub frames: Vec<Frame>,
    /// Frames that are applied, and written with this round.
    applied: Vec<Frame>,
    /// By partition, what the applied frames begin with, and the position before them.
    applying: HashMap<u8, (u64, Replica)>,
    /// By partition: keys whose last write is not committed, by hash, with its number.
    dirty: Vec<HashMap<u64, u64, RandomState>>,
    /// The time of the round.
    pub now: Duration,
    /// This node may serve in this round.
    pub is_fresh: bool,
}

impl Partitions {
    /// Reads the records of a store.
    ///
    /// # Errors
    /// Those of the store; `InvalidArgument` for a record that is none.
    pub fn load(store: &Store, count: u8, node: &str, incarnation: u64) -> Result<Partitions> {
        let replica = |partition: u8| {
            let record = Record::stored(store.get(layout::partition_key(partition))?, partition)?;
            Ok(Replica::new(
                node,
                incarnation,
                record.position,
                record.is_whole,
            ))
        };
        Ok(Partitions {
            replicas: (0..count).map(replica).collect::<Result<_>>()?,
            frames: Vec::new(),
            applied: Vec::new(),
            applying: HashMap::new(),
            dirty: vec![HashMap::default(); usize::from(count)],
            now: Duration::ZERO,
            is_fresh: false,
        })
    }

    /// The partition's member on this node.
    pub fn replica(&mut self, partition: u8) -> Option<&mut Replica> {
        self.replicas.get_mut(usize::from(partition))
    }

    /// True if this node takes the writes of a partition now.
    pub fn leads(&self, partition: u8) -> bool {
        let replica = self.replicas.get(usize::from(partition));
        self.is_fresh && replica.is_some_and(|replica| replica.may_write(self.now).is_ok())
    }

    /// The number of the last write of a key, if it is not committed.
    pub fn dirty_number(&self, key: &[u8], hash: u64) -> u64 {
        let of = key
            .first()
            .and_then(|place| self.dirty.get(usize::from(*place)));
        let number = |hash| of.and_then(|keys| keys.get(&hash)).copied().unwrap_or(0);
        number(hash).max(number(WHOLE))
    }

    /// Forgets the keys of partitions in which all is committed.
    pub fn clean(&mut self) {
        for (replica, dirty) in self.replicas.iter().zip(&mut self.dirty) {
            if !dirty.is_empty() && replica.committed(self.now) >= replica.position().number {
                dirty.clear();
            }
        }
    }
}

impl Keyspace {
    /// True if this node takes writes of a database: of every one without a cluster.
    pub fn leads(&self, database: u8) -> bool {
        let partitions = self.partitions.as_ref();
        partitions.is_none_or(|partitions| partitions.leads(database))
    }

    /// This node may have begun to take the writes of a partition: what is remembered of its
    /// keys may be of the time before.
    pub fn forget_remembered(&mut self) {
        self.recent.forget_all();
        self.soonest.fill((0, Vec::new()));
    }

    /// Numbers the batches of the partitions that this node leads, and adds their records.
    pub(super) fn number_batches(&mut self, batch: &mut WriteBatch) -> Vec<(Frame, Position)> {
        let Some(partitions) = &self.partitions else {
            return Vec::new();
        };
        let mut of: Vec<Vec<&Operation>> = vec![Vec::new(); partitions.replicas.len()];
        for (_, operation) in batch.operations() {
            let key = match operation {
                Operation::Put { key, .. } | Operation::Delete { key } => Some(key),
                Operation::DeleteRange { range } => range.from.as_ref(),
            };
            let place = key.and_then(|key| key.first());
            if let Some(of) = place.and_then(|place| of.get_mut(usize::from(*place))) {
                of.push(operation);
            }
        }
        let mut made = Vec::new();
        for (partition, operations) in (0..).zip(of) {
            if operations.is_empty() || !partitions.leads(partition) {
                continue;
            }
            let position = partitions.replicas[usize::from(partition)].next();
            let record = Record {
                is_whole: true,
                first: position.number,
                next_number: self.state.next_number,
                count: self.state.counts[usize::from(partition)],
                position,
            };
            made.push((
                Frame::new(partition, &record, operations.into_iter()),
                record,
            ));
        }
        let mut frames = Vec::new();
        for (frame, record) in made {
            batch.put(layout::partition_key(frame.partition), record.encode());
            frames.push((frame, record.position));
        }
        frames
    }

    /// The batch was written, or not: replicas have come further, or are where they were.
    pub(super) fn settle_batches(
        &mut self,
        batch: &[(Vec<u8>, u64)],
        made: Vec<(Frame, Position)>,
        is_written: bool,
    ) {
        let Some(partitions) = &mut self.partitions else {
            return;
        };
        let before = std::mem::take(&mut partitions.applying);
        let applied = std::mem::take(&mut partitions.applied);
        if !is_written {
            for (partition, (_, replica)) in before {
                partitions.replicas[usize::from(partition)] = replica;
            }
            return;
        }
        partitions.frames.extend(applied);
        for (frame, position) in made {
            partitions.replicas[usize::from(frame.partition)].wrote(position);
            partitions.frames.push(frame);
        }
        for (key, hash) in batch {
            let place = usize::from(key.first().copied().unwrap_or(u8::MAX));
            if let Some(replica) = partitions.replicas.get(place) {
                let number = replica.position().number;
                partitions.dirty[place].insert(*hash, number);
            }
        }
    }

    /// True if a batch's keys are noted until they are committed.
    pub(super) fn notes_dirty(&self, key: &[u8]) -> bool {
        let Some(partitions) = &self.partitions else {
            return false;
        };
        let place = key.first().map(|place| usize::from(*place));
        let replica = place.and_then(|place| partitions.replicas.get(place));
        replica.is_some_and(|replica| replica.is_strong() && replica.awaits_successor())
    }

    /// Applies a frame of the predecessor, which the replica has accepted.
    pub fn apply_frame(
        &mut self,
        partition: u8,
        bytes: &[u8],
        record: Record,
        operations: Vec<Operation>,
    ) {
        for operation in operations {
            match operation {
                Operation::Put { key, value } => self.view.overlay.put(key, value),
                Operation::Delete { key } => self.view.overlay.delete(key),
                Operation::DeleteRange { range } => self.view.overlay.empty(range),
            }
        }
        let numbers = (record.first, record.position.number);
        let epoch = record.position.epoch();
        self.adopt(partition, record);
        if let Some(partitions) = &mut self.partitions {
            partitions.applied.push(Frame {
                partition,
                numbers,
                epoch,
                bytes: bytes.into(),
            });
        }
    }

    /// The partition is where a record says, with this round.
    fn adopt(&mut self, partition: u8, record: Record) {
        self.state.counts[usize::from(partition)] = record.count;
        self.state.next_number = self.state.next_number.max(record.next_number);
        let Some(partitions) = &mut self.partitions else {
            return;
        };
        let Some(replica) = partitions.replicas.get_mut(usize::from(partition)) else {
            return;
        };
        let applying = partitions.applying.entry(partition);
        let (first, _) = applying.or_insert_with(|| (record.first, replica.clone()));
        if record.is_whole && !replica.is_whole() {
            *first = record.first;
        }
        let first = *first;
        match record.is_whole {
            true if replica.is_whole() => replica.wrote(record.position.clone()),
            true => replica.end_copy(record.position.clone()),
            false => replica.begin_copy(),
        }
        let stored = Record { first, ..record };
        let key = layout::partition_key(partition);
        self.view.overlay.put(key, stored.encode());
    }

    /// A copy of a partition begins: what this node has of it goes.
    ///
    /// # Errors
    /// Those of reading the store, on an engine without an order of keys.
    pub fn begin_copy(&mut self, partition: u8) -> Result<()> {
        self.flush(partition)?;
        self.adopt(partition, Record::default());
        self.note_copy(partition, 0);
        Ok(())
    }

    fn note_copy(&mut self, partition: u8, number: u64) {
        if let Some(partitions) = &mut self.partitions {
            partitions.applied.push(Frame {
                partition,
                numbers: (0, number),
                epoch: 0,
                bytes: Arc::default(),
            });
        }
    }

    /// Entries of a copy, as the store has them.
    pub fn copy_entry(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.view.overlay.put(key, value);
    }

    /// A copy has ended, as of a record. In the store's log its last part stands with the
    /// number of the last batch, but does not have what that batch wrote: it counts for none.
    pub fn end_copy(&mut self, partition: u8, record: Record) {
        let number = record.position.number;
        let first = number + 1;
        self.adopt(partition, Record { first, ..record });
        self.note_copy(partition, number);
    }

    /// Reads how far the store's copy of a partition has come, in a snapshot of it.
    ///
    /// # Errors
    /// Those of the store; `InvalidArgument` for a record that is none.
    pub fn record_in(snapshot: &cambium::Snapshot, partition: u8) -> Result<Record> {
        Record::stored(snapshot.get(layout::partition_key(partition))?, partition)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on has failed
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_those_of_other_partitions_do_not() {
        let record = Record {
            is_whole: true,
            first: 1,
            next_number: 9,
            count: Count {
                keys: 2,
                expiring: 1,
            },
            position: Position::default().next(4),
        };
        let operations = vec![
            Operation::DeleteRange {
                range: layout::fields(3, 7),
            },
            Operation::Put {
                key: layout::entry_key(3, b"oak"),
                value: b"Quercus".to_vec(),
            },
            Operation::Delete {
                key: layout::entry_key(3, b"elm"),
            },
        ];
        let frame = Frame::new(3, &record, operations.iter());
        assert_eq!(frame.numbers, (1, 1));
        assert_eq!(Frame::decode(3, &frame.bytes), Some((record, operations)));
        assert_eq!(Frame::decode(2, &frame.bytes), None);
        for cut in 0..frame.bytes.len() {
            // Cut between operations it is a shorter frame; it never panics.
            _ = Frame::decode(3, &frame.bytes[..cut]);
        }
    }
}
