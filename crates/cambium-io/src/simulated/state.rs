//! What a simulated disk knows, apart from the lock around it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::{Error, Result};

use super::control::Sharing;
use super::events::{Event, Events};
use super::faults::{ArmedRule, ErrorNumber, Fault, OperationClass};
use super::image::CHUNK_BYTES;
use super::lock::Holders;
use super::node::{Change, Fate, NameAction, NameChange, Node};
use super::random::Generator;
use super::tree::{Entry, Tree, parent};

/// Everything behind a disk's lock.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) nodes: BTreeMap<u64, Arc<Node>>,
    pub(super) cached_names: Arc<Tree>,
    pub(super) durable_names: Arc<Tree>,
    pub(super) name_changes: Vec<NameChange>,
    pub(super) next_node: u64,
    pub(super) next_order: u64,
    /// Open handles of each node; nodes without one are not listed.
    pub(super) handles: BTreeMap<u64, u32>,
    pub(super) locks: BTreeMap<u64, Holders>,
    /// Chunks that fit on the disk.
    pub(super) capacity: Option<u64>,
    pub(super) rules: Vec<ArmedRule>,
    pub(super) operations: u64,
    pub(super) generator: Generator,
    pub(super) short_transfers: bool,
    /// Files can have several names and share blocks.
    pub(super) shares: Sharing,
    /// No device lies below the cache: see [`super::SimulatedDisk::memory`].
    pub(super) cache_only: bool,
    pub(super) events: Arc<Events>,
}

impl State {
    pub(super) fn new(seed: u64, events: Arc<Events>) -> Self {
        State {
            nodes: BTreeMap::new(),
            cached_names: Arc::default(),
            durable_names: Arc::default(),
            name_changes: Vec::new(),
            next_node: 1,
            next_order: 0,
            handles: BTreeMap::new(),
            locks: BTreeMap::new(),
            capacity: None,
            rules: Vec::new(),
            operations: 0,
            generator: Generator::new(seed),
            short_transfers: false,
            shares: Sharing::Blocks,
            cache_only: false,
            events,
        }
    }

    /// Counts an operation and answers the fault that meets it. A plain
    /// error is already the `Err`.
    pub(super) fn admit(
        &mut self,
        event: Event,
        operation: &'static str,
        path: &Path,
    ) -> Result<Option<Fault>> {
        self.operations += 1;
        self.events.add(event);
        let class = OperationClass::of(event);
        let mut met = None;
        self.rules.retain_mut(|armed| {
            let meets = armed.meets(class);
            if meets && met.is_none() {
                met = Some(armed.rule.fault);
            }
            !meets || armed.rule.forever
        });
        match met {
            Some(Fault::Error(number)) => {
                self.events.add(Event::ErrorInjected);
                Err(match class {
                    OperationClass::Sync => fail_sync(operation, path, number),
                    _ => fail(operation, path, number),
                })
            }
            other => Ok(other),
        }
    }

    fn order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    /// A node that a handle or name guarantees to be there; a fresh one
    /// stands in where a handle outlived its disk's state.
    pub(super) fn node_mut(&mut self, node: u64) -> &mut Node {
        Arc::make_mut(self.nodes.entry(node).or_default())
    }

    pub(super) fn node(&self, node: u64) -> Option<&Node> {
        self.nodes.get(&node).map(Arc::as_ref)
    }

    /// Does a change of bytes or length in the cache.
    pub(super) fn change(&mut self, node: u64, change: Change, fate: Fate) {
        if self.cache_only {
            return change.apply(&mut self.node_mut(node).cached);
        }
        let order = self.order();
        self.node_mut(node).change(order, change, fate);
    }

    /// A failed sync forgets what it should have written.
    pub(super) fn drop_pages(&mut self, node: u64) {
        let order = self.order();
        self.node_mut(node).drop_pages(order);
    }

    /// A failed sync leaves what it should have written clean in the cache.
    pub(super) fn keep_pages(&mut self, node: u64) {
        let order = self.order();
        self.node_mut(node).keep_pages(order);
    }

    /// Makes a file, in the cache.
    pub(super) fn link(&mut self, path: &Path) -> u64 {
        let node = self.next_node;
        self.next_node += 1;
        self.nodes.insert(node, Arc::default());
        let action = NameAction::Link {
            path: path.to_path_buf(),
            node,
        };
        self.rename_in_cache(parent(path), action);
        node
    }

