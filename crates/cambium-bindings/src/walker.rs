//! An iterator that goes both ways.
//!
//! Engines' cursors go one way. A [`Walker`] stands at an entry, or at none,
//! and goes to the next or the one before; where it turns, it opens a cursor
//! the other way at the key where it stands. Turning costs what seeking does.
//!
//! | state | how it comes about | `next` and `previous` |
//! |---|---|---|
//! | unplaced | new, or gone past either end | stay there |
//! | at an entry | a seek that found one, or a step | go on, or become unplaced |
//!
//! It sees one moment of its database, for as long as it lives; after the
//! database is closed it answers `Closed`.

use std::ops::{Bound, ControlFlow};

use cambium::{Direction, Entries, Entry, Error, KeyRange, Result, Snapshot, Value};

use crate::long_keys::{self, Group};
use crate::reader::Run;
use crate::sorted_keys::SortedKeys;

/// The bounds of a walk, each inclusive, exclusive or open.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The lower one.
    pub from: Bound<Vec<u8>>,
    /// The upper one.
    pub to: Bound<Vec<u8>>,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            from: Bound::Unbounded,
            to: Bound::Unbounded,
        }
    }
}

impl From<&KeyRange> for Bounds {
    fn from(range: &KeyRange) -> Self {
        let from = range.from.clone().map_or(Bound::Unbounded, Bound::Included);
        let to = range.to.clone().map_or(Bound::Unbounded, Bound::Excluded);
        Bounds { from, to }
    }
}

impl Bounds {
    /// The same as a range of keys in the order of their bytes.
    pub fn range(&self) -> KeyRange {
        let behind = |key: &Vec<u8>| {
            let mut key = key.clone();
            key.push(0);
            key
        };
        KeyRange {
            from: match &self.from {
                Bound::Included(key) => Some(key.clone()),
                Bound::Excluded(key) => Some(behind(key)),
                Bound::Unbounded => None,
            },
            to: match &self.to {
                Bound::Included(key) => Some(behind(key)),
                Bound::Excluded(key) => Some(key.clone()),
                Bound::Unbounded => None,
            },
        }
    }
}

/// An iterator that goes both ways over one moment of a database.
///
/// ```
/// use cambium_bindings::{Walker, walker::Bounds};
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// let store = cambium::create(folder.path(), "wisckey", &cambium::Options::new())?;
/// for tree in ["ash", "elm", "oak"] {
///     store.put(tree, "")?;
/// }
/// let mut walker = Walker::over_store(store.snapshot()?, &Bounds::default());
/// walker.seek(b"b")?;
/// assert_eq!(walker.key().map(|key| &**key), Some(&b"elm"[..]));
/// walker.previous()?;
/// walker.previous()?;
/// assert!(walker.key().is_none());
/// # store.close()
/// # }
/// ```
#[derive(Debug)]
pub struct Walker {
    way: Way,
}

#[derive(Debug)]
enum Way {
    Bytes(Box<ByBytes>),
    Order(Box<ByOrder>),
}

impl Walker {
    /// Walks a snapshot as it is stored.
    pub fn over_store(snapshot: Snapshot, bounds: &Bounds) -> Self {
        Walker::by_bytes(snapshot, bounds, Shape::Stored)
    }

    /// Walks a snapshot of a database whose long keys lie in groups.
    pub(crate) fn by_bytes(snapshot: Snapshot, bounds: &Bounds, shape: Shape) -> Self {
        let range = bounds.range();
        let stored = match shape {
            Shape::Stored => range.clone(),
            _ => long_keys::stored_range(&range),
        };
        Walker {
            way: Way::Bytes(Box::new(ByBytes {
                snapshot,
                range,
                stored,
                shape,
                cursor: None,
                members: Vec::new(),
                member: 0,
                current: None,
            })),
        }
    }

    pub(crate) fn by_order(
        snapshot: Snapshot,
        keys: SortedKeys,
        bounds: &Bounds,
        keys_only: bool,
    ) -> Self {
        Walker {
            way: Way::Order(Box::new(ByOrder {
                snapshot,
                keys,
                keys_only,
                bounds: bounds.clone(),
                current: None,
            })),
        }
    }

    /// The key where it stands.
    pub fn key(&self) -> Option<&Value> {
        self.entry().map(|entry| &entry.key)
    }

    /// The entry where it stands.
    pub fn entry(&self) -> Option<&Entry> {
        match &self.way {
            Way::Bytes(way) => way.current.as_ref(),
            Way::Order(way) => way.current.as_ref(),
        }
    }

