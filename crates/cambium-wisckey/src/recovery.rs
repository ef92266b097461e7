//! Recovery: what a store that was not closed holds (section 3.4.2).
//!
//! The tables hold every write up to the *head*; the written segments from there
//! on hold the rest, and are read to their end. Let *s* be the largest
//! `synced_through` found, there or in the file `SYNCED`.
//!
//! 1. Records of an attempt that was taken back for lack of space are left out.
//! 2. Whole batches that follow the head without a gap are accepted; the first gap
//!    or part of a batch ends them at the *cut*, wherever segments end.
//! 3. If the cut lies below *s*, something that was promised is missing: that is
//!    damage, and the open fails, naming the place.
//! 4. A new session is made durable in the superblock.
//! 5. What was accepted above *s* is written over itself and synced: a process
//!    that died, or whose sync failed, may have left it in the operating system's
//!    cache alone.
//! 6. What was accepted goes into the tree and is flushed. The edit of that flush
//!    moves the head to a segment that does not exist yet and numbering far above
//!    what may have been lost: the cut is durable, and nothing after it ever
//!    counts again.
//!
//! A crash in 4 to 6 leaves the old head; the next recovery reads the same log and
//! comes to the same cut. Values stay where they are: what a recovery reads is
//! bounded by `replay_bytes`, what it writes by the keys in it.
//!
//! Where a full disk has no room for 6, what was accepted is in the tree's memory:
//! the store is open for reading, and the first write, or background step, tries
//! again to make the cut durable before anything else.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use cambium_api::{Progress, ProgressSink};
use cambium_base::{Error, Result};
use cambium_io::sync::atomic::Ordering;
use cambium_io::{Advice, File};
use cambium_storage::record::RecordHeader;
use cambium_storage::replay::{batches_past_gaps, whole_batches, without_taken_back, write_again};
use cambium_storage::scan::{LogScanner, ScanFault, Scanned, ScannedRecord};
use cambium_storage::synced_mark;

use crate::core::{Core, lock};
use crate::format::{self, ALIGNMENT, SegmentKind, kind, namespace_of};
use crate::names::NameChange;
use crate::reserve::Part;
use crate::seeded_bug::SeededBug;
use crate::segment::Segment;
use crate::write::TreeEntry;

/// Sequence numbers go on at the next multiple of this after a crash: more
/// than can have been given out and lost, so none is given twice.
pub(crate) const SEQUENCE_EPOCH: u64 = 1 << 32;

/// Bytes of the log that are asked for before they are read.
const AHEAD_BYTES: u64 = 4 << 20;

/// A write found in the log.
#[derive(Debug)]
pub(crate) struct TailRecord {
    pub header: RecordHeader,
    /// Place of its segment in the tail.
    pub segment: usize,
    pub offset: u64,
    /// The whole payload, or the key of a value that stays where it is.
    bytes: Vec<u8>,
}

impl TailRecord {
    /// Where the next record may begin.
    pub fn end(&self) -> u64 {
        self.offset + self.header.total_bytes(ALIGNMENT)
    }
}

/// What the log holds from the head on.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    pub segments: Vec<Arc<Segment>>,
    /// With the place of its segment.
    pub faults: Vec<(usize, ScanFault)>,
    pub synced_through: u64,
    /// Segments that cannot be opened.
    pub damage: Vec<Error>,
    /// Numbers of segments without a header: no sync covers them.
    pub blank: Vec<u32>,
}

/// What the tail comes to.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    pub found: Vec<TailRecord>,
    /// The last accepted sequence number.
    pub cut: u64,
    /// The largest number that was promised durable.
    pub promised: u64,
    /// Numbers that are missing before others that a repair has accepted.
    gaps: Vec<Range<u64>>,
}

