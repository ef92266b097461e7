//! Walks over every entry, in the order of the keys' hashes.
//!
//! The index is read a segment at a time, as of the cursor's moment ([`State::page`]),
//! and the entries of a segment some at a time, together. The hash's secret belongs
//! to the store, so a place in the order can be come back to in another process.
//!
//! [`State::page`]: crate::state::State::page

use std::collections::VecDeque;
use std::sync::Arc;

use cambium_api::{Cursor, Entry, ResumeToken};
use cambium_base::coding::{u32_at, u64_at};
use cambium_base::{Error, Result};
use cambium_index::cuckoo::SlotKey;

use crate::core::Pin;
use crate::place::Place;

/// Entries read together.
const READ_TOGETHER: usize = 64;
/// Bytes read together, about.
const READ_BYTES: u64 = 4 << 20;
const TOKEN_BYTES: usize = 12;

/// A walk that sees one moment.
#[derive(Debug)]
pub(crate) struct HashCursor {
    pin: Arc<Pin>,
    /// Entries of the current segment that are not read yet.
    page: VecDeque<(u64, SlotKey, Place)>,
    /// Entries that are read and not answered yet, with their hashes.
    ready: VecDeque<(u64, Entry)>,
    /// Where the next segment begins; `None` after the last.
    next: Option<u64>,
    /// Hash of the last entry answered, and how many of that hash were.
    last: (u64, u32),
}

impl HashCursor {
    pub fn new(pin: Arc<Pin>) -> Self {
        HashCursor {
            pin,
            page: VecDeque::new(),
            ready: VecDeque::new(),
            next: Some(0),
            last: (0, 0),
        }
    }

    /// Goes on after what a token speaks of.
    pub fn resumed(pin: Arc<Pin>, token: &ResumeToken) -> Result<Self> {
        let bytes = token.as_bytes();
        if bytes.len() != TOKEN_BYTES || u64_at(bytes, 0) >> cambium_index::cuckoo::HASH_BITS != 0 {
            return Err(Error::InvalidArgument(
                "this resume token is not of an alphard store".to_string(),
            ));
        }
        let mut cursor = HashCursor::new(pin);
        cursor.last = (u64_at(bytes, 0), u32_at(bytes, 8));
        cursor.next = Some(cursor.last.0);
        cursor.turn_page()?;
        let (hash, count) = cursor.last;
        for _ in 0..count {
            if cursor
                .page
                .front()
                .is_some_and(|(found, _, _)| *found == hash)
            {
                cursor.page.pop_front();
            }
        }
        Ok(cursor)
    }

    /// Reads the next segment of the index.
    fn turn_page(&mut self) -> Result<()> {
        if let Some(from) = self.next {
            let page = self.pin.page(from)?;
            self.page = page.entries.into();
            self.next = page.next;
        }
        Ok(())
    }

    /// Reads the next entries of the page.
    fn fill(&mut self) -> Result<()> {
        while self.page.is_empty() && self.next.is_some() {
            self.turn_page()?;
        }
        let core = &self.pin.core;
        let mut bytes = 0;
        let mut count = 0;
        for (_, _, place) in self.page.iter().take(READ_TOGETHER) {
            bytes += u64::from(place.extent().blocks) * u64::from(core.block_bytes);
            count += 1;
            if bytes >= READ_BYTES {
                break;
            }
        }
        let some: Vec<_> = self.page.drain(..count).collect();
        let places: Vec<_> = some
            .iter()
            .map(|(_, slot, place)| (*slot, *place))
            .collect();
        for ((hash, _, _), entry) in some.into_iter().zip(core.read_entries(&places)?) {
            let entry = entry?;
            let entry = Entry {
                key: entry.key,
                value: entry.value,
            };
            self.ready.push_back((hash, entry));
        }
        Ok(())
    }
}

impl Cursor for HashCursor {
    fn next(&mut self) -> Result<Option<Entry>> {
        self.pin.core.check_open()?;
        if self.ready.is_empty() {
            self.fill()?;
        }
        let Some((hash, entry)) = self.ready.pop_front() else {
            return Ok(None);
        };
        let (last, count) = self.last;
        self.last = (hash, if last == hash { count + 1 } else { 1 });
        Ok(Some(entry))
    }

    fn resume_token(&self) -> Option<ResumeToken> {
        let (hash, count) = self.last;
        let mut bytes = hash.to_le_bytes().to_vec();
        bytes.extend_from_slice(&count.to_le_bytes());
        Some(ResumeToken::from_bytes(bytes))
    }
}
