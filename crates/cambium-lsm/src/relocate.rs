//! Giving an entry another value without a new sequence number.
//!
//! A value log moves values while it collects garbage, and the tree must then
//! point to where they went. Writing the key again would bring deleted keys
//! back and break the order of writes, so the entry keeps its number, and the
//! new value is believed because it lies in a newer source.
//!
//! That is only safe while the entry is the newest of its key (crate essay,
//! promise 1): otherwise an old number would stand above a newer one, and a
//! lookup, which ends at the first source with an entry, would find it. So the
//! lookup is made first, with I/O and without a lock; then, under the lock that
//! holds off seals, what could have come since is looked for in the one memtable
//! that it can be in.

use std::sync::{Arc, PoisonError};

use cambium_base::Result;

use crate::entry::{Lookup, Moment};
use crate::memtable::Replacement;
use crate::tree::Tree;

/// What [`Tree::relocate`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocation {
    /// The entry has the new value.
    Done,
    /// The key was written or deleted since, alone or with a range, or there is
    /// no such entry.
    Superseded,
    /// The entry has another value than the one named.
    Changed,
}

impl Tree {
    /// Gives the entry (key, sequence) a new value, if it is the newest of its
    /// key and its value is `old_value`. Writes and deletes that race with this
    /// win by their sequence number. In memory only until the next flush: the
    /// caller's log holds what is needed to do it again.
    ///
    /// An entry that is not the newest of its key, which only a snapshot can
    /// see, is never relocated: what its value points to must stay.
    ///
    /// Cost: a lookup.
    ///
    /// # Errors
    /// Those of reading; nothing is changed then.
    pub fn relocate(
        &self,
        key: &[u8],
        sequence: u64,
        old_value: &[u8],
        new_value: &[u8],
    ) -> Result<Relocation> {
        self.check_open()?;
        let hash = self.context.hash(key);
        loop {
            let view = self.view.load_full();
            match self.look_up(&view, key, Moment::MAX)? {
                Lookup::Found {
                    sequence: found,
                    value,
                } if found == sequence => {
                    if *value != *old_value {
                        return Ok(Relocation::Changed);
                    }
                }
                _ => return Ok(Relocation::Superseded),
            }
            let _rotation = self.rotation.read().unwrap_or_else(PoisonError::into_inner);
            let active = self.view.load().active.clone();
            if !Arc::ptr_eq(&active, &view.active) {
                // Sealed since: what came between may be in either memtable.
                continue;
            }
            return Ok(
                match active.relocate(hash, key, sequence, old_value, new_value) {
                    Replacement::Done => Relocation::Done,
                    Replacement::Superseded => Relocation::Superseded,
                    Replacement::Changed => Relocation::Changed,
                },
            );
        }
    }
}