impl Core {
    /// Recovers the store. Called by `open`, before anyone else has it.
    /// What is missing fails it, or goes into `lost`.
    pub fn recover(
        &self,
        progress: &dyn ProgressSink,
        lost: Option<&mut Vec<Error>>,
    ) -> Result<()> {
        let (tail, accepted) = self.read_accepted(progress, lost)?;
        self.take_session()?;
        self.settle(&tail, &accepted)?;
        self.refill(&tail, &accepted)?;
        self.finish_recovery(&accepted)?;
        cambium_io::events::recovered("wisckey", &self.path, accepted.cut);
        Ok(())
    }

    /// The same in memory alone, for an opening that writes nothing.
    pub fn recover_in_memory(&self, progress: &dyn ProgressSink) -> Result<()> {
        let (tail, accepted) = self.read_accepted(progress, None)?;
        self.refill(&tail, &accepted)?;
        self.set_synced(&mut lock(&self.writer), accepted.promised);
        cambium_io::events::recovered("wisckey", &self.path, accepted.cut);
        Ok(())
    }

    /// Reads the log after the head, and decides which of its writes count. What is missing
    /// fails it, or goes into `lost`.
    fn read_accepted(
        &self,
        progress: &dyn ProgressSink,
        lost: Option<&mut Vec<Error>>,
    ) -> Result<(Tail, Accepted)> {
        let (mut tail, found) = self.read_tail(progress)?;
        let accepted = self.accept(&tail, found, lost.is_some());
        let mut damage = std::mem::take(&mut tail.damage);
        damage.extend(self.gaps(&tail, &accepted));
        if let Some((place, offset, what)) = missing(&tail, &accepted) {
            damage.push(Error::corruption(self.place_of(&tail, place), offset, what));
        }
        match lost {
            Some(lost) => lost.append(&mut damage),
            None => damage.into_iter().next().map_or(Ok(()), Err)?,
        }
        Ok((tail, accepted))
    }

    /// A finding for each gap before writes that a repair has accepted.
    fn gaps(&self, tail: &Tail, accepted: &Accepted) -> Vec<Error> {
        let behind = |gap: &Range<u64>| {
            let next = |found: &TailRecord| found.header.sequence.0 >= gap.end;
            let found = accepted.found.iter().find(|found| next(found));
            found.map_or((0, 0), |found| (found.segment, found.offset))
        };
        let error = |gap: &Range<u64>| {
            let (place, offset) = behind(gap);
            let what = format!(
                "writes {} to {} before here are missing: the keys that they changed are as they \
                 were before",
                gap.start,
                gap.end - 1
            );
            Error::corruption(self.place_of(tail, place), offset, what)
        };
        accepted.gaps.iter().map(error).collect()
    }

    /// The path of a segment of the tail; the folder where there is none.
    pub fn place_of(&self, tail: &Tail, place: usize) -> std::path::PathBuf {
        match tail.segments.get(place) {
            Some(segment) => segment.path().to_path_buf(),
            None => self.path.clone(),
        }
    }

    /// Reads the written segments from the head on. Writes nothing.
    pub fn read_tail(&self, progress: &dyn ProgressSink) -> Result<(Tail, Vec<TailRecord>)> {
        let head = self.ledger.state().head;
        let session = (self.home.store, lock(&self.maintenance).root.session);
        let file_system = &*self.environment.file_system;
        let mut tail = Tail {
            synced_through: synced_mark::synced_through(file_system, &self.path, session)
                .unwrap_or(0),
            ..Tail::default()
        };
        let mut found = Vec::new();
        let numbers = self.home.segment_numbers()?;
        // A head within a segment was noted after the segment's name was synced.
        if head.offset > 0 && !numbers.contains(&head.segment) {
            let path = format::segment_path(&self.path, head.segment);
            let what = "the segment is missing from which recovery reads the log";
            tail.damage.push(Error::corruption(path, 0, what));
        }
        for number in numbers {
            if number < head.segment {
                continue;
            }
            let from = if number == head.segment {
                head.offset
            } else {
                0
            };
            match self.segment_of_tail(number) {
                Ok(Some(segment)) if segment.kind == SegmentKind::Written => {
                    tail.segments.push(segment);
                    self.read_segment(&mut tail, &mut found, from, head.session, progress)?;
                }
                Ok(Some(_)) => {}
                Ok(None) => tail.blank.push(number),
                Err(error) if error.is_corruption() => tail.damage.push(error),
                Err(error) => return Err(error),
            }
        }
        Ok((tail, found))
    }

