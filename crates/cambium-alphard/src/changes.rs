//! The change feed: committed batches, read from their entries.
//!
//! A feed is the number of the last batch that it has read. It reads some batches at once:
//!
//! 1. It takes their places from the change log ([`crate::change_log`]), up to the last write
//!    that is visible, or synced.
//! 2. It reads all their entries together. Of a deleted entry it reads the first block, if the
//!    key is in there.
//! 3. It makes sure that these changes are not lost: no block that it read was given out again
//!    before it was read.
//! 4. It verifies each entry: the checksums, and that the entry has the number of the write. A
//!    deleted key is compared with the hashes in the header.
//!
//! A feed takes no lock that is held across I/O, and keeps no history: one that falls behind the
//! log answers `HistoryLost`.

use std::collections::VecDeque;
use std::sync::Arc;

use cambium_api::{Change, ChangeBatch, ChangeFeed, ChangeOptions, Operation};
use cambium_base::{Error, Extent, Result, SequenceNumber};
use cambium_io::AlignedBuffer;
use cambium_io::sync::atomic::Ordering;

use crate::change_log::LoggedChange;
use crate::core::{Core, read};
use crate::format::{self, ENTRY_HEADER_BYTES, EntryKind};
use crate::read::StoredEntry;
use crate::seeded_bug::SeededBug;

/// Bytes of entries that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// A reader of the changes of a store with history.
#[derive(Debug)]
pub(crate) struct LogFeed {
    core: Arc<Core>,
    options: ChangeOptions,
    /// The last write of the last batch that was read.
    position: u64,
    /// Batches that were read and not shown.
    read: VecDeque<ChangeBatch>,
}

impl LogFeed {
    /// Reads what was written after a number.
    pub fn new(core: &Arc<Core>, after: SequenceNumber, options: ChangeOptions) -> Result<Self> {
        core.check_open()?;
        core.check_given_out(after)?;
        core.check_history(after.0)?;
        let state = read(&core.state);
        let log = state.log.as_ref();
        Ok(LogFeed {
            core: core.clone(),
            options,
            position: log.map_or(after.0, |log| log.batch_end_before(after.0)),
            read: VecDeque::new(),
        })
    }

    /// Places of the next changes that may be shown.
    fn next_places(&self) -> Result<Vec<(u64, LoggedChange)>> {
        let state = read(&self.core.state);
        let Some(log) = &state.log else {
            return Ok(Vec::new());
        };
        log.check_history(self.position)?;
        let through = match self.options.synced_only {
            true if !self.core.has_bug(SeededBug::ChangesUnsynced) => {
                state.visible.min(self.core.synced.load(Ordering::Acquire))
            }
            _ => state.visible,
        };
        let blocks = PIECE_BYTES / u64::from(self.core.block_bytes);
        Ok(log.batches(self.position, through, blocks))
    }

    /// Reads the next batches; false if there are none yet.
    fn read_batches(&mut self) -> Result<bool> {
        let places = self.next_places()?;
        let extents: Vec<Extent> = places.iter().map(|(_, change)| to_read(*change)).collect();
        let answers = self.core.read_many(&extents);
        self.core.check_history(self.position)?;
        for ((sequence, change), answer) in places.into_iter().zip(answers?) {
            let operation = self.core.operation_of(sequence, change, answer)?;
            let number = SequenceNumber(sequence);
            if change.begins_batch() || self.read.is_empty() {
                self.read.push_back(ChangeBatch {
                    first: number,
                    last: number,
                    synced: false,
                    changes: Vec::new(),
                });
            }
            if let Some(batch) = self.read.back_mut() {
                batch.last = number;
                batch.changes.push(Change {
                    namespace: None,
                    operation,
                    expires: None,
                });
            }
            self.position = sequence;
        }
        Ok(!self.read.is_empty())
    }
}

impl ChangeFeed for LogFeed {
    fn next(&mut self) -> Result<Option<ChangeBatch>> {
        self.core.check_open()?;
        if self.looks_again() && !self.read_batches()? {
            return Ok(None);
        }
        let synced = self.core.synced.load(Ordering::Acquire);
        Ok(self.read.pop_front().map(|batch| ChangeBatch {
            synced: batch.last.0 <= synced,
            ..batch
        }))
    }

    fn looks_again(&self) -> bool {
        self.read.is_empty()
    }
}

/// The blocks that are read of a change first.
fn to_read(change: LoggedChange) -> Extent {
    let extent = change.extent();
    Extent {
        block: extent.block,
        blocks: if change.is_delete() { 1 } else { extent.blocks },
    }
}

impl Core {
    /// The operation of a write, from what was read of its entry, or of the entry that it deleted.
    fn operation_of(
        &self,
        sequence: u64,
        change: LoggedChange,
        answer: Result<AlignedBuffer>,
    ) -> Result<Operation> {
        let extent = change.extent();
        if change.is_delete() {
            let head = to_read(change);
            let short = self.open_from_any(answer, head, |bytes| self.short_key(&bytes, extent));
            let key = match short?.0 {
                Some(key) => key,
                None => {
                    let (entry, _) =
                        self.open_from_any(self.read_extent(extent), extent, |bytes| {
                            self.open_written(bytes, extent, None)
                        })?;
                    entry.key.to_vec()
                }
            };
            return Ok(Operation::Delete { key });
        }
        let (entry, _) = self.open_from_any(answer, extent, |bytes| {
            self.open_written(bytes, extent, Some(sequence))
        })?;
        Ok(Operation::Put {
            key: entry.key.to_vec(),
            value: entry.value.to_vec(),
        })
    }

    /// Verifies an entry that may be obsolete, and takes it apart; where a number is given, it
    /// must be that of the entry.
    fn open_written(
        &self,
        bytes: AlignedBuffer,
        extent: Extent,
        sequence: Option<u64>,
    ) -> Result<StoredEntry> {
        let header = format::decode_header(&bytes, extent.block, self.block_bytes, self.seed);
        let header = header.filter(|header| sequence.is_none_or(|it| it == header.sequence));
        match header {
            Some(_) => self.open_extent(bytes, extent)?.alone(),
            None => None,
        }
        .ok_or_else(|| self.no_such_entry(extent))
    }

    /// The key of an entry, from its first block; `None` if the key does not end there.
    fn short_key(&self, bytes: &[u8], extent: Extent) -> Result<Option<Vec<u8>>> {
        let header = format::decode_header(bytes, extent.block, self.block_bytes, self.seed);
        let header = header.filter(|header| header.kind == EntryKind::Value);
        let header = header.ok_or_else(|| self.no_such_entry(extent))?;
        let end = ENTRY_HEADER_BYTES + usize::from(header.key_bytes);
        let Some(key) =
            bytes[..bytes.len().min(self.block_bytes as usize)].get(ENTRY_HEADER_BYTES..end)
        else {
            return Ok(None);
        };
        let name = read(&self.state).name(key);
        match name.slot == header.slot_key && name.check == header.key_check {
            true => Ok(Some(key.to_vec())),
            false => Err(self.volume.damage(
                extent.block,
                "the key is not the one that the entry's header speaks of",
            )),
        }
    }

    fn no_such_entry(&self, extent: Extent) -> Error {
        self.volume.damage(
            extent.block,
            "a change is read from here, and no header of its entry matches its checksum",
        )
    }
}
