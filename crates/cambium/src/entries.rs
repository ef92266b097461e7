//! Cursors as iterators.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::ControlFlow;
use std::sync::Arc;

use cambium_api::cursor::unordered_pass;
use cambium_api::{Cursor, Direction, Entry, KeyRange, Result, ResumeToken, UnixMillis, Value};

use crate::store::OpenStore;

/// Entries of a store as of the moment at which this was made, whatever is
/// written meanwhile. It holds the store open; after [`Store::close`] it
/// answers `Closed`. After an error it has ended.
///
/// A scan goes from both ends, until they meet. An unordered pass
/// ([`Store::iterate`]) has no back: `next_back` and the seeks answer `Unsupported`.
///
/// ```
/// use cambium::prelude::*;
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// # let store = cambium::create(folder.path(), "forest", &Options::new())?;
/// for (tree, height) in [("ash", "43"), ("elm", "40"), ("fir", "60"), ("oak", "45")] {
///     store.put(tree, height)?;
/// }
/// let mut entries = store.scan("b"..)?;
/// assert_eq!(entries.next().transpose()?.unwrap().key, "elm");
/// assert_eq!(entries.next_back().transpose()?.unwrap().key, "oak");
/// assert_eq!(entries.next().transpose()?.unwrap().key, "fir");
/// assert!(entries.next().is_none() && entries.next_back().is_none());
///
/// let last = store.scan(..)?.rev().next().transpose()?;
/// assert_eq!(last.unwrap().value, "45");
/// # store.close()
/// # }
/// ```
///
/// [`Store::close`]: crate::Store::close
/// [`Store::iterate`]: crate::Store::iterate
pub struct Entries {
    /// Opened when they are first read.
    front: Option<Box<dyn Cursor>>,
    back: Option<Box<dyn Cursor>>,
    /// A scan's; a pass in no order has none.
    scanned: Option<Scanned>,
    is_over: bool,
    failed: bool,
    /// Dropped last: the store stays open while the cursors read.
    store: Arc<OpenStore>,
}

/// A scanned range, and how much of it both ends have left.
struct Scanned {
    range: KeyRange,
    low: Edge,
    high: Edge,
}

/// How far an end has come.
#[derive(Default)]
struct Edge {
    key: Option<Value>,
    at: At,
    /// The cursor has read an entry that the other end had passed.
    has_overrun: bool,
}

#[derive(Clone, Copy, Default)]
enum At {
    #[default]
    Start,
    /// The next key is this one, or lies past it.
    Key,
    /// The next key lies past this one.
    Past,
    /// All of the range is passed.
    End,
}

impl Edge {
    fn set(&mut self, key: Value, at: At) {
        self.key = Some(key);
        self.at = at;
    }

    fn key(&self) -> &[u8] {
        self.key.as_deref().unwrap_or_default()
    }
}

impl Scanned {
    /// True if the other end has not passed `key`.
    fn has_left(&self, key: &[u8], direction: Direction) -> bool {
        let edge = self.other(direction);
        let (one, other) = match direction {
            Direction::Forward => (key, edge.key()),
            Direction::Reverse => (edge.key(), key),
        };
        match edge.at {
            At::Start => true,
            At::Key => one <= other,
            At::Past => one < other,
            At::End => false,
        }
    }

    /// True if the other end has come anywhere.
    fn is_bound(&self, direction: Direction) -> bool {
        !matches!(self.other(direction).at, At::Start)
    }

    /// The end that goes the other way.
    fn other(&self, direction: Direction) -> &Edge {
        match direction {
            Direction::Forward => &self.high,
            Direction::Reverse => &self.low,
        }
    }

    /// Another cursor of the same moment, where this end has come to.
    fn open(&mut self, of: &dyn Cursor, direction: Direction) -> Result<Box<dyn Cursor>> {
        let mut cursor = of.another(&self.range, direction)?;
        let edge = self.edge(direction);
        match edge.at {
            At::Start | At::End => {}
            At::Key => cursor.seek(edge.key())?,
            At::Past => {
                cursor.seek(edge.key())?;
                cursor.next_key()?;
            }
        }
        edge.has_overrun = false;
        Ok(cursor)
    }

    fn edge(&mut self, direction: Direction) -> &mut Edge {
        match direction {
            Direction::Forward => &mut self.low,
            Direction::Reverse => &mut self.high,
        }
    }
}