    /// A segment after the head; `None` for one that a crash left without its header.
    fn segment_of_tail(&self, number: u32) -> Result<Option<Arc<Segment>>> {
        if let Some(known) = self.segment(number) {
            return Ok(Some(known));
        }
        let (home, shape, tuning) = (&self.home, &self.shape, &self.tuning);
        let opened = Segment::open_if_written(home, number, shape, tuning, None);
        if self.has_bug(SeededBug::DamagedHeaderIgnored) {
            return Ok(opened.ok().flatten().map(Arc::new));
        }
        Ok(opened?.map(Arc::new))
    }

    /// Reads the last segment of the tail from an offset on.
    fn read_segment(
        &self,
        tail: &mut Tail,
        found: &mut Vec<TailRecord>,
        from: u64,
        session: u32,
        progress: &dyn ProgressSink,
    ) -> Result<()> {
        let place = tail.segments.len() - 1;
        let segment = tail.segments[place].clone();
        let mut scanner = segment.scan(from, u64::MAX)?;
        scanner.resume_sessions(session);
        let file = segment.log.file();
        let mut asked = scanner.position();
        loop {
            // The device reads on while records are checked, into the page cache.
            if !self.tuning.direct && scanner.position() + AHEAD_BYTES > asked {
                file.advise(asked, 2 * AHEAD_BYTES, Advice::WillNeed);
                asked += 2 * AHEAD_BYTES;
            }
            let Some(scanned) = scanner.next()? else {
                break;
            };
            let record = match scanned {
                Scanned::Fault(fault) => {
                    tail.faults.push((place, fault));
                    continue;
                }
                Scanned::Record(record) => record,
            };
            tail.synced_through = tail.synced_through.max(record.header.synced_through.0);
            found.push(self.read_write(&mut scanner, &segment, place, &record)?);
            if found.len() % 4096 == 0 {
                progress.report(Progress {
                    phase: "recover",
                    done: found.len() as u64,
                    total: None,
                });
            }
        }
        Ok(())
    }

    fn read_write(
        &self,
        scanner: &mut LogScanner<'_>,
        segment: &Segment,
        place: usize,
        record: &ScannedRecord,
    ) -> Result<TailRecord> {
        let header = record.header;
        let payload_bytes = header.payload_bytes as usize;
        let first_bytes = match header.kind {
            kind::DELETE | kind::NAMESPACE => payload_bytes,
            _ => header.auxiliary as usize,
        };
        let known = (kind::PUT..=kind::NAMESPACE_DROPPED).contains(&header.kind);
        let Some(value_bytes) = payload_bytes.checked_sub(first_bytes).filter(|_| known) else {
            return Err(segment.damage(
                record.offset,
                "a record whose checksums match is nothing of this format",
            ));
        };
        // Values that stay in the log are not kept in memory.
        let wanted = match header.kind {
            kind::PUT if value_bytes > self.tuning.inline_bytes => first_bytes,
            _ => payload_bytes,
        };
        let bytes = match record.prefix().get(..wanted) {
            Some(bytes) => bytes.to_vec(),
            None => {
                let mut payload = scanner.payload(record)?;
                payload.truncate(wanted);
                payload
            }
        };
        Ok(TailRecord {
            header,
            segment: place,
            offset: record.offset,
            bytes,
        })
    }

    fn is_inline(&self, put: &RecordHeader) -> bool {
        (put.payload_bytes - put.auxiliary) as usize <= self.tuning.inline_bytes
    }

