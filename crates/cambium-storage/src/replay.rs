//! Which of the records found behind a checkpoint count.
//!
//! Records come in the order in which they lie in the log. Two rules leave some
//! out, and both need their headers alone:
//!
//! - What an *attempt* wrote that was taken back for lack of space does not count
//!   from where the next attempt began ([`without_taken_back`]).
//! - Whole batches that follow one another without a gap count; the first gap, or
//!   part of a batch, ends them ([`whole_batches`]). A repair goes on behind gaps
//!   ([`batches_past_gaps`]).

use std::collections::BTreeMap;
use std::ops::Range;

use cambium_base::Result;
use cambium_io::File;

use crate::record::RecordHeader;

/// For each of the records whether no later attempt took it back.
pub fn without_taken_back(headers: &[RecordHeader]) -> Vec<bool> {
    // Where each attempt above the first began.
    let mut begun: BTreeMap<u16, u64> = BTreeMap::new();
    for header in headers.iter().filter(|header| header.attempt > 0) {
        let first = header.batch_first().0;
        let known = begun.entry(header.attempt).or_insert(first);
        *known = first.min(*known);
    }
    let stands = |header: &RecordHeader| {
        let Some(next) = header.attempt.checked_add(1) else {
            return true;
        };
        let mut later = begun.range(next..);
        !later.any(|(_, &first)| first <= header.sequence.0)
    };
    headers.iter().map(stands).collect()
}

/// How many records from the first on form whole batches without a gap behind
/// `after`.
pub fn whole_batches(headers: &[RecordHeader], after: u64) -> usize {
    let mut accepted = 0;
    let mut expected = after.saturating_add(1);
    while let Some(first) = headers.get(accepted) {
        let size = first.batch_remaining as usize + 1;
        let whole = headers
            .get(accepted..accepted.saturating_add(size))
            .is_some_and(|batch| {
                batch.iter().enumerate().all(|(index, header)| {
                    header.sequence.0 == expected + index as u64
                        && header.batch_index as usize == index
                        && header.batch_remaining as usize == size - 1 - index
                })
            });
        if !whole {
            break;
        }
        accepted += size;
        expected += size as u64;
    }
    accepted
}

/// For each of the records whether it is of a whole batch above those before it, and the
/// numbers that are missing between them: for a repair, which takes all it can get. A gap
/// behind `promised` ends what counts, as in a recovery.
pub fn batches_past_gaps(
    headers: &[RecordHeader],
    (after, promised): (u64, u64),
) -> (Vec<bool>, Vec<Range<u64>>) {
    let mut taken = vec![false; headers.len()];
    let (mut gaps, mut last, mut at) = (Vec::new(), after, 0);
    while let Some(header) = headers.get(at) {
        let before = header.sequence.0.saturating_sub(1);
        let count = match before >= last {
            true => whole_batches(&headers[at..], before),
            false => 0,
        };
        if count == 0 {
            at += 1;
            continue;
        }
        if before > last && last >= promised {
            break;
        }
        if before > last {
            gaps.push(last + 1..before + 1);
        }
        taken[at..at + count].fill(true);
        at += count;
        last = headers[at - 1].sequence.0;
    }
    (taken, gaps)
}

/// Writes a range of a file over itself, up to the file's end: a process that
/// died, or whose sync failed, may have left it in the operating system's cache
/// alone, where a sync would pass it by. The caller syncs.
pub fn write_again(file: &dyn File, from: u64, end: u64) -> Result<()> {
    const CHUNK_BYTES: u64 = 1 << 20;
    let mut position = from;
    while position < end {
        let mut chunk = vec![0; CHUNK_BYTES.min(end - position) as usize];
        let count = file.read_at(&mut chunk, position)?;
        if count == 0 {
            break;
        }
        file.write_at(&chunk[..count], position)?;
        position += count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_base::SequenceNumber;

    fn header(sequence: u64, index: u32, remaining: u32, attempt: u16) -> RecordHeader {
        RecordHeader {
            kind: 1,
            sequence: SequenceNumber(sequence),
            batch_index: index,
            batch_remaining: remaining,
            attempt,
            ..RecordHeader::default()
        }
    }

    #[test]
    fn a_gap_or_part_of_a_batch_ends_what_counts() {
        let one = header(8, 0, 0, 0);
        let pair = [header(9, 0, 1, 0), header(10, 1, 0, 0)];
        assert_eq!(whole_batches(&[one, pair[0], pair[1]], 7), 3);
        assert_eq!(whole_batches(&[one, pair[0]], 7), 1);
        assert_eq!(whole_batches(&[one, pair[1]], 7), 1);
        assert_eq!(whole_batches(&[one], 6), 0);
        assert_eq!(whole_batches(&[header(8, 0, u32::MAX, 0)], 7), 0);
    }

    #[test]
    fn a_repair_takes_whole_batches_behind_gaps() {
        let found = [
            header(8, 0, 0, 0),
            header(10, 1, 0, 0),
            header(12, 0, 1, 0),
            header(13, 1, 0, 0),
            header(9, 0, 0, 0),
            header(14, 0, 1, 0),
            header(17, 0, 0, 0),
        ];
        let (taken, gaps) = batches_past_gaps(&found, (7, 15));
        assert_eq!(taken, [true, false, true, true, false, false, true]);
        assert_eq!(gaps, [9..12, 14..17]);
        let (taken, gaps) = batches_past_gaps(&found, (7, 13));
        assert_eq!(taken, [true, false, true, true, false, false, false]);
        assert_eq!(gaps.first(), Some(&(9..12)));
        assert_eq!(gaps.len(), 1);
    }

    #[test]
    fn what_was_taken_back_does_not_count() {
        let found = [
            header(8, 0, 0, 0),
            header(9, 0, 0, 0),
            header(9, 0, 0, 1),
            header(10, 0, 0, u16::MAX),
        ];
        assert_eq!(without_taken_back(&found), [true, false, true, true]);
    }
}
