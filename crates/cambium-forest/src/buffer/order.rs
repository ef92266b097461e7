//! The order of a buffer's keys, made when somebody asks for it.
//!
//! Writers do not pay for it: a key gets its place when a scan comes by, or
//! when the buffer is sealed and goes into the tries. Places stand in short
//! sorted lists, each below the next. Few new keys are put in one by one; many
//! are sorted by themselves and merged in, once through.
//!
//! Writers wait while a thread reads the table. So a long catching up lets go of it again
//! and again ([`Turns`]): it looks at keys below a number alone, which stay as they are
//! whatever comes meanwhile.

use std::cmp::Ordering;

use cambium_io::sync::{RwLock, RwLockReadGuard};
use std::sync::PoisonError;

use super::table::Table;

/// Places of a list when it is cut in two.
const LONGEST_LIST: usize = 256;
/// New keys are put in one by one if they are fewer than this, or than a
/// sixteenth of the old ones.
const FEW: usize = 16;

/// A key's place: what sorts it, and its number.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Its first eight bytes, as a number that sorts as they do: most
    /// comparisons end here and touch no other memory.
    prefix: u64,
    number: u32,
    namespace: u16,
}

/// Eight bytes of a key from `start` on, as a number that sorts as they do.
fn prefix_at(key: &[u8], start: usize) -> u64 {
    let rest = key.get(start..).unwrap_or_default();
    if let Some(first) = rest.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let mut first = [0; 8];
    first[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(first)
}

/// Looks at a table under one hold of its lock.
const LOOKS: u32 = 1024;

/// A table that is read in turns with those who write it.
#[derive(Debug)]
pub(super) struct Turns<'t> {
    lock: &'t RwLock<Table>,
    held: Option<RwLockReadGuard<'t, Table>>,
    left: u32,
    looks: u32,
}

impl<'t> Turns<'t> {
    /// Holds nothing yet.
    pub fn new(lock: &'t RwLock<Table>) -> Self {
        Turns {
            lock,
            held: None,
            left: 0,
            looks: LOOKS,
        }
    }

    /// The same, held from the first look to the last: as a seeded bug.
    pub fn without_end(self) -> Self {
        Turns {
            looks: u32::MAX,
            ..self
        }
    }

    /// The table, for one look.
    fn look(&mut self) -> &Table {
        if self.left == 0 {
            // A writer that waits goes before the next look.
            self.held = None;
            self.left = self.looks;
        }
        self.left -= 1;
        let lock = self.lock;
        self.held
            .get_or_insert_with(|| lock.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets go before work that looks at no key.
    fn pause(&mut self) {
        if self.looks == LOOKS {
            self.held = None;
            self.left = 0;
        }
    }
}

/// The keys of a table in order, as far as they have been asked for.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// None is empty.
    lists: Vec<Vec<Place>>,
    /// Keys with smaller numbers have their places.
    known: u32,
}

/// A position in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    list: usize,
    place: usize,
}

impl Order {
    /// True if the keys with the first `count` numbers have their places.
    pub fn knows(&self, count: usize) -> bool {
        self.known as usize >= count
    }

    /// Gives the keys with the first `count` numbers their places.
    pub fn catch_up(&mut self, turns: &mut Turns<'_>, count: usize) {
        let count = (count as u32).max(self.known);
        let new = (count - self.known) as usize;
        if new < FEW.max(self.known as usize / 16) {
            for number in self.known..count {
                self.put(turns.look(), number);
            }
        } else {
            let numbers = self.known..count;
            let mut places: Vec<Place> = numbers
                .map(|number| place_of(turns.look(), number))
                .collect();
            sort(turns, &mut places);
            self.merge(turns, places);
        }
        self.known = count;
    }

    /// Puts one key in its place.
    fn put(&mut self, table: &Table, number: u32) {
        let place = place_of(table, number);
        let (namespace, key) = table.key(number);
        if self.lists.is_empty() {
            self.lists.push(vec![place]);
            return;
        }
        let list = self.list_of(table, namespace, key);
        let own = &mut self.lists[list];
        let at = own.partition_point(|other| compare(table, other, namespace, key).is_lt());
        own.insert(at, place);
        if own.len() > LONGEST_LIST {
            let behind = own.split_off(LONGEST_LIST / 2);
            self.lists.insert(list + 1, behind);
        }
    }

    /// The list that a key belongs into: the last that begins at or below it.
    fn list_of(&self, table: &Table, namespace: u16, key: &[u8]) -> usize {
        let behind = self.lists.partition_point(|list| {
            let first = list.first();
            first.is_some_and(|first| compare(table, first, namespace, key).is_le())
        });
        behind.saturating_sub(1)
    }