    /// Decides which of the found writes count; for a repair all that are whole.
    pub fn accept(&self, tail: &Tail, mut found: Vec<TailRecord>, past_gaps: bool) -> Accepted {
        let (after, promised) = {
            let state = self.ledger.state();
            (state.head.sequence, state.promised)
        };
        let headers: Vec<RecordHeader> = found.iter().map(|found| found.header).collect();
        let mut stands = without_taken_back(&headers).into_iter();
        found.retain(|_| stands.next().unwrap_or(false));
        let headers: Vec<RecordHeader> = found.iter().map(|found| found.header).collect();
        let promised = tail.synced_through.max(after).max(promised);
        if past_gaps {
            let (taken, gaps) = batches_past_gaps(&headers, (after, promised));
            let mut taken = taken.into_iter();
            found.retain(|_| taken.next().unwrap_or(false));
            let last = found.last().map(|found| found.header.sequence.0);
            return Accepted {
                cut: last.unwrap_or(after),
                promised,
                found,
                gaps,
            };
        }
        let mut count = whole_batches(&headers, after);
        if self.has_bug(SeededBug::BatchSplit) {
            let follows = |&(place, header): &(usize, &RecordHeader)| {
                header.sequence.0 == after + 1 + place as u64
            };
            count = headers.iter().enumerate().take_while(follows).count();
        }
        if !self.has_bug(SeededBug::TornTailKept) {
            found.truncate(count);
        }
        let last = found.last().map(|found| found.header.sequence.0);
        Accepted {
            cut: last.unwrap_or(after),
            promised,
            found,
            gaps: Vec::new(),
        }
    }

    /// Takes a session number that no crashed recovery has used.
    fn take_session(&self) -> Result<()> {
        let mut maintenance = lock(&self.maintenance);
        if !self.has_bug(SeededBug::EpochReused) {
            maintenance.root.session += 1;
        }
        maintenance.root.clean = false;
        let payload = self.root_payload(&maintenance.root);
        // Both copies: losing one later must not bring an older session back.
        maintenance
            .superblock
            .write_both(&payload)
            .map_err(|error| self.health.unless_full(error))?;
        lock(&self.writer).session = maintenance.root.session;
        Ok(())
    }

    /// Writes what was accepted, and is not known to be on the device, over
    /// itself, and syncs it.
    fn settle(&self, tail: &Tail, accepted: &Accepted) -> Result<()> {
        let same_segment = |one: &TailRecord, other: &TailRecord| one.segment == other.segment;
        for here in accepted.found.chunk_by(same_segment) {
            let (Some(first), Some(end)) = (here.first(), here.iter().map(TailRecord::end).max())
            else {
                continue;
            };
            let segment = &tail.segments[first.segment];
            let synced = |found: &&TailRecord| found.header.sequence.0 <= tail.synced_through;
            // What was synced took the header with it.
            let from = here
                .iter()
                .take_while(synced)
                .last()
                .map_or(0, TailRecord::end);
            if from < end {
                segment.file.keep()?;
                write_again(&*segment.file, from, end)?;
                segment.file.sync_data()?;
                segment.file.release();
            }
        }
        self.environment.file_system.sync_directory(&self.path)
    }

