//! Reading many keys: of the store with what is pending, now or as of one moment.

use cambium::{Direction, KeyRange, Result};

use super::layout;
use super::overlay::{Overlay, Read, Source, Walk, walk};

/// The keys of all databases, with what is pending above them.
#[derive(Debug)]
pub struct View {
    /// What the store has.
    pub source: Source,
    /// What it does not have yet.
    pub overlay: Overlay,
    /// The engine keeps keys in order.
    pub is_ordered: bool,
}

impl View {
    /// Shows the entries of a range, which needs an engine with an order of keys.
    pub fn walk(
        &self,
        range: &KeyRange,
        direction: Direction,
        read: Read,
        visit: impl FnMut(&[u8], &[u8]) -> Walk,
    ) -> Result<()> {
        walk(&self.source, &self.overlay, range, direction, read, visit)
    }

    /// Shows every key of a database, without those that have expired by a moment if one is
    /// given. Then the walk reads values, too.
    pub fn keys(
        &self,
        database: u8,
        expired_by: Option<u64>,
        mut visit: impl FnMut(&[u8]) -> Walk,
    ) -> Result<()> {
        let range = layout::entries(database, &KeyRange::all());
        let mut visit = |stored: &[u8], value: &[u8]| {
            let expires = expired_by.and(layout::expires(value));
            match expires.zip(expired_by) {
                Some((moment, now)) if moment <= now => Walk::On,
                _ => visit(layout::key_of_entry(stored)),
            }
        };
        let read = match expired_by {
            Some(_) => Read::Entries,
            None => Read::Keys,
        };
        if self.is_ordered {
            return self.walk(&range, Direction::Forward, read, visit);
        }
        let mut entries = match &self.source {
            Source::Store(store) => store.iterate()?,
            Source::Snapshot(snapshot) => snapshot.iterate()?,
        };
        while let Some((stored, value)) = read.forward(&mut entries)? {
            let is_shown = range.contains(&stored) && self.overlay.get(&stored).is_none();
            if is_shown && visit(&stored, &value) == Walk::Enough {
                return Ok(());
            }
        }
        for (stored, value) in self.overlay.range(&range) {
            if value.is_some_and(|value| visit(stored, value) == Walk::Enough) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Shows the keys of a database in the order of SCAN, from a place on. Needs an engine
    /// with an order of keys.
    pub fn in_order(
        &self,
        database: u8,
        place: u32,
        mut visit: impl FnMut(u32, &[u8]) -> Walk,
    ) -> Result<()> {
        let range = layout::order_from(database, place);
        self.walk(
            &range,
            Direction::Forward,
            Read::Keys,
            |stored, _| match layout::key_of_order(stored) {
                Some((place, key)) => visit(place, key),
                None => Walk::On,
            },
        )
    }
}