    /// Goes to the first entry.
    ///
    /// # Errors
    /// What the store answers; the walker is then unplaced. So are all moves'.
    pub fn seek_to_first(&mut self) -> Result<()> {
        match &mut self.way {
            Way::Bytes(way) => way.begin(Direction::Forward),
            Way::Order(way) => way.place_from(way.bounds.from.clone()),
        }
    }

    /// Goes to the last entry.
    ///
    /// # Errors
    /// As of [`Walker::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        match &mut self.way {
            Way::Bytes(way) => way.begin(Direction::Reverse),
            Way::Order(way) => way.place_before(way.bounds.to.clone()),
        }
    }

    /// Goes to the first entry at or behind a key.
    ///
    /// # Errors
    /// As of [`Walker::seek_to_first`].
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        match &mut self.way {
            Way::Bytes(way) => way.seek(key),
            Way::Order(way) => match way.is_before_start(key) {
                true => way.place_from(way.bounds.from.clone()),
                false => way.place_from(Bound::Included(key.to_vec())),
            },
        }
    }

    /// Goes to the entry behind.
    ///
    /// # Errors
    /// As of [`Walker::seek_to_first`].
    #[expect(
        clippy::should_implement_trait,
        reason = "it answers no entry, it moves"
    )]
    pub fn next(&mut self) -> Result<()> {
        self.step(Direction::Forward)
    }

    /// Goes to the entry before.
    ///
    /// # Errors
    /// As of [`Walker::seek_to_first`].
    pub fn previous(&mut self) -> Result<()> {
        self.step(Direction::Reverse)
    }

    pub(crate) fn step(&mut self, direction: Direction) -> Result<()> {
        match self.take() {
            Some(stood_at) => self.step_from(&stood_at, direction),
            None => Ok(()),
        }
    }

    /// Puts the entry where it stands, and those behind it in a direction, into `run`,
    /// until that has so many or their keys and values so many bytes. It then stands at
    /// the last of them, or at none where nothing is behind.
    ///
    /// # Errors
    /// As of [`Walker::seek_to_first`], behind the entries before it.
    pub(crate) fn take_run(
        &mut self,
        direction: Direction,
        most_entries: usize,
        most_bytes: usize,
        run: &mut Run,
    ) -> Result<()> {
        let is_full = |run: &Run| run.len() >= most_entries || run.bytes() >= most_bytes;
        while let Some(entry) = self.take() {
            run.push(&entry.key, &entry.value);
            if is_full(run) {
                self.stand_at(entry);
                break;
            }
            let is_shown = match &mut self.way {
                Way::Bytes(way) => way.show(direction, &is_full, run)?,
                Way::Order(_) => false,
            };
            if !is_shown {
                self.step_from(&entry, direction)?;
            } else if is_full(run) {
                break;
            }
        }
        Ok(())
    }

    /// False if moves call the program's comparator.
    pub(crate) fn asks_the_store_alone(&self) -> bool {
        matches!(self.way, Way::Bytes(_))
    }

    /// The entry where it stands, which it leaves: a step goes on from there.
    fn take(&mut self) -> Option<Entry> {
        match &mut self.way {
            Way::Bytes(way) => way.current.take(),
            Way::Order(way) => way.current.take(),
        }
    }

    fn stand_at(&mut self, entry: Entry) {
        match &mut self.way {
            Way::Bytes(way) => way.current = Some(entry),
            Way::Order(way) => way.current = Some(entry),
        }
    }

    /// Goes on from an entry that was taken.
    fn step_from(&mut self, stood_at: &Entry, direction: Direction) -> Result<()> {
        match &mut self.way {
            Way::Bytes(way) => way.step_from(stood_at, direction),
            Way::Order(way) => {
                let at = Bound::Excluded(stood_at.key.to_vec());
                match direction {
                    Direction::Forward => way.place_from(at),
                    Direction::Reverse => way.place_before(at),
                }
            }
        }
    }
}

/// The cursor's next key, with its value where that may be a group of long keys.
fn next_key(
    entries: &mut Entries,
    direction: Direction,
    snapshot: &Snapshot,
) -> Result<Option<Entry>> {
    let key = match direction {
        Direction::Forward => entries.next_key(),
        Direction::Reverse => entries.next_key_back(),
    };
    let Some(key) = key.transpose()? else {
        return Ok(None);
    };
    let value = match long_keys::may_share(&key) {
        true => snapshot.get(&key)?,
        false => None,
    };
    Ok(Some(match value {
        Some(value) => Entry { key, value },
        None => of_key(key),
    }))
}

