//! Whether a history of reads and writes of registers could have happened one at a time.
//!
//! Each write has a value of its own, so each read says which write it saw, and an order is
//! decided in a sort per key (Gibbons and Korach, *Testing Shared Memories*, 1997). A write
//! and the reads that saw it are a *cluster*. Its *zone* lies between the first end and the
//! last beginning of its calls. If the end is first, the value must hold throughout the zone:
//! no two such zones may overlap. Otherwise all calls of the cluster overlap at some moment,
//! and the cluster fits in wherever no zone of the first kind covers it.

use std::collections::BTreeMap;

/// The end of a call that was not answered.
pub const NEVER: u64 = u64::MAX;

/// A call of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    pub key: usize,
    /// The value that was written or read. 0 is the register before the first write.
    pub value: u64,
    pub is_write: bool,
    pub begun: u64,
    pub ended: u64,
    /// The node that has answered, or was asked last.
    pub node: usize,
}

/// Checks a history that begins with `initial`, one value for each key.
pub fn check(initial: &[u64], history: &[Call]) -> Result<(), String> {
    let mut clusters: BTreeMap<(usize, u64), Vec<Call>> = BTreeMap::new();
    for (key, value) in initial.iter().copied().enumerate() {
        let before = Call {
            key,
            value,
            is_write: true,
            begun: 0,
            ended: 0,
            node: 0,
        };
        clusters.insert((key, value), vec![before]);
    }
    for call in history {
        clusters
            .entry((call.key, call.value))
            .or_default()
            .push(*call);
    }
    for key in 0..initial.len() {
        check_key(clusters.range((key, 0)..=(key, u64::MAX)))?;
    }
    Ok(())
}

fn check_key<'a>(
    clusters: impl Iterator<Item = (&'a (usize, u64), &'a Vec<Call>)>,
) -> Result<(), String> {
    let (mut held, mut brief) = (Vec::new(), Vec::new());
    for (_, calls) in clusters {
        let write = calls.iter().find(|call| call.is_write);
        let write = write.ok_or_else(|| format!("{:?} was written by nobody", calls[0]))?;
        if let Some(early) = calls.iter().find(|call| call.ended < write.begun) {
            return Err(format!("{early:?} is before {write:?}"));
        }
        let first_end = calls.iter().map(|call| call.ended).min().unwrap_or(NEVER);
        let last_begin = calls.iter().map(|call| call.begun).max().unwrap_or(0);
        match first_end {
            // Nothing says that it was done.
            NEVER => {}
            end if end < last_begin => held.push((end, last_begin, calls)),
            end => brief.push((last_begin, end, calls)),
        }
    }
    held.sort_by_key(|zone| zone.0);
    for pair in held.windows(2) {
        if pair[1].0 < pair[0].1 {
            return Err(conflict(pair[0].2, pair[1].2));
        }
    }
    for (from, to, calls) in brief {
        let place = held.partition_point(|zone| zone.0 < from);
        let before = place.checked_sub(1).map(|place| &held[place]);
        if let Some(zone) = before.filter(|zone| to < zone.1) {
            return Err(conflict(zone.2, calls));
        }
    }
    Ok(())
}

/// The calls that say so, and no others.
fn conflict(one: &[Call], other: &[Call]) -> String {
    let telling = |calls: &[Call]| {
        let write = calls.iter().find(|call| call.is_write);
        let first = calls.iter().min_by_key(|call| call.ended);
        let last = calls.iter().max_by_key(|call| call.begun);
        format!("\n  write {write:?}\n  ended first {first:?}\n  began last {last:?}")
    };
    format!("no order of these:{}\nand{}", telling(one), telling(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrote(value: u64, begun: u64, ended: u64) -> Call {
        Call {
            key: 0,
            value,
            is_write: true,
            begun,
            ended,
            node: 0,
        }
    }

    fn read(value: u64, begun: u64, ended: u64) -> Call {
        Call {
            is_write: false,
            ..wrote(value, begun, ended)
        }
    }

    #[test]
    fn histories_are_told_apart() {
        let possible: [&[Call]; 5] = [
            &[read(0, 1, 2), wrote(1, 3, 6), read(1, 4, 5), read(1, 7, 8)],
            // Two writes at the same time, in either order, and a read of each.
            &[wrote(1, 1, 9), wrote(2, 1, 9), read(2, 2, 3), read(1, 4, 5)],
            // A write that was not answered takes effect late, or never.
            &[wrote(1, 1, NEVER), read(0, 2, 3), read(1, 50, 51)],
            &[wrote(1, 1, NEVER), wrote(2, 2, 3), read(2, 50, 51)],
            &[wrote(1, 1, 5), wrote(2, 2, 4), read(1, 6, 7)],
        ];
        for history in possible {
            assert_eq!(check(&[0], history), Ok(()), "{history:?}");
        }
        let impossible: [&[Call]; 6] = [
            // A lost write; a stale read; a read of what is not written yet.
            &[wrote(1, 1, 2), read(0, 3, 4)],
            &[wrote(1, 1, 2), wrote(2, 3, 4), read(1, 5, 6)],
            &[read(1, 1, 2), wrote(1, 3, 4)],
            // A value that nobody wrote, and one that comes back.
            &[read(7, 1, 2)],
            &[wrote(1, 1, 9), read(1, 2, 3), read(0, 4, 5)],
            &[wrote(1, 1, 2), read(1, 20, 21), wrote(2, 5, 6)],
        ];
        for history in impossible {
            assert!(check(&[0], history).is_err(), "{history:?}");
        }
    }
}
