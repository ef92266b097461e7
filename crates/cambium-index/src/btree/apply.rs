//! A batch of changes in one pass, copy on write.
//!
//! The pass walks down to the first leaf that a key belongs to, asks for the
//! new value of every key of that leaf, and goes on. As long as nothing changes
//! it only reads. The first change *opens* the nodes of the way down: they are
//! retired, what lies to the left of the way in them is handed to [`Levels`] as
//! subtrees that stay, and from then on what follows is handed over in order:
//! entries of changed leaves, and subtrees between them. What was not opened
//! is not touched.
//!
//! A leaf of which only values change is copied as it is, with the new values
//! in place: an update costs no taking apart and putting together.

use std::borrow::Cow;

use cambium_base::{Error, Result};

use crate::node_store::{Node, NodeAddress, NodeWriter};

use super::finish::RightEdge;
use super::levels::{Levels, child_low};
use super::node::{NodeView, read_node, view};
use super::options::TreeOptions;
use super::search::rank;

/// Applies a batch: `keys` in strictly ascending order, each asked for once.
///
/// `merge` is called for each key, in order, with the value that the tree has,
/// and answers the value that it shall have; `None` is no entry. It may append
/// to the writer on its own. Answers the new root, `None` for a tree without
/// entries. Only changed nodes are appended, each once, children before their
/// parents; if every answer is what was there and the root's metadata is
/// `metadata`, nothing is. Every node that the new root no longer reaches is
/// retired.
///
/// Cost: the nodes on the way to the keys are read once each, and few
/// neighbours of nodes that got too small.
///
/// # Errors
/// `InvalidArgument` for keys out of order, or of a length that a tree of
/// fixed-length keys does not take; `LimitExceeded` for a key longer than
/// [`max_key_bytes`](super::max_key_bytes) or metadata longer than
/// [`max_metadata_bytes`](super::max_metadata_bytes); `Corruption`; what
/// writer and `merge` answer. After an error the old root is what it was, and
/// what was appended is reached by nobody.
///
/// ```
/// use cambium_index::MemoryNodes;
/// use cambium_index::btree::{self, KeyLayout, TreeOptions};
/// let mut nodes = MemoryNodes::new(4096);
/// let options = TreeOptions::new(KeyLayout::Variable);
/// let mut keys = [&b"ash"[..], b"oak"].into_iter().map(Into::into);
/// let root = btree::apply(&mut nodes, &options, None, b"", &mut keys, &mut |_, key, old| {
///     assert_eq!(old, None);
///     Ok(Some(u64::from(key[0])))
/// });
/// let root = root.unwrap().unwrap();
/// assert_eq!(btree::get(&nodes, root, b"oak").unwrap(), Some(u64::from(b'o')));
///
/// // Deleting both leaves no tree.
/// let mut keys = [&b"ash"[..], b"oak"].into_iter().map(Into::into);
/// let gone = btree::apply(&mut nodes, &options, Some(root), b"", &mut keys, &mut |_, _, _| Ok(None));
/// assert_eq!(gone.unwrap(), None);
/// assert_eq!(nodes.live(), 0);
/// ```
pub fn apply<'k, W: NodeWriter + ?Sized>(
    writer: &mut W,
    options: &TreeOptions,
    root: Option<NodeAddress>,
    metadata: &[u8],
    keys: &mut dyn Iterator<Item = Cow<'k, [u8]>>,
    merge: &mut Merge<'_, W>,
) -> Result<Option<NodeAddress>> {
    let node_bytes = writer.node_bytes();
    options.validate(node_bytes, metadata)?;
    let keys = Keys {
        source: keys,
        next: None,
        options,
        node_bytes,
    };
    let mut pass = Pass {
        keys,
        merge,
        levels: Levels::new(options, node_bytes),
        way: Vec::new(),
        changed: false,
        edge: RightEdge::Appended,
    };
    pass.keys.advance(None)?;
    match root {
        Some(root) => pass.change(writer, root, metadata)?,
        None => pass.fill(writer)?,
    }
    if !pass.changed {
        return Ok(root);
    }
    pass.levels.finish(writer, metadata, pass.edge)
}

/// What is asked for each key: the writer, the key, the value that is there;
/// answers the value that shall be there.
pub type Merge<'m, W> = dyn FnMut(&mut W, &[u8], Option<u64>) -> Result<Option<u64>> + 'm;

/// New values of old entries, by position.
type Patches = Vec<(usize, u64)>;