    /// Merges sorted new places with the old ones.
    fn merge(&mut self, turns: &mut Turns<'_>, new: Vec<Place>) {
        let old = std::mem::take(&mut self.lists);
        let mut old = old.into_iter().flatten().peekable();
        let mut new = new.into_iter().peekable();
        let mut list = Vec::with_capacity(LONGEST_LIST / 2);
        loop {
            let from_old = match (old.peek(), new.peek()) {
                (Some(one), Some(other)) => {
                    let table = turns.look();
                    let (namespace, key) = table.key(other.number);
                    compare(table, one, namespace, key).is_lt()
                }
                (Some(_), None) => true,
                (None, _) => false,
            };
            let next = if from_old { old.next() } else { new.next() };
            let Some(place) = next else { break };
            if list.len() == LONGEST_LIST / 2 {
                let next = Vec::with_capacity(LONGEST_LIST / 2);
                self.lists.push(std::mem::replace(&mut list, next));
            }
            list.push(place);
        }
        if !list.is_empty() {
            self.lists.push(list);
        }
    }

    /// The first position at or above a key, or above it.
    pub fn seek(&self, table: &Table, namespace: u16, key: &[u8], above: bool) -> Position {
        if self.lists.is_empty() {
            return Position { list: 0, place: 0 };
        }
        let list = self.list_of(table, namespace, key);
        let place = self.lists[list].partition_point(|other| {
            let side = compare(table, other, namespace, key);
            side.is_lt() || (above && side.is_eq())
        });
        self.normal(Position { list, place })
    }

    /// The position after the last key of a namespace.
    pub fn end_of(&self, table: &Table, namespace: u16) -> Position {
        match namespace.checked_add(1) {
            Some(next) => self.seek(table, next, b"", false),
            None => Position {
                list: self.lists.len(),
                place: 0,
            },
        }
    }

    fn normal(&self, position: Position) -> Position {
        match self.lists.get(position.list) {
            Some(list) if position.place >= list.len() => Position {
                list: position.list + 1,
                place: 0,
            },
            _ => position,
        }
    }

    /// The key at a position, and the position after it.
    pub fn forward(&self, position: Position) -> Option<(u32, Position)> {
        let place = self.lists.get(position.list)?.get(position.place)?;
        let behind = self.normal(Position {
            place: position.place + 1,
            ..position
        });
        Some((place.number, behind))
    }

    /// The key before a position, and its own position.
    pub fn backward(&self, position: Position) -> Option<(u32, Position)> {
        let before = if position.place > 0 {
            Position {
                place: position.place - 1,
                ..position
            }
        } else {
            let list = position.list.checked_sub(1)?;
            let place = self.lists[list].len() - 1;
            Position { list, place }
        };
        let place = self.lists.get(before.list)?.get(before.place)?;
        Some((place.number, before))
    }

    /// Numbers of the namespaces that have keys, ascending.
    pub fn namespaces(&self) -> Vec<u16> {
        let mut namespaces: Vec<u16> = Vec::new();
        for place in self.lists.iter().flatten() {
            if namespaces.last() != Some(&place.namespace) {
                namespaces.push(place.namespace);
            }
        }
        namespaces
    }
}

fn place_of(table: &Table, number: u32) -> Place {
    let (namespace, key) = table.key(number);
    Place {
        prefix: prefix_at(key, 0),
        number,
        namespace,
    }
}

fn compare(table: &Table, place: &Place, namespace: u16, key: &[u8]) -> Ordering {
    let prefixes = || place.prefix.cmp(&prefix_at(key, 0));
    let whole = || table.key(place.number).1.cmp(key);
    let namespaces = place.namespace.cmp(&namespace);
    namespaces.then_with(prefixes).then_with(whole)
}

/// Sorts places: by namespace and first eight bytes, then those that agree in
/// them by their next eight, and so on. Each key's bytes are looked at once for
/// eight of them, instead of in each comparison.
fn sort(turns: &mut Turns<'_>, places: &mut [Place]) {
    turns.pause();
    places.sort_unstable_by_key(|place| (place.namespace, place.prefix));
    let mut runs = Vec::new();
    let mut start = 0;
    let same =
        |one: &Place, other: &Place| (one.namespace, one.prefix) == (other.namespace, other.prefix);
    for run in places.chunk_by(same) {
        if run.len() > 1 {
            runs.push((start..start + run.len(), 0));
        }
        start += run.len();
    }
    let mut keyed: Vec<(u64, u8, Place)> = Vec::new();
    while let Some((run, depth)) = runs.pop() {
        // Those that end within these eight bytes are told apart by how many
        // they have, and come before those that go on.
        let places = &mut places[run.clone()];
        keyed.clear();
        keyed.extend(places.iter().map(|&place| {
            let (_, key) = turns.look().key(place.number);
            let rest = key.len().saturating_sub(depth).min(9) as u8;
            (prefix_at(key, depth), rest, place)
        }));
        if keyed.len() > LOOKS as usize {
            turns.pause();
        }
        keyed.sort_unstable_by_key(|&(prefix, rest, _)| (prefix, rest));
        let mut start = run.start;
        for same in keyed.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            if same.len() > 1 {
                runs.push((start..start + same.len(), depth + 8));
            }
            start += same.len();
        }
        for (place, (_, _, sorted)) in places.iter_mut().zip(&keyed) {
            *place = *sorted;
        }
    }
}
