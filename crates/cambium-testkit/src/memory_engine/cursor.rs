//! Cursors over a kept moment.

use std::ops::Bound;
use std::sync::Arc;

use cambium_api::{Cursor, Direction, Entry, Error, KeyRange, Result, ResumeToken, Value};

use super::engine::Core;
use super::state::{Moment, bounds};

/// First byte of a token of a pass by key; the last key visited follows.
const BY_KEY: u8 = 1;
/// First byte of a token of a pass by insertion; a sequence number follows.
const BY_INSERTION: u8 = 2;

/// Walks a range of keys.
pub(super) struct KeyCursor {
    core: Arc<Core>,
    moment: Moment,
    range: KeyRange,
    direction: Direction,
    /// The last key answered: the next one lies behind it.
    last: Option<Vec<u8>>,
    /// Where a seek went to: the next key lies at or behind it.
    sought: Option<Vec<u8>>,
}

impl KeyCursor {
    pub(super) fn new(
        core: Arc<Core>,
        moment: Moment,
        range: KeyRange,
        direction: Direction,
    ) -> Self {
        KeyCursor {
            core,
            moment,
            range,
            direction,
            last: None,
            sought: None,
        }
    }

    /// A pass over all keys behind those a token's cursor has answered.
    pub(super) fn resumed(core: Arc<Core>, moment: Moment, token: &ResumeToken) -> Result<Self> {
        let mut cursor = KeyCursor::new(core, moment, KeyRange::all(), Direction::Forward);
        match token.as_bytes().split_first() {
            Some((&BY_KEY, key)) => cursor.last = Some(key.to_vec()),
            _ => return Err(foreign_token()),
        }
        Ok(cursor)
    }

    fn find(&self) -> Option<(Vec<u8>, Value)> {
        let (mut from, mut to) = bounds(&self.range)?;
        let nearer = match (&self.sought, &self.last) {
            (Some(key), _) => Some(Bound::Included(key.as_slice())),
            (None, Some(key)) => Some(Bound::Excluded(key.as_slice())),
            (None, None) => None,
        };
        if let Some(nearer) = nearer {
            let (Bound::Included(place) | Bound::Excluded(place)) = nearer else {
                return None;
            };
            match self.direction {
                Direction::Forward if self.range.from.as_deref().is_none_or(|at| at <= place) => {
                    from = nearer;
                }
                Direction::Reverse if self.range.to.as_deref().is_none_or(|at| at > place) => {
                    to = nearer;
                }
                _ => {}
            }
        }
        if !is_range(from, to) {
            return None;
        }
        let mut entries = self.moment.map.range::<[u8], _>((from, to));
        let found = match self.direction {
            Direction::Forward => entries.next(),
            Direction::Reverse => entries.next_back(),
        };
        found.map(|(key, slot)| (key.clone(), slot.value.clone()))
    }
}

/// False for bounds that hold nothing, which the standard map panics at.
fn is_range(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from <= to,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) => from < to,
        _ => true,
    }
}

fn foreign_token() -> Error {
    Error::InvalidArgument("a resume token of another pass or engine".to_string())
}

impl Cursor for KeyCursor {
    fn another(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        let (core, moment) = (self.core.clone(), self.moment.clone());
        let cursor = KeyCursor::new(core, moment, range.clone(), direction);
        Ok(Box::new(cursor))
    }

    fn next(&mut self) -> Result<Option<Entry>> {
        self.core.check_open()?;
        let Some((key, value)) = self.find() else {
            return Ok(None);
        };
        self.sought = None;
        self.last = Some(key.clone());
        Ok(Some(Entry {
            key: Value::from(key),
            value,
        }))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.core.check_open()?;
        self.sought = Some(key.to_vec());
        Ok(())
    }

    fn resume_token(&self) -> Option<ResumeToken> {
        let whole = self.range.is_all() && self.direction == Direction::Forward;
        let last = self.last.as_ref().filter(|_| whole)?;
        let mut token = vec![BY_KEY];
        token.extend_from_slice(last);
        Some(ResumeToken::from_bytes(token))
    }
}

/// Walks all entries in the order of their writes.
pub(super) struct InsertionCursor {
    core: Arc<Core>,
    /// Sequence number, key and value; the next one last.
    rest: Vec<(u64, Vec<u8>, Value)>,
    last: u64,
}

impl InsertionCursor {
    pub(super) fn new(
        core: Arc<Core>,
        moment: &Moment,
        resume: Option<&ResumeToken>,
    ) -> Result<Self> {
        let after = match resume.map(|token| token.as_bytes().split_first()) {
            None => 0,
            Some(Some((&BY_INSERTION, number))) => {
                let number = number.try_into().map_err(|_| foreign_token())?;
                u64::from_le_bytes(number)
            }
            Some(_) => return Err(foreign_token()),
        };
        let entries = moment.map.iter();
        let mut rest: Vec<_> = entries
            .map(|(key, slot)| (slot.sequence.0, key.clone(), slot.value.clone()))
            .filter(|(sequence, _, _)| *sequence > after)
            .collect();
        rest.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.0));
        Ok(InsertionCursor {
            core,
            rest,
            last: after,
        })
    }
}

impl Cursor for InsertionCursor {
    fn next(&mut self) -> Result<Option<Entry>> {
        self.core.check_open()?;
        Ok(self.rest.pop().map(|(sequence, key, value)| {
            self.last = sequence;
            Entry {
                key: Value::from(key),
                value,
            }
        }))
    }

    fn resume_token(&self) -> Option<ResumeToken> {
        let mut token = vec![BY_INSERTION];
        token.extend_from_slice(&self.last.to_le_bytes());
        Some(ResumeToken::from_bytes(token))
    }
}
