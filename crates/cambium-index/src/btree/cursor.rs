//! Walking a tree in key order, both ways.

use cambium_base::Result;

use crate::node_store::{Node, NodeAddress, NodeReader};

use super::node::{NodeView, read_node, view};
use super::search::rank;

/// A place in a tree. It owns its way down (the nodes are shared with the
/// cache) and borrows nothing, so it may be kept between calls; the tree under
/// its root never changes.
///
/// A new cursor stands before the first entry.
///
/// ```
/// use cambium_index::MemoryNodes;
/// use cambium_index::btree::{self, Cursor, KeyLayout, TreeOptions};
/// let mut nodes = MemoryNodes::new(512);
/// let options = TreeOptions::new(KeyLayout::Variable);
/// let mut entries = (0..500u16).map(|n| Ok((n.to_be_bytes().to_vec(), u64::from(n))));
/// let root = btree::build(&mut nodes, &options, b"", &mut entries).unwrap();
///
/// let mut cursor = Cursor::new(root);
/// assert!(cursor.seek(&nodes, &300u16.to_be_bytes()).unwrap());
/// assert_eq!(cursor.entry(), Some((&300u16.to_be_bytes()[..], 300)));
/// assert!(cursor.previous(&nodes).unwrap());
/// assert_eq!(cursor.value(), Some(299));
/// assert!(!cursor.seek(&nodes, b"\xff").unwrap()); // after the last
/// assert!(cursor.previous(&nodes).unwrap());
/// assert_eq!(cursor.value(), Some(499));
/// ```
#[derive(Clone, Debug)]
pub struct Cursor {
    root: Option<NodeAddress>,
    /// From the root to the leaf; empty unless the place is an entry.
    way: Vec<Station>,
    place: Place,
    key: Vec<u8>,
    value: u64,
}