/// The keys of a batch, with one looked at ahead.
struct Keys<'i, 'k> {
    source: &'i mut dyn Iterator<Item = Cow<'k, [u8]>>,
    next: Option<Cow<'k, [u8]>>,
    options: &'i TreeOptions,
    node_bytes: usize,
}

impl Keys<'_, '_> {
    /// Fetches the next key, which must be larger than the one before.
    fn advance(&mut self, before: Option<&[u8]>) -> Result<()> {
        self.next = self.source.next();
        let Some(key) = self.next.as_deref() else {
            return Ok(());
        };
        if before.is_some_and(|before| before >= key) {
            return Err(Error::InvalidArgument(
                "the keys of a batch are not in strictly ascending order".to_string(),
            ));
        }
        self.options.check_key(key, self.node_bytes)
    }
}

/// An index node on the way down.
struct Station {
    address: NodeAddress,
    node: Node,
    /// The bounds of its keys: at or above, and below.
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    /// The child that the way goes through.
    position: usize,
    /// Children handed over so far, once opened.
    handed: usize,
    opened: bool,
}

struct Pass<'i, 'k, 'm, W: ?Sized> {
    keys: Keys<'i, 'k>,
    merge: &'i mut Merge<'m, W>,
    levels: Levels,
    way: Vec<Station>,
    changed: bool,
    edge: RightEdge,
}