/// An entry of which only the key is wanted.
fn of_key(key: Value) -> Entry {
    let value = Value::copy_of(b"");
    Entry { key, value }
}

/// What a walk answers of what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Every entry as it is stored.
    Stored,
    /// Long keys out of their groups.
    EntriesInGroups,
    /// The same, with empty values.
    KeysInGroups,
}

/// A walk in the order of bytes, by the engine's cursors.
#[derive(Debug)]
struct ByBytes {
    snapshot: Snapshot,
    /// Keys that are answered.
    range: KeyRange,
    /// Keys of the store among which they are.
    stored: KeyRange,
    shape: Shape,
    /// The cursor in use, and which way it goes.
    cursor: Option<(Direction, Entries)>,
    /// The keys of the group where it stands, and which of them is current.
    members: Vec<Entry>,
    member: usize,
    current: Option<Entry>,
}

impl ByBytes {
    fn begin(&mut self, direction: Direction) -> Result<()> {
        self.leave();
        self.cursor = None;
        if self.is_empty() {
            return Ok(());
        }
        let entries = self.snapshot.scan(&self.stored)?;
        self.cursor = Some((direction, entries));
        self.advance()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self
            .range
            .from
            .as_ref()
            .is_some_and(|from| key <= from.as_slice())
        {
            return self.begin(Direction::Forward);
        }
        self.leave();
        if self.is_empty()
            || self
                .range
                .to
                .as_ref()
                .is_some_and(|to| key >= to.as_slice())
        {
            return Ok(());
        }
        let target = match self.shape {
            Shape::Stored => key,
            _ => long_keys::stored_key(key),
        };
        self.turn(Direction::Forward, target)?;
        self.advance()?;
        // The group may begin with keys before the one looked for.
        while let Some(before) = self.current.take_if(|entry| &*entry.key < key) {
            self.step_from(&before, Direction::Forward)?;
        }
        Ok(())
    }

    /// Goes on from the entry at which it stood.
    fn step_from(&mut self, stood_at: &Entry, direction: Direction) -> Result<()> {
        if !self.members.is_empty() {
            let next = match direction {
                Direction::Forward => Some(self.member + 1),
                Direction::Reverse => self.member.checked_sub(1),
            };
            if let Some(entry) = next.and_then(|next| self.members.get(next)) {
                if self.range.contains(&entry.key) {
                    self.current = Some(entry.clone());
                }
                self.member = next.unwrap_or(0);
                return Ok(());
            }
        }
        let in_use = self.cursor.as_ref().map(|(way, _)| *way);
        if in_use != Some(direction) {
            let stands_at = match self.members.is_empty() {
                true => &stood_at.key,
                false => long_keys::stored_key(&stood_at.key),
            };
            self.turn(direction, stands_at)?;
            // The cursor answers first the entry where the walker stands.
            if let Some((_, entries)) = &mut self.cursor {
                direction.advance(entries).transpose()?;
            }
        }
        self.members.clear();
        self.advance()
    }

    /// Puts entries behind the one that was taken into `run`, as the engine shows them, until
    /// it is full or a group comes; stands at the last of them, or in the group. False if it has
    /// to go a step at a time.
    fn show(
        &mut self,
        direction: Direction,
        is_full: &impl Fn(&Run) -> bool,
        run: &mut Run,
    ) -> Result<bool> {
        let Some((way, entries)) = &mut self.cursor else {
            return Ok(false);
        };
        if *way != direction || !self.members.is_empty() || self.shape == Shape::KeysInGroups {
            return Ok(false);
        }
        let has_groups = self.shape != Shape::Stored;
        let mut last = None;
        let visit = |key: &[u8], value: &[u8]| {
            let is_group = has_groups && long_keys::may_share(key);
            if !is_group {
                run.push(key, value);
                if !is_full(run) {
                    return ControlFlow::Continue(());
                }
            }
            let (key, value) = (Value::copy_of(key), Value::copy_of(value));
            last = Some((Entry { key, value }, is_group));
            ControlFlow::Break(())
        };
        let shown = match direction {
            Direction::Forward => entries.visit(visit),
            Direction::Reverse => entries.visit_back(visit),
        };
        if let Err(error) = shown {
            self.cursor = None;
            return Err(error);
        }
        match last {
            Some((entry, true)) if !self.enter_group(&entry, direction) => self.advance()?,
            Some((_, true)) | None => {}
            Some((entry, false)) => self.current = Some(entry),
        }
        Ok(true)
    }

