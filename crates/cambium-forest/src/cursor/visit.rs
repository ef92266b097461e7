//! Entries that are shown where they lie, in packed blocks.

use std::ops::ControlFlow;

use cambium_api::{Cursor, Visit};
use cambium_base::Result;

use super::{EntryCursor, is_behind};

impl EntryCursor {
    /// See [`Cursor::visit`].
    pub(super) fn visit_entries(&mut self, visit: &mut Visit<'_>) -> Result<ControlFlow<()>> {
        loop {
            if self.is_trie_alone && self.visit_neighbours(visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let Some(entry) = self.next()? else {
                return Ok(ControlFlow::Continue(()));
            };
            if visit(&entry.key, &entry.value).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    /// Shows the entries that are left of the packed block or run of records at hand.
    fn visit_neighbours(&mut self, visit: &mut Visit<'_>) -> Result<ControlFlow<()>> {
        loop {
            self.pin.core.check_open()?;
            let neighbour = self.trie.neighbour(&self.pin.view.database);
            let damage = match neighbour {
                Ok(Some(entry)) if !is_behind(&self.range, self.direction, entry.key) => {
                    self.is_last_in_trie = true;
                    if visit(entry.key, entry.value).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    continue;
                }
                Ok(None) => return Ok(ControlFlow::Continue(())),
                Ok(Some(_)) => None,
                Err(damage) => Some(damage),
            };
            self.end_before_neighbour();
            return damage.map_or(Ok(ControlFlow::Continue(())), Err);
        }
    }
}