impl<W: NodeWriter + ?Sized> Pass<'_, '_, '_, W> {
    /// A batch for a tree without entries.
    fn fill(&mut self, writer: &mut W) -> Result<()> {
        while let Some(key) = self.keys.next.take() {
            if let Some(value) = (self.merge)(writer, &key, None)? {
                self.changed = true;
                self.levels.push_entry(writer, &key, value)?;
            }
            self.keys.advance(Some(&key))?;
        }
        Ok(())
    }

    fn change(&mut self, writer: &mut W, root: NodeAddress, metadata: &[u8]) -> Result<()> {
        let node = read_node(writer, root, None)?;
        let root_view = view(writer, root, &node)?;
        let level = root_view.level();
        let rewrite = root_view.metadata() != metadata;
        if level == 0 {
            return self.leaf(writer, root, &node, &[], None, rewrite);
        }
        self.way.push(Station {
            address: root,
            node,
            low: Vec::new(),
            high: None,
            position: 0,
            handed: 0,
            opened: false,
        });
        if rewrite {
            self.open_way(writer, false)?;
        }
        while self.keys.next.is_some() {
            self.visit_leaf(writer)?;
        }
        while let Some(station) = self.way.pop() {
            self.leave(writer, &station)?;
        }
        Ok(())
    }

    /// Goes from where the last key was to the leaf of the next key.
    fn visit_leaf(&mut self, writer: &mut W) -> Result<()> {
        let Some(key) = self.keys.next.take() else {
            return Ok(());
        };
        // The root's range has no end, so the way keeps its first station.
        while self
            .way
            .last()
            .is_some_and(|station| is_beyond(&station.high, &key))
        {
            if let Some(station) = self.way.pop() {
                self.leave(writer, &station)?;
            }
        }
        loop {
            let Some(station) = self.way.last_mut() else {
                return Ok(());
            };
            let parent = view(writer, station.address, &station.node)?;
            let found = rank(&parent, &key);
            let position = found.position + usize::from(found.found);
            station.position = position;
            let low = child_low(&parent, position, &station.low);
            let high = if position < parent.keys() {
                Some(parent.key(position))
            } else {
                station.high.clone()
            };
            if is_beyond(&high, &key) {
                // Or else the pass would come back here for ever.
                let what = "its separators are out of order".to_string();
                return Err(writer.corrupt(station.address, what));
            }
            let address = parent.child(position);
            let level = parent.level() - 1;
            let node = read_node(writer, address, Some(level))?;
            if level == 0 {
                self.keys.next = Some(key);
                return self.leaf(writer, address, &node, &low, high, false);
            }
            self.way.push(Station {
                address,
                node,
                low,
                high,
                position: 0,
                handed: 0,
                opened: false,
            });
        }
    }

    /// Asks for all keys of a leaf.
    fn leaf(
        &mut self,
        writer: &mut W,
        address: NodeAddress,
        node: &Node,
        low: &[u8],
        high: Option<Vec<u8>>,
        mut opened: bool,
    ) -> Result<()> {
        let leaf = view(writer, address, node)?;
        let mut handed = 0;
        let mut appended = high.is_none();
        let mut patches = Patches::new();
        if opened {
            self.open_leaf(writer, address, low)?;
        }
        while let Some(key) = self.keys.next.take() {
            if is_beyond(&high, &key) {
                self.keys.next = Some(key);
                break;
            }
            let found = rank(&leaf, &key);
            let old = found.found.then(|| leaf.value(found.position));
            let new = (self.merge)(writer, &key, old)?;
            if new != old {
                appended &= found.position == leaf.keys();
                let in_place =
                    new.filter(|&value| !opened && found.found && leaf.takes_value(value));
                if let Some(value) = in_place {
                    patches.push((found.position, value));
                } else {
                    if !opened {
                        opened = true;
                        self.open_leaf(writer, address, low)?;
                        handed = self.hand_patched(writer, &leaf, &patches)?;
                    }
                    self.hand_entries(writer, &leaf, handed, found.position)?;
                    handed = found.position + usize::from(found.found);
                    if let Some(value) = new {
                        self.levels.push_entry(writer, &key, value)?;
                    }
                }
            }
            self.keys.advance(Some(&key))?;
        }
        if !opened {
            if patches.is_empty() {
                return Ok(());
            }
            if self.levels.takes_leaf() {
                self.open_way(writer, true)?;
                writer.retire(address);
                self.edge = RightEdge::Mixed;
                let patched = leaf.patched(&patches, self.levels.node_bytes);
                return self.levels.place_leaf(writer, low, patched);
            }
            self.open_leaf(writer, address, low)?;
            handed = self.hand_patched(writer, &leaf, &patches)?;
        }
        self.hand_entries(writer, &leaf, handed, leaf.keys())?;
        self.edge = if appended {
            RightEdge::Appended
        } else {
            RightEdge::Mixed
        };
        Ok(())
    }

    /// Hands over a leaf's entries up to its last new value; answers how many.
    fn hand_patched(
        &mut self,
        writer: &mut W,
        leaf: &NodeView<'_>,
        patches: &Patches,
    ) -> Result<usize> {
        let mut handed = 0;
        for &(position, value) in patches {
            self.hand_entries(writer, leaf, handed, position)?;
            self.levels.push_entry(writer, &leaf.key(position), value)?;
            handed = position + 1;
        }
        Ok(handed)
    }

    fn hand_entries(
        &mut self,
        writer: &mut W,
        leaf: &NodeView<'_>,
        start: usize,
        end: usize,
    ) -> Result<()> {
        self.levels.push_entries(writer, leaf, start, end)
    }

    fn open_leaf(&mut self, writer: &mut W, address: NodeAddress, low: &[u8]) -> Result<()> {
        self.open_way(writer, true)?;
        writer.retire(address);
        self.levels.begin_leaf(address, low);
        Ok(())
    }

    /// Opens the nodes of the way, and hands over what lies left of it.
    /// `through` says whether the way's last child is opened as well.
    fn open_way(&mut self, writer: &mut W, through: bool) -> Result<()> {
        self.changed = true;
        let stations = self.way.len();
        for (number, station) in self.way.iter_mut().enumerate() {
            if !station.opened {
                station.opened = true;
                writer.retire(station.address);
            }
            let left = station.handed..station.position;
            if !left.is_empty() {
                hand_children(&mut self.levels, writer, station, left)?;
            }
            if through || number + 1 < stations {
                station.handed = station.position + 1;
            }
        }
        Ok(())
    }

    /// The way leaves a node to the right.
    fn leave(&mut self, writer: &mut W, station: &Station) -> Result<()> {
        if !station.opened {
            return Ok(());
        }
        let values = view(writer, station.address, &station.node)?.values();
        hand_children(&mut self.levels, writer, station, station.handed..values)
    }
}

fn is_beyond(high: &Option<Vec<u8>>, key: &[u8]) -> bool {
    high.as_deref().is_some_and(|high| high <= key)
}

fn hand_children<W: NodeWriter + ?Sized>(
    levels: &mut Levels,
    writer: &mut W,
    station: &Station,
    children: std::ops::Range<usize>,
) -> Result<()> {
    let node = view(writer, station.address, &station.node)?;
    let level = usize::from(node.level()) - 1;
    let mut low = Vec::new();
    for position in children {
        low.clear();
        match position.checked_sub(1) {
            Some(separator) => node.append_key(separator, &mut low),
            None => low.extend_from_slice(&station.low),
        }
        levels.push_subtree(writer, level, &low, node.child(position))?;
    }
    Ok(())
}
