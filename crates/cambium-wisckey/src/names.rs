//! Namespaces: their names, and dropping one.
//!
//! A namespace is a number in front of its keys. Making one and dropping one are records of the
//! log, in the order of all writes. A drop deletes the range of all its keys, which is one entry
//! of the tree, so it takes the same time whatever the namespace holds; compaction and
//! collection give its space back, as after any delete of a range.
//!
//! Numbers are never given twice. So a handle of a namespace that was dropped cannot reach
//! another one, snapshots from before read what their numbers led to, and the change feed can
//! tell for each record which namespace it was of: the names of dropped namespaces are kept as
//! long as the log has changes of theirs.
//!
//! Names change together with the newest visible write, under the ledger's pins: a snapshot has
//! the names of its moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cambium_api::Durability;
use cambium_base::{Error, Result};

use crate::core::Core;
use crate::ledger::LedgerState;
use crate::note::NoteItem;
use crate::seeded_bug::SeededBug;
use crate::value_log::Writer;
use crate::write::WriteRequest;

/// Longest name of a namespace or a named snapshot, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 255;
/// Numbers of namespaces lie below this one, which stands for a namespace without keys.
pub(crate) const NO_NAMESPACE: u16 = u16::MAX;

/// The namespaces at one moment. Never changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    numbers: BTreeMap<String, u16>,
    live: BTreeSet<u16>,
    /// Names of those that were dropped, for the change feed.
    dropped: BTreeMap<u16, String>,
}

impl Names {
    /// Those that committed notes know.
    pub fn of(state: &LedgerState) -> Self {
        let dropped = state.dropped_namespaces.iter();
        Names {
            dropped: dropped
                .map(|(&number, (name, _))| (number, name.clone()))
                .collect(),
            ..Names::of_numbers(&state.namespaces)
        }
    }

    /// Of a named snapshot.
    pub fn of_numbers(namespaces: &BTreeMap<u16, String>) -> Self {
        Names {
            numbers: namespaces
                .iter()
                .map(|(&number, name)| (name.clone(), number))
                .collect(),
            live: namespaces.keys().copied().collect(),
            dropped: BTreeMap::new(),
        }
    }

    /// The number of a name.
    pub fn number(&self, name: &str) -> Option<u16> {
        self.numbers.get(name).copied()
    }

    /// The name of a number, of one that was dropped too.
    pub fn name(&self, number: u16) -> Option<&str> {
        let mut numbers = self.numbers.iter();
        let live = numbers.find(|&(_, &known)| known == number);
        let live = live.map(|(name, _)| name.as_str());
        live.or_else(|| self.dropped.get(&number).map(String::as_str))
    }

    /// True if the namespace is there.
    pub fn has(&self, number: u16) -> bool {
        self.live.contains(&number)
    }

    /// Names in order, the default one first.
    pub fn all(&self) -> impl Iterator<Item = (&str, u16)> {
        let numbers = self.numbers.iter();
        numbers.map(|(name, &number)| (name.as_str(), number))
    }

    /// The answer to calls on a namespace that was dropped.
    pub fn was_dropped(&self, number: u16) -> Error {
        let name = self.name(number).unwrap_or_default();
        not_found(format!("{name}, which was dropped"))
    }

    fn insert(&mut self, name: String, number: u16) {
        self.live.insert(number);
        self.numbers.insert(name, number);
    }

    fn remove(&mut self, number: u16) {
        let name = self.name(number).map(str::to_string);
        if let Some(name) = name.filter(|_| self.live.remove(&number)) {
            self.numbers.remove(&name);
            self.dropped.insert(number, name);
        }
    }
}

/// A namespace that comes or goes with a write.
#[derive(Clone, Debug)]
pub(crate) enum NameChange {
    Made(u16, String),
    Dropped(u16),
}

impl Core {
    /// The number of a namespace, made if it is not there.
    pub fn namespace_number(self: &Arc<Self>, name: &str) -> Result<u16> {
        self.check_open()?;
        if let Some(number) = self.names.load().number(name) {
            return Ok(number);
        }
        if name.len() > MAX_NAME_BYTES {
            return Err(Error::LimitExceeded(format!(
                "a namespace's name of {} bytes: names have up to {MAX_NAME_BYTES}",
                name.len()
            )));
        }
        let mut request = WriteRequest::new([], Durability::Written);
        request.new_namespace = Some(name.to_string());
        self.write_request(request)?;
        let number = self.names.load().number(name);
        number.ok_or_else(|| not_found(name.to_string()))
    }

    /// Drops a namespace with everything in it, durably.
    pub fn drop_namespace(self: &Arc<Self>, name: &str) -> Result<()> {
        self.check_writable()?;
        if name.is_empty() {
            return Err(Error::InvalidArgument(
                "the default namespace cannot be dropped; delete_range empties it".to_string(),
            ));
        }
        let mut request = WriteRequest::new([], Durability::Synced);
        request.dropped_namespace = Some(name.to_string());
        self.write_request(request).map(|_| ())
    }

    /// Refuses a namespace that was dropped. A reader asks this when it has read: names change
    /// before a drop is visible.
    pub fn check_namespace(&self, number: u16) -> Result<()> {
        let names = self.names.load();
        match number == 0 || names.has(number) {
            true => Ok(()),
            false => Err(names.was_dropped(number)),
        }
    }

    /// Names and numbers of all namespaces.
    pub fn namespaces(&self) -> Vec<(String, u16)> {
        let names = self.names.load();
        let all = names.all();
        all.map(|(name, number)| (name.to_string(), number))
            .collect()
    }

    /// The names after some changes with numbers from `sequence` on, which the next note tells
    /// of. Called under the writer lock.
    pub fn change_names(
        &self,
        writer: &mut Writer,
        changes: impl Iterator<Item = (u64, NameChange)>,
    ) -> Option<Arc<Names>> {
        let mut next: Option<Names> = None;
        for (sequence, change) in changes {
            let names = next.get_or_insert_with(|| Names::clone(&self.names.load()));
            match change {
                NameChange::Made(number, name) => {
                    writer.next_namespace = writer.next_namespace.max(u32::from(number) + 1);
                    names.insert(name.clone(), number);
                    writer.pending.push(NoteItem::Namespace { number, name });
                }
                NameChange::Dropped(number) => {
                    names.remove(number);
                    if !self.has_bug(SeededBug::NamespaceDropUnnoted) {
                        let dropped = NoteItem::NamespaceDropped { number, sequence };
                        writer.pending.push(dropped);
                    }
                }
            }
        }
        next.map(Arc::new)
    }
}

pub(crate) fn not_found(name: String) -> Error {
    Error::NotFound {
        kind: "namespace",
        name,
    }
}
