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
//!
//! Who has looked a moment ago, to learn what is to be relocated, need not look a
//! second time: what came since is in the memtable that was written to then, or in
//! newer ones, as long as all of them are in memory.

use std::sync::{Arc, Weak};

use cambium_base::Result;
use cambium_io::sync::read;

use crate::entry::{Lookup, Moment};
use crate::memtable::Memtable;
use crate::tree::Tree;

/// The outcome for an entry that [`Tree::relocate_all`] was given.
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

/// An entry that is to have another value.
#[derive(Clone, Copy, Debug)]
pub struct Replaced<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The number of the write that gave it its value.
    pub sequence: u64,
    /// The value that it should have.
    pub old_value: &'a [u8],
    /// The one that it is to have.
    pub new_value: &'a [u8],
}

/// Up to where lookups have looked: see [`Tree::look_up_newest`].
#[derive(Clone, Debug)]
pub struct Seen(pub(crate) Weak<Memtable>);

impl Tree {
    /// Looks up several keys as they are visible now, all as of one moment (see
    /// [`Tree::get_current`]); answers the lookups, and up to where [`Tree::relocate_all`] need not look again.
    ///
    /// # Errors
    /// As [`Tree::multi_get`].
    pub fn look_up_newest(
        &self,
        keys: &[&[u8]],
        visible: impl Fn() -> Moment,
    ) -> Result<(Vec<Lookup>, Seen)> {
        self.check_open()?;
        let (view, moment) = self.current_view(visible);
        let seen = Seen(Arc::downgrade(&view.active));
        Ok((self.look_up_many(&view, keys, moment)?, seen))
    }

    /// Gives entries new values, each if it is the newest of its key and has its
    /// `old_value`. Writes and deletes that race with this win by their sequence
    /// numbers. In memory only until the next flush: the caller's log holds what is
    /// needed to do it again. Seals wait meanwhile: ask for some thousands at once.
    ///
    /// An entry that is not the newest of its key, which only a snapshot can
    /// see, is never relocated: what its value points to must stay.
    ///
    /// `seen`: what came with the lookups, or with the first of several, that found
    /// each of the entries, as the newest of its key and with its `old_value`.
    ///
    /// Cost: a lookup each, cheaper where keys come in order; with `seen`, mostly a look
    /// at memory each.
    ///
    /// # Errors
    /// Those of reading; nothing is changed then.
    pub fn relocate_all(
        &self,
        entries: &[Replaced<'_>],
        seen: Option<&Seen>,
    ) -> Result<Vec<Relocation>> {
        self.check_open()?;
        if let Some(relocated) = seen.and_then(|seen| self.relocate_seen(entries, seen)) {
            return Ok(relocated);
        }
        let keys: Vec<&[u8]> = entries.iter().map(|entry| entry.key).collect();
        loop {
            let view = self.view.load_full();
            let lookups = self.look_up_many(&view, &keys, Moment::MAX)?;
            let _rotation = read(&self.rotation);
            let active = self.view.load().active.clone();
            if !Arc::ptr_eq(&active, &view.active) {
                // Sealed since: what came between may be in either memtable.
                continue;
            }
            let pairs = entries.iter().zip(&lookups);
            let relocated = pairs.map(|(entry, lookup)| match lookup {
                Lookup::Found { sequence, value } if *sequence == entry.sequence => {
                    match *value == entry.old_value {
                        true => self.relocate_in(&active, entry),
                        false => Relocation::Changed,
                    }
                }
                _ => Relocation::Superseded,
            });
            return Ok(relocated.collect());
        }
    }

    /// As [`Tree::relocate_all`], if what came since the lookups is all in memory.
    fn relocate_seen(&self, entries: &[Replaced<'_>], seen: &Seen) -> Option<Vec<Relocation>> {
        let _rotation = read(&self.rotation);
        let view = self.view.load();
        let is_last =
            |memtable: &Arc<Memtable>| std::ptr::eq(Arc::as_ptr(memtable), seen.0.as_ptr());
        let sealed: Vec<&Memtable> = match is_last(&view.active) {
            true => Vec::new(),
            false => {
                let sealed = view.sealed.iter().map(|sealed| &sealed.memtable);
                let last = sealed.clone().position(is_last)?;
                sealed.take(last + 1).map(Arc::as_ref).collect()
            }
        };
        let relocated = entries.iter().map(|entry| {
            let hash = self.context.hash(entry.key);
            let (sequence, old) = (entry.sequence, entry.old_value);
            let came = sealed
                .iter()
                .map(|memtable| memtable.since(hash, entry.key, sequence, old));
            let hidden = came.flatten().next();
            hidden.unwrap_or_else(|| self.relocate_in(&view.active, entry))
        });
        Some(relocated.collect())
    }

    fn relocate_in(&self, active: &Memtable, entry: &Replaced<'_>) -> Relocation {
        let hash = self.context.hash(entry.key);
        let (old, new) = (entry.old_value, entry.new_value);
        active.relocate(hash, entry.key, entry.sequence, old, new)
    }
}