impl Entries {
    /// A pass in no order.
    pub(crate) fn pass(cursor: Box<dyn Cursor>, store: &Arc<OpenStore>) -> Self {
        Entries {
            front: Some(cursor),
            back: None,
            scanned: None,
            is_over: false,
            failed: false,
            store: store.clone(),
        }
    }

    /// A scan, with a cursor before the first entry of the range.
    pub(crate) fn scan(
        front: Result<Box<dyn Cursor>>,
        range: KeyRange,
        store: &Arc<OpenStore>,
    ) -> Result<Self> {
        range.check_limits()?;
        Ok(Entries {
            front: Some(front?),
            back: None,
            scanned: Some(Scanned {
                range,
                low: Edge::default(),
                high: Edge::default(),
            }),
            is_over: false,
            failed: false,
            store: store.clone(),
        })
    }

    /// The moment at which the entry expires that [`Iterator::next`] answered last; `None`
    /// if it does not.
    pub fn expires_at(&self) -> Option<UnixMillis> {
        self.front.as_ref()?.expires_at()
    }

    /// Moves the front to the first entry at or behind `key`, also to one that was
    /// passed.
    ///
    /// # Errors
    /// `Unsupported` in an unordered pass.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// # for tree in ["ash", "elm", "oak"] { store.put(tree, "")?; }
    /// let mut entries = store.scan(..)?;
    /// entries.seek("b")?;
    /// assert_eq!(entries.next().transpose()?.unwrap().key, "elm");
    /// # store.close()
    /// # }
    /// ```
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.seek_towards(key.as_ref(), Direction::Forward)
    }

    /// Moves the back to the last entry at or before `key`, also to one that was passed.
    ///
    /// # Errors
    /// `Unsupported` in an unordered pass.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// # for tree in ["ash", "elm", "oak"] { store.put(tree, "")?; }
    /// let mut entries = store.scan(..)?;
    /// entries.seek_back("f")?;
    /// let mut keys = entries.rev().map(|entry| entry.map(|entry| entry.key));
    /// assert_eq!(keys.next().transpose()?.unwrap(), "elm");
    /// # store.close()
    /// # }
    /// ```
    pub fn seek_back(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.seek_towards(key.as_ref(), Direction::Reverse)
    }

    fn seek_towards(&mut self, key: &[u8], direction: Direction) -> Result<()> {
        self.cursor(direction)?.seek(key)?;
        if let Some(scanned) = &mut self.scanned {
            scanned.edge(direction).set(Value::copy_of(key), At::Key);
        }
        self.is_over = false;
        Ok(())
    }

    /// Hands key and value of the entries that are left to `visit`, from the front, until it
    /// breaks off; says whether it did. They are shown where they lie, which costs less than
    /// entries that can be kept: the fastest way through a range.
    ///
    /// # Errors
    /// Those of [`Iterator::next`], behind the entries before it.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// # for tree in ["ash", "elm", "oak"] { store.put(tree, "")?; }
    /// use std::ops::ControlFlow;
    ///
    /// let mut bytes = 0;
    /// store.scan("b"..)?.visit(|key, value| {
    ///     bytes += key.len() + value.len();
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(bytes, 6);
    /// # store.close()
    /// # }
    /// ```
    pub fn visit(
        &mut self,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        self.visit_towards(Direction::Forward, visit)
    }

    /// The same from the back.
    ///
    /// # Errors
    /// As [`Entries::visit`]; `Unsupported` in an unordered pass.
    pub fn visit_back(
        &mut self,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        self.visit_towards(Direction::Reverse, visit)
    }

    fn visit_towards(
        &mut self,
        direction: Direction,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        if self.is_over || self.failed {
            return Ok(ControlFlow::Continue(()));
        }
        self.cursor(direction)?;
        let own = match direction {
            Direction::Forward => &mut self.front,
            Direction::Reverse => &mut self.back,
        };
        let (Some(cursor), scanned) = (own, &self.scanned) else {
            return Ok(ControlFlow::Continue(()));
        };
        let bound = scanned
            .as_ref()
            .filter(|scanned| scanned.is_bound(direction));
        let (mut last, mut has_overrun) = (None, false);
        let end = cursor.visit(&mut |key, value| {
            if bound.is_some_and(|scanned| !scanned.has_left(key, direction)) {
                has_overrun = true;
                return ControlFlow::Break(());
            }
            let flow = visit(key, value);
            if flow.is_break() || bound.is_some() {
                last = Some(Value::copy_of(key));
            }
            flow
        });
        self.failed = end.is_err();
        let end = end?;
        self.is_over = has_overrun || end.is_continue();
        if let Some(scanned) = &mut self.scanned {
            let edge = scanned.edge(direction);
            edge.has_overrun = has_overrun;
            match last {
                _ if end.is_continue() => edge.at = At::End,
                Some(key) => edge.set(key, At::Past),
                None => {}
            }
        }
        match self.is_over {
            true => Ok(ControlFlow::Continue(())),
            false => Ok(end),
        }
    }

    /// The key of the next entry alone, where the engine can without reading its
    /// value.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// # store.put("oak", "Quercus")?;
    /// let mut entries = store.iterate()?;
    /// while let Some(key) = entries.next_key() {
    ///     println!("{:?}", key?);
    /// }
    /// # store.close()
    /// # }
    /// ```
    pub fn next_key(&mut self) -> Option<Result<Value>> {
        self.step(Direction::Forward, |cursor| cursor.next_key(), |key| key)
    }

    /// The key of the last entry alone; otherwise as [`Entries::next_key`].
    pub fn next_key_back(&mut self) -> Option<Result<Value>> {
        self.step(Direction::Reverse, |cursor| cursor.next_key(), |key| key)
    }

    /// Where [`Store::iterate_with`] goes on after the last entry answered,
    /// also in another process, or `None` where that cannot be.
    ///
    /// [`Store::iterate_with`]: crate::Store::iterate_with
    pub fn resume_token(&self) -> Option<ResumeToken> {
        self.front.as_ref()?.resume_token()
    }

    fn cursor(&mut self, direction: Direction) -> Result<&mut dyn Cursor> {
        let engine = &self.store.engine;
        let unordered = || unordered_pass(engine.capabilities().engine);
        let Some(scanned) = &mut self.scanned else {
            return match (direction, &mut self.front) {
                (Direction::Forward, Some(front)) => Ok(&mut **front),
                _ => Err(unordered()),
            };
        };
        let (own, other) = match direction {
            Direction::Forward => (&mut self.front, &self.back),
            Direction::Reverse => (&mut self.back, &self.front),
        };
        if own.is_none() || scanned.edge(direction).has_overrun {
            let of = own.as_ref().or(other.as_ref()).ok_or_else(unordered)?;
            *own = Some(scanned.open(&**of, direction)?);
        }
        own.as_deref_mut()
            .map_or_else(|| Err(unordered()), |cursor| Ok(cursor as &mut dyn Cursor))
    }

    fn step<T>(
        &mut self,
        direction: Direction,
        read: impl FnOnce(&mut dyn Cursor) -> Result<Option<T>>,
        key_of: impl FnOnce(&T) -> &Value,
    ) -> Option<Result<T>> {
        if self.is_over || self.failed {
            return None;
        }
        let cursor = match self.cursor(direction) {
            Ok(cursor) => cursor,
            Err(error) => {
                self.failed = true;
                return Some(Err(error));
            }
        };
        match read(cursor) {
            Ok(Some(found)) => {
                if let Some(scanned) = &mut self.scanned {
                    let key = key_of(&found);
                    if !scanned.has_left(key, direction) {
                        self.is_over = true;
                        // A seek of the other end may make room.
                        scanned.edge(direction).has_overrun = true;
                        return None;
                    }
                    let key = key.clone();
                    scanned.edge(direction).set(key, At::Past);
                }
                Some(Ok(found))
            }
            Ok(None) => {
                self.is_over = true;
                None
            }
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scanned {
            Some(scanned) => write!(f, "Entries({:?})", scanned.range),
            None => f.write_str("Entries(in no order)"),
        }
    }
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(
            Direction::Forward,
            |cursor| cursor.next(),
            |entry| &entry.key,
        )
    }
}

impl DoubleEndedIterator for Entries {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(
            Direction::Reverse,
            |cursor| cursor.next(),
            |entry| &entry.key,
        )
    }
}

impl FusedIterator for Entries {}