#[derive(Clone, Debug)]
struct Station {
    address: NodeAddress,
    node: Node,
    position: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    BeforeFirst,
    Entry,
    BehindLast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl Cursor {
    /// Before the first entry of the tree under `root`; `None` has no entries.
    pub fn new(root: Option<NodeAddress>) -> Self {
        Cursor {
            root,
            way: Vec::new(),
            place: Place::BeforeFirst,
            key: Vec::new(),
            value: 0,
        }
    }

    /// The entry that the cursor stands on.
    pub fn entry(&self) -> Option<(&[u8], u64)> {
        (self.place == Place::Entry).then_some((self.key.as_slice(), self.value))
    }

    /// Its key.
    pub fn key(&self) -> Option<&[u8]> {
        self.entry().map(|(key, _)| key)
    }

    /// Its value.
    pub fn value(&self) -> Option<u64> {
        self.entry().map(|(_, value)| value)
    }

    /// The nodes from the root to the leaf that the cursor stands in; none unless it stands
    /// on an entry.
    pub fn nodes_on_way(&self) -> impl Iterator<Item = NodeAddress> {
        self.way.iter().map(|station| station.address)
    }

    /// The same nodes, and the position in each that the way goes through.
    pub(crate) fn way<R: NodeReader + ?Sized>(
        &self,
        reader: &R,
    ) -> Result<Vec<(NodeView<'_>, usize)>> {
        let stations = self.way.iter();
        stations
            .map(|station| {
                let node = view(reader, station.address, &station.node)?;
                Ok((node, station.position))
            })
            .collect()
    }

    /// Goes to the first entry at or after `key`. False if there is none: the
    /// cursor then stands after the last entry.
    ///
    /// # Errors
    /// What the reader answers; `Corruption`.
    pub fn seek<R: NodeReader + ?Sized>(&mut self, reader: &R, key: &[u8]) -> Result<bool> {
        self.leave(Place::BehindLast);
        let Some(mut address) = self.root else {
            return Ok(false);
        };
        let mut level = None;
        loop {
            let node = read_node(reader, address, level)?;
            let seen = view(reader, address, &node)?;
            let found = rank(&seen, key);
            let is_leaf = seen.level() == 0;
            let position = found.position + usize::from(!is_leaf && found.found);
            let is_there = position < seen.values();
            let child = seen.child(position);
            level = Some(seen.level().wrapping_sub(1));
            self.way.push(Station {
                address,
                node,
                position,
            });
            if !is_leaf {
                address = child;
                continue;
            }
            if is_there {
                return self.arrive(reader, None);
            }
            return self.turn_to_neighbour(reader, Direction::Forward, None);
        }
    }

    /// Goes to the first entry; false if there is none.
    ///
    /// # Errors
    /// What the reader answers; `Corruption`.
    pub fn seek_first<R: NodeReader + ?Sized>(&mut self, reader: &R) -> Result<bool> {
        self.leave(Place::BehindLast);
        match self.root {
            Some(root) => self.descend(reader, root, None, Direction::Forward, None),
            None => Ok(false),
        }
    }

    /// Goes to the last entry; false if there is none: the cursor then stands
    /// before the first.
    ///
    /// # Errors
    /// What the reader answers; `Corruption`.
    pub fn seek_last<R: NodeReader + ?Sized>(&mut self, reader: &R) -> Result<bool> {
        self.leave(Place::BeforeFirst);
        match self.root {
            Some(root) => self.descend(reader, root, None, Direction::Backward, None),
            None => Ok(false),
        }
    }

    /// Goes to the next entry. False if there is none: the cursor then stands
    /// after the last.
    ///
    /// # Errors
    /// What the reader answers; `Corruption`.
    pub fn next<R: NodeReader + ?Sized>(&mut self, reader: &R) -> Result<bool> {
        match self.place {
            Place::BeforeFirst => self.seek_first(reader),
            Place::Entry => self.step(reader, Direction::Forward),
            Place::BehindLast => Ok(false),
        }
    }

    /// Goes to the entry before. False if there is none: the cursor then
    /// stands before the first.
    ///
    /// # Errors
    /// What the reader answers; `Corruption`.
    pub fn previous<R: NodeReader + ?Sized>(&mut self, reader: &R) -> Result<bool> {
        match self.place {
            Place::BeforeFirst => Ok(false),
            Place::Entry => self.step(reader, Direction::Backward),
            Place::BehindLast => self.seek_last(reader),
        }
    }

    /// Goes on through the leaf that the cursor stands in, forward or back, over entries
    /// whose values `take` accepts, and stands at the last of them: one look at the leaf for
    /// all. The first value that is not accepted, and other leaves, are left to
    /// [`Cursor::next`] and [`Cursor::previous`].
    ///
    /// # Errors
    /// `Corruption`.
    pub fn go_on_in_leaf<R: NodeReader + ?Sized>(
        &mut self,
        reader: &R,
        forward: bool,
        mut take: impl FnMut(u64) -> bool,
    ) -> Result<()> {
        let Some(station) = self.way.last_mut().filter(|_| self.place == Place::Entry) else {
            return Ok(());
        };
        let leaf = view(reader, station.address, &station.node)?;
        let before = station.position;
        let (direction, step) = match forward {
            true => (Direction::Forward, 1),
            false => (Direction::Backward, usize::MAX),
        };
        loop {
            // Before the first one it wraps around.
            let next = station.position.wrapping_add(step);
            if next >= leaf.values() || !take(leaf.value(next)) {
                break;
            }
            station.position = next;
        }
        if station.position != before {
            self.arrive(reader, Some(direction))?;
        }
        Ok(())
    }

    fn leave(&mut self, place: Place) {
        self.way.clear();
        self.place = place;
    }

    /// From an entry to its neighbour.
    fn step<R: NodeReader + ?Sized>(&mut self, reader: &R, direction: Direction) -> Result<bool> {
        if self.move_in_node(reader, direction)? {
            return self.arrive(reader, Some(direction));
        }
        self.turn_to_neighbour(reader, direction, Some(direction))
    }

    /// Moves the last station by one, if there is one.
    fn move_in_node<R: NodeReader + ?Sized>(
        &mut self,
        reader: &R,
        direction: Direction,
    ) -> Result<bool> {
        let Some(station) = self.way.last_mut() else {
            return Ok(false);
        };
        let values = view(reader, station.address, &station.node)?.values();
        let moved = match direction {
            Direction::Forward => Some(station.position + 1).filter(|&next| next < values),
            Direction::Backward => station.position.checked_sub(1),
        };
        if let Some(position) = moved {
            station.position = position;
        }
        Ok(moved.is_some())
    }

    /// The leaf has nothing more in this direction: up, and down again.
    fn turn_to_neighbour<R: NodeReader + ?Sized>(
        &mut self,
        reader: &R,
        direction: Direction,
        came: Option<Direction>,
    ) -> Result<bool> {
        while self.way.pop().is_some() {
            if !self.move_in_node(reader, direction)? {
                continue;
            }
            if let Some(station) = self.way.last() {
                let node = view(reader, station.address, &station.node)?;
                let below = Some(node.level().wrapping_sub(1));
                let child = node.child(station.position);
                return self.descend(reader, child, below, direction, came);
            }
        }
        self.leave(match direction {
            Direction::Forward => Place::BehindLast,
            Direction::Backward => Place::BeforeFirst,
        });
        Ok(false)
    }

    /// Down to the first entry (the last one, backward) under a node.
    fn descend<R: NodeReader + ?Sized>(
        &mut self,
        reader: &R,
        mut address: NodeAddress,
        mut level: Option<u8>,
        direction: Direction,
        came: Option<Direction>,
    ) -> Result<bool> {
        loop {
            let node = read_node(reader, address, level)?;
            let seen = view(reader, address, &node)?;
            let position = match direction {
                Direction::Forward => 0,
                Direction::Backward => seen.values() - 1,
            };
            let (own_level, child) = (seen.level(), seen.child(position));
            self.way.push(Station {
                address,
                node,
                position,
            });
            if own_level == 0 {
                return self.arrive(reader, came);
            }
            (address, level) = (child, Some(own_level - 1));
        }
    }

    /// Takes key and value of the entry that the way leads to. Seen from the
    /// entry before, it must lie in the direction that the cursor `came`: a
    /// damaged tree, whose nodes may be shared, is left with an error.
    fn arrive<R: NodeReader + ?Sized>(
        &mut self,
        reader: &R,
        came: Option<Direction>,
    ) -> Result<bool> {
        let Some(station) = self.way.last() else {
            return Ok(false);
        };
        let leaf = view(reader, station.address, &station.node)?;
        if let Some(direction) = came {
            if !is_ahead(&leaf, station.position, &self.key, direction) {
                let what = "its keys are out of order".to_string();
                let error = reader.corrupt(station.address, what);
                self.leave(Place::BehindLast);
                return Err(error);
            }
        }
        self.key.clear();
        leaf.append_key(station.position, &mut self.key);
        self.value = leaf.value(station.position);
        self.place = Place::Entry;
        Ok(true)
    }
}

/// Whether key `position` of a leaf lies ahead of `key`.
fn is_ahead(leaf: &NodeView<'_>, position: usize, key: &[u8], direction: Direction) -> bool {
    let order = super::search::compare_whole(leaf, position, key);
    match direction {
        Direction::Forward => order.is_gt(),
        Direction::Backward => order.is_lt(),
    }
}
