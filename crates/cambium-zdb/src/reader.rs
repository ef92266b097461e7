//! Reading, of a store and of a snapshot: keys become integers or buckets, and
//! what there is no order for is refused.

use cambium_api::limits::check_key;
use cambium_api::{Cursor, Direction, IterationOrder, KeyRange, Reader, ResumeToken, Snapshot};
use cambium_base::{Result, SequenceNumber, Value};

use crate::cursor::{BucketCursor, InsertionCursor, IntegerCursor, integer_bounds, integer_key};
use crate::engine::{ZdbSnapshot, ZdbStore};
use crate::options::Keys;
use crate::read::Pin;
use crate::strings::unordered;

fn refuse_order(keys: Keys, what: &'static str) -> Result<()> {
    match keys {
        Keys::Integer => Ok(()),
        Keys::String => Err(unordered(what)),
    }
}

fn scan_at(pin: Pin, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
    refuse_order(pin.core.shape.keys, "scan")?;
    Ok(Box::new(IntegerCursor::new(
        pin,
        integer_bounds(range),
        direction,
    )))
}

pub(crate) fn iterate_at(
    pin: Pin,
    order: IterationOrder,
    resume: Option<&ResumeToken>,
) -> Result<Box<dyn Cursor>> {
    match (pin.core.shape.keys, order) {
        (Keys::String, IterationOrder::Any) => Ok(Box::new(match resume {
            None => BucketCursor::new(pin),
            Some(token) => BucketCursor::resumed(pin, token)?,
        })),
        (Keys::String, _) => Err(unordered("iterating in an order")),
        (Keys::Integer, IterationOrder::Insertion) => Ok(Box::new(match resume {
            None => InsertionCursor::new(pin),
            Some(token) => InsertionCursor::resumed(pin, token)?,
        })),
        (Keys::Integer, _) => Ok(Box::new(match resume {
            None => IntegerCursor::new(pin, Some((0, u64::MAX)), Direction::Forward),
            Some(token) => IntegerCursor::resumed(pin, token)?,
        })),
    }
}

fn multi_get_at(pin: &Pin, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
    pin.core.check_open()?;
    match pin.core.shape.keys {
        Keys::String => pin.core.string_multi_get_at(keys, pin),
        Keys::Integer => {
            let keys = keys
                .iter()
                .map(|key| integer_key(key))
                .collect::<Result<Vec<_>>>()?;
            let entries = pin.core.read_versions(&keys, pin.sequence)?;
            Ok(entries
                .into_iter()
                .map(|entry| entry.map(|entry| entry.value))
                .collect())
        }
    }
}

impl Reader for ZdbStore {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.core.check_open()?;
        match self.core.shape.keys {
            Keys::Integer => self.core.read_latest(integer_key(key)?),
            Keys::String => {
                check_key(key)?;
                self.core.string_get(key)
            }
        }
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        multi_get_at(&self.core.pin()?, keys)
    }

    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        scan_at(self.core.pin()?, range, direction)
    }

    fn iterate(
        &self,
        order: IterationOrder,
        resume: Option<&ResumeToken>,
    ) -> Result<Box<dyn Cursor>> {
        iterate_at(self.core.pin()?, order, resume)
    }
}

impl Reader for ZdbSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let core = &self.pin.core;
        core.check_open()?;
        match core.shape.keys {
            Keys::Integer => {
                let entry = core.read_version(integer_key(key)?, Some(self.pin.sequence))?;
                Ok(entry.map(|entry| entry.value))
            }
            Keys::String => core.string_get_at(key, &self.pin),
        }
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        multi_get_at(&self.pin, keys)
    }

    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        scan_at(self.pin.again()?, range, direction)
    }

    fn iterate(
        &self,
        order: IterationOrder,
        resume: Option<&ResumeToken>,
    ) -> Result<Box<dyn Cursor>> {
        iterate_at(self.pin.again()?, order, resume)
    }
}

impl Snapshot for ZdbSnapshot {
    fn sequence(&self) -> SequenceNumber {
        SequenceNumber(self.pin.sequence)
    }
}
