//! Whether entries are the newest of their keys, of many keys that come in order: what a
//! garbage collection asks before it moves values.
//!
//! Sources are gone through one after the other with all keys that are still open, in
//! place of all sources for each key: locks are taken and tables named once for many, and
//! the processor goes on with the next key while the last one's memory is on its way.
//!
//! Most of what is asked is live, and lies in a table that no filter above knows of. That
//! spares the search in the table itself, where three things are known:
//!
//! 1. The entry that is asked about is in the tree: the caller counts what jobs drop.
//! 2. Of all tables the filter of one alone may have the key, and no memtable has it.
//!    Filters do not forget keys, so the entry is in that table.
//! 3. That table holds one entry of each key ([`crate::version::TableMetadata::sole`]).
//!
//! Then it is the only entry of its key anywhere.

use std::sync::Arc;

use cambium_base::Result;
use cambium_io::sync::atomic::Ordering;

use crate::entry::{EntryKind, Lookup, Moment};
use crate::relocate::Seen;
use crate::tree::{Tree, View};
use crate::version::TableFile;

/// What is known of a key so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No memtable has it, and the filters of so many tables may.
    InTables(u8),
    /// Of those, one alone, which has no key twice.
    Sole,
    /// A search of its own has to tell.
    Unclear,
    /// The newest entry passes, or does not.
    Known(bool),
}

impl Tree {
    /// For each of some keys, in ascending order: whether the newest entry that is
    /// visible now is a value that `passes`, which is given the key's place, the entry's
    /// number and its value. With it comes what [`Tree::relocate_all`] need not look at
    /// again.
    ///
    /// `all_there`: for each key there is an entry that passes, newest or not, in memtables
    /// or tables as they are now, or it is dropped by an edit that the owner was told of
    /// when this returns: the caller leaves those out.
    ///
    /// Cost: a look at memory for most keys that were not written again lately where
    /// `all_there` and tables are of this opening; a lookup in one table for others.
    ///
    /// # Errors
    /// As [`Tree::get`], for the first key that fails.
    pub fn newest_pass(
        &self,
        keys: &[&[u8]],
        all_there: bool,
        visible: impl Fn() -> Moment,
        passes: impl Fn(usize, u64, &[u8]) -> bool,
    ) -> Result<(Vec<bool>, Seen)> {
        self.check_open()?;
        let (view, moment) = self.current_view(visible);
        let seen = Seen(Arc::downgrade(&view.active));
        let states = match has_ranges(&view) {
            true => vec![State::Unclear; keys.len()],
            false => self.states(&view, keys, moment, all_there, &passes)?,
        };
        let unclear = |place: &usize| states[*place] == State::Unclear;
        let unclear: Vec<usize> = (0..keys.len()).filter(unclear).collect();
        let wanted: Vec<&[u8]> = unclear.iter().map(|&place| keys[place]).collect();
        let lookups = self.look_up_many(&view, &wanted, moment)?;
        let mut answers: Vec<bool> = states
            .iter()
            .map(|state| matches!(state, State::Sole | State::Known(true)))
            .collect();
        for (place, lookup) in unclear.into_iter().zip(&lookups) {
            answers[place] = match lookup {
                Lookup::Found { sequence, value } => passes(place, *sequence, value),
                _ => false,
            };
        }
        Ok((answers, seen))
    }

    /// What memory tells of keys, in a view without range tombstones.
    fn states(
        &self,
        view: &View,
        keys: &[&[u8]],
        moment: Moment,
        all_there: bool,
        passes: &impl Fn(usize, u64, &[u8]) -> bool,
    ) -> Result<Vec<State>> {
        let hashes: Vec<u64> = keys.iter().map(|key| self.context.hash(key)).collect();
        let mut states = vec![State::InTables(0); keys.len()];
        let sealed = view.sealed.iter().map(|sealed| &sealed.memtable);
        for memtable in std::iter::once(&view.active).chain(sealed) {
            if memtable.is_empty() {
                continue;
            }
            let open = |place: usize| states[place] == State::InTables(0);
            let open: Vec<usize> = (0..keys.len()).filter(|&place| open(place)).collect();
            memtable.newest_of_many(&hashes, keys, &open, |place, entry| {
                states[place] = match entry.sequence <= moment {
                    true => State::Known(
                        entry.kind == EntryKind::Value
                            && passes(place, entry.sequence, entry.value),
                    ),
                    false => State::Unclear,
                };
            });
        }
        for (level, files) in view.version.levels.iter().enumerate() {
            for file in files {
                let within = match level {
                    0 => 0..keys.len(),
                    _ => places_within(file, keys),
                };
                self.ask_filter(file, keys, &hashes, within, &mut states)?;
            }
        }
        for state in &mut states {
            *state = match *state {
                State::InTables(0) => State::Known(false),
                State::InTables(_) => State::Unclear,
                State::Sole if !all_there => State::Unclear,
                other => other,
            };
        }
        Ok(states)
    }

    /// Asks a table's filter for the keys that are still open.
    fn ask_filter(
        &self,
        file: &Arc<TableFile>,
        keys: &[&[u8]],
        hashes: &[u64],
        within: std::ops::Range<usize>,
        states: &mut [State],
    ) -> Result<()> {
        if within.is_empty() {
            return Ok(());
        }
        let table = self.context.table(file)?;
        let range = &file.metadata.range;
        let mut negatives = 0;
        for place in within {
            let state = &mut states[place];
            if !matches!(state, State::InTables(_) | State::Sole) {
                continue;
            }
            if !table.may_contain(hashes[place]) || !range.contains(keys[place]) {
                negatives += 1;
                continue;
            }
            *state = match *state {
                State::InTables(0) if file.metadata.sole && table.has_filter() => State::Sole,
                State::InTables(count) => State::InTables(count.saturating_add(1)),
                _ => State::InTables(2),
            };
        }
        let counters = &self.context.counters;
        counters
            .filter_negatives
            .fetch_add(negatives, Ordering::Relaxed);
        Ok(())
    }
}

/// True if anything of the view may hide keys that it does not name.
fn has_ranges(view: &View) -> bool {
    let sealed = view.sealed.iter().map(|sealed| &sealed.memtable);
    let mut memtables = std::iter::once(&view.active).chain(sealed);
    let mut files = view.version.files();
    memtables.any(|memtable| memtable.has_ranges())
        || files.any(|(_, file)| file.metadata.range_tombstones > 0)
}

/// The places of keys, in ascending order, that a table may have.
fn places_within(file: &TableFile, keys: &[&[u8]]) -> std::ops::Range<usize> {
    let range = &file.metadata.range;
    let begin = keys.partition_point(|key| *key < range.smallest.as_slice());
    let end = keys.partition_point(|key| !range.upper.ends_before(key));
    begin..end.max(begin)
}
