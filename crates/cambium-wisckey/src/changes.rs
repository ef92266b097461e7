//! The change feed: committed batches, read from the written segments.
//!
//! A feed is a place in the log and the number of the last batch that it has shown. It reads
//! the log in pieces of 256 KiB, from the file, or from the writer's buffer what is not in
//! the file yet:
//!
//! 1. It looks which writes are visible (or synced), *before* it reads: their records are
//!    in place then, and no writer takes them back.
//! 2. It reads a piece, and afterwards makes sure that history is not lost: so no block of
//!    the piece was given back before it was read ([`crate::history`]).
//! 3. It verifies each record, and that numbers follow one another: a batch lies in one
//!    segment, its records side by side. Records after the segment's last number are what
//!    recovery dropped. Only at the start of a segment may numbers begin anew, after a
//!    recovery.
//!
//! A feed takes the writer's lock once, to begin at the log's end. Later it takes no lock that
//! is held across I/O.
//! It does not keep segments: one whose next segment is gone answers `HistoryLost`.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use cambium_api::batch::Namespace;
use cambium_api::{Change, ChangeBatch, ChangeFeed, ChangeOptions, KeyRange, Operation};
use cambium_base::{Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;
use cambium_io::{Advice, File as _};
use cambium_storage::record::{MOST_RECORD_HEADER_BYTES, NotARecord, RecordHeader};

use crate::core::{Core, lock};
use crate::format::{ALIGNMENT, PREFIX_BYTES, SegmentKind, kind};
use crate::recovery::SEQUENCE_EPOCH;
use crate::seeded_bug::SeededBug;
use crate::segment::Segment;

/// Bytes of the log that are read at once.
const PIECE_BYTES: usize = 256 << 10;
/// Both checksums of a record's header: zeros are padding.
const CHECKSUM_BYTES: usize = 8;

/// A reader of the log.
#[derive(Debug)]
pub(crate) struct LogFeed {
    core: Arc<Core>,
    options: ChangeOptions,
    /// The last number of the last batch that was shown, or was not asked for.
    position: u64,
    /// Writes up to here may be shown of the piece.
    through: u64,
    segment: Weak<Segment>,
    /// Of the next record in the segment.
    offset: u64,
    /// The number of the record before it, in the same segment.
    previous: Option<u64>,
    /// Bytes of the segment, from `piece_offset` on.
    piece: Vec<u8>,
    piece_offset: u64,
    names: MetNames,
}

/// What the piece has.
enum Taken {
    /// A batch that may be shown.
    Batch(ChangeBatch),
    /// One that is not shown.
    Skipped,
    /// Nothing more that may be shown, or fewer than these bytes from `offset` on.
    NeedsBytes(usize),
}

impl LogFeed {
    /// Reads what was written after a number.
    pub fn new(core: &Arc<Core>, after: SequenceNumber, options: ChangeOptions) -> Result<Self> {
        core.check_open()?;
        core.check_given_out(after)?;
        core.check_history(after.0)?;
        let mut feed = LogFeed {
            core: core.clone(),
            options,
            position: after.0,
            through: 0,
            segment: Weak::new(),
            offset: 0,
            previous: None,
            piece: Vec::new(),
            piece_offset: 0,
            names: MetNames::default(),
        };
        feed.begin_at_end();
        Ok(feed)
    }

    /// Begins at the end of the log if nothing was written after the position: then the
    /// last segment need not be read.
    fn begin_at_end(&mut self) {
        let writer = lock(&self.core.writer);
        if let Some(active) = &writer.active {
            if writer.next_sequence == self.position + 1 {
                self.segment = Arc::downgrade(active);
                self.offset = active.log.end();
                self.previous = Some(self.position);
            }
        }
    }

    /// The last write that may be shown now.
    fn newest(&self) -> u64 {
        let visible = self.core.ledger.visible();
        match self.options.synced_only && !self.core.has_bug(SeededBug::ChangesUnsynced) {
            true => visible.min(self.core.ledger.synced()),
            false => visible,
        }
    }

    /// Reads the log from `offset` on, at least so many bytes; false where no write waits
    /// to be shown.
    fn read_piece(&mut self, least: usize) -> Result<bool> {
        let through = self.newest();
        if self.position >= through {
            return Ok(false);
        }
        let Some(segment) = self.current_segment(through) else {
            self.core.check_history(self.position)?;
            return Ok(false);
        };
        self.through = through;
        self.piece_offset = self.offset;
        // Twice the part of a long batch that is known, so that it is read few times.
        let most = match least > PIECE_BYTES {
            true => 2 * least,
            false => PIECE_BYTES,
        };
        let left = segment.log.end().saturating_sub(self.offset);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        self.piece.resize(most.min(left), 0);
        let read = segment.log.read_bytes(self.offset, &mut self.piece);
        // A segment that went meanwhile cannot be read, or reads as zeros in part.
        let read = self.core.check_history(self.position).and(read);
        self.piece.truncate(*read.as_ref().unwrap_or(&0));
        read?;
        if self.piece.len() < least {
            return Err(segment.damage(
                self.offset,
                format!("the log ends here, and write {through} was committed"),
            ));
        }
        let is_full = segment.last_sequence.load(Ordering::Acquire) != 0;
        if is_full && self.piece.len() == most && !self.core.tuning.direct {
            // The device reads on while records are checked.
            let next = self.offset + most as u64;
            segment
                .file
                .advise(next, PIECE_BYTES as u64, Advice::WillNeed);
        }
        Ok(true)
    }

    /// The segment with the next write to be shown; goes on in the next one where all
    /// writes of the current one were shown.
    fn current_segment(&mut self, through: u64) -> Option<Arc<Segment>> {
        let position = self.position;
        let has_more = |segment: &Segment| {
            last_of(segment) > position && segment.first_sequence.load(Ordering::Acquire) <= through
        };
        if let Some(segment) = self.segment.upgrade().filter(|segment| has_more(segment)) {
            return Some(segment);
        }
        let segments = self.core.segments.load();
        let next = segments.values().find(|segment| {
            let has_records = || segment.log.end() > segment.log.geometry().first_offset;
            segment.kind == SegmentKind::Written && has_more(segment) && has_records()
        })?;
        self.segment = Arc::downgrade(next);
        self.offset = self.first_wanted(next);
        self.previous = None;
        Some(next.clone())
    }

    /// The offset at which the feed begins in a segment: behind the part that tables took, if
    /// all of that is older than the position. Blocks of that part may have been given back.
    fn first_wanted(&self, segment: &Segment) -> u64 {
        let first = segment.log.geometry().first_offset;
        let state = self.core.ledger.state();
        match state.segments.get(&segment.number) {
            Some(taken) if (1..=self.position).contains(&taken.last) => first.max(taken.end),
            _ => first,
        }
    }

    /// The end of the run of freed values in which an offset lies. A run that has given its
    /// blocks back holds only writes that no consumer needed.
    fn behind_hole(&self, segment: &Segment, offset: u64) -> Option<u64> {
        let runs = self.core.ledger.holes_of(segment.number);
        let mut runs = runs.into_iter();
        let run = runs.find(|&(start, end)| start <= offset && offset < end)?;
        Some(run.1)
    }

    /// The next batch of the piece.
    fn take_batch(&mut self) -> Result<Taken> {
        let Some(segment) = self.segment.upgrade() else {
            return Ok(Taken::NeedsBytes(1));
        };
        let has_ended = |previous| previous >= self.through || previous >= last_of(&segment);
        if self.previous.is_some_and(has_ended) {
            return Ok(Taken::NeedsBytes(1));
        }
        let Some(begin) = self.skip_padding(&segment) else {
            return Ok(Taken::NeedsBytes(1));
        };
        let mut at = begin;
        let mut batch: Option<BatchSoFar> = None;
        loop {
            let rest = self.piece.get(at..).unwrap_or(&[]);
            let offset = self.piece_offset + at as u64;
            let record = match whole_record(&segment, offset, rest) {
                Err(damage) if batch.is_none() && self.previous.is_none() => {
                    // The number that follows tells whether anything wanted was there.
                    self.offset = self.behind_hole(&segment, offset).ok_or(damage)?;
                    self.piece.clear();
                    return Ok(Taken::NeedsBytes(1));
                }
                record => record?,
            };
            let Some((header, payload)) = record else {
                if batch.is_some() && self.core.has_bug(SeededBug::ChangeBatchSplit) {
                    break;
                }
                return Ok(Taken::NeedsBytes(at - begin + record_bytes(rest)));
            };
            let last = header
                .sequence
                .0
                .saturating_add(u64::from(header.batch_remaining));
            if self.previous.is_none() && last <= self.position {
                // Blocks of other records of the same batch may have gone back.
                self.offset = offset + header.total_bytes(ALIGNMENT);
                return Ok(Taken::Skipped);
            }
            let batch = match &mut batch {
                Some(batch) => batch,
                None => batch.insert(self.begin_batch(&segment, offset, &header)?),
            };
            batch.check_next(&segment, offset, &header)?;
            if batch.last > self.position {
                let names = (&*self.core, &mut self.names);
                let change = change_of(names, &segment, offset, &header, payload)?;
                batch.changes.extend(change);
            }
            at += header.total_bytes(ALIGNMENT) as usize;
            if header.batch_remaining == 0 {
                break;
            }
        }
        self.offset = self.piece_offset + at as u64;
        Ok(match batch {
            Some(batch) => self.show(batch),
            None => Taken::NeedsBytes(1),
        })
    }

    /// Begins a batch with its first record, which must be the next one of the log.
    fn begin_batch(
        &self,
        segment: &Segment,
        offset: u64,
        header: &RecordHeader,
    ) -> Result<BatchSoFar> {
        let first = header.sequence.0;
        let follows = match self.previous {
            Some(previous) => first == previous + 1,
            None => first <= self.position + 1 || first % SEQUENCE_EPOCH == 1,
        };
        if !follows {
            let expected = self.previous.unwrap_or(self.position) + 1;
            return Err(segment.damage(
                offset,
                format!("write {expected} is missing before write {first}"),
            ));
        }
        Ok(BatchSoFar {
            first,
            last: first.saturating_add(u64::from(header.batch_remaining)),
            records: 0,
            changes: Vec::new(),
        })
    }

    /// A batch that was read is shown, unless it is not asked for or has no changes.
    fn show(&mut self, batch: BatchSoFar) -> Taken {
        let is_wanted = batch.last > self.position && !batch.changes.is_empty();
        self.previous = Some(batch.last);
        self.position = self.position.max(batch.last);
        if !is_wanted {
            return Taken::Skipped;
        }
        Taken::Batch(ChangeBatch {
            first: SequenceNumber(batch.first),
            last: SequenceNumber(batch.last),
            synced: batch.last <= self.core.ledger.synced(),
            changes: batch.changes,
        })
    }

    /// Where the next record begins in the piece; `None` where it is not in it.
    fn skip_padding(&mut self, segment: &Segment) -> Option<usize> {
        let block = segment.log.geometry().block;
        loop {
            let begin = usize::try_from(self.offset.checked_sub(self.piece_offset)?).ok()?;
            let checksums = self.piece.get(begin..)?.first_chunk::<CHECKSUM_BYTES>()?;
            if *checksums != [0; CHECKSUM_BYTES] {
                return Some(begin);
            }
            self.offset = (self.offset + 1).next_multiple_of(block);
        }
    }
}

/// A batch while its records are read.
struct BatchSoFar {
    first: u64,
    last: u64,
    records: u64,
    changes: Vec<Change>,
}

impl BatchSoFar {
    /// Refuses a record that is not the next one of the batch.
    fn check_next(&mut self, segment: &Segment, offset: u64, header: &RecordHeader) -> Result<()> {
        let expected = self.first.saturating_add(self.records);
        let is_next = header.sequence.0 == expected
            && u64::from(header.batch_index) == self.records
            && expected.saturating_add(u64::from(header.batch_remaining)) == self.last;
        self.records += 1;
        match is_next {
            true => Ok(()),
            false => Err(segment.damage(
                offset,
                format!(
                    "write {expected}, of the batch {} to {}, is missing before write {}",
                    self.first, self.last, header.sequence
                ),
            )),
        }
    }
}

impl ChangeFeed for LogFeed {
    fn next(&mut self) -> Result<Option<ChangeBatch>> {
        self.core.check_open()?;
        loop {
            // The piece may have what a rollback has undone.
            if self.position < self.core.ledger.rolled_back.load(Ordering::Acquire) {
                self.core.check_history(self.position)?;
            }
            match self.take_batch()? {
                Taken::Batch(batch) => return Ok(Some(batch)),
                Taken::Skipped => {}
                Taken::NeedsBytes(least) => {
                    if !self.read_piece(least)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn looks_again(&self) -> bool {
        self.position >= self.through
    }
}

/// The last number of a segment; the highest there is while writers append to it.
fn last_of(segment: &Segment) -> u64 {
    match segment.last_sequence.load(Ordering::Acquire) {
        0 => u64::MAX,
        last => last,
    }
}

/// The record at the start of some bytes, verified; `None` if it is longer.
fn whole_record<'b>(
    segment: &Segment,
    offset: u64,
    bytes: &'b [u8],
) -> Result<Option<(RecordHeader, &'b [u8])>> {
    // A short one may end before the longest header would.
    let is_cut_off = bytes.len() < MOST_RECORD_HEADER_BYTES
        && RecordHeader::decode(bytes, segment.log.seed(), offset) == Err(NotARecord::TooShort);
    match is_cut_off {
        true => Ok(None),
        false => segment.log.parse_borrowed(offset, bytes),
    }
}

/// Bytes of a record that begins here, as far as its header is there.
fn record_bytes(part: &[u8]) -> usize {
    let header = RecordHeader::verified_before(part);
    header.map_or(MOST_RECORD_HEADER_BYTES, |header| {
        header.total_bytes(ALIGNMENT) as usize
    })
}

/// The change that a record stands for; `None` for one that the engine wrote for itself.
fn change_of(
    (core, names): (&Core, &mut MetNames),
    segment: &Segment,
    offset: u64,
    header: &RecordHeader,
    payload: &[u8],
) -> Result<Option<Change>> {
    let strange = || segment.damage(offset, "the record is of no format known here");
    if header.kind == kind::NAMESPACE {
        return Ok(None);
    }
    let split = payload.split_at_checked(header.auxiliary as usize);
    let (full_key, second) = split.ok_or_else(strange)?;
    let (number, key) = split_key(full_key).ok_or_else(strange)?;
    let operation = match header.kind {
        kind::PUT => Operation::Put {
            key: key.to_vec(),
            value: second.to_vec(),
        },
        kind::DELETE => Operation::Delete { key: key.to_vec() },
        kind::DELETE_RANGE | kind::NAMESPACE_DROPPED => Operation::DeleteRange {
            range: range_of(number, key, second),
        },
        _ => return Err(strange()),
    };
    Ok(Some(Change {
        namespace: names.of(core, number).ok_or_else(strange)?,
        operation,
        expires: None,
    }))
}

/// Namespaces by number, as far as the feed has met them; those that were dropped since are
/// among them.
#[derive(Debug, Default)]
struct MetNames(BTreeMap<u16, Namespace>);

impl MetNames {
    fn of(&mut self, core: &Core, number: u16) -> Option<Namespace> {
        if number == 0 {
            return Some(None);
        }
        if let Some(known) = self.0.get(&number) {
            return Some(known.clone());
        }
        let name = Some(core.names.load().name(number)?.into());
        self.0.insert(number, name.clone());
        Some(name)
    }
}

fn split_key(full_key: &[u8]) -> Option<(u16, &[u8])> {
    let (&prefix, key) = full_key.split_first_chunk::<PREFIX_BYTES>()?;
    Some((u16::from_be_bytes(prefix), key))
}

/// The range of a namespace from a key up to a full key, which may be the namespace's end.
fn range_of(namespace: u16, from: &[u8], to: &[u8]) -> KeyRange {
    let to = split_key(to).filter(|&(number, _)| number == namespace);
    KeyRange {
        from: (!from.is_empty()).then(|| from.to_vec()),
        to: to.map(|(_, key)| key.to_vec()),
    }
}
