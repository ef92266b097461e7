//! Compares the reads of a transaction with a later snapshot.
//!
//! The last resort of a commit: engines remember a few MiB of recent writes, and a
//! transaction may have begun before them. If everything it read is the same in a new
//! snapshot, it could have begun there.

use std::sync::Arc;

use cambium_base::{Error, Result, SequenceNumber, Value};

use super::{Names, name_of, number_of};
use crate::conflicts::ReadSet;
use crate::cursor::{Cursor, Direction, Entry, IterationOrder, KeyRange, ResumeToken};
use crate::engine::{Reader, Snapshot};

/// Keys that are compared at once.
const KEYS_AT_ONCE: usize = 1024;

/// Compares all keys and ranges of a set in two snapshots.
///
/// # Errors
/// `Conflict` with the first that differs; those of reading.
pub(super) fn compare(
    reads: &ReadSet,
    names: &Names,
    then: &Arc<dyn Snapshot>,
    now: &Arc<dyn Snapshot>,
) -> Result<()> {
    let keys: Vec<&[u8]> = reads.keys().collect();
    for keys in keys.chunk_by(|one, other| number_of(one) == number_of(other)) {
        let number = number_of(keys[0]);
        let (then, now) = (of(then, number, names)?, of(now, number, names)?);
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let bare: Vec<&[u8]> = keys.iter().map(|key| &key[2..]).collect();
            let (before, after) = (then.multi_get(&bare)?, now.multi_get(&bare)?);
            for (place, key) in bare.iter().enumerate() {
                if before[place] != after[place] || then.expires_at(key)? != now.expires_at(key)? {
                    let conflict = reads.key_conflict(keys[place]);
                    return Err(Error::Conflict { conflict });
                }
            }
        }
    }
    for (from, to) in reads.ranges() {
        let number = number_of(from);
        let (then, now) = (of(then, number, names)?, of(now, number, names)?);
        if !are_equal(&*then, &*now, from, to.as_deref())? {
            let conflict = reads.range_conflict(from, to.as_deref());
            return Err(Error::Conflict { conflict });
        }
    }
    Ok(())
}

/// A snapshot's namespace by its number.
fn of(snapshot: &Arc<dyn Snapshot>, number: u16, names: &Names) -> Result<Arc<dyn Snapshot>> {
    let Some(name) = name_of(number, names) else {
        return Ok(snapshot.clone());
    };
    Ok(match snapshot.namespace(&name)? {
        Some(snapshot) => snapshot,
        None => Arc::new(Empty {
            number,
            sequence: snapshot.sequence(),
        }),
    })
}

/// True if a range holds the same entries in both.
fn are_equal(
    then: &dyn Snapshot,
    now: &dyn Snapshot,
    from: &[u8],
    to: Option<&[u8]>,
) -> Result<bool> {
    let range = KeyRange {
        from: Some(from[2..].to_vec()),
        to: to
            .filter(|to| number_of(to) == number_of(from))
            .map(|to| to[2..].to_vec()),
    };
    let mut before = match then.scan(&range, Direction::Forward) {
        Err(Error::Unsupported { .. }) => return are_equal_unordered(then, now),
        cursor => cursor?,
    };
    let mut after = now.scan(&range, Direction::Forward)?;
    loop {
        match (before.next()?, after.next()?) {
            (None, None) => return Ok(true),
            (before, after) if before != after => return Ok(false),
            _ => {}
        }
    }
}

/// The same where the engine keeps no order: of everything.
fn are_equal_unordered(then: &dyn Snapshot, now: &dyn Snapshot) -> Result<bool> {
    let mut before = then.iterate(IterationOrder::Any, None)?;
    let mut entries = 0u64;
    while let Some(entry) = before.next()? {
        if now.get(&entry.key)?.as_ref() != Some(&entry.value) {
            return Ok(false);
        }
        entries += 1;
    }
    let mut after = now.iterate(IterationOrder::Any, None)?;
    while after.next_key()?.is_some() {
        if entries == 0 {
            return Ok(false);
        }
        entries -= 1;
    }
    Ok(entries == 0)
}

/// A namespace at a moment before it was made.
#[derive(Debug)]
pub(super) struct Empty {
    pub number: u16,
    pub sequence: SequenceNumber,
}

impl Reader for Empty {
    fn get(&self, _: &[u8]) -> Result<Option<Value>> {
        Ok(None)
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        Ok(vec![None; keys.len()])
    }

    fn scan(&self, _: &KeyRange, _: Direction) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(NoEntries))
    }

    fn iterate(&self, _: IterationOrder, _: Option<&ResumeToken>) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(NoEntries))
    }
}

impl Snapshot for Empty {
    fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    fn namespace_number(&self) -> u16 {
        self.number
    }
}

struct NoEntries;

impl Cursor for NoEntries {
    fn next(&mut self) -> Result<Option<Entry>> {
        Ok(None)
    }

    fn seek(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn resume_token(&self) -> Option<ResumeToken> {
        None
    }
}
