//! Moments that are held: what snapshots and cursors stand on.
//!
//! A pin keeps the tree from dropping what is seen at its moment, and the
//! collector from letting go of a segment that it may be led to. A segment whose
//! file is gone already stays open as long: its space comes back with the last pin
//! from before. A pin of a named snapshot sees a kept version of the tree instead, and holds
//! the segments that are there now.

use std::sync::Arc;

use cambium_base::{Error, Result};
use cambium_lsm::{Cursor, KeptView, Lookup};

use crate::core::Core;
use crate::names::Names;

/// A moment that is kept: dropping it lets it go.
#[derive(Debug)]
pub(crate) struct Pin {
    pub core: Arc<Core>,
    /// The last write that is seen.
    pub moment: u64,
    /// The moment that the ledger holds.
    held: u64,
    /// The version of the tree that is seen, if it is a kept one.
    view: Option<KeptView>,
}

impl Core {
    /// Keeps what is visible now.
    pub fn pin(self: &Arc<Self>) -> Result<Pin> {
        self.check_open()?;
        Ok(self.pin_at(self.ledger.pin_visible()))
    }

    /// The same; answers the namespaces of that moment.
    pub fn pin_with_names(self: &Arc<Self>) -> Result<(Pin, Arc<Names>)> {
        self.check_open()?;
        let (moment, names) = self.ledger.pin_visible_with(|| self.names.load_full());
        Ok((self.pin_at(moment), names))
    }

    fn pin_at(self: &Arc<Self>, moment: u64) -> Pin {
        Pin {
            core: self.clone(),
            moment,
            held: moment,
            view: None,
        }
    }
}

impl Pin {
    /// The same pin, of a kept version with writes up to a number.
    #[must_use]
    pub fn seeing(mut self, view: KeptView, last: u64) -> Self {
        self.view = Some(view);
        self.moment = last;
        self
    }

    /// Keeps the same moment once more.
    pub fn again(&self) -> Result<Pin> {
        self.core.check_open()?;
        self.core.ledger.pin_again(self.held);
        Ok(Pin {
            core: self.core.clone(),
            moment: self.moment,
            held: self.held,
            view: self.view.clone(),
        })
    }

    /// What the tree has of a full key.
    pub fn look_up(&self, full_key: &[u8]) -> Result<Lookup> {
        let tree = &self.core.tree;
        match &self.view {
            None => tree.get(full_key, self.moment),
            Some(view) => tree.get_kept(view, full_key, self.moment),
        }
    }

    /// What the tree has of several full keys.
    pub fn look_up_all(&self, full_keys: &[&[u8]]) -> Result<Vec<Lookup>> {
        let tree = &self.core.tree;
        match &self.view {
            None => tree.multi_get(full_keys, self.moment),
            Some(view) => tree.multi_get_kept(view, full_keys, self.moment),
        }
    }

    /// Damage of the tables that are seen here and are not the tree's.
    pub fn check_tables(&self) -> Result<Vec<Error>> {
        let mut damage = Vec::new();
        if let Some(view) = &self.view {
            let tree = &self.core.tree;
            tree.check_kept(view, &mut |finding| damage.push(finding))?;
        }
        Ok(damage)
    }

    /// A cursor of the tree over a range of full keys.
    pub fn cursor(&self, from: &[u8], to: &[u8]) -> Result<Cursor> {
        let tree = &self.core.tree;
        match &self.view {
            None => tree.cursor(Some(from), Some(to), self.moment),
            Some(view) => tree.cursor_kept(view, Some(from), Some(to), self.moment),
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.core.ledger.unpin(self.held);
    }
}
