//! What readers see: a view, and moments that are pinned.
//!
//! A [`View`] is everything that a reader needs, and never changes: the database
//! file, the active and the sealed write-buffer index, the sorted run of those before, names
//! and roots of all namespaces. Sealing a buffer, packing it, installing a flush's roots, a compaction, a
//! rollback, a namespace that comes or goes each put a new view in the place of the old one; a thread
//! that holds the old one goes on with it.
//!
//! A reader looks into the active buffer, then the sealed one, then the run, then the trie
//! (or what is known of its addresses), each time for the newest version at or before its
//! moment. The moment is read *after* the view, so it is never before what the roots
//! hold. A lookup of one key needs no more. A reader that must see one moment in
//! several lookups takes a [`Pin`]: view and moment that belong together, and a note that keeps
//! the buffers from dropping what was then.

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_base::{Error, Result};
use cambium_io::sync::OnceLock;
use cambium_io::sync::atomic::Ordering;

use crate::addresses::Known;
use crate::buffer::Buffer;
use crate::core::{Core, lock};
use crate::database::Database;
use crate::format::NamespaceRoot;
use crate::ranges::RangeSet;
use crate::sorted_run::SortedRun;

/// Roots of all namespaces at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roots {
    /// They hold every write up to here.
    pub sequence: u64,
    pub namespaces: BTreeMap<u16, NamespaceRoot>,
}

impl Roots {
    /// Documents of all namespaces.
    pub fn documents(&self) -> u64 {
        self.namespaces.values().map(|root| root.documents).sum()
    }

    /// Nodes of all tries.
    pub fn nodes(&self) -> u64 {
        self.namespaces.values().map(|root| root.nodes).sum()
    }
}

/// The namespaces that there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    by_name: BTreeMap<String, u16>,
    /// The same the other way round.
    by_number: BTreeMap<u16, String>,
    /// Those that were dropped since the store was opened, for errors.
    dropped: BTreeMap<u16, String>,
}

impl Names {
    pub fn insert(&mut self, name: String, number: u16) {
        if let Some(before) = self.by_name.insert(name.clone(), number) {
            self.by_number.remove(&before);
        }
        self.by_number.insert(number, name);
    }

    pub fn remove(&mut self, number: u16) {
        if let Some(name) = self.by_number.remove(&number) {
            self.by_name.remove(&name);
            self.dropped.insert(number, name);
        }
    }

    pub fn number(&self, name: &str) -> Option<u16> {
        self.by_name.get(name).copied()
    }

    /// True if it is there, and was not dropped.
    pub fn has(&self, number: u16) -> bool {
        self.by_number.contains_key(&number)
    }

    /// In order.
    pub fn numbers(&self) -> impl Iterator<Item = u16> {
        self.by_number.keys().copied()
    }

    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u16)> {
        self.by_name
            .iter()
            .map(|(name, &number)| (name.as_str(), number))
    }
}

impl FromIterator<(String, u16)> for Names {
    fn from_iter<I: IntoIterator<Item = (String, u16)>>(all: I) -> Self {
        let mut names = Names::default();
        for (name, number) in all {
            names.insert(name, number);
        }
        names
    }
}

/// Views between two flushes share one. It holds the next one, so none is gone while a view
/// from before it is held: its end says that nothing which earlier flushes have replaced or
/// moved is read.
#[derive(Debug, Default)]
pub(crate) struct Era {
    next: OnceLock<Arc<Era>>,
}

impl Era {
    /// The era of the views after a flush.
    pub fn next(&self) -> Arc<Era> {
        self.next.get_or_init(Arc::default).clone()
    }
}

impl Drop for Era {
    fn drop(&mut self) {
        // One after the other: a long row of them would fill the stack.
        let mut next = self.next.take();
        while let Some(era) = next {
            next = Arc::into_inner(era).and_then(|mut era| era.next.take());
        }
    }
}

/// Everything a reader needs.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub database: Arc<Database>,
    pub active: Arc<Buffer>,
    pub sealed: Option<Arc<Buffer>>,
    /// What buffers before these held, unless the roots have it.
    pub run: Arc<SortedRun>,
    pub roots: Arc<Roots>,
    pub names: Arc<Names>,
    /// Addresses of these roots' documents, by their keys.
    pub known: Known,
    pub era: Arc<Era>,
}

impl View {
    /// Fails for a namespace that was dropped.
    pub fn check_namespace(&self, namespace: u16) -> Result<()> {
        if namespace == 0 || self.names.has(namespace) {
            return Ok(());
        }
        let name = self.names.dropped.get(&namespace);
        let name = name.map_or("one", String::as_str);
        Err(Error::NotFound {
            kind: "namespace",
            name: format!("{name}, which was dropped"),
        })
    }

    /// The root of a namespace; an empty one where it has none yet.
    pub fn root(&self, namespace: u16) -> NamespaceRoot {
        let known = self.roots.namespaces.get(&namespace);
        known.copied().unwrap_or_default()
    }

    /// The buffers, newest first.
    pub fn buffers(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// Keys that a flush would carry into the tries.
    pub fn buffered_keys(&self) -> u64 {
        let of_buffers: usize = self.buffers().map(|buffer| buffer.keys()).sum();
        of_buffers as u64 + self.run.entries()
    }

    /// The ranges of a namespace that the buffers' writes up to a moment have deleted.
    pub fn deleted(&self, namespace: u16, moment: u64) -> RangeSet {
        let mut deleted = RangeSet::default();
        for buffer in self.buffers() {
            buffer.add_deleted(&mut deleted, namespace, moment);
        }
        deleted
    }

    /// True if a flush would carry something into the tries.
    pub fn is_buffered(&self) -> bool {
        !self.run.is_empty() || self.buffers().any(|buffer| !buffer.is_empty())
    }
}

/// A moment that is kept: dropping it lets it go.
#[derive(Debug)]
pub(crate) struct Pin {
    pub core: Arc<Core>,
    pub view: Arc<View>,
    pub sequence: u64,
}

impl Core {
    /// Keeps what is visible now.
    pub fn pin(self: &Arc<Self>) -> Result<Pin> {
        self.check_open()?;
        loop {
            let view = self.view.load_full();
            let sequence = {
                let mut pins = lock(&self.pins);
                let sequence = self.visible.load(Ordering::Acquire);
                *pins.entry(sequence).or_insert(0) += 1;
                sequence
            };
            let pin = Pin {
                core: self.clone(),
                view,
                sequence,
            };
            // A buffer sealed in between would lack the newest of the moment.
            if Arc::ptr_eq(&pin.view, &self.view.load()) {
                return Ok(pin);
            }
        }
    }

    /// Moments that buffers must keep.
    pub fn kept_moments(&self) -> crate::buffer::KeptMoments {
        let pins = lock(&self.pins);
        let visible = self.visible.load(Ordering::Acquire);
        crate::buffer::KeptMoments::new(pins.keys().copied(), visible)
    }
}

impl Pin {
    /// The same, if it has the namespace.
    pub fn of(self, namespace: u16) -> Result<Pin> {
        self.view.check_namespace(namespace)?;
        Ok(self)
    }

    /// Keeps the same moment once more.
    pub fn again(&self) -> Result<Pin> {
        self.core.check_open()?;
        *lock(&self.core.pins).entry(self.sequence).or_insert(0) += 1;
        Ok(Pin {
            core: self.core.clone(),
            view: self.view.clone(),
            sequence: self.sequence,
        })
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = lock(&self.core.pins);
        if let Some(count) = pins.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&self.sequence);
            }
        }
    }
}