    /// Does a change of a name in the cache.
    pub(super) fn rename_in_cache(&mut self, folder: &Path, action: NameAction) {
        let change = NameChange {
            order: self.order(),
            folder: folder.to_path_buf(),
            action,
        };
        change.apply(Arc::make_mut(&mut self.cached_names));
        if !self.cache_only {
            self.name_changes.push(change);
        } else if change.action.may_remove() {
            self.collect();
        }
    }

    /// A handle is gone.
    pub(super) fn let_go(&mut self, node: u64) {
        let Some(count) = self.handles.get_mut(&node) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.handles.remove(&node);
            if self.cache_only && !self.cached_names.files().any(|named| named == node) {
                self.nodes.remove(&node);
            }
        }
    }

    /// Makes the names of a folder durable.
    pub(super) fn sync_names(&mut self, folder: &Path) {
        if !self
            .name_changes
            .iter()
            .any(|change| change.folder == folder)
        {
            return;
        }
        let names = Arc::make_mut(&mut self.durable_names);
        self.name_changes.retain(|change| {
            let synced = change.folder == folder;
            if synced {
                change.apply(names);
            }
            !synced
        });
        self.collect();
    }

    /// Forgets files that no name and no handle reaches.
    pub(super) fn collect(&mut self) {
        let mut reachable: Vec<u64> = self.handles.keys().copied().collect();
        for names in [&self.cached_names, &self.durable_names] {
            reachable.extend(names.files());
        }
        for change in &self.name_changes {
            match &change.action {
                NameAction::Link { node, .. } | NameAction::RenameFile { node, .. } => {
                    reachable.push(*node);
                }
                _ => {}
            }
        }
        reachable.sort_unstable();
        self.nodes
            .retain(|node, _| reachable.binary_search(node).is_ok());
    }

    /// Bytes of a block device's sector; 0 for a file.
    pub(super) fn sector_bytes(&self, node: u64) -> u32 {
        self.node(node).map_or(0, |node| node.sector_bytes)
    }

    /// Chunks in use: by files that have a name or an open handle.
    pub(super) fn used_chunks(&self) -> u64 {
        let named = self.cached_names.files();
        let mut nodes: Vec<u64> = named.chain(self.handles.keys().copied()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
            .into_iter()
            .filter_map(|node| self.node(node))
            .filter(|node| node.sector_bytes == 0)
            .map(|node| node.cached.allocated_chunks())
            .sum()
    }

    /// How many bytes of a range can be written or allocated before the disk
    /// is full.
    pub(super) fn room(&self, node: u64, offset: u64, length: u64) -> u64 {
        if let Some(device) = self.node(node).filter(|node| node.sector_bytes > 0) {
            return device.cached.length().saturating_sub(offset).min(length);
        }
        let (Some(capacity), Some(node)) = (self.capacity, self.node(node)) else {
            return length;
        };
        if node.cached.missing_chunks(offset, length) == 0 {
            return length;
        }
        let free = capacity.saturating_sub(self.used_chunks());
        let unit = CHUNK_BYTES as u64;
        let mut end = offset;
        let mut taken = 0;
        while end < offset + length {
            let next = ((end / unit + 1) * unit).min(offset + length);
            taken += node.cached.missing_chunks(end, next - end);
            if taken > free {
                break;
            }
            end = next;
        }
        end - offset
    }

    /// Paths of all files, as the cache sees them, sorted.
    pub(super) fn files(&self) -> Vec<(PathBuf, u64)> {
        let files = self
            .cached_names
            .iter()
            .filter_map(|(path, entry)| match entry {
                Entry::File(node) => Some((path.clone(), *node)),
                Entry::Directory => None,
            });
        files.collect()
    }
}

/// An error that was injected.
pub(super) fn fail(operation: &'static str, path: &Path, number: ErrorNumber) -> Error {
    Error::io(operation, path, number.to_error())
}

/// The same of a sync.
pub(super) fn fail_sync(operation: &'static str, path: &Path, number: ErrorNumber) -> Error {
    Error::sync(operation, path, number.to_error())
}