    /// Takes the keys of a group that the walk shows, and stands at the first one; false if
    /// there is none.
    fn enter_group(&mut self, group: &Entry, direction: Direction) -> bool {
        let members = Group::of(&group.value).entries(&group.key).into_iter();
        let inside = members.filter(|(key, _)| self.range.contains(key));
        let member = |(key, value)| match self.shape {
            Shape::KeysInGroups => of_key(key),
            _ => Entry { key, value },
        };
        self.members = inside.map(member).collect();
        self.member = match direction {
            Direction::Forward => 0,
            Direction::Reverse => self.members.len().saturating_sub(1),
        };
        self.current = self.members.get(self.member).cloned();
        self.current.is_some()
    }

    /// Brings a cursor in a direction to a key of the store.
    fn turn(&mut self, direction: Direction, key: &[u8]) -> Result<()> {
        let mut entries = match self.cursor.take() {
            Some((way, entries)) if way == direction => entries,
            _ => self.snapshot.scan(&self.stored)?,
        };
        match direction {
            Direction::Forward => entries.seek(key)?,
            Direction::Reverse => entries.seek_back(key)?,
        }
        self.cursor = Some((direction, entries));
        Ok(())
    }

    /// Takes the cursor's next entry, or the group that it is.
    fn advance(&mut self) -> Result<()> {
        let Some(direction) = self.cursor.as_ref().map(|(direction, _)| *direction) else {
            return Ok(());
        };
        loop {
            let Some((_, entries)) = &mut self.cursor else {
                return Ok(());
            };
            let next = match self.shape {
                Shape::KeysInGroups => next_key(entries, direction, &self.snapshot),
                _ => direction.advance(entries).transpose(),
            };
            let next = match next {
                Ok(next) => next,
                Err(error) => {
                    self.cursor = None;
                    return Err(error);
                }
            };
            let Some(entry) = next else { return Ok(()) };
            if self.shape == Shape::Stored || !long_keys::may_share(&entry.key) {
                self.current = Some(entry);
                return Ok(());
            }
            if self.enter_group(&entry, direction) {
                return Ok(());
            }
        }
    }

    fn leave(&mut self) {
        self.current = None;
        self.members.clear();
    }

    /// True for bounds with nothing between them.
    fn is_empty(&self) -> bool {
        let (from, to) = (&self.range.from, &self.range.to);
        matches!((from, to), (Some(from), Some(to)) if from >= to)
            || to.as_ref().is_some_and(Vec::is_empty)
    }
}

/// A walk in the order of a comparator, by the sorted keys in memory.
#[derive(Debug)]
struct ByOrder {
    snapshot: Snapshot,
    keys: SortedKeys,
    keys_only: bool,
    bounds: Bounds,
    current: Option<Entry>,
}

impl ByOrder {
    fn place_from(&mut self, from: Bound<Vec<u8>>) -> Result<()> {
        let found = self.keys.first(as_slice(&from)).cloned();
        self.place(found)
    }

    fn place_before(&mut self, to: Bound<Vec<u8>>) -> Result<()> {
        let found = self.keys.last(as_slice(&to)).cloned();
        self.place(found)
    }

    fn place(&mut self, found: Option<Value>) -> Result<()> {
        self.current = None;
        let Some(key) = found.filter(|key| self.is_inside(key)) else {
            return Ok(());
        };
        if self.keys_only {
            self.current = Some(of_key(key));
            return Ok(());
        }
        let value = crate::view::stored_value(&self.snapshot, &key)?;
        let value = value.ok_or_else(|| {
            Error::InvalidArgument(format!(
                "comparator {:?} contradicts itself: a key it sorted is not in the store",
                self.keys.order().name()
            ))
        })?;
        self.current = Some(Entry { key, value });
        Ok(())
    }

    fn is_before_start(&self, key: &[u8]) -> bool {
        let compare = |bound: &[u8]| self.keys.compare(key, bound);
        match &self.bounds.from {
            Bound::Included(from) | Bound::Excluded(from) => compare(from).is_le(),
            Bound::Unbounded => false,
        }
    }

    fn is_inside(&self, key: &[u8]) -> bool {
        let compare = |bound: &[u8]| self.keys.compare(key, bound);
        let above = match &self.bounds.from {
            Bound::Included(from) => compare(from).is_ge(),
            Bound::Excluded(from) => compare(from).is_gt(),
            Bound::Unbounded => true,
        };
        above
            && match &self.bounds.to {
                Bound::Included(to) => compare(to).is_le(),
                Bound::Excluded(to) => compare(to).is_lt(),
                Bound::Unbounded => true,
            }
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}