    /// Fills tree and namespaces with what was accepted.
    pub fn refill(&self, tail: &Tail, accepted: &Accepted) -> Result<()> {
        let tree = self.tree.writer();
        let mut names = Vec::new();
        for found in &accepted.found {
            let header = &found.header;
            let segment = &tail.segments[found.segment];
            let strange = || {
                let what = "a record whose checksums match is nothing of this format";
                segment.damage(found.offset, what)
            };
            let first_bytes = (header.auxiliary as usize).min(found.bytes.len());
            let (first, second) = found.bytes.split_at(first_bytes);
            let entry = match header.kind {
                kind::PUT => TreeEntry::Put {
                    key: first,
                    value_bytes: header.payload_bytes - header.auxiliary,
                    inline: self.is_inline(header).then_some(second),
                },
                kind::DELETE => TreeEntry::Delete(&found.bytes),
                kind::DELETE_RANGE => TreeEntry::DeleteRange(first, second),
                kind::NAMESPACE_DROPPED => {
                    names.push((header.sequence.0, NameChange::Dropped(namespace_of(first))));
                    TreeEntry::DeleteRange(first, second)
                }
                _ => {
                    let number = u16::try_from(header.auxiliary).map_err(|_| strange())?;
                    let name = String::from_utf8(found.bytes.clone()).map_err(|_| strange())?;
                    names.push((header.sequence.0, NameChange::Made(number, name)));
                    continue;
                }
            };
            let place = (found.offset, header.header_bytes);
            self.put_in_tree(&tree, segment, place, header.sequence.0, &entry);
        }
        drop(tree);
        let names = self.change_names(&mut lock(&self.writer), names.into_iter());
        if let Some(names) = names {
            self.names.store(names);
        }
        // The last write that counts in each segment.
        let found = accepted.found.iter();
        let known: BTreeMap<usize, &TailRecord> =
            found.map(|found| (found.segment, found)).collect();
        let mut writer = lock(&self.writer);
        let mut before = self.ledger.state().head.sequence;
        for (&place, last) in &known {
            let segment = &tail.segments[place];
            if self.segment(segment.number).is_none() {
                segment.first_sequence.store(before + 1, Ordering::Release);
            }
            before = last.header.sequence.0;
            segment.last_sequence.store(before, Ordering::Release);
            segment.log.resume_at(last.end());
        }
        self.change_segments(|segments| {
            for &place in known.keys() {
                let segment = tail.segments[place].clone();
                writer.unnoted.push(segment.clone());
                segments.insert(segment.number, segment);
            }
        });
        self.counters
            .replayed
            .fetch_add(accepted.found.len() as u64, Ordering::Relaxed);
        self.ledger.visible.store(accepted.cut, Ordering::Release);
        Ok(())
    }

    /// Makes the cut durable, and begins the new session.
    fn finish_recovery(&self, accepted: &Accepted) -> Result<()> {
        let base = match self.has_bug(SeededBug::EpochReused) {
            true => accepted.cut,
            false => (accepted.cut / SEQUENCE_EPOCH + 1) * SEQUENCE_EPOCH,
        };
        let last_file = self.home.segment_numbers()?.last().copied().unwrap_or(0);
        let note = {
            let mut writer = lock(&self.writer);
            writer.next_sequence = base + 1;
            self.set_synced(&mut writer, base);
            writer.next_file = writer.next_file.max(last_file.saturating_add(1));
            let next = writer.next_file;
            self.note_up_to(&mut writer, next, 0)
        };
        self.ledger.visible.store(base, Ordering::Release);
        self.tree.seal(note);
        match self.with_reserve(Part::All, || self.tree.flush()) {
            Ok(()) => self.session_begun.store(true, Ordering::Release),
            // Everything can be read; the first write tries again.
            Err(full) if full.is_no_space() => lock(&self.maintenance).cut_unflushed = true,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Where something promised is missing, as place in the tail and offset, and
/// what; `None` if nothing is.
pub(crate) fn missing(tail: &Tail, accepted: &Accepted) -> Option<(usize, u64, String)> {
    if accepted.cut >= accepted.promised {
        return None;
    }
    let what = format!(
        "write {} is missing, and writes up to {} were synced",
        accepted.cut + 1,
        accepted.promised
    );
    Some(match (tail.faults.first(), accepted.found.last()) {
        (Some((place, fault)), _) => (*place, fault.offset, format!("{}; {what}", fault.reason)),
        (None, Some(last)) => (last.segment, last.end(), what),
        (None, None) => (0, 0, what),
    })
}
